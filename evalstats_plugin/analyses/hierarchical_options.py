"""What a hierarchical fit may be told: how long to draw, and priors of standard deviations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalstats_plugin.analyses.hierarchical_records import Prior
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.tables.hierarchical import HIERARCHICAL_MODELS, INFERENCES
from evalstats_plugin.wording import no_such

_FAMILIES: Mapping[str, int] = {"gamma": 2, "half-normal": 1, "lognormal": 2}
_SCALES = ("default", "model", "task", "interaction", "question")


@dataclass(frozen=True, kw_only=True)
class HierarchicalOptions:
    """How long to draw, and under which priors."""

    chains: int = 4
    draws: int = 1000
    """Kept, of each chain."""
    warm_up: int = 300
    """Thrown away, of each chain."""
    priors: Mapping[str, Prior] = field(default_factory=dict[str, Prior])
    """Of standard deviations: of ``"model"``, ``"task"``, ``"interaction"``, ``"question"``, and
    ``"default"`` of the others, which is Gamma(2, 2) as in [BA24]_."""


def options_of(
    given: HierarchicalOptions | Mapping[str, Any] | None,
) -> tuple[HierarchicalOptions, str]:
    """Check the options, and tell the device from them."""
    if isinstance(given, HierarchicalOptions):
        return _checked(given), "auto"
    known = dict(given or {})
    device = str(known.pop("device", "auto"))
    names = list(HierarchicalOptions.__dataclass_fields__)
    for name in known:
        if name not in names:
            shown = ", ".join([*names, "device"])
            raise SelectionError(no_such("option", name, names, shown))
    return _checked(HierarchicalOptions(**known)), device


def _checked(options: HierarchicalOptions) -> HierarchicalOptions:
    if min(options.chains, options.draws, options.warm_up) < 1 or options.draws < 8:
        msg = (
            f"{options.chains} chains of {options.draws} draws after {options.warm_up} found, "
            "expected at least 1 chain of 8 draws after a warm-up of 1"
        )
        raise DesignError(msg)
    for name, prior in options.priors.items():
        if name not in _SCALES:
            raise SelectionError(no_such("scale", name, _SCALES, ", ".join(_SCALES)))
        _check_prior(prior)
    return options


def _check_prior(prior: Prior) -> None:
    family, numbers = str(prior[0]), [float(x) for x in prior[1:]]
    if family not in _FAMILIES:
        raise SelectionError(no_such("prior", family, _FAMILIES, ", ".join(_FAMILIES)))
    # The mean of log σ may be any number.
    positive = numbers[1:] if family == "lognormal" else numbers
    if len(numbers) != _FAMILIES[family] or not all(x > 0 for x in positive):
        msg = (
            f"prior {tuple(prior)} found, expected {family!r} and {_FAMILIES[family]} numbers "
            "above 0 (the mean of log σ may be any)"
        )
        raise DesignError(msg)


def check_names(model: str, inference: str) -> None:
    """Refuse names that do not exist."""
    given = (("model", model, HIERARCHICAL_MODELS), ("inference", inference, INFERENCES))
    for what, name, table in given:
        if name not in ("auto", *table):
            raise SelectionError(no_such(what, name, table, f"auto, {', '.join(table)}"))


def all_priors(options: HierarchicalOptions) -> dict[str, Prior]:
    """Return the priors given, and the default of the others."""
    return {"default": ("gamma", 2.0, 2.0), **options.priors}

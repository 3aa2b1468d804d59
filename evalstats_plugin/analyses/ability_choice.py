"""Which estimator fits these answers, with which options, and why?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.tables.estimators import (
    ESTIMATORS,
    ITEM_MODELS,
    OPTIONS,
    OPTIONS_OF_MODEL,
    RESPONSES,
    SERVES,
)
from evalstats_plugin.wording import no_such

FEW_MODELS = 300
"""Below so many, items are integrated out: measured on real matrices (docs/abilities.md)."""

FEW_ITEMS = 20
"""Below so many, an item prior cannot be estimated; a weak one is taken."""


class Chosen(NamedTuple):
    """An estimator by name, why, and its options."""

    estimator: str
    reason: str
    options: dict[str, Any]


def choose(
    item_model: str,
    estimator: str,
    response: str,
    shape: tuple[int, int],
    options: dict[str, Any],
) -> Chosen:
    """Choose the estimator, and check that all names go together.

    Parameters
    ----------
    shape
        Number of models and of items.

    Raises
    ------
    SelectionError
        A name that does not exist, or an estimator that does not fit what is asked.
    """
    check_names(item_model, estimator, response)
    if item_model == "factor" or response == "beta":
        return _only_one(item_model, estimator, response, options)
    name, reason = estimator, "asked for"
    if estimator == "auto":
        name, reason = _by_shape(item_model, *shape, grouped="groups" in options)
        if name == "mml":
            options = {"prior": "estimated" if shape[1] >= FEW_ITEMS else "weak", **options}
    if item_model not in SERVES[name]:
        msg = (
            f"estimator {name!r} fits {', '.join(SERVES[name])}, not {item_model!r}: choose "
            f"{' or '.join(e for e in ESTIMATORS if item_model in SERVES[e])}"
        )
        raise SelectionError(msg)
    _check_options(name, OPTIONS[name], options)
    return Chosen(name, reason, options)


def check_names(item_model: str, estimator: str, response: str) -> None:
    """Raise `SelectionError` for a name that does not exist, with those there are."""
    known = (
        ("item model", item_model, tuple(ITEM_MODELS)),
        ("estimator", estimator, ("auto", *ESTIMATORS)),
        ("response", response, tuple(RESPONSES)),
    )
    for what, name, names in known:
        if name not in names:
            raise SelectionError(no_such(what, name, names, ", ".join(names)))


def _only_one(item_model: str, estimator: str, response: str, options: dict[str, Any]) -> Chosen:
    """What has no other estimator than the posterior mode."""
    factor = item_model == "factor"
    what = "item model 'factor'" if factor else "response 'beta'"
    if factor and response == "beta":
        msg = f"{what} and response 'beta' found, which do not go together: pass one of them"
        raise SelectionError(msg)
    if item_model not in ("rasch", "2pl", "factor"):
        msg = f"{what} and item model {item_model!r} found, expected item model rasch or 2pl"
        raise SelectionError(msg)
    if estimator not in ("auto", "map"):
        msg = f"{what} and estimator {estimator!r} found, expected its only estimator, map"
        raise SelectionError(msg)
    _check_options(what, OPTIONS_OF_MODEL["factor" if factor else "beta"], options)
    reason = "asked for" if estimator == "map" else f"the one estimator of {what}"
    return Chosen("map", reason, options)


def _check_options(of: str, known: tuple[str, ...], options: Mapping[str, Any]) -> None:
    for key in options:
        if key not in known:
            raise SelectionError(no_such(f"option of {of}", key, known, ", ".join(known) or "none"))


def _by_shape(item_model: str, n: int, m: int, *, grouped: bool) -> tuple[str, str]:
    if grouped:
        return "mml", "groups of models have distributions of ability; with an item prior"
    if n >= FEW_MODELS:
        return "mml", f"{n} models, {FEW_MODELS} or more: items are estimated well, with a prior"
    if n > m:
        return "mml", f"{n} models are more than {m} items, too few to tell how items vary"
    if item_model not in SERVES["mml-items"]:
        return "mml", f"{n} models are few, but only mml fits a {item_model}; with an item prior"
    return "mml-items", (
        f"{n} models, fewer than {FEW_MODELS}: abilities estimated along with items would be "
        "stretched and too sure, so items are integrated out"
    )

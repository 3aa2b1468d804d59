"""Options of ``evalstats-plugin irt``: which go together, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalstats_plugin.errors import LogError, SelectionError, WriteError

_MODES = ("bootstrap", "holdout", "dif", "bank", "link")
"""Each is a way of its own to look at the models."""

_FIT = ("item_model", "estimator", "response", "dimensions", "rotation", "groups")
"""What a bank has settled already."""

_ONE_ABILITY = ("baseline", "bootstrap", "dif", "link")


def checked(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with what they imply.

    Raises
    ------
    SelectionError
        A name that does not exist, or options that contradict each other.
    WriteError
        The fit cannot be saved where it should.
    """
    given = {name for name, value in chosen.items() if value not in (None, (), False)}
    _check_together(given)
    factor = chosen["item_model"] == "factor" or bool(given & {"dimensions", "rotation"})
    if factor:
        _check_factor(given, chosen["item_model"])
    settled = {
        "item_model": "factor" if factor else chosen["item_model"] or "2pl",
        "estimator": chosen["estimator"] or "auto",
        "response": chosen["response"] or "binomial",
        "dimensions": _dimensions(chosen["dimensions"]),
        "rotation": chosen["rotation"] or "none",
        "over": chosen["over"] or "items",
        "draws": 5 if chosen["draws"] is None else chosen["draws"],
    }
    _check_names(settled, chosen)
    if chosen["save"] is not None:
        check_fit(chosen["save"])
    return {**chosen, **settled}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_together(given: set[str]) -> None:
    modes = [name for name in _MODES if name in given]
    if len(modes) > 1:
        msg = f"{' and '.join(map(_option, modes))} found together, expected one of them"
        raise SelectionError(msg)
    fitted = [name for name in _FIT if name in given]
    if "bank" in given and fitted:
        msg = (
            f"{_option(fitted[0])} and --bank found together, expected one of them: the bank's "
            "items are kept as they were fitted"
        )
        raise SelectionError(msg)
    for name, needs in (("over", "bootstrap"), ("draws", "holdout")):
        if name in given and needs not in given:
            msg = f"{_option(name)} found without {_option(needs)}, which it is an option of"
            raise SelectionError(msg)
    if "holdout" in given:
        idle = [n for n in ("save", "baseline", "items", "estimator", "groups") if n in given]
        if idle:
            msg = (
                f"--holdout and {_option(idle[0])} found together: predictions of answers held out "
                "are shown alone, with items integrated out; leave one of them out"
            )
            raise SelectionError(msg)


def _check_factor(given: set[str], item_model: str | None) -> None:
    if item_model not in (None, "factor"):
        option = next(_option(n) for n in ("dimensions", "rotation") if n in given)
        msg = f"{option} and item model {item_model!r} found, expected item model factor, or none"
        raise SelectionError(msg)
    asked = [name for name in _ONE_ABILITY if name in given]
    if asked:
        msg = (
            f"{_option(asked[0])} and item model factor found together: it needs one ability of "
            "each model, a factor model has several; pass one of them"
        )
        raise SelectionError(msg)


def _check_names(settled: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    from evalstats_plugin.errors import no_such
    from evalstats_plugin.irt.fitting import check_names
    from evalstats_plugin.irt.methods import MASKS

    check_names(settled["item_model"], settled["estimator"], settled["response"])
    for mask in chosen["holdout"]:
        if mask not in MASKS:
            raise SelectionError(no_such("mask", mask, MASKS, ", ".join(MASKS)))
    for name in ("bootstrap", "draws"):
        if chosen[name] is not None and chosen[name] < 1:
            msg = f"{_option(name)} {chosen[name]} found, expected a number above 0"
            raise SelectionError(msg)


def _dimensions(text: str | None) -> int | str:
    if text in (None, "auto"):
        return "auto"
    if not str(text).isdigit() or int(str(text)) == 0:
        msg = f"--dimensions {text!r} found, expected a number of dimensions or 'auto'"
        raise SelectionError(msg)
    return int(str(text))


def check_fit(name: str) -> None:
    """Raise where a fit is not to be saved: another kind of file is kept as it is."""
    from evalstats_plugin.irt.model.fit import load_fit
    from evalstats_plugin.runtime.files import check_output_path

    path = check_output_path(name, [".parquet"], asked="--save", makes_folder=True)
    if path.exists() and path.stat().st_size:
        try:
            load_fit(path)
        except LogError as error:
            msg = f"--save {path}: a file is there that is no saved fit; it was left as it is"
            raise WriteError(msg) from error

"""Bootstrap intervals of abilities: refits to resampled items, models or clusters.

Resampled answers may also be simulated from the fit (parametric bootstrap).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.results import finite
from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.irt.rows import Abilities, abilities
from evalstats_plugin.runtime.lazy import need_torch

if TYPE_CHECKING:
    from evalstats_plugin.irt.model.fit import IRTFit


Over = Literal["items", "models", "clusters", "parametric"]
OVER: dict[str, str] = {
    "items": "items drawn anew",
    "models": "models drawn anew",
    "clusters": "clusters of items drawn anew",
    "parametric": "answers to new items, simulated from the fit",
}
"""What is resampled, with a description for notes."""

_REFITTED = ("mml-items", "cml-items")


def bootstrap_abilities(
    fit: IRTFit,
    matrix: ResponseMatrix,
    *,
    over: Over = "items",
    n_resamples: int = 1000,
    rng: np.random.Generator | int | None = None,
    device: str = "auto",
    **shown: Any,
) -> Abilities:
    """Return the abilities of a fit with percentile bootstrap intervals; see `abilities`.

    Differences from a baseline use the covariance of the refits, and items their standard errors.

    Parameters
    ----------
    fit
        Fit by estimator ``"mml-items"``, or by ``"cml-items"`` over items or clusters.
    matrix
        The matrix that was fitted.
    over
        What is resampled: a name of `OVER`.
    shown
        confidence_level, baseline and items, as in `abilities`.

    Raises
    ------
    SelectionError
        Another estimator, or no such thing to resample.
    DesignError
        Too few resamples for limits at this confidence level.

    Examples
    --------
    >>> from evalstats_plugin.irt import bootstrap_abilities, fit_irt, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=5, n_items=30, item_model="rasch")
    >>> fit = fit_irt(matrix, "rasch")
    >>> row = bootstrap_abilities(fit, matrix, n_resamples=50, rng=0)[0]
    >>> row.low < row.estimate < row.high
    True
    """
    need_torch("item response models")
    from evalstats_plugin.irt.estimators.refits import bootstrap
    from evalstats_plugin.irt.model.data import counts_of

    if fit.guessing.any():
        msg = "a fit with guessing has no bootstrap: its own standard errors allow for all of it"
        raise SelectionError(msg)
    options = _options(fit, over, n_resamples, shown.get("confidence_level", 0.95))
    clusters = _clusters(matrix) if over == "clusters" else None
    counts = counts_of(matrix, device=device)
    source = np.random.default_rng(rng)
    found = bootstrap(counts, options, source, clusters=clusters)
    spread = np.nan_to_num(found.ability.std_error, nan=np.inf)
    whole = np.isfinite(found.covariance).all()
    resampled = replace(
        fit,
        ability_covariance=found.covariance if whole else np.diag(spread**2),
        **_items(fit, found, over),
        notes=(*fit.notes, *found.notes, *_notes(over, n_resamples, whole=bool(whole))),
    )
    results = abilities(resampled, matrix, **shown)
    limits = {
        model: (finite(low), finite(high))
        for model, low, high in zip(fit.models, found.ability.low, found.ability.high, strict=True)
    }
    rows = (replace(r, low=limits[r.model][0], high=limits[r.model][1]) for r in results.rows)
    return replace(results, rows=tuple(rows))


def _options(fit: IRTFit, over: str, n_resamples: int, level: float) -> Any:
    from evalstats_plugin.irt.estimators.refits import BootstrapOptions

    if over not in OVER:
        raise SelectionError(no_such("bootstrap", over, OVER, ", ".join(OVER)))
    if fit.estimator not in _REFITTED:
        msg = (
            f"a fit by estimator {fit.estimator} has no bootstrap: choose estimator "
            f"{' or '.join(_REFITTED)}"
        )
        raise SelectionError(msg)
    if fit.estimator == "cml-items" and over not in ("items", "clusters"):
        msg = f"cml-items has no bootstrap over {over}: choose items, clusters, or mml-items"
        raise SelectionError(msg)
    if not 0 < level < 1:
        raise DesignError(f"confidence level {level} is not between 0 and 1: try 0.95")
    if n_resamples * (1 - level) / 2 < 1:
        least = int(np.ceil(2 / (1 - level)))
        msg = f"{n_resamples} resamples are too few for limits at this level: take {least} or more"
        raise DesignError(msg)
    return BootstrapOptions(
        over=cast("Any", "items" if over == "clusters" else over),
        estimator=fit.estimator,
        kind=cast("Any", fit.item_model),
        n_resamples=n_resamples,
        confidence_level=level,
    )


def _clusters(matrix: ResponseMatrix) -> NDArray[np.int64]:
    """Number the clusters of items; an item without one is a cluster of its own."""
    names = None if matrix.clusters is None else matrix.clusters.astype(str)
    if names is None or not (names != "").any():
        msg = "no item has a cluster: name the field that holds it (--cluster)"
        raise SelectionError(msg)
    places = np.arange(len(names)).astype(str)
    alone = np.where(names == "", np.char.add("\0", places), "")
    keys = np.char.add(np.char.add(matrix.tasks.astype(str), "\1"), np.char.add(names, alone))
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def _items(fit: IRTFit, found: Any, over: str) -> dict[str, Any]:
    """Standard errors of the items, if the estimator has items.

    Where items or their clusters are drawn an item keeps its own answers: its variance is that of
    its posterior plus that of its posterior mean between refits. Answers to new items tell nothing
    of the old ones, whose errors stay.
    """
    if found.difficulty is None or over == "parametric":
        return {}
    errors = {name: getattr(found, name).std_error for name in ("difficulty", "discrimination")}
    if over in ("items", "clusters"):
        errors = {
            name: np.hypot(between, getattr(fit, f"{name}_std_error"))
            for name, between in errors.items()
        }
    return {f"{name}_std_error": error for name, error in errors.items()}


def _notes(over: str, n_resamples: int, *, whole: bool) -> Sequence[str]:
    notes = [
        f"intervals are percentiles of {n_resamples:,} refits to {OVER[over]}; what the estimator "
        "gets wrong every time they do not show"
    ]
    if over == "models":
        notes.append("a model's ability varies only where it was drawn; items vary as models do")
    elif not whole:
        notes.append(
            "too few refits have all abilities finite: differences take them as independent"
        )
    return notes

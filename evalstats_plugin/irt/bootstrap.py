"""How sure are abilities, by refits to items, models, clusters or answers drawn anew?"""

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
"""What refits are made to."""


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
    """Return the models of a fit with percentile intervals of refits; see `abilities`.

    Differences from a baseline take the covariance of the refits, and items their spread.

    Parameters
    ----------
    fit
        By estimator ``"mml-items"``, or ``"cml-items"`` over items or clusters.
    shown
        confidence_level, baseline and items, as of `abilities`.

    Raises
    ------
    SelectionError
        Another estimator, or something to draw that does not exist.
    DesignError
        Fewer than 2 resamples.
    """
    need_torch("item response models", "irt")
    from evalstats_plugin.irt.estimators.refits import bootstrap
    from evalstats_plugin.irt.model.data import counts_of

    options = _options(fit, over, n_resamples, shown.get("confidence_level", 0.95))
    clusters = _clusters(matrix) if over == "clusters" else None
    counts = counts_of(matrix, device=device)
    source = np.random.default_rng(rng)
    found = bootstrap(counts, options, source, clusters=clusters)
    spread = np.nan_to_num(found.ability.std_error, nan=np.inf)
    whole = np.isfinite(found.covariance).all()
    told = replace(
        fit,
        ability_covariance=found.covariance if whole else np.diag(spread**2),
        **_items(found),
        notes=(*fit.notes, *found.notes, *_notes(over, n_resamples, whole=bool(whole))),
    )
    results = abilities(told, matrix, **shown)
    limits = {
        model: (finite(low), finite(high))
        for model, low, high in zip(fit.models, found.ability.low, found.ability.high, strict=True)
    }
    rows = (replace(r, low=limits[r.model][0], high=limits[r.model][1]) for r in results.rows)
    return replace(results, rows=tuple(rows))


def _options(fit: IRTFit, over: str, n_resamples: int, level: float) -> Any:
    need_torch("item response models", "irt")
    from evalstats_plugin.irt.estimators.refits import BootstrapOptions

    if over not in OVER:
        raise SelectionError(no_such("bootstrap", over, OVER, ", ".join(OVER)))
    if fit.estimator not in _REFITTED or fit.response != "binomial":
        msg = (
            f"a bootstrap refits by {' or '.join(_REFITTED)}, found a fit by {fit.estimator!r}: "
            "choose one of them as estimator"
        )
        raise SelectionError(msg)
    if fit.estimator == "cml-items" and over not in ("items", "clusters"):
        msg = f"'cml-items' is refitted to items or clusters drawn anew, found {over!r}"
        raise SelectionError(msg)
    if not 0 < level < 1:
        raise DesignError(f"confidence level {level} found, expected a number between 0 and 1")
    if n_resamples * (1 - level) / 2 < 1:
        least = int(np.ceil(2 / (1 - level)))
        msg = f"{n_resamples} resamples found, expected {least} or more for limits at this level"
        raise DesignError(msg)
    return BootstrapOptions(
        over=cast("Any", "items" if over == "clusters" else over),
        estimator=fit.estimator,
        kind=cast("Any", fit.item_model),
        n_resamples=n_resamples,
        confidence_level=level,
    )


def _clusters(matrix: ResponseMatrix) -> NDArray[np.int64]:
    """Number the clusters; an item without one stands alone."""
    names = None if matrix.clusters is None else matrix.clusters.astype(str)
    if names is None or not (names != "").any():
        msg = "no item has a cluster, expected some: name the field that tells (--cluster)"
        raise SelectionError(msg)
    places = np.arange(len(names)).astype(str)
    alone = np.where(names == "", np.char.add("\0", places), "")
    keys = np.char.add(np.char.add(matrix.tasks.astype(str), "\1"), np.char.add(names, alone))
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def _items(found: Any) -> dict[str, Any]:
    """Errors of the items, where the estimator has any."""
    if found.difficulty is None:
        return {}
    return {
        "difficulty_std_error": found.difficulty.std_error,
        "discrimination_std_error": found.discrimination.std_error,
    }


def _notes(over: str, n_resamples: int, *, whole: bool) -> Sequence[str]:
    said = [
        f"intervals are percentiles of {n_resamples:,} refits to {OVER[over]}; what the estimator "
        "gets wrong every time they do not show"
    ]
    if over == "models":
        said.append("a model's ability varies only where it was drawn; items vary as models do")
    elif not whole:
        said.append(
            "too few refits have all abilities finite: differences take them as independent"
        )
    return said

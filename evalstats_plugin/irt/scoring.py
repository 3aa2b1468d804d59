"""Score models on items fitted before: EAP, MAP, maximum likelihood or Warm's estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numpy as np
from scipy import special

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix, submatrix
from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.irt.answers import matrix_of, places_in
from evalstats_plugin.irt.methods import ORDERED_MODELS
from evalstats_plugin.runtime.lazy import need_torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evalstats_plugin.irt.estimators.frozen import ScoreMethod
    from evalstats_plugin.irt.model.fit import FactorFit, IRTFit

FitT = TypeVar("FitT", "IRTFit", "FactorFit")
METHODS = ("eap", "map", "ml", "wle")


def score_models(
    fit: FitT,
    responses: ResponsesLike,
    *,
    method: Literal["auto", "eap", "map", "ml", "wle"] = "auto",
    device: str = "auto",
) -> FitT:
    """Estimate the abilities of new models on the items of a fit, which stay fixed: a bank.

    Items are matched by task and id; those that are not in the fit are left out, with a note. No
    model of the fit moves, and no other new one; `IRTFit.version` says which items they were.

    Parameters
    ----------
    method
        Posterior mean (``"eap"``) or mode (``"map"``), maximum likelihood (``"ml"``) or Warm's
        weighted likelihood (``"wle"``). ``"auto"`` is ``"eap"``, and for models all right or all
        wrong the estimate and limit that they have in a fit; a `FactorFit` has ``"map"`` only.

    Returns
    -------
    IRTFit
        Or a `FactorFit`, if one was given: the same items, and the models of `matrix`. Standard
        errors are given the items, whose own would add less than a hundredth to them.

    Raises
    ------
    DesignError
        No item of the matrix is in the fit, or a model answered none of them.
    SelectionError
        No such method, or one that the fit does not have.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, score_models, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=20, n_items=30, item_model="rasch")
    >>> fit = fit_irt(matrix, "rasch")
    >>> again = score_models(fit, matrix, method="ml")
    >>> again.models == fit.models, again.diagnostics["bank"] == fit.version
    (True, True)
    """
    matrix = matrix_of(responses)
    need_torch("item response models")
    from evalstats_plugin.irt.model.data import counts_of

    if fit.item_model in ORDERED_MODELS:
        msg = f"models are not scored on a fit of ordered scores ({fit.item_model}): fit them along"
        raise SelectionError(msg)
    several = fit.item_model == "factor"
    valid_methods = ("map",) if several else METHODS
    if method not in ("auto", *valid_methods):
        raise SelectionError(no_such("score", method, valid_methods, ", ".join(valid_methods)))
    here, bank_items, notes = _matched(fit, matrix)
    counts: Any = counts_of(
        submatrix(matrix, np.arange(len(matrix.models)), here), device=device, linked=False
    )
    silent = [m for m, t in zip(matrix.models, counts.trials.sum(1).tolist(), strict=True) if not t]
    if silent:
        msg = f"no item of the fit was answered by {few(silent)}: they cannot be scored"
        raise DesignError(msg)
    how = "map" if several else "eap" if method == "auto" else method
    about: dict[str, Any] = {"scored_by": how, "n_items": len(here)}
    scored: Any
    if several:
        scored = _on_factors(cast("FactorFit", fit), matrix, counts, bank_items)
    else:
        bank = cast("IRTFit", fit)
        scored = _on_one(bank, matrix, counts, bank_items, how, limits=method == "auto")
        about["bank"] = bank.version
    return cast("FitT", replace(scored, diagnostics=about, notes=tuple(notes)))


def _on_one(
    fit: IRTFit,
    matrix: ResponseMatrix,
    counts: Any,
    bank_items: NDArray[np.int64],
    method: str,
    *,
    limits: bool,
) -> IRTFit:
    from evalstats_plugin.irt.estimators.extremes import limited
    from evalstats_plugin.irt.estimators.frozen import score

    mean, sd = fit.ability_distribution
    items = _items(fit, bank_items, counts.right, mean, sd)
    scores = score(counts, items, cast("ScoreMethod", method))
    right, trials = (x.cpu().numpy().astype(np.float64) for x in (counts.right, counts.trials))
    std_error = sd * scores.std_error.cpu().numpy()
    scored = replace(
        fit,
        models=matrix.models,
        data=matrix,
        ability=mean + sd * scores.ability.cpu().numpy(),
        ability_covariance=np.diag(std_error**2),
        predicted=None,
        ability_draws=None,
        ability_quantiles=None,
    )
    if not limits:
        return scored
    hits, most = right.sum(axis=1), trials.sum(axis=1)
    extreme = (hits == most) * 1.0 - (hits == 0)
    asked = np.zeros((int((extreme != 0).sum()), len(fit.item_ids)))
    asked[:, bank_items] = trials[extreme != 0]
    return limited(scored, extreme, asked)


def _on_factors(
    fit: FactorFit, matrix: ResponseMatrix, counts: Any, bank_items: NDArray[np.int64]
) -> FactorFit:
    from evalstats_plugin.irt.estimators.factor import score_on_factors

    per_item = ("item_ids", "tasks", "loading", "intercept", "item_covariance")
    cut: dict[str, Any] = {name: getattr(fit, name)[bank_items] for name in per_item}
    factor_scores: FactorFit = score_on_factors(replace(fit, **cut), matrix, counts)
    return replace(
        fit,
        models=factor_scores.models,
        ability=factor_scores.ability,
        ability_covariance=factor_scores.ability_covariance,
    )


def _items(fit: IRTFit, at: NDArray[np.int64], like: Any, mean: float, sd: float) -> Any:
    """The items of the fit on the scale where abilities are N(0, 1)."""
    from evalstats_plugin.irt.model.curves import Items

    slope = fit.discrimination[at]
    intercept = fit.intercept[at] + slope * mean
    guess, slip = (
        like.new_tensor(special.logit(np.clip(share[at], 1e-9, 1 - 1e-9)))
        if (share > 0).any()
        else None
        for share in (fit.guessing, 1 - fit.upper)
    )
    return Items(like.new_tensor(slope * sd), like.new_tensor(intercept), guess, slip)


def _matched(
    fit: IRTFit | FactorFit, matrix: ResponseMatrix
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Indices of the common items in the matrix and in the fit, and notes."""
    places = places_in(fit, matrix)
    here = np.flatnonzero(places >= 0)
    if not len(here):
        msg = (
            f"none of the {len(places)} items is among the {len(fit.item_ids)} of the fit: tasks "
            "and item ids must be the same"
        )
        raise DesignError(msg)
    missed = len(places) - len(here)
    return (
        here,
        places[here],
        [f"{counted(missed, 'item')} not in the fit: left out"] if missed else [],
    )

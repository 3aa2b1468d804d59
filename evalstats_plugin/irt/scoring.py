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
from evalstats_plugin.stats.arrays import IntArray

if TYPE_CHECKING:
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
    places = places_in(fit, matrix)
    here = np.flatnonzero(places >= 0)
    if not len(here):
        raise DesignError(
            f"none of the {len(places)} items is among the {len(fit.item_ids)} of the fit: tasks "
            "and item ids must be the same"
        )
    bank_items, missed = places[here], len(places) - len(here)
    part = submatrix(matrix, np.arange(len(matrix.models)), here)
    counts: Any = counts_of(part, device=device, linked=False)
    silent = [m for m, t in zip(matrix.models, counts.trials.sum(1).tolist(), strict=True) if not t]
    if silent:
        msg = f"no item of the fit was answered by {few(silent)}: they cannot be scored"
        raise DesignError(msg)
    how = "map" if several else "eap" if method == "auto" else method
    about: dict[str, Any] = {"scored_by": how, "n_items": len(here)}
    scored: Any
    if several:
        from evalstats_plugin.irt.estimators.factor import score_on_factors

        bank = cast("FactorFit", fit)
        per_item = ("item_ids", "tasks", "loading", "intercept", "item_covariance")
        cut: dict[str, Any] = {name: getattr(bank, name)[bank_items] for name in per_item}
        on_items = score_on_factors(replace(bank, **cut), matrix, counts)
        new = ("models", "ability", "ability_covariance")
        scored = replace(bank, **{name: getattr(on_items, name) for name in new})
    else:
        one_ability = cast("IRTFit", fit)
        scored = _on_one(one_ability, matrix, counts, bank_items, how, limits=method == "auto")
        about["bank"] = one_ability.version
    notes = (f"{counted(missed, 'item')} not in the fit: left out",) if missed else ()
    return cast("FitT", replace(scored, diagnostics=about, notes=notes))


def _on_one(
    fit: IRTFit,
    matrix: ResponseMatrix,
    counts: Any,
    bank_items: IntArray,
    method: str,
    *,
    limits: bool,
) -> IRTFit:
    from evalstats_plugin.irt.estimators.extremes import limited
    from evalstats_plugin.irt.estimators.frozen import score
    from evalstats_plugin.irt.model.curves import Items

    # The items on the scale where abilities are N(0, 1).
    mean, sd = fit.ability_distribution
    slope, like = fit.discrimination[bank_items], counts.right
    guess, slip = (
        like.new_tensor(special.logit(np.clip(share[bank_items], 1e-9, 1 - 1e-9)))
        if (share > 0).any()
        else None
        for share in (fit.guessing, 1 - fit.upper)
    )
    intercept = like.new_tensor(fit.intercept[bank_items] + slope * mean)
    items = Items(like.new_tensor(slope * sd), intercept, guess, slip)
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

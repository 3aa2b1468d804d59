"""Put two separate calibrations on one scale, through items or models that both of them have.

A scale of ability is fixed up to ``θ → Aθ + B``. A joint fit of all answers, with missing cells,
needs none of this where the groups of models are alike; unlike ones it draws together, as it
takes them for one population.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.stats.arrays import FloatArray

Method = Literal["mean-mean", "mean-sigma", "haebara", "stocking-lord"]


# Of the distribution of abilities, in standard deviations.
_NODES = np.linspace(-4, 4, 41)


class Link(NamedTuple):
    """``θ_a = slope · θ_b + intercept``."""

    slope: float
    intercept: float
    covariance: FloatArray
    """Of slope and intercept, shape (2, 2): from how far the common items disagree (infinitesimal
    jackknife), be it by errors of estimation or because an item has changed."""
    n_common: int
    method: str


class CommonItems(NamedTuple):
    """Parameters of the K common items in one calibration, each of shape (K,)."""

    discrimination: FloatArray
    difficulty: FloatArray
    guessing: FloatArray
    upper: float = 1.0


class _Solution(NamedTuple):
    slope: float
    intercept: float
    influence: FloatArray
    """Shape (K, 2): how slope and intercept move with the weight of each item, times K."""


def link(
    fit_a: IRTFit,
    fit_b: IRTFit,
    method: Method = "stocking-lord",
    *,
    through: Literal["items", "models"] = "items",
) -> IRTFit:
    """Return `fit_b` on the scale of `fit_a`.

    Parameters
    ----------
    method
        ``"mean-mean"`` and ``"mean-sigma"`` [Mar77]_ compare averages of parameters;
        ``"haebara"`` [Hae80]_ brings item curves together and ``"stocking-lord"`` [SL83]_ their
        sum, which noisy parameters disturb less. Rasch scales only differ by a shift.
    through
        What both have in common. Through models only ``"mean-sigma"`` is possible.

    Returns
    -------
    IRTFit
        Its covariance of abilities has the error of the link in it; the constants are in
        ``hyperparameters["link"]``.

    Raises
    ------
    DesignError
        Fewer than 3 items or models in common.
    """
    found = linking_constants(fit_a, fit_b, method, through=through)
    return on_scale_of(fit_a, fit_b, found)


def linking_constants(
    fit_a: IRTFit,
    fit_b: IRTFit,
    method: Method = "stocking-lord",
    *,
    through: Literal["items", "models"] = "items",
) -> Link:
    """Find slope and intercept that bring `fit_b` to the scale of `fit_a`; see `link`."""
    if method not in METHODS:
        raise SelectionError(no_such("linking method", method, METHODS, ", ".join(METHODS)))
    shift_only = fit_a.item_model == fit_b.item_model == "rasch"
    if through == "models":
        if method != "mean-sigma":
            msg = f"models have abilities only, so link by 'mean-sigma', not by {method!r}"
            raise SelectionError(msg)
        i, j = _common(list(fit_a.models), list(fit_b.models), through)
        found = _by_spread(fit_a.ability[i], fit_b.ability[j], shift_only=shift_only)
        return _link(found, len(i), method)
    keys = [
        list(zip(f.tasks.astype(str), f.item_ids.astype(str), strict=True)) for f in (fit_a, fit_b)
    ]
    i, j = _common(keys[0], keys[1], through)
    known = fit_a.hyperparameters
    centre = float(known.get("ability_mean", fit_a.ability.mean()))
    sd = float(known.get("ability_sd", fit_a.ability.std()))
    at = centre + sd * _NODES
    found = METHODS[method](_items(fit_a, i), _items(fit_b, j), at, shift_only)
    return _link(found, len(i), method)


def on_scale_of(fit_a: IRTFit, fit_b: IRTFit, found: Link) -> IRTFit:
    """Return `fit_b` with abilities and items transformed by a link."""
    slope, intercept = found.slope, found.intercept
    known = fit_b.hyperparameters
    kept: dict[str, Any] = {"link": found._asdict() | {"covariance": found.covariance.tolist()}}
    if "upper" in known:
        kept["upper"] = known["upper"]
    if "ability_sd" in known:
        kept["ability_mean"] = slope * float(known.get("ability_mean", 0.0)) + intercept
        kept["ability_sd"] = slope * float(known["ability_sd"])
    by_constants = np.stack([fit_b.ability, np.ones_like(fit_b.ability)], axis=1)
    covariance = None
    if fit_b.item_covariance is not None:
        turn = np.eye(fit_b.item_covariance.shape[1])
        turn[0, 0], turn[1, 0] = 1 / slope, -intercept / slope
        covariance = turn @ fit_b.item_covariance @ turn.T
    return replace(
        fit_b,
        ability=slope * fit_b.ability + intercept,
        ability_covariance=slope**2 * fit_b.ability_covariance
        + by_constants @ found.covariance @ by_constants.T,
        discrimination=fit_b.discrimination / slope,
        difficulty=slope * fit_b.difficulty + intercept,
        discrimination_std_error=fit_b.discrimination_std_error / slope,
        difficulty_std_error=slope * fit_b.difficulty_std_error,
        item_covariance=covariance,
        identification=f"linked to another fit: {fit_a.identification}",
        hyperparameters=kept,
    )


def _link(found: _Solution, count: int, method: str) -> Link:
    if not found.slope > 0:
        msg = f"linking slope is {found.slope:.3g}, expected above 0: what is common disagrees"
        raise DesignError(msg)
    fitted = 2 if found.influence[:, 0].any() else 1
    covariance = found.influence.T @ found.influence / (count * (count - fitted))
    return Link(found.slope, found.intercept, covariance, count, method)


def _common(a: list[Any], b: list[Any], what: str) -> tuple[list[int], list[int]]:
    places = {key: j for j, key in enumerate(b)}
    pairs = [(i, places[key]) for i, key in enumerate(a) if key in places]
    if len(pairs) < 3:
        msg = (
            f"{len(pairs)} {what} in common of {len(a)} and {len(b)}, expected 3 or more: give "
            "both calibrations common ones, or fit all answers together"
        )
        raise DesignError(msg)
    return [i for i, _ in pairs], [j for _, j in pairs]


def _items(fit: IRTFit, at: list[int]) -> CommonItems:
    upper = float(fit.hyperparameters.get("upper", 1.0))
    return CommonItems(fit.discrimination[at], fit.difficulty[at], fit.guessing[at], upper)


def _by_spread(a: FloatArray, b: FloatArray, *, shift_only: bool) -> _Solution:
    """Equal means, and unless `shift_only` equal standard deviations."""
    a_off, b_off = a - a.mean(), b - b.mean()
    slope, of_slope = 1.0, np.zeros_like(a)
    if not shift_only:
        slope = float(a_off.std() / b_off.std())
        of_slope = slope / 2 * (a_off**2 / a.var() - b_off**2 / b.var())
    of_intercept = a_off - slope * b_off - b.mean() * of_slope
    intercept = float(a.mean() - slope * b.mean())
    return _Solution(slope, intercept, np.stack([of_slope, of_intercept], axis=1))


def _mean_sigma(a: CommonItems, b: CommonItems, at: FloatArray, shift_only: bool) -> _Solution:  # noqa: ARG001, FBT001
    return _by_spread(a.difficulty, b.difficulty, shift_only=shift_only)


def _mean_mean(a: CommonItems, b: CommonItems, at: FloatArray, shift_only: bool) -> _Solution:  # noqa: ARG001, FBT001
    # Rasch discriminations are all 1, which makes the slope 1 as well.
    mean_a, mean_b = a.discrimination.mean(), b.discrimination.mean()
    slope = float(mean_b / mean_a)
    of_slope = (b.discrimination - mean_b - slope * (a.discrimination - mean_a)) / mean_a
    middle = b.difficulty.mean()
    of_intercept = a.difficulty - a.difficulty.mean() - slope * (b.difficulty - middle)
    of_intercept = of_intercept - middle * of_slope
    intercept = float(a.difficulty.mean() - slope * middle)
    return _Solution(slope, intercept, np.stack([of_slope, of_intercept], axis=1))


def _haebara(a: CommonItems, b: CommonItems, at: FloatArray, shift_only: bool) -> _Solution:  # noqa: FBT001
    return _by_curves(a, b, at, shift_only=shift_only, together=False)


def _stocking_lord(a: CommonItems, b: CommonItems, at: FloatArray, shift_only: bool) -> _Solution:  # noqa: FBT001
    return _by_curves(a, b, at, shift_only=shift_only, together=True)


def _by_curves(
    a: CommonItems, b: CommonItems, at: FloatArray, *, shift_only: bool, together: bool
) -> _Solution:
    """Least squares between item curves, or between their sums."""
    from scipy import optimize

    weight = np.exp(-(_NODES**2) / 4)
    target = _curves(a, at)[0]
    free = slice(1, 2) if shift_only else slice(0, 2)

    def apart(point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Differences (K, Q), and their derivatives by log slope and intercept (K, Q, 2)."""
        slope = 1.0 if shift_only else float(np.exp(point[0]))
        back = (at - point[-1]) / slope
        curve, by_ability = _curves(b, back)
        by = np.stack([by_ability * back, by_ability / slope], axis=-1)[..., free]
        return (target - curve) * weight, by * weight[:, None]

    def residual(point: FloatArray) -> FloatArray:
        found = apart(point)[0]
        return found.sum(axis=0) if together else found.ravel()

    def jacobian(point: FloatArray) -> FloatArray:
        found = apart(point)[1]
        return found.sum(axis=0) if together else found.reshape(-1, found.shape[-1])

    first = _by_spread(a.difficulty, b.difficulty, shift_only=True)
    start = np.array([0.0, first.intercept])[free]
    best = optimize.least_squares(residual, start, jac=jacobian, xtol=1e-14, ftol=1e-14, gtol=1e-14)
    apart_items, by_items = apart(best.x)
    if together:
        pulls = np.einsum("kq,qp->kp", apart_items, by_items.sum(axis=0))
        pulls += np.einsum("q,kqp->kp", apart_items.sum(axis=0), by_items)
    else:
        pulls = np.einsum("kq,kqp->kp", apart_items, by_items)
    turned = jacobian(best.x)
    bend = turned.T @ turned
    influence = np.zeros((len(pulls), 2))
    influence[:, free] = -len(pulls) * (pulls @ np.linalg.inv(bend))
    slope = 1.0 if shift_only else float(np.exp(best.x[0]))
    influence[:, 0] *= slope
    return _Solution(slope, float(best.x[-1]), influence)


def _curves(items: CommonItems, at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P(right) and its derivative by ability, shape (K, Q)."""
    up = special.expit(items.discrimination[:, None] * (at - items.difficulty[:, None]))
    height = (items.upper - items.guessing)[:, None]
    return items.guessing[:, None] + height * up, height * items.discrimination[:, None] * up * (
        1 - up
    )


METHODS: Mapping[str, Callable[[CommonItems, CommonItems, FloatArray, bool], _Solution]] = (
    MappingProxyType(
        {
            "mean-mean": _mean_mean,
            "mean-sigma": _mean_sigma,
            "haebara": _haebara,
            "stocking-lord": _stocking_lord,
        }
    )
)

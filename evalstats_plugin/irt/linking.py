"""Linking: bring separate calibrations to one scale, through common items or models.

A scale of ability is fixed up to ``θ → Aθ + B``. `link` estimates A and B and transforms a fit;
`linking_constants` and `on_scale_of` are its two steps. A joint fit of all answers, with missing
cells, needs no linking if the groups of models are alike; if not, it shrinks them towards each
other, as it treats them as one population.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import special

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.answers import item_keys
from evalstats_plugin.irt.model.fit import IRTFit, expect_kind
from evalstats_plugin.irt.model.scale import Curves, Line, rescaled
from evalstats_plugin.stats.arrays import FloatArray

# Quadrature nodes over ability, in standard deviations of its distribution.
_NODES = np.linspace(-4, 4, 41)


def link(fit_a: IRTFit, fit_b: IRTFit, *, through: Literal["items", "models"] = "items") -> IRTFit:
    """Return `fit_b` on the scale of `fit_a`.

    Parameters
    ----------
    through
        What both have in common. The sums of the curves of common items are matched [SL83]_, or the
        means and standard deviations of common models. Two Rasch scales differ by a shift only.

    Returns
    -------
    IRTFit
        Its covariance of abilities includes the error of the link; the constants are in
        ``hyperparameters["link"]``.

    Raises
    ------
    DesignError
        Fewer than 3 items or models in common.

    Examples
    --------
    >>> from evalstats_plugin import ResponseMatrix
    >>> from evalstats_plugin.irt import fit_irt, link, simulate_responses
    >>> scores = simulate_responses(rng=0, n_models=40, n_items=9, item_model="rasch")[0].scores
    >>> old, new = map(ResponseMatrix.from_array, (scores[:20], scores[20:]))
    >>> linked = link(fit_irt(old, "rasch"), fit_irt(new, "rasch"))
    >>> linked.identification
    'linked to another fit: 0 is where the average item is answered right halfway'
    """
    return on_scale_of(fit_a, fit_b, linking_constants(fit_a, fit_b, through=through))


def linking_constants(
    fit_a: IRTFit, fit_b: IRTFit, *, through: Literal["items", "models"] = "items"
) -> Link:
    """Estimate the slope and intercept that bring `fit_b` to the scale of `fit_a`; see `link`."""
    fit_a, fit_b = expect_kind(fit_a, IRTFit), expect_kind(fit_b, IRTFit)
    shift_only = fit_a.item_model == fit_b.item_model == "rasch"
    a, b = (list[Any](f.models) if through == "models" else item_keys(f) for f in (fit_a, fit_b))
    places = {key: j for j, key in enumerate(b)}
    i = [place for place, key in enumerate(a) if key in places]
    j = [places[a[place]] for place in i]
    if len(i) < 3:
        raise DesignError(
            f"{len(i)} {through} in common of {len(a)} and {len(b)} are too few to link: give "
            "both calibrations 3 or more, or fit all answers together"
        )
    if through == "models":
        solution = _by_spread(fit_a.ability[i], fit_b.ability[j], shift_only=shift_only)
    else:
        centre, sd = fit_a.ability_distribution
        items = Curves.of(fit_a).at(i), Curves.of(fit_b).at(j)
        solution = _by_curves(*items, centre + sd * _NODES, shift_only=shift_only)
    slope, intercept, influence = solution
    if not 0 < slope < np.inf:
        raise DesignError(
            f"the linking slope is {slope:.3g}, no number above 0: what both fits have in "
            "common disagrees, so link through other items or models"
        )
    fitted = 2 if influence[:, 0].any() else 1
    covariance = influence.T @ influence / (len(i) * (len(i) - fitted))
    return Link(slope, intercept, covariance, len(i), through)


def on_scale_of(fit_a: IRTFit, fit_b: IRTFit, constants: Link) -> IRTFit:
    """Return `fit_b` with its abilities and items transformed by the `constants` of a link."""
    by_constants = np.stack([fit_b.ability, np.ones_like(fit_b.ability)], axis=1)
    linked = rescaled(fit_b, Line(constants.slope, constants.intercept))
    about = constants._asdict() | {
        "covariance": constants.covariance.tolist(),
        "bank": fit_a.version,
    }
    slope_error, shift_error = np.sqrt(constants.covariance.diagonal())
    note = (
        f"on the scale of bank {fit_a.version}: {constants.slope:.3f} (s.e. {slope_error:.3f}) × "
        f"ability {constants.intercept:+z.3f} (s.e. {shift_error:.3f}), by {constants.n_common} "
        f"{constants.through} that both have; errors of abilities allow for that"
    )
    return replace(
        linked,
        ability_covariance=linked.ability_covariance
        + by_constants @ constants.covariance @ by_constants.T,
        predicted=fit_b.predict(),
        identification=f"linked to another fit: {fit_a.identification}",
        hyperparameters=linked.hyperparameters | {"link": about},
        notes=(*linked.notes, note),
    )


class Link(NamedTuple):
    """``θ_a = slope · θ_b + intercept``."""

    slope: float
    intercept: float
    covariance: FloatArray
    """Of slope and intercept, shape (2, 2), by the infinitesimal jackknife: it shows how far common
    items disagree, because of estimation errors or because an item has changed."""
    n_common: int
    through: str


_Solution: TypeAlias = tuple[float, float, FloatArray]
"""Slope, intercept, and derivatives of both by the weight of each item, times K, shape (K, 2)."""


def _by_spread(a: FloatArray, b: FloatArray, *, shift_only: bool) -> _Solution:
    """Match means and, unless `shift_only`, standard deviations."""
    a_off, b_off = a - a.mean(), b - b.mean()
    slope, of_slope = 1.0, np.zeros_like(a)
    # Models of the same ability have no spread: `linking_constants` refuses that slope.
    with np.errstate(divide="ignore", invalid="ignore"):
        if not shift_only:
            slope = float(a_off.std() / b_off.std())
            of_slope = slope / 2 * (a_off**2 / a.var() - b_off**2 / b.var())
        of_intercept = a_off - slope * b_off - b.mean() * of_slope
        intercept = float(a.mean() - slope * b.mean())
    return slope, intercept, np.stack([of_slope, of_intercept], axis=1)


def _by_curves(a: Curves, b: Curves, at: FloatArray, *, shift_only: bool) -> _Solution:
    """Least squares between the sums of the items' curves (Stocking and Lord)."""
    from scipy import optimize

    weight = np.exp(-(_NODES**2) / 4)
    target = _curves(a, at)[0]
    free = slice(1, 2) if shift_only else slice(0, 2)

    def curve_difference(point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Differences (K, Q), and their derivatives by log slope and intercept (K, Q, 2)."""
        slope = 1.0 if shift_only else float(np.exp(point[0]))
        back = (at - point[-1]) / slope
        curve, by_ability = _curves(b, back)
        by = np.stack([by_ability * back, by_ability / slope], axis=-1)[..., free]
        return (target - curve) * weight, by * weight[:, None]

    def residual(point: FloatArray) -> FloatArray:
        return curve_difference(point)[0].sum(axis=0)

    def jacobian(point: FloatArray) -> FloatArray:
        return curve_difference(point)[1].sum(axis=0)

    _, first, _ = _by_spread(a.difficulty, b.difficulty, shift_only=True)
    start = np.array([0.0, first])[free]
    best = optimize.least_squares(residual, start, jac=jacobian, xtol=1e-14, ftol=1e-14, gtol=1e-14)
    apart_items, by_items = curve_difference(best.x)
    pulls = np.einsum("kq,qp->kp", apart_items, by_items.sum(axis=0))
    pulls += np.einsum("q,kqp->kp", apart_items.sum(axis=0), by_items)
    turned = jacobian(best.x)
    bend = turned.T @ turned
    influence = np.zeros((len(pulls), 2))
    influence[:, free] = -len(pulls) * (pulls @ np.linalg.inv(bend))
    slope = 1.0 if shift_only else float(np.exp(best.x[0]))
    influence[:, 0] *= slope
    return slope, float(best.x[-1]), influence


def _curves(items: Curves, at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P(right) and its derivative by ability, shape (K, Q)."""
    up = special.expit(items.discrimination[:, None] * (at - items.difficulty[:, None]))
    height = (items.upper - items.guessing)[:, None]
    by_ability = height * items.discrimination[:, None] * up * (1 - up)
    return items.guessing[:, None] + height * up, by_ability

"""The scale of a fit: where 0 is, and what 1 is.

An item response model fixes abilities up to ``θ → A θ + B``. The scale reported is that of the
items: 0 is where the average item is answered right halfway between chance and all right, and 1 is
a logit on an item of average discrimination: the geometric mean, or where some items are answered
right less often by more able models, the root mean square. Other models do not move it. Few models
tell little of how discriminations vary, on which a mean square rests and a geometric mean does not.

* `Zero`, `zero_of`: the ability of 0 and the length of 1 on any scale, from its items
* `on_zero`: put a fit on the scale of its items, of its models or of one model
* `link_through_items`: bring a refit to the scale of items fitted before
* `counted_from_zero`: covariance of abilities that are counted from the items
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.errors import SelectionError, few, no_such
from evalstats_plugin.irt.methods import ITEM_ZERO
from evalstats_plugin.stats.arrays import FloatArray

if TYPE_CHECKING:
    from evalstats_plugin.irt.model.fit import IRTFit

ZEROS = ("items", "models")
"""What 0 is counted from, besides the name of a model."""

# Farthest zero from the middle of the items and closest points of its search, in units of the
# scale; its steps; and how exact it is.
_REACH, _GRID, _STEPS, _EXACT = 40.0, 161, 100, 1e-12

# Largest share of an item's variance in that of the population.
_MOST_DRAWN = 0.95


class Curves(NamedTuple):
    """Parameters of K items, each of shape (K,)."""

    discrimination: FloatArray
    intercept: FloatArray
    guessing: FloatArray
    upper: FloatArray

    @classmethod
    def of(cls, fit: IRTFit) -> Curves:
        """Items of a fit; those without a curve count as never asked."""
        d, has_curve = fit.intercept, np.isfinite(fit.intercept)
        parts = (fit.discrimination, d, fit.guessing, fit.upper)
        fill = (0.0, 0.0, 0.0, 1.0)
        return cls(*(np.where(has_curve, x, y) for x, y in zip(parts, fill, strict=True)))

    @classmethod
    def of_points(cls, discrimination: FloatArray, intercept: FloatArray) -> Curves:
        """Items without guessing."""
        return cls(discrimination, intercept, 0 * intercept, 1 + 0 * intercept)

    @property
    def difficulty(self) -> FloatArray:
        """Shape (K,)."""
        return -self.intercept / self.discrimination

    def at(self, places: Any) -> Curves:
        """Some of the items, by place."""
        return Curves(*(x[places] for x in self))


class Zero(NamedTuple):
    """Ability of 0, and length of 1, of a scale: reported abilities are ``unit (θ - at)``."""

    at: float
    unit: float


def zero_of(items: Curves) -> Zero:
    """Ability at which the average item is right halfway, and the average discrimination.

    Where discriminations have either sign there may be several such abilities; the one nearest to
    where logits are smallest is taken, and that itself where there is none.

    Examples
    --------
    >>> b = np.array([-1.0, 0.0, 4.0])
    >>> zero_of(Curves(np.ones(3), -b, np.zeros(3), np.ones(3))).at.__round__(2)
    0.58
    """
    a, d, low, high = items
    # Sums of new arrays: the same digits whether the curves are a view of others or not.
    square = float((a**2).sum())
    if not square > 0:
        return Zero(0.0, 1.0)
    unit = average_discrimination(a)
    middle, share = -float((a * d).sum()) / square, high - low

    def above(z: float) -> float:
        """Average of what is known, less one half."""
        return float(share @ (special.expit(a * (middle + z / unit) + d) - 0.5))

    ends = _signs_change(above)
    if ends is None:
        return Zero(middle, unit)
    (low_end, high_end), rising = ends, above(ends[1]) > 0
    z = sum(ends) / 2
    for _ in range(_STEPS):
        value = above(z)
        low_end, high_end = (low_end, z) if (value > 0) == rising else (z, high_end)
        up = special.expit(a * (middle + z / unit) + d)
        slope = float(share @ (a * up * (1 - up))) / unit
        newton = z - value / slope if slope else np.inf
        fresh = newton if low_end < newton < high_end else (low_end + high_end) / 2
        if abs(fresh - z) < _EXACT:
            break
        z = fresh
    return Zero(middle + z / unit, unit)


def average_discrimination(a: FloatArray) -> float:
    """Average discrimination of the items that discriminate."""
    a = a[a != 0]
    return float(np.exp(np.log(a).mean()) if (a >= 0).all() else np.sqrt((a**2).mean()))


def _signs_change(above: Any) -> tuple[float, float] | None:
    """Nearest ends to 0 between which a function changes its sign."""
    if above(-1.0) < 0 < above(1.0):
        return -1.0, 1.0
    at = np.linspace(-_REACH, _REACH, _GRID)
    value = np.array([above(float(z)) for z in at])
    change = np.flatnonzero(np.sign(value[:-1]) != np.sign(value[1:]))
    if not len(change):
        return None
    # A scale on which more able models are right more often comes first.
    order = np.lexsort([np.abs(at[change] + at[change + 1]), value[change] > 0])
    k = int(change[order[0]])
    return float(at[k]), float(at[k + 1])


class Line(NamedTuple):
    """``slope · θ + intercept``."""

    slope: float
    intercept: float


def link_through_items(items: Curves, reference: Curves) -> Line:
    """Bring a refit to the scale of the items it was made of, as they were fitted before.

    Both have the same average item: the refit's zero and unit become those of the `reference`.

    Parameters
    ----------
    items, reference
        The same items in the refit and in the first fit.
    """
    refit, first = zero_of(items), zero_of(reference)
    slope = refit.unit / first.unit
    return Line(slope, first.at - slope * refit.at)


def on_zero(fit: IRTFit, zero: str, trials: FloatArray | None) -> IRTFit:
    """Put a fit on the scale of its items, or of one of its models.

    Parameters
    ----------
    zero
        A name of `ZEROS`, or of a model, whose ability is then 0. ``"models"`` is the estimator's
        own scale.
    trials : shape (N, M)
        Answers, for the error of the zero; None leaves it out, as items are taken as known.

    Raises
    ------
    SelectionError
        No such model.
    """
    if zero == "models":
        return fit
    if zero not in (*ZEROS, *fit.models):
        zeros = (*ZEROS, *fit.models)
        raise SelectionError(no_such("zero", zero, zeros, few(list(zeros), 5)))
    at, unit = zero_of(Curves.of(fit))
    covariance, a = fit.item_covariance, fit.discrimination
    if fit.estimator == "mml-items" and covariance is not None and (a >= 0).all():
        # Geometric mean of log-normal discriminations, over that of their posterior means.
        unit *= float(np.exp(-np.log1p(covariance[:, 0, 0] / a**2).mean() / 2))
    moved = rescaled(fit, Line(unit, -unit * at))
    away = 0.0 if zero == "items" else float(moved.ability[fit.models.index(zero)])
    moved = rescaled(moved, Line(1.0, -away)) if away else moved
    about = {"slope": unit, "intercept": -unit * at - away, "of": fit.identification, "zero": zero}
    moved = replace(
        moved,
        hyperparameters=moved.hyperparameters | {"scale": about},
        identification=ITEM_ZERO if zero == "items" else f"0 is the ability of {zero}",
    )
    draws = moved.ability_draws
    if zero != "items" and draws is not None:
        draws = draws - draws[fit.models.index(zero)]
    elif draws is not None and trials is not None:
        draws = _Lever.of(moved, trials).moved(draws)
    covariance = counted_from_zero(moved, trials, fit.ability_covariance)
    return replace(moved, ability_covariance=covariance, ability_draws=draws)


def zero_used(fit: IRTFit) -> str:
    """Return what the zero of a fit is counted from, as `on_zero` takes it."""
    return str(fit.hyperparameters.get("scale", {}).get("zero", "models"))


def counted_from_zero(
    fit: IRTFit, trials: FloatArray | None, covariance: FloatArray, *, item_errors: bool = True
) -> FloatArray:
    """Bring a covariance of abilities on the estimator's scale to that of the fit.

    Parameters
    ----------
    trials : shape (N, M)
        As in `on_zero`.
    item_errors
        Whether to add the items' own errors given the abilities, which are the model's.
    """
    zero = zero_used(fit)
    if zero == "models":
        return covariance
    covariance = fit.hyperparameters["scale"]["slope"] ** 2 * covariance
    if zero != "items":
        i = fit.models.index(zero)
        return covariance - covariance[i] - covariance[:, i : i + 1] + covariance[i, i]
    if trials is None or fit.item_covariance is None:
        return covariance
    lever = _Lever.of(fit, trials)
    if not item_errors:
        lever = replace(lever, item_part=0 * lever.item_part)
    return lever.covariance(covariance)


def rescaled(fit: IRTFit, line: Line) -> IRTFit:
    """Return a fit with abilities and items on another scale.

    So are hyper-parameters of abilities, and of items where these were integrated out; those of
    priors of items stay on the estimator's scale.
    """
    slope, intercept = line
    hyperparameters = dict(fit.hyperparameters)
    if "scale" in hyperparameters:
        first = hyperparameters["scale"]
        moved_to = {"slope": slope * first["slope"],
                    "intercept": slope * first["intercept"] + intercept}  # fmt: skip
        hyperparameters["scale"] = first | moved_to
    if fit.estimator == "mml-items":
        hyperparameters |= _population_on(hyperparameters, line)
    if "ability_sd" in hyperparameters:
        hyperparameters["ability_mean"] = (
            slope * float(hyperparameters.get("ability_mean", 0.0)) + intercept
        )
    for name, power in (("ability_sd", 1), ("ability_variance", 2)):
        for each in (name, f"{name}_std_error"):
            if each in hyperparameters:
                hyperparameters[each] = slope**power * float(hyperparameters[each])
    covariance = fit.item_covariance
    if covariance is not None:
        turn = np.eye(covariance.shape[1])
        turn[0, 0], turn[1, 0] = 1 / slope, -intercept / slope
        covariance = turn @ covariance @ turn.T
    shared = fit.scale_covariance
    if shared is not None:
        back = np.array([[slope, -intercept], [0.0, 1.0]])
        shared = back @ shared @ back.T
    moved: dict[str, Any] = {
        name: None if (values := getattr(fit, name)) is None else slope * values + intercept
        for name in ("ability", "difficulty", "ability_draws", "ability_quantiles")
    }
    return replace(
        fit,
        **moved,
        ability_covariance=slope**2 * fit.ability_covariance,
        discrimination=fit.discrimination / slope,
        discrimination_std_error=fit.discrimination_std_error / slope,
        difficulty_std_error=slope * fit.difficulty_std_error,
        item_covariance=covariance,
        scale_covariance=shared,
        hyperparameters=hyperparameters,
    )


@dataclass(frozen=True)
class _Lever:
    """How the zero and the log of the unit move with each ability, through the items.

    Items are estimated from the answers of models at these abilities, so an item's parameters ξ
    move by -V ∂²log L/∂ξ∂θ, with their covariance V given the abilities. A shift of all abilities
    moves the zero as far.
    """

    fit: IRTFit
    at: float
    """Ability of the zero: 0, or where a link to other items put it."""
    zero: FloatArray
    """Shape (N,), like `unit`."""
    unit: FloatArray
    item_part: FloatArray
    """Covariance of zero and unit given the abilities, shape (2, 2)."""

    @classmethod
    def of(cls, fit: IRTFit, trials: FloatArray) -> _Lever:
        a, d, low, high = Curves.of(fit)
        # Without the other models, which would change the order of sums, and so their last digits.
        takes_part = np.isfinite(fit.ability) & np.isfinite(fit.ability_covariance.diagonal())
        theta, trials = fit.ability[takes_part], trials[takes_part]
        spread = np.zeros((len(a), 2, 2))
        if fit.item_covariance is not None:
            spread = np.nan_to_num(fit.item_covariance[:, :2, :2])
        up = special.expit(theta[:, None] * a + d)
        height = high - low
        right = np.clip(low + height * up, 1e-12, 1 - 1e-12)
        bend = trials * (height * up * (1 - up)) ** 2 / (right * (1 - right))
        bend *= a
        at = zero_of(Curves(a, d, low, high)).at
        half = special.expit(at * a + d)
        by_intercept = height * half * (1 - half)
        steep = float(by_intercept @ a)
        gradient = np.zeros((2, len(a), 2))
        if steep > 0:
            gradient[0] = -np.stack([by_intercept * at, by_intercept], axis=1) / steep
        if (a >= 0).all():
            gradient[1, :, 0] = np.divide(1.0, a, out=0 * a, where=a > 0) / max((a > 0).sum(), 1)
        else:
            gradient[1, :, 0] = a / float(a @ a)
        pulls = np.einsum("fmp,mpq->fmq", gradient, spread)
        item_part = np.einsum("fmp,gmp->fg", pulls, gradient)
        item_part[0, 0] += _of_population(fit, by_intercept * a / steep if steep > 0 else 0 * a)
        moved = -(pulls[:, :, 0] @ bend.T * theta + pulls[:, :, 1] @ bend.T)
        total = float(moved[0].sum())
        moved[0] = moved[0] / total if total > 0 else 1 / max(len(theta), 1)
        zero, unit = np.zeros((2, len(takes_part)))
        zero[takes_part], unit[takes_part] = moved
        return cls(fit, at, zero, unit, item_part)

    def covariance(self, covariance: FloatArray) -> FloatArray:
        """Of abilities counted from the items; NaN rows, of models without an error, stay so."""
        has_error = np.isfinite(covariance.diagonal())
        within = np.ix_(has_error, has_error)
        known_part = covariance[within]
        theta = self.fit.ability[has_error] - self.at
        pull = np.stack([-np.ones_like(theta), theta], axis=1)
        functionals = np.stack([self.zero[has_error], self.unit[has_error]])
        with_functionals = known_part @ functionals.T
        of_functionals = functionals @ with_functionals
        cross = with_functionals @ pull.T
        total = np.full_like(covariance, np.nan)
        total[within] = (
            known_part + cross + cross.T + pull @ (of_functionals + self.item_part) @ pull.T
        )
        return total

    def moved(self, draws: FloatArray) -> FloatArray:
        """Draws of the abilities (N, chains, draws), each counted from its own items."""
        away = draws - draws.mean(axis=(1, 2), keepdims=True)
        shift = np.tensordot(self.zero, away, axes=1)
        stretch = np.tensordot(self.unit, away, axes=1)
        return draws - shift + draws.mean(axis=(1, 2), keepdims=True) * stretch


def _population_on(population: dict[str, Any], line: Line) -> dict[str, float]:
    """Population of items on another scale, by name."""
    slope, intercept = line
    if "difficulty_sd" in population:
        middle = slope * population["difficulty_mean"] + intercept
        return {"difficulty_mean": middle, "difficulty_sd": slope * population["difficulty_sd"]}
    # The intercept is where ability 0 was: d - a · intercept / slope, with discriminations a ~ 1.
    back = intercept / slope
    d, a, rho = (population[name] for name in ("intercept_sd", "discrimination_sd", "correlation"))
    spread = float(np.sqrt(max(d**2 + (back * a) ** 2 - 2 * back * rho * d * a, 1e-300)))
    return {
        "intercept_mean": population["intercept_mean"]
        - back * population.get("discrimination_mean", 1.0),
        "intercept_sd": spread,
        "discrimination_mean": population.get("discrimination_mean", 1.0) / slope,
        "discrimination_sd": a / slope,
        "correlation": float((rho * d - back * a) / spread),
    }


def _of_population(fit: IRTFit, share: FloatArray) -> float:
    """Variance of the zero because the mean of the items' population is estimated.

    Items are drawn towards that mean, by v / s² with an item's variance v and the population's s²;
    the mean has variance s⁴ / Σ (s² - v).
    """
    hyperparameters = fit.hyperparameters
    first = "intercept" if "intercept_sd" in hyperparameters else "difficulty"
    if fit.estimator != "mml-items" or f"{first}_sd" not in hyperparameters:
        return 0.0
    wide = float(hyperparameters[f"{first}_sd"]) ** 2
    variance = (fit.intercept_std_error if first == "intercept" else fit.difficulty_std_error) ** 2
    variance = np.minimum(np.nan_to_num(variance), _MOST_DRAWN * wide)
    return float((share @ variance) ** 2 / max((wide - variance).sum(), 1e-300))

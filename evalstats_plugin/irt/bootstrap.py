"""How sure are the abilities? Bootstrap intervals, and all recipes side by side.

* `bootstrap_abilities`: refits to resampled items, models or clusters, or to answers simulated from
  the fit (parametric bootstrap)
* `uncertainty`: the fit's own errors beside sandwich, bootstraps, posteriors and seeds
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix, submatrix
from evalstats_plugin.data.results import Results, finite
from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.irt.answers import matrix_of
from evalstats_plugin.irt.fit_statistics import check_level
from evalstats_plugin.irt.fitting import choose, fit_counts, fit_irt, is_light
from evalstats_plugin.irt.methods import ESTIMATORS, FitOptions, McmcOptions, MmlOptions, SviOptions
from evalstats_plugin.irt.model.fit import IRTFit, expect_kind
from evalstats_plugin.irt.model.scale import (
    Curves,
    counted_from_zero,
    link_through_items,
    zero_used,
)
from evalstats_plugin.irt.rows import Abilities, abilities
from evalstats_plugin.runtime.lazy import need_torch
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.streams import child, seed_for, stream

if TYPE_CHECKING:
    from evalstats_plugin.irt.estimators.item_population import Kind
    from evalstats_plugin.irt.estimators.items_integrated import ItemsIntegratedFit
    from evalstats_plugin.irt.estimators.refits import Bootstrap
    from evalstats_plugin.irt.model.data import Counts


Over = Literal["items", "models", "clusters", "parametric"]
OVER: dict[str, str] = {
    "items": "items drawn anew",
    "models": "models drawn anew",
    "clusters": "clusters of items drawn anew",
    "parametric": "answers simulated from the fit",
}
"""What is resampled, with a description for notes."""


def bootstrap_abilities(
    fit: IRTFit,
    responses: ResponsesLike,
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
        Fit by any estimator. ``"mml-items"`` is refitted from the first fit, many times faster than
        the others.
    responses
        The answers that were fitted.
    over
        What is resampled: a name of `OVER`.
    shown
        confidence_level, baseline and items, as in `abilities`.

    Raises
    ------
    SelectionError
        No such thing to resample, or not of this estimator.
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
    matrix, fit = matrix_of(responses), expect_kind(fit, IRTFit)
    level = shown.get("confidence_level", 0.95)
    counts = _counts(fit, matrix, device)
    drawn = stream(rng, "resampled abilities")
    refits = _refitted(fit, matrix, counts, over, n_resamples, level, drawn)
    spread = np.nan_to_num(refits.ability.std_error, nan=np.inf)
    ends, (lowest, highest) = fit.endless, fit.limits(level)
    told = np.isfinite(refits.covariance.diagonal())
    whole = told[ends == 0].all()
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
    errors: dict[str, Any] = {}
    for name in ("difficulty", "discrimination") if refits.difficulty is not None else ():
        error = getattr(refits, name).std_error
        if over in ("items", "clusters"):
            # An item keeps its own answers: its posterior varies too, not only its mean.
            error = np.hypot(error, getattr(fit, f"{name}_std_error"))
        errors[f"{name}_std_error"] = error
    resampled = replace(
        fit,
        ability_covariance=refits.covariance if whole else np.diag(spread**2),
        **errors,
        notes=(*fit.notes, *refits.notes, *notes),
    )
    results = abilities(resampled, matrix, **shown)
    limits = {
        model: (finite(lowest[i]), finite(highest[i]))
        # A model all right is so in every refit; the answers set it a limit on one side.
        if ends[i]
        else (finite(refits.ability.low[i]), finite(refits.ability.high[i]))
        for i, model in enumerate(fit.models)
    }
    rows = (replace(r, low=limits[r.model][0], high=limits[r.model][1]) for r in results.rows)
    return replace(results, rows=tuple(rows))


def _counts(fit: IRTFit, matrix: ResponseMatrix, device: str) -> Counts:
    """Counts to refit: NumPy arrays where the fit needed no torch; with what is guessed."""
    from evalstats_plugin.irt.model.arrays import array_of
    from evalstats_plugin.irt.model.data import counts_of

    shape = len(matrix.models), len(matrix.item_ids)
    light = device == "auto" and is_light(choose(fit.item_model, fit.estimator, shape), shape)
    if not light:
        need_torch("item response models")
    counts = counts_of(matrix, device=None if light else device)
    if fit.guessing.any() and fit.item_model not in ("3pl", "4pl"):
        return replace(counts, guess=array_of(fit.guessing, counts.right))
    return counts


def _refitted(
    fit: IRTFit,
    matrix: ResponseMatrix,
    counts: Counts,
    over: str,
    n_resamples: int,
    level: float,
    rng: np.random.Generator,
) -> Bootstrap:
    """Refit: from the first fit where the estimator can, else each time from nothing."""
    from evalstats_plugin.irt.estimators import refits

    if over not in OVER:
        raise SelectionError(no_such("bootstrap", over, OVER, ", ".join(OVER)))
    check_level(level)
    if n_resamples * (1 - level) / 2 < 1:
        least = int(np.ceil(2 / (1 - level)))
        msg = f"{n_resamples} resamples are too few for limits at this level: take {least} or more"
        raise DesignError(msg)
    what: Any = "items" if over == "clusters" else over
    options = refits.BootstrapOptions(over=what, n_resamples=n_resamples, confidence_level=level)
    clusters = _clusters(matrix) if over == "clusters" else None
    chance = fit.predict(plug_in=True)
    if fit.estimator == "mml-items":
        # From the first fit, those models that take part in it.
        counts, inner, again, kind = _integrated(fit, counts)
        refitter = refits.items_refitter(counts, again, kind, options.over)
        drawn = refits.bootstrap(
            refitter, counts, Curves.of(fit), options, rng, chance=chance[inner], clusters=clusters,
            dispersion=again.dispersion,
        )  # fmt: skip
        n = len(fit.models)
        covariance = np.full((n, n), np.nan)
        covariance[np.ix_(inner, inner)] = drawn.covariance
        ability: dict[str, FloatArray] = {}
        for name, values in drawn.ability._asdict().items():
            ability[name] = np.full((*values.shape[:-1], n), np.nan)
            ability[name][..., inner] = values
        return drawn._replace(ability=refits.Quantity(**ability), covariance=covariance)
    how = _same_model(fit)
    how = replace(how, std_errors=False) if isinstance(how, MmlOptions) else how
    n, m = counts.right.shape
    chosen = choose(fit.item_model, fit.estimator, (n, m), how)

    def fitted(drawn: refits.Drawn) -> refits.Refitted:
        part = submatrix(matrix, drawn.models, drawn.items)
        again = fit_counts(part, drawn.of(counts), fit.item_model, chosen, rng)
        return refits.Refitted(cast("IRTFit", again).ability, Curves.of(cast("IRTFit", again)))

    return refits.bootstrap(
        fitted, counts, Curves.of(fit), options, rng, chance=chance, clusters=clusters,
        dispersion=float(fit.hyperparameters.get("dispersion", 1.0)), here=True,
    )  # fmt: skip


def _integrated(fit: IRTFit, counts: Counts) -> tuple[Counts, IntArray, ItemsIntegratedFit, Kind]:
    """Answers and places of the models that take part, and the fit on its estimator's scale."""
    from evalstats_plugin.irt.estimators.items_integrated import items_integrated, taking_part
    from evalstats_plugin.irt.model.arrays import as_array

    inner = taking_part(counts)
    part = counts.of_models(inner)
    signed = "discrimination_sd" in fit.hyperparameters
    kind = cast("Kind", "2pl-signed" if signed else fit.item_model)
    again = items_integrated(part, kind, dispersion=float(fit.hyperparameters["dispersion"]))
    return part, as_array(inner).astype(np.int64), again, kind


def _same_model(fit: IRTFit) -> FitOptions:
    """Options that fit the same model again."""
    return ESTIMATORS[fit.estimator].options(**fit.diagnostics.get("options", {}))


def _clusters(matrix: ResponseMatrix) -> IntArray:
    """Number the clusters of items; an item without one is a cluster of its own."""
    names = None if matrix.clusters is None else matrix.clusters.astype(str)
    if names is None or not (names != "").any():
        raise SelectionError("no item has a cluster: name the field that holds it (--cluster)")
    places = np.arange(len(names)).astype(str)
    alone = np.where(names == "", np.char.add("\0", places), "")
    keys = np.char.add(np.char.add(matrix.tasks.astype(str), "\1"), np.char.add(names, alone))
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


RECIPES: Mapping[str, str] = MappingProxyType(
    {
        "model": "the fit's own standard errors (Wald)",
        "sandwich": "from how the scores of items, or of clusters of items, vary",
        "items": "bootstrap over items",
        "clusters": "bootstrap over clusters of items",
        "models": "bootstrap over models",
        "parametric": "bootstrap of answers simulated from the fit",
        "mcmc": "percentiles of posterior draws",
        "mcmc-hdi": "shortest interval that holds the posterior draws (HDI)",
        "vi": "spread of the variational posterior",
        "svi": "the same by stochastic gradients",
        "svi-lognormal": "the same with log-normal discriminations",
        "seeds": "spread between stochastic fits that differ in their seed only",
    }
)
"""Recipes for the uncertainty of abilities."""

COVERAGE: Mapping[str, float] = MappingProxyType(
    {
        "model": 0.969,
        "sandwich": 0.963,
        "items": 0.963,
        "parametric": 0.956,
        "vi": 0.856,
    }
)
"""Share of 95 % intervals that held the true ability: a 2PL, 10 models, 60 items, 16 sets of
answers (fixtures/validation/uncertainty.json); of the recipes that were tried on five or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Interval of one model's ability by one recipe. Numbers are finite or ``None``."""

    recipe: str
    model: str
    estimate: float | None
    """On the scale of the fit."""
    low: float | None
    high: float | None
    std_error: float | None
    confidence_level: float
    coverage: float | None
    """Measured coverage of the recipe's 95 % intervals, see `COVERAGE`."""
    seconds: float
    """Of the recipe, for all models."""


@dataclass(frozen=True)
class Uncertainties(Results[Uncertainty]):
    """A row for each recipe and model, models in the order of the fit."""

    fit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What was fitted and how, see `IRTFit.summary`."""


def uncertainty(
    fit: IRTFit,
    responses: ResponsesLike,
    recipes: Sequence[str] | Literal["all"] = "all",
    *,
    n_resamples: int = 200,
    n_seeds: int = 5,
    confidence_level: float = 0.95,
    rng: np.random.Generator | int | None = None,
    device: str = "auto",
) -> Uncertainties:
    """Intervals of abilities by several recipes, side by side.

    Only ``"model"``, ``"sandwich"`` and the bootstraps are about this fit; posteriors are those of
    a model with the same curves, on the fit's scale. ``"seeds"`` shows how far a search depends on
    its seed, which is no uncertainty of the abilities: it stays the same with a tenth of the items.

    Parameters
    ----------
    fit
        Fit of `matrix`, of one ability.
    recipes
        Names of `RECIPES`, or ``"all"``; a recipe that is not possible is left out with a note.

    Raises
    ------
    SelectionError
        No such recipe.
    DesignError
        A confidence level that is not between 0 and 1.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, simulate_responses, uncertainty
    >>> matrix, _ = simulate_responses(rng=0, n_models=5, n_items=60, item_model="rasch")
    >>> intervals = uncertainty(fit_irt(matrix, "rasch"), matrix, ["model", "sandwich"])
    >>> [(row.recipe, round(row.std_error, 2)) for row in intervals if row.model == "model_0"]
    [('model', 0.31), ('sandwich', 0.3)]
    """
    matrix, fit = matrix_of(responses), expect_kind(fit, IRTFit)
    names = list(RECIPES) if recipes == "all" else list(recipes)
    check_recipes(names)
    check_level(confidence_level)
    counts, seed = _counts(fit, matrix, device), seed_for(rng, "seed of recipes")
    work = _Recipes(fit, matrix, counts, n_resamples, n_seeds, confidence_level, seed, device)
    rows, notes = list[Uncertainty](), list[str]()
    for name in names:
        began = time.perf_counter()
        try:
            intervals = work.of(name)
        except (SelectionError, DesignError) as error:
            notes.append(f"{name}: {error}")
            continue
        seconds = time.perf_counter() - began
        for i, model in enumerate(fit.models):
            estimate, low, high, error = (finite(float(x[i])) for x in intervals)
            rows.append(
                Uncertainty(
                    recipe=name,
                    model=model,
                    estimate=estimate,
                    low=low,
                    high=high,
                    std_error=error,
                    confidence_level=confidence_level,
                    coverage=COVERAGE.get(name),
                    seconds=seconds,
                )
            )
    return Uncertainties(tuple(rows), (*fit.notes, *notes), fit=fit.summary())


def check_recipes(names: Sequence[str]) -> None:
    """Raise `SelectionError` for a recipe that does not exist."""
    for name in names:
        if name not in RECIPES:
            raise SelectionError(no_such("recipe", name, RECIPES, ", ".join(RECIPES)))


Limits = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Estimates, lower and upper limits, and standard errors, each of shape (N,)."""


@dataclass(frozen=True)
class _Recipes:
    """The recipes, each of which makes what several of them use once."""

    fit: IRTFit
    matrix: ResponseMatrix
    counts: Counts
    n_resamples: int
    n_seeds: int
    level: float
    seed: int
    device: str
    made: dict[str, Any] = field(default_factory=dict[str, Any])

    def of(self, name: str) -> Limits:
        if name == "model":
            return self.fit.ability, *self.fit.limits(self.level), self.fit.ability_std_error
        if name == "sandwich":
            return self._normal(self.fit.ability, self._sandwich())
        if name in OVER:
            refits = _refitted(
                self.fit, self.matrix, self.counts, name, self.n_resamples, self.level,
                child(stream(self.seed, "resamples of recipes"), name),
            ).ability  # fmt: skip
            (low, high), limited = self.fit.limits(self.level), self.fit.endless == 0
            low, high = np.where(limited, refits.low, low), np.where(limited, refits.high, high)
            return self.fit.ability, low, high, refits.std_error
        if name.startswith("mcmc"):
            kind = "hdi" if name == "mcmc-hdi" else "percentile"
            other = self._posterior("mcmc", McmcOptions(draws=500, warm_up=200), self.seed)
            return self._on_scale(other, partial(other.limits, self.level, kind=kind))
        if name == "seeds":
            seeds = range(self.seed, self.seed + self.n_seeds)
            fits = [self._posterior("svi", SviOptions(), seed) for seed in seeds]
            each = np.array([self._on_scale(svi_fit, svi_fit.limits)[0] for svi_fit in fits])
            return self._normal(each.mean(axis=0), each.std(axis=0, ddof=1))
        guide = SviOptions(guide="lognormal" if name == "svi-lognormal" else "normal")
        stochastic = name.startswith("svi")
        other = self._posterior("svi" if stochastic else "vi", guide if stochastic else None,
                                self.seed)  # fmt: skip
        return self._on_scale(other, partial(other.limits, self.level))

    def _normal(self, ability: FloatArray, error: FloatArray) -> Limits:
        width = normal_quantile(self.level) * error
        return ability, ability - width, ability + width, error

    def _sandwich(self) -> FloatArray:
        from evalstats_plugin.irt.estimators.items_integrated import sandwich
        from evalstats_plugin.irt.model.arrays import array_of, as_array, namespace
        from evalstats_plugin.irt.model.arrays import cast as as_type

        if self.fit.estimator == "mml":
            how = replace(cast("MmlOptions", _same_model(self.fit)), std_errors=None, sandwich=True)
            zero = zero_used(self.fit)
            again = fit_irt(self.matrix, str(self.fit.item_model), options=how, zero=zero)
            unit = self.fit.hyperparameters.get("link", {}).get("slope", 1.0)
            return np.asarray(unit * cast("Any", again).ability_std_error)
        if self.fit.estimator != "mml-items" or self.fit.guessing.any():
            raise SelectionError("a sandwich is of estimators mml-items, without guessing, and mml")
        part, inner, again, kind = _integrated(self.fit, self.counts)
        clusters = None
        if self.matrix.clusters is not None:
            numbers = array_of(_clusters(self.matrix), part.right)
            clusters = as_type(numbers, namespace(numbers).int64)
        covariance = np.full((len(self.fit.models),) * 2, np.nan)
        covariance[np.ix_(inner, inner)] = as_array(sandwich(part, again, kind, clusters))
        trials = as_array(self.counts.trials)
        total = counted_from_zero(self.fit, trials, covariance, item_errors=False)
        return np.sqrt(total.diagonal())

    def _posterior(self, estimator: str, options: Any, seed: int) -> IRTFit:
        """Fit a posterior, unless it was fitted before."""
        if self.fit.item_model not in ("rasch", "2pl") or self.fit.guessing.any():
            raise SelectionError("posteriors are of item models rasch and 2pl, without guessing")
        key = f"{estimator} {options} {seed}"
        if key not in self.made:
            self.made[key] = fit_irt(
                self.matrix, cast("Any", self.fit.item_model), estimator, options=options, rng=seed,
                device=self.device, zero=zero_used(self.fit),
            )  # fmt: skip
        return self.made[key]

    def _on_scale(
        self, other: IRTFit, limits: Callable[[], tuple[FloatArray, FloatArray]]
    ) -> Limits:
        """Put a posterior on the scale of the fit, through its items."""
        scale, shift = link_through_items(Curves.of(other), Curves.of(self.fit))
        low, high = limits()
        error = scale * other.ability_std_error
        return scale * other.ability + shift, scale * low + shift, scale * high + shift, error

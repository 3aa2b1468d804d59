"""How well does each model do, what models and tasks say of each other being taken together?"""
# PART hierarchical_engines - Which engine infers a hierarchical model of these counts, and what it finds.
# PART hierarchical_request - What is asked of a hierarchical fit, what an engine answers, and what all engines need.
# PART hierarchical_particles - Massively parallel inference where it does, and word of where it does not.
# PART hierarchical_notes - What to know of a hierarchical fit before it is trusted.
# PART hierarchical_options - What a hierarchical fit may be told: how long to draw, and priors of standard deviations.
# PART hierarchical_cost - How long will drawing from a hierarchical model take? Said before a long fit starts.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.hierarchical.data import (
    Covariates,
    EvalCounts,
    Responded,
    Standardised,
    covariates_of,
    eval_counts,
)
from evalstats_plugin.hierarchical.fit import HierarchicalFit, Spread, performance_rows, spread
from evalstats_plugin.hierarchical.methods import (
    BY_QUESTION,
    CLOSED_FORM,
    HIERARCHICAL_MODELS,
    INFERENCES,
)
from evalstats_plugin.hierarchical.rows import Prior
from evalstats_plugin.runtime.lazy import need_torch
from evalstats_plugin.stats.arrays import FloatArray, Rng
from evalstats_plugin.stats.interval import tail_probability

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.engines.crossed import CrossedModel
    from evalstats_plugin.hierarchical.engines.crossed_fit import Counts
    from evalstats_plugin.hierarchical.engines.nested import ParticleFit, Trial
    from evalstats_plugin.hierarchical.engines.plates.fit import PlatedFit
    from evalstats_plugin.hierarchical.engines.posterior import Posterior


FEWEST_UNITS = 3
"""Tasks of one model, or models on one task, from which on they tell of each other."""


_WHY: Mapping[str, str] = {
    "exact": "every share has its own Beta posterior",
    "mp": "nested, not crossed, every score hanging on one effect of its own",
    "gibbs": "models and tasks are crossed, so that every cell hangs on every other",
    "questions": "questions are told apart, which particles are not made for here",
    "asked": "asked for",
    "enough": "asked for, and enough particles count",
}


HEAVIEST, CARRIED = 1.0, 0.05
"""Pareto k above which weights have no mean [VSG24]_, and the share of effective particles below
which such tails are what carries the weight. Where nearly all particles count, tails are long but
thin, and estimates agree with sums over a grid and with Gibbs sampling."""


FEWEST = 10.0
"""Particles that must count, in every group, for massively parallel inference to be relied on."""


AS_GOOD = 0.95
"""Median width of pooled intervals over unpooled ones, from which on pooling buys nothing."""


FEW_COUNT = 0.2
"""Share of effective particles below which heavy tails of their weights are told."""


CHECKED = 500
"""Cells, evenly chosen, whose chains are compared; parameters and models are all."""


_FAMILIES: Mapping[str, int] = {"gamma": 2, "half-normal": 1, "lognormal": 2}


_SCALES = ("default", "model", "task", "interaction", "question")


_SWEEP, _CELL = 6e-3, 3.3e-7
"""Seconds of one core for a sweep, and for each cell of each chain in it, as timed for 10 × 10 to
100 × 60 cells, and for 29 × 2,400 questions."""


def fit_hierarchical(  # noqa: PLR0913 - each is a choice of its own
    responses: Responded,
    model: str = "auto",
    inference: str = "auto",
    *,
    covariates: Covariates | None = None,
    confidence_level: float = 0.95,
    device: str = "auto",
    rng: Rng = None,
    options: HierarchicalOptions | Mapping[str, Any] | None = None,
) -> HierarchicalFit:
    """Estimate every model's accuracy on every task, each borrowing from the others.

    Parameters
    ----------
    responses
        Scores in [0, 1], each task under one metric. Tasks need not be of one size, and models
        need not have run all. Takes of a question are averaged, or counted where questions are
        told apart.
    model
        A name of `HIERARCHICAL_MODELS`, or ``"auto"``: ``"task"``, or ``"per-task"`` for one model
        on one or two tasks, or one task of two models.
    inference
        ``"exact"``, ``"mp"``, ``"gibbs"``, or ``"auto"``, which goes by structure: closed forms
        are exact, ``"mp"`` (massively parallel importance sampling) is for nested evals, one model
        or one task, ``"gibbs"`` for crossed ones. Where ``"mp"`` is asked for and too few particles
        count, ``"gibbs"`` takes over, with a note; ``fit.reason`` says why.
    covariates
        Of ``"models"`` and of ``"tasks"``: by covariate the number of each, such as
        ``{"models": {"log_size": {"a": 7.0, "b": 8.5}}}``. Standardised; coefficients ~ N(0, 1).
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``: CUDA where there is one.
    options
        A `HierarchicalOptions` or its fields, and ``"device"`` where none is passed.

    Raises
    ------
    SelectionError
        No such model, inference, option, prior or device.
    DesignError
        No scores or scores outside [0, 1]; covariates that are missing; not enough memory.

    Examples
    --------
    >>> from evalstats_plugin.data.matrix import ResponseMatrix
    >>> scores = ResponseMatrix.from_array([[1, 0, 1, 1], [0, 0, 1, 0]])
    >>> for row in fit_hierarchical(scores, "per-task", rng=0):
    ...     print(row.model, row.task, f"{row.estimate:.2f} [{row.low:.2f}, {row.high:.2f}]")
    model_0 None 0.67 [0.28, 0.95]
    model_0 task 0.67 [0.28, 0.95]
    model_1 None 0.33 [0.05, 0.72]
    model_1 task 0.33 [0.05, 0.72]
    """
    if not 0 < confidence_level < 1:
        msg = f"confidence level {confidence_level} found, expected a number between 0 and 1"
        raise DesignError(msg)
    chosen, place = options_of(options)
    check_names(model, inference)
    counts = eval_counts(responses)
    found, why = _model(model, counts)
    request = Request(
        model=found,
        why=why,
        inference=inference,
        options=chosen,
        covariates=covariates_of(covariates, counts.models, counts.tasks),
        confidence_level=confidence_level,
        device=place if device == "auto" else device,
    )
    seed = rng if isinstance(rng, int) else None
    return _fitted(counts, request, np.random.default_rng(rng), seed)


def _model(name: str, counts: EvalCounts) -> tuple[str, str]:
    n, t = counts.right.shape
    if name != "auto":
        return name, "asked for"
    size = f"{n} {'model' if n == 1 else 'models'} on {t} {'task' if t == 1 else 'tasks'}"
    if max(n, t) < FEWEST_UNITS and min(n, t) == 1:
        return "per-task", f"{size} leave too little to borrow from"
    return "task", f"{size}, each of which tells of the others"


def _fitted(
    counts: EvalCounts, request: Request, rng: np.random.Generator, seed: int | None
) -> HierarchicalFit:
    found = infer_counts(counts, request, rng)
    same = {
        "metric": counts.metric,
        "confidence_level": request.confidence_level,
        "method": request.model,
    }

    def refit(priors: Mapping[str, Prior], again: int) -> HierarchicalFit:
        other = replace(request, options=replace(request.options, priors=priors))
        return _fitted(counts, other, np.random.default_rng(again), again)

    def with_model(name: str, again: int) -> HierarchicalFit:
        plain = covariates_of(None, counts.models, counts.tasks)
        kept = plain if name in CLOSED_FORM else request.covariates
        other = replace(request, model=name, inference="auto", covariates=kept)
        return _fitted(counts, other, np.random.default_rng(again), again)

    return HierarchicalFit(
        rows=tuple(performance_rows(counts, found.cells, found.overall, same)),
        notes=(*counts.notes, *extremes(counts), *found.notes),
        seed=seed,
        model=request.model,
        inference=found.inference,
        reason=f"model {request.model}: {request.why}; inference {found.inference}: {found.why}",
        counts=counts,
        posterior=found.posterior,
        diagnostics=found.diagnostics,
        confidence_level=request.confidence_level,
        priors=all_priors(request.options),
        covariates=request.covariates,
        log_evidence=found.log_evidence,
        log_evidence_error=found.log_evidence_error,
        refit=refit,
        with_model=with_model,
    )


def infer_counts(counts: EvalCounts, request: Request, rng: np.random.Generator) -> Inferred:
    """Choose the engine by the structure of the model and the counts, and run it.

    Raises
    ------
    SelectionError
        The engine that is asked for does not fit the model.
    DesignError
        Covariates that the model does not know; torch is not installed; not enough memory.
    """
    if request.model in CLOSED_FORM:
        if request.inference not in ("auto", "exact"):
            raise SelectionError(_does_not_fit(request, "exact"))
        return _exact(counts, request, rng)
    if request.inference == "exact":
        raise SelectionError(_does_not_fit(request, "gibbs"))
    narrow = min(counts.right.shape) == 1
    nested = narrow and request.model not in BY_QUESTION
    wanted = request.inference if request.inference != "auto" else ("mp" if nested else "gibbs")
    why = _WHY["asked" if nested else "questions" if narrow else "gibbs"]
    if wanted == "gibbs" or (narrow and not nested):
        return _by_gibbs(counts, request, rng, (why, ()))
    tried = try_particles(counts, request, rng, nested=nested)
    if tried.found is None:
        return _by_gibbs(counts, request, rng, ("particles do not do", tried.notes))
    why = _WHY["mp" if nested else "enough"]
    return by_particles(counts, request, tried.found, why)


def _does_not_fit(request: Request, fits: str) -> str:
    return (
        f"inference {request.inference!r} does not fit model {request.model!r}: choose {fits!r} or "
        "'auto'"
    )


def _exact(counts: EvalCounts, request: Request, rng: np.random.Generator) -> Inferred:
    """The posterior of each share; the mean of several shares by independent draws."""
    from evalstats_plugin.hierarchical.engines import posterior as engines_posterior

    if any(x.names for x in request.covariates.values()):
        msg = f"model {request.model!r} takes no covariates: choose 'task' or 'across-task'"
        raise DesignError(msg)
    pooled = request.model == "beta-binomial"
    found = engines_posterior.shares(counts.right, counts.trials, pooled=pooled)
    size = (request.options.chains, request.options.draws)
    posterior = engines_posterior.draw(found, counts.right, counts.trials, size, rng)
    tail = tail_probability(request.confidence_level)
    limits = (found.quantile(tail), found.quantile(1 - tail))
    error = np.sqrt(found.mean * (1 - found.mean) / (found.a + found.b + 1))
    cells = Spread(found.mean, *limits, error)
    if pooled or len(counts.tasks) == 1:
        overall = Spread(*(x[:, 0] for x in cells))
    else:
        drawn = spread(posterior.overall, request.confidence_level)
        own = np.sqrt((cells.std_error**2).sum(axis=1)) / len(counts.tasks)
        overall = Spread(cells.mean.mean(axis=1), drawn.low, drawn.high, own)
    return Inferred(
        inference="exact",
        why=_WHY["exact"],
        posterior=posterior,
        cells=cells,
        overall=overall,
        diagnostics={"draws": int(np.prod(posterior.accuracy.shape[:2]))},
        log_evidence=engines_posterior.log_evidence(found, counts.right, counts.trials),
        log_evidence_error=0.0,
    )


def _by_gibbs(
    counts: EvalCounts,
    request: Request,
    rng: np.random.Generator,
    said: tuple[str, tuple[str, ...]],
) -> Inferred:
    need_torch("hierarchical models", "hierarchical")
    from evalstats_plugin.hierarchical.engines import crossed_fit as engines_crossed_fit

    options = request.options
    given = counted(counts, request, by_question=request.model in BY_QUESTION)
    length = engines_crossed_fit.Length(
        chains=options.chains, draws=options.draws, warm_up=options.warm_up
    )
    posterior = engines_crossed_fit.fit_model(
        given, crossed_model_for(request), rng, length, request.device
    )
    diagnostics, notes = agreement(posterior, options)
    cells, overall = spreads(posterior, request)
    return Inferred(
        inference="gibbs",
        why=said[0],
        posterior=posterior,
        cells=cells,
        overall=overall,
        diagnostics=diagnostics,
        notes=(*said[1], *notes, *worth(counts, cells, request.confidence_level)),
    )


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked for, checked."""

    model: str
    """A name of `HIERARCHICAL_MODELS`."""
    why: str
    """This model."""
    inference: str
    """A name of `INFERENCES`, or ``"auto"``."""
    options: HierarchicalOptions
    covariates: Mapping[str, Standardised]
    confidence_level: float
    device: str


@dataclass(frozen=True, kw_only=True)
class Inferred:
    """What an engine found."""

    inference: str
    why: str
    """This engine."""
    posterior: Posterior
    cells: Spread
    overall: Spread
    diagnostics: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    log_evidence: float | None = None
    log_evidence_error: float | None = None


def spreads(posterior: Posterior, request: Request) -> tuple[Spread, Spread]:
    """Sum up accuracies of cells, and over tasks."""
    level = request.confidence_level
    return spread(posterior.accuracy, level), spread(posterior.overall, level)


def crossed_model_for(request: Request) -> CrossedModel:
    """Return the effects of the model, with the priors asked for."""
    from evalstats_plugin.hierarchical.engines.crossed_fit import crossed_model_of

    return crossed_model_of(request.model, all_priors(request.options))


def counted(counts: EvalCounts, request: Request, *, by_question: bool) -> Counts:
    """Return the counts and covariates as models take them."""
    from evalstats_plugin.hierarchical.engines.crossed_fit import Counts

    return Counts(
        counts.question_right if by_question else counts.right,
        counts.question_trials if by_question else counts.trials,
        counts.task if by_question else np.arange(len(counts.tasks)),
        request.covariates["models"].values,
        request.covariates["tasks"].values,
    )


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Whether particles do, what was found if they do, and what to say if not."""

    found: ParticleFit | None
    notes: tuple[str, ...] = ()


def try_particles(
    counts: EvalCounts, request: Request, rng: np.random.Generator, *, nested: bool
) -> Tried:
    """Run massively parallel inference; crossed evals are tried on a part first."""
    need_torch("hierarchical models", "hierarchical")
    from evalstats_plugin.hierarchical.engines import nested as engines_nested

    given, structure = counted(counts, request, by_question=False), crossed_model_for(request)
    size = (request.options.chains, request.options.draws)
    if nested:
        found = engines_nested.fit_nested(given, structure, rng, size, request.device)
        return _enough(found)
    trial = engines_nested.try_particles(given, structure, rng, request.device)
    n, t = counts.right.shape
    said = (
        f"massively parallel inference was tried on {trial.n_models} of {n} models × "
        f"{trial.n_tasks} of {t} tasks: {trial.ess:.1f} effective particles of {trial.group}"
    )
    if trial.ess < FEWEST:
        return Tried(found=None, notes=(
            f"{said}, at least {FEWEST:g} expected, as everywhere where models and tasks are "
            "crossed: Gibbs sampling instead",))  # fmt: skip
    why = _unfit(request, trial)
    if why:
        return Tried(found=None, notes=(f"{said}, but {why}: Gibbs sampling instead",))
    return _enough(engines_nested.fit_crossed(given, structure, rng, size, request.device))


def _enough(found: ParticleFit) -> Tried:
    ess = {group: float(values.min()) for group, values in found.plated.ess.items()}
    tails = {group: float(np.nanmax(values)) for group, values in found.plated.k_hat.items()}
    few, heavy = min(ess, key=ess.__getitem__), max(tails, key=tails.__getitem__)
    if ess[few] < FEWEST:
        what = f"left {ess[few]:.1f} effective particles of {few}, at least {FEWEST:g} expected"
    elif tails[heavy] > HEAVIEST and ess[few] < CARRIED * found.particles:
        what = (
            f"left weights without a mean (Pareto k {tails[heavy]:.2f} of {heavy}, at most "
            f"{HEAVIEST:g} expected) and {ess[few]:.0f} effective particles of {found.particles}"
        )
    else:
        return Tried(found=found)
    return Tried(
        found=None, notes=(f"massively parallel inference {what}: Gibbs sampling instead",)
    )


def _unfit(request: Request, trial: Trial) -> str:
    """Say why particles do not do for all, though they did in the trial."""
    if request.model in BY_QUESTION:
        return "questions are told apart"
    if any(x.names for x in request.covariates.values()):
        return "there are covariates"
    return "" if trial.whole else "all models and tasks are too many"


def by_particles(counts: EvalCounts, request: Request, found: ParticleFit, why: str) -> Inferred:
    """Put what particles found into the form of all engines."""
    diagnostics, notes = effort(found.plated, found.posterior, found.particles)
    cells, overall = spreads(found.posterior, request)
    return Inferred(
        inference="mp",
        why=why,
        posterior=found.posterior,
        cells=cells,
        overall=overall,
        diagnostics=diagnostics,
        notes=(*notes, *worth(counts, cells, request.confidence_level)),
        log_evidence=found.plated.log_evidence,
        log_evidence_error=found.plated.log_evidence_error,
    )


def agreement(
    posterior: Posterior, options: HierarchicalOptions
) -> tuple[dict[str, Any], list[str]]:
    """R-hat and effective draws of all that is reported, and what to do where they are poor."""
    from evalstats_plugin.stats.draws import UNLIKE, convergence

    cells = posterior.accuracy.reshape(*posterior.accuracy.shape[:2], -1)
    step = -(-cells.shape[2] // CHECKED)
    watched = {**posterior.parameters, "overall": posterior.overall, "accuracy": cells[..., ::step]}
    found = {name: convergence(_halves(values)) for name, values in watched.items()}
    r_hat = {name: float(np.max(x.r_hat)) for name, x in found.items()}
    ess = {name: float(np.min(x.ess)) for name, x in found.items()}
    worst, least = max(r_hat.values()), min(ess.values())
    notes: list[str] = []
    wanted = 100 * options.chains
    if not worst <= UNLIKE or not least >= wanted:
        apart, slow = max(r_hat, key=r_hat.__getitem__), min(ess, key=ess.__getitem__)
        notes.append(
            f"too few draws: R-hat {worst:.3f} of {apart} (at most {UNLIKE} expected), "
            f"{least:.0f} effective draws of {slow} (at least {wanted} expected): take more"
        )
    diagnostics: dict[str, Any] = {
        "chains": options.chains,
        "draws": options.draws,
        "warm_up": options.warm_up,
        "kept": int(posterior.accuracy.shape[1]),
        "worst_r_hat": worst,
        "least_ess": least,
        "r_hat": r_hat,
        "ess": ess,
    }
    return diagnostics, notes


def _halves(draws: FloatArray) -> FloatArray:
    """Compare one chain with itself: its halves in place of chains."""
    if len(draws) > 1:
        return draws
    half = draws.shape[1] // 2
    return np.stack([draws[0, :half], draws[0, half : 2 * half]])


def effort(
    plated: PlatedFit, posterior: Posterior, particles: int
) -> tuple[dict[str, Any], list[str]]:
    """Effective particles and the tails of their weights, and what to do where they are poor."""
    from evalstats_plugin.stats.draws import UNRELIABLE

    ess = {group: float(values.min()) for group, values in plated.ess.items()}
    worst = max(float(np.nanmax(values)) for values in plated.k_hat.values())
    least, notes = min(ess.values()), list[str]()
    if worst > UNRELIABLE and least < FEW_COUNT * particles:
        notes.append(
            f"weights of particles have heavy tails (Pareto k {worst:.2f}, at most {UNRELIABLE} "
            f"expected; {least:.0f} of {particles} particles count): estimates may be a little "
            "off, inference 'gibbs' has no such limit"
        )
    diagnostics: dict[str, Any] = {
        "draws": int(np.prod(posterior.accuracy.shape[:2])),
        "particles": particles,
        "least_ess": least,
        "ess": ess,
        # All weights alike have no tail.
        "worst_pareto_k": worst if np.isfinite(worst) else None,
        "log_evidence": plated.log_evidence,
        "log_evidence_error": plated.log_evidence_error,
        "iterations": len(plated.history),
    }
    return diagnostics, notes


def worth(counts: EvalCounts, cells: Spread, level: float) -> list[str]:
    """Say what pooling bought, against one Beta posterior for each cell."""
    from evalstats_plugin.hierarchical.engines import posterior as engines_posterior

    run = counts.trials > 0
    alone = engines_posterior.shares(counts.right, counts.trials, pooled=False)
    tail = tail_probability(level)
    width = alone.quantile(1 - tail) - alone.quantile(tail)
    ratio = float(np.median(((cells.high - cells.low) / width)[run]))
    if ratio < AS_GOOD:
        return [f"pooling makes intervals of tasks {1 - ratio:.0%} narrower (median)"]
    return [
        f"pooling leaves intervals of tasks as wide as without ({ratio:.0%}, median): use model "
        "'per-task', which is simpler and says the same"
    ]


def extremes(counts: EvalCounts) -> list[str]:
    """Say where nothing but the prior bounds an effect."""
    right, trials = counts.right.sum(axis=0), counts.trials.sum(axis=0)
    flat = int(((right == 0) | (right == trials)).sum())
    own = counts.right.sum(axis=1), counts.trials.sum(axis=1)
    models = int(((own[0] == 0) | (own[0] == own[1])).sum())
    said = [(flat, "task"), (models, "model")]
    return [
        f"{_counted(count, what)} all right or all wrong: how far from the others rests on the "
        "prior"
        for count, what in said
        if count
    ]


def _counted(count: int, what: str) -> str:
    return f"1 {what} is" if count == 1 else f"{count} {what}s are"


@dataclass(frozen=True, kw_only=True)
class HierarchicalOptions:
    """How long to draw, and under which priors."""

    chains: int = 4
    draws: int = 1000
    """Kept, of each chain."""
    warm_up: int = 300
    """Thrown away, of each chain."""
    priors: Mapping[str, Prior] = field(default_factory=dict[str, Prior])
    """Of standard deviations: of ``"model"``, ``"task"``, ``"interaction"``, ``"question"``, and
    ``"default"`` of the others, which is Gamma(2, 2) as in [BA24]_."""


def options_of(
    given: HierarchicalOptions | Mapping[str, Any] | None,
) -> tuple[HierarchicalOptions, str]:
    """Check the options, and tell the device from them."""
    if isinstance(given, HierarchicalOptions):
        return _checked(given), "auto"
    known = dict(given or {})
    device = str(known.pop("device", "auto"))
    names = list(HierarchicalOptions.__dataclass_fields__)
    for name in known:
        if name not in names:
            shown = ", ".join([*names, "device"])
            raise SelectionError(no_such("option", name, names, shown))
    return _checked(HierarchicalOptions(**known)), device


def _checked(options: HierarchicalOptions) -> HierarchicalOptions:
    if min(options.chains, options.draws, options.warm_up) < 1 or options.draws < 8:
        msg = (
            f"{options.chains} chains of {options.draws} draws after {options.warm_up} found, "
            "expected at least 1 chain of 8 draws after a warm-up of 1"
        )
        raise DesignError(msg)
    for name, prior in options.priors.items():
        if name not in _SCALES:
            raise SelectionError(no_such("scale", name, _SCALES, ", ".join(_SCALES)))
        _check_prior(prior)
    return options


def _check_prior(prior: Prior) -> None:
    family, numbers = str(prior[0]), [float(x) for x in prior[1:]]
    if family not in _FAMILIES:
        raise SelectionError(no_such("prior", family, _FAMILIES, ", ".join(_FAMILIES)))
    # The mean of log σ may be any number.
    positive = numbers[1:] if family == "lognormal" else numbers
    if len(numbers) != _FAMILIES[family] or not all(x > 0 for x in positive):
        msg = (
            f"prior {tuple(prior)} found, expected {family!r} and {_FAMILIES[family]} numbers "
            "above 0 (the mean of log σ may be any)"
        )
        raise DesignError(msg)


def check_names(model: str, inference: str) -> None:
    """Refuse names that do not exist."""
    given = (("model", model, HIERARCHICAL_MODELS), ("inference", inference, INFERENCES))
    for what, name, table in given:
        if name not in ("auto", *table):
            raise SelectionError(no_such(what, name, table, f"auto, {', '.join(table)}"))


def all_priors(options: HierarchicalOptions) -> dict[str, Prior]:
    """Return the priors given, and the default of the others."""
    return {"default": ("gamma", 2.0, 2.0), **options.priors}


def expected_seconds(
    counts: EvalCounts, model: str, inference: str, options: HierarchicalOptions
) -> float:
    """Estimate the time of a fit on one core, right within a factor of about 3."""
    n, t = counts.right.shape
    nested = min(n, t) == 1 and model not in BY_QUESTION
    if model in CLOSED_FORM or (nested and inference != "gibbs"):
        return 2.0
    cells = n * (len(counts.task) if model in BY_QUESTION else t)
    sweeps = options.warm_up + options.draws
    return sweeps * (_SWEEP + _CELL * options.chains * cells)

"""Hierarchical models of accuracy: fit each model's accuracy on each task, with partial pooling.

`pool` counts right answers, chooses the model and the engine by the structure of the
data, and returns a `HierarchicalFit`. Engines: closed form for Beta posteriors, importance sampling
for nested evals (one model or one task), Gibbs sampling for crossed ones.
Convergence and the benefit of pooling are reported as notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.results import finite
from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.hierarchical.data import (
    Covariates,
    EvalCounts,
    Standardised,
    covariates_of,
    data_of_plates,
    eval_counts,
)
from evalstats_plugin.hierarchical.engines import posterior as engines_posterior
from evalstats_plugin.hierarchical.engines.crossed import (
    CROSSED_MODELS,
    answered_alike,
    fit_crossed,
)
from evalstats_plugin.hierarchical.fit import HierarchicalFit, Spread, performance_rows, spread
from evalstats_plugin.hierarchical.methods import (
    BY_QUESTION,
    CLOSED_FORM,
    DEFAULT_PRIOR,
    HIERARCHICAL_MODELS,
    INFERENCES,
    SCALES,
    Prior,
)
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import convergence
from evalstats_plugin.runtime.lazy import need_torch
from evalstats_plugin.stats.arrays import Rng
from evalstats_plugin.stats.interval import tail_probability
from evalstats_plugin.stats.streams import stream

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.engines.plates.model import Model
    from evalstats_plugin.hierarchical.engines.plates.results import PlatedFit


FEWEST_UNITS = 3
"""Fewest tasks of one model, or models on one task, for which pooling is the default."""

MIN_SHARE = 0.1
"""Smallest share of effective particles for which importance sampling is used."""

NO_GAIN = 0.95
"""Ratio of pooled to unpooled interval widths (median) above which pooling does not help."""

R_HAT_LIMIT = 1.03
"""R-hat from which short chains of nearly independent draws count as not converged: the largest of
hundreds is above 1.01 where only a quarter as many draws are needed."""

CHECKED_CELLS = 500
"""Most cells, evenly spaced, whose chains are compared; parameters and models are all compared."""

_N_PARAMETERS: Mapping[str, int] = {"gamma": 2, "half-normal": 1, "lognormal": 2}
"""Families of priors, and the parameters of each."""

_SECONDS_PER_DRAW, _SECONDS_PER_CELL = 4e-4, 1e-6
"""On one core, for a draw asked for and for each cell of it: models on tasks, or on sets of
questions that the same models answered; timed for 6 × 5 to 100 × 60 cells."""


@dataclass(frozen=True, kw_only=True)
class HierarchicalOptions(ChainLength):
    """Number of draws and chains, and priors of standard deviations.

    Raises
    ------
    SelectionError
        No such effect or family of priors.
    DesignError
        Too few draws, or parameters of a prior that are out of range.

    Examples
    --------
    >>> HierarchicalOptions(draws=200, priors={"task": ("half-normal", 1.0)}).chains
    4
    """

    priors: Mapping[str, Prior] = field(default_factory=dict[str, Prior])
    """Priors of the standard deviations of ``"model"``, ``"task"``, ``"interaction"`` and
    ``"question"`` effects, and ``"default"`` for the others, which is Gamma(2, 2) as in [BA24]_."""

    def __post_init__(self) -> None:
        if min(self.chains, self.warm_up) < 1 or self.draws < 8:
            msg = (
                f"{self.chains} chains of {self.draws} draws after a warm-up of {self.warm_up} are"
            )
            raise DesignError(f"{msg} too few: choose 1 chain of 8 draws after 1, or more")
        for name, prior in self.priors.items():
            if name not in (scales := ("default", *SCALES)):
                raise SelectionError(no_such("scale", name, scales, ", ".join(scales)))
            family, numbers = str(prior[0]), [float(x) for x in prior[1:]]
            if family not in _N_PARAMETERS:
                families = ", ".join(_N_PARAMETERS)
                raise SelectionError(no_such("prior", family, _N_PARAMETERS, families))
            # The mean of log σ may be any number.
            positive = numbers[1:] if family == "lognormal" else numbers
            count = _N_PARAMETERS[family]
            if len(numbers) != count or not all(x > 0 for x in positive):
                msg = f"prior {tuple(prior)} is not a distribution: give {family!r} {count} "
                msg += "number" if count == 1 else "numbers"
                raise DesignError(f"{msg} above 0 (a mean of log σ may be any)")


@overload
def pool(
    responses: ResponsesLike | EvalCounts,
    model: Model,
    inference: str = "auto",
    *,
    covariates: Covariates | None = None,
    device: str = "auto",
    rng: Rng = None,
    options: HierarchicalOptions | None = None,
) -> PlatedFit: ...


@overload
def pool(
    responses: ResponsesLike | EvalCounts,
    model: str = "auto",
    inference: str = "auto",
    *,
    formula: str | None = None,
    family: str = "bernoulli",
    covariates: Covariates | None = None,
    by: str | None = None,
    top: int | None = None,
    confidence_level: float = 0.95,
    device: str = "auto",
    rng: Rng = None,
    options: HierarchicalOptions | None = None,
) -> HierarchicalFit: ...


def pool(
    responses: ResponsesLike | EvalCounts,
    model: str | Model = "auto",
    inference: str = "auto",
    *,
    formula: str | None = None,
    family: str = "bernoulli",
    covariates: Covariates | None = None,
    by: str | None = None,
    top: int | None = None,
    confidence_level: float = 0.95,
    device: str = "auto",
    rng: Rng = None,
    options: HierarchicalOptions | None = None,
) -> HierarchicalFit | PlatedFit:
    """Estimate every model's accuracy on every task with partial pooling over models and tasks.

    Parameters
    ----------
    responses
        Scores in [0, 1], each task under one metric. Tasks may differ in size, and models need
        not have run all of them. Epochs of a question are averaged, or counted by models with
        effects of questions.
    model
        A name of `HIERARCHICAL_MODELS`, or ``"auto"``: ``"shared"`` where several models answered
        the same questions, right or wrong; else ``"task"``, or ``"per-task"`` for one model on one
        or two tasks, or one task of two models. Or a `Model` of your own, with the plates
        ``"model"``, ``"task"`` and ``"item"`` (within tasks) and the data ``right`` and ``trials``;
        other inputs are covariates, not standardised. The result is then a `PlatedFit`.
    inference
        ``"exact"``, ``"importance"``, ``"gibbs"``, or ``"auto"``, which chooses by structure: the
        closed form where there is one, ``"importance"`` (importance sampling, effects of tasks or
        models integrated out) for nested evals (one model or one task), ``"gibbs"`` for crossed
        ones. Where too few particles are effective, ``"gibbs"`` is used, with a note;
        ``fit.reason`` says why. For a `Model` a method of `infer`, or ``"auto"``: ``"qem"``, and
        ``"nuts"`` for crossed plates.
    formula
        In place of a model, such as ``"score ~ model + (1 | task) + (1 | task:item)"``: effects of
        ``model``, ``task`` and covariates; ``(1 | model)``, ``(1 | task)``, ``(1 | task:item)`` and
        ``(1 | model:task)`` around 0; and ``(model | task)`` or ``(task | model)``, which are
        correlated. It is fitted by the no-U-turn sampler, whose warm-up has a length of its own;
        the result has ``plated``, the `PlatedFit`.
    family
        Of scores in a formula: ``"bernoulli"``, ``"binomial"``, ``"beta"`` or ``"gaussian"``.
    covariates
        For ``"models"`` and for ``"tasks"``: by covariate the value of each, such as
        ``{"models": {"log_size": {"a": 7.0, "b": 8.5}}}``. They are standardised; coefficients
        have N(0, 1) priors.
    by, top
        Slices in place of tasks, as of `evalstats_plugin.slices`: those with few items borrow from
        the others, and from the other models. The limits of each are its own, not of all at once.
    device
        Where a formula or a model of your own is fitted: ``"cpu"``, ``"cuda"``, or ``"auto"``,
        CUDA where there is one.
    options
        Number of draws and chains, and priors.

    Raises
    ------
    SelectionError
        No such model, inference or device, or an inference that does not fit the model.
    DesignError
        No scores, or scores outside [0, 1]; missing covariates; not enough memory; slices that
        share items.

    Examples
    --------
    >>> from evalstats_plugin.data.matrix import ResponseMatrix
    >>> scores = ResponseMatrix.from_array([[1, 0, 1, 1], [0, 0, 1, 0]])
    >>> for row in pool(scores, "per-task", rng=0):
    ...     print(row.model, row.task, f"{row.estimate:.2f} [{row.low:.2f}, {row.high:.2f}]")
    model_0 None 0.67 [0.28, 0.95]
    model_0 task 0.67 [0.28, 0.95]
    model_1 None 0.33 [0.05, 0.72]
    model_1 task 0.33 [0.05, 0.72]
    """
    if not 0 < confidence_level < 1:
        msg = f"confidence_level {confidence_level} is not between 0 and 1: choose one such as 0.95"
        raise DesignError(msg)
    if isinstance(model, str):
        _check_names(model, inference, device)
    if not isinstance(responses, EvalCounts):
        counts = eval_counts(responses, by, top)
    elif by is None and top is None:
        counts = responses
    else:
        raise DesignError(
            "counts have no fields of their questions, and by and top choose slices by one: pass "
            "the responses, or leave both out"
        )
    if formula is not None:
        if model != "auto" or inference not in ("auto", "nuts"):
            msg = "a formula stands in place of a model, and is fitted by the no-U-turn sampler"
            raise DesignError(f"{msg}: leave out model and inference")
        given = covariates_of(covariates, counts.models, counts.tasks)
        return _fit_formula(
            counts, (formula, family), given, confidence_level, device, rng, options
        )
    if not isinstance(model, str):
        return _fit_own(counts, model, inference, covariates, device, rng, options)
    plain = not any((covariates or {}).values())
    chosen, why = _choose_model(model, counts, plain=plain)
    request = _Request(
        model=chosen,
        why=why,
        inference=inference,
        options=options or HierarchicalOptions(),
        covariates=covariates_of(covariates, counts.models, counts.tasks),
        confidence_level=confidence_level,
    )
    return _fit(counts, request, rng)


def _fit_formula(
    counts: EvalCounts, asked: tuple[str, str], covariates: Mapping[str, Standardised],
    confidence_level: float, device: str, rng: Rng, options: HierarchicalOptions | None,
) -> HierarchicalFit:  # fmt: skip
    """Fit a formula and a family of scores."""
    need_torch("formulas")
    from evalstats_plugin.hierarchical.engines.plates.fit import infer
    from evalstats_plugin.hierarchical.formula import compiled

    formula = asked[0].strip()
    priors: Mapping[str, Prior] = options.priors if options else {}
    made = compiled(formula, asked[1], counts, covariates, priors)
    chains, draws = (options.chains, options.draws) if options else (None, None)
    plated = infer(
        made.model, made.data, "nuts", n_particles=chains, steps=draws, device=device, rng=rng
    )
    plated = _named(plated, counts)
    accuracy = made.accuracy(plated)

    def predictions() -> engines_posterior.Predictions:
        raise DesignError("predictions of a formula are those of its plated fit: plated.predictive")

    def other(*_: Any) -> HierarchicalFit:
        raise DesignError("a formula is not fitted again: call pool with another formula or prior")

    posterior = engines_posterior.Posterior(accuracy=accuracy, parameters={}, predict=predictions)
    cells = spread(accuracy, confidence_level)
    overall = spread(posterior.overall, confidence_level)
    same = {"metric": counts.metric, "confidence_level": confidence_level, "method": formula}
    return HierarchicalFit(
        rows=tuple(performance_rows(counts, cells, overall, same)),
        notes=(*counts.notes, *plated.notes),
        seed=rng if isinstance(rng, int) else None,
        model=formula,
        inference="nuts",
        reason=f"formula {formula}, family {asked[1]}; inference nuts: effects are crossed",
        counts=counts,
        posterior=posterior,
        diagnostics={
            "chains": plated.chains,
            "draws": int(accuracy.shape[1]),
            "worst_r_hat": plated.r_hat,
            "least_ess": min(float(x.min()) for x in plated.ess.values()),
            "divergent": plated.divergent,
        },
        confidence_level=confidence_level,
        priors={"default": DEFAULT_PRIOR, **priors},
        # What the formula says of them is in its plated fit.
        covariates=covariates_of(None, counts.models, counts.tasks),
        refit=other,
        with_model=other,
        plated=plated,
    )


def _fit_own(
    counts: EvalCounts, model: Model, method: str, covariates: Covariates | None, device: str,
    rng: Rng, options: HierarchicalOptions | None,
) -> PlatedFit:  # fmt: skip
    """Fit a model that the user wrote."""
    from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions, infer

    s, nested = model.structure, {p.name: p.within for p in model.plates}
    for name, plate in ((x, o.plate) for x, o in s.observed.items()):
        if "item" in s.chains[plate] and nested["item"] != "task":
            msg = f"plate 'item' of data {name!r} is not within tasks"
            raise DesignError(f"{msg}: declare Plate('item', within='task')")
    on = {name: s.chains[plate] for name, plate in s.plate_of_data.items()}
    data = data_of_plates(counts, on, s.observed, covariates)
    if method == "auto":
        method = "qem" if s.crossed is None else "nuts"
    length: dict[str, Any] = {}
    if options is not None and method == "nuts":
        length = {"n_particles": options.chains, "steps": options.draws}
    elif options is not None:
        length = {"options": FitOptions(draws=options.chains * options.draws)}
    fit = infer(model, data, method, device=device, rng=rng, **length)
    return _named(fit, counts)


def _named(fit: PlatedFit, counts: EvalCounts) -> PlatedFit:
    """Give models and tasks their names."""
    names, plates = {"model": counts.models, "task": counts.tasks}, fit.bound.structure.plates
    return replace(fit, names={x: members for x, members in names.items() if x in plates})


def _check_names(model: str, inference: str, device: str) -> None:
    """Raise `SelectionError` for a model, inference or device that does not exist."""
    if device.partition(":")[0] not in ("auto", "cpu", "cuda"):
        raise SelectionError(f"no device is called {device!r}; there are: auto, cpu, cuda")
    given = (("model", model, HIERARCHICAL_MODELS), ("inference", inference, INFERENCES))
    for what, name, table in given:
        if name not in ("auto", *table):
            raise SelectionError(no_such(what, name, table, f"auto, {', '.join(table)}"))


def _choose_model(name: str, counts: EvalCounts, *, plain: bool) -> tuple[str, str]:
    n, t = counts.right.shape
    alike = plain and answered_alike(counts)
    if name == "shared" and not alike:
        msg = "model 'shared' needs right or wrong answers of several models to the same questions"
        raise DesignError(f"{msg}, one epoch, no covariates: choose 'task' or 'across-task'")
    if name != "auto":
        return name, "asked for"
    size = f"{n} {'model' if n == 1 else 'models'} on {t} {'task' if t == 1 else 'tasks'}"
    if max(n, t) < FEWEST_UNITS and min(n, t) == 1:
        return "per-task", f"{size} leave too little to borrow from"
    if alike and n * t > max(n, t):
        return "shared", f"{size}, whose questions all models share"
    return "task", f"{size}, each of which informs the others"


def expected_seconds(
    counts: EvalCounts, model: str, inference: str, options: HierarchicalOptions
) -> float:
    """Estimate the seconds a fit takes on one core, within a factor of about 3."""
    n, t = counts.right.shape
    nested = min(n, t) == 1 and model not in BY_QUESTION
    if model in CLOSED_FORM or (nested and inference != "gibbs"):
        return 1.0
    columns = t
    if model in BY_QUESTION or (model == "auto" and answered_alike(counts)):
        pattern = np.concatenate([counts.task[None], counts.question_trials])
        columns = np.unique(pattern, axis=1).shape[1]
    draws = options.warm_up + options.draws
    return draws * (_SECONDS_PER_DRAW + _SECONDS_PER_CELL * n * columns)


@dataclass(frozen=True, kw_only=True)
class _Request:
    """The checked arguments of a fit."""

    model: str
    """A name of `HIERARCHICAL_MODELS`."""
    why: str
    """Why this model."""
    inference: str
    """A name of `INFERENCES`, or ``"auto"``."""
    options: HierarchicalOptions
    covariates: Mapping[str, Standardised]
    confidence_level: float


class _Inferred(NamedTuple):
    """The result of an engine."""

    inference: str
    why: str
    """Why this engine."""
    posterior: engines_posterior.Posterior
    cells: Spread
    overall: Spread
    diagnostics: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    log_evidence: float | None = None
    log_evidence_error: float | None = None


def _fit(counts: EvalCounts, request: _Request, rng: Rng) -> HierarchicalFit:
    fitted = _infer(counts, request, stream(rng, "pooled scores"))
    same = {
        "metric": counts.metric,
        "confidence_level": request.confidence_level,
        "method": request.model,
    }

    def refit(priors: Mapping[str, Prior], again: int) -> HierarchicalFit:
        other = replace(request, options=replace(request.options, priors=priors))
        return _fit(counts, other, again)

    def with_model(name: str, again: int) -> HierarchicalFit:
        plain = covariates_of(None, counts.models, counts.tasks)
        kept = plain if name in CLOSED_FORM else request.covariates
        _choose_model(name, counts, plain=not any(x.names for x in kept.values()))
        other = replace(request, model=name, inference="auto", covariates=kept)
        return _fit(counts, other, again)

    return HierarchicalFit(
        rows=tuple(performance_rows(counts, fitted.cells, fitted.overall, same)),
        notes=(*counts.notes, *_extreme_notes(counts), *fitted.notes),
        seed=rng if isinstance(rng, int) else None,
        model=request.model,
        inference=fitted.inference,
        reason=f"model {request.model}: {request.why}; inference {fitted.inference}: {fitted.why}",
        counts=counts,
        posterior=fitted.posterior,
        diagnostics=fitted.diagnostics,
        confidence_level=request.confidence_level,
        priors={"default": DEFAULT_PRIOR, **request.options.priors},
        covariates=request.covariates,
        log_evidence=fitted.log_evidence,
        log_evidence_error=fitted.log_evidence_error,
        refit=refit,
        with_model=with_model,
    )


def _infer(counts: EvalCounts, request: _Request, rng: np.random.Generator) -> _Inferred:
    """Choose the engine by the structure of the model and the counts, and run it.

    Raises
    ------
    SelectionError
        The engine that is asked for does not fit the model.
    DesignError
        Covariates that the model does not know; not enough memory.
    """
    single_axis = min(counts.right.shape) == 1
    nested = single_axis and request.model not in BY_QUESTION
    closed = request.model in CLOSED_FORM
    fits = ("exact",) if closed else ("importance", "gibbs") if nested else ("gibbs",)
    if request.inference not in ("auto", *fits):
        msg = f"inference {request.inference!r} does not fit model {request.model!r}"
        if request.inference == "importance" and not closed:
            msg = "inference 'importance' needs model 'task', and one model or one task"
        raise SelectionError(f"{msg}: choose {fits[-1]!r} or 'auto'")
    if closed:
        return _exact(counts, request, rng)
    if request.inference == "gibbs" or not nested:
        why = "questions have effects of their own, for which particles are not made here"
        if nested:
            why = "asked for"
        elif request.model in BY_QUESTION and not single_axis:
            why = "questions are integrated out, levels of a task are drawn together"
        elif not single_axis:
            why = "models and tasks are crossed, so that every cell depends on every other"
        return _gibbs(counts, request, rng, why)
    return _particles(counts, request, rng)


def _exact(counts: EvalCounts, request: _Request, rng: np.random.Generator) -> _Inferred:
    """The posterior of each share; the mean of several shares by independent draws."""
    if any(x.names for x in request.covariates.values()):
        msg = f"model {request.model!r} has no covariates: choose 'task' or 'across-task'"
        raise DesignError(msg)
    pooled = request.model == "beta-binomial"
    right, trials = counts.informative
    posteriors = engines_posterior.shares(right, trials, pooled=pooled)
    size = (request.options.chains, request.options.draws)
    posterior = engines_posterior.draw(posteriors, right, trials, size, rng)
    tail = tail_probability(request.confidence_level)
    limits = (posteriors.quantile(tail), posteriors.quantile(1 - tail))
    mean = posteriors.mean
    error = np.sqrt(mean * (1 - mean) / (posteriors.a + posteriors.b + 1))
    cells = Spread(mean, *limits, error)
    if pooled or len(counts.tasks) == 1:
        overall = Spread(*(x[:, 0] for x in cells))
    else:
        drawn = spread(posterior.overall, request.confidence_level)
        own = np.sqrt((cells.std_error**2).sum(axis=1)) / len(counts.tasks)
        overall = Spread(cells.mean.mean(axis=1), drawn.low, drawn.high, own)
    return _Inferred(
        inference="exact",
        why="every share has its own Beta posterior",
        posterior=posterior,
        cells=cells,
        overall=overall,
        diagnostics={"draws": int(np.prod(posterior.accuracy.shape[:2]))},
        log_evidence=engines_posterior.log_evidence(posteriors, right, trials),
        log_evidence_error=0.0,
    )


def _gibbs(
    counts: EvalCounts,
    request: _Request,
    rng: np.random.Generator,
    why: str,
    notes: tuple[str, ...] = (),
) -> _Inferred:
    """Draw by Gibbs sampling."""
    options = request.options
    given = counts.columns(request.covariates, by_question=request.model in BY_QUESTION)
    structure = replace(CROSSED_MODELS[request.model], priors=options.priors)
    posterior = fit_crossed(given, structure, rng, options)
    diagnostics, more = _gibbs_diagnostics(posterior, options)
    inferred = _summarised(counts, request, "gibbs", why, posterior)
    return inferred._replace(diagnostics=diagnostics, notes=(*notes, *more, *inferred.notes))


def _particles(counts: EvalCounts, request: _Request, rng: np.random.Generator) -> _Inferred:
    """Sample by importance; where too few particles are effective, by Gibbs sampling."""
    from evalstats_plugin.hierarchical.engines.nested import fit_nested

    given = counts.columns(request.covariates, by_question=False)
    fitted = fit_nested(
        given, request.options.priors, rng, (request.options.chains, request.options.draws)
    )
    if not fitted.ess >= MIN_SHARE * fitted.particles:
        note = f"{fitted.ess:.0f} of {fitted.particles} particles are effective: Gibbs sampling"
        return _gibbs(counts, request, rng, "too few particles are effective", (note,))
    diagnostics: dict[str, Any] = {
        "draws": int(np.prod(fitted.posterior.accuracy.shape[:2])),
        "particles": fitted.particles,
        "least_ess": fitted.ess,
        # All weights alike have no tail.
        "worst_pareto_k": finite(fitted.pareto_k),
        "log_evidence": fitted.log_evidence,
        "log_evidence_error": fitted.log_evidence_error,
    }
    why = "nested, not crossed: every score depends on one effect of its own"
    inferred = _summarised(counts, request, "importance", why, fitted.posterior)
    return inferred._replace(
        diagnostics=diagnostics,
        log_evidence=fitted.log_evidence,
        log_evidence_error=fitted.log_evidence_error,
    )


def _summarised(
    counts: EvalCounts, request: _Request, inference: str, why: str,
    posterior: engines_posterior.Posterior,
) -> _Inferred:  # fmt: skip
    """Summarise draws, and compare the widths of intervals with those of separate posteriors."""
    level = request.confidence_level
    cells, overall = spread(posterior.accuracy, level), spread(posterior.overall, level)
    alone = engines_posterior.shares(*counts.informative, pooled=False)
    tail = tail_probability(level)
    width = alone.quantile(1 - tail) - alone.quantile(tail)
    ratio = float(np.median(((cells.high - cells.low) / width)[counts.trials > 0]))
    if ratio < NO_GAIN:
        note = f"pooling makes intervals of tasks {100 * (1 - ratio):.0f} % narrower (median)"
    else:
        note = (
            f"pooling leaves intervals of tasks as wide as without ({100 * ratio:.0f} %, median): "
            "use model 'per-task', which is simpler and gives the same"
        )
    return _Inferred(inference, why, posterior, cells, overall, {}, (note,))


def _gibbs_diagnostics(
    posterior: engines_posterior.Posterior, options: HierarchicalOptions
) -> tuple[dict[str, Any], list[str]]:
    """R-hat and effective sample size of all reported quantities, and notes where they are poor."""
    cells = posterior.accuracy.reshape(*posterior.accuracy.shape[:2], -1)
    step = -(-cells.shape[2] // CHECKED_CELLS)
    watched = {**posterior.parameters, "overall": posterior.overall, "accuracy": cells[..., ::step]}
    if options.chains == 1:
        # A single chain is compared with itself.
        half = cells.shape[1] // 2
        watched = {x: np.stack([values[0, :half], values[0, half : 2 * half]])
                   for x, values in watched.items()}  # fmt: skip
    by_name = {name: convergence(values) for name, values in watched.items()}
    r_hat = {name: float(np.max(x.r_hat)) for name, x in by_name.items()}
    ess = {name: float(np.min(x.ess)) for name, x in by_name.items()}
    worst, least = max(r_hat.values()), min(ess.values())
    notes: list[str] = []
    wanted = 100 * options.chains
    if not worst <= R_HAT_LIMIT or not least >= wanted:
        unmixed, slow = max(r_hat, key=r_hat.__getitem__), min(ess, key=ess.__getitem__)
        notes.append(
            f"too few draws: R-hat {worst:.3f} of {unmixed} (limit {R_HAT_LIMIT}), "
            f"{least:.0f} effective draws of {slow} (at least {wanted} needed): draw more"
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


def _extreme_notes(counts: EvalCounts) -> list[str]:
    """Report models and tasks whose effect only the prior bounds: all right or all wrong."""
    notes: list[str] = []
    for axis, what in enumerate(("task", "model")):
        right, trials = counts.right.sum(axis=axis), counts.trials.sum(axis=axis)
        if count := int(((right == 0) | (right == trials)).sum()):
            notes.append(
                f"{count} {what}{' is' if count == 1 else 's are'} all right or all wrong: only "
                "the prior bounds the distance from the others"
            )
    return notes

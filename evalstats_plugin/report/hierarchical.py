"""Tables of hierarchical models: observed and pooled scores, contrasts, effects and evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TextIO

from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import counted
from evalstats_plugin.hierarchical.fit import HierarchicalFit, has_evidence
from evalstats_plugin.hierarchical.methods import HIERARCHICAL_MODELS
from evalstats_plugin.hierarchical.rows import (
    Contrast,
    Effect,
    Evidence,
    LeftOutScore,
    NewScore,
    Performance,
)
from evalstats_plugin.report import text
from evalstats_plugin.report.abilities import Lines, Page, page_markdown, print_page, signed
from evalstats_plugin.report.comparisons import probability
from evalstats_plugin.report.text import percent

MOST_LINES = 60
"""Number of rows up to which tasks are shown; beyond, only models over all tasks."""

MOST_PAIRED = 5
"""Number of models up to which all pairs are compared; beyond, each with the next."""

_SCORES = (
    "Score: as observed. Estimate: the expected share of right answers, pulled towards what the "
    "other models and tasks lead one to expect; Pull is how far. (all): the mean over the tasks, "
    "each weighing the same."
)
_PAIRS = (
    "By: how much higher the first model's expected score is, over all tasks; P(ahead): how "
    "probable it is that it is higher; on a task: on one of these tasks."
)
_EVIDENCE = (
    "Log evidence: how probable each model makes the answers; Probability: of the model, if one of "
    "these is true and all are as likely beforehand. "
)
_LEFT_OUT = (
    "Log score: of the answers to a task that the fit did not see, summed over models and tasks; "
    "models are told apart by differences of more than twice their standard error. "
)
_NEW = (
    "A new task or model is drawn from the population of those fitted; P(best): how probable it is "
    "that no model scores higher."
)
_EFFECTS = "Effect: on the log odds of a right answer, for one unit of the covariate."
_MODELS = ("Model", "Task", "n", "Score", "Estimate", "interval", "Pull")
_CONTRASTS = ("Models", "By", "interval", "P(ahead)", "on a task")
_EVIDENCES = ("Model", "Log evidence", "Std. error", "Probability")
_COMPARED = ("Model", "Log score", "Difference", "Std. error", "Unreliable cells")
_NEW_SCORES = ("Model", "Task", "Score", "interval", "P(best)")
_COVARIATES = ("Covariate", "Of", "Effect", "interval", "P(> 0)")


@dataclass(frozen=True, kw_only=True)
class HierarchicalReport(Results[Performance]):
    """A fit, with the contrasts, evidence and effects to report."""

    fit: HierarchicalFit
    contrasts: tuple[Contrast, ...]
    evidence: tuple[Evidence, ...] = ()
    effects: tuple[Effect, ...] = ()
    compared: tuple[LeftOutScore, ...] = ()
    predicted: tuple[NewScore, ...] = ()
    baseline: str | None = None


def shown(
    fit: HierarchicalFit,
    *,
    baseline: str | None = None,
    compare: Sequence[str] = (),
    predict: Literal["task", "model"] | None = None,
) -> HierarchicalReport:
    """Collect what to report of a fit.

    Parameters
    ----------
    compare
        Models to compare with that of the fit, by leave-one-out predictions.
    predict
        What to predict scores of: a new task or a new model.

    Raises
    ------
    SelectionError
        No model has the name of the baseline, or of one to compare with.
    """
    return HierarchicalReport(
        rows=fit.rows,
        notes=fit.notes,
        seed=fit.seed,
        fit=fit,
        contrasts=fit.contrasts(baseline=baseline).rows,
        evidence=fit.evidence().rows if has_evidence(fit) and not fit.effects().rows else (),
        effects=fit.effects().rows,
        compared=fit.compare(*compare, rng=fit.seed or 0).rows if compare else (),
        predicted=fit.predict(predict, rng=fit.seed or 0).rows if predict else (),
        baseline=baseline,
    )


def print_hierarchical(
    results: HierarchicalReport, file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print the tables, the notes, and a legend."""
    said = Results(results.rows, _said(results))
    print_page(_page(results), said, file, heading=heading, width=width)


def hierarchical_markdown(results: HierarchicalReport, heading: str) -> str:
    """Return Markdown tables, the notes, and how it was made."""
    return page_markdown(_page(results), Results(results.rows, _said(results)), heading)


def hierarchical_json(results: HierarchicalReport, about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, scores, pairs, difficulties, and the fit."""
    return text.to_json(
        results,
        about,
        contrasts=Results(results.contrasts).to_dict(),
        difficulties=results.fit.difficulties().to_dict(),
        effects=Results(results.effects).to_dict(),
        evidence=Results(results.evidence).to_dict(),
        compared=Results(results.compared).to_dict(),
        predicted=Results(results.predicted).to_dict(),
        fit=results.fit.summary(),
    )


def _page(results: HierarchicalReport) -> Page:
    fit = results.fit
    n, t = len(fit.models), len(fit.tasks)
    size = f"{_counted(n, 'model')} on {_counted(t, 'task')} ({fit.counts.metric})"
    tables: list[tuple[str, Lines, Sequence[int]]] = [
        (f"{size}, model {fit.model}, in percent", _score_lines(results), (0, 1))
    ]
    legend = [_SCORES]
    if results.contrasts:
        tables.append((_pairs_title(results), _pair_lines(results), (0,)))
        legend.append(_PAIRS)
    if results.effects:
        tables.append(("Covariates", _effect_lines(results), (0, 1)))
        legend.append(_EFFECTS)
    if results.evidence:
        tables.append(("Which model the answers speak for", _evidence_lines(results), (0,)))
        known = (f"{row.model}: {HIERARCHICAL_MODELS[row.model]}" for row in results.evidence)
        legend.append(f"{_EVIDENCE}{'; '.join(known)}.")
    if results.compared:
        tables.append(("Left-out scores", _compared_lines(results), (0,)))
        known = (f"{row.model}: {HIERARCHICAL_MODELS[row.model]}" for row in results.compared)
        legend.append(f"{_LEFT_OUT}{'; '.join(known)}.")
    if results.predicted:
        what = "model" if results.predicted[0].model is None else "task"
        tables.append((f"A new {what}, in percent", _new_lines(results), (0, 1)))
        legend.append(_NEW)
    return Page(tables, [*legend, _ran(fit)])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _shown_rows(results: HierarchicalReport) -> Sequence[Performance]:
    if len(results.rows) <= MOST_LINES:
        return results.rows
    return [row for row in results.rows if row.task is None]


def _interval_header(headers: Sequence[str], level: float) -> list[str]:
    return [f"{percent(level)} interval" if text == "interval" else text for text in headers]


def _score_lines(results: HierarchicalReport) -> Lines:
    lines, previous = [_interval_header(_MODELS, results.fit.confidence_level)], ""
    for row in _shown_rows(results):
        name = "" if row.model == previous else row.model
        previous = row.model
        task = "(all)" if row.task is None else row.task
        pull = "–" if row.shrinkage is None else f"{100 * row.shrinkage:+.1f}"
        limits = f"[{_share(row.low)}, {_share(row.high)}]"
        lines.append([name, task, f"{row.n_items:,}", _share(row.score), _share(row.estimate),
                      limits, pull])  # fmt: skip
    return lines


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _pairs_title(results: HierarchicalReport) -> str:
    if results.baseline is not None:
        return f"Compared with {results.contrasts[0].model_a}, in points"
    most = len(results.fit.models) <= MOST_PAIRED
    return "Every two models, in points" if most else "Each model and the next, in points"


def _pair_lines(results: HierarchicalReport) -> Lines:
    """Lines of contrasts, each with the model ahead first unless there is a baseline."""
    lines = [_interval_header(_CONTRASTS, results.fit.confidence_level)]
    for row in _pairs(results):
        flip = results.baseline is None and row.difference < 0
        sign = -1.0 if flip else 1.0
        first, second = (row.model_a, row.model_b) if flip else (row.model_b, row.model_a)
        ends = sorted([sign * row.low, sign * row.high])
        ahead, on_task = (
            1 - p if flip else p for p in (row.prob_better, row.prob_better_on_a_task)
        )
        limits = f"[{100 * ends[0]:+.1f}, {100 * ends[1]:+.1f}]"
        by = f"{100 * sign * row.difference:+.1f}"
        lines.append([f"{first} – {second}", by, limits, probability(ahead), probability(on_task)])
    return lines


def _pairs(results: HierarchicalReport) -> Sequence[Contrast]:
    order = [row.model for row in results.rows if row.task is None]
    if results.baseline is not None:
        return sorted(results.contrasts, key=lambda row: order.index(row.model_b))
    found = {frozenset((row.model_a, row.model_b)): row for row in results.contrasts}
    if len(order) > MOST_PAIRED:
        return [found[frozenset(pair)] for pair in pairwise(order)]
    place = {name: i for i, name in enumerate(order)}
    return sorted(found.values(), key=lambda row: sorted((place[row.model_a], place[row.model_b])))


def _effect_lines(results: HierarchicalReport) -> Lines:
    lines = [_interval_header(_COVARIATES, results.fit.confidence_level)]
    for row in results.effects:
        limits = f"[{signed(row.low)}, {signed(row.high)}]"
        positive = probability(row.prob_positive)
        lines.append([row.covariate, row.of, signed(row.estimate), limits, positive])
    return lines


def _evidence_lines(results: HierarchicalReport) -> Lines:
    lines: Lines = [[*_EVIDENCES]]
    for row in results.evidence:
        error = "exact" if row.inference == "exact" else f"{row.std_error:.3f}"
        value = f"{row.log_evidence:.2f}"
        lines.append([row.model, value, error, probability(row.probability)])
    return lines


def _compared_lines(results: HierarchicalReport) -> Lines:
    return [[*_COMPARED], *([
        row.model, f"{row.elpd:.1f}", signed(row.difference) if row.difference else "best",
        f"{row.std_error:.1f}" if row.difference else "", f"{row.unreliable} of {row.n_cells}",
    ] for row in results.compared)]  # fmt: skip


def _new_lines(results: HierarchicalReport) -> Lines:
    lines = [_interval_header(_NEW_SCORES, results.fit.confidence_level)]
    for row in results.predicted:
        task = "(all)" if row.over_tasks else row.task or "(new)"
        limits = f"[{_share(row.low)}, {_share(row.high)}]"
        best = probability(row.prob_best)
        lines.append([row.model or "(new)", task, _share(row.estimate), limits, best])
    return lines


def _said(results: HierarchicalReport) -> tuple[str, ...]:
    hidden = len(results.rows) - len(_shown_rows(results))
    more = [f"{counted(hidden, 'row')} of single tasks are in --format csv"] if hidden else []
    own = [f"{row.model}: {note}" for row in results.rows if row.task is None for note in row.notes]
    return (*own, *results.notes, *more)


def _ran(fit: HierarchicalFit) -> str:
    how = fit.diagnostics
    reason = f"{fit.reason[:1].upper()}{fit.reason[1:]}."
    if "worst_r_hat" in how:
        return (
            f"{reason} {how['chains']} chains of {how['draws']} draws: R-hat at most "
            f"{how['worst_r_hat']:.3f}, at least {how['least_ess']:.0f} effective draws."
        )
    if "worst_pareto_k" in how:
        found = f"{how['least_ess']:.0f} effective particles of {how['particles']}"
        return f"{reason} {how['draws']} draws, at least {found}."
    return reason

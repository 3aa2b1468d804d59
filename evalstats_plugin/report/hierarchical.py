"""Tables of hierarchical models: scores, contrasts, effects, evidence; and of capabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import shorten
from typing import Literal

import numpy as np

from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import counted, few
from evalstats_plugin.hierarchical.fit import HierarchicalFit, has_evidence
from evalstats_plugin.hierarchical.methods import HIERARCHICAL_MODELS
from evalstats_plugin.hierarchical.rows import (
    Capabilities,
    Contrast,
    Effect,
    Evidence,
    LeftOutScore,
    NewScore,
    Performance,
)
from evalstats_plugin.report.comparisons import probability, sampled_probability
from evalstats_plugin.report.text import (
    Lines,
    Page,
    PageTable,
    View,
    page_view,
    percent,
    plain,
    signed,
)

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


def _page(results: HierarchicalReport) -> Page:
    fit = results.fit
    n, t = len(fit.models), len(fit.tasks)
    size = f"{counted(n, 'model')} on {counted(t, 'task')} ({fit.counts.metric})"
    tables: list[PageTable] = [
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
    return Page(tables, [*legend, _ran(fit)], [f"* {note}" for note in _said(results)])


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
        pull = "–" if row.shrinkage is None else f"{100 * row.shrinkage:+z.1f}"
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
        limits = f"[{100 * ends[0]:+z.1f}, {100 * ends[1]:+z.1f}]"
        by = f"{100 * sign * row.difference:+z.1f}"
        lines.append(
            [
                f"{first} – {second}",
                by,
                limits,
                sampled_probability(ahead),
                sampled_probability(on_task),
            ]
        )
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
        positive = sampled_probability(row.prob_positive)
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
        best = sampled_probability(row.prob_best)
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


HIERARCHICAL = page_view(
    _page,
    json=lambda results: {
        "contrasts": Results(results.contrasts).to_dict(),
        "difficulties": results.fit.difficulties().to_dict(),
        **{
            name: Results(getattr(results, name)).to_dict()
            for name in ("effects", "evidence", "compared", "predicted")
        },
        "fit": results.fit.summary(),
    },
)

_CAPABILITIES = (
    "A capability is what the answers to some items have in common beyond how good a model is and "
    "how hard an item: read its items before you name it. Found again: correlation of the models' "
    "levels when they are estimated from either half of the items; by chance: what random levels "
    "exceed in 1 of 20 cases. Levels have mean 0 and variance 1 over these models; Overall is what "
    "helps on all items, in logits. Strength: how much a model's logit rises with its level."
)
_HELD_OUT = (
    "Held-out answers: a fifth of the answers, predicted from the others. Gain: how much lower the "
    "log loss of an answer is than by the plain hierarchical model, with its standard error over "
    "items."
)
_NAMES_OF_MODELS = {
    "hierarchical": "plain hierarchical", "l1": "sparse (l1)",
    "topk": "sparse (topk)", "topk+features": "sparse (topk), texts or features",
}  # fmt: skip
_SHOWN_ITEMS, _QUESTION = 3, 60

Questions = Mapping[tuple[str, str], str]
"""By task and item, where the logs have them."""


def capabilities_view(questions: Questions) -> View:
    """Return the view of capabilities, models, items and predictions."""
    return page_view(
        lambda results: _capability_page(results, questions),
        json=lambda results: {
            "held_out": [score._asdict() for score in results.compared],
            "plain_is_as_good": results.plain_is_as_good,
            "fit": results.fit.to_dict(),
        },
    )


def _capability_page(results: Capabilities, questions: Questions) -> Page:
    fit = results.fit
    size = f"{counted(len(fit.models), 'model')} on {counted(len(fit.item_ids), 'item')}"
    tables: list[PageTable] = []
    if results.rows:
        tables = [
            (f"Capabilities of {size}", _capability_lines(results), (0,)),
            ("Levels of models", _level_lines(results), (0,)),
            ("Items that need them most", _need_lines(results, questions), (0, 1)),
        ]
    tables.append(("Held-out answers", _held_out_lines(results), (0,)))
    return Page(tables, [_CAPABILITIES, _HELD_OUT] if results.rows else [_HELD_OUT])


def _capability_lines(results: Capabilities) -> Lines:
    return [["Capability", "Items", "Variance", "Found again", "By chance"], *([
        f"{row.capability}: {few(row.tasks, _SHOWN_ITEMS)}", f"{row.n_items:,}",
        plain(row.variance), signed(row.found_again), signed(row.by_chance),
    ] for row in results.rows)]  # fmt: skip


def _level_lines(results: Capabilities) -> Lines:
    fit, shown = results.fit, [row.capability - 1 for row in results.rows]
    lines = [["Model", "Overall", *(str(k + 1) for k in shown)]]
    for i in np.argsort(-fit.performance, kind="stable").tolist():
        levels = [signed(value) for value in fit.capability[i, shown].tolist()]
        lines.append([fit.models[i], signed(float(fit.performance[i])), *levels])
    return lines


def _need_lines(results: Capabilities, questions: Questions) -> Lines:
    fit, lines = results.fit, [["Item", "Task", "Capability", "Strength"]]
    for row in results.rows:
        code = fit.code[:, row.capability - 1]
        for j in np.argsort(-code, kind="stable")[: min(_SHOWN_ITEMS, row.n_items)].tolist():
            task, item = str(fit.tasks[j]), str(fit.item_ids[j])
            question = " ".join(questions.get((task, item), "").split())
            about = f": {shorten(question, _QUESTION, placeholder='…')}" if question else ""
            lines.append([f"{item}{about}", task, str(row.capability), plain(float(code[j]))])
    return lines


def _held_out_lines(results: Capabilities) -> Lines:
    return [["Model", "Log loss", "Gain", "Std. error", "AUC"], *([
        _NAMES_OF_MODELS[row.item_model], f"{row.log_loss:.4f}",
        f"{row.gain:+z.4f}" if k else "", f"{row.gain_error:.4f}" if k else "", f"{row.auc:.3f}",
    ] for k, row in enumerate(results.compared))]  # fmt: skip

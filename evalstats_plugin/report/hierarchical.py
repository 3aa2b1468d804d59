"""Tables of hierarchical models: scores, contrasts, effects, evidence; and of capabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import combinations, pairwise
from operator import itemgetter
from textwrap import shorten
from typing import Any

import numpy as np

from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import counted, few
from evalstats_plugin.hierarchical.fit import HierarchicalFit, has_evidence
from evalstats_plugin.hierarchical.methods import HIERARCHICAL_MODELS
from evalstats_plugin.hierarchical.rows import (
    Capabilities,
    Contrast,
    Diagnosis,
    Effect,
    Evidence,
    LeftOutScore,
    ModelCheck,
    Performance,
)
from evalstats_plugin.report import text
from evalstats_plugin.report.comparisons import probability, sampled_probability
from evalstats_plugin.report.tables import Column, Table, fixed, one_line
from evalstats_plugin.runtime.memory import size_in_words

MOST_LINES = 60
"""Number of rows up to which tasks are shown; beyond, only models over all tasks."""

MOST_PAIRED = 5
"""Number of models up to which all pairs are compared; beyond, each with the next."""

_SCORES = (
    "Score: as observed. Estimate: the expected share, pulled towards what other models and tasks "
    "lead one to expect, by Pull. (all): the mean of the tasks."
)
_PAIRS = (
    "By: how much higher the first model's expected score is over all tasks. P(ahead): how "
    "probable it is higher; on a task: on one of these."
)
_EVIDENCE = (
    "Log evidence: how probable each model makes the answers; Probability: of the model, if one of "
    "these is true and all are as likely beforehand. "
)
_LEFT_OUT = (
    "Log score: of the answers to a task that the fit did not see, summed over models and tasks; "
    "models are told apart by differences of more than twice their standard error. "
)
_EFFECTS = "Effect: on the log odds of a right answer, for one unit of the covariate."
_in_percent = fixed(1, scale=100)
_in_points = fixed(1, signed=True, scale=100)


@dataclass(frozen=True, kw_only=True)
class HierarchicalReport(Results[Performance]):
    """A fit, with the contrasts, evidence and effects to report."""

    fit: HierarchicalFit
    contrasts: tuple[Contrast, ...]
    evidence: tuple[Evidence, ...] = ()
    effects: tuple[Effect, ...] = ()
    compared: tuple[LeftOutScore, ...] = ()
    baseline: str | None = None


def shown(
    fit: HierarchicalFit, *, baseline: str | None = None, compare: Sequence[str] = ()
) -> HierarchicalReport:
    """Collect what to report of a fit.

    Parameters
    ----------
    compare
        Models to compare with that of the fit, by leave-one-out predictions.

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
        baseline=baseline,
    )


def _page(results: HierarchicalReport) -> text.Page:
    fit = results.fit
    n, t = len(fit.models), len(fit.tasks)
    size = f"{counted(n, 'model')} on {counted(t, 'task')} ({fit.counts.metric})"
    level = f"{text.percent(fit.confidence_level)} interval"
    overall = [row for row in results.rows if row.task is None]
    rows = results.rows if len(results.rows) <= MOST_LINES else overall
    title = f"{size}, model {fit.model}, in percent"
    tables = [Table(title, rows, _score_columns(rows, level))]
    legend = [_SCORES]
    if results.contrasts:
        title = "Every two models, in points"
        if results.baseline is not None:
            title = f"Compared with {results.contrasts[0].model_a}, in points"
        elif n > MOST_PAIRED:
            title = "Each model and the next, in points"
        columns = (
            Column("Models", lambda row: f"{row.model_b} – {row.model_a}", least=10),
            *(Column("By", "difference", _in_points), _interval(level, _in_points)),
            Column("P(ahead)", "prob_better", sampled_probability),
            Column("on a task", "prob_better_on_a_task", sampled_probability),
        )
        tables.append(Table(title, _pairs(results), columns))
        legend.append(_PAIRS)
    if results.effects:
        columns = (
            *(Column("Covariate", "covariate", least=10), Column("Of", "of")),
            *(Column("Effect", "estimate", text.signed), _interval(level, text.signed)),
            Column("P(> 0)", "prob_positive", sampled_probability),
        )
        tables.append(Table("Covariates", results.effects, columns))
        legend.append(_EFFECTS)
    if results.evidence:
        tables.append(Table("Which model the answers speak for", results.evidence, _EVIDENCES))
        legend.append(_EVIDENCE + _described(results.evidence))
    if results.compared:
        tables.append(Table("Left-out scores", results.compared, _COMPARED))
        legend.append(_LEFT_OUT + _described(results.compared))
    said = [f"{row.model}: {note}" for row in overall for note in row.notes]
    said += results.notes
    if hidden := len(results.rows) - len(rows):
        said.append(f"{counted(hidden, 'row')} of single tasks are in --format csv")
    return text.Page(tables, [*legend, *_ran(fit)], [f"* {note}" for note in said])


def _described(rows: Sequence[Evidence] | Sequence[LeftOutScore]) -> str:
    """Return the models of rows, each with what it says, in one sentence."""
    return f"{'; '.join(f'{row.model}: {HIERARCHICAL_MODELS[row.model]}' for row in rows)}."


def _score_columns(rows: Sequence[Performance], level: str) -> Sequence[Column]:
    """Return the columns of models and tasks; a model is named where its tasks begin."""
    named = {id(row) for row, last in zip(rows, [None, *rows], strict=False)
             if last is None or last.model != row.model}  # fmt: skip
    return (
        Column("Model", lambda row: row.model if id(row) in named else "", least=10),
        Column("Task", lambda row: "(all)" if row.task is None else row.task, least=10),
        Column("n", "n_items", fixed(0)),
        *(Column("Score", "score", _in_percent), Column("Estimate", "estimate", _in_percent)),
        *(_interval(level, _in_percent), Column("Pull", "shrinkage", _in_points)),
    )


def _interval(title: str, write: Callable[[float | None], str]) -> Column:
    return Column(title, lambda row: text.interval_text(row, write), right=True)


def _pairs(results: HierarchicalReport) -> Sequence[Contrast]:
    """Return the contrasts that are shown: with the baseline, or with the model ahead first."""
    order = [row.model for row in results.rows if row.task is None]
    if results.baseline is not None:
        return sorted(results.contrasts, key=lambda row: order.index(row.model_b))
    by_pair = {frozenset((row.model_a, row.model_b)): row for row in results.contrasts}
    pairs = combinations(order, 2) if len(order) <= MOST_PAIRED else pairwise(order)
    contrasts: list[Contrast] = []
    for pair in pairs:
        row = by_pair[frozenset(pair)]
        if row.difference < 0:
            row = replace(
                row, model_a=row.model_b, model_b=row.model_a, difference=-row.difference,
                low=-row.high, high=-row.low, prob_better=1 - row.prob_better,
                prob_better_on_a_task=1 - row.prob_better_on_a_task,
            )  # fmt: skip
        contrasts.append(row)
    return contrasts


_EVIDENCES = (
    *(Column("Model", "model", least=10), Column("Log evidence", "log_evidence", fixed(2))),
    Column(
        "Std. error",
        lambda row: "exact" if row.inference == "exact" else f"{row.std_error:.3f}",
        right=True,
    ),
    Column("Probability", "probability", probability),
)
_COMPARED = (
    *(Column("Model", "model", least=10), Column("Log score", "elpd", fixed(1))),
    Column("Difference", "difference", lambda x: text.signed(x) if x else "best"),
    Column("Std. error", lambda r: f"{r.std_error:.1f}" if r.difference else "", right=True),
    Column("Unreliable cells", lambda row: f"{row.unreliable} of {row.n_cells}", right=True),
)


def _ran(fit: HierarchicalFit) -> list[str]:
    """Return the model and why it was taken, and how well it was drawn from."""
    how = fit.diagnostics
    reason = f"{fit.reason[:1].upper()}{fit.reason[1:]}."
    if "worst_r_hat" in how:
        drawn = f"{how['chains']} chains of {how['draws']} draws: R-hat at most "
        effective = f"{how['worst_r_hat']:.3f}, at least {how['least_ess']:.0f} effective draws."
        return [reason, drawn + effective]
    if "worst_pareto_k" in how:
        least = f"{how['least_ess']:.0f} effective particles of {how['particles']}"
        return [reason, f"{how['draws']} draws, at least {least}."]
    return [reason]


HIERARCHICAL = text.page_view(
    _page,
    json=lambda results: {
        "contrasts": Results(results.contrasts).to_dict(),
        "difficulties": results.fit.difficulties().to_dict(),
        **{
            name: Results(getattr(results, name)).to_dict()
            for name in ("effects", "evidence", "compared")
        },
        "fit": results.fit.summary(),
    },
)

_PARTS = (
    *(Column("Name", "name", least=10), Column("What", "kind"), Column("On", "on")),
    *(Column("Values", "values"), _interval("Prior 90 %", text.plain)),
    Column("Observed", "observed"),
)
_COSTS = (
    *(Column("Method", "method"), Column("Seconds", "seconds", fixed(0))),
    Column("Memory", lambda x: "–" if x.bytes is None else size_in_words(x.bytes), right=True),
)
_CHECKS = (
    *(Column("Statistic", "statistic", least=10), Column("Observed", "observed", text.plain)),
    Column("Predicted", "predicted", text.plain),
    *(_interval("95 % limits", text.plain), Column("p", "p_value", fixed(3))),
)
_PRIOR_LEGEND = (
    "Prior 90 %: limits of draws from the priors, of all members, and of data that they predict. "
    "Seconds: within a factor of about 3, by default settings."
)
_CHECK_LEGEND = (
    "p: share of predictions at least as large as what was observed; near 0 or 1 the model does "
    "not fit this statistic. Members of a plate that fit worst are listed."
)


def checked_text(results: ModelCheck) -> str:
    """Return the check of a model in lines of 100 characters: parts, engines, notes."""
    why = {engine.method: engine.why for engine in results.engines}
    answer = f"Take {results.method!r}: {why.get(results.method or '')}."
    if results.problem:
        answer = f"This model cannot be fitted to these data: {results.problem}."
    tables = [Table("Model and data", results.rows, _PARTS)] if results.rows else []
    tables += [Table("Methods", results.engines, _COSTS)] if results.engines else []
    legend = [_PRIOR_LEGEND] if results.rows else []
    return _text(text.Page(tables, legend, None, answer), results, width=100)


def judged_text(results: Diagnosis) -> str:
    """Return a judged fit in lines of 80 characters: one sentence, checks, notes."""
    loo = results.loo
    left_out = (f"Left out, {counted(loo.n_cells, 'cell')} have a log score of {loo.elpd:.1f} ± "
                f"{loo.std_error:.1f} ({loo.n_effective:.1f} effective parameters).")  # fmt: skip
    tables = [Table("Predictions and data", results.rows, _CHECKS)]
    page = text.Page(tables, [left_out, _CHECK_LEGEND], None, results.answer)
    return _text(page, results, width=80)


def _text(page: text.Page, results: Results[Any], *, width: int) -> str:
    file = StringIO()
    text.page_view(lambda _: page).print_table(results, file, heading="", width=width)
    return file.getvalue().rstrip("\n")


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
_SHOWN_ITEMS, _QUESTION = 3, 60

Questions = Mapping[tuple[str, str], str]
"""By task and item, where the logs have them."""


def capabilities_view(questions: Questions) -> text.View:
    """Return the view of capabilities, models, items and predictions."""
    return text.page_view(
        lambda results: _capability_page(results, questions),
        json=lambda results: {
            "held_out": [score._asdict() for score in results.compared],
            "plain_is_as_good": results.plain_is_as_good,
            "fit": results.fit.to_dict(),
        },
    )


def _capability_page(results: Capabilities, questions: Questions) -> text.Page:
    fit = results.fit
    size = f"{counted(len(fit.models), 'model')} on {counted(len(fit.item_ids), 'item')}"
    tables: list[Table] = []
    if results.rows:
        levels = [
            Column("Model", fit.models.__getitem__, least=10),
            Column("Overall", lambda i: float(fit.performance[i]), text.signed),
        ]
        for row in results.rows:
            level = fit.capability[:, row.capability - 1].tolist()
            levels.append(Column(str(row.capability), level.__getitem__, text.signed))
        order = np.argsort(-fit.performance, kind="stable").tolist()
        tables = [
            Table(f"Capabilities of {size}", results.rows, _CAPABILITY_COLUMNS),
            Table("Levels of models", order, levels),
            _needs(results, questions),
        ]
    compared = [(row, k > 0) for k, row in enumerate(results.compared)]
    tables.append(Table("Held-out answers", compared, _HELD_OUT_COLUMNS))
    return text.Page(tables, [_CAPABILITIES, _HELD_OUT] if results.rows else [_HELD_OUT])


_CAPABILITY_COLUMNS = (
    Column("Capability", lambda r: f"{r.capability}: {few(r.tasks, _SHOWN_ITEMS)}", least=10),
    *(Column("Items", "n_items", fixed(0)), Column("Variance", "variance", text.plain)),
    Column("Found again", "found_again", text.signed),
    Column("By chance", "by_chance", text.signed),
)
_HELD_OUT_COLUMNS = (
    Column("Model", lambda line: f"{'' if line[1] else 'plain '}{line[0].item_model}", least=10),
    Column("Log loss", lambda line: line[0].log_loss, fixed(4)),
    Column("Gain", lambda line: f"{line[0].gain:+z.4f}" if line[1] else "", right=True),
    Column("Std. error", lambda line: f"{line[0].gain_error:.4f}" if line[1] else "", right=True),
    Column("AUC", lambda line: line[0].auc, fixed(3)),
)
"""The first row is the model that others are compared with."""


def _needs(results: Capabilities, questions: Questions) -> Table:
    """Return the items whose answers depend most on each capability."""
    fit = results.fit
    lines: list[tuple[int, int, float]] = []
    for row in results.rows:
        code = fit.code[:, row.capability - 1]
        most = np.argsort(-code, kind="stable")[: min(_SHOWN_ITEMS, row.n_items)].tolist()
        lines += [(j, row.capability, float(code[j])) for j in most]

    def item(line: tuple[int, int, float]) -> str:
        key = (str(fit.tasks[line[0]]), str(fit.item_ids[line[0]]))
        question = " ".join(questions.get(key, "").split())
        return key[1] + (f": {shorten(question, _QUESTION, placeholder='…')}" if question else "")

    columns = (
        Column("Item", item, one_line, least=10, right=False),
        Column("Task", lambda line: str(fit.tasks[line[0]]), least=10),
        Column("Capability", itemgetter(1), right=True),
        Column("Strength", itemgetter(2), text.plain),
    )
    return Table("Items that need them most", lines, columns)

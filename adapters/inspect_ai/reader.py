"""Read `Responses` from a log: one for each scorer, or key of a scorer.

`read_log` reads a log; `tabulate` arranges its samples as items × epochs (`Table`); `settings_of`
gives the settings that distinguish runs of one model; `cluster_field` finds the metadata field by
which the log's own metrics cluster items.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.inspect_ai.adaptive import early_stops, found_in, task_args_of
from evalstats_plugin.adapters.inspect_ai.archive.guard import KEY, form_of
from evalstats_plugin.adapters.inspect_ai.archive.opening import (
    ReadSamples,
    opened,
    read_outputs,
)
from evalstats_plugin.adapters.inspect_ai.archive.samples import (
    COST_NAMES,
    COSTS,
    SCORES,
    LoggedSample,
    costs_of,
    texts_of,
)
from evalstats_plugin.adapters.inspect_ai.estimands import (
    MEAN,
    MOST_UNITS,
    STALE,
    UNIT,
    Estimand,
    Logged,
    Scorer,
    annotated_rows,
    as_score,
    estimands_of,
    headline_row,
    is_grade,
    is_unscored,
    left_out,
    metric_of,
    of_result,
    others_of,
    reduced,
    scorers_of,
)
from evalstats_plugin.adaptive.records import with_prediction
from evalstats_plugin.data.measure import COST, SHARE, Measure, Scale
from evalstats_plugin.data.responses import (
    PER_ITEM,
    Provenance,
    Responses,
    Selection,
    Source,
    as_clusters,
    mean_over_epochs,
)
from evalstats_plugin.data.runs import PER_TASK
from evalstats_plugin.errors import IncompleteLogError, LogError, counted
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.logs.withholding import is_printed_as
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.untrusted import printable_name

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog
    from inspect_ai.model import GenerateConfig


Settings = tuple[tuple[str, str], ...]

Fields = dict[str, Any]
"""Of `Responses`, which are made of them once all are known."""

_LONGEST_ID = 1000
_LONGEST_SETTING = 40

_SPARSEST = 64
"""Cells allowed per sample; a log of an evaluation has most items in each epoch."""

# Settings that change answers; the others are about speed, retries and caching.
_SAMPLING = (
    "best_of", "effort", "extra_body", "frequency_penalty", "internal_tools", "logit_bias",
    "max_tokens", "num_choices", "presence_penalty", "reasoning_effort", "reasoning_history",
    "reasoning_mode", "reasoning_tokens", "response_schema", "seed", "stop_seqs",
    "system_message", "temperature", "top_k", "top_p", "verbosity",
)  # fmt: skip

_CHOICE = "choice"
"""How the names of scorers end that score the choice of one answer among several."""

_LIMITS = ("message_limit", "token_limit", "time_limit", "working_limit", "turn_limit")


def read_log(file: LogFile, selection: Selection) -> list[Responses] | None:
    """Read one log; None if it is not Inspect's."""
    path, form = file.path, form_of(file)
    if form is None:
        return None
    with opened(file, form, header_only=selection.header_only) as (log, read_samples):
        return read_opened(log, read_samples, path, selection)


def read_opened(
    log: EvalLog, read_samples: ReadSamples, path: Path, selection: Selection
) -> list[Responses]:
    """Read a log whose header is there, and whose samples are read on demand."""
    spec = log.eval
    source = Source(
        path=path,
        harness="inspect_ai",
        version=spec.packages.get("inspect_ai"),
        when=spec.created,
        run=spec.task_id,  # a retry has the task id, but neither run id nor eval id
        is_annotated=KEY in (log.metadata or {}),
    )
    base: Fields = {
        "model": printable_name(spec.model),
        "measure": Measure(task=printable_name(spec.task), metric=""),
        "source": source,
        "provenance": Provenance(task_version=printable_name(str(spec.task_version))),
        "settings": settings_of(log),
    }
    # A task of a package, "inspect_evals/gsm8k", is also known by its own name.
    if not selection.wants_task(*_task_names(base)):
        return []
    if selection.header_only:
        responses = (e.label for s in scorers_of(log) for e in estimands_of(log, s))
        return [Responses(**_named(base, label)) for label in responses]
    if log.status != "success" and not selection.include_incomplete:
        msg = (
            f"{path} is of a run that did not end well (status {log.status!r}); "
            "--include-incomplete reads the samples that it finished"
        )
        raise IncompleteLogError(msg, spec.task_id)
    responses, record = _read_scores(log, read_samples, selection, base), found_in(log)
    return [with_prediction(r, record) for r in responses] if record else responses


def read_texts(
    file: LogFile, items: Mapping[str, Collection[str]]
) -> dict[tuple[str, str], ItemText] | None:
    """Return texts of some items of a log; None if it is not Inspect's."""
    form = form_of(file)
    if form is None:
        return None
    task, samples = read_outputs(file, form, items)
    return {(task, item): text for item, text in texts_of(samples).items()}


def _task_names(base: Fields) -> tuple[str, ...]:
    task: str = base["measure"].task
    return task, task.rpartition("/")[2]


def _read_scores(
    log: EvalLog, read_samples: ReadSamples, selection: Selection, base: Fields
) -> list[Responses]:
    scorers_of_log = scorers_of(log)
    fields = fields_of(log, scorers_of_log, selection.cluster, selection.by)
    if selection.repeats == "answers":
        fields |= {_answer_field(scorer) for scorer in scorers_of_log}
    costs = [name for name in COST_NAMES if selection.wants_cost(name, *_task_names(base))]
    samples = read_samples(fields | {COSTS} if costs else fields)
    scorers = scorers_of(log, samples)
    costs_of_run: list[Responses] = []
    if samples:
        table = tabulate(samples, log, base["source"].path)
        by_scorer = [_of_scorer(log, s, table, selection, base) for s in scorers]
        # A scorer of such a name comes first.
        costs = [name for name in costs if name not in (s.label for s in scorers)]
        if costs:
            items, _ = _items(log, scorers[:1], table, selection, base)
            costs_of_run = [*_costs(log, costs, table, items)]
    else:
        note = "no samples logged (run Inspect without --no-log-samples)"
        note = note if log.status == "success" else _incomplete_note(log, 0)
        by_scorer = [
            [_of_header(base, e, note) for e in estimands_of(log, s) if e.kind != "other"]
            for s in scorers
        ]
    others = [_of_header(base, e, *e.notes) for e in others_of(log, scorers)]
    headline = headline_row(log)
    annotated = {} if found_in(log) else {
        row.get("metric"): row.get("estimate") for row in annotated_rows(log, "intervals")
        if row.get("kind") == "task"
    }  # fmt: skip
    for fields in (*others, *(fields for each in by_scorer for fields in each)):
        measure: Measure = fields["measure"]
        is_headline = None if headline is None else measure.metric == headline
        fields["measure"] = replace(measure, is_headline=is_headline)
        # The log was edited after it was annotated.
        before, now = annotated.get(measure.metric), fields["logged"]
        if isinstance(before, float) and now is not None and not is_printed_as(before, now):
            note = f"{STALE}{before:.6g}, and the log now says {now:.6g}: annotate it again"
            fields["notes"] = (*fields["notes"], note)
    scores = _selected([each for each in by_scorer if each], others, selection, _task_names(base))
    return [*scores, *costs_of_run]


def _costs(log: EvalLog, names: Sequence[str], table: Table, items: Fields) -> Iterator[Responses]:
    """Yield what the samples of a run cost, under each name that the log has."""
    model, roles = log.eval.model, log.eval.model_roles or {}
    same = [role for role, used in roles.items() if getattr(used, "model", None) == model]
    costs = [costs_of(sample, model, same) for sample in table.samples]
    for name in names:
        scores = table.spread(table.valid([each[name] for each in costs]))
        if not np.isnan(scores).all():
            fields = _named(items, name, scale=COST, scale_from="logged", higher_is_better=False)
            yield Responses(**only_items({**fields, "scores": scores}, table.kept))


def _answer_field(scorer: Scorer) -> str:
    return f"{SCORES}{scorer.name}.answer"


def _selected(
    by_scorer: Sequence[Sequence[Fields]],
    others: Sequence[Fields],
    selection: Selection,
    tasks: tuple[str, ...],
) -> list[Responses]:
    """Return the first value of each scorer with the others beside it, or those asked for."""
    if not selection.metrics_of(*tasks):
        rows = [[*each] for each in by_scorer] or [[each] for each in others]
        if by_scorer:
            rows[0] += others
        # A headline that is no mean of scores stands alone: no other value answers for it.
        alone = [
            f for each in rows for f in each[1:] if "scores" not in f and f["measure"].is_headline
        ]
        rows = [[f for f in each if all(f is not single for single in alone)] for each in rows]
        return [_made(*each) for each in ([single] for single in alone)] + [
            _made(*each) for each in rows
        ]
    asked: list[Responses] = []
    for each in [*by_scorer, others]:
        wanted = [selection.wants_metric(fields["measure"].metric, *tasks) for fields in each]
        # "match" is also the name of "match/pass_at_4", where the log has no other.
        if each and not any(wanted):
            name = each[0]["measure"].metric.partition("/")[0]
            wanted[0] = selection.wants_metric(name, *tasks)
        named = [fields for fields, is_named in zip(each, wanted, strict=True) if is_named]
        if each is not others and wanted[0]:
            rest = [fields for fields, is_named in zip(each, wanted, strict=True) if not is_named]
            asked.append(_made(named.pop(0), *rest))
        asked += map(_made, named)
    return asked


def _made(first: Fields, *beside: Fields) -> Responses:
    return Responses(**first, beside=tuple(Responses(**fields) for fields in beside))


def _of_header(base: Fields, estimand: Estimand, *notes: str) -> Fields:
    """Return responses that hold only the logged value."""
    return {
        **_named(base, estimand.label, higher_is_better=estimand.logged.is_accuracy or None),
        **_logged(estimand),
        "notes": tuple(map(printable_name, notes)),
    }


def _named(fields: Fields, label: str, **parts: Any) -> Fields:
    """Return the fields with the measure of one metric, and with what is known of it."""
    return {**fields, "measure": replace(fields["measure"], metric=label, **parts)}


def _logged(estimand: Estimand) -> Fields:
    logged = estimand.logged
    return {
        "logged": logged.value,
        "logged_std_error": logged.std_error,
        "logged_n": logged.n,
    }


def _of_scorer(
    log: EvalLog, scorer: Scorer, table: Table, selection: Selection, base: Fields
) -> list[Fields]:
    """Return the values of a scorer: that of all its scores first."""
    values = [scorer.value_in(sample) for sample in table.samples]
    notes = [*table.notes, *_notes_on_values(values, table)]
    if (stops := early_stops(log)) and found_in(log) is None:
        notes.append(f"{counted(len(stops), 'sample')} stopped early, which may favour some items")
    if log.status != "success":
        notes.append(_incomplete_note(log, len(table.item_ids)))
    items, about_clusters = _items(log, [scorer], table, selection, base)
    graded = all(is_grade(v) or is_unscored(v) for v in values)
    estimands = estimands_of(log, scorer)
    items["measure"] = items["measure"].on(SHARE if graded else None, "registry")
    epochs: Fields = {
        **_named(
            items,
            scorer.label,
            scorer=scorer.name,
            higher_is_better=graded or estimands[0].logged.is_accuracy or None,
        ),
        "scores": table.spread(table.numbers(table.valid(values))),
        "answers": table.answers(_answer_field(scorer)) if selection.repeats == "answers" else None,
        "chance": table.chance if scorer.name.endswith(_CHOICE) else None,
        "notes": (*notes, *(printable_name(note) for note in about_clusters)),
    }
    done = log.status == "success"
    return [_of_estimand(e, epochs, values, table, base, done=done) for e in estimands]


def _items(
    log: EvalLog, scorers: Sequence[Scorer], table: Table, selection: Selection, base: Fields
) -> tuple[Fields, tuple[str, ...]]:
    """Return the fields of items that all values share, and notes on their clusters.

    Clusters are those that the user names, or else the first of the scorers.
    """
    field = selection.cluster or next((cluster_field(log, scorer) for scorer in scorers), None)
    clusters, notes = as_clusters(table.field(field), field) if field else (None, ())
    population, n_cut, n_items = None, 0, len(table.item_ids)
    # Items stopped early were left out on purpose.
    if log.status == "success" and not early_stops(log):
        # Of a dataset with a limit only the first items were run.
        size = log.eval.dataset.samples or 0
        population = size if size > n_items else None
        # Logs that do not list all ids may lack items that were run.
        n_run = log.results.total_samples if log.results else 0
        n_cut = max(n_run // max(log.eval.config.epochs or 1, 1) - n_items, 0)
    return {
        **base,
        "measure": replace(base["measure"], population=population, n_cut=n_cut),
        "item_ids": table.item_ids,
        "item_hashes": table.hashes("question"),
        "provenance": replace(base["provenance"], prompt_hashes=table.hashes("prompt")),
        "clusters": clusters,
        "tags": as_clusters(table.field(selection.by), selection.by)[0] if selection.by else None,
    }, notes


def _of_estimand(
    estimand: Estimand,
    epochs: Fields,
    values: Sequence[Any],
    table: Table,
    base: Fields,
    *,
    done: bool,
) -> Fields:
    """Return the scores whose mean is a value of the header, or that value and a reason.

    Parameters
    ----------
    epochs, values
        All scores of the scorer, as numbers with epochs apart and without the invalidated ones, and
        as logged.
    done
        Whether the run ended well, so that header and samples must agree.
    """
    whole, is_mean = estimand.kind == "scores", estimand.reducer == MEAN
    notes = (*(epochs["notes"] if whole else ()), *estimand.notes)
    if estimand.kind == "other":
        fields = _of_header(base, estimand, *notes)
        usable = done and not table.any_invalidated
        return fields | (_left_out(estimand, values, table, epochs["clusters"]) if usable else {})
    every = _scores(estimand, table, values)
    if every is None:
        why = f"no interval: the installed Inspect has no reducer {estimand.reducer!r}"
        return _of_header(base, estimand, *notes, why)
    inside = np.ones(len(every), dtype=bool)
    if estimand.kind == "group":
        inside = np.array([estimand.holds(text) for text in table.field(estimand.field)])
    if not inside.any():
        return _of_header(base, estimand, *notes, f"no interval: no item is of {estimand.group!r}")
    # Inspect's values include invalidated samples.
    problem = _disagreement(every[inside], estimand.logged, of_items=whole) if done else None
    if problem and not (whole and is_mean):
        return _of_header(base, estimand, *notes, f"no interval: {problem}")
    n_scored = (~np.isnan(mean_over_epochs(every))).sum()
    if problem and n_scored > (estimand.logged.n or np.inf):
        # As after `inspect log exclude` and `log zero`: the header is of some, or of other scores.
        why = f"{problem}: nobody can say which of them are meant, so the header alone is used"
        return _of_header(base, estimand, *notes, why)
    valid = _scores(estimand, table, table.valid(values)) if table.any_invalidated else every
    kept = inside & table.kept
    made = epochs if kept.all() else only_items(epochs, kept)
    measure: Measure = replace(
        made["measure"], metric=estimand.label, reducer="" if is_mean else estimand.reducer,
        group=estimand.group,
    )  # fmt: skip
    if estimand.kind == "share":
        measure = replace(measure.on(SHARE, "registry"), higher_is_better=None, direction_from="")
    elif not is_mean and estimand.reducer.startswith(UNIT):
        measure = replace(measure.on(SHARE, "registry"), higher_is_better=True)
    if estimand.kind == "groups" and measure.bounds is not None:
        weights = _weights(every, table.field(estimand.field))
        measure = measure.on(Scale(0.0, float(weights.max())), measure.scale_from)
    return {
        **made,
        **_logged(estimand),
        "measure": measure,
        "scores": epochs["scores"][kept] if valid is None else valid[kept],
        "answers": made["answers"] if is_mean else None,
        "unreduced": None if is_mean else Responses(**made),
        "notes": (*notes, f"mismatch: {problem}") if problem else notes,
    }


def _left_out(
    estimand: Estimand, values: Sequence[Any], table: Table, clusters: NDArray[Any] | None
) -> Fields:
    """Return what a metric is without each item or cluster, and what notes say of it."""
    if metric_of(estimand) is None:
        return {}
    from inspect_ai.scorer import SampleScore, Score

    prefix = f"{SCORES}{estimand.scorer.name}."
    units: list[Any] = (table.item_ids if clusters is None else clusters).tolist()

    def given(row: int, value: Any, answer: str | None = None, metadata: str = "{}") -> SampleScore:
        score = Score(value=value, answer=answer, metadata=json.loads(metadata))
        return SampleScore(score=score, sample_id=str(table.item_ids[row]))

    # Inspect gives a metric all epochs, or one score of each item.
    rows = [table.rows.tolist()]
    combined = reduced(estimand.reducer, table.by_item(values)) if table.n_epochs > 1 else None
    try:
        scores = [[
            given(row, v, t.fields.get(f"{prefix}answer"), t.fields.get(f"{prefix}metadata", "{}"))
            for row, v, t in zip(rows[0], values, table.samples, strict=True)
        ]]  # fmt: skip
        if combined is not None:
            rows.append(list(range(len(combined))))
            scores.append([given(row, v) for row, v in enumerate(combined)])
    except (TypeError, ValueError):
        return {}
    n_items, without = 0, None
    for places, each in zip(rows, scores, strict=True):
        scored = [k for k, x in enumerate(each) if not is_unscored(x.score.value)]
        n_items = len({places[k] for k in scored})
        without = left_out(estimand, [each[k] for k in scored], [units[places[k]] for k in scored])
        if isinstance(without, list):
            break
    if not isinstance(without, list):
        return {"notes": (*estimand.notes[:-1], f"no interval: {without}")}
    what = "item" if clusters is None else "cluster"
    what = what if len(set(units)) <= MOST_UNITS else f"block of {what}s"
    note = f"{estimand.name} of items like these, recomputed without each {what} of {len(without)}"
    return {"left_out": np.array(without), "logged_n": n_items, "notes": (note,)}


def only_items(fields: Fields, kept: NDArray[np.bool_]) -> Fields:
    """Return the fields of responses to some items."""
    arrays = {name: fields[name][kept] for name in PER_ITEM if fields.get(name) is not None}
    provenance: Provenance = fields["provenance"]
    prompts = None if provenance.prompt_hashes is None else provenance.prompt_hashes[kept]
    return fields | arrays | {"provenance": replace(provenance, prompt_hashes=prompts)}


def _scores(estimand: Estimand, table: Table, values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Return scores of all items whose mean is a value; None if they cannot be computed."""
    if estimand.kind == "share":
        shares = [math.nan if is_unscored(v) else float(str(v) == estimand.name) for v in values]
        return table.spread(shares)
    scores = table.spread(table.numbers(values))
    if estimand.reducer != MEAN:
        combined = reduced(estimand.reducer, table.by_item(values))
        if combined is None:
            return None
        scores = np.array(combined)[:, None]
    return (
        scores * _weights(scores, table.field(estimand.field))
        if estimand.kind == "groups"
        else scores
    )


def _weights(scores: NDArray[np.float64], groups: Sequence[str | None]) -> NDArray[np.float64]:
    """Return weights, shape (M, 1), of mean 1, with which each group counts the same."""
    scored = ~np.isnan(scores).all(axis=1)
    names, where = np.unique([str(group) for group in groups], return_inverse=True)
    sizes = np.bincount(where, weights=scored, minlength=len(names))
    used = sizes > 0
    weights = np.divide(
        scored.sum() / max(used.sum(), 1), sizes, out=np.zeros(len(names)), where=used
    )
    return weights[where][:, None]


def _notes_on_values(values: Sequence[Any], table: Table) -> list[str]:
    odd = [v for v in values if as_score(v) is None]
    unscored = sum(
        is_unscored(v) and not t.failed for v, t in zip(values, table.samples, strict=True)
    )
    notes = [f"{counted(unscored, 'sample')} left unscored"] if unscored else []
    stopped = np.array([bool(t.limit) for t in table.samples])
    if stopped.any():
        which = ", ".join(sorted({printable_name(t.limit) for t in table.samples if t.limit}))
        rest = np.array(table.numbers(values))[~stopped]
        rest = rest[~np.isnan(rest)]
        without = f"; the others give {rest.mean():.3f}" if len(rest) else ""
        notes.append(
            f"{stopped.sum()} of {counted(len(stopped), 'sample')} stopped by a limit ({which}), "
            f"and counted as scored{without}"
        )
    if odd:
        example = printable_name(repr(odd[0]))[:40]
        notes.append(
            f"not a number in {counted(len(odd), 'score')} ({example}): missing here, 0 to "
            "Inspect's metrics"
        )
    return notes


def _incomplete_note(log: EvalLog, n_items: int) -> str:
    planned = log.eval.dataset.sample_ids
    of_all = counted(len(planned) if planned else n_items, "item")
    read = f"{n_items} of {of_all}" if planned else of_all
    return f"the run did not end well (status {log.status!r}): {read}"


def _disagreement(scores: NDArray[np.float64], logged: Logged, *, of_items: bool) -> str | None:
    """Describe how the items, invalidated ones included, contradict the header; None if they agree.

    ``of_items``: whether the number logged is one of items, not of a part or of single epochs.
    """
    means = mean_over_epochs(scores)
    of_items_scored = means[~np.isnan(means)]
    known = scores[~np.isnan(scores)]
    # Without a reducer Inspect counts and averages epochs, not items.
    single = of_items and logged.n == len(known) != len(of_items_scored)
    if of_items and not single and logged.n is not None and logged.n != len(of_items_scored):
        return f"{logged.n} scored items were logged, {len(of_items_scored)} are there"
    if logged.value is None or not len(of_items_scored):
        return None
    value = float(of_items_scored.mean())
    if math.isclose(value, logged.value, rel_tol=1e-9, abs_tol=1e-9):
        return None
    if math.isclose(float(known.mean()), logged.value, rel_tol=1e-9, abs_tol=1e-9):
        return f"{logged.value:.6g} was logged, a mean of epochs; of items it is {value:.6g}"
    return f"{logged.value:.6g} was logged, the items give {value:.6g}"


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """Samples as a table of items × epochs."""

    samples: Sequence[LoggedSample]
    item_ids: NDArray[Any]
    """Shape (M,)."""
    rows: NDArray[np.intp]
    """Item of each sample."""
    columns: NDArray[np.intp]
    """Epoch of each sample, counted from 0."""
    n_epochs: int

    def spread(self, values: Sequence[float]) -> NDArray[np.float64]:
        """Return values of the samples as an array of shape (M, R), NaN without a sample."""
        scores = np.full((len(self.item_ids), self.n_epochs), math.nan)
        scores[self.rows, self.columns] = values
        return scores

    def answers(self, field: str) -> NDArray[Any] | None:
        """Return a field of the samples, shape (M, R), empty where none; None if none has it."""
        texts = np.full((len(self.item_ids), self.n_epochs), "", dtype=object)
        texts[self.rows, self.columns] = [s.fields.get(field, "") for s in self.samples]
        return texts if (texts != "").any() else None

    def numbers(self, values: Sequence[Any]) -> list[float]:
        """Return values as numbers, NaN where there is none."""
        return [math.nan if (n := as_score(v)) is None else n for v in values]

    def by_item(self, values: Sequence[Any]) -> list[list[Any]]:
        """Return the values of each item's samples, in the order of their epochs."""
        lists: list[list[Any]] = [[] for _ in self.item_ids]
        for i in np.argsort(self.columns, kind="stable").tolist():
            lists[self.rows[i]].append(values[i])
        return lists

    def hashes(self, name: Literal["question", "prompt"]) -> NDArray[Any]:
        """Hashes of the items, shape (M,); empty for an item without a sample."""
        hashes = [""] * len(self.item_ids)
        for row, sample in zip(self.rows, self.samples, strict=True):
            hashes[row] = hashes[row] or getattr(sample, name)
        return np.asarray(hashes, dtype="S")

    @property
    def chance(self) -> NDArray[np.float64] | None:
        """P(right) of a choice at random, shape (M,), NaN where unknown; None if it is of none."""
        chances = np.full(len(self.item_ids), math.nan)
        chances[self.rows] = [sample.chance for sample in self.samples]
        return None if np.isnan(chances).all() else chances

    def field(self, name: str) -> list[str | None]:
        """Return a metadata field of the items, from the first sample that has it."""
        texts: list[str | None] = [None] * len(self.item_ids)
        for row, sample in zip(self.rows, self.samples, strict=True):
            value = sample.fields.get(name)
            texts[row] = value if texts[row] is None and value is not None else texts[row]
        return texts

    @property
    def any_invalidated(self) -> bool:
        """Whether a sample was invalidated."""
        return any(t.invalidated for t in self.samples)

    def valid(self, values: Sequence[Any]) -> list[Any]:
        """Return values with those of invalidated samples missing."""
        return [math.nan if t.invalidated else v for v, t in zip(values, self.samples, strict=True)]

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Mask of the items with a sample that was not invalidated, shape (M,)."""
        n_samples = np.bincount(self.rows, minlength=len(self.item_ids))
        n_invalidated = np.bincount(
            self.rows, weights=[s.invalidated for s in self.samples], minlength=len(self.item_ids)
        )
        return (n_samples == 0) | (n_invalidated < n_samples)

    @property
    def notes(self) -> list[str]:
        """Notes on samples without a score."""
        failed = sum(t.failed for t in self.samples)
        invalidated = sum(t.invalidated for t in self.samples)
        which = "sample is" if invalidated == 1 else "samples are"
        n_absent = len(self.item_ids) - len(set(self.rows.tolist()))
        told = {
            f"{failed} of {counted(len(self.samples), 'sample')} ended in an error": failed,
            f"{invalidated} invalidated {which} left out": invalidated,
            f"{counted(n_absent, 'item')} of the run without a sample": n_absent,
        }
        return [note for note, n in told.items() if n]


def tabulate(samples: Sequence[LoggedSample], log: EvalLog, path: Path) -> Table:
    """Arrange samples as items, in the order of the dataset, × epochs.

    Items without a sample in a complete run are kept, without scores; items that an incomplete run
    did not reach, and items stopped early, are not.

    Raises
    ------
    LogError
        Two items share an id, such as 1 and "1" (Inspect logs only one of them); or a sample is
        there twice.
    """
    planned = log.eval.dataset.sample_ids or []
    # An id may have another type in the header than in its sample; within each, two items clash.
    _check_ids(planned, path)
    _check_ids([t.raw_id for t in samples], path)
    latest = {(t.item, t.epoch): t for t in samples}
    if len(latest) < len(samples):
        [(item, epoch), n] = Counter((t.item, t.epoch) for t in samples).most_common(1)[0]
        raise LogError(
            f"{path} has {n} samples of item {item!r} in epoch {epoch}; two runs may have been "
            "joined: keep one of them"
        )
    with_sample = {t.item for t in samples}
    in_order = (printable_name(str(i)) for i in planned)
    # Items stopped early were left out on purpose, and may be nearly all.
    done = log.status == "success"
    stopped = {printable_name(str(stop.id)) for stop in early_stops(log)}
    ids = dict.fromkeys(i for i in in_order if i in with_sample or (done and i not in stopped))
    ids.update(dict.fromkeys(t.item for t in samples))
    epochs = {e: column for column, e in enumerate(sorted({e for _, e in latest}))}
    if len(ids) * len(epochs) > _SPARSEST * (len(samples) + _SPARSEST):
        raise LogError(
            f"{path} has only {len(samples)} samples of {len(ids)} items, in {len(epochs)} "
            f"epoch{'s' if len(epochs) > 1 else ''}: most items must be in each epoch"
        )
    row_of = {item: row for row, item in enumerate(ids)}
    return Table(
        samples=tuple(latest.values()),
        item_ids=np.asarray(list(ids)),
        rows=np.asarray([row_of[item] for item, _ in latest], dtype=np.intp),
        columns=np.asarray([epochs[e] for _, e in latest], dtype=np.intp),
        n_epochs=len(epochs),
    )


def _check_ids(ids: Sequence[int | str], path: Path) -> None:
    names: dict[str, int | str] = {}
    for raw in ids:
        name = printable_name(str(raw))
        # An array of texts is as wide as its longest.
        if len(name) > _LONGEST_ID:
            msg = f"{path} has an item id of {len(name)} characters ({name[:40]}…)"
            raise LogError(f"{msg}, more than the {_LONGEST_ID} that are read")
        first = names.setdefault(name, raw)
        if first != raw:
            raise LogError(
                f"{path} has items {first!r} and {raw!r}, which are one and the same in a log; "
                "give them other ids and run again"
            )


def settings_of(log: EvalLog) -> Settings:
    """Return the settings that distinguish runs of one model.

    Settings that a task makes (temperature, grader, arguments) are marked as the task's: two tasks
    with different settings are still answered by one model.
    """
    settings = {
        **dict(_texts(log.eval.model_args)),
        **dict(_sampling(log.eval.model_generate_config)),
        **dict(_texts({"base_url": log.eval.model_base_url})),
        **{PER_TASK + name: text for name, text in _of_task(log)},
    }
    return tuple(sorted(settings.items()))


def _of_task(log: EvalLog) -> Iterator[tuple[str, str]]:
    yield from _texts(task_args_of(log))
    yield from _sampling(log.plan.config)
    yield from _texts({name: getattr(log.eval.config, name, None) for name in _LIMITS})
    yield from _texts({"solver": log.eval.solver, "solver_args": log.eval.solver_args or None})
    if log.eval.task_version:
        yield "version", printable_name(str(log.eval.task_version))
    for role, model in (log.eval.model_roles or {}).items():
        models: list[Any] = model if isinstance(model, list) else [model]
        yield from _texts({f"role.{role}": ", ".join(str(m.model) for m in models)})


def _sampling(config: GenerateConfig) -> Iterator[tuple[str, str]]:
    options = config.model_dump(exclude_none=True)
    yield from _texts({name: options[name] for name in _SAMPLING if name in options})


def _texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield values as short texts; long ones as a hash."""
    for name, value in values.items():
        if value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
        if len(text) > _LONGEST_SETTING:
            text = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
        yield printable_name(name), printable_name(text)


def fields_of(
    log: EvalLog, scorers: Iterable[Scorer], asked: str | None, by: str | None
) -> frozenset[str]:
    """Return every metadata field that may name clusters, slices or groups of items."""
    estimands = [e for s in scorers for e in estimands_of(log, s)]
    groups = {e.field for e in estimands if e.field} | {
        f"{SCORES}{e.scorer.name}.{part}"
        for e in estimands
        if metric_of(e) is not None
        for part in ("answer", "metadata")
    }
    groups |= {by} if by else set()
    if asked is not None:
        return frozenset({asked, *groups})
    return frozenset({f for s in scorers if (f := cluster_field(log, s)) is not None} | groups)


def cluster_field(log: EvalLog, scorer: Scorer) -> str | None:
    """Return the metadata field by which a scorer's metrics cluster items, None if none does."""
    scores = log.results.scores if log.results else []
    logged = (m.params for s in scores if of_result(s) == scorer for m in s.metrics.values())
    configured = (
        o for s in log.eval.scorers or () if s.name == scorer.name for o in _options(s, scorer)
    )
    for options in (*logged, *configured):
        if isinstance(options.get("cluster"), str):
            return options["cluster"]
    return None


def _options(configured: Any, scorer: Scorer) -> Iterator[dict[str, Any]]:
    """Yield the options of a scorer's metrics, which may be listed by key of the score."""
    metrics = cast("list[Any] | dict[str, Any]", configured.metrics or [])
    for metric in [metrics] if isinstance(metrics, dict) else metrics:
        if isinstance(metric, dict):
            by_key = cast("dict[str | None, Any]", metric)
            yield from (m.options or {} for m in by_key.get(scorer.key, by_key.get("*", ())))
        else:
            yield metric.options or {}

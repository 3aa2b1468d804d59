"""Turns an Inspect log into `Responses`: one for each scorer, or key of a scorer."""
# PART table - Takes laid out as items × epochs.
# PART identity - Who the model is, and how it was run: what tells apart runs under one name.
# PART clusters - Which items belong together: by the metadata field that a log's own metrics cluster by.

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.inspect_ai.archive.guard import (
    early_stops,
    form_of,
    found_in,
    printable,
    task_args_of,
)
from evalstats_plugin.adapters.inspect_ai.archive.opening import ReadTakes, opened
from evalstats_plugin.adapters.inspect_ai.archive.takes import Take, as_score, is_grade, is_unscored
from evalstats_plugin.adapters.inspect_ai.scorers import Logged, Scorer, logged_of, scorers_of
from evalstats_plugin.adaptive.records import biased
from evalstats_plugin.data.responses import Responses, Selection, Source, as_clusters
from evalstats_plugin.data.runs import PER_TASK
from evalstats_plugin.errors import IncompleteLogError, LogError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog
    from inspect_ai.model import GenerateConfig


NO_SAMPLES = "no samples logged (run Inspect without --no-log-samples)"


_TOLERANCE = 1e-9


_LONGEST_EXAMPLE = 40


_LONGEST_ID = 1000


_SPARSEST = 64
"""Cells per take: far fewer takes than items × epochs is no log of an evaluation."""


# What changes answers; the rest of the configuration is about speed, retries and caching.
_SAMPLING = (
    "best_of", "effort", "extra_body", "frequency_penalty", "internal_tools", "logit_bias",
    "max_tokens", "num_choices", "presence_penalty", "reasoning_effort", "reasoning_history",
    "reasoning_mode", "reasoning_tokens", "response_schema", "seed", "stop_seqs",
    "system_message", "temperature", "top_k", "top_p", "verbosity",
)  # fmt: skip


_LIMITS = ("message_limit", "token_limit", "time_limit", "working_limit", "turn_limit")


_LONGEST = 40


_SHORT = 8


Settings = tuple[tuple[str, str], ...]


_OPTION = "cluster"


def read_log(path: Path, selection: Selection) -> list[Responses] | None:
    """Read one log; None for others' files."""
    form = form_of(path)
    if form is None:
        return None
    with opened(path, form, header_only=selection.header_only) as (log, read_takes):
        base = _base(log, path)
        # A task of a package, "inspect_evals/gsm8k", is also known by its own name.
        if not selection.wants_task(base.task, base.task.rpartition("/")[2]):
            return []
        if selection.header_only:
            return [replace(base, metric=s.label) for s in scorers_of(log)]
        _refuse_incomplete(log, path, selection)
        return _read_scores(log, read_takes, selection, base)


def _base(log: EvalLog, path: Path) -> Responses:
    spec = log.eval
    source = Source(
        path=path,
        harness="inspect_ai",
        version=spec.packages.get("inspect_ai"),
        when=spec.created,
        run=spec.task_id,  # a retry has the task id, but neither run id nor eval id
    )
    return Responses(
        model=printable(spec.model),
        task=printable(spec.task),
        metric="",
        source=source,
        settings=settings_of(log),
    )


def _refuse_incomplete(log: EvalLog, path: Path, selection: Selection) -> None:
    if log.status == "success" or selection.include_incomplete:
        return
    msg = (
        f"{path} is of a run that did not end well (status {log.status!r}); --include-incomplete "
        "reads it as far as it got"
    )
    raise IncompleteLogError(msg, log.eval.task_id)


def _read_scores(
    log: EvalLog, read_takes: ReadTakes, selection: Selection, base: Responses
) -> list[Responses]:
    known = scorers_of(log)
    takes = read_takes(fields_of(log, known, selection.cluster))
    found = [s for s in scorers_of(log, takes) if selection.wants_metric(s.label)]
    if not takes:
        note = NO_SAMPLES if log.status == "success" else _how_far(log, 0)
        return [_without_items(log, s, base, note) for s in found]
    table = tabulate(takes, log, base.source.path)
    return [_of_scorer(log, s, table, selection, base) for s in found]


def _without_items(log: EvalLog, scorer: Scorer, base: Responses, note: str) -> Responses:
    return replace(_with_logged(base, scorer, logged_of(log, scorer)), notes=(note,))


def _with_logged(base: Responses, scorer: Scorer, logged: Logged) -> Responses:
    return replace(
        base,
        metric=scorer.label,
        logged=logged.value,
        logged_std_error=logged.std_error,
        logged_n=logged.n,
        higher_is_better=True if logged.is_accuracy else None,
    )


def _of_scorer(
    log: EvalLog, scorer: Scorer, table: Table, selection: Selection, base: Responses
) -> Responses:
    logged = logged_of(log, scorer)
    values = [scorer.value_in(take) for take in table.takes]
    scores = table.spread([math.nan if (n := as_score(v)) is None else n for v in values])
    notes = [*table.notes, *_about_stops(log), *_about_values(values, table)]
    if log.status != "success":
        notes.append(_how_far(log, len(table.item_ids)))
    elif problem := _disagreement(scores, logged):
        notes.append(f"mismatch: {problem}")
    field = selection.cluster or cluster_field(log, scorer)
    clusters, about_clusters = as_clusters(table.field(field), field) if field else (None, ())
    graded = all(is_grade(v) or is_unscored(v) for v in values)
    kept = table.kept
    return replace(
        _with_logged(base, scorer, logged),
        item_ids=table.item_ids[kept],
        item_hashes=table.questions[kept],
        scores=table.without_invalidated(scores)[kept],
        clusters=None if clusters is None else clusters[kept],
        bounds=(0.0, 1.0) if graded else None,
        higher_is_better=True if graded or logged.is_accuracy else None,
        population=_population(log, table),
        notes=(*notes, *(printable(note) for note in about_clusters), *logged.notes),
    )


def _about_stops(log: EvalLog) -> list[str]:
    stops = len(early_stops(log))
    found = found_in(log)
    if found is not None:
        return biased(found)
    return [f"{stops} samples were stopped early, which may favour some items"] if stops else []


def _about_values(values: Sequence[Any], table: Table) -> list[str]:
    odd = [v for v in values if as_score(v) is None]
    unscored = sum(
        is_unscored(v) and not t.failed for v, t in zip(values, table.takes, strict=True)
    )
    notes = [f"{unscored} samples were left unscored"] if unscored else []
    if odd:
        example = printable(repr(odd[0]))[:_LONGEST_EXAMPLE]
        notes.append(
            f"{len(odd)} scores are no numbers ({example}): missing here, 0 to Inspect's metrics"
        )
    return notes


def _how_far(log: EvalLog, n_items: int) -> str:
    planned = log.eval.dataset.sample_ids
    of_all = f" of {len(planned)}" if planned else ""
    return f"the run did not end well (status {log.status!r}): {n_items}{of_all} items"


def _population(log: EvalLog, table: Table) -> int | None:
    """Return how large the dataset is, where a limit was set: its first items stand for all."""
    size = log.eval.dataset.samples or 0
    if early_stops(log):
        return None
    return size if log.status == "success" and size > len(table.item_ids) else None


def _disagreement(scores: NDArray[np.float64], logged: Logged) -> str | None:
    """Return how the items contradict the header, invalidated ones among them as in Inspect."""
    means = Responses(
        model="", task="", metric="", item_ids=np.arange(len(scores)), scores=scores,
        source=Source(Path(), "inspect_ai"),
    ).item_means  # fmt: skip
    there = means[~np.isnan(means)]
    if logged.n is not None and logged.n != len(there):
        return f"{logged.n} scored items were logged, {len(there)} are there"
    if logged.value is None or not len(there):
        return None
    value = float(there.mean())
    if math.isclose(value, logged.value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        return None
    return f"{logged.value:.6g} was logged, the items give {value:.6g}"


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """Takes, and where each belongs."""

    takes: Sequence[Take]
    item_ids: NDArray[Any]
    """Shape (M,)."""
    rows: NDArray[np.intp]
    """Item of each take."""
    columns: NDArray[np.intp]
    """Epoch of each take, counted from 0."""
    n_epochs: int

    def spread(self, values: Sequence[float]) -> NDArray[np.float64]:
        """Return values of the takes as an array of shape (M, R), NaN where there was no take."""
        scores = np.full((len(self.item_ids), self.n_epochs), math.nan)
        scores[self.rows, self.columns] = values
        return scores

    @property
    def questions(self) -> NDArray[Any]:
        """Fingerprints of the items, shape (M,); empty for an item nobody took."""
        found = [""] * len(self.item_ids)
        for row, take in zip(self.rows, self.takes, strict=True):
            found[row] = found[row] or take.question
        return np.asarray(found, dtype="S")

    def field(self, name: str) -> list[str | None]:
        """Return a field of the items, by their first take."""
        found: list[str | None] = [None] * len(self.item_ids)
        for row, take in zip(self.rows, self.takes, strict=True):
            value = take.fields.get(name)
            found[row] = value if found[row] is None and value is not None else found[row]
        return found

    def without_invalidated(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores with those of invalidated takes missing."""
        out = [t.invalidated for t in self.takes]
        scores[self.rows[out], self.columns[out]] = math.nan
        return scores

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Shape (M,): items of which not every take was invalidated."""
        taken = np.bincount(self.rows, minlength=len(self.item_ids))
        out = np.bincount(
            self.rows, weights=[t.invalidated for t in self.takes], minlength=len(self.item_ids)
        )
        return (taken == 0) | (out < taken)

    @property
    def notes(self) -> list[str]:
        """What happened to takes that have no score."""
        failed = sum(t.failed for t in self.takes)
        invalidated = sum(t.invalidated for t in self.takes)
        untaken = len(self.item_ids) - len(set(self.rows.tolist()))
        return [
            *([f"{failed} of {len(self.takes)} samples ended in an error"] if failed else []),
            *([f"{invalidated} invalidated samples are left out"] if invalidated else []),
            *([f"{untaken} items of the run have no sample"] if untaken else []),
        ]


def tabulate(takes: Sequence[Take], log: EvalLog, path: Path) -> Table:
    """Lay takes out: items in the order of the dataset, epochs as numbered.

    Items that a complete run did not take are there, without scores; those that an incomplete
    one did not get to, and those stopped early, are not.

    Raises
    ------
    LogError
        When two items share an id, as 1 and "1" do, of which Inspect logs one only.
    """
    planned = log.eval.dataset.sample_ids or []
    _check_ids([*planned, *(t.raw_id for t in takes)], path)
    latest = {(t.item, t.epoch): t for t in takes}
    there = {t.item for t in takes}
    in_order = (printable(str(i)) for i in planned)
    # What was stopped early was left out on purpose, and may be nearly all there is.
    done = log.status == "success"
    stopped = {printable(str(stop.id)) for stop in early_stops(log)}
    ids = dict.fromkeys(i for i in in_order if i in there or (done and i not in stopped))
    ids.update(dict.fromkeys(t.item for t in takes))
    epochs = {e: column for column, e in enumerate(sorted({e for _, e in latest}))}
    if len(ids) * len(epochs) > _SPARSEST * (len(takes) + _SPARSEST):
        msg = (
            f"{path} has {len(takes)} samples for {len(ids)} items in {len(epochs)} epochs, "
            "expected most items in each epoch"
        )
        raise LogError(msg)
    row_of = {item: row for row, item in enumerate(ids)}
    return Table(
        takes=tuple(latest.values()),
        item_ids=np.asarray(list(ids)),
        rows=np.asarray([row_of[item] for item, _ in latest], dtype=np.intp),
        columns=np.asarray([epochs[e] for _, e in latest], dtype=np.intp),
        n_epochs=len(epochs),
    )


def _check_ids(ids: Sequence[int | str], path: Path) -> None:
    names: dict[str, int | str] = {}
    for raw in ids:
        name = printable(str(raw))
        # In an array every text takes the room of the longest.
        if len(name) > _LONGEST_ID:
            msg = f"{path} has an item id of {len(name)} characters ({name[:40]}…)"
            raise LogError(f"{msg}, expected at most {_LONGEST_ID}")
        first = names.setdefault(name, raw)
        if first != raw:
            msg = (
                f"{path} has items {first!r} and {raw!r}, which are one and the same in a log; "
                "give them other ids and run again"
            )
            raise LogError(msg)


def settings_of(log: EvalLog) -> Settings:
    """Return what makes two runs of one model differ.

    How a task configures its run (temperature, grader, arguments) belongs to the task: two tasks
    that do it differently are still answered by one model.
    """
    found = {
        **dict(_texts(log.eval.model_args)),
        **dict(_sampling(log.eval.model_generate_config)),
        **dict(_texts({"base_url": log.eval.model_base_url})),
        **{PER_TASK + name: text for name, text in _of_task(log)},
    }
    return tuple(sorted(found.items()))


def _of_task(log: EvalLog) -> Iterator[tuple[str, str]]:
    yield from _texts(task_args_of(log))
    yield from _sampling(log.plan.config)
    yield from _texts({name: getattr(log.eval.config, name, None) for name in _LIMITS})
    yield from _texts({"solver": log.eval.solver, "solver_args": log.eval.solver_args or None})
    if log.eval.task_version:
        yield "version", printable(str(log.eval.task_version))
    for role, model in (log.eval.model_roles or {}).items():
        models: list[Any] = model if isinstance(model, list) else [model]
        yield from _texts({f"role.{role}": ", ".join(str(m.model) for m in models)})


def _sampling(config: GenerateConfig) -> Iterator[tuple[str, str]]:
    known = config.model_dump(exclude_none=True)
    yield from _texts({name: known[name] for name in _SAMPLING if name in known})


def _texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give values as short texts; long ones by a fingerprint."""
    for name, value in values.items():
        if value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
        if len(text) > _LONGEST:
            text = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_SHORT]
        yield printable(name), printable(text)


def cluster_field(log: EvalLog, scorer: Scorer) -> str | None:
    """Return the field by which the metrics of a scorer cluster items, where one of them does."""
    scores = log.results.scores if log.results else []
    logged = (m.params for s in scores if scorer.is_of(s) for m in s.metrics.values())
    configured = (
        o for s in log.eval.scorers or () if s.name == scorer.name for o in _options(s, scorer)
    )
    for options in (*logged, *configured):
        if isinstance(options.get(_OPTION), str):
            return options[_OPTION]
    return None


def _options(configured: Any, scorer: Scorer) -> Iterator[dict[str, Any]]:
    """Give the options of a scorer's metrics, which may be told apart by the score's keys."""
    metrics = cast("list[Any] | dict[str, Any]", configured.metrics or [])
    for metric in [metrics] if isinstance(metrics, dict) else metrics:
        if isinstance(metric, dict):
            by_key = cast("dict[str | None, Any]", metric)
            yield from (m.options or {} for m in by_key.get(scorer.key, by_key.get("*", ())))
        else:
            yield metric.options or {}


def fields_of(log: EvalLog, scorers: Iterable[Scorer], asked: str | None) -> frozenset[str]:
    """Return every field that may be needed."""
    if asked is not None:
        return frozenset({asked})
    return frozenset(f for s in scorers if (f := cluster_field(log, s)) is not None)

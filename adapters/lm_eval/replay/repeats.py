"""Score every repeat of a task alone, which lm-eval does not log.

With ``repeats: 4`` a log holds four answers to each item, and one score under each filter: of the
first answer, or of the answer that most of them agree on. `with_repeats` applies the filter to each
answer and scores it by the task's own metrics, all with lm-eval's code. The filter's steps that
choose among repeats are left out for that; with them, every logged score must come out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.lm_eval.replay.model import LoggedRun, LoggedTask
from evalstats_plugin.adapters.lm_eval.replay.run import blaming, sandboxed_templates
from evalstats_plugin.adapters.lm_eval.replay.tasks import Definitions, Scoring, build_task
from evalstats_plugin.adapters.lm_eval.run_harness import check_harness, harness, quiet_harness
from evalstats_plugin.adapters.lm_eval.values import as_number
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import DesignError, EvalStatsError, LogError
from evalstats_plugin.stats.arrays import FloatArray

_CHOOSING = frozenset({"majority_vote", "take_first", "take_first_k"})
"""Filters that choose among the repeats of an item."""

_ANSWERWISE = frozenset(
    {"format_span", "lowercase", "map", "multi_choice_regex", "regex", "regex_pos"}
    | {"remove_whitespace", "uppercase"}
)
"""Filters that treat each repeat by itself."""


def with_repeats(
    responses: Sequence[Responses],
    task: str,
    results: Mapping[str, Any],
    records: Iterable[Mapping[str, Any]],
) -> list[Responses]:
    """Add the scores of each repeat to the responses of a task, as `Responses.unreduced`.

    Filters that differ only in how they choose among repeats have the same scores: the first of
    them gets these. Where repeats cannot be scored, a note says why.
    """
    try:
        scores = _score_repeats(responses, task, results, records)
    except EvalStatsError as error:
        note = f"its repeats are not scored one by one: {error}"
        return [replace(r, notes=(*r.notes, note)) for r in responses]
    return [_with_scores(r, *scores[r.metric]) if r.metric in scores else r for r in responses]


def _with_scores(r: Responses, scores: FloatArray, answers: NDArray[Any]) -> Responses:
    unreduced = replace(
        r,
        scores=scores,
        answers=answers,
        logged=None,
        logged_std_error=None,
        groups=tuple(replace(g, logged=None, logged_std_error=None) for g in r.groups),
        notes=(*r.notes, f"{scores.shape[1]} repeats, each scored by lm-eval's own code"),
    )
    return replace(r, unreduced=unreduced)


def _score_repeats(
    responses: Sequence[Responses],
    task: str,
    results: Mapping[str, Any],
    records: Iterable[Mapping[str, Any]],
) -> dict[str, tuple[FloatArray, NDArray[Any]]]:
    """Return scores and filtered answers by "metric,filter", each of shape (M, R)."""
    check_harness()
    logged = _read_answers(task, records)
    run = LoggedRun(Path(task), _in_terms_of_0_4(results), {task: logged})
    with quiet_harness(), blaming(task), sandboxed_templates():
        # Only what the log says: a definition of lm-eval's own may import and download.
        built = build_task(run, logged, Definitions(None, any_other=False), Scoring())
        if built.OUTPUT_TYPE != "generate_until":
            raise DesignError(f"task {task!r} repeats likelihoods, which are the same each time")
        scorer = _Scorer(built, logged.docs)
        answers = [requests[0] for requests in logged.responses]
        scores: dict[str, tuple[FloatArray, NDArray[Any]]] = {}
        seen: list[list[str]] = []
        place = {doc_id: i for i, doc_id in enumerate(logged.doc_ids)}
        for name, steps in _pipelines(built):
            own = {
                r.metric.partition(",")[0]: r for r in responses if r.metric.endswith(f",{name}")
            }
            own = {metric: r for metric, r in own.items() if r.scores.size}
            left = _apply(steps, answers, logged.docs)
            scored = [scorer.score(i, answer) for i, answer in enumerate(left)]
            _check_scores(own, scored, place)
            each = [(f, step) for f, step in steps if f not in _CHOOSING]
            key = [repr(step) for _, step in each]
            if key in seen or not own or any(f not in _ANSWERWISE for f, _ in each):
                continue
            seen.append(key)
            filtered = _apply(each, answers, logged.docs)
            of_each = scorer.of_each(filtered)
            for metric, r in own.items():
                if metric in of_each:
                    rows = [place[doc_id] for doc_id in r.item_ids.tolist()]
                    scores[r.metric] = of_each[metric][rows], _texts(filtered)[rows]
        return scores


def _texts(filtered: Sequence[Sequence[Any]]) -> NDArray[Any]:
    """Return answers as texts, shape (M, R), empty where an item has fewer."""
    texts = np.full((len(filtered), max(map(len, filtered))), "", dtype=object)
    for i, each in enumerate(filtered):
        texts[i, : len(each)] = [str(answer) for answer in each]
    return texts


def _read_answers(task: str, records: Iterable[Mapping[str, Any]]) -> LoggedTask:
    """Read documents and answers, each document once."""
    logged = LoggedTask(task)
    seen: set[Any] = set()
    for record in records:
        doc_id, doc, responses = (record.get(key) for key in ("doc_id", "doc", "resps"))
        if doc_id in seen:
            continue
        if not isinstance(doc, Mapping) or not isinstance(responses, Sequence) or not responses:
            raise LogError(f"item {doc_id} of task {task!r} has no answers in the log")
        seen.add(doc_id)
        logged.doc_ids.append(doc_id)
        logged.docs.append(dict(doc))  # pyright: ignore[reportUnknownArgumentType]
        logged.responses.append([list(request) for request in responses])  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return logged


def _in_terms_of_0_4(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return results whose filters and metrics have their arguments beside the name, as in 0.4."""
    configs: dict[str, Any] = deepcopy(dict(results["configs"]))
    for config in configs.values():
        steps = [step for pipe in config.get("filter_list") or () for step in pipe["filter"]]
        for part in [*steps, *(config.get("metric_list") or ())]:
            part.update(part.pop("kwargs", {}))
            part.pop("reduction", None)
    return {**results, "configs": configs}


def _pipelines(task: Any) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Yield the name of each filter, and its steps: their names, and what makes them."""
    listed = task.config.filter_list
    names = [["take_first"]] if listed is None else [
        [step["function"] for step in pipeline["filter"]] for pipeline in listed
    ]  # fmt: skip
    for ensemble, steps in zip(task._filters, names, strict=True):
        yield ensemble.name, list(zip(steps, ensemble.filters, strict=True))


def _apply(steps: Sequence[tuple[str, Any]], answers: list[Any], docs: list[Any]) -> list[Any]:
    for _, make in steps:
        answers = list(make().apply(answers, docs))
    return answers


@dataclass
class _Scorer:
    """Scores filtered answers by a task's own metrics, the same answer to an item only once."""

    task: Any
    docs: list[dict[str, Any]]
    known: dict[tuple[int, str], dict[str, float]] = field(
        default_factory=dict[tuple[int, str], dict[str, float]]
    )

    def score(self, i: int, answer: Any) -> dict[str, float]:
        """Return the scores of an answer to the i-th item that are numbers."""
        key = (i, repr(answer))
        if key not in self.known:
            values = self.task.process_results(deepcopy(self.docs[i]), [answer])
            self.known[key] = {
                name: n for name, v in values.items() if (n := as_number(v)) is not None
            }
        return self.known[key]

    def of_each(self, answers: Sequence[Sequence[Any]]) -> dict[str, FloatArray]:
        """Score every answer to each item; arrays have shape (M, R), NaN where there is none."""
        rows = [[self.score(i, answer) for answer in each] for i, each in enumerate(answers)]
        shape = len(rows), max(map(len, rows))
        scores: dict[str, FloatArray] = {}
        for i, row in enumerate(rows):
            for k, values in enumerate(row):
                for metric, value in values.items():
                    scores.setdefault(metric, np.full(shape, np.nan))[i, k] = value
        return scores


def _check_scores(
    own: Mapping[str, Responses], scored: Sequence[Mapping[str, float]], place: Mapping[Any, int]
) -> None:
    """Raise if this lm-eval scores otherwise than that of the run."""
    for metric, r in own.items():
        now = [scored[place[doc_id]].get(metric, np.nan) for doc_id in r.item_ids.tolist()]
        if not np.allclose(now, r.scores[:, 0], rtol=1e-6, atol=1e-9, equal_nan=True):
            differing = int((~np.isclose(now, r.scores[:, 0], equal_nan=True)).sum())
            raise LogError(
                f"lm-eval {harness('').__version__}, which is installed, scores {differing} of "
                f"{len(now)} items otherwise than the run did ({r.metric})"
            )

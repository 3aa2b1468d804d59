"""Figures of reading: every log here, and drawn evaluations in the form of every harness."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from evaluations import SCALES, Evaluation, Group, Task, fill
from figures import Run, changed, figures_of, plain, table_of
from written_logs import LOGS as WRITTEN_LOGS
from written_tables import TABLES

import evalstats_plugin as es
from evalstats_plugin.data.responses import Responses, Selection

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
OTHER = {"path", "measure", "source", "provenance", "groups", "beside", "unreduced", "predicted"}


def _told(responses: Responses) -> dict[str, Any]:
    source, origin = responses.source, responses.provenance
    told = {f.name: getattr(responses, f.name) for f in fields(responses) if f.name not in OTHER}
    return {
        **told, "measured": responses.measure, "groups": list(responses.groups),
        "run": [source.harness, source.version, source.when, source.run, source.is_annotated],
        "log": source.path.name, "of": [origin.task_version, origin.is_altered, origin.home],
        "prompts": origin.prompt_hashes, "forecast": responses.predicted,
        "epochs": None if responses.unreduced is None else responses.unreduced.scores,
        "also": [[each.metric, each.scores] for each in responses.beside],
    }  # fmt: skip


def _read(*paths: Path, **options: Any) -> dict[str, Any]:
    return table_of([_told(each) for each in es.read(*paths, **options)])


def _task(name: str, scales: str, n_items: int = 9, **more: Any) -> Task:
    return Task(name, n_items, tuple(SCALES[each] for each in scales.split()), **more)


EVALUATIONS: Mapping[str, Evaluation] = {
    "plain": Evaluation(("m", "org/n"), (_task("t", "right share"), _task("u", "grade", 5))),
    "missing": fill(
        Evaluation(("m", "n"), (_task("t", "percent"), _task("u", "error loss"))), missing=0.2),
    "epochs": Evaluation(("m",), (_task("t", "right"),), n_epochs=3,
                         reducers=("max", "pass_at_2")),
    "clusters": Evaluation(("m", "n"), (
        _task("t", "right margin", clusters=(0, 0, 0, 1, 1, 2, 3, 3, 3)),), by_cluster=True),
    "cut": Evaluation(("m", "n"), (_task("t", "right tenths", n_planned=20), _task(
        "u", "right", 12, n_cut=3))),
    "groups": Evaluation(("m", "n"), tuple(
        _task(name, "right", 5 + k) for k, name in enumerate("tuv")),
                         (Group("all", ("part", "v"), weighted=True),
                          Group("part", ("t", "u"), weighted=False))),
}  # fmt: skip


def _of_written(write: Callable[[Evaluation, Path], None], e: Evaluation) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        write(e if e.scores else fill(e), Path(folder))
        told = _read(Path(folder))
    # When it was written, which its name has too.
    return {name: column for name, column in told.items() if name not in {"run", "log"}}


def _frame(*, labels: bool = False) -> Any:
    """A matrix of scores, with an empty cell; its columns in two levels."""
    scores = np.random.default_rng(0).integers(0, 2, (3, 8)) * 1.0
    scores[1, 2] = np.nan
    columns: Any = [f"i{k}" for k in range(8)]
    if labels:
        columns = pd.MultiIndex.from_tuples([("tu"[k % 2], f"i{k}") for k in range(8)])
    return pd.DataFrame(scores, index=list("abc"), columns=columns)


def _long() -> Any:
    frame = _frame().stack().reset_index()
    frame.columns = ["model", "item", "score"]
    return frame


def _analysed(how: Callable[..., Any], *logs: str, **options: Any) -> Any:
    read = {name: options.pop(name) for name in ("task", "runs") if name in options}
    rows = how(es.read(*(LOGS / log for log in logs), **read), rng=0, **options).to_dict()
    return table_of([{k: v for k, v in row.items() if not k.startswith("log")} for row in rows])


INSPECT, EEE = "inspect_ai/0.3.285", "every_eval_ever"
ADAPTIVE = (f"{INSPECT}/adaptive", f"{INSPECT}/models")


def _annotated(*logs: str, **options: Any) -> Any:
    """What is written into copies of logs: the block of numbers of each."""
    with tempfile.TemporaryDirectory() as folder:
        written = es.annotate(*(LOGS / log for log in logs), output=folder, **options)
        told = [json.loads(p.read_text("utf-8")) for p in sorted(written) if p.suffix == ".json"]
        return [plain(_block(each)) for each in told]


def _chosen(folder: Path, task: str, metric: str) -> Any:
    """Which scores are read of a log by their names, and how many items each has."""
    asked: dict[str, dict[str, Any]] = {
        "a task": {"task": task}, "tasks": {"task": f"{task[:2]}*"}, "a metric": {"metric": metric},
        "both": {"task": task, "metric": metric}, "no task": {"task": f"{task}0"},
        "no metric": {"metric": "own"}, "another": {"task": f"{task[:2]}*", "metric": f"{metric}*"},
    }  # fmt: skip
    return figures_of({
        name: partial(
            lambda **chosen: [[r.model, r.task, r.metric, len(r.item_ids), plain(r.logged)]
                              for r in es.read(folder, runs="all", **chosen)], **chosen)
        for name, chosen in asked.items()
    })  # fmt: skip


def _exported(log: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        es.export(es.read(LOGS / log), Path(folder) / "records", to="every-eval-ever")
        return _read(Path(folder) / "records")


def _block(log: Mapping[str, Any]) -> Any:
    about = log.get("metadata") or log.get("eval", {}).get("metadata") or log
    return {
        k: v
        for k, v in about.get("evalstats", {}).items()
        if k != "answer" and not k.endswith("version")
    }


RUNS: Mapping[str, Mapping[str, Run]] = {
    f"{harness.name} {version.name}": {
        run.name: partial(_read, run) for run in sorted(version.iterdir())
    }
    for harness in sorted(LOGS.iterdir()) for version in sorted(harness.iterdir())
} | {
    f"written as {form}": {
        name: partial(_of_written, rendering.write, e)
        for name, e in EVALUATIONS.items() if rendering.holds(e)
    } for form, rendering in {**WRITTEN_LOGS, **TABLES}.items()
} | {
    "parts of logs": {
        folder: partial(_chosen, LOGS / folder, task, metric)
        for folder, task, metric in (
            (f"{EEE}/0.3.0/converted", "sums", "acc"),
            (f"{EEE}/0.3.0/exported", "graded", "partial_credit"),
            ("lm_eval/0.4.13/out", "es_bin", "acc"), (f"{INSPECT}/json", "arith", "match"),)
    },
    "in memory": {
        "models": partial(_read, _frame(), wide="models"),
        "items": partial(_read, _frame(), wide="items"),
        "levels": partial(_read, _frame(labels=True), wide="models"),
        "rows": partial(_read, _long()),
        "several": partial(_read, _long(), _frame().T.to_dict("records"), wide="models"),
        "records": partial(_read, _long().to_dict("records")),
        "an array": partial(_read, _frame().to_numpy()),
        "three axes": partial(_read, np.stack([_frame(), 1 - _frame()], axis=2)),
    },
    "of logs": {
        "intervals": partial(_analysed, es.intervals, *ADAPTIVE),
        "published": partial(_analysed, es.intervals, EEE),
        "an adaptive test": partial(_analysed, es.compare, *ADAPTIVE, task="arith*"),
        "and a baseline": partial(_analysed, es.compare, *ADAPTIVE, task="arith", baseline="best"),
        "other items": partial(_analysed, es.compare, *ADAPTIVE, task="arith*", design="unpaired"),
        "table": partial(_analysed, es.table, f"{INSPECT}/models"),
        "gate": partial(_analysed, es.gate, f"{INSPECT}/models", baseline="mockllm/alpha"),
        "items": lambda: [
            [row.item, row.outcome, row.difference, row.others]
            for row in es.compare_items(
                es.read(LOGS / INSPECT / "models"), "mockllm/alpha", "mockllm/beta")],
        "exported": lambda: _exported(f"{INSPECT}/models"),
    },
    "annotated": {
        "intervals": partial(_annotated, "lm_eval/0.4.13/out"),
        "compared": partial(_annotated, "lm_eval/0.4.13/out", compare=True, at_k=("pass@1",),
                            selection=Selection(tasks=("es_mc", "es_bin"))),
        "Inspect": partial(_annotated, "inspect_ai/0.3.285/json", items="columns"),
        "a baseline": partial(_annotated, "inspect_ai/0.3.285/json", compare=True, rescore=True),
        "fitted": partial(_annotated, "lm_eval/0.4.13/out", fits=("irt", "pool"),
                          selection=Selection(tasks=("es_mc", "es_bin"))),
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("reading", run, RUNS[run], rel=1e-5) == []

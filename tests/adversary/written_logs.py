"""An `Evaluation` as logs of lm-eval, Inspect, HELM and lighteval.

lm-eval's files are written by its own tracker, Inspect's by its own models and writer; those of
HELM and lighteval, which are not installed, by hand. `RENDERINGS` has them all, with what each
format can hold and what our reader is to call a task and a metric.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from evaluations import Evaluation, Scale, Scores, Task, mean_of_items

WHEN = "2026-11-21T07:09:15"


@dataclass(frozen=True)
class Rendering:
    """One form of an evaluation."""

    write: Callable[[Evaluation, Path], None]
    holds: Callable[[Evaluation], bool] = lambda _: True
    """Whether the format has a place for all that matters in an evaluation."""
    task: Callable[[str], str] = str
    metric: Callable[[str], str] = str
    knows_clusters: bool = True
    knows_direction: bool = True
    logs_values: bool = True
    """Whether the harness logs values beside the scores of items."""
    says_scale: bool = False
    """Whether it has the lowest and highest score that there may be."""


def number(value: float) -> float | int:
    """Return a whole number as an integer, as harnesses write counts and grades."""
    return int(value) if value == int(value) else value


def _hash(*parts: object) -> str:
    return sha256("/".join(map(str, parts)).encode(errors="surrogatepass")).hexdigest()


def std_error(scores: Scores) -> float | str:
    """Return s/√n of the items' means, "N/A" of fewer than two, as lm-eval writes it."""
    means = np.array([row[~np.isnan(row)].mean() for row in scores if not np.isnan(row).all()])
    return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else "N/A"


# lm-eval -----------------------------------------------------------------------------------------


def write_lm_eval(e: Evaluation, folder: Path) -> None:
    """Write a run of each model by lm-eval's own tracker."""
    for i, model in enumerate(e.models):
        _lm_eval_run(e, i, model, folder)


def _lm_eval_run(e: Evaluation, i: int, model: str, folder: Path) -> None:
    from lm_eval.loggers.evaluation_tracker import EvaluationTracker

    tracker = EvaluationTracker(output_path=str(folder))
    tracker.general_config_tracker.log_experiment_args(
        "dummy", {"pretrained": model}, None, None, fewshot_as_multiturn=False
    )
    samples = {task.name: _lm_eval_samples(e, i, task) for task in e.tasks}
    names = [task.name for task in e.tasks]
    results = {task.name: _lm_eval_values(e, i, task) for task in e.tasks}
    groups = {group.name: _lm_eval_group(e, i, group) for group in e.groups}
    configs = {
        task.name: {
            "task": task.name,
            "metric_list": [
                {"metric": s.name, "aggregation": "mean", "higher_is_better": s.higher_is_better}
                for s in task.scales
            ],
            "output_type": "generate_until",
            "repeats": 1,
            "metadata": {"version": 1.0}
            | ({"cluster_key": "passage"} if task.clusters is not None else {}),
        }
        for task in e.tasks
    }
    tracker.save_results_aggregated(
        {
            "results": {**groups, **results},
            **({"groups": groups} if groups else {}),
            "group_subtasks": {group.name: list(group.parts) for group in e.groups},
            "configs": configs,
            "versions": dict.fromkeys(names, 1.0),
            "n-shot": dict.fromkeys(names, 0),
            "higher_is_better": {
                task.name: {s.name: s.higher_is_better for s in task.scales} for task in e.tasks
            },
            "n-samples": {
                task.name: {"original": task.n_whole, "effective": task.n_items} for task in e.tasks
            },
            "config": {"model": "dummy", "model_args": {"pretrained": model}},
            "git_hash": None,
            "date": 1795244950.45,
            "lm_eval_version": "0.4.13",
        },
        samples,
    )
    for task in e.tasks:
        kept = samples[task.name][: task.n_items - task.n_cut]
        tracker.save_results_samples(task.name, kept)  # pyright: ignore[reportArgumentType]
    # The tracker tells its errors to nobody.
    assert len([*folder.rglob("results_*.json")]) == i + 1
    assert len([*folder.rglob("samples_*.jsonl")]) == (i + 1) * len(e.tasks)


def _lm_eval_values(e: Evaluation, i: int, task: Task) -> dict[str, Any]:
    found: dict[str, Any] = {"alias": task.name, "sample_len": task.n_items}
    for scale in task.scales:
        value = e.value(i, task, scale)
        found[f"{scale.name},none"] = math.nan if value is None else value
        found[f"{scale.name}_stderr,none"] = std_error(e.of(task, scale)[i])
    return found


def _lm_eval_group(e: Evaluation, i: int, group: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"alias": group.name}
    leaves = e.leaves(group)
    found["sample_len"] = sum(task.n_items for task in leaves)
    for scale in leaves[0].scales:
        value = e.of_group(i, group, scale)
        found[f"{scale.name},none"] = math.nan if value is None else value
        found[f"{scale.name}_stderr,none"] = "N/A"
    return found


def _lm_eval_samples(e: Evaluation, i: int, task: Task) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for j in range(task.n_items):
        values = {s.name: float(e.of(task, s)[i, j, 0]) for s in task.scales}
        values = {name: number(v) for name, v in values.items() if not math.isnan(v)}
        doc = {"question": f"{task.name}: what is {j}?"}
        if task.clusters is not None:
            doc["passage"] = f"p{task.clusters[j]}"
        made.append(
            {
                "doc_id": j,
                "doc": doc,
                "target": str(j),
                "arguments": [(doc["question"], {"until": []})],
                "resps": [["x"]],
                "filtered_resps": ["x"],
                "filter": "none",
                "metrics": list(values),
                "doc_hash": _hash(task.name, j),
                "prompt_hash": _hash("prompt", task.name, j),
                "target_hash": _hash("target", j),
                **values,
            }
        )
    return made


# Inspect -----------------------------------------------------------------------------------------


def write_inspect(e: Evaluation, folder: Path, *, form: str = "json") -> None:
    """Write a log of each model and task by Inspect's own writer."""
    from inspect_ai.log import write_eval_log

    for i in range(len(e.models)):
        for k, task in enumerate(e.tasks):
            log = inspect_log(e, i, task)
            write_eval_log(log, str(folder / f"2026-11-21T07-09-15_{k}_{i}.{form}"))


def inspect_log(e: Evaluation, i: int, task: Task) -> Any:
    """Return one log, as Inspect holds it in memory."""
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalResults,
        EvalSpec,
    )

    n, reducers = task.n_items, ["mean", *e.reducers] if e.n_epochs > 1 else None
    ids: list[str] | None = [f"item {j}" for j in range(task.n_whole)][:n]
    # Logs of old versions, and of some tools, do not list the ids.
    ids = None if task.n_cut and e.seed % 2 else ids
    return EvalLog(
        status="success",
        eval=EvalSpec(
            created=f"{WHEN}+00:00",
            task=task.name,
            task_id=_hash("id", task.name, i)[:22],
            model=e.models[i],
            dataset=EvalDataset(samples=task.n_whole, sample_ids=ids),
            config=EvalConfig(
                epochs=e.n_epochs,
                epochs_reducer=reducers,
                limit=n if task.n_planned else None,
            ),
            packages={"inspect_ai": "0.3.285"},
        ),
        results=EvalResults(
            total_samples=n * e.n_epochs,
            completed_samples=n * e.n_epochs,
            scores=[s for scale in task.scales for s in _inspect_scores(e, i, task, scale)],
        ),
        samples=[
            _inspect_sample(e, i, task, j, r)
            for j in range(n - task.n_cut)
            for r in range(e.n_epochs)
        ],
    )


def _inspect_sample(e: Evaluation, i: int, task: Task, j: int, r: int) -> Any:
    from inspect_ai.log import EvalSample
    from inspect_ai.scorer import Score

    values = {s.name: float(e.of(task, s)[i, j, r]) for s in task.scales}
    failed = all(map(math.isnan, values.values()))
    error: Any = None
    if failed:
        from inspect_ai._util.error import EvalError

        error = EvalError(message="out of time", traceback="", traceback_ansi="")
    letters = e.seed % 2 == 0
    return EvalSample(
        id=f"item {j}",
        epoch=r + 1,
        input=f"{task.name}: what is {j}?",
        target=str(j),
        metadata={} if task.clusters is None else {"passage": f"p{task.clusters[j]}"},
        scores=None
        if failed
        else {name: Score(value=_graded(name, v, letters=letters)) for name, v in values.items()},
        error=error,
    )


def _graded(name: str, value: float, *, letters: bool) -> Any:
    """Return a score as scorers give it: right answers as letters, in half of the evaluations."""
    if math.isnan(value):
        return math.nan
    return ("C" if value else "I") if letters and name == "right" else number(value)


def _inspect_scores(e: Evaluation, i: int, task: Task, scale: Scale) -> list[Any]:
    from inspect_ai.log import EvalMetric, EvalScore

    scores = e.of(task, scale)[i]
    there = [row for row in scores if not np.isnan(row).all()]
    average = "accuracy" if scale.name == "right" else "mean"
    options = {} if task.clusters is None else {"cluster": "passage"}

    def score(reducer: str | None, metrics: dict[str, Any]) -> Any:
        return EvalScore(
            name=scale.name,
            scorer=scale.name,
            reducer=reducer,
            scored_samples=len(there),
            unscored_samples=len(scores) - len(there),
            metrics=metrics,
        )

    value = e.value(i, task, scale)
    headline = EvalMetric(name=average, value=math.nan if value is None else value)
    error = std_error(scores)
    spread = EvalMetric(
        name="stderr", value=error if isinstance(error, float) else 0.0, params=options
    )
    metrics = {average: headline, "stderr": spread}
    if e.by_cluster and task.clusters is not None and scale is task.scales[0]:
        metrics |= {name: _of_cluster(name, v) for name, v in by_cluster(e, i, task).items()}
    found = [score("mean" if e.n_epochs > 1 else None, metrics)]
    if scale is task.scales[0]:
        found += [
            score(name, {"mean": EvalMetric(name="mean", value=_mean(e.reduced(i, task, name)))})
            for name in e.reducers
        ]
    return found


def _mean(scores: Scores) -> float:
    return mean_of_items(scores[:, None]) or 0.0


def by_cluster(e: Evaluation, i: int, task: Task) -> dict[str, float]:
    """Return the mean of the items of each cluster, under its name."""
    assert task.clusters is not None
    scores, of = e.of(task, task.scales[0])[i], np.array(task.clusters)
    found = {f"p{k}": mean_of_items(scores[of == k]) for k in sorted(set(task.clusters))}
    return {name: value for name, value in found.items() if value is not None}


def _of_cluster(name: str, value: float) -> Any:
    from inspect_ai.log import EvalMetric

    inner = {"type": "metric", "name": "mean", "params": {}}
    params = {"group_key": "passage", "metric": inner}
    return EvalMetric(name=name, group="grouped", value=value, params=params)


# HELM --------------------------------------------------------------------------------------------


def write_helm(e: Evaluation, folder: Path) -> None:
    """Write a run folder for each model and task; trials are epochs."""
    for i, model in enumerate(e.models):
        for k, task in enumerate(e.tasks):
            _helm_run(e, i, model, task, folder / f"run_{i}_{k}")


def _helm_run(e: Evaluation, i: int, model: str, task: Task, folder: Path) -> None:
    folder.mkdir(parents=True)
    stats = [
        _stat(s, [float(np.nanmean(trial)) for trial in e.of(task, s)[i].T
                  if not np.isnan(trial).all()])
        for s in task.scales
    ]  # fmt: skip
    instances = [
        {
            "instance_id": f"id{j}",
            "train_trial_index": r,
            "stats": [
                _stat(s, [] if math.isnan(v) else [v])
                for s in task.scales
                for v in [float(e.of(task, s)[i, j, r])]
            ],
        }
        for r in range(e.n_epochs)
        for j in range(task.n_items)
    ]
    states = [
        {
            "instance": {"id": f"id{j}", "input": {"text": f"{task.name}: {j}"}, "references": []},
            "train_trial_index": 0,
            "request": {"model": model, "prompt": f"{task.name}: {j}"},
        }
        for j in range(task.n_items)
    ]
    spec = {"model": model, "max_train_instances": 5}
    for name, content in (
        ("per_instance_stats.json", instances),
        ("stats.json", stats),
        ("run_spec.json", {"name": task.name, "adapter_spec": spec}),
        ("scenario_state.json", {"adapter_spec": spec, "request_states": states}),
    ):
        (folder / name).write_text(json.dumps(content, indent=2))


def _stat(scale: Scale, values: list[float]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": {"name": scale.name, "split": "test"},
        "count": len(values),
        "sum": float(np.sum(values)),
        "sum_squared": float(np.sum(np.square(values))),
    }
    if values:
        found |= {"mean": float(np.mean(values)), "min": min(values), "max": max(values)}
    return found


# lighteval ---------------------------------------------------------------------------------------

_STAMP = "2026-11-21T07-09-{second:02d}.890123"


def write_lighteval(e: Evaluation, folder: Path) -> None:
    """Write results and details of each model, in folders as lighteval lays them out."""
    for i, model in enumerate(e.models):
        stamp = _STAMP.format(second=i)
        results, details = folder / "results" / f"m{i}", folder / "details" / f"m{i}" / stamp
        for place in (results, details):
            place.mkdir(parents=True)
        (results / f"results_{stamp}.json").write_text(json.dumps(_lighteval_results(e, i, model)))
        for task in e.tasks:
            table = _lighteval_details(e, i, task)
            pq.write_table(table, details / f"details_custom|{task.name}|0_{stamp}.parquet")


def _lighteval_results(e: Evaluation, i: int, model: str) -> dict[str, Any]:
    values: dict[str, dict[str, Any]] = {}
    for task in e.tasks:
        own = values[f"custom|{task.name}|0"] = {}
        for scale in task.scales:
            value, error = e.value(i, task, scale), std_error(e.of(task, scale)[i])
            own[scale.name] = math.nan if value is None else value
            own[f"{scale.name}_stderr"] = math.nan if isinstance(error, str) else error
    configs = {
        f"custom|{task.name}": {
            "metric": [
                {"metric_name": s.name, "higher_is_better": s.higher_is_better,
                 "corpus_level_fn": "mean"}
                for s in task.scales
            ],
            "original_num_docs": task.n_whole,
            "effective_num_docs": task.n_items,
        }
        for task in e.tasks
    }  # fmt: skip
    return {
        "config_general": {"lighteval_sha": "203045a8", "model_name": model},
        "results": values,
        "versions": dict.fromkeys(values, 1),
        "config_tasks": configs,
    }


def _lighteval_details(e: Evaluation, i: int, task: Task) -> pa.Table:
    columns = {
        s.name: [None if math.isnan(v) else v for v in e.of(task, s)[i, :, 0].tolist()]
        for s in task.scales
    }
    rows = [{name: column[j] for name, column in columns.items()} for j in range(task.n_items)]
    docs = [{"query": f"{task.name}: what is {j}?", "choices": ["a"]} for j in range(task.n_items)]
    kept = task.n_items - task.n_cut
    kind = pa.struct([(s.name, pa.float64()) for s in task.scales])
    return pa.table({"__doc__": pa.array(docs[:kept]), "__metric__": pa.array(rows[:kept], kind)})


def _plain_file(name: str) -> bool:
    return not {*name} & {*'/\\:|"<>*?,='}


def _one_epoch(e: Evaluation) -> bool:
    return e.n_epochs == 1


LOGS: Mapping[str, Rendering] = {
    "lm-eval": Rendering(
        write_lm_eval,
        lambda e: _one_epoch(e) and all("/" not in task.name for task in e.tasks),
        metric="{},none".format,
    ),
    "Inspect": Rendering(write_inspect, knows_direction=False),
    "Inspect .eval": Rendering(partial(write_inspect, form="eval"), knows_direction=False),
    "HELM": Rendering(
        write_helm,
        lambda e: not any(task.n_cut or ":" in task.name for task in e.tasks),
        knows_clusters=False,
        knows_direction=False,
    ),
    "lighteval": Rendering(
        write_lighteval,
        lambda e: _one_epoch(e) and all(_plain_file(task.name) for task in e.tasks),
        task="custom|{}|0".format,
        knows_clusters=False,
    ),
}

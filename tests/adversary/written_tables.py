"""An `Evaluation` as tables, arrays and records: what people make of results without a harness.

CSV and JSON lines, a DataFrame, a NumPy array, and the aggregate and instance files of Every Eval
Ever, which are checked against that project's own schemas.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from evaluations import Evaluation, Scale, Task
from written_logs import Rendering

SCHEMAS = Path(__file__).parents[2] / "fixtures" / "schemas" / "every_eval_ever"


_HOME = "data/tasks/makers/models"
"""Where the public database would keep the records."""


def rows_of(e: Evaluation, *, with_scale: bool = False) -> Iterator[dict[str, Any]]:
    """Yield one row for each answer and metric.

    With the scale, each row also says which way is up and the lowest and highest score.
    """
    clustered = all(task.clusters is not None for task in e.tasks)
    for i, model in enumerate(e.models):
        for task in e.tasks:
            for scale in task.scales:
                scores = e.of(task, scale)[i]
                for j in range(task.n_items):
                    for r in range(e.n_epochs):
                        value = float(scores[j, r])
                        row: dict[str, Any] = {
                            "model": model, "task": task.name, "metric": scale.name,
                            "item": f"item {j}", "epoch": r + 1,
                            "score": None if math.isnan(value) else value,
                        }  # fmt: skip
                        if clustered and task.clusters is not None:
                            row["cluster"] = f"p{task.clusters[j]}"
                        if with_scale:
                            row |= scale_columns(scale)
                        yield row


def scale_columns(scale: Scale) -> dict[str, Any]:
    """Return a scale as columns of a table."""
    low, high = scale.bounds or (None, None)
    return {"higher_is_better": scale.higher_is_better, "min_score": low, "max_score": high}


def frame_of(e: Evaluation, *, with_scale: bool = False) -> Any:
    """Return the rows as a DataFrame."""
    import pandas as pd

    return pd.DataFrame(list(rows_of(e, with_scale=with_scale)))


def write_csv(e: Evaluation, folder: Path) -> None:
    """Write the rows as CSV."""
    frame_of(e).to_csv(folder / "scores.csv", index=False)


def write_lines(e: Evaluation, folder: Path) -> None:
    """Write the rows as JSON lines, with their scale."""
    lines = [json.dumps(row) + "\n" for row in rows_of(e, with_scale=True)]
    (folder / "scores.jsonl").write_text("".join(lines))


def measure_of(scale: Scale) -> Any:
    """Return what is known of a scale, in the package's words."""
    import evalstats_plugin as es

    return es.Measure(
        metric=scale.name,
        scale=es.Scale(*scale.bounds) if scale.bounds else None,
        higher_is_better=scale.higher_is_better,
    )


def matrix_of(e: Evaluation, task: Task, scale: Scale, *, with_scale: bool = False) -> Any:
    """Return the scores of one task by one metric as a matrix of an array.

    With the scale, it is told the bounds and the direction.
    """
    import evalstats_plugin as es

    return es.ResponseMatrix.from_array(
        e.of(task, scale),
        models=e.models,
        items=[f"item {j}" for j in range(task.n_items)],
        tasks=task.name,
        metric=scale.name,
        measure=measure_of(scale) if with_scale else None,
        clusters=None if task.clusters is None else [f"p{k}" for k in task.clusters],
    )


# Every Eval Ever ---------------------------------------------------------------------------------


def write_records(e: Evaluation, folder: Path) -> None:
    """Write an aggregate file with its instances for each model and task."""
    for i, model in enumerate(e.models):
        for k, task in enumerate(e.tasks):
            name = f"{i:08x}-0000-4000-8000-{k:012x}"
            lines = "".join(json.dumps(line) + "\n" for line in _instances(e, i, task, name))
            aggregate = _aggregate(e, i, model, task, name, lines)
            validator("eval").validate(aggregate)
            home = folder / _HOME
            home.mkdir(parents=True, exist_ok=True)
            (home / f"{name}.json").write_text(json.dumps(aggregate))
            (home / f"{name}_samples.jsonl").write_text(lines)


@cache
def validator(kind: str) -> Any:
    """Return the validator of aggregate files (``"eval"``) or of instances."""
    from jsonschema import Draft7Validator

    (path,) = SCHEMAS.glob(f"{kind}*.schema.json")
    return Draft7Validator(json.loads(path.read_text()))


def _aggregate(
    e: Evaluation, i: int, model: str, task: Task, name: str, lines: str
) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for scale in task.scales:
        config: dict[str, Any] = {
            "metric_name": scale.name, "lower_is_better": not scale.higher_is_better,
        }  # fmt: skip
        if scale.bounds is not None:
            low, high = map(float, scale.bounds)
            config |= {"score_type": "continuous", "min_score": low, "max_score": high}
        results.append(
            {
                "evaluation_result_id": f"{task.name}::{scale.name}",
                "evaluation_name": task.name,
                "source_data": {"dataset_name": task.name, "source_type": "other"},
                "metric_config": config,
                "score_details": {"score": e.value(i, task, scale)},
            }
        )
    return {
        "schema_version": "0.3.0",
        "evaluation_id": name,
        "retrieved_timestamp": "1795244950",
        "source_metadata": {
            "source_name": "by hand", "source_type": "evaluation_run",
            "source_organization_name": "unknown", "evaluator_relationship": "other",
        },
        "eval_library": {"name": "by hand", "version": "1"},
        "model_info": {
            "name": model, "id": model,
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "evaluation_results": results,
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": f"{_HOME}/{name}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": sha256(lines.encode()).hexdigest(),
            "total_rows": lines.count("\n"),
        },
    }  # fmt: skip


def _instances(e: Evaluation, i: int, task: Task, name: str) -> Iterator[dict[str, Any]]:
    for scale in task.scales:
        scores = e.of(task, scale)[i]
        for j in range(task.n_items):
            for r in range(e.n_epochs):
                value = float(scores[j, r])
                if math.isnan(value):
                    continue
                metadata = {} if task.clusters is None else {"cluster": f"p{task.clusters[j]}"}
                if e.n_epochs > 1:
                    metadata["epoch"] = str(r + 1)
                yield {
                    "schema_version": "0.3.0",
                    "evaluation_id": name,
                    "model_id": e.models[i],
                    "evaluation_name": task.name,
                    "evaluation_result_id": f"{task.name}::{scale.name}",
                    "sample_id": f"item {j}",
                    "sample_hash": None,
                    "interaction_type": "single_turn",
                    "input": {"raw": f"{task.name}: what is {j}?", "reference": []},
                    "output": {"raw": []},
                    "answer_attribution": [],
                    "evaluation": {"score": value, "is_correct": value == scale.highest},
                    "metadata": metadata or None,
                }


def _all_alike(e: Evaluation) -> bool:
    """Whether all tasks have clusters, or none: a column is there or not."""
    return len({task.clusters is None for task in e.tasks}) == 1


TABLES: Mapping[str, Rendering] = {
    "CSV": Rendering(write_csv, _all_alike, knows_direction=False, logs_values=False),
    "JSON lines": Rendering(write_lines, _all_alike, logs_values=False, says_scale=True),
    "Every Eval Ever": Rendering(
        write_records, lambda e: not any(t.n_cut for t in e.tasks), says_scale=True
    ),
}

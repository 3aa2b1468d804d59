"""Export responses of any harness as aggregate and instance files of the shared schema."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from evalstats_plugin.adapters.every_eval_ever.layout import EXTRA, SAMPLES, WRITTEN
from evalstats_plugin.adapters.every_eval_ever.reader import CLUSTER, EPOCH, SCORE, WEIGHT
from evalstats_plugin.data.responses import TABULAR, Responses, metadata_of
from evalstats_plugin.data.runs import ResponseSet, one_of_each
from evalstats_plugin.errors import SelectionError, WriteError, few, no_such
from evalstats_plugin.runtime.writing import check_free, check_inside, new_folder, write_bytes

Relationship = Literal["first_party", "third_party", "collaborative", "other"]
_UNKNOWN = "unknown"

_NOW = "SOURCE_DATE_EPOCH"
"""Environment variable with the time to write, for reproducible files."""

_NOT_PORTABLE = re.compile(r'[<>:"/\\|?*\x00-\x1f]+')
_LM_EVAL_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)-(\d\d)-(\d\d)")
_LABEL = re.compile(r" \(.*\)$")


def write_folder(
    responses: ResponseSet,
    output: Path,
    *,
    organization: str = _UNKNOWN,
    relationship: Relationship = "other",
) -> tuple[list[Path], list[str]]:
    """Write one aggregate file for each model and task, with its instances beside it.

    Files have the paths and names of the public database, under ``output/data``; writing the same
    responses again replaces them.

    Parameters
    ----------
    organization
        The organization that made the evaluation.
    relationship
        The evaluator's relationship to the model's developer: first_party, third_party,
        collaborative or other.

    Returns
    -------
    The aggregate files, and notes on what could not be written.

    Raises
    ------
    SelectionError
        There is no such relationship.
    WriteError
        No response has a value, or a file cannot be written.
    """
    relationships = get_args(Relationship)
    if relationship not in relationships:
        raise SelectionError(
            no_such("relationship", relationship, relationships, ", ".join(relationships))
        )
    every = one_of_each(responses.responses)
    held = [r for r in every if _score(r) is not None]
    if not held:
        msg = f"nothing to write to {output}: none of the {len(every)} responses has a finite value"
        raise WriteError(msg)
    by_file: dict[tuple[str, str], list[Responses]] = {}
    for r in held:
        by_file.setdefault((r.model, r.task), []).append(r)
    about = {"source_organization_name": organization, "evaluator_relationship": relationship}
    places: list[Path] = []
    for first, *_ in by_file.values():
        developer, _, name = model_id_of(first).rpartition("/")
        parts = _portable(first.task), _portable(developer or _UNKNOWN), _portable(name)
        # A UUID of version 4, as the database requires, that depends only on the id.
        digest = hashlib.sha256(_evaluation_id(first).encode()).digest()
        place = Path("data", *parts, f"{uuid.UUID(bytes=digest[:16], version=4)}.json")
        check_inside(output / place, output)
        check_free(output / place)
        places.append(place)
    with new_folder(output) as folder:
        for group, place in zip(by_file.values(), places, strict=True):
            _write(group, folder / place, place, about)
    return [output / place for place in places], _notes(responses, every, held)


def _evaluation_id(first: Responses) -> str:
    return "/".join((first.task, first.model, _iso(first.source.when) or _UNKNOWN))


def _notes(
    responses: ResponseSet, every: Sequence[Responses], held: Sequence[Responses]
) -> list[str]:
    notes: list[str] = []
    if more := len(responses) - len(every):
        notes.append(f"{more} more responses of the same model, task and metric: the latest here")
    kept = {id(r) for r in held}
    if without := [f"{r.model}, {r.task} {r.metric}" for r in every if id(r) not in kept]:
        notes.append(f"without a finite value, which the schema asks for: {few(without)}")
    if paired := [f"{r.task} {r.metric}" for r in held if r.pairs is not None]:
        shown = few(list(dict.fromkeys(paired)))
        notes.append(f"of labels and texts of items only the value they make is held: {shown}")
    return notes


def _write(group: Sequence[Responses], path: Path, place: Path, about: dict[str, str]) -> None:
    """Write the instances of a model on a task, then the aggregate file with their checksum."""
    first = group[0]
    model_id, evaluation_id = model_id_of(first), _evaluation_id(first)
    results = [_result(r) for r in group]
    lines = b"".join(
        instance_lines(r, evaluation_id, model_id, result["evaluation_result_id"])
        for r, result in zip(group, results, strict=True)
    )
    aggregate = _aggregate(first, evaluation_id, about) | {"evaluation_results": results}
    if lines:
        beside = f"{place.stem}{SAMPLES}"
        aggregate["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": (place.parent / beside).as_posix(),
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(lines).hexdigest(),
            "total_rows": lines.count(b"\n"),
        }
        write_bytes(path.with_name(beside), lines)
    text = json.dumps(aggregate, indent=4, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, text.encode())


def _aggregate(r: Responses, evaluation_id: str, about: dict[str, str]) -> dict[str, Any]:
    """Return the fields that all results of a model on a task share."""
    when = _iso(r.source.when)
    # A table has no harness.
    harness = _UNKNOWN if r.source.harness == TABULAR else r.source.harness
    version = None if r.source.harness == TABULAR else r.source.version
    model_id = model_id_of(r)
    developer = model_id.rpartition("/")[0]
    settings = {k: v for k, v in r.settings if not k.startswith("task.")}
    return {
        "schema_version": WRITTEN,
        "evaluation_id": evaluation_id,
        **({"evaluation_timestamp": when} if when else {}),
        "retrieved_timestamp": os.environ.get(_NOW, str(int(time.time()))),
        "source_metadata": {"source_name": harness, "source_type": "evaluation_run", **about},
        "eval_library": {"name": harness, "version": version or _UNKNOWN},
        "model_info": {
            "name": r.model,
            "id": model_id,
            **({"developer": developer} if developer else {}),
            "additional_details": {
                **settings,
                "deployment_type": _UNKNOWN,
                "model_availability": _UNKNOWN,
            },
        },
    }


def model_id_of(r: Responses) -> str:
    """Return a model's own name, without the settings in parentheses that labels add."""
    return (_LABEL.sub("", r.model) if r.settings else r.model).strip("/") or r.model


def _result(r: Responses) -> dict[str, Any]:
    # What the schema lacks, as JSON, because details must be texts.
    n_items = len(r.item_ids) if r.scores.size else 0
    extra = {"model": r.model, "n_items": n_items, **metadata_of(r)}
    config: dict[str, Any] = {
        "metric_name": r.metric,
        "lower_is_better": r.higher_is_better is False,
        "additional_details": {EXTRA: json.dumps(extra, ensure_ascii=False)},
    }
    if r.bounds is not None and all(map(math.isfinite, r.bounds)):
        config |= {
            "score_type": "continuous",
            "min_score": float(r.bounds[0]),
            "max_score": float(r.bounds[1]),
        }
    details: dict[str, Any] = {"score": _score(r)}
    uncertainty: dict[str, Any] = {}
    if r.logged_std_error is not None and math.isfinite(r.logged_std_error):
        harness = r.source.harness
        uncertainty["standard_error"] = {
            "value": r.logged_std_error,
            "method": f"as {harness} logged",
        }
    if r.logged_n is not None:
        uncertainty["num_samples"] = int(r.logged_n)
    if uncertainty:
        details["uncertainty"] = uncertainty
    return {
        "evaluation_result_id": f"{r.task}::{r.metric}",
        "evaluation_name": r.task,
        "source_data": {"dataset_name": r.task, "source_type": "other"},
        "metric_config": config,
        "score_details": details,
    }


def _score(r: Responses) -> float | None:
    """Return the logged value, else the mean over items; None if neither is a finite number."""
    if r.logged is not None:
        return r.logged if math.isfinite(r.logged) else None
    means = r.item_means if r.scores.size and r.aggregation == "mean" else r.scores.ravel()[:0]
    observed = means[~(means != means)]  # noqa: PLR0124 - NaN
    mean = float(observed.mean()) if len(observed) else math.nan
    return mean if math.isfinite(mean) else None


def instance_lines(r: Responses, evaluation_id: str, model_id: str, result_id: str) -> bytes:
    """Return the instances of one result as lines of JSON, one per item and epoch.

    Responses have no texts, so inputs and outputs are empty. Epochs without a score are left out;
    an item without any score is written once, marked as an error.
    """
    shared = {
        "schema_version": WRITTEN,
        "evaluation_id": evaluation_id,
        "model_id": model_id,
        "evaluation_name": r.task,
        "evaluation_result_id": result_id,
    }
    best = (r.bounds or (0.0, 1.0))[r.higher_is_better is not False]
    written = ~np.isnan(r.scores)
    if r.scores.shape[1]:
        written[~written.any(axis=1), 0] = True
    items, epochs = np.nonzero(written)
    scores = r.scores[items, epochs]
    hashes = None if r.item_hashes is None else r.item_hashes.astype(str)
    clusters = None if r.clusters is None else r.clusters.astype(str)
    lines: list[str] = []
    for i, epoch, score in zip(items.tolist(), epochs.tolist(), scores.tolist(), strict=True):
        metadata: dict[str, str] = {}
        if r.scores.shape[1] > 1:
            metadata[EPOCH] = str(epoch + 1)
        if clusters is not None:
            metadata[CLUSTER] = str(clusters[i])
        if r.weights is not None:
            metadata[WEIGHT] = repr(float(r.weights[i]))
        record: dict[str, Any] = {
            **shared,
            "sample_id": str(r.item_ids[i]),
            "sample_hash": None if hashes is None else str(hashes[i]),
            "interaction_type": "single_turn",
            "input": {"raw": "", "reference": []},
            "output": {"raw": []},
            "answer_attribution": [],
            "evaluation": {"score": score, "is_correct": score == best},
        }
        if not math.isfinite(score):
            metadata[SCORE] = repr(score)
            record["evaluation"] = {"score": 0.0, "is_correct": False}
            record["error"] = f"no finite score ({score!r})"
        record["metadata"] = metadata or None
        lines.append(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
    return "".join(lines).encode()


def _portable(name: str) -> str:
    """Return a folder name that is valid on every file system."""
    tidy = _NOT_PORTABLE.sub("_", name).rstrip(". ")
    return tidy if tidy and tidy.casefold() != "data" else f"{tidy}_"


def _iso(when: str) -> str:
    """Return a time in ISO format; lm-eval writes hyphens for colons in file names."""
    return _LM_EVAL_TIME.sub(r"\1:\2:\3", when)

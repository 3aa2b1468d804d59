"""Files of instances, streamed, and which result of the aggregate file they belong to.

`read_instances` keeps of each line the ids, the score and the metadata; `match` assigns instances
to results by id, name or score.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin.adapters.every_eval_ever.layout import Json, check_version, is_number, section
from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import parse_line

# Keys of an instance's metadata.
EPOCH = "epoch"
CLUSTER = "cluster"
WEIGHT = "weight"
SCORE = "score"
"""Key of a score that is no number in JSON: nan, inf or -inf."""

PERCENT = 100.0
_BUFFER = 1 << 20
_NO_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(slots=True)
class Column:
    """The instances of one result, in the order of the file."""

    ids: list[str] = field(default_factory=list[str])
    scores: list[float] = field(default_factory=list[float])
    hashes: list[str | None] = field(default_factory=list[str | None])
    prompts: list[bytes | None] = field(default_factory=list[bytes | None])
    """Fingerprint of what the model was asked, where the file holds it."""
    metadata: list[Json] = field(default_factory=list[Json])
    errors: int = 0

    def texts(self, name: str) -> list[str | None]:
        """Return one metadata field of each instance."""
        return [None if m.get(name) is None else str(m[name]) for m in self.metadata]


@dataclass(frozen=True, slots=True)
class Key:
    """The result that an instance names."""

    result_id: str | None
    name: str


def read_instances(path: Path, aggregate: Json) -> tuple[dict[Key, Column], bool]:
    """Read a file of instances.

    Returns
    -------
    The instances of each result, and whether they are not those of the checksum in the aggregate
    file.

    Raises
    ------
    LogError
        A line is cut off, no JSON or no instance; it is of another model or evaluation than the
        aggregate file; or the number of lines differs from that in the aggregate file.
    """
    found: dict[Key, Column] = {}
    lines, digest = 0, hashlib.sha256()
    for number, record in _records(path, digest.update):
        where = f"{path}: line {number}"
        lines += 1
        if number == 1:
            check_version(record.get("schema_version"), where)
            _check_same(record, aggregate, where)
        _add(found, record, where)
    about = section(aggregate, "detailed_evaluation_results")
    expected = about.get("total_rows")
    if isinstance(expected, int) and expected != lines:
        msg = (
            f"{path} has {lines} instances, but its aggregate file says {expected}: it is cut off "
            "or of another run"
        )
        raise LogError(msg)
    if not lines:
        raise LogError(f"{path} is empty. Write one instance a line, or leave the file out.")
    checked = about.get("hash_algorithm") == "sha256" and bool(about.get("checksum"))
    return found, checked and digest.hexdigest() != about["checksum"]


def _records(
    path: Path, on_line: Callable[[bytes], object]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open("rb", buffering=_BUFFER) as file:
        for number, line in enumerate(file, 1):
            on_line(line)
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            record = parse_line(line, where)
            if "sample_id" not in record:
                raise LogError(f"{where} has no sample_id, so it is no instance of Every Eval Ever")
            yield number, record


def _check_same(record: Json, aggregate: Json, where: str) -> None:
    there = aggregate["evaluation_id"], aggregate["model_info"]["id"]
    here = record.get("evaluation_id"), record.get("model_id")
    for name, mine, theirs in zip(("evaluation_id", "model_id"), here, there, strict=True):
        if mine != theirs and check_version(aggregate["schema_version"], where) >= (0, 3):
            msg = (
                f"{where} has {name} {mine!r}, but its aggregate file {theirs!r}: they are not of "
                "one run"
            )
            raise LogError(msg)


def _add(found: dict[Key, Column], record: Json, where: str) -> None:
    result_id = record.get("evaluation_result_id")
    key = Key(None if result_id is None else str(result_id), str(record.get("evaluation_name")))
    column = found.setdefault(key, Column())
    metadata = section(record, "metadata")
    score = section(record, "evaluation").get("score")
    if score is None or not is_number(score):
        raise LogError(f"{where} has the score {score!r}. Write a number as evaluation.score.")
    # JSON has no NaN: the metadata marks scores that replace one.
    number = _NO_NUMBERS.get(str(metadata.get(SCORE)), float(score))
    column.ids.append(str(record["sample_id"]))
    column.scores.append(number)
    given = record.get("sample_hash")
    column.hashes.append(str(given) if given else None)
    asked = section(record, "input")
    text: list[Any] = [asked.get("formatted") or asked.get("raw"), asked.get("choices") or []]
    column.prompts.append(_hashed(text) if text[0] else None)
    column.metadata.append(metadata)
    column.errors += record.get("error") is not None and not math.isnan(number)


def _hashed(text: object) -> bytes:
    return hashlib.sha256(json.dumps(text).encode()).hexdigest()[:16].encode()


def match(results: Sequence[Json], found: Mapping[Key, Column]) -> tuple[dict[int, Key], list[Key]]:
    """Return the instances of each result, by its index, and the instances of no result."""
    matched: dict[int, Key] = {}
    left: list[Key] = []
    for key, column in found.items():
        free = [i for i in range(len(results)) if i not in matched]
        fits = _candidates(results, key, free, alone=len(found) == 1)
        if len(fits) > 1:
            mean = mean_of(column)
            scores = {i: float(results[i]["score_details"]["score"]) for i in fits}
            fits = [i for i in fits if scale_of(scores[i], mean) is not None][:1]
        if fits:
            matched[fits[0]] = key
        else:
            left.append(key)
    return matched, left


def _candidates(
    results: Sequence[Json], key: Key, free: Sequence[int], *, alone: bool
) -> list[int]:
    if key.result_id is not None:
        by_id = [i for i in free if results[i].get("evaluation_result_id") == key.result_id]
        if by_id:
            return by_id
    named = [i for i in free if results[i].get("evaluation_name") == key.name]
    # Converters of single evaluations may give instances and results different names.
    return named or (list(free) if alone else [])


def mean_of(column: Column) -> float:
    """Return the mean over items of the means over their epochs; NaN without a score."""
    scores = np.asarray(column.scores)
    items = np.unique(np.asarray(column.ids), return_inverse=True)[1]
    there = ~np.isnan(scores)
    counts = np.bincount(items[there], minlength=int(items.max()) + 1)
    sums = np.bincount(items[there], weights=scores[there], minlength=len(counts))
    means = sums[counts > 0] / counts[counts > 0]
    return float(means.mean()) if len(means) else math.nan


def scale_of(score: float, mean: float) -> float | None:
    """Return the factor between an aggregate score and the mean of its items' scores.

    1, or 100 if the score is a percentage; None if it is neither.
    """
    for scale in (1.0, PERCENT):
        if math.isclose(score, mean * scale, rel_tol=1e-6, abs_tol=1e-6):
            return scale
    return None

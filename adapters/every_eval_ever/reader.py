"""Read `Responses` from an aggregate file and its instances: one for each result.

`read_instances` streams a file of instances, and keeps of each line the ids, the score and the
metadata; `match` assigns instances to results by id, name or score.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.every_eval_ever.layout import (
    HARNESS,
    Json,
    aggregate_beside,
    block_of,
    check_version,
    extra_of,
    instances_of,
    is_instances,
    is_number,
    load_aggregate,
    logged_results,
    metric_of,
    section,
    settings_of,
)
from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.responses import (
    Provenance,
    Responses,
    Selection,
    Source,
    as_clusters,
    as_item_ids,
    first_rows,
    metadata_fields,
    number_epochs,
    repeated_rows,
    score_matrix,
    unique_in_order,
)
from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import LogFile, parse_line, reporting_damage
from evalstats_plugin.stats.arrays import IntArray

# Keys of an instance's metadata.
EPOCH = "epoch"
CLUSTER = "cluster"
WEIGHT = "weight"
SCORE = "score"
"""Key of a score that is no number in JSON: nan, inf or -inf."""

_UNKNOWN = -1
"""Unknown level of a metric with levels, by the schema."""

PERCENT = 100.0
_BUFFER = 1 << 20
_NO_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

_NO_INSTANCES = "aggregate only: no file of instances beside it, so no scores of items"
_OF_NO_RESULT = "instances that fit no one result of the aggregate file"
_UNMATCHED = "no instances of this result"


def read_log(log: LogFile, selection: Selection) -> list[Responses] | None:
    """Read an aggregate file, or the one of a file of instances; None for files of others."""
    path = log.path
    if path.suffix == ".jsonl" and is_instances(log):
        beside = aggregate_beside(path)
        if beside is None:
            raise LogError(
                f"{path} has no aggregate file beside it, which says what was measured; put the "
                f"{path.stem.removesuffix('_samples')}.json of the same run back"
            )
        log = LogFile(beside)
    aggregate = load_aggregate(log)
    if aggregate is None:
        return None
    with reporting_damage(log.path):
        return _Log(aggregate, log.path, selection).responses()


Fields = dict[str, Any]
"""Fields of `Responses`."""


class _Log:
    """One aggregate file and its instances."""

    def __init__(self, aggregate: Json, path: Path, selection: Selection) -> None:
        self.json = aggregate
        self.path = path
        self.selection = selection
        self.results = logged_results(aggregate)
        blocks = [block_of(result) for result in aggregate["evaluation_results"]]
        is_annotated: bool | None = any(block is not None for block in blocks)
        if not is_annotated and instances_of(path, aggregate) is None:
            # There is nothing to make an annotation from.
            is_annotated = None
        self.source = Source(
            path=path,
            harness=HARNESS,
            version=str(aggregate["schema_version"]),
            when=_when(
                aggregate.get("evaluation_timestamp") or aggregate.get("retrieved_timestamp")
            ),
            is_annotated=is_annotated,
        )

    def responses(self) -> list[Responses]:
        bare = [*_with_unique_metrics([self._bare(r) for r in self.results], self.results)]
        wanted = [i for i, fields in enumerate(bare) if self._wants(fields)]
        if self.selection.header_only or not wanted:
            return [Responses(**bare[i]) for i in wanted]
        instances = instances_of(self.path, self.json)
        columns, altered = read_instances(instances, self.json) if instances else ({}, False)
        if instances and altered:
            note = f"{instances.name} does not have the checksum that {self.path.name} names"
            bare = [
                {
                    **fields,
                    "provenance": replace(fields["provenance"], is_altered=True),
                    "notes": (*fields["notes"], note),
                }
                for fields in bare
            ]
        matched, left = match(self.results, columns)
        if not columns:
            return [_without_items(bare[i], _NO_INSTANCES, self.results[i]) for i in wanted]
        made = [
            fill(bare[i], columns[matched[i]], self.json, self.results[i], self.selection)
            if i in matched
            else _without_items(bare[i], _UNMATCHED, self.results[i])
            for i in wanted
        ]
        for key in left:
            unmatched: Fields = {
                "model": str(self.json["model_info"]["id"]),
                "measure": Measure(task=key.name, metric="instances"),
                "source": self.source,
                "provenance": Provenance(),
                "notes": (_OF_NO_RESULT,),
            }
            if self._wants(unmatched):
                made.append(fill(unmatched, columns[key], self.json, {}, self.selection))
        return made

    def _wants(self, fields: Fields) -> bool:
        measure: Measure = fields["measure"]
        wanted = self.selection.wants_metric(measure.metric, measure.task)
        return self.selection.wants_task(measure.task) and wanted

    def _bare(self, result: Json) -> Fields:
        config = section(result, "metric_config")
        lower = config.get("lower_is_better")
        uncertainty = section(result, "score_details", "uncertainty")
        error = section(uncertainty, "standard_error").get("value")
        score, n = float(result["score_details"]["score"]), uncertainty.get("num_samples")
        extra = extra_of(result)
        is_unknown = config.get("has_unknown_level") and score == _UNKNOWN
        return {
            "model": extra["model"] if extra else str(self.json["model_info"]["id"]),
            "measure": Measure(
                task=str(result["evaluation_name"]),
                metric=metric_of(result),
                higher_is_better=not lower if isinstance(lower, bool) else None,
            ).on(_bounds(config), "logged"),
            "source": self.source,
            "provenance": Provenance(home=str(self.json["model_info"]["id"]).rpartition("/")[2]),
            "settings": settings_of(self.json, result),
            "logged": None if is_unknown or not math.isfinite(score) else score,
            "logged_std_error": float(error) if error is not None and is_number(error) else None,
            "logged_n": n if isinstance(n, int) else None,
            "notes": (),
        } | (metadata_fields(extra, self.source) if extra else {})


def _without_items(bare: Fields, note: str, result: Json) -> Responses:
    """Note that there are no items, unless we exported the result without items."""
    extra = extra_of(result)
    never = extra is not None and extra["n_items"] == 0
    noted: Fields = bare if never else {**bare, "notes": (*bare["notes"], note)}
    return Responses(**noted)


def _with_unique_metrics(bare: Sequence[Fields], results: Sequence[Json]) -> Iterator[Fields]:
    """Add the result's own id, or a number, to metrics of the same task and name."""
    keys = [(fields["measure"].task, fields["measure"].metric) for fields in bare]
    count = Counter(keys)
    seen: Counter[tuple[str, str]] = Counter()
    for fields, key, result in zip(bare, keys, results, strict=True):
        seen[key] += 1
        more = result.get("evaluation_result_id") or seen[key]
        named = replace(fields["measure"], metric=f"{key[1]} ({more})")
        yield {**fields, "measure": named} if count[key] > 1 else fields


def _bounds(config: Json) -> tuple[float, float] | None:
    low, high = config.get("min_score"), config.get("max_score")
    # "Infinity" is a text in the schema.
    if low is None or high is None or not (is_number(low) and is_number(high)):
        return None
    return (float(low), float(high)) if low < high else None


def _when(value: Any) -> str:
    """Return a time in ISO format; the schema allows seconds since 1970 too."""
    try:
        return datetime.fromtimestamp(float(value), UTC).isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return str(value or "")


def fill(
    bare: Fields, column: Column, aggregate: Json, result: Json, selection: Selection
) -> Responses:
    """Return responses with the scores of their instances.

    Raises
    ------
    LogError
        An item occurs twice in one epoch, or stands for different questions.
    """
    if section(result, "metric_config").get("has_unknown_level"):
        column = replace(column, scores=[math.nan if x == _UNKNOWN else x for x in column.scores])
    names, inverse = np.unique(np.asarray(column.ids, dtype=str), return_inverse=True)
    order, places = unique_in_order(inverse)
    epochs, notes = _epochs(column, places)
    twice = repeated_rows(places, epochs)
    if twice is not None:
        raise LogError(
            f"{bare['source'].path}: item {column.ids[twice[0]]!r} is there twice in one epoch "
            f"among the instances of {bare['measure'].task} ({twice[2]} too many). Two runs may "
            "have been appended to one file: keep the instances of one."
        )
    first = first_rows(places)
    asked = np.array([text or "" for text in column.hashes])
    before = asked[first][places]
    if (differ := (asked != before) & (asked != "") & (before != "")).any():
        item = column.ids[int(differ.argmax())]
        raise LogError(
            f"{bare['source'].path}: item {item!r} stands for different questions (sample_hash) "
            f"among the instances of {bare['measure'].task}. Give each a sample_id of its own."
        )
    clusters, about_clusters = _clusters(column, first, selection.cluster)
    foreign = extra_of(result) is None
    # In files of others it may be anything.
    texts = [column.metadata[k].get(WEIGHT) for k in map(int, first)]
    weights = None if foreign or None in texts else np.asarray(texts, dtype=np.float64)
    prompts = [column.prompts[k] for k in map(int, first)]
    # Without a number of instances in the aggregate file, that of its items is the only one.
    counted = section(aggregate, "detailed_evaluation_results").get("total_rows") is not None
    n_run = 0 if counted or epochs.any() else bare.get("logged_n") or 0
    whole = _compared(bare, column) if foreign else bare
    n_cut = max(n_run - len(first), 0) if foreign else 0
    measure: Measure = whole["measure"]
    return Responses(
        **{k: v for k, v in whole.items() if k not in ("measure", "provenance", "notes")},
        measure=replace(measure, n_cut=n_cut),
        item_ids=as_item_ids(names[order].tolist()),
        scores=score_matrix(places, epochs, np.asarray(column.scores, dtype=np.float64)),
        weights=weights,
        clusters=clusters,
        tags=_clusters(column, first, selection.by)[0] if selection.by else None,
        item_hashes=_hashes(column, first, section(aggregate, "eval_library") if foreign else None),
        provenance=replace(
            bare["provenance"],
            prompt_hashes=None if None in prompts else np.asarray(prompts),
        ),
        notes=(*bare["notes"], *notes, *about_clusters, *whole["notes"][len(bare["notes"]) :]),
    )


def _epochs(column: Column, places: IntArray) -> tuple[IntArray, tuple[str, ...]]:
    """Return each instance's epoch; the schema has no field for it, but our exports' metadata."""
    labelled = column.texts(EPOCH)
    if None not in labelled:
        labels = np.asarray(labelled)
        try:
            keys = labels.astype(np.float64)
        except ValueError:
            keys = labels
        return np.unique(keys, return_inverse=True)[1], ()
    epochs = number_epochs(places)
    notes = ("items that are there again count as further epochs",) if epochs.any() else ()
    return epochs, notes


def _clusters(
    column: Column, first: IntArray, field: str | None
) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
    labels = column.texts(field or CLUSTER)
    names = [labels[k] for k in map(int, first)]
    if field is None and None in names:
        return None, ()
    # The clusters in our exports are used as they are.
    return (np.asarray(names), ()) if field is None else as_clusters(names, field)


def _hashes(column: Column, first: IntArray, library: Json | None) -> NDArray[Any] | None:
    """Return the hash of each item's question, prefixed with the converter's name.

    Each converter computes hashes in its own way, so only hashes of one converter are comparable.
    """
    hashes = [column.hashes[k] for k in map(int, first)]
    if None in hashes:
        return None
    prefix = "" if library is None else f"every_eval_ever {library.get('name')}:"
    return np.asarray([prefix + str(text) for text in hashes])


def _compared(bare: Fields, column: Column) -> Fields:
    """Compare the aggregate score with the mean of the instances; convert percentages."""
    notes = [f"{column.errors} instances with an error: scores as logged"] * (column.errors > 0)
    mean, logged = mean_of(column), bare.get("logged")
    changed: dict[str, Any] = {}
    if logged is not None and not math.isnan(mean):
        scale = scale_of(logged, mean)
        if scale == PERCENT:
            error, measure = bare["logged_std_error"], bare["measure"]
            bounds = measure.bounds
            # The bounds may be those of the instances already.
            if bounds is not None and bounds[0] <= logged <= bounds[1]:
                bounds = bounds[0] / PERCENT, bounds[1] / PERCENT
            notes.append("the aggregate score is a percentage of what the instances give")
            changed = {
                "logged": logged / PERCENT,
                "logged_std_error": None if error is None else error / PERCENT,
                "measure": measure.on(bounds, measure.scale_from),
            }
        elif scale is None:
            notes.append(f"mismatch: {logged:.6g} was logged, the instances give {mean:.6g}")
    return {**bare, **changed, "notes": (*bare["notes"], *notes)}


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


class Key(NamedTuple):
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
    columns: dict[Key, Column] = {}
    lines, digest = 0, hashlib.sha256()
    with path.open("rb", buffering=_BUFFER) as file:
        for number, line in enumerate(file, 1):
            digest.update(line)
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            record = parse_line(line, where)
            if "sample_id" not in record:
                raise LogError(f"{where} has no sample_id, so it is no instance of Every Eval Ever")
            lines += 1
            if number == 1:
                check_version(record.get("schema_version"), where)
                _check_same(record, aggregate, where)
            _add(columns, record, where)
    about = section(aggregate, "detailed_evaluation_results")
    expected = about.get("total_rows")
    if isinstance(expected, int) and expected != lines:
        raise LogError(
            f"{path} has {lines} instances, but its aggregate file says {expected}: it is cut off "
            "or of another run"
        )
    if not lines:
        raise LogError(f"{path} is empty. Write one instance a line, or leave the file out.")
    checked = about.get("hash_algorithm") == "sha256" and bool(about.get("checksum"))
    return columns, checked and digest.hexdigest() != about["checksum"]


def _check_same(record: Json, aggregate: Json, where: str) -> None:
    names = ("evaluation_id", "model_id")
    expected_names = aggregate["evaluation_id"], aggregate["model_info"]["id"]
    for name, expected in zip(names, expected_names, strict=True):
        actual = record.get(name)
        if actual != expected and check_version(aggregate["schema_version"], where) >= (0, 3):
            raise LogError(
                f"{where} has {name} {actual!r}, but its aggregate file {expected!r}: they are not "
                "of one run"
            )


def _add(columns: dict[Key, Column], record: Json, where: str) -> None:
    result_id = record.get("evaluation_result_id")
    key = Key(None if result_id is None else str(result_id), str(record.get("evaluation_name")))
    column = columns.setdefault(key, Column())
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
    prompt = hashlib.sha256(json.dumps(text).encode()).hexdigest()[:16].encode()
    column.prompts.append(prompt if text[0] else None)
    column.metadata.append(metadata)
    column.errors += record.get("error") is not None and not math.isnan(number)


def match(
    results: Sequence[Json], columns: Mapping[Key, Column]
) -> tuple[dict[int, Key], list[Key]]:
    """Return the instances of each result, by its index, and the instances of no result."""
    matched: dict[int, Key] = {}
    left: list[Key] = []
    for key, column in columns.items():
        free = [i for i in range(len(results)) if i not in matched]
        by_id = [i for i in free if results[i].get("evaluation_result_id") == key.result_id]
        named = [i for i in free if results[i].get("evaluation_name") == key.name]
        fits = by_id if by_id and key.result_id is not None else named
        if not fits and len(columns) == 1:
            # Converters of single evaluations may give instances and results different names.
            fits = free
        if len(fits) > 1:
            mean = mean_of(column)
            scores = {i: float(results[i]["score_details"]["score"]) for i in fits}
            fits = [i for i in fits if scale_of(scores[i], mean) is not None]
        if fits:
            matched[fits[0]] = key
        else:
            left.append(key)
    return matched, left


def mean_of(column: Column) -> float:
    """Return the mean over items of the means over their epochs; NaN without a score."""
    scores = np.asarray(column.scores)
    items = np.unique(np.asarray(column.ids), return_inverse=True)[1]
    observed = ~np.isnan(scores)
    counts = np.bincount(items[observed])
    sums = np.bincount(items[observed], weights=scores[observed])
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

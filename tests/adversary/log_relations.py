"""Relations between logs: what one evaluation says through every harness, and what reading does.

Each writes the evaluation with `written_logs` and `written_tables`, into a folder of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluations import LARGEST, Evaluation, Scale, Task
from relations import Relation, by_scale, changed, close, every_other_call
from written_logs import LOGS, Rendering, by_cluster
from written_tables import TABLES, matrix_of, measure_of, validator

import evalstats_plugin as es
from evalstats_plugin.errors import EvalStatsError

RENDERINGS: Mapping[str, Rendering] = {**LOGS, **TABLES}
QUICK = tuple(name for name in RENDERINGS if name != "Inspect .eval")
"""Archives take ten times as long to write as their JSON, and hold the same."""

SMALL: Mapping[str, Any] = {"models": (1, 3), "tasks": (1, 2), "items": (1, LARGEST // 2)}

ALONE: Mapping[str, Any] = {
    **SMALL, "tasks": (1, 1), "metrics": 1, "groups": False, "cut": False, "odd_names": False,
}  # fmt: skip
"""Of one task and metric: what other tasks show of a metric is known of it in all of them."""

Key = tuple[str, str, str]


def printed(name: str) -> str:
    """Return a name as it may be printed: without marks that turn or hide what follows."""
    hidden = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    return "".join(c for c in name if unicodedata.category(c) not in hidden)


def written(e: Evaluation, folder: Path, *names: str) -> Iterator[tuple[str, Rendering, Path]]:
    """Write the evaluation in every form that holds it, and yield the folders."""
    for name in names or QUICK:
        rendering = RENDERINGS[name]
        if rendering.holds(e):
            place = folder / name.replace(" ", "_")
            place.mkdir()
            rendering.write(e, place)
            yield name, rendering, place


def rows_by_key(rows: Any) -> dict[Key, Any]:
    """Return rows by model, task and metric; two of one key are a fault."""
    found: dict[Key, Any] = {}
    for row in rows:
        key = (printed(row.model), printed(row.task), printed(row.metric))
        assert key not in found, f"two rows of {key}"
        found[key] = row
    return found


def cells(e: Evaluation) -> Iterator[tuple[int, Task, Scale]]:
    """Yield every model, task and metric."""
    for i in range(len(e.models)):
        for task in e.tasks:
            for scale in task.scales:
                yield i, task, scale


def key_of(e: Evaluation, r: Rendering, i: int, task: Task, scale: Scale) -> Key:
    """Return what our reader calls a model, task and metric in a rendering."""
    names = e.models[i], r.task(task.name), r.metric(scale.name)
    return printed(names[0]), printed(names[1]), printed(names[2])


# The same numbers --------------------------------------------------------------------------------


def every_adapter_gives_the_logged_values(e: Evaluation, folder: Path) -> None:
    """Estimates are the values that the harness logs, of as many items, whatever the harness.

    Of a log that lost items the value cannot be computed: then the row says how many are there.
    """
    for name, r, place in written(e, folder):
        rows = rows_by_key(es.intervals(es.read(place), rng=0))
        for i, task, scale in cells(e):
            row = rows.get(key_of(e, r, i, task, scale))
            assert row is not None, (name, key_of(e, r, i, task, scale), list(rows))
            logged = e.value(i, task, scale)
            if name == "HELM" and np.isnan(e.of(task, scale)[i]).any() and e.n_epochs > 1:
                # HELM's value is the mean of trials, ours of items: the row says so.
                assert close(row.estimate, logged), (name, row)
                assert close(row.logged, row.estimate) or row.notes, row
                continue
            if r.logs_values:
                assert close(row.logged, logged), (name, row)
            if task.n_cut and r.logs_values:
                assert close(row.estimate, logged) or row.notes, (name, row)
                continue
            assert close(row.estimate, logged), (name, row)
            there = int((~np.isnan(e.of(task, scale)[i])).any(axis=1).sum())
            assert row.n_items == there, (name, row)
        if name.startswith("Inspect"):
            _other_values(e, r, rows)
        if name == "lm-eval":
            _values_of_groups(e, r, rows)


def _other_values(e: Evaluation, r: Rendering, rows: Mapping[Key, Any]) -> None:
    """Values of other reducers, and of the items of each cluster, have rows of their own."""
    for i, task, scale in cells(e):
        if scale is not task.scales[0] or task.n_cut:
            continue
        model, of_task, metric = key_of(e, r, i, task, scale)
        for reducer in e.reducers:
            scores = e.reduced(i, task, reducer)
            row = rows[model, of_task, f"{metric}/{reducer}"]
            assert close(row.estimate, float(np.nanmean(scores))), row
        if e.by_cluster and task.clusters is not None:
            for cluster, value in by_cluster(e, i, task).items():
                row = rows[model, of_task, f"{metric}/{cluster}"]
                assert close(row.estimate, value), row


def _values_of_groups(e: Evaluation, r: Rendering, rows: Mapping[Key, Any]) -> None:
    """A group whose tasks are all there and have all their scores has the logged value."""
    for group in e.groups:
        leaves = e.leaves(group)
        for i, model in enumerate(e.models):
            for scale in leaves[0].scales:
                if any(task.n_cut or np.isnan(e.of(task, scale)[i]).any() for task in leaves):
                    continue
                row = rows[printed(model), group.name, r.metric(scale.name)]
                logged = e.of_group(i, group, scale)
                assert close(row.estimate, logged), row
                assert row.low is None or row.low <= row.estimate <= row.high, row


def every_adapter_gives_the_same_interval(e: Evaluation, folder: Path) -> None:
    """Where clusters and measures are known alike, so are the limits, to the last digits."""
    _same_limits(e, folder, [measure_of(scale) for scale in e.tasks[0].scales])


def every_adapter_gives_the_same_interval_by_itself(e: Evaluation, folder: Path) -> None:
    """The same where nobody gives the bounds: what is known of a metric, every reader knows."""
    _same_limits(e, folder, [])


def _same_limits(e: Evaluation, folder: Path, measures: list[Any]) -> None:
    first: dict[tuple[int, str, str], tuple[str, Any]] = {}

    def compare(where: tuple[int, str, str], name: str, row: Any) -> None:
        other, before = first.setdefault(where, (name, row))
        for field in ("estimate", "low", "high", "std_error"):
            one, two = getattr(before, field), getattr(row, field)
            assert close(one, two, 1e-7), (other, name, field, before, row)
        assert before.method == row.method, (other, name, before, row)

    for name, r, place in written(e, folder):
        if name == "Every Eval Ever" and _has_unscored_items(e):
            continue  # which has no place for an item without any score
        if r.says_scale and not measures and not _shows_scales(e):
            continue  # of all 1 others cannot tell whether 10 was possible
        rows = rows_by_key(es.intervals(es.read(place), measure=measures, rng=0))
        for i, task, scale in cells(e):
            if task.clusters is None or r.knows_clusters:
                compare((i, task.name, scale.name), name, rows[key_of(e, r, i, task, scale)])
    for task in e.tasks:
        for scale in task.scales:
            own = [m for m in measures if m.metric == scale.name]
            found = es.intervals(matrix_of(e, task, scale), measure=own, rng=0)
            for i, row in enumerate(found):
                compare((i, task.name, scale.name), "array", row)


def every_adapter_finds_the_same_difference(e: Evaluation, folder: Path) -> None:
    """Two models differ by as much, as surely, whatever form their scores come in."""
    task, scale = e.tasks[0], e.tasks[0].scales[0]
    first: Any = None
    found: list[tuple[str, Any]] = []
    for name, r, place in written(e, folder):
        if r.says_scale and not _shows_scales(e):
            continue
        if task.clusters is None or r.knows_clusters:
            found.append((name, list(es.compare(es.read(place), rng=0))))
    found.append(("array", list(es.compare(matrix_of(e, task, scale), rng=0))))
    for name, rows in found:
        (row,) = rows
        if first is None:
            first = name, row
        for field in ("difference", "p_value", "low_single", "high_single"):
            assert close(getattr(first[1], field), getattr(row, field), 1e-7), (first, name, row)


def _shows_scales(e: Evaluation) -> bool:
    """Whether scores lie in the upper half of every scale of more than 0 to 1."""
    cells = [(scale.bounds, e.of(task, scale)) for task in e.tasks for scale in task.scales]
    return all(
        bounds in (None, (0.0, 1.0)) or bool(np.nanmax(scores, initial=0.0) > bounds[1] / 2)
        for bounds, scores in cells
    )


def _has_unscored_items(e: Evaluation) -> bool:
    return any(np.isnan(scores).all(axis=2).any() for scores in e.scores.values())


def no_adapter_gives_certainty(e: Evaluation, folder: Path) -> None:
    """Scores that are all alike are no proof that the next one is: no interval is one point."""
    for name, _, place in written(e, folder):
        for row in es.intervals(es.read(place), rng=0):
            assert row.low is None or row.low < row.high, (name, row)


# What is done to logs ----------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    """Return the digest of every file below a folder, by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).digest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def reading_changes_no_file(e: Evaluation, folder: Path) -> None:
    """Nothing that only asks leaves a trace beside the logs."""
    from evalstats_plugin.logs.reading import check

    for name, _, place in written(e, folder):
        before = contents(place)
        read = es.read(place)
        es.intervals(read, rng=0)
        _or_error(lambda read=read: es.compare(read, rng=0))
        _or_error(lambda read=read: es.table(read, rng=0))
        check(place)
        assert contents(place) == before, name


def _or_error(work: Callable[[], object]) -> EvalStatsError | None:
    """Do some work; return the error of ours that it ends in."""
    try:
        work()
    except EvalStatsError as error:
        return error
    return None


ANNOTATED = ("lm-eval", "Inspect", "Every Eval Ever")


def annotate_then_strip_is_the_identity(e: Evaluation, folder: Path) -> None:
    """A stripped log is the log that was annotated: byte by byte, or as Inspect reads it."""
    for name, _, place in written(e, folder, *ANNOTATED):
        original = folder / "original"
        shutil.rmtree(original, ignore_errors=True)
        shutil.copytree(place, original)
        before = es.intervals(es.read(place), rng=0)
        if _or_error(lambda place=place: es.annotate(place, in_place=True)):
            assert contents(place) == contents(original), name
            continue
        assert list(es.intervals(es.read(place), rng=0)) == list(before), name
        es.strip(place, in_place=True)
        if name == "Inspect":
            for path in sorted(place.iterdir()):
                assert _inspect(path) == _inspect(original / path.name), path.name
        else:
            assert contents(place) == contents(original), name


def _inspect(path: Path) -> Any:
    from inspect_ai.log import read_eval_log

    # As text: NaN is not NaN.
    return read_eval_log(str(path)).model_dump_json(exclude={"location", "etag"})


def annotation_contradicts_no_header(e: Evaluation, folder: Path) -> None:
    """Limits are written under a logged metric's name only around the value that it has there."""
    from inspect_ai.log import read_eval_log

    for _, _, place in written(e, folder, "Inspect"):
        es.annotate(place, in_place=True, allow_partial=True)
        for path in sorted(place.glob("*.json")):
            log = read_eval_log(str(path))
            assert log.results is not None
            for score in log.results.scores:
                _limits_around(score)


def _limits_around(score: Any) -> None:
    """Fail where a result has limits of ours that leave out its headline."""
    values = {m.name: m.value for m in score.metrics.values()}
    value = values.get("accuracy", values.get("mean"))
    low = next((v for n, v in values.items() if "evalstats" in n and "lo" in n), None)
    high = next((v for n, v in values.items() if "evalstats" in n and "hi" in n), None)
    low = next((m.value for k, m in score.metrics.items() if k.endswith("_lo")), low)
    high = next((m.value for k, m in score.metrics.items() if k.endswith("_hi")), high)
    if None in (value, low, high) or any(map(math.isnan, (value, low, high))):
        return
    assert low - 1e-9 <= value <= high + 1e-9, score


def two_folders_are_one(e: Evaluation, folder: Path) -> None:
    """Logs of each model in a folder of its own, read together, are the evaluation."""
    for name in ("lm-eval", "Inspect", "HELM"):
        r = RENDERINGS[name]
        if not r.holds(e):
            continue
        whole = folder / f"{name} whole"
        whole.mkdir()
        r.write(e, whole)
        parts = [folder / f"{name} {i}" for i in range(len(e.models))]
        for i, part in enumerate(parts):
            part.mkdir()
            r.write(of_model(e, i), part)
        together = rows_by_key(es.intervals(es.read(whole), rng=0))
        apart = rows_by_key(es.intervals(es.read(*parts), rng=0))
        assert together.keys() == apart.keys()
        for key, row in together.items():
            for field in ("estimate", "low", "high", "n_items", "method"):
                one, two = getattr(row, field), getattr(apart[key], field)
                same = close(one, two, 1e-12) if isinstance(one, float) else one == two
                assert same, (name, field, row, apart[key])


def of_model(e: Evaluation, i: int) -> Evaluation:
    """Return the evaluation of one model."""
    scores = {key: value[i : i + 1] for key, value in e.scores.items()}
    return replace(e, models=(e.models[i],), scores=scores)


def duplicates_are_refused_or_counted_once(e: Evaluation, folder: Path) -> None:
    """A copied log, or a repeated line of one, adds no evidence."""
    for name, _, place in written(e, folder, "lm-eval", "Inspect"):
        once = rows_by_key(es.intervals(es.read(place), rng=0))
        for path in sorted(place.rglob("*.json*")):
            if name == "Inspect":
                shutil.copy(path, path.with_name(f"{path.stem}_copy.json"))
        try:
            twice = rows_by_key(es.intervals(es.read(place), rng=0))
        except EvalStatsError:
            continue
        for key, row in once.items():
            assert twice[key].n_items == row.n_items, (row, twice[key])
            assert close(twice[key].low, row.low), (row, twice[key])


def repeated_items_are_refused(e: Evaluation, folder: Path) -> None:
    """An item that is there twice is no second item, whatever the adapter."""
    for name, _, place in written(e, folder, *_REPEATED):
        _REPEATED[name](place)
        error = _or_error(lambda place=place: es.read(place))
        if error is None:
            rows = es.intervals(es.read(place), rng=0)
            most = max(t.n_items for t in e.tasks)
            assert all(row.n_items <= most for row in rows), (name, list(rows))
        else:
            assert str(error), name


def _repeat_line(place: Path) -> None:
    for path in place.rglob("*.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines, lines[0]]))


def _repeat_instance(place: Path) -> None:
    for path in place.rglob("per_instance_stats.json"):
        rows = json.loads(path.read_text())
        path.write_text(json.dumps([*rows, rows[0]]))


def _repeat_row(place: Path) -> None:
    (path,) = place.glob("*.csv")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1]]))


def _repeat_sample(place: Path) -> None:
    for path in place.glob("*.json"):
        log = json.loads(path.read_text())
        log["samples"] = [*log["samples"], log["samples"][0]]
        path.write_text(json.dumps(log))


_REPEATED: Mapping[str, Callable[[Path], None]] = {
    "lm-eval": _repeat_line,
    "Inspect": _repeat_sample,
    "HELM": _repeat_instance,
    "CSV": _repeat_row,
    "Every Eval Ever": _repeat_line,
}


def exported_records_are_valid_and_read_back(e: Evaluation, folder: Path) -> None:
    """What we export to Every Eval Ever passes its schemas, and has the same rows when read."""
    for name, _, place in written(e, folder, "lm-eval", "Inspect", "CSV"):
        read = es.read(place)
        out = folder / f"{name} exported"
        es.export(read, out, to="every-eval-ever")
        for path in sorted(out.rglob("*.json")):
            validator("eval").validate(json.loads(path.read_text()))
        for path in sorted(out.rglob("*.jsonl")):
            for line in path.read_text().splitlines():
                validator("instance").validate(json.loads(line))
        before = rows_by_key(es.intervals(read, rng=0))
        after = rows_by_key(es.intervals(es.read(out), rng=0))
        for key, row in before.items():
            # Reducers, parts of the items and groups are made of these when they are read.
            is_one = (row.kind, row.metric.count("/")) == ("task", 0)
            if row.estimate is None or row.low is None or not is_one:
                continue
            other = after[key]
            for field in ("estimate", "low", "high", "n_items"):
                assert close(getattr(row, field), getattr(other, field), 1e-7), (name, row, other)


def exported_tables_are_read_back(e: Evaluation, folder: Path) -> None:
    """CSV, JSON lines and Parquet that we export hold every score, digit by digit."""
    read = es.read(_frame(e))
    for ending in ("csv", "jsonl", "parquet"):
        path = folder / f"scores.{ending}"
        es.export(read, path)
        back = es.read(path)
        a, b = (rows_by_key(es.intervals(r, rng=0)) for r in (read, back))
        assert {k: (r.estimate, r.low, r.high, r.n_items) for k, r in a.items()} == {
            k: (r.estimate, r.low, r.high, r.n_items) for k, r in b.items()
        }, ending
        again = folder / f"again.{ending}"
        es.export(back, again)
        # Parquet says which version of Arrow wrote it.
        assert ending == "parquet" or again.read_bytes() == path.read_bytes(), ending


def _frame(e: Evaluation) -> Any:
    from written_tables import frame_of

    return frame_of(e, with_scale=True)


# Breakages ---------------------------------------------------------------------------------------


def _moved(row: Any) -> Any:
    return row if row.estimate is None else replace(row, estimate=row.estimate + 1e-3)


def _wider(row: Any) -> Any:
    return row if row.low is None else replace(row, low=row.low - 1e-3 * len(row.log))


def writes_beside(patch: pytest.MonkeyPatch) -> None:
    """Have reading leave a note beside what it read."""
    function = es.read

    def broken(*paths: Any, **kwargs: Any) -> Any:
        (Path(paths[0]) / "index.cache").write_text("seen")
        return function(*paths, **kwargs)

    patch.setattr(es, "read", broken)


def strips_nothing(patch: pytest.MonkeyPatch) -> None:
    """Have `strip` leave logs as they are."""
    patch.setattr(es, "strip", lambda *_, **__: [])


def a_pair_stands_in_one_order(e: Evaluation, folder: Path) -> None:
    """In any order of the logs every row of a pair subtracts the same model from the other."""
    r = RENDERINGS["lm-eval"]
    if not r.holds(e):
        return
    r.write(e, folder)
    read = list(es.read(folder))
    moved = [read[i] for i in np.random.default_rng(e.seed).permutation(len(read)).tolist()]
    try:
        rows = es.compare(moved, rng=0)
    except EvalStatsError:
        return  # nothing in common
    pairs = {(row.model_a, row.model_b) for row in rows}
    assert not pairs & {(b, a) for a, b in pairs}, pairs


def keeps_the_order_of_each_task(patch: pytest.MonkeyPatch) -> None:
    """Have comparisons take the models of each task as they come."""
    patch.setattr("evalstats_plugin.comparisons.compare._in_one_order", list)


def takes_all_rows(patch: pytest.MonkeyPatch) -> None:
    """Have reading count what is there again as further items."""
    function = es.intervals

    def broken(read: Any, **kwargs: Any) -> Any:
        rows = function(read, **kwargs)
        n = len(read)
        return replace(rows, rows=tuple(replace(r, n_items=r.n_items + n) for r in rows))

    patch.setattr(es, "intervals", broken)


def loses_a_digit(patch: pytest.MonkeyPatch) -> None:
    """Have reading round scores to four digits."""
    function = es.read

    def broken(*paths: Any, **kwargs: Any) -> Any:
        read = function(*paths, **kwargs)
        if not isinstance(paths[0], Path):
            return read
        short = [replace(r, scores=np.round(r.scores * 0.99999, 4)) for r in read]
        return replace(read, responses=tuple(short))

    patch.setattr(es, "read", broken)


def annotates_everything(patch: pytest.MonkeyPatch) -> None:
    """Have limits written that belong to another row."""
    from evalstats_plugin.logs import annotating

    function = annotating.annotate

    def broken(*paths: Any, **kwargs: Any) -> Any:
        def analysis(responses: Any) -> Any:
            rows = es.intervals(responses, rng=0)
            far = [r if r.low is None else replace(r, low=r.low + 7, high=r.high + 7) for r in rows]
            return replace(rows, rows=tuple(far))

        return function(*paths, analysis=analysis, **kwargs)

    patch.setattr(es, "annotate", broken)


LOG_RELATIONS: Mapping[str, Relation] = {
    "every adapter gives the logged values": Relation(
        every_adapter_gives_the_logged_values, changed("intervals", _moved), SMALL, examples=100
    ),
    "every adapter gives the same interval": Relation(
        every_adapter_gives_the_same_interval,
        changed("intervals", _wider),
        ALONE,
        by_scale(),
        4,
    ),
    "every adapter gives the same interval by itself": Relation(
        every_adapter_gives_the_same_interval_by_itself,
        changed("intervals", _wider),
        ALONE,
        by_scale(),
        4,
    ),
    "every adapter finds the same difference": Relation(
        every_adapter_finds_the_same_difference,
        every_other_call("compare", lambda r: replace(r, p_value=r.p_value and r.p_value / 2)),
        {"models": (2, 2), "tasks": (1, 1), "items": (2, 20), "groups": False, "cut": False,
         "metrics": 1, "odd_names": False},
        by_scale(),
        4,
    ),
    "no adapter gives certainty": Relation(
        no_adapter_gives_certainty,
        changed("intervals", lambda r: replace(r, low=r.high)),
        {**SMALL, "shapes": ("all best", "all worst"), "odd_names": False},
        examples=8,
    ),
    "reading changes no file": Relation(
        reading_changes_no_file, writes_beside, SMALL, examples=6
    ),
    "annotate, then strip, is the identity": Relation(
        annotate_then_strip_is_the_identity, strips_nothing, SMALL, examples=8
    ),
    "an annotation contradicts no header": Relation(
        annotation_contradicts_no_header,
        annotates_everything,
        SMALL,
        {"whole": {"cut": False}, "cut": {}},
        15,
    ),
    "two folders are one": Relation(
        two_folders_are_one, changed("intervals", _wider), SMALL, examples=10
    ),
    "duplicates are refused or counted once": Relation(
        duplicates_are_refused_or_counted_once,
        every_other_call("intervals", lambda r: replace(r, n_items=r.n_items + 1)),
        SMALL,
        examples=10,
    ),
    "repeated items are refused": Relation(
        repeated_items_are_refused, takes_all_rows, {**SMALL, "cut": False}, examples=10
    ),
    "a pair stands in one order": Relation(
        a_pair_stands_in_one_order,
        keeps_the_order_of_each_task,
        {**SMALL, "models": (2, 3), "tasks": (2, 3), "cut": False},
        examples=12,
    ),
    "exported records are valid and read back": Relation(
        exported_records_are_valid_and_read_back, loses_a_digit, {**SMALL, "cut": False},
        examples=10,
    ),
    "exported tables are read back": Relation(
        exported_tables_are_read_back, loses_a_digit, SMALL, examples=15
    ),
}  # fmt: skip

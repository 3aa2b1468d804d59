"""Figures of what is done with scores before any analysis: tables, runs, scales, counts, measures.

Of what is said in words, such as why a table is refused, the numbers are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures import Run, changed
from given_responses import given_responses

import evalstats_plugin as es
from evalstats_plugin.data import measure, published, responses, runs, scales, tables
from evalstats_plugin.data.inputs import as_responses
from evalstats_plugin.data.matrix import stack_epochs
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.data.published import Printed
from evalstats_plugin.data.responses import DrawnItems, Group, Responses, Selection, Source
from evalstats_plugin.errors import EvalStatsError


def _numbers(text: object) -> list[str]:
    return re.findall(r"\d[\d,.]*", str(text))


def _tried(how: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """What it returns, or the kind of its error with the numbers that it names."""
    try:
        return how(*arguments, **more)
    except EvalStatsError as error:
        return [type(error).__name__, _numbers(error)]


# Published numbers.

PRINTED: Mapping[str, tuple[str, str | None, int | None]] = {
    "of three digits": ("0.800", "0.133", None),
    "of six": ("0.812500", "0.100778", None),
    "by n": ("0.8125", "0.09758", None),
    "of one size": ("0.81", None, 16),
    "of no counts": ("0.81", None, 7),
    "of a pair": ("0.8125", "0.1008", 16),
    "of a wrong pair": ("0.8125", "0.0976", 16),
    "of a pair by n": ("0.8125", "0.09758", 16),
    "of one item": ("1", None, 1),
    "of one item with an error": ("1.0", "0.1", 1),
    "around one half": ("0.5", "0.05", None),
    "at one half": ("0.50", "0.0503", None),
    "below one half": ("0.492", "0.0316", None),
    "above one half": ("0.508", "0.0316", None),
    "near none": ("0.01", "0.0100", None),
    "all right": ("1.00", "0.00", None),
    "nearly all right": ("0.998", "0.001", None),
    "an error that may be none": ("0.9", "0.0", None),
    "a tiny error": ("0.5", "1e-9", None),
    "in full": ("0.6666666667", "0.2108185107", None),
    "a large error": ("0.5", "0.7", None),
    "beyond": ("1.2", "0.1", None),
    "without both": ("0.5", None, None),
}


def _printed(value: str, error: str | None, n: int | None) -> dict[str, Any]:
    both = [None if text is None else Printed.of(float(text), text) for text in (value, error)]
    assert both[0] is not None
    told: dict[str, Any] = {"halves": [each and [each.half, each.per_cent] for each in both]}
    if error is not None or n is not None:
        told["counts"] = published.counts_behind(both[0], both[1], n)
    if error is not None and both[1] is not None:
        told["sizes"] = [published._sizes(both[0], both[1], n, less)[:60] for less in (0, 1)]
        sizes = np.arange(2.0, 60.0)
        told["right"] = [published._right(both[0], both[1], sizes, less) for less in (0, 1)]
    for in_full in (False, True):
        made = published.published(
            "m", Measure(task="t", metric="acc"), Source(Path("a"), "test"), value=both[0],
            std_error=both[1], n=n, in_full=in_full,
        )  # fmt: skip
        told[f"made {in_full}"] = [made.logged, made.logged_std_error, made.logged_n,
                                   made.published, list(map(_numbers, made.notes))]  # fmt: skip
    return told


def _digits() -> list[Any]:
    texts = ("22.6%", "0.5", "1e-3", "1.5E2", "-3", "12,5", ".25", "about 3", "5e99", "1e-120")
    return [list(Printed.of(x, text, unit))
            for x, text in zip((0.226, 0.5, 1e-3, 150, -3, 12.5, 0.25, 3, 5e99, 0), texts,
                               strict=True) for unit in (1.0, 0.01)]  # fmt: skip


# Measures.

MEASURES = (
    Measure(task="t", metric="acc", scale=Scale(0, 1), n_cut=3),
    Measure(task="t", metric="acc", scale=Scale(0, 10, step=0.5, unit="points"),
            higher_is_better=False, population=90),
    Measure(task="t", metric="acc", scale=Scale(-1, 5), population=70, scale_from="observed"),
    Measure(task="t", metric="acc", scale=Scale(1, 5, unit="points"), scale_from="given",
            higher_is_better=True, direction_from="registry"),
    Measure(task="t", metric="acc"),
    Measure(metric="acc", aggregation="f1", population=50, direction_from="given",
            higher_is_better=True),
)  # fmt: skip


def _measures() -> dict[str, Any]:
    chosen = [(0, 1), (1, 0), (2, 0), (0, 3), (4, 2), (4, 4), (4, 5), (2, 1, 3), (0, 0), (5, 4, 1)]
    return {
        "joint": [asdict(measure.joint([MEASURES[k] for k in at])) for at in chosen],
        "given": [asdict(measure.given(MEASURES[a], [MEASURES[b], MEASURES[c]]))
                  for a, b, c in ((0, 1, 3), (0, 3, 1), (1, 5, 4), (4, 2, 5))],
        "again": [Measure.from_dict(each.to_dict()) == each for each in MEASURES],
        "bounds": [[each.bounds, str(each.scale), each.is_cost] for each in MEASURES],
        "agree": [measure.agree(1, 1 + x) for x in (1e-10, 9e-10, 2e-9)]
        + [measure.agree(0, x) for x in (5e-13, 2e-12)],
    }  # fmt: skip


# Responses.

SOURCE = Source(Path("a.json"), "test", when="2")


def _given(model: str, scores: Any, **more: Any) -> Responses:
    more = {"item_ids": np.arange(len(scores)), "source": SOURCE} | more
    return given_responses(model=model, scores=np.asarray(scores, dtype=float), **more)


def _told(r: Responses) -> dict[str, Any]:
    return {"model": r.model, "ids": r.item_ids.tolist(), "scores": r.scores.ravel().tolist(),
            "shape": list(r.scores.shape), "notes": list(map(_numbers, r.notes)), "n": r.logged_n,
            "settings": dict(r.settings), "scale": str(r.measure.scale),
            "from": r.measure.scale_from, "groups": list(r.groups), "cut": r.measure.n_cut,
            "clusters": None if r.clusters is None else r.clusters.tolist(),
            "tags": None if r.tags is None else r.tags.tolist()}  # fmt: skip


def _repeated() -> list[Any]:
    """Items that are there again, as numbers and as texts, in order and not."""
    ids = (
        [3, 1, 2],
        [1, 2, 2, 3],
        [1, 2, 2, 3, 1],
        [2, 1, 1],
        ["a", "b", "a", "a"],
        [0.5, 1.5, 0.5],
        [7],
        [],
    )
    told: list[Any] = []
    for each in ids:
        held = np.asarray(each, dtype=object if each and each[0] == 0.5 else None)
        scores = np.arange(2.0 * len(each)).reshape(-1, 2)
        r = _given("m", scores, item_ids=held, clusters=held.astype(str))
        beside = r.with_beside([_given("m", scores + 1, item_ids=held, metric="other")])
        told += [responses.repeated_item(np.array(held)), _told(responses.with_epochs(r)),
                 [_told(b) for b in responses.with_epochs(beside).beside],
                 _tried(responses.check_item_ids, r),
                 _tried(responses.check_item_ids, r, in_log=True)]  # fmt: skip
    rows = np.array([0, 1, 0, 2, 1, 0]), np.array([0, 1, 0, 0, 1, 2])
    return [*told, responses.repeated_rows(*rows), responses.repeated_rows(rows[0], rows[0] * 0),
            responses.repeated_rows(np.arange(4), np.zeros(4, dtype=int))]  # fmt: skip


def _drawn() -> list[Any]:
    """Errors of adaptive tests that share all, some or none of their draws."""
    rng, told = np.random.default_rng(2), []
    items = tuple(f"{'ab'[k % 3 > 1]} / {k}" for k in range(12))
    a = DrawnItems(items, np.linspace(0.1, 0.5, 12), rng.normal(size=12))
    for n, moved in ((12, 0.0), (12, 1e-8), (12, 1e-3), (7, 0.0), (2, 0.0), (0, 0.0)):
        b = DrawnItems(items[:n], a.probabilities[:n] + moved, 0.8 * a.residuals[:n] + 0.1)
        swapped = b._replace(items=items[1:2] + items[:1] + items[2:n]) if n > 2 else b
        told += [[a.n_shared(x), responses.shared_correlation(a, x),
                  responses.difference_error(a, 0.1, x, 0.3),
                  responses.difference_error(x, 0.2, x, 0.2)] for x in (b, swapped)]  # fmt: skip
    return told


def _selected() -> list[Any]:
    asked = ((), ("acc",), ("acc_norm", "acc"), ("arc=acc_norm",), ("arc=f1", "acc", "mmlu*=em"))
    names = ("acc,none", "acc_norm,none", "f1", "em")
    return [
        [s.metrics_of(*task), [[s.wants_metric(n, *task), s.wants_cost(n, *task),
                                s.place_of_metric(n, *task)] for n in names]]
        for metrics in asked for task in ((), ("arc",), ("mmlu_law", "mmlu"), ("other",))
        for s in [Selection(metrics=metrics, tasks=task[:1])]
    ]  # fmt: skip


def _lists() -> list[Any]:
    """Lists in the place of arrays, and arrays of wrong shapes."""
    told: list[Any] = []
    for more in ({"scores": [1, 0.5, 0]}, {"scores": [[1, 0], [0, 1], [1e70, 0]]},
                 {"scores": [1, 2]}, {"scores": [1, "x", 2]}, {"scores": np.ones(3)},
                 {"weights": [1, 2, 3]}, {"weights": np.array([1, 2, 3])},
                 {"clusters": ["a", "b", "b"]}, {"chance": [1, 2]},
                 {"tags": ["a"]}, {"pairs": np.empty((3, 1), dtype=object)},
                 {"item_ids": ["x", "y", "z"]}):  # fmt: skip
        known = {"item_ids": [0, 1, 2], "scores": np.ones((3, 2)), "source": SOURCE, **more}
        try:
            made = given_responses(model="m", **known)
        except (TypeError, ValueError) as error:
            told.append([type(error).__name__, _numbers(error)])
        else:
            told.append([_told(made), made.scores.dtype.kind, repr(made),
                         None if made.weights is None else
                         [made.weights, made.weights.dtype.kind]])  # fmt: skip
    return told


# Runs.


def _runs() -> dict[str, Any]:
    """Runs of one model: whole, cut, copied, of another group, and with other settings."""
    at = [Source(Path(f"{k}.json"), "test", when=str(k)) for k in range(5)]
    part, whole = Group("all", 0, "micro", 2), [1, 0, 1, 1, 0]
    held = [
        _given("m", whole, source=at[0], clusters=[0, 0, 1, 1, 1]),
        _given("m", [1, 1, 0], source=at[1], population=5),
        _given("m", whole[::-1], source=at[2], task="u"),
        _given("m", [0, 1, 0, 1, 1], source=at[3], task="u", n_cut=2),
        _given("m", [0, 1, 0, 1, 1], source=replace(at[4], when="3"), task="u"),
        _given("n", whole, source=at[2], settings=(("task.shots", "5"), ("dtype", "[16]"))),
        _given("n", whole, source=at[3], settings=(("task.shots", "0"),), groups=(part,)),
        _given("n (x)", [[1, 0], [0, 1]], source=at[0], task="u"),
    ]
    long = es.ResponseSet(tuple(held), ("a note",))
    chosen = {how: _tried(runs.choose_runs, held, how) for how in ("latest", "all", "epochs",
                                                                   "error")}  # fmt: skip
    return {
        **{how: [list(map(_told, kept)), list(map(_numbers, notes))]
           if isinstance(kept, list) and how != "error" else [kept, notes]
           for how, (kept, notes) in chosen.items()},
        "copies": [[a.source.path.name, b.source.path.name] for a, b in runs.find_copies(held)],
        "without": [len(runs.without_copies(held)[0]), len(runs.without_copies(held)[1])],
        "each": [r.source.path.name for r in runs.one_of_each(held)],
        "sizes": [runs.n_items([r, held[1]]) for r in held],
        "tags": [[_told(r) for r in _tried(runs.with_settings_as_tags, held, name)]
                 for name in ("shots", "dtype")],
        "no tags": _tried(runs.with_settings_as_tags, held, "nothing")[0],
        "labels": [r.model for r in runs.label_models(held)],
        "places": [_tried(runs.place_of, name, ("n (x)", "m", "n"), what)
                   for name in ("n", "m", "n (x)", "no", "(x)") for what in ("model", "task")],
        "labelled": [runs.is_model(a, "n") for a in ("n", "n (x)", "nn", "n(x)")],
        "like": [_tried(runs.models_like, p, ("a[1]", "b", "ab")) for p in (
            ["a*"], ["b", "a[1]"], ["?"], ["c"])],
        "frame": long.to_frame(), "shown": repr(long), "none": repr(es.ResponseSet(())),
        "empty": list(es.ResponseSet(()).to_frame().columns),
        "stacked": list(map(_told, stack_epochs(held))),
        "f1": list(map(_told, stack_epochs([
            r.measured(aggregation="f1") if k == 1 else r for k, r in enumerate(held[:3])]))),
    }  # fmt: skip


# Scales.

SCORES: Mapping[str, Sequence[float]] = {
    "of one": [0, 1, 0.5, 1], "per cent": [85.5, 40, 0], "grades": [4, 1, 5, 3],
    "of ten": [9, 7, 10, 4], "of zero to ten": [0, 4, 10], "three": [0, 3, 2],
    "above ten": [10.5, 2, 3], "above a hundred": [101, 3, 4], "below": [-3, 2, 40],
    "fractions": [4.5, 2.5, 3.2], "a code": [0, 1] * 30 + [99], "codes": [1, 3] * 50 + [-1, 99],
    "three codes": [0, 1] * 80 + [-1, -2, 99], "many codes": [0, 1] * 6 + [9, 9],
    "ones": [1] * 60 + [5], "far": [8] * 40 + [77] + [3] * 30, "near": [70] * 40 + [99],
    "a little": [1 + 1e-10, 0], "more": [1 + 2e-9, 0.5], "none": [],
    "missing": [np.nan, np.inf, 3.0], "wholes": [4] * 98 + [4.5], "fewer wholes": [4] * 40 + [4.5],
}  # fmt: skip


def _scaled(name: str) -> dict[str, Any]:
    held = np.array(SCORES[name], dtype=float)
    made = [
        _given(m, part, metric=metric, higher_is_better=True)
        for metric in ("judge", "acc")
        for m, part in (("a", held), ("b", held[:2]))
    ]
    return {
        "observed": scales.observed(held),
        "strays": [scales.strays(held, bounds) for bounds in (
            (0, 1), (0.0, np.inf), (1, 5), (-np.inf, 10))],
        "settled": list(map(_told, scales.settled(made))),
    }  # fmt: skip


def _weighed() -> list[Any]:
    """Groups whose weights some logs leave open."""
    usual = Group("all", 0, "macro", 2, 0.5), Group("rest", 0, "parts", 2)
    openly = Group("all", 0, "either", 2, 0.5), Group("rest", 0, "either", 2)
    other = Group("all", 0, "micro", 2, 0.4), Group("open", 0, "either", 1)
    held = [_given("a", [1, 0], groups=usual), _given("b", [1, 0], groups=openly),
            _given("b", [1, 0], groups=openly, metric="em"), _given("c", [1, 0], groups=other),
            _given("c", [1, 0], groups=other, metric="em"),
            _given("d", [0, 1], groups=openly, metric="f")]  # fmt: skip
    return [[[_told(r) for r in scales.settled(part)] for part in (held, held[1:], held[:1])]]


# Tables.

CSV: Mapping[str, bytes] = {
    "plain": b"model,item,score\na,1,0.5\nb, 2 ,\nc,03,1e-3\n",
    "semicolons": b'\xef\xbb\xbfmodel;"item; id";score\r\na;"x\ny";1\r\nb;"";0\r\n',
    "tabs": b"model\tscore\na\t1.0\nb\tx\nc\ty\n", "bars": b"a|b|\n1|2|3\n",
    "twice": b"a,b,c,b\n1,2,3,4\n", "ragged": b"a,b\n1,2\n1,2,3\n4,5\n", "short": b"a,b\n1\n",
    "latin": b"a,b\n1,\xe9\n", "wide": "a,b\n1,2\n".encode("utf-16"), "blank": b"\n\na,b\n1,2\n",
    "nothing": b"a,b\n", "same": b"x,score\nq,1\nq,1\n,0\nq,\n",
}  # fmt: skip
JSON: Mapping[str, bytes] = {
    "lines": b'\xef\xbb\xbf{"a": 1, "b": {"c": [2], "d": {"e": {"f": {"g": 1}}}}}\n\n{"a": true}\n',
    "half": b'{"a": 1}\n{"a": 2, "b": [1, 2]}\n{"a"', "wrong": b'{"a": 1}\n\n{"a" 2}\n{"a": 3}\n',
    "no object": b'{"a": 1}\n[3]\n', "one": b'{"a": [1, 2], "b": ["x", "y"]}',
}  # fmt: skip


def _table(made: Any) -> Any:
    if isinstance(made, list):
        return made
    columns = _tried(made.load, made.names)
    if isinstance(columns, list):
        return columns
    return {
        name: [column.texts().tolist(), column.codes, column.values, column.empty,
               _tried(column.numbers, name, "here", "a number"),
               column.translated({"a": 1.0, "0.5": 2.0, "true": 3.0}),
               _tried(column.refuse, ~column.empty, name, "here", "none")]
        for name, column in columns.items()
    }  # fmt: skip


def _json(content: bytes) -> Any:
    read = _tried(tables.read_lines, content, "here")
    if isinstance(read, list):
        return read
    records, notes = read
    made = tables.record_table(records, "here", notes)
    return [made.names, len(made.notes), _table(made), _table(tables.record_table(
        tables.records_of(records[0], "here"), "here"))]  # fmt: skip


def _cells() -> dict[str, Any]:
    cells = [3.0, -0.0, 2.0**53, 2.0**53 - 1, 1e300, 0.1, True, np.bool_(0), None, float("nan"),
             " x ", 7, np.float32(0.5), [1]]  # fmt: skip
    inside = {"a": [{"b": 3, "c.d": 4}, 5], "e.f": {"g": 6}, "h": {"i.j": {"k": 7}}}
    paths = (
        "a 0 b",
        "a 0 c d",
        "a 1",
        "a 2",
        "a x",
        "e f g",
        "h i j",
        "h i j k",
        "a",
        "z",
        "a 1 b",
    )
    coded = np.array([0, 1, 2, -1, 3, 0])
    return {
        "texts": [tables.as_text(cell) for cell in cells],
        "column": tables.Column.of(cells),
        "encoded": [tables.Column.encoded(coded, values) for values in (
            ("p", "q", "r", "s"), ("p", " p", "", "s"), (1, 1.0, True, None))],
        "taken": tables.Column.of("abca").take(np.array([1, 0, 1, 1], dtype=bool)),
        "numbered": tables.Column.of(["b", "", "a"]).numbered(["a", "b"]),
        "values": [tables.value_at(inside, path.split()) for path in paths],
        "cells": [tables.json_cell(x) for x in ([[3]], [1, 2], {"b": 1, "a": [2]}, "x", None, [])],
        "rows": [_numbers(tables.at_rows(np.arange(k, 2 * k + 1))) for k in range(3)],
        "columns": [_tried(tables.records_of, x, "here") for x in (
            {"a": [1, 2], "b": [3, 4]}, {"a": [1, 2], "b": [3]}, {"a": [1], "b": 3}, {}, 5,
            [{"a": 1}, 2])],
    }  # fmt: skip


def _named_anew() -> list[Any]:
    """Responses under the measures of a user, of which some are of no scores."""
    held = [_given("m", [1, 0, 3]), _given("m", [1, 0], task="u", metric="em,none")]
    asked: Sequence[Any] = (
        Measure(scale=Scale(0, 4)), Measure(metric="em", higher_is_better=False),
        [Measure(task="t", population=9), Measure(task="u", scale=Scale(-1, 1))],
        Measure(task="none"), Measure(metric="none"), Measure(task="u", metric="acc"),
    )  # fmt: skip
    return [
        made if isinstance(made, list) else [[_told(r), r.population, r.measure.direction_from]
                                             for r in made]
        for measures in asked for made in [_tried(as_responses, held, measures)]
    ]  # fmt: skip


RUNS: Mapping[str, Mapping[str, Run]] = {
    "published": {name: partial(_printed, *what) for name, what in PRINTED.items()},
    "digits": {"of numbers": _digits},
    "measures": {"of several": _measures},
    "responses": {"again": _repeated, "drawn": _drawn, "selected": _selected, "lists": _lists},
    "runs": {"of one model": _runs},
    "scales": {name: partial(_scaled, name) for name in SCORES},
    "groups": {"left open": _weighed},
    "tables": {name: lambda name=name: _table(_tried(tables.csv_table, CSV[name], "here"))
               for name in CSV},
    "records": {name: partial(_json, JSON[name]) for name in JSON},
    "cells": {"of all kinds": _cells},
    "given": {"measures": _named_anew},
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("data", run, RUNS[run]) == []

"""Where annotated logs are written, when they are read again, and which errors are raised."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin import Measure
from evalstats_plugin.data.responses import Group, Responses, Selection, Source
from evalstats_plugin.errors import (
    ChangedError,
    DesignError,
    EvalStatsError,
    IncompleteLogError,
    LogError,
    SelectionError,
    WriteError,
)
from evalstats_plugin.hookspecs import Annotation, hookimpl
from evalstats_plugin.logs import annotating, together
from evalstats_plugin.logs.reading import read_log
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.writing import write_bytes
from evalstats_plugin.scores.items import item_statistics
from evalstats_plugin.testing import _with

Writing = annotating._Writing


def _response(task: str = "t", aggregation: str = "mean", n_cut: int = 0, n: int = 3) -> Responses:
    measure = Measure(task=task, metric="acc", aggregation=aggregation, n_cut=n_cut)
    return Responses(
        model="m", measure=measure, source=Source(path=Path("x"), harness="toy"),
        item_ids=np.arange(n), scores=np.ones((n, 1)), groups=(Group("g", 0, "micro", 1),),
    )  # fmt: skip


def test_targets_are_laid_out_as_the_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One place for each log, whatever the case of letters; in one way or the other."""
    logs = [tmp_path / "a" / "x.log", tmp_path / "a" / "deep" / "y.log", tmp_path / "b" / "X.log"]
    for log in logs:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
    found = {tmp_path / "a": logs[:2], tmp_path / "b": logs[2:]}
    monkeypatch.setattr(annotating, "find_logs", lambda given, _: found.get(given[0], list(given)))

    def targets(*paths: Path, output: Path | None = None, in_place: bool = False) -> list[Path]:
        each = annotating._targets(paths, output, in_place=in_place, plugins=None)  # pyright: ignore[reportArgumentType]
        return [*each.values()]

    out = tmp_path / "out"
    assert targets(tmp_path / "a", output=out) == [out / "x.log", out / "deep" / "y.log"]
    assert targets(logs[1], logs[2], output=out) == [out / "y.log", out / "X.log"]
    assert targets(tmp_path / "a", logs[2], in_place=True) == logs
    assert targets(tmp_path / "a", logs[0], output=out) == [out / "x.log", out / "deep" / "y.log"]
    with pytest.raises(WriteError, match=r"^2 logs would overwrite each other in "):
        targets(tmp_path / "a", tmp_path / "b", output=out)
    with pytest.raises(WriteError, match="nowhere to write to"):
        targets(tmp_path / "a")
    with pytest.raises(WriteError, match="do not go together"):
        targets(tmp_path / "a", output=out, in_place=True)


@pytest.mark.parametrize("in_place", [True, False])
def test_logs_that_change_meanwhile_are_read_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, in_place: bool
) -> None:
    """In place, with pauses twice as long each time; other errors end it at once."""
    slept: list[float] = []
    monkeypatch.setattr(annotating.time, "sleep", slept.append)
    changed, broken = {Path("x"): ChangedError("x")}, {Path("x"): LogError("x")}
    outcomes = iter([changed, changed, {**broken}, {}])

    def once() -> Any:
        return annotating._Outcome([], next(outcomes), 1)

    last = annotating._until_unchanged(once, in_place=in_place)
    assert last.broken == (broken if in_place else changed)
    assert slept == ([0.05, 0.1] if in_place else [])
    assert capsys.readouterr().err.count("changed by another program meanwhile") == len(slept)
    always = annotating._Outcome([], changed, 1)
    assert annotating._until_unchanged(lambda: always, in_place=True) is always
    assert slept[-7:] == [0.05 * 2**k for k in range(7)]


def test_errors_of_some_logs_are_told_and_the_first_of_all_raised() -> None:
    """With how many there were; none is told where nothing was written."""
    heard: list[tuple[Path, EvalStatsError]] = []
    done, one = [Path("y")], {Path("x"): LogError("broken")}
    two = {**one, Path("z"): WriteError("full")}

    def ended(written: list[Path], broken: Any, n: int, *, hears: bool) -> list[Path]:
        on_broken = (lambda log, error: heard.append((log, error))) if hears else None
        return annotating._ended(written, broken, n, on_broken)

    assert ended(done, {}, 1, hears=True) == ended(done, two, 3, hears=True) == done
    assert heard == list(two.items())
    for written, broken, n, hears, told in (
        ([], one, 1, True, "^broken$"),
        ([], two, 2, True, r"^broken \(and 1 more\); 0 of 2 logs were written$"),
        (done, one, 2, False, "^broken; 1 of 2 logs were written$"),
    ):
        with pytest.raises(LogError, match=told):
            ended(written, broken, n, hears=hears)
    assert len(heard) == 2


def test_logs_with_several_names_are_written_one_after_another(tmp_path: Path) -> None:
    """So are those that lie where another is written; those in stores have one name each."""
    one, two = tmp_path / "1", tmp_path / "2"
    one.touch()
    two.touch()
    (tmp_path / "link").symlink_to(one)

    def overlap(*pairs: tuple[Path, Path]) -> bool:
        return annotating._overlapping([Writing(log, None, to, None) for log, to in pairs])

    assert not overlap((one, one), (two, two))
    assert not overlap((one, tmp_path / "3"), (two, tmp_path / "4"))
    assert overlap((one, one), (tmp_path / "link", tmp_path / "5"))
    assert overlap((one, tmp_path / "3"), (two, tmp_path / "3"))
    assert overlap((one, two), (two, tmp_path / "4"))
    stored: Any = SimpleNamespace(protocol="s3")
    assert not overlap((stored, stored), (stored, stored))
    assert annotating._revision(stored) is None


def test_parts_and_what_is_rescored_are_those_of_means_with_items() -> None:
    """Groups around a task are rescored with it."""
    whole, cut = _response(), _response(task="u", n_cut=2)
    other, bare = _response(task="v", aggregation="mcc"), _response(task="w", n=0)

    assert annotating._partial([whole, cut]) == [
        annotating.PartialScores("u", "acc", 3, 2, altered=False)
    ]
    rescored = annotating._rescored([whole, cut, other, bare])
    assert rescored == {(name, "acc") for name in ("t", "u", "g")}
    assert annotating._rescored([other, bare]) == set()


def test_a_log_without_scores_at_k_is_said_not_to_fit() -> None:
    """And its other scores stay; a log of nothing lacks none."""
    single = [_response()]

    assert annotating._at_k(single, ()) == (single, None)
    assert annotating._at_k([], ("pass@2",)) == ([], None)
    kept, unfit = annotating._at_k(single, ("pass@2",))
    assert kept is single
    assert isinstance(unfit, DesignError)


def test_what_happens_to_each_log_is_kept() -> None:
    """A run that another log took to its end is left out in silence."""
    runs: dict[str, Any] = {
        "done": annotating._Analysed((), (), (), frozenset({"r1", ""}), None),  # pyright: ignore[reportArgumentType]
        "cut": annotating.IncompleteLogError("cut", "r1"),
        "alone": annotating.IncompleteLogError("alone", ""),
        "broken": LogError("broken"),
        "nothing": None,
    }
    using: Any = SimpleNamespace(installed=True)
    run: Callable[[Path], Any] = lambda log: runs[log.name]  # noqa: E731
    seen, broken = annotating._analyse_all(list(map(Path, runs)), run, plugins=using)

    assert list(seen) == [Path("done")]
    assert broken == {Path(name): runs[name] for name in ("alone", "broken")}


class _Toy:
    """A harness whose logs are JSON; it keeps the annotations that it was to write."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, dict[str, Any]()
        toy = ModuleType("toy")

        def evalstats_find_logs(files: Sequence[LogFile]) -> dict[Path, list[Path]]:
            return {f.path: [] for f in files if f.path.suffix == ".toy"}

        def evalstats_read_log(log: LogFile, selection: Selection) -> list[Responses] | None:
            told: dict[str, Any] = json.loads(log.read_bytes())
            if not told["done"] and not selection.include_incomplete:
                raise IncompleteLogError(f"{log.path.name} was broken off")
            names = [(t, m) for t in told["tasks"] for m in ("acc", "f1")]
            scores = [[float((k * 7 + told["x"]) % 5 > 1)] for k in range(12)]
            return [
                Responses(
                    model=told["model"], measure=Measure(task=t, metric=m, n_cut=told["n_cut"]),
                    source=Source(path=log.path, harness="toy"),
                    item_ids=np.arange(12), scores=np.array(scores),
                )
                for t, m in names
                if selection.wants_task(t) and selection.wants_metric(m, t)
            ]  # fmt: skip

        def evalstats_annotate_log(path: Path, annotation: Any, output: Path) -> Path:
            self.written[path.name] = annotation
            write_bytes(output, path.read_bytes())
            return output

        for hook in (evalstats_find_logs, evalstats_read_log, evalstats_annotate_log):
            setattr(toy, hook.__name__, hookimpl(hook))
        self.plugins = _with(toy)

    def log(self, model: str, *, done: bool = True, **told: Any) -> Path:
        path = self.folder / f"{model}.toy"
        told = {"tasks": ["t"], "x": len(list(self.folder.iterdir())), "n_cut": 0, **told}
        path.write_text(json.dumps({"model": model, "done": done, **told}))
        return path

    def annotate(self, *paths: Path, **options: Any) -> list[str]:
        self.written.clear()
        options = {"in_place": "output" not in options, **options}
        given = paths or (self.folder,)
        done = annotating.annotate(*given, plugins=self.plugins, **options)
        assert {path.name for path in done} == set(self.written)
        return sorted(self.written)


@pytest.fixture
def toy(tmp_path: Path) -> _Toy:
    """Return a harness with logs of three models, of which one has another task too."""
    made = _Toy(tmp_path / "logs")
    made.folder.mkdir()
    for model, tasks in (("a", ["t"]), ("b", ["t", "u"]), ("c", ["t"])):
        made.log(model, tasks=tasks)
    return made


def test_an_annotation_holds_what_was_asked_for(toy: _Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more; with comparisons the first model is the baseline unless another is named."""
    assert toy.annotate() == ["a.toy", "b.toy", "c.toy"]
    plain = toy.written["b.toy"]
    expected = es.intervals(read_log(toy.folder / "b.toy", Selection(), toy.plugins), rng=0)
    assert plain == Annotation(expected, VERSION, partial=[])

    toy.annotate(compare=True)
    first = toy.written["c.toy"]
    assert (first.baseline, first.items, first.item_columns) == ("a", None, False)
    assert {(r.model_a, r.model_b, r.metric) for r in first.comparisons} == {
        ("a", "c", "acc"), ("a", "c", "f1")
    }  # fmt: skip
    assert {row.model for row in first.ranks} == {"a", "b", "c"}
    toy.annotate(baseline="b")
    assert {(r.model_a, r.model_b) for r in toy.written["c.toy"].comparisons} == {("b", "c")}
    toy.annotate(compare={"confidence_level": 0.8})
    assert {row.confidence_level for row in toy.written["b.toy"].comparisons} == {0.8}

    responses = list(es.read(toy.folder, plugins=toy.plugins))
    of_t = item_statistics([r for r in responses if r.task == "t"])
    for items in ("metadata", "columns"):
        toy.annotate(items=items)
        assert toy.written["a.toy"].items == of_t
        assert toy.written["b.toy"].items == item_statistics(responses)
        assert toy.written["a.toy"].item_columns is (items == "columns")
    toy.annotate(items="metadata", baseline="b")
    against_b = toy.written["a.toy"].items
    assert all(set(of_t[item]) < set(against_b[item]) for item in of_t)

    with pytest.raises(SelectionError, match="no model to fit is called 'irrt'; did you mean irt"):
        toy.annotate(fits=["irrt"])
    asked: list[Any] = []

    class _Fit:
        def __init__(self, by_log: Any, **options: Any) -> None:
            asked.append((sorted(Path(log).name for log in by_log), options))

        def of_log(self, location: str) -> Any:
            return Path(location).name

        def of_items(self, tasks: frozenset[str]) -> Any:
            return {"0": {"fit": "".join(sorted(tasks))}, "none": {"fit": "x"}}

    for name in ("CrossedAbilities", "CrossedScores", "CrossedCapabilities"):
        monkeypatch.setattr(together, name, _Fit)
    fields = {"irt": "abilities", "pool": "pooled", "capabilities": "capabilities"}
    options = {"irt": {"confidence_level": 0.8, "items": True}, "pool": {"confidence_level": 0.8}}
    for fit, field in fields.items():
        asked.clear()
        analysis = partial(es.intervals, rng=0, confidence_level=0.8)
        toy.annotate(fits=[fit], items="metadata", analysis=analysis)
        held = toy.written["b.toy"]
        assert asked == [(["a.toy", "b.toy", "c.toy"], options.get(fit, {}))]
        assert {f: getattr(held, f) for f in fields.values()} == {
            f: "b.toy" if f == field else None for f in fields.values()
        }
        assert "none" not in held.items
        assert held.items["0"].get("fit") == (None if fit == "pool" else "tu")
    toy.annotate(fits=["irt"])
    assert asked[-1][1] == {"confidence_level": 0.95, "items": False}


def test_logs_that_are_no_good_stop_none_of_the_others(toy: _Toy, tmp_path: Path) -> None:
    """Cancelled runs are skipped unless they are named; parts are refused where it matters."""
    cancelled, others = toy.log("d", done=False), ["a.toy", "b.toy", "c.toy"]
    heard: list[str] = []
    assert toy.annotate() == others
    assert toy.annotate(on_broken=lambda log, _: heard.append(log.name)) == others
    assert heard == ["d.toy"]
    with pytest.raises(
        IncompleteLogError, match=r"d\.toy was broken off; 3 of 4 logs were written"
    ):
        toy.annotate(toy.folder, cancelled)
    with pytest.raises(IncompleteLogError, match=r"^d\.toy was broken off$"):
        toy.annotate(cancelled)
    cancelled.unlink()

    cut = toy.log("e", n_cut=3)
    assert toy.annotate() == [*others, "e.toy"]
    assert [p.n_missing for p in toy.written["e.toy"].partial] == [3, 3]
    with pytest.raises(WriteError, match=r"e\.toy holds only a part .*: t \(12 of 15 items\)"):
        toy.annotate(rescore=True)
    assert sorted(toy.written) == others
    assert toy.annotate(rescore=True, allow_partial=True) == [*others, "e.toy"]
    assert toy.written["a.toy"].rescore
    cut.unlink()

    assert toy.annotate(selection=Selection(tasks=("u",))) == ["b.toy"]
    with pytest.raises(SelectionError, match="no task in the logs is called 'v'"):
        toy.annotate(selection=Selection(tasks=("v",)))
    with pytest.raises(DesignError, match="pass@2"):
        toy.annotate(at_k=["pass@2"])
    out = tmp_path / "out"
    toy.annotate(output=out)
    (out / "b.toy").write_text("another's")
    with pytest.raises(WriteError, match=r"b\.toy .*; 2 of 3 logs were written"):
        toy.annotate(output=out)
    assert toy.annotate(output=out, overwrite=True) == others
    toy.written.clear()
    assert len(annotating.strip(toy.folder, in_place=True, plugins=toy.plugins)) == 3
    assert list(toy.written.values()) == [None] * 3


def test_a_log_that_changes_between_reading_and_writing_is_read_again(
    toy: _Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is annotated with its new scores; a second name of a log is no change of it."""
    monkeypatch.setattr(annotating, "_PAUSES", (0.0,))
    left = [1]

    def analysis(responses: Sequence[Responses]) -> Any:
        if responses[0].model == "a" and left:
            left.pop()
            (toy.folder / "a.toy").unlink()
            toy.log("a", x=3)
        return es.intervals(responses, rng=0)

    assert toy.annotate(analysis=analysis) == ["a.toy", "b.toy", "c.toy"]
    now = read_log(toy.folder / "a.toy", Selection(), toy.plugins)
    assert toy.written["a.toy"].intervals == es.intervals(now, rng=0)
    (toy.folder / "z.toy").symlink_to(toy.folder / "a.toy")
    assert "z.toy" in toy.annotate()

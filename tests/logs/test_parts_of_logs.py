"""Logs that hold a part of what was scored, and results in memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from evalstats_plugin.errors import PluginError, WriteError
from evalstats_plugin.hookspecs import PartialScores, hookimpl
from evalstats_plugin.logs import annotating
from evalstats_plugin.logs.reading import check
from evalstats_plugin.testing import _with

LOG = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out_samples"


def _seen(kind: str, *partial: PartialScores) -> dict[Path, object]:
    rows = (SimpleNamespace(kind="task"), SimpleNamespace(kind=kind))
    return {Path("log"): SimpleNamespace(partial=partial, intervals=rows)}


@pytest.mark.parametrize("rescore", [False, True])
@pytest.mark.parametrize("kind", ["task", "group"])
def test_a_part_is_refused_where_values_are_replaced_or_groups_summed_up(
    kind: str, *, rescore: bool
) -> None:
    """With what is lacking; whole logs never are."""
    parts = (
        PartialScores("t", "acc", 7, 5, altered=False),
        PartialScores("u", "acc", 9, 0, altered=True),
    )
    refused = annotating._not_whole(_seen(kind, *parts), rescore=rescore)  # pyright: ignore[reportArgumentType]

    assert bool(refused) is (rescore or kind == "group")
    for error in refused.values():
        assert "log holds only a part of what was scored: t (7 of 12 items), u (altered)" in str(
            error
        )
    assert annotating._not_whole(_seen(kind), rescore=rescore) == {}  # pyright: ignore[reportArgumentType]


def test_plugins_and_analysis_that_are_given_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """None are loaded, and each is asked once."""
    seen: list[object] = []

    def call(hook: str, **given: object) -> object:
        seen.append((hook, given["results"]))
        return "annotated"

    def read(results: object, plugins: object) -> object:
        seen.append((results, plugins))
        return SimpleNamespace(responses=())

    using = SimpleNamespace(call=call)
    monkeypatch.setattr(annotating, "load_plugins", lambda: pytest.fail("plugins are given"))
    monkeypatch.setattr(annotating, "read_results", read)
    monkeypatch.setattr(annotating, "as_logged", lambda rows, partial: (rows, partial))
    results = {"a": 1}
    found = annotating.annotate_results(results, analysis=len, plugins=using)  # pyright: ignore[reportArgumentType]

    assert found == "annotated"
    assert seen == [(results, using), ("evalstats_annotate_results", results)]


def test_copies_that_are_there_stay_unless_they_may_be_overwritten(tmp_path: Path) -> None:
    """By default they may not."""
    log = Path(__file__).parents[2] / "fixtures" / "logs" / "inspect_ai" / "0.3.285" / "set"
    [first, *_] = annotating.annotate(log, output=tmp_path)
    before = first.read_bytes()
    first.write_bytes(before + b" ")

    with pytest.raises(WriteError, match="exists"):
        annotating.annotate(log, output=tmp_path)
    assert first.read_bytes() == before + b" "
    annotating.annotate(log, output=tmp_path, overwrite=True)
    assert first.read_bytes() != before + b" "


def test_a_plugin_that_fails_on_one_log_stops_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, where the others are checked or annotated; unless plugins are strict."""

    @hookimpl
    def evalstats_find_logs(files: Any) -> dict[Path, list[Path]]:
        return {file.path: [] for file in files if file.path.suffix == ".odd"}

    @hookimpl
    def evalstats_read_log(log: Any) -> None:
        if log.path.suffix == ".odd":
            raise ZeroDivisionError("odd")

    plugin = ModuleType("odd")
    vars(plugin).update(
        evalstats_find_logs=evalstats_find_logs, evalstats_read_log=evalstats_read_log
    )
    plugins, logs = _with(plugin), tmp_path / "logs"
    shutil.copytree(LOG, logs)
    (logs / "a.odd").touch()
    left_out: dict[str, str] = {}
    written = annotating.annotate(
        logs, output=tmp_path / "out", plugins=plugins,
        on_broken=lambda path, error: left_out.update({path.name: str(error)}),
    )  # fmt: skip
    failed = [f.detail for f in check(logs, plugins=plugins) if f.problem == "unreadable"]

    assert written
    assert list(left_out) == ["a.odd"]
    why = "plugin 'adapter' failed in evalstats_read_log: ZeroDivisionError: odd"
    assert (left_out["a.odd"], failed) == (why, [why])
    monkeypatch.setenv("EVALSTATS_STRICT_PLUGINS", "1")
    with pytest.raises(PluginError, match="failed in evalstats_read_log"):
        check(logs, plugins=plugins)

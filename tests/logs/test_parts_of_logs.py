"""Logs that hold a part of what was scored, and results in memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from evalstats_plugin.errors import WriteError
from evalstats_plugin.hookspecs import PartialScores
from evalstats_plugin.logs import annotating


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

"""`evalstats_plugin.ranking.judging.screen`, driven by Textual's pilot."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from textual.pilot import Pilot
from textual.widgets import Static

from evalstats_plugin.errors import WriteError
from evalstats_plugin.ranking.judging.items import Item, Items, read_items
from evalstats_plugin.ranking.judging.screen import JudgingApp, ResultScreen, Side, ranking_lines
from evalstats_plugin.ranking.judging.session import Session
from evalstats_plugin.ranking.judging.standing import Goal, Standing

NAMES = ("ant", "bee", "cat", "dog", "eel")
ITEMS = Items(tuple(Item(name, name) for name in NAMES), "animals")
Drive = Callable[[JudgingApp, Pilot[None]], Awaitable[None]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Give a file that is not there yet."""
    return tmp_path / "answers.json"


def _app(file: Path, items: Items = ITEMS, **more: Any) -> JudgingApp:
    session = Session.open(file, items.names, judge="ann")
    return JudgingApp(session, items, **{"seed": 1, **more})


def _drive(app: JudgingApp, drive: Drive, size: tuple[int, int] = (80, 24)) -> None:
    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await _settled(app, pilot)
            await drive(app, pilot)

    # Not asyncio.run: where nest_asyncio has replaced it, it leaves its loop open.
    with asyncio.Runner() as runner:
        runner.run(run())


async def _settled(app: JudgingApp, pilot: Pilot[None]) -> None:
    """Wait until the next pair is asked, and all that an answer starts has ended."""
    for _ in range(600):
        await pilot.pause()
        if app.pair is not None and all(worker.is_finished for worker in app.workers):
            return
        await asyncio.sleep(0.005)
    pytest.fail("no pair is shown")


async def _press(app: JudgingApp, pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await _settled(app, pilot)


def _text(app: JudgingApp, selector: str) -> str:
    """Return what a widget shows, as plain text."""
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(app.screen.query_one(selector, Static).content)
    return capture.get()


def test_a_whole_session_by_keys(file: Path) -> None:
    """From the first pair to the result; every answer has its place, judge and time."""
    app = _app(file)
    shown: list[tuple[int, int]] = []
    ended: list[int | None] = []

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        for key in ("f", "j", "left", "right", "t", "s"):
            assert app.pair is not None
            shown.append(app.pair)
            await _press(app, pilot, key)
        assert "5 answers, 1 tie, 1 skipped · saved" in _text(app, "#top")
        assert "pairs in right order" in _text(app, "#progress")
        await pilot.press("q")
        await pilot.pause()
        assert isinstance(app.screen, ResultScreen)
        assert "5 answers on 5 items" in _text(app, "#top")
        assert str(file) in _text(app, "#closing").replace("\n", "")
        await pilot.press("q")
        await pilot.pause()
        ended.append(app.return_code)

    _drive(app, drive)
    kept = Session.open(file)

    assert [0] == ended
    assert [1.0, 0.0, 1.0, 0.0, 0.5] == [a.outcome for a in kept.given]
    assert shown == [(a.first, a.second) for a in (*kept.given, *kept.skipped)]
    assert all(a.judge == "ann" and a.time and a.placed for a in kept.given)


def test_undo_goes_to_zero_and_shows_each_pair_again(file: Path) -> None:
    """As it stood, skips too; at zero it says so and goes on."""

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        shown: list[Any] = []
        for key in ("f", "t", "s", "j"):
            shown.append(app.pair)
            await _press(app, pilot, key)
        for pair in reversed(shown):
            await _press(app, pilot, "z")
            assert pair == app.pair
        await _press(app, pilot, "z", "z")
        assert shown[0] == app.pair
        assert "0 answers" in _text(app, "#top")
        await _press(app, pilot, "j")

    _drive(_app(file), drive)
    kept = json.loads(file.read_text())

    assert 1 == len(kept["comparisons"])
    assert 4 == len(kept["undone"])
    assert "skipped" not in kept


def test_the_app_continues_where_it_stopped(file: Path) -> None:
    """Also from a file of Fullrank's, whose last answer can be undone by one without a name."""
    whole = {"items": list(NAMES), "prior_var": 1.0, "comparisons": [{"winner": 4, "loser": 0}]}
    file.write_text(json.dumps(whole, indent="\t"))

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        assert "1 answer" in _text(app, "#top")
        assert app.ranking is not None
        assert 4 == app.ranking.order[0]
        await _press(app, pilot, "z", "f")

    _drive(JudgingApp(Session.open(file, NAMES), ITEMS, seed=1), drive)
    kept = Session.open(file)

    assert [(4, 0, 1.0)] == [(a.first, a.second, a.outcome) for a in kept.answers.undone]
    assert [(4, 0, 1.0)] == [(a.first, a.second, a.outcome) for a in kept.given]


def test_left_and_right_are_random(tmp_path: Path) -> None:
    """Of two items each stands left at one of two starts, and that is kept."""
    two = Items(ITEMS.items[:2], "two")
    firsts: list[int] = []
    for seed in range(2):
        file = tmp_path / f"{seed}.json"

        async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
            await _press(app, pilot, "f")

        _drive(_app(file, two, seed=seed), drive)
        firsts += [a.first for a in Session.open(file).given]

    assert {0, 1} == set(firsts)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 16)])
def test_everything_fits_whatever_the_size(file: Path, size: tuple[int, int]) -> None:
    """Both items are in sight, side by side, when the terminal is made another size."""
    long = Items(tuple(Item(n, f"{n} word " * 300, "Why?", markdown=True) for n in NAMES), "long")

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        await pilot.resize_terminal(*size)
        await pilot.pause()
        await _press(app, pilot, "f")
        left, right = (app.query_one(name, Side).region for name in ("#left", "#right"))
        for widget in ("#top", "#left", "#right", "#progress", "#prompt"):
            region = app.query_one(widget).region
            assert region.right <= size[0]
            assert 0 < region.bottom <= size[1]
        assert left.right <= right.x
        assert left.y == right.y
        assert min(left.width, right.width) >= 26
        assert min(left.height, right.height) >= 4
        assert "Why?" in _text(app, "#prompt Static")
        ranking = app.query_one("#ranking").region
        assert (ranking.x >= right.right) == (size[0] >= 110)

    _drive(_app(file, long), drive)


def test_long_items_scroll_and_are_laid_out(file: Path) -> None:
    """Markdown as such, control characters made harmless, both sides by the same keys."""
    text = "# Head\n\n" + "a *line* of it\n\n" * 60
    items = Items(
        (Item("m", text, markdown=True), Item("p", "\x1b[31mred\n" * 60), Item("e", " ")), "x"
    )
    beginnings = (["Head", "", "a line of it"], ["␛[31mred"] * 3, ["(empty)"])

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        both_long = 0
        for _ in range(5):
            assert app.pair is not None
            sides = list(app.query(Side))
            for place, side in zip(app.pair, sides, strict=True):
                found = [line.text.strip() for line in side.lines[:3]]
                assert beginnings[place] == found
                assert beginnings[place][0] == side.render_line(0).text.strip()
            if set(app.pair) == {0, 1}:
                both_long += 1
                assert [0, 0] == [side.scroll_y for side in sides]
                await pilot.press("pagedown")
                await pilot.pause()
                assert all(side.scroll_y > 5 for side in sides)
                assert sides[0].render_line(0).text != "Head"
            await _press(app, pilot, "f")
        assert both_long

    _drive(_app(file, items), drive)


def test_keys_do_not_answer_behind_the_result_nor_before_a_pair_is_shown(file: Path) -> None:
    """Two quick presses are one answer; on the result screen they are none."""

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        app.action_answer(1.0)
        app.action_answer(1.0)
        await _settled(app, pilot)
        assert 1 == len(app.session.given)
        await pilot.press("q", "f", "t", "z")
        await pilot.pause()
        assert 1 == len(app.session.given)
        await pilot.press("b")
        await _press(app, pilot, "j")
        assert 2 == len(app.session.given)

    _drive(_app(file), drive)


def test_an_answer_that_cannot_be_saved_is_asked_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state line says so; the program goes on."""
    broken = [True]

    def write(path: Path, content: bytes) -> None:
        if broken[0]:
            raise WriteError("disk full")
        path.write_bytes(content)

    monkeypatch.setattr("evalstats_plugin.ranking.judging.session.write_bytes", write)

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        pair = app.pair
        await _press(app, pilot, "f")
        assert "NOT SAVED" in _text(app, "#top")
        assert pair == app.pair
        broken[0] = False
        await _press(app, pilot, "f")
        assert "1 answer · saved" in _text(app, "#top")

    _drive(_app(file), drive)


def test_the_app_says_if_all_pairs_were_skipped(file: Path) -> None:
    """The last one stays, and undo works."""

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        await _press(app, pilot, "s", "s", "s", "s")
        assert 3 <= len(app.session.skipped)
        await _press(app, pilot, "z", "f")
        assert 1 == len(app.session.given)

    _drive(_app(file, Items(ITEMS.items[:3], "three")), drive)


def test_the_posterior_is_not_computed_on_the_ui_thread(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a file written there."""
    threads: dict[str, set[int]] = {}
    for owner, name in (
        (Standing, "update"), (Standing, "choose"), (Standing, "ranking"), (Session, "answer"),
    ):  # fmt: skip
        real = getattr(owner, name)

        def note(*given: Any, _real: Any = real, _name: str = name, **more: Any) -> Any:
            threads.setdefault(_name, set()).add(threading.get_ident())
            return _real(*given, **more)

        monkeypatch.setattr(owner, name, note)

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        await _press(app, pilot, "f")
        assert {"update", "choose", "ranking", "answer"} == threads.keys()
        assert not any(threading.get_ident() in used for used in threads.values())

    _drive(_app(file), drive)


def test_reaching_the_goal_is_announced_once(file: Path) -> None:
    """And the questions go on."""

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        assert not app._notifications
        await _press(app, pilot, "f", "f", "f")
        told = [n.message for n in app._notifications if "certainty asked for" in n.message]
        assert 1 == len(told)

    _drive(_app(file, goal=Goal.of("order", 0.55)), drive)


def test_the_ranking_can_be_hidden(file: Path) -> None:
    """For a judge who does not want to be swayed."""

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        height = app.query_one("#ranking").size.height
        assert height > 0
        await _press(app, pilot, "r", "f")
        assert not app.query_one("#ranking").display
        await _press(app, pilot, "r")
        assert app.query_one("#ranking").display

    _drive(_app(file), drive)


@pytest.mark.parametrize("width", [20, 34, 56, 76, 116])
def test_the_ranking_fits_its_width(width: int) -> None:
    """Names are cut, never the numbers; bars where there is room."""
    names = ["short", "a name that is longer than there is room for in most terminals", "日本語"]
    standing = Standing(3, 1.0, seed=1)
    lines = ranking_lines(standing.ranking(), names, width)

    assert 4 == len(lines)
    assert [width] * 3 == [line.cell_length for line in lines[1:]] or width > 76
    assert max(line.cell_length for line in lines) <= width
    assert all(line.text.endswith("%") for line in lines[1:])
    assert ("●" in lines[1].text) is (width >= 34)


def test_a_killed_process_loses_at_most_one_answer(file: Path) -> None:
    """By kill -9 while it is being used: all answers that it had shown as saved are there."""
    code = textwrap.dedent("""
        import asyncio, sys
        from pathlib import Path
        from evalstats_plugin.ranking.judging.screen import JudgingApp
        from evalstats_plugin.ranking.judging.items import read_items
        from evalstats_plugin.ranking.judging.session import Session

        items = read_items(sys.argv[1])
        app = JudgingApp(Session.open(sys.argv[2], items.names), items)

        async def run():
            async with app.run_test() as pilot:
                said = 0
                while True:
                    if app.pair is not None:
                        await pilot.press("f")
                    if len(app.session.given) > said:
                        said = len(app.session.given)
                        print(said, flush=True)
                    await asyncio.sleep(0.001)
        asyncio.run(run())
    """)
    items = file.with_name("items.txt")
    items.write_text("\n".join(NAMES))
    command = [sys.executable, "-c", code, items, file]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(7):
            said = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        told = [said, *map(int, process.stdout.read().split())][-1]
    kept = Session.open(file, read_items(items).names)

    assert 7 <= told <= len(kept.given) <= told + 1
    assert () == kept.answers.notes


def test_an_answer_takes_less_than_a_tenth_of_a_second(
    file: Path, within: Callable[..., None]
) -> None:
    """100 items, 1,000 answers: CPU from answer to next pair, with saving and drawing it."""
    rng = np.random.default_rng(0)
    items = Items(tuple(Item(f"item {k}", f"text of {k}") for k in range(100)), "many")
    pairs = (rng.choice(100, 2, replace=False) for _ in range(1000))
    comparisons = [{"winner": int(min(p)), "loser": int(max(p))} for p in pairs]
    whole = {"items": list(items.names), "comparisons": comparisons}
    spent: list[float] = []

    async def drive(app: JudgingApp, pilot: Pilot[None]) -> None:
        for _ in range(6):
            # The pilot's own waiting is left out: it takes as long again.
            start = time.process_time()
            app.action_answer(1.0)
            while app.pair is None:
                await asyncio.sleep(0.001)
            spent.append(time.process_time() - start)
            await _settled(app, pilot)

    def six_answers() -> None:
        file.write_text(json.dumps(whole))
        _drive(_app(file, items), drive)
        assert 1006 == len(Session.open(file).given)

    within(6 * 0.085, six_answers, clock=lambda: sum(spent))

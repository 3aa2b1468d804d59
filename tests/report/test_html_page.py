"""The report as people see it, in a real browser.

``EVALSTATS_SCREENSHOTS=1`` renews the pictures in ``docs/screenshots``.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from evalstats_plugin import ResponseMatrix, compare, intervals, judge, read
from evalstats_plugin import table as table_of
from evalstats_plugin.cli import main
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.logs.texts import item_texts
from evalstats_plugin.ranking.rank import leaderboard
from evalstats_plugin.report.answers import answer
from evalstats_plugin.report.html.page import Page, leaderboard_html, to_html
from evalstats_plugin.report.html.parts import natural
from evalstats_plugin.scores.items import ItemAnswers, item_answers, telling_items
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
SCREENSHOTS = ROOT / "docs" / "screenshots"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
HOSTILE = (
    "<script>window.hit = 1</script>", "</script><img src=x onerror=window.hit=1>",
    '"onload="window.hit=1', "'><svg onload=window.hit=1>", "<!--<script>", "a\u2028b\u2029c",
    "\ud800 half", "\x00bell\x07", "$x_1$ {{7*7}} &lt;", 'style="}body{display:none}"',
    "\u202eright to left", "x" * 300,
)  # fmt: skip
VIEWS = ("board", "compare", "tasks", "tasks&task=es_mc", "suspects", "method")
USUAL: dict[str, Any] = {"viewport": {"width": 1400, "height": 900}}
Open = Callable[..., Any]


def _page(responses: ResponseSet, **more: Any) -> Page:
    answers, notes = item_answers(responses)
    table = table_of(responses, subtasks=None, rng=0)
    given = {"table": table, "answers": answers, "notes": notes, "about": {"Seed": "0"}}
    return Page(
        responses=responses.responses, intervals=intervals(responses, rng=0), **{**given, **more}
    )


def _set(matrix: ResponseMatrix) -> ResponseSet:
    return ResponseSet(tuple(matrix.to_responses()))


@pytest.fixture(scope="module")
def browser(needs: Callable[..., None], program: Callable[[str], str]) -> Iterator[Any]:
    """Start Chromium."""
    needs("playwright")
    path = program("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=120_000)
        yield started
        started.close()


@pytest.fixture(scope="module")
def usual(browser: Any) -> Any:
    """Give the tab that visits share: a new one takes five times as long as a report in it."""
    page = browser.new_context(**USUAL).new_page()
    page.set_default_timeout(120_000)
    return page


@pytest.fixture
def visit(browser: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Give a function that opens a page from a file; whatever goes wrong in it fails the test.

    A page with options, such as one without scripts, has a context of its own; all others follow
    each other in one tab, which keeps nothing of the page before.
    """
    wrong: list[str] = []
    contexts: list[Any] = []
    left: list[Callable[[], None]] = []

    def said(dialog: Any) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    def visit(
        html: str, address: str = "", *, scheme: str = "light", size: Any = None, **options: Any
    ) -> Any:
        place = tmp_path / "report.html"
        place.write_text(html, encoding="utf-8")
        if options:
            contexts.append(browser.new_context(**{**USUAL, **options}))
            page = contexts[-1].new_page()
            page.set_default_timeout(120_000)
        else:
            while left:
                left.pop()()
            page = request.getfixturevalue("usual")
            page.set_viewport_size(size or USUAL["viewport"])
            page.emulate_media(media="null", color_scheme=scheme)
        heard = {
            "console": lambda message: wrong.append(message.text),
            "pageerror": lambda error: wrong.append(str(error)),
            "dialog": said,
            "request": lambda request: (
                request.url.partition("#")[0] == place.as_uri() or wrong.append(request.url)
            ),
        }
        for event, hear in heard.items():
            page.on(event, hear)

        def leave() -> None:
            page.evaluate("localStorage.clear()")
            for event, hear in heard.items():
                page.remove_listener(event, hear)
            page.goto("about:blank")

        if not options:
            left.append(leave)
        page.goto(place.as_uri() + address)
        return page

    yield visit
    for each in left:
        each()
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def bundled() -> Page:
    """Three models on fifteen tasks, as lm-eval logged them, with texts."""
    responses = read(LOGS)
    answers, _ = item_answers(responses)
    return _page(responses, texts=item_texts(responses, telling_items(answers, 40)))


@pytest.fixture(scope="module")
def html(bundled: Page) -> str:
    """Their page."""
    return to_html(bundled)


def _column(page: Any, section: str, title: str) -> list[str]:
    """Texts of a column, by its title."""
    heads = [text.strip() for text in page.locator(f"#{section} thead th").all_inner_texts()]
    cells = f"#{section} tbody tr > :nth-child({heads.index(title) + 1})"
    return [text.strip() for text in page.locator(cells).all_inner_texts()]


def _rows(page: Any, section: str) -> list[str]:
    return page.locator(f"#{section} tbody tr").all_inner_texts()


def _said(page: Any, section: str) -> str:
    return page.locator(f"#{section} .rows").inner_text()


def _abilities(n_models: int, n_items: int, seed: int = 0, n_tasks: int = 1) -> ResponseMatrix:
    """Give models with evenly spaced shares of right answers, the last the best."""
    rng = np.random.default_rng(seed)
    shares = np.linspace(0.3, 0.9, n_models)[:, None]
    return ResponseMatrix.from_array(
        (rng.random((n_models, n_items * n_tasks)) < shares) * 1.0,
        models=[f"m{k}" for k in range(n_models)],
        items=[str(k % n_items) for k in range(n_items * n_tasks)],
        tasks=[f"t{k // n_items}" for k in range(n_items * n_tasks)],
    )


def test_first_sentence_says_what_the_table_says(visit: Open) -> None:
    """As a comparison says it: one leader, a shared lead, two models; of one its score."""
    several = _set(_abilities(3, 200, n_tasks=2))
    page, said = visit(to_html(_page(several))), compare(several).answer
    assert page.locator("h1").first.inner_text() == said
    assert said.startswith("m2 is better than each of the other 2 models")

    rng = np.random.default_rng(3)
    alike = _page(_set(ResponseMatrix.from_array((rng.random((3, 30)) < 0.5) * 1.0)))
    assert "No two of the 3 models can be told apart" in to_html(alike)
    two = _set(_abilities(2, 100, n_tasks=2))
    page = visit(to_html(_page(two)))
    first = [page.locator("h1").first.inner_text(), *page.locator(".lede").all_inner_texts()[:1]]
    assert first == answer(compare(two).rows)
    one = to_html(_page(_set(_abilities(1, 100))))
    assert re.search(r"m0 scores [\d.]+ of 100 \(limits [\d.]+ to [\d.]+\)", one)


def test_sentences_hold_where_models_share_no_items_or_lower_is_better() -> None:
    """They named nobody, called the lowest score the highest, and missed a mean that none has."""
    scores = np.full((3, 60), np.nan)
    scores[:2, :30] = _abilities(2, 30).scores[:, :, 0]
    scores[2, 30:] = scores[0, :30]
    shared_by_two = to_html(_page(_set(ResponseMatrix.from_array(scores, metric="acc"))))
    assert "it was not compared with every other model." in shared_by_two

    errors = np.full((2, 60), np.nan)
    errors[0, :30], errors[1, 30:] = 0.2, 0.5
    apart = to_html(_page(_set(ResponseMatrix.from_array(errors, metric="brier_score"))))
    assert "has the lowest score, 20.0 of 100" in apart

    lacking = np.random.default_rng(0).random((3, 60)) * np.repeat([9.0, 1.0], 30)
    lacking[2, :30] = np.nan
    tasks = ["t"] * 30 + ["u"] * 30
    scales = to_html(_page(_set(ResponseMatrix.from_array(lacking, tasks=tasks, metric="reward"))))
    assert "their scores are on different scales, so no overall score is made" in scales
    assert "Some models have no overall score." not in scales
    assert "rest on the one pair (95 %)" in scales

    lacking[:, :30] = np.where([[True], [True], [False]], lacking[:, :30] / 9, np.nan)
    lacking[:2, 30:] = np.nan
    tasks = [f"hendrycksTest-{name}" for name in np.repeat(["anatomy", "astronomy"], 30)]
    nobody = to_html(_page(_set(ResponseMatrix.from_array(lacking, tasks=tasks, metric="acc"))))
    assert "no model has all of them, so no overall score is made" in nobody


def test_long_titles_and_names_differ_on_the_leaderboard() -> None:
    """Cut at their ends, columns were all called hendrycksTest-… and runs of a model alike."""
    tasks = [f"hendrycksTest-{name}" for name in np.repeat(["anatomy", "law", "virology"], 20)]
    long = "organization/A-Model-Of-Some-Size-7B (backend=hf, dtype={})"
    models = [long.format(name) for name in ("auto", "unset")]
    scores = np.random.default_rng(0).random((2, 60))
    html = to_html(_page(_set(ResponseMatrix.from_array(scores, tasks=tasks, models=models))))

    for attribute, n in (("vert", 3), ("name", 2)):
        shown = re.findall(rf'class="{attribute}" title="[^"]*">([^<]*)<', html)
        assert len({*shown}) == len(shown) == n
        assert max(map(len, shown)) <= 32


def test_distrust_names_missing_items_and_those_nobody_solves() -> None:
    """With how many, of whom, and what the rest of the task shows."""
    scores = _abilities(12, 50, n_tasks=2).scores[:, :, 0].copy()
    scores[:, :5] = 0.0
    scores[11, 60:70] = np.nan
    matrix = ResponseMatrix.from_array(scores, tasks=["t"] * 50 + ["u"] * 50)
    html = to_html(_page(_set(matrix)))

    assert "Not everyone sat the same test." in html
    assert "1 model, the first of the table among them, lacks 10 of 100 items." in html
    assert "5 items that no model gets right" in html
    assert "On the other 45 items of t the mean score is" in html


def test_ranks_bars_and_cells_are_those_of_the_table(html: str, visit: Open, bundled: Page) -> None:
    """In plain HTML: the same without scripts."""
    assert bundled.table is not None
    cells = {(c.task, c.model): c for c in bundled.table}
    plain, scripted = visit(html, java_script_enabled=False), visit(html)
    for page in (plain, scripted):
        rows = page.locator("#ranks tbody tr").evaluate_all(
            """all => all.map((row) => [
                 ...["th", ".rank", ".number"].map((x) => row.querySelector(x).innerText),
                 [...row.querySelectorAll(".heat")].map(
                   (x) => [x.dataset.task, x.textContent, x.classList.contains("first")]),
               ])"""
        )
        assert len(rows) == 3
        for model, rank, number, heats in rows:
            overall = cells["overall", model]
            ranks = {overall.best_rank, overall.worst_rank}
            assert rank == "–".join(map(str, sorted(ranks)))
            assert number == f"{100 * overall.estimate:.1f}"
            assert len(heats) > 10
            for task, text, first in heats:
                own = cells[task, model]
                assert (text, first) == (f"{100 * own.estimate:.0f}", own.may_be_first)
    assert not plain.locator("#compare").is_visible()
    assert plain.locator("#scores").is_visible()


def test_two_models_are_compared_from_the_address(html: str, visit: Open, bundled: Page) -> None:
    """Each task with its difference, simultaneous limits and verdict; reload and Back keep it."""
    page = visit(html, "#view=compare&a=models%2Fm0&b=models%2Fm2")
    title = page.locator("#h-compare").inner_text()
    assert title.startswith("models/m2 is better than models/m0 by")
    assert bundled.table is not None
    for pairs in bundled.table.pairs:
        i, j = (pairs.models.index(f"models/m{k}") for k in (0, 2))
        k = next(k for k in range(len(pairs.a)) if {pairs.a[k], pairs.b[k]} == {i, j})
        sign = 1 if pairs.b[k] == i else -1
        name = "Overall" if pairs.task == "overall" else pairs.task
        row = page.locator("#pair tbody tr", has=page.get_by_text(name, exact=True))
        cells = [text.replace("\u2212", "-") for text in row.locator("td").all_inner_texts()]
        assert float(cells[4]) == pytest.approx(100 * sign * pairs.difference[k], abs=0.051)
        alone = [100 * sign * x[k] for x in (pairs.low_single, pairs.high_single)[::sign]]
        assert [float(x) for x in cells[6].split(" to ")] == pytest.approx(alone, abs=0.056)
        verdict = {1: "A clearly better", -1: "B clearly better"}.get(sign * int(pairs.verdict[k]))
        unclear = "only if chosen before" if alone[0] > 0 or alone[1] < 0 else "cannot tell"
        assert cells[7] == (verdict or unclear)
    page.locator("#pair").get_by_role("link", name="es_mc", exact=True).click()
    assert "task=es_mc" in page.url
    assert set(_column(page, "flips", "Task")) == {"es_mc"}
    page.get_by_label("Model A").select_option(label="models/m1")
    assert {"models/m1", "models/m2"} == set(page.locator("#h-compare b").all_inner_texts())
    assert "a=models%2Fm1" in page.url
    page.reload()
    assert page.get_by_label("Model A").locator("option:checked").inner_text() == "models/m1"
    page.goto(page.url.partition("#")[0] + "#view=nonsense&a=nobody")
    assert page.locator("#board").is_visible()


def test_models_whose_cleaned_names_are_equal_have_addresses_of_their_own(visit: Open) -> None:
    """Control characters look alike on a page."""
    matrix = replace(_abilities(3, 50), models=("a\x01", "a\x02", "b"))
    page = visit(to_html(_page(_set(matrix))), "#view=compare")
    shown = page.locator("#a option").all_inner_texts()

    assert {name.replace("\ufffd", "?") for name in shown} == {"a?", "a? (2)", "b"}
    page.get_by_label("Model A").select_option(label=shown[0])
    page.get_by_label("Model B").select_option(label=shown[1])
    page.reload()
    assert page.locator("#compare option:checked").all_inner_texts() == shown[:2]


def test_what_is_shown_as_zero_has_no_sign(html: str, visit: Open) -> None:
    """Differences are hundredths of a point, shown in tenths; on other scales with three digits."""
    page = visit(html)
    shares, other = (
        page.evaluate(
            "(c) => [-250, -6, -4, 0, 4, 6, null].map((x) => points(c, x, true))",
            {"share": share},
        )
        for share in (True, False)
    )

    assert shares == ["−2.5", "−0.1", "0.0", "0.0", "0.0", "+0.1", "–"]
    assert other == ["−250", "−6", "−4", "0", "+4", "+6", "–"]


def test_scores_far_apart_keep_their_digits(visit: Open) -> None:
    """In steps of the largest number, scores of 15 and 20 were 0 beside one of ten million."""
    spread = np.random.default_rng(0).uniform(0.8, 1.2, 40)
    scores = np.array([[20.0], [15.0], [1e7]]) * spread
    models = ["good", "better", "broken"]
    responses = _set(ResponseMatrix.from_array(scores, models=models, metric="rmse"))
    page = visit(to_html(_page(responses)), "#view=compare&a=better&b=good")

    (row,) = (r for r in compare(responses, rng=0) if {r.model_a, r.model_b} == {"good", "better"})
    difference = f"{abs(row.difference or 0):.3g}"
    assert f"better is better than good by {difference} (limits" in page.inner_text("main")
    cells = _column(page, "pair", "A") + _column(page, "pair", "B")
    assert cells == [f"{15 * spread.mean():.3g}", f"{20 * spread.mean():.3g}"]
    ahead = [_column(page, "pair", f"{side} ahead") for side in "AB"]
    assert sorted(ahead) == [["0"], ["40"]]


def test_flipped_items_are_those_of_the_scores(visit: Open) -> None:
    """As many for each side as the matrix has, in the table and in the list."""
    scores = np.array([[1, 1, 0, 0, 1, 0], [0, 1, 1, 0, 0, 0], [0, 1, 0, 0, 1, 1]]) * 1.0
    html = to_html(_page(_set(ResponseMatrix.from_array(scores))))
    page = visit(html, "#view=compare&a=model_0&b=model_1")

    assert _column(page, "pair", "A ahead") == ["2"]
    assert _column(page, "pair", "B ahead") == ["1"]
    assert {*zip(*(_column(page, "flips", x) for x in ("Item", "A", "B")), strict=True)} == {
        ("item_0", "right", "wrong"), ("item_4", "right", "wrong"), ("item_2", "wrong", "right"),
    }  # fmt: skip


def test_a_task_is_drawn_when_it_is_opened(html: str, visit: Open, bundled: Page) -> None:
    """An interval for each model, the best first, with its numbers for those who hear the page."""
    page = visit(html, "#view=tasks")
    assert page.locator("#tasks svg").count() == 0
    page.get_by_role("link", name="es_mc", exact=True).click()
    assert bundled.table is not None
    own = sorted((c for c in bundled.table if c.task == "es_mc"), key=lambda c: -c.estimate)
    assert page.locator("#task svg.plot").evaluate_all("x => x.map((y) => y.ariaLabel)") == [
        f"{c.model}: {100 * c.estimate:.1f}, limits {100 * c.low:.1f} to {100 * c.high:.1f}"
        for c in own
    ]


def test_an_item_shows_question_target_and_answers(html: str, visit: Open) -> None:
    """Opened from the suspects; arrows go on, Escape closes and leaves the address without it."""
    page = visit(html, "#view=suspects")
    page.locator("#suspects [data-item] a").first.click()
    drawer = page.locator("dialog[open]")
    assert drawer.locator("h2", has_text="Question").count() == 1
    assert drawer.locator(".text").count() == 2 + 3
    assert drawer.locator(".answers li").count() == 3
    first = page.url
    page.keyboard.press("ArrowRight")
    page.wait_for_function("x => location.href !== x", arg=first)
    page.keyboard.press("Escape")
    drawer.wait_for(state="hidden")
    page.wait_for_function("() => !location.href.includes('item=')")


def test_leaderboard_filters_sorts_and_shows_differences(
    html: str, visit: Open, bundled: Page
) -> None:
    """By keyboard too: / goes to the search, arrows through the models."""
    page = visit(html)
    page.keyboard.press("/")
    page.keyboard.type("m1, m2")
    assert page.locator("#count").inner_text() == "2 of 3 models"
    page.locator("#find").fill("")
    page.locator("#ranks thead button", has_text="es_bin").click()
    column = page.locator("#ranks tbody tr .heat:nth-child(6)").all_text_contents()
    assert column == sorted(column, key=float, reverse=True)
    assert page.locator("#ranks th[aria-sort=descending]").count() == 1
    page.locator("#bars").select_option(label="the difference from models/m2")
    bars = page.locator("#ranks .barcell svg")
    titles = bars.evaluate_all("x => x.map((y) => y.ariaLabel || '')")
    assert bundled.table is not None
    (pairs,) = (p for p in bundled.table.pairs if p.kind == "overall")
    best = pairs.models.index("models/m2")
    beaten = sum(
        v * (1 if b == best else -1) == 1
        for a, b, v in zip(pairs.a, pairs.b, pairs.verdict, strict=True)
        if best in (a, b)
    )
    assert sum("clearly worse" in title for title in titles) == beaten > 0
    page.locator("#ranks tbody .name a").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('tr').rowIndex") == 2


def test_a_heading_sorts_up_then_down_then_not_at_all(html: str, visit: Open) -> None:
    """By mouse, and by keyboard alone."""
    page = visit(html, "#view=method")
    page.locator("#scores .turn select").select_option("1000")
    first = _column(page, "scores", "Estimate")
    head = page.locator("#scores thead th", has_text="Estimate")
    numbers = sorted(float(text) for text in first if text != "–")
    missing = first.count("–") * ["–"]
    assert missing

    assert head.get_attribute("aria-sort") is None
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    up = _column(page, "scores", "Estimate")
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    down = _column(page, "scores", "Estimate")
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") is None

    assert [float(x) for x in up[: len(numbers)]] == numbers
    assert [float(x) for x in down[: len(numbers)]] == numbers[::-1]
    assert up[len(numbers) :] == down[len(numbers) :] == missing
    assert _column(page, "scores", "Estimate") == first


def test_pages_of_a_table_turn(html: str, visit: Open, bundled: Page) -> None:
    """Forth and back, and never beyond the ends; a text filters."""
    page = visit(html, "#view=method")
    n = len(bundled.intervals)
    turn = page.locator("#scores .turn")
    turn.locator("select").select_option("1000")
    every = _rows(page, "scores")
    turn.locator("select").select_option("25")
    assert turn.get_by_text("Previous").is_disabled()
    assert _rows(page, "scores") == every[:25]
    turn.get_by_text("Next").click()
    assert _said(page, "scores") == f"Rows 26 to 50 of {n}"
    assert _rows(page, "scores") == every[25:50]
    turn.locator("select").select_option("100")
    turn.get_by_text("Next").click()
    assert turn.get_by_text("Next").is_disabled()
    assert _said(page, "scores") == f"Rows 126 to {n} of {n}"
    page.get_by_label("Text in any column").fill("M2 WILSON")
    assert set(_column(page, "scores", "Method")) == {"wilson-f1"}
    page.get_by_label("Text in any column").fill("no such thing")
    assert _said(page, "scores") == f"No row matches the filter (of {n} without the filter)"


SCALES = {
    "right, wrong, and nothing": lambda rng: np.where(
        rng.random((7, 30)) < 0.2, np.nan, rng.integers(0, 2, (7, 30))
    ),
    "one value": lambda rng: np.zeros((7, 30)),  # noqa: ARG005
    "grades": lambda rng: rng.integers(0, 6, (7, 30)) / 5,
    "many values": lambda rng: rng.integers(0, 40, (7, 30)) * 1.0,
    "real numbers": lambda rng: rng.normal(size=(7, 30)) * 50,
}
"""Scores that are packed in 2, 1, 3, 6 and 12 bits each."""


def test_an_item_opens_and_shows_every_models_score(visit: Open) -> None:
    """Those that the matrix holds, the best model first, and only once it is opened."""
    rng = np.random.default_rng(5)
    matrices = [
        ResponseMatrix.from_array(scale(rng), tasks=[task] * 30) for task, scale in SCALES.items()
    ]
    found = _page(ResponseSet(tuple(r for matrix in matrices for r in matrix.to_responses())))
    page = visit(to_html(found))
    assert page.locator(".answers").count() == 0
    assert {answers.task for answers in found.answers} == {*SCALES}
    for k, answers in enumerate(found.answers):
        spread = np.ptp(answers.scores) if answers.task == "real numbers" else 0
        for j in (0, 11):
            place = sorted(range(30), key=lambda i: natural(answers.item_ids[i])).index(j)
            page.goto(page.url.partition("#")[0] + f"#view=board&item={k}.{place}")
            name = f"^{re.escape(answers.item_ids[j])}$"
            page.locator("#h-item .id", has_text=re.compile(name)).wait_for()

            shown = page.locator(".answers li")
            models = [x.strip() for x in shown.locator(".model").all_inner_texts()]
            assert models == list(answers.models)
            words = {"right": 1.0, "wrong": 0.0}
            for text, score in zip(
                shown.locator("b").all_inner_texts(), answers.scores[:, j], strict=True
            ):
                near = pytest.approx(score, rel=5e-3, abs=spread / 8188 + 5e-3)
                expected = None if np.isnan(score) else near
                given = None if text == "–" else words[text] if text in words else float(text)
                assert given == expected


def test_the_theme_follows_the_system_and_the_choice(html: str, visit: Open) -> None:
    """A choice outlives a reload; texts can be read on either ground."""
    for scheme in ("light", "dark"):
        page = visit(html, scheme=scheme)
        texts = ("--ink", "--faint", "--link", "--a", "--b", "--none")
        grounds = ("--h0", "--h1", "--h2", "--h3", "--h4", "--shade")
        names = ["--paper", *texts, *grounds]
        found = page.evaluate(
            """names => names.map((name) =>
                 getComputedStyle(document.documentElement).getPropertyValue(name).trim())""",
            names,
        )
        light = dict(zip(names, map(_lightness, found), strict=True))
        assert light["--paper"] > 0.5 if scheme == "light" else light["--paper"] < 0.1
        other = {"light": "dark", "dark": "light"}[scheme]
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for name in texts:
            assert _contrast(light[name], light["--paper"]) >= 4.5, (scheme, name)
        for name in grounds:
            assert _contrast(light["--ink"], light[name]) >= 4.5, (scheme, name)
        page.get_by_label("Theme").select_option(other)
        after = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert before != after
        page.reload()
        assert page.get_by_label("Theme").input_value() == other
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def _lightness(text: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    shares = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: float, other: float) -> float:
    light, dark = sorted((one, other), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_paper_has_all_rows_and_no_controls(html: str, visit: Open, bundled: Page) -> None:
    """The screen is as before afterwards."""
    page = visit(html)
    page.evaluate(
        """addEventListener("beforeprint", () => {
             window.printed = document.querySelectorAll("#scores tbody tr").length;
             window.closed = document.querySelectorAll("details:not([open])").length;
           })"""
    )
    pdf = page.pdf(prefer_css_page_size=True)

    assert pdf.startswith(b"%PDF")
    assert page.evaluate("[window.printed, window.closed]") == [len(bundled.intervals), 0]
    assert page.locator("#scores tbody tr").count() == 25
    page.emulate_media(media="print")
    assert not page.locator("#filter, #controls, #compare").first.is_visible()
    assert not page.locator("#theme").is_visible()
    assert page.locator("#ranks").is_visible()
    assert page.locator("#scores").is_visible()
    # Browsers lay paper out as if it were upright, where a screen would hide the scores of tasks.
    page.set_viewport_size({"width": 816, "height": 900})
    assert page.locator("#ranks tbody .heat").first.is_visible()


def test_what_paper_leaves_out_is_said_on_it(visit: Open) -> None:
    """2,000 rows of each table."""
    row = ScoreInterval(model="m", task="t", metric="acc", n_items=1, estimate=0.5, low=0.1,
                        high=0.9, std_error=None, method="beta-hpd", confidence_level=0.95,
                        n_missing=0)  # fmt: skip
    page = visit(to_html(Page(responses=(), intervals=Intervals((row,) * 2001))), "#view=method")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")

    assert _said(page, "scores") == "Rows 1 to 2,000 of 2,001; 1 are left out in print"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert _said(page, "scores") == "Rows 1 to 25 of 2,001"


def test_without_scripts_the_same_rows_are_there(visit: Open) -> None:
    """Python and the page's script write every number alike, ties of rounding included."""
    numbers = [0.03125, 0.00005, -0.00005, 1.5, 99.99996, 100.5, 9999.995, 10_000.0, 12_345.678]
    numbers += [4.93e16, -1e20, 0.0, None, *np.random.default_rng(6).normal(size=40) ** 9]
    rows = [
        ScoreInterval(model=f"m{i}", task="t", metric="acc", n_items=10**i % 12_345, estimate=x,
                      low=None if x is None else x - 1, high=None if x is None else x + 1e4,
                      std_error=x, method="wilson", confidence_level=0.95, depth=i % 3,
                      kind="group" if i % 5 else "task",
                      higher_is_better=(None, True, False)[i % 3],
                      notes=("first",) if i % 2 else ("first", "second"))
        for i, x in enumerate(numbers)
    ]  # fmt: skip
    html = to_html(Page(responses=(), intervals=Intervals(tuple(rows))))
    plain = visit(html, java_script_enabled=False)
    scripted = visit(html, "#view=method")
    scripted.locator("#scores .turn select").select_option("100")

    assert not plain.locator("#filter").is_visible()
    assert len(_rows(plain, "scores")) == len(rows)
    assert _rows(plain, "scores") == _rows(scripted, "scores")
    bars, others = (
        p.locator("#scores rect.reach").evaluate_all(
            "x => x.flatMap((y) => [+y.getAttribute('x'), +y.getAttribute('width')])"
        )
        for p in (plain, scripted)
    )
    assert len(bars) > len(rows)
    assert bars == pytest.approx(others, abs=0.2)


def test_hostile_names_do_nothing_but_show(visit: Open) -> None:
    """Of models, tasks, items, metrics, notes, logs and settings; figures included."""
    rng = np.random.default_rng(7)
    n = len(HOSTILE)
    matrix = ResponseMatrix.from_array(
        rng.integers(0, 2, (n, 2 * n)) * 1.0, models=HOSTILE,
        items=[*HOSTILE, *HOSTILE], tasks=[HOSTILE[0]] * n + [HOSTILE[1]] * n, metric=HOSTILE[2],
    )  # fmt: skip
    responses = [
        replace(r, notes=HOSTILE, source=replace(r.source, path=Path(f"{HOSTILE[i % n]}.json"
                .replace("\x00", "")), harness=HOSTILE[0], version=HOSTILE[1], when=HOSTILE[2]))
        for i, r in enumerate(matrix.to_responses())
    ]  # fmt: skip
    found = replace(
        _page(ResponseSet(tuple(responses), HOSTILE)),
        about=dict(zip(HOSTILE, HOSTILE, strict=True)),
        texts={
            (HOSTILE[0], HOSTILE[0], name): ItemText(*HOSTILE[:3], where=HOSTILE[3])
            for name in HOSTILE
        },
    )
    html = to_html(found)
    page = visit(html)
    models = page.locator("#ranks tbody .name").evaluate_all("each => each.map(x => x.title)")
    said = page.locator("#method .said li").all_text_contents()
    shown = [re.sub("[\ud800\x00\x07\u2028\u2029\u202e]", "\ufffd", name) for name in HOSTILE]
    assert {*shown} <= {*models}
    for name in shown:
        assert any(text.startswith(name) for text in said)
    for place in ("compare", "tasks", "suspects", "method"):
        page.goto(page.url.partition("#")[0] + f"#view={place}&item=0.0")
        page.locator(f"#{place}").wait_for()
        assert page.locator(".answers .model").count() == n
        assert page.evaluate("window.hit") is None
    texts = page.locator("dialog .text").all_text_contents()
    assert texts[:3] == [shown[0], shown[1], shown[2]]

    assert page.locator("img, object, embed, iframe, base").count() == 0
    assert page.evaluate("document.scripts.length") == 2
    assert page.locator("body").is_visible()


def test_the_pages_policy_stops_what_is_not_its_own(html: str, usual: Any, tmp_path: Path) -> None:
    """Were anything to get into the page, it could not run, nor load, nor send."""
    bad = "<script>window.hit = 1</script>"
    bad += "<img src='http://127.0.0.1:9/x.png' onerror='window.hit = 1'>"
    changed = html.replace("<h1 ", f"{bad}<h1 onclick='window.hit = 1' ", 1)
    place = tmp_path / "changed.html"
    place.write_text(changed)
    refused: list[str] = []

    def hear(message: Any) -> None:
        refused.append(message.text)

    usual.on("console", hear)
    usual.goto(place.as_uri())
    usual.locator("#h-board").click()

    assert usual.evaluate("window.hit") is None
    assert sum("Content Security Policy" in text for text in refused) >= 3
    usual.remove_listener("console", hear)


def test_nothing_is_asked_of_a_server_but_the_page(html: str, browser: Any, tmp_path: Path) -> None:
    """Not even an icon."""
    (tmp_path / "report.html").write_text(html)
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/report.html", wait_until="networkidle")
    page.locator(".scripted").wait_for()
    page.close()
    server.shutdown()
    server.server_close()

    assert asked == ["/report.html"]


def test_headings_and_controls_have_names(html: str, visit: Open) -> None:
    """For those who hear the page: landmarks, heads, labels, captions, language, in every view."""
    page = visit(html)
    assert page.locator("html").get_attribute("lang") == "en"
    for landmark in ("header", "nav", "main", "aside", "[role=search]", "footer", "dialog"):
        assert page.locator(landmark).count() >= 1, landmark
    for view in VIEWS:
        page.goto(page.url.partition("#")[0] + f"#view={view}")
        section = view.partition("&")[0]
        page.locator(f"#{section}").wait_for()
        assert page.locator("h1:visible").count() == 1
        assert page.locator("nav a[aria-current]").count() == 1
        assert page.locator("thead th:not([scope=col])").count() == 0
        assert page.locator("tbody tr:not(:has(th[scope=row]))").count() == 0
        assert page.locator("table:not(:has(caption))").count() == 0
        assert page.locator("svg:not([aria-hidden]):not([aria-label])").count() == 0
        unnamed = """[...document.querySelectorAll("input, select")].filter(
            (x) => !x.labels.length && !x.getAttribute("aria-label")).length"""
        assert page.evaluate(unnamed) == 0
        assert (
            page.locator("button:visible, a:visible").evaluate_all(
                "x => x.filter((y) => !(y.innerText || y.ariaLabel || '').trim()).length"
            )
            == 0
        )
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((x) => x.id)")
        assert len(ids) == len(set(ids))


def test_axe_finds_no_barrier(visit: Open, needs: Callable[..., None]) -> None:
    """By axe-core's rules for WCAG 2 A and AA, in every view of the report, and on an arena.

    Wide in light colours and narrow in dark ones: widths differ in what is seen, not in colours.
    The first eight rows of each table: those that follow are made as they are.
    """
    needs("axe_playwright_python")
    from axe_playwright_python.base import AXE_SCRIPT

    responses = read(LOGS, task=["es_sub_a", "es_sub_b", "es_multirc_like"])
    texts = item_texts(responses, {"es_sub_b": [str(i) for i in range(12)]})
    verdicts = ROOT / "fixtures" / "data" / "judged" / "verdicts.csv"
    columns = {"score": ["gpt", "label"]}
    judged = judge(read(verdicts, columns=columns), judge="gpt", human="label").rows
    report = to_html(replace(_page(responses, texts=texts), judged=judged))
    drinks = leaderboard(ROOT / "fixtures" / "data" / "drinks" / "comparisons.json", rng=0)
    views = (*(view.replace("es_mc", "es_sub_b") for view in VIEWS), "suspects&item=1.0", "judged")
    # What passes is counted only: hundreds of elements would each be described and sent.
    run = """axe.run({runOnly: ["wcag2a", "wcag2aa", "best-practice"], resultTypes: ["violations"]})
        .then((done) => [done.passes.length, done.violations.map(
            (x) => `${x.id}: ${x.nodes[0].html.slice(0, 200)}`)])"""
    fewer = "document.querySelectorAll('tbody tr:nth-child(n+9)').forEach((row) => row.remove())"
    found: dict[tuple[str, str], list[str]] = {}
    for html, addresses in ((report, views), (leaderboard_html(drinks, {"Votes": "1"}), ("",))):
        page = visit(html)
        page.evaluate(AXE_SCRIPT)
        for scheme, width in (("light", 1440), ("dark", 390)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 900})
            for view in addresses:
                page.evaluate(f"location.hash = '#view={view}'")
                page.locator("nav a[aria-current], #pairs").first.wait_for()
                page.evaluate(fewer)
                n_passes, found[scheme, view] = page.evaluate(run)
                assert n_passes > 15, view

    assert found == {key: [] for key in found}


def test_every_note_of_the_text_report_is_there(html: str, visit: Open, bundled: Page) -> None:
    """Each said once, and each row points to its own."""
    page = visit(html, "#view=method")
    said = page.locator("#method").inner_text()
    for note in {*bundled.intervals.notes, *(n for r in bundled.intervals for n in r.notes)}:
        assert note in said
    page.get_by_label("Text in any column").fill("es_bin mcc m0")
    mark = page.locator("#scores .notes a").first
    note = page.locator(f"#note-{mark.inner_text()}")
    assert "the same label is predicted for every item" in note.inner_text()


def test_no_view_scrolls_sideways(html: str, visit: Open) -> None:
    """On a phone, a tablet and a desk; tables scroll within themselves."""
    widths = (360, 820, 1440)
    page = visit(html, size={"width": widths[0], "height": 800})
    for view in (*VIEWS, "suspects&item=0.0", "board"):
        page.goto(page.url.partition("#")[0] + f"#view={view}")
        page.locator(f"#{view.partition('&')[0]}").wait_for()
        for width in widths:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (view, width)
    unfold = page.locator("#ranks .unfold button").first
    for width in widths[::-1]:
        page.set_viewport_size({"width": width, "height": 800})
        assert unfold.is_visible() == (width <= 820)
    unfold.click()
    assert page.locator("#ranks tr.open .heat:visible").count() > 10


def test_a_phone_cuts_no_verdict_and_no_name(html: str, visit: Open) -> None:
    """Each row stands below its heads, and nothing of it is beyond the edge."""
    page = visit(html, size={"width": 360, "height": 800})
    for view in ("compare", "tasks", "tasks&task=es_mc"):
        page.goto(page.url.partition("#")[0] + f"#view={view}")
        section = f"#{view.partition('&')[0]}"
        page.locator(section).wait_for()
        cells = page.locator(f"{section} table").first.locator("tbody :is(th, td):visible")
        right = cells.evaluate_all(
            """all => all.map((cell) => {
                 const own = document.createRange();
                 own.selectNodeContents(cell);
                 return own.getBoundingClientRect().right;
               })"""
        )

        assert len(right) > 4, view
        assert max(right) <= 360, view
        if view == "compare":
            verdicts = page.locator("#pair .verdict")
            assert verdicts.count() > 10
            assert all(verdict.is_visible() for verdict in verdicts.all())


def test_settings_that_differ_have_the_colour_of_what_to_distrust(
    visit: Open, bundled: Page
) -> None:
    """And stand first; one model of three was asked with five examples."""
    shots = {"models/m1": "5"}
    responses = tuple(
        replace(r, settings=(("task.num_fewshot", shots.get(r.model, "0")),))
        for r in bundled.responses
    )
    page = visit(to_html(replace(bundled, responses=responses)), "#view=method")
    first = page.locator("#settings tbody tr").first
    colours = [
        page.locator(place).first.evaluate("x => getComputedStyle(x).color")
        for place in ("#settings tbody td", "aside h2", "#settings tbody tr:last-child td")
    ]

    assert first.inner_text().split("\t") == [
        "all tasks",
        "num_fewshot",
        "0",
        "models/m0, models/m2",
    ]
    assert colours[0] == colours[1] != colours[2]


def _with_tasks(page: Page, n: int) -> Page:
    """Return the page of so many tasks, each a copy of one of those of a page."""
    assert page.table is not None
    names = sorted({row.task for row in page.intervals})

    def copied(rows: Iterable[Any]) -> tuple[Any, ...]:
        by_task: dict[str, list[Any]] = {}
        for row in rows:
            by_task.setdefault(row.task, []).append(row)
        whole = [row for task in by_task.keys() - {*names} for row in by_task[task]]
        return (*whole, *(
            row.measured(task=f"benchmark_{k}") if isinstance(row, Responses)
            else replace(row, task=f"benchmark_{k}")
            for k in range(n) for row in by_task[names[k % len(names)]]
        ))  # fmt: skip

    table = replace(
        page.table, rows=copied(page.table), pairs=copied(page.table.pairs),
        in_overall=tuple(("task", f"benchmark_{k}") for k in range(n)),
    )  # fmt: skip
    return replace(
        page, responses=copied(page.responses), table=table, answers=copied(page.answers),
        intervals=replace(page.intervals, rows=copied(page.intervals)),
    )  # fmt: skip


def test_a_hundred_models_on_a_hundred_tasks_open_at_once(visit: Open) -> None:
    """At most 4 MB, and few seconds of work for the process that shows the page.

    CPU time: a clock would tell how busy the machine is; twice what a quiet one takes. The page is
    as long as that of a hundred tasks, which are two, each again under other names.
    """
    rng = np.random.default_rng(8)
    shape = (100, 2 * 20)
    right = rng.random(shape) < 1 / (
        1 + np.exp(rng.normal(size=shape[1]) - rng.normal(size=(100, 1)))
    )
    matrix = ResponseMatrix.from_array(
        right * 1.0, models=[f"provider/model-{i}-instruct" for i in range(100)],
        items=[str(i % 20) for i in range(shape[1])],
        tasks=[f"benchmark_{i // 20}" for i in range(shape[1])], metric="acc",
    )  # fmt: skip
    html = to_html(_with_tasks(_page(_set(matrix)), 100))
    assert len(html.encode()) <= 4e6
    page = visit(html, **USUAL)  # in a process of its own
    assert page.locator("#ranks tbody tr").count() == 100
    assert page.locator("#ranks tbody tr").first.locator(".heat").count() == 100
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable")
    spent = {m["name"]: m["value"] for m in metrics.send("Performance.getMetrics")["metrics"]}

    assert spent["ProcessTime"] <= 4, spent
    assert "This page compares the first 4" in page.locator("#board").inner_text()


def test_one_model_has_a_page_too(visit: Open) -> None:
    """Without comparisons, ranks, or flags."""
    responses = _set(ResponseMatrix.from_array([[1.0, 0.0, 1.0]]))
    answers: list[ItemAnswers] = item_answers(responses)[0]
    page = visit(
        to_html(Page(responses=responses.responses, intervals=intervals(responses), answers=answers,
                     notes=["models were not compared: one model"]))
    )  # fmt: skip

    assert page.locator("#compare, #ranks").count() == 0
    assert "models were not compared: one model" in page.locator("#board").inner_text()


def test_pictures_can_be_taken(visit: Open, html: str, tmp_path: Path) -> None:
    """The page in light, two models in dark, and narrow; a table on two widths of terminals.

    All of them are taken, of what the commands give, and kept with ``EVALSTATS_SCREENSHOTS`` only.
    """
    wanted = bool(os.environ.get("EVALSTATS_SCREENSHOTS"))
    kept, place = SCREENSHOTS if wanted else tmp_path, tmp_path / "made.html"
    if wanted:
        arguments = ["report", str(LOGS), "--html", str(place), "--quiet"]
        assert CliRunner().invoke(main, arguments).exit_code == 0
        html = place.read_text()
    pictures: list[tuple[str, str, str, dict[str, Any]]] = [
        ("report_html_dark", html, "#view=compare",
         {"scheme": "dark", "size": {"width": 1400, "height": 1000}}),
        ("report_html", html, "", {"size": {"width": 1400, "height": 1000}}),
        ("report_html_narrow", html, "", {"size": {"width": 400, "height": 900}}),
    ]  # fmt: skip
    for columns in (80, 160) if wanted else ():
        done = CliRunner(env={"COLUMNS": str(columns)}).invoke(main, ["table", str(LOGS), "-q"])
        pre = f"<meta charset=utf-8><pre style='font: 14px DejaVu Sans Mono'>{done.output}</pre>"
        size = {"width": columns * 9, "height": 18 * done.output.count("\n") + 20}
        pictures.append((f"table_{columns}", pre, "", {"size": size}))
    for name, page, address, options in pictures if wanted else pictures[:1]:
        visit(page, address, **options).screenshot(path=kept / f"{name}.png")
        assert (kept / f"{name}.png").stat().st_size > 10_000


def test_an_arena_is_sorted_and_searched_by_mouse_and_keyboard(visit: Open) -> None:
    """Each way round; unknown values stay last; and the order of rank comes back."""
    drinks = leaderboard(ROOT / "fixtures" / "data" / "drinks" / "comparisons.json", rng=0)
    page = visit(leaderboard_html(drinks, {}))
    names = page.locator("#board-table tbody th")
    by_rank = names.all_inner_texts()

    page.get_by_role("button", name="Player").click()
    assert sorted(by_rank) == names.all_inner_texts()
    page.get_by_role("button", name="Player").press("Enter")
    assert sorted(by_rank, reverse=True) == names.all_inner_texts()
    assert page.locator("th[aria-sort]").count() == 1
    page.get_by_role("button", name="P(best)").click()
    assert by_rank[0] == names.all_inner_texts()[0]
    page.get_by_role("button", name="Ranks").click()
    assert by_rank == names.all_inner_texts()
    page.keyboard.press("/")
    page.keyboard.type(by_rank[1].upper())
    assert [by_rank[1]] == page.locator("#board-table tbody th:visible").all_inner_texts()
    assert f"1 of {len(by_rank)}" == page.locator("#found").inner_text()
    page.keyboard.press("Escape")
    assert len(by_rank) == page.locator("#board-table tbody th:visible").count()

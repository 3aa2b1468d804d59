"""The report as people see it, in a real browser.

``EVALSTATS_SCREENSHOTS=1`` renews the pictures in ``docs/screenshots``.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from evalstats_plugin import ResponseMatrix, compare, intervals, read
from evalstats_plugin.cli import main
from evalstats_plugin.comparisons.rows import Comparison, Comparisons
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.report.html import parts
from evalstats_plugin.report.html.page import Page, to_html
from evalstats_plugin.scores.items import ItemAnswers, item_answers
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
SCREENSHOTS = ROOT / "docs" / "screenshots"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
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
Open = Callable[..., Any]


def _page(responses: ResponseSet, **more: Any) -> Page:
    answers, notes = item_answers(responses)
    return Page(
        responses=responses.responses,
        intervals=intervals(responses, rng=0),
        comparisons=compare(responses, rng=0),
        answers=answers,
        notes=notes,
        about={"Seed": "0"},
        **more,
    )


def _set(matrix: ResponseMatrix) -> ResponseSet:
    return ResponseSet(tuple(matrix.to_responses()))


@pytest.fixture(scope="module", autouse=True)
def few_figures() -> Iterator[None]:
    """Draw the figures of one task, not four: each costs as much as a whole test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MOST_TASKS", 1)
        yield


@pytest.fixture(scope="module")
def browser(needs: Callable[..., None]) -> Iterator[Any]:
    """Start Chromium."""
    needs("playwright")
    if BROWSER is None:
        missing = "no chromium here: apt-get install chromium"
        (pytest.fail if os.environ.get("EVALSTATS_REQUIRE_ALL") else pytest.skip)(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=BROWSER, args=ARGUMENTS, timeout=120_000
        )
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Give a function that opens a page from a file; whatever goes wrong in it fails the test."""
    wrong: list[str] = []
    contexts: list[Any] = []

    def visit(html: str, **options: Any) -> Any:
        place = tmp_path / "report.html"
        place.write_text(html, encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        contexts.append(context)
        context.set_default_timeout(120_000)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on(
            "request", lambda request: request.url == place.as_uri() or wrong.append(request.url)
        )
        page.goto(place.as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def bundled() -> Page:
    """Three models on fifteen tasks, as lm-eval logged them."""
    return _page(read(LOGS))


@pytest.fixture(scope="module")
def html(bundled: Page) -> str:
    """Their page."""
    return to_html(bundled)


def _column(page: Any, section: str, title: str) -> list[str]:
    """Texts of a column, by its title."""
    heads = [text.strip() for text in page.locator(f"#{section} thead th").all_inner_texts()]
    cells = f"#{section} tbody tr:not(.detail) > :nth-child({heads.index(title) + 1})"
    return [text.strip() for text in page.locator(cells).all_inner_texts()]


def _rows(page: Any, section: str) -> list[str]:
    return page.locator(f"#{section} tbody tr").all_inner_texts()


def _said(page: Any, section: str) -> str:
    return page.locator(f"#{section} .rows").inner_text()


def test_a_heading_sorts_up_then_down_then_not_at_all(html: str, visit: Open) -> None:
    """By mouse, and by keyboard alone."""
    page = visit(html)
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


def test_texts_sort_by_the_numbers_in_them(visit: Open) -> None:
    """Item 10 comes after item 9."""
    scores = np.random.default_rng(0).integers(0, 2, (3, 12)) * 1.0
    page = visit(to_html(_page(_set(ResponseMatrix.from_array(scores)))))
    page.locator("#items thead button").first.click()

    assert _column(page, "items", "Item") == [f"item_{i}" for i in range(12)]


def test_filters_look_at_all_tables(html: str, visit: Open, bundled: Page) -> None:
    """By text, model, task, metric, and what stands out; together, and back."""
    page = visit(html)
    n = len(bundled.intervals)
    assert _said(page, "scores") == f"Rows 1 to 25 of {n}"
    page.get_by_label("Model", exact=True).select_option("models/m1")
    page.get_by_label("Metric", exact=True).select_option("acc")

    rows = [r for r in bundled.intervals if r.model == "models/m1" and r.metric == "acc,none"]
    assert _column(page, "scores", "Task") == [r.task for r in rows]
    assert (
        _said(page, "scores") == f"Rows 1 to {len(rows)} of {len(rows)} (of {n} without the filter)"
    )
    sides = [_column(page, "comparisons", title) for title in ("Model", "Against")]
    assert all("models/m1" in pair for pair in zip(*sides, strict=True))
    page.get_by_label("Task", exact=True).select_option("es_bin")
    assert _column(page, "scores", "Task") == ["es_bin"]
    page.get_by_role("button", name="Show all").click()
    page.locator("#scores .rows", has_text=re.compile(f"Rows 1 to 25 of {n}$")).wait_for()
    page.get_by_label("Text in any column").fill("M2 WILSON")
    assert set(_column(page, "scores", "Method")) == {"wilson-f1"}
    assert set(_column(page, "scores", "Model")) == {"models/m2"}
    page.get_by_label("Text in any column").fill("no such thing")
    assert _said(page, "scores") == f"No row matches the filter (of {n} without the filter)"
    page.get_by_label("Text in any column").fill("")
    page.get_by_label("Clear differences and flagged items only").check()
    assert set(_column(page, "comparisons", "Verdict")) <= {"better", "worse"}
    assert "" not in _column(page, "items", "Flag")


def test_pages_of_a_table_turn(html: str, visit: Open, bundled: Page) -> None:
    """Forth and back, and never beyond the ends."""
    page = visit(html)
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
    assert _rows(page, "scores") == every[125:]


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


@pytest.mark.parametrize("scale", SCALES)
def test_an_item_opens_and_shows_every_models_score(scale: str, visit: Open) -> None:
    """Those that the matrix holds, the best model first, and only once it is opened."""
    scores = SCALES[scale](np.random.default_rng(5))
    found = _page(_set(ResponseMatrix.from_array(scores)))
    [answers] = found.answers
    page = visit(to_html(found))
    assert page.locator(".answers").count() == 0
    for j in (0, 11):
        button = page.get_by_role("button", name=answers.item_ids[j], exact=True)
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"

        shown = page.locator(".answers").nth(0 if j == 0 else 1).locator("li")
        assert [x.strip() for x in shown.locator(".model").all_inner_texts()] == list(
            answers.models
        )
        for text, score in zip(
            shown.locator("b").all_inner_texts(), answers.scores[:, j], strict=True
        ):
            step = np.nanmax(scores) - np.nanmin(scores) if scale == "real numbers" else 0
            expected = None if np.isnan(score) else pytest.approx(score, abs=step / 8188 + 5e-5)
            assert (None if text == "–" else float(text)) == expected
    page.get_by_role("button", name=answers.item_ids[0], exact=True).click()
    assert page.locator(".answers").count() == 1


def test_the_theme_follows_the_system_and_the_choice(html: str, visit: Open) -> None:
    """A choice outlives a reload; texts can be read on either ground."""
    for scheme in ("light", "dark"):
        page = visit(html, color_scheme=scheme)
        assert (
            _lightness(page, "--paper") > 0.5
            if scheme == "light"
            else _lightness(page, "--paper") < 0.1
        )
        other = {"light": "dark", "dark": "light"}[scheme]
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for name in ("--ink", "--faint", "--link", "--better", "--worse"):
            assert _contrast(page, name, "--paper") >= 4.5, (scheme, name)
        for name in ("--most", "--least", "--part", "--shade"):
            assert _contrast(page, "--ink", name) >= 4.5, (scheme, name)
        page.get_by_label("Theme").select_option(other)
        after = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert before != after
        page.reload()
        assert page.get_by_label("Theme").input_value() == other
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def _lightness(page: Any, name: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    text = page.evaluate(
        f"getComputedStyle(document.documentElement).getPropertyValue('{name}')"
    ).strip()
    shares = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(page: Any, one: str, other: str) -> float:
    light, dark = sorted((_lightness(page, one), _lightness(page, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_paper_has_all_rows_and_no_controls(html: str, visit: Open, bundled: Page) -> None:
    """And the figures; the screen is as before afterwards."""
    page = visit(html)
    before = _rows(page, "scores")
    page.evaluate(
        """addEventListener("beforeprint", () => {
             window.printed = document.querySelectorAll("#scores tbody tr").length;
             window.closed = document.querySelectorAll("details:not([open])").length;
             window.shown = getComputedStyle(document.getElementById("filter")).display;
           })"""
    )
    pdf = page.pdf(prefer_css_page_size=True)

    assert pdf.startswith(b"%PDF")
    assert page.evaluate("[window.printed, window.closed]") == [len(bundled.intervals), 0]
    assert _rows(page, "scores") == before
    page.emulate_media(media="print")
    assert not page.locator("#filter").is_visible()
    assert not page.get_by_label("Theme").is_visible()


def test_what_paper_leaves_out_is_said_on_it(visit: Open) -> None:
    """2,000 rows of each table."""
    row = ScoreInterval(model="m", task="t", metric="acc", n_items=1, estimate=0.5, low=0.1,
                        high=0.9, std_error=None, method="beta-hpd", confidence_level=0.95,
                        n_missing=0)  # fmt: skip
    page = visit(to_html(Page(responses=(), intervals=Intervals((row,) * 2001))))
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
    chances = [0.0, 4.9e-5, 5e-5, 0.00104, 0.00999, 0.5, 0.9985, 0.999, 0.9991, 1.0, None]
    pairs = [
        Comparison(model_a="a", model_b=f"b{i}", task="t", metric="acc", n_items=3, difference=x,
                   low=x, high=x, p_value=x, p_adjusted=x, prob_better=x, method="tango",
                   confidence_level=0.95)
        for i, x in enumerate(chances)
    ]  # fmt: skip
    html = to_html(
        Page(responses=(), intervals=Intervals(tuple(rows)), comparisons=Comparisons(tuple(pairs)))
    )
    plain, scripted = visit(html, java_script_enabled=False), visit(html)
    scripted.locator("#scores .turn select").select_option("100")

    assert not plain.locator("#filter").is_visible()
    for section in ("scores", "comparisons"):
        assert len(_rows(plain, section)) == len(rows if section == "scores" else pairs)
        assert _rows(plain, section) == _rows(scripted, section)
    bars = [p.locator("#scores rect.reach") for p in (plain, scripted)]
    for mine, its in zip(*(b.all() for b in bars), strict=True):
        for name in ("x", "width"):
            values = [float(r.get_attribute(name)) for r in (mine, its)]
            assert values[0] == pytest.approx(values[1], abs=0.2)


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
    )
    html = to_html(found)
    page = visit(html)
    page.locator("#items button.open").first.click()
    models = page.locator("#scores tbody th").all_text_contents()
    items = page.locator("#items tbody th").all_text_contents()
    said = page.locator("#notes li").all_text_contents()

    assert page.evaluate("window.hit") is None
    assert page.locator("img, object, embed, iframe, base").count() == 0
    assert page.evaluate("document.scripts.length") == 2
    for name in HOSTILE:
        shown = re.sub("[\ud800\x00\x07\u2028\u2029\u202e]", "\ufffd", name)
        assert shown in models
        assert shown in items
        assert any(text.startswith(shown) for text in said)
        page.get_by_label("Model", exact=True).select_option(shown)
        assert _said(page, "scores").startswith("Rows 1 to 2 of 2 ")
    assert page.locator("details svg").count() > 2
    assert page.locator("body").is_visible()


def test_the_pages_policy_stops_what_is_not_its_own(
    html: str, browser: Any, tmp_path: Path
) -> None:
    """Were anything to get into the page, it could not run, nor load, nor send."""
    changed = html.replace("<h1>", "<script>window.hit = 1</script><h1 onclick='window.hit = 1'>")
    changed = changed.replace(
        "<h1", "<img src='http://127.0.0.1:9/x.png' onerror='window.hit = 1'><h1"
    )
    place = tmp_path / "changed.html"
    place.write_text(changed)
    page = browser.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(place.as_uri())
    page.locator("h1").click()

    assert page.evaluate("window.hit") is None
    assert sum("Content Security Policy" in text for text in refused) >= 3
    page.close()


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
    """For those who hear the page: heads of columns and rows, labels, captions, language."""
    page = visit(html)

    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("thead th:not([scope=col])").count() == 0
    assert page.locator("tbody tr:not(:has(th[scope=row])):not(.detail)").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("h1").count() == 1
    unnamed = """[...document.querySelectorAll("input, select")].filter(
        (x) => !x.labels.length && !x.getAttribute("aria-label")).length"""
    assert page.evaluate(unnamed) == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((x) => x.id)")
    assert len(ids) == len(set(ids))
    for link in page.locator("a[href^='#']").all():
        assert page.locator(link.get_attribute("href")).count() == 1


def test_every_note_of_the_text_report_is_there(html: str, visit: Open, bundled: Page) -> None:
    """Each said once, and each row points to its own."""
    page = visit(html)
    said = page.locator("#notes").inner_text()
    for note in {*bundled.intervals.notes, *(n for r in bundled.intervals for n in r.notes)}:
        assert note in said
    page.get_by_label("Text in any column").fill("es_bin mcc m0")
    mark = page.locator("#scores .notes a").first
    assert mark.get_attribute("href") == f"#note-{mark.inner_text()}"
    assert (
        "the same label is predicted for every item"
        in page.locator(f"#note-{mark.inner_text()}").inner_text()
    )


def test_a_narrow_window_scrolls_within_tables_alone(html: str, visit: Open) -> None:
    """400 pixels."""
    page = visit(html, viewport={"width": 400, "height": 800})

    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator("#scores .scroll").evaluate("x => x.scrollWidth > x.clientWidth")


def test_a_hundred_models_on_a_hundred_tasks_open_at_once(
    visit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 5 MB with figures, and 2 seconds of work for the process that shows the page.

    CPU time: a clock would tell how busy the machine is.
    """
    monkeypatch.setattr(parts, "MOST_TASKS", 0)
    rng = np.random.default_rng(8)
    shape = (100, 100 * 20)
    right = rng.random(shape) < 1 / (
        1 + np.exp(rng.normal(size=shape[1]) - rng.normal(size=(100, 1)))
    )
    matrix = ResponseMatrix.from_array(
        right * 1.0, models=[f"provider/model-{i}-instruct" for i in range(100)],
        items=[str(i % 20) for i in range(shape[1])],
        tasks=[f"benchmark_{i // 20}" for i in range(shape[1])], metric="acc",
    )  # fmt: skip
    html = to_html(_page(_set(matrix)))
    assert len(html.encode()) + parts.LARGEST <= 5e6
    page = visit(html)
    assert _said(page, "scores") == "Rows 1 to 25 of 10,000"
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable")
    spent = {m["name"]: m["value"] for m in metrics.send("Performance.getMetrics")["metrics"]}

    assert spent["ProcessTime"] <= 2, spent
    assert "holds 9,900 of the 495,000 comparisons" in page.locator("#comparisons").inner_text()
    page.get_by_label("Task", exact=True).select_option("benchmark_7")
    assert _said(page, "scores").startswith("Rows 1 to 25 of 100 ")


def test_one_model_has_a_page_too(visit: Open) -> None:
    """Without comparisons, ranks, or flags."""
    responses = _set(ResponseMatrix.from_array([[1.0, 0.0, 1.0]]))
    answers: list[ItemAnswers] = item_answers(responses)[0]
    page = visit(
        to_html(Page(responses=responses.responses, intervals=intervals(responses), answers=answers,
                     notes=["models were not compared: one model"]))
    )  # fmt: skip

    assert page.locator("#comparisons, #ranks").count() == 0
    assert "models were not compared: one model" in page.locator("#notes").inner_text()


@pytest.mark.skipif("EVALSTATS_SCREENSHOTS" not in os.environ, reason="pictures are kept")
def test_pictures_are_renewed(visit: Open, tmp_path: Path) -> None:
    """Light, dark with an item opened, and narrow; of the page that the command writes."""
    place = tmp_path / "made.html"
    arguments = ["report", str(LOGS), "--html", str(place), "--quiet"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    for name, options in {
        "": {"color_scheme": "light", "viewport": {"width": 1400, "height": 1000}},
        "_dark": {"color_scheme": "dark", "viewport": {"width": 1400, "height": 1000}},
        "_narrow": {"viewport": {"width": 400, "height": 900}},
    }.items():
        page = visit(place.read_text(), **options)
        if name == "_dark":
            page.locator("#items button.open").nth(1).click()
            page.evaluate("document.querySelector('details').open = false")
            page.evaluate("document.getElementById('figures').scrollIntoView()")
        page.screenshot(path=SCREENSHOTS / f"report_html{name}.png")

"""What people see: annotated logs in Inspect's own viewer, driven by a real browser.

``EVALSTATS_SCREENSHOTS=1`` renews the pictures in ``docs/screenshots``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evalstats_plugin import annotate

ROOT = Path(__file__).parents[3]
MODELS = ROOT / "fixtures" / "logs" / "inspect_ai" / "0.3.285" / "models"
ADAPTIVE = MODELS.parent / "adaptive"
SCREENSHOTS = ROOT / "docs" / "screenshots"
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

Open = Callable[[str], Any]


class Logs(NamedTuple):
    """A folder of annotated logs, and what is in the first of each task."""

    first: dict[str, Path]
    summaries: dict[str, str]
    bounds: dict[str, list[str]]
    """As the viewer shows them."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory, needs: Callable[..., None]) -> Logs:
    """Annotate a folder of logs; the first has item columns too."""
    needs("playwright", "chromium")
    folder = tmp_path_factory.mktemp("logs")
    tasks = ("arith", "reading", "rubric-task", "arith-epochs")
    for task in tasks:
        sources = sorted(MODELS.glob(f"*_{task}_*"))
        for source in sources if task == "arith" else sources[:1]:
            shutil.copy(source, folder)
    annotate(folder, in_place=True)
    first = {task: min(folder.glob(f"*_{task}_*")) for task in tasks}
    arith = [*folder.glob("*_arith_*")]
    annotate(*arith, in_place=True, items="columns", baseline="mockllm/delta")
    [source] = ADAPTIVE.glob("*.eval")
    first["adaptive"] = folder / source.name.replace("_arith_", "_adaptive_")
    shutil.copy(source, first["adaptive"])
    annotate(first["adaptive"], in_place=True)
    headers = {task: _header(log) for task, log in first.items()}
    return Logs(
        first,
        {task: header.metadata["evalstats_summary"] for task, header in headers.items()},
        {task: _bounds(header) for task, header in headers.items()},
    )


def _header(log: Path) -> Any:
    from inspect_ai.log import read_eval_log

    return read_eval_log(str(log), header_only=True)


def _bounds(header: Any) -> list[str]:
    metrics = [m for s in header.results.scores for m in s.metrics.values()]
    return [f"{m.value:.3f}".rstrip("0") for m in metrics if m.group == "evalstats"]


@pytest.fixture(scope="module")
def viewer(logs: Logs) -> Iterator[str]:
    """Run ``inspect view`` and give its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    command = [
        sys.executable,
        "-m",
        "inspect_ai",
        "view",
        "start",
        "--log-dir",
        str(logs.first["arith"].parent),
    ]
    with subprocess.Popen(
        [*command, "--host", address[0], "--port", str(address[1])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        end = time.monotonic() + 240
        while True:
            try:
                socket.create_connection(address).close()
                break
            except OSError:
                assert server.poll() is None, "inspect view has ended"
                assert time.monotonic() < end, "inspect view does not answer"
                time.sleep(0.1)
        yield "http://{}:{}/#/logs".format(*address)
        server.terminate()


@pytest.fixture(scope="module")
def visit(
    viewer: str, tmp_path_factory: pytest.TempPathFactory, program: Callable[[str], str]
) -> Iterator[Open]:
    """Give a function that opens a page of the viewer in a browser of its own.

    All pages follow each other in one tab: a new one takes longer than the viewer in it.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=program("chromium"),
            args=ARGUMENTS,
            headless=True,
            viewport={"width": 1600, "height": 800},
            timeout=120_000,
        )
        browser.set_default_timeout(120_000)

        def visit(place: str) -> Any:
            [page] = browser.pages
            page.goto("about:blank")  # places of the viewer differ in what follows #
            page.goto(viewer + place)
            return page

        yield visit
        browser.close()


def _shows(page: Any, *texts: str) -> None:
    """Wait until a page shows all the texts."""
    for text in texts:
        page.get_by_text(text).first.wait_for()


def _keep(page: Any, name: str) -> None:
    picture = SCREENSHOTS / f"inspect_{name}.png"
    if os.environ.get("EVALSTATS_SCREENSHOTS") and picture.exists():
        page.wait_for_timeout(2000)
        # Where the logs lie is nobody's business and another place each time.
        page.locator(".breadcrumb-item").first.evaluate("crumb => crumb.textContent = 'evals'")
        page.screenshot(path=picture, animations="disabled")


def test_the_header_shows_the_interval_and_the_samples_have_item_columns(
    logs: Logs, visit: Open
) -> None:
    """Beside the accuracy, and in a group of their own among all metrics, with the tag.

    Columns: the scores of all models, and whether this one won, lost or tied.
    """
    page = visit(f"/{logs.first['arith'].name}")
    _shows(page, "ci95 lo", "ci95 hi", *logs.bounds["arith"], "evalstats", "item p")
    header = page.inner_text("body").lower()

    assert header.index("accuracy") < header.index("ci95 lo") < header.index("ci95 hi")
    _shows(page, "item p", "item n", "item z", "vs delta", "won", "lost", "tied")
    rows = page.inner_text("[role=grid]").lower()
    assert rows.index("match") < rows.index("item p") < rows.index("item n") < rows.index("item z")
    _keep(page, "samples")
    page.get_by_text("All scoring").first.click()
    _shows(page, "Scoring Detail")
    assert "evalstats\n" in page.inner_text("body").lower()
    _keep(page, "scoring")


def test_the_log_list_has_tags_and_bounds_as_columns(logs: Logs, visit: Open) -> None:
    """Bounds are columns to choose."""
    page = visit("")
    _shows(page, "arith_epochs", "evalstats")
    # The viewer fetches details row by row, and leaves some rows without for good: any log will do.
    wanted = [("evalstats_ci95_lo", *bounds) for bounds in logs.bounds.values()]
    for _ in range(10):
        # Nor does it always remember its columns: choose them anew until they are there.
        _choose_columns(page)
        if _has_one_of(page, wanted):
            break
        # What a log's own page has fetched the list has too.
        page = visit(f"/{logs.first['arith'].name}")
        _shows(page, "ci95 lo")
        page = visit("")
        _shows(page, "arith_epochs")
    else:
        pytest.fail(page.inner_text("[role=grid]"))
    _keep(page, "list")


def _has_one_of(page: Any, wanted: Sequence[Sequence[str]]) -> bool:
    """Wait two seconds at most until the list shows all texts of a row."""
    for _ in range(20):
        shown = page.inner_text("[role=grid]").lower()
        if any(all(text in shown for text in texts) for texts in wanted):
            return True
        page.wait_for_timeout(100)
    return False


def _choose_columns(page: Any) -> None:
    """Show the bounds in the place of what tells little here."""
    page.get_by_text("Columns").first.click()
    for column in ("File Name", "Samples", "Tokens", "Duration", "Task Args"):
        page.get_by_label(column, exact=True).set_checked(False)
    for bound in ("lo", "hi"):
        page.get_by_label(f"evalstats_ci95_{bound}", exact=True).first.set_checked(True)
    page.get_by_text("Columns").first.click()


def test_the_info_tab_says_it_in_one_line_and_the_activity_tab_who_did_it(
    logs: Logs, visit: Open
) -> None:
    """Score and verdict, and the whole annotation as a tree; author, reason and the edit itself."""
    assert "; worse than mockllm/delta: -0.460 [" in logs.summaries["arith"]
    page = visit(f"/{logs.first['arith'].name}/info")
    _shows(page, "evalstats_summary", logs.summaries["arith"])
    page.get_by_text("evalstats:").first.click()
    _shows(page, "schema_version", "intervals")
    _keep(page, "info")
    page.get_by_text("Activity", exact=True).first.click()
    _shows(page, "History", "+evalstats", "evalstats_plugin 0.", "statistical annotation")
    _keep(page, "activity")


def test_a_sample_has_its_statistics(logs: Logs, visit: Open) -> None:
    """In its metadata, and as a score after the others with a word of explanation."""
    page = visit(f"/{logs.first['arith'].name}/samples/sample/3/1/scoring")
    _shows(page, "evalstats_item", "Statistics of this item over all its epochs")
    _keep(page, "item")
    page = visit(f"/{logs.first['arith'].name}/samples/sample/3/1/metadata")
    _shows(page, "evalstats_p", "evalstats_z")


def test_an_adaptive_test_shows_the_score_of_all_items(logs: Logs, visit: Open) -> None:
    """Beside the mean of those asked; why it stopped is in the Info tab."""
    page = visit(f"/{logs.first['adaptive'].name}")
    bounds = logs.bounds["adaptive"]
    assert 3 == len(bounds)
    _shows(page, "full score", "full ci95 lo", "full ci95 hi", *bounds, "accuracy")
    _shows(page, "Skipped 37 samples due to early stopping (evalstats_plugin adaptive)")
    _keep(page, "adaptive")
    page = visit(f"/{logs.first['adaptive'].name}/info")
    _shows(page, "13 of 50 items asked adaptively", "full score")


@pytest.mark.parametrize(
    ("task", "n_values"), [("arith-epochs", 3), ("rubric-task", 2), ("reading", 2)]
)
def test_several_scores_have_an_interval_each(
    task: str, n_values: int, logs: Logs, visit: Open
) -> None:
    """Three reducers, two keys, the headline's group and all: in the table behind the header."""
    page = visit(f"/{logs.first[task].name}")
    page.get_by_text("All scoring").first.click()
    _shows(page, "Scoring Detail", "ci95 lo", "ci95 hi", *logs.bounds[task])

    assert 2 * n_values == len(logs.bounds[task])
    _keep(page, f"scoring_{task.replace('-', '_')}")

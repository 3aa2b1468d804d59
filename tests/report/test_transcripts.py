"""What README and the first pages run, on narrow and wide terminals."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from textwrap import wrap

import pytest
from parts import sessions
from rich.cells import cell_len

Run = Callable[..., "CompletedProcess[str]"]
Transcripts = dict[int, dict[str, str]]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "start").glob("*.md"))]
WIDTHS = (40, 80, 120)
UNBROKEN = 2000
"""Characters of a terminal on which nothing is broken or left out."""
PRINTING = ("report", "check", "compare", "table", "power")
LEGENDS = re.compile(
    r"^(?:Overall: |Items needed: |Std\. error: |won, better: |\u25b2 better|Each model is set)"
)


@pytest.fixture(scope="module")
def transcripts(run: Run) -> Transcripts:
    """Return by width what each command prints that prints a table; the others run once."""
    shown: Transcripts = {width: {} for width in (*WIDTHS, UNBROKEN)}
    for page in PAGES:
        with sessions.workspace() as folder:
            for command, _ in sessions.shown(page):
                ours, _, _ = command.partition(" | ")
                program, name, *_ = words = shlex.split(ours)
                if program != "evalstats-plugin":
                    sessions.shell(command, folder)
                elif name == "export":
                    run(*words[1:], folder=folder)
                elif name in PRINTING and "--format" not in words:
                    for width, outputs in shown.items():
                        done = run(*words[1:], folder=folder, COLUMNS=str(width))
                        outputs[f"{page.name}: {ours}"] = done.stdout
    return shown


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_longer_than_the_terminal(transcripts: Transcripts, width: int) -> None:
    shown = transcripts[width]
    long = {
        command: line
        for command, text in shown.items()
        for line in text.splitlines()
        if cell_len(line.rstrip()) > width
    }

    assert len(shown) >= 12
    assert long == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_no_name_and_no_number_is_broken(transcripts: Transcripts, width: int) -> None:
    """Each word is one of the widest terminal's, or such a word without its middle."""
    broken = {
        command: parts
        for command, text in transcripts[width].items()
        if (parts := _broken(text, transcripts[UNBROKEN][command], width))
    }

    assert broken == {}


def _broken(text: str, whole: str, width: int) -> list[str]:
    """Return the words of a text that are in no whole one, not even without their middles."""
    words = set(whole.split())
    # What is longer than a line, such as a path, goes on on the next one.
    longer = [word for word in words if cell_len(word) > width - 4]
    return [
        word
        for word in dict.fromkeys(text.split())
        if word not in words
        and set(word) != {"─"}
        and not any(word in each for each in longer)
        and not _elided(word, words)
    ]


def _elided(word: str, words: set[str]) -> bool:
    start, cut, end = word.rstrip("*").partition("…")
    return bool(cut) and any(
        each.startswith(start) and each.rstrip("*").endswith(end) for each in words
    )


def test_a_broken_number_is_noticed() -> None:
    assert _broken("m1 -0.70\n46", "m1 -0.7046", 40) == ["-0.70", "46"]
    assert _broken("mod els/m1 a…c", "models/m1 abbbc", 40) == ["mod", "els/m1"]


@pytest.mark.parametrize("width", [80, 120])
def test_a_legend_has_two_lines_at_most(transcripts: Transcripts, width: int) -> None:
    """`--explain` and the pages say the rest."""
    legends = {
        f"{command}: {line}": lines
        for command, text in transcripts[UNBROKEN].items()
        for line in text.splitlines()
        if LEGENDS.match(line) and (lines := len(wrap(line, width, break_on_hyphens=False)))
    }

    assert len(legends) >= 6
    assert {legend: lines for legend, lines in legends.items() if lines > 2} == {}

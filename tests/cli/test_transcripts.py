"""What a terminal of 40, 80 or 120 columns shows: no line is too long, no name or number broken."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import wrap
from typing import Any

import click
import pytest
from click.testing import CliRunner

from evalstats_plugin.cli import main
from evalstats_plugin.cli.shell.running import Output

ROOT = Path(__file__).parents[2]
LM_EVAL = "fixtures/logs/lm_eval/0.4.13/out"
INSPECT = "fixtures/logs/inspect_ai/0.3.285/models"
PAGES = (
    "README.md", "docs/start/inspect.md", "docs/start/lm-eval.md", "docs/start/compare.md",
    "docs/guides/gate.md", "docs/guides/power.md",
)  # fmt: skip
WIDTHS = (40, 80, 120, 2000)

MORE = (
    f"noise {LM_EVAL}",
    f"irt items {LM_EVAL} -m acc",
    f"compare {LM_EVAL}",
    f"gate {LM_EVAL} -m acc --baseline models/m1 --models models/m1,models/m2",
    f"table {LM_EVAL}",
    f"pool {LM_EVAL} -m acc --chains 2 --draws 100 --warm-up 50",
    f"irt fit {LM_EVAL} -m acc",
    "plugins --metrics",
)
"""Commands that no page shows whole."""

_SHOWN = re.compile(
    r"^\$ evalstats-plugin ((?:report|compare|table|check|power|gate) .*?)(?: \|.*)?$", re.MULTILINE
)


def _commands() -> list[str]:
    """Return the first command of each kind of each page, and more."""
    commands: dict[tuple[str, str], str] = {}
    for page in PAGES:
        for command in _SHOWN.findall((ROOT / page).read_text()):
            if "--format" not in command and "--protocol" not in command:
                name = command.split()[0]
                commands.setdefault((page, name), re.sub(r" out\b", f" {LM_EVAL}", command))
    return [*commands.values(), *MORE]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\s,;()\[\]:]+", text))


def broken(narrow: str, wide: str) -> list[str]:
    """Return what stands on the narrow screen and is a part of a word of the wide one.

    Names that lost their middles are not broken, nor are paths, and compounds go on after a hyphen.
    """
    whole = {word for word in _words(wide) if "results_" not in word}
    parts = {
        word
        for word in _words(narrow) - _words(wide)
        if not set(word) & {"…", "─"} and not word.endswith("-") and "results_" not in word
    }
    return sorted(
        part for part in parts if any(w.startswith(part) or w.endswith(part) for w in whole)
    )


def _shown(command: str, monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Return what a command shows at each width; its results are found once."""
    show = Output.show

    def show_at_each(self: Output, *given: Any) -> None:
        for width in WIDTHS:
            monkeypatch.setenv("COLUMNS", str(width))
            show(self, *given)
            click.echo("\f", nl=False)

    def ran(width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        done = CliRunner().invoke(main, command.split(), catch_exceptions=False)
        assert done.exit_code in (0, 1, 3, 4), done.output
        return done.stdout

    monkeypatch.chdir(ROOT)
    with monkeypatch.context() as patch:
        patch.setattr(Output, "show", show_at_each)
        texts = ran(80).split("\f")
    # Some commands print no results.
    return dict(zip(WIDTHS, texts if len(texts) > 1 else map(ran, WIDTHS), strict=False))


@pytest.mark.parametrize("command", _commands())
def test_lines_fit_words_stay_whole_and_legends_are_short(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 40 and 80 columns, beside 120; legends have two lines at 80."""
    at = _shown(command, monkeypatch)
    for width in (40, 80, 120):
        assert at[width]
        assert [line for line in at[width].splitlines() if len(line) > width] == []
        assert broken(at[width], at[120]) == []

    closing = at[2000].splitlines()[-6:-1]
    legend = [line for line in closing if re.match(r"[A-Za-z(0][^:]{0,20}: |\u25b2", line)]
    assert [line for line in legend if len(wrap(line, 80, break_on_hyphens=False)) > 2] == []


def test_a_broken_name_is_found_out() -> None:
    """Else the test above would show nothing."""
    assert broken("models/m\n0  +0.5\n500", "models/m0  +0.5500") == [
        "+0.5",
        "0",
        "500",
        "models/m",
    ]
    assert broken("mode…/m0", "models/m0") == []

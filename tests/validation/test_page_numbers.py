"""Are the sessions of the pages the same on two processors?

Each command of each page is run as both. What is not marked as drawn is the same to the last digit
printed; of what is drawn the digits shown are those that its Monte-Carlo error leaves, so that
differences are counted in units of the last one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from parts import sessions
from processors import PROCESSORS, Processor, arithmetic, differences
from study import FOLDER, write_figures

pytestmark = pytest.mark.validation

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
_SLOW = re.compile(
    r"^(?:warning:|\*) +plugin '[^']*' took .*?leaves\s+it\s+out\n", re.MULTILINE | re.DOTALL
)
"""What is said of a plugin where the machine is busy with other work."""
MOST_UNITS = 3
"""Of the last digit of a number that is drawn: three times its error."""


def _run(processor: Processor, command: str, folder: Path) -> str:
    """Run a command as a page does."""
    environment = sessions.environment(folder)
    if re.fullmatch(r"evalstats-plugin [^|<>&;$`\\\n]*", command):
        return processor.run(shlex.split(command)[1:], EVALSTATS_NO_CONFIG="", **environment)
    return processor.shell(command, **environment)


def _compared(page: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    outputs: list[list[str]] = []
    shown = list(sessions.shown(ROOT / page))
    for name in PROCESSORS:
        with sessions.workspace() as folder, Processor(name, folder) as processor:
            outputs.append([_run(processor, command, folder) for command, _ in shown])
    for (command, drawn), first, second in zip(shown, *outputs, strict=True):
        n, units = differences(_SLOW.sub("", first), _SLOW.sub("", second))
        row = {"page": page, "command": command.split("\n")[0], "drawn": drawn}
        same_words = isfinite(units)
        found.append(
            row
            | {"same_words": same_words, "numbers_that_differ": n}
            | {"most_units": units if same_words else None}
        )
    return found


def _same(page: str) -> list[dict[str, object]]:
    """Compare a page, once more where words differ: a busy machine names plugins as slow."""
    rows = _compared(page)
    return rows if all(row["same_words"] for row in rows) else _compared(page)


def _summary(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    return [
        {
            "drawn": drawn,
            "commands": len(own),
            "that_differ": sum(row["numbers_that_differ"] != 0 for row in own),
            "most_units": max((row["most_units"] or 0.0 for row in own), default=0.0),
        }
        for drawn in (False, True)
        for own in [[row for row in rows if row["drawn"] == drawn]]
    ]


def test_pages_are_the_same_on_two_processors() -> None:
    """All pages; or those that EVALSTATS_PAGES lists, and the others as an earlier run has them."""
    first, second = map(arithmetic, PROCESSORS)
    assert first != second
    asked = os.environ.get("EVALSTATS_PAGES", "").split()
    before = json.loads((FOLDER / "processors.json").read_text())["commands"] if asked else []
    rows = [
        row
        for page in PAGES
        for row in (
            [old for old in before if old["page"] == page]
            if asked and page not in asked
            else _same(page)
        )
    ]
    write_figures("processors", {"all": lambda: _summary(rows), "commands": lambda: rows})

    assert [row for row in rows if not row["drawn"] and row["numbers_that_differ"]] == []
    assert [row for row in rows if not row["same_words"]] == []
    assert [row for row in rows if row["most_units"] > MOST_UNITS] == []

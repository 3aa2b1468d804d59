"""Writes the parts of README and of the pages that are output of the program, or checks them.

``python docs/render.py`` rewrites all pages, ``python docs/render.py PAGE…`` some of them;
``--check`` writes nothing, also runs the Python examples, and fails if a page is not as it
should be; ``--notebooks`` executes the notebooks instead; ``--links`` lists the addresses outside
that pages point to. In a page

- a ``console`` block is a session: its commands are run, their output is what follows them;
- what lies between ``<!-- name -->`` and ``<!-- end -->`` is a table, by a function of `parts`;
- ``<!-- cell … -->``, ``quote`` and ``study`` markers hold figures (`parts.findings`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from parts import (
    ROOT,
    choices,
    gallery,
    growth,
    peer_models,
    seeds,
    side_by_side,
    studies,
    tables,
    ten_models,
)  # fmt: skip
from parts.findings import rendered_findings
from parts.sessions import rendered_sessions, run_examples, same, workspace

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_TABLES = (
    tables, choices, studies, side_by_side, peer_models, growth, gallery, seeds, ten_models,
)  # fmt: skip
"""Modules whose functions write the tables."""
_ADDRESS = re.compile(r"https?://[^\s)>\]`\"]+")
_PART = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def rendered(text: str, folder: Path) -> str:
    """Return a page with every part as the program gives it now."""

    def replace(match: re.Match[str]) -> str:
        write = next(getattr(each, match[1]) for each in _TABLES if hasattr(each, match[1]))
        return f"<!-- {match[1]} -->\n{write()}\n<!-- end -->"

    return rendered_sessions(rendered_findings(_PART.sub(replace, text)), folder)


def problem(page: Path) -> str:
    """Return what is wrong with a page; nothing if all is well."""
    text = page.read_text()
    name = page.relative_to(ROOT)
    with workspace() as folder:
        if not same(text, rendered(text, folder)):
            return f"{name} differs from what the program gives: run `python docs/render.py {name}`"
        return run_examples(text, folder, str(name))


def links() -> str:
    """Return every address outside, with the pages that point to it."""
    pages: dict[str, list[str]] = {}
    for page in PAGES:
        for address in _ADDRESS.findall(page.read_text()):
            pages.setdefault(address, []).append(str(page.relative_to(ROOT)))
    return "\n".join(f"{address}  {', '.join(pages[address])}" for address in sorted(pages))


def main(arguments: list[str]) -> None:
    """Rewrite, check or list."""
    if "--links" in arguments:
        sys.stdout.write(f"{links()}\n")
        return
    if "--notebooks" in arguments:
        from parts import notebooks

        notebooks.write()
        return
    named = [ROOT / argument for argument in arguments if argument != "--check"]
    problems: list[str] = []
    for page in named or PAGES:
        if "--check" in arguments:
            problems.append(problem(page))
            continue
        with workspace() as folder:
            page.write_text(rendered(page.read_text(), folder))
    sys.exit("\n".join(filter(None, problems)) or 0)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Tables of the claims of the five sources, from ``benchmarks/results/seeds.json``."""

from __future__ import annotations

import json
from functools import cache

from parts import ROOT

_SAYS = {True: "yes", False: "**no**", None: "not done"}


@cache
def _rows() -> list[dict[str, str | bool | None]]:
    path = ROOT / "benchmarks" / "results" / "seeds.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def seeds_in_numbers() -> str:
    """Return how many claims of each source agree."""
    lines = ["| source | claims | agree | do not | not done |", "|---|---|---|---|---|"]
    for source in dict.fromkeys(row["source"] for row in _rows()):
        agree = [row["agrees"] for row in _rows() if row["source"] == source]
        counts = [str(sum(x is value for x in agree)) for value in (True, False, None)]
        lines.append(f"| {source} | {len(agree)} | {' | '.join(counts)} |")
    return "\n".join(lines)


def _table(source: str) -> str:
    """Return the claims of one source, with a note where ours is not theirs."""
    lines = ["| claim | theirs | ours | agrees |", "|---|---|---|---|"]
    for row in _rows():
        if str(row["source"]).startswith(source):
            says = _SAYS[row["agrees"]]
            says += "" if row["agrees"] else f": {row['note']}"
            cells = (row["claim"], row["theirs"], row["ours"], says)
            lines.append("| " + " | ".join(str(x).replace("|", "\\|") for x in cells) + " |")
    return "\n".join(lines)


def seeds_uncertainty() -> str:
    """Return the claims of the page on uncertainty."""
    return _table("IRT uncertainty")


def seeds_aims() -> str:
    """Return the claims of the chapter."""
    return _table("AI measurement science")


def seeds_talk() -> str:
    """Return the claims of the talk."""
    return _table("Talk")


def seeds_py_irt() -> str:
    """Return the claims of the poster."""
    return _table("py-irt")


def seeds_fullrank() -> str:
    """Return the claims of Fullrank."""
    return _table("Fullrank")

"""Programs beside ours, each job of the benchmarks in one table."""

from __future__ import annotations

import json
from typing import NamedTuple

from parts import ROOT


class Battle(NamedTuple):
    """A job of a benchmark, as the table names it."""

    results: str
    """In ``benchmarks/results``."""
    job: str
    shown: str
    programs: tuple[str, ...] = ()
    """Those that are compared; none are all."""


_BATTLES = (
    Battle(
        "comparison_peers", "3,000 intervals, 73,500 pairs", "3,000 intervals, 73,500 pairs"
    ),
    Battle(
        "irt_peers", "2PL 1,000 × 1,000", "2PL, 1,000 × 1,000",
        ("girth JML", "torch_measure SVI", "torch_measure JML, rate 1", "py-irt hierarchical"),
    ),
    Battle(
        "ranking", "ratings with intervals", "ratings with intervals, 1,000,000 battles",
        ("arena-rank", "choix", "evalica"),
    ),
)  # fmt: skip


def beside_few() -> str:
    """Return a row for each job and the program that came nearest: CPU seconds and their ratio."""
    lines = ["| job | program | CPU time | ours | ratio |", "|---|---|---|---|---|"]
    lines += map(_nearest, _BATTLES)
    return "\n".join(lines)


def _nearest(battle: Battle) -> str:
    found = json.loads((ROOT / "benchmarks" / "results" / f"{battle.results}.json").read_text())
    ours, *others = (run for run in found["runs"] if run["job"] == battle.job)
    run = min(
        (
            run
            for run in others
            if not (battle.programs and run["program"] not in battle.programs)
            and not run["program"].startswith(ours["program"])
            and {"share", "ratio"} <= run.keys()
        ),
        key=lambda run: run["ratio"]["median"],
    )
    name = run["program"] + ("" if run["share"] == 1 else f" (1/{1 / run['share']:,.0f} of it)")
    cells = (
        battle.shown,
        name,
        seconds(run["cpu_seconds"]["median"]),
        seconds(ours["cpu_seconds"]["median"]),
        ratio(run["ratio"]),
    )
    return f"| {' | '.join(cells)} |"


def seconds(figure: float) -> str:
    """Two digits, or whole seconds."""
    if figure < 1:
        return f"{1000 * figure:.2g} ms" if figure < 0.0995 else f"{1000 * figure:.0f} ms"
    return f"{figure:,.0f} s" if figure >= 9.95 else f"{figure:.2g} s"


def ratio(found: dict[str, float]) -> str:
    """Median, and how far rounds differ where they do."""
    median, least, most = (_times(found[key]) for key in ("median", "least", "most"))
    return f"**{median}** × ({least}–{most})" if least != most else f"**{median}** ×"


def _times(figure: float) -> str:
    if figure >= 9.95:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if figure >= 0.95 else f"{figure:.2g}"

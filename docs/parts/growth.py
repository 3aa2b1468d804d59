"""How time and memory grow, as ``python -m benchmarks.growth`` found."""

from __future__ import annotations

import json

from parts import ROOT

FIGURES = ROOT / "benchmarks" / "results" / "growth.json"


def growth() -> str:
    """Return what the largest size of each series took, and the exponents of growth."""
    lines = [
        "| | grows | from … to | time | memory | exponent |",
        "|---|---|---|---|---|---|",
    ]
    for row in json.loads(FIGURES.read_text())["runs"]:
        done = [point for point in row["points"] if "cpu_seconds" in point]
        least, most = done[0]["amount"], done[-1]["amount"]
        cells = (
            row["series"],
            row["grows"],
            f"{least:,} … {most:,}",
            _seconds(done[-1]["cpu_seconds"]),
            _megabytes(done[-1]["peak_mb"]),
            f"{row['exponent']:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _seconds(figure: float) -> str:
    if figure < 1:
        return f"{1000 * figure:.2g} ms" if figure < 0.1 else f"{1000 * figure:.0f} ms"
    return f"{figure:.1f} s"


def _megabytes(figure: float) -> str:
    return f"{figure:,.0f} MB"

"""How time and memory grow, and what a GPU takes, as the benchmarks measured them."""

from __future__ import annotations

import json

from parts import ROOT

RESULTS = ROOT / "benchmarks" / "results"
IN_PROPORTION = 1.05
"""Greatest exponent that counts as growth in proportion to the data."""


def growth() -> str:
    """Return the series that grow faster than their data: the largest size and the exponent."""
    lines = ["| | grows | to | time | memory | exponent |", "|---|---|---|---|---|---|"]
    for row in json.loads((RESULTS / "growth.json").read_text())["runs"]:
        if row["exponent"] <= IN_PROPORTION:
            continue
        point = [point for point in row["points"] if "cpu_seconds" in point][-1]
        cells = (
            row["series"],
            row["grows"],
            f"{point['amount']:,}",
            _seconds(point["cpu_seconds"]),
            _megabytes(point["peak_mb"]),
            f"{row['exponent']:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def on_a_gpu() -> str:
    """Return times of whole fits on a GPU and on the processor beside it (`make bench-gpu`)."""
    figures = json.loads((RESULTS / "gpu.json").read_text())
    heading = f"| {figures['device']}, {figures['dtype']} | GPU | processor | abilities differ by |"
    rows = (
        f"| 2PL, {fit['models']:,} × {fit['items']:,}, {fit['steps']} steps "
        f"| {_seconds(fit['seconds'])} | {_seconds(fit['seconds_on_cpu'])} "
        f"| {fit['largest_difference_of_abilities']:.0e} |"
        for fit in figures["fits"]
    )
    return "\n".join((heading, "|---|---|---|---|", *rows))


def _seconds(figure: float) -> str:
    if figure < 1:
        return f"{1000 * figure:.2g} ms" if figure < 0.1 else f"{1000 * figure:.0f} ms"
    return f"{figure:.1f} s"


def _megabytes(figure: float) -> str:
    return f"{figure:,.0f} MB"

"""Programs for adaptive tests and hierarchical models beside ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from parts import ROOT, short
from parts.side_by_side import ratio, seconds


def catsim() -> str:
    """Return the table of adaptive tests: a column for each size of the bank."""
    runs = _runs("adaptive_peers")
    sizes = list(dict.fromkeys(run["job"] for run in runs))
    lines = [f"| program | {' | '.join(sizes)} |", "|---" * (1 + len(sizes)) + "|"]
    found = {(run["program"], run["job"]): run for run in runs}
    for program in ("evalstats-plugin", "catsim", "catsim, a-stratified", "adaptivetesting"):
        cells = (_test(found.get((program, size))) for size in sizes)
        lines.append(f"| {program} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _test(run: dict[str, Any] | None) -> str:
    """Write what an answer took, how often ours, the error of abilities and how intervals do.

    Errors of fewer models than the others tested do not compare.
    """
    if run is None:
        return "not run"
    if "cpu_seconds" not in run:
        return str(run["failed"])
    took = seconds(run["ms_per_answer"] / 1000)
    if "ratio" in run and not run["program"].startswith("evalstats-plugin"):
        took += f", {ratio(run['ratio'])}"
    held = f"{run['coverage'] * run['models']:.0f} of {run['models']}"
    error = short(run["rmse"]) if run["share"] == 1 else "–"
    return f"{took} / {error} / {held}"


def nuts() -> str:
    """Return the table of hierarchical models: a row for each job and program."""
    heads = ("job", "program", "CPU time", "beside ours", "effective draws", "for each", "error")
    lines = [f"| {' | '.join(heads)} | 95 % hold |", "|---" * 8 + "|"]
    return "\n".join([*lines, *_fits()])


_ALIKE = ("clustered, 5 × 20", "clustered, 20 × 50", "clustered, 20 × 100", "two-level, scale 1")
"""Other sizes and priors of a job that is shown."""


def _fits() -> Iterator[str]:
    runs = _runs("hierarchical")
    for job in dict.fromkeys(run["job"] for run in runs):
        if job in _ALIKE:
            continue
        shown = job
        ours, *_ = done = [run for run in runs if run["job"] == job and "share" in run]
        for run in done:
            if "cpu_seconds" not in run:
                yield f"| {shown} | {run['program']} | {run['failed']} | | | | | |"
            else:
                times = ratio(run["ratio"]) if "ratio" in run else "–"
                held = f"{run['coverage']:.0%}" if "coverage" in run else "–"
                took = seconds(run["cpu_seconds"]["median"])
                draws = f"{found:,.0f}" if (found := _draws(run)) else "exact"
                each = _for_each_draw(run, ours)
                cells = (shown, run["program"], took, times, draws, each, _error(run), held)
                yield f"| {' | '.join(cells)} |"
            shown = ""


def _draws(run: dict[str, Any]) -> float | None:
    """Draws that count, of what has fewest of them."""
    if "ess" in run:
        return min(run["ess"].values())
    return run.get("least_ess")


def _for_each_draw(run: dict[str, Any], ours: dict[str, Any]) -> str:
    """Write how many times ours an effective draw took, where both drew."""
    theirs, count = _draws(run), _draws(ours)
    if "ratio" not in run or theirs is None or count is None:
        return "–"
    return f"{run['ratio']['median'] * count / theirs:.1f} ×"


def _error(run: dict[str, Any]) -> str:
    if "rmse" in run:
        return f"RMSE {short(run['rmse'])}"
    off = max(run["rms_error_of_limits"])
    return f"limits off by {short(off)}" if off else "–"


def _runs(name: str) -> list[dict[str, Any]]:
    found = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    return found["runs"]

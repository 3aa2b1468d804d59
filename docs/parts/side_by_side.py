"""Programs beside ours, each job of the benchmarks in one table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from parts import ROOT


class Battle(NamedTuple):
    """A job of a benchmark, as the table names it."""

    results: str
    """In ``benchmarks/results``."""
    job: str
    shown: str
    errors: dict[str, str]
    """Name of an error in the results, and in the table."""
    programs: tuple[str, ...] = ()
    """Those that are shown; none are all."""


_WITH_STRONG = {"interval_score": "interval score", "coverage_of_strong": "coverage, strong models"}
_LABELS = {"interval_score": "interval score", "coverage": "coverage"}
_ITEMS = {"log_loss": "log loss", "rmse_ability": "abilities off by"}
_BATTLES = (
    Battle(
        "harness_errors", "3,000 accuracies of 50 items", "3,000 intervals, 50 items each",
        _WITH_STRONG, ("lm-eval stderr", "Inspect ci_wilson", "Inspect bootstrap_stderr"),
    ),
    Battle("harness_errors", "600 F1 of 200 items", "600 intervals of F1", _LABELS),
    Battle(
        "comparison_peers", "3,000 intervals, 73,500 pairs", "3,000 intervals, 73,500 pairs",
        {"interval_score": "interval score", "brier": "Brier score"},
    ),
    Battle(
        "comparison_peers", "40 posteriors of 500 clusters", "40 evals of 500 clusters",
        {"largest_error": "limits off by"},
    ),
    Battle(
        "irt_peers", "2PL 200 × 1,000", "2PL, 200 × 1,000", _ITEMS,
        ("girth JML", "torch_measure JML, rate 1", "py-irt hierarchical"),
    ),
    Battle(
        "irt_peers", "2PL 1,000 × 1,000", "2PL, 1,000 × 1,000", _ITEMS,
        ("girth JML", "torch_measure SVI", "torch_measure JML, rate 1", "py-irt hierarchical"),
    ),
    Battle("irt_peers", "2PL 4,000 × 5,000", "2PL, 4,000 × 5,000", _ITEMS),
    Battle("r_peers", "Rasch 1,000 × 50", "Rasch, 1,000 × 50", {"rmse": "RMSE"}),
    Battle(
        "ranking", "ratings", "ratings, 1,000,000 battles", {"rmse": "RMSE"}, ("choix", "evalica")
    ),
    Battle(
        "ranking", "ratings with intervals", "the same with intervals",
        {"rmse": "RMSE", "coverage": "coverage"}, ("arena-rank", "choix", "evalica"),
    ),
    Battle(
        "r_peers", "ratings with the model's errors", "with the model's errors", {"rmse": "RMSE"}
    ),
    Battle(
        "adaptive_peers", "1,000 items", "adaptive tests, 1,000 items", {}, ("adaptivetesting",)
    ),
    Battle(
        "adaptive_peers", "10,000 items", "adaptive tests, 10,000 items", {"rmse": "RMSE"},
        ("catsim",),
    ),
    Battle("hierarchical", "two-level, scale 0.1", "HiBayES's two levels", {"rmse": "RMSE"}),
    Battle(
        "hierarchical", "20 models × 30 tasks × 100 questions", "20 models crossed with 30 tasks",
        {"rmse": "RMSE"}, ("NumPyro",),
    ),
)  # fmt: skip


def beside_others() -> str:
    """Return a row for each job and the program that came nearest: CPU seconds, ratio, errors."""
    lines = [
        "| job | program | CPU time | ours | ratio | error (ours) |",
        "|---|---|---|---|---|---|",
    ]
    lines += map(_nearest, _BATTLES)
    return "\n".join(lines)


_FEW = (
    "3,000 intervals, 73,500 pairs", "2PL, 1,000 × 1,000", "the same with intervals",
    "adaptive tests, 10,000 items", "20 models crossed with 30 tasks",
)  # fmt: skip
"""Jobs that README shows."""


def beside_few() -> str:
    """Return the rows of `beside_others` that README shows, without errors."""
    lines = ["| job | program | CPU time | ours | ratio |", "|---|---|---|---|---|"]
    for battle in _BATTLES:
        if battle.shown in _FEW:
            name = "ratings with intervals, 1,000,000 battles"
            row = _nearest(battle).replace("the same with intervals", name)
            lines.append(f"{row.rsplit(' | ', 1)[0]} |")
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
        "; ".join(_errors(battle, run, ours)),
    )
    return f"| {' | '.join(cells)} |"


def _errors(battle: Battle, run: dict[str, Any], ours: dict[str, Any]) -> Iterator[str]:
    for key, name in battle.errors.items():
        if key in run and key in ours:
            yield f"{name} {_short(run[key])} ({_short(ours[key])})"


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


def _short(figure: float) -> str:
    """Without a zero before the point; powers of ten where it is small."""
    return f"{figure:.1e}" if abs(figure) < 1e-3 else f"{figure:.4f}".removeprefix("0")

"""Draws the pictures that pages show, from data in fixtures/ and from drawn models.

``python docs/draw_figures.py`` writes them all into docs/figures/, the same each time.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin import ResponseMatrix, compare, fit_irt, intervals, pool, rank
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.adaptive.simulation import simulate
from evalstats_plugin.adaptive.stopping import StdError
from evalstats_plugin.comparisons.planning.power import power_curve
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.rows import abilities
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.report.figures import canvas, draw
from evalstats_plugin.report.figures.canvas import (
    FAINT,
    INK,
    SERIES,
    axes_or_new,
    save,
    series,
    styled,
)
from evalstats_plugin.scores import variance_parts

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent / "figures"
DATA = ROOT / "fixtures" / "data"
NO_CLT = DATA / "no_clt"
MOST_METHODS = 2 * len(SERIES)


def aime() -> ResponseMatrix:
    """19 models on the 15 questions of AIME II 2025, in 4 epochs."""
    with (NO_CLT / "no_clt_matharena_aimeII_15x4.csv").open(encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    scores = np.array([[float(cell) for cell in line[1:]] for line in lines])
    stacked = scores.reshape(15, 4, -1).transpose(2, 0, 1)
    return ResponseMatrix.from_array(stacked, models=header[1:], tasks=["AIME II 2025"] * 15)


def typewriter() -> ResponseMatrix:
    """9 models on 20 tasks of Langchain's typewriter."""
    with (NO_CLT / "no_clt_langchain_typewriter_n20.csv").open(encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    scores = np.array([[float(cell) for cell in line[2:]] for line in lines]).T
    return ResponseMatrix.from_array(scores, models=header[2:], tasks=["typewriter"] * len(lines))


def votes(n: int) -> Contests:
    """Votes of people between the n models that they saw most."""
    import pandas as pd

    table = pd.read_csv(DATA / "llmfao" / "votes.csv.gz")
    seen = pd.concat([table.left, table.right]).value_counts()
    players = sorted(seen.sort_values(ascending=False, kind="stable").index[:n])
    own = table[table.left.isin(players) & table.right.isin(players)]
    outcome = own.winner.map({"left": 1.0, "right": 0.0, "tie": 0.5})
    places = [[players.index(name) for name in column] for column in (own.left, own.right)]
    return Contests.of(*places, outcome.to_numpy(), players=players)


def drawn(n: int = 12, m: int = 150) -> ResponseMatrix:
    """Models that differ in ability, some items turned around."""
    rng = np.random.default_rng(5)
    a, b = np.exp(rng.normal(0, 0.35, m)), rng.normal(0, 1.4, m)
    a[:4] = -1.2
    ability = np.sort(rng.normal(0, 1.1, n))[::-1]
    right = rng.random((n, m)) < 1 / (1 + np.exp(-a * (ability[:, None] - b)))
    tasks = np.repeat(["arithmetic", "reading", "law"], m // 3).tolist()
    names = [f"model-{letter}" for letter in "abcdefghijklmnopqrst"[:n]]
    return ResponseMatrix.from_array(right.astype(float), models=names, tasks=tasks)


def bank() -> ItemBank:
    """300 items of known parameters."""
    rng = np.random.default_rng(6)
    a, b = np.exp(rng.normal(0, 0.3, 300)), rng.normal(0, 1.2, 300)
    return ItemBank.from_arrays(a, -a * b)


def session() -> AdaptiveSession:
    """A test of one model of ability 0.8."""
    rng = np.random.default_rng(7)
    test = AdaptiveSession(bank(), rule="information", stop=(StdError(0.3),))
    items = test.bank
    while test.stopped is None:
        j = int(test.next()[0])
        chance = 1 / (1 + np.exp(-items.discrimination[j] * 0.8 - items.intercept[j]))
        test.record(j, float(rng.random() < chance))
    return test


def results() -> dict[str, Any]:
    """What each picture is drawn of."""
    hard, few, many = aime(), typewriter(), drawn()
    fit = fit_irt(many, "2pl", rng=0)
    pairs, ranking = compare(few, rng=0), rank(votes(16), model="bradley-terry", rng=0)
    rules = ("design", "information", "random")
    return {
        "forest": intervals(hard, rng=0),
        "matrix": pairs,
        "differences": compare(few, baseline=few.models[0], rng=0),
        "ranks": ranking,
        "variance-parts": variance_parts(hard),
        "wright": fit,
        "observed": fit,
        "item-fit": abilities(fit, many, items=True),
        "power": power_curve(few, difference=0.2),
        "trace": session(),
        "accuracy": simulate(bank(), (5, 10, 25, 50), rules, n_models=100, rng=0),
    }


@styled
def plot_coverage(
    rows: Sequence[Mapping[str, Any]],
    *,
    by: str = "method",
    across: str = "n",
    level: float = 0.95,
) -> Any:
    """Draw the coverage of each interval method in a validation study.

    Marks are means over all settings with the same `across`. Thin lines go from the least to the
    greatest coverage of these settings, and down to ``least``, the worst over all true values, if
    a study has it.

    Parameters
    ----------
    rows
        Rows of a study (``fixtures/validation/*.json``), each with a ``coverage``.
    by, across
        Entries of a row that name its method and its place on the x axis.
    level
        Nominal level: the dotted line.

    Raises
    ------
    DesignError
        Rows without these entries, too many methods, or Matplotlib is not installed.
    """
    complete = [row for row in rows if {by, across, "coverage"} <= row.keys()]
    if not complete:
        raise DesignError(f"none of the {len(rows)} rows has {by!r}, {across!r} and 'coverage'")
    methods = list(dict.fromkeys(str(row[by]) for row in complete))
    if len(methods) > MOST_METHODS:
        msg = f"a figure has room for {MOST_METHODS} methods, not {len(methods)}: choose rows"
        raise DesignError(msg)
    places = sorted({row[across] for row in complete}, key=lambda x: (isinstance(x, str), x))
    names = [canvas.shown(name, 40) for name in methods]
    size = (max(4.4, 0.13 * len(methods) * len(places) + 1.4), max(3.4, 0.19 * len(names) + 0.8))
    axes: Any = axes_or_new(None, size[0] + canvas.width_of(names) + 0.4, size[1])
    for k, (method, name) in enumerate(zip(methods, names, strict=True)):
        own = [row for row in complete if str(row[by]) == method]
        shift = 0.7 * ((k + 0.5) / len(methods) - 0.5)
        by_place = [[row for row in own if row[across] == place] for place in places]
        _draw_coverage(axes, by_place, k, name=name, shift=shift)
    axes.axhline(level, color=INK, linewidth=0.9, linestyle=(0, (2, 2)), zorder=2)
    for border in np.arange(0.5, len(places) - 1):
        axes.axvline(border, color=canvas.GRID, linewidth=0.6, alpha=0.5, zorder=1)
    axes.set_xticks(range(len(places)), [f"{place}" for place in places])
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.tick_params(axis="x", length=0)
    canvas.percent_axis(axes.yaxis)
    axes.set_xlabel(across, parse_math=False)
    axes.set_ylabel("intervals that held the truth")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title=by, alignment="left")
    return axes


def _draw_coverage(
    axes: Any, by_place: Sequence[Sequence[Mapping[str, Any]]], k: int, *, name: str, shift: float
) -> None:
    """Draw series k: the rows of one method by place."""
    color, marker, _, filling = series(k)
    means: list[tuple[float, float]] = []
    for i, own in enumerate(by_place):
        covered = [row["coverage"] for row in own if row["coverage"] is not None]
        if not covered:
            continue
        least = [row["least"] for row in own if row.get("least") is not None]
        means.append((i + shift, float(np.mean(covered))))
        axes.vlines(i + shift, min(covered + least), max(covered), color=color, linewidth=1.0)
    axes.plot(*zip(*means, strict=True), linestyle="", marker=marker, markersize=5, color=color,
              markerfacecolor=filling, label=name, zorder=3)  # fmt: skip


@styled
def calibration() -> Any:
    """How often what P(better) says of real models is true, by what it says."""
    axes = axes_or_new(None, 4.2, 3.6)
    axes.plot([0.5, 1], [0.5, 1], color=FAINT, linewidth=0.8)
    rows = json.loads((ROOT / "fixtures" / "validation" / "probabilities.json").read_text())
    lines = [(models, kind) for models in ("near", "random") for kind in ("alone", "shrunk")]
    for k, (models, kind) in enumerate(lines):
        own = [r for r in rows["better"] if (r["models"], r["p_better"]) == (models, kind)]
        bins = [one for row in own for one in row["bins"]]
        edges = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
        stated, true, n = np.array([(one["stated"], one["true"], one["n"]) for one in bins]).T
        place = np.searchsorted(edges, stated, side="right")
        x, y = ([np.average(v[place == i], weights=n[place == i]) for i in np.unique(place)]
                for v in (stated, true))  # fmt: skip
        colour, marker, style, _ = series(k)
        neighbours = "neighbours" if models == "near" else "any models"
        label = f"{neighbours}, {'each pair alone' if kind == 'alone' else 'shrunk'}"
        axes.plot(x, y, color=colour, marker=marker, linestyle=style, label=label, markersize=4)
    axes.set(xlabel="P(better) says", ylabel="how often it is true", xlim=(0.5, 1), ylim=(0.5, 1))
    axes.legend(frameon=False, fontsize=8)
    return axes


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for name, result in results().items():
        axes: Any = draw(name, result)
        save(axes.figure, HERE / f"{name}.png")
    save(draw("forest", pool(drawn(6, 45), rng=0)).figure, HERE / "pooled.png")
    study = json.loads((ROOT / "fixtures" / "validation" / "intervals.json").read_text())
    save(plot_coverage(study["binary"]).figure, HERE / "coverage.png")
    save(calibration().figure, HERE / "calibration.png")

"""Draws the pictures that pages show, from data in fixtures/ and from drawn models.

``python docs/draw_figures.py`` writes them all into docs/figures/, the same each time.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin import ResponseMatrix, compare, fit_irt, intervals, pool, rank
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.adaptive.simulation import simulate
from evalstats_plugin.adaptive.stopping import StdError
from evalstats_plugin.comparisons.planning.power import power_curve
from evalstats_plugin.irt.rows import abilities
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.report.figures import FIGURES, draw
from evalstats_plugin.report.figures.canvas import FAINT, axes_or_new, save, series, styled
from evalstats_plugin.scores import variance_parts

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent / "figures"
DATA = ROOT / "fixtures" / "data"
NO_CLT = DATA / "no_clt"


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
    study = json.loads((ROOT / "fixtures" / "validation" / "intervals.json").read_text())
    rules = ("design", "information", "random")
    return {
        "forest": intervals(hard, rng=0),
        "shrinkage": pool(drawn(6, 45), rng=0),
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
        "coverage": study["binary"],
    }


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
    found = results()
    for name in FIGURES:
        axes: Any = draw(name, found[name])
        save(axes.figure, HERE / f"{name}.png")
    save(calibration().figure, HERE / "calibration.png")

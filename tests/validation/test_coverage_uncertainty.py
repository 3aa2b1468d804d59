"""Coverage of every recipe for the uncertainty of abilities.

Writes fixtures/validation/uncertainty.json. Abilities of 10 models and difficulties of 60 items
~ N(0, 1), log discriminations ~ N(0, .3²); a 2PL with items integrated out, 95 % intervals for
abilities minus their mean. Each set is stored when it is done, and a run goes on after the sets
that are there: EVALSTATS_SETS says how many there are to be.
"""

import json
import os

import numpy as np
import pytest
import study
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt import RECIPES, fit_irt, uncertainty

pytestmark = pytest.mark.validation
FILE = study.FOLDER / "uncertainty.json"
COSTLY = ("models", "mcmc", "mcmc-hdi", "svi", "svi-lognormal", "seeds")
"""Of the first sets, and then of every eighth only."""

SETS = int(os.environ.get("EVALSTATS_SETS", "40"))


def held(seed):
    """Whether each model's interval holds its ability, and its width, by recipe."""
    rng = np.random.default_rng([20261122, seed])
    theta, b = rng.normal(size=10), rng.normal(size=60)
    logit = np.exp(0.3 * rng.normal(size=60)) * (theta[:, None] - b)
    matrix = ResponseMatrix.from_array(
        (rng.random(logit.shape) < special.expit(logit)).astype(float)
    )
    costly = seed < 2 or seed % 8 == 0
    names = [name for name in RECIPES if name != "clusters" and (costly or name not in COSTLY)]
    fit = fit_irt(matrix, zero="models", rng=seed)
    found = uncertainty(fit, matrix, names, n_resamples=60, n_seeds=3, rng=seed)
    rows = {}
    for name in names:
        own = [row for row in found if row.recipe == name]
        low, high = (np.array([getattr(row, side) for row in own]) for side in ("low", "high"))
        inside = study.holds(low, high, theta - theta.mean())
        rows[name] = {"held": int(inside.sum()), "width": float(np.mean(high - low))}
    return rows


def test_the_figures_are_written():
    sets = json.loads(FILE.read_text("utf-8"))["sets"] if FILE.exists() else []
    for seed in range(len(sets), SETS):
        sets.append(study.rounded(held(seed)))
        lines = ",\n".join(json.dumps(one) for one in sets)
        figures = {name: figures_of([one[name] for one in sets if name in one]) for name in sets[0]}
        text = f'{{"recipes": {json.dumps(figures, indent=1)},\n"sets": [\n{lines}\n]}}\n'
        FILE.write_text(text, "utf-8")


def figures_of(sets):
    """Coverage with its standard error between sets, and the mean width."""
    held = np.array([one["held"] / 10 for one in sets])
    figures = {
        "coverage": float(held.mean()),
        "std_error": float(held.std() / len(held) ** 0.5),
        "width": float(np.mean([one["width"] for one in sets])),
        "sets": len(sets),
    }
    return study.rounded(figures, 3)

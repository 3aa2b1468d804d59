"""Default Rasch and 2PL fits of designs drawn at random: do intervals hold what is true?

Writes fixtures/validation/irt_drawn.json. `design` draws how many models, items and epochs there
are, how abilities, difficulties and discriminations are spread, and how many answers are missing;
each data set has new items and new answers of the same models. 95 % intervals, on the scale of the
items: abilities (with limits on one side where all answers are right or wrong), differences of
neighbouring models, difficulties, and discriminations of the 2PL (estimate ± 1.96 standard errors).
A row has the mean over designs, the worst one, and the 1st percentile; `noise` is the 1st
percentile of designs that all hold .95 with as many data sets, so what is below it is not chance.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt import fit_irt
from evalstats_plugin.irt.model.scale import Curves, zero_of

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "irt_drawn.json"
Z = special.ndtri(0.975)
DESIGNS = 200
SETS, SETS_OF_MANY = 20, 6
MANY = 300
QUANTITIES = ("abilities", "differences", "difficulties", "discriminations")


class Design(NamedTuple):
    """What is drawn for one design."""

    ability: np.ndarray
    n_items: int
    middle: float
    """Mean of difficulties."""
    spread: float
    """Standard deviation of difficulties."""
    steepness: float
    """Standard deviation of log discriminations; 0 in a Rasch model."""
    n_epochs: int
    missing: float


def design(seed, item_model):
    """Draw a design; every tenth has 300 models or more, for which the default is `mml`."""
    rng = np.random.default_rng([39, seed])
    n = (
        int(rng.integers(MANY, 400))
        if seed % 10 == 9
        else int(np.exp(rng.uniform(*np.log([4, 60]))))
    )
    shape = rng.choice(["normal", "even", "two groups"])
    z = {
        "normal": lambda: rng.normal(size=n),
        "even": lambda: rng.permutation(np.linspace(-1.7, 1.7, n)),
        "two groups": lambda: rng.choice([-1, 1], n) + rng.normal(0, 0.3, n),
    }[shape]()
    return Design(
        ability=np.exp(rng.uniform(*np.log([0.3, 2]))) * z,
        n_items=int(np.exp(rng.uniform(*np.log([30, 300])))),
        middle=rng.uniform(-1.5, 1),
        spread=np.exp(rng.uniform(*np.log([0.5, 2]))),
        steepness=0.0 if item_model == "rasch" else rng.uniform(0.1, 0.6),
        n_epochs=int(rng.choice([1, 1, 1, 4])),
        missing=float(rng.choice([0, 0, 0.2])),
    )


def held(drawn, item_model, seed, k):
    """Intervals that hold the truth and their number, by quantity, of one data set."""
    rng = np.random.default_rng([40, seed, k])
    m = drawn.n_items
    b = rng.normal(drawn.middle, drawn.spread, m)
    a = np.exp(drawn.steepness * rng.normal(size=m))
    chance = special.expit(a * (drawn.ability[:, None] - b))
    scores = (rng.random((*chance.shape, drawn.n_epochs)) < chance[..., None]).astype(float)
    lost = rng.random(chance.shape) < drawn.missing
    lost[:, lost.all(axis=0)] = False
    scores[lost] = np.nan
    fit = fit_irt(ResponseMatrix.from_array(scores), item_model)
    zero = zero_of(Curves.of_points(a, -a * b))
    theta, b, a = zero.unit * (drawn.ability - zero.at), zero.unit * (b - zero.at), a / zero.unit
    low, high = fit.limits()
    covariance = fit.ability_covariance
    own = np.diagonal(covariance)
    apart = np.diff(fit.ability), np.sqrt(own[1:] + own[:-1] - 2 * np.diagonal(covariance, 1))
    inside = {
        "abilities": (low <= theta) & (theta <= high),
        "differences": _within(*apart, np.diff(theta)),
        "difficulties": _within(fit.difficulty, fit.difficulty_std_error, b),
    }
    if item_model == "2pl":
        inside["discriminations"] = _within(fit.discrimination, fit.discrimination_std_error, a)
    return {name: np.array([x.sum(), x.size]) for name, x in inside.items()}


def _within(estimate, error, truth):
    there = np.isfinite(estimate) & np.isfinite(error)
    return np.abs(estimate - truth)[there] <= Z * error[there]


def case(item_model, designs=range(DESIGNS)):
    """Rows of one item model, by estimator and quantity."""
    found = {}
    for seed in designs:
        drawn = design(seed, item_model)
        many = len(drawn.ability) >= MANY
        sets = [held(drawn, item_model, seed, k) for k in range(SETS_OF_MANY if many else SETS)]
        for name in sets[0]:
            counts = np.array([one[name] for one in sets], dtype=float)
            total, count = counts.sum(axis=0)
            share = total / count
            error = np.sqrt(np.square(counts[:, 0] - share * counts[:, 1]).sum()) / count
            found.setdefault(("mml" if many else "mml-items", name), []).append([share, error])
    return [_row(item_model, *key, np.array(x)) for key, x in found.items()]


def _row(item_model, estimator, quantity, table):
    share, error = table.T
    rng = np.random.default_rng(0)
    chance = rng.normal(0.95, error, (400, len(error)))
    first, noise = np.quantile(share, 0.01), np.mean(np.quantile(chance, 0.01, axis=1))
    return {
        "item_model": item_model,
        "estimator": estimator,
        "quantity": quantity,
        "designs": len(share),
        "mean": round(float(share.mean()), 3),
        "worst": round(float(share.min()), 3),
        "first_percentile": round(float(first), 3),
        "noise": round(float(noise), 3),
    }


def write(rows):
    """Write the study; rows of the other item model stay."""
    kept = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    names = {row["item_model"] for row in rows}
    kept = [row for row in kept if row["item_model"] not in names]
    rows = sorted([*kept, *rows], key=lambda row: (row["item_model"] != "rasch", row["estimator"]))
    about = " ".join(__doc__.split())
    FILE.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


@pytest.mark.parametrize("item_model", ["rasch", "2pl"])
def test_intervals_hold_what_is_true_on_drawn_designs(item_model):
    rows = case(item_model)
    write(rows)

    for row in rows:
        if item_model == "rasch":
            assert row["mean"] >= 0.94, row
            assert row["first_percentile"] >= row["noise"] - 0.015, row
        elif row["quantity"] in ("abilities", "differences"):
            assert row["mean"] >= 0.93, row


@pytest.mark.xfail(strict=True, reason="errors of items count the spread of items as known")
def test_intervals_of_items_hold_what_is_true_on_drawn_designs():
    rows = [r for r in case("2pl") if r["quantity"] in ("difficulties", "discriminations")]

    assert min(row["mean"] for row in rows) >= 0.93, rows

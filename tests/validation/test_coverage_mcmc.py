"""Posterior draws: does the truth rank evenly among them, when it is drawn from the prior?

Writes fixtures/validation/mcmc.json. Simulation-based calibration with fixed seeds: 5 models, 12
items, few draws of many chains each. The standard error of `std_dev` is about 1 / √(24 n).
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import special, stats

from evalstats_plugin.irt.estimators.draws import gibbs
from evalstats_plugin.irt.methods import McmcOptions
from evalstats_plugin.irt.model.data import Counts

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "mcmc.json"
N, M, REPLICATIONS = 5, 12, 100
EVEN = 12**-0.5
"""Standard deviation of numbers spread evenly between 0 and 1."""


def from_the_prior(kind, rng):
    """Abilities and P(right), as the module says."""
    if kind == "rasch":
        theta = abs(rng.normal(0, 2)) * rng.standard_normal(N)
        a = np.ones(M)
    else:
        theta = rng.standard_normal(N)
        a = rng.normal(1, 1) + abs(rng.standard_normal()) * rng.standard_normal(M)
    d = rng.normal(0, 3) + abs(rng.normal(0, 3)) * rng.standard_normal(M)
    return theta, special.expit(a * theta[:, None] + d)


def ranks(kind):
    """Share of draws below the true abilities."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(REPLICATIONS):
        theta, p = from_the_prior(kind, rng)
        right = torch.tensor(1.0 * (rng.random(p.shape) < p))
        how = McmcOptions(chains=40, draws=1, warm_up=30)
        draws = gibbs(Counts(right, torch.ones_like(right)), kind, rng, how)
        truth = torch.tensor(theta - theta.mean())
        found.append((draws.ability[:, -1] < truth).double().mean(0))
    return torch.stack(found).flatten().numpy()


def test_ranks_of_the_truth_among_draws_are_even():
    """A control: ranks in a posterior half as wide pile up at both ends."""
    rows = []
    for kind in ("rasch", "2pl"):
        even = ranks(kind)
        narrow = np.clip(2 * even - 0.5, 0, 1)
        for posterior, values in (("drawn", even), ("half as wide", narrow)):
            # In continuous ranks: ties among so few draws are no departure.
            p_value = stats.kstest(values, "uniform").pvalue
            rows.append(
                {"item_model": kind, "posterior": posterior, "ranks": len(values)}
                | {"mean": float(values.mean()), "std_dev": float(values.std())}
                | {"p_value": float(p_value)}
            )
    about = {"models": N, "items": M, "replications": REPLICATIONS, "even_std_dev": EVEN}
    FILE.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n", encoding="utf-8")

    for row in rows:
        assert (row["p_value"] > 1e-3) == (row["posterior"] == "drawn"), row
        if row["posterior"] == "drawn":
            assert abs(row["mean"] - 0.5) < 4 * EVEN / row["ranks"] ** 0.5
            assert row["std_dev"] == pytest.approx(EVEN, abs=4 / (24 * row["ranks"]) ** 0.5)

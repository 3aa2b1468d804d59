"""Simulation-based calibration: ranks of true values among posterior draws are uniform.

Writes fixtures/validation/hierarchical_calibration.json: for each engine and quantity, counts of
ranks in eight bins, and the p-value of a chi-square test [TBV18]_; also for draws half as far from
their mean, as a control. True values come from the priors.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats
from torch.distributions import Binomial, ExpTransform, Gamma, Normal

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.hierarchical import Latent, Model, Observed, Plate, infer
from evalstats_plugin.hierarchical.data import Counts, eval_counts
from evalstats_plugin.hierarchical.engines.crossed import CROSSED_MODELS, fit_crossed
from evalstats_plugin.runtime import ChainLength

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "hierarchical_calibration.json"
BINS = 8


def rank(truth, draws, rng):
    """Bin of the true value's rank among 63 draws, and among draws that are half as far apart."""
    kept = rng.permutation(draws)[:63]
    halved = (kept + kept.mean()) / 2
    return [int((x < truth).sum()) * BINS // 64 for x in (kept, halved)]


def shared(seed):
    """Four models, three tasks of twelve questions; Gamma(2, 2) standard deviations."""
    rng = np.random.default_rng(seed)
    sd = rng.gamma(2.0, 0.5, 4)
    model, task = sd[0] * rng.standard_normal(4), sd[1] * rng.standard_normal(3)
    level = rng.standard_normal() + model[:, None] - task + sd[2] * rng.standard_normal((4, 3))
    place = np.repeat(np.arange(3), 12)
    logit = level[:, place] - sd[3] * rng.standard_normal(36)
    scores = 1.0 * (rng.random(logit.shape) < special.expit(logit))
    counts = eval_counts(ResponseMatrix.from_array(scores, tasks=[f"t{t}" for t in place]))
    columns = Counts(
        counts.question_right, counts.question_trials, counts.task, np.zeros((4, 0)),
        np.zeros((3, 0)),
    )  # fmt: skip
    fit = fit_crossed(columns, CROSSED_MODELS["shared"], rng, ChainLength(draws=300, warm_up=240))
    known = fit.parameters
    return {
        "sd_performance": rank(sd[0], known["sd_performance"].ravel(), rng),
        "sd_interaction": rank(sd[2], known["sd_interaction"].ravel(), rng),
        "sd_question": rank(sd[3], known["sd_question"].ravel(), rng),
        "difference": rank(
            model[0] - model[1],
            (known["performance"][..., 0] - known["performance"][..., 1]).ravel(),
            rng,
        ),
    }


def crossed(seed):
    """Four models on three tasks of twelve questions, counted by task."""
    rng = np.random.default_rng(seed)
    sd = rng.gamma(2.0, 0.5, 3)
    model, task = sd[0] * rng.standard_normal(4), sd[1] * rng.standard_normal(3)
    level = rng.standard_normal() + model[:, None] - task + sd[2] * rng.standard_normal((4, 3))
    right = rng.binomial(12, special.expit(level)).astype(float)
    data = Counts(right, np.full((4, 3), 12.0), np.arange(3), np.zeros((4, 0)), np.zeros((3, 0)))
    length = ChainLength(chains=4, draws=100, warm_up=240)
    known = fit_crossed(data, CROSSED_MODELS["task"], rng, length).parameters
    gap = (known["performance"][..., 0] - known["performance"][..., 1]).ravel()
    return {
        "sd_performance": rank(sd[0], known["sd_performance"].ravel(), rng),
        "sd_interaction": rank(sd[2], known["sd_interaction"].ravel(), rng),
        "difference": rank(model[0] - model[1], gap, rng),
    }


MODEL = Model(
    plates=[Plate("task", 4)],
    latents=[
        Latent("mu", Normal(0.0, 1.0), group="top"),
        Latent("sd", Gamma(2.0, 2.0), group="top"),
        Latent("z", lambda mu, sd: Normal(loc=mu, scale=sd), "task"),
    ],
    observed=[Observed("right", lambda z: Binomial(12, logits=z), "task")],
)


def plated(method):
    def run(seed):
        rng = np.random.default_rng(seed)
        mu, sd = rng.standard_normal(), rng.gamma(2.0, 0.5)
        z = mu + sd * rng.standard_normal(4)
        right = rng.binomial(12, special.expit(z)).astype(float)
        fit = infer(MODEL, {"right": right}, method, rng=rng)
        truth = {"mu": mu, "sd": sd, "z": z[0]}
        draws = {"mu": fit.draws["mu"], "sd": fit.draws["sd"], "z": fit.draws["z"][:, 0]}
        return {name: rank(value, draws[name], rng) for name, value in truth.items()}

    return run


ENGINES = {
    "shared questions": (shared, 640),
    "qem": (plated("qem"), 640),
    "mp-vi": (plated("mp-vi"), 640),
    "mp-is": (plated("mp-is"), 640),
    "rws": (plated("rws"), 640),
    "iwae": (plated("iwae"), 640),
    "vi": (plated("vi"), 640),
    "gibbs": (crossed, 320),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_of_true_values_are_uniform(engine):
    run, count = ENGINES[engine]
    ranks = [run(1000 + i) for i in range(count)]
    found = {}
    for name in ranks[0]:
        counts, control = (
            np.bincount([r[name][k] for r in ranks], minlength=BINS) for k in range(2)
        )
        found[name] = tested(counts, control)
    write(engine, count, found)

    assert min(x["p_value"] for x in found.values()) > 0.002
    assert max(x["p_value_of_control"] for x in found.values()) < 0.002


def tested(counts, control):
    """Chi-square tests of equal counts, of the engine and of draws half as far apart."""
    return {
        "counts": counts.tolist(),
        "p_value": round(float(stats.chisquare(counts).pvalue), 4),
        "p_value_of_control": float(f"{stats.chisquare(control).pvalue:.1g}"),
    }


def write(engine, count, found):
    """Keep the counts and p-values of an engine."""
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    known[engine] = {"replications": count, "quantities": found}
    FILE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


@pytest.mark.parametrize("engine", ["nuts", "nuts without the volume of its maps"])
def test_ranks_of_the_no_u_turn_sampler_in_200_data_sets(monkeypatch, engine):
    """All data sets in one posterior, of which each is a part that does not depend on the others.

    The wrong engine forgets how a logarithm stretches standard deviations.
    """
    if engine != "nuts":
        monkeypatch.setattr(ExpTransform, "log_abs_det_jacobian", lambda _, x, __: 0 * x)
    rng, count = np.random.default_rng(2026), 200
    mu, sd = rng.standard_normal(count), rng.gamma(2.0, 0.5, count)
    z = mu[:, None] + sd[:, None] * rng.standard_normal((count, 4))
    right = rng.binomial(12, special.expit(z)).astype(float)
    model = Model(
        plates=[Plate("set", count), Plate("task", 4, within="set")],
        latents=[
            Latent("mu", Normal(0.0, 1.0), "set"),
            Latent("sd", Gamma(2.0, 2.0), "set"),
            Latent("z", lambda mu, sd: Normal(loc=mu, scale=sd), "task"),
        ],
        observed=[Observed("right", lambda z: Binomial(12, logits=z), "task")],
    )
    draws = infer(model, {"right": right}, "nuts", n_particles=4, steps=200, rng=1).draws
    truth = {"mu": (mu, draws["mu"]), "sd": (sd, draws["sd"]), "z": (z[:, 0], draws["z"][..., 0])}
    found = {}
    for name, (values, drawn) in truth.items():
        ranks = np.array([rank(values[i], drawn[:, i], rng) for i in range(count)])
        counts, control = (np.bincount(ranks[:, k], minlength=BINS) for k in range(2))
        found[name] = tested(counts, control)
    write(engine, count, found)

    assert (min(x["p_value"] for x in found.values()) > 0.002) == (engine == "nuts")
    assert max(x["p_value_of_control"] for x in found.values()) < 0.002

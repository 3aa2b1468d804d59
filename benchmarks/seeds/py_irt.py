"""The py-irt poster: machine response patterns, and item response models fitted by their answers.

The poster trains 1,000 neural networks on MNIST, CIFAR and SNLI; these patterns are not published.
150 classifiers on 797 handwritten digits stand for them (``fixtures/data/digits``).
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from scipy import optimize, special, stats

import evalstats_plugin as es
from benchmarks.seeds.claims import Outcome, Source, holds, near
from evalstats_plugin.cli import main as command
from evalstats_plugin.irt import (
    IRTFit,
    ViOptions,
    fit_irt,
    simulate_response_patterns,
    simulate_responses,
)

source = Source("py-irt poster")
DIGITS = Path(__file__).parents[2] / "fixtures" / "data" / "digits" / "responses.npz"


@cache
def digits() -> es.ResponseMatrix:
    """150 classifiers on 797 digits."""
    with np.load(DIGITS) as file:
        models, right = file["models"].tolist(), np.unpackbits(file["right"], axis=1)[:, :797]
    return es.ResponseMatrix.from_array(right.astype(float), models=models, tasks="digits")


@cache
def fitted(item_model: str) -> IRTFit:
    """Fit the classifiers' answers."""
    return fit_irt(digits(), item_model, rng=0)


def correlations(fit: IRTFit) -> list[float]:
    """Rank correlations of ability with accuracy, and of difficulty with the share right."""
    right = digits().scores[:, :, 0]
    # Equal up to rounding is equal.
    return [
        float(stats.spearmanr(fit.ability.round(6), right.mean(1).round(9))[0]),
        float(stats.spearmanr(fit.difficulty.round(6), right.mean(0).round(9))[0]),
    ]


@cache
def small() -> tuple[np.ndarray, IRTFit]:
    """Scores and the fit by maximum marginal likelihood of 200 models on 8 items."""
    matrix, _ = simulate_responses(rng=6, n_models=200, n_items=8, item_model="rasch")
    fit = fit_irt(matrix, "1pl", "mml", rng=0)
    return matrix.scores[:, :, 0], fit


@source.claim("equations 1 and 2: P(right) = 1 / (1 + exp(−(θ − b)))", fast=True)
def equation() -> Outcome:
    """Chances of simulated answers, by the equation from abilities and difficulties."""
    _, truth = simulate_responses(rng=2, n_models=8, n_items=30, item_model="rasch")
    theirs = special.expit(truth.ability[:, None] - truth.difficulty)
    return near(truth.probability, theirs, 1e-9)


@source.claim("marginal likelihood by EM, ability by its mode", fast=True)
def marginal() -> Outcome:
    """Discrimination and difficulties by BFGS on 61 nodes of Gauss and Hermite."""
    scores, fit = small()
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)

    def loss(parameters: np.ndarray) -> float:
        slope, difficulty = np.exp(parameters[0]), parameters[1:]
        logit = slope * (nodes[:, None] - difficulty)
        log_p = scores @ special.log_expit(logit).T + (1 - scores) @ special.log_expit(-logit).T
        return -special.logsumexp(log_p, b=weights / weights.sum(), axis=1).sum()

    best = optimize.minimize(loss, np.zeros(9), method="BFGS").x
    # The fit counts abilities from the average item.
    ours = fit.difficulty - fit.difficulty.mean()
    scale = fit.discrimination[0] / np.exp(best[0])
    return near(ours * scale, best[1:] - best[1:].mean(), 5e-4)


@source.claim("variational inference with a vague prior keeps the order by accuracy", fast=True)
def vague() -> Outcome:
    """Rank correlation of abilities with accuracy on the digits."""
    fit = fit_irt(digits(), "rasch", "vi", options=ViOptions(prior="vague"), rng=0)
    return near(correlations(fit)[0], 1, 1e-3, digits=4)


@source.claim("hierarchical prior N(0, 10⁶), Γ(1, 1)", fast=True)
def hierarchical() -> Outcome:
    """The same with hyperpriors."""
    fit = fit_irt(digits(), "rasch", "vi", options=ViOptions(prior="gaussian-gamma"), rng=0)
    return near(correlations(fit)[0], 1, 1e-3, digits=4)


@source.claim("algorithm 1: response patterns of classifiers trained on changed labels")
def patterns() -> Outcome:
    """Twelve nearest-neighbour classifiers on 300 digits, from barely trained to well trained."""
    from sklearn.datasets import load_digits
    from sklearn.neighbors import KNeighborsClassifier

    pixels, digit = load_digits(return_X_y=True)
    drawn = simulate_response_patterns(
        KNeighborsClassifier(3),
        pixels[:600],
        digit[:600],
        pixels[600:900],
        digit[600:900],
        n_models=12,
        rng=0,
    )
    shares = drawn.matrix.scores[:, :, 0].mean(1)
    shape = drawn.matrix.scores.shape[:2]
    return holds(
        "models × items, of many accuracies",
        f"{shape[0]} × {shape[1]}, {shares.min():.2f} to {shares.max():.2f} right",
        shape == (12, 300) and np.ptp(shares) > 0.2,
    )


@source.claim(
    "figure 1: ability follows accuracy, difficulty the share of wrong answers", fast=True
)
def figure_1() -> Outcome:
    """Rank correlations under the Rasch model."""
    return near(correlations(fitted("rasch")), [1, -1], 1e-3, digits=4, note="digits, not MNIST")


@source.claim("the easiest and the hardest pictures", fast=True)
def extremes() -> Outcome:
    """Items with the lowest and the highest difficulty are those most and least often right."""
    order = np.argsort(fitted("rasch").difficulty, kind="stable")
    share = digits().scores[:, :, 0].mean(0)
    easy, hard = share[order[:10]].mean(), share[order[-10:]].mean()
    ends = np.sort(share)
    return near(
        [easy, hard],
        [ends[-10:].mean(), ends[:10].mean()],
        1e-9,
        note="pictures: docs/gallery/machines.md",
    )


@source.claim("table of SNLI's hardest and easiest sentence pairs by class", fast=True)
def sentences() -> Outcome:
    """Whether `irt items` lists text and class of an item beside its difficulty."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answers.csv"
        rows = ["model,item,score,input,target"]
        rng = np.random.default_rng(0)
        rows += [
            f"m{i},q{j},{int(rng.random() < 0.3 + 0.05 * i)},sentence {j},neutral"
            for i in range(10)
            for j in range(12)
        ]
        file.write_text("\n".join(rows) + "\n", encoding="utf-8")
        arguments = ["irt", "items", str(file), "--item-model", "rasch", "--format", "csv", "-q"]
        printed = CliRunner().invoke(command, arguments).stdout
    columns = next(csv.reader(io.StringIO(printed)), [])
    has_text = "input" in columns or "text" in columns
    return holds(
        "text and class beside difficulty",
        f"{len(columns)} columns, {'with' if has_text else 'without'} text",
        has_text,
        "texts of suspect items only; SNLI's patterns are not published",
    )


source.not_done(
    "MNIST, CIFAR and SNLI, answered by 1,000 neural networks",
    "1,000 networks",
    "patterns and networks are not published; 150 classifiers on digits stand for them",
)


@source.claim("JSON lines in and out", fast=True)
def json_lines() -> Outcome:
    """py-irt's file is read, and written again with the same answers."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "a.jsonlines", Path(folder) / "b.jsonlines"
        lines = [
            {"subject_id": f"s{i}", "responses": {f"q{j}": (i + j) % 3 % 2 for j in range(8)}}
            for i in range(6)
        ]
        first.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
        CliRunner().invoke(
            command, ["export", str(first), "--to", "py-irt", "-o", str(second), "-q"]
        )
        text = second.read_text(encoding="utf-8") if second.exists() else ""
        written = [json.loads(line) for line in text.splitlines()]
    same = {x["subject_id"]: x["responses"] for x in written} == {
        x["subject_id"]: x["responses"] for x in lines
    }
    return holds(
        "6 subjects × 8 items",
        f"{len(written)} subjects, {'same' if same else 'other'} answers",
        same,
    )


source.not_done(
    "amortised IRT: difficulties by a network of the items' texts",
    "encoder of items",
    "no amortised estimator; `predict_items` regresses difficulties on texts after the fit",
)

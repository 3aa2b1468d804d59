"""Numbers behind the gallery: the figures of the sources, computed by the public functions."""

from __future__ import annotations

import csv
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, betaln, gammaln

import evalstats_plugin as es
from parts import ROOT, read_study, short

DATA = ROOT / "fixtures" / "data"
SHOWN = ("wald", "wilson", "clopper-pearson", "beta-hpd")
"""Methods of Figure 1 of Bowyer et al. (2025); `wald` is the central limit theorem's."""
LEVELS = (0.8, 0.9, 0.95, 0.99)
SIZES = (3, 10, 30, 100)
TRUTHS: dict[str, tuple[float, float]] = {
    "any accuracy, Beta(1, 1)": (1, 1),
    "middling, Beta(10, 10)": (10, 10),
    "strong, Beta(100, 20)": (100, 20),
    "weak, Beta(20, 100)": (20, 100),
}
"""Where accuracies really lie, in the study of a wrong prior (the prior of ours stays uniform)."""


def _columns(name: str, first: int) -> tuple[list[str], np.ndarray]:
    """Return models and scores (models × rows) of a table of Bowyer et al."""
    with (DATA / "no_clt" / name).open(encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return header[first:], np.array([[float(cell) for cell in row[first:]] for row in rows]).T


def typewriter() -> es.ResponseMatrix:
    """9 models on 20 tasks of Langchain's typewriter."""
    models, scores = _columns("no_clt_langchain_typewriter_n20.csv", 2)
    return es.ResponseMatrix.from_array(scores, models=models, tasks=["typewriter"] * 20)


def aime(n_epochs: int = 4) -> es.ResponseMatrix:
    """19 models on the 15 questions of AIME II 2025, in up to 4 epochs."""
    models, scores = _columns("no_clt_matharena_aimeII_15x4.csv", 1)
    epochs = scores.reshape(-1, 15, 4)[:, :, :n_epochs]
    return es.ResponseMatrix.from_array(epochs, models=models, tasks=["AIME II 2025"] * 15)


def digits() -> es.ResponseMatrix:
    """150 classifiers on 797 handwritten digits."""
    with np.load(DATA / "digits" / "responses.npz") as file:
        models, right = file["models"].tolist(), np.unpackbits(file["right"], axis=1)[:, :797]
    return es.ResponseMatrix.from_array(right.astype(float), models=models, tasks=["digits"] * 797)


@cache
def limits(n: int, method: str, level: float) -> np.ndarray:
    """Return the intervals of 0, 1, …, n right answers of n, shape (n + 1, 2)."""
    scores = (np.arange(n) < np.arange(n + 1)[:, None]).astype(float)
    rows = es.intervals(
        es.ResponseMatrix.from_array(scores), method=method, confidence_level=level, rng=0
    )
    return np.array([[row.low, row.high] for row in rows])


def exact_coverage(n: int, method: str, level: float, truth: tuple[float, float]) -> float:
    """Return how often the interval holds an accuracy that is drawn from Beta(a, b).

    Given k of n right answers the accuracy has the density Beta(a + k, b + n - k); its mass inside
    the limits is summed over k with the Beta-Binomial weights, so that nothing is simulated.
    """
    a, b = truth
    k = np.arange(n + 1)
    weight = np.exp(
        gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        + betaln(a + k, b + n - k) - betaln(a, b)
    )  # fmt: skip
    low, high = np.clip(limits(n, method, level), 0, 1).T
    inside = betainc(a + k, b + n - k, high) - betainc(a + k, b + n - k, low)
    return float(weight @ inside)


def wrong_prior() -> str:
    """Return coverage at 95 % where accuracies are not spread as the prior has it.

    Weak models are strong ones mirrored, with the same coverage.
    """
    lines = [
        "| accuracies | method | n = 3 | n = 10 | n = 30 | n = 100 |",
        "|---|---|---|---|---|---|",
    ]
    for name, truth in list(TRUTHS.items())[1:3]:
        for place, method in enumerate(SHOWN):
            cells = [short(exact_coverage(n, method, 0.95, truth)) for n in SIZES]
            lines.append(f"| {'' if place else name} | `{method}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def no_width() -> str:
    """Return the models of Figure 1 whose interval by the CLT passes 1 or is a point."""
    lines = [
        "| eval | model | right | central limit theorem | `beta-hpd` |",
        "|---|---|---|---|---|",
    ]
    for name, matrix in (("typewriter", typewriter()), ("AIME II, first epoch", aime(1))):
        rows = {m: es.intervals(matrix, method=m, rng=0) for m in ("wald", "beta-hpd")}
        for wald, ours in zip(rows["wald"], rows["beta-hpd"], strict=True):
            if wald.high > 1 or wald.low == wald.high:
                right = round(wald.estimate * wald.n_items)
                shown = [f"[{row.low:.3f}, {row.high:.3f}]" for row in (wald, ours)]
                lines.append(
                    f"| {name} | {wald.model} | {right}/{wald.n_items} | {' | '.join(shown)} |"
                )
    return "\n".join(lines)


class Pattern(NamedTuple):
    """Machine response patterns: models with ability and accuracy, items with difficulty."""

    ability: np.ndarray
    accuracy: np.ndarray
    difficulty: np.ndarray
    share_right: np.ndarray


@cache
def digit_patterns(item_model: str) -> Pattern:
    """Fit an item response model to the classifiers."""
    matrix = digits()
    fit = es.fit_irt(matrix, item_model, rng=0)
    right = matrix.scores[:, :, 0]
    return Pattern(fit.ability.ravel(), right.mean(1), fit.difficulty.ravel(), right.mean(0))


def rank_correlations() -> str:
    """Return how abilities follow accuracy, and difficulties the share of right answers."""
    rows = ["| item model | ability and accuracy | difficulty and share right |", "|---|---|---|"]
    for name in ("rasch", "2pl"):
        found = digit_patterns(name)
        by_model = _spearman(found.ability.round(6), found.accuracy)
        by_item = _spearman(found.difficulty.round(6), found.share_right)
        rows.append(f"| `{name}` | {by_model:.4f} | {by_item:.4f} |")
    return "\n".join(rows)


def _spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Return the correlation of ranks, ties in the middle."""
    import pandas as pd

    ranks = pd.DataFrame({"first": first, "second": second}).rank()
    return float(ranks.corr().to_numpy()[0, 1])


def masks() -> str:
    """Return how well item models predict the answers that each mask holds out."""
    study = read_study("masks")["digits"]
    models = list(dict.fromkeys(row["model"] for row in study))
    lines = [f"| mask | {' | '.join(models)} | share of right answers |", "|---|" + "---|" * 5]
    for mask in dict.fromkeys(row["mask"] for row in study):
        rows = [row for row in study if row["mask"] == mask]
        cells = [f"{short(row['auc'])} ({short(row['log_loss'])})" for row in rows]
        lines.append(f"| {mask} | {' | '.join(cells)} | .500 ({short(rows[0]['base_log_loss'])}) |")
    return "\n".join(lines)


REPLAYED = {
    "livebench_binary": "LiveBench, right or wrong", "gsm8k": "GSM8K", "hellaswag": "HellaSwag",
}  # fmt: skip
"""Benchmarks whose models were kept out of a bank and then tested adaptively."""
PICKED = {
    "information": ("chosen by what they tell", "o", "#009e73"),
    "design": ("drawn, uncertain ones more often", "^", "#56b4e9"),
    "random": ("drawn, all alike", "x", "#d55e00"),
}
"""Ways to pick questions: label, mark and colour."""


def error_by_questions(name: str, rule: str) -> tuple[list[int], list[float], list[float]]:
    """Return numbers of questions, mean absolute errors and half their 95 % intervals."""
    rows = [row for row in read_study(f"adaptive_{name}")[name] if row["rule"] == rule]
    rows.sort(key=lambda row: row["n"])
    keys = ("n", "score_mae", "score_mae_half_width")
    n, error, half_width = ([row[key] for row in rows] for key in keys)
    return n, error, half_width

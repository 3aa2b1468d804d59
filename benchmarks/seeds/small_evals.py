"""The talk, second half: Bayesian evals with few questions, and models of models and tasks.

Intervals and figures are those of Bowyer, Aitchison and Ivanova (2025), whose data are in
``fixtures/data/no_clt``; numbers of `bayes_evals` are computed by its formulas with SciPy. The
leaderboard of the hierarchical models (29 models, 24 tasks) is simulated.
"""

from __future__ import annotations

import csv
import json
import math
import time
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import integrate, special, stats

import evalstats_plugin as es
from benchmarks.seeds.claims import Outcome, Source, holds, near, shown
from benchmarks.seeds.particles import TALK
from evalstats_plugin.hierarchical import HierarchicalOptions, compare_held_out, pool
from evalstats_plugin.stats.clustered import cluster_moments
from evalstats_plugin.stats.metric_intervals import dirichlet_f1

source = Source(TALK)
DATA = Path(__file__).parents[2] / "fixtures" / "data" / "no_clt"
STUDIES = Path(__file__).parents[2] / "fixtures" / "validation"
LEVEL = 0.95
FEW = ((15, 15), (14, 15), (0, 20), (1, 3), (50, 100), (733, 1000))
"""Right answers and questions."""
CLUSTERS = ((9, 10), (4, 6), (7, 10), (2, 7), (5, 5))
"""Right answers and questions of five tasks."""


def answers(right: int, n: int) -> np.ndarray:
    """Return n scores of which so many are 1, shape (1, n)."""
    return (np.arange(n) < right).astype(float)[None]


def limits(right: int, n: int, method: str, level: float = LEVEL) -> tuple[float, float]:
    """Limits of this package."""
    matrix = es.ResponseMatrix.from_array(answers(right, n))
    row = es.intervals(matrix, method=method, confidence_level=level, rng=0)[0]
    return row.low, row.high


def beside(method: str, theirs: dict[tuple[int, int], tuple[float, float]]) -> Outcome:
    """Compare limits of all cases; the first is shown."""
    ours = {case: limits(*case, method) for case in theirs}
    gap = max(np.abs(np.subtract(ours[case], theirs[case])).max() for case in theirs)
    first = next(iter(theirs))
    return Outcome(
        shown(theirs[first], 4),
        shown(ours[first], 4),
        bool(gap < 1e-9),
        f"{first[0]} of {first[1]}; {len(theirs)} cases",
    )


@source.claim("interval by the central limit theorem", fast=True)
def clt() -> Outcome:
    """Estimate ± 1.96 standard errors."""
    z = stats.norm.ppf(0.975)
    spread = {(k, n): z * math.sqrt(k / n * (1 - k / n) / n) for k, n in FEW[1:]}
    return beside("wald", {(k, n): (k / n - s, k / n + s) for (k, n), s in spread.items()})


@cache
def tables() -> dict[str, tuple[list[str], np.ndarray]]:
    """Models, and their right answers, of Figure 1's two evals."""
    result: dict[str, tuple[list[str], np.ndarray]] = {}
    for name, file, first, each in (
        ("typewriter", "no_clt_langchain_typewriter_n20.csv", 2, 1),
        ("AIME II", "no_clt_matharena_aimeII_15x4.csv", 1, 4),
    ):
        with (DATA / file).open(encoding="utf-8") as lines:
            header, *rows = csv.reader(lines)
        scores = np.array([[float(cell) for cell in row[first:]] for row in rows])
        result[name] = header[first:], scores[::each].sum(0).astype(int)
    return result


@source.claim("Figure 1: intervals that collapse or pass 0 or 1", fast=True)
def figure_1() -> Outcome:
    """Models of the typewriter and of one epoch of AIME II, by the sign of Wald's limits."""
    sizes = {"typewriter": 20, "AIME II": 15}
    ours, theirs = list[int](), list[int]()
    for name, (_, right) in tables().items():
        n = sizes[name]
        share = right / n
        spread = 1.959963984540054 * np.sqrt(share * (1 - share) / n)
        theirs.append(int(((share - spread < 0) | (share + spread > 1) | (spread == 0)).sum()))
        rows = [limits(int(k), n, "wald") for k in right]
        ours.append(sum(low < 0 or high > 1 or low == high for low, high in rows))
    return near(ours, theirs, 0, digits=0, note="models of the typewriter and of AIME II")


@source.claim("Beta-Bernoulli posterior", fast=True)
def beta() -> Outcome:
    """`bayes_evals.independent_intervals`: quantiles of Beta(1 + k, 1 + n - k)."""
    return beside("beta", {(k, n): stats.beta(1 + k, 1 + n - k).interval(LEVEL) for k, n in FEW})


@source.claim("Wilson's and Clopper and Pearson's intervals", fast=True)
def classical() -> Outcome:
    """SciPy's."""
    first, second = (
        beside(
            ours,
            {(k, n): tuple(stats.binomtest(k, n).proportion_ci(LEVEL, theirs)) for k, n in FEW},
        )
        for ours, theirs in (("wilson", "wilson"), ("clopper-pearson", "exact"))
    )
    return first._replace(agrees=first.agrees and second.agrees)


@source.claim("the interval to take is the posterior's quantiles", fast=True)
def default() -> Outcome:
    """Ours is the shortest interval; that with equal tails leaves out 15 of 15."""
    ours = limits(15, 15, "auto")
    theirs = stats.beta(16, 1).interval(LEVEL)
    return near(
        ours,
        theirs,
        1e-6,
        note="the shortest interval (`beta-hpd`) holds the estimate, "
        "here 1; `--method beta` gives theirs",
    )


@cache
def limits_of_all(n: int, method: str, level: float) -> np.ndarray:
    """Intervals of 0, 1, …, n right answers, shape (n + 1, 2)."""
    scores = (np.arange(n) < np.arange(n + 1)[:, None]).astype(float)
    matrix = es.ResponseMatrix.from_array(scores)
    rows = es.intervals(matrix, method=method, confidence_level=level, rng=0)
    return np.clip([[row.low, row.high] for row in rows], 0, 1)


def coverage(n: int, method: str, level: float, a: float = 1, b: float = 1) -> float:
    """Share of accuracies from Beta(a, b) that are inside, summed over right answers."""
    k = np.arange(n + 1)
    weight = stats.betabinom(n, a, b).pmf(k)
    inside = special.betainc(a + k, b + n - k, limits_of_all(n, method, level).T)
    return float(weight @ (inside[1] - inside[0]))


def coverage_error(method: str, levels: np.ndarray) -> list[float]:
    """Mean distance of coverage from the level, for 3, 10, 30 and 100 questions."""
    return [
        float(np.mean([abs(coverage(n, method, x) - x) for x in levels])) for n in (3, 10, 30, 100)
    ]


LEVELS = 1 - np.linspace(0.005, 0.2, 10)
"""Of the paper's 100 levels every eleventh."""
READ = {
    "wald": (0.42, 0.16, 0.065, 0.022),
    "clopper-pearson": (0.087, 0.064, 0.042, 0.026),
    "wilson": (0.021, 0.009, 0.004, 0.0026),
    "beta": (0.014, 0.010, 0.006, 0.004),
}
"""Read from the paper's figure; simulated there, so that 0 looks like .004 to .014."""


def _read(method: str) -> Outcome:
    noise = 0.014 if method == "beta" else 0.006
    return near(
        coverage_error(method, LEVELS),
        READ[method],
        noise,
        note="n = 3, 10, 30, 100; ours is an exact sum, theirs was simulated",
    )


@source.claim("mean error of coverage, central limit theorem", fast=True)
def error_clt() -> Outcome:
    """Figure on independent questions."""
    return _read("wald")


@source.claim("mean error of coverage, Clopper–Pearson, Wilson and Bayes", fast=True)
def error_others() -> Outcome:
    """Clopper–Pearson is shown; all three must agree."""
    outcomes = [_read(method) for method in ("clopper-pearson", "wilson", "beta")]
    return outcomes[0]._replace(agrees=all(o.agrees for o in outcomes))


@source.claim("width against level", fast=True)
def widths() -> Outcome:
    """Mean width of Wilson's and the posterior's intervals at n = 3, 10, 30, 100."""
    ours = [float(np.diff(limits_of_all(n, "beta", LEVEL)).mean()) for n in (3, 10, 30, 100)]
    theirs = []
    for n in (3, 10, 30, 100):
        low, high = stats.beta(1 + np.arange(n + 1), 1 + n - np.arange(n + 1)).interval(LEVEL)
        theirs.append(float((high - low).mean()))
    return near(ours, theirs, 1e-9, note="mean over accuracies from 0 to 1; at 95 %")


def clustered() -> es.ResponseMatrix:
    """Five tasks of five to ten questions."""
    scores = np.concatenate([answers(k, n)[0] for k, n in CLUSTERS])
    names = np.repeat([f"t{i}" for i in range(len(CLUSTERS))], [n for _, n in CLUSTERS])
    return es.ResponseMatrix.from_array(scores[None], clusters=names.tolist())


@source.claim("snippet 4: Bayes for clustered questions", fast=True)
def clustered_bayes() -> Outcome:
    """θ ~ U(0, 1), d ~ Γ(1, 1), θ_t ~ Beta(dθ, d(1 − θ)), by a grid of 600 × 600."""
    right, n = np.array(CLUSTERS).T
    theta = (np.arange(600) + 0.5) / 600
    strength = -np.log1p(-(np.arange(600) + 0.5) / 600)
    a, b = strength * theta[:, None], strength * (1 - theta[:, None])
    log_p = sum(
        special.betaln(a + k, b + m - k) - special.betaln(a, b)
        for k, m in zip(right, n, strict=True)
    )
    mass = np.exp(log_p - np.max(log_p)).sum(1)
    below = np.cumsum(mass) / mass.sum()
    theirs = np.interp([0.025, 0.975], below, theta + 0.5 / 600)
    row = es.intervals(clustered(), method="betabinomial-gamma", rng=0)[0]
    return near(
        [row.low, row.high],
        theirs,
        2e-3,
        note="not the default: `size-betabinomial` is for the items as they are",
    )


@source.claim("standard error of clustered questions (Miller)", fast=True)
def miller() -> Outcome:
    """SE² + n⁻² Σ over pairs within a cluster, and ours with its correction for few clusters."""
    right, n = np.array(CLUSTERS, float).T
    mean = right.sum() / n.sum()
    residual = right - n * mean
    theirs = math.sqrt((residual**2).sum()) / n.sum()
    ours = float(cluster_moments(right, n).cr2)
    return near(
        ours,
        theirs,
        0.005,
        digits=4,
        note="ours corrects the bias of few clusters (CR2, "
        "Bell and McCaffrey), which the asymptotic formula has",
    )


@source.claim("figure on clustered questions: Bayes holds its level, others do not")
def clustered_figure() -> Outcome:
    """Coverage over 1,000 draws of the paper's design: 5 questions in each of 2, 6, 20 tasks."""
    rng = np.random.default_rng(5)
    held = dict[str, list[float]](beta=[], bayes=[])
    for n_tasks in (2, 6, 20):
        theta, strength = rng.random(1000), rng.gamma(1, 1, 1000)
        tasks = rng.beta(
            np.maximum(strength * theta, 1e-9)[:, None],
            np.maximum(strength * (1 - theta), 1e-9)[:, None],
            (1000, n_tasks),
        )
        scores = (rng.random((1000, n_tasks, 5)) < tasks[:, :, None]).astype(float)
        names = np.repeat(range(n_tasks), 5).tolist()
        for name, method, clusters in (
            ("beta", "beta", None),
            ("bayes", "betabinomial-gamma", names),
        ):
            matrix = es.ResponseMatrix.from_array(scores.reshape(1000, -1), clusters=clusters)
            rows = es.intervals(matrix, method=method, rng=0)
            inside = [r.low <= x <= r.high for r, x in zip(rows, theta, strict=True)]
            held[name].append(float(np.mean(inside)))
    worst = max(held["beta"])
    return near(
        held["bayes"],
        [0.95] * 3,
        0.021,
        note=f"2, 6, 20 tasks; without clusters at most {worst:.2f}",
    )


def two_models() -> np.ndarray:
    """30 questions, answered by two models of accuracies .8 and .45."""
    rng = np.random.default_rng(0)
    return np.stack([rng.random(30) < 0.8, rng.random(30) < 0.45])


def difference(a: tuple[float, float], b: tuple[float, float], at: float) -> float:
    """P(B - A < at) of two independent Beta variables."""
    below = stats.beta(*b).cdf
    density = stats.beta(*a).pdf
    return integrate.quad(lambda x: density(x) * below(x + at), 0, 1, epsabs=1e-10)[0]


@source.claim("two models on different questions", fast=True)
def independent() -> Outcome:
    """P(B > A) and tail masses outside our limits, under uniform priors."""
    scores = two_models()
    matrix = es.ResponseMatrix.from_array(scores.astype(float), models=["a", "b"])
    row = es.compare(matrix, design="unpaired", method="beta-difference", prior=1.0, rng=0)[0]
    sign = 1 if row.model_b == "b" else -1
    low, high = sorted((sign * row.low, sign * row.high))
    a, b = ((1 + k, 31 - k) for k in scores.sum(1))
    tails = difference(a, b, low), 1 - difference(a, b, high)
    return near(
        tails,
        [0.025, 0.025],
        2e-4,
        digits=4,
        note="tails outside our limits, by quadrature; the default prior is ½",
    )


@source.claim("odds ratio of two models", fast=True)
def odds() -> Outcome:
    """Tail masses outside our limits, by 400,000 draws."""
    scores = two_models()
    matrix = es.ResponseMatrix.from_array(scores.astype(float), models=["a", "b"])
    row = es.compare(matrix, design="unpaired", method="beta-odds", prior=1.0, rng=0)[0]
    rng = np.random.default_rng(1)
    p = np.stack([rng.beta(1 + k, 31 - k, 400_000) for k in scores.sum(1)])
    odds_of = p / (1 - p)
    ratio = odds_of[1] / odds_of[0] if row.model_b == "b" else odds_of[0] / odds_of[1]
    tails = (ratio < row.low).mean(), (ratio > row.high).mean()
    return near(tails, [0.025, 0.025], 1e-3, note="tails outside our limits")


@source.claim("two models on the same questions: bivariate normal model")
def paired() -> Outcome:
    """The paper's posterior by 200,000 draws from its prior, beside our default."""
    scores = two_models()
    a, b = scores
    cells = np.array([(a & b).sum(), (a & ~b).sum(), (~a & b).sum(), (~a & ~b).sum()])
    rng = np.random.default_rng(2)
    n = 40_000
    first, second = rng.random(n), rng.random(n)
    rho = 2 * rng.beta(4, 2, n) - 1
    x, y = special.ndtri(first), special.ndtri(second)
    # Φ₂ by Owen's T.
    root = np.sqrt(1 - rho**2)
    both = 0.5 * (first + second) - special.owens_t(x, (y / x - rho) / root)
    both -= special.owens_t(y, (x / y - rho) / root) + np.where(x * y < 0, 0.5, 0)
    p = np.clip([both, first - both, second - both, 1 - first - second + both], 1e-300, 1)
    weight = np.exp(cells @ np.log(p) - (cells @ np.log(p)).max())
    effective = weight.sum() ** 2 / (weight**2).sum()
    order = np.argsort(second - first)
    below = np.cumsum(weight[order]) / weight.sum()
    theirs = np.interp([0.025, 0.975], below, (second - first)[order])
    matrix = es.ResponseMatrix.from_array(scores.astype(float), models=["a", "b"])
    row = es.compare(matrix, rng=0)[0]
    sign = 1 if row.model_b == "b" else -1
    ours = sorted((sign * row.low, sign * row.high))
    return near(
        ours,
        theirs,
        0.05,
        note=f"another model (Dirichlet kind); {effective:.0f} effective draws of theirs",
    )


def f1_of(table: np.ndarray) -> np.ndarray:
    """F1 of true and false positives and false negatives, along the first axis."""
    return 2 * table[0] / (2 * table[0] + table[1] + table[2])


@source.claim("Bayesian F1", fast=True)
def f1() -> Outcome:
    """Limits beside 400,000 draws of Dirichlet(13, 4, 6, 41)."""
    rng = np.random.default_rng(3)
    drawn = f1_of(rng.dirichlet(np.array([12, 3, 5, 40]) + 1, 400_000).T)
    ours = dirichlet_f1(12, 12 + 3 + 5, confidence_level=LEVEL, prior=1.0)
    return near([float(x) for x in ours], np.quantile(drawn, [0.025, 0.975]), 2e-3)


def _study(name: str) -> dict[str, list[dict[str, float | str]]]:
    return json.loads((STUDIES / f"{name}.json").read_text(encoding="utf-8"))


@source.claim("figures on independent, paired and F1 results: coverage", fast=True)
def figures() -> Outcome:
    """Exact coverage in the studies: of all designs, at n = 10, at n = 10."""
    shares = []
    for study, kind, method in (
        ("paired", "unpaired", "beta(1)"),
        ("paired", "paired", "dirichlet"),
        ("confusion", "f1", "dirichlet-f1"),
    ):
        rows = [r for r in _study(study)[kind] if r.get("n", 10) == 10 and r["method"] == method]
        shares.append(float(np.mean([float(row["coverage"]) for row in rows])))
    return near(
        shares,
        [0.95] * 3,
        0.025,
        note="tests/validation/test_coverage_paired.py, test_coverage_confusion.py",
    )


@source.claim("prior mismatch: a wrong prior costs little", fast=True)
def wrong_prior() -> Outcome:
    """Coverage at 95 % where accuracies are from Beta(100, 20), n = 3, 10, 30, 100."""
    ours = [coverage(n, "beta-hpd", LEVEL, 100, 20) for n in (3, 10, 30, 100)]
    rng = np.random.default_rng(8)
    theirs = []
    for n in (3, 10, 30, 100):
        accuracy = rng.beta(100, 20, 200_000)
        low, high = limits_of_all(n, "beta-hpd", LEVEL)[rng.binomial(n, accuracy)].T
        theirs.append(float(((low <= accuracy) & (accuracy <= high)).mean()))
    outcome = near(ours, theirs, 3e-3)
    wald = coverage(3, "wald", LEVEL, 100, 20)
    return outcome._replace(
        agrees=outcome.agrees and min(ours) > 0.92 > wald + 0.1,
        note=f"exact sums beside 200,000 simulated evals; Wald at n = 3: {wald:.3f}",
    )


@source.claim("cheap for large N", fast=True)
def large() -> Outcome:
    """A million questions."""
    scores = (np.random.default_rng(9).random((1, 1_000_000)) < 0.7).astype(float)
    matrix = es.ResponseMatrix.from_array(scores)
    start = time.process_time()
    row = es.intervals(matrix)[0]
    seconds = time.process_time() - start
    k = int(scores.sum())
    outcome = near(
        [row.low, row.high],
        stats.beta(1 + k, 1_000_001 - k).interval(LEVEL),
        1e-5,
        digits=4,
        note="in less than a CPU second",
    )
    return outcome._replace(agrees=outcome.agrees and seconds < 1)


@cache
def leaderboard() -> tuple[es.ResponseMatrix, np.ndarray]:
    """8 models, 6 tasks of 25 questions; chances of a task-based model."""
    rng = np.random.default_rng(11)
    ability, difficulty = rng.normal(0, 0.8, 8), rng.normal(0, 0.9, 6)
    chance = 1 / (1 + np.exp(-(0.5 + ability[:, None] - difficulty)))
    scores = (rng.random((8, 6, 25)) < chance[:, :, None]).astype(float).reshape(8, -1)
    tasks = np.repeat([f"t{i}" for i in range(6)], 25).tolist()
    return es.ResponseMatrix.from_array(scores, tasks=tasks), chance


@source.claim("models of tasks and of questions hold their level", fast=True)
def pooled() -> Outcome:
    """Coverage of pooled scores of tasks, from the study of drawn leaderboards."""
    rows = _study("hierarchical_coverage")["rows"]
    ours = next(
        float(row["coverage"])
        for row in rows
        if (row["intervals"], row["contrast"]) == ("pooled", "task")
    )
    return near(
        ours,
        0.95,
        0.01,
        note="simulated: the leaderboard's 29 × 24 answers are not published; "
        "tests/validation/test_hierarchical_coverage.py",
    )


def _narrower(model: str) -> Outcome:
    """Coverage of the true chances of every model and task, and the width beside per-task."""
    matrix, chance = leaderboard()
    options = HierarchicalOptions(chains=2, draws=200, warm_up=150)
    place = {name: i for i, name in enumerate(matrix.models)}
    widths, held = list[float](), 0.0
    for fit in (pool(matrix, "per-task", rng=0), pool(matrix, model, options=options, rng=0)):
        rows = [row for row in fit.rows if row.task is not None]
        truth = [chance[place[row.model], int(row.task[1:])] for row in rows]
        inside = [row.low <= p <= row.high for row, p in zip(rows, truth, strict=True)]
        held = float(np.mean(inside))
        widths.append(float(np.mean([row.high - row.low for row in rows])))
    narrower = 1 - widths[1] / widths[0]
    return holds(
        "holds the truth, narrower than per-task",
        f"{held:.0%} of 48 chances, {narrower:.0%} narrower",
        held >= 0.89 and narrower > 0,
        "simulated, not the 29 × 24 leaderboard; 200 draws",
    )


@source.claim("task-based model")
def task_model() -> Outcome:
    """Performance and difficulty of tasks."""
    return _narrower("task")


@source.claim("main model: question and task difficulty")
def question_model() -> Outcome:
    """Difficulty of each question."""
    return _narrower("question")


@source.claim("“just use Beta-Binomial”: per task, in closed form", fast=True)
def beta_binomial() -> Outcome:
    """Posterior means (1 + k) / (2 + n) of each model and task."""
    matrix, _ = leaderboard()
    right = matrix.scores[:, :, 0].reshape(8, 6, 25).sum(2)
    rows = [row for row in pool(matrix, "per-task", rng=0).rows if row.task is not None]
    place = {m: i for i, m in enumerate(matrix.models)}
    ours = [row.estimate for row in rows]
    theirs = [(1 + right[place[r.model], int(str(r.task)[1:])]) / 27 for r in rows]
    return near(ours, theirs, 1e-6)


@cache
def planted() -> es.ResponseMatrix:
    """24 models of which each half has one of two capabilities; items need one of them."""
    rng = np.random.default_rng(0)
    has, needs = np.zeros((24, 2)), np.zeros((2, 120))
    has[:12, 0], has[12:, 1], needs[0, :60], needs[1, 60:] = 3, 3, 1, 1
    chance = 1 / (1 + np.exp(-(has @ needs - 1.5)))
    return es.ResponseMatrix.from_array((rng.random((24, 120)) < chance).astype(float))


@source.claim("sparse capabilities (SAE-like) predict held-out answers better than one ability")
def capabilities() -> Outcome:
    """Two planted capabilities, which one ability cannot tell apart."""
    auc = {score.item_model: score.auc for score in compare_held_out(planted(), 2, rng=0)}
    return holds(
        "AUC above that of one ability",
        ", ".join(f"{k} {v:.2f}" for k, v in auc.items()),
        auc["sparse"] > auc["hierarchical"] + 0.1,
        "planted; the talk's own data are not published",
    )


@source.claim("text of questions explains difficulty")
def question_text() -> Outcome:
    """Difficulty by two words, that make items hard or easy by ±1; 20 % of the items are new."""
    rng = np.random.default_rng(13)
    hard = rng.random(200) < 0.5
    difficulty = np.where(hard, 1.0, -1.0) + rng.normal(0, 0.3, 200)
    chance = 1 / (1 + np.exp(-(rng.normal(0, 1, (30, 1)) - difficulty)))
    scores = (rng.random((30, 200)) < chance).astype(float)
    ids = [f"q{i}" for i in range(200)]
    fit = es.fit_irt(es.ResponseMatrix.from_array(scores[:, :160], items=ids[:160]), "rasch", rng=0)
    texts = np.where(hard, "prove the theorem", "name the capital")
    items = es.irt.predict_items(fit, pd.DataFrame({"item": ids, "text": texts}))
    return holds(
        "more than nothing",
        f"{items.explained:.0%} of the variance",
        items.explained > 0.5,
        "planted texts; cross-validated",
    )


@source.claim("metrics of pretraining predict performance")
def covariates() -> Outcome:
    """A covariate of models with slope 1.5: its posterior interval holds the slope."""
    rng = np.random.default_rng(17)
    loss = rng.normal(0, 1, 20)
    chance = 1 / (1 + np.exp(-(1.5 * loss + rng.normal(0, 0.3, 20))))
    scores = (rng.random((20, 60)) < chance[:, None]).astype(float)
    names = [f"m{i}" for i in range(20)]
    tasks = np.repeat(["t0", "t1", "t2"], 20).tolist()
    matrix = es.ResponseMatrix.from_array(scores, models=names, tasks=tasks)
    known = {"models": {"loss": dict(zip(names, loss.tolist(), strict=True))}}
    effect = pool(
        matrix, "task", covariates=known, options=HierarchicalOptions(draws=100, warm_up=100), rng=0
    ).effects()[0]
    ours = f"{effect.estimate:.1f} [{effect.low:.1f}, {effect.high:.1f}]"
    return holds(
        "a slope of 1.5",
        ours,
        effect.low <= 1.5 <= effect.high,
        "simulated: the talk names no numbers",
    )

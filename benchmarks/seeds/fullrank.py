"""Fullrank: a list is ranked by answers on pairs, with a posterior over all orders.

Its example has five drinks and eight answers (``fixtures/data/drinks``). Numbers of another hand
are draws by rejection from the definition of the model, and moments of the unified skew-normal
distribution by SciPy's multivariate normal probabilities.
"""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from scipy import optimize, stats

import evalstats_plugin as es
from benchmarks.seeds.claims import Outcome, Source, holds, largest, near, shown
from evalstats_plugin.cli import main as command
from evalstats_plugin.ranking import Contests, fit_bradley_terry, next_contests
from evalstats_plugin.ranking.thurstone.model import skew_normal

source = Source("Fullrank")
DRINKS = Path(__file__).parents[2] / "fixtures" / "data" / "drinks" / "comparisons.json"
ANSWERS = json.loads(DRINKS.read_text(encoding="utf-8"))
N_ITEMS = len(ANSWERS["items"])
PROPOSED = 2_000_000
"""Draws from the prior, of which those are kept that give all eight answers."""


@cache
def wins() -> np.ndarray:
    """Rows of answers: 1 for the winner, -1 for the loser."""
    design = np.zeros((len(ANSWERS["comparisons"]), N_ITEMS))
    for row, answer in zip(design, ANSWERS["comparisons"], strict=True):
        row[answer["winner"]], row[answer["loser"]] = 1, -1
    return design


@cache
def rejection() -> np.ndarray:
    """Draws of the ratings for which the noisy differences have the signs of the answers."""
    rng = np.random.default_rng(0)
    kept: list[np.ndarray] = []
    for _ in range(8):
        ratings = rng.standard_normal((PROPOSED // 8, N_ITEMS))
        differences = ratings @ wins().T + rng.standard_normal((PROPOSED // 8, len(wins())))
        kept.append(ratings[(differences > 0).all(1)])
    return np.concatenate(kept)


@cache
def ranking() -> es.ranking.Ranking:
    """The drinks, ranked by this package."""
    return es.rank(es.read_contests(DRINKS), model="thurstone", rng=0)


def ranks(ratings: np.ndarray) -> np.ndarray:
    """Return the share of draws in which each item has each rank, shape (items, ranks)."""
    place = (-ratings).argsort(1).argsort(1)
    return np.stack([np.bincount(column, minlength=N_ITEMS) for column in place.T]) / len(place)


@source.claim("`compare items.txt > comparisons.json`: f and j choose, z takes back")
def compare() -> Outcome:
    """Drive the terminal app by Textual's pilot and read the file that it wrote."""
    from evalstats_plugin.ranking.judging.items import Item, Items
    from evalstats_plugin.ranking.judging.screen import JudgingApp
    from evalstats_plugin.ranking.judging.session import Session

    items = Items(tuple(Item(name, name) for name in ANSWERS["items"]), "drinks")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "comparisons.json"
        app = JudgingApp(Session.open(file, items.names, judge="ann"), items, seed=1)

        async def drive() -> None:
            async with app.run_test() as pilot:
                for key in ("f", "j", "f", "u", "f"):
                    while app.pair is None or not all(w.is_finished for w in app.workers):
                        await pilot.pause(0.01)
                    await pilot.press(key)
                await pilot.pause(0.1)

        with asyncio.Runner() as runner:
            runner.run(drive())
        answered = json.loads(file.read_text(encoding="utf-8"))
    keys = {"items", "prior_var", "comparisons"} <= set(answered)
    n = len([x for x in answered["comparisons"] if not x.get("undone")])
    return holds(
        "items, prior_var, comparisons of winner and loser; three answers left",
        f"{', '.join(list(answered)[:3])}; {n} answers",
        keys and n == 3,
        "undo is u; answers are saved one by one, where Fullrank loses them if it fails",
    )


@source.claim("`stats < comparisons.json` reads Fullrank's file", fast=True)
def stats_command() -> Outcome:
    """The command prints the numbers of the posterior mean by rejection, to its error."""
    done = CliRunner().invoke(
        command, ["rank", "stats", "-", "--format", "json"], input=DRINKS.read_text("utf-8")
    )
    rows = {row["player"]: row["mean"] for row in json.loads(done.stdout)["results"]}
    draws = rejection() - rejection().mean(1, keepdims=True)
    error = 4 * draws.std(0).max() / math.sqrt(len(draws))
    return near([rows[name] for name in ANSWERS["items"]], draws.mean(0), error, digits=2)


@source.claim("`raw-sample N` writes N draws, a JSON list a line", fast=True)
def raw_sample() -> Outcome:
    """Count the lines of a sample of 1,500."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "samples.jsonl"
        CliRunner().invoke(
            command, ["rank", "sample", str(DRINKS), str(target), "-n", "1500", "-q"]
        )
        lines = target.read_text(encoding="utf-8").splitlines()
    full = all(len(json.loads(line)) == N_ITEMS for line in lines)
    return holds(
        "1500 lines of 5 numbers",
        f"{len(lines)} lines of {N_ITEMS} numbers",
        full and len(lines) == 1500,
        "Fullrank itself writes whole batches, 2,000",
    )


@source.claim("the posterior of the probit model is unified skew-normal", fast=True)
def posterior() -> Outcome:
    """Means and standard deviations by rejection from the model's definition."""
    fit = ranking().fit
    draws = rejection() - rejection().mean(1, keepdims=True)
    error = 4 * draws.std(0).max() / math.sqrt(len(draws))
    means = near(fit.rating - fit.rating.mean(), draws.mean(0), error, digits=2)
    centred = np.eye(N_ITEMS) - 1 / N_ITEMS
    spread = np.sqrt((centred @ fit.covariance @ centred).diagonal())
    return near(spread, draws.std(0), error, digits=2)._replace(
        agrees=means.agrees and bool(np.all(np.abs(spread - draws.std(0)) < error))
    )


def skew_normal_means() -> np.ndarray:
    """E[s] = ξ + Δ ∇ log Φ(τ; Γ), by SciPy's multivariate normal probabilities."""
    sun = skew_normal(es.read_contests(DRINKS))
    tau, gamma = sun.threshold, sun.latent_covariance
    m = len(tau)

    def probability(threshold: np.ndarray, covariance: np.ndarray) -> float:
        normal = stats.multivariate_normal
        return float(
            normal.cdf(threshold, cov=covariance, abseps=1e-6, releps=1e-5, maxpts=100_000)
        )

    slopes = np.empty(m)
    for k in range(m):
        rest = np.arange(m) != k
        toward = gamma[rest, k] / gamma[k, k]
        left = gamma[np.ix_(rest, rest)] - np.outer(toward, gamma[k, rest])
        slopes[k] = stats.norm.pdf(tau[k], scale=gamma[k, k] ** 0.5)
        slopes[k] *= probability(tau[rest] - toward * tau[k], left)
    return sun.location + sun.skewness @ (slopes / probability(tau, gamma))


@source.claim("moments are exact", fast=True)
def moments() -> Outcome:
    """Means by the closed form of the distribution."""
    theirs = skew_normal_means()
    return near(ranking().fit.rating, theirs - theirs.mean(), 5e-4)


@source.claim("parameters ξ, Ω, Δ, τ, Γ (`infer-sun`)", fast=True)
def parameters() -> Outcome:
    """By their definition from the answers."""
    sun, rows = skew_normal(es.read_contests(DRINKS)), wins()
    gaps = [
        np.abs(np.subtract(ours, theirs)).max()
        for ours, theirs in (
            (sun.location, np.zeros(N_ITEMS)),
            (sun.scale, np.eye(N_ITEMS)),
            (sun.skewness, rows.T),
            (sun.threshold, np.zeros(len(rows))),
            (sun.latent_covariance, np.eye(len(rows)) + rows @ rows.T),
        )
    ]
    return largest(gaps, 1e-12, "Σ, ΣD', Dμ, I + DΣD'", "`skew_normal`; no command of its own")


@source.claim("draws ξ + U₀ + ΔΓ⁻¹U₁ are of the posterior", fast=True)
def convolution() -> Outcome:
    """Add a normal to a truncated normal, as Fullrank does, beside our draws."""
    sun, rng = skew_normal(es.read_contests(DRINKS)), np.random.default_rng(1)
    gamma, delta = sun.latent_covariance, sun.skewness
    latent = rng.multivariate_normal(np.zeros(len(gamma)), gamma, PROPOSED)
    latent = latent[(latent > 0).all(1)]
    weights = np.linalg.solve(gamma, delta.T).T
    rest = sun.scale - weights @ delta.T
    noise = rng.multivariate_normal(np.zeros(N_ITEMS), rest, len(latent))
    theirs, ours = noise + latent @ weights.T, ranking().draws
    error = 4 * math.sqrt(theirs.var(0).max() * (1 / len(theirs) + 1 / len(ours)))
    return near(
        ours.mean(0) - ours.mean(),
        theirs.mean(0) - theirs.mean(),
        error,
        digits=1,
        note="our draws are resampled from the integration's points",
    )


@source.claim("probability of each rank", fast=True)
def rank_table() -> Outcome:
    """All 25 probabilities beside those of draws by rejection."""
    table = ranking().rank_distribution().loc[ANSWERS["items"]].to_numpy()
    drawn = ranks(rejection())
    error = 4 * 0.5 / math.sqrt(len(rejection()))
    outcome = near(table, drawn, error, digits=2)
    first = {name: table[i, 0] for i, name in enumerate(ANSWERS["items"])}
    return outcome._replace(
        note=f"P(best) of coffee {first['coffee']:.3f}; Fullrank labels rows and columns wrongly"
    )


@source.claim("the next pair has the least skewness (eᵢ − eⱼ)'ΔΔ'(eᵢ − eⱼ)", fast=True)
def next_pair() -> Outcome:
    """Fullrank's score counts questions and never looks at who won; ours looks."""
    contests = es.read_contests(DRINKS)
    sun = skew_normal(contests)
    square = sun.skewness @ sun.skewness.T
    level = square.diagonal()
    score = level[:, None] + level - 2 * square
    asked = np.abs(wins()).T @ np.abs(wins())
    counted = asked.diagonal()[:, None] + asked.diagonal() + 2 * (asked - np.diag(asked.diagonal()))
    np.fill_diagonal(counted, 0)
    pair = np.unravel_index(np.argmin(score + 1e9 * np.eye(N_ITEMS)), score.shape)
    chosen = next_contests(ranking().fit, rng=0)[0]
    names = ANSWERS["items"]
    return Outcome(
        f"{names[pair[0]]}–{names[pair[1]]}",
        f"{names[chosen.first]}–{names[chosen.second]}",
        {int(x) for x in pair} == {chosen.first, chosen.second},
        "its score, ours by Δ, is the number of answers on both "
        f"(apart by {np.abs(score - counted).max():.0e}), "
        "not who won: `rank next` asks what tells most",
    )


@source.claim("entropy and divergence in bits", fast=True)
def bits() -> Outcome:
    """Entropy of the order, of log2(5!) bits, by the orders of draws by rejection."""
    orders = np.unique((-rejection()).argsort(1), axis=0, return_counts=True)[1]
    share = orders / orders.sum()
    left = -(share * np.log2(share)).sum()
    entropy = ranking().goodness.entropy
    if entropy is None:
        return Outcome(shown(left), "–", agrees=False)
    return near(
        [(entropy.low + entropy.high) / 2, entropy.most],
        [left, math.log2(120)],
        max(0.1, entropy.high - entropy.low),
        digits=1,
        note=f"ours within {entropy.high - entropy.low:.2f} bits; Fullrank prints nats as bits",
    )


@source.claim("Bradley–Terry as in Resorter", fast=True)
def bradley_terry() -> Outcome:
    """Ratings of 6 players in 90 games, beside maximum likelihood by SciPy."""
    rng = np.random.default_rng(4)
    truth = rng.normal(0, 1, 6)
    first = rng.integers(0, 6, 90)
    second = (first + rng.integers(1, 6, 90)) % 6
    won = rng.random(90) < 1 / (1 + np.exp(truth[second] - truth[first]))

    def loss(ratings: np.ndarray) -> float:
        lead = (ratings[first] - ratings[second]) * np.where(won, 1, -1)
        return np.logaddexp(0, -lead).sum() + 1e-9 * (ratings**2).sum()

    theirs = optimize.minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-8}).x
    fit = fit_bradley_terry(Contests.of(first, second, won.astype(float), players=6))
    return near(fit.rating - fit.rating.mean(), theirs - theirs.mean(), 1e-4)

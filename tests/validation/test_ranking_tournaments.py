"""Do intervals of differences and ranges of ranks hold the truth, in tournaments drawn at random?

Writes fixtures/validation/ranking_tournaments.json. 120 tournaments of 4 to 12 players, with 15 to
60 votes a player on pairs drawn unevenly; 40 data sets of each, made as the fitted model says: wins
and losses, ties by Davidson or Rao and Kupper, a feature of style, clusters of three votes of which
two copy the first with probability .8, or Thurstone's model with ratings from its prior, where some
tournaments fall in two unconnected parts. Coverage of a tournament: the share of all differences
whose 95 % interval holds the truth; and the share of data sets in which all ranges of ranks do.
Control: the clustered votes taken as independent. Slopes: stated
log odds of a win against the true ones, a tie left out (of the expected score for half ties), of 20
players and 400,000 votes.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from study import FOLDER, write_figures

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry
from evalstats_plugin.ranking.rows import ranked
from evalstats_plugin.ranking.thurstone.model import fit_thurstone
from evalstats_plugin.stats.streams import child, stream

pytestmark = pytest.mark.validation
ROOT = stream(0, "coverage in drawn tournaments")
KINDS = ("wins", "davidson", "rao-kupper", "style", "clusters", "thurstone")
EACH, DATA, LEVEL = 20, 40, 0.95
TIE = {"davidson": -0.5, "rao-kupper": 0.6, "half": 0.0, "thurstone": 0.0}


def outcomes(kind, x, rng):
    """Outcomes of contests with differences x, as a model says."""
    u = rng.random(len(x))
    if kind == "thurstone":
        return (x + rng.normal(size=len(x)) > 0).astype(float)
    if kind == "davidson":
        win, tie, loss = np.exp(x / 2), np.exp(TIE[kind]) * np.ones_like(x), np.exp(-x / 2)
        total = win + tie + loss
        return np.where(u < win / total, 1.0, np.where(u < (win + tie) / total, 0.5, 0.0))
    if kind == "rao-kupper":
        win, loss = special.expit(x - TIE[kind]), special.expit(-x - TIE[kind])
        return np.where(u < win, 1.0, np.where(u > 1 - loss, 0.0, 0.5))
    if kind == "half":
        # A fifth of all votes are ties where both are equal; the expected score is logistic.
        p = special.expit(x)
        tie = 0.8 * p * (1 - p)
        return np.where(u < p - tie / 2, 1.0, np.where(u < p + tie / 2, 0.5, 0.0))
    return (u < special.expit(x)).astype(float)


def tournament(kind, number):
    """Players, the pair of every vote, and what says more about the votes."""
    # The control has the tournaments and votes of what it is a control of.
    rng = child(ROOT, f"tournament {kind} {number}")
    n = int(rng.integers(4, 13))
    spread = float(rng.choice([0.3, 0.8, 1.5]))
    m = int(n * rng.integers(15, 61))
    apart = kind == "thurstone" and number % 3 == 0
    popular = rng.dirichlet(2 * np.ones(n))
    parts = np.arange(n) % 2 if apart else np.zeros(n, dtype=int)
    i, j = np.triu_indices(n, 1)
    share = popular[i] * popular[j] * (parts[i] == parts[j])
    # Each pair of a part meets at least once in a while.
    share = share / share.sum() * 0.7 + (share > 0) / (share > 0).sum() * 0.3
    votes = rng.choice(len(i), m // 3 * 3 if kind == "clusters" else m, p=share)
    if kind == "clusters":
        votes = np.repeat(votes[::3], 3)
    turned = rng.random(len(votes)) < 0.5
    first, second = np.where(turned, j[votes], i[votes]), np.where(turned, i[votes], j[votes])
    return n, spread, first, second, apart


def fitted(kind, contests, covariance, spread):
    if kind == "thurstone":
        return fit_thurstone(contests, prior_covariance=spread**2, estimator="ep")
    return fit_bradley_terry(
        contests,
        ties=kind if kind in ("davidson", "rao-kupper") else "drop",
        features=("style",) if kind == "style" else (),
        covariance=covariance,
    )


def coverage(kind, number, covariance="auto"):
    """Row of one tournament."""
    n, spread, first, second, apart = tournament(kind, number)
    i, j = np.triu_indices(n, 1)
    held, ranks = [], []
    truth = spread * child(ROOT, f"truth {kind} {number}").normal(size=n)
    for data in range(DATA):
        rng = child(ROOT, f"votes {kind} {number} {data}")
        if kind == "thurstone":
            # Its intervals are right on average over ratings from the prior.
            truth = spread * rng.normal(size=n)
        x = truth[first] - truth[second]
        style = rng.normal(size=len(x))
        y = outcomes(kind, x + 0.7 * style if kind == "style" else x, rng)
        if kind == "clusters":
            copied = rng.random((len(x) // 3, 2)) < 0.8
            y = y.reshape(-1, 3)
            same = np.where(first.reshape(-1, 3) == first[::3, None], y[:, :1], 1 - y[:, :1])
            y[:, 1:] = np.where(copied, same[:, 1:], y[:, 1:])
            y = y.ravel()
        made = Contests.of(first, second, y, players=n)
        if kind == "clusters":
            made = replace(made, cluster=np.arange(len(y)) // 3)
        if kind == "style":
            made = replace(made, features=style[:, None], feature_names=("style",))
        fit = fitted(kind, made, covariance, spread).centred()
        rows, _ = ranked(fit, made, confidence_level=LEVEL, scale="model", rng=rng)
        place = {row.player: row for row in rows}
        at = np.argsort(np.argsort(-truth)) + 1
        ranks.append(
            all(
                place[name].rank_low <= rank <= place[name].rank_high
                for name, rank in zip(fit.players, at, strict=True)
            )
        )
        v = fit.covariance
        sd = np.sqrt(v[i, i] + v[j, j] - 2 * v[i, j])
        t = special.stdtrit(fit.diagnostics.get("degrees_of_freedom", 1e6), (1 + LEVEL) / 2)
        away = np.abs(fit.rating[i] - fit.rating[j] - truth[i] + truth[j])
        held.append((away <= t * sd).mean())
    return {
        "kind": kind if covariance == "auto" else f"{kind}, {covariance}", "players": n,
        "votes": len(first), "spread": spread, "unconnected": apart,
        "differences": float(np.mean(held)), "ranks": float(np.mean(ranks)),
    }  # fmt: skip


def tournaments():
    return [coverage(kind, number) for kind in KINDS for number in range(EACH)]


def control():
    return [coverage("clusters", number, "model") for number in range(EACH)]


def slopes():
    """Stated against true log odds of each model, as the sentence about its scale says."""
    rows = []
    n, votes = 20, 400_000
    i, j = np.triu_indices(n, 1)
    for kind in ("wins", "davidson", "rao-kupper", "half", "thurstone"):
        rng = child(ROOT, f"slope {kind}")
        truth = rng.normal(0, 0.8, n)
        pair = rng.integers(0, len(i), votes)
        y = outcomes(kind, truth[i[pair]] - truth[j[pair]], rng)
        cells = [np.bincount(pair, y == value, len(i)) for value in (1.0, 0.5, 0.0)]
        made = Contests.of(
            np.tile(i, 3), np.tile(j, 3), np.repeat([1.0, 0.5, 0.0], len(i)), players=n,
            weight=np.concatenate(cells),
        ).take(np.concatenate(cells) > 0)  # fmt: skip
        if kind == "thurstone":
            fit = fit_thurstone(made, estimator="ep")
        else:
            fit = fit_bradley_terry(made, ties="drop" if kind == "wins" else kind)
        stated, true = (r[i] - r[j] for r in (fit.rating, truth))
        if kind == "thurstone":
            stated, true = (special.log_ndtr(d) - special.log_ndtr(-d) for d in (stated, true))
        rows.append({"model": kind, "slope": float(stated @ true / (true @ true))})
    return rows


def test_intervals_of_differences_and_ranges_of_ranks_hold_the_truth():
    write_figures(
        "ranking_tournaments",
        {"tournaments": tournaments, "control": control, "slopes": slopes},
    )
    study = json.loads((FOLDER / "ranking_tournaments.json").read_text("utf-8"))
    every = np.array([row["differences"] for row in study["tournaments"]])

    assert abs(every.mean() - LEVEL) < 0.01
    assert np.quantile(every, 0.01) > 0.915
    assert np.mean([row["ranks"] for row in study["tournaments"]]) >= LEVEL
    assert np.mean([row["differences"] for row in study["control"]]) < 0.9
    assert all(0.97 <= row["slope"] <= 1.03 for row in study["slopes"])

"""Thurstone's posterior by integration: do the stated errors hold, and are equal records equal?

Writes fixtures/validation/ranking_thurstone.json. 200 problems with ratings from N(0, v), v of .25,
1 or 4: 190 of 3 or 4 players, 10 of 5 to 30; up to 12 answers a player, every third with ties, with
a position effect, or with both. Reference of up to four players (three with a position effect):
Gauss–Legendre sums over the gaps of every order, with the error of doubling the nodes. Beyond, and
for ties: importance sampling of the ratings, δ and the position effect with a wide normal and Sobol
points, whose error is 4 standard errors of the worst cell. A problem holds if no mean, covariance,
P(better) or P(rank) is farther away than stated, the reference's error added in quadrature.
Controls: a tenth of the stated error, and the problem with one answer more.
"""

import itertools
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from scipy import special
from scipy.stats import qmc
from study import FOLDER, Streams, write_figures

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.rank import rank
from evalstats_plugin.ranking.thurstone.design import prior_of, sites_of
from evalstats_plugin.ranking.thurstone.model import fit_thurstone

pytestmark = pytest.mark.validation
STREAMS = Streams("stated errors of Thurstone's posterior")
SMALL, LARGE = 190, 10
NODES, SCRAMBLES = 18, 8
"""Nodes on each gap, which are doubled for the error; scrambles of Sobol points."""


def drawn(rng, n, *, ties, position):
    """Contests of n players, and the variance of their ratings."""
    variance = float(rng.choice([0.25, 1.0, 4.0]))
    rating = rng.normal(0, variance**0.5, n)
    m = int(rng.integers(1, 12 * n))
    first = rng.integers(0, n, m)
    second = (first + rng.integers(1, n, m)) % n
    z = rating[first] - rating[second] + 0.3 * position + rng.normal(size=m)
    width = 0.4 * ties
    outcome = np.where(z > width, 1.0, np.where(z < -width, 0.0, 0.5))
    return Contests.of(first, second, outcome, players=n, ordered=position), variance


def more(contests):
    """One answer more: the first player beats the second."""
    return Contests.of(
        np.append(contests.first, 0), np.append(contests.second, 1),
        np.append(contests.outcome, 1.0), players=len(contests.players), ordered=contests.ordered,
    )  # fmt: skip


def tables(weight, x):
    """Mean, covariance, P(better) and P(rank) of weighted points of n ratings, shape (n, B)."""
    p = weight / weight.sum()
    mean = x @ p
    place = np.argsort(np.argsort(-x, axis=0), axis=0)
    ranks = np.stack([np.bincount(own, p, len(x)) for own in place])
    better = np.array([[p @ (a > b) for b in x] for a in x]) + 0.5 * np.eye(len(x))
    return mean, (x * p) @ x.T - np.outer(mean, mean), better, ranks


def over_ties(contests, variance, near, nodes):
    """The same, averaged over δ by many steps of the trapezoidal rule."""
    spread = near.parameter_std_errors["tie"] / near.parameters["tie"]
    logs = np.log(near.parameters["tie"]) + min(spread, 1) * np.linspace(-14, 7, nodes)
    found, log_weight = [], []
    for log_tie in logs:
        *tables, evidence = by_quadrature(contests, variance, near, nodes, tie=np.exp(log_tie))
        found.append(tables)
        log_weight.append(evidence + log_tie - np.exp(2 * log_tie) / 2)
    weight = np.exp(np.array(log_weight) - max(log_weight))
    weight /= weight.sum()
    mean, *rest = (np.tensordot(weight, np.stack(t), 1) for t in zip(*found, strict=True))
    away = np.stack([t[0] for t in found]) - mean
    rest[0] = rest[0] + (away.T * weight) @ away
    return mean, *rest


def by_quadrature(contests, variance, near, nodes, tie=0.0):
    """Gauss–Legendre sums over the gaps of every order of up to four players, given δ."""
    n = len(contests.players)
    sites = sites_of(contests, "threshold")
    rows = sites.design.toarray()
    node, share = np.polynomial.legendre.leggauss(nodes)
    parts = []
    place_axis = []
    if contests.ordered:
        sd = near.parameter_std_errors["position"]
        place_axis = [(near.parameters["position"] - 8 * sd, near.parameters["position"] + 8 * sd)]
    for order in itertools.permutations(range(n)):
        ends = []
        for a, b in itertools.pairwise(order):
            v = near.covariance
            gap = near.rating[a] - near.rating[b]
            sd = (v[a, a] + v[b, b] - 2 * v[a, b]) ** 0.5
            ends.append((max(gap - 8 * sd, 0), gap + 8 * sd))
        if any(low >= high for low, high in ends):
            continue
        axes = [(low + high) / 2 + (high - low) / 2 * node for low, high in ends + place_axis]
        weights = [(high - low) / 2 * share for low, high in ends + place_axis]
        grid = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")])
        weight = np.prod([g.ravel() for g in np.meshgrid(*weights, indexing="ij")], axis=0)
        x = np.zeros((n, grid.shape[1]))
        x[list(order[1:])] = -np.cumsum(grid[: n - 1], axis=0)
        # The level of independent ratings is integrated out: it is that of the prior.
        x -= x.mean(axis=0)
        full = np.concatenate([x, grid[n - 1 :]])
        log_p = -0.5 * (x**2).sum(axis=0) / variance - 0.5 * (grid[n - 1 :] ** 2).sum(axis=0)
        for row, wins, ties, losses in zip(rows, sites.wins, sites.ties, sites.losses, strict=True):
            d = row @ full
            log_p = log_p + wins * special.log_ndtr(d - tie) + losses * special.log_ndtr(-d - tie)
            if ties:
                far = abs(d)
                between = special.ndtr(tie - far) - special.ndtr(-tie - far)
                log_p = log_p + ties * np.log(np.maximum(between, 1e-300))
        parts.append((log_p + np.log(np.maximum(weight, 1e-300)), x))
    log_p = np.concatenate([part[0] for part in parts])
    p = np.exp(log_p - log_p.max())
    mean, covariance, *rest = tables(p, np.concatenate([part[1] for part in parts], axis=1))
    return mean, covariance + variance / n, *rest, log_p.max() + np.log(p.sum())


def by_sampling(contests, variance, near, size, rng):
    """Self-normalised importance sampling from a wide normal, by scrambles of Sobol points."""
    n, sites = len(contests.players), sites_of(contests, "threshold")
    rows = sites.design.toarray()
    mean, covariance = near.rating, near.covariance
    tied = bool(sites.ties.any())
    for name in ("position",) * contests.ordered + ("tie",) * tied:
        value, error = near.parameters[name], near.parameter_std_errors[name]
        if name == "tie":
            value, error = np.log(value), min(error / value, 1.0)
        mean = np.append(mean, value)
        covariance = np.pad(covariance, (0, 1))
        covariance[-1, -1] = error**2
    p = len(mean)
    wide = 1 + 2 / p**0.5
    root = np.linalg.cholesky(wide * covariance)
    prior_precision = np.linalg.inv(prior_of(0.0, variance, n, ordered=contests.ordered).covariance)
    found = []
    for _ in range(SCRAMBLES):
        z = special.ndtri(np.clip(qmc.Sobol(p, rng=rng).random(size), 1e-12, 1 - 1e-12)).T
        log_q = -0.5 * (z**2).sum(axis=0)
        if tied:
            # A logistic proposal of log δ: with one tie its tail is exponential.
            log_q += 0.5 * z[-1] ** 2
            u = special.ndtr(z[-1])
            z[-1] = np.log(u / (1 - u)) * 0.75 / wide**0.5
            log_q += np.log(u * (1 - u))
        x = mean[:, None] + root @ z
        known = x[: len(prior_precision)]
        difference = rows @ known
        log_p = -0.5 * (known * (prior_precision @ known)).sum(axis=0) - log_q
        if tied:
            tie = np.exp(x[-1])
            log_p += -0.5 * tie**2 + x[-1]
            log_p += sites.log_likelihood(difference.T, tie[:, None]).sum(axis=1)
        else:
            for at, wins, losses in zip(difference, sites.wins, sites.losses, strict=True):
                for count, d in ((wins, at), (losses, -at)):
                    if count:
                        log_p += count * np.log(np.maximum(special.ndtr(d), 1e-300))
        found.append(tables(np.exp(log_p - log_p.max()), x[:n]))
    whole = [np.stack(table) for table in zip(*found, strict=True)]
    error = [4 / SCRAMBLES**0.5 * float(t.std(axis=0, ddof=1).max()) for t in whole]
    return [t.mean(axis=0) for t in whole], error


def reference(contests, variance, near, rng):
    """Tables with the error of each, and how they were made."""
    n = len(contests.players)
    if n + contests.ordered + contests.tied.any() <= 4:
        sums = over_ties if contests.tied.any() else by_quadrature
        few, many = (sums(contests, variance, near, k)[:4] for k in (NODES, 2 * NODES))
        return many, [float(np.abs(a - b).max()) for a, b in zip(few, many, strict=True)], "sums"
    tables, error = by_sampling(contests, variance, near, 1 << (14 if n < 10 else 13), rng)
    return tables, error, "importance sampling"


def shares(fit, tables, error, scale=1.0):
    """Distances of moments and of probabilities, in units of the stated error."""
    found = (fit.rating, fit.covariance, fit.ahead, fit.ranks)
    away = [float(np.abs(a - b).max()) for a, b in zip(found, tables, strict=True)]
    stated = fit.diagnostics["moments_error"], fit.diagnostics["probabilities_error"]
    return max(
        max(away[k : k + 2]) / np.hypot(scale * stated[k // 2], max(error[k : k + 2]))
        for k in (0, 2)
    )


def problem(number):
    """Row of one problem."""
    rng = STREAMS("problem", number)
    small = number < SMALL
    n = 3 + (number % 8 == 7) if small else int(rng.integers(5, 31))
    kind = number % 9 if number % 3 == 0 else 1
    contests, variance = drawn(rng, n, ties=kind in (0, 6), position=kind in (3, 6))
    started = process_time()
    fit = fit_thurstone(contests, prior_covariance=variance, estimator="exact")
    seconds = process_time() - started
    tables, error, by = reference(contests, variance, fit, rng)
    about = fit.diagnostics
    row = {
        "players": n, "answers": len(contests), "variance": variance,
        "ties": bool(contests.tied.any()), "position": contests.ordered, "reference": by,
        "stated": max(about["moments_error"], about["probabilities_error"]),
        "reference_error": max(error), "away": shares(fit, tables, error),
        "away_of_a_tenth": shares(fit, tables, error, 0.1), "exact": about["exact"],
        "seconds": seconds,
    }  # fmt: skip
    if number % 10 == 0:
        other = fit_thurstone(more(contests), prior_covariance=variance, estimator="exact")
        row["away_of_one_answer_more"] = shares(other, tables, error)
    return row


def same_by_seeds(number):
    """Whether all rows of a ranking are the same with seeds 0 to 9."""
    rng = STREAMS("seeds", number)
    contests, _ = drawn(rng, 2 + number % 3, ties=number % 7 == 6, position=number % 5 == 4)
    found = [rank(contests, model="thurstone", rng=seed).rows for seed in range(10)]
    return {"players": 2 + number % 3, "same": all(one == found[0] for one in found)}


def same_by_twins(number):
    """Whether two players with the same answers against the same others have equal numbers."""
    rng = STREAMS("twins", number)
    n = 3 + number % 3
    contests, _ = drawn(rng, n, ties=number % 7 == 6, position=number % 5 == 4)
    turned = [np.where(side == 0, n, side) for side in (contests.first, contests.second)]
    again = (contests.first == 0) | (contests.second == 0)
    both = Contests.of(
        np.append(contests.first, turned[0][again]),
        np.append(contests.second, turned[1][again]),
        np.append(contests.outcome, contests.outcome[again]),
        players=n + 1, ordered=contests.ordered,
    )  # fmt: skip
    by_name = {row.player: row for row in rank(both, model="thurstone", rng=0)}
    one, other = (replace(by_name[both.players[k]], player="", letters="") for k in (0, n))
    return {"players": n + 1, "same": one == other}


def test_stated_errors_hold_and_equal_records_are_equal():
    with ProcessPoolExecutor(2) as pool:
        # The largest first, so that no process waits for one of them at the end.
        largest_first = pool.map(problem, reversed(range(SMALL + LARGE)))
        seeds, twins = (list(pool.map(f, range(20))) for f in (same_by_seeds, same_by_twins))
        problems = list(largest_first)[::-1]
    sections = {"problems": problems, "seeds": seeds, "twins": twins}
    write_figures(
        "ranking_thurstone",
        {name: lambda rows=rows: rows for name, rows in sections.items()},
        digits=7,
    )
    study = json.loads((FOLDER / "ranking_thurstone.json").read_text("utf-8"))

    assert np.mean([row["away"] <= 1 for row in study["problems"]]) >= 0.99
    assert all(row["same"] for row in study["seeds"] + study["twins"])

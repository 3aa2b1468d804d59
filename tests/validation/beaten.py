"""Methods that another beats on every measured count: studied, and not offered."""

import numpy as np
from scipy import special

from evalstats_plugin.ranking.contests.outcomes import entropy, prob_win
from evalstats_plugin.ranking.next import order_information
from evalstats_plugin.ranking.ratings.fit import rank_distribution
from evalstats_plugin.stats import bounded, clustered
from evalstats_plugin.stats.interval import Interval, normal_quantile, tail_probability
from evalstats_plugin.stats.means import moments
from evalstats_plugin.stats.metric_intervals import auc_newcombe


def agresti_min(counts, *, confidence_level):
    """Of a paired difference, by Wald after adding half an item to each cell [AM05]."""
    n = counts.n + 2
    difference = (counts.only_b - counts.only_a) / n
    spread = (counts.only_a + counts.only_b + 1) / n - difference**2
    half = normal_quantile(confidence_level) * np.sqrt(spread / n)
    return Interval(np.maximum(difference - half, -1.0), np.minimum(difference + half, 1.0))


def unpaired_wald(counts, *, confidence_level):
    """Of a difference on items of their own: ± z standard errors."""
    a, b = counts.right_a / counts.n_a, counts.right_b / counts.n_b
    spread = np.sqrt(a * (1 - a) / counts.n_a + b * (1 - b) / counts.n_b)
    half = normal_quantile(confidence_level) * spread
    return Interval(b - a - half, b - a + half)


def katz(counts, *, confidence_level):
    """Of a ratio, ± z standard errors on the log scale [KBA78]; NaN for 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (1 / k - 1 / n for k, n in ((counts.right_a, counts.n_a), counts[2:]))
        half = normal_quantile(confidence_level) * np.sqrt(a + b)
        log_ratio = counts.log_ratio
        return Interval(np.exp(log_ratio - half), np.exp(log_ratio + half))


def mover_dp(scores, a, b, *, bounds, mass, confidence_level):
    """Of a difference of bounded means: two Dirichlet-process intervals, squared and added."""
    of_each = bounded.dirichlet_process(
        scores, bounds=bounds, mass=mass, confidence_level=confidence_level
    )
    mean = moments(scores).mean
    below, above = mean - of_each.low, of_each.high - mean
    difference = mean[b] - mean[a]
    return Interval(
        difference - np.hypot(below[b], above[a]), difference + np.hypot(above[b], below[a])
    )


def cluster_bootstrap(totals, sizes, *, confidence_level, rng, n_resamples):
    """Percentiles of resamples of whole clusters, of cells with equally many; NaN if all agree."""
    tail = tail_probability(confidence_level)
    n_clusters = totals.shape[1]
    times = rng.multinomial(n_clusters, np.full(n_clusters, 1 / n_clusters), n_resamples)
    means = (times @ totals.T) / (times @ sizes.T)
    varies = clustered.cluster_moments(totals, sizes).cr1 > 0
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return Interval(np.where(varies, low, np.nan), np.where(varies, high, np.nan))


def delong(positive, scores, *, confidence_level):
    """Of an area under the curve: DeLong's variance on the logit scale [DDC88]."""
    wins = (np.sign(scores[positive][:, None] - scores[~positive]) + 1) / 2
    area = wins.mean()
    if min(wins.shape) < 2 or not 0 < area < 1:
        return auc_newcombe(positive, scores, confidence_level=confidence_level)
    variance = sum(wins.mean(axis=k).var(ddof=1) / wins.shape[1 - k] for k in (0, 1))
    half = normal_quantile(confidence_level) * np.sqrt(variance) / (area * (1 - area))
    return Interval(*special.expit(special.logit(area) + np.array([-half, half])))


def bayesian_bootstrap(positive, scores, *, confidence_level, rng, n_resamples):
    """Of an area under the curve: quantiles under exponential item weights [Rub81]."""
    tail = tail_probability(confidence_level)
    # Weights go to the items in the order of their scores.
    order = np.argsort(scores, kind="stable")
    positive, scores = positive[order], scores[order]
    wins = (np.sign(scores[positive][:, None] - scores[~positive]) + 1) / 2
    if not 0 < wins.mean() < 1:
        return Interval(np.nan, np.nan)
    weights = rng.standard_exponential((n_resamples, len(scores)))
    of_pos, of_neg = weights[:, positive], weights[:, ~positive]
    areas = np.einsum("bp,pn,bn->b", of_pos, wins, of_neg)
    areas = areas / of_pos.sum(axis=1) / of_neg.sum(axis=1)
    return Interval(*np.quantile(areas, [tail, 1 - tail]))


def information_gain(mean, variance, link):
    """Of a comparison: expected information about the ratings in bits [Lin56]."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    d = mean[..., None] + np.sqrt(variance)[..., None] * nodes
    p = special.ndtr(d) if link == "probit" else special.expit(d)
    noise = entropy(p) @ (weights / weights.sum())
    return np.maximum(entropy(prob_win(mean, variance, link)) - noise, 0)


RULES = {
    "gain": information_gain,
    "closest": lambda mean, variance, _: -np.abs(mean) / np.sqrt(variance),
    "entropy": lambda mean, variance, link: entropy(prob_win(mean, variance, link)),
}
"""Scores of pairs to compare next, by rule; `order` of the package ranks all sooner or as soon."""


def rank_intervals(ranks, confidence_level):
    """Best and worst rank of each player by itself: equal tails of the posterior."""
    return _central_ranks(rank_distribution(ranks), (1 - confidence_level) / 2)


def joint_rank_intervals(ranks, confidence_level):
    """Ranks of all players at once: those of the deepest draws; see rank sets for equal players."""
    distribution = rank_distribution(ranks)
    depth = _depth(distribution)
    per_draw = depth[np.arange(ranks.shape[1]), ranks - 1].min(axis=1)
    least = np.sort(per_draw)[int(np.floor((1 - confidence_level) * len(per_draw)))]
    return _central_ranks(distribution, float(least))


def _central_ranks(distribution, depth):
    held = _depth(distribution) >= depth - 1e-12
    return 1 + held.argmax(axis=1), len(held) - held[:, ::-1].argmax(axis=1)


def _depth(distribution):
    up = np.cumsum(distribution, axis=1)
    down = np.cumsum(distribution[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(up, down)


def best_information(pairs, draws, link):
    """Order information of each pair, by both players' probabilities to be the best."""
    winner = draws.argmax(axis=-1)[..., None]
    best = (winner == np.arange(draws.shape[-1])).mean(axis=-2)
    both = best[..., pairs.first] * best[..., pairs.second]
    # If one player is the best in all draws, it still meets the most informative opponent.
    return order_information(pairs.mean, pairs.variance, link) * (both + 1e-6)


def fullrank_scores(counts):
    """Fullrank's rule, by counts alone: highest for players rarely compared; shape (..., P).

    It minimises (eᵢ - eⱼ)' ΔΔ' (eᵢ - eⱼ) for Δ = ΣD', with D the pairs compared. For a prior
    Σ = v I this is v² (dᵢ + dⱼ + 2 nᵢⱼ), with d the numbers of comparisons of each player.
    """
    i, j = np.triu_indices(counts.shape[-1], 1)
    degree = counts.sum(axis=-1)
    return -(degree[..., i] + degree[..., j] + 2 * counts[..., i, j])

"""How the pairs of models that an analysis wants are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin import methods
from evalstats_plugin.analyses.clusters import FAMILIES
from evalstats_plugin.analyses.comparison_methods import (
    CLUSTERED_COMPARISON_DEFAULTS,
    COMPARISON_DEFAULTS,
)
from evalstats_plugin.analyses.pairing import Pairing
from evalstats_plugin.analyses.request import Request
from evalstats_plugin.methods import Method

N_FLIPS = 9999
"""Random assignments of signs: with what was seen, 10,000."""

BLOCK_SIZE = 2**22
"""Differences held at a time."""

JEFFREYS = (0.5, 1.0)
"""Prior of P(better) on 0/1 scores: ½ on each of the four cells, two of them together."""

FloatArray = NDArray[np.float64]


@dataclass(slots=True)
class Found:
    """What was computed of the pairs of one pairing, each of shape (P,)."""

    method: str
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    prob_higher: FloatArray
    difference: FloatArray


class PairSolver:
    """Runs each method; 0/1 scores of all tasks at once, because few tables are distinct."""

    def __init__(self, request: Request) -> None:
        self.table = request.table
        self.method = request.method
        self.confidence_level = request.confidence_level
        self.rng = request.rng

    def solve(self, pairs: Sequence[Pairing]) -> list[Found]:
        """Return what was found of each."""
        found: list[Found | None] = [None] * len(pairs)
        by_counts: list[int] = []
        for i, pairing in enumerate(pairs):
            method = self._choose(pairing)
            if method.family == "paired":
                by_counts.append(i)
            else:
                found[i] = self._by_differences(method, pairing)
        if by_counts:
            solved = self._by_counts([pairs[i] for i in by_counts])
            for i, one in zip(by_counts, solved, strict=True):
                found[i] = one
        return [one for one in found if one is not None]

    def _choose(self, pairing: Pairing) -> Method:
        if pairing.clusters is not None:
            return methods.choose(
                pairing.kind, self.method, self.table, CLUSTERED_COMPARISON_DEFAULTS
            )
        clustered = self.method != "auto" and self.table[self.method].family in FAMILIES
        name = "auto" if clustered else self.method
        return methods.choose(pairing.kind, name, self.table, COMPARISON_DEFAULTS)

    def _by_counts(self, pairs: Sequence[Pairing]) -> list[Found]:
        from evalstats_plugin.stats import paired_binary

        method = self._choose(pairs[0])
        counts = paired_binary.paired_counts(
            *np.concatenate([_tables(pairing) for pairing in pairs], axis=1)
        )
        interval = method.load()(counts, confidence_level=self.confidence_level)
        prior = method.options.get("prior", JEFFREYS)
        columns = np.stack(
            [
                interval.low,
                interval.high,
                paired_binary.mcnemar_mid_p(counts),
                paired_binary.prob_better(counts, prior=prior),
                counts.difference,
            ]
        )
        ends = np.cumsum([len(pairing.a) for pairing in pairs])
        return [Found(method.name, *part) for part in np.split(columns, ends[:-1], axis=1)]

    def _by_differences(self, method: Method, pairing: Pairing) -> Found:
        step = max(BLOCK_SIZE // max(pairing.scores.shape[1], 1), 1)
        parts = [
            self._block(method, pairing, pairing.differences(start, start + step))
            for start in range(0, len(pairing.a), step)
        ]
        return Found(method.name, *np.concatenate(parts, axis=1))

    def _block(self, method: Method, pairing: Pairing, differences: FloatArray) -> FloatArray:
        """Return what was found of some of the pairs, in the order of the fields of `Found`."""
        from evalstats_plugin.stats import clustered, mean, paired_scores

        function = partial(method.load(), confidence_level=self.confidence_level)
        low, high = pairing.bounds or (-np.inf, np.inf)
        span = (low - high, high - low)
        moments = mean.moments(differences)
        # What has one sign: an item, or a cluster of items.
        units = differences
        if method.family in FAMILIES:
            totals, sizes = pairing.cluster_sums(differences)
            units = np.where(sizes > 0, totals, np.nan)
            more = {"bounds": span} if method.family == "clustered-bounded" else {}
            interval = function(totals, sizes, **more)
            prob = clustered.t_prob(totals, sizes)
        elif method.family == "bounded":
            mass = method.options.get("mass", 0.5)
            interval = function(differences, bounds=span)
            prob = paired_scores.dirichlet_process_prob(differences, bounds=span, mass=mass)
        else:
            interval = function(differences)
            prob = paired_scores.t_prob(differences)
        p_value = paired_scores.sign_flip(units, rng=self.rng, n_flips=N_FLIPS)
        # Differences that are all equal have no spread to make an interval of.
        flat = (moments.std == 0) & (method.family == "real")
        low, high = (np.where(flat, np.nan, limit) for limit in interval)
        return np.stack([low, high, p_value, prob, moments.mean])


def _tables(pairing: Pairing) -> FloatArray:
    """Counts of who gets an item right, shape (4, P): both, only a, only b, neither."""
    a, b = pairing.a, pairing.b
    seen = (~np.isnan(pairing.scores)).astype(np.float64)
    right = np.where(seen > 0, pairing.scores, 0.0)
    both = (right @ right.T)[a, b]
    # Of the items that have a score of both.
    of_both = right @ seen.T
    only_a, only_b = of_both[a, b] - both, of_both[b, a] - both
    return np.stack([both, only_a, only_b, (seen @ seen.T)[a, b] - both - only_a - only_b])

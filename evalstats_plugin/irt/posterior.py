"""Posteriors of abilities on a grid: the E-step, as matrix products in log space."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.ability_windows import Windows
from evalstats_plugin.irt.coarse_grid import Coarse, coarse
from evalstats_plugin.irt.curves import Items, log_odds_and_wrong
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.stored_cells import StoredCells

_BLOCK = 2**22
"""Items are taken in blocks whose (items, nodes) arrays have at most so many numbers."""


class Nodes(NamedTuple):
    """Points of the integral over abilities, both of shape (Q,)."""

    at: Tensor
    log_weight: Tensor


class Answers(NamedTuple):
    """Counts, with each pattern of missing cells kept once.

    Models that were tried on the same items share what does not depend on their answers. Where
    nothing is missing, no product of a model-by-item matrix with the grid is left at all.
    """

    right: Tensor
    """Shape (N, M); a `StoredCells` where answers are on disk."""
    trials: Tensor
    """Shape (U, M), all rows different; or (N, M)."""
    pattern: Tensor | None
    """Shape (N,): the row of `trials` of each model; None for its own."""
    windows: Windows | None = None
    """Nodes that the rows of `trials` need; None for all of them."""

    @property
    def separate(self) -> bool:
        """Whether each model has trials of its own, in memory."""
        return self.pattern is None and not isinstance(self.trials, StoredCells)

    def to(self, dtype: torch.dtype) -> Answers:
        """The same as numbers of another kind."""
        return self._replace(right=self.right.to(dtype), trials=self.trials.to(dtype))

    def narrowed(self, by: Windows) -> Answers:
        """With rows of trials in the order of the windows; each model must have its own row."""
        return self._replace(trials=self.trials[by.order], pattern=by.rank, windows=by)

    def near(self, items: Items, at: Tensor) -> Coarse:
        """Points at which to sum over items, for nodes `at` (Q,)."""
        return coarse(items, at) if self.windows is None else Coarse(at, None)

    def times(self, part: slice, columns: Tensor) -> Tensor:
        """Products of the trials on some items with their `columns` (m, K), shape (U, K)."""
        cells = self.trials[:, part]
        if self.windows is None:
            return product(cells, columns)
        found = columns.new_zeros(len(cells), columns.shape[1])
        for rows, nodes in self.windows.parts:
            found[rows, nodes] = product(cells[rows], columns[:, nodes])
        return found

    def tried(self, part: slice, by_pattern: Tensor) -> Tensor:
        """Expected trials of some items, given weights (U, K), shape (m, K)."""
        cells = self.trials[:, part]
        # (K, U) @ (U, m) is faster than its transpose.
        if self.windows is None:
            return (by_pattern.T @ cells).T
        found = by_pattern.new_zeros(by_pattern.shape[1], cells.shape[1])
        for rows, nodes in self.windows.parts:
            found[nodes].addmm_(by_pattern[rows, nodes].T, cells[rows])
        return found.T

    def of_models(self, by_pattern: Tensor) -> Tensor:
        """From one row per pattern to one per model."""
        return by_pattern if self.pattern is None else by_pattern[self.pattern]

    def of_patterns(self, by_model: Tensor) -> Tensor:
        """Sum the models' rows, (N, ·), over those of each pattern."""
        if self.pattern is None:
            return by_model
        empty = by_model.new_zeros(len(self.trials), by_model.shape[1])
        return empty.index_add_(0, self.pattern, by_model)


class Posterior(NamedTuple):
    """Of each model's ability."""

    weights: Tensor
    """Shape (N, Q), rows sum to one."""
    log_likelihood: Tensor
    """Shape (N,), abilities integrated out."""


def arrange(counts: Counts) -> Answers:
    """Find the models that were tried on the same items."""
    trials: Tensor | StoredCells = counts.trials
    if isinstance(trials, StoredCells):
        one = trials.common_row()
        if one is None:
            return Answers(counts.right, trials, None)
        return Answers(counts.right, one, one.new_zeros(len(trials), dtype=torch.long))
    # Whole numbers below 2^20 make exact sums: equal rows have equal sums.
    key = (torch.arange(1, trials.shape[1] + 1, device=trials.device) * 48271**2) % 1048573
    sums = trials.double() @ key.double()
    unique, pattern = torch.unique(sums, return_inverse=True)
    if 2 * len(unique) > len(trials):
        return Answers(counts.right, trials, None)
    places = torch.arange(len(trials), device=trials.device)
    first = places.new_full((len(unique),), len(trials)).scatter_reduce_(0, pattern, places, "amin")
    distinct = trials[first]
    if not torch.equal(distinct[pattern], trials):
        return Answers(counts.right, trials, None)
    return Answers(counts.right, distinct, pattern)


def blocks(n_items: int, n_nodes: int) -> Iterator[slice]:
    """Slices of items whose arrays by nodes fit comfortably in memory."""
    width = max(1, _BLOCK // n_nodes)
    return (slice(start, min(start + width, n_items)) for start in range(0, n_items, width))


def product(cells: Tensor, columns: Tensor) -> Tensor:
    """``cells @ columns``, (N, M) by (M, k), in the order in which MKL is up to 4 times faster."""
    if isinstance(cells, StoredCells):
        return cells @ columns
    return (columns.T @ cells.T).T


def log_likelihood(answers: Answers, items: Items, at: Tensor) -> Tensor:
    """Log-likelihood of each model at each ability `at` (Q,), shape (N, Q)."""
    if answers.windows is None:
        by_pattern = at.new_zeros(len(answers.trials), len(at))
    else:
        by_pattern = answers.windows.outside(at)
    by_model = at.new_zeros(len(answers.right), len(at))
    if items.logistic:
        # The log-odds are linear in θ: two columns in place of Q.
        sums = product(answers.right, torch.stack([items.slope, items.intercept], dim=1))
        torch.addcmul(sums[:, 1:], sums[:, :1], at, out=by_model)
    for part in blocks(answers.right.shape[1], len(at)):
        few = answers.near(items.part(part), at)
        odds, wrong = log_odds_and_wrong(items.part(part), few.at)
        by_pattern += few.spread(answers.times(part, wrong))
        if not items.logistic:
            by_model += few.spread(product(answers.right[:, part], odds))
    return by_model.add_(answers.of_models(by_pattern))


def posterior(answers: Answers, items: Items, nodes: Nodes) -> Posterior:
    """Bayes' rule on the grid, in log space: thousands of items do not underflow."""
    if answers.windows is not None and items.logistic:
        return _in_windows(answers, answers.windows, items, nodes)
    joint = log_likelihood(answers, items, nodes.at).add_(nodes.log_weight)
    total = torch.logsumexp(joint, dim=1)
    return Posterior(joint.sub_(total[:, None]).exp_(), total)


def _in_windows(answers: Answers, by: Windows, items: Items, nodes: Nodes) -> Posterior:
    """The same where models' posteriors are, and 0 elsewhere."""
    sums = product(answers.right, torch.stack([items.slope, items.intercept], dim=1))[by.order]
    wrong = log_odds_and_wrong(items, nodes.at)[1]
    log_weight = nodes.log_weight
    log_weight = log_weight[by.order] if log_weight.dim() == 2 else log_weight.expand(len(sums), -1)
    weights = sums.new_zeros(len(sums), len(nodes.at))
    totals: list[Tensor] = []
    for rows, at in by.parts:
        joint = product(answers.trials[rows], wrong[:, at]).add_(log_weight[rows, at])
        joint.addcmul_(sums[rows, :1], nodes.at[at]).add_(sums[rows, 1:])
        totals.append(torch.logsumexp(joint, dim=1))
        torch.exp(joint.sub_(totals[-1][:, None]), out=weights[rows, at])
    return Posterior(weights[by.rank], torch.cat(totals)[by.rank])


def moments(weights: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior means and variances, both of shape (N,)."""
    mean = weights @ at
    # Deviations from a value close by lose no digits, squares of θ would.
    return mean, ((at - mean[:, None]).square_() * weights).sum(dim=1)

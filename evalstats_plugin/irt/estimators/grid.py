"""Posteriors of abilities on a grid of nodes: the E-step, as matrix products in log space.

* `Answers`, `arrange`: counts, with models that were tried on the same items grouped
* `posterior`, `log_likelihood`, `posterior_widths`: what the answers say about each model
* `Nodes`, `fitting_nodes`: nodes chosen from the data; `coarse`: curves on few Chebyshev points,
  interpolated to many nodes; `windows`: the few nodes that carry each model's posterior mass
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.model.arrays import on_host
from evalstats_plugin.irt.model.curves import Items, ability_information, log_odds_and_wrong
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.stored import StoredCells
from evalstats_plugin.runtime.torch import unique

SPACING = 1.5
"""Distance of nodes in units of the smallest posterior standard deviation.

The relative error of the trapezoidal rule on a normal density is 2 exp(-2π²/spacing²): 3e-4 at
1.5, 1.4 % at 2, and 21 % at 3.
"""

LOOSEST = 2.0
"""Distance in the same units above which nodes are placed anew, or a fit has a note."""

FEWEST, MOST = 61, 2001
"""Numbers of nodes."""

REACH, SLACK = 7.5, 0.1
"""Windows reach REACH posterior standard deviations beyond their outermost models, and SLACK times
the ability further, because abilities may still be rescaled."""

FAINT = 1e-8
"""Posterior weight at an end of a window above which the window is too narrow."""

# Largest array of items × nodes.
_BLOCK = 2**22

# Error of interpolated log-probabilities of the steepest item.
_ACCURACY = 1e-10

# Points of the interpolation: this many, and this share of those that polynomials would need.
_LEAST, _SHARE = 8, 0.71

# Least models of a window, and most windows.
_MODELS, _MOST = 100, 32


class Answers(NamedTuple):
    """Counts, with each pattern of missing cells stored once.

    Models that were tried on the same items share what does not depend on their answers. Where
    nothing is missing, no product of a model-by-item matrix with the grid is needed.
    """

    right: Tensor
    """Shape (N, M); a `StoredCells` where answers are on disk."""
    trials: Tensor
    """Shape (U, M), all rows different; or (N, M)."""
    pattern: Tensor | None
    """Row of `trials` of each model, shape (N,); None where each model has its own."""
    windows: Windows | None = None
    """Nodes that the rows of `trials` need; None for all nodes."""

    @property
    def separate(self) -> bool:
        """Whether each model has trials of its own, in memory."""
        return self.pattern is None and not isinstance(self.trials, StoredCells)

    def to(self, dtype: torch.dtype) -> Answers:
        """Convert to another floating-point type."""
        return self._replace(right=self.right.to(dtype), trials=self.trials.to(dtype))

    def narrowed(self, by: Windows) -> Answers:
        """Restrict to windows; each model must have its own row of trials."""
        return self._replace(trials=self.trials[by.order], pattern=by.rank, windows=by)

    def near(self, items: Items, at: Tensor) -> Coarse:
        """Points at which to sum over items, for nodes `at` (Q,)."""
        return coarse(items, at) if self.windows is None else Coarse(at, None)

    def times(self, part: slice, columns: Tensor) -> Tensor:
        """Product of the trials on m items with `columns` (m, K), shape (U, K)."""
        cells = self.trials[:, part]
        if self.windows is None:
            return product(cells, columns)
        total = columns.new_zeros(len(cells), columns.shape[1])
        for rows, nodes in self.windows.parts:
            total[rows, nodes] = product(cells[rows], columns[:, nodes])
        return total

    def tried(self, part: slice, by_pattern: Tensor) -> Tensor:
        """Expected trials of m items, given weights (U, K), shape (m, K)."""
        cells = self.trials[:, part]
        # (K, U) @ (U, m) is faster than its transpose.
        if self.windows is None:
            return (by_pattern.T @ cells).T
        expected = by_pattern.new_zeros(by_pattern.shape[1], cells.shape[1])
        for rows, nodes in self.windows.parts:
            expected[nodes].addmm_(by_pattern[rows, nodes].T, cells[rows])
        return expected.T

    def of_models(self, by_pattern: Tensor) -> Tensor:
        """Expand rows of patterns to rows of models."""
        return by_pattern if self.pattern is None else by_pattern[self.pattern]

    def of_patterns(self, by_model: Tensor) -> Tensor:
        """Sum the models' rows, (N, ·), over those of each pattern."""
        if self.pattern is None:
            return by_model
        empty = by_model.new_zeros(len(self.trials), by_model.shape[1])
        return empty.index_add_(0, self.pattern, by_model)


def arrange(counts: Counts) -> Answers:
    """Group the models that were tried on the same items."""
    trials: Tensor | StoredCells = counts.trials
    if isinstance(trials, StoredCells):
        common_trials = trials.common_row()
        if common_trials is None:
            return Answers(counts.right, counts.trials, None)
        first = common_trials.new_zeros(len(trials), dtype=torch.long)
        return Answers(counts.right, common_trials, first)
    # Whole numbers below 2^20 make exact sums: equal rows have equal sums.
    key = (torch.arange(1, trials.shape[1] + 1, device=trials.device) * 48271**2) % 1048573
    sums = trials.double() @ key.double()
    kinds, pattern = unique(sums)
    if 2 * len(kinds) > len(trials):
        return Answers(counts.right, counts.trials, None)
    places = torch.arange(len(trials), device=trials.device)
    first = places.new_full((len(kinds),), len(trials)).scatter_reduce_(0, pattern, places, "amin")
    distinct = trials[first]
    if not torch.equal(distinct[pattern], trials):
        return Answers(counts.right, counts.trials, None)
    return Answers(counts.right, distinct, pattern)


def log_likelihood(answers: Answers, items: Items, at: Tensor) -> Tensor:
    """Log-likelihood of each model at each ability `at` (Q,), shape (N, Q)."""
    by_pattern = at.new_zeros(len(answers.trials), len(at))
    if answers.windows is not None:
        by_pattern.fill_(-torch.inf)
        for rows, nodes in answers.windows.parts:
            by_pattern[rows, nodes] = 0.0
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


class Posterior(NamedTuple):
    """Posterior of each model's ability."""

    weights: Tensor
    """Shape (N, Q), rows sum to one."""
    log_likelihood: Tensor
    """Marginal, shape (N,)."""


def posterior(answers: Answers, items: Items, nodes: Nodes) -> Posterior:
    """Bayes' rule on the grid, in log space: thousands of items do not underflow."""
    by = answers.windows
    if by is None or not items.logistic:
        joint = log_likelihood(answers, items, nodes.at).add_(nodes.log_weight)
        total = torch.logsumexp(joint, dim=1)
        return Posterior(joint.sub_(total[:, None]).exp_(), total)
    # Within the windows, and 0 elsewhere.
    sums = product(answers.right, torch.stack([items.slope, items.intercept], dim=1))[by.order]
    wrong = log_odds_and_wrong(items, nodes.at)[1]
    weights = sums.new_zeros(len(sums), len(nodes.at))
    totals: list[Tensor] = []
    for rows, at in by.parts:
        joint = product(answers.trials[rows], wrong[:, at]).add_(nodes.log_weight[at])
        joint.addcmul_(sums[rows, :1], nodes.at[at]).add_(sums[rows, 1:])
        totals.append(torch.logsumexp(joint, dim=1))
        torch.exp(joint.sub_(totals[-1][:, None]), out=weights[rows, at])
    return Posterior(weights[by.rank], torch.cat(totals)[by.rank])


def moments(weights: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior means and variances, both of shape (N,)."""
    mean = weights @ at
    # Deviations from a value close by lose no digits, squares of θ would.
    return mean, ((at - mean[:, None]).square_() * weights).sum(dim=1)


class Widths(NamedTuple):
    """Posteriors with their means and standard deviations."""

    posterior: Posterior
    mean: Tensor
    """Shape (N,)."""
    sd: Tensor
    """Shape (N,), from the information, because nodes may be too far apart to show it."""


def posterior_widths(answers: Answers, items: Items, nodes: Nodes) -> Widths:
    """Posteriors, with standard deviations from the information.

    On a coarse grid the standard deviation over the nodes would depend on the grid.
    """
    posteriors = posterior(answers, items, nodes)
    if answers.windows is not None:
        # Windows are used only with nodes that are close enough.
        mean, variance = moments(posteriors.weights, nodes.at)
        return Widths(posteriors, mean, variance.sqrt())
    information = nodes.at.new_zeros(len(answers.trials), len(nodes.at))
    for part in blocks(answers.right.shape[1], len(nodes.at)):
        few = answers.near(items.part(part), nodes.at)
        by_item = ability_information(items.part(part), few.at)
        information += few.spread(answers.times(part, by_item))
    precision = 1 + (posteriors.weights * answers.of_models(information)).sum(dim=1)
    return Widths(posteriors, moments(posteriors.weights, nodes.at)[0], precision.rsqrt())


def product(cells: Tensor, columns: Tensor) -> Tensor:
    """``cells @ columns``, (N, M) by (M, k), in the order in which MKL is up to 4 times faster."""
    if isinstance(cells, StoredCells):
        return cells @ columns
    return (columns.T @ cells.T).T


def blocks(n_items: int, n_nodes: int) -> Iterator[slice]:
    """Slices of items whose arrays by nodes fit comfortably in memory."""
    width = max(1, _BLOCK // n_nodes)
    return (slice(start, min(start + width, n_items)) for start in range(0, n_items, width))


class Nodes(NamedTuple):
    """Nodes of the integral over abilities, and their log weights, both of shape (Q,)."""

    at: Tensor
    log_weight: Tensor


def even_nodes(low: float, high: float, count: int, like: Tensor) -> Nodes:
    """Trapezoidal rule for a standard normal ability.

    >>> nodes = even_nodes(-6, 6, 61, torch.zeros(1, dtype=torch.float64))
    >>> round(float(nodes.log_weight.exp().sum()), 8)
    1.0
    """
    at = torch.linspace(low, high, count, dtype=like.dtype, device=like.device)
    width = (high - low) / (count - 1)
    return Nodes(at, -0.5 * at * at + math.log(width / math.sqrt(2 * math.pi)))


def fitting_nodes(nodes: Nodes, mean: Tensor, sd: Tensor) -> Nodes | None:
    """Nodes for posteriors of these moments, (N,) each; None where the present nodes suit.

    The grid is centred at 0 and reaches at least 6 posterior standard deviations beyond the
    outermost models.
    """
    reach = min(float((mean.abs() + 6 * sd).max()), 12.0)
    narrowest = float(sd.min())
    distance = float(nodes.at[1] - nodes.at[0])
    fine = distance <= LOOSEST * narrowest or len(nodes.at) >= MOST
    if fine and float(nodes.at[-1]) >= reach - 2 * narrowest:
        return None
    reach += 2 * narrowest
    count = math.ceil(2 * reach / (SPACING * narrowest)) + 1
    # Odd, so that there is a node at 0.
    return even_nodes(-reach, reach, min(max(count, FEWEST), MOST) | 1, nodes.at)


class Coarse(NamedTuple):
    """Interpolation points, and the matrix that maps values at the points to the nodes."""

    at: Tensor
    """Shape (K,)."""
    to_nodes: Tensor | None
    """Shape (Q, K); None where the points are the nodes."""

    def spread(self, values: Tensor) -> Tensor:
        """Interpolate values at the points, (·, K), to the nodes, (·, Q)."""
        return values if self.to_nodes is None else values @ self.to_nodes.T

    def gather(self, weights: Tensor) -> Tensor:
        """Weights of the points, (·, K), equivalent to `weights` of the nodes, (·, Q)."""
        return weights if self.to_nodes is None else weights @ self.to_nodes


def coarse(items: Items, nodes: Tensor) -> Coarse:
    """Points for the curves of these items at ascending nodes (Q,); the nodes if that saves little.

    >>> items = Items(torch.ones(3), torch.zeros(3))
    >>> len(coarse(items, torch.linspace(-6, 6, 601)).at)
    41
    """
    low, high, steepest = on_host([nodes[0], nodes[-1], items.slope.abs().max()])
    away = math.pi / max(steepest, 1e-9) / (0.5 * (high - low))
    of_polynomials = -math.log(_ACCURACY) / math.log(away + math.hypot(1, away))
    count = _LEAST + math.ceil(_SHARE * of_polynomials)
    if 4 * count > 3 * len(nodes):
        return Coarse(nodes, None)
    # θ = arcsin(α s) / arcsin α on [-1, 1], with the α that leaves the accuracy what it is.
    alpha = 1 / math.cosh(math.log(_ACCURACY) / count)
    widest, middle, half = math.asin(alpha), 0.5 * (low + high), 0.5 * (high - low)
    points = torch.cos(
        torch.arange(count, dtype=nodes.dtype, device=nodes.device) * (math.pi / (count - 1))
    )
    at = middle + half / widest * torch.asin(alpha * points)
    return Coarse(at, _barycentric(points, torch.sin(widest / half * (nodes - middle)) / alpha))


def _barycentric(points: Tensor, at: Tensor) -> Tensor:
    """Values of the points' Lagrange polynomials at `at`, shape (Q, K) [BT04]_."""
    weights = torch.ones_like(points)
    weights[1::2] = -1
    weights[0] *= 0.5
    weights[-1] *= 0.5
    difference = at[:, None] - points
    hit = difference == 0
    share = weights / torch.where(hit, 1.0, difference)
    share = share / share.sum(dim=1, keepdim=True)
    return torch.where(hit.any(dim=1, keepdim=True), hit.to(share.dtype), share)


class Window(NamedTuple):
    """Nodes that carry the posteriors of some models."""

    rows: slice
    nodes: slice


class Windows(NamedTuple):
    """Windows of all models, sorted by ability."""

    parts: tuple[Window, ...]
    order: Tensor
    """Models by ability, shape (N,)."""
    rank: Tensor
    """Rank of each model in this order, shape (N,)."""
    ends: Tensor
    """First and last node of each model's window, shape (N, 2)."""
    inner: Tensor
    """Shape (N, 2): 1 where the grid continues beyond that end, 0 where the grid ends too."""

    def lost(self, weights: Tensor) -> Tensor:
        """Largest of the weights (N, Q) at an inner end of a window: as much may lie outside."""
        return (weights.gather(1, self.ends) * self.inner).max()


def windows(mean: Tensor, sd: Tensor, at: Tensor, *, wider: float = 1.0) -> Windows:
    """Windows for posteriors of these moments (N,), on a grid of even nodes `at` (Q,)."""
    n, q = len(mean), len(at)
    order = torch.argsort(mean)
    away = wider * (REACH * sd + SLACK * (1 + mean.abs()))
    edges = torch.stack([mean - away, mean + away])[:, order]
    count = max(1, min(n // _MODELS, _MOST))
    bounds = [n * k // count for k in range(count + 1)]
    groups = [slice(*pair) for pair in pairwise(bounds)]
    limits = [limit for g in groups for limit in (edges[0, g].min(), edges[1, g].max())]
    first, last, *host_limits = on_host([at[0], at[-1], *limits])
    node_distance = (last - first) / (q - 1)
    parts: list[Window] = []
    for rows, low, high in zip(groups, host_limits[::2], host_limits[1::2], strict=True):
        begin = min(max(math.floor((low - first) / node_distance), 0), q - 1)
        end = max(min(math.ceil((high - first) / node_distance) + 1, q), begin + 1)
        parts.append(Window(rows, slice(begin, end)))
    ends = torch.tensor([[w.nodes.start, w.nodes.stop - 1] for w in parts])
    sizes = torch.tensor([w.rows.stop - w.rows.start for w in parts])
    rank = torch.argsort(order)
    places = torch.repeat_interleave(ends, sizes, dim=0).to(at.device)[rank]
    inner = torch.stack([places[:, 0] > 0, places[:, 1] < q - 1], dim=1)
    return Windows(tuple(parts), order, rank, places, inner.to(at))

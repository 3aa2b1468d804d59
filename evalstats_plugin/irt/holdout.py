"""How well does a fit predict what it has not seen? Two-stage fits, and what their errors are.

First the trained cells alone are fitted. Then held-out models are placed on the frozen items by
their exposed cells, held-out items among the frozen models by theirs, and the rest is predicted.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from scipy import special
from torch import Tensor

from evalstats_plugin.engines import mapped
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.masks import BoolArray, Split
from evalstats_plugin.irt.two_stage import Fitted
from evalstats_plugin.stats.interval import FloatArray, IntArray, tail_probability

Estimator: TypeAlias = Callable[[Counts], "Fitted | Tensor"]
"""Fits counts. One that gives P(right) itself, (N, M), gets trained and exposed cells at once."""


class Scores(NamedTuple):
    """Of predictions of the cells held out; each trial counts once."""

    auc: float
    """Chance that a right answer was given a higher P than a wrong one, ties half; NaN where all
    are right or all wrong."""
    log_loss: float
    """Per trial, in nats; infinite where what was sure did not happen."""
    brier: float
    """Mean squared error of P, per trial."""
    n_cells: int


class Calibration(NamedTuple):
    """Cells in groups of rising P, each array of shape (bins,)."""

    predicted: FloatArray
    observed: FloatArray
    std_error: FloatArray
    """Of `observed`, if the predictions are true."""
    n_cells: IntArray


class Accuracy(NamedTuple):
    """Predicted shares of right answers on items not seen, each of shape (n,)."""

    estimate: FloatArray
    low: FloatArray
    high: FloatArray
    excess: float
    """Standard deviation of the prediction's error beyond the chance of single answers."""
    n_calibration: int
    """Models on which that was measured."""


def predict_held_out(estimator: Estimator, counts: Counts, split: Split) -> FloatArray:
    """P(right) of all cells, shape (N, M), from those trained on and exposed alone.

    Raises
    ------
    DesignError
        A held-out model or item has no exposed cell.
    """
    device = counts.trials.device
    train, exposed = (torch.from_numpy(part).to(device) for part in (split.train, split.exposed))
    models, items = train.any(1), train.any(0)
    _check_exposed(split)
    fitted = estimator(_part(counts, train, models, items))
    if isinstance(fitted, Tensor):
        if bool(exposed.any()):
            every = torch.ones_like(models), torch.ones_like(items)
            found = estimator(_part(counts, train | exposed, *every))
            return _numpy(found if isinstance(found, Tensor) else found.probability())
        return _numpy(fitted)
    found = torch.empty_like(counts.right)
    found[torch.outer(models, items)] = fitted.probability().flatten()
    new_models = fitted.for_models(_part(counts, exposed, ~models, items))
    new_items = fitted.for_items(_part(counts, exposed, models, ~items))
    found[torch.outer(~models, items)] = new_models.probability().flatten()
    found[torch.outer(models, ~items)] = new_items.probability().flatten()
    found[torch.outer(~models, ~items)] = new_models.crossed(new_items).probability().flatten()
    return _numpy(found)


def score_held_out(counts: Counts, probability: FloatArray, test: BoolArray) -> Scores:
    """Score the predictions of the cells in `test`; partial credit is a share of a right answer."""
    right, trials, p = _cells(counts, probability, test)
    wrong, total = trials - right, float(trials.sum())
    # A cell neither right nor wrong at all says nothing, even if the log of its P is infinite.
    loss = special.xlogy(right, p) + special.xlog1py(wrong, -p)
    return Scores(
        auc=weighted_auc(p, right, wrong),
        log_loss=-float(loss.sum()) / total,
        brier=float((right * (1 - p) ** 2 + wrong * p**2).sum()) / total,
        n_cells=len(p),
    )


def weighted_auc(score: FloatArray, right: FloatArray, wrong: FloatArray) -> float:
    """Area under the ROC curve where each score stands for `right` and `wrong` answers.

    >>> right = np.array([0.0, 1.0, 0.0, 1.0])
    >>> weighted_auc(np.array([0.1, 0.4, 0.4, 0.8]), right, 1 - right)
    0.875
    """
    _, place = np.unique(score, return_inverse=True)
    positive, negative = (np.bincount(place, weights=x) for x in (right, wrong))
    pairs = float(positive.sum() * negative.sum())
    below = np.cumsum(negative) - negative / 2
    return float(positive @ below) / pairs if pairs else float("nan")


def calibration(
    counts: Counts, probability: FloatArray, test: BoolArray, *, n_bins: int = 10
) -> Calibration:
    """Compare P with what happened, in bins of equally many cells; equal P share a bin."""
    right, trials, p = _cells(counts, probability, test)
    edges = np.unique(np.quantile(p, np.arange(1, n_bins) / n_bins))
    _, place = np.unique(np.searchsorted(edges, p, side="left"), return_inverse=True)
    total = np.bincount(place, weights=trials)
    return Calibration(
        predicted=np.bincount(place, weights=trials * p) / total,
        observed=np.bincount(place, weights=right) / total,
        std_error=np.sqrt(np.bincount(place, weights=trials * p * (1 - p))) / total,
        n_cells=np.bincount(place),
    )


def unseen_accuracy(
    estimator: Callable[[Counts], Fitted],
    known: Counts,
    new: Counts,
    *,
    rng: np.random.Generator,
    confidence_level: float = 0.95,
    n_folds: int = 5,
) -> Accuracy:
    """Predict the share of right answers of new models on the items that none of them has seen.

    How far such predictions are off is measured on the known models: each in turn, a fold at a
    time, is held out and shown only the items that the new ones have seen. The interval is for the
    share that will be found, with errors beyond chance as large as there, and Student's t for their
    number.

    Parameters
    ----------
    known
        Models with answers to both kinds of items, shape (N, M).
    new
        Models that have seen the same part of those items, shape (n, M).

    Raises
    ------
    DesignError
        Fewer than two known models per fold, or the new models have seen different items, none or
        all of them.
    """
    tail = tail_probability(confidence_level)
    seen = _common(new)
    n = len(known.right)
    if n < 2 * n_folds:
        msg = f"{n} known models found, expected {2 * n_folds} or more for {n_folds} folds"
        raise DesignError(msg)
    fold = torch.from_numpy(rng.permutation(n) % n_folds).to(seen.device)
    expected, variance, found = (known.right.new_zeros(n) for _ in range(3))
    out_of_each = [fold == k for k in range(n_folds)]
    for out, shares in zip(
        out_of_each, mapped(partial(_of_fold, estimator, known, seen), out_of_each), strict=True
    ):
        expected[out], variance[out], found[out] = shares
    there = ~torch.isnan(found)
    error = (found - expected)[there]
    count = len(error)
    if count < 2:
        msg = f"{count} known models answered items that the new ones have not seen: 2 needed"
        raise DesignError(msg)
    excess = float((error.square() - variance[there]).mean().clamp_min(0))
    probability = estimator(known).for_models(_seen(new, seen)).probability()[:, ~seen]
    estimate = _numpy(probability.mean(1))
    chance = _numpy((probability * (1 - probability)).sum(1)) / probability.shape[1] ** 2
    half = -special.stdtrit(count, tail) * np.sqrt(chance + excess)
    low, high = (np.clip(estimate + sign * half, 0, 1) for sign in (-1, 1))
    return Accuracy(estimate, low, high, excess**0.5, count)


def _of_fold(
    estimator: Callable[[Counts], Fitted], known: Counts, seen: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares of the models of one fold, placed by a fit of the others; see `_shares`."""
    placed = estimator(_rows(known, ~out)).for_models(_seen(_rows(known, out), seen))
    return _shares(_rows(known, out), placed.probability(), ~seen)


def _common(new: Counts) -> Tensor:
    """Items that all new models have seen, shape (M,)."""
    seen = new.trials > 0
    if not bool((seen == seen[0]).all()) or bool(seen[0].all()) or not bool(seen[0].any()):
        low, high = int(seen.sum(1).min()), int(seen.sum(1).max())
        msg = (
            f"the new models have seen {low} to {high} of {seen.shape[1]} items, expected the same "
            "items for all, some but not all: predict for one such group at a time"
        )
        raise DesignError(msg)
    return seen[0]


def _shares(counts: Counts, probability: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Expected share of right answers, its variance by chance, and the share found."""
    trials, p = counts.trials * items, probability
    total = trials.sum(1)
    found = (counts.right * items).sum(1) / total
    return (trials * p).sum(1) / total, (trials * p * (1 - p)).sum(1) / total**2, found


def _rows(counts: Counts, models: Tensor) -> Counts:
    return Counts(counts.right[models], counts.trials[models])


def _seen(counts: Counts, items: Tensor) -> Counts:
    return Counts(counts.right * items, counts.trials * items)


def _part(counts: Counts, cells: Tensor, models: Tensor, items: Tensor) -> Counts:
    """Some models and items, of which only `cells` are seen."""
    right, trials = ((x * cells)[models][:, items] for x in (counts.right, counts.trials))
    return Counts(right, trials)


def _check_exposed(split: Split) -> None:
    used = split.train | split.exposed
    for axis, what in ((1, "models"), (0, "items")):
        bare = int((split.test.any(axis) & ~used.any(axis)).sum())
        if bare:
            msg = (
                f"{bare} held-out {what} have no exposed cell, from which they could be placed: "
                "raise exposure_rate"
            )
            raise DesignError(msg)


def _cells(
    counts: Counts, probability: FloatArray, test: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Right answers, trials and P of the cells in `test` that were scored."""
    right, trials = _numpy(counts.right), _numpy(counts.trials)
    there = test & (trials > 0)
    if not there.any():
        raise ValueError("no cell to score: test and the scored cells do not overlap")
    return right[there], trials[there], probability[there]


def _numpy(tensor: Tensor) -> FloatArray:
    return tensor.detach().to("cpu", torch.float64).numpy()

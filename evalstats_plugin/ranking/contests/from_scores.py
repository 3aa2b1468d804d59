"""Contests from item scores: every two models meet on every item; the better score wins.

`contests_from_scores` joins the scores, lists all meetings in blocks that fit into memory, and
notes what a ranking of these contests means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.metrics import with_stock
from evalstats_plugin.data.responses import IN_ARRAY, Responses, mean_over_epochs
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.runtime.memory import check_memory
from evalstats_plugin.stats.arrays import FloatArray, IntArray

_BYTES = 40
"""Memory of one contest: two players, outcome, weight and cluster."""

_BLOCK = 1 << 22
"""Contests compared at a time."""
_CLOSE = 1e-12
"""Relative difference below which two means are equal up to the order of summation."""


def contests_from_scores(scores: ResponseMatrix | ResponseSet | Sequence[Responses]) -> Contests:
    """Let every two models meet on every item that both answered; the better score wins.

    Equal scores are left out.

    Parameters
    ----------
    scores
        Item scores, one metric for each task.

    Returns
    -------
    Contests
        Clustered by item, or by the items' clusters if these are known.

    Raises
    ------
    DesignError
        Fewer than two models, no item with scores of two models, only ties, or too many contests.

    Notes
    -----
    Without ties, the contests on 0/1 items form a pairwise conditional likelihood of the Rasch
    model: the items' difficulties cancel. But each item yields up to N(N-1)/2 contests that depend
    on each other, so intervals have to be clustered by item.

    Examples
    --------
    >>> scores = ResponseMatrix.from_array([[1, 0, 1, 1], [0, 1, 0, 1]])
    >>> contests_from_scores(scores).outcome
    array([1., 0., 1.])
    """
    if isinstance(scores, ResponseMatrix):
        matrix, notes = scores, list(scores.notes)
    else:
        matrix, notes = _joined(scores)
    if len(matrix.models) < 2:
        msg = f"{counted(len(matrix.models), 'model')} ({few(matrix.models)}): give two or more"
        raise DesignError(msg)
    array = mean_over_epochs(matrix.scores) * _directions(matrix)
    n, m = array.shape
    check_memory(
        n * (n - 1) // 2 * m * _BYTES,
        f"contests of {n} models on {m} items",
        "give fewer models or items",
    )
    meetings = _meetings(array, averaged=matrix.scores.shape[2] > 1)
    if not len(meetings.item):
        size = f"{counted(len(matrix.models), 'model')} on {counted(len(matrix.item_ids), 'item')}"
        lack = "tie on every item" if meetings.n_met else "share no item"
        raise DesignError(f"{size} {lack}: give items on which they differ")
    groups = matrix.item_ids if matrix.clusters is None else matrix.clusters
    named = zip(matrix.tasks.tolist(), groups.astype(str).tolist(), strict=True)
    of_item = [f"{task}/{name}" for task, name in named]
    places = {name: k for k, name in enumerate(dict.fromkeys(of_item))}
    cluster = np.asarray([places[name] for name in of_item], dtype=np.int64)
    return Contests(
        players=matrix.models,
        first=meetings.first,
        second=meetings.second,
        outcome=meetings.outcome,
        weight=np.ones(len(meetings.item)),
        cluster=cluster[meetings.item],
        clusters=tuple(places),
        notes=(*notes, *_notes(matrix, array, meetings)),
    )


def _directions(matrix: ResponseMatrix) -> FloatArray:
    """Return -1 for each item whose scores are better if lower, else 1."""
    names = list(zip(matrix.tasks.tolist(), matrix.metrics.tolist(), strict=True))
    measure_of = matrix.measure_of
    lower = {
        name
        for name in dict.fromkeys(names)
        if with_stock(measure_of[name], IN_ARRAY).higher_is_better is False
    }
    return np.array([-1.0 if name in lower else 1.0 for name in names])


def _joined(responses: ResponseSet | Sequence[Responses]) -> tuple[ResponseMatrix, list[str]]:
    """Join the metrics that are means of item scores."""
    notes = list(responses.notes) if isinstance(responses, ResponseSet) else []
    every = [r for r in responses if r.scores.size]
    used = [r for r in every if r.aggregation == "mean"]
    if other := [f"{r.task}/{r.metric}" for r in every if r.aggregation != "mean"]:
        notes.append(f"not compared, no mean over items: {few(list(dict.fromkeys(other)))}")
    matrix = ResponseSet(tuple(used)).matrix()
    silent = {f"{r.task}/{r.metric}" for r in used if r.higher_is_better is None}
    if silent:
        notes.append(f"higher is taken as better, the log does not say: {few(sorted(silent))}")
    return matrix, [*notes, *matrix.notes]


class _Meetings(NamedTuple):
    """Meetings of every two models on every item: contests, item after item, without ties."""

    first: IntArray
    second: IntArray
    outcome: FloatArray
    item: IntArray
    n_met: int
    """Number of meetings, with ties."""
    n_ties: int


def _meetings(scores: FloatArray, *, averaged: bool) -> _Meetings:
    """Let every two models meet on every item.

    Parameters
    ----------
    scores
        Higher is better, NaN where missing; shape (N, M).
    averaged
        Whether scores are means, for which equality allows for rounding.
    """
    i, j = np.triu_indices(len(scores), 1)
    width = max(1, _BLOCK // max(1, len(i)))
    items: list[IntArray] = []
    pairs: list[IntArray] = []
    outcomes: list[FloatArray] = []
    n_ties = 0
    for start in range(0, max(1, scores.shape[1]), width):
        block = scores[:, start : start + width].T
        first, second = block[:, i], block[:, j]
        tied = first == second
        if averaged:
            # The difference of infinities is NaN, and infinities are excluded below.
            with np.errstate(invalid="ignore"):
                near = np.abs(first - second) <= _CLOSE * np.maximum(np.abs(first), np.abs(second))
            tied |= near & np.isfinite(first) & np.isfinite(second)
        n_ties += int(tied.sum())
        item, pair = np.nonzero(((first > second) | (first < second)) & ~tied)
        items.append(item.astype(np.int64) + start)
        pairs.append(pair.astype(np.int64))
        outcomes.append((first > second)[item, pair].astype(np.float64))
    pair, item = np.concatenate(pairs), np.concatenate(items)
    outcome = np.concatenate(outcomes)
    return _Meetings(i[pair], j[pair], outcome, item, n_ties + len(item), n_ties)


def _notes(matrix: ResponseMatrix, array: FloatArray, meetings: _Meetings) -> list[str]:
    """Notes on how contests were made and what a ranking of them means."""
    notes: list[str] = []
    if len(tasks := list(dict.fromkeys(matrix.tasks.tolist()))) > 1:
        notes.append(
            f"{len(tasks)} tasks together, every item counts the same whatever its task: "
            f"{few(tasks)}"
        )
    if matrix.scores.shape[2] > 1:
        notes.append("means over epochs are compared")
    if meetings.n_ties:
        notes.append(f"{meetings.n_ties} ties of {meetings.n_met} meetings left out")
    observed = array[~np.isnan(array)]
    binary = bool(np.isin(np.abs(observed), (0.0, 1.0)).all())
    if binary:
        notes.append(
            "items that one model got right and the other wrong: a conditional likelihood of the "
            "Rasch model, in which the items' difficulties cancel"
        )
    of = "item" if matrix.clusters is None else "cluster of items"
    notes.append(f"contests of one {of} depend on each other: intervals have to be clustered by it")
    return notes

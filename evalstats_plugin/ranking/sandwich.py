"""How sure estimates from contests are, without trusting the model of their chances [Hub67]_.

Half-won ties are no coin tosses, and contests of one prompt or of one judge resemble each other:
what the likelihood says of its own accuracy is then wrong. The sandwich measures how scores (the
derivatives of the log-likelihood) really vary from contest to contest, or from cluster to cluster
[LZ86]_.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from evalstats_plugin.ranking.contests import FloatArray, IntArray
from evalstats_plugin.ranking.counted import Counted
from evalstats_plugin.ranking.ties import Weights, derivatives


class Covariance(NamedTuple):
    """Of all parameters, those of ratings being of ratings less their mean."""

    covariance: FloatArray
    """Shape (p, p)."""
    groups: int | None
    """Number of clusters, where these are what varies."""


def covariance_of(
    found: Counted, parameters: FloatArray, information: FloatArray, kind: str, parts: IntArray
) -> Covariance:
    """Covariance of estimates.

    Clustered, it is multiplied by G / (G - 1) for G clusters, as CR1 of a mean is.

    Parameters
    ----------
    parameters : shape (p,)
    information : shape (p, p)
        Minus second derivatives, a prior's among them.
    kind
        ``"model"`` (the inverse information), ``"sandwich"``, ``"cluster"`` or ``"judge"``.
    parts : shape (n,)
        Strong components of the players. Contests between them all ended alike, so that their
        scores do not vary: for these the model's own information stands in, and the prior's for
        the prior.
    """
    design = found.design
    bread = inverse(information, design.n)
    if kind == "model":
        return Covariance(bread, None)
    cells = derivatives(design.ties, *_predictors(found, parameters), found.weights())
    expected = design.outer(*cells[3:])[0]
    rows = derivatives(design.ties, *_predictors(found, parameters, found.cell), _column(found))
    one_way = parts[design.first] != parts[design.second]
    varies = ~one_way[found.cell]
    by_x, by_tie = rows.by_x[:, 0] * varies, rows.by_tie[:, 0] * varies
    groups = None
    if kind == "sandwich":
        middle = design.outer(
            *(_by_cell(found, each) for each in (by_x**2, by_x * by_tie, by_tie**2))
        )[0]
    else:
        members = found.groups(kind)
        groups = members.shape[0]
        scores = members @ _scores(found, by_x, by_tie)
        middle = (scores.T @ scores).toarray() * (groups / (groups - 1))
    if one_way.any():
        middle += design.outer(*(each * one_way[:, None] for each in cells[3:]))[0]
    middle += information - expected
    return Covariance(bread @ middle @ bread, groups)


def inverse(information: FloatArray, n: int) -> FloatArray:
    """Covariance of n ratings that sum to 0, and of what else there is."""
    regular = information.copy()
    # Moves along the common shift of the ratings only, which is then taken out.
    regular[:n, :n] += np.abs(np.diagonal(information)).mean() / n
    inverted: Any = np.linalg.inv(regular)
    return centred(inverted, n)


def centred(covariance: FloatArray, n: int) -> FloatArray:
    """Covariance with the mean of the first n taken off each of them."""
    out = covariance.copy()
    out[:n] -= out[:n].mean(axis=0)
    out[:, :n] -= out[:, :n].mean(axis=1, keepdims=True)
    return (out + out.T) / 2


def _predictors(
    found: Counted, parameters: FloatArray, cell: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """How far the first is ahead in each cell, or in each row; and the tie parameter."""
    x = found.design.ahead(parameters[:, None])
    return (x if cell is None else x[cell]), found.design.tie(parameters[:, None])


def _column(found: Counted) -> Weights:
    return Weights(*(each[:, None] for each in found.each))


def _by_cell(found: Counted, values: FloatArray) -> FloatArray:
    cells = len(found.design.first)
    summed = np.bincount(found.cell, found.count * values, cells)
    return summed.astype(np.float64)[:, None]


def _scores(found: Counted, by_x: FloatArray, by_tie: FloatArray) -> Any:
    """Scores of one contest of each row, sparse (R, p)."""
    design, scale = found.design, by_x[:, None]
    parts: list[Any] = [sparse.csr_array(design.against[found.cell] * scale)]
    if design.extra.shape[1]:
        parts.append(sparse.csr_array(design.extra[found.cell] * scale))
    if design.with_ties:
        parts.append(sparse.csr_array(by_tie[:, None]))
    return sparse.hstack(parts, format="csr")

"""Sum out particles in the log domain, in a good order, and remember how to draw them again.

The sum over all Kⁿ combinations of n groups of K particles is a contraction of tables, of which
each knows few groups: variable elimination. The order is found by opt_einsum [SG18]_; the sums
are of logarithms, for the products of many densities leave the range of float64.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError

Sizes = tuple[tuple[int, int], ...]
"""Axes that a table has, and how long they are."""


class Elimination(NamedTuple):
    """One axis summed out of the product of the tables that know of it."""

    axis: int
    table: Tensor
    """Log of the product: along the axis, up to a constant, log P(particle | the other axes)."""


class Contracted(NamedTuple):
    """What is left when axes have been summed out."""

    message: Tensor
    eliminations: tuple[Elimination, ...]


def contract(factors: Sequence[Tensor], axes: frozenset[int]) -> Contracted:
    """Log of the sum over `axes` of the product of tables, given as logarithms.

    Parameters
    ----------
    factors
        Arrays with the same number of axes; an axis of size 1 is one that a table does not have.
    axes
        To sum over; all have size 1 in the message.
    """
    left = list(factors)
    done: list[Elimination] = []
    for picked in path(tuple(_sizes(f) for f in left), axes):
        total = left[picked[0]]
        for i in picked[1:]:
            total = total + left[i]
        left = [f for i, f in enumerate(left) if i not in picked]
        kept = {axis for f in left for axis, _ in _sizes(f)}
        for axis, _ in _sizes(total):
            if axis in axes and axis not in kept:
                done.append(Elimination(axis, total))
                total = torch.logsumexp(total, axis, keepdim=True)
        left.append(total)
    return Contracted(left[0], tuple(done))


def largest(tables: Sequence[Sizes], axes: frozenset[int]) -> int:
    """Numbers in the largest table on the way."""
    left, most = [dict(t) for t in tables], 1
    for picked in path(tuple(tables), axes):
        total = {axis: n for i in picked for axis, n in left[i].items()}
        most = max(most, math.prod(total.values()))
        left = [t for i, t in enumerate(left) if i not in picked]
        kept = {axis for t in left for axis in t}
        left.append({a: n for a, n in total.items() if a not in axes or a in kept})
    return most


@lru_cache(maxsize=512)
def path(tables: tuple[Sizes, ...], axes: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """Which tables to multiply in turn, the product going to the end of the list."""
    try:
        oe: Any = import_module("opt_einsum")
    except ModuleNotFoundError as error:
        msg = (
            "models of nested plates need opt_einsum: pip install 'evalstats-plugin[hierarchical]'"
        )
        raise DesignError(msg) from error
    terms = ["".join(oe.get_symbol(a) for a, _ in table) for table in tables]
    known = dict.fromkeys(a for table in tables for a, _ in table)
    kept = "".join(oe.get_symbol(a) for a in known if a not in axes)
    shapes = [tuple(n for _, n in table) for table in tables]
    found, _ = oe.contract_path(f"{','.join(terms)}->{kept}", *shapes, shapes=True)
    return tuple(tuple(int(i) for i in picked) for picked in found)


def _sizes(table: Tensor) -> Sizes:
    return tuple((axis, n) for axis, n in enumerate(table.shape) if n > 1)

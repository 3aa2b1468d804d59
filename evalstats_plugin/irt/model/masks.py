"""Masks: which cells of a response matrix to hold out, so that predictions can be checked on them.

Each mask takes which cells have scores, shape (N, M), and returns a `Split` of these. Held-out
models or items keep a few exposed cells, from which they are estimated with the rest of the fit
fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray


class Split(NamedTuple):
    """Three disjoint parts of the cells, each of shape (N, M)."""

    train: BoolArray
    """Cells to fit the model to."""
    exposed: BoolArray
    """Cells of held-out models or items to estimate these from, with the rest of the fit fixed."""
    test: BoolArray
    """Cells to predict."""


TEST_SHARE, EXPOSED = 0.2, 0.3
"""Share of the cells, models or items that is held out, and share of the cells of held-out models
or items that is exposed."""


def random_entries(observed: BoolArray, *, rng: np.random.Generator) -> Split:
    """Hold out cells at random; each model and item with two or more keeps at least one."""
    test = _some_per_row(observed.reshape(1, -1), TEST_SHARE, rng).reshape(observed.shape)
    for axis in (0, 1):
        bare = observed.any(axis) & ~(observed & ~test).any(axis)
        test &= ~(np.expand_dims(bare, axis) & observed)
    return _checked(observed & ~test, np.zeros_like(observed), test)


def rows(observed: BoolArray, *, rng: np.random.Generator) -> Split:
    """Hold out models at random; a share of their answers is exposed."""
    return _held_out_rows(observed, _some(len(observed), rng), rng)


def columns(observed: BoolArray, *, rng: np.random.Generator) -> Split:
    """Hold out items at random; a share of their answers is exposed."""
    return _turned(rows(observed.T, rng=rng))


def l_mask(observed: BoolArray, *, rng: np.random.Generator) -> Split:
    """Train on old models × old items, predict new models on new items (the L-mask of AIMS).

    Cells of new models on old items, and of old models on new items, are exposed.
    """
    new_models, new_items = _corner(observed, rng)
    across = observed & (new_models != new_items)
    old_items = _some_per_row(across & new_models, EXPOSED, rng)
    old_models = _some_per_row((across & new_items).T, EXPOSED, rng).T
    train = observed & ~new_models & ~new_items
    return _checked(train, old_items | old_models, observed & new_models & new_items)


def block(observed: BoolArray, *, rng: np.random.Generator) -> Split:
    """Hold out new models × new items, train on all else (torch_measure's L-mask)."""
    new_models, new_items = _corner(observed, rng)
    test = observed & new_models & new_items
    return _checked(observed & ~test, np.zeros_like(observed), test)


def shifted_rows(observed: BoolArray, *, key: FloatArray, rng: np.random.Generator) -> Split:
    """Hold out the models with the largest `key`, shape (N,), such as the most able."""
    largest = np.zeros(len(key), dtype=bool)
    largest[np.argsort(key, kind="stable")[-_number(len(key)) :]] = True
    return _held_out_rows(observed, largest, rng)


def shifted_columns(observed: BoolArray, *, key: FloatArray, rng: np.random.Generator) -> Split:
    """Hold out the items with the largest `key`, shape (M,), such as the hardest."""
    return _turned(shifted_rows(observed.T, key=key, rng=rng))


def tasks(observed: BoolArray, *, task: IntArray, rng: np.random.Generator) -> Split:
    """Hold out whole tasks at random; `task` numbers that of each item from 0, shape (M,)."""
    held_out = _some(int(task.max()) + 1, rng)[task]
    return _turned(_held_out_rows(observed.T, held_out, rng))


def temporal(observed: BoolArray, *, released: FloatArray, rng: np.random.Generator) -> Split:
    """Hold out the models `released` last, shape (N,), and train on those before them.

    Models released together stay together, so that more of them may be held out.
    """
    cut = np.sort(released)[-_number(len(observed))]
    return _held_out_rows(observed, released >= cut, rng)


MASKS: Mapping[str, Callable[..., Split]] = MappingProxyType(
    {
        "random": random_entries,
        "rows": rows,
        "columns": columns,
        "L": l_mask,
        "block": block,
        "shifted-rows": shifted_rows,
        "shifted-size": shifted_rows,
        "shifted-columns": shifted_columns,
        "shifted-tasks": tasks,
        "temporal": temporal,
    }
)
"""Masks by name."""


def _number(size: int) -> int:
    """How many of `size` to hold out: at least one, and never all."""
    return max(1, min(round(TEST_SHARE * size), size - 1))


def _some(size: int, rng: np.random.Generator) -> BoolArray:
    chosen = np.zeros(size, dtype=bool)
    chosen[rng.permutation(size)[: _number(size)]] = True
    return chosen


def _some_per_row(cells: BoolArray, share: float, rng: np.random.Generator) -> BoolArray:
    """Draw a share of the cells of each row, at least one of two or more."""
    size: IntArray = cells.sum(axis=1)
    least, most = np.minimum(size - 1, 1), np.maximum(size - 1, 0)
    wanted: FloatArray = np.minimum(np.maximum(np.rint(share * size), least), most)
    place = np.where(cells, rng.random(cells.shape), 2.0).argsort(axis=1, kind="stable")
    drawn = np.zeros_like(cells)
    first = np.arange(len(cells.T)) < wanted[:, None]
    np.put_along_axis(drawn, place, first, axis=1)
    return drawn


def _held_out_rows(observed: BoolArray, new: BoolArray, rng: np.random.Generator) -> Split:
    cells = observed & new[:, None]
    exposed = _some_per_row(cells, EXPOSED, rng)
    return _checked(observed & ~new[:, None], exposed, cells & ~exposed)


def _corner(observed: BoolArray, rng: np.random.Generator) -> tuple[BoolArray, BoolArray]:
    """Draw new models, shape (N, 1), and new items, (1, M)."""
    n, m = observed.shape
    return _some(n, rng)[:, None], _some(m, rng)[None]


def _turned(split: Split) -> Split:
    return Split(*(part.T for part in split))


def _checked(train: BoolArray, exposed: BoolArray, test: BoolArray) -> Split:
    if not train.any() or not test.any():
        raise DesignError(
            f"{int(train.sum())} cells are left to train on and {int(test.sum())} to predict: "
            "add models or items"
        )
    return Split(train, exposed, test)

"""The page's table of items, and every model's answer to each, packed tightly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.item_answers import ItemAnswers
from evalstats_plugin.report import notes
from evalstats_plugin.report.html_markup import clean
from evalstats_plugin.report.html_table import Column, Table, shortened

MOST_ITEMS = 20_000
MOST_LETTERS = 1_500_000
"""Items that a page holds, and letters that answers take; flagged items come first."""

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""Six bits each."""
_FINE = 12
"""Bits of scores of many values: 4,095 steps from the least to the greatest."""


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldItems:
    """Of one task under one metric: which items the page holds."""

    answers: ItemAnswers
    places: NDArray[np.int64]
    """Of the items that are held."""


def held_items(
    answers: Sequence[ItemAnswers], most: int = MOST_ITEMS, letters: int = MOST_LETTERS
) -> tuple[list[HeldItems], str]:
    """Return the items that the page holds, flagged ones first, and what it leaves out in words."""
    cost = [_letters_per_item(one) for one in answers]
    kept: list[list[int]] = [[] for _ in answers]
    room, space = most, letters
    for wanted in (True, False):
        for k, one in enumerate(answers):
            places = [j for j, flag in enumerate(one.flags) if bool(flag) is wanted]
            fit = places[: max(min(room, space // cost[k]), 0)]
            kept[k] += fit
            room, space = room - len(fit), space - len(fit) * cost[k]
    held = [
        HeldItems(answers=one, places=np.array(_in_order(one, places), dtype=np.int64))
        for one, places in zip(answers, kept, strict=True)
        if places
    ]
    total, n_held = sum(len(one.flags) for one in answers), sum(map(len, kept))
    if n_held == total:
        return held, ""
    said = f"This page holds {n_held:,} of the {total:,} items, flagged ones first."
    return held, said


def _in_order(one: ItemAnswers, places: Sequence[int]) -> list[int]:
    """Put item_2 before item_10, as the page's script does when it sorts."""
    return sorted(places, key=lambda j: natural(one.item_ids[j]))


def natural(name: str) -> list[tuple[str, int, str]]:
    """Return what sorts names with the numbers in them by size.

    >>> sorted(["item_10", "item_2", "b", "10", "9"], key=natural)
    ['9', '10', 'b', 'item_2', 'item_10']
    """
    texts = re.split("[0-9]+", name)
    # Compared by length, then digit by digit: Python refuses numbers of thousands of digits.
    digits = [found.lstrip("0") for found in re.findall("[0-9]+", name)]
    lengths = [len(found) for found in digits]
    return list(zip(texts, [*lengths, -1], [*digits, ""], strict=True))


def items_table(held: Sequence[HeldItems]) -> Table:
    """Return one row per item; what each model answered lies beside the rows."""
    means = _gathered(held, "item_means")
    within = all(x is None or 0 <= x <= 1 for x in means)
    models = list(dict.fromkeys(model for one in held for model in one.answers.models))
    columns = [
        Column(title="Item", values=[name for one in held for name in _names(one)], heads=True),
        Column(title="Task", values=_repeated(held, "task"), role="task"),
        Column(title="Metric", values=[notes.short_metric(m) for m in _repeated(held, "metric")],
               role="metric"),
        Column(title="Models", kind="count", values=_gathered(held, "n_models"),
               hint="That have a score of the item"),
        Column(title="Mean score", kind="share" if within else "number", values=means,
               hint="Over the models; the share that is right, where scores are 0 and 1"),
        Column(title="With the rest", kind="signed", values=_gathered(held, "rest_correlation"),
               hint="Correlation of the models' scores on the item with those on the other items"),
        Column(title="Flag", role="flag",
               values=[one.answers.flags[j] for one in held for j in one.places.tolist()]),
    ]  # fmt: skip
    places = {model: i for i, model in enumerate(models)}
    blocks: list[dict[str, Any]] = []
    start = 0
    for one in held:
        blocks.append({"start": start, **_block(one, places)})
        start += len(one.places)
    extra = {"models": [clean(model) for model in models], "blocks": blocks}
    return Table(name="items", caption="Items", columns=columns, extra=extra)


def _names(one: HeldItems) -> list[str]:
    return [one.answers.item_ids[j] for j in one.places.tolist()]


def _repeated(held: Sequence[HeldItems], name: str) -> list[str]:
    return [getattr(one.answers, name) for one in held for _ in range(len(one.places))]


def _gathered(held: Sequence[HeldItems], name: str) -> list[Any]:
    """Return one number per item held, None for NaN."""
    found: list[Any] = []
    for one in held:
        found += getattr(one.answers, name)[one.places].tolist()
    return [None if x != x else x for x in found]  # noqa: PLR0124 - NaN


def _block(one: HeldItems, places: dict[str, int]) -> dict[str, Any]:
    """Return the answers of one task: models best first, and a row of letters for each item."""
    answers = one.answers
    values, bits = packing(answers.scores)
    levels = [shortened(v) for v in values.tolist()]
    letters = packed(codes(answers.scores[:, one.places].T, values), bits)
    return {
        "models": [places[model] for model in answers.models],
        "means": [None if x != x else shortened(x) for x in answers.means.tolist()],  # noqa: PLR0124
        "lower": int(answers.higher_is_better is False),
        "bits": bits,
        # Of many values the ends are enough, as the steps between them are even.
        "levels": levels if bits < _FINE else [levels[0], levels[-1]],
        "letters": "".join(letters),
    }


def _letters_per_item(answers: ItemAnswers) -> int:
    bits = packing(answers.scores)[1]
    return _width(len(answers.models), bits)


def _width(n: int, bits: int) -> int:
    return n * 2 if bits == _FINE else -(-n // (6 // bits))


def packing(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Return the values that codes from 1 stand for, and how many bits a code takes; 0 is missing.

    Scores of more than 63 values are rounded to 4,095 even steps.
    """
    values: NDArray[np.float64] = np.unique(scores[~np.isnan(scores)])
    for bits in (1, 2, 3, 6):
        if len(values) < 2**bits:
            return values, bits
    low, high = float(values[0]), float(values[-1])
    return np.linspace(low, high, 2**_FINE - 1), _FINE


def codes(scores: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the place of the nearest value, from 1; 0 where there is no score."""
    there = ~np.isnan(scores)
    filled = np.where(there, scores, values[0])
    middle = (values[1:] + values[:-1]) / 2
    return np.where(there, np.searchsorted(middle, filled) + 1, 0).astype(np.int64)


def packed(numbers: NDArray[np.int64], bits: int) -> list[str]:
    """Write rows of codes in letters of six bits, the first code in the highest bits."""
    per = max(6 // bits, 1)
    n_rows, n = numbers.shape
    if bits == _FINE:
        sixes = np.stack([numbers >> 6, numbers & 63], axis=-1).reshape(n_rows, 2 * n)
    else:
        room = np.zeros((n_rows, _width(n, bits) * per), dtype=np.int64)
        room[:, :n] = numbers
        shifts = bits * np.arange(per - 1, -1, -1)
        sixes = (room.reshape(n_rows, -1, per) << shifts).sum(axis=-1)
    letters = np.frombuffer(ALPHABET.encode(), dtype=np.uint8)[sixes]
    return [row.tobytes().decode() for row in letters]

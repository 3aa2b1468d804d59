"""On which scale scores are, where neither the log nor the registry nor the user says.

`settled` gives responses whose scale is unknown the one that their scores show, over all models of
a task; and takes a scale of the registry away from scores that plainly are on another. Values
beyond a scale never change it: `strays` counts them, and analyses ask what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evalstats_plugin.data.measure import SHARE, Scale
from evalstats_plugin.data.metrics import with_stock
from evalstats_plugin.data.responses import Group, Responses, Weighting
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import counted, few
from evalstats_plugin.stats.arrays import FloatArray

TAKEN_AS = ": taken as "
"""How notes on the scale that scores show can be told from others."""

UNLIMITED = Scale()
"""Of scores beyond 0 and 1 that are on no scale that is known."""

FEW = 0.1
"""Share of the values that may lie beyond a scale before it is not theirs."""

MOST_CODES = 2
"""Distinct values that codes for missing scores have, at most."""

_CODES = frozenset({9.0, 77.0, 88.0, 99.0, 777.0, 888.0, 999.0, 9999.0})
"""What tables write for a missing score, besides negative whole numbers."""

_FAR = 5.0
"""A code lies at least so many times as far up as the largest score."""


class Strays(NamedTuple):
    """Values beyond a scale."""

    n: int
    values: tuple[float, ...]
    """Distinct, in order."""

    def question(self, metric: str, scale: str) -> str:
        """Return what to ask of the user, who knows the scores."""
        shown = few([f"{value:g}".replace("-", "\N{MINUS SIGN}") for value in self.values])
        code = f" --missing-code {self.values[0]:g}" if len(self.values) <= MOST_CODES else ""
        hint = f"a code for missing? {code.strip()} leaves such out; " if code else ""
        return (
            f"{counted(self.n, 'value')} of {shown} beyond the scale {scale}: {hint}"
            f"--bounds {metric}=LOW,HIGH sets another scale"
        )


def strays(scores: FloatArray, bounds: tuple[float, float]) -> Strays | None:
    """Return the finite values beyond the bounds; None without any.

    >>> strays(np.array([0.0, 1.0, -1.0, 1.0, -1.0]), (0, 1))
    Strays(n=2, values=(-1.0,))
    """
    low, high = bounds
    rounding = 1e-9 * max(abs(end) for end in (low, high, 0.0) if np.isfinite(end))
    with np.errstate(invalid="ignore"):
        beyond = scores[((scores < low - rounding) | (scores > high + rounding))]
    beyond = beyond[np.isfinite(beyond)]
    if not len(beyond):
        return None
    return Strays(len(beyond), tuple(np.unique(beyond).tolist()))


def observed(scores: FloatArray) -> Scale | None:
    """Return the scale that scores are likely to be on; None if there is no telling.

    Of 100, or in whole steps up to 5 or 10 as judges grade. Scores from 0 to 1 need no telling,
    unless a few others among them are likely codes for missing ones.

    >>> observed(np.array([85.5, 40.0])).bounds, observed(np.array([4.0, 1.0])).bounds
    ((0.0, 100.0), (1.0, 5.0))
    >>> observed(np.array([0.5])), observed(np.array([0, 1] * 20 + [99.0])).bounds
    (None, (0.0, 1.0))
    """
    finite = scores[np.isfinite(scores)]
    if _need_no_telling(finite):
        return None
    if _few_beyond(finite, (0.0, 1.0)):
        return SHARE
    finite = _without_codes(finite)
    if not len(finite) or finite.min() < 0:
        return None
    least, top = float(finite.min()), float(finite.max())
    whole = float((finite == np.round(finite)).mean()) >= 1 - FEW
    if 4 <= top <= 10 and whole:
        return Scale(min(least, 1.0), 5.0 if top <= 5 else 10.0, unit="points")
    return Scale(0.0, 100.0, unit="percent") if 10 < top <= 100 else None


def _need_no_telling(finite: FloatArray) -> bool:
    return not len(finite) or (finite.min() >= 0 and finite.max() <= 1)


def _few_beyond(scores: FloatArray, bounds: tuple[float, float]) -> bool:
    """Whether the values beyond the bounds are as few, and as alike, as codes are."""
    beyond = strays(scores, bounds)
    inside = scores[(scores >= bounds[0]) & (scores <= bounds[1])]
    # A few answers graded 5 among many graded 1 are no codes.
    if beyond is None or not len(inside) or inside.min() == inside.max() == 1:
        return False
    # Nor is 1.08 among scores that are all different: codes are whole numbers.
    if len(np.unique(inside)) > len(inside) / 2 and not all(v == round(v) for v in beyond.values):
        return False
    return beyond.n <= FEW * len(scores) and len(beyond.values) <= MOST_CODES


def _without_codes(scores: FloatArray) -> FloatArray:
    """Leave out the few values that are likely codes for missing scores."""
    whole = scores == np.round(scores)
    others = scores[~((scores < 0) & whole) & ~np.isin(scores, list(_CODES))]
    if not len(others):
        return scores
    far = np.isin(scores, list(_CODES)) & (scores >= _FAR * max(float(others.max()), 1.0))
    code = far | ((scores < 0) & whole)
    n_distinct = len(np.unique(scores[code]))
    are_codes = 0 < code.sum() <= FEW * len(scores) and n_distinct <= MOST_CODES
    return scores[~code] if are_codes else scores


def settled(responses: Iterable[Responses]) -> list[Responses]:
    """Return responses with the scale of the registry, or the one that they show, with a note.

    The scores of all models on a task are looked at together.
    """
    listed = [r.under(with_stock(r.measure, r.source.harness)) for r in responses]
    listed = _with_weightings(listed)
    unknown = [r for r in listed if _is_open(r)]
    by_id: dict[int, Responses] = {}
    for group in grouped(unknown, lambda r: (r.measure.task, r.measure.name)).values():
        by_id |= {id(r): made for r, made in zip(group, _settled(group), strict=True)}
    return [by_id.get(id(r), r) for r in listed]


def _with_weightings(responses: list[Responses]) -> list[Responses]:
    """Settle how a group weighs its tasks where one model's log leaves it open and others do not.

    By the same metric of other models, else by other metrics.
    """
    weightings: dict[tuple[str, ...], Weighting] = {}
    for r in responses:
        for g in r.groups:
            if g.weighting != "either" and g.logged is not None:
                weightings.setdefault((g.name,), g.weighting)
                weightings.setdefault((g.name, r.measure.name), g.weighting)

    def settled_group(g: Group, metric: str) -> Group:
        usual = weightings.get((g.name,), "either")
        is_open = g.weighting == "either"
        return replace(g, weighting=weightings.get((g.name, metric), usual)) if is_open else g

    return [
        replace(r, groups=tuple(settled_group(g, r.measure.name) for g in r.groups))
        if any(g.weighting == "either" for g in r.groups)
        else r
        for r in responses
    ]


def _is_open(r: Responses) -> bool:
    if r.measure.aggregation != "mean" or not r.scores.size:
        return False
    return r.measure.scale is None or r.measure.scale_from == "registry"


def _settled(group: Sequence[Responses]) -> list[Responses]:
    scores = np.concatenate([r.scores.ravel() for r in group])
    usual = group[0].measure.scale
    if usual is not None:
        beyond = strays(scores, (usual.low, usual.high))
        size = int(np.isfinite(scores).sum())
        if beyond is None or beyond.n <= FEW * size:
            return list(group)
    scale = observed(scores)
    metric = group[0].measure.metric
    if scale is None and usual is None:
        if _need_no_telling(scores[np.isfinite(scores)]):
            return list(group)
        # What one model's zeros and ones would look like, others' scores exclude.
        return [r.under(r.measure.on(UNLIMITED, "observed")) for r in group]
    told = f"{metric}, not on its usual scale ({usual})" if usual is not None else metric
    if scale is None:
        return [_noted(r, UNLIMITED, f"{told}{TAKEN_AS}unbounded") for r in group]
    if scale is SHARE:
        return [r.under(r.measure.on(scale, "observed")) for r in group]
    note = (
        f"{told}{TAKEN_AS}a scale from {scale.low:g} to {scale.high:g} "
        f"(--bounds {metric}=LOW,HIGH, in Python measure=, sets another)"
    )
    return [_noted(r, scale, note) for r in group]


def _noted(r: Responses, scale: Scale, note: str) -> Responses:
    made = r.under(r.measure.on(scale, "observed"))
    return made if note in made.notes else made.noted(note)

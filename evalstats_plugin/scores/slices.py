"""Slices of a task: its items by a field of theirs, such as language, subject, tags or length.

Or the runs of a model at several values of a setting, such as a temperature or a prompt: on the
same items, and with a row for other values, which vary as these do
(`stats.clustered.crossed`).

A slice is judged against the other items of its task by a permutation test (`permuted_slices`),
whose size is exact however small the slice is: the default limits of independent samples find small
slices of an easy task too often in the far tail that twenty slices need. Limits of k slices are
each at level ** (1 / k) (Šidák); of 0/1 scores of independent items they are exact (`jointly`): the
default's coverage holds on average over scores, and slices of one task have much the same score.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.matrix import stack_epochs
from evalstats_plugin.data.measure import Scale
from evalstats_plugin.data.responses import (
    NAMED_ALONE,
    Provenance,
    Responses,
    field_of_slices,
    mean_over_epochs,
)
from evalstats_plugin.data.results import Results, finite, grouped
from evalstats_plugin.data.scales import UNLIMITED
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.runtime.files import number_in
from evalstats_plugin.scores.cells import check_confidence_level
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.scores.methods import DEFAULTS
from evalstats_plugin.scores.rows import Intervals, ScoreInterval
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, Rng
from evalstats_plugin.stats.clustered import by_cluster, crossed
from evalstats_plugin.stats.multiplicity import holm
from evalstats_plugin.stats.pairs.unpaired import permuted_slices
from evalstats_plugin.stats.streams import stream

NONE, OTHER, ALIKE = "(none)", "(other)", "(values like these)"
"""Slices of the items without the field, of those outside the largest slices, and of a setting's
values that were not run."""

MOST_SLICES = 50
"""Slices of a task up to which they are reported."""

Members = Mapping[str, BoolArray]
"""Items of each slice, shape (M,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceScore(ScoreInterval):
    """Score of a model on one slice of a task; limits hold for all slices of the task at once."""

    drawn_as: ClassVar[tuple[str, ...]] = ()
    shown: ClassVar[tuple[str, ...]] = (
        "model", "task", "metric", "slice", "n_items", "estimate", "low", "high", "p_worse",
    )  # fmt: skip

    by: str
    """The field of the items."""
    slice: str
    n_slices: int
    p_worse: float | None
    """One-sided, that the slice is no worse than the other items, adjusted over the slices: the
    largest share of evals in which one of as many equal slices would be this bad."""
    std_between: float | None = None
    """Of the slice `ALIKE`, standard deviation of the score between values of the setting."""
    p_alike: float | None = None
    """The same, that all values have one score."""


def jointly(
    parts: Sequence[Responses], *, confidence_level: float, intervals: Callable[..., Intervals]
) -> list[ScoreInterval]:
    """Return intervals of parts, exact ones where the default is for 0/1 scores [CP34]_.

    Parameters
    ----------
    parts
        Each with a model, task and metric of its own.
    confidence_level, intervals
        Of each part, and what gives the intervals at a level.
    """
    rows = intervals(parts, confidence_level=confidence_level)
    inexact = {_cell_of(row) for row in rows if row.method == DEFAULTS["binary"][0]}
    again = [part for part in parts if _cell_of(part) in inexact]
    exact = {
        _cell_of(row): row
        for row in intervals(again, confidence_level=confidence_level, method="clopper-pearson")
    }
    return [exact.get(_cell_of(row), row) for row in rows]


def _cell_of(r: Responses | ScoreInterval) -> tuple[str, str, str]:
    return r.model, r.task, r.metric


def slices(
    responses: ResponsesLike,
    *,
    by: str = "cluster",
    top: int | None = None,
    confidence_level: float = 0.95,
    intervals: Callable[..., Intervals] = intervals,
    rng: Rng = None,
) -> Results[SliceScore]:
    """Give the score on each slice of a task limits that hold for all its slices at once.

    Parameters
    ----------
    responses
        Scores of items, read with ``by=FIELD``: the field's value is the slice, and a list of tags
        puts an item into the slice of each tag. Of responses read without it, the clusters. Of a
        setting of the runs, its values are the slices, and another row is for values like these.
    by
        The field's name, which the results have. ``"FIELD:4"`` cuts a field of numbers into four
        slices at the quartiles of the task's items; equal numbers are in one slice.
    top
        Keep this many of the largest slices of a task; the rest is one slice.
    confidence_level
        Of all slices of a model on a task together.
    intervals
        As `evalstats_plugin.intervals`, perhaps with other defaults.
    rng
        Generator or seed of the permutations, which scores other than 0/1 need.

    Raises
    ------
    DesignError
        Where no item has the field, a task has more than 50 slices, or a field that is cut into
        quantiles has values that are not numbers.
    """
    check_confidence_level(confidence_level)
    listed, members, notes = sliced(responses, by, top)
    source = stream(rng, "permuted slices")
    rows: dict[tuple[int, str], SliceScore] = {}
    cells = grouped(range(len(listed)), lambda i: _cell_of(listed[i]))
    n_slices = [sum(len(members[j]) for j in cells[_cell_of(r)]) for r in listed]
    by_count = grouped(range(len(listed)), n_slices.__getitem__)
    for k, places in by_count.items():
        keys = [(i, name) for i in places for name in members[i]]
        # Each has a name of its own: rows are found by it, in whatever order they come.
        parts = [
            part_of(listed[i], members[i][name]).renamed(str(n)) for n, (i, name) in enumerate(keys)
        ]
        level = confidence_level ** (1 / k)
        found = {
            row.model: row for row in jointly(parts, confidence_level=level, intervals=intervals)
        }
        for n, (i, name) in enumerate(keys):
            own = replace(found[str(n)], model=listed[i].model, kind="slice",
                          confidence_level=confidence_level)  # fmt: skip
            rows[i, name] = extended(SliceScore, own, by=by, slice=name, n_slices=k, p_worse=None)
    shown: list[SliceScore] = []
    for places in cells.values():
        for i in places:
            r, p_worse = listed[i], np.full(len(members[i]), np.nan)
            if is_mean(r):
                lower, upper = tails(r.item_means, r.clusters, members[i], source)
                p_worse = holm(upper if r.higher_is_better is False else lower)
            shown += [
                replace(rows[i, name], p_worse=None if len(places) > 1 else finite(p))
                for name, p in zip(members[i], p_worse.tolist(), strict=True)
            ]
        runs = [listed[i] for i in places]
        if len(runs) > 1 and is_mean(runs[0]):
            together = at_all_values(runs)
            (row,) = intervals([together], confidence_level=confidence_level)
            alike = extended(SliceScore, replace(row, kind="slice"), by=by, slice=ALIKE,
                             n_slices=len(runs), p_worse=None)  # fmt: skip
            shown.append(
                _over_values(alike, answers_at_values(together, len(runs)), together.measure.scale)
            )
    return Results(tuple(shown), notes, rng if isinstance(rng, int) else None)


def _over_values(row: SliceScore, answers: FloatArray, scale: Scale | None) -> SliceScore:
    """Return a row of all values of a setting with limits for values like these."""
    middle, low, high = row.estimate, row.low, row.high
    if min(answers.shape) < 2 or middle is None or low is None or high is None:
        return row
    values = crossed(answers, row.std_error or 0.0)
    low, high = (values.widened(end - middle, row.confidence_level) for end in (low, high))
    low, high = (scale or UNLIMITED).clip(middle - low, middle + high)
    between, p_alike = values.std_between, values.p_alike
    return replace(row, low=low, high=high, std_error=None, std_between=between, p_alike=p_alike)


def at_all_values(runs: Sequence[Responses]) -> Responses:
    """Return the runs of a model at several values of a setting as epochs of one, in order."""
    (stacked,) = stack_epochs([
        replace(r, tags=None, groups=(), notes=(), source=replace(r.source, when="")) for r in runs
    ])  # fmt: skip
    return replace(stacked, notes=(f"mean of runs at {len(runs)} values",))


def answers_at_values(
    together: Responses, n_values: int, against: Responses | None = None
) -> FloatArray:
    """Return scores by item and value of a setting, or the differences of two models.

    Shape (M, P), of the items that were answered at every value; where items come in clusters one
    row for each cluster, and the mean over rows is that over items.

    Parameters
    ----------
    together, against
        As of `at_all_values`.
    """
    scores, clusters = _by_value(together, n_values), together.clusters
    if against is not None:
        ids = together.item_ids.astype(str), against.item_ids.astype(str)
        _, here, there = np.intersect1d(*ids, return_indices=True)
        scores = scores[here] - _by_value(against, n_values)[there]
        clusters = None if clusters is None else clusters[here]
    kept = np.isfinite(scores).all(axis=1)
    if clusters is None or not kept.any():
        return scores[kept]
    mean = scores[kept].mean()
    totals = by_cluster(scores[kept] - mean, clusters[kept], axis=0)
    return mean + totals * (len(totals) / kept.sum())


def _by_value(together: Responses, n_values: int) -> FloatArray:
    return mean_over_epochs(together.scores.reshape(len(together.item_ids), n_values, -1))


def extended(kind: type[Any], row: Any, **more: Any) -> Any:
    """Return a row as a record of a kind with more fields."""
    return kind(**{f.name: getattr(row, f.name) for f in fields(row)}, **more)


def sliced(
    responses: ResponsesLike, by: str, top: int | None
) -> tuple[list[Responses], list[Members], tuple[str, ...]]:
    """Return the responses that have slices, the items of each slice, and notes."""
    listed, notes = as_list(responses)
    field, n_quantiles = field_of_slices(by)
    tagged = any(r.tags is not None for r in listed)
    texts_of = [r.tags if tagged else r.clusters for r in listed]
    if n_quantiles is not None and not has_values(listed):
        texts_of = _in_quantiles(listed, texts_of, field, n_quantiles)
    kept: list[Responses] = []
    members: list[Members] = []
    without: list[str] = []
    n_none, overlap = 0, False
    for r, texts in zip(listed, texts_of, strict=True):
        if texts is None or not len(texts) or r.predicted is not None:
            without.append(r.task)
            continue
        tags = [_tags(text) for text in texts.tolist()]
        n_none = max(n_none, sum(NONE in own for own in tags))
        overlap |= any(len(own) > 1 for own in tags)
        kept.append(r if tagged else replace(r, clusters=None))
        members.append(_members(tags, by, r, top))
    if not kept:
        if not any(len(r.item_ids) for r in listed):
            raise DesignError("slices are of items, and these are values without items")
        raise DesignError(f"no item has the field {field!r}: name one that the logs have")
    if without:
        lacking = few(list(dict.fromkeys(without)))
        notes = (*notes, f"left out by slices, no item has {field!r} or a score: {lacking}")
    if n_none:
        notes = (*notes, f"{counted(n_none, 'item')} of a task without {field!r}: slice {NONE}")
    if overlap:
        notes = (*notes, f"an item belongs to each of its tags in {field!r}: slices overlap")
    if has_values(kept):
        order = sorted(range(len(kept)), key=lambda i: _in_order(next(iter(members[i]), "")))
        kept, members = [kept[i] for i in order], [members[i] for i in order]
    return kept, members, notes


def has_values(responses: Sequence[Responses]) -> bool:
    """Whether a model has several runs on a task, at the values of a setting."""
    return len({_cell_of(r) for r in responses}) < len(responses)


def _in_order(value: str) -> tuple[float, str]:
    """Return by what values of a setting are sorted: as numbers, and after these as texts."""
    try:
        return number_in(value), value
    except ValueError:
        return np.inf, value


def _in_quantiles(
    listed: Sequence[Responses], texts_of: Sequence[NDArray[Any] | None], field: str, n: int
) -> list[NDArray[Any] | None]:
    """Return in place of each item's number the part of the task, of n, that it is in.

    The parts end at quantiles of the task's items, whichever models answered them.
    """
    if not 2 <= n <= MOST_SLICES:
        raise DesignError(f"{field}:{n} asks for {n} slices: give 2 to {MOST_SLICES}")
    parts_of = list(texts_of)
    for task, places in grouped(range(len(listed)), lambda i: listed[i].task).items():
        of_items = {
            (item, text)
            for i in places if (texts := texts_of[i]) is not None
            for item, text in zip(listed[i].item_ids.tolist(), texts.tolist(), strict=True)
            if _tags(text) != (NONE,)
        }  # fmt: skip
        try:
            numbers = {text: number_in(text) for text in sorted({text for _, text in of_items})}
            if not all(map(isfinite, numbers.values())):
                raise ValueError
        except ValueError:
            msg = f"{field!r} of {task} has values that are no numbers, so it has no quantiles"
            raise DesignError(f"{msg}: --by {field} takes each value as a slice") from None
        if not of_items:
            continue
        values = np.array([numbers[text] for _, text in of_items])
        ends = np.quantile(values, np.arange(1, n) / n, method="inverted_cdf")
        part = {text: int(np.searchsorted(ends, value)) for text, value in numbers.items()}
        name = dict[str, str]()
        for in_part in grouped(part, part.__getitem__).values():
            within = [numbers[text] for text in in_part]
            label = f"{part[in_part[0]] + 1:0{len(str(n))}} of {n}"
            name |= dict.fromkeys(in_part, f"{label}: {min(within):g} to {max(within):g}")
        for i in places:
            if (texts := texts_of[i]) is not None:
                parts_of[i] = np.array([name.get(text, "") for text in texts.tolist()])
    return parts_of


def _tags(value: Any) -> tuple[str, ...]:
    """Return the slices of an item from the text of its field.

    >>> _tags('["algebra", "proof"]'), _tags("de"), _tags("(item 3)")
    (('algebra', 'proof'), ('de',), ('(none)',))
    """
    text = str(value)
    if NAMED_ALONE.fullmatch(text) or text in ("null", "", "[]"):
        return (NONE,)
    if text.startswith("["):
        try:
            found: Any = json.loads(text)
        except (ValueError, RecursionError):
            return (text,)
        names = [tag if isinstance(tag, str) else json.dumps(tag) for tag in found]
        return tuple(dict.fromkeys(name or NONE for name in names))
    return (text,)


def _members(tags: Sequence[tuple[str, ...]], by: str, r: Responses, top: int | None) -> Members:
    counts = Counter(tag for own in tags for tag in own)
    names = sorted(counts, key=lambda name: (name == NONE, name))
    if top is not None and len(names) > top:
        largest = {name for name, _ in counts.most_common(top)}
        names = [*(name for name in names if name in largest), OTHER]
        tags = [tuple({t if t in largest else OTHER for t in own}) for own in tags]
    if len(names) > MOST_SLICES:
        raise DesignError(
            f"{by!r} makes {len(names)} slices of {r.task}, and at most {MOST_SLICES} are "
            f"reported: keep the largest (--top 20), or name another field"
        )
    return {name: np.array([name in own for own in tags]) for name in names}


def part_of(r: Responses, kept: NDArray[np.bool_]) -> Responses:
    """Return the responses to some items, without what is known of all of them together."""
    return replace(
        r.of_items(kept), measure=replace(r.measure, population=None), provenance=Provenance(),
        tags=None, groups=(), logged=None, logged_std_error=None, logged_n=None,
    )  # fmt: skip


def slice_name(task: str, by: str, name: str) -> str:
    """Return a slice as a task of its own.

    >>> slice_name("gsm8k", "language", "de"), slice_name("gsm8k", "length:2", "1 of 2: 3 to 8")
    ('gsm8k, language de', 'gsm8k, length 1 of 2: 3 to 8')
    """
    return f"{task}, {field_of_slices(by)[0]} {name}"


def as_tasks(
    responses: ResponsesLike, by: str, top: int | None
) -> tuple[list[Responses], tuple[str, ...], bool]:
    """Return slices as tasks of their own, notes, and whether no item or cluster is in two slices.

    Slices of a single task go by their own names.
    """
    listed, members, notes = sliced(responses, by, top)
    several = len({r.task for r in listed}) > 1
    parts = [
        part_of(r, inside).measured(task=slice_name(r.task, by, name) if several else name)
        for r, own in zip(listed, members, strict=True)
        for name, inside in own.items()
    ]
    apart = all(map(_are_apart, listed, members)) and not has_values(listed)
    return parts, notes, apart


def _are_apart(r: Responses, members: Members) -> bool:
    units = r.item_ids if r.clusters is None else r.clusters
    return sum(len(np.unique(units[m])) for m in members.values()) == len(np.unique(units))


def is_mean(r: Responses) -> bool:
    """Whether the score is the mean of the items' scores, each counting alike."""
    return r.aggregation == "mean" and r.pairs is None and r.weights is None


def tails(
    values: FloatArray, clusters: NDArray[Any] | None, members: Members, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper tails of each slice under permutation, of whole clusters if they allow it."""
    there = np.isfinite(values)
    inside = np.array(list(members.values()))[:, there]
    x, sizes = values[there], np.ones(int(there.sum()))
    if clusters is not None and len(x):
        _, first, unit = np.unique(clusters[there], return_index=True, return_inverse=True)
        if (inside == inside[:, first][:, unit]).all():
            x = np.bincount(unit, x).astype(np.float64)
            sizes = np.bincount(unit).astype(np.float64)
            inside = inside[:, first]
    return permuted_slices(x, sizes, inside, rng=rng)

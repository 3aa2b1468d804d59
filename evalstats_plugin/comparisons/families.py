"""Families of comparisons: what is corrected together, and the limits that belong to it.

An analysis gives a `Table` for each task or group: every pair alone, and all of them at once.
`settle` corrects each table for the others of its family and makes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import special

from evalstats_plugin.comparisons.design import Compared, Request
from evalstats_plugin.comparisons.methods import ENGINE
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.methods import Family, Method
from evalstats_plugin.data.results import finite_values, records
from evalstats_plugin.errors import counted
from evalstats_plugin.stats import multiplicity, ranks
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.interval import Interval, normal_quantile
from evalstats_plugin.stats.pairs.differences import Counts, MeanDifferences, limits_of_all
from evalstats_plugin.stats.pairs.simultaneous import AllPairs

# Half-widths, in normal standard errors, at which an interval is looked at for its p-value.
_QUANTILES = np.concatenate([np.linspace(0.02, 4.0, 32), np.linspace(4.25, 7.0, 12)])

FEW_ITEMS = 100
"""Items up to which a note says what the data cannot show."""

MANY_PAIRS = 500
"""Pairs of a table beyond which these limits are left out: they take as long as all else."""

FEW_PAIRS = 10
"""Pairs of a table up to which each has that note."""


@dataclass(slots=True)
class PairEstimates:
    """What was computed of each pair alone, all of shape (P,)."""

    method: str
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    prob_higher: FloatArray
    difference: FloatArray
    alone: MeanDifferences | None = None
    """The distribution of the mean difference, where it is compared item by item."""


def estimates_of(alone: Sequence[MeanDifferences], confidence_level: float) -> list[PairEstimates]:
    """Return what the distributions of mean differences of each table say of each pair alone."""
    limits = limits_of_all(alone, [normal_quantile(confidence_level)] * len(alone))
    return [
        PairEstimates(ENGINE, low, high, pairs.p_value, pairs.prob_higher, pairs.estimate, pairs)
        for pairs, (low, high) in zip(alone, limits, strict=True)
    ]


class Whatever(NamedTuple):
    """What holds whatever the missing scores of some pairs would have been, each of shape (P,)."""

    low: FloatArray
    high: FloatArray
    p_values: FloatArray
    """Of the difference nearest to none, adjusted."""


class Each:
    """Every pair by its own interval, at Bonferroni's share of alpha; one pair as it is."""

    def __init__(self, p_values: FloatArray, interval: Callable[[float], Interval]) -> None:
        self._alone, self._interval = p_values, interval
        self._n = max(int((~np.isnan(p_values)).sum()), 1)

    @property
    def p_values(self) -> FloatArray:
        """Adjusted for all pairs of the table, shape (P,)."""
        return np.minimum(self._n * self._alone, 1.0)

    @property
    def procedure(self) -> str:
        """What was done, in words."""
        return "one pair" if self._n == 1 else "Bonferroni"

    def limits(self, alpha: float) -> Interval:
        """Return intervals that hold all differences at once with probability 1 - alpha."""
        return self._interval(1 - alpha / self._n)

    def step_down(self) -> FloatArray:
        """Return Holm's p-values."""
        return multiplicity.holm(self._alone)

    def first(self, alpha: float, *, lower_is_better: bool) -> BoolArray | None:
        """Return None: intervals of single pairs do not tell."""
        del alpha, lower_is_better


Judged: TypeAlias = "Each | AllPairs"
"""All pairs of a table at once: adjusted p-values, the limits that belong to them, who is first."""


@dataclass(eq=False, kw_only=True)
class Table:
    """Comparisons on one task or group, not yet corrected for other tables."""

    pairing: Compared
    estimates: PairEstimates
    """Of the pairs that were asked for, then those that are only corrected for."""
    judge: Callable[[], Judged]
    """Called only where all pairs are judged at once."""
    columns: dict[str, Sequence[Any]]
    """Further fields, with a value for each row."""
    same: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields, with one value for all rows."""
    whatever: Callable[[IntArray, int], Whatever] | None = None
    """Of some of the pairs that were asked for, among so many tests; None if no score is missing.
    """
    members: frozenset[tuple[str, str]] = frozenset()
    """Tasks of a group, or of the overall score, with their metrics."""
    apart: bool = False
    """A family of its own, whatever was asked for: one of two answers to one question."""

    @cached_property
    def judged(self) -> Judged:
        """All pairs of the table at once."""
        return self.judge()

    @property
    def null(self) -> float:
        """What is measured if two models are equal."""
        return 0.0 if self.same.get("effect", "difference") == "difference" else 1.0

    @property
    def n_pairs(self) -> int:
        """Number of pairs that are corrected for."""
        return len(self.estimates.difference)

    def names(self) -> list[frozenset[str]]:
        """Return the two models of each pair."""
        models, whole = self.pairing.models, self.pairing.family
        a: list[int] = whole.a.tolist()
        b: list[int] = whole.b.tolist()
        return [frozenset((models[i], models[j])) for i, j in zip(a, b, strict=True)]


@dataclass(frozen=True)
class Adjusted:
    """What is shown of a table."""

    p_values: FloatArray
    low: FloatArray
    high: FloatArray
    family: str
    procedure: str
    first: BoolArray | None = None
    z: float | None = None
    """Normal deviate of the limits; None where they are not of mean differences."""


def settle(tables: Sequence[Table], request: Request) -> list[Comparison]:
    """Correct all tables by their families, and make the rows in the order of the tables."""
    shown = adjusted(tables, request)
    together = request.correction in ("simultaneous", "stepdown")
    n_tests = sum(table.n_pairs for table in tables) if together else 1
    settled = [
        _with_missing(table, ends, request, n_tests)
        for table, ends in zip(tables, shown, strict=True)
    ]
    beyond = _of_one_more(tables, [each for each, _ in settled], request)
    return [
        row
        for table, both, limits in zip(tables, settled, beyond, strict=True)
        for row in _rows(table, *both, limits, request)
    ]


def _with_missing(
    table: Table, shown: Adjusted, request: Request, n_tests: int
) -> tuple[Adjusted, dict[str, Sequence[Any]]]:
    """What is shown, and further fields, where scores of a table are missing."""
    if table.whatever is None:
        return shown, {}
    n, alpha = len(table.pairing.a), 1 - request.confidence_level
    n_missing = np.asarray(table.columns["n_missing"])
    bounds = request.missing == "bounds"
    pairs = np.flatnonzero((n_missing > 0) & (bounds | (shown.p_values[:n] <= alpha)))
    whatever = table.whatever(pairs, n_tests)
    notes = list(table.columns["notes"])
    low, high, tipping = np.full((3, n), np.nan)
    low[pairs], high[pairs] = whatever.low, whatever.high
    holds = whatever.p_values > alpha
    for k, i in enumerate(pairs.tolist()):
        if bounds:
            notes[i] = (*notes[i], "limits hold whatever the missing scores would have been")
        elif holds[k]:
            own, adverse = (
                (shown.low[i], whatever.low[k])
                if table.estimates.difference[i] > 0
                else (shown.high[i], whatever.high[k])
            )
            tipping[i] = own / (own - adverse)
            notes[i] = (
                *notes[i],
                f"only if scores are missing at random: {whatever.low[k]:+z.3f} to "
                f"{whatever.high[k]:+z.3f} whatever they were; it falls if about "
                f"{100 * tipping[i]:.0f} % of them go against it",
            )
    if bounds:
        p_values, lows, highs = shown.p_values.copy(), shown.low.copy(), shown.high.copy()
        p_values[pairs], lows[pairs], highs[pairs] = whatever.p_values, whatever.low, whatever.high
        if request.correction == "bh":
            p_values = table.estimates.p_value.copy()
            p_values[pairs] = whatever.p_values
            p_values = multiplicity.benjamini_hochberg(p_values)
        shown = replace(shown, p_values=p_values, low=lows, high=highs, first=None)
    more: dict[str, Sequence[Any]] = {
        "notes": notes,
        "missing_low": finite_values(low),
        "missing_high": finite_values(high),
        "tipping_point": finite_values(tipping),
    }
    return shown, more


def adjusted(tables: Sequence[Table], request: Request) -> list[Adjusted]:
    """Correct all tables by their families."""
    if request.correction in ("none", "bh"):
        return [_alone(table, request) for table in tables]
    by_place: dict[int, _Tested] = {}
    for family in _families(tables, request.family):
        own = _tested([tables[i] for i in family.tables], family, request)
        by_place |= dict(zip(family.tables, own, strict=True))
    tested = [by_place[i] for i in range(len(tables))]
    every = [(table.judged, own.share) for table, own in zip(tables, tested, strict=True)]
    z = [None if isinstance(j, Each) else j.critical(share) * j.stretch for j, share in every]
    # Limits of counts are computed together.
    counts = {
        i: judged.pairs
        for i, (judged, _) in enumerate(every)
        if isinstance(judged, AllPairs) and isinstance(judged.pairs, Counts)
    }
    together = limits_of_all(list(counts.values()), [z[i] or 0.0 for i in counts])
    of_counts = dict(zip(counts, together, strict=True))
    limits = [
        of_counts[i] if i in of_counts else judged.limits(share)
        for i, (judged, share) in enumerate(every)
    ]
    return [_settled(*each, request) for each in zip(tables, tested, limits, z, strict=True)]


def _alone(table: Table, request: Request) -> Adjusted:
    estimates, z = table.estimates, normal_quantile(request.confidence_level)
    if request.correction == "none":
        return Adjusted(
            estimates.p_value, estimates.low, estimates.high, "1 pair", "each pair alone", z=z
        )
    p_values = multiplicity.benjamini_hochberg(estimates.p_value)
    name = f"{table.pairing.task}, {counted(table.n_pairs, 'pair')}"
    return Adjusted(p_values, estimates.low, estimates.high, name, "screened, each pair alone", z=z)


@dataclass(frozen=True)
class _Family:
    name: str
    tables: tuple[int, ...]
    group: int | None = None
    """The table that is the gate of the others."""


def _families(tables: Sequence[Table], how: str) -> list[_Family]:
    """Divide the tables into families; those of different metrics are never in one."""
    families: list[_Family] = []
    left = list(range(len(tables)))
    if how in ("auto", "group"):
        # The outermost groups first: they have the most tasks.
        for i in sorted(left, key=lambda i: -len(tables[i].members)):
            group = tables[i]
            if not group.members or group.apart or i not in left:
                continue
            inside = [j for j in left if j != i and is_within(tables[j], group)]
            name = f"{group.pairing.task}, {_size([tables[j] for j in inside] or [group])}"
            families.append(_Family(name, (i, *inside), group=i))
            left = [j for j in left if j != i and j not in inside]
    by_metric: dict[str, list[int]] = {}
    for i in left:
        metric = tables[i].pairing.metric.removesuffix(",none")
        alone = how in ("task", "group") or tables[i].apart
        by_metric.setdefault(f"{i}" if alone else metric, []).append(i)
    for metric, some in by_metric.items():
        if len(some) == 1:
            (only,) = (tables[i] for i in some)
            name = f"{only.pairing.task}, {counted(only.n_pairs, 'pair')}"
        else:
            name = f"{metric}, {_size([tables[i] for i in some])}"
        families.append(_Family(name, tuple(some)))
    return families


def is_within(table: Table, group: Table) -> bool:
    """Whether a task or group counts in a group, under the metric that it has there."""
    own = {(table.pairing.task, table.pairing.metric.removesuffix(",none"))}
    return table.null == group.null and (table.members or own) <= group.members


def _size(tables: Sequence[Table]) -> str:
    pairs = counted(max(table.n_pairs for table in tables), "pair")
    groups = sum(bool(table.members) for table in tables)
    parts = [counted(len(tables) - groups, "task")] if len(tables) > groups else []
    parts += [counted(groups, "group")] if groups else []
    return f"{' and '.join(parts)} × {pairs}"


class _Tested(NamedTuple):
    """P-values of a table, corrected for its family, and the alpha that its limits have."""

    p_values: FloatArray
    share: float
    family: str


def _tested(tables: Sequence[Table], family: _Family, request: Request) -> list[_Tested]:
    alpha = 1 - request.confidence_level
    step_down = request.correction == "stepdown"
    p_values = [t.judged.step_down() if step_down else t.judged.p_values for t in tables]
    if family.group is None or len(tables) == 1:
        shares = [_sidak(alpha, len(tables))] * len(tables)
        p_values = multiplicity.over_tasks(p_values) if len(tables) > 1 else p_values
    else:
        share = _sidak((1 - multiplicity.GROUP_WEIGHT) * alpha, len(tables) - 1)
        shares = [multiplicity.GROUP_WEIGHT * alpha] + [share] * (len(tables) - 1)
        of_group = dict(zip(tables[0].names(), p_values[0].tolist(), strict=True))
        inside: list[FloatArray] = []
        for table, own in zip(tables[1:], multiplicity.over_tasks(p_values[1:]), strict=True):
            gate = np.nan_to_num([of_group.get(n, 1.0) for n in table.names()], nan=1.0)
            inside.append(multiplicity.graph(gate, own[None])[1][0])
        p_values = [multiplicity.graph(p_values[0], p_values[0][None])[0], *inside]
    return [_Tested(*both, family.name) for both in zip(p_values, shares, strict=True)]


def _settled(
    table: Table, tested: _Tested, limits: Interval, z: float | None, request: Request
) -> Adjusted:
    null, alone = table.null, table.estimates
    # Never below what each pair says alone.
    p_values = np.where(np.isnan(alone.difference), np.nan, tested.p_values)
    p_values = np.where(np.isnan(alone.p_value), p_values, np.fmax(p_values, alone.p_value))
    significant, above = p_values <= 1 - request.confidence_level, alone.difference > null
    # Limits of the pair alone may be wider, for few units.
    low = np.where(alone.low < limits.low, alone.low, limits.low)
    high = np.where(alone.high > limits.high, alone.high, limits.high)
    # P-values by steps find a little more than limits at fixed shares of alpha: where they do, the
    # limit is put at no difference, which is not in the interval then.
    low = np.where(significant & above, np.maximum(low, null), low)
    high = np.where(significant & ~above, np.minimum(high, null), high)
    # Where limits alone would find more, they are extended.
    low = np.where(significant, low, np.minimum(low, null))
    high = np.where(significant, high, np.maximum(high, null))
    lower_is_better = table.pairing.higher_is_better is False
    first = table.judged.first(tested.share, lower_is_better=lower_is_better)
    return Adjusted(p_values, low, high, tested.family, table.judged.procedure, first, z)


def _sidak(alpha: float, n: int) -> float:
    return -float(np.expm1(np.log1p(-alpha) / n))


def _rows(
    table: Table,
    shown: Adjusted,
    more: dict[str, Sequence[Any]],
    beyond: dict[str, FloatArray],
    request: Request,
) -> list[Comparison]:
    pairing, estimates = table.pairing, table.estimates
    lower_is_better = pairing.higher_is_better is False
    prob, prior = _probabilities(table, request)
    of_pairs = {
        "difference": estimates.difference,
        "low": shown.low,
        "high": shown.high,
        "p_value": estimates.p_value,
        "p_adjusted": shown.p_values,
        "low_single": estimates.low,
        "high_single": estimates.high,
        "prob_better": 1 - prob if lower_is_better else prob,
    }
    first = _first(table, shown, 1 - request.confidence_level)
    n = len(pairing.a)
    of_pairs |= beyond
    notes = _with_what_cannot_be_shown(table, of_pairs, more.get("notes", table.columns["notes"]))
    models = np.asarray(pairing.models, dtype=object)
    every = {
        **table.columns,
        **more,
        "notes": notes,
        "model_a": models[pairing.a].tolist(),
        "model_b": models[pairing.b].tolist(),
        "a_may_be_first": [None] * n if first is None else first[pairing.a].tolist(),
        "b_may_be_first": [None] * n if first is None else first[pairing.b].tolist(),
        **{name: finite_values(values[:n]) for name, values in of_pairs.items()},
    }
    common = {
        "confidence_level": request.confidence_level,
        **table.same,
        "task": pairing.task,
        "metric": pairing.metric,
        "measure": pairing.measure,
        "method": estimates.method,
        "higher_is_better": pairing.higher_is_better,
        "prior": prior,
        "family": shown.family,
        "procedure": shown.procedure,
    }
    return records(Comparison, every, common)


def _of_one_more(
    tables: Sequence[Table], shown: Sequence[Adjusted], request: Request
) -> list[dict[str, FloatArray]]:
    """Limits of each table that allow for one more item, of all compared item by item."""
    columns = [dict[str, FloatArray]() for _ in tables]
    distributions = [
        (i, table.estimates.alone, of_table.z)
        for i, (table, of_table) in enumerate(zip(tables, shown, strict=True))
        if table.estimates.alone is not None and of_table.z is not None
    ]
    unseen = [
        each
        for each in distributions
        if np.isfinite(each[1].span) and tables[each[0]].n_pairs <= MANY_PAIRS
    ]
    guarded = distributions if request.baseline is not None else []
    for name, some in (("unseen", unseen), ("guarded", guarded)):
        if not some:
            continue
        where, pairs, z = zip(*some, strict=True)
        with_one_more = partial(MeanDifferences.one_more, unseen=name == "unseen")
        limits = limits_of_all(pairs, z, with_one_more)
        for i, (low, high) in zip(where, limits, strict=True):
            columns[i] |= {f"low_{name}": low, f"high_{name}": high}
    return columns


def _with_what_cannot_be_shown(
    table: Table, columns: Mapping[str, FloatArray], notes: Sequence[tuple[str, ...]]
) -> Sequence[tuple[str, ...]]:
    """Notes with the limits of one more item, where there are few."""
    low, high = columns.get("low_unseen"), columns.get("high_unseen")
    if low is None or high is None or len(notes) > FEW_PAIRS:
        return notes
    shown: list[tuple[str, ...]] = []
    for i, (own, n) in enumerate(zip(notes, table.columns["n_items"], strict=True)):
        few = n <= FEW_ITEMS and np.isfinite(low[i] + high[i])
        text = f"if one more item in {n + 1} had gone entirely against either: "
        shown.append((*own, f"{text}[{low[i]:+.3f}, {high[i]:+.3f}]") if few else own)
    return shown


def _probabilities(table: Table, request: Request) -> tuple[FloatArray, str]:
    """P(b higher) of each pair, and its prior in words."""
    estimates, whole = table.estimates, table.pairing.family
    n_models = len(np.union1d(whole.a, whole.b))
    if request.probabilities == "alone" or n_models < 3 or table.null:
        method = request.table.get(estimates.method)
        # A skewed distribution may have its median on the other side of 0 than its mean.
        other_side = (estimates.prob_higher - 0.5) * (estimates.difference - table.null) < 0
        prob = np.where(other_side, 0.5, estimates.prob_higher)
        return prob, "none" if method is None else prior_in_words(method)
    errors = ranks.errors_of(
        estimates.difference,
        estimates.prob_higher,
        (estimates.low, estimates.high),
        request.confidence_level,
    )
    prob = ranks.shrunk(estimates.difference, errors, n_models=n_models)
    return prob, f"shrunk over the differences of {counted(n_models, 'model')}"


_WEIGHTED: Mapping[Family, str] = {
    "paired": "each of: both right, a only, b only, neither",
    "confusion": "each of: both right, a only, b only, neither, by gold label",
    "paired-mean": "either side of the differences",
    "bounded": "each bound of the difference",
    "unpaired": "right and on wrong, of each model",
    "unpaired-bounded": "each bound, of each model",
}
"""What the prior of a family of methods gives weight to."""


def prior_in_words(method: Method) -> str:
    """Name the prior of a method; "none" where P(better) is a tail of a confidence distribution."""
    prior = method.mass if method.prior is None else method.prior
    weight = prior[0] if isinstance(prior, tuple) else prior
    if not isinstance(weight, float):
        return "none"
    size = {0.5: "½", 1.0: "1"}.get(weight, f"{weight:g}")
    return f"{size} on {_WEIGHTED[method.family]}"


def _first(table: Table, shown: Adjusted, alpha: float) -> BoolArray | None:
    """Models that may be the first; None unless all pairs were compared."""
    whole = table.pairing.family
    n = len(whole.models)
    if len(whole.a) != n * (n - 1) // 2:
        return None
    sign = -1 if whole.higher_is_better is False else 1
    ahead = sign * (table.estimates.difference - table.null)
    return may_be_first(whole, who_beats(whole, ahead, shown.p_values <= alpha), shown.first)


def who_beats(pairing: Compared, ahead: FloatArray, clear: BoolArray) -> BoolArray:
    """Whether each model beats each other, shape (N, N), from how far b leads and which are clear.

    `ahead` and `clear` have shape (P,).
    """
    n = len(pairing.models)
    beats = np.zeros((n, n), dtype=np.bool_)
    beats[pairing.b, pairing.a] = clear & (ahead > 0)
    beats[pairing.a, pairing.b] = clear & (ahead < 0)
    return beats


def may_be_first(pairing: Compared, beats: BoolArray, first: BoolArray | None) -> BoolArray:
    """Models that no other beats, shape (N,), and none leads by more than chance where known."""
    unbeaten: BoolArray = np.asarray(~beats.any(axis=0))
    if first is not None and len(first) == len(pairing.models):
        unbeaten &= first
    return unbeaten


def levels_looked_at(confidence_level: float) -> tuple[FloatArray, list[float]]:
    """Return quantiles and levels of the intervals that p-values are found from, by size."""
    asked = -float(special.ndtri((1 - confidence_level) / 2))
    quantiles = np.unique(np.append(_QUANTILES, asked))
    levels = np.where(quantiles == asked, confidence_level, 1 - 2 * special.ndtr(-quantiles))
    return quantiles, levels.tolist()


def p_of_limits(
    interval: Callable[[float], Interval], confidence_level: float, *, null: float = 0.0
) -> FloatArray:
    """P-values of intervals: 1 less the highest level at which each leaves out `null`.

    At most 1 - `confidence_level` exactly where the interval of that level leaves it out; between
    the levels at which they are looked at, limits are linear in normal standard errors.
    """
    quantiles, levels = levels_looked_at(confidence_level)

    @cache
    def gap_at(k: int) -> FloatArray:
        low, high = interval(levels[k])
        return np.maximum(low - null, null - high)

    first, n = levels.index(confidence_level), len(levels)
    # By bisection: an interval of a higher level holds those of lower ones.
    at = np.full(len(gap_at(first)), first)
    out, inside = np.full_like(at, -1), np.full_like(at, n)
    of_out, of_inside = np.full((2, len(at)), np.nan)
    while (apart := inside - out > 1).any():
        for k in np.unique(at[apart]).tolist():
            gap, here = gap_at(k), apart & (at == k)
            is_out, holds = here & (gap > 0), here & ~(gap > 0)
            out[is_out] = inside[holds] = k
            of_out[is_out], of_inside[holds] = gap[is_out], gap[holds]
        at = (out + inside) // 2
    with np.errstate(invalid="ignore", divide="ignore"):
        share = of_out / (of_out - of_inside)
    step = quantiles[np.minimum(inside, n - 1)] - quantiles[out]
    p = np.where(out >= 0, 2 * special.ndtr(-(quantiles[out] + np.nan_to_num(share * step))), 1.0)
    return np.where(np.isnan(gap_at(first)), np.nan, p)


def prob_of_p(p_values: FloatArray, difference: FloatArray, null: float = 0.0) -> FloatArray:
    """P(b is higher) by the distribution that the limits are quantiles of, from its p-values."""
    tail = p_values / 2
    return np.where(difference > null, 1 - tail, np.where(difference < null, tail, 0.5))

"""Compare models: `compare` chooses the analysis of a design and prepares its arguments.

The designs are in `DESIGNS`; `same_items`, the paired one, brings together metrics that are means
(`paired`), metrics that are not (`metrics`), groups of tasks (`tasks`), and models that share no
item of a task (`unpaired`). `sequential` are confidence sequences, valid at every look while items
come in. `compare_slices` compares by slices of a task (`scores.slices`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from evalstats_plugin.comparisons.design import (
    Correction,
    Family,
    Pairing,
    Probabilities,
    Request,
    check_baseline,
    comparison_stream,
    is_chosen_from_data,
    latest_cells,
    pairings,
    refuse_best,
)
from evalstats_plugin.comparisons.families import Each, PairEstimates, Table, settle
from evalstats_plugin.comparisons.methods import COMPARISONS, PAIRED, UNPAIRED, with_prior
from evalstats_plugin.comparisons.metrics import compare_composite
from evalstats_plugin.comparisons.paired import paired
from evalstats_plugin.comparisons.rows import SEQUENTIAL, Comparison, Comparisons, SliceComparison
from evalstats_plugin.comparisons.stored import stored_comparisons
from evalstats_plugin.comparisons.tasks import (
    across_tasks,
    group_comparisons,
    mark_parts,
    overall_comparisons,
)
from evalstats_plugin.comparisons.unpaired import predicted, unpaired
from evalstats_plugin.data.inputs import ResponsesLike, as_list, under
from evalstats_plugin.data.measure import Measures
from evalstats_plugin.data.methods import Method, table_of
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import Results, finite, grouped
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import DesignError, check_known, counted, few
from evalstats_plugin.runtime.memory import check_memory
from evalstats_plugin.scores.cells import (
    RATIOS,
    Missing,
    by_task,
    check_confidence_level,
    task_and_metric,
)
from evalstats_plugin.scores.slices import (
    ALIKE,
    Members,
    answers_at_values,
    at_all_values,
    extended,
    has_values,
    is_mean,
    part_of,
    sliced,
    tails,
)
from evalstats_plugin.stats import sequential as stats_sequential
from evalstats_plugin.stats.arrays import FloatArray, Rng
from evalstats_plugin.stats.clustered import crossed
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.multiplicity import holm
from evalstats_plugin.stats.pairs.paired import paired_counts
from evalstats_plugin.stats.streams import stream

Design = Literal["paired", "unpaired", "tasks", "sequential"]

Analysis: TypeAlias = Callable[[Sequence[Any], Request], tuple[list[Table], list[str]]]
"""Of responses, or of their cells."""

NO_ITEM_IN_COMMON = "no two models share an item here: treated as independent samples"

VALID = (
    "stays valid however often you look and whenever you stop; items must come in random order, "
    "but the result does not depend on which came first"
)

_PAIR_BYTES = 900
"""Memory of one pair, measured: its record, and its numbers while they are computed."""


def same_items(responses: Sequence[Responses], request: Request) -> tuple[list[Table], list[str]]:
    """Compare models item by item, on tasks and groups, under metrics that are means and others.

    Models that share no item of a task are compared as independent samples there, and the rows say
    so, if they share items of another. Return also notes on what was left out.

    Raises
    ------
    DesignError
        No two models share an item of any task.
    """
    composite = [r for r in responses if r.pairs is not None or r.aggregation in RATIOS]
    means = [r for r in responses if r.pairs is None and r.aggregation not in RATIOS]
    disjoint = {place for place, group in by_task(means).items() if _share_nothing(group)}
    together = [r for r in means if task_and_metric(r) not in disjoint]
    by_sample = [r for r in means if task_and_metric(r) in disjoint]
    cells = latest_cells(together)
    published = any(map(_has_error_only, by_sample))
    if by_sample and not together and not composite and not published:
        raise DesignError(
            "no two models share an item of any task, and this design compares item by item: check "
            "that equal questions have equal ids, or take design unpaired, which treats items as "
            "independent samples"
        )
    tables, notes = compare_composite(composite, request)
    own = {method.name: with_prior(method, request.prior) for method in UNPAIRED}
    tables_of_samples, left_out = _as_far_as_possible(
        unpaired,
        by_sample,
        replace(request, method="auto", table=own),
        needed=bool(by_sample) and not (together or tables),
    )
    if bare := [f"{r.model} on {r.task}" for r in together if _has_error_only(r)]:
        why = "without scores of items (design unpaired takes them)"
        notes.append(f"not compared item by item, {why}: {few(bare)}")
    of_items = {(r.task, r.metric) for r in by_sample if len(r.item_ids)}
    for table in tables_of_samples:
        if (table.pairing.task, table.pairing.metric) in of_items:
            notes_of_rows = table.columns["notes"]
            table.columns["notes"] = [(*own, NO_ITEM_IN_COMMON) for own in notes_of_rows]
    tables += tables_of_samples
    notes += left_out
    if together or not tables:
        tables_of_samples, left_out = _as_far_as_possible(
            paired, cells or latest_cells(responses), request, needed=not tables
        )
        tables += tables_of_samples
        notes += left_out
    if any(r.groups for r in means):
        tables += group_comparisons(means, request)
    overall: list[Table] = []
    if request.overall:
        overall, left_out = overall_comparisons([*cells, *latest_cells(by_sample)], request)
        notes += left_out
    if by_sample or composite:
        # In the order of the logs, groups last.
        keys = dict.fromkeys((r.task, r.metric) for r in responses)
        place = {key: i for i, key in enumerate(keys)}
        tables.sort(key=lambda t: place.get((t.pairing.task, t.pairing.metric), len(place)))
    tables = [*overall, *tables]
    mark_parts(tables)
    return tables, notes


def sequential(responses: Sequence[Responses], request: Request) -> tuple[list[Table], list[str]]:
    """Compare models item by item, valid at every look; return also notes on what was left out.

    The interval is a confidence sequence, and the p-value one over the wealth of a bettor against
    no difference. Both hold at all looks together, so that one may stop as soon as the answer is
    clear. They only need bounds of the scores.

    Raises
    ------
    DesignError
        For a method that holds for a number of items fixed beforehand.
    """
    if request.method not in ("auto", SEQUENTIAL):
        raise DesignError(
            f"method {request.method!r} holds for a number of items fixed beforehand; a sequential "
            f"comparison has one method, {SEQUENTIAL!r}: leave method at 'auto'"
        )
    refuse_best(request, responses)
    pairs, left_out = pairings(latest_cells(responses), request.baseline)
    return [_sequential_table(pairing, request) for pairing in pairs], left_out


def _sequential_table(pairing: Pairing, request: Request) -> Table:
    differences, n_items = pairing.differences(), pairing.n_items
    shown, p_value = _sequential_solve(pairing, differences, request.confidence_level)
    total = np.nansum(differences, axis=1)
    unknown = np.full(len(total), np.nan)
    mean = total / np.where(n_items > 0, n_items, np.nan)
    estimates = PairEstimates(SEQUENTIAL, shown.low, shown.high, p_value, unknown, mean)

    def interval(level: float) -> Interval:
        return _sequential_solve(pairing, differences, level)[0]

    return Table(
        pairing=pairing,
        estimates=estimates,
        judge=lambda: Each(p_value, interval),
        columns={"n_items": n_items.tolist(), "notes": _sequential_notes(pairing)},
    )


def _sequential_solve(
    pairing: Pairing, differences: FloatArray, confidence_level: float
) -> tuple[Interval, FloatArray]:
    """Interval and p-value of every pair; NaN without bounds or common items."""
    if pairing.kind == "binary":
        counts = paired_counts(
            0,
            (differences < 0).sum(axis=1),
            (differences > 0).sum(axis=1),
            (differences == 0).sum(axis=1),
        )
        interval = stats_sequential.paired_mixture(counts, confidence_level=confidence_level)
        return interval, stats_sequential.paired_p_value(counts)
    if pairing.bounds is None:
        nothing = np.full(len(differences), np.nan)
        return Interval(nothing, nothing), nothing
    interval = stats_sequential.betting_mixture(
        differences, bounds=pairing.span, confidence_level=confidence_level
    )
    return interval, stats_sequential.p_value(differences, bounds=pairing.span, mean=0.0)


def _sequential_notes(pairing: Pairing) -> list[tuple[str, ...]]:
    common = pairing.notes
    if pairing.clusters is not None:
        n_clusters = len(np.unique(pairing.clusters))
        common = (*common, f"{SEQUENTIAL} treats items in {n_clusters} clusters as independent")
    last = (
        "no interval: it needs the scores' bounds, pass --bounds METRIC=LOW,HIGH"
        if pairing.bounds is None
        else VALID
    )
    notes: list[tuple[str, ...]] = []
    for n, n_either in zip(pairing.n_items.tolist(), pairing.n_either.tolist(), strict=True):
        missing = n_either - n
        lacking = f"{missing} of {n_either} items lack one model's score: left out"
        own = (lacking,) if missing else ()
        notes.append((*common, *own, last if n else "the two models share no item"))
    return notes


DESIGNS: Mapping[Design, tuple[Analysis, Sequence[Method]]] = MappingProxyType(
    {
        "paired": (same_items, PAIRED),
        "unpaired": (unpaired, UNPAIRED),
        "tasks": (across_tasks, COMPARISONS),
        "sequential": (sequential, COMPARISONS),
    }
)
"""Analysis of each design of a comparison, and the methods that it can use."""


def compare(
    responses: ResponsesLike,
    *,
    design: Design = "paired",
    baseline: str | None = None,
    confidence_level: float = 0.95,
    method: str | Method = "auto",
    correction: Correction = "simultaneous",
    family: Family = "auto",
    measure: Measures = None,
    missing: Missing = "drop",
    prior: float | None = None,
    probabilities: Probabilities = "alone",
    overall: bool = True,
    rng: Rng = None,
) -> Comparisons:
    """Compare models: every two of them, or each with a baseline.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, a store (which is read in blocks, and takes
        design ``"paired"`` alone), or any `Responses`. Items are paired by id, and an id must stand
        for the same question on both sides. Epochs are averaged first.
    design
        ``"paired"``: the same items, item by item; models that share no item of a task are taken
        as independent there, and the rows say so. ``"unpaired"``: all as independent samples.
        ``"tasks"``: over all tasks of a metric, which count as drawn from many such.
        ``"sequential"``: item by item, valid however often one looks while items come in.
    baseline
        Model with which the others are compared. Without it, every two models are. ``"best"``
        is the best model of each task, chosen from the data: corrected over all pairs.
    confidence_level
        Between 0 and 1.
    method
        Of the interval: a name from the table of methods for comparisons. It is used wherever it
        fits the scores; where it does not the default is, and each row says what ran.
    correction
        Over the pairs of one family. ``"simultaneous"``: limits and p-values that hold for all
        pairs at once, and agree. ``"stepdown"``: finds a little more; where only the p-value does,
        the limit is put at 0. ``"bh"``: p-values against a large share of false findings, to screen
        many pairs; ``"none"``: each pair alone. These two show limits of each pair alone.
    family
        What is corrected together. ``"auto"``: each group that the harness scores with its tasks,
        and all tasks of a metric that are in no group; ``"task"``: each task by itself;
        ``"group"``: groups with their tasks, other tasks by themselves; ``"run"``: everything of a
        metric. Each row names its family.
    measure
        What you know of the scores, such as their scale, as for `intervals`.
    missing
        Items that a model ran and has no score of, in the paired design. ``"drop"``: the pair is
        compared on the others; where a verdict would fall with other scores of those items, a note
        has the limits and says how many must go against it. ``"bounds"``: limits, p-values and
        verdicts hold whatever the scores would have been. ``"zero"``: the worst possible score.
        A matrix does not say which items were not run: with ``"drop"`` none of it is missing.
    prior
        Weight of each outcome before any item is seen, of all methods that have a prior: ½,
        Jeffreys', unless given; 1 is the uniform one. Each row names its prior.
    probabilities
        P(better) of each pair ``"alone"``, or ``"shrunk"`` over all pairs of a table: where models
        are nearly alike the one that looks better is in part the luckier. A single pair is always
        looked at alone.
    overall
        In the paired design also compare by the mean of all tasks on one scale, which are fixed
        (each counts the same, a group that is scored being one), and, of three tasks or more, take
        them as a random sample: "tasks like these". Each of the two is a family of its own.
    rng
        Generator or seed, for methods that draw: bootstraps, and metrics that are not means.

    Notes
    -----
    Interval, p-value and P(better) of a pair are of one distribution of its mean difference over
    items, or over whole clusters where items come in clusters: `stats.pairs.differences`. It needs
    no seed. Two pairs or more share one critical value besides: `stats.pairs.simultaneous`, of one
    stream of draws whose error each row names. A method that is named is used alone, by Bonferroni.
    Where a log does not say which scores are better, the higher are taken to be. Metrics that
    are not means of items (F1, BLEU, perplexity) are compared by what their items add up to.

    Raises
    ------
    DesignError
        For a confidence level outside (0, 1), where no two models share an item, or for
        more pairs than fit into memory.
    ItemConflictError
        If an item id is one question for one model and another for the other.
    SelectionError
        For a design, baseline, method or correction that does not exist, or none for a store.
    """
    check_known("design", design, DESIGNS)
    analysis, own = DESIGNS[design]
    extra = [method] if isinstance(method, Method) and method not in own else []
    request = Request(
        baseline=baseline,
        confidence_level=confidence_level,
        method=method.name if isinstance(method, Method) else method,
        table={name: with_prior(m, prior) for name, m in table_of(extra, own).items()},
        correction=correction,
        family=family,
        rng=comparison_stream(rng),
        missing=missing,
        prior=prior,
        probabilities=probabilities,
        overall=overall,
    )
    if missing != "drop" and (design != "paired" or isinstance(responses, ResponseStore)):
        raise DesignError(
            "missing scores can be bounded, or count as zero, in the paired design of responses in "
            "memory alone: leave the rule at 'drop'"
        )
    seed = rng if isinstance(rng, int) else None
    if isinstance(responses, ResponseStore):
        notes = responses.notes
        tables, left_out = stored_comparisons(under(responses, measure), design, request)
    else:
        listed, notes = as_list(responses, measure)
        listed = _in_one_order(listed)
        check_baseline(baseline, [r.model for r in listed])
        _check_size(listed, design, baseline)
        tables, left_out = _with_adaptive(analysis, design, listed, request)
    return Comparisons(tuple(settle(tables, request)), (*notes, *left_out), seed)


def compare_slices(
    responses: ResponsesLike,
    *,
    by: str = "cluster",
    top: int | None = None,
    confidence_level: float = 0.95,
    how: Callable[..., Results[Comparison]] = compare,
    rng: Rng = None,
) -> Results[SliceComparison]:
    """Compare models on each slice of a task: all slices and pairs of the task are one family.

    Parameters are those of `slices`; `how` is `compare`, perhaps with other
    defaults. `p_interaction` says whether a difference is another one on a slice than elsewhere.

    Raises
    ------
    DesignError
        As of `slices`; or no two models share an item of a slice.
    """
    check_confidence_level(confidence_level)
    listed, members, notes = sliced(responses, by, top)
    source = stream(rng, "permuted slices of differences")
    rows: list[SliceComparison] = []
    for (task, metric), places in grouped(
        range(len(listed)), lambda i: (listed[i].task, listed[i].metric)
    ).items():
        names = list(dict.fromkeys(name for i in places for name in members[i]))
        parts = [
            part_of(listed[i], members[i][name]).measured(task=str(names.index(name)))
            for i in places for name in members[i]
        ]  # fmt: skip
        try:
            slice_rows = how(
                parts, confidence_level=confidence_level, family="run", overall=False, rng=rng
            )
        except DesignError as error:
            notes = (*notes, f"{task} {metric} not compared by slices: {error}")
            continue
        runs = [listed[i] for i in places]
        by_setting = has_values(runs)
        p = {} if by_setting else _interactions(runs, [members[i] for i in places], source)
        for row in slice_rows:
            name = names[int(row.task)]
            pair = p.get((row.model_a, row.model_b)) or p.get((row.model_b, row.model_a), {})
            own = replace(row, task=task, kind="slice", measure=listed[places[0]].measure,
                          family=f"slices of {task} {metric} by {by}")  # fmt: skip
            rows.append(
                extended(SliceComparison, own, by=by, slice=name, p_interaction=pair.get(name))
            )
        if by_setting:
            across, why = _over_values(runs, by, partial(how, confidence_level=confidence_level,
                                                         rng=rng))  # fmt: skip
            rows += across
            notes = (*notes, *why)
    if not rows:
        raise DesignError("; ".join(notes) or "no two models share an item of a slice")
    return Results(tuple(rows), notes, rng if isinstance(rng, int) else None)


def _over_values(
    runs: Sequence[Responses], by: str, how: Callable[..., Results[Comparison]]
) -> tuple[list[SliceComparison], tuple[str, ...]]:
    """Compare models over values of a setting like those that all of them were run at, and notes.

    Of all pairs together: what values differ by is added to the limits at these values.
    """
    value = [str(r.tags[0]) if r.tags is not None else "" for r in runs]
    by_model = {
        model: {value[i]: runs[i] for i in places}
        for model, places in grouped(range(len(runs)), lambda i: runs[i].model).items()
    }
    common = [v for v in dict.fromkeys(value) if all(v in own for own in by_model.values())]
    first = runs[0]
    if len(common) < 2 or not all(map(is_mean, runs)):
        why = f"{first.task} {first.metric} not compared over values of {by}: the models share "
        return [], (f"{why}{counted(len(common), 'value')} with a mean",)
    at_all = {m: at_all_values([own[v] for v in common]) for m, own in by_model.items()}
    compared = how(list(at_all.values()), family="run", overall=False)
    rows: list[SliceComparison] = []
    for row in compared:
        answers = answers_at_values(at_all[row.model_b], len(common), at_all[row.model_a])
        if min(answers.shape) < 2 or row.difference is None or row.low is None or row.high is None:
            continue
        values = crossed(answers, row.std_error or 0.0)
        tests = row.confidence_level, len(compared)
        below, above = row.difference - row.low, row.high - row.difference
        own = replace(
            row, kind="slice", std_error=None,
            low=row.difference - values.widened(below, *tests),
            high=row.difference + values.widened(above, *tests), p_value=None,
            p_adjusted=values.p_value(below if row.difference > 0 else above, *tests),
            prob_better=abs((row.higher_is_better is False) - values.prob_positive),
            prior="at another value", low_single=None, high_single=None, low_unseen=None,
            high_unseen=None, low_guarded=None, high_guarded=None,
            procedure="Bonferroni over values", notes=(f"mean of runs at {len(common)} values",),
            family=f"pairs of {row.task} {row.metric} over values of {by}",
        )  # fmt: skip
        rows.append(
            extended(SliceComparison, own, by=by, slice=ALIKE, p_interaction=values.p_alike,
                     std_between=values.std_between)
        )  # fmt: skip
    return rows, ()


def _interactions(
    listed: Sequence[Responses], members: Sequence[Members], rng: np.random.Generator
) -> dict[tuple[str, str], dict[str, float | None]]:
    """Adjusted p-values of each pair of models and slice: whether their difference is another."""
    keys: list[tuple[tuple[str, str], str]] = []
    p_values: list[float] = []
    for (i, a), (j, b) in combinations(enumerate(listed), 2):
        if not is_mean(a):
            continue
        _, of_a, of_b = np.intersect1d(a.item_ids, b.item_ids, return_indices=True)
        both = {n: m[of_a] for n, m in members[i].items() if n in members[j] and m[of_a].any()}
        if not both:
            continue
        clusters = None if a.clusters is None else a.clusters[of_a]
        both_tails = tails(b.item_means[of_b] - a.item_means[of_a], clusters, both, rng)
        keys += [((a.model, b.model), name) for name in both]
        p_values += np.minimum(2 * np.minimum(*both_tails), 1.0).tolist()
    by_pair: dict[tuple[str, str], dict[str, float | None]] = {}
    for (pair, name), p in zip(keys, holm(p_values).tolist(), strict=True):
        by_pair.setdefault(pair, {})[name] = finite(p)
    return by_pair


def _in_one_order(responses: Sequence[Responses]) -> list[Responses]:
    """Return responses task by task, the models of each in the order in which they came first.

    So the two models of a pair stand in one order in every row: of a task, a group, or over all.
    """
    tasks, models = (
        {name: i for i, name in enumerate(dict.fromkeys(names))}
        for names in ((r.task for r in responses), (r.model for r in responses))
    )
    return sorted(responses, key=lambda r: (tasks[r.task], models[r.model]))


def _with_adaptive(
    analysis: Analysis, design: Design, responses: list[Responses], request: Request
) -> tuple[list[Table], list[str]]:
    """Run an analysis on plain runs, and compare adaptive tests by their predicted scores."""
    responses = one_of_each(responses) if any(r.predicted for r in responses) else responses
    plain = [r for r in responses if r.predicted is None]
    if len(plain) == len(responses):
        return analysis(responses, request)
    if design in ("tasks", "sequential"):
        models = few(list(dict.fromkeys(r.model for r in responses if r.predicted)))
        tables, notes = _as_far_as_possible(analysis, plain, request, needed=True)
        return tables, [*notes, f"adaptive tests have no scores of all items: {models}"]
    tested = {task_and_metric(r) for r in responses if r.predicted}
    own = [r for r in responses if task_and_metric(r) in tested]
    several = len({r.model for r in plain}) > 1
    by_bank, notes = _as_far_as_possible(predicted, own, request, needed=not several)
    if not several:
        return by_bank, notes
    tables, left_out = _as_far_as_possible(analysis, plain, request, needed=not by_bank)
    return [*by_bank, *tables], [*notes, *left_out]


def _check_size(responses: Sequence[Responses], design: Design, baseline: str | None) -> None:
    """Refuse more pairs than fit into memory."""
    models = Counter(place[:2] for place in {(r.task, r.metric, r.model) for r in responses})
    every_two = baseline is None or is_chosen_from_data(baseline, [r.model for r in responses])
    each = [n * (n - 1) // 2 if every_two else n - 1 for n in models.values()]
    # Over all tasks there is one comparison of two models.
    n_pairs = max(each, default=0) if design == "tasks" else sum(each)
    instead = "compare fewer models, as by --models (in Python: a selection of the responses)"
    check_memory(
        n_pairs * _PAIR_BYTES,
        f"{n_pairs:,} pairs of {max(models.values(), default=0):,} models",
        "name a baseline (--baseline; in Python: baseline=), or " * every_two + instead,
    )


def _share_nothing(group: Sequence[Responses]) -> bool:
    """Whether several models have items or counts, and every item is one model's alone."""
    with_items = [r for r in group if len(r.item_ids)]
    if len({r.model for r in with_items}) < 2:
        return any(_has_error_only(r) for r in group) and len({r.model for r in group}) > 1
    if np.array_equal(with_items[0].item_ids, with_items[-1].item_ids):
        # The usual case needs no look at all items.
        return False
    ids = np.concatenate([r.item_ids.astype(str) for r in with_items])
    return len(np.unique(ids)) == len(ids)


def _has_error_only(r: Responses) -> bool:
    """Whether there is a value with its number of items or its standard error, and no item."""
    no_item = not len(r.item_ids) and r.predicted is None
    return no_item and r.logged is not None and bool(r.logged_n or r.logged_std_error)


def _as_far_as_possible(
    analysis: Analysis, given: Sequence[Any], request: Request, *, needed: bool
) -> tuple[list[Table], list[str]]:
    """Run an analysis on a part of what was given; if not `needed`, an error becomes a note."""
    if not (given or needed):
        return [], []
    try:
        return analysis(given, request)
    except DesignError as error:
        if needed or type(error) is not DesignError:
            raise
        return [], [f"not compared: {error}"]

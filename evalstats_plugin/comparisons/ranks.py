"""Sets of possible ranks of models, with letters for models that cannot be distinguished.

`rank_sets` compares the models of each task and ranks them; `ranks_of` ranks the models of
comparisons that were made before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from evalstats_plugin.comparisons.compare import same_items
from evalstats_plugin.comparisons.design import (
    Compared,
    Correction,
    Family,
    Pairing,
    Pairs,
    Request,
    comparison_stream,
    latest_cells,
    pairings,
)
from evalstats_plugin.comparisons.families import (
    Adjusted,
    Table,
    adjusted,
    may_be_first,
    who_beats,
)
from evalstats_plugin.comparisons.paired import paired_tables
from evalstats_plugin.comparisons.rows import ColumnPairs, Comparison, RankSet, RankSets
from evalstats_plugin.comparisons.tasks import (
    NOT_ON_ALL,
    groups_by_blocks,
    overall_of_samples,
    overall_strata,
    overall_table,
)
from evalstats_plugin.comparisons.units import mean_differences
from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import records
from evalstats_plugin.errors import counted, few
from evalstats_plugin.scores.cells import Cell
from evalstats_plugin.stats import ranks as stats_ranks
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, Rng
from evalstats_plugin.stats.clustered import by_cluster
from evalstats_plugin.stats.pairs.differences import MeanDifferences

MOST_LETTERED = 200
"""Most models of one task that are given letters; more would be unreadable."""

MOST_STEPS = 5 * 10**9
"""Items of all pairs, compared one by one, in a quarter of an hour: the ranks of more are left out.
"""

N_DRAWS = 10_000
"""Posterior draws of all models' true scores, for the probability of being best."""


def rank_sets(
    responses: ResponsesLike,
    *,
    confidence_level: float = 0.95,
    correction: Correction = "simultaneous",
    family: Family = "auto",
    rng: Rng = None,
) -> RankSets:
    """Return the ranks each model may have on each task, given the sampling of items [MRS24]_.

    A model's best possible rank is one more than the number of models that are better beyond
    chance; its worst, the number of models less those that are worse beyond chance. All sets of the
    task contain the true ranks at once with the confidence level. Models that share a letter cannot
    be distinguished. These are the verdicts of `compare`. A model may be the first if no other
    leads it by more than chance, counting only that one model is [Hsu81]_. The probability of being
    the best is computed on the items that all models answered.

    Parameters
    ----------
    responses, confidence_level, correction, family, rng
        As for `compare`.
    """
    request = Request(
        confidence_level=confidence_level,
        correction=correction,
        family=family,
        rng=comparison_stream(rng),
    )
    listed, notes = as_list(responses)
    pairs, left_out = pairings(latest_cells(listed), None)
    tables = paired_tables(pairs, request)
    sets = [
        row
        for pairing, table, adjusted_table in zip(
            pairs, tables, adjusted(tables, request), strict=True
        )
        for row in _ranks(table, adjusted_table, request, *_prob_best(pairing, request.rng))
    ]
    seed = rng if isinstance(rng, int) else None
    return RankSets(tuple(sets), (*notes, *left_out), seed)


def ranks_with_groups(
    cells: Sequence[Cell], request: Request, overall: Sequence[Cell] = ()
) -> tuple[dict[tuple[str, str], list[RankSet]], list[ColumnPairs], list[str]]:
    """Rank the models of each task, of each group that has a score, and by the overall score.

    `overall` has the cells that the last is of. Ranks are by name and kind of a column. The
    verdicts are those of `compare`, whose single pairs are left out where they take most of
    its time. Return also the pairs behind the ranks, and notes on what was left out.
    """
    tables, left_out = same_items([c.responses for c in cells], replace(request, overall=False))
    if strata := overall_strata(overall, request):
        tables.append(overall_table(strata, request))
    elif table := overall_of_samples(overall, request):
        tables.append(table)
    elif overall:
        left_out.append(f"no ranks by the overall score: {NOT_ON_ALL}")
    of_samples: dict[str, dict[str, None]] = {}
    for table in tables:
        if not isinstance(table.pairing, Pairs):
            for note in table.columns["notes"][0]:
                of_samples.setdefault(note, {})[table.pairing.task] = None
    # What a score is the mean of is said where it is shown.
    said = {note: [*tasks] for note, tasks in of_samples.items() if " mean of " not in note}
    left_out += [f"{note} ({few(tasks)})" for note, tasks in said.items()]
    shown = adjusted(tables, request)
    by_column = {
        (table.pairing.task, table.same.get("kind", "task")): _ranks(table, adjusted_table, request)
        for table, adjusted_table in zip(tables, shown, strict=True)
    }
    pairs_of = [
        _pairs(table, adjusted_table, request)
        for table, adjusted_table in zip(tables, shown, strict=True)
    ]
    return by_column, pairs_of, left_out


def ranks_by_blocks(
    responses: Sequence[Responses],
    request: Request,
    overall: Sequence[Responses] = (),
    *,
    most_pairs: int,
) -> tuple[dict[tuple[str, str], list[RankSet]], list[str]]:
    """Rank very many models without a table of all their pairs, `most_pairs` at a time.

    A model beats another where its p-value is at most Bonferroni's share of 1 less the level, over
    all pairs of all columns: no draws of all pairs are taken, so that fewer are told apart than by
    `ranks_with_groups`. There are no letters. Return also notes on what was left out.
    """
    tasks, notes = pairings(latest_cells(responses), None, without_pairs=True)
    of_kind = {
        "task": [(pairing, partial(_of_pairs, pairing)) for pairing in tasks],
        "group": groups_by_blocks(responses, request),
        "overall": groups_by_blocks(overall, request),
    }
    columns = [(pairing, kind, of) for kind, own in of_kind.items() for pairing, of in own]
    sizes = [len(pairing.models) for pairing, _, _ in columns]
    n_tests = sum(n * (n - 1) // 2 for n in sizes)
    tail = (1 - request.confidence_level) / 2 / max(n_tests, 1)
    by_column: dict[tuple[str, str], list[RankSet]] = {}
    for (pairing, kind, of_pairs), n in zip(columns, sizes, strict=True):
        n_steps = n * (n - 1) // 2 * pairing.scores.shape[1]
        # Told apart by counts of items, pairs take as long whatever their number.
        is_counted = kind == "task" and pairing.kind == "binary" and pairing.clusters is None
        if n_steps > MOST_STEPS and not is_counted:
            notes.append(
                f"no ranks on {pairing.task}: {n:,} models on {pairing.scores.shape[1]:,} items "
                "would take hours. Choose fewer (--models; in Python, a selection)"
            )
            continue
        better, worse = _numbers_apart(pairing, of_pairs, tail, most_pairs)
        values: dict[str, Sequence[Any]] = {
            "model": pairing.models,
            "best_rank": (1 + better).tolist(),
            "worst_rank": (n - worse).tolist(),
            "letters": [""] * n,
            "may_be_first": (better == 0).tolist(),
            "prob_best": [None] * n,
        }
        about = {**_about(pairing, request.confidence_level), "n_models": n}
        by_column[pairing.task, kind] = records(RankSet, values, about)
    return by_column, notes


def _of_pairs(pairing: Pairing, a: IntArray, b: IntArray) -> MeanDifferences:
    return mean_differences(replace(pairing, a=a, b=b))


def _numbers_apart(
    pairing: Pairing,
    of_pairs: Callable[[IntArray, IntArray], MeanDifferences],
    tail: float,
    most_pairs: int,
) -> tuple[IntArray, IntArray]:
    """Return how many models are better than each, and how many are worse, shape (N,)."""
    n = len(pairing.models)
    sign = -1 if pairing.higher_is_better is False else 1
    size = -float(special.ndtri(tail))
    better, worse = np.zeros((2, n), dtype=np.int64)
    step = max(most_pairs // n, 1)
    for start in range(0, n - 1, step):
        rows = np.arange(start, min(start + step, n - 1))
        a = np.repeat(rows, n - 1 - rows)
        b = np.concatenate([np.arange(i + 1, n) for i in rows.tolist()])
        deviate = sign * np.nan_to_num(of_pairs(a, b).deviate)
        for ahead, behind, clear in ((b, a, deviate >= size), (a, b, deviate <= -size)):
            worse += np.bincount(ahead[clear], minlength=n)
            better += np.bincount(behind[clear], minlength=n)
    return better, worse


def _pairs(table: Table, shown: Adjusted, request: Request) -> ColumnPairs:
    pairing = table.pairing
    n = len(pairing.a)
    sign = -1 if pairing.higher_is_better is False else 1
    difference = table.estimates.difference[:n]
    clear = shown.p_values[:n] <= 1 - request.confidence_level
    ahead = np.where(clear, np.sign(sign * np.nan_to_num(difference)), 0)
    return ColumnPairs(
        task=pairing.task,
        kind=table.same.get("kind", "task"),
        models=tuple(pairing.models),
        a=pairing.a,
        b=pairing.b,
        n_items=np.asarray(table.columns["n_items"]),
        difference=difference,
        low=shown.low[:n],
        high=shown.high[:n],
        low_single=table.estimates.low[:n],
        high_single=table.estimates.high[:n],
        p_adjusted=shown.p_values[:n],
        verdict=ahead.astype(np.int64),
        independent=not isinstance(pairing, Pairs),
    )


def ranks_of(rows: Sequence[Comparison]) -> list[RankSet]:
    """Rank the models of one task under one metric, best first, from the rows of every two.

    Empty where some pairs are missing, as with a baseline.
    """
    models = list(dict.fromkeys(name for row in rows for name in (row.model_a, row.model_b)))
    n = len(models)
    if len(rows) != n * (n - 1) // 2:
        return []
    place = {model: i for i, model in enumerate(models)}
    a = np.array([place[row.model_a] for row in rows])
    b = np.array([place[row.model_b] for row in rows])
    verdicts = np.array([row.verdict for row in rows])
    beats = np.zeros((n, n), dtype=np.bool_)
    beats[b, a], beats[a, b] = verdicts == "better", verdicts == "worse"
    sign = -1 if rows[0].higher_is_better is False else 1
    ahead = np.zeros((n, n))
    ahead[b, a] = [sign * (row.difference or 0.0) for row in rows]
    first: BoolArray = np.asarray(~beats.any(axis=0))
    np.logical_and.at(first, a, [row.a_may_be_first is not False for row in rows])
    np.logical_and.at(first, b, [row.b_may_be_first is not False for row in rows])
    about = _about(rows[0], rows[0].confidence_level)
    sets = _sets(models, beats, ahead, first, about)
    return [sets[i] for i in _order(ahead)]


def _ranks(
    table: Table,
    shown: Adjusted,
    request: Request,
    prob: FloatArray | None = None,
    notes: tuple[str, ...] = (),
) -> list[RankSet]:
    """Rank the models of one table, every two of which were compared."""
    pairing = table.pairing
    n = len(pairing.models)
    sign = -1 if pairing.higher_is_better is False else 1
    ahead = sign * table.estimates.difference[: len(pairing.a)]
    clear = shown.p_values[: len(pairing.a)] <= 1 - request.confidence_level
    beats, leads = who_beats(pairing, ahead, clear), np.zeros((n, n))
    leads[pairing.b, pairing.a] = np.nan_to_num(ahead)
    first = may_be_first(pairing, beats, shown.first)
    about = {**_about(pairing, request.confidence_level), "notes": notes}
    return _sets(pairing.models, beats, leads, first, about, prob)


def _about(of: Compared | Comparison, confidence_level: float) -> dict[str, Any]:
    """Fields of all ranks on a task."""
    return {"task": of.task, "metric": of.metric, "confidence_level": confidence_level}


def _order(leads: FloatArray) -> list[int]:
    """Places of the models, the best first, by how far each leads the others in all."""
    return np.argsort((leads - leads.T).sum(axis=0), kind="stable").tolist()


def _sets(
    models: Sequence[str],
    beats: BoolArray,
    leads: FloatArray,
    first: BoolArray,
    about: Mapping[str, Any],
    prob: FloatArray | None = None,
) -> list[RankSet]:
    """Rank models by who beats whom, shape (N, N); letters go by the order of their leads."""
    n, letters = len(models), [""] * len(models)
    limits = stats_ranks.rank_limits(beats)
    if n <= MOST_LETTERED:
        order = _order(leads)
        differs = (beats | beats.T)[np.ix_(order, order)]
        for i, own in zip(
            order, stats_ranks.letters(stats_ranks.groups_alike(differs)), strict=True
        ):
            letters[i] = own
    columns: dict[str, Sequence[Any]] = {
        "model": models,
        "best_rank": limits.best.tolist(),
        "worst_rank": limits.worst.tolist(),
        "letters": letters,
        "may_be_first": first.tolist(),
        "prob_best": [None] * n if prob is None else prob.tolist(),
    }
    return records(RankSet, columns, {"n_models": n, **about})


def _prob_best(
    pairing: Pairing, rng: np.random.Generator
) -> tuple[FloatArray | None, tuple[str, ...]]:
    """P(best) on the items that all models answered, and notes on it."""
    scores = pairing.scores
    common = ~np.isnan(scores).any(axis=0)
    n_common, n_items = int(common.sum()), scores.shape[1]
    if n_common < 2:
        note = f"no P(best): of {counted(n_items, 'item')}, {n_common} were answered by all models"
        return None, (note,)
    notes = (f"P(best) from the {n_common} of {n_items} items that all models answered",)
    values = scores[:, common]
    low, high = pairing.bounds or (float(values.min()), float(values.max()))
    if pairing.clusters is not None:
        # Of each cluster the mean of all items, and what its sum deviates from it by.
        means = values.mean(axis=1, keepdims=True)
        rest = by_cluster(values - means, pairing.clusters[common])
        values = means + rest * (rest.shape[1] / n_common)
    sign = -1.0 if pairing.higher_is_better is False else 1.0
    prob = stats_ranks.prob_best(sign * values, spread=high - low, rng=rng, n_draws=N_DRAWS)
    return prob, notes if n_common < n_items else ()

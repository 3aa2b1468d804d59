"""Statistics of items: every model's answer to every item, and which items look wrong.

* `item_answers`: models by items, with item-rest correlations and flags, for people to look at
* `item_statistics`: difficulty, number of answers and outliers by item, for logs
* `item_outcomes`: whether a model won, lost or tied against a baseline on each item
* `items_of_two`: two models on each item, the most telling items first
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import joint
from evalstats_plugin.data.responses import Responses, mean_over_epochs
from evalstats_plugin.data.results import finite_values
from evalstats_plugin.data.runs import one_of_each, run_of
from evalstats_plugin.data.scales import settled
from evalstats_plugin.scores.cells import by_task, common_value, task_and_metric
from evalstats_plugin.scores.rows import ItemComparison, Outcome, OutcomeCounts
from evalstats_plugin.stats.arrays import FloatArray, steady

SIGNIFICANCE = 0.05
"""Level of the one-sided test for a negative item-rest correlation."""

ALL_RIGHT, ALL_WRONG, ALL_SAME = "all right", "all wrong", "all the same"
AGAINST_REST = "against the rest"
"""Flags of items."""

AGAINST = "against"
"""Name of the outcome against a baseline."""

_SAME = 1e-12
"""Mean scores this close are tied: means of epochs are rounded."""

PREFIX = "evalstats_"
"""Prefix of the name of every statistic, so that it is unique in a log."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ItemAnswers:
    """Answers of N models to the M items of one task under one metric."""

    task: str
    metric: str
    models: tuple[str, ...]
    """The best first, by `means`."""
    means: FloatArray
    """Shape (N,): mean score of each model, over the items that it has a score of."""
    item_ids: tuple[str, ...]
    scores: FloatArray
    """Shape (N, M): means over the epochs, NaN where an item has no score."""
    higher_is_better: bool | None
    item_means: FloatArray
    """Shape (M,): mean score of each item, over the models that have a score of it."""
    n_models: NDArray[np.int64]
    """Shape (M,): models that have a score of the item."""
    rest_correlation: FloatArray
    """Shape (M,): item-rest correlation, of the models' scores on the item with their means over
    the other items [LN68]_; NaN where either does not vary."""
    flags: tuple[str, ...]
    """Shape (M,): why an item should be looked at, or an empty string."""


def item_answers(responses: Iterable[Responses]) -> tuple[list[ItemAnswers], list[str]]:
    """Join every model's answers, task by task and metric by metric; return also notes.

    An item is flagged where all models are right, or all wrong: it tells none of them apart. It
    is flagged as against the rest where models that do well on the other items do badly on it,
    as when its key is wrong: the item-rest correlation is negative (one-sided t test at the level
    `SIGNIFICANCE`), and there are enough models to find that: at least 1 / `SIGNIFICANCE` ways to
    choose which of them did better on it.

    Parameters
    ----------
    responses
        What was read; responses whose value is not a mean of item scores are passed over.
    """
    latest: dict[tuple[str, str, str], Responses] = {}
    for r in sorted(settled(responses), key=run_of):
        if r.scores.size and r.aggregation == "mean" and np.isfinite(r.scores).any():
            latest[r.model, *task_and_metric(r)] = r
    answers: list[ItemAnswers] = []
    notes: list[str] = []
    for group in by_task(latest.values()).values():
        matrix = ResponseMatrix.join(group, on_conflict="drop")
        notes += matrix.notes
        if len(matrix.item_ids):
            answers.append(_answers(group, matrix))
    return answers, notes


def telling_items(answers: Sequence[ItemAnswers], most: int) -> dict[str, list[str]]:
    """Return the items whose texts are worth reading, by task: flagged ones, then surprises.

    Flagged are those that may be wrong. Surprising is an item on which the models' scores go least
    with those on the other items.
    """
    wanted = {AGAINST_REST: 0, ALL_WRONG: 1}
    order = [
        (wanted.get(flag, 2), float(r), k, j)
        for k, task_answers in enumerate(answers)
        for j, (flag, r) in enumerate(
            zip(task_answers.flags, task_answers.rest_correlation.tolist(), strict=True)
        )
        if flag in wanted or not np.isnan(r)
    ]
    order.sort(key=lambda place: tuple(-9.0 if np.isnan(x) else x for x in place))
    ids: dict[str, list[str]] = {}
    for _, _, k, j in order[:most]:
        ids.setdefault(answers[k].task, []).append(answers[k].item_ids[j])
    return ids


def _answers(group: Sequence[Responses], matrix: ResponseMatrix) -> ItemAnswers:
    scores = mean_over_epochs(matrix.scores)
    scores = np.where(np.isfinite(scores), scores, np.nan)
    higher = joint([r.measure for r in group]).higher_is_better
    totals, counts = np.nansum(scores, axis=1), (~np.isnan(scores)).sum(axis=1)
    means = steady(np.divide(totals, counts, out=np.full(len(counts), np.nan), where=counts > 0))
    order = np.argsort(means if higher is False else -means, kind="stable")
    scores = scores[order]
    scored = ~np.isnan(scores)
    n_models = scored.sum(axis=0)
    sums = np.nansum(scores, axis=0)
    correlation = rest_correlations(scores)
    low = np.where(scored, scores, np.inf).min(axis=0)
    high = np.where(scored, scores, -np.inf).max(axis=0)
    same = (n_models > 1) & (low == high)
    ends = common_value(r.bounds for r in group)
    if ends is None and np.isin(scores[scored], (0.0, 1.0)).all():
        ends = (0.0, 1.0)
    flags = np.full(scores.shape[1], "", dtype=object)
    flags[same] = ALL_SAME
    if ends is not None:
        worst, best = ends if higher is not False else ends[::-1]
        flags[same & (high == best)] = ALL_RIGHT
        flags[same & (high == worst)] = ALL_WRONG
    flags[against_rest(scores, correlation)] = AGAINST_REST
    return ItemAnswers(
        task=group[0].task,
        metric=group[0].metric,
        models=tuple(matrix.models[int(i)] for i in order),
        means=means[order],
        item_ids=tuple(matrix.item_ids.astype(str).tolist()),
        scores=scores,
        higher_is_better=higher,
        item_means=np.divide(sums, n_models, out=np.full(len(sums), np.nan), where=n_models > 0),
        n_models=n_models.astype(np.int64),
        rest_correlation=correlation,
        flags=tuple(flags.tolist()),
    )


def rest_correlations(scores: FloatArray) -> FloatArray:
    """Correlate each item with the mean of the models' other items, shape (M,) from (N, M).

    Over the models that have a score of the item and of another; NaN where either does not vary.
    """
    scored = ~np.isnan(scores)
    values = np.where(scored, scores, 0.0)
    others = scored.sum(axis=1, keepdims=True) - 1
    used = scored & (others > 0)
    rest = (values.sum(axis=1, keepdims=True) - values) / np.maximum(others, 1)
    n = np.maximum(used.sum(axis=0), 1)

    def centred(x: FloatArray) -> FloatArray:
        mean = np.where(used, x, 0.0).sum(axis=0) / n
        return np.where(used, x - mean, 0.0)

    item, other = centred(values), centred(rest)
    product = np.sqrt((item**2).sum(axis=0) * (other**2).sum(axis=0))
    # Rounding errors of equal scores are not variation.
    scale = n * np.abs(values).max(axis=0) * np.abs(rest).max(axis=0)
    varies = product > 1e-12 * scale
    together = (item * other).sum(axis=0)
    return np.divide(together, product, out=np.full(len(product), np.nan), where=varies)


def against_rest(scores: FloatArray, correlation: FloatArray) -> NDArray[np.bool_]:
    """Whether an item-rest correlation is negative beyond chance, shape (M,)."""
    from scipy.special import gammaln, stdtr

    scored = ~np.isnan(scores)
    n = scored.sum(axis=0)
    mean = np.where(scored, scores, 0.0).sum(axis=0) / np.maximum(n, 1)
    above = (scored & (scores > mean)).sum(axis=0)
    # With few models, or few of them right, a correlation of -1 is not unusual.
    parts = np.stack([n, above, n - above]) + 1.0
    log_factorials: FloatArray = np.asarray(gammaln(parts), dtype=np.float64)
    arrangements = log_factorials[0] - log_factorials[1] - log_factorials[2]
    enough = (arrangements >= -np.log(SIGNIFICANCE) - 1e-9) & ~np.isnan(correlation) & (n > 2)
    r = np.where(enough, np.clip(correlation, -1, 1), 0.0)
    freedom = np.maximum(n - 2, 1)
    t = r * np.sqrt(freedom / np.maximum(1 - r**2, 1e-300))
    p_values: FloatArray = np.asarray(stdtr(freedom, t), dtype=np.float64)
    return enough & (p_values <= SIGNIFICANCE)


def item_statistics(responses: Sequence[Responses]) -> dict[str, dict[str, float]]:
    """Return the classical statistics of each item of one task, by the item's id as text.

    ``evalstats_p`` is the item's mean score, with the same weight for every model however many
    epochs it has; ``evalstats_n`` the number of scored answers; ``evalstats_right`` the share of
    answers with the greatest possible score, where that is known and differs from the mean score;
    ``evalstats_z`` how many standard deviations of the items' means the item is from their
    mean. With several metrics each name contains the metric's: ``evalstats_match_p``.
    """
    by_item: dict[str, dict[str, float]] = {}
    for metric, start in prefixes(responses).items():
        ids, columns = _statistics([r for r in _averaged(responses) if r.metric == metric])
        for name, values in columns.items():
            for item, value in zip(ids, values.tolist(), strict=True):
                by_item.setdefault(item, {})[start + name] = value
    return by_item


def item_outcomes(
    responses: Iterable[Responses], baseline: Iterable[Responses]
) -> dict[str, dict[str, str]]:
    """Return by item whether a model won, lost or tied against the baseline, by the item's id.

    Under ``evalstats_against``, or with several metrics ``evalstats_match_against``. Mean scores
    over the epochs are compared; items that either has no score of are left out.

    Parameters
    ----------
    responses, baseline
        Of the model and of the baseline, on the same tasks.
    """
    mine, theirs = _averaged(tuple(responses)), _averaged(tuple(baseline))
    starts = prefixes(mine)
    by_item: dict[str, dict[str, str]] = {}
    for group in by_task([*mine, *theirs]).values():
        if len(group) != 2 or group[0].model == group[1].model:
            continue
        a, b = (
            dict(zip(r.item_ids.astype(str).tolist(), r.item_means.tolist(), strict=True))
            for r in group
        )
        sign = -1 if joint([r.measure for r in group]).higher_is_better is False else 1
        for item in a.keys() & b.keys():
            ahead = sign * (a[item] - b[item])
            if np.isfinite(ahead):
                name = f"{starts[group[0].metric]}{AGAINST}"
                outcome = "tied" if abs(ahead) < _SAME else "won" if ahead > 0 else "lost"
                by_item.setdefault(item, {})[name] = outcome
    return by_item


def items_of_two(
    responses: Iterable[Responses], a: str, b: str
) -> tuple[list[ItemComparison], list[OutcomeCounts], list[str]]:
    """Compare two models on each item that has a score of both; return also counts and notes.

    The largest difference comes first, in relation to the largest of its task. Among equals those
    come first on which the other models agree most: there one of the two stands alone, and the
    answer says most about it.

    Parameters
    ----------
    responses
        Of any models; those other than a and b say how hard an item is.
    """
    listed = one_of_each(list(responses))
    logs = {(r.model, *task_and_metric(r)): str(r.source.path) for r in listed}
    others = {
        (each.task, each.metric): _others(each)
        for each in item_answers(r for r in listed if r.model not in (a, b))[0]
    }
    ordered: list[tuple[tuple[float, float, int], ItemComparison]] = []
    counts: list[OutcomeCounts] = []
    answers, notes = item_answers(r for r in listed if r.model in (a, b))
    for each in (x for x in answers if len(x.models) == 2):
        of_a, of_b = each.scores[each.models.index(a)], each.scores[each.models.index(b)]
        differences = of_b - of_a
        differences[np.abs(differences) < _SAME] = 0.0
        shared_items = ~np.isnan(differences)
        if not shared_items.any():
            continue
        outcomes = _outcomes(
            of_a[shared_items], of_b[shared_items], higher=each.higher_is_better is not False
        )
        scale = np.abs(differences[shared_items]).max() or 1.0
        of_log = (each.task, each.metric.removesuffix(",none"))
        rest = others.get((each.task, each.metric), {})
        shared: list[int] = np.flatnonzero(shared_items).tolist()
        for place, (i, outcome) in enumerate(zip(shared, outcomes, strict=True)):
            item = each.item_ids[i]
            mean, spread = rest.get(item, (None, 0.0))
            row = ItemComparison(
                task=each.task, metric=each.metric, item=item, model_a=a, model_b=b,
                score_a=float(of_a[i]), score_b=float(of_b[i]), difference=float(differences[i]),
                outcome=outcome, others=mean,
                log_a=logs[a, *of_log], log_b=logs[b, *of_log],
            )  # fmt: skip
            # Tasks take turns.
            ordered.append(((-abs(row.difference) / float(scale), spread, place), row))
        names = _WHOLE if set(outcomes) <= {*_WHOLE} else _PARTIAL
        counts.append(
            OutcomeCounts(
                task=each.task,
                metric=each.metric,
                n_items=len(outcomes),
                difference=float(of_b[shared_items].mean() - of_a[shared_items].mean()),
                outcomes=tuple((name, outcomes.count(name)) for name in names),
            )
        )
    ordered.sort(key=lambda pair: pair[0])
    return [row for _, row in ordered], counts, notes


_WHOLE: tuple[Outcome, ...] = ("won", "lost", "both right", "neither")
_PARTIAL: tuple[Outcome, ...] = ("better", "worse", "same")


def _others(each: ItemAnswers) -> dict[str, tuple[float | None, float]]:
    """Return by item the mean of the models' scores, and how much they differ."""
    n = np.maximum(each.n_models, 1)
    squares = np.nansum((each.scores - each.item_means) ** 2, axis=0) / n
    means = finite_values(each.item_means)
    return dict(zip(each.item_ids, zip(means, np.sqrt(squares).tolist(), strict=True), strict=True))


def _outcomes(of_a: FloatArray, of_b: FloatArray, *, higher: bool) -> list[Outcome]:
    """Return b's outcome on each item, from scores of shape (M,)."""
    ahead = np.sign(of_b - of_a) if higher else np.sign(of_a - of_b)
    ahead[np.abs(of_b - of_a) < _SAME] = 0
    if not np.isin([of_a, of_b], (0, 1)).all():
        return ["better" if x > 0 else "worse" if x < 0 else "same" for x in ahead]
    right = of_b == (1 if higher else 0)
    tied: list[Outcome] = ["both right" if r else "neither" for r in right]
    return ["won" if x > 0 else "lost" if x < 0 else t for x, t in zip(ahead, tied, strict=True)]


def prefixes(responses: Sequence[Responses]) -> dict[str, str]:
    """Return the prefix of the statistics' names, for each metric that has item scores."""
    metrics = list(dict.fromkeys(r.metric for r in _averaged(responses)))
    return {m: PREFIX if len(metrics) == 1 else f"{PREFIX}{m}_" for m in metrics}


def _averaged(responses: Sequence[Responses]) -> list[Responses]:
    return [r for r in responses if len(r.item_ids) and r.aggregation == "mean"]


def _statistics(group: Sequence[Responses]) -> tuple[list[str], dict[str, NDArray[np.generic]]]:
    """Return the items that were scored, in order of appearance, and columns of statistics."""
    scored = [(r, np.isfinite(r.scores)) for r in group]
    every = np.concatenate([r.item_ids.astype(str) for r in group])
    names, first, place = np.unique(every, return_index=True, return_inverse=True)
    answers = np.concatenate([is_scored.sum(axis=1) for _, is_scored in scored])
    sums = np.concatenate(
        [np.where(is_scored, r.scores, 0.0).sum(axis=1) for r, is_scored in scored]
    )
    answered = answers > 0
    size = len(names)
    models = np.bincount(place[answered], minlength=size)
    means = np.bincount(place[answered], sums[answered] / answers[answered], minlength=size)
    n = np.bincount(place, answers, minlength=size).astype(np.int64)
    order = np.argsort(first)
    order = order[n[order] > 0]
    p = means[order] / models[order]
    columns: dict[str, NDArray[np.generic]] = {"p": p, "n": n[order]}
    greatest = {r.bounds[1] if r.bounds else None for r in group}
    if len(greatest) == 1 and (top := greatest.pop()) is not None:
        full = np.concatenate(
            [((r.scores >= top) & is_scored).sum(axis=1) for r, is_scored in scored]
        )
        right = np.bincount(place, full, minlength=size)[order] / n[order]
        columns |= {} if np.array_equal(right, p) else {"right": right}
    if len(p) and p.std() > 0:
        columns["z"] = (p - p.mean()) / p.std()
    return names[order].tolist(), columns

"""How much a score moves when nothing changes: items, repeats and runs of one model taken apart.

An answer's variance has three parts: between items, between repeats of an item in one run, and
between runs of an item (another day or server). Two runs on the same items differ by the last two
alone, so that their difference has a variance of its own, smaller than that of two samples of
items. Where several judges scored the same answers, a fourth part is between judges of an answer;
the score is then the judges' mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.matrix import stack_epochs
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import Results, finite, grouped
from evalstats_plugin.data.runs import of_metric, run_of, undated, without_copies
from evalstats_plugin.errors import DesignError, SelectionError, counted, few
from evalstats_plugin.scores.epochs import variance_parts
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.clustered import epoch_noise
from evalstats_plugin.stats.interval import tail_probability
from evalstats_plugin.stats.means import moments, t_quantile

special: Any = import_module("scipy.special")
"""SciPy says little of the types of its functions."""

SHIFTED = 0.05
"""P-value up to which a note says that runs differ by more than their answers."""

_SAME = 1e-9
"""Scores that differ by no more are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRow:
    """How much one model's score on one task moves from run to run.

    Shares are of the variance of a single answer; None where the logs cannot tell.
    """

    shown: ClassVar[tuple[str, ...]] = (
        "model", "task", "metric", "n_items", "n_runs", "n_repeats", "estimate",
        "least_difference", "share_flipped", "std_error", "std_error_more_repeats",
        "std_error_more_items",
    )  # fmt: skip

    model: str
    task: str
    metric: str
    n_items: int
    """Items that every run answered."""
    n_runs: int
    n_repeats: int
    """Answers to an item in one run."""
    estimate: float | None
    share_items: float | None
    share_repeats: float | None
    """Chance in one run; with one answer in each run, together with what runs differ by."""
    share_runs: float | None
    share_judges: float | None
    """By which judge scored the answer; None for one judge."""
    run_std: float | None
    """Standard deviation of a run's score on the same items."""
    least_difference: float | None
    """Difference of two runs of the same model that chance reaches with probability 1 - level;
    None where no answer changed."""
    share_flipped: float | None
    """Probability that two answers to an item have different scores."""
    shift_p_value: float | None
    """Of runs with one mean, given how their items vary; None for one run."""
    std_error: float | None
    """Of the score as one of a sample of items, all answers taken together."""
    std_error_more_repeats: float | None
    """With twice as many answers to each item."""
    std_error_more_items: float | None
    """With twice as many items."""
    confidence_level: float
    notes: tuple[str, ...] = ()

    @property
    def buy(self) -> str:
        """``"repeats"`` where they gain as much as items, to a twentieth, else ``"items"``."""
        repeats, items = self.std_error_more_repeats, self.std_error_more_items
        return "repeats" if repeats and items and repeats <= 1.05 * items else "items"


def noise(
    responses: ResponsesLike, *, judges: Sequence[str] = (), confidence_level: float = 0.95
) -> Results[NoiseRow]:
    """Say by how much two runs of the same model differ, and what more items or repeats gain.

    Parameters
    ----------
    responses
        Means of item scores, with several epochs, or several runs of one model on one task, which
        ``read(..., runs="all")`` keeps apart.
    judges
        Metrics of two judges or more that scored the same answers: their mean is the score, and
        what they differ by is a part of the variance.
    confidence_level
        Of the least difference that means anything.

    Returns
    -------
    A row for each model, task and metric. Variance components are those of the analysis of
    variance [SCM92]_; the least difference is √2 times Student's quantile times a run's standard
    deviation; standard errors are those of `variance_parts`, by which `power` plans.

    Raises
    ------
    DesignError
        Where nothing was answered twice.
    SelectionError
        One judge alone, or a judge that scored nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from evalstats_plugin import ResponseMatrix
    >>> rng = np.random.default_rng(0)
    >>> right = rng.random((1, 200, 4)) < rng.uniform(0.2, 1.0, (1, 200, 1))
    >>> (row,) = noise(ResponseMatrix.from_array(right * 1.0, models=["m"], metric="acc"))
    >>> print(f"{row.least_difference:.3f} {row.share_flipped:.2f} {row.buy}")
    0.044 0.41 items
    """
    tail_probability(confidence_level)
    listed, notes = as_list(responses)
    kept, about_copies = without_copies(listed)
    usable = [undated(r.as_epochs) for r in kept]
    usable = [r for r in usable if len(r.item_ids) and r.aggregation == "mean"]
    usable = _of_judges(usable, judges) if judges else usable
    n_judges = len(judges) or 1
    rows: list[NoiseRow] = []
    once: list[str] = []
    unjudged: list[str] = []
    for each in grouped(usable, lambda r: (r.model, r.task, r.metric)).values():
        # A run of a task in two groups is one.
        runs = [own[:n_judges] for own in grouped(each, run_of).values() if len(own) >= n_judges]
        if not runs:
            unjudged.append(f"{each[0].task} by {each[0].model}")
            continue
        (together,) = stack_epochs([r for run in runs for r in run])
        scores = np.where(np.isfinite(together.scores), together.scores, np.nan)
        scores = scores.reshape(len(together.item_ids), len(runs), n_judges, -1)
        together = replace(together, scores=scores.mean(axis=2).reshape(len(scores), -1))
        answers = together.scores.reshape(len(scores), len(runs), -1)
        lacking = np.isnan(answers).all(axis=2)
        answers = answers[~np.any(lacking, axis=1)]
        n_repeats = (~np.isnan(answers)).sum(axis=2).max(initial=0)
        if len(answers) < 2 or max(len(runs), n_repeats) < 2:
            once.append(f"{together.task} by {together.model}")
            continue
        of_judges = _judge_parts(np.moveaxis(scores, 2, -1).reshape(-1, n_judges))
        rows.append(_row(together, answers, of_judges, confidence_level))
    if not rows and unjudged:
        msg = f"no run of {few(unjudged)} was scored by all of {few(judges)}: name its judges"
        raise DesignError(msg)
    if not rows:
        raise DesignError(
            "no model answered two items or more twice: log several epochs, or give several runs "
            "of one model on one task"
        )
    alone = few(list(dict.fromkeys(once)))
    told = [f"answered once, nothing said of their noise: {alone}"] if once else []
    if unjudged:
        told.append(f"left out by noise, not scored by every judge: {few(unjudged)}")
    return Results(tuple(rows), (*notes, *about_copies, *told))


def _of_judges(responses: Sequence[Responses], judges: Sequence[str]) -> list[Responses]:
    """Return what each judge said of a run, in turn, under one metric."""
    of_judges = [of_metric(responses, name) for name in judges]
    if len(judges) < 2 or len({id(r) for own in of_judges for r in own}) < sum(map(len, of_judges)):
        msg = f"judges must be two or more different metrics, not {few(judges)}: name another judge"
        raise SelectionError(msg)
    for k, (name, own) in enumerate(zip(judges, of_judges, strict=True)):
        by_run = grouped(own, lambda r: (r.model, r.task, run_of(r)))
        for (model, task, _), each in by_run.items():
            if len({r.metric for r in each}) > 1:
                metrics = " and ".join(repr(r.metric) for r in each[:2])
                msg = f"judge {name!r} is several metrics of {model!r} on {task!r} ({metrics})"
                raise SelectionError(f"{msg}: choose one")
        # A run of a task in two groups is one.
        of_judges[k] = [each[0] for each in by_run.values()]
    together = f"mean of {', '.join(judges)}"
    return [r.measured(metric=together) for own in of_judges for r in own]


def _judge_parts(scores: FloatArray) -> tuple[float, float] | None:
    """Return the variance between judges of an answer, and what of it is in their mean [SCM92]_.

    Of scores of the same answers, shape (answers, J). The first holds that one judge is more
    lenient than another, and how they differ beyond that; only the latter is noise of their mean.
    """
    complete = scores[np.isfinite(scores).all(axis=1)]
    n, n_judges = complete.shape
    if n_judges < 2 or n < 2:
        return None
    mean = complete.mean(axis=1, keepdims=True)
    rest = complete - mean - complete.mean(axis=0) + complete.mean()
    residual = float((rest**2).sum() / ((n - 1) * (n_judges - 1)))
    return float(complete.var(axis=1, ddof=1).mean()), residual / n_judges


def _row(
    together: Responses,
    answers: FloatArray,
    of_judges: tuple[float, float] | None,
    level: float,
) -> NoiseRow:
    n, n_runs, n_repeats = answers.shape
    variance, of_mean = epoch_noise(answers.reshape(-1, n_repeats))
    # Of an answer in one run, and of the mean of an item there; NaN without repeats.
    within, of_repeats = (float(moments(x).mean) for x in (variance, of_mean))
    means: FloatArray = moments(answers).mean
    df = int(np.maximum((~np.isnan(answers)).sum(axis=2) - 1, 0).sum())
    p_value, notes = None, list[str]()
    if n_runs > 1:
        rest = means - means.mean(axis=1, keepdims=True) - means.mean(axis=0) + means.mean()
        df = (n - 1) * (n_runs - 1)
        of_run = float((rest**2).sum() / df)
        between_runs = n * np.square(means.mean(axis=0) - means.mean()).sum() / (n_runs - 1)
        ratio = between_runs / of_run if of_run > 0 else 0.0
        p_value = float(special.fdtrc(n_runs - 1, df, float(ratio)))
        if of_run > 0 and p_value <= SHIFTED:
            notes.append(
                f"its runs differ by more than their answers do (p {p_value:.2g}): something else "
                "changed"
            )
    else:
        of_run = of_repeats
    std = float(np.sqrt(of_run / n))
    flipped = _flipped(answers.reshape(n, -1))
    if flipped == 0:
        most = 1 - (1 - level) ** (1 / n)
        notes.append(
            f"no answer changed: fewer than {100 * most:.1f} % of items flip ({100 * level:g} %)"
        )
    if n_lacking := len(together.item_ids) - n:
        notes.append(f"{counted(n_lacking, 'item')} not answered in every run: left out")
    t = float(t_quantile(np.asarray(float(max(df, 1))), confidence_level=level))
    (parts,) = variance_parts([together])
    if n_runs > 1 and np.isfinite(within):
        # Items, repeats, and runs of an item beyond what their repeats explain.
        of_items = float(means.mean(axis=1).var(ddof=1)) - of_run / n_runs
        each = [of_items, within, of_run - of_repeats, None]
    else:
        each = [parts.between, parts.within, None, None]
    if of_judges is not None and each[1] is not None:
        between_judges, of_their_mean = of_judges
        each[1:] = each[1] - of_their_mean, each[2], between_judges
    each = [None if x is None else max(x, 0.0) for x in each]
    total = sum(x for x in each if x is not None)
    shares = [None if x is None or not total else finite(x / total) for x in each]
    return NoiseRow(
        model=together.model,
        task=together.task,
        metric=together.metric,
        n_items=n,
        n_runs=n_runs,
        n_repeats=n_repeats,
        estimate=finite(float(means.mean())),
        share_items=shares[0],
        share_repeats=shares[1],
        share_runs=shares[2],
        share_judges=shares[3],
        run_std=finite(std),
        least_difference=finite(t * np.sqrt(2) * std) if flipped else None,
        share_flipped=finite(flipped),
        shift_p_value=p_value,
        std_error=parts.std_error,
        std_error_more_repeats=parts.std_error_more_epochs,
        std_error_more_items=parts.std_error_more_items,
        confidence_level=level,
        notes=tuple(notes),
    )


def _flipped(scores: FloatArray) -> float:
    """Mean over items of the share of pairs of answers with different scores."""
    ranked = np.sort(scores, axis=1)  # NaN last, each apart from the others
    m = (~np.isnan(ranked)).sum(axis=1)
    new = np.ones(ranked.shape, dtype=np.bool_)
    new[:, 1:] = ~(np.abs(np.diff(ranked, axis=1)) <= _SAME)
    # Pairs of equal answers: with j equal ones before it, an answer adds j.
    run = np.zeros(len(ranked))
    equal = np.zeros(len(ranked))
    for column in range(ranked.shape[1]):
        run = np.where(new[:, column], 0.0, run + 1)
        equal += run
    pairs = m * (m - 1) / 2
    some = pairs > 0
    shares: FloatArray = 1 - equal[some] / pairs[some]
    return float(shares.mean()) if some.any() else np.nan

"""Metrics that are not means of item scores: F1, MCC, AUC, BLEU and other functions of sums.

* `composites`: from pairs of gold and predicted answers to a `Composite`, what each item adds to
  the sums and how the value is computed from them
* `recognise`: which metric of labels gives a logged value
* `with_derived`, `derive`: other metrics of the same labels, such as precision and recall
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.measure import SHARE, Scale, agree
from evalstats_plugin.data.methods import Kind
from evalstats_plugin.data.metrics import DIFFERENCE, ERRORS, PERCENT
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.runs import run_of
from evalstats_plugin.errors import DesignError, SelectionError, check_known, few
from evalstats_plugin.stats import metrics
from evalstats_plugin.stats.arrays import BoolArray, FloatArray
from evalstats_plugin.stats.metrics import BINARY, Value

NAMES = {
    "f1": "f1", "mcc": "mcc", "matthews_corrcoef": "mcc", "precision": "precision",
    "recall": "recall", "balanced_accuracy": "balanced_accuracy", "macro_f1": "macro_f1",
    "weighted_f1": "weighted_f1", "roc_auc": "roc_auc",
    "bleu": "bleu", "chrf": "chrf", "chrf++": "chrf++", "ter": "ter",
}  # fmt: skip
"""Our names of metrics, by `Responses.aggregation`."""

_SCALES = {
    "mcc": DIFFERENCE, "bleu": PERCENT, "chrf": PERCENT, "chrf++": PERCENT, "ter": ERRORS,
}  # fmt: skip
"""Of these metrics; the others are shares."""

DERIVED = ("precision", "recall", "f1", "mcc", "balanced_accuracy", "macro_f1", "weighted_f1")
"""Metrics that can be computed from the labels of another."""

RECOGNISED = ("f1", "mcc", "balanced_accuracy", "macro_f1", "weighted_f1")
"""Metrics that `recognise` tries."""

MOST_LABELS = 30
"""Different labels of a task, at most."""

FEW_ITEMS = 5
"""Items of a label below which no method keeps its level for averages over three labels or more."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Composite:
    """One model's answers under a metric that is a function of sums over items."""

    metric: str
    kind: Kind
    there: NDArray[np.bool_]
    """Shape (M,): items that have an answer; the arrays below are of these M' only."""
    codes: NDArray[np.int64] | None = None
    """Shape (M', 2): gold and predicted label by number."""
    labels: tuple[Any, ...] = ()
    counts: FloatArray | None = None
    """Shape (M', S), for metrics without labels: what each item adds to the S sums."""
    ranked: tuple[NDArray[np.bool_], FloatArray] | None = None
    """Whether items are positive and how sure the model is, both of shape (M',)."""
    ratio: Value | None = None
    """Value from sums, for metrics that `stats.metrics` does not hold."""

    @property
    def scale(self) -> Scale:
        """What values the metric may have."""
        return _SCALES.get(self.metric, SHARE)

    @property
    def statistics(self) -> FloatArray:
        """Shape (M', S): what each item adds to the sums."""
        if self.codes is None:
            return np.zeros((0, 0)) if self.counts is None else self.counts
        return metrics.one_hot(self.codes[:, 0], self.codes[:, 1], len(self.labels))

    @cached_property
    def table(self) -> FloatArray:
        """Shape (K, K): confusion table, gold labels in rows and predicted labels in columns."""
        assert self.codes is not None  # noqa: S101 - only metrics of labels have a table
        n = len(self.labels)
        counts = np.bincount(self.codes @ [n, 1], minlength=n * n)
        return counts.reshape(n, n).astype(np.float64)

    @property
    def value(self) -> Value:
        """From sums of shape (..., S) to values of shape (...)."""
        if self.codes is None:
            return self.ratio or metrics.CORPUS_METRICS[self.metric]
        return partial(_of_flat_tables, metric=self.metric, n_labels=len(self.labels))

    def observed(self, sums: FloatArray) -> FloatArray:
        """Value of sums of items, not of resamples: NaN where the metric says nothing of them."""
        values = self.value(sums)
        if self.codes is None:
            return values
        shape = (*sums.shape[:-1], len(self.labels), len(self.labels))
        return np.where(_needed(self.metric, sums.reshape(shape))[0], values, np.nan)

    @property
    def estimate(self) -> float:
        """The metric's value; NaN where it is 0/0."""
        if self.ranked is not None:
            return metrics.auc(*self.ranked)
        sums = self.table.ravel() if self.codes is not None else self.statistics.sum(axis=0)
        return float(self.observed(sums)) if self.there.any() else np.nan

    @property
    def undefined(self) -> str | None:
        """Why the metric has no value; None where it has one."""
        if not self.there.any():
            return "no item has an answer to judge"
        if self.ranked is not None and len(np.unique(self.ranked[0])) < 2:
            return f"all items have one gold label: {self.metric} says nothing"
        if self.codes is None:
            return None
        is_defined, why = _needed(self.metric, self.table)
        only = self.labels[int(self.table.sum(axis=1).argmax())]
        return None if is_defined else why.format(repr(only))

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats about the value."""
        if self.codes is None or self.undefined is not None:
            return () if self.undefined is None else (self.undefined,)
        notes: list[str] = []
        if self.metric == "mcc" and self.table.any(axis=0).sum() < 2:
            notes.append("the same label is predicted for every item: mcc is 0/0, set to 0")
        gold = self.table.sum(axis=1)
        rare = [f"{x!r}" for x, n in zip(self.labels, gold, strict=True) if n < FEW_ITEMS]
        if rare and len(self.labels) > 2:
            names = few(rare)
            notes.append(f"fewer than {FEW_ITEMS} items of label {names}: interval too optimistic")
        return tuple(notes)


def _needed(metric: str, tables: FloatArray) -> tuple[BoolArray, str]:
    """Whether tables of shape (..., K, K) have what the metric is about, and why not if not."""
    gold: BoolArray = np.any(tables > 0, axis=-1)
    if metric in ("mcc", "balanced_accuracy"):
        several = gold.sum(axis=-1) > 1
        return several, f"all items have gold label {{}}: {metric} says nothing"
    if metric not in BINARY:
        return np.ones(gold.shape[:-1], dtype=bool), ""
    predicted: BoolArray = np.any(tables[..., 1] > 0, axis=-1)
    there, why = {
        "precision": (predicted, "no item was predicted positive"),
        "recall": (gold[..., 1], "no item is positive"),
        "f1": (gold[..., 1] | predicted, "no item is positive or was predicted so"),
    }[metric]
    return there, f"{why}: {metric} is 0/0"


def _of_flat_tables(sums: FloatArray, *, metric: str, n_labels: int) -> FloatArray:
    """Value of tables of shape (..., K²).

    An F1 or MCC of 0/0 is 0, as harnesses log it; a precision or recall of 0/0 is NaN.
    """
    values = metrics.CONFUSION_METRICS[metric](sums.reshape(*sums.shape[:-1], n_labels, n_labels))
    return values if metric in ("precision", "recall") else np.where(np.isnan(values), 0.0, values)


def composites(group: Sequence[Responses]) -> list[Composite]:
    """Prepare models' answers to one task under one metric, with the same numbers for labels.

    Raises
    ------
    DesignError
        If there is no formula for the metric, or the answers are not what it needs.
    """
    metric = NAMES.get(group[0].aggregation)
    if metric is None or any(r.pairs is None for r in group):
        raise DesignError(f"no formula for the aggregation {group[0].aggregation!r}")
    pairs = [r.pairs for r in group if r.pairs is not None]
    answered = [np.array([None not in row for row in p.tolist()], dtype=bool) for p in pairs]
    seen = [p[t] for p, t in zip(pairs, answered, strict=True)]
    of_models: list[dict[str, Any]]
    if metric in metrics.CORPUS_METRICS:
        of_models = [{"kind": "corpus", "counts": _counts(metric, p)} for p in seen]
    elif metric == "roc_auc":
        of_models = [{"kind": "auc", "ranked": _ranked(p)} for p in seen]
    else:
        labels, codes = _codes(metric, seen)
        kind = "f1" if metric == "f1" else "confusion"
        of_models = [{"kind": kind, "codes": c, "labels": labels} for c in codes]
    return [
        Composite(metric=metric, there=t, **own) for t, own in zip(answered, of_models, strict=True)
    ]


def _codes(
    metric: str, pairs: Sequence[NDArray[Any]]
) -> tuple[tuple[Any, ...], list[NDArray[np.int64]]]:
    """Labels, and every model's pairs as their numbers; a positive label is number 1."""
    rows = [cast("list[list[Any]]", p.tolist()) for p in pairs]
    every = [x for r in rows for row in r for x in row]
    for label in every:
        if not isinstance(label, (bool, int, float, str)):
            raise DesignError(f"labels must be numbers or texts, not {type(label).__name__}")
    labels = sorted(set(every), key=lambda x: (isinstance(x, str), x))
    if len(labels) > MOST_LABELS:
        msg = f"{len(labels)} different labels are more than the {MOST_LABELS} that can be analysed"
        raise DesignError(msg)
    if metric in BINARY:
        if len(labels) > 2 or (1 not in labels and len(labels) > 1):
            names = few([repr(x) for x in labels])
            msg = f"{metric} needs the labels 0 and 1 (positive), and the items have {names}"
            raise DesignError(msg)
        labels = [next((x for x in labels if x != 1), 0), 1]
    numbers = {label: i for i, label in enumerate(labels)}
    codes = [np.array([[numbers[x] for x in row] for row in r], dtype=np.int64) for r in rows]
    return tuple(labels), [c.reshape(-1, 2) for c in codes]


def _ranked(pairs: NDArray[Any]) -> tuple[NDArray[np.bool_], FloatArray]:
    msg = "roc_auc needs a gold label 0 or 1 and a number for each item"
    try:
        numbers = np.asarray(pairs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DesignError(msg) from error
    if not np.isin(numbers[:, 0], (0.0, 1.0)).all() or np.isnan(numbers).any():
        raise DesignError(msg)
    return numbers[:, 0] == 1, numbers[:, 1]


def _counts(metric: str, pairs: NDArray[Any]) -> FloatArray:
    references = [_texts(x) for x in pairs[:, 0].tolist()]
    answers = [_texts(x)[0] for x in pairs[:, 1].tolist()]
    if not all(isinstance(x, str) for x in (*answers, *(r for rs in references for r in rs))):
        raise DesignError(f"{metric} needs a reference text and an answer for each item")
    if len({len(rs) for rs in references}) > 1:
        raise DesignError(f"{metric} needs the same number of references for each item")
    try:
        return metrics.corpus_counts(metric, references, answers)
    except ModuleNotFoundError as error:
        raise DesignError(str(error)) from error


def _texts(value: Any) -> list[Any]:
    """Return a list of texts: harnesses allow one text, or a list of them."""
    return cast("list[Any]", value) if isinstance(value, list) and value else [value]


def recognise(responses: Responses) -> str | None:
    """Return the one metric of labels that gives the logged value; None for several, or none.

    For tasks that aggregate by a function of their own.
    """
    if responses.logged is None:
        return None
    fitting: list[str] = []
    for metric in RECOGNISED:
        try:
            (composite,) = composites([responses.measured(aggregation=metric)])
        except DesignError:
            continue
        if agree(composite.estimate, responses.logged):
            fitting.append(metric)
    return fitting[0] if len(fitting) == 1 else None


def with_derived(responses: Iterable[Responses], metrics: Iterable[str]) -> tuple[Responses, ...]:
    """Return the responses, and after those of each task the metrics derived from their labels."""
    everything = list(responses)
    more = [r for metric in metrics for r in derive(everything, metric)]
    # Rows of a task stand together, in each log and group.
    places = {_place(r): i for i, r in enumerate(everything)}
    return tuple(sorted((*everything, *more), key=lambda r: places[_place(r)]))


def _place(r: Responses) -> tuple[str, ...]:
    return r.model, r.task, *run_of(r), *(g.name for g in r.groups)


def derive(responses: Iterable[Responses], metric: str) -> list[Responses]:
    """Compute another metric from the labels that an f1 or mcc was logged with.

    Parameters
    ----------
    responses
        Those without labels are passed over; where several metrics of a task have the same labels,
        the first is used.
    metric
        One of `DERIVED`, such as ``"recall"``.

    Raises
    ------
    SelectionError
        For another metric, or if no responses have labels.
    """
    check_known("derived metric", metric, DERIVED)
    derived: dict[tuple[str, ...], Responses] = {}
    for r in responses:
        if r.pairs is None or NAMES.get(r.aggregation) not in DERIVED:
            continue
        name = metric + r.metric[len(r.metric.partition(",")[0]) :]
        key = (name, *_place(r))
        # No harness logged it, and no group around the task has it.
        groups = tuple(replace(g, logged=None, logged_std_error=None) for g in r.groups)
        made = r.measured(
            metric=name, aggregation=metric, higher_is_better=True, direction_from="registry"
        ).noted(f"derived from the labels of {r.metric}")
        derived.setdefault(key, replace(made, groups=groups, logged=None, logged_std_error=None))
    if not derived:
        msg = f"no responses hold gold and predicted labels, from which {metric} could be derived"
        raise SelectionError(msg)
    return list(derived.values())

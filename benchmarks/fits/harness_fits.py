"""The error that a harness prints, or our intervals, of many cells (a model on a task).

``python harness_fits.py PROGRAM FOLDER CPU_LIMIT METRIC COUNT`` reads ``data.npz`` and writes
limits of 95 %, shape (cells, 2), to ``found.npz``; of a standard error, 1.96 of it to both sides.
METRIC is ``accuracy`` (scores, shape (C, n); the first COUNT are timed, and limits are those of
``judged``, shape (J, n)), or ``f1`` or ``mcc`` (gold, predicted: shape (C, n)), where lm-eval draws
COUNT bootstrap samples. The clock starts with the scores in the form that the harness keeps them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import clock
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Run = Callable[[], Array]
Z = 1.959963984540054
LEVEL = 0.95
TASKS = 60
"""Of a leaderboard; it changes only how fast we are."""


def ours_accuracy(scores: Array) -> Run:
    """Whatever is the default for 0/1 scores."""
    from evalstats_plugin import ResponseMatrix, intervals

    cells, items = scores.shape
    tasks = TASKS if cells % TASKS == 0 else 1
    names = [f"task_{t:02}" for t in range(tasks) for _ in range(items)]
    matrix = ResponseMatrix.from_array(scores.reshape(-1, tasks * items), tasks=names)

    def run() -> Array:
        rows = intervals(matrix, confidence_level=LEVEL)
        return np.array([(row.low, row.high) for row in rows])

    return run


def lm_eval_accuracy(scores: Array) -> Run:
    """The mean and its standard error, as lm-eval finds the function for it."""
    from lm_eval.api.metrics import mean, stderr_for_metric

    cells = scores.tolist()
    error = stderr_for_metric(mean, bootstrap_iters=100_000)
    return lambda: _limits((mean(cell), error(cell)) for cell in cells)


def inspect_error(scores: Array, metric: str) -> Run:
    """Accuracy and a standard error of it, by its own metrics with their defaults."""
    from inspect_ai import scorer

    cells = _inspect_scores(scores)
    accuracy, error = scorer.accuracy(), getattr(scorer, metric)()
    return lambda: _limits((accuracy(cell), error(cell)) for cell in cells)


def inspect_limits(scores: Array, metric: str, **options: str) -> Run:
    """The limits that its own metric gives."""
    from inspect_ai import scorer

    cells = _inspect_scores(scores)
    interval = getattr(scorer, metric)(level=LEVEL, **options)

    def run() -> Array:
        found = [interval(cell) for cell in cells]
        return np.array([(one["lower"], one["upper"]) for one in found])

    return run


def _inspect_scores(scores: Array) -> list[list[Any]]:
    """Return correct and incorrect as its scorers of right answers do."""
    from inspect_ai.scorer import CORRECT, INCORRECT, SampleScore, Score

    return [
        [SampleScore(score=Score(value=CORRECT if one else INCORRECT)) for one in cell]
        for cell in scores
    ]


def ours_labels(gold: NDArray[np.int64], predicted: NDArray[np.int64], metric: str, _: int) -> Run:
    """Whatever is the default for the metric."""
    from evalstats_plugin import Measure, Responses, Source, intervals

    items = gold.shape[1]
    cells = [
        Responses(
            model=f"m{c:03}", measure=Measure(task="t", metric=metric, aggregation=metric),
            item_ids=np.arange(items), scores=np.empty((items, 0)),
            pairs=np.array(pairs, dtype=object), source=Source(Path(), "lm_eval"),
        )
        for c, pairs in enumerate(np.stack([gold, predicted], axis=2))
    ]  # fmt: skip

    def run() -> Array:
        rows = intervals(cells, confidence_level=LEVEL, rng=0)
        return np.array([(row.low, row.high) for row in rows])

    return run


def lm_eval_labels(
    gold: NDArray[np.int64], predicted: NDArray[np.int64], metric: str, samples: int
) -> Run:
    """The metric and its bootstrap error, in this process: lm-eval would start one per core."""
    from lm_eval.api import metrics

    # Its own switch.
    os.environ["DISABLE_MULTIPROC"] = "1"
    cells = [np.stack(labels, axis=1).tolist() for labels in zip(gold, predicted, strict=True)]
    value = {"f1": metrics.f1_score, "mcc": metrics.matthews_corrcoef}[metric]
    error = metrics.stderr_for_metric(value, bootstrap_iters=samples)
    return lambda: _limits((value(cell), error(cell)) for cell in cells)


def _limits(found: Iterable[Sequence[float]]) -> Array:
    value, error = np.array(list(found)).T
    return np.stack([value - Z * error, value + Z * error], axis=1)


ACCURACY: Mapping[str, tuple[str, Callable[[Array], Run]]] = MappingProxyType(
    {
        "evalstats-plugin": ("evalstats-plugin", ours_accuracy),
        "lm-eval stderr": ("lm_eval", lm_eval_accuracy),
        "Inspect stderr": ("inspect_ai", lambda s: inspect_error(s, "stderr")),
        "Inspect bootstrap_stderr": ("inspect_ai", lambda s: inspect_error(s, "bootstrap_stderr")),
        "Inspect ci": ("inspect_ai", lambda s: inspect_limits(s, "ci")),
        "Inspect ci, bootstrap": (
            "inspect_ai",
            lambda s: inspect_limits(s, "ci", method="bootstrap"),
        ),
        "Inspect ci_wilson": ("inspect_ai", lambda s: inspect_limits(s, "ci_wilson")),
    }
)
LABELS: Mapping[str, tuple[str, Callable[..., Run]]] = MappingProxyType(
    {
        "evalstats-plugin": ("evalstats-plugin", ours_labels),
        "lm-eval bootstrap_stderr": ("lm_eval", lm_eval_labels),
    }
)
"""Distribution, and what prepares the work."""


def main(name: str, folder: str, cpu_limit: str, metric: str, count: str) -> None:
    """Do it, keep the limits and print what it took."""
    clock.limit(float(cpu_limit))
    # Bootstraps of Inspect draw from it; they cannot be seeded otherwise.
    np.random.seed(0)  # noqa: NPY002
    with np.load(Path(folder) / "data.npz") as arrays:
        data = dict(arrays)
    if metric == "accuracy":
        distribution, prepare = ACCURACY[name]
        # Also the run before the clock starts.
        limits = prepare(data["judged"])()
        _, taken = clock.timed(prepare(data["scores"][: int(count)]))
    else:
        distribution, prepare_labels = LABELS[name]
        labels = data["gold"], data["predicted"]
        prepare_labels(*(x[:2] for x in labels), metric, 2)()
        limits, taken = clock.timed(prepare_labels(*labels, metric, int(count)))
    np.savez(Path(folder) / "found.npz", limits=limits)
    clock.tell(distribution, taken)


if __name__ == "__main__":
    main(*sys.argv[1:])

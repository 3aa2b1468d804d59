"""Evaluations that nobody ran, described once: what was asked, what was scored, what is true.

`evaluations` draws one. It is written as logs of every harness by `written_logs` and
`written_tables`; `Evaluation.value` says what each of them must log, computed here from the scores
alone, without the package that is tested.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Scores = NDArray[np.float64]

LARGEST = int(os.environ.get("EVALSTATS_LARGEST", "24"))
"""Items of the largest task that is drawn; `make validate` draws up to 5,000."""


@dataclass(frozen=True)
class Scale:
    """A metric: what its scores can be, and which way is up."""

    name: str
    lowest: float
    highest: float
    step: float
    """Between neighbouring scores; 0 where every number in between can occur."""
    higher_is_better: bool = True

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Lowest and highest score, None where one of them is infinite."""
        return (self.lowest, self.highest) if math.isfinite(self.highest - self.lowest) else None


SCALES: Mapping[str, Scale] = {
    "right": Scale("right", 0, 1, 1),
    "share": Scale("share", 0, 1, 0),
    "tenths": Scale("tenths", 0, 1, 0.1),
    "percent": Scale("percent", 0, 100, 0),
    "grade": Scale("grade", 1, 10, 1),
    "error": Scale("error", 0, 1, 1, higher_is_better=False),
    "loss": Scale("loss", 0, math.inf, 0, higher_is_better=False),
    "margin": Scale("margin", -math.inf, math.inf, 0),
}
"""One metric for each kind of scale."""

SHAPES = ("ordinary", "all best", "all worst", "spikes", "rare failures", "alike")
"""How the scores of a task are distributed."""


@dataclass(frozen=True)
class Task:
    """A task: its items, and the metrics that each of them is scored by, the headline first."""

    name: str
    n_items: int
    scales: tuple[Scale, ...]
    shape: str = "ordinary"
    clusters: tuple[int, ...] | None = None
    """Cluster of each item."""
    n_planned: int = 0
    """Items of the whole benchmark, where only the first `n_items` were run."""
    n_cut: int = 0
    """Items, the last ones, that the log has lost though the header counts them."""

    @property
    def n_whole(self) -> int:
        """Items of the benchmark."""
        return max(self.n_planned, self.n_items)


@dataclass(frozen=True)
class Group:
    """A group of tasks, or of groups."""

    name: str
    parts: tuple[str, ...]
    weighted: bool
    """Every item counts alike (micro), instead of every task (macro)."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of models on tasks: shape (N models, M items, R epochs) by task and metric."""

    models: tuple[str, ...]
    tasks: tuple[Task, ...]
    groups: tuple[Group, ...] = ()
    n_epochs: int = 1
    reducers: tuple[str, ...] = ()
    """Other values of the first metric of each task beside the mean of epochs: ``"max"``,
    ``"pass_at_2"``."""
    by_cluster: bool = False
    """Whether the log also gives the mean of each cluster's items."""
    seed: int = 0
    scores: Mapping[tuple[str, str], Scores] = field(default_factory=dict, repr=False)

    def of(self, task: Task, scale: Scale) -> Scores:
        """Return the scores of a task by a metric, NaN where one is missing."""
        return self.scores[task.name, scale.name]

    def value(self, model: int, task: Task, scale: Scale) -> float | None:
        """Return what a harness logs: the mean over items of means over the epochs scored."""
        return mean_of_items(self.of(task, scale)[model])

    def reduced(self, model: int, task: Task, reducer: str) -> Scores:
        """Return the score of each item, shape (M,), with its epochs combined otherwise."""
        scores = self.of(task, task.scales[0])[model]
        return np.array([combine(row[~np.isnan(row)], reducer) for row in scores])

    def of_group(self, model: int, group: Group, scale: Scale) -> float | None:
        """Return the value of a group, as lm-eval computes it: from values of its tasks."""
        leaves = self.leaves(group)
        values = [self.value(model, task, scale) for task in leaves]
        if any(value is None for value in values):
            return None
        weights = [task.n_items if group.weighted else 1 for task in leaves]
        total = sum(v * w for v, w in zip(values, weights, strict=True) if v is not None)
        return total / sum(weights)

    def leaves(self, group: Group) -> list[Task]:
        """Return the tasks of a group and of the groups inside it."""
        inner = {g.name: g for g in self.groups}
        found: list[Task] = []
        for part in group.parts:
            if part in inner:
                found += self.leaves(inner[part])
            else:
                found += [task for task in self.tasks if task.name == part]
        return found

    def with_scores(self, change: Any) -> Evaluation:
        """Return the evaluation with other scores: ``change(task, scale, scores)``."""
        made = {
            (task.name, scale.name): change(task, scale, self.of(task, scale))
            for task in self.tasks
            for scale in task.scales
        }
        return replace(self, scores=made)


def mean_of_items(scores: Scores) -> float | None:
    """Return the mean over items of means over scored epochs, of shape (M, R); None if none is."""
    means = [row[~np.isnan(row)].mean() for row in scores if not np.isnan(row).all()]
    return float(np.mean(means)) if means else None


def combine(scores: Scores, reducer: str) -> float:
    """Combine the scored epochs of one item; NaN where none was scored."""
    if not len(scores):
        return math.nan
    if reducer == "max":
        return float(scores.max())
    k = int(reducer.removeprefix("pass_at_"))
    n, right = len(scores), int((scores >= 1).sum())
    return 1.0 - math.comb(n - right, k) / math.comb(n, k) if n >= k else float(right > 0)


def draw_scores(
    scale: Scale, shape: str, size: tuple[int, int, int], rng: np.random.Generator
) -> Scores:
    """Return scores of models × items × epochs on a scale."""
    n, m, _ = size
    ability = rng.normal(0.5, 1.0, (n, 1, 1))
    latent = ability + rng.normal(0, 1.2, (1, m, 1)) + rng.normal(0, 0.6, size)
    if shape == "alike":
        latent = np.repeat(latent[:1], n, axis=0)
    share = 1 / (1 + np.exp(-latent))
    if shape in ("all best", "all worst"):
        best = (shape == "all best") == scale.higher_is_better
        share = np.full(size, 1.0 if best else 0.0)
    elif shape == "rare failures":
        share = np.where(rng.random(size) < 0.03, 0.1, 0.9 + 0.1 * share)
    elif shape == "spikes":
        share = np.where(rng.random(size) < 0.6, rng.choice([0.0, 0.5, 1.0], size), share)
    if scale.step == scale.highest - scale.lowest:
        drawn = share if shape in ("all best", "all worst") else rng.random(size) < share
        return scale.lowest + scale.step * np.asarray(drawn, dtype=float)
    if math.isinf(scale.lowest):
        return 40 * (share - 0.5) + (rng.standard_t(4, size) if 0 < share.min() else 0.0)
    if math.isinf(scale.highest):
        return -3 * np.log(np.clip(share, 0.01, 1.0))
    if scale.step:
        steps = round((scale.highest - scale.lowest) / scale.step)
        return np.round(scale.lowest + np.round(share * steps) * scale.step, 10)
    return scale.lowest + share * (scale.highest - scale.lowest)


ODD = (
    "نموذج", "דגם", "e\u0301te\u0301", "模型", "Ω≈ç", "a b", "=HYPERLINK(\"x\")", "$x_1$", "100%",
    "<script>alert(1)</script>", "a&b", "`code`", "**bold**", "#1", "-1", "+m", "@x",
    "[x](y)", "\\textbf{x}", "{x}", "~", "👩\u200d🔬", "\u202eabc", "a'b", 'a"b', "nan", "None",
    "True", "1e3",
)  # fmt: skip
"""Names in many scripts, and names that documents, shells and spreadsheets take for commands."""

ODD_MODELS = (*ODD, "../up", "org/model", "a,b", "a=b", "C:\\x")
"""Of models, which stand in no name of a file unchanged."""


def _names(draw: Any, n: int, stem: str, odd: Sequence[str]) -> tuple[str, ...]:
    """Return distinct names; those that differ by what is not printed count as the same."""
    if not odd or draw(st.booleans()):
        return tuple(f"{stem}{i}" for i in range(n))
    chosen = draw(st.lists(st.sampled_from(odd), min_size=n, max_size=n, unique=True))
    return tuple(chosen)


@st.composite
def evaluations(
    draw: Any,
    *,
    scales: Sequence[str] = tuple(SCALES),
    models: tuple[int, int] = (1, 5),
    tasks: tuple[int, int] = (1, 3),
    items: tuple[int, int] = (1, LARGEST),
    metrics: int = 2,
    epochs: int = 3,
    shapes: Sequence[str] = SHAPES,
    clusters: bool = True,
    groups: bool = True,
    missing: bool = True,
    cut: bool = True,
    odd_names: bool = True,
) -> Evaluation:
    """Draw an evaluation; the arguments are the most of each that may occur."""
    n = draw(st.integers(*models))
    names = _names(draw, n, "model-", ODD_MODELS if odd_names else ())
    n_tasks = draw(st.integers(*tasks))
    task_names = _names(draw, n_tasks, "task_", ODD if odd_names else ())
    n_epochs = draw(st.integers(1, epochs))
    # Groups are of tasks with one metric in common.
    grouped = groups and n_tasks > 1 and draw(st.booleans())
    common = tuple(draw(st.lists(st.sampled_from(scales), min_size=1, max_size=metrics,
                                 unique=True)))  # fmt: skip
    made: list[Task] = []
    for name in task_names:
        m = draw(st.integers(*items))
        own = common if grouped else tuple(
            draw(st.lists(st.sampled_from(scales), min_size=1, max_size=metrics, unique=True))
        )  # fmt: skip
        k = draw(st.integers(2, max(m // 2, 2))) if clusters and draw(st.booleans()) else 0
        more = draw(st.integers(0, 40)) if draw(st.booleans()) else 0
        lost = draw(st.integers(0, m - 1)) if cut and draw(st.integers(0, 4)) == 0 else 0
        made.append(
            Task(
                name,
                m,
                tuple(SCALES[s] for s in own),
                draw(st.sampled_from(shapes)),
                tuple(i % k for i in range(m)) if k else None,
                m + more if more else 0,
                lost,
            )
        )
    of_right = all(task.scales[0].name == "right" for task in made)
    reducers = draw(st.sampled_from([(), ("max",), ("pass_at_2",)])) if n_epochs > 1 else ()
    return fill(
        Evaluation(
            models=names,
            tasks=tuple(made),
            groups=_groups(draw, task_names) if grouped else (),
            n_epochs=n_epochs,
            reducers=reducers if of_right or reducers == ("max",) else (),
            by_cluster=clusters and draw(st.booleans()),
            seed=draw(st.integers(0, 2**16)),
        ),
        missing=draw(st.sampled_from([0.0, 0.0, 0.1, 0.4])) if missing else 0.0,
    )


def _groups(draw: Any, tasks: tuple[str, ...]) -> tuple[Group, ...]:
    whole = Group("all_of_them", tasks, draw(st.booleans()))
    if len(tasks) < 3 or draw(st.booleans()):
        return (whole,)
    inner = Group("some_of_them", tasks[1:], draw(st.booleans()))
    # lm-eval weighs an outer group by the leaves of its tree, as `Evaluation.of_group` does.
    return (replace(whole, parts=(tasks[0], inner.name)), inner)


def fill(evaluation: Evaluation, *, missing: float = 0.0) -> Evaluation:
    """Draw the scores of a description, from its seed; some may be missing."""
    scores: dict[tuple[str, str], Scores] = {}
    for i, task in enumerate(evaluation.tasks):
        for j, scale in enumerate(task.scales):
            rng = np.random.default_rng([evaluation.seed, i, j])
            size = (len(evaluation.models), task.n_items, evaluation.n_epochs)
            drawn = draw_scores(scale, task.shape, size, rng)
            drawn[rng.random(size) < missing] = math.nan
            # A log of no score at all is another question.
            drawn[:, 0, 0] = np.where(
                np.isnan(drawn).all(axis=(1, 2)),
                scale.lowest if math.isfinite(scale.lowest) else 0.0,
                drawn[:, 0, 0],
            )
            scores[task.name, scale.name] = drawn
    return replace(evaluation, scores=scores)

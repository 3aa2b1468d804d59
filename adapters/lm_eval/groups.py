"""Groups of tasks of one run: `Tree`, how a group's score weights them, and lm-eval's errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from evalstats_plugin.adapters.lm_eval.values import as_number, same
from evalstats_plugin.data.responses import Weighting
from evalstats_plugin.runtime.files import section


def pooled_stderr(stderrs: Sequence[float], sizes: Sequence[float]) -> float:
    """Return lm-eval's standard error of a micro mean: ``pooled_sample_stderr``."""
    s, n = np.asarray(stderrs), np.asarray(sizes, dtype=np.float64)
    variance = ((n - 1) * s**2 * n).sum() / (n.sum() - len(n))
    return math.sqrt(variance / n.sum())


def unweighted_stderr(stderrs: Sequence[float]) -> float:
    """Return lm-eval's standard error of a macro mean (0.4.13): ``unweighted_mean_stderr``."""
    return math.sqrt(sum(s**2 for s in stderrs)) / len(stderrs)


class Tree:
    """The groups of tasks of one run, in the order of lm-eval's own table."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.results: Mapping[str, Any] = data["results"]
        self.sizes: Mapping[str, Any] = data.get("n-samples") or {}
        # Up to 0.4.11 plain tasks are listed too, without children.
        subtasks: Mapping[str, list[str]] = data.get("group_subtasks") or {}
        self.children = {name: sorted(inside) for name, inside in subtasks.items() if inside}
        self._around: dict[str, tuple[str, ...]] = {}
        contained = {child for inside in self.children.values() for child in inside}
        for root in sorted(self.children):
            if root not in contained:
                self._visit(root, ())
        for task in sorted(self.results):
            if task not in self.children:
                self._around.setdefault(task, ())

    def _visit(self, name: str, around: tuple[str, ...]) -> None:
        if name not in self.children:
            self._around.setdefault(name, around)
            return
        for child in self.children[name]:
            if child not in around:
                self._visit(child, (*around, name))

    def tasks(self) -> list[str]:
        """Return the tasks, not groups, in table order: those in groups first, top down."""
        return [task for task in self._around if task in self.results]

    def groups_around(self, task: str) -> tuple[str, ...]:
        """Return the groups that contain a task, outermost first."""
        return self._around.get(task, ())

    def leaves(self, group: str) -> Iterator[str]:
        """Yield the tasks of a group and of its subgroups."""
        for child in self.children.get(group, ()):
            if child in self.children:
                yield from self.leaves(child)
            else:
                yield child

    def n_tasks(self, group: str, key: str) -> int:
        """Count the tasks of a group that have a metric."""
        return sum(key in section(self.results, task) for task in self.leaves(group))

    def weighting(self, group: str, key: str) -> tuple[Weighting, tuple[str, ...]]:
        """Return a group's weighting, and a note if its logged value is neither mean.

        The weighting is not logged; it is inferred from the group's logged value, and where tasks
        of one value leave it open, from those of its other metrics.
        """
        fits = self._fits(group, key)
        if isinstance(fits, str):
            return "micro", (fits,)
        if len(fits) > 1:
            logged = self.results.get(group, {})
            others = [k for k in logged if k != key and not k.partition(",")[0].endswith("_stderr")]
            of_others = [self._fits(group, other) for other in others]
            alone = [each for each in of_others if not isinstance(each, str) and len(each) == 1]
            fits = alone[0] if alone else fits
        return (fits[0] if len(fits) == 1 else "either"), ()

    def _fits(self, group: str, key: str) -> Sequence[Literal["micro", "macro"]] | str:
        """Return the weightings that give the logged value; or what is wrong with it."""
        logged = as_number(self.results.get(group, {}).get(key))
        if logged is None:
            return ("micro",)
        scored = [
            (value, self.size(task))
            for task in self.leaves(group)
            if (value := as_number(section(self.results, task).get(key))) is not None
        ]
        if not scored:
            return "mismatch: no task of this group has the metric"
        values, sizes = zip(*scored, strict=True)
        if not all(sizes) or len(set(sizes)) == 1:
            return ("micro",)  # up to 0.4.2 the numbers of items are not logged
        micro = sum(value * size for value, size in scored) / sum(sizes)
        macro = sum(values) / len(values)
        means: dict[Literal["micro", "macro"], float] = {"micro": micro, "macro": macro}
        fits: list[Literal["micro", "macro"]] = [
            name for name, value in means.items() if same(value, logged)
        ]
        return fits or (
            f"mismatch: the log has value {logged:.6g} where its tasks give {micro:.6g} weighted "
            f"by items and {macro:.6g} unweighted"
        )

    def size(self, task: str) -> float:
        """Return the number of items that lm-eval weights a task by."""
        logged = self.results.get(task, {}).get("sample_len")
        return float(self.sizes.get(task, {}).get("effective", logged) or 0)

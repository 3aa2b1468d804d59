"""Groups of tasks: who contains whom, in the order of lm-eval's own table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from evalstats_plugin.adapters.lm_eval.recompute import same
from evalstats_plugin.adapters.lm_eval.values import as_number

Weighting = Literal["micro", "macro"]


class Tree:
    """The groups of one run."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.results: Mapping[str, Any] = data["results"]
        self.sizes: Mapping[str, Any] = data.get("n-samples") or {}
        # Up to 0.4.11 plain tasks are listed too, with no children.
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
        """Return the tasks, not groups, in table order: groups first, each from the top down."""
        return [task for task in self._around if task in self.results]

    def groups_around(self, task: str) -> tuple[str, ...]:
        """Return the groups that hold a task, outermost first."""
        return self._around.get(task, ())

    def leaves(self, group: str) -> Iterator[str]:
        """Yield the tasks of a group and of the groups in it."""
        for child in self.children.get(group, ()):
            if child in self.children:
                yield from self.leaves(child)
            else:
                yield child

    def n_tasks(self, group: str, key: str) -> int:
        """Count the tasks of a group that have a metric."""
        return sum(key in (self.results.get(task) or {}) for task in self.leaves(group))

    def weighting(self, group: str, key: str) -> tuple[Weighting, tuple[str, ...]]:
        """Find out how a group was configured, which is not logged: by what its value is.

        Returns the weighting, and a note where the logged value is neither mean.
        """
        logged = as_number(self.results.get(group, {}).get(key))
        if logged is None:
            return "micro", ()
        values: list[float] = []
        sizes: list[float] = []
        for task in self.leaves(group):
            value = as_number(self.results.get(task, {}).get(key))
            if value is not None:
                values.append(value)
                sizes.append(self.size(task))
        if not values:
            return "micro", ("mismatch: no task of this group has the metric",)
        micro = sum(v * n for v, n in zip(values, sizes, strict=True)) / (sum(sizes) or 1)
        macro = sum(values) / len(values)
        if same(micro, logged):
            return "micro", ()
        if same(macro, logged):
            return "macro", ()
        return "micro", (
            f"mismatch: the log says {logged:.6g}, its tasks give {micro:.6g} weighted by items "
            f"and {macro:.6g} unweighted",
        )

    def size(self, task: str) -> float:
        """Return the number of items lm-eval weights a task by."""
        logged = self.results.get(task, {}).get("sample_len")
        return float(self.sizes.get(task, {}).get("effective", logged) or 0)

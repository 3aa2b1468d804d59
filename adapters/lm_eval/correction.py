"""Makes logged values agree with the samples: means, their standard errors, and groups of them.

Every key that depends on a replaced value is replaced with it: the standard error, the rows of
the groups around the task, and their copies under ``groups``.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin.adapters.lm_eval.block import Change, places
from evalstats_plugin.adapters.lm_eval.layout import section
from evalstats_plugin.adapters.lm_eval.reader import read_results
from evalstats_plugin.adapters.lm_eval.recompute import (
    disagreement,
    mean_and_stderr,
    pooled_stderr,
    same,
    unweighted_stderr,
)
from evalstats_plugin.adapters.lm_eval.tree import Tree
from evalstats_plugin.adapters.lm_eval.values import as_number
from evalstats_plugin.responses import Responses, Selection

NOT_A_NUMBER = "N/A"


def corrected(data: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], list[Change]]:
    """Return the results with every mean that its items contradict replaced, and what that was."""
    changed = copy.deepcopy(dict(data))
    tree = Tree(data)
    changes: list[Change] = []
    touched: set[tuple[str, str]] = set()
    for r in read_results(data, path, Selection()):
        if r.aggregation != "mean" or not len(r.item_ids) or r.logged is None:
            continue
        for key, value in _of_task(r):
            touched |= {(group, r.metric) for group in tree.groups_around(r.task)}
            changes += _put(changed, r.task, key, value)
    for group, metric in sorted(touched):
        for key, value in _of_group(changed, tree, group, metric):
            changes += _put(changed, group, key, value)
    return changed, changes


def _of_task(r: Responses) -> Iterator[tuple[str, float]]:
    """Yield the keys of a task that its items contradict, with what they should say."""
    scores = r.scores[:, 0]
    value, stderr = mean_and_stderr(scores)
    wrong = disagreement(scores, r.logged, None) is not None
    if wrong:
        yield r.metric, value
    # With gaps (nanmean) the logged standard error is a bootstrap's, right as long as its value is.
    gaps = bool(np.isnan(scores).any())
    if wrong or (not gaps and disagreement(scores, None, r.logged_std_error) is not None):
        yield _stderr_key(r.metric), stderr


def _stderr_key(metric: str) -> str:
    name, _, filter_name = metric.partition(",")
    return f"{name}_stderr,{filter_name}"


def _of_group(
    changed: Mapping[str, Any], tree: Tree, group: str, metric: str
) -> Iterator[tuple[str, float]]:
    """Yield a group's keys, from the values of its tasks as they are now."""
    if metric not in section(changed, "results", group):
        return
    tasks = [t for t in tree.leaves(group) if metric in section(changed, "results", t)]
    values = [as_number(changed["results"][t][metric]) for t in tasks]
    errors = [as_number(changed["results"][t].get(_stderr_key(metric))) for t in tasks]
    means = [v for v in values if v is not None]
    known = [e for e in errors if e is not None]
    sizes = [tree.size(t) for t in tasks]
    micro = tree.weighting(group, metric)[0] == "micro"
    if len(means) < len(tasks):
        return
    if micro:
        yield metric, sum(v * n for v, n in zip(means, sizes, strict=True)) / sum(sizes)
    else:
        yield metric, sum(means) / len(means)
    if len(known) < len(tasks):
        yield _stderr_key(metric), math.nan
    else:
        yield (
            _stderr_key(metric),
            pooled_stderr(known, sizes) if micro else unweighted_stderr(known),
        )


def _put(data: Mapping[str, Any], task: str, key: str, value: float) -> list[Change]:
    """Replace one value wherever it stands; return the change, or nothing if there is none."""
    logged = data["results"][task].get(key)
    before = as_number(logged)
    undefined = before is None and math.isnan(value)
    if logged is None or undefined or (before is not None and same(before, value)):
        return []
    for place in places(data, task):
        if key in place:
            place[key] = NOT_A_NUMBER if math.isnan(value) else value
    new = value if math.isfinite(value) else None
    said = json.dumps(logged, ensure_ascii=False)
    return [{"task": task, "key": key, "logged": said, "rescored": new}]

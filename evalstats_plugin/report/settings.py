"""Settings of the runs behind scores, what differs between the models of a task first.

`settings_of` lists what the logs hold: harness and versions, settings of tasks and of models,
prompts by their hash, and dates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import grouped
from evalstats_plugin.data.runs import PER_TASK
from evalstats_plugin.errors import few

_PROMPTS, _DAY = "prompts (hash)", "run on"
_OF_MODELS = frozenset({_DAY, "base_url", "chat_template", "deployment", "revision", "sha"})
"""Settings that differ between any two models."""

_UNSET = "not logged"
_MOST_TASKS = 8


class Setting(NamedTuple):
    """A setting of the tasks on which it has the same values."""

    tasks: str
    name: str
    models: Mapping[str, Sequence[str]]
    """Models by value."""
    is_common: bool
    """Whether all models have the same value."""
    may_matter: bool
    """Whether models differ in what should be the same for a fair comparison."""


def settings_of(responses: Sequence[Responses]) -> list[Setting]:
    """Return the settings of runs: what may matter first, then what models have of their own."""
    by_task = grouped(responses, lambda r: r.task)
    alike: dict[tuple[object, ...], list[Setting]] = {}
    for task, of_task in by_task.items():
        for setting in _of_task(of_task):
            by_value = setting.models.items()
            who = setting.models if setting.is_common else ((v, *names) for v, names in by_value)
            alike.setdefault((setting.name, *who), []).append(setting._replace(tasks=task))
    listed: list[Setting] = []
    for own in alike.values():
        tasks = few([setting.tasks for setting in own], _MOST_TASKS)
        listed.append(own[0]._replace(tasks="all tasks" if len(own) == len(by_task) else tasks))
    return sorted(listed, key=lambda setting: (not setting.may_matter, setting.is_common))


def _of_task(of_task: Sequence[Responses]) -> list[Setting]:
    by_model: dict[str, dict[str, str]] = {}
    for model, runs in grouped(of_task, lambda r: r.model).items():
        run = runs[0]
        values = {
            "harness": f"{run.source.harness} {run.source.version or ''}".strip(),
            "task version": run.provenance.task_version,
            **{name.removeprefix(PER_TASK): value for name, value in run.settings},
            _DAY: run.source.when[:10],
        }
        by_model[model] = {name: value for name, value in values.items() if value}
    for model, digest in _prompts(of_task).items():
        by_model[model][_PROMPTS] = digest
    names = dict.fromkeys(name for own in by_model.values() for name in own)
    # Settings of one harness are no others' business.
    one_harness = len({r.source.harness for r in of_task}) == 1
    settings: list[Setting] = []
    for name in names:
        models: dict[str, list[str]] = {}
        for model, own in by_model.items():
            if name in own or one_harness:
                models.setdefault(own.get(name, _UNSET), []).append(model)
        explained = name in _OF_MODELS or (name == _PROMPTS and "chat_template" in names)
        common = len(models) == 1
        settings.append(Setting("", name, models, common, not (common or explained)))
    return settings


def _prompts(of_task: Sequence[Responses]) -> dict[str, str]:
    """Return a hash of the prompts of each model, over the items that all of them have."""
    hashed = {r.model: r for r in reversed(of_task) if r.provenance.prompt_hashes is not None}
    if not hashed:
        return {}
    shared, *others = (np.unique(r.item_ids.astype(str)) for r in hashed.values())
    for ids in others:
        shared = np.intersect1d(shared, ids, assume_unique=True)
    digests: dict[str, str] = {}
    for model, r in hashed.items():
        ids, places = np.unique(r.item_ids.astype(str), return_index=True)
        prompts = np.asarray(r.provenance.prompt_hashes)[places[np.isin(ids, shared)]]
        digests[model] = sha256("\n".join(map(str, prompts.tolist())).encode()).hexdigest()[:8]
    return digests if len(shared) else {}

"""Groups of lm-eval rebuilt for a logged run: the log names their members, YAML says how to sum."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from evalstats_plugin.adapters.lm_eval.replay_log import LoggedRun
from evalstats_plugin.adapters.lm_eval.replay_model import harness
from evalstats_plugin.adapters.lm_eval.replay_tasks import Definitions


def build_groups(
    run: LoggedRun, tasks: Mapping[str, Any], definitions: Definitions
) -> tuple[dict[str, Any], list[str]]:
    """Build every group whose tasks are all there; say of the others why they are not computed."""
    members: dict[str, list[str]] = run.results.get("group_subtasks", {})
    built: dict[str, Any] = {}
    notes: list[str] = []

    def build(name: str) -> Any | None:
        if name in tasks:
            return tasks[name]
        if name in built:
            return built[name]
        children = [build(child) for child in members.get(name, ())]
        if not children or any(child is None for child in children):
            return None
        group = _shell(run, name, definitions, notes)
        for child in children:
            group.add(child)
        built[name] = group
        return group

    # Versions up to 0.4.11 list plain tasks here too, without members.
    partial = [name for name, children in members.items() if children and build(name) is None]
    notes += [f"group {name!r} is left out: not all its tasks are scored again" for name in partial]
    return {name: built[name] for name in members if name in built}, notes


def _shell(run: LoggedRun, name: str, definitions: Definitions, notes: list[str]) -> Any:
    """Build a group without members yet; only one that had scores needs its definition."""
    group_class = harness("api.group").Group
    config = None
    if name in run.results.get("groups", {}):
        config = definitions.group(name)
        if config is None or not config.get("aggregate_metric_list"):
            notes.append(
                f"group {name!r} gets no scores: lm-eval knows here of no way to sum it up "
                "(--include-path gives the folder of its YAML file)"
            )
    if config is None:
        alias = run.results["results"].get(name, {}).get("alias")
        return group_class(name=name, alias=alias)
    group_config = harness("config.group").GroupConfig
    known = {one.name for one in fields(group_config)}
    config = {key: value for key, value in config.items() if key in known}
    return group_class.from_config(group_config(**{**config, "group": name}))

"""Who the model is, and how it was run: what tells apart runs under one name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evalstats_plugin.adapters.inspect_ai.early_stops import task_args_of
from evalstats_plugin.adapters.inspect_ai.printable import printable
from evalstats_plugin.runs import PER_TASK

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog
    from inspect_ai.model import GenerateConfig

# What changes answers; the rest of the configuration is about speed, retries and caching.
_SAMPLING = (
    "best_of", "effort", "extra_body", "frequency_penalty", "internal_tools", "logit_bias",
    "max_tokens", "num_choices", "presence_penalty", "reasoning_effort", "reasoning_history",
    "reasoning_mode", "reasoning_tokens", "response_schema", "seed", "stop_seqs",
    "system_message", "temperature", "top_k", "top_p", "verbosity",
)  # fmt: skip
_LIMITS = ("message_limit", "token_limit", "time_limit", "working_limit", "turn_limit")
_LONGEST = 40
_SHORT = 8

Settings = tuple[tuple[str, str], ...]


def settings_of(log: EvalLog) -> Settings:
    """Return what makes two runs of one model differ.

    How a task configures its run (temperature, grader, arguments) belongs to the task: two tasks
    that do it differently are still answered by one model.
    """
    found = {
        **dict(_texts(log.eval.model_args)),
        **dict(_sampling(log.eval.model_generate_config)),
        **dict(_texts({"base_url": log.eval.model_base_url})),
        **{PER_TASK + name: text for name, text in _of_task(log)},
    }
    return tuple(sorted(found.items()))


def _of_task(log: EvalLog) -> Iterator[tuple[str, str]]:
    yield from _texts(task_args_of(log))
    yield from _sampling(log.plan.config)
    yield from _texts({name: getattr(log.eval.config, name, None) for name in _LIMITS})
    yield from _texts({"solver": log.eval.solver, "solver_args": log.eval.solver_args or None})
    if log.eval.task_version:
        yield "version", printable(str(log.eval.task_version))
    for role, model in (log.eval.model_roles or {}).items():
        models: list[Any] = model if isinstance(model, list) else [model]
        yield from _texts({f"role.{role}": ", ".join(str(m.model) for m in models)})


def _sampling(config: GenerateConfig) -> Iterator[tuple[str, str]]:
    known = config.model_dump(exclude_none=True)
    yield from _texts({name: known[name] for name in _SAMPLING if name in known})


def _texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give values as short texts; long ones by a fingerprint."""
    for name, value in values.items():
        if value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
        if len(text) > _LONGEST:
            text = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_SHORT]
        yield printable(name), printable(text)

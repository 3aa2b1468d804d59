"""Any task of Inspect as an adaptive test, by name: ``evalstats_plugin/adaptive``.

``inspect eval evalstats_plugin/adaptive -T task=inspect_evals/gsm8k -T bank=bank.parquet`` tests
like ``evalstats-plugin adapt run inspect``. The log is of the task itself; its arguments say how
it was tested, so that ``inspect eval-retry`` goes on adaptively.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

# Inspect itself imports this module, so that nothing is loaded that was not there.
from inspect_ai import Task, task  # noqa: TID253

from evalstats_plugin.errors import EvalStatsError, SelectionError


@task(name="adaptive")
def adaptive_task(
    task: str, bank: str, task_args: Mapping[str, Any] | None = None, **options: Any
) -> Task:
    """Make an adaptive test of a task.

    Parameters
    ----------
    task
        As Inspect names it: ``file.py@task`` or ``package/task``.
    bank
        File of the item bank.
    task_args
        Arguments of the task itself.
    options
        As of `adaptive.adaptive`.
    """
    from inspect_ai._util.error import PrerequisiteError

    try:
        return _made(task, {"bank": bank, **options}, dict(task_args or {}))
    except EvalStatsError as error:
        # Which Inspect shows as a message.
        raise PrerequisiteError(str(error)) from error


def _made(name: str, options: dict[str, Any], arguments: dict[str, Any]) -> Task:
    from evalstats_plugin.adapters.inspect_ai.adaptive import AdaptiveStopping
    from evalstats_plugin.adaptive.plan import Plan

    stopping = AdaptiveStopping(Plan.of(options), arguments)
    inner = _loaded(name, arguments)
    constants = import_module("inspect_ai._eval.task.constants")
    # With those that are not named, as a run without us logs them.
    stopping.task_args = dict(getattr(inner, constants.TASK_ALL_PARAMS_ATTR, arguments))
    inspect: Any = import_module("inspect_ai")
    made: Task = inspect.task_with(inner, name=inner.name, early_stopping=stopping)
    # By the file of the task, a retry would look for our name in there.
    vars(made).pop(constants.TASK_FILE_ATTR, None)
    return made


def _loaded(name: str, arguments: dict[str, Any]) -> Task:
    from inspect_ai._eval.loader import create_tasks, load_tasks

    file = Path(name)
    try:
        # By its path from here a whole file is a pattern to Inspect, which has to be relative.
        tasks = (
            create_tasks([file.name], arguments, file.absolute().parent)
            if file.is_file()
            else load_tasks([name], arguments)
        )
    except Exception as error:
        msg = f"Inspect cannot load task {name!r}: {said_by(error)}"
        raise SelectionError(msg) from error
    if len(tasks) != 1:
        names = ", ".join(each.name for each in tasks) or "none"
        msg = f"{len(tasks)} tasks found in {name} ({names}), expected one"
        raise SelectionError(f"{msg}: name it, such as file.py@task")
    return tasks[0]


def said_by(error: Exception) -> str:
    """Return what an error of Inspect says in one line, without the markup of its colours."""
    from rich.errors import MarkupError
    from rich.text import Text

    text = " ".join(str(error).split())
    # Else the brackets are its own.
    with suppress(MarkupError):
        text = Text.from_markup(text).plain
    return f"{type(error).__name__}: {text}"

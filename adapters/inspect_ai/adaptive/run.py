"""Run any task of Inspect as an adaptive test, or resume an interrupted run.

`run_task` runs it from Python; `adaptive_task` is a task of Inspect, ``evalstats_plugin/adaptive``,
that wraps another task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inspect_ai import Task, task

from evalstats_plugin.adapters.inspect_ai.adaptive import found_in
from evalstats_plugin.adapters.inspect_ai.archive.guard import load_inspect
from evalstats_plugin.errors import DesignError, EvalStatsError, SelectionError, counted
from evalstats_plugin.runtime.writing import scratch_folder

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog
    from inspect_ai.model import Model

    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.adaptive.plan import Plan


OnStart = Callable[["Plan", "ItemBank", int], None]
"""Called with the plan, the bank of the task's items, and the number of earlier answers."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Task, model and arguments, as for ``inspect eval``."""

    task: str
    model: str
    task_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limit: int | None = None
    epochs: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of ``inspect_ai.eval`` that ``eval_retry`` has too."""


def run_task(run: Run, plan: Plan, on_start: OnStart | None = None) -> EvalLog:
    """Run a task until the plan's stopping rule, and return its log.

    An interrupted run is resumed: its answers are not asked for again, and its samples are in the
    new log.

    Parameters
    ----------
    on_start
        Called before the run.

    Raises
    ------
    SelectionError, DesignError
        There is no such task or model, or bank and task do not match.
    EvalStatsError
        The run ended in an error; its answers are kept.
    KeyboardInterrupt
        The run was cancelled; its answers are kept.
    """
    load_inspect()
    arguments = _arguments(run, plan)
    task = _task(arguments)
    model = task.model or _model(run)
    stopping: Any = task.early_stopping  # an `AdaptiveStopping`
    samples = list(task.dataset)
    for number, sample in enumerate(samples, 1):
        # As Inspect numbers those without an id.
        sample.id = number if sample.id is None else sample.id
    samples = samples[: run.limit]
    with closing(stopping), scratch_folder() as folder:
        session, saved = stopping.begin(task.name, str(model), samples)
        if on_start is not None:
            on_start(plan, session.bank, session.n)
        earlier = _earlier(saved.facts.get("log"), folder) if saved else None
        if session.stopped is not None and (finished := _complete(earlier, plan)) is not None:
            return finished
        # Every sample needs a slot to be chosen; waiting costs nothing, and the connections to the
        # model are limited separately.
        slots = max(len(samples) * (run.epochs or task.epochs or 1), 1)
        # Parts of its signatures are unknown to type checkers.
        inspect: Any = import_module("inspect_ai")
        if earlier is None:
            logs: list[EvalLog] = inspect.eval(
                task,
                model=model,
                limit=run.limit,
                epochs=run.epochs,
                max_samples=slots,
                **run.settings,
            )
        else:
            stopping.close()  # the new run opens the file itself
            spec = earlier.eval
            spec.task_registry_name, spec.task_file = task.registry_name, None
            spec.task_args_passed, spec.model_args = arguments, dict(run.model_args)
            spec.config.limit, spec.config.epochs = run.limit, run.epochs
            # Read now: within its event loop Inspect would have nest_asyncio replace asyncio.run,
            # whose loops then stay open in all of this process.
            earlier.samples = list(earlier.samples or ())
            logs = inspect.eval_retry(earlier, max_samples=slots, **run.settings)
        if not logs:
            # Inspect returns none after an interrupt.
            raise KeyboardInterrupt
    return _ended_well(logs[0], plan)


def _arguments(run: Run, plan: Plan) -> dict[str, Any]:
    """Return the arguments of the adaptive task; a resumed run takes them from the log."""
    file, at, name = run.task.partition("@")
    # Absolute, because the run may be resumed from another folder.
    where = str(Path(file).absolute()) if Path(file).is_file() else file
    options = {
        each.name: value
        for each in fields(plan)
        if (value := getattr(plan, each.name)) != each.default
    }
    for key in {"bank", "state"} & options.keys():
        options[key] = str(Path(options[key]).absolute())
    return {"task": f"{where}{at}{name}", "task_args": dict(run.task_args), **options}


def _task(arguments: Mapping[str, Any]) -> Task:
    from inspect_ai._util.error import PrerequisiteError

    try:
        return adaptive_task(**arguments)
    except PrerequisiteError as error:
        raise error.__cause__ or error from None


def _model(run: Run) -> Model:
    from inspect_ai.model import get_model

    try:
        return get_model(run.model, **run.model_args)
    except Exception as error:
        msg = f"Inspect cannot load model {run.model!r}: {plain_error(error)}"
        raise SelectionError(msg) from error


def _earlier(location: str | None, folder: Path) -> EvalLog | None:
    """Return the log of an interrupted run, with every sample that was over."""
    from inspect_ai.log import RecoveryNotAvailable, read_eval_log, recover_eval_log

    if location is None:
        return None
    try:
        log = read_eval_log(location)
    except Exception:  # noqa: BLE001 - gone or damaged: the answers are in the state file
        return None
    if log.status == "started":
        # A killed run has its last samples in a buffer beside the log.
        with suppress(RecoveryNotAvailable):
            whole = str(folder / Path(location).name)
            return recover_eval_log(location, output=whole, cleanup=False)
    return log


def _complete(earlier: EvalLog | None, plan: Plan) -> EvalLog | None:
    """Return the earlier log of a test that needs no more answers, if its run ended well."""
    if earlier is None:
        msg = (
            f"{plan.state} has all answers of a test whose log is gone, and nothing is left to ask"
        )
        raise DesignError(f"{msg}: remove it to test anew")
    return earlier if earlier.status == "success" else None


def _ended_well(log: EvalLog, plan: Plan) -> EvalLog:
    if log.status != "success":
        text = log.error.message if log.error else ""
        why = " ".join(text.split()) or f"status {log.status}"
        msg = f"the run did not end well: {why}; its log is {log.location}. The same command"
        raise EvalStatsError(f"{msg} again goes on from {plan.state}")
    if found_in(log) is None:
        msg = f"no sample was scored, so there is nothing to say; see the log {log.location}"
        raise EvalStatsError(msg)
    return log


@task(name="adaptive")
def adaptive_task(
    task: str, bank: str, task_args: Mapping[str, Any] | None = None, **options: Any
) -> Task:
    """Make an adaptive test of a task.

    Parameters
    ----------
    task
        As in Inspect: ``file.py@task`` or ``package/task``.
    bank
        File of the item bank.
    task_args
        Arguments of the task itself.
    options
        As for `asking.adaptive`.
    """
    from inspect_ai._util.error import PrerequisiteError

    from evalstats_plugin.adapters.inspect_ai.adaptive.asking import AdaptiveStopping
    from evalstats_plugin.adaptive.plan import Plan

    arguments = dict(task_args or {})
    try:
        stopping = AdaptiveStopping(Plan.of({"bank": bank, **options}), arguments)
        inner = _loaded(task, arguments)
    except EvalStatsError as error:
        # Inspect shows this error as a message, without a traceback.
        raise PrerequisiteError(str(error)) from error
    constants = import_module("inspect_ai._eval.task.constants")
    # With default arguments, as Inspect logs them.
    stopping.task_args = dict(getattr(inner, constants.TASK_ALL_PARAMS_ATTR, arguments))
    inspect: Any = import_module("inspect_ai")
    made: Task = inspect.task_with(inner, name=inner.name, early_stopping=stopping)
    # With the file of the task, a retry would look for our task's name in that file.
    vars(made).pop(constants.TASK_FILE_ATTR, None)
    return made


def _loaded(name: str, arguments: dict[str, Any]) -> Task:
    from inspect_ai._eval.loader import create_tasks, load_tasks

    file = Path(name)
    try:
        # Inspect takes a file as a pattern, which must be relative to its folder.
        tasks = (
            create_tasks([file.name], arguments, file.absolute().parent)
            if file.is_file()
            else load_tasks([name], arguments)
        )
    except Exception as error:
        raise SelectionError(f"Inspect cannot load task {name!r}: {plain_error(error)}") from error
    if len(tasks) != 1:
        names = ", ".join(each.name for each in tasks) or "none"
        msg = f"{name} has {counted(len(tasks), 'task')} ({names}): name one, such as file.py@task"
        raise SelectionError(msg)
    return tasks[0]


def plain_error(error: Exception) -> str:
    """Return an error of Inspect as one line of text, without colour markup."""
    from rich.errors import MarkupError
    from rich.text import Text

    text = " ".join(str(error).split())
    # Text that is no valid markup stays as it is.
    with suppress(MarkupError):
        text = Text.from_markup(text).plain
    return f"{type(error).__name__}: {text}"

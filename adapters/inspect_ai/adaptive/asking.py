"""Adaptive tests in Inspect, as early stopping: run only the most informative samples of a task.

In a task: ``Task(..., early_stopping=adaptive(bank="bank.parquet", stop_at=0.3))``. For any task:
``evalstats-plugin adapt run inspect TASK --bank bank.parquet --model MODEL``, or with Inspect's own
commands as ``evalstats_plugin/adaptive``; see `adaptive_task`. The log lists samples that were not
needed as stopped early, with the reason; the result is in its early stopping metadata, and in its
annotation.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalstats_plugin.adapters.inspect_ai.adaptive import MANAGER, TASK_ARGS
from evalstats_plugin.adapters.inspect_ai.adaptive.gate import Gate
from evalstats_plugin.adapters.inspect_ai.archive.samples import question_hash
from evalstats_plugin.adapters.inspect_ai.estimands import as_score
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.records import record_of
from evalstats_plugin.adaptive.session import EXHAUSTED, AdaptiveSession, AnswersFile
from evalstats_plugin.errors import DesignError, SelectionError, counted, few
from evalstats_plugin.runtime.untrusted import printable_name

if TYPE_CHECKING:
    from inspect_ai.dataset import Sample
    from inspect_ai.log import EvalSpec
    from inspect_ai.scorer import SampleScore
    from inspect_ai.util import EarlyStop


def adaptive(bank: str, **options: Any) -> AdaptiveStopping:
    """Make the early stopping of a task.

    Parameters
    ----------
    bank
        File of an item bank, made by ``evalstats-plugin adapt bank``. Inspect resolves paths in a
        task from the task's folder.
    options
        Fields of `evalstats_plugin.adaptive.plan.Plan`, such as ``stop_at``, ``max_items``,
        ``score_width``, ``budget``, ``above``, ``rule``, ``batch``, ``state``, ``metric``. With a
        state file, each model needs its own task with its own file.

    Raises
    ------
    LogError, DesignError, SelectionError
        As for `AdaptiveStopping`.
    """
    return AdaptiveStopping(Plan.of({"bank": bank, **options}))


class AdaptiveStopping:
    """Inspect's ``EarlyStopping``: one adaptive session for each run of a task by a model.

    Parameters
    ----------
    arguments
        Arguments of the task; saved answers are used only with the same.

    Raises
    ------
    LogError, DesignError, SelectionError
        The bank cannot be read, has no item that may be asked, or an option is invalid.
    """

    task_args: Mapping[str, Any] | None = None
    """All arguments of the task, for the log, if it is run by our adaptive task."""

    def __init__(self, plan: Plan, arguments: Mapping[str, Any] | None = None) -> None:
        self.plan = plan
        self._arguments = json.dumps(dict(arguments or {}), sort_keys=True, default=str)
        self._bank = plan.load()
        # Absolute, because Inspect changes into a task's folder while it makes the task.
        self._state = None if plan.state is None else Path(plan.state).absolute()
        self._saved: AnswersFile | None = None
        # Models that run the same task at the same time have their own sessions: samples run in
        # contexts that descend from that of their run.
        self._run: ContextVar[_Run] = ContextVar("evalstats_adaptive_run")

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Begin the session of a run."""
        if task.config.log_samples is False:
            msg = "samples are not logged, and then Inspect stops none of them early"
            raise DesignError(f"{msg}: leave out --no-log-samples")
        names = [each.name.rpartition("/")[2] for each in task.scorers or ()]
        check_scorers(names, self.plan.metrics(self._bank), named=self.plan.metric is not None)
        session, saved = self.begin(task.task, task.model, samples)
        by_item = {item: place for place, (_, item) in enumerate(session.bank.keys())}
        ids = [printable_name(str(sample.id)) for sample in samples]
        places = {item: by_item[item] for item in ids if item in by_item}
        # Samples of items that are not in the bank have slots too.
        slots = task.config.max_samples
        spare = None if slots is None else slots - (len(ids) - len(places)) * epochs
        gate = Gate(session, places, epochs, saved, spare)
        self._run.set(_Run(gate, self.plan.metrics(session.bank), epochs, saved))
        return MANAGER

    def begin(
        self, task: str, model: str, samples: Sequence[Sample]
    ) -> tuple[AdaptiveSession, AnswersFile | None]:
        """Begin the session of a model, or resume it from saved answers.

        Raises
        ------
        SelectionError
            The bank holds no item of the task.
        ItemConflictError
            A sample is another question than in the bank.
        DesignError
            The task has none of the bank's items that may be asked.
        LogError
            The state file is of another bank, model or task, or another run uses it.
        """
        name = task_in_bank(self._bank, printable_name(task))
        ids = [printable_name(str(sample.id)) for sample in samples]
        hashes = [_question_of(sample) for sample in samples]
        bank = self._bank.of_tasks([name]).matched([name] * len(ids), ids, hashes)
        if self._state is not None:
            about = {"model": model, "task": name, "task_args": self._arguments}
            if self._saved is None or not self._saved.is_for(bank, about):
                self._saved = AnswersFile(self._state, bank, about)
        return self.plan.session(bank, self._saved.answers if self._saved else ()), self._saved

    def close(self) -> None:
        """Release the state file for other runs."""
        if self._saved is not None:
            self._saved.close()

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:  # noqa: A002 - Inspect's name
        """Wait until a sample's item is chosen, then let it run; or stop it."""
        from inspect_ai.util import EarlyStop

        run, attempt = self._run.get(), SampleAttempt()
        if run.saved is not None:
            run.saved.note(log=attempt.log)
        reason = await run.gate.ask(printable_name(str(id)), epoch, attempt)
        return None if reason is None else EarlyStop(id=id, epoch=epoch, reason=reason)

    async def complete_sample(
        self,
        id: str | int,  # noqa: A002 - Inspect's name
        epoch: int,
        scores: dict[str, SampleScore],
    ) -> None:
        """Record the score of a sample."""
        run, score = self._run.get(), None
        if scores:
            run.metric, score = score_of(scores, run.metrics)
        run.gate.over(printable_name(str(id)), epoch, score)

    async def complete_task(self) -> dict[str, Any]:
        """Return the result of the test, for the log."""
        run = self._run.get()
        session = run.gate.session
        run.gate.finish()
        session.stopped = session.stopped or EXHAUSTED
        metric = run.metric or ", ".join(run.metrics) or None
        record = record_of(session, metric=metric, notes=run.notes())
        if self.task_args is not None:
            record[TASK_ARGS] = json.loads(json.dumps(dict(self.task_args), default=str))
        if run.saved is not None:
            run.saved.close()
        return record


def _question_of(sample: Sample) -> str:
    """Hash a question as our reader does from the log."""
    from inspect_ai.log import EvalSample

    asked: Sequence[Any] | str = sample.input
    logged = EvalSample(
        id=sample.id or 0,
        epoch=1,
        input=asked,
        choices=sample.choices,
        target=sample.target,  # pyright: ignore[reportArgumentType]
    )
    return question_hash(logged.summary())


@dataclass(eq=False)
class _Run:
    """One run of a task by one model."""

    gate: Gate
    metrics: Sequence[str]
    epochs: int
    saved: AnswersFile | None
    metric: str | None = None
    """By which samples are scored, once one is."""

    def notes(self) -> list[str]:
        """Return what the result of the test needs to be understood."""
        gate, notes = self.gate, list[str]()
        if gate.n_narrow:
            notes.append(
                f"{gate.n_narrow} items were chosen among few, as samples that waited had all "
                "slots: run with --max-samples at least the number of samples; the model's "
                "connections are limited by --max-connections all the same"
            )
        if self.metric is not None and self.metrics and self.metric not in self.metrics:
            notes.append(f"scored by {self.metric}; the bank's answers are by {few(self.metrics)}")
        if any(step.trials < self.epochs for step in gate.session.answers):
            notes.append(f"some items have answers of fewer than {counted(self.epochs, 'epoch')}")
        if gate.unanswered:
            notes.append(f"{gate.unanswered} items were asked and not scored (errors)")
        if gate.n_elsewhere:
            notes.append(
                f"{gate.n_elsewhere} items were answered in an earlier run, whose samples are not "
                "in this log: their scores are in the trace of its early stopping"
            )
        return notes


def task_in_bank(bank: ItemBank, task: str) -> str:
    """Return the bank's name of a task, ``"gsm8k"`` or ``"inspect_evals/gsm8k"``.

    Raises
    ------
    SelectionError
        The bank has no item of it.
    """
    if task in bank.task_names:
        return task
    short = task.rpartition("/")[2]
    alike = [name for name in bank.task_names if name.rpartition("/")[2] == short]
    if len(alike) != 1:
        names = few(bank.task_names)
        raise SelectionError(f"the bank holds no items of task {task!r}; it has: {names}")
    return alike[0]


def score_of(scores: Mapping[str, SampleScore], metrics: Sequence[str]) -> tuple[str, float | None]:
    """Return the metric, named as in our reader, and the score of a sample, None without one.

    Raises
    ------
    SelectionError
        Samples are scored by none of the metrics, or by several.
    """
    by_name: dict[str, Any] = {}
    for name, each in scores.items():
        value = each.score.value
        parts = value.items() if isinstance(value, Mapping) else [(None, value)]
        by_name |= {name if key is None else f"{name}:{key}": part for key, part in parts}
    usable = [name for name in by_name if name in metrics or not metrics]
    # What there is one of needs no name.
    usable = usable or list(by_name)
    if len(usable) != 1:
        asked = f", {few(metrics)} wanted" if metrics else ""
        msg = f"samples are scored by {few(list(by_name))}{asked}: name one as the test's metric"
        raise SelectionError(msg)
    return usable[0], as_score(by_name[usable[0]])


def check_scorers(scorers: Sequence[str], metrics: Sequence[str], *, named: bool) -> None:
    """Raise `SelectionError`, before anything is asked, if no scorer gives a metric wanted.

    Parameters
    ----------
    scorers
        Names of the task's scorers.
    metrics
        Metrics wanted; a part of a scorer's value is ``scorer:part``; empty for any.
    named
        Whether the user named the metric; else it is the bank's, and the only scorer of a task is
        taken whatever its name.
    """
    scored_by = {name.partition(":")[0] for name in metrics} & {*scorers}
    if not scorers or len(scored_by) == 1 or (len(scorers) == 1 and not (named and metrics)):
        return
    asked = f", {few(metrics)} wanted" if metrics else ""
    msg = f"samples are scored by {few(scorers)}{asked}: name one as the test's metric"
    raise SelectionError(msg)


class SampleAttempt:
    """The current attempt of Inspect at a sample; implements `gate.Attempt`.

    Made in the asynchronous task that runs the sample. Inspect retries a sample in the same task,
    after it has released its slot. Early stopping is not notified of errors, so this looks at the
    task.
    """

    def __init__(self) -> None:
        # The tasks themselves, because ids of finished tasks are used again.
        self._task: Any
        try:
            self._task = asyncio.current_task()
        except RuntimeError:
            # No asyncio loop: Inspect runs on trio.
            self._task = import_module("trio").lowlevel.current_task()
        self._samples: Any = import_module("inspect_ai.log._samples")
        self._active: Any = self._samples.sample_active()

    @property
    def log(self) -> str:
        """Location of the run's log; absolute for files."""
        location = str(self._active.log_location)
        return location if "://" in location else str(Path(location).absolute())

    def is_over(self) -> bool:
        """Whether it is over and will not be retried."""
        done = getattr(self._task, "done", None)
        if done is not None:
            return bool(done())
        # A task of trio.
        return self._task not in self._task.parent_nursery.child_tasks

    def has_slot(self) -> bool:
        """Whether it has a slot; it has none while it waits to be retried."""
        return any(each is self._active for each in self._samples.active_samples())

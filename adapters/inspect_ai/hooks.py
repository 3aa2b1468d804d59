"""Hooks of Inspect that annotate logs while it runs, turned on by an environment variable.

``EVALSTATS_ANNOTATE=1`` writes intervals into each log when its task ends;
``EVALSTATS_ANNOTATE=intervals,compare`` adds, when the run or the eval set ends, the paired
comparisons of its models with ``EVALSTATS_BASELINE`` (default: the first model of the run). With
the word ``metrics`` the logs that `eval()` returns have the bounds as metrics too. Errors never
reach the run; they are logged as one warning. The blocking work is in `live`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextvars import Context
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread
from inspect_ai.hooks import EvalSetEnd, EvalSetStart, Hooks, RunEnd, RunStart, TaskEnd, hooks

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

    from evalstats_plugin.adapters.inspect_ai.live import RunLogs


VARIABLE = "EVALSTATS_ANNOTATE"
"""Environment variable: what to write, words separated by commas; nothing if unset."""

BASELINE_VARIABLE = "EVALSTATS_BASELINE"
"""Environment variable: the baseline model of comparisons."""

INTERVALS, COMPARE, METRICS = "intervals", "compare", "metrics"
_ON, _OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_log = logging.getLogger(__name__)
T = TypeVar("T")


@lru_cache(maxsize=8)
def wanted(value: str) -> frozenset[str]:
    """Return what a value of the variable asks for: nothing, intervals, or comparisons too.

    An unknown word is reported once (the result is cached) and turns everything off, because a
    part of what was asked for could be mistaken for all of it.
    """
    words = {word.strip().lower() for word in value.split(",")} - {""}
    if words <= _OFF:
        return frozenset()
    if words <= _ON:
        return frozenset({INTERVALS})
    if unknown := sorted(words - _ON - {INTERVALS, COMPARE, METRICS}):
        _log.warning(
            "%s has the unknown word %s: logs are not annotated; set it to 1, %s or %s,%s,%s",
            VARIABLE, ", ".join(unknown), INTERVALS, INTERVALS, COMPARE, METRICS,
        )  # fmt: skip
        return frozenset()
    return frozenset({INTERVALS, *words} - _ON)


@hooks(  # pyright: ignore[reportUntypedClassDecorator] - Inspect's own
    name="evalstats_hooks",
    description=f"Intervals and comparisons written into the logs ({VARIABLE}=1 turns it on)",
)
class EvalStatsHooks(Hooks):
    """Writes intervals when a task ends, and comparisons between logs when the run ends."""

    def __init__(self) -> None:
        self._returned: dict[str, EvalLog] = {}
        self._reported: set[str] = set()

    def enabled(self) -> bool:
        """Whether there is anything to do; Inspect asks before every event of every sample."""
        return bool(wanted(os.environ.get(VARIABLE, "")))

    async def on_eval_set_start(self, data: EvalSetStart) -> None:  # noqa: ARG002 - Inspect's signature
        """Forget the logs of an earlier eval set that did not end."""
        self._returned.clear()

    async def on_run_start(self, data: RunStart) -> None:  # noqa: ARG002 - Inspect's signature
        """Report each error again in a new run."""
        self._reported.clear()

    async def on_task_end(self, data: TaskEnd) -> None:
        """Write intervals into the log of a task that ended well."""
        log = data.log
        if not _is_complete(log):
            return
        from evalstats_plugin.adapters.inspect_ai import live

        header = await self._in_thread(log.location, partial(live.annotate_alone, log.location))
        if header is not None:
            _carry_over(header, log)

    async def on_run_end(self, data: RunEnd) -> None:
        """Write comparisons into the logs of a run; those of an eval set wait for its end."""
        logs = {log.location: log for log in data.logs if _is_complete(log)}
        if COMPARE not in wanted(os.environ.get(VARIABLE, "")) or not logs:
            return
        if data.eval_set_id is not None:
            # The set returns these objects, but gives its hooks only the folder of the files.
            self._returned |= logs
            return
        from evalstats_plugin.adapters.inspect_ai import live

        await self._compare(live.RunLogs(list(logs), data.logs[0].eval.model), logs)

    async def on_eval_set_end(self, data: EvalSetEnd) -> None:
        """Write comparisons into all logs of an eval set, those of earlier runs too."""
        returned, self._returned = self._returned, {}
        if COMPARE not in wanted(os.environ.get(VARIABLE, "")):
            return
        from evalstats_plugin.adapters.inspect_ai import live

        logs = await self._in_thread(data.log_dir, partial(live.logs_of_set, data.log_dir))
        if logs is not None:
            await self._compare(logs, returned)

    async def _compare(self, run: RunLogs, returned: dict[str, EvalLog]) -> None:
        from evalstats_plugin.adapters.inspect_ai import live

        baseline = os.environ.get(BASELINE_VARIABLE) or None
        work = partial(live.annotate_together, run, baseline, self._warn)
        for location, header in (await self._in_thread("the run's logs", work) or {}).items():
            if location in returned:
                _carry_over(header, returned[location])

    async def _in_thread(self, what: str, work: Callable[[], T]) -> T | None:
        """Run blocking work in a thread, off the event loop that all samples share."""
        # A new context: in that of the run, Inspect would use connections to remote disks that
        # belong to this event loop, and wait without end.
        alone = partial(Context().run, work)
        try:
            # A limiter of its own: remote disks are slow, and must not hold up the threads that
            # Inspect itself asks for.
            return await anyio.to_thread.run_sync(alone, limiter=anyio.CapacityLimiter(1))
        except Exception as error:  # noqa: BLE001 - no error may reach the run
            self._warn(what, error)
            return None

    def _warn(self, what: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text not in self._reported:
            self._reported.add(text)
            _log.warning("evalstats did not annotate %s: %s", what, text)


def _is_complete(log: EvalLog) -> bool:
    if log.status == "success" and log.location:
        return True
    _log.debug("not annotated, its status is %s: %s", log.status, log.location)
    return False


def _carry_over(header: EvalLog, log: EvalLog) -> None:
    """Copy the annotation into the log object that ``eval()`` is about to return.

    Its metrics stay those of the task unless asked for, because callers may rely on their number.
    """
    log.log_updates = header.log_updates
    if METRICS in wanted(os.environ.get(VARIABLE, "")):
        log.results = header.results
    log.tags, log.metadata = header.tags, header.metadata
    # The file has changed: a conditional write with the old etag would be refused.
    log.etag = header.etag

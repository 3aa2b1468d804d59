"""The hook: annotates logs while Inspect runs, where an environment variable asks for it.

``EVALSTATS_ANNOTATE=1`` writes intervals into each log when its task ends;
``EVALSTATS_ANNOTATE=intervals,compare`` adds, when the run or the eval set ends, the paired
comparisons of its models with ``EVALSTATS_BASELINE`` (default: the first model of the run). A run
must never suffer from it: whatever goes wrong is one warning.
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
"""Environment variable: what is to be written, words separated by commas; unset: nothing."""


BASELINE_VARIABLE = "EVALSTATS_BASELINE"
"""Environment variable: the model that the others are compared with."""


INTERVALS, COMPARE = "intervals", "compare"


_ON, _OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


_log = logging.getLogger(__name__)


T = TypeVar("T")


@lru_cache(maxsize=8)
def wanted(value: str) -> frozenset[str]:
    """Return what the variable's value asks for: nothing, intervals, or comparisons too.

    An unknown word is said once (the answer is cached) and turns everything off: half of what
    was asked for would be mistaken for all of it.
    """
    words = {word.strip().lower() for word in value.split(",")} - {""}
    if words <= _OFF:
        return frozenset()
    if words <= _ON:
        return frozenset({INTERVALS})
    if unknown := sorted(words - {INTERVALS, COMPARE}):
        _log.warning(
            "%s has the unknown word %s, expected 1, %s or %s,%s; logs are not annotated",
            VARIABLE, ", ".join(unknown), INTERVALS, INTERVALS, COMPARE,
        )  # fmt: skip
        return frozenset()
    return frozenset({INTERVALS, *words})


@hooks(  # pyright: ignore[reportUntypedClassDecorator] - Inspect's own
    name="evalstats_hooks",
    description=f"Intervals and comparisons written into the logs ({VARIABLE}=1 turns it on)",
)
class EvalStatsHooks(Hooks):
    """Annotates each log when its task ends, and what crosses logs when the run ends."""

    def __init__(self) -> None:
        self._returned: dict[str, EvalLog] = {}
        self._said: set[str] = set()

    def enabled(self) -> bool:
        """Whether there is anything to do; Inspect asks before every event of every sample."""
        return bool(wanted(os.environ.get(VARIABLE, "")))

    async def on_eval_set_start(self, data: EvalSetStart) -> None:  # noqa: ARG002 - Inspect's signature
        """Forget the logs of a set that never came to its end."""
        self._returned.clear()

    async def on_run_start(self, data: RunStart) -> None:  # noqa: ARG002 - Inspect's signature
        """Let each run say its own troubles."""
        self._said.clear()

    async def on_task_end(self, data: TaskEnd) -> None:
        """Write intervals into the log of a task that ended well."""
        log = data.log
        if not _is_complete(log):
            return
        from evalstats_plugin.adapters.inspect_ai import live as inspect_ai_live

        header = await self._in_thread(
            log.location, partial(inspect_ai_live.annotate_alone, log.location)
        )
        if header is not None:
            _carry_over(header, log)

    async def on_run_end(self, data: RunEnd) -> None:
        """Write comparisons into the logs of a run; those of an eval set wait for its end."""
        logs = {log.location: log for log in data.logs if _is_complete(log)}
        if COMPARE not in wanted(os.environ.get(VARIABLE, "")) or not logs:
            return
        if data.eval_set_id is not None:
            # The set returns these objects, but tells its hooks only where the files lie.
            self._returned |= logs
            return
        from evalstats_plugin.adapters.inspect_ai import live as inspect_ai_live

        await self._compare(inspect_ai_live.RunLogs(list(logs), data.logs[0].eval.model), logs)

    async def on_eval_set_end(self, data: EvalSetEnd) -> None:
        """Write comparisons into all logs of an eval set, those of earlier runs too."""
        returned, self._returned = self._returned, {}
        if COMPARE not in wanted(os.environ.get(VARIABLE, "")):
            return
        from evalstats_plugin.adapters.inspect_ai import live as inspect_ai_live

        found = await self._in_thread(
            data.log_dir, partial(inspect_ai_live.logs_of_set, data.log_dir)
        )
        if found is not None:
            await self._compare(found, returned)

    async def _compare(self, run: RunLogs, returned: dict[str, EvalLog]) -> None:
        from evalstats_plugin.adapters.inspect_ai import live as inspect_ai_live

        baseline = os.environ.get(BASELINE_VARIABLE) or None
        work = partial(inspect_ai_live.annotate_together, run, baseline, self._say)
        for location, header in (await self._in_thread("the run's logs", work) or {}).items():
            if location in returned:
                _carry_over(header, returned[location])

    async def _in_thread(self, what: str, work: Callable[[], T]) -> T | None:
        """Do blocking work beside the event loop, which all running samples share."""
        # A context of its own: in the run's, Inspect would reach for connections to remote disks
        # that belong to this event loop, and wait for ever.
        alone = partial(Context().run, work)
        try:
            # A limiter of its own: remote disks are slow, and the threads that Inspect itself
            # asks for must not wait behind them.
            return await anyio.to_thread.run_sync(alone, limiter=anyio.CapacityLimiter(1))
        except Exception as error:  # noqa: BLE001 - a run must not suffer, whatever it is
            self._say(what, error)
            return None

    def _say(self, what: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text not in self._said:
            self._said.add(text)
            _log.warning("evalstats did not annotate %s: %s", what, text)


def _is_complete(log: EvalLog) -> bool:
    if log.status == "success" and log.location:
        return True
    _log.debug("not annotated, its status is %s: %s", log.status, log.location)
    return False


def _carry_over(header: EvalLog, log: EvalLog) -> None:
    """Put what was written into the log that eval() is about to return."""
    log.results, log.log_updates = header.results, header.log_updates
    log.tags, log.metadata = header.tags, header.metadata
    # The file has changed: a conditional write with the old one would be refused.
    log.etag = header.etag

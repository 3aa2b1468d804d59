"""Runs ``evalstats-plugin`` and writes down every question that lm-eval puts to a model.

As a script, ``python counted_lm_eval.py QUESTIONS KILL_AFTER ARGUMENTS...``, it dies as by a power
cut when so many answers are on disk.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from evalstats_plugin.adaptive.session import AnswersFile


@contextmanager
def few_tasks() -> Generator[None, None, None]:
    """Spare lm-eval the search through its own tasks, which takes six seconds."""
    from lm_eval import tasks

    everywhere = tasks.TaskManager
    tasks.TaskManager = partial(everywhere, include_defaults=False)
    try:
        yield
    finally:
        tasks.TaskManager = everywhere


@contextmanager
def counting(questions: Path) -> Generator[None, None, None]:
    """Write each question as a line: the document's own id, and the choice."""
    from lm_eval.models.huggingface import HFLM

    ask = HFLM.loglikelihood

    def counted(self: Any, requests: Sequence[Any], **given: Any) -> Any:
        with questions.open("a") as file:
            for request in requests:
                file.write(f"{request.task_name} {request.doc['id']} {request.idx}\n")
        return ask(self, requests, **given)

    HFLM.loglikelihood = counted
    try:
        yield
    finally:
        HFLM.loglikelihood = ask


def _dying(after: int) -> None:
    append = AnswersFile.append

    def append_and_die(self: Any, session: Any) -> None:
        append(self, session)
        if session.n >= after:
            os.kill(os.getpid(), signal.SIGKILL)

    AnswersFile.append = append_and_die


if __name__ == "__main__":
    from evalstats_plugin.cli import main

    _dying(int(sys.argv[2]))
    with few_tasks(), counting(Path(sys.argv[1])):
        main(sys.argv[3:])

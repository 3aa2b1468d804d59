"""Runs Inspect in processes of its own and writes down what it returned, for test_hooks.

Each run is a copy of this process, which has imported Inspect, and nothing of the package that is
tested. A line of standard input names one of `PARTS` and the folder to write to; it is answered by
its exit code.
"""

from __future__ import annotations

import json
import logging
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import run_on_s3

IMPORTED = (
    "inspect_ai._cli.main", "inspect_ai._eval.eval", "inspect_ai.agent._acp.server", "fastapi",
    "numpy", "scipy.special",
)  # fmt: skip
"""Modules that every run needs, and that start no threads."""
HEAVY = {"numpy", "pandas", "pyarrow", "scipy", "torch"}
TASKS = Path(__file__).with_name("demo_tasks.py")
MODELS = ["mockllm/a", "mockllm/b"]


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.levelname}: {record.getMessage()}")


@contextmanager
def _listening(**environment: str) -> Iterator[list[str]]:
    said = _Said()
    logger = logging.getLogger("evalstats_plugin")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(said)
    os.environ.update(environment)
    try:
        yield said.texts
    finally:
        logger.removeHandler(said)
        for name in environment:
            del os.environ[name]


def _facts(log: Any) -> dict[str, Any]:
    metrics = log.results.scores[0].metrics if log.results and log.results.scores else {}
    return {
        "status": log.status,
        "model": log.eval.model,
        "location": log.location,
        "tags": log.tags,
        "metadata": log.metadata,
        "updates": len(log.log_updates or []),
        "metrics": {key: metric.value for key, metric in metrics.items()},
    }


def _run(
    folder: Path, task: str, models: list[str], form: Any = "eval", **environment: str
) -> dict[str, Any]:
    from inspect_ai import eval as run_eval
    from inspect_ai.log import list_eval_logs, read_eval_log

    with _listening(**environment) as said:
        try:
            returned = run_eval(
                f"{TASKS}@{task}",
                model=models,
                log_dir=str(folder),
                log_format=form,
                log_realtime=False,
                display="log",
            )
        except KeyboardInterrupt:
            returned = []
    written = [read_eval_log(i, header_only=True) for i in list_eval_logs(str(folder))]
    return {
        "returned": [_facts(log) for log in returned],
        "written": [_facts(log) for log in written],
        "said": said,
    }


def _run_set(folder: Path, *tasks: str, **environment: str) -> dict[str, Any]:
    from inspect_ai import eval_set

    with _listening(**environment) as said:
        success, returned = eval_set(
            [f"{TASKS}@{task}" for task in tasks],
            model=MODELS,
            log_dir=str(folder),
            retry_attempts=0,
            retry_immediate=False,
            max_tasks=2,
            log_realtime=False,
            display="log",
        )
    files = {path.name: path.read_bytes() for path in sorted(folder.glob("*.eval"))}
    return {
        "success": success,
        "returned": [_facts(log) for log in returned],
        "manifest": json.loads((folder / "logs.json").read_text()),
        "files": {name: hash(content) for name, content in files.items()},
        "said": said,
    }


def _run_all(folder: Path) -> None:
    """Run everything that can share a process; the interrupted run comes last."""
    on, both = {"EVALSTATS_ANNOTATE": "1"}, {"EVALSTATS_ANNOTATE": "intervals,compare"}
    one = MODELS[:1]
    facts = {
        "success": _run(folder / "success", "sums", one, **on),
        "compared": _run(folder / "compared", "sums", MODELS, **both),
        "json": _run(folder / "json", "sums", MODELS, "json", **both),
        "other_baseline": _run(
            folder / "baseline", "sums", MODELS, **both, EVALSTATS_BASELINE="mockllm/b"
        ),
        "unknown_baseline": _run(
            folder / "unknown", "sums", MODELS, **both, EVALSTATS_BASELINE="mockllm/z"
        ),
        "alone": _run(folder / "alone", "sums", one, **both),
        "disabled": _run(folder / "disabled", "sums", one),
        "misspelt": _run(folder / "misspelt", "sums", MODELS, EVALSTATS_ANNOTATE="intervalls"),
        "exception": _run(
            folder / "exception", "sums", MODELS, **both, EVALSTATS_NO_PLUGINS="no-such-plugin"
        ),
        "pages": _run(folder / "pages", "pages", one, **on),
        "empty": _run(folder / "empty", "empty", one, **on),
        "too_many_errors": _run(folder / "errors", "too_many_errors", one, **on),
        "crash": _run(folder / "crash", "crash", one, **both),
        "set": _run_set(folder / "set", "sums", **both),
        "set_again": _run_set(folder / "set", "sums", **both),
        "set_in_part": _run_set(folder / "part", "crash", "sums", **both),
        "interrupted": _run(folder / "interrupted", "interrupted", one, **both),
    }
    (folder / "facts.json").write_text(json.dumps(facts))


def _run_command(folder: Path) -> None:
    """Run ``inspect eval`` with two models."""
    os.environ["EVALSTATS_ANNOTATE"] = "intervals, compare"
    options = ["--model", ",".join(MODELS), "--log-dir", str(folder), "--display", "log"]
    sys.argv = ["inspect", "eval", f"{TASKS}@sums", *options]
    runpy.run_module("inspect_ai", run_name="__main__")


def _load_registry(folder: Path) -> None:
    """Write down what Inspect's registry of the package imports that is slow to import."""
    before = {name for name in sys.modules if name.partition(".")[0] not in HEAVY}
    for name in sys.modules.keys() - before:
        del sys.modules[name]
    import_module("evalstats_plugin.adapters.inspect_ai.registry")
    loaded = {name.partition(".")[0] for name in sys.modules.keys() - before}
    (folder / "loaded.json").write_text(json.dumps(sorted(loaded)))


PARTS = {
    "python": _run_all, "command": _run_command, "s3": run_on_s3.main, "registry": _load_registry,
}  # fmt: skip


def _ended(part: str, folder: Path) -> int:
    """Run a part for minutes at most, and return its exit code; a traceback is among the errors."""
    signal.alarm(300)
    os.chdir(folder)
    os.dup2(2, 1)
    try:
        PARTS[part](folder)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001 - as Python itself does
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Serve until standard input ends."""
    for name in IMPORTED:
        import_module(name)
    for line in sys.stdin:
        part, _, folder = line.strip().partition(" ")
        child = os.fork()
        if not child:
            code = 1
            try:
                code = _ended(part, Path(folder))
            finally:
                os._exit(code)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

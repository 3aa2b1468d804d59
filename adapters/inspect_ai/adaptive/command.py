"""``evalstats-plugin adapt run inspect``."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import click

from evalstats_plugin.adapters.inspect_ai.adaptive import found_in
from evalstats_plugin.cli.adapt import options
from evalstats_plugin.cli.shell.options import POSITIVE, command, takes, under
from evalstats_plugin.cli.shell.running import Output, output
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.runtime.untrusted import echo

_run = under("What is run")
_DISTINCT = ("model", "model_args", "task_args", "limit", "epochs", "bank")


@dataclass(frozen=True, kw_only=True)
class InspectOptions(options.Planning):
    """The test, and what Inspect runs."""

    model: str = _run("As in `inspect eval`.", required=True)
    model_args: tuple[str, ...] = _run(
        "Argument of the model.", "-M", default=(), metavar="NAME=VALUE"
    )
    task_args: tuple[str, ...] = _run(
        "Argument of the task.", "-T", default=(), metavar="NAME=VALUE"
    )
    limit: int | None = _run("Only the first samples of the task.", type=POSITIVE, metavar="N")
    epochs: int | None = _run(
        "Epochs of an item.  [default: the task's]", type=POSITIVE, metavar="R"
    )
    max_connections: int | None = _run(
        "Most connections to the model's interface.", type=POSITIVE, metavar="N"
    )
    fail_on_error: bool | None = _run(
        "Go on where a sample ends in an error; its item has no answer.",
        "--no-fail-on-error", flag_value=False,
    )  # fmt: skip
    log_dir: str = _run("Folder of the log.", default="logs")
    state: Path | None = options.state(  # noqa: RUF009 - a field
        "a file in the folder of the log, or in this one for logs kept elsewhere;"
    )


@command(name="inspect")
@click.argument("task", metavar="TASK")
@takes("asked", InspectOptions)
@output("trace")
def inspect(task: str, *, asked: InspectOptions, output: Output) -> None:
    """Run a task of Inspect adaptively.

    TASK is a file, file.py@task or package/task. Writes an ordinary log, in which samples that
    were not needed are stopped early, and annotates it with the ability and the predicted score on
    all items. Run the same command again to go on with a test that was stopped.
    """
    from evalstats_plugin.adapters.inspect_ai.adaptive.run import Run, run_task
    from evalstats_plugin.logs.annotating import annotate

    # The state file must be on a local disk.
    folder = Path() if "://" in asked.log_dir else Path(asked.log_dir)
    state = asked.state or folder / f"adaptive_{options.name_of(asked, _DISTINCT, task)}.answers"
    plan = asked.plan(state=state)
    shown = sys.stdout.isatty() and not output.quiet
    run = Run(
        task=task,
        model=asked.model,
        task_args=_values(asked.task_args),
        model_args=_values(asked.model_args),
        limit=asked.limit,
        epochs=asked.epochs,
        settings={
            "max_connections": asked.max_connections,
            "fail_on_error": asked.fail_on_error,
            "log_dir": asked.log_dir,
            "display": None if shown else "none",
        },
    )
    # Inspect prints messages; standard output is for results.
    messages = StringIO() if output.quiet else sys.stderr
    try:
        with nullcontext() if shown else redirect_stdout(messages):
            log = run_task(run, plan, partial(options.tell_forecast, output=output))
            annotate(log.location, in_place=True)
    except KeyboardInterrupt:
        echo(f"cancelled: the same command again goes on from {state}", err=True)
        raise click.exceptions.Exit(1) from None
    if asked.state is None:
        state.unlink(missing_ok=True)
    names = (log.eval.model, log.eval.task, log.location)
    options.show_test(asked, output, found_in(log) or {}, names)


def _values(texts: tuple[str, ...]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` as Inspect does: values in YAML, or with commas between."""
    from inspect_ai._cli.util import parse_cli_args
    from yaml import YAMLError

    for text in texts:
        if "=" not in text:
            raise SelectionError(f"{text!r} gives no value: write it like NAME=VALUE")
    try:
        return parse_cli_args(texts)
    except YAMLError as error:
        msg = f"{', '.join(texts)}: the value is not YAML"
        raise SelectionError(f"{msg}: {getattr(error, 'problem', error)}") from error

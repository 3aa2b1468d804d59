"""``evalstats-plugin adapt run inspect``."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.adapters.inspect_ai.adaptive.logged import found_in
from evalstats_plugin.cli.adapt import options
from evalstats_plugin.cli.shell import options as shell_options
from evalstats_plugin.cli.shell import output
from evalstats_plugin.cli.shell.commands import Sectioned
from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.adapters.inspect_ai.adaptive.run import Run
    from evalstats_plugin.adaptive.plan import Plan


_COUNT = click.IntRange(min=1)

_SECTIONS = {
    "What is run": (
        "bank", "model", "model_args", "task_args", "limit", "epochs", "max_connections",
        "fail_on_error", "log_dir", "state",
    ),
    **options.SECTIONS,
}  # fmt: skip


@click.command("inspect", cls=Sectioned, sections=_SECTIONS)
@click.argument("task", metavar="TASK")
@click.option("--model", required=True, help="As of `inspect eval`.")
@click.option("-M", "model_args", multiple=True, metavar="NAME=VALUE", help="Of the model.")
@click.option("-T", "task_args", multiple=True, metavar="NAME=VALUE", help="Of the task.")
@click.option("--limit", type=_COUNT, metavar="N", help="Only the first samples of the task.")
@click.option("--epochs", type=_COUNT, metavar="R", help="Takes of an item.  [default: the task's]")
@click.option("--max-connections", type=_COUNT, metavar="N", help="Of the model's interface.")
@click.option(
    "--no-fail-on-error", "fail_on_error", is_flag=True, flag_value=False, default=None,
    help="Go on where a sample ends in an error; its item has no answer.",
)  # fmt: skip
@click.option("--log-dir", default="logs", show_default=True, help="Folder of the log.")
@options.state("a file in the folder of the log, or in this one for logs kept elsewhere;")
@options.planning
@output.figure_option("trace")
@shell_options.form
@shell_options.quiet
@click.pass_context
def inspect(ctx: click.Context, task: str, **chosen: Any) -> None:
    """Run a task of Inspect adaptively.

    TASK is a file, file.py@task or package/task. Writes an ordinary log, in which samples that
    were not needed are stopped early, and annotates it with the ability and the predicted score on
    all items. The same command again takes a test that was killed up where it was.
    """
    from evalstats_plugin.adapters.inspect_ai.adaptive.run import run_task
    from evalstats_plugin.logs.annotating import annotate

    output.check_figure(chosen, "trace")
    # The state file must be on a local disk.
    folder = Path() if "://" in chosen["log_dir"] else Path(chosen["log_dir"])
    state: Path = chosen["state"] or folder / f"adaptive_{_name(task, chosen)}.answers"
    plan = options.plan_of(chosen, state=state)
    shown = sys.stdout.isatty() and not chosen["quiet"]

    def on_start(plan: Plan, bank: Any, answered: int) -> None:
        options.tell_forecast(plan, bank, answered, quiet=chosen["quiet"])

    run = _run_of(task, chosen, shown=shown)
    # Inspect prints messages; standard output is for results.
    messages = StringIO() if chosen["quiet"] else sys.stderr
    try:
        with nullcontext() if shown else redirect_stdout(messages):
            log = run_task(run, plan, on_start)
            annotate(log.location, in_place=True)
    except KeyboardInterrupt:
        click.echo(f"cancelled: the same command again goes on from {state}", err=True)
        ctx.exit(1)
    if chosen["state"] is None:
        state.unlink(missing_ok=True)
    options.show_test(
        ctx, chosen, found_in(log) or {}, (log.eval.model, log.eval.task, log.location)
    )


def _run_of(task: str, chosen: Mapping[str, Any], *, shown: bool) -> Run:
    from evalstats_plugin.adapters.inspect_ai.adaptive.run import Run

    return Run(
        task=task,
        model=chosen["model"],
        task_args=_values(chosen["task_args"]),
        model_args=_values(chosen["model_args"]),
        limit=chosen["limit"],
        epochs=chosen["epochs"],
        settings={
            "max_connections": chosen["max_connections"],
            "fail_on_error": chosen["fail_on_error"],
            "log_dir": chosen["log_dir"],
            "display": None if shown else "none",
        },
    )


def _values(texts: tuple[str, ...]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` with values in YAML, as Inspect does."""
    import yaml

    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise SelectionError(f"{text!r} found, expected NAME=VALUE")
        try:
            found[name.replace("-", "_")] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            msg = f"{text!r} found, expected NAME=VALUE with a value in YAML"
            raise SelectionError(f"{msg}: {getattr(error, 'problem', error)}") from error
    return found


def _name(task: str, chosen: dict[str, Any]) -> str:
    """Hash what distinguishes tests whose state files are in one folder."""
    names = ("model", "model_args", "task_args", "limit", "epochs", "bank")
    text = json.dumps([task, *(chosen[name] for name in names)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]

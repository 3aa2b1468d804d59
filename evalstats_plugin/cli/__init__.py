"""The command line: parse, call, print. Each command is loaded when it is run."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.errors import EvalStatsError
from evalstats_plugin.runtime import VERSION

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


COMMANDS = {
    "adapt": "Adaptive testing: ask a model only the most informative items.",
    "annotate": "Write intervals and comparisons into the harness's own results files.",
    "compare": "Compare models on the same items (paired).",
    "completion": "Print the shell-completion script.",
    "export": "Export item scores as CSV, Parquet or Every Eval Ever.",
    "judge": "Estimate human scores from a judge on all items and human labels on a few.",
    "irt": "Fit item response models: model abilities and item difficulties.",
    "plugins": "List the installed adapters and methods.",
    "pool": "Pool models and tasks in a hierarchical model: scores borrow from each other.",
    "power": "Plan a comparison: power, items and epochs for a difference.",
    "rank": "Rank models or items from pairwise comparisons.",
    "report": "Report every score with a confidence interval.",
}

_ELSEWHERE = {"completion": "evalstats_plugin.cli.shell.completion:completion"}
"""Commands that are not in a module of their own name."""

_COMPLETE = "_EVALSTATS_PLUGIN_COMPLETE"


class _Group(click.Group):
    """Lists commands without importing them, and turns our errors into exit code 2."""

    def main(self, *args: Any, **extra: Any) -> Any:
        if _COMPLETE in os.environ:
            from evalstats_plugin.cli.shell.completion import complete_files_too

            complete_files_too()
        return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *_plugin_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            return _load(_ELSEWHERE.get(cmd_name, f"{__name__}.{cmd_name}:{cmd_name}"))
        added = _plugin_commands(ctx).get(cmd_name)
        return _load(added[1]) if added else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        added = {name: summary for name, (summary, _) in _plugin_commands(ctx).items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**added, **COMMANDS}.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        from evalstats_plugin.cli.shell.completion import summaries

        added = {name: summary for name, (summary, _) in _plugin_commands(ctx).items()}
        return summaries({**added, **COMMANDS}, incomplete) + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            self._take_defaults(ctx, name, command, rest)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except EvalStatsError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(2)
        except BrokenPipeError:
            raise  # whoever read the output has enough of it, which click knows
        except OSError as error:
            where = error.filename or "standard output"
            click.echo(f"error: {where}: {error.strerror or error}", err=True)
            ctx.exit(2)

    def _take_defaults(
        self, ctx: click.Context, name: str, command: click.Command, rest: list[str]
    ) -> None:
        """Let files set the defaults of the command that comes next, and say so when it is done."""
        asks_for_help = {"-h", "--help"} & set(rest)
        if ctx.resilient_parsing or ctx.params.get("no_config") or asks_for_help:
            return
        from evalstats_plugin.cli.shell.defaults import read_defaults

        defaults = read_defaults(Path.cwd())
        if not defaults.tables:
            return
        asked_quiet = bool({"-q", "--quiet"} & set(rest))
        ctx.default_map = {name: defaults.of(command, name, self.list_commands(ctx))}

        def say() -> None:
            quiet, _ = defaults.used.get("quiet", (asked_quiet, None))
            if defaults.used and not quiet:
                click.echo(f"defaults: {defaults.said()}", err=True)

        ctx.call_on_close(say)


def _plugin_commands(ctx: click.Context) -> dict[str, tuple[str, str]]:
    """Summary and function of the commands that plugins add."""
    from evalstats_plugin.plugins import load_plugins

    blocked = ctx.params.get("no_plugin") or ()
    try:
        commands = load_plugins(blocked).commands().values()
    except EvalStatsError as error:
        click.echo(f"error: {error}", err=True)
        ctx.exit(2)
    return {c.name: (c.summary, c.function) for c in commands}


def _load(function: str) -> click.Command:
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True
)
@click.version_option(VERSION, prog_name="evalstats-plugin")
@click.option(
    "--no-plugin", metavar="NAME", multiple=True, help="Do not load a plugin; may be repeated."
)
@click.option(
    "--no-config",
    is_flag=True,
    envvar="EVALSTATS_NO_CONFIG",
    show_envvar=True,
    help="Ignore option defaults in pyproject.toml and ~/.config/evalstats-plugin.toml.",
)
@click.option(
    "--jobs",
    type=int,
    metavar="N",
    help="Number of processes for logs, bootstraps and folds; -1 for all cores.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Address of a running Dask scheduler that does this work instead, such as "
    "tcp://host:8786; its workers must find the logs under the same paths.",
)
@click.pass_context
def main(
    ctx: click.Context,
    no_plugin: tuple[str, ...],
    jobs: int | None,
    scheduler: str | None,
    *,
    no_config: bool,  # noqa: ARG001 - read where a command is found, which comes first
) -> None:
    """Statistics for LLM evaluation results that a harness already logged."""
    ctx.obj = no_plugin
    if jobs is not None or scheduler is not None:
        from evalstats_plugin.runtime.workers import workers

        backend = "loky" if scheduler is None else "dask"
        ctx.with_resource(workers(-1 if jobs is None else jobs, backend, scheduler))
    if os.environ.get("NO_COLOR"):
        ctx.color = False

"""The command line: parse, call, print. Each command is loaded when it is run."""
# PART lazy_group - A command of commands, each of which is imported when it is run.

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.errors import EvalStatsError
from evalstats_plugin.runtime import VERSION

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


COMMANDS = {
    "adapt": "Ask a model only the items that tell most, until enough is known.",
    "annotate": "Write the intervals into the harness's own results files.",
    "compare": "Show which models differ for certain, item by item.",
    "completion": "Print what makes a shell complete commands, options and files.",
    "export": "Write what was logged as a table or in the shared schema.",
    "irt": "Show how able each model and how hard each item is, on one scale.",
    "plugins": "List the installed adapters and methods.",
    "power": "Plan a comparison: items, epochs or models for a difference.",
    "rank": "Rank models or items by comparisons of two: read them, or ask for them.",
    "report": "Show every score with an interval that holds at any n.",
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
    help="Take no defaults of options from pyproject.toml or ~/.config/evalstats-plugin.toml.",
)
@click.option(
    "--jobs",
    type=int,
    metavar="N",
    help="Processes for what is done in pieces, as logs, bootstraps and folds; -1 for all cores.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Let a running Dask cluster do these, such as tcp://host:8786; it finds logs under the "
    "same paths.",
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
    """Honest statistics on LLM eval results that a harness already logged."""
    ctx.obj = no_plugin
    if jobs is not None or scheduler is not None:
        from evalstats_plugin.runtime.workers import workers

        backend = "loky" if scheduler is None else "dask"
        ctx.with_resource(workers(-1 if jobs is None else jobs, backend, scheduler))
    if os.environ.get("NO_COLOR"):
        ctx.color = False


class LazyGroup(click.Group):
    """Lists commands without importing them.

    `functions` has the function and the summary of each command by name; functions are
    ``"module:function"``.
    """

    def __init__(
        self, *args: Any, functions: Mapping[str, tuple[str, str]] | None = None, **extra: Any
    ) -> None:
        super().__init__(*args, **extra)
        self.functions = functions or {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return the names, in the order they are given in."""
        return list(self.functions)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click calls it
        """Import a command; None where there is none of this name."""
        if cmd_name not in self.functions:
            return None
        module, _, name = self.functions[cmd_name][0].partition(":")
        return getattr(import_module(module), name)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - as click calls it
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.functions.items()])

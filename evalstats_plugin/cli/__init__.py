"""The command line: parse, call, print. Each command is loaded when it is run."""

from __future__ import annotations

from importlib import import_module

import click

from evalstats_plugin import __version__
from evalstats_plugin.errors import EvalStatsError

COMMANDS = {
    "annotate": "Write the intervals into the harness's own results files.",
    "compare": "Show which models differ for certain, item by item.",
    "irt": "Show how able each model and how hard each item is, on one scale.",
    "plugins": "List the installed adapters and methods.",
    "power": "Plan a comparison: items, epochs or models for a difference.",
    "rank": "Rank models or items by comparisons of two: read them, or ask for them.",
    "report": "Show every score with an interval that holds at any n.",
}


class _Group(click.Group):
    """Lists commands without importing them, and turns our errors into exit code 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*COMMANDS, *_plugin_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            return _load(f"{__name__}.{cmd_name}:{cmd_name}")
        added = _plugin_commands(ctx).get(cmd_name)
        return _load(added[1]) if added else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        added = {name: summary for name, (summary, _) in _plugin_commands(ctx).items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**added, **COMMANDS}.items()))

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except EvalStatsError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(2)


def _plugin_commands(ctx: click.Context) -> dict[str, tuple[str, str]]:
    """Summary and function of the commands that plugins add."""
    from evalstats_plugin.plugins import load

    blocked = ctx.params.get("no_plugin") or ()
    try:
        commands = load(blocked).commands().values()
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
@click.version_option(__version__, prog_name="evalstats-plugin")
@click.option(
    "--no-plugin", metavar="NAME", multiple=True, help="Do not load a plugin; may be repeated."
)
@click.pass_context
def main(ctx: click.Context, no_plugin: tuple[str, ...]) -> None:
    """Honest statistics on LLM eval results that a harness already logged."""
    ctx.obj = no_plugin

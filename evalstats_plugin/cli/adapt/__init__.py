"""``evalstats-plugin adapt``: its commands, each loaded when it is run."""

from __future__ import annotations

from importlib import import_module

import click

from evalstats_plugin.cli.shell.commands import LazyGroup
from evalstats_plugin.errors import EvalStatsError

COMMANDS = {
    "bank": ("evalstats_plugin.cli.adapt.bank:bank", "Make an item bank from logs of many models."),
    "merge": ("evalstats_plugin.cli.adapt.bank:merge", "Merge two item banks on one scale."),
    "replay": (
        "evalstats_plugin.cli.adapt.replay:replay",
        "Simulate adaptive tests on recorded answers.",
    ),
    "run": (
        "evalstats_plugin.cli.adapt:run",
        "Test a model adaptively in its harness.",
    ),
    "simulate": (
        "evalstats_plugin.cli.adapt.simulate:simulate",
        "Simulate models: error by number of items and selection rule.",
    ),
}
"""Function and summary of each command."""


class _HarnessGroup(click.Group):
    """Commands that plugins offer, one for each harness."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_harnesses(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = _harnesses(ctx).get(cmd_name)
        if found is None:
            return None
        module, _, name = found[1].partition(":")
        return getattr(import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Harnesses"):
            shown = [(name, summary) for name, (summary, _) in sorted(_harnesses(ctx).items())]
            formatter.write_dl(shown)


def _harnesses(ctx: click.Context) -> dict[str, tuple[str, str]]:
    from evalstats_plugin.plugins import load_plugins

    try:
        commands = load_plugins(ctx.obj or ()).harness_commands().values()
    except EvalStatsError as error:
        click.echo(f"error: {error}", err=True)
        ctx.exit(2)
    return {c.name: (c.summary, c.function) for c in commands}


@click.group(cls=LazyGroup, functions=COMMANDS, no_args_is_help=True)
def adapt() -> None:
    """Adaptive testing: ask a model only the most informative items.

    `bank` estimates the difficulty and discrimination of each item from logs of many models. `run`
    tests a new model with it, in lm-eval or Inspect, and writes an ordinary log of fewer items with
    the ability and the predicted full score. `replay` and `simulate` show the error of such tests.
    """


@click.group(cls=_HarnessGroup, no_args_is_help=True)
def run() -> None:
    """Test a model adaptively in its harness."""

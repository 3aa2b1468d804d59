"""``evalstats-plugin adapt``: its commands, each loaded when it is run."""

from __future__ import annotations

import click

from evalstats_plugin.cli.shell.options import LazyGroup, Sections, offers

COMMANDS = {
    **offers(
        "adapt.bank",
        bank="Make an item bank from logs of many models.",
        merge="Merge two item banks on one scale.",
    ),
    **offers("adapt", run="Test a model adaptively in its harness."),
    **offers(
        "adapt.simulate",
        replay="Simulate adaptive tests on recorded answers.",
        simulate="Simulate models: error by number of items and selection rule.",
    ),
}


class _HarnessGroup(LazyGroup):
    """Commands that plugins offer, one for each harness."""

    def sections(self, ctx: click.Context) -> Sections:
        from evalstats_plugin.plugins import load_plugins

        harnesses = load_plugins(ctx.obj or ()).harness_commands().values()
        commands = sorted(harnesses, key=lambda command: command.name)
        return {"Harnesses": {c.name: (c.function, c.summary) for c in commands}}


@click.group(cls=LazyGroup, sections={"Commands": COMMANDS}, no_args_is_help=True)
def adapt() -> None:
    """Adaptive testing: ask a model only the most informative items.

    `bank` estimates the difficulty and discrimination of each item from logs of many models. `run`
    tests a new model with it, in lm-eval or Inspect, and writes an ordinary log of fewer items with
    the ability and the predicted full score. `replay` and `simulate` show the error of such tests.
    """


@click.group(cls=_HarnessGroup, no_args_is_help=True)
def run() -> None:
    """Test a model adaptively in its harness."""

"""A command of commands, each of which is imported when it is run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """Lists commands without importing them.

    `functions` has the function and the summary of each command by name; functions are
    ``"module:function"`` of this package.
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
        return getattr(import_module(f"evalstats_plugin.cli.{module}"), name)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - as click calls it
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the summaries."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.functions.items()])

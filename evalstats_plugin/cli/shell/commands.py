"""Command classes: groups that load their commands on use, options under headings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click


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


class Sectioned(click.Command):
    """Shows options under headings; those of none come last, as ever."""

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options for each heading."""
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and (record := param.get_help_record(ctx)) is not None
        }
        for heading, names in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(name) for name in names])
        if records:
            with formatter.section("Options"):
                formatter.write_dl(list(records.values()))

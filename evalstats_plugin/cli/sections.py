"""A command whose options are listed in groups, as its help would be too long to read else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

READING = {
    "What is read": (
        "task", "metric", "cluster", "include_incomplete", "runs", "skip_broken",
        "columns", "wide",
    ),
}  # fmt: skip
"""The section of `evalstats_plugin.cli.options` of what is read, alike wherever there is one."""


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

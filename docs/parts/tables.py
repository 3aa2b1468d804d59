"""What the program says of itself: its default methods, hooks and commands."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import click

from evalstats_plugin import hookspecs
from evalstats_plugin.cli import main
from evalstats_plugin.cli.shell.options import ALL, OUTPUT
from evalstats_plugin.report.figures import FIGURES
from evalstats_plugin.scores.methods import DEFAULTS


def why() -> str:
    """Return why each default is the default."""
    return "\n".join(f"- {kind}: `{name}`, because {why}" for kind, (name, why) in DEFAULTS.items())


def hooks() -> str:
    """Return every hook with its exact signature and what it is for."""
    lines: list[str] = []
    for name, function in vars(hookspecs).items():
        if name.startswith("evalstats_"):
            arguments = ", ".join(inspect.signature(function).parameters)
            summary = (function.__doc__ or "").splitlines()[0]
            lines.append(f"- `{name}({arguments})`: {summary[0].lower()}{summary[1:]}")
    return "\n".join(lines)


def figures() -> str:
    """Return the list of figures."""
    return "\n".join(f"- `{name}`: {figure.summary}" for name, figure in FIGURES.items())


SEVERAL = 2
"""Commands from which on an option that they share is described once, at the top."""

Record = tuple[str, str]
"""How help describes an option: its names and what it takes, and what it does."""


def commands() -> str:
    """Return the options of every command, each once: those of several commands stand first.

    Explanations, examples and the commands of a group are left to ``--help``.
    """
    settings = {"info_name": "evalstats-plugin", "terminal_width": 80, **main.context_settings}
    with click.Context(main, **settings) as root:
        contexts = list(_contexts(main, root))
        in_commands = Counter(record for ctx in contexts for _, record in _options(ctx))
        # Where a name means something else, that command describes it itself.
        usual = {record[0]: record for record, _ in reversed(in_commands.most_common())}
        shared = {record for record in usual.values() if in_commands[record] >= SEVERAL}
        headings = _headings(contexts, shared)
        sections = [_help(ctx, shared, headings) for ctx in contexts]
        return "\n\n".join([_of_several(headings), *sections])


def _contexts(group: click.Group, parent: click.Context) -> Iterator[click.Context]:
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None:
            continue
        ctx = click.Context(command, parent, name, terminal_width=80)
        ctx.meta[ALL] = True
        yield ctx
        if isinstance(command, click.Group):
            yield from _contexts(command, ctx)


def _options(ctx: click.Context) -> Iterator[tuple[click.Option, Record]]:
    for option in ctx.command.get_params(ctx):
        if isinstance(option, click.Option) and (record := option.get_help_record(ctx)):
            yield option, record


def _headings(
    contexts: Sequence[click.Context], shared: Collection[Record]
) -> dict[str, dict[Record, str]]:
    """Return the options that several commands share, by the first heading of each, with names."""
    by_heading: dict[str, dict[Record, str]] = {}
    placed: set[Record] = set()
    for ctx in contexts:
        for option, record in _options(ctx):
            if record in shared and record not in placed:
                heading = getattr(option, "heading", OUTPUT)
                by_heading.setdefault(heading, {})[record] = max(option.opts, key=len)
                placed.add(record)
    return by_heading


def _of_several(headings: dict[str, dict[Record, str]]) -> str:
    """Return the options that several commands share, by heading."""
    formatter = click.HelpFormatter(width=80)
    for heading, records in headings.items():
        with formatter.section(heading):
            formatter.write_dl(list(records))
    return f"## Options of several commands\n\n{_block(formatter.getvalue())}"


def _help(
    ctx: click.Context, shared: Collection[Record], headings: dict[str, dict[Record, str]]
) -> str:
    """Return the help of a command, in which shared options are only named."""
    records = {record: option for option, record in _options(ctx) if record in shared}
    for option in records.values():
        option.hidden = True
    said = _options_alone(ctx)
    for option in records.values():
        option.hidden = False
    path = ctx.command_path.removeprefix("evalstats-plugin ")
    also = ", ".join(_named(records, headings))
    link = f"\n\n[Also](#options-of-several-commands): {also}." if also else ""
    return f"## {path}\n\n{_block(said)}{link}"


def _named(records: Collection[Record], headings: dict[str, dict[Record, str]]) -> Iterator[str]:
    """Yield the headings whose options a command has all, and its options of the others.

    A name that stands under two headings is written with what it takes.
    """
    several = Counter(name for options in headings.values() for name in options.values())
    for heading, options in headings.items():
        if len(options) > 1 and all(record in records for record in options):
            yield f"*{heading}*"
            continue
        for record, name in options.items():
            if record in records and not name.startswith("--help"):
                yield f"`{name if several[name] == 1 else record[0]}`"


def _options_alone(ctx: click.Context) -> str:
    """Return usage, first sentence and options of a command, without the commands of a group."""
    formatter = ctx.make_formatter()
    ctx.command.format_usage(ctx, formatter)
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(inspect.cleandoc(ctx.command.help or "").partition("\n\n")[0])
    if isinstance(ctx.command, click.Group):
        click.Command.format_options(ctx.command, ctx, formatter)
    else:
        ctx.command.format_options(ctx, formatter)
    return formatter.getvalue().partition("\nExamples:\n")[0]


def _block(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
    return f"```text\n{lines}\n```"

"""What the program says of itself: its methods, hooks, commands and public names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import click

import evalstats_plugin
from evalstats_plugin import hookspecs
from evalstats_plugin.cli import main
from evalstats_plugin.cli.shell.options import ALL
from evalstats_plugin.comparisons.methods import COMPARISONS, COMPOSITE_COMPARISONS, UNPAIRED
from evalstats_plugin.data.methods import Method
from evalstats_plugin.report.figures import FIGURES
from evalstats_plugin.scores.methods import CLUSTERED, COMPOSITES, DEFAULTS, METHODS, SEQUENTIAL


def methods() -> str:
    """Return the table of methods, defaults marked."""
    defaults = {name: kind for kind, (name, _) in DEFAULTS.items()}
    lines = ["| `--method` | for scores that are | what it is | source |", "|---|---|---|---|"]
    for m in METHODS:
        default = f" (default for {defaults[m.name]} scores)" if m.name in defaults else ""
        lines.append(f"| `{m.name}`{default} | {m.family} | {m.summary} | {m.source} |")
    return "\n".join(lines)


def clustered() -> str:
    """Return the table of methods for items in clusters."""
    return _plain(CLUSTERED)


def comparisons() -> str:
    """Return the table of methods for comparisons."""
    return _plain(COMPARISONS)


def composites() -> str:
    """Return the table of methods for metrics that are not means."""
    return _plain((*COMPOSITES, *COMPOSITE_COMPARISONS))


def independent() -> str:
    """Return the table of methods for models on items of their own."""
    return _plain(UNPAIRED)


def sequences() -> str:
    """Return the table of methods that stay valid at every look."""
    return _plain(SEQUENTIAL)


def _plain(table: Sequence[Method]) -> str:
    lines = ["| `--method` | for scores that are | what it is | source |", "|---|---|---|---|"]
    lines += [f"| `{m.name}` | {m.family} | {m.summary} | {m.source} |" for m in table]
    return "\n".join(lines)


def why() -> str:
    """Return why each default is the default."""
    return "\n".join(f"- {kind}: `{name}`, because {why}" for kind, (name, why) in DEFAULTS.items())


def defaults() -> str:
    """Return the default of each kind of score in one line each."""
    summaries = {method.name: method for method in METHODS}
    lines = ["| scores | default | what it is | source |", "|---|---|---|---|"]
    for kind, (name, _) in DEFAULTS.items():
        method = summaries[name]
        lines.append(f"| {kind} | `{name}` | {method.summary} | {method.source} |")
    return "\n".join(lines)


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
    """Return the table of figures."""
    lines = ["| figure | what it shows |", "|---|---|"]
    lines += [f"| `{name}` | {figure.summary} |" for name, figure in FIGURES.items()]
    return "\n".join(lines)


def commands() -> str:
    """Return what ``--help`` says, of every command."""
    settings = {"info_name": "evalstats-plugin", "terminal_width": 80, **main.context_settings}
    with click.Context(main, **settings) as root:
        return "\n\n".join(_helps(main, root))


def _helps(group: click.Group, parent: click.Context) -> Iterator[str]:
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None:
            continue
        with click.Context(command, parent, name, terminal_width=80) as ctx:
            path = ctx.command_path.removeprefix("evalstats-plugin ")
            ctx.meta[ALL] = True
            said = "\n".join(line.rstrip() for line in command.get_help(ctx).splitlines())
            yield f"## {path}\n\n```text\n{said}\n```"
            if isinstance(command, click.Group):
                yield from _helps(command, ctx)


def api() -> str:
    """Return where mkdocstrings is to put the public functions and classes."""
    names = [name for name in evalstats_plugin.__all__ if not name.startswith("_")]
    functions = [f"::: evalstats_plugin.{name}" for name in names if name[0].islower()]
    classes = [f"::: evalstats_plugin.{name}" for name in names if name[0].isupper()]
    return "\n\n".join(["## Functions", *functions, "## Classes", *classes])

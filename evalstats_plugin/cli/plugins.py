"""``evalstats-plugin plugins``."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from evalstats_plugin.cli.shell import shared
from evalstats_plugin.cli.shell.options import OUTPUT, command, takes, under
from evalstats_plugin.cli.shell.running import loaded_plugins
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.untrusted import csv_text, echo, echo_data, json_text

if TYPE_CHECKING:
    from evalstats_plugin.plugins import Plugins


SHELLS = {
    "bash": 'eval "$(evalstats-plugin completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(evalstats-plugin completion zsh)"     # in ~/.zshrc, after compinit',
    "fish": "evalstats-plugin completion fish | source    # in ~/.config/fish/config.fish",
}


@dataclass(frozen=True, kw_only=True)
class PluginsOptions:
    """What is listed."""

    methods: bool = under(OUTPUT)("List the statistical methods.", default=False)
    metrics: bool = under(OUTPUT)("List what is known of metrics by name.", default=False)
    form: str = shared.form()


@command(
    ("", "What is installed"),
    ("--methods", "Interval methods by name"),
)
@takes("asked", PluginsOptions)
def plugins(*, asked: PluginsOptions) -> None:
    """List the installed adapters, methods or metrics, with version and hooks.

    A plugin is blocked by `evalstats-plugin --no-plugin NAME …`, or by its name in the
    environment variable EVALSTATS_NO_PLUGINS (several: separated by commas).
    """
    loaded = loaded_plugins()
    rows = [
        *(_metrics(loaded) if asked.metrics else ()),
        *(_methods(loaded) if asked.methods else ()),
    ]
    if not (asked.metrics or asked.methods):
        rows = [
            {
                "name": plugin.name,
                "distribution": f"{plugin.distribution} {plugin.version}".strip(),
                "hooks": list(plugin.hooks),
                "problem": f"not in use: {plugin.problem}" if plugin.problem else "",
                "read_only": f"not annotated: {plugin.read_only}" if plugin.read_only else "",
            }
            for plugin in loaded.listing
        ]
    # Metrics and methods have other columns.
    names = list(dict.fromkeys(name for row in rows for name in row))
    flat = [{name: _joined(row.get(name, "")) for name in names} for row in rows]
    if asked.form == "json":
        about = {"version": VERSION, "command": "plugins"}
        echo_data(json_text({"evalstats": about, "results": rows}) + "\n")
    elif asked.form == "csv":
        echo_data(csv_text(names, flat))
    elif asked.form == "markdown":
        from evalstats_plugin.report.tables import markdown_table

        echo("\n".join(markdown_table(names, [[*row.values()] for row in flat], right=())))
    else:
        width = shutil.get_terminal_size((80, 24)).columns
        for row in rows:
            head, *rest = list(row.values())
            echo(click.wrap_text(str(head), width, "", "  "), bold=True)
            for line in filter(None, rest):
                echo(click.wrap_text(_joined(line), width, "    ", "    "))


def _joined(cell: Any) -> str:
    return cell if isinstance(cell, str) else ", ".join(cell)


def _methods(loaded: Plugins) -> list[dict[str, Any]]:
    from evalstats_plugin.comparisons.methods import PAIRED, UNPAIRED
    from evalstats_plugin.scores.methods import INTERVALS

    return [
        {
            "name": m.name,
            "question": m.question,
            "summary": m.summary,
            "family": f"for {m.family} scores",
            "source": m.source,
        }
        for own in (INTERVALS, PAIRED, UNPAIRED)
        for m in loaded.methods(own).values()
    ]


def _metrics(loaded: Plugins) -> list[dict[str, Any]]:
    from evalstats_plugin.data.metrics import STOCK

    return [
        {
            "name": ", ".join(m.metric.split()),
            "scale": f"from {m.scale} {m.scale.unit}".strip() if m.scale else "as scores show",
            "better": f"better: {m.better}",
            "aggregation": f"value: {m.aggregation} of items' {m.item}",
            "of": f"{m.harness}, task {m.task}" if m.task != "*" else m.harness,
        }
        for m in (*loaded.metrics(), *STOCK)
    ]


@click.command(
    epilog="\b\nTo have it in every session:\n" + "\n".join(f"  {x}" for x in SHELLS.values())
)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the script that completes commands, options, their values and files in a shell.

    SHELL is bash, zsh or fish; by default the one of the environment variable SHELL.
    """
    shell = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119 - a name
    maker = get_completion_class(shell) if shell in SHELLS else None
    if maker is None:
        problem = f"SHELL is {shell!r}" if shell else "no SHELL is set"
        raise click.UsageError(
            f"{problem}: name one of {', '.join(SHELLS)}, as in `completion bash`"
        )
    root = ctx.find_root().command
    echo(maker(root, {}, "evalstats-plugin", "_EVALSTATS_PLUGIN_COMPLETE").source())

"""``evalstats-plugin plugins``."""

from __future__ import annotations

import csv
import io
import json
import shutil
from typing import Any

import click

from evalstats_plugin.cli.shell import options
from evalstats_plugin.plugins import LoadedPlugin, Plugins, load_plugins
from evalstats_plugin.runtime import VERSION


@click.command()
@click.option("--methods", "show_methods", is_flag=True, help="List the statistical methods.")
@options.form
@click.pass_context
def plugins(ctx: click.Context, *, show_methods: bool, form: str) -> None:
    """List the installed adapters and methods, with version and hooks.

    A plugin is blocked by `evalstats-plugin --no-plugin NAME …`, or by its name in the
    environment variable EVALSTATS_NO_PLUGINS (several: separated by commas).
    """
    loaded = load_plugins(ctx.obj or ())
    rows = _methods(loaded) if show_methods else [_listed(p) for p in loaded.listing]
    if form == "json":
        about = {"version": VERSION, "command": "plugins"}
        click.echo(json.dumps({"evalstats": about, "results": rows}, indent=2, ensure_ascii=False))
    elif form == "csv":
        click.echo(_csv(rows), nl=False)
    elif form == "markdown":
        click.echo(_markdown(rows))
    else:
        _print(rows)


def _print(rows: list[dict[str, Any]]) -> None:
    width = shutil.get_terminal_size((80, 24)).columns
    for row in rows:
        head, *rest = list(row.values())
        click.echo(click.style(str(head), bold=True))
        for line in rest:
            if line:
                click.echo(click.wrap_text(_joined(line), width, "    ", "    "))


def _csv(rows: list[dict[str, Any]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _joined(cell) for key, cell in row.items()} for row in rows)
    return file.getvalue()


def _markdown(rows: list[dict[str, Any]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0])] if rows else []
    lines += [[_joined(cell).replace("|", "\\|") for cell in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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


def _listed(plugin: LoadedPlugin) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "distribution": f"{plugin.distribution} {plugin.version}".strip(),
        "hooks": list(plugin.hooks),
        "problem": f"not in use: {plugin.problem}" if plugin.problem else "",
    }

"""``evalstats-plugin check``."""

from __future__ import annotations

import click

from evalstats_plugin.cli.shell.options import Command, paths, takes
from evalstats_plugin.cli.shell.running import Output, Reading, output, plugins_of


@click.command(cls=Command)
@paths
@output()
@takes("reading", Reading, only=("task", "metric"))
@click.pass_context
def check(ctx: click.Context, paths: tuple[str, ...], *, output: Output, reading: Reading) -> None:
    """Check logs before you believe their numbers: exit code 1 if something is wrong.

    Looks for logs that are cut off, values and standard errors that contradict the items, prompts,
    questions, settings or versions that differ between models on one task, limited runs that stand
    before full ones, copies, logs in the folder of another model, and items without a score.
    """
    from evalstats_plugin.logs.reading import check as check_logs
    from evalstats_plugin.report.findings import findings_markdown, print_findings

    plugins = plugins_of(ctx)
    found = check_logs(*paths, task=reading.task, metric=reading.metric, plugins=plugins)
    output.show(ctx, found, {}, print_table=print_findings, to_markdown=findings_markdown)
    ctx.exit(1 if found.rows else 0)

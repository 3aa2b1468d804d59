"""``evalstats-plugin check``."""

from __future__ import annotations

import click

from evalstats_plugin.cli.shell.options import Command, takes
from evalstats_plugin.cli.shell.running import Reading, Run, on_logs


@click.command(cls=Command)
@on_logs(reading=takes("reading", Reading, only=("task", "metric")))
def check(run: Run) -> None:
    """Check logs before you believe their numbers: exit code 1 if something is wrong.

    Looks for logs that are cut off, values and standard errors that contradict the items, prompts,
    questions, settings or versions that differ between models on one task, limited runs that stand
    before full ones, copies, logs in the folder of another model, and items without a score.
    """
    from evalstats_plugin.logs.reading import check as check_logs
    from evalstats_plugin.report.findings import FINDINGS

    only = run.reading
    found = check_logs(*run.paths, task=only.task, metric=only.metric, plugins=run.plugins)
    run.show(found, {}, FINDINGS)
    raise click.exceptions.Exit(1 if found.rows else 0)

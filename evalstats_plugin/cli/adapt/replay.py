"""``evalstats-plugin adapt replay``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import click

from evalstats_plugin.cli.adapt.options import RULES, Planning
from evalstats_plugin.cli.shell.options import Command, paths, takes, under
from evalstats_plugin.cli.shell.running import (
    Output,
    Reading,
    output,
    plugins_of,
    progress_on_work,
    reading,
)


@dataclass(frozen=True, kw_only=True)
class Options(Planning):
    """The test, and whether by every rule."""

    every_rule: bool = under("What is asked")(
        "Run one test per selection rule, to compare the rules.", default=False
    )


@click.command(cls=Command)
@paths
@takes("asked", Options)
@output("tests")
@reading
@click.pass_context
def replay(
    ctx: click.Context, paths: tuple[str, ...], *, reading: Reading, output: Output, asked: Options
) -> None:
    """Simulate adaptive tests on recorded answers.

    PATHS are results files, folders or patterns, of models that the bank need not know. Shows
    beside each predicted score the score over all answers in the log. Models that the bank was made
    of look better than new ones: keep some logs out of it.
    """
    from evalstats_plugin.adaptive.replaying import replay as ask_again
    from evalstats_plugin.report import adaptive as report_adaptive
    from evalstats_plugin.runtime.workers import listening

    output.check("tests")
    plan = asked.plan()
    rules = RULES if asked.every_rule else ()
    bank = plan.load()
    responses = reading.read(paths, plugins_of(ctx), quiet=output.quiet)
    with progress_on_work("asking", quiet=output.quiet) as on_step, listening(on_step):
        results = ask_again(bank, responses.responses, plan, rules=rules)
    output.draw({"tests": lambda: results})
    output.show(
        ctx,
        replace(results, notes=(*responses.notes, *results.notes)),
        asked.how("each" if rules else results.rows[0].rule),
        print_table=report_adaptive.print_tests,
        to_markdown=report_adaptive.tests_markdown,
        to_json=report_adaptive.tests_json,
    )

"""``evalstats-plugin adapt replay``."""

from __future__ import annotations

from typing import Any

import click

from evalstats_plugin.cli.adapt import options
from evalstats_plugin.cli.shell import options as shell_options
from evalstats_plugin.cli.shell import output
from evalstats_plugin.cli.shell.commands import Sectioned
from evalstats_plugin.cli.shell.options import READING

_SECTIONS = {
    "What is asked": ("bank", "every_rule"),
    **options.SECTIONS,
    **READING,
}  # fmt: skip


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--every-rule", is_flag=True, help="Run one test per selection rule, to compare the rules."
)
@options.planning
@shell_options.reading
@output.figure_option("tests")
@shell_options.form
@shell_options.quiet
@click.pass_context
def replay(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Simulate adaptive tests on recorded answers.

    PATHS are results files, folders or patterns, of models that the bank need not know. Shows
    beside each predicted score what all answers in the log say. Models that the bank was made of
    look better than new ones: keep some logs out of it.
    """
    from dataclasses import replace

    from evalstats_plugin.adaptive.replaying import replay as ask_again
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.cli.shell.reading import progress_on_work, read_logs
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.report import adaptive as report_adaptive

    output.check_figure(chosen, "tests")
    plan = options.plan_of(chosen)
    rules = options.RULES if chosen["every_rule"] else ()
    bank = plan.load()
    responses = read_logs(paths, chosen, load_plugins(ctx.obj or ()))
    with progress_on_work("asking", quiet=chosen["quiet"]) as on_step:

        def on_model(model: str, number: int, total: int) -> None:
            if on_step is not None:
                on_step((model, number, total))

        results = ask_again(bank, responses.responses, plan, rules=rules, on_model=on_model)
    output.save_asked(chosen, {"tests": lambda: results})
    said = {**chosen, "rule": "each" if rules else results.rows[0].rule}
    show(
        ctx,
        replace(results, notes=(*responses.notes, *results.notes)),
        said,
        ("bank", "rule", "scoring", "confidence_level", "seed"),
        print_table=report_adaptive.print_tests,
        to_markdown=report_adaptive.tests_markdown,
        to_json=report_adaptive.tests_json,
    )

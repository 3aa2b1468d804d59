"""``evalstats-plugin adapt replay``."""

from __future__ import annotations

from typing import Any

import click

from evalstats_plugin.cli import adapt_options, figures, options
from evalstats_plugin.cli.sections import READING, Sectioned

_SECTIONS = {
    "What is asked": ("bank", "every_rule"),
    **adapt_options.SECTIONS,
    **READING,
}  # fmt: skip


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--every-rule", is_flag=True, help="A test by each rule, instead of by one, to compare them."
)
@adapt_options.planning
@options.reading
@figures.option("tests")
@options.form
@options.quiet
@click.pass_context
def replay(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Ask recorded answers adaptively: what would it have said?

    PATHS are results files, folders or patterns, of models that the bank need not know. Shows
    beside each predicted score what all answers in the log say. Models that the bank was made of
    look better than new ones: keep some logs out of it.
    """
    from dataclasses import replace

    from evalstats_plugin.analyses.adaptive_replay import replay as ask_again
    from evalstats_plugin.cli.printing import show
    from evalstats_plugin.cli.progress import progress_on_work
    from evalstats_plugin.cli.reading import read_logs
    from evalstats_plugin.plugins import load
    from evalstats_plugin.report import adaptive

    figures.check(chosen, "tests")
    plan = adapt_options.plan_of(chosen)
    rules = adapt_options.RULES if chosen["every_rule"] else ()
    bank = plan.load()
    responses = read_logs(paths, chosen, load(ctx.obj or ()))
    with progress_on_work("asking", quiet=chosen["quiet"]) as on_step:

        def on_model(model: str, number: int, total: int) -> None:
            if on_step is not None:
                on_step((model, number, total))

        results = ask_again(bank, responses.responses, plan, rules=rules, on_model=on_model)
    figures.save_asked(chosen, {"tests": lambda: results})
    said = {**chosen, "rule": "each" if rules else results.rows[0].rule}
    show(
        ctx,
        replace(results, notes=(*responses.notes, *results.notes)),
        said,
        ("bank", "rule", "scoring", "confidence_level", "seed"),
        print_table=adaptive.print_tests,
        to_markdown=adaptive.to_markdown,
        to_json=adaptive.to_json,
    )

"""``evalstats-plugin compare``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from evalstats_plugin.cli.shell.options import (
    DESIGNS,
    Command,
    Correction,
    Design,
    Family,
    Intervals,
    Name,
    correction,
    family,
    paths,
    takes,
    under,
)
from evalstats_plugin.cli.shell.running import Output, Reading, output, plugins_of, reading

_WHAT = "What is compared"
_compared = under(_WHAT)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is compared, and by which design."""

    baseline: str | None = _compared(
        "Compare the others with this model instead of every pair; best: with the best model of "
        "each task.",
        metavar="MODEL",
    )
    design: Design = _compared(  # noqa: RUF009 - a field
        "paired: on the same items; unpaired: items as independent samples of each model; tasks: "
        "one comparison over all tasks, which count as drawn from many; sequential: valid however "
        "often you look and whenever you stop.",
        default="paired", type=Name("design", DESIGNS), metavar="NAME",
    )  # fmt: skip
    correction: Correction = correction(_WHAT)  # noqa: RUF009 - a field
    family: Family = family(_WHAT)  # noqa: RUF009 - a field
    at_k: tuple[str, ...] = _compared(
        "Also compare by pass@4 (at least one of 4 epochs right), pass^4 (all), maj@3 (majority) "
        "and the like; may be repeated.",
        default=(), metavar="NAME",
    )  # fmt: skip


@click.command(cls=Command)
@paths
@takes("asked", Options)
@takes("intervals", Intervals, without=("prior", "population"))
@output("comparisons")
@reading
@click.pass_context
def compare(
    ctx: click.Context,
    paths: tuple[str, ...],
    *,
    reading: Reading,
    intervals: Intervals,
    output: Output,
    asked: Options,
) -> None:
    """Compare models on the same items (paired), or by another design.

    PATHS are results files, folders or patterns; together they hold two models or more.

    The intervals hold for all pairs at once, and belong to p, adj. and the verdict: better or worse
    where 0 is outside the interval, unclear where it is inside. P(better) looks at one pair alone.
    """
    from evalstats_plugin.comparisons.compare import DESIGNS as ANALYSES
    from evalstats_plugin.comparisons.compare import compare as compare_models
    from evalstats_plugin.report import comparisons
    from evalstats_plugin.scores.epochs import with_at_k

    output.check("comparisons")
    plugins = plugins_of(ctx)
    method = intervals.chosen(plugins, ANALYSES[asked.design][1])
    responses = reading.store_at(paths, asked.at_k)
    if responses is None:
        repeats = bool(asked.at_k)
        responses = reading.read(paths, plugins, quiet=output.quiet, repeats=repeats)
        responses = with_at_k(responses, asked.at_k) if asked.at_k else responses
    results = compare_models(
        responses,
        design=asked.design,
        baseline=asked.baseline,
        confidence_level=intervals.confidence_level,
        method=method,
        correction=asked.correction,
        family=asked.family,
        bounds=intervals.bounds,
        rng=intervals.seed,
    )
    output.draw({"comparisons": lambda: results})
    how = intervals.how()
    seed = how.pop("seed")
    output.show(
        ctx,
        results,
        {
            "baseline": asked.baseline,
            **how,
            "correction": asked.correction,
            "family": asked.family,
            "seed": seed,
        },
        print_table=comparisons.print_comparisons,
        to_markdown=comparisons.comparisons_markdown,
    )

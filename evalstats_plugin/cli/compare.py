"""``evalstats-plugin compare``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import click

from evalstats_plugin.cli.shell.options import (
    DESIGNS,
    INTERVALS,
    OF_ONE_SCORE,
    OUTPUT,
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

Probabilities = Literal["alone", "shrunk"]

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
        "over all tasks of a metric, on these and on tasks like these; sequential: valid however "
        "often you look and whenever you stop.",
        default="paired", type=Name("design", DESIGNS), metavar="NAME",
    )  # fmt: skip
    correction: Correction = correction(_WHAT)  # noqa: RUF009 - a field
    family: Family = family(_WHAT)  # noqa: RUF009 - a field
    probabilities: Probabilities = under(INTERVALS)(  # noqa: RUF009 - a field
        "P(better) of each pair alone, or shrunk over all pairs of a table: of nearly equal models "
        "the one that looks better is in part the luckier.",
        default="alone", type=Name("kind", get_args(Probabilities)), metavar="NAME",
    )  # fmt: skip
    prior: float | None = under(INTERVALS)(
        "Prior weight of each outcome, for methods that have a prior: 0.5 (Jeffreys) unless given, "
        "1 is uniform. Each row names its prior.",
        metavar="WEIGHT",
    )
    at_k: tuple[str, ...] = _compared(
        "Also compare by pass@4 (at least one of 4 epochs right), pass^4 (all), maj@3 (majority) "
        "and the like; may be repeated.",
        default=(), metavar="NAME",
    )  # fmt: skip
    all_pairs: bool = under(OUTPUT)(
        "Print every pair; those of more than 10 models are summed up as possible ranks otherwise.",
        default=False,
    )


@click.command(cls=Command)
@paths
@takes("asked", Options)
@takes("intervals", Intervals, without=OF_ONE_SCORE)
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

    The intervals are confidence intervals that hold for all pairs of a family at once, and belong
    to p, adj. and the verdict: better or worse where 0 is outside the interval, unclear where it is
    inside. Unclear is no proof that models are equal. A single pair has a Bayesian credible
    interval if its method has a prior. P(better) looks at one pair alone, or is shrunk over all.
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
        prior=asked.prior,
        probabilities=asked.probabilities,
        missing=intervals.missing,
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
            "prior": asked.prior,
            "probabilities": asked.probabilities,
            "seed": seed,
        },
        print_table=partial(comparisons.print_comparisons, all_pairs=asked.all_pairs),
        to_markdown=comparisons.comparisons_markdown,
    )

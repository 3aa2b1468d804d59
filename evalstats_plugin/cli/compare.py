"""``evalstats-plugin compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from evalstats_plugin.cli.shell import options, shared
from evalstats_plugin.cli.shell.options import Name, command, picked, takes, under
from evalstats_plugin.cli.shell.running import Run, check_alone, check_top, named, on_logs
from evalstats_plugin.cli.shell.shared import Intervals
from evalstats_plugin.errors import SelectionError, few, no_such

if TYPE_CHECKING:
    from evalstats_plugin.data.methods import Method
    from evalstats_plugin.data.runs import ResponseSet

Probabilities = Literal["alone", "shrunk"]

_MOST_ITEMS = 10
"""Items shown to people; JSON and CSV have all."""

_ADJUSTED = ("correction", "family", "prior", "probabilities")
"""Options on what limits, p-values and probabilities allow for."""

_WHAT = "Comparison"
_compared = under(_WHAT)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What is compared, and by which design."""

    baseline: str | None = _compared(
        "Compare the others with this model instead of every pair; best: with the best model of "
        "each task.",
        metavar="MODEL",
    )
    design: shared.Design = _compared(  # noqa: RUF009 - a field
        "paired: on the same items; unpaired: items as independent samples of each model; tasks: "
        "over all tasks of a metric, on these and on tasks like these; sequential: valid however "
        "often you look and whenever you stop.",
        default="paired", type=Name("design", shared.DESIGNS), metavar="NAME",
    )  # fmt: skip
    correction: shared.Correction = shared.correction(_WHAT)  # noqa: RUF009 - a field
    family: shared.Family = _compared(  # noqa: RUF009 - a field
        "What is corrected together. task: the pairs of a task; group: a group of the harness with "
        "its tasks; run: all tasks of a metric; auto: groups, and all tasks that are in none.",
        default=shared.FAMILIES[0], type=Name("family", shared.FAMILIES), metavar="NAME",
    )  # fmt: skip
    probabilities: Probabilities = under(options.INTERVALS)(  # noqa: RUF009 - a field
        "P(better) of each pair alone, or shrunk over all pairs of a table: of nearly equal models "
        "the one that looks better is in part the luckier.",
        default="alone", type=Name("kind", get_args(Probabilities)), metavar="NAME",
    )  # fmt: skip
    prior: float | None = under(options.INTERVALS)(
        "Prior weight of each outcome, for methods that have a prior: 0.5 (Jeffreys) unless given, "
        "1 is uniform. Each row names its prior.",
        metavar="WEIGHT",
    )
    at_k: tuple[str, ...] = _compared(
        "Also compare by pass@4 (at least one of 4 epochs right), pass^4 (all), maj@3 (majority), "
        "cons@4 (the most frequent answer of 4 is right) and the like; may be repeated.",
        default=(), metavar="NAME",
    )  # fmt: skip
    by: str | None = shared.by(_WHAT)
    top: int | None = shared.top(_WHAT)
    items: bool = _compared(
        "Also show the items on which two models differ: won, lost, with question, target and both "
        "answers where the logs have them. Name the two with --models or --baseline.",
        default=False,
    )
    details: bool = under(options.OUTPUT)(
        "Print every pair on every task with limits, p and P(better); standard errors, "
        "correlations of question scores, wins, ties and losses. CSV and JSON always have them.",
        default=False,
    )
    all_pairs: bool = under(options.OUTPUT)(
        "Print every pair; of more than 5 models only those that are apart are otherwise, of more "
        "than 10 (or 1,000 pairs) possible ranks.",
        default=False,
    )
    explain: bool = under(options.OUTPUT)("Also say what the words and marks mean.", default=False)


@command(
    ("logs/ --models llama,qwen", "Is one of two models better"),
    ("logs/ --baseline llama --format markdown", "Each model beside a baseline, for a page"),
)
@takes("asked", CompareOptions)
@takes("intervals", Intervals, without=shared.OF_ONE_SCORE)
@on_logs("comparisons")
def compare(run: Run, *, asked: CompareOptions, intervals: Intervals) -> None:
    """Compare models on the same items (paired), or by another design.

    PATHS are results files, folders or patterns; together they hold two models or more.

    The answer comes first: over all tasks where they have a score together, then task by task.
    Limits and p hold for all pairs of a family at once and agree: a model is better or worse where
    0 is outside the limits. That models cannot be told apart is no proof that they are equal.
    """
    from evalstats_plugin.comparisons.compare import DESIGNS as ANALYSES
    from evalstats_plugin.comparisons.compare import compare as compare_models
    from evalstats_plugin.report import comparisons
    from evalstats_plugin.scores.epochs import repeats_for, with_at_k

    method = intervals.chosen(run.plugins, ANALYSES[asked.design][1])
    check_top(asked.by, asked.top)
    if asked.by is not None:
        _show_slices(run, asked, asked.by, intervals, method)
        return
    responses = run.reading.store_at(run.paths, asked.at_k)
    if asked.items and (responses is not None or asked.design != "paired"):
        msg = "--items is for the paired design, and for logs that fit into memory: leave it out"
        raise SelectionError(msg)
    if asked.items:
        check_alone("items", {"details": asked.details, "all-pairs": asked.all_pairs})
    every = None
    if responses is None:
        # Models besides the two say how hard an item is.
        every_model = replace(run, reading=replace(run.reading, models=()))
        every = (every_model if asked.items else run).read(repeats=repeats_for(asked.at_k))
        every = with_at_k(every, asked.at_k) if asked.at_k else every
        responses = every
    two = _two_of(every, run.reading.models, asked.baseline) if asked.items and every else None
    if two and every:
        responses = replace(every, responses=tuple(r for r in every if r.model in two))
    results = compare_models(
        responses,
        method=method,
        missing=intervals.missing,
        **picked(asked, "design", "baseline", *_ADJUSTED),
        **intervals.given(responses),
    )
    run.output.draw({"comparisons": lambda: results})
    about, usual = _about(asked, intervals), _about(CompareOptions(), Intervals())
    usual.pop("seed")
    if not (two and every):
        view = comparisons.comparisons_view(
            all_pairs=asked.all_pairs, details=asked.details, explain=asked.explain
        )
        run.output.show(results, about, view, usual)
        return
    from evalstats_plugin.logs.texts import compare_items

    most = None if run.output.form in ("json", "csv") else _MOST_ITEMS
    items = compare_items(every, *two, most=most, plugins=run.plugins)
    run.output.show(items, about, comparisons.items_view(results, explain=asked.explain), usual)


def _show_slices(
    run: Run, asked: CompareOptions, by: str, intervals: Intervals, method: Method | str
) -> None:
    from evalstats_plugin.comparisons.compare import compare, compare_slices
    from evalstats_plugin.report.comparisons import COMPARED_SLICES

    responses = run.read_by(
        by, items=asked.items, at_k=asked.at_k, figure=run.output.figure, details=asked.details,
        all_pairs=asked.all_pairs, explain=asked.explain, design=asked.design != "paired",
        family=asked.family != shared.FAMILIES[0],
    )  # fmt: skip
    results = compare_slices(
        responses,
        by=by,
        top=asked.top,
        confidence_level=intervals.confidence_level,
        how=partial(
            compare, baseline=asked.baseline, method=method, correction=asked.correction,
            measure=intervals.measures(responses), prior=asked.prior,
            probabilities=asked.probabilities, missing=intervals.missing,
        ),
        rng=intervals.seed,
    )  # fmt: skip
    about = {**_about(asked, intervals), "by": by, "family": "slices of a task"}
    run.output.show(results, about, COMPARED_SLICES, _about(CompareOptions(), Intervals()))


def _about(asked: CompareOptions, intervals: Intervals) -> dict[str, object]:
    """Return how a comparison is made, in the order in which it is printed."""
    seed = (how := intervals.how()).pop("seed")
    return {"baseline": asked.baseline, **how, **picked(asked, *_ADJUSTED), "seed": seed}


def _two_of(responses: ResponseSet, asked: Sequence[str], baseline: str | None) -> tuple[str, str]:
    """Return the two models whose items are shown, the baseline first.

    Raises
    ------
    SelectionError
        The options name other than two.
    """
    models = list(dict.fromkeys(r.model for r in responses))
    if baseline is not None and baseline not in models:
        raise SelectionError(no_such("model", baseline, models, ", ".join(models)))
    names = [m for m in (named(asked, models) if asked else models) if m != baseline]
    two = names if baseline is None else [baseline, *names]
    if len(two) != 2:
        msg = f"--items shows two models, and there are {len(two)} ({few(two)}): "
        raise SelectionError(f"{msg}name them with --models A,B, or --baseline A --models B")
    return two[0], two[1]

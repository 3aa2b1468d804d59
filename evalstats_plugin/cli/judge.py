"""``evalstats-plugin judge``: a judge on all items, corrected by human labels on a few."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from evalstats_plugin.cli.shell import options, shared
from evalstats_plugin.cli.shell.options import LazyGroup, Name, command, offers, takes, under
from evalstats_plugin.cli.shell.running import Labelled, Run, on_logs
from evalstats_plugin.cli.shell.shared import Intervals
from evalstats_plugin.runtime.untrusted import csv_cell

if TYPE_CHECKING:
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.scores.judged import Label, Values

_shown = under("What is estimated")

POPULATIONS = ("new", "these")
"""Values of `evalstats_plugin.comparisons.judged.Population`; a test compares."""

LENGTH = "length"

SECTIONS = {
    "Judges": offers(
        "judge",
        score="Correct a judge's scores, and differences of models, by human labels (the default).",
        label="Draw the answers that people should label next.",
    )
}


class _Judge(LazyGroup):
    """Takes anything but the name of a command for what is to be scored."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; paths or options right after the name are those of `score`."""
        if args and args[0] not in (*self.list_commands(ctx), *ctx.help_option_names):
            args = ["score", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Judge, sections=SECTIONS, no_args_is_help=True)
def judge() -> None:
    """Correct a model's grades of answers by people's labels on a part of them.

    `judge PATHS --judge METRIC --labels FILE` is short for `judge score`.
    """


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """What is estimated."""

    baseline: str | None = _shown(
        "Compare the others with this model instead of every pair.", metavar="MODEL"
    )
    items: Literal["new", "these"] = _shown(
        "new: results are for new items like these; these: for the very items that the judge "
        "scored, where only those without a label are uncertain.",
        default="new", type=Name("kind of items", POPULATIONS), metavar="new|these",
    )  # fmt: skip
    feature: tuple[str, ...] = _shown(
        "Metric of a number of the answers, such as their length, that a judge may prefer more "
        "of; may be repeated. The length is looked up in logs that have the answers.",
        default=(), metavar="METRIC",
    )  # fmt: skip
    explain: bool = under(options.OUTPUT)("Also say what the words and marks mean.", default=False)


@command()
@takes("source", Labelled, judge={"required": True})
@takes("asked", JudgeOptions)
@takes("intervals", Intervals, without=("method", "missing", *shared.OF_ONE_SCORE))
@on_logs("intervals")
def score(run: Run, *, source: Labelled, asked: JudgeOptions, intervals: Intervals) -> None:
    """Estimate human scores from a judge on all items and human labels on a few.

    Prediction-powered inference (PPI++): the judge's mean, corrected by how it differs from the
    labels; the difference of every two models, with limits that hold for all pairs at once; how far
    judges and people agree; and what a judge prefers. Pass the labels as a metric of the logs
    (--human) or from a file (--labels). In a table, columns are metrics.
    """
    from evalstats_plugin.comparisons.judged import judge as judged_scores
    from evalstats_plugin.data.runs import of_metric
    from evalstats_plugin.report.judged import judged_view
    from evalstats_plugin.scores.judged import HUMAN

    source.check(needed=True)
    responses = source.with_columns(run, asked.feature).read()
    labels = source.given(responses, some=bool(run.reading.models))
    features: dict[str, Values] = {}
    for name in asked.feature:
        features[name] = {
            (r.model, r.task, str(item)): float(value)
            for r in of_metric(responses, name)
            for item, value in zip(r.item_ids.tolist(), r.item_means.tolist(), strict=True)
        }
    if LENGTH not in features and (lengths := _lengths(run, responses, source, labels)):
        features[LENGTH] = lengths
    results = judged_scores(
        responses,
        judge=source.judge,
        human=source.human,
        labels=labels,
        baseline=asked.baseline,
        population=asked.items,
        features=features,
        **intervals.given(responses, HUMAN),
    )
    run.output.draw({"intervals": lambda: results})
    how = {
        "judge": ", ".join(source.judge),
        "items": asked.items,
        "confidence_level": intervals.confidence_level,
        "seed": intervals.seed,
    }
    run.output.show(results, how, judged_view(explain=asked.explain), {"items": "new", "seed": 0})


@dataclass(frozen=True, kw_only=True)
class Draw:
    """How many answers are drawn, and where they go."""

    next: int = _shown(
        "How many labels to ask for next, of all models together.",
        default=50, type=options.POSITIVE, metavar="N",
    )  # fmt: skip
    to: str | None = shared.file(
        "File for the labels there are and the answers to label next (CSV): fill in the column "
        "score, and pass it to --labels.",
        metavar="FILE.csv",
    )


@command()
@takes("source", Labelled, judge={"required": True})
@takes("draw", Draw)
@takes("intervals", Intervals, only=("limits", "seed"))
@on_logs()
def label(run: Run, *, source: Labelled, draw: Draw, intervals: Intervals) -> None:
    """Draw the answers that people should label next, with known probabilities.

    Answers are drawn more often where the judge is unsure: where it is off by the labels so far, or
    its score is between the bounds, or several judges differ. The file records with which
    probability, and `judge score` weighs labels by it. All models' answers to an item are drawn
    together. The same seed draws the same answers.
    """
    from evalstats_plugin.comparisons.judged import next_labels
    from evalstats_plugin.report.judged import NEXT
    from evalstats_plugin.runtime.writing import check_output_path, write_bytes
    from evalstats_plugin.scores.judged import HUMAN

    source.check(needed=False)
    if draw.to is not None:
        check_output_path(draw.to, (".csv",), asked="--to")
    responses = source.with_columns(run).read()
    labels = source.given(responses, some=bool(run.reading.models))
    chosen = next_labels(
        responses,
        draw.next,
        judge=source.judge,
        human=source.human,
        labels=labels,
        measure=intervals.measures(responses, HUMAN),
        rng=intervals.seed,
    )
    if draw.to is not None:
        text = io.StringIO()
        file = csv.writer(text, lineterminator="\n")
        file.writerow(["item", "model", "task", "score", "probability"])
        for row in chosen:
            given = "" if row.score is None else f"{row.score!r}"
            # People open it in a spreadsheet, which would calculate names that are formulas.
            names = map(csv_cell, (row.item, row.model, row.task))
            file.writerow([*names, given, f"{row.probability:.9g}"])
        write_bytes(Path(draw.to), text.getvalue().encode())
    run.output.show(chosen, {"judge": ", ".join(source.judge), "seed": intervals.seed}, NEXT)


def _lengths(
    run: Run, responses: ResponseSet, source: Labelled, labels: Sequence[Label] | None
) -> Values:
    """Characters of the labelled answers, of logs that have them."""
    import numpy as np

    from evalstats_plugin.data.responses import TABULAR, Selection
    from evalstats_plugin.logs.texts import item_texts

    wanted = Selection(metrics=(source.human or source.judge[0],))
    of_logs = [r for r in responses if wanted.wants_metric(r.metric) and len(r.item_ids)]
    of_logs = [r for r in of_logs if r.source.harness != TABULAR]
    items: dict[str, set[str]] = {}
    given = {label.item for label in labels or ()}
    for r in of_logs:
        own = {str(item) for item in r.item_ids[~np.isnan(r.item_means)].tolist()}
        items.setdefault(r.task, set()).update(own if labels is None else own & given)
    texts = item_texts(of_logs, items, run.plugins, longest=None)
    lengths = {place: float(len(text.answer)) for place, text in texts.items() if text.answer}
    return lengths if len(set(lengths.values())) > 1 else {}

"""``evalstats-plugin check``, ``report`` and ``noise``: findings, scores, and how far they move."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalstats_plugin.cli.shell import running, shared
from evalstats_plugin.cli.shell.options import command, picked, takes, under
from evalstats_plugin.cli.shell.running import Labelled, Reading, Run
from evalstats_plugin.cli.shell.shared import Intervals
from evalstats_plugin.errors import DesignError, SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.leaderboard import ScoreTable
    from evalstats_plugin.data.responses import Responses
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.scores import rows
    from evalstats_plugin.scores.rows import CorrectedScore
    from evalstats_plugin.scores.slices import SliceScore

PAGE_SUFFIXES = (".html", ".htm")

MOST_PAIRS = 600_000
"""Number of comparisons up to which the page compares every two models."""

MOST_TEXTS, MOST_READ = 300, 10
"""Items whose texts are read for the page, suspects first, and models whose logs are read again for
them: those with the highest scores."""

_more = under("More scores")


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What is shown besides the scores."""

    derive: tuple[str, ...] = _more(
        "Also report precision, recall, … from the labels that f1 or mcc was logged with; may be "
        "repeated.",
        default=(), metavar="METRIC",
    )  # fmt: skip
    at_k: tuple[str, ...] = _more(
        "Also report pass@4 (at least one of 4 epochs right), pass^4 (all), maj@3 (majority), "
        "cons@4 (the most frequent answer of 4 is right) and the like, or pass@1..8 with limits "
        "for all of these k at once; may be repeated.",
        default=(), metavar="NAME",
    )  # fmt: skip
    control_variate: bool = _more(
        "For models that ran a part of what others ran: intervals for all of it, corrected by how "
        "hard the others found each item.",
        default=False,
    )
    cost: bool = _more(
        "Tokens, money and time beside the scores, where logs hold them: for each item and for "
        "each right answer.",
        default=False,
    )  # fmt: skip
    by: str | None = shared.by("More scores")
    top: int | None = shared.top("More scores")
    html: str | None = shared.file(
        "Also write a page for browsers, one file: who leads, what to distrust, a leaderboard, any "
        "two models, tasks, items."
    )
    baseline: str | None = shared.baseline(
        "Model that the page compares the others with where it opens."
    )


@command(
    ("logs/", "Every score with its interval"),
    ("logs/ --html report.html", "A page for browsers"),
)
@takes("intervals", Intervals)
@takes("asked", ReportOptions)
@takes("labelled", Labelled)
@running.on_logs("intervals", "variance parts")
def report(run: Run, *, asked: ReportOptions, labelled: Labelled, intervals: Intervals) -> None:
    """Report every score with a confidence interval that holds at any number of items.

    PATHS are results files, folders or patterns; "-" is standard input: the JSON object that a
    harness returned, or whatever --columns, --wide, --missing-code or --mapping say is in it.
    With --judge and labels, scores of a judge say how people's labels correct them.
    """
    from evalstats_plugin.report import text
    from evalstats_plugin.scores.epochs import (
        curves,
        is_curve,
        repeats_for,
        variance_parts,
        with_at_k,
    )
    from evalstats_plugin.scores.judged import noted
    from evalstats_plugin.scores.metrics import with_derived

    page = _place_of_page(asked.html, asked.baseline)
    running.check_top(asked.by, asked.top)
    run = labelled.with_columns(run)
    if asked.by is not None:
        _show_slices(run, asked, asked.by, page, labelled, intervals)
        return
    if asked.cost:
        _show_costs(run, asked, labelled, intervals)
        return
    # Both use every answer to an item.
    read = run.read(repeats=repeats_for(asked.at_k) or run.output.figure == "variance-parts")
    points = [name for name in asked.at_k if not is_curve(name)]
    responses = labelled.of_labelled(with_at_k(read, points) if points else read)
    if asked.control_variate:
        running.check_alone("control-variate", {"derive": asked.derive})
        results = _with_control_variate(responses, intervals, run.plugins)
    else:
        scored = responses
        if asked.derive:
            scored = replace(responses, responses=with_derived(responses, asked.derive))
        results = intervals.of(scored, run.plugins)
    if names := [name for name in asked.at_k if is_curve(name)]:
        level = intervals.confidence_level
        joint = curves(read, *names, confidence_level=level, intervals=_at_level(run, intervals))
        models = list(dict.fromkeys(row.model for row in results))
        rows = sorted((*results, *joint), key=lambda row: models.index(row.model))
        results = replace(results, rows=tuple(rows), notes=(*results.notes, *joint.notes))
    if corrections := labelled.corrected(responses, intervals, some=bool(run.reading.models)):
        results = noted(results, labelled.judge, corrections)
    run.output.draw(
        {"intervals": lambda: results, "variance parts": lambda: variance_parts(responses)}
    )
    if page is not None:
        _write_page(run, responses, results, intervals, page, asked.baseline, judged=corrections)
    run.output.show(results, intervals.how(), text.INTERVALS)


def _show_slices(
    run: Run,
    asked: ReportOptions,
    by: str,
    page: Path | None,
    labelled: Labelled,
    intervals: Intervals,
) -> None:
    from evalstats_plugin.report.text import SLICES
    from evalstats_plugin.scores.slices import has_values, slices

    responses = run.read_by(by, **_of_scores_alone(run, asked, labelled), cost=asked.cost)
    if page is not None and has_values(responses.responses):
        msg = f"{by} is a setting of the runs, and a page has one run of a model on a task"
        raise SelectionError(f"{msg}: leave out --html, or name a field of the items")
    results = slices(
        responses,
        by=by,
        top=asked.top,
        confidence_level=intervals.confidence_level,
        intervals=_at_level(run, intervals),
        rng=intervals.seed,
    )
    if page is not None:
        scored = intervals.of(responses, run.plugins)
        _write_page(run, responses, scored, intervals, page, asked.baseline, results.rows)
    run.output.show(results, {"by": by, **intervals.how()}, SLICES)


def _show_costs(run: Run, asked: ReportOptions, labelled: Labelled, intervals: Intervals) -> None:
    from evalstats_plugin.report.costs import COSTS
    from evalstats_plugin.scores.costs import costs

    running.check_alone("cost", {"html": asked.html, **_of_scores_alone(run, asked, labelled)})
    results = costs(
        run.read(costs=True),
        confidence_level=intervals.confidence_level,
        intervals=_at_level(run, intervals),
    )
    run.output.show(results, intervals.how(), COSTS)


def _of_scores_alone(run: Run, asked: ReportOptions, labelled: Labelled) -> dict[str, object]:
    """Return the options that are for a report of scores alone, with their values."""
    return {
        "derive": asked.derive, "at_k": asked.at_k, "judge": labelled.judge,
        "control_variate": asked.control_variate, "figure": run.output.figure,
    }  # fmt: skip


def _at_level(run: Run, asked: Intervals) -> Callable[..., rows.Intervals]:
    """Return a function that gives intervals as asked for, at another confidence level.

    By the method that its caller prefers, where neither a method nor a prior was asked for.
    """
    from evalstats_plugin.data.runs import ResponseSet

    def intervals(
        parts: Sequence[Responses], confidence_level: float, method: str = "auto"
    ) -> rows.Intervals:
        is_free = asked.method == "auto" and asked.prior is None
        own = replace(
            asked,
            confidence_level=confidence_level,
            method=method if is_free else asked.method,
        )
        return own.of(ResponseSet(tuple(parts)), run.plugins)

    return intervals


def _with_control_variate(
    responses: ResponseSet, asked: Intervals, plugins: Plugins
) -> rows.Intervals:
    from evalstats_plugin.scores.control_variate import control_variate
    from evalstats_plugin.scores.methods import INTERVALS

    names = ("population", "prior", "estimand", "clusters", "missing")
    usual = Intervals()
    others = {name: getattr(asked, name) != getattr(usual, name) for name in names}
    running.check_alone("control-variate", others)
    return control_variate(
        responses, method=asked.chosen(plugins, INTERVALS), **asked.given(responses)
    )


def _place_of_page(name: str | None, baseline: str | None) -> Path | None:
    """Return where the page goes, None without one; a bad place is refused before the work."""
    if name is None:
        if baseline is not None:
            msg = "--baseline is for the page: pass --html FILE too, or use `compare --baseline`"
            raise SelectionError(msg)
        return None
    if name == "-":
        msg = "the page cannot go to standard output: name a file, such as --html report.html"
        raise SelectionError(msg)
    from evalstats_plugin.runtime.writing import check_output_path

    return check_output_path(name, PAGE_SUFFIXES, asked="--html")


def _write_page(
    run: Run,
    responses: ResponseSet,
    results: rows.Intervals,
    asked: Intervals,
    path: Path,
    baseline: str | None,
    slices: Sequence[SliceScore] = (),
    judged: Sequence[CorrectedScore] = (),
) -> None:
    """Rank the models, look at the items, and write the page."""
    from evalstats_plugin.comparisons.design import check_baseline
    from evalstats_plugin.logs.texts import item_texts
    from evalstats_plugin.report.html.page import Page, to_html
    from evalstats_plugin.runtime.writing import write_bytes
    from evalstats_plugin.scores.items import item_answers, telling_items

    check_baseline(baseline, [r.model for r in responses])
    table, notes = _table(responses, asked, run.reading.metric)
    answers, about_items = item_answers(responses)
    models = table.models if table else tuple(dict.fromkeys(r.model for r in responses))
    read_again = {*models[:MOST_READ], baseline}
    page = Page(
        responses=responses.responses,
        intervals=results,
        table=table,
        answers=answers,
        texts=item_texts(
            [r for r in responses if r.model in read_again],
            telling_items(answers, MOST_TEXTS),
            run.plugins,
        ),
        baseline=baseline,
        notes=(*notes, *about_items),
        about=_about(responses, asked),
        slices=slices,
        judged=judged,
    )
    write_bytes(path, to_html(page).encode())
    run.output.tell(f"written: {path}")


def _table(
    responses: ResponseSet, asked: Intervals, metric: Sequence[str]
) -> tuple[ScoreTable | None, Sequence[str]]:
    """Rank the models on groups and tasks, or say why not."""
    from evalstats_plugin.comparisons import leaderboard

    counts = Counter((r.task, r.metric) for r in responses)
    n_pairs = sum(n * (n - 1) // 2 for n in counts.values())
    if n_pairs > MOST_PAIRS:
        return None, [
            f"up to {n_pairs:,} comparisons of two models are too many for one page: choose models "
            "(--models), or compare with one of them (compare --baseline)"
        ]
    alone = len({r.model for r in responses}) < 2
    try:
        board = leaderboard.table(responses, metric=metric, subtasks=None, **asked.given(responses))
    except DesignError as error:
        return None, [f"models were not compared: {error}"]
    return board, ["models were not compared: there is only one"] if alone else []


def _minute(when: str) -> str:
    """Return a time, which each harness writes in its own way, to the minute."""
    if not re.match(r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d", when):
        return when
    return f"{when[:10]} {when[11:13]}:{when[14:16]}"


def _about(responses: ResponseSet, asked: Intervals) -> dict[str, str]:
    from evalstats_plugin.errors import few
    from evalstats_plugin.report.text import percent
    from evalstats_plugin.runtime import VERSION

    sources = [r.source for r in responses]
    harnesses = dict.fromkeys(f"{s.harness} {s.version or ''}".strip() for s in sources)
    times = sorted(_minute(s.when) for s in sources if s.when)
    runs = "" if not times else times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return {
        "Made by": f"evalstats-plugin {VERSION}",
        "Made at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Harness": few(list(harnesses)),
        "Runs": runs or "not logged",
        "Logs": f"{len({str(s.path) for s in sources}):,}",
        "Confidence level": percent(asked.confidence_level),
        "Interval method": asked.method,
        "Correction": "simultaneous, over all pairs of a family",
        "Seed": str(asked.seed),
    }


@command(
    ("logs/", "What is wrong, before the numbers are believed"),
    ("logs/ --format json", "The same for a program"),
)
@running.on_logs(
    reading=takes(
        "reading", Reading, only=("task", "metric", "columns", "wide", "missing_code", "mapping")
    )
)
def check(run: Run) -> None:
    """Check logs before you believe their numbers: exit code 1 if something is wrong.

    Looks for logs that are cut off, values and standard errors that contradict the items, prompts,
    questions, settings or versions that differ between models on one task, limited runs that stand
    before full ones, copies, logs in the folder of another model, and items without a score.
    """
    from evalstats_plugin.logs.reading import check as check_logs
    from evalstats_plugin.report.text import FINDINGS

    findings = check_logs(
        *run.paths,
        **picked(run.reading, "task", "metric", "missing_code", "mapping"),
        columns=run.columns(),
        wide=run.reading.wide or "",
        plugins=run.plugins,
    )
    run.output.show(findings, {}, FINDINGS)
    raise click.exceptions.Exit(1 if findings.rows else 0)


@dataclass(frozen=True, kw_only=True)
class NoiseOptions:
    """Whose scores, and how sure the least difference is."""

    judge: tuple[str, ...] = under("Judges")(
        "Metric of a judge who scored the same answers as another; give two or more: their mean is "
        "the score, and what they differ by a part of its noise.", default=(), metavar="METRIC",
    )  # fmt: skip
    confidence_level: float = shared.level()


@command(
    ("logs/", "Repeated runs, or runs with several epochs, of any models"),
    ("logs/ --task gsm8k --metric acc", "One task under one metric"),
)
@takes("asked", NoiseOptions)
@running.on_logs(reading=takes("reading", Reading, without=("runs",)))
def noise(run: Run, *, asked: NoiseOptions) -> None:
    """Say by how much two runs of the same model differ, and what would help.

    PATHS hold logs with several epochs, or several runs of one model on one task, all of which are
    used. The variance of an answer is taken apart into items, repeats in one run, runs and judges.
    """
    from evalstats_plugin.report.noise import NOISE
    from evalstats_plugin.scores.noise import noise as of_runs

    reading = replace(run.reading, runs="all")
    responses = replace(run, reading=reading).read(repeats=True)
    results = of_runs(responses, judges=asked.judge, confidence_level=asked.confidence_level)
    run.output.show(results, {"confidence_level": asked.confidence_level}, NOISE)

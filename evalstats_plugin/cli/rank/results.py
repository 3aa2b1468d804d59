"""``evalstats-plugin rank stats``, ``models`` and ``sample``: what comparisons say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.rank import options
from evalstats_plugin.cli.shell import options as shell_options
from evalstats_plugin.cli.shell import output
from evalstats_plugin.errors import LogError, SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.ranking.contests.contests import Contests
    from evalstats_plugin.ranking.rows import Ranking


LEAST_DRAWS = 1000
"""Drawn even if fewer are asked for, so that whether chains agree can be told."""

_SAID = ("model", "estimator", "ties", "scale", "confidence_level", "seed")

columns = click.option(
    "--columns", metavar="PART=COLUMN,...",
    help="Column names of the file, such as first=left,second=right,winner=choice.",
)  # fmt: skip


def _fit(function: shell_options.FunctionT) -> shell_options.FunctionT:
    """Add the options that say how a ranking is fitted."""
    estimator = click.option(
        "--estimator", metavar="NAME", default="auto", show_default=True,
        help="Estimator. thurstone: exact, hmc, gibbs, ep, laplace; bradley-terry: ml, "
        "bootstrap.",
    )  # fmt: skip
    ties = click.option(
        "--ties", metavar="NAME",
        help="How ties count: half, drop, or a tie model: threshold (thurstone), "
        "davidson or rao-kupper (bradley-terry).",
    )  # fmt: skip
    return estimator(ties(shell_options.seed(function)))


def _shown(function: shell_options.FunctionT) -> shell_options.FunctionT:
    """Add the options that say how a ranking is shown."""
    level = click.option(
        "--confidence-level", "-c", type=float, default=0.95, show_default=True,
        help="Confidence level of the intervals, between 0 and 1.",
    )  # fmt: skip
    scale = click.option(
        "--scale", type=click.Choice(["model", "elo"]), default="model", show_default=True,
        help="elo: mean 1000; 400 points are odds of 10 to 1.",
    )  # fmt: skip
    drawn = output.figure_option("ranking")
    return level(scale(drawn(shell_options.form(shell_options.quiet(function)))))


def _model(default: str) -> Any:
    return click.option(
        "--model", type=click.Choice(["thurstone", "bradley-terry"]), default=default,
        show_default=True, help="Rating model: Thurstone (normal noise, a prior) or Bradley–Terry "
        "(logistic noise, no prior).",
    )  # fmt: skip


@click.command()
@click.argument("files", metavar="FILES...", nargs=-1, required=True)
@_model("thurstone")
@_fit
@options.prior_sd
@columns
@_shown
@click.pass_context
def stats(ctx: click.Context, files: tuple[str, ...], **chosen: Any) -> None:
    """Rank models or items from files of pairwise comparisons: ratings, rank ranges, P(best).

    FILES are what `rank compare`, `judge` and `record` write, Fullrank's comparisons.json, CSV,
    JSONL or Parquet with a winner and a loser a row, or - for standard input. Several are those
    of several judges.
    """
    output.check_figure(chosen, "ranking")
    contests, variance = _read(ctx, files, chosen)
    _show(ctx, _rank(contests, chosen, variance), chosen)


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@_model("bradley-terry")
@_fit
@options.prior_sd
@shell_options.reading
@_shown
@click.pass_context
def models(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Rank models from logs: on each item the model with the better score wins.

    PATHS are results files, folders or patterns. Items on which two models are equal tell nothing
    about these two; intervals are clustered by item. With all models on the same right-or-wrong
    items this orders them much as accuracy does; it is for items that not all models answered.
    """
    from evalstats_plugin.cli.shell.reading import read_logs
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.ranking.contests.from_scores import contests_from_scores

    output.check_figure(chosen, "ranking")
    variance = options.variance_of(chosen)
    contests = contests_from_scores(read_logs(paths, chosen, load_plugins(ctx.obj or ())))
    _show(ctx, _rank(contests, chosen, variance), chosen)


@click.command()
@click.argument("file", metavar="FILE")
@click.argument("output", metavar="[OUT.jsonl]", default="-")
@click.option(
    "-n", "--draws", type=click.IntRange(min=1), default=10_000, show_default=True,
    help="Number of draws (lines) to write.",
)  # fmt: skip
@_model("thurstone")
@_fit
@options.prior_sd
@columns
@shell_options.quiet
@click.pass_context
def sample(ctx: click.Context, file: str, output: str, **chosen: Any) -> None:
    """Draw ratings from the posterior: one JSON list per line, players in the order of the file.

    Exactly as many lines as asked for, to OUT.jsonl or standard output.
    """
    import numpy as np

    from evalstats_plugin.ranking.rank import rank
    from evalstats_plugin.runtime.files import write_bytes

    contests, variance = _read(ctx, (file,), chosen)
    n = chosen["draws"]
    more = {"draws": max(n, LEAST_DRAWS)} if chosen["model"] == "thurstone" else {}
    found = rank(contests, **_asked(chosen, {**_options(chosen, variance), **more}))
    draws, rng = found.fit.draws, np.random.default_rng(chosen["seed"])
    if draws is None or len(draws) < n:
        draws = found.fit.sample(n, rng)
    elif len(draws) > n:
        draws = draws[rng.choice(len(draws), n, replace=False)]
    text = "".join(f"{json.dumps(row)}\n" for row in draws.tolist())
    options.tell(found.notes, quiet=chosen["quiet"])
    if output == "-":
        click.echo(text, nl=False)
        return
    write_bytes(Path(output), text.encode())
    said = f"{n} draws of {len(contests.players)} ratings ({found.fit.estimator}) in {output}"
    options.tell([said], quiet=chosen["quiet"])


def _read(
    ctx: click.Context, files: tuple[str, ...], chosen: Mapping[str, Any]
) -> tuple[Contests, float | None]:
    """Read comparisons, and the prior variance where the options or the files tell it."""
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.ranking.contests.files import merge

    variance = options.variance_of(chosen)
    names, plugins = parse_columns(chosen["columns"]), load_plugins(ctx.obj or ())
    read = [_contests(file, names, plugins) for file in files]
    told = list(dict.fromkeys(prior for _, prior in read if prior is not None))
    if len(told) > 1 and variance is None:
        msg = (
            f"prior variances {', '.join(f'{prior:g}' for prior in told)} found in the files, "
            "expected the same in all: say which counts with --prior-sd"
        )
        raise SelectionError(msg)
    if variance is None and told:
        variance = told[0]
    found = [contests for contests, _ in read]
    if len(found) == 1:
        return found[0], variance
    return merge(*found, judges=[Path(file).stem for file in files]), variance


def _contests(
    file: str, columns: Mapping[str, str] | None, plugins: Plugins
) -> tuple[Contests, float | None]:
    """Read one file, and its prior variance; of answers that break off, what is before that."""
    from evalstats_plugin.logs import reading
    from evalstats_plugin.ranking.contests.files import read_contests
    from evalstats_plugin.ranking.judging.session import Session

    stream, answers = options.opened(file)
    prior = None if answers is None else answers.prior_variance
    try:
        if stream is not None:
            return read_contests(stream, columns=columns), prior
        return reading.read_contests(file, columns=columns, plugins=plugins), prior
    except LogError:
        if answers is None:
            raise
        return Session(Path(file), answers).contests(), prior


def parse_columns(text: str | None) -> Mapping[str, str] | None:
    """Read ``PART=COLUMN,...``."""
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(part and equals and column for part, equals, column in pairs):
        msg = f"--columns {text!r} found, expected PART=COLUMN,... such as winner=choice"
        raise SelectionError(msg)
    return {part.strip(): column.strip() for part, _, column in pairs}


def _options(chosen: Mapping[str, Any], variance: float | None) -> dict[str, Any]:
    """Return the options of the estimator."""
    given: dict[str, Any] = {} if chosen["ties"] is None else {"ties": chosen["ties"]}
    if chosen["model"] == "thurstone":
        return {**given, "prior_covariance": 1.0 if variance is None else variance}
    if chosen["prior_sd"] is not None:
        given["prior_sd"] = chosen["prior_sd"]
    return given


def _asked(chosen: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": chosen["model"],
        "estimator": chosen["estimator"],
        "rng": chosen["seed"],
        "options": given,
    }


def _rank(contests: Contests, chosen: Mapping[str, Any], variance: float | None) -> Ranking:
    from evalstats_plugin.cli.shell.reading import progress_on_work
    from evalstats_plugin.ranking.rank import rank

    with progress_on_work(f"ranking {len(contests):,} comparisons", quiet=chosen["quiet"]):
        return rank(
            contests,
            confidence_level=chosen["confidence_level"],
            scale=chosen["scale"],
            **_asked(chosen, _options(chosen, variance)),
        )


def _show(ctx: click.Context, results: Ranking, chosen: Mapping[str, Any]) -> None:
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.report import rankings as report_rankings

    output.save_asked(chosen, {"ranking": lambda: results})
    # Those that the models take unless told.
    ties = {"thurstone": "threshold", "bradley-terry": "half"}[chosen["model"]]
    ran = {"estimator": results.fit.estimator, "ties": chosen["ties"] or ties}
    show(
        ctx,
        results,
        {**chosen, **ran},
        _SAID,
        print_table=report_rankings.print_ranking,
        to_markdown=report_rankings.rankings_markdown,
    )

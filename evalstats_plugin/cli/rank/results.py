"""``evalstats-plugin rank stats``, ``models``, ``leaderboard`` and ``sample``: what answers say."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from evalstats_plugin.cli.rank.options import opened, prior_sd, variance_of
from evalstats_plugin.cli.shell import options, running, shared
from evalstats_plugin.cli.shell.options import Parsed, command, overwrite, picked, takes, under
from evalstats_plugin.cli.shell.running import Output, Run, tell
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.runtime.files import number_in
from evalstats_plugin.runtime.untrusted import echo, echo_data, json_text

if TYPE_CHECKING:
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.ranking.contests.contests import Contests
    from evalstats_plugin.ranking.rank import RankingModel
    from evalstats_plugin.ranking.rows import Ranking


_model = under("Model")


def _columns() -> Any:
    return under(options.READ)(
        "Column names of the file, such as first=left,second=right,winner=choice.",
        metavar="PART=COLUMN,...", type=Parsed(options.parse_columns),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rating:
    """How ratings are estimated, and on which scale they are shown."""

    method: RankingModel = _model(  # noqa: RUF009 - a field
        "Rating model: Thurstone (normal noise, a prior) or Bradley–Terry (logistic noise, no "
        "prior); auto: Thurstone up to 1,000 comparisons, one on an item, else Bradley–Terry.",
        default="auto", type=click.Choice(["auto", "thurstone", "bradley-terry"]),
    )  # fmt: skip
    estimator: str = _model(
        "How it is fitted; thurstone: exact, ep; bradley-terry: ml.",
        default="auto", metavar="NAME",
    )  # fmt: skip
    ties: str | None = _model(
        "How ties count: half, drop, or a tie model: threshold (thurstone), davidson or rao-kupper "
        "(bradley-terry).  [default: threshold, davidson]",
        metavar="NAME",
    )
    prior_sd: float | None = prior_sd()
    confidence_level: float = shared.level()
    seed: int = shared.seed()
    scale: Literal["model", "elo"] = under(options.OUTPUT)(
        "elo: mean 1000; 400 points are 10 wins for 1 loss, ties left out (thurstone: 378 points).",
        default="model", type=click.Choice(["model", "elo"]),
    )  # fmt: skip

    def given(
        self, contests: Contests, variance: float | None, draws: int | None = None
    ) -> dict[str, Any]:
        """Return the arguments of functions that rank, with the prior variance that a file has."""
        from evalstats_plugin.ranking import rank

        method = self.method
        if method == "auto":
            method = rank.model_for(contests, self.estimator)
        kind = rank.options_type(method, self.estimator)
        own: dict[str, Any] = {} if self.ties is None else {"ties": self.ties}
        if kind is rank.ThurstoneOptions:
            own["prior_covariance"] = 1.0 if variance is None else variance
            own["draws"] = draws
        elif self.prior_sd is not None:
            own["prior_sd"] = self.prior_sd
        shown = picked(self, "estimator", "confidence_level", "scale")
        return {"model": self.method, **shown, "rng": self.seed, "options": kind(**own)}

    def how(self, results: Ranking) -> dict[str, Any]:
        """Return how a ranking came about, in the order it is printed."""
        about = results.fit.diagnostics
        return {
            "model": results.fit.model,
            "estimator": results.fit.estimator,
            "ties": about["ties"] if about["n_ties"] else "none",
            **picked(self, "scale", "confidence_level", "seed"),
        }

    def show(self, contests: Contests, variance: float | None, output: Output) -> None:
        """Rank the players of comparisons, and print the ranking."""
        from evalstats_plugin.ranking.rank import rank
        from evalstats_plugin.report import rankings

        with running.progress_on_work(f"ranking {len(contests):,} comparisons", quiet=output.quiet):
            results = rank(contests, **self.given(contests, variance))
        output.draw({"ranking": lambda: results})
        output.show(results, self.how(results), rankings.RANKING)


@dataclass(frozen=True, kw_only=True)
class Stats(Rating):
    """The same, and what is read."""

    columns: tuple[tuple[str, str], ...] | None = _columns()


@dataclass(frozen=True, kw_only=True)
class Board(Stats):
    """The same, and what a leaderboard shows."""

    style: tuple[str, ...] = _model(
        "Feature of the answers that shall not be rewarded, such as their length: a column of "
        "differences, or the common prefix of a column for each (style control); may be repeated.",
        default=(), metavar="COLUMN",
    )  # fmt: skip
    category: str | None = _model(
        "Column of categories: also rank by the votes of each alone.", metavar="COLUMN"
    )
    anchor: str | None = under(options.OUTPUT)(
        "Shift the ratings so that this model has this rating.  [default: their mean is 1000]",
        metavar="MODEL[=RATING]",
    )
    html: str | None = shared.file(
        "Also write a page for browsers, and its numbers beside it (.leaderboard.json)."
    )
    method: Literal["bradley-terry", "thurstone"] = _model(
        "Rating model: Bradley–Terry (logistic noise), with Davidson's model of ties where there "
        "are any; or Thurstone (normal noise, a prior).",
        default="bradley-terry", type=click.Choice(["bradley-terry", "thurstone"]),
    )  # fmt: skip
    scale: Literal["model", "elo"] = under(options.OUTPUT)(
        "elo: 400 points are 10 wins for 1 loss, ties left out (thurstone: 378 points).",
        default="elo", type=click.Choice(["model", "elo"]),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sample(Stats):
    """The same, and how much is drawn."""

    draws: int = under(options.OUTPUT)(
        "Number of draws (lines) to write.",
        "-n", default=10_000, type=options.POSITIVE, metavar="N",
    )  # fmt: skip
    quiet: bool = shared.quiet()


@command(
    ("votes.csv", "Ratings, with the ranks that are open"),
    ("votes.csv --format csv", "For a program"),
)
@click.argument("files", metavar="[FILES...]", nargs=-1, type=click.Path())
@takes("asked", Stats)
@running.output("ranking")
def stats(files: tuple[str, ...], *, asked: Stats, output: Output) -> None:
    """Rank models or items from files of pairwise comparisons: ratings, rank ranges, P(best).

    FILES are what `rank compare`, `judge` and `record` write, Fullrank's comparisons.json, CSV,
    JSONL or Parquet with a winner and a loser a row; without FILES, or for -, standard input is
    read. Several are those of several judges.
    """
    contests, variance = _read(files, asked, running.loaded_plugins())
    asked.show(contests, variance, output)


@command(
    ("votes.csv --html arena.html", "An arena's page"),
    ("votes.csv --format markdown", "For a README"),
)
@click.argument("files", metavar="[FILES...]", nargs=-1, type=click.Path())
@takes("asked", Board)
@running.output("ranking")
def leaderboard(files: tuple[str, ...], *, asked: Board, output: Output) -> None:
    """Rank models by people's votes, as an arena does: ratings, rank ranges, categories, a page.

    FILES are CSV, JSONL or Parquet with a vote a row, as for `rank stats`. Votes on one prompt are
    a cluster where a column names the prompt. The ranges of ranks hold for all models at once.
    """
    from evalstats_plugin.ranking import rank
    from evalstats_plugin.report import rankings
    from evalstats_plugin.runtime.writing import check_output_path, write_bytes

    page = numbers = None
    if asked.html is not None:
        page = check_output_path(asked.html, (".html", ".htm"), asked="--html")
        numbers = page.with_suffix(".leaderboard.json")
        check_output_path(numbers, (".json",), asked="--html")
    more = {"category": asked.category, "features": ",".join(asked.style)}
    named = {part: column for part, column in more.items() if column}
    votes, variance = _read(files, asked, running.loaded_plugins(), named)
    anchor, _, rating = (asked.anchor or "").rpartition("=")
    if asked.anchor and (asked.anchor in votes.players or not anchor):
        anchor, rating = asked.anchor, ""
    with running.progress_on_work(f"ranking {len(votes):,} votes", quiet=output.quiet):
        board = rank.leaderboard(
            votes,
            anchor=anchor or None,
            anchor_rating=_number(rating) if rating else None,
            **picked(asked, "style", "category"),
            **asked.given(votes, variance),
        )
    how = {
        **asked.how(board.overall),
        "style": ",".join(asked.style) or None,
        "category": asked.category,
        "anchor": board.anchor or None,
    }
    output.draw({"ranking": lambda: board.overall})
    if page is not None and numbers is not None:
        from evalstats_plugin.report.html.page import leaderboard_html

        write_bytes(page, leaderboard_html(board, how).encode())
        write_bytes(numbers, rankings.leaderboard_json(board, how).encode("utf-8", "replace"))
        output.tell(f"written: {page}, {numbers}")
    settings = {name: value for name, value in how.items() if value is not None}
    output.show(board, settings, rankings.LEADERBOARD)


def _number(text: str) -> float:
    with suppress(ValueError):
        if isfinite(number := number_in(text)):
            return number
    raise SelectionError(f"--anchor ends in {text!r}, which is no number: write MODEL=1000")


@command(
    ("logs/ --metric acc", "Models by who does better on each item"),
    ("logs/ --metric acc --format latex", "For a paper"),
)
@takes("asked", Rating)
@running.on_logs("ranking")
def models(run: Run, *, asked: Rating) -> None:
    """Rank models from logs: on each item the model with the better score wins.

    PATHS are results files, folders or patterns. Items on which two models are equal say nothing
    about these two; intervals are clustered by item. With all models on the same right-or-wrong
    items this orders them much as accuracy does; it is for items that not all models answered.
    """
    from evalstats_plugin.ranking.contests.from_scores import contests_from_scores

    variance = variance_of(asked.prior_sd)
    asked.show(contests_from_scores(run.read()), variance, run.output)


@command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("output", metavar="[OUT.jsonl]", default="-", type=click.Path())
@takes("asked", Sample, without=("confidence_level", "scale"))
@overwrite
def sample(file: str, output: str, *, asked: Sample) -> None:
    """Draw ratings from the posterior: one JSON list per line, players in the order of the file.

    Writes exactly as many lines as asked for, to OUT.jsonl or standard output.
    """
    _sample(file, output, asked, asked.draws)


@command(name="raw-sample")
@click.argument("draws", metavar="N", type=options.POSITIVE)
@click.argument("output", metavar="OUT.jsonl", type=click.Path())
@takes("asked", Sample, without=("confidence_level", "scale", "draws"))
@overwrite
def raw_sample(draws: int, output: str, *, asked: Sample) -> None:
    """Draw as `sample` does, with Fullrank's order of arguments: comparisons on standard input."""
    _sample("-", output, asked, draws)


def _sample(file: str, output: str, asked: Sample, n: int) -> None:
    from evalstats_plugin.ranking.rank import rank
    from evalstats_plugin.ranking.ratings.fit import normal_draws
    from evalstats_plugin.runtime.writing import check_free, write_bytes
    from evalstats_plugin.stats.streams import stream

    if output != "-":
        check_free(Path(output))
    contests, variance = _read((file,), asked, running.loaded_plugins())
    ranking = rank(contests, **asked.given(contests, variance, n))
    fit, rng = ranking.fit, stream(asked.seed, "draws shown of ratings")
    if fit.draws is None:
        drawn = normal_draws(fit.rating, fit.covariance, (n,), rng)
    elif len(fit.draws) < n:
        drawn = fit.draws[rng.integers(len(fit.draws), size=n)]
    else:
        # Without repetition, and in random order: points of integration are in theirs.
        drawn = rng.permutation(fit.draws)[:n]
    text = "".join(f"{json.dumps(row)}\n" for row in drawn.tolist())
    tell(ranking.notes, quiet=asked.quiet)
    if output == "-":
        echo(text, nl=False)
        return
    write_bytes(Path(output), text.encode())
    done = f"{n} draws of {len(contests.players)} ratings ({fit.estimator}) in {output}"
    tell([done], quiet=asked.quiet)


@dataclass(frozen=True, kw_only=True)
class Infer:
    """The prior, and the columns of what is read."""

    prior_sd: float | None = prior_sd()
    columns: tuple[tuple[str, str], ...] | None = _columns()


@command(name="infer-sun")
@click.argument("file", metavar="[FILE]", default="-", type=click.Path())
@takes("asked", Infer)
def infer_sun(file: str, *, asked: Infer) -> None:
    """Print the parameters of the posterior, a unified skew-normal distribution, as JSON.

    The density of the ratings is that of a normal N(ξ, Ω) times Φ(τ + Δ'Ω⁻¹(x − ξ); Γ − Δ'Ω⁻¹Δ),
    divided by Φ(τ; Γ), with one entry of τ for each comparison. Comparisons are wins and losses.
    """
    from evalstats_plugin.ranking.thurstone.model import skew_normal

    contests, variance = _read((file,), asked, running.loaded_plugins())
    posterior = skew_normal(contests, 1.0 if variance is None else variance)
    parameters = {
        "xi": posterior.location,
        "Omega": posterior.scale,
        "Delta": posterior.skewness,
        "tau": posterior.threshold,
        "Gamma": posterior.latent_covariance,
    }
    whole = {"items": list(contests.players)} | {k: v.tolist() for k, v in parameters.items()}
    echo_data(json_text(whole))


def _read(
    files: tuple[str, ...],
    asked: Stats | Infer,
    plugins: Plugins,
    more: Mapping[str, str] | None = None,
) -> tuple[Contests, float | None]:
    """Read comparisons, and the prior variance where the options or the files have it."""
    from evalstats_plugin.ranking.contests.files import merge

    if not files and sys.stdin.isatty():
        raise SelectionError("no file of comparisons: name one, or pipe one in")
    variance = variance_of(asked.prior_sd)
    names = {**dict(asked.columns or ()), **(more or {})} or None
    read = [_contests(file, names, plugins) for file in files or ["-"]]
    priors = list(dict.fromkeys(prior for _, prior in read if prior is not None))
    if len(priors) > 1 and variance is None:
        raise SelectionError(
            f"the files have different prior variances ({', '.join(f'{p:g}' for p in priors)}): "
            "say which counts with --prior-sd"
        )
    if variance is None and priors:
        variance = priors[0]
    parts = [contests for contests, _ in read]
    if len(parts) == 1:
        return parts[0], variance
    return merge(*parts, judges=[Path(file).stem for file in files]), variance


def _contests(
    file: str, columns: Mapping[str, str] | None, plugins: Plugins
) -> tuple[Contests, float | None]:
    """Read one file, and its prior variance; of answers that break off, what is before that."""
    from evalstats_plugin.logs import reading
    from evalstats_plugin.ranking.contests.files import read_contests
    from evalstats_plugin.ranking.judging.session import Session

    stream, answers = opened(file)
    if answers is not None and not columns:
        return Session(Path(file), answers).contests(), answers.prior_variance
    if stream is not None:
        return read_contests(stream, columns=columns), None
    return reading.read_contests(file, columns=columns, plugins=plugins), None

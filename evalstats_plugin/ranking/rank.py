"""Rank models, answers or other players from pairwise comparisons: `rank`, and `leaderboard`.

It reads or makes the contests, runs the estimator of a model, and collects ratings, ranks and
goodness of fit in a `Ranking`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import DesignError, SelectionError, check_known, counted, few, no_such
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.contests.files import with_players
from evalstats_plugin.ranking.goodness import (
    judge_agreement,
    predictive_fit,
    probabilities_at,
    transitivity,
)
from evalstats_plugin.ranking.ratings.fit import RankingFit, order_entropy
from evalstats_plugin.ranking.rows import ELO_ANCHOR, Goodness, Leaderboard, Ranking, Scale, ranked
from evalstats_plugin.runtime.memory import check_memory
from evalstats_plugin.stats.arrays import Rng
from evalstats_plugin.stats.streams import stream

if TYPE_CHECKING:
    import pandas as pd

    from evalstats_plugin.ranking.contests.outcomes import TieModel
    from evalstats_plugin.ranking.ratings.bradley_terry import CovarianceKind
    from evalstats_plugin.ranking.thurstone.design import Ties


RankingModel = Literal["auto", "bradley-terry", "thurstone"]
MOST_OF_A_LIST = 1000
"""Most comparisons that ``"auto"`` takes for a person's own list, which Thurstone's model ranks."""
MOST_FOR_ENTROPY = 40
"""Most players for which the entropy of the order is simulated; beyond, its bounds are wide."""


@dataclass(frozen=True, kw_only=True)
class MlOptions:
    """Options of Bradley–Terry ``"ml"``; see `fit_bradley_terry`."""

    ties: TieModel | None = None
    position: bool | None = None
    """Whether to estimate the advantage of being shown first; None: where the order is known, and
    the advantage can be told apart from the ratings."""
    features: tuple[str, ...] = ()
    covariance: CovarianceKind = "auto"
    prior_sd: float | None = None


@dataclass(frozen=True, kw_only=True)
class ThurstoneOptions:
    """Options of Thurstone's model; see `fit_thurstone`."""

    prior_mean: ArrayLike = 0.0
    prior_covariance: ArrayLike = 1.0
    ties: Ties = "threshold"
    draws: int | None = None


RankOptions: TypeAlias = MlOptions | ThurstoneOptions

ESTIMATORS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"bradley-terry": ("ml",), "thurstone": ("exact", "ep")}
)
"""Estimators of each model."""


_COVARIANCES = 3
"""Matrices of players × players that a fit holds at once at least: information, factor, inverse."""


def rank(
    contests: Contests
    | pd.DataFrame
    | str
    | Path
    | ResponseMatrix
    | ResponseSet
    | Iterable[Responses],
    *,
    model: RankingModel = "auto",
    estimator: str = "auto",
    confidence_level: float = 0.95,
    scale: Scale = "model",
    rng: Rng = None,
    options: RankOptions | None = None,
    columns: Mapping[str, str] | None = None,
) -> Ranking:
    """Rank players from pairwise comparisons: ratings, possible ranks, and P(best).

    Parameters
    ----------
    contests
        Comparisons; or a file or frame of them, one a row, as for `read_contests`; or item scores
        of models, where the better score of two models wins: equal scores are left out, and
        intervals are clustered by item.
    model
        ``"bradley-terry"`` (log odds), ``"thurstone"`` (probit, with a prior), or ``"auto"``:
        Thurstone for a small list (at most 1,000 comparisons, one on an item), because its prior
        needs no chain of comparisons that connects all players; else Bradley–Terry, which clusters
        the comparisons on one item.
    estimator
        For Bradley–Terry ``"ml"``; for Thurstone ``"exact"`` or ``"ep"``: ``"auto"`` chooses
        between the two by the number of players;
        ``fit.diagnostics["reason"]`` says why.
    confidence_level
        Of each rating's limits (pointwise), and of the ranges of ranks and the letters
        (simultaneous).
    scale
        ``"model"``, or ``"elo"``: points with mean 1000. `scale_meaning` says what a difference
        means under the fitted model.
    rng
        For draws and simulations.
    options
        `MlOptions` or `ThurstoneOptions`, as the model needs.
    columns
        Names of the columns of a file or frame, as for `read_contests`.

    Raises
    ------
    SelectionError
        No such model, estimator or scale, or options of another estimator.
    DesignError
        There are no contests, they cannot be fitted, or do not fit into memory.

    Examples
    --------
    >>> played = Contests.of([0, 0, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1], players=["ant", "bee"])
    >>> ranking = rank(played, rng=0)
    >>> [(row.player, round(row.mean, 2)) for row in ranking]
    [('ant', 0.3), ('bee', -0.3)]
    """
    generator = stream(rng, "ranking")
    check_known("scale", scale, get_args(Scale))
    if not 0 < confidence_level < 1:
        raise SelectionError(f"confidence_level is {confidence_level:g}: give one between 0 and 1")
    read = to_contests(contests, columns)
    if model == "auto":
        model = model_for(read, estimator, options)
    kind = options_type(model, estimator)
    chosen = kind() if options is None else options
    if type(chosen) is not kind:
        raise SelectionError(
            f"{type(chosen).__name__} are not the options of {model} {estimator}: give "
            f"{kind.__name__}"
        )
    n = len(read.players)
    check_memory(
        _COVARIANCES * 8 * n * n,
        f"ratings of {n:,} players with the covariance of every two",
        "rank fewer players, or take rare ones together as one",
    )
    fit = _fitted(read, chosen, estimator, generator)
    shown = fit.centred()
    rows, draws = ranked(shown, read, confidence_level=confidence_level, scale=scale, rng=generator)
    notes = [*read.notes, *fit.notes, *_position(fit, confidence_level)]
    if read.cluster is not None and len(np.unique(read.cluster)) == 1 and read.clustered:
        notes.append("all comparisons are on one item: nothing is known of others")
    elif read.clustered and fit.diagnostics.get("covariance") not in ("cluster", "judge"):
        notes.append(
            f"several comparisons on one item, and {fit.model} {fit.estimator} takes them for "
            "independent: where they are not, intervals are too narrow; bradley-terry ml clusters "
            "them"
        )
    goodness = _goodness(fit, read, confidence_level, generator)
    seed = rng if isinstance(rng, int) else None
    noted = tuple(dict.fromkeys(notes))
    return Ranking(tuple(rows), noted, seed, fit=fit, draws=draws, goodness=goodness)


def leaderboard(
    votes: Contests | pd.DataFrame | str | Path,
    *,
    anchor: str | None = None,
    anchor_rating: float | None = None,
    style: Sequence[str] = (),
    category: str | None = None,
    model: Literal["bradley-terry", "thurstone"] = "bradley-terry",
    estimator: str = "auto",
    confidence_level: float = 0.95,
    scale: Scale = "elo",
    rng: Rng = None,
    options: RankOptions | None = None,
    columns: Mapping[str, str] | None = None,
) -> Leaderboard:
    """Rank models from people's votes as an arena does: over all votes, and by category.

    Each ranking is that of `rank`: prompts are clusters where the votes name them, the advantage of
    the one shown first is estimated where the order is known, and the ranges of ranks hold for all
    models at once.

    Parameters
    ----------
    votes, columns
        As in `rank`.
    anchor, anchor_rating
        Ratings are shifted so that this model has this rating: 1000 by default, or 0 on the
        model's own scale, as their mean has without an anchor.
    style
        Features of the answers that the ratings shall not reward, such as the length: a column of
        differences between the two answers, or the common prefix of a column for each
        (``length`` for length_a and length_b); of `Contests`, all features they have. Their effects
        are estimated with the ratings (style control), by Bradley–Terry's model.
    category
        Column that says which category a vote belongs to.
    model
        Bradley–Terry, with Davidson's model of ties where there are any; Thurstone has a prior.
    estimator, confidence_level, scale, rng, options
        As in `rank`.

    Raises
    ------
    SelectionError
        No such column or anchor, or a rating of none; style with a model or votes that have no
        features.
    DesignError
        No chain of votes connects all models. Categories in which that is so are left out, with
        a note.

    Examples
    --------
    >>> import pandas as pd
    >>> votes = pd.DataFrame({
    ...     "model_a": ["ant", "bee", "ant", "bee"], "model_b": ["bee", "ant", "bee", "ant"],
    ...     "winner": ["a", "b", "b", "b"], "kind": ["code", "code", "talk", "code"]})
    >>> board = leaderboard(votes, anchor="bee", category="kind", rng=0)
    >>> [(row.player, row.rank_low, row.rank_high) for row in board.overall]
    [('ant', 1, 2), ('bee', 1, 2)]
    """
    named = dict(columns or {})
    if style:
        named["features"] = ",".join(style)
    if category is not None:
        named["category"] = category
    read = isinstance(votes, Contests)
    contests = to_contests(votes, None if read else named or None)
    if category is not None and contests.category is None:
        raise SelectionError("these votes were read without a category: name its column there")
    if style:
        if model == "thurstone" or isinstance(options, ThurstoneOptions):
            raise SelectionError("style control is for bradley-terry: choose that model")
        if not contests.feature_names:
            raise SelectionError("these votes were read without features: name their columns there")
        options = replace(
            MlOptions() if options is None else options, features=contests.feature_names
        )
    if anchor is None and anchor_rating is not None:
        raise SelectionError(f"anchor_rating is {anchor_rating:g}, of no model: name it as anchor")
    if anchor is not None and anchor not in contests.players:
        players = contests.players
        raise SelectionError(no_such("model", anchor, players, few(players, 20)))
    middle = (ELO_ANCHOR if scale == "elo" else 0.0) if anchor_rating is None else anchor_rating

    def ranking(of: Contests) -> Ranking:
        fitted = rank(
            of, model=model, estimator=estimator, confidence_level=confidence_level, scale=scale,
            rng=rng, options=options,
        )  # fmt: skip
        return fitted if anchor is None else _anchored(fitted, anchor, middle)

    overall = ranking(contests)
    notes = [*overall.notes, *_effects_of_style(overall, confidence_level)]
    by_category: dict[str, Ranking] = {}
    code = contests.category if category else None
    for number, name in enumerate(contests.categories if code is not None else ()):
        of_category = contests.take(np.flatnonzero(code == number))
        met: list[int] = np.unique([of_category.first, of_category.second]).tolist()
        votes_in = with_players(of_category, [contests.players[i] for i in met])
        try:
            fitted = by_category[name] = ranking(votes_in)
        except DesignError as error:
            notes.append(f"category {name} ({counted(len(votes_in), 'vote')}): left out: {error}")
            continue
        own = (note for note in fitted.fit.notes if note not in overall.notes)
        notes += [f"category {name}: {note}" for note in own]
        if anchor is not None and anchor not in votes_in.players:
            notes.append(f"category {name}: {anchor} has no votes, the mean rating is {middle:g}")
    rows = list(overall.rows)
    for name, fitted in by_category.items():
        rows += [replace(row, category=name) for row in fitted.rows]
    place = {name: k for k, name in enumerate(contests.players)}
    order = [place[row.player] for row in overall.rows]
    return Leaderboard(
        tuple(rows),
        tuple(dict.fromkeys(notes)),
        overall.seed,
        overall=overall,
        by_category=by_category,
        anchor="" if anchor is None else f"{anchor} has {middle:g}",
        wins=contests.wins()[np.ix_(order, order)],
    )


def _anchored(ranking: Ranking, anchor: str, rating: float) -> Ranking:
    """Shift all ratings so that one player has a given one."""
    means = {row.player: row.mean for row in ranking.rows}
    if means.get(anchor) is None:
        return ranking
    shift = rating - (means[anchor] or 0.0)

    def moved(value: float | None) -> float | None:
        return None if value is None else value + shift

    rows = tuple(
        replace(row, mean=moved(row.mean), low=moved(row.low), high=moved(row.high))
        for row in ranking.rows
    )
    return replace(ranking, rows=rows)


def _effects_of_style(ranking: Ranking, confidence_level: float) -> list[str]:
    """Say what a unit of each feature is worth to a vote."""
    fit = ranking.fit
    reach = fit.reach(confidence_level)
    notes: list[str] = []
    for name, value in fit.parameters.items():
        if name in ("position", "tie") or name not in fit.parameter_std_errors:
            continue
        half = reach * fit.parameter_std_errors[name]
        odds = [100 * math.expm1(x) for x in (value, value - half, value + half)]
        notes.append(
            f"style: one unit more of {name} changes the odds of a vote by {odds[0]:+.3g} % "
            f"[{odds[1]:+.3g}, {odds[2]:+.3g}], which the ratings do not contain"
        )
    return notes


def to_contests(source: Any, columns: Mapping[str, str] | None = None) -> Contests:
    """Return contests: as given, read from a file, or made from a frame or from scores.

    Raises
    ------
    SelectionError
        Columns are named, but the source has none.
    """
    if isinstance(source, (str, Path)):
        from evalstats_plugin.ranking.contests.files import read_contests

        return read_contests(source, columns=columns)
    if hasattr(source, "columns") and hasattr(source, "dtypes"):
        from evalstats_plugin.data.tables import Column, Table
        from evalstats_plugin.ranking.contests.assembly import contests_from_table

        names = tuple(str(name) for name in source.columns)
        # Names of a frame need not be texts.
        own = dict(zip(names, source.columns, strict=True))
        table = Table("the frame", names, lambda want: {n: Column.of(source[own[n]]) for n in want})
        return contests_from_table(table, columns)
    if columns:
        msg = f"columns {', '.join(columns)} named, but only files and frames have columns"
        raise SelectionError(msg)
    if isinstance(source, Contests):
        return source
    from evalstats_plugin.ranking.contests.from_scores import contests_from_scores

    scores = source if isinstance(source, (ResponseMatrix, ResponseSet)) else list(source)
    return contests_from_scores(scores)


def model_for(
    contests: Contests, estimator: str = "auto", options: RankOptions | None = None
) -> Literal["bradley-terry", "thurstone"]:
    """Return the model that ``"auto"`` stands for: that of the options or estimator, if one is.

    Examples
    --------
    >>> model_for(Contests.of([0], [1], [1], players=2)), model_for(
    ...     Contests.of([0], [1], [1], players=2), "ml")
    ('thurstone', 'bradley-terry')
    """
    if options is not None:
        return "thurstone" if isinstance(options, ThurstoneOptions) else "bradley-terry"
    if estimator in ESTIMATORS["thurstone"]:
        return "thurstone"
    if estimator in ESTIMATORS["bradley-terry"]:
        return "bradley-terry"
    own_list = len(contests) <= MOST_OF_A_LIST and not contests.clustered
    return "thurstone" if own_list else "bradley-terry"


def options_type(model: str, estimator: str) -> type[RankOptions]:
    """Return the type of an estimator's options.

    Raises
    ------
    SelectionError
        No such model or estimator.

    Examples
    --------
    >>> options_type("bradley-terry", "auto").__name__
    'MlOptions'
    """
    check_known("ranking model", model, ESTIMATORS)
    estimators = ESTIMATORS[model]
    if estimator not in ("auto", *estimators):
        shown = f"auto, {', '.join(estimators)}"
        raise SelectionError(no_such(f"estimator of {model}", estimator, estimators, shown))
    return ThurstoneOptions if model == "thurstone" else MlOptions


def _fitted(
    contests: Contests, options: RankOptions, estimator: Any, rng: np.random.Generator
) -> RankingFit:
    """Fit with a position effect if that is asked for, or where it is known and identified."""
    from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry
    from evalstats_plugin.ranking.thurstone.model import fit_thurstone

    if isinstance(options, ThurstoneOptions):
        return fit_thurstone(contests, **vars(options), estimator=estimator, rng=rng)
    known = contests.ordered if options.position is None else options.position
    try:
        fit = fit_bradley_terry(contests, **vars(replace(options, position=known)))
    except DesignError:
        if options.position is not None or not known:
            raise
        fit = fit_bradley_terry(contests, **vars(replace(options, position=False)))
    fit.diagnostics["reason"] = "asked for" if estimator != "auto" else "no prior is asked for"
    return fit


def _position(fit: RankingFit, confidence_level: float) -> tuple[str, ...]:
    """Say how much of an advantage the player shown first has, where that was estimated."""
    if "position" not in fit.parameters or "position" not in fit.parameter_std_errors:
        return ()
    middle, error = fit.parameters["position"], fit.parameter_std_errors["position"]
    half = fit.reach(confidence_level) * error
    won, _, lost = probabilities_at(fit, np.array([middle, middle - half, middle + half])).T
    at, low, high = (100 * won / (won + lost)).tolist()
    ties = "a tie counting half" if fit.diagnostics["ties"] == "half" else "ties left out"
    text = f"between equals the one shown first wins {at:.0f} % [{low:.0f}, {high:.0f}]"
    text += f", {ties}" if fit.diagnostics["n_ties"] else ""
    if abs(middle) <= half:
        return (text,)
    side = "first" if middle > 0 else "second"
    return (f"{text}: the judges favour the {side} shown, which the ratings allow for",)


def _goodness(
    fit: RankingFit, contests: Contests, confidence_level: float, rng: np.random.Generator
) -> Goodness:
    is_small = len(fit.players) <= MOST_FOR_ENTROPY
    entropy = order_entropy(fit.rating, fit.covariance, rng=rng) if is_small else None
    counts = contests.weight > 0
    if fit.diagnostics["ties"] == "drop":
        counts &= ~contests.tied
    if not counts.any():
        return Goodness(entropy)
    return Goodness(
        entropy,
        transitivity(fit, contests, rng=rng),
        predictive_fit(fit, contests),
        judge_agreement(contests, confidence_level=confidence_level, rng=rng),
    )

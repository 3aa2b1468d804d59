"""Rank models, answers or other players from pairwise comparisons: the `rank` function.

It reads or makes the contests, runs the estimator of a model, and collects ratings, ranks and
goodness of fit in a `Ranking`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.goodness import judge_agreement, predictive_fit, transitivity
from evalstats_plugin.ranking.ratings.fit import RankingFit, entropy_bounds, order_entropy
from evalstats_plugin.ranking.rows import Goodness, Ranking, Scale, ranked
from evalstats_plugin.stats.arrays import Rng

if TYPE_CHECKING:
    import pandas as pd


RankingModel = Literal["bradley-terry", "thurstone"]
MOST_FOR_ENTROPY = 40
"""Most players for which the entropy of the order is simulated; beyond, its bounds are wide."""

_HOME: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "bradley-terry": {
            "ml": "evalstats_plugin.ranking.ratings.bradley_terry:fit_bradley_terry",
            "bootstrap": "evalstats_plugin.ranking.ratings.uncertainty:bootstrap_bradley_terry",
            "laplace": "evalstats_plugin.ranking.ratings.uncertainty:bradley_terry_posterior",
            "gibbs": "evalstats_plugin.ranking.ratings.uncertainty:bradley_terry_posterior",
        },
        "thurstone": dict.fromkeys(
            ("exact", "gibbs", "hmc", "ep", "laplace"),
            "evalstats_plugin.ranking.thurstone.model:fit_thurstone",
        ),
    }
)
"""Function of each estimator, ``"module:function"``."""


def rank(
    contests: Contests
    | pd.DataFrame
    | str
    | Path
    | ResponseMatrix
    | ResponseSet
    | Iterable[Responses],
    *,
    model: RankingModel = "bradley-terry",
    estimator: str = "auto",
    confidence_level: float = 0.95,
    scale: Scale = "model",
    device: str = "auto",
    rng: Rng = None,
    options: Mapping[str, Any] | None = None,
) -> Ranking:
    """Rank players from pairwise comparisons: ratings, possible ranks, and P(best).

    Parameters
    ----------
    contests
        Comparisons; or a file or frame of them, one a row, as for `read_contests`; or item scores
        of models, where the better score of two models wins: equal scores are left out, and
        intervals are clustered by item.
    model
        ``"bradley-terry"`` (log odds) or ``"thurstone"`` (probit, with a prior).
    estimator
        For Bradley–Terry ``"ml"``, ``"bootstrap"``, or with a prior ``"laplace"`` or ``"gibbs"``;
        for Thurstone ``"exact"``, ``"gibbs"``, ``"hmc"``, ``"ep"`` or ``"laplace"``. ``"auto"`` is
        ``"ml"`` for Bradley–Terry and depends on the size for Thurstone;
        ``fit.diagnostics["reason"]`` says why.
    confidence_level
        Of each rating's limits (pointwise), and of the ranges of ranks and the letters
        (simultaneous).
    scale
        ``"model"``, or ``"elo"``: points with mean 1000, odds of 10 to 1 being 400 points. For
        Thurstone, Elo's own normal scale: one unit, a probability of .84, is 283 points.
    device
        For Bradley–Terry's ``"gibbs"``: ``"cpu"``, ``"cuda"``, or ``"auto"``, CUDA if available.
        All other estimators use the CPU.
    rng
        For draws and simulations.
    options
        Options of the estimator. `fit_bradley_terry` has ties, position, features, judges,
        covariance (``"cluster"``, ``"judge"``, ``"sandwich"``, ``"model"``) and prior_sd;
        `bootstrap_bradley_terry` unit, n_resamples, ties, position and features;
        `bradley_terry_posterior` and `fit_thurstone` prior_mean, prior_covariance and ties, the
        latter also draws. For a file or frame also columns, as for `read_contests`.

    Raises
    ------
    SelectionError
        No such model, estimator, scale, option or device.
    DesignError
        There are no contests, or they cannot be fitted.

    Examples
    --------
    >>> played = Contests.of([0, 0, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1], players=["ant", "bee"])
    >>> ranking = rank(played, rng=0)
    >>> [(row.player, round(row.mean, 2)) for row in ranking]
    [('ant', 0.55), ('bee', -0.55)]
    """
    given = dict(options or {})
    generator = np.random.default_rng(rng)
    if scale not in get_args(Scale):
        raise SelectionError(no_such("scale", scale, get_args(Scale), ", ".join(get_args(Scale))))
    if not 0 < confidence_level < 1:
        msg = f"confidence level {confidence_level:g} found, expected one between 0 and 1"
        raise SelectionError(msg)
    run = _chosen(model, estimator)
    read = to_contests(contests, given.pop("columns", None))
    _check(run, given, f"{model} {estimator}")
    if device != "auto":
        _place(given, device, f"{model} {estimator}")
    fit = _fitted(run, read, given, estimator, generator)
    shown = fit.centred()
    rows, draws = ranked(shown, read, confidence_level=confidence_level, scale=scale, rng=generator)
    notes = tuple(dict.fromkeys((*read.notes, *fit.notes, *_not_clustered(read, fit))))
    goodness = _goodness(fit, read, confidence_level, generator)
    seed = rng if isinstance(rng, int) else None
    return Ranking(tuple(rows), notes, seed, fit=fit, draws=draws, goodness=goodness)


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
        table = Table("the frame", names, lambda want: {n: Column.of(source[n]) for n in want})
        return contests_from_table(table, columns)
    if columns:
        msg = f"columns {', '.join(columns)} named, but only files and frames have columns"
        raise SelectionError(msg)
    if isinstance(source, Contests):
        return source
    from evalstats_plugin.ranking.contests.from_scores import contests_from_scores

    scores = source if isinstance(source, (ResponseMatrix, ResponseSet)) else list(source)
    return contests_from_scores(scores)


def _chosen(model: str, estimator: str) -> Callable[..., RankingFit]:
    if model not in _HOME:
        raise SelectionError(no_such("ranking model", model, _HOME, ", ".join(_HOME)))
    known = _HOME[model]
    if estimator not in ("auto", *known):
        shown = f"auto, {', '.join(known)}"
        raise SelectionError(no_such(f"estimator of {model}", estimator, known, shown))
    module, _, name = known[next(iter(known)) if estimator == "auto" else estimator].partition(":")
    return getattr(import_module(module), name)


def _check(run: Callable[..., RankingFit], given: Mapping[str, Any], name: str) -> None:
    known = [k for k in inspect.signature(run).parameters if k not in ("contests", "estimator")]
    known = [k for k in known if k != "rng"]
    for key in given:
        if key not in known:
            raise SelectionError(no_such(f"option of {name}", key, known, ", ".join(known)))


def _place(given: dict[str, Any], device: str, name: str) -> None:
    """Set the device in the options of the only estimator that has one."""
    if name == "bradley-terry gibbs":
        from evalstats_plugin.ranking.ratings.gibbs import GibbsOptions

        given["options"] = replace(given.get("options") or GibbsOptions(), device=device)
    elif device != "cpu":
        msg = f"device {device!r} found with {name}, which is fitted on the cpu: leave device out"
        raise SelectionError(msg)


def _fitted(
    run: Callable[..., RankingFit],
    contests: Contests,
    given: Mapping[str, Any],
    estimator: str,
    rng: np.random.Generator,
) -> RankingFit:
    known = inspect.signature(run).parameters
    more: dict[str, Any] = {"rng": rng} if "rng" in known else {}
    if "estimator" in known:
        more["estimator"] = estimator
    fit = run(contests, **given, **more)
    fit.diagnostics.setdefault(
        "reason", "asked for" if estimator != "auto" else "no prior is asked for"
    )
    return fit


def _not_clustered(contests: Contests, fit: RankingFit) -> tuple[str, ...]:
    """Note if the intervals assume that contests of one cluster are independent."""
    about, cluster = fit.diagnostics, contests.cluster
    if cluster is None or about.get("unit", about.get("covariance")) in ("cluster", "judge"):
        return ()
    # Contests without a cluster have the number -1.
    if not (np.bincount(cluster + 1)[1:] > 1).any():
        return ()
    return (
        f"several comparisons on one item, and {fit.model} {fit.estimator} takes them for "
        "independent: where they are not, intervals are too narrow; bradley-terry ml clusters them",
    )


def _goodness(
    fit: RankingFit, contests: Contests, confidence_level: float, rng: np.random.Generator
) -> Goodness:
    n = len(fit.players)
    compared = bool((contests.weight > 0).any()) if len(contests) else False
    return Goodness(
        entropy=order_entropy(fit.rating, fit.covariance, rng=rng)
        if n <= MOST_FOR_ENTROPY
        else None,
        entropy_bounds=None if fit.draws is None else entropy_bounds(fit.draws),
        transitivity=transitivity(fit, contests, rng=rng) if compared else None,
        predictive_fit=predictive_fit(fit, contests) if compared else None,
        agreement=judge_agreement(contests, confidence_level=confidence_level, rng=rng)
        if compared
        else None,
    )

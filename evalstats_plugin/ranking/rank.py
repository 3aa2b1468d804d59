"""In what order are those who were compared two by two, and how sure is it?"""

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
from evalstats_plugin.ranking.goodness import foretold, judge_agreement, transitivity
from evalstats_plugin.ranking.ratings.fit import RankingFit, entropy_bounds, order_entropy
from evalstats_plugin.ranking.rows import Goodness, Ranking, Scale, ranked
from evalstats_plugin.stats.arrays import Rng

if TYPE_CHECKING:
    import pandas as pd


RankingModel = Literal["bradley-terry", "thurstone"]


MOST_FOR_ENTROPY = 40
"""Players up to which the entropy of their order is simulated: bounds are wide beyond."""


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
"""The function of each estimator, ``"module:function"``."""


_COLUMNS = "columns"
"""The one option that is not of the estimator: how a file names its columns."""


def rank(  # noqa: PLR0913 - each is a choice of its own
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
    """Rank players by contests of two: ratings, ranks that are open, and who may be the best.

    Parameters
    ----------
    contests
        Comparisons; or a file or frame of them, one a row, as `read_contests` knows; or results of
        models item by item, where of two models the one with the better score wins: equal scores
        are left out, and intervals are clustered by item.
    model
        ``"bradley-terry"`` (log odds) or ``"thurstone"`` (probit, with a prior).
    estimator
        Of Bradley–Terry ``"ml"``, ``"bootstrap"``, or with a prior ``"laplace"`` or ``"gibbs"``; of
        Thurstone ``"exact"``, ``"gibbs"``,
        ``"hmc"``, ``"ep"`` or ``"laplace"``. ``"auto"`` is ``"ml"`` for the one, by size for the
        other; ``fit.diagnostics["reason"]`` says why.
    confidence_level
        Of each rating's limits; of the ranges of ranks, and of who is told apart, all at once.
    scale
        ``"model"``, or ``"elo"``: points, 1000 on average, odds of 10 to 1 being 400. Of Thurstone,
        Elo's own normal scale: one unit, a chance of .84, is 283.
    device
        Of Bradley–Terry's ``"gibbs"``: ``"cpu"``, ``"cuda"``, or ``"auto"``, CUDA where there is
        one. The others are fitted on the CPU.
    rng
        For draws and simulations.
    options
        Of the estimator. `fit_bradley_terry` knows ties, position, features, judges, covariance
        (``"cluster"``, ``"judge"``, ``"sandwich"``, ``"model"``) and prior_sd;
        `bootstrap_bradley_terry` unit, n_resamples, ties, position and features;
        `bradley_terry_posterior` and `fit_thurstone` prior_mean, prior_covariance and ties, the
        latter also draws. For a file or frame also columns.

    Raises
    ------
    SelectionError
        No such model, estimator, scale, option or device.
    DesignError
        There are no contests, or they cannot be fitted.
    """
    given = dict(options or {})
    generator = np.random.default_rng(rng)
    if scale not in get_args(Scale):
        raise SelectionError(no_such("scale", scale, get_args(Scale), ", ".join(get_args(Scale))))
    if not 0 < confidence_level < 1:
        msg = f"confidence level {confidence_level:g} found, expected one between 0 and 1"
        raise SelectionError(msg)
    run = _chosen(model, estimator)
    read = contests_of(contests, given.pop(_COLUMNS, None))
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


def contests_of(source: Any, columns: Mapping[str, str] | None = None) -> Contests:
    """Return contests, read or made from what was given.

    Raises
    ------
    SelectionError
        Columns are named, but there are none.
    """
    if isinstance(source, (str, Path)):
        from evalstats_plugin.ranking.contests.files import read_contests

        return read_contests(source, columns=columns)
    if hasattr(source, "columns") and hasattr(source, "dtypes"):
        from evalstats_plugin.data.tables import Column, Table
        from evalstats_plugin.ranking.contests.assembly import contests_of as of_table

        names = tuple(str(name) for name in source.columns)
        table = Table("the frame", names, lambda want: {n: Column.of(source[n]) for n in want})
        return of_table(table, columns)
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
    """Write the device into the options of the one estimator that may draw elsewhere."""
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
    """Say where intervals take contests of one cluster for independent."""
    about, cluster = fit.diagnostics, contests.cluster
    if cluster is None or about.get("unit", about.get("covariance")) in ("cluster", "judge"):
        return ()
    # What has no cluster is numbered -1.
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
    told = bool((contests.weight > 0).any()) if len(contests) else False
    return Goodness(
        entropy=order_entropy(fit.rating, fit.covariance, rng=rng)
        if n <= MOST_FOR_ENTROPY
        else None,
        entropy_bounds=None if fit.draws is None else entropy_bounds(fit.draws),
        transitivity=transitivity(fit, contests, rng=rng) if told else None,
        foretold=foretold(fit, contests) if told else None,
        agreement=judge_agreement(contests, confidence_level=confidence_level, rng=rng)
        if told
        else None,
    )

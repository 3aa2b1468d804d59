"""Items that no model has answered: their difficulty, from texts or other features.

* `predict_items`: regress difficulty on features of the items of a fit, and predict it, and the
  scores of its models, for further items
* `text_features`: numbers from texts, by hashed words and pairs of words

A linear mixed model, the difficulties being known with error: ``b = β + x w + e``, with
``w ~ N(0, τ²)`` and ``e ~ N(0, σ²)``; τ and σ maximise the likelihood. Errors of predictions are
those of the weights and of what features do not say, σ, so that features that say nothing give the
mean of all items with their spread. This is amortised estimation of items [WDG20]_ [TTF25]_ with an
error.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from scipy import linalg, optimize, special

from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import DesignError, SelectionError, counted, few
from evalstats_plugin.irt.answers import item_keys
from evalstats_plugin.irt.model.fit import IRTFit, expect_kind
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.interval import normal_quantile

if TYPE_CHECKING:
    import pandas as pd


TEXT_FEATURES = 256
"""Numbers that stand for a text."""


_FEWEST = 10
"""Fewest items to learn from."""


_MOST = 5000
"""Items by which τ and σ are estimated; the weights are estimated by all."""


_LEAST = 0.01
"""Least share of an item's precision that comes from its answers, if it is to be learnt from."""


_NODES = 15
"""Nodes of a sum over a normal distribution."""


_SIGMAS = (-3.0, -1.5, -0.75, -0.35, -0.1)
"""Logarithms of σ, in units of the spread of difficulties, at which the search looks first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    """What is expected of an item that no model of the fit has answered."""

    shown: ClassVar[tuple[str, ...]] = ("task", "item", "difficulty", "low", "high", "score")

    task: str
    """Empty where the features do not name it."""
    item: str
    difficulty: float
    """b, on the scale of the fit."""
    std_error: float
    """Of the difficulty of this item, not only of the mean of items like it."""
    low: float
    high: float
    discrimination: float
    """The middle of the items of the fit: features do not predict it."""
    score: float
    """Expected share of the models of the fit that are right."""
    confidence_level: float


@dataclass(frozen=True)
class NewItems(Results[NewItem]):
    """Items in the order of the features, and how well features predict."""

    models: tuple[str, ...] = ()
    predicted: FloatArray | None = None
    """P(right) of each model on each item, shape (N, K), over the errors of both."""
    explained: float = math.nan
    """Share of the variance of the difficulties that features explain, each item being left out;
    0 or less if they say nothing."""
    held: float = math.nan
    """Share of the items of the fit whose interval, from the others, held their difficulty."""
    n_items: int = 0
    """Items of the fit that were learnt from."""


def predict_items(
    fit: IRTFit, features: pd.DataFrame, *, confidence_level: float = 0.95
) -> NewItems:
    """Predict the difficulty of new items from their features, and the scores of models on them.

    Parameters
    ----------
    fit
        A fit of one ability, whose items have standard errors.
    features
        A row for each item, of the fit and new: the column ``item``, ``task`` where ids are not
        unique, and ``text`` or columns of numbers such as an embedding. Rows of items of the fit
        are learnt from; all others are predicted.
    confidence_level
        Of the intervals of the difficulties.

    Returns
    -------
    NewItems
        With the share of the variance that features explain when each item is left out, and how
        many intervals then held: look at both before you rely on a prediction.

    Raises
    ------
    DesignError
        Fewer than ten items of the fit have features, none is new, or there are no features.
    SelectionError
        An estimator whose items are pulled to a prior that cannot be taken out again.

    Examples
    --------
    >>> import pandas as pd
    >>> from evalstats_plugin.irt import fit_irt, predict_items, simulate_responses
    >>> matrix, truth = simulate_responses(rng=0, n_models=30, n_items=80, item_model="rasch")
    >>> features = pd.DataFrame({"item": matrix.item_ids, "steps": truth.difficulty})
    >>> from evalstats_plugin.data.matrix import submatrix
    >>> fit = fit_irt(submatrix(matrix, range(30), range(60)), "rasch")
    >>> new_items = predict_items(fit, features)
    >>> len(new_items), round(new_items.explained, 1)
    (20, 1.0)
    """
    learnt = _learnt(expect_kind(fit, IRTFit))
    places, new = _places(fit, features)
    numbers, names = feature_numbers(features, places >= 0)
    usable = np.flatnonzero(places >= 0)
    usable = usable[np.isfinite(learnt.error)[places[usable]]]
    if len(usable) < _FEWEST:
        raise DesignError(
            f"{counted(len(usable), 'item')} of the fit with features and a standard error: "
            f"{_FEWEST} or more are needed to learn from"
        )
    y, error = learnt.value[places[usable]], learnt.error[places[usable]]
    regression = _regression(*_compressed(numbers[usable], numbers[places < 0]), y, error)
    predicted = _scores(fit, regression, learnt)
    z = normal_quantile(confidence_level)
    # Of an intercept d = -ab, by the delta method.
    slope = learnt.slope if learnt.signed else math.exp(learnt.slope)
    hard, unsure = regression.mean, regression.std_error
    if learnt.signed:
        hard = -regression.mean / slope
        unsure = np.hypot(unsure, hard * learnt.slope_spread) / abs(slope)
    rows = tuple(
        NewItem(
            task=task, item=item, difficulty=m, std_error=s,
            low=m - z * s, high=m + z * s, discrimination=slope, score=p,
            confidence_level=confidence_level,
        )
        for (task, item), m, s, p in zip(
            new, hard.tolist(), unsure.tolist(), predicted.mean(axis=0).tolist(), strict=True,
        )
    )  # fmt: skip
    left_out, weights = regression.left_out, regression.left_out_error**-2
    of_others = (weights @ y - weights * y) / (weights.sum() - weights)
    # Both without the part that is error of the fit.
    rest, whole = (weights @ ((y - other) ** 2 - error**2) for other in (left_out, of_others))
    explained = min(1 - float(rest / whole), 1.0) if whole > 0 else 0.0
    return NewItems(
        rows,
        _notes(explained, names, len(fit.item_ids) - int((places >= 0).sum())),
        models=tuple(fit.models),
        predicted=predicted,
        explained=explained,
        held=float(np.mean(np.abs(y - left_out) <= z * regression.left_out_error)),
        n_items=len(y),
    )


class _Learnt(NamedTuple):
    """What is learnt from: difficulties, or intercepts where discriminations have either sign."""

    value: FloatArray
    """Shape (M,), without the pull of the population of items."""
    error: FloatArray
    """Infinite of items about which the answers say nothing."""
    signed: bool
    slope: float
    """Mean of the logarithms of the discriminations, or of the discriminations if signed."""
    slope_spread: float


def _learnt(fit: IRTFit) -> _Learnt:
    hyperparameters = fit.hyperparameters
    if fit.estimator not in ("mml-items", "mml", "jml"):
        raise SelectionError(
            f"items of estimator {fit.estimator} are pulled to a prior, so that features would "
            "seem to say less than they do: fit by mml-items or mml"
        )
    slope, slope_error = fit.discrimination, np.nan_to_num(fit.discrimination_std_error)
    signed = bool((slope <= 0).any()) or "discrimination_sd" in hyperparameters
    if signed:
        name, value, error = "intercept", fit.intercept, fit.intercept_std_error
    else:
        name, value, error = "difficulty", fit.difficulty, fit.difficulty_std_error
        slope, slope_error = np.log(slope), slope_error / slope
    pulled = f"{name}_sd" in hyperparameters
    if pulled:
        # Taken out: the normal population, which pulls posterior means towards its centre.
        centre, precision = hyperparameters[f"{name}_mean"], error**-2.0
        of_answers = precision - hyperparameters[f"{name}_sd"] ** -2.0
        with np.errstate(divide="ignore", invalid="ignore"):
            value = centre + (value - centre) * precision / of_answers
            error = np.where(of_answers > _LEAST * precision, of_answers**-0.5, np.inf)
    # Posterior means vary less than what they estimate, other estimates more.
    between = float(slope.var() + (1 if pulled else -1) * np.mean(slope_error**2))
    return _Learnt(value, error, signed, float(slope.mean()), math.sqrt(max(between, 0.0)))


def text_features(texts: Sequence[str], size: int = TEXT_FEATURES) -> FloatArray:
    """Turn texts into numbers, shape (number of texts, size), rows of length 1.

    Words and pairs of neighbouring words, in lower case, are counted in ``size - 1`` cells by their
    CRC-32, which also gives the sign [WDL09]_; the last number is the logarithm of the length. No
    model of language is loaded: embeddings of one are better, and `predict_items` takes them as
    columns.

    >>> text_features(["two plus two", "two plus three"], size=8).shape
    (2, 8)
    """
    features = np.zeros((len(texts), size))
    for row, text in zip(features, texts, strict=True):
        words = re.findall(r"\w+", text.lower())
        pairs = (" ".join(pair) for pair in pairwise(words))
        for gram, count in Counter([*words, *pairs]).items():
            code = zlib.crc32(gram.encode())
            row[(code >> 1) % (size - 1)] += math.log1p(count) * (1 if code & 1 else -1)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    lengths = np.log1p([len(text) for text in texts])
    features[:, -1] = (lengths - lengths.mean()) / (lengths.std() or 1.0)
    return features


def _places(fit: IRTFit, features: pd.DataFrame) -> tuple[IntArray, list[tuple[str, str]]]:
    """Place in the fit of each row of the features, or -1; tasks and ids of the new items."""
    if "item" not in features:
        raise DesignError("features need the column item, which names the items")
    items = features["item"].astype(str).tolist()
    in_fit = item_keys(fit)
    if "task" in features:
        keys = list(zip(features["task"].astype(str).tolist(), items, strict=True))
        place = {key: j for j, key in enumerate(in_fit)}
    else:
        keys = [("", item) for item in items]
        place = {("", item): j for j, (_, item) in enumerate(in_fit)}
        if len(place) < len(in_fit):
            msg = "items of several tasks have the same id: add the column task to the features"
            raise DesignError(msg)
    twice = [item for (_, item), n in Counter(keys).items() if n > 1]
    if twice:
        raise DesignError(f"{few(twice)} stand twice among the features: keep one row of each")
    places = np.array([place.get(key, -1) for key in keys])
    new = [key for key in keys if key not in place]
    if not new:
        raise DesignError("every item of the features is in the fit: add rows of new items")
    return places, new


def feature_numbers(features: pd.DataFrame, learnt_from: BoolArray) -> tuple[FloatArray, list[str]]:
    """Features as numbers: of the text, and columns in units of their spread over known items."""
    parts: list[FloatArray] = []
    names: list[str] = []
    if "text" in features:
        parts.append(text_features(features["text"].fillna("").astype(str).tolist()))
        names.append("text")
    columns = [
        name
        for name in features.select_dtypes("number").columns
        if name not in ("item", "task", "text")
    ]
    values = features[columns].to_numpy(dtype=np.float64)
    gaps = [str(columns[k]) for k in np.flatnonzero(~np.isfinite(values).all(axis=0))]
    if gaps:
        raise DesignError(f"features with gaps: {few(gaps)}. Fill or drop them")
    if learnt_from.any() and columns:
        spread = values[learnt_from].std(axis=0)
        told = spread > 0
        scaled = (values - values[learnt_from].mean(axis=0))[:, told] / spread[told]
        parts.append(scaled / math.sqrt(max(int(told.sum()), 1)))
        names += [str(name) for name in columns]
    if not sum(part.shape[1] for part in parts):
        raise DesignError("there are no features: add the column text, or columns of numbers")
    return np.concatenate(parts, axis=1), names


def _compressed(x: FloatArray, new: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Turn features so that there are no more of them than items to learn from."""
    mean = x.mean(axis=0)
    u, s, vt = np.linalg.svd(x - mean, full_matrices=False)
    kept = s > 1e-9 * max(s.max(initial=0.0), 1e-300)
    return (u * s)[:, kept], ((new - mean) @ vt.T)[:, kept]


class _Regression(NamedTuple):
    """Predictions of new items (K,), and of each known one from the others (M,)."""

    mean: FloatArray
    std_error: FloatArray
    left_out: FloatArray
    left_out_error: FloatArray


def _regression(x: FloatArray, new: FloatArray, y: FloatArray, error: FloatArray) -> _Regression:
    """Regress y, known with errors, on features (M, D); predict at others (K, D)."""
    noise = error**2
    precision = 1 / np.maximum(noise, 1e-12)
    middle = float(precision @ y / precision.sum())
    scale = math.sqrt(max(float(precision @ (y - middle) ** 2 / precision.sum()), 1e-6))
    some = np.arange(0, len(y), math.ceil(len(y) / _MOST))

    def cost(at: FloatArray) -> float:
        tau, sigma = scale * np.exp(at)
        # A spread of 0 is never sure: a prior that vanishes there [CRD13]_.
        return -at[1] - _solved(x[some], y[some], noise[some], tau, sigma)[2]

    # The likelihood can have a second maximum, where features say nothing: a grid finds the higher.
    starts = [np.array([t, s]) for t in (-5.0, -3.0, -2.0, -1.0, 0.0, 1.5) for s in _SIGMAS]
    best = min(starts, key=cost)
    optimum = optimize.minimize(
        cost, best, method="Nelder-Mead", bounds=[(-7, 4), (-7, 2)],
        options={
            "xatol": 0.01, "fatol": 0.01, "maxfev": 120,
            "initial_simplex": best + np.array([[0, 0], [-0.5, 0], [0, -0.25]]),
        },
    )  # fmt: skip
    tau, sigma = scale * np.exp(optimum.x)
    weights, factor, _ = _solved(x, y, noise, tau, sigma)
    design = np.column_stack([np.ones(len(new)), new])
    half = linalg.solve_triangular(factor, design.T, lower=True)
    observed = np.column_stack([np.ones(len(x)), x])
    inner = linalg.solve_triangular(factor, observed.T, lower=True)
    variance = sigma**2 + noise
    leverage = np.sum(inner**2, axis=0) / variance
    rest = np.maximum(1 - leverage, 1e-9)
    return _Regression(
        mean=design @ weights,
        std_error=np.sqrt(np.sum(half**2, axis=0) + sigma**2),
        left_out=y - (y - observed @ weights) / rest,
        left_out_error=np.sqrt(variance / rest),
    )


def _solved(
    x: FloatArray, y: FloatArray, noise: FloatArray, tau: float, sigma: float
) -> tuple[FloatArray, FloatArray, float]:
    """Mean and weights (D + 1,) given both spreads, the mean being flat.

    With the lower Cholesky factor of their precision, and the log-likelihood of the spreads.
    """
    precision = 1 / (sigma**2 + noise)
    design = np.column_stack([np.ones(len(x)), x])
    weighted = design * precision[:, None]
    system = design.T @ weighted
    system[np.diag_indices_from(system)] += np.r_[1e-12, np.full(x.shape[1], tau**-2)]
    factor = linalg.cholesky(system, lower=True)
    right = weighted.T @ y
    weights = linalg.cho_solve((factor, True), right)
    log_likelihood = 0.5 * (
        np.log(precision).sum()
        - 2 * np.log(np.diagonal(factor)).sum()
        - 2 * x.shape[1] * math.log(tau)
        - (y * precision * y).sum()
        + right @ weights
    )
    return weights, factor, float(log_likelihood)


def _scores(fit: IRTFit, regression: _Regression, learnt: _Learnt) -> FloatArray:
    """P(right) of models (N,) on new items (K,): sums over ability, difficulty and slope."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(_NODES)
    mass = mass / mass.sum()
    # A model all right has no error; its ability is taken as known.
    ability, variance = fit.ability[:, None], np.nan_to_num(fit.ability_std_error)[:, None] ** 2
    p = np.zeros((len(ability), len(regression.mean)))
    for node, weight in zip(nodes, mass, strict=True):
        slope = learnt.slope + learnt.slope_spread * node
        if learnt.signed:
            mean = slope * ability + regression.mean
            square = slope**2 * variance + regression.std_error**2
        else:
            slope = math.exp(slope)
            mean = slope * (ability - regression.mean)
            square = slope**2 * (variance + regression.std_error**2)
        for other, share in zip(nodes, mass, strict=True):
            p += weight * share * special.expit(mean + np.sqrt(square) * other)
    low, high = float(np.mean(fit.guessing)), float(np.mean(fit.upper))
    return low + (high - low) * p


def _notes(explained: float, names: Sequence[str], without: int) -> tuple[str, ...]:
    notes: list[str] = []
    if explained <= 0.05:
        what = few(list(names))
        notes.append(
            f"features ({what}) say next to nothing of the difficulty of items left out: "
            "predictions are the mean of all items, with their spread"
        )
    if without:
        notes.append(f"{counted(without, 'item')} of the fit without features: not learnt from")
    return tuple(notes)

"""Hold-out validation: fit without some cells, models or items, and predict these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.results import Results, finite
from evalstats_plugin.errors import SelectionError, few, no_such
from evalstats_plugin.irt.answers import Guessing, guessing_of, matrix_of
from evalstats_plugin.irt.fitting import (
    FEW_MODELS,
    check_guessing,
    check_names,
    choose,
    fit_counts,
    item_prior,
)
from evalstats_plugin.irt.methods import (
    ESTIMATORS,
    MASKS,
    FactorOptions,
    FitOptions,
    MmlOptions,
    OrderedOptions,
)
from evalstats_plugin.runtime.lazy import need_torch
from evalstats_plugin.runtime.progress import report_progress
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.streams import child, stream


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Accuracy of the predictions of one held-out part. Numbers are finite or ``None``."""

    mask: str
    """What was held out, a name of `MASKS`."""
    seed: int
    """Seed of the draw; the same seed holds out the same cells."""
    item_model: str
    n_models: int
    n_items: int
    n_cells: int
    """Cells that were held out and predicted."""
    auc: float | None
    """Area under the ROC curve: the chance that a right answer has the higher prediction."""
    log_loss: float | None
    """Per answer, in nats."""
    brier: float | None
    """Mean squared error of the probability."""
    base_log_loss: float | None
    """Log loss of predicting the share of right answers for every cell."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationBin:
    """Held-out cells of similar predicted probability, all seeds of a mask together."""

    mask: str
    predicted: float
    observed: float
    std_error: float
    """Standard error of `observed` if predictions are true and cells independent."""
    n_cells: int


@dataclass(frozen=True)
class HeldOuts(Results[HeldOut]):
    """One row per mask and seed, and the calibration of the predictions."""

    calibration: tuple[CalibrationBin, ...] = ()


def hold_out(
    responses: ResponsesLike,
    masks: Sequence[str] = ("random",),
    *,
    item_model: str = "2pl",
    estimator: str = "auto",
    dimensions: int | str = "auto",
    guessing: Guessing = 0.0,
    sizes: Mapping[str, float] | None = None,
    released: Mapping[str, float] | None = None,
    seeds: Sequence[int] = range(5),
    device: str = "auto",
) -> HeldOuts:
    """Hold out a fifth of the cells, models or items; fit the rest; predict what was held out.

    Parameters
    ----------
    masks
        Names of `MASKS`. Of held-out models and items 30 % of the answers are shown, from which
        they are estimated with the rest of the fit fixed, if the estimator can (``"mml-items"`` and
        item model ``"factor"``), and else together with it.
    item_model, estimator, guessing
        As in `fit_irt`; ``"auto"`` is ``"mml-items"`` where that fits the item model, and ``"mml"``
        has an item prior.
    dimensions
        Number of dimensions of ``"factor"``, or ``"auto"``.
    sizes, released
        Size and time of release of each model, in any unit, for the masks ``"shifted-size"`` and
        ``"temporal"``. A size that is not given is read from the model's name (``8B``).
    seeds
        Seeds of the random splits; one row for each.

    Raises
    ------
    SelectionError
        No such mask, an item model that cannot predict, or a model whose size or release the mask
        needs and nobody gave.
    DesignError
        Too few cells are left to fit or to predict.

    Examples
    --------
    >>> from evalstats_plugin.irt import hold_out, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=12, n_items=40, item_model="rasch")
    >>> (scores,) = hold_out(matrix, item_model="rasch", seeds=[0])
    >>> scores.n_cells, scores.log_loss < scores.base_log_loss
    (96, True)
    """
    matrix = matrix_of(responses)
    need_torch("item response models")
    from evalstats_plugin.irt.estimators.frozen import calibration
    from evalstats_plugin.irt.model.data import counts_of

    for mask in masks:
        if mask not in MASKS:
            raise SelectionError(no_such("mask", mask, MASKS, ", ".join(MASKS)))
    check_names(item_model, estimator)
    if estimator == "auto" and item_model in ESTIMATORS["mml-items"].item_models:
        name = "mml-items"
    else:
        name = choose(item_model, estimator, (FEW_MODELS, FEW_MODELS)).estimator
    counts = counts_of(matrix, device=device)
    chance = guessing_of(matrix, guessing)
    if chance is not None:
        check_guessing(choose(item_model, name, matrix.scores.shape[:2]), item_model)
        counts = replace(counts, guess=counts.right.new_tensor(chance))
    observed = np.asarray((~np.isnan(matrix.scores)).any(axis=2))
    keys = _keys(matrix, masks, sizes, released)
    data = _Data(counts, observed, keys, item_model, name, dimensions)
    outcomes = parallel_map(
        partial(_predicted, data), [(mask, seed) for mask in masks for seed in seeds]
    )
    rows: list[HeldOut] = []
    bins: list[CalibrationBin] = []
    for mask in masks:
        tests: list[tuple[FloatArray, Any]] = []
        for place, seed in enumerate(seeds, 1):
            report_progress(f"draw of {mask}", place, len(seeds))
            tests.append(next(outcomes))
            rows.append(_row(mask, seed, item_model, counts, tests[-1]))
        # Calibration over all seeds, as if each had models of its own.
        right, trials = (x.repeat(len(tests), 1) for x in (counts.right, counts.trials))
        probability, test = (np.concatenate(x) for x in zip(*tests, strict=True))
        curve = calibration(replace(counts, right=right, trials=trials), probability, test)
        bins += [
            CalibrationBin(mask=mask, predicted=p, observed=o, std_error=s, n_cells=n)
            for p, o, s, n in zip(*(x.tolist() for x in curve), strict=True)
        ]
    return HeldOuts(tuple(rows), counts.notes, calibration=tuple(bins))


def predicted(
    matrix: ResponseMatrix,
    item_model: str,
    estimator: str,
    options: FitOptions | None,
    *,
    seeds: Sequence[int],
    device: str = "auto",
) -> Iterator[tuple[Any, FloatArray, Any]]:
    """Counts, predictions (N, M) and the held-out cells of each random split; see `hold_out`."""
    from evalstats_plugin.irt.model.data import counts_of

    counts = counts_of(matrix, device=device)
    observed = np.asarray((~np.isnan(matrix.scores)).any(axis=2))
    dimensions = options.dimensions if isinstance(options, FactorOptions) else "auto"
    data = _Data(counts, observed, {}, item_model, estimator, dimensions, options)
    for probability, test in parallel_map(
        partial(_predicted, data), [("random", s) for s in seeds]
    ):
        yield counts, probability, test


class _Data(NamedTuple):
    """What all draws have in common."""

    counts: Any
    observed: Any
    keys: Mapping[str, Mapping[str, Any]]
    item_model: str
    estimator: str
    dimensions: int | str
    options: FitOptions | None = None
    """Those of the estimator; None for its default."""


def _predicted(data: _Data, draw: tuple[str, int]) -> tuple[FloatArray, Any]:
    """Return predictions of all cells (N, M), and which were held out."""
    from evalstats_plugin.irt.estimators.factor import fit_factor
    from evalstats_plugin.irt.estimators.frozen import fit_curves, predict_held_out
    from evalstats_plugin.irt.model.masks import MASKS

    mask, seed = draw
    rng = child(stream(seed, "answers held out"), mask)
    split = MASKS[mask](data.observed, rng=rng, **data.keys.get(mask, {}))
    fit: Any = partial(_fitted, data, rng)
    if data.item_model == "factor":
        k = cast("int | Literal['auto']", data.dimensions)
        fit = partial(fit_factor, n_dimensions=k, ridge="auto", rng=rng)
    elif data.estimator == "mml-items" and data.options is None:
        fit = partial(fit_curves, kind=data.item_model)
    return predict_held_out(fit, data.counts, split), split.test


_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([bmt])(?![a-z])", re.IGNORECASE)
_UNITS = {"m": 1e-3, "b": 1.0, "t": 1e3}


def sizes_in(names: Sequence[str]) -> dict[str, float]:
    """Return sizes that names of models state, in billions of parameters.

    >>> sizes_in(["org/Llama-3.1-8B-Instruct", "gpt2", "pythia-160m"])
    {'org/Llama-3.1-8B-Instruct': 8.0, 'pythia-160m': 0.16}
    """
    matches = {name: _SIZE.search(name) for name in names}
    return {
        name: float(match[1]) * _UNITS[match[2].lower()] for name, match in matches.items() if match
    }


def _of_models(
    matrix: ResponseMatrix, by_model: Mapping[str, float], mask: str, what: str
) -> FloatArray:
    missing = [model for model in matrix.models if model not in by_model]
    if missing:
        msg = f"mask {mask} needs the {what} of each model, unknown of {few(missing)}: give a table"
        raise SelectionError(msg)
    return np.array([by_model[model] for model in matrix.models], dtype=np.float64)


def _keys(
    matrix: ResponseMatrix,
    masks: Sequence[str],
    sizes: Mapping[str, float] | None,
    released: Mapping[str, float] | None,
) -> dict[str, dict[str, Any]]:
    """Keys of the masks: largest for the most able, largest or latest models, the hardest items."""
    observed = ~np.isnan(matrix.scores)
    right = np.where(observed, matrix.scores, 0.0)
    by_model, by_item = (
        right.sum(axis=axes) / np.maximum(observed.sum(axis=axes), 1) for axes in ((1, 2), (0, 2))
    )
    keys: dict[str, dict[str, Any]] = {
        "shifted-rows": {"key": by_model},
        "shifted-columns": {"key": -by_item},
    }
    if "shifted-size" in masks:
        all_sizes = sizes_in(matrix.models) | dict(sizes or {})
        keys["shifted-size"] = {"key": _of_models(matrix, all_sizes, "shifted-size", "size")}
    if "temporal" in masks:
        when = _of_models(matrix, released or {}, "temporal", "time of release")
        keys["temporal"] = {"released": when}
    if "shifted-tasks" in masks:
        names, task = np.unique(matrix.tasks.astype(str), return_inverse=True)
        if len(names) < 2:
            msg = "mask shifted-tasks holds out whole tasks, and there is only one: add another"
            raise SelectionError(msg)
        keys["shifted-tasks"] = {"task": task}
    return keys


def _fitted(data: _Data, rng: np.random.Generator, counts: Any) -> Any:
    """P(right) by any estimator, shape (N, M)."""
    given, estimator = data.options, data.estimator
    trials = counts.trials.cpu().numpy()
    scores = np.where(trials > 0, counts.right.cpu().numpy() / np.maximum(trials, 1), np.nan)
    named = ResponseMatrix.from_array(scores)
    if isinstance(given, OrderedOptions):
        from evalstats_plugin.irt.estimators.ordered import fit_ordered

        # An item on which these models have one score does not tell that all others have it.
        least = 0.5 / (len(scores) + 1)
        expected = fit_ordered(named, data.item_model, given).predict()
        return counts.right.new_tensor(np.clip(expected, least, 1 - least))
    if given is None and estimator == "mml":
        # Without an item prior a probability can be 0 or 1.
        given = MmlOptions(prior=item_prior(scores.shape[1]))
    chosen = choose(data.item_model, estimator, scores.shape, given)
    fit = fit_counts(named, counts, data.item_model, chosen, rng)
    return counts.right.new_tensor(fit.predict())


def _row(
    mask: str, seed: int, item_model: str, counts: Any, tested: tuple[FloatArray, Any]
) -> HeldOut:
    from evalstats_plugin.irt.estimators.frozen import score_held_out

    probability, test = tested
    scores = score_held_out(counts, probability, test)
    right, trials = (x.cpu().numpy()[test].sum() for x in (counts.right, counts.trials))
    share = np.full_like(probability, right / trials)
    base = score_held_out(counts, share, test)
    return HeldOut(
        mask=mask,
        seed=seed,
        item_model=item_model,
        n_models=len(test),
        n_items=test.shape[1],
        n_cells=scores.n_cells,
        auc=finite(scores.auc),
        log_loss=finite(scores.log_loss),
        brier=finite(scores.brier),
        base_log_loss=finite(base.log_loss),
    )

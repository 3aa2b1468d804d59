"""Fit item response models: `fit_irt`, its choice of estimator, and the time a fit takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, overload

import numpy as np

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.irt.methods import (
    ESTIMATORS,
    ITEM_MODELS,
    OPTIONS_OF_MODEL,
    RESPONSES,
)
from evalstats_plugin.runtime.lazy import need_torch
from evalstats_plugin.stats.arrays import Rng

if TYPE_CHECKING:
    from evalstats_plugin.irt.model.fit import FactorFit, IRTFit


ItemModel = Literal["rasch", "1pl", "2pl", "3pl"]
Response = Literal["binomial", "beta"]
Precision = Literal["float64", "float32"]

FEW_MODELS = 300
"""With fewer models items are integrated out; see docs/guides/abilities.md."""

FEW_ITEMS = 20
"""With fewer items an item prior cannot be estimated; a weak one is used."""

_MICROSECONDS: Mapping[str, float] = MappingProxyType(
    {
        "mml-items": 9.0, "mml": 1.0, "cml-items": 2.0, "cml": 30.0, "map": 2.5, "jml": 3.0,
        "vi": 30.0, "mcmc": 1800.0, "factor": 50.0, "beta": 20.0,
    }
)  # fmt: skip
"""Time per model and item on one core with default options, for 50 to 1,000 models and items."""

# Upper limit in seconds, length and name of each unit of time.
_UNITS = ((90.0, 1.0, "seconds"), (5400.0, 60.0, "minutes"), (float("inf"), 3600.0, "hours"))


@overload
def fit_irt(
    matrix: ResponseMatrix | ResponseStore,
    item_model: ItemModel = "2pl",
    estimator: str = "auto",
    *,
    response: Response = "binomial",
    device: str = "auto",
    dtype: Precision = "float64",
    rng: Rng = None,
    options: Mapping[str, Any] | None = None,
) -> IRTFit: ...


@overload
def fit_irt(
    matrix: ResponseMatrix | ResponseStore,
    item_model: Literal["factor"],
    estimator: str = "auto",
    *,
    response: Response = "binomial",
    device: str = "auto",
    dtype: Precision = "float64",
    rng: Rng = None,
    options: Mapping[str, Any] | None = None,
) -> FactorFit: ...


def fit_irt(
    matrix: ResponseMatrix | ResponseStore,
    item_model: ItemModel | Literal["factor"] = "2pl",
    estimator: str = "auto",
    *,
    response: Response = "binomial",
    device: str = "auto",
    dtype: Precision = "float64",
    rng: Rng = None,
    options: Mapping[str, Any] | None = None,
) -> IRTFit | FactorFit:
    """Fit an item response model: abilities with their covariance, and items.

    Parameters
    ----------
    matrix
        Scores in [0, 1]; epochs are Binomial trials, missing cells are left out. Estimator
        ``"mml"`` reads a store a few items at a time; the others read it into memory.
    item_model
        A name of `ITEM_MODELS`. ``"factor"`` gives each model several abilities.
    estimator
        A name of `ESTIMATORS`, or ``"auto"``, which chooses by the number of models and gives its
        reason in ``fit.diagnostics["reason"]``.
    response
        ``"binomial"`` treats a score between 0 and 1 as a fraction of a success, which needs its
        mean only (a quasi-likelihood). ``"beta"`` fits the spread of scores as well; it predicts
        scores no better, and worse if many are exactly 0 or 1.
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``: CUDA if available.
    dtype
        ``"float32"`` needs half the memory; where the optimum is flat (``"map"``, ``"factor"``,
        ``"3pl"``) estimates then differ by up to .02. ``"mcmc"`` draws in ``"float64"`` only.
    rng
        Used by ``"mcmc"``, and by ``"map"`` and ``"factor"`` to hold out cells.
    options
        Options of the estimator, item model or response:

        * ``"mml"``: prior ("none", "weak", "estimated"), guessing_prior, upper, nodes, tolerance,
          max_steps, std_errors, sandwich, and groups (the group of each model, as a sequence or by
          model; each group has its own mean and spread of abilities, the first is N(0, 1))
        * ``"mml-items"``: kind ("2pl-signed" allows negative discriminations), max_iter
        * ``"map"``: strength of the item prior, or "cross-validated"
        * ``"jml"``: max_iter
        * ``"vi"``: family ("mean-field", "full-rank"), prior ("hierarchical", "vague"), tolerance,
          max_steps
        * ``"mcmc"``: sampler ("gibbs", "hmc"), chains, draws, warm_up
        * item model ``"factor"``: dimensions (a number, or "auto" for as many as predict best),
          rotation ("none", "varimax", "promax"), ridge
        * response ``"beta"``: intercept_sd, discrimination_sd and precision_sd of the priors,
          adjusted, max_steps

    Returns
    -------
    IRTFit
        Or a `FactorFit`, for item model ``"factor"``.

    Raises
    ------
    SelectionError
        No such item model, estimator, response, option, device or dtype.
    DesignError
        The data cannot be fitted; see `counts_of`.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=12, n_items=60, item_model="rasch")
    >>> fit = fit_irt(matrix, "rasch")
    >>> fit.estimator, fit.identification
    ('mml-items', 'abilities sum to 0')
    """
    need_torch("item response models", "irt")
    from evalstats_plugin.irt.model.data import counts_of, stored_counts

    shape = (len(matrix.models), len(matrix.item_ids))
    chosen = choose(item_model, estimator, response, shape, dict(options or {}))
    if chosen.estimator == "mcmc" and dtype != "float64":
        msg = f"dtype {dtype!r} found with estimator 'mcmc', which draws in 'float64' only"
        raise SelectionError(msg)
    if isinstance(matrix, ResponseStore) and chosen.estimator == "mml":
        counts = stored_counts(matrix, chosen.options, device=device, dtype=dtype)
        # Standard errors need products that only a matrix in memory has.
        chosen = chosen._replace(options={**chosen.options, "std_errors": False})
    else:
        matrix = matrix.matrix() if isinstance(matrix, ResponseStore) else matrix
        counts = counts_of(matrix, device=device, dtype=dtype)
    source = np.random.default_rng(rng)
    fit: IRTFit | FactorFit
    if item_model == "factor":
        from evalstats_plugin.irt.estimators.factor import fit_factor_model

        fit = fit_factor_model(cast("ResponseMatrix", matrix), counts, chosen.options, source)
    elif response == "beta":
        from evalstats_plugin.irt.estimators.beta_response import fit_beta

        fit = fit_beta(cast("ResponseMatrix", matrix), counts, item_model, chosen.options)
    else:
        known = ESTIMATORS[chosen.estimator]
        module, _, function = known.function.partition(":")
        run = getattr(import_module(module), function)
        draws = (source,) if known.draws else ()
        fit = run(matrix, counts, item_model, chosen.options, *draws)
    return replace(fit, diagnostics=fit.diagnostics | {"reason": chosen.reason})


class Chosen(NamedTuple):
    """Name of an estimator, the reason for it, and its options."""

    estimator: str
    reason: str
    options: dict[str, Any]


def choose(
    item_model: str,
    estimator: str,
    response: str,
    shape: tuple[int, int],
    options: dict[str, Any],
) -> Chosen:
    """Choose the estimator, and check that the names fit together.

    Parameters
    ----------
    shape
        Number of models and of items.

    Raises
    ------
    SelectionError
        A name that does not exist, or an estimator that cannot fit this model.
    """
    check_names(item_model, estimator, response)
    if item_model == "factor" or response == "beta":
        return _single_estimator(item_model, estimator, response, options)
    name, reason = estimator, "asked for"
    if estimator == "auto":
        name, reason = _estimator_by_shape(item_model, *shape, grouped="groups" in options)
        if name == "mml":
            options = {"prior": "estimated" if shape[1] >= FEW_ITEMS else "weak", **options}
    known = ESTIMATORS[name]
    if item_model not in known.item_models:
        others = (other for other, each in ESTIMATORS.items() if item_model in each.item_models)
        msg = (
            f"estimator {name!r} fits {', '.join(known.item_models)}, not {item_model!r}: choose "
            f"{' or '.join(others)}"
        )
        raise SelectionError(msg)
    _check_options(name, known.options, options)
    return Chosen(name, reason, options)


def check_names(item_model: str, estimator: str, response: str) -> None:
    """Raise `SelectionError` for a name that does not exist, listing the valid ones."""
    known = (
        ("item model", item_model, tuple(ITEM_MODELS)),
        ("estimator", estimator, ("auto", *ESTIMATORS)),
        ("response", response, tuple(RESPONSES)),
    )
    for what, name, names in known:
        if name not in names:
            raise SelectionError(no_such(what, name, names, ", ".join(names)))


def _single_estimator(
    item_model: str, estimator: str, response: str, options: dict[str, Any]
) -> Chosen:
    """Models that have a single estimator, the posterior mode."""
    factor = item_model == "factor"
    what = "item model 'factor'" if factor else "response 'beta'"
    if factor and response == "beta":
        msg = f"{what} and response 'beta' found, which do not go together: pass one of them"
        raise SelectionError(msg)
    if item_model not in ("rasch", "2pl", "factor"):
        msg = f"{what} and item model {item_model!r} found, expected item model rasch or 2pl"
        raise SelectionError(msg)
    if estimator not in ("auto", "map"):
        msg = f"{what} and estimator {estimator!r} found, expected its only estimator, map"
        raise SelectionError(msg)
    _check_options(what, OPTIONS_OF_MODEL["factor" if factor else "beta"], options)
    reason = "asked for" if estimator == "map" else f"the one estimator of {what}"
    return Chosen("map", reason, options)


def _check_options(of: str, known: tuple[str, ...], options: Mapping[str, Any]) -> None:
    for key in options:
        if key not in known:
            raise SelectionError(no_such(f"option of {of}", key, known, ", ".join(known) or "none"))


def _estimator_by_shape(item_model: str, n: int, m: int, *, grouped: bool) -> tuple[str, str]:
    if grouped:
        return "mml", "groups of models have distributions of ability; with an item prior"
    if n >= FEW_MODELS:
        return "mml", f"{n} models, {FEW_MODELS} or more: items are estimated well, with a prior"
    if n > m:
        return "mml", f"{n} models are more than {m} items, too few to tell how items vary"
    if item_model not in ESTIMATORS["mml-items"].item_models:
        return "mml", f"{n} models are few, but only mml fits a {item_model}; with an item prior"
    return "mml-items", (
        f"{n} models, fewer than {FEW_MODELS}: abilities estimated along with items would be "
        "stretched and too sure, so items are integrated out"
    )


def expected_seconds(
    item_model: str, estimator: str, response: str, n_models: int, n_items: int
) -> float:
    """Estimate the time of a fit to complete data of this size, within a factor of about 3."""
    name = choose(item_model, estimator, response, (n_models, n_items), {}).estimator
    kind = item_model if item_model == "factor" else response if response == "beta" else name
    return 1e-6 * _MICROSECONDS[kind] * n_models * n_items


def duration_in_words(seconds: float) -> str:
    """Write a duration in words, rounded to one digit.

    >>> duration_in_words(47.3), duration_in_words(1000)
    ('about 50 seconds', 'about 20 minutes')
    """
    if seconds <= 1:
        return "a second or less"
    _, unit, name = next(step for step in _UNITS if seconds < step[0])
    count = float(f"{max(seconds / unit, 1):.1g}")
    return f"about {count:g} {name}"

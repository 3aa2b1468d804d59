"""How able is each model, and how hard is each item?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from evalstats_plugin.analyses.ability_choice import choose
from evalstats_plugin.analyses.ability_data import irt_module
from evalstats_plugin.analyses.ability_scores import score_models
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.response_store import ResponseStore

if TYPE_CHECKING:
    from evalstats_plugin.irt.factor_fit import FactorFit
    from evalstats_plugin.irt.fit import IRTFit

__all__ = ["fit_irt", "score_models"]
Rng = np.random.Generator | int | None
ItemModel = Literal["rasch", "1pl", "2pl", "3pl"]
Response = Literal["binomial", "beta"]
Precision = Literal["float64", "float32"]

_HOME: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "mml": ("fitted", "fit_mml"),
        "mml-items": ("fitted", "fit_mml_items"),
        "cml-items": ("fitted_given_totals", "fit_cml_items"),
        "cml": ("fitted_given_totals", "fit_cml"),
        "map": ("fitted_jointly", "fit_map"),
        "jml": ("fitted_jointly", "fit_jml"),
        "vi": ("fitted_jointly", "fit_vi"),
        "mcmc": ("fitted_jointly", "fit_mcmc"),
    }
)
"""Module of `irt` and function of each estimator."""

_DRAWS = ("map", "mcmc")
"""Those that need random numbers: to set cells aside, or to draw from the posterior."""


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


def fit_irt(  # noqa: PLR0913 - each is a choice of its own
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
        Scores in [0, 1]; epochs are Binomial trials, missing cells are left out. Of a store the
        estimator ``"mml"`` reads a few items at a time; the others read it into memory.
    item_model
        A name of `ITEM_MODELS`. ``"factor"`` gives each model several abilities.
    estimator
        A name of `ESTIMATORS`, or ``"auto"``, which goes by the number of models and says why in
        ``fit.diagnostics["reason"]``.
    response
        ``"binomial"`` takes a score between 0 and 1 as a fraction of a success, which needs its
        mean only (a quasi-likelihood). ``"beta"`` fits how scores spread as well; it predicted
        scores no better, and worse where many are exactly 0 or 1.
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``: CUDA where there is one.
    dtype
        ``"float32"`` takes half the memory; where the optimum is flat (``"map"``, ``"factor"``,
        ``"3pl"``) estimates then differ by up to .02. ``"mcmc"`` draws in ``"float64"`` only.
    rng
        For ``"mcmc"``, and for ``"map"`` and ``"factor"`` that choose by cells held out.
    options
        Of the estimator. ``"mml"`` knows prior ("none", "weak", "estimated"), guessing_prior,
        upper, nodes, tolerance, max_steps, std_errors, sandwich, and groups (a group's name for
        each model, or by model: each group has its own mean and spread of abilities, the first is
        N(0, 1)); ``"mml-items"`` kind ("2pl-signed" lets discriminations be negative) and max_iter;
        ``"map"`` strength (of the item prior, or "cross-validated"); ``"jml"`` max_iter; ``"vi"``
        family ("mean-field", "full-rank"), prior ("hierarchical", "vague"), tolerance and
        max_steps; ``"mcmc"`` sampler ("gibbs", "hmc"), chains, draws and warm_up. Item model
        ``"factor"`` knows dimensions (a number, or "auto" for as many as predict best), rotation
        ("none", "varimax", "promax") and ridge; response ``"beta"`` standard deviations of its
        priors (intercept_sd, discrimination_sd, precision_sd), adjusted and max_steps.

    Returns
    -------
    IRTFit
        Or, of item model ``"factor"``, a `FactorFit`.

    Raises
    ------
    SelectionError
        No such item model, estimator, response, option, device or dtype.
    DesignError
        The data cannot be fitted; see `counts_of`.
    """
    shape = (len(matrix.models), len(matrix.item_ids))
    chosen = choose(item_model, estimator, response, shape, dict(options or {}))
    if chosen.estimator == "mcmc" and dtype != "float64":
        msg = f"dtype {dtype!r} found with estimator 'mcmc', which draws in 'float64' only"
        raise SelectionError(msg)
    if isinstance(matrix, ResponseStore) and chosen.estimator == "mml":
        counts = irt_module("stored_cells").stored_counts(
            matrix, chosen.options, device=device, dtype=dtype
        )
        # Errors need products that only a matrix in memory has.
        chosen = chosen._replace(options={**chosen.options, "std_errors": False})
    else:
        matrix = matrix.matrix() if isinstance(matrix, ResponseStore) else matrix
        counts = irt_module("data").counts_of(matrix, device=device, dtype=dtype)
    source = np.random.default_rng(rng)
    if item_model == "factor":
        run = irt_module("fitted_factor").fit_factor_model
        fit: IRTFit | FactorFit = run(matrix, counts, chosen.options, source)
    elif response == "beta":
        fit = irt_module("fitted_beta").fit_beta(matrix, counts, item_model, chosen.options)
    else:
        module, function = _HOME[chosen.estimator]
        run = getattr(irt_module(module), function)
        draws = (source,) if chosen.estimator in _DRAWS else ()
        fit = run(matrix, counts, item_model, chosen.options, *draws)
    return replace(fit, diagnostics=fit.diagnostics | {"reason": chosen.reason})

"""How able is each model, and how hard is each item?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.tables.estimators import ESTIMATORS, ITEM_MODELS, OPTIONS, SERVES
from evalstats_plugin.wording import few, no_such

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evalstats_plugin.irt.fit import IRTFit

Rng = np.random.Generator | int | None
ItemModel = Literal["rasch", "1pl", "2pl", "3pl"]

FEW_MODELS = 300
"""Below so many, items are integrated out: measured on real matrices (README, Abilities)."""

FEW_ITEMS = 20
"""Below so many, an item prior cannot be estimated; a weak one is taken."""

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


def fit_irt(
    matrix: ResponseMatrix,
    item_model: ItemModel = "2pl",
    estimator: str = "auto",
    *,
    device: str = "auto",
    rng: Rng = None,
    options: Mapping[str, Any] | None = None,
) -> IRTFit:
    """Fit an item response model: abilities with their covariance, and items.

    Parameters
    ----------
    matrix
        Scores in [0, 1]; epochs are Binomial trials, missing cells are left out.
    item_model
        A name of `ITEM_MODELS`.
    estimator
        A name of `ESTIMATORS`, or ``"auto"``, which goes by the number of models and says why in
        ``fit.diagnostics["reason"]``.
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``: CUDA where there is one.
    rng
        For ``"mcmc"``, and ``"map"`` that chooses its strength.
    options
        Of the estimator. ``"mml"`` knows prior ("none", "weak", "estimated"), guessing_prior,
        upper, nodes, tolerance, max_steps, std_errors and sandwich; ``"mml-items"`` kind
        ("2pl-signed" lets discriminations be negative) and max_iter; ``"map"`` strength (of the
        item prior, or "cross-validated"); ``"jml"`` max_iter; ``"vi"`` family ("mean-field",
        "full-rank"), prior ("hierarchical", "vague"), tolerance and max_steps; ``"mcmc"`` chains,
        draws and warm_up.

    Raises
    ------
    SelectionError
        No such item model, estimator, option or device.
    DesignError
        The data cannot be fitted; see `counts_of`.
    """
    if item_model not in ITEM_MODELS:
        raise SelectionError(no_such("item model", item_model, ITEM_MODELS, ", ".join(ITEM_MODELS)))
    shape = (len(matrix.models), len(matrix.item_ids))
    name, reason, given = _chosen(estimator, item_model, shape, dict(options or {}))
    data = _load("data")
    counts = data.counts_of(matrix, device=device)
    module, function = _HOME[name]
    run = getattr(_load(module), function)
    if name in _DRAWS:
        fit: IRTFit = run(matrix, counts, item_model, given, np.random.default_rng(rng))
    else:
        fit = run(matrix, counts, item_model, given)
    return replace(fit, diagnostics=fit.diagnostics | {"reason": reason})


def _chosen(
    estimator: str, item_model: str, shape: tuple[int, int], options: dict[str, Any]
) -> tuple[str, str, dict[str, Any]]:
    """Name of the estimator, why, and its options."""
    if estimator not in ("auto", *ESTIMATORS):
        shown = f"auto, {', '.join(ESTIMATORS)}"
        raise SelectionError(no_such("estimator", estimator, ESTIMATORS, shown))
    name, reason = estimator, "asked for"
    if estimator == "auto":
        name, reason = _by_shape(item_model, *shape)
        if name == "mml":
            options = {"prior": "estimated" if shape[1] >= FEW_ITEMS else "weak", **options}
    if item_model not in SERVES[name]:
        msg = (
            f"estimator {name!r} fits {', '.join(SERVES[name])}, not {item_model!r}: choose "
            f"{' or '.join(e for e in ESTIMATORS if item_model in SERVES[e])}"
        )
        raise SelectionError(msg)
    for key in options:
        if key not in OPTIONS[name]:
            known = OPTIONS[name]
            shown = ", ".join(known) or "none"
            raise SelectionError(no_such(f"option of {name}", key, known, shown))
    return name, reason, options


def _by_shape(item_model: str, n: int, m: int) -> tuple[str, str]:
    if n >= FEW_MODELS:
        return "mml", f"{n} models, {FEW_MODELS} or more: items are estimated well, with a prior"
    if n > m:
        return "mml", f"{n} models are more than {m} items, too few to tell how items vary"
    if item_model not in SERVES["mml-items"]:
        return "mml", f"{n} models are few, but only mml fits a {item_model}; with an item prior"
    return "mml-items", (
        f"{n} models, fewer than {FEW_MODELS}: abilities estimated along with items would be "
        "stretched and too sure, so items are integrated out"
    )


def score_models(
    fit: IRTFit,
    matrix: ResponseMatrix,
    *,
    method: Literal["eap", "map", "ml", "wle"] = "eap",
    device: str = "auto",
) -> IRTFit:
    """Score models on the items of a fit, which stay as they are.

    Items are matched by task and id; those that the fit does not know are left out, with a note.

    Returns
    -------
    IRTFit
        The same items, and the models of `matrix`. Their errors are those of their answers alone:
        the items count as known.

    Raises
    ------
    DesignError
        No item of the matrix is in the fit, or a model answered none of them.
    """
    if method not in ("eap", "map", "ml", "wle"):
        known = ("eap", "map", "ml", "wle")
        raise SelectionError(no_such("score", method, known, ", ".join(known)))
    here, there, notes = _matched(fit, matrix)
    parts = (matrix.item_ids, matrix.tasks, matrix.metrics)
    ids, tasks, metrics = (part[here] for part in parts)
    known = ResponseMatrix(matrix.scores[:, here], matrix.models, ids, tasks, metrics)
    counts = _load("data").counts_of(known, device=device, linked=False)
    silent = [m for m, t in zip(matrix.models, counts.trials.sum(1).tolist(), strict=True) if not t]
    if silent:
        msg = f"no item of the fit was answered by {few(silent)}: they cannot be scored"
        raise DesignError(msg)
    mean, sd = _ability_distribution(fit)
    found = _load("scores").score(counts, _items(fit, there, counts.right, mean, sd), method)
    std_error = sd * found.std_error.cpu().numpy()
    return replace(
        fit,
        models=matrix.models,
        ability=mean + sd * found.ability.cpu().numpy(),
        ability_covariance=np.diag(std_error**2),
        diagnostics={"scored_by": method, "n_items": len(here)},
        notes=tuple(notes),
    )


def _items(fit: IRTFit, at: NDArray[np.int64], like: Any, mean: float, sd: float) -> Any:
    """The items of the fit, on the scale where abilities are N(0, 1)."""
    slope = fit.discrimination[at]
    intercept = fit.intercept[at] + slope * mean
    guess = None
    if (fit.guessing > 0).any():
        c = np.clip(fit.guessing[at], 1e-9, 1 - 1e-9)
        guess = like.new_tensor(np.log(c / (1 - c)))
    upper = float(fit.hyperparameters.get("upper", 1.0))
    items = _load("curves").Items
    return items(like.new_tensor(slope * sd), like.new_tensor(intercept), guess, upper)


def _ability_distribution(fit: IRTFit) -> tuple[float, float]:
    """Mean and standard deviation: of the fit, or of its models where it assumed none."""
    known = fit.hyperparameters
    if "ability_sd" in known:
        return float(known.get("ability_mean", 0.0)), float(known["ability_sd"])
    return float(fit.ability.mean()), max(float(fit.ability.std(ddof=1)), 1e-3)


def _matched(
    fit: IRTFit, matrix: ResponseMatrix
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Places of the common items in the matrix and in the fit."""
    known = {key: j for j, key in enumerate(_keys(fit.tasks, fit.item_ids))}
    places = np.array([known.get(key, -1) for key in _keys(matrix.tasks, matrix.item_ids)])
    here = np.flatnonzero(places >= 0)
    if not len(here):
        msg = (
            f"none of the {len(places)} items is among the {len(known)} of the fit, expected the "
            "same tasks and item ids"
        )
        raise DesignError(msg)
    missed = len(places) - len(here)
    return here, places[here], [f"{missed} items are not in the fit: left out"] if missed else []


def _keys(tasks: NDArray[Any], ids: NDArray[Any]) -> list[tuple[str, str]]:
    return list(zip(tasks.astype(str).tolist(), ids.astype(str).tolist(), strict=True))


def _load(module: str) -> Any:
    """A module of `irt`, which needs torch."""
    try:
        return import_module(f"evalstats_plugin.irt.{module}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        msg = "item response models need torch: pip install 'evalstats-plugin[irt]'"
        raise DesignError(msg) from error

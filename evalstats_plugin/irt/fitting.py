"""Fit item response models: `fit_irt`, its choice of estimator, and the time a fit takes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, Unpack, cast, overload

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.irt.answers import Guessing, guessing_of, joined
from evalstats_plugin.irt.methods import (
    ESTIMATORS,
    ITEM_MODELS,
    ORDERED_MODELS,
    FactorOptions,
    FitOptions,
    ItemPrior,
    JmlOptions,
    MapOptions,
    McmcOptions,
    MmlItemsOptions,
    MmlOptions,
    OrderedOptions,
    SviOptions,
    ViOptions,
)
from evalstats_plugin.runtime.lazy import need_torch
from evalstats_plugin.runtime.workers import one_thread
from evalstats_plugin.stats.arrays import Rng
from evalstats_plugin.stats.streams import stream

if TYPE_CHECKING:
    from evalstats_plugin.irt.model.data import Counts
    from evalstats_plugin.irt.model.fit import AnyFit, FactorFit, IRTFit, OrderedFit, RaschOr2PL


ItemModel = Literal["rasch", "1pl", "2pl", "3pl", "4pl"]
Precision = Literal["float64", "float32"]

FEW_MODELS = 300
"""With fewer models items are integrated out; see docs/guides/abilities.md."""

LIGHT = 100_000
"""Models × items up to which items are integrated out with NumPy, unless a device or dtype is asked
for: such a fit takes torch as long, and importing torch takes three times as long."""

NEEDING_TORCH = f"a named device, estimators but mml-items, and fits of more than {LIGHT:,} cells"
"""What needs torch."""

_FEW_ITEMS = 20

_MICROSECONDS: Mapping[str, float] = MappingProxyType(
    {
        "mml-items": 9.0, "mml": 1.0, "map": 2.5, "jml": 3.0,
        "vi": 30.0, "svi": 500.0, "mcmc": 1800.0, "factor": 50.0, "ordered": 200.0,
    }
)  # fmt: skip
"""Time per model and item on one core with default options, for 50 to 1,000 models and items."""

# Upper limit in seconds, length and name of each unit of time.
_UNITS = ((90.0, 1.0, "seconds"), (5400.0, 60.0, "minutes"), (float("inf"), 3600.0, "hours"))


class _How(TypedDict, total=False):
    """What all item models are fitted with."""

    device: str
    dtype: Precision
    rng: Rng
    guessing: Guessing
    zero: str | IRTFit
    options: FitOptions | None


@overload
def fit_irt(
    responses: ResponsesLike,
    item_model: ItemModel = "2pl",
    estimator: str = "auto",
    **how: Unpack[_How],
) -> IRTFit: ...


@overload
def fit_irt(
    responses: ResponsesLike,
    item_model: Literal["factor"],
    estimator: str = "auto",
    **how: Unpack[_How],
) -> FactorFit: ...


@overload
def fit_irt(
    responses: ResponsesLike,
    item_model: Literal["graded", "gpcm"],
    estimator: str = "auto",
    **how: Unpack[_How],
) -> OrderedFit: ...


@overload
def fit_irt(
    responses: ResponsesLike, item_model: str, estimator: str = "auto", **how: Unpack[_How]
) -> AnyFit: ...


def fit_irt(
    responses: ResponsesLike,
    item_model: str = "2pl",
    estimator: str = "auto",
    *,
    device: str = "auto",
    dtype: Precision = "float64",
    rng: Rng = None,
    guessing: Guessing = 0.0,
    zero: str | IRTFit = "items",
    options: FitOptions | None = None,
) -> AnyFit:
    """Fit an item response model: abilities with their covariance, and items.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave or reads (joined by `ability_matrix`), a
        matrix, or a store. Scores in [0, 1]; epochs are Binomial trials, missing cells are left
        out. A score between 0 and 1 is a fraction of a success, which needs its mean only (a
        quasi-likelihood). Estimator ``"mml"`` reads a store a few items at a time; the others read
        it into memory.
    item_model
        A name of `ITEM_MODELS`. ``"factor"`` gives each model several abilities. Or one of
        `ORDERED_MODELS`, ``"graded"`` or ``"gpcm"``, for scores of up to 20 ordered levels of any
        numbers: grades, or how many epochs are right.
    estimator
        A name of `ESTIMATORS`, or ``"auto"``: the estimator of the `options`, or without options
        the one for this number of models. ``fit.diagnostics["reason"]`` says why it was chosen.
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``: CUDA if available.
    dtype
        ``"float32"`` needs half the memory; where the optimum is flat (``"map"``, ``"factor"``,
        ``"3pl"``, ``"4pl"``) estimates then differ by up to .02. ``"mcmc"`` draws in
        ``"float64"`` only.
    rng
        Used by ``"mcmc"`` and ``"svi"``, and by ``"factor"`` to hold out cells.
    guessing
        P(right) of a model that does not know the answer, such as .25 with four choices: one number
        for all items, one for each, or by task, 0 for tasks that are not named. Of estimators
        ``"mml-items"`` and ``"mml"``. The logit aθ + d is then that of knowing the answer.
        ``"choices"`` is 1 / number of choices where the log says how many there are, else 0. The
        default is 0: answers of real models to questions with 4 choices are predicted better with
        it than with .25 (docs/explanation/methods.md).
    zero
        What the scale of one ability is counted from. ``"items"``: 0 is the ability of a model that
        answers the average item right half of the time (halfway between chance and all right), and
        1 is one logit on an item of average discrimination (geometric mean); other models do not
        move it.
        A model's name: 0 is its ability. ``"models"``: the estimator's own scale, on which the
        abilities of these models sum to 0 or are N(0, 1). A fit made before, the bank: this one is
        linked to its scale by the items that both have (`link`), with the error of that.
    options
        The record of the estimator or item model: `MmlOptions`, `MmlItemsOptions`, `MapOptions`,
        `JmlOptions`, `ViOptions`, `SviOptions`, `McmcOptions`, `FactorOptions` or `OrderedOptions`.

    Returns
    -------
    IRTFit
        Or a `FactorFit`, for item model ``"factor"``, or an `OrderedFit`.

    Raises
    ------
    SelectionError
        No such item model, estimator, device or dtype, or options of another estimator.
    DesignError
        The data cannot be fitted; see `counts_of`.

    Examples
    --------
    >>> from evalstats_plugin.irt import MmlOptions, fit_irt, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=12, n_items=60, item_model="rasch")
    >>> fit = fit_irt(matrix, "rasch")
    >>> fit.estimator, fit.identification
    ('mml-items', '0 is where the average item is answered right halfway')
    >>> fit_irt(matrix, "rasch", options=MmlOptions(prior="weak")).estimator
    'mml'
    >>> float(fit_irt(matrix, "rasch", guessing={"task": 0.2}).guessing[0])
    0.2
    """
    matrix = joined(responses)
    shape = len(matrix.models), len(matrix.item_ids)
    chosen = choose(item_model, estimator, shape, options)
    if chosen.estimator == "mcmc" and dtype != "float64":
        msg = f"estimator mcmc draws in float64 only, not in {dtype}: leave dtype out"
        raise SelectionError(msg)
    if isinstance(chosen.options, OrderedOptions):
        guessed = guessing_of(matrix, guessing) is not None
        if guessed or device not in ("auto", "cpu") or dtype != "float64":
            msg = f"a {item_model} is fitted on the CPU in float64, and nothing is guessed in it: "
            raise SelectionError(f"{msg}leave device, dtype and guessing out")
        return _fit_ordered(matrix, item_model, chosen, zero)
    if item_model == "factor" and not isinstance(zero, str):
        raise SelectionError("a factor model is not linked to a bank: leave zero out")
    light = device == "auto" and dtype == "float64" and is_light(chosen, shape)
    if not light:
        need_torch(NEEDING_TORCH)
    from evalstats_plugin.irt.linking import link
    from evalstats_plugin.irt.model.arrays import array_of, as_array
    from evalstats_plugin.irt.model.data import counts_of
    from evalstats_plugin.irt.model.fit import undetermined_note
    from evalstats_plugin.irt.model.scale import on_zero

    if isinstance(matrix, ResponseStore) and isinstance(chosen.options, MmlOptions):
        from evalstats_plugin.irt.model.stored import stored_counts

        if chosen.options.std_errors or chosen.options.sandwich:
            raise SelectionError(
                "std_errors and sandwich need all answers in memory, and a store is read a few "
                "items at a time: pass store.matrix()"
            )
        counts = stored_counts(matrix, device=device, dtype=dtype)
        chosen = chosen._replace(options=replace(chosen.options, std_errors=False))
    else:
        matrix = matrix.matrix() if isinstance(matrix, ResponseStore) else matrix
        finite_scores = matrix.scores[np.isfinite(matrix.scores)]
        if (
            item_model in ("3pl", "4pl")
            and finite_scores.size
            and np.ptp(finite_scores) < NO_SPREAD
        ):
            raise DesignError(
                "all scores are the same, such as all right or all wrong, which tells nothing of "
                "guessing: add models or items, or fit item model rasch or 2pl"
            )
        counts = counts_of(matrix, device=None if light else device, dtype=dtype)
    chance = guessing_of(matrix, guessing)
    if chance is not None:
        check_guessing(chosen, item_model)
        counts = replace(counts, guess=array_of(chance, counts.right))
    # Threads would wait for one another longer than such a fit, or a sweep of draws, takes.
    alone = light or chosen.estimator == "mcmc"
    with one_thread() if alone else nullcontext():
        fit = fit_counts(matrix, counts, item_model, chosen, stream(rng, "item response model"))
    if fit.item_model != "factor":
        trials = None if isinstance(matrix, ResponseStore) else as_array(counts.trials)
        fit = on_zero(cast("IRTFit", fit), zero if isinstance(zero, str) else "items", trials)
        fit = fit if isinstance(zero, str) else link(zero, fit)
    # With options that are not the default a refit fits the same model.
    usual = vars(type(chosen.options)())
    changed = {name: x for name, x in vars(chosen.options).items() if x != usual[name]}
    about: dict[str, object] = {"reason": chosen.reason}
    about |= {"options": changed} if changed else {}
    estimated = isinstance(chosen.options, MmlItemsOptions) and chosen.options.estimate_guessing
    if chance is not None or estimated:
        about["guessing"] = "estimated" if estimated else "given"
    kept = None if isinstance(matrix, ResponseStore) else matrix
    notes = (*fit.notes, *undetermined_note(fit))
    return replace(fit, diagnostics=fit.diagnostics | about, notes=notes, data=kept)


def _fit_ordered(
    matrix: ResponseMatrix | ResponseStore, item_model: str, chosen: Chosen, zero: str | IRTFit
) -> OrderedFit:
    from evalstats_plugin.irt.estimators.ordered import fit_ordered
    from evalstats_plugin.irt.model.data import check_linked

    if not isinstance(zero, str):
        raise SelectionError(f"a {item_model} is not linked to a bank: leave zero out")
    whole = matrix.matrix() if isinstance(matrix, ResponseStore) else matrix
    check_linked(whole, np.asarray(np.isfinite(whole.scores).any(axis=2)))
    fit = fit_ordered(whole, item_model, cast("OrderedOptions", chosen.options), zero)
    return replace(fit, diagnostics=fit.diagnostics | {"reason": chosen.reason}, data=whole)


def check_guessing(chosen: Chosen, item_model: str) -> None:
    """Raise `SelectionError` where a chance of guessing cannot be given."""
    options = chosen.options
    if isinstance(options, MmlItemsOptions):
        msg = "guessing is either given or estimated: leave one of guessing and estimate_guessing"
        wrong = options.estimate_guessing
    elif isinstance(options, MmlOptions):
        msg = (
            f"guessing is given for a 2pl, not for a {item_model}, by estimator mml: take mml-items"
        )
        wrong = item_model != "2pl"
    else:
        msg = f"estimator {chosen.estimator} has no guessing: take mml-items or mml"
        wrong = True
    if wrong:
        raise SelectionError(msg)


NO_SPREAD = 1e-9
"""Scores this close to each other are the same."""


def fit_counts(  # noqa: PLR0911 - one for each estimator
    matrix: ResponseMatrix | ResponseStore,
    counts: Counts,
    item_model: str,
    chosen: Chosen,
    rng: np.random.Generator,
) -> IRTFit | FactorFit:
    """Fit counts by the estimator chosen; the matrix names models and items."""
    options, kind = chosen.options, cast("RaschOr2PL", item_model)
    whole = cast("ResponseMatrix", matrix)
    if isinstance(options, MmlItemsOptions):
        from evalstats_plugin.irt.estimators.items_integrated import fit_mml_items

        return fit_mml_items(whole, counts, kind, options)
    from evalstats_plugin.irt.estimators import draws, factor, fitted, joint, variational

    match options:
        case MmlOptions():
            return fitted.fit_mml(matrix, counts, item_model, options)
        case FactorOptions():
            return factor.fit_factor_model(whole, counts, options, rng)
        case MapOptions():
            return joint.fit_map(whole, counts, kind, options)
        case JmlOptions():
            return joint.fit_jml(whole, counts, kind, options)
        case ViOptions():
            return variational.fit_vi(whole, counts, kind, options)
        case SviOptions():
            return variational.fit_svi(whole, counts, kind, options, rng)
        case McmcOptions():
            return draws.fit_mcmc(whole, counts, kind, options, rng)
        case OrderedOptions():
            raise AssertionError("ordered scores have no counts")


class Chosen(NamedTuple):
    """Name of an estimator, the reason for it, and its options."""

    estimator: str
    reason: str
    options: FitOptions


def choose(
    item_model: str,
    estimator: str,
    shape: tuple[int, int],
    options: FitOptions | None = None,
) -> Chosen:
    """Choose the estimator, and check that names and options fit together.

    Parameters
    ----------
    shape
        Number of models and of items.

    Raises
    ------
    SelectionError
        A name that does not exist, an estimator that cannot fit this model, or options of another
        estimator.
    """
    check_names(item_model, estimator)
    if item_model in ORDERED_MODELS:
        return _ordered(item_model, estimator, options)
    name, reason = estimator, "asked for"
    if item_model == "factor":
        if estimator == "auto":
            name, reason = "map", "the one estimator of item model 'factor'"
    elif estimator == "auto":
        name, reason = _estimator_for(item_model, *shape, options)
    spec = ESTIMATORS[name]
    if item_model not in spec.item_models:
        others = (other for other, each in ESTIMATORS.items() if item_model in each.item_models)
        raise SelectionError(
            f"estimator {name!r} fits {', '.join(spec.item_models)}, not {item_model!r}: choose "
            f"{' or '.join(others)}"
        )
    wanted = FactorOptions if item_model == "factor" else spec.options
    options = wanted() if options is None else options
    if not isinstance(options, wanted):
        what = "item model factor" if item_model == "factor" else f"estimator {name}"
        other = ", or fit item model factor" if isinstance(options, FactorOptions) else ""
        msg = f"{type(options).__name__} are not options of {what}: pass {wanted.__name__}{other}"
        raise SelectionError(msg)
    if isinstance(options, MmlOptions):
        if options.common_asymptotes and item_model not in ("3pl", "4pl"):
            msg = f"a {item_model} estimates no asymptotes: leave common_asymptotes out"
            raise SelectionError(f"{msg}, or fit a 4pl")
        if options.upper < 1 and item_model == "4pl":
            msg = "a 4pl estimates the upper asymptote: leave upper out, or fit a 3pl"
            raise SelectionError(msg)
        if options.prior is None:
            prior = item_prior(shape[1]) if estimator == "auto" else "none"
            options = replace(options, prior=prior)
    return Chosen(name, reason, options)


def item_prior(n_items: int) -> ItemPrior:
    """Prior of so many items where none is asked for: too few are too few to estimate it from."""
    return "estimated" if n_items >= _FEW_ITEMS else "weak"


def _ordered(item_model: str, estimator: str, options: FitOptions | None) -> Chosen:
    """Return the one estimator of ordered scores, with its options."""
    if estimator not in ("auto", "mml"):
        raise SelectionError(
            f"a {item_model} has estimator mml alone, not {estimator!r}: leave out"
        )
    options = OrderedOptions() if options is None else options
    if not isinstance(options, OrderedOptions):
        kind = type(options).__name__
        raise SelectionError(f"{kind} are not options of {item_model}: pass OrderedOptions")
    return Chosen("mml", f"the one estimator of item model {item_model!r}", options)


def is_light(chosen: Chosen, shape: tuple[int, int]) -> bool:
    """Whether a fit of so many models and items needs no torch, if no device or dtype is named."""
    return isinstance(chosen.options, MmlItemsOptions) and shape[0] * shape[1] <= LIGHT


def check_names(item_model: str, estimator: str) -> None:
    """Raise `SelectionError` for a name that does not exist, listing the valid ones."""
    valid_names = (
        ("item model", item_model, (*ITEM_MODELS, *ORDERED_MODELS)),
        ("estimator", estimator, ("auto", *ESTIMATORS)),
    )
    for what, name, names in valid_names:
        if name not in names:
            raise SelectionError(no_such(what, name, names, ", ".join(names)))


def _estimator_for(item_model: str, n: int, m: int, options: FitOptions | None) -> tuple[str, str]:
    """Name of the estimator of these options, or for so many models and items; and the reason."""
    for name, spec in ESTIMATORS.items():
        if isinstance(options, spec.options):
            return name, f"its options, {spec.options.__name__}, were passed"
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


def expected_seconds(item_model: str, estimator: str, n_models: int, n_items: int) -> float:
    """Estimate the time of a fit to complete data of this size, within a factor of about 3."""
    name = choose(item_model, estimator, (n_models, n_items)).estimator
    name = "factor" if item_model == "factor" else name
    per_cell = _MICROSECONDS["ordered" if item_model in ORDERED_MODELS else name]
    return 1e-6 * per_cell * n_models * n_items


def duration_in_words(seconds: float) -> str:
    """Write a duration in words, rounded to one digit.

    >>> duration_in_words(47.3), duration_in_words(1000), duration_in_words(1.2)
    ('about 50 seconds', 'about 20 minutes', 'about 1 second')
    """
    if seconds <= 1:
        return "a second or less"
    _, unit, name = next(step for step in _UNITS if seconds < step[0])
    count = float(f"{max(seconds / unit, 1):.1g}")
    return f"about {count:g} {name if count > 1 else name.removesuffix('s')}"

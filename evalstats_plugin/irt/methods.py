"""Item models, estimators with the options of each, and masks, by name; loads nothing heavy.

Options are one frozen record for each estimator: a value that does not exist raises
`SelectionError` when the record is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.runtime import ChainLength

ITEM_MODELS: Mapping[str, str] = MappingProxyType(
    {
        "rasch": "items differ in difficulty alone",
        "1pl": "the same, on the scale where abilities are N(0, 1)",
        "2pl": "items differ in difficulty and discrimination, of either sign",
        "3pl": "as 2pl, and some answers are guessed right",
        "4pl": "as 3pl, and the best models get some answers wrong",
        "factor": "models have several abilities, and each item asks for some of them",
    }
)

ORDERED_MODELS: Mapping[str, str] = MappingProxyType(
    {
        "graded": "ordered levels: a logistic curve for each level or more",
        "gpcm": "ordered levels: the odds of each level and the one before are logistic",
    }
)
"""Item models of ordered scores, such as grades of a judge or numbers of right epochs."""

CANDIDATES: Mapping[str, str] = MappingProxyType(
    {
        "rasch": "items differ in difficulty alone",
        "2pl": "items differ in difficulty and discrimination",
        "common-c": "as 2pl, and all items have one chance of a right answer without knowing it",
        "3pl": "as 2pl, and each item has a chance of its own",
        **ORDERED_MODELS,
        "factor-2": "models have two abilities",
        "factor-3": "models have three abilities",
    }
)
"""Candidates of `choose_model`, the simplest first."""

ORDERED_ZERO = "0 is where the average item's expected score is halfway between its levels' ends"
"""Identification of the scale of items of ordered scores."""

ITEM_ZERO = "0 is where the average item is answered right halfway"
"""Identification of the scale of the items."""

ItemPrior = Literal["none", "weak", "estimated"]
ViPrior = Literal["hierarchical", "vague", "gaussian-gamma"]
SviPrior = Literal["hierarchical", "gaussian-gamma"]
SlopePrior = Literal["normal", "lognormal", "gamma"]
Optimiser = Literal["newton", "lbfgs", "adam", "gd"]
Guide = Literal["normal", "lognormal"]
Rotation = Literal["none", "varimax", "promax"]


def _check_name(what: str, name: str | None, valid_names: tuple[str, ...]) -> None:
    if name is not None and name not in valid_names:
        raise SelectionError(no_such(what, name, valid_names, ", ".join(valid_names)))


def _check_tolerance(value: object) -> None:
    """Refuse what is not a number from 0, with which all steps are taken."""
    if value != 0:
        _check_above_0("tolerance", value)


def _check_above_0(what: str, value: object) -> None:
    if not isinstance(value, Real) or not 0 < float(value) < inf:
        raise SelectionError(f"{what} {value!r} is not a number above 0: pass one")


def _check_count(what: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise SelectionError(f"{what} {value!r} is not a whole number of {least} or more: pass one")


@dataclass(frozen=True, kw_only=True)
class MmlOptions:
    """Options of estimator ``"mml"``."""

    prior: ItemPrior | None = None
    """Prior of discriminations and intercepts. ``"weak"`` is N(1, 1) and N(0, 3²). None is
    ``"none"``, and where estimator ``"auto"`` has chosen ``"mml"`` ``"estimated"``, or ``"weak"``
    with too few items to estimate from."""
    guessing_prior: tuple[float, float] | None = (-1.1, 0.5)
    """Mean and standard deviation of the logit of guessing c, of a 3PL or 4PL; None for maximum
    likelihood."""
    upper: float = 1.0
    """Upper asymptote of all items, where it is given."""
    upper_prior: tuple[float, float] | None = (-3.0, 0.75)
    """Mean and standard deviation of the logit of 1 - u, with the upper asymptote u, of a 4PL:
    around .05, as wrong labels and refused answers are. None for maximum likelihood."""
    common_asymptotes: bool = False
    """Whether all items have the same c, and u; of a 3PL or 4PL."""
    dispersion: float | None = None
    """As in `MmlItemsOptions`; of scores on disk None is 1."""
    nodes: int | None = None
    """Number of nodes on [-6, 6]; None chooses nodes from the data."""
    tolerance: float = 1e-5
    """Largest change of a parameter in the last step."""
    max_steps: int = 2000
    """Most steps of the search; those that find start values of a 3PL or 4PL are not counted."""
    std_errors: bool | None = None
    """Whether errors allow for items being estimated; None where that is quick."""
    sandwich: bool = False
    """Whether errors hold where the model is wrong."""

    def __post_init__(self) -> None:
        _check_name("item prior", self.prior, get_args(ItemPrior))
        if not 0 < self.upper <= 1:
            raise SelectionError(f"upper asymptote {self.upper!r} is not in (0, 1]: pass 1 or less")
        if self.nodes is not None:
            _check_count("nodes", self.nodes, 3)
        if self.dispersion is not None:
            _check_above_0("dispersion", self.dispersion)
        for name in ("guessing_prior", "upper_prior"):
            if (prior := getattr(self, name)) is not None:
                _check_above_0(f"standard deviation of {name}", prior[1])
        _check_tolerance(self.tolerance)
        _check_count("max_steps", self.max_steps)


@dataclass(frozen=True, kw_only=True)
class MmlItemsOptions:
    """Options of estimator ``"mml-items"``."""

    signed: bool = False
    """Whether discriminations may be negative; of a 2PL."""
    dispersion: float | None = None
    """φ: scores vary φ times as much as right and wrong answers. None estimates it where scores are
    fractions, and else is 1; k right of m epochs are Binomial."""
    estimate_guessing: bool = False
    """Whether to estimate a chance of guessing that all items share, with a prior around .2."""
    max_steps: int = 200

    def __post_init__(self) -> None:
        if self.dispersion is not None:
            _check_above_0("dispersion", self.dispersion)
        _check_count("max_steps", self.max_steps)


@dataclass(frozen=True, kw_only=True)
class MapOptions:
    """Options of estimator ``"map"``."""

    strength: float = 1.0
    """Precision of the item prior, where none is given below."""
    ability_sd: float = 1.0
    """Standard deviation of the normal prior of abilities."""
    intercept_sd: float | None = None
    """Of the normal prior of intercepts, which in a Rasch model are the negative difficulties; None
    for ``strength ** -0.5``."""
    discrimination: SlopePrior = "normal"
    """Distribution of discriminations; those of ``"lognormal"`` and ``"gamma"`` are above 0."""
    discrimination_prior: tuple[float, float] | None = None
    """Mean and standard deviation, of the logarithm for ``"lognormal"``, or shape (1 or more) and
    scale of ``"gamma"``. None is (1, ``strength ** -0.5``), (0, 0.5) and (2, 0.5)."""
    optimiser: Optimiser = "newton"
    """As in `JmlOptions`."""
    max_steps: int = 500

    def __post_init__(self) -> None:
        for name in ("strength", "ability_sd", "intercept_sd"):
            if (value := getattr(self, name)) is not None:
                _check_above_0(name, value)
        _check_name("prior of discriminations", self.discrimination, get_args(SlopePrior))
        _check_name("optimiser", self.optimiser, get_args(Optimiser))
        _check_above_0("scale of the discriminations", self.slope_prior[1])
        if self.discrimination == "gamma" and self.slope_prior[0] < 1:
            msg = f"a gamma prior of shape {self.slope_prior[0]:g} has no mode: pass 1 or more"
            raise SelectionError(msg)
        _check_count("max_steps", self.max_steps)

    @property
    def slope_prior(self) -> tuple[float, float]:
        """The two numbers of the prior of discriminations."""
        default = {"normal": (1.0, self.strength**-0.5), "lognormal": (0.0, 0.5)}
        return self.discrimination_prior or default.get(self.discrimination, (2.0, 0.5))


@dataclass(frozen=True, kw_only=True)
class JmlOptions:
    """Options of estimator ``"jml"``."""

    optimiser: Optimiser = "newton"
    """``"newton"`` is Fisher scoring; ``"lbfgs"`` [LN89]_, ``"adam"`` [KB15]_ and ``"gd"``
    (gradient ascent) use gradients alone, and find the same maximum in more steps."""
    max_steps: int = 500

    def __post_init__(self) -> None:
        _check_name("optimiser", self.optimiser, get_args(Optimiser))
        _check_count("max_steps", self.max_steps)


@dataclass(frozen=True, kw_only=True)
class ViOptions:
    """Options of estimator ``"vi"``."""

    prior: ViPrior = "hierarchical"
    """``"hierarchical"`` estimates the distributions of items (and of a Rasch model's abilities),
    as py-irt's hierarchical models do; ``"gaussian-gamma"`` has their hyperpriors, too: means are
    N(0, 10⁶) and precisions Γ(1, 1) [LWY19]_. ``"vague"`` is θ ~ N(0, 1), d ~ N(0, 10³),
    a ~ N(1, 1): what py-irt's vague priors intend, although it passes the variance of 10³ as a
    precision [LWY19]_."""
    tolerance: float = 1e-7
    max_steps: int = 1000

    def __post_init__(self) -> None:
        _check_name("prior of vi", self.prior, get_args(ViPrior))
        _check_tolerance(self.tolerance)
        _check_count("max_steps", self.max_steps)


@dataclass(frozen=True, kw_only=True)
class SviOptions:
    """Options of estimator ``"svi"``."""

    prior: SviPrior = "hierarchical"
    """As in `ViOptions`."""
    guide: Guide = "normal"
    """Distribution of each discrimination: ``"normal"``, or ``"lognormal"``, which keeps it
    above 0; of a 2PL."""
    steps: int = 1000
    learning_rate: float = 0.05
    """Of Adam; it falls to 0 over the steps."""

    def __post_init__(self) -> None:
        _check_name("prior of svi", self.prior, get_args(SviPrior))
        _check_name("guide", self.guide, get_args(Guide))
        _check_above_0("learning rate", self.learning_rate)
        _check_count("steps", self.steps, 2)


@dataclass(frozen=True, kw_only=True)
class McmcOptions(ChainLength):
    """Options of estimator ``"mcmc"``."""

    def __post_init__(self) -> None:
        _check_count("chains", self.chains)
        _check_count("draws", self.draws, 2)
        _check_count("warm_up", self.warm_up, 0)


@dataclass(frozen=True, kw_only=True)
class FactorOptions:
    """Options of item model ``"factor"``."""

    dimensions: int | Literal["auto"] = "auto"
    """Number of abilities of each model; ``"auto"`` for as many as predict best."""
    rotation: Rotation = "none"
    ridge: float | Literal["auto"] = "auto"
    """Precision of loadings around their mean; ``"auto"`` for the one that predicts best."""

    def __post_init__(self) -> None:
        _check_name("rotation", self.rotation, get_args(Rotation))
        if self.ridge != "auto":
            _check_above_0("ridge", self.ridge)
        if self.dimensions != "auto" and not isinstance(self.dimensions, Integral):
            msg = f"dimensions {self.dimensions!r} is not a whole number: pass one, or 'auto'"
            raise SelectionError(msg)


@dataclass(frozen=True, kw_only=True)
class OrderedOptions:
    """Options of item models ``"graded"`` and ``"gpcm"``."""

    prior: Literal["none", "weak"] | None = None
    """Prior of discriminations and intercepts, of ``"gpcm"`` between neighbouring levels:
    ``"weak"`` is N(1, 1) and N(0, 3²); None is ``"weak"`` with fewer than 300 models, else
    ``"none"``."""
    std_errors: bool | None = None
    """Whether errors allow for items being estimated; None where that is quick."""
    tolerance: float = 1e-8
    """Largest derivative of the log-likelihood per model at the end."""
    max_steps: int = 2000

    def __post_init__(self) -> None:
        _check_name("item prior", self.prior, ("none", "weak"))
        _check_tolerance(self.tolerance)
        _check_count("max_steps", self.max_steps)


FitOptions: TypeAlias = (
    MmlOptions
    | MmlItemsOptions
    | MapOptions
    | JmlOptions
    | ViOptions
    | SviOptions
    | McmcOptions
    | FactorOptions
    | OrderedOptions
)
"""Options of any estimator."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """One estimator of `fit_irt`."""

    summary: str
    item_models: tuple[str, ...]
    options: type[FitOptions]
    """Record of its options."""


ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {
        "mml-items": Estimator(
            "marginal maximum likelihood, items integrated out: for few models",
            ("rasch", "2pl"), MmlItemsOptions,
        ),
        "mml": Estimator(
            "marginal maximum likelihood, models integrated out: for hundreds of models",
            ("rasch", "1pl", "2pl", "3pl", "4pl"), MmlOptions,
        ),
        "map": Estimator(
            "posterior mode under normal priors: shrinks, only to compare with",
            ("rasch", "2pl", "factor"), MapOptions,
        ),
        "jml": Estimator(
            "joint maximum likelihood: stretches, only to compare with",
            ("rasch", "2pl"), JmlOptions,
        ),
        "vi": Estimator(
            "variational posterior: shrinks, only to compare with", ("rasch", "2pl"), ViOptions
        ),
        "svi": Estimator(
            "variational posterior by stochastic gradients: another one with each seed, only to "
            "compare with",
            ("rasch", "2pl"), SviOptions,
        ),
        "mcmc": Estimator(
            "posterior draws by Gibbs sampling: slow, assumes no shape of the posterior",
            ("rasch", "2pl"), McmcOptions,
        ),
    }
)  # fmt: skip
"""Estimators of `fit_irt`, besides ``"auto"``."""

MASKS: Mapping[str, str] = MappingProxyType(
    {
        "random": "single answers, drawn at random",
        "rows": "models, with a part of their answers shown",
        "columns": "items, with a part of their answers shown",
        "L": "new models on new items, fitted on old models and old items alone",
        "block": "new models on new items, fitted on all else",
        "shifted-rows": "the ablest models",
        "shifted-size": "the largest models",
        "shifted-columns": "the hardest items",
        "shifted-tasks": "whole tasks",
        "temporal": "the models released last",
    }
)
"""Masks of `irt.model.masks`; ``"shifted-size"`` and ``"temporal"`` need to know the models."""

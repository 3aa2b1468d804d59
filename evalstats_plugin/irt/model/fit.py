"""Fitted item response models: estimates, their precision, and the file they are saved in.

* `IRTFit`: one ability per model; `FactorFit`: several; `OrderedFit`: one, from ordered scores
* `SavedFit`: what both can do; `load_fit` reads either from a Parquet file
* `item_information`, `test_information`: where on the scale a test measures well
* `reliability`, `marginal_reliability`: how well it tells models apart
* `irt_fit`, `run_facts`, and notes: what all estimators share to make an `IRTFit`
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.results import Drawable, Results, finite
from evalstats_plugin.data.runs import place_of
from evalstats_plugin.errors import DesignError, LogError, SelectionError, counted, few, no_such
from evalstats_plugin.irt.methods import Rotation
from evalstats_plugin.irt.model.arrays import Array, as_array, is_numpy
from evalstats_plugin.runtime.chains import inference_data
from evalstats_plugin.runtime.files import (
    check_fields,
    kinds_of,
    numbers_in,
    read_signed,
    reporting_damage,
    texts_in,
    write_signed,
)
from evalstats_plugin.stats.arrays import FloatArray, IntArray, Rng
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.streams import stream

if TYPE_CHECKING:
    import pandas as pd

    from evalstats_plugin.data.inputs import ResponsesLike
    from evalstats_plugin.data.store import ResponseStore
    from evalstats_plugin.irt.model.data import Counts


ROTATIONS = get_args(Rotation)

_SCORES: FloatArray = np.linspace(-4, 4, 33)

TAILS: FloatArray = special.ndtr(_SCORES)
"""Tail probabilities of `IRTFit.ability_quantiles`."""

_NARROWEST = 1e-3
"""Smallest standard deviation of abilities, for models that hardly differ."""

_TOO_UNSURE = 3.0
"""Median standard error of abilities, in standard deviations of theirs, from which on a note says
that the answers do not determine the scale."""

_SHRINKING = ("mml", "map", "vi", "svi", "mcmc", "eap")
"""Estimators of abilities that are means or modes of posteriors."""

_NOTHING = 1e-6
"""A dimension explains nothing below this share of the variance of the strongest one."""

# Points and weights of a standard normal, exact for polynomials up to the ninth degree.
_NORMAL: tuple[FloatArray, FloatArray] = np.polynomial.hermite_e.hermegauss(5)

# Of the Parquet files: key of the metadata, and fields that are no columns of numbers.
_META = b"evalstats_irt"
_NAMES = ("models", "item_ids", "tasks", "data")
# Neither of models nor of items; kept in the metadata.
_SMALL = ("correlation", "prior_precision", "scale_covariance")


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedFit(ABC):
    """A fit of models and items that can be shown, saved and loaded."""

    models: tuple[str, ...]
    item_ids: NDArray[Any]
    """Shape (M,), like `tasks`."""
    tasks: NDArray[Any]
    notes: tuple[str, ...] = ()
    data: ResponseMatrix | None = None
    """Answers that were fitted, or scored; None of a fit that was loaded, or made of a store."""

    def __init_subclass__(cls) -> None:
        # Dataclasses would print every number of every array.
        cls.__repr__ = cls.__repr__  # pyrefly: ignore[method-assign]

    def __repr__(self) -> str:
        sizes = f"{counted(len(self.models), 'model')}, {counted(len(self.item_ids), 'item')}"
        return f"<{type(self).__name__}: {sizes}>"

    def _check_shapes(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        for name, shape in expected.items():
            actual = np.shape(getattr(self, name))
            if actual != shape:
                raise ValueError(f"{name} has the shape {actual}: give it the shape {shape}")

    summarised: ClassVar[tuple[str, ...]] = (
        "item_model", "estimator", "identification", "hyperparameters", "diagnostics",
    )  # fmt: skip

    def to_frame(
        self, of: Literal["models", "items"] = "models", *, confidence_level: float = 0.95
    ) -> pd.DataFrame:
        """Return a table of the models, with their intervals, or of the items, a line each.

        Factor models have a line for each model and dimension.
        """
        import pandas as pd

        if of == "models":
            return pd.DataFrame(self._of_models(confidence_level))
        if of != "items":
            raise SelectionError(no_such("table", of, ("models", "items"), "models, items"))
        return pd.DataFrame({"item": self.item_ids, "task": self.tasks, **self._of_items()})

    def _of_models(self, confidence_level: float) -> dict[str, Any]:
        fit: IRTFit | OrderedFit = expect_kind(self, IRTFit, OrderedFit)
        low, high = fit.limits(confidence_level)
        estimates = {"ability": fit.ability, "std_error": fit.ability_std_error}
        return {"model": fit.models, **estimates, "low": low, "high": high}

    @abstractmethod
    def _of_items(self) -> dict[str, Any]: ...

    def summary(self) -> dict[str, Any]:
        """Return what was fitted and how, ready for JSON: all but models, items and notes."""
        return {name: plain(getattr(self, name)) for name in self.summarised}

    def to_dict(self, *, confidence_level: float = 0.95) -> dict[str, Any]:
        """Return everything but covariances, ready for JSON: numbers, strings, lists, None."""
        frames = {
            "models": self.to_frame("models", confidence_level=confidence_level),
            "items": self.to_frame("items", confidence_level=confidence_level),
        }
        return {
            **self.summary(),
            "confidence_level": confidence_level,
            **{of: plain(frame.to_dict("records")) for of, frame in frames.items()},
            "notes": list(self.notes),
        }

    def abilities(self, responses: ResponsesLike | None = None, **chosen: Any) -> Results[Any]:
        """Abilities with intervals; see `evalstats_plugin.irt.abilities`.

        Like all functions that ask the answers, of those that were fitted, where no others are
        passed.
        """
        return self._asked("rows", "abilities", responses, **chosen)

    def items(
        self, responses: ResponsesLike | None = None, *, confidence_level: float = 0.95
    ) -> Results[Any]:
        """Return the items: those to look at first, or with loadings, or steps between levels."""
        return self._asked("rows", "items", responses, confidence_level=confidence_level)

    def compare(
        self,
        a: str,
        b: str,
        responses: ResponsesLike | None = None,
        *,
        confidence_level: float = 0.95,
    ) -> Any:
        """Ability of model `a` minus that of `b`, chosen beforehand, with interval and p-value."""
        expect_kind(self, IRTFit, OrderedFit)
        results: Any = self.abilities(responses, baseline=b, confidence_level=confidence_level)
        full = self.models[place_of(a, self.models)]
        row = next((row for row in results.differences if row.model_b == full), None)
        if row is None:
            raise SelectionError(f"a model is not compared with itself: {a!r} is named twice")
        return replace(row, p_adjusted=row.p_value)

    def item_fit(self, responses: ResponsesLike | None = None) -> pd.DataFrame:
        """Infit, outfit and item-rest correlations; see `evalstats_plugin.irt.item_fit`."""
        return self._asked("fit_statistics", "item_fit", responses)

    def person_fit(self, responses: ResponsesLike | None = None) -> pd.DataFrame:
        """How well abilities explain a model's answers; see `evalstats_plugin.irt.person_fit`."""
        return self._asked("fit_statistics", "person_fit", responses)

    def dif(
        self, focal: Sequence[str], responses: ResponsesLike | None = None, **chosen: Any
    ) -> Results[Any]:
        """Items harder for some models than for others; see `evalstats_plugin.irt.item_dif`."""
        return self._asked("dif", "item_dif", responses, focal, **chosen)

    def suspects(self, responses: ResponsesLike | None = None, **chosen: Any) -> Results[Any]:
        """Items that a person should look at; see `evalstats_plugin.irt.suspect_items`."""
        return self._asked("suspects", "suspect_items", responses, **chosen)

    def hold_out(self, responses: ResponsesLike | None = None, **chosen: Any) -> Results[Any]:
        """Predict answers with this item model; see `evalstats_plugin.irt.hold_out`.

        A chance of guessing is that of the fit, given or estimated.
        """
        predict = import_module("evalstats_plugin.irt.holdout").hold_out
        fit = expect_kind(self, IRTFit)
        same: dict[str, Any] = {"item_model": fit.item_model, "estimator": fit.estimator}
        if "guessing" in fit.diagnostics:
            same["guessing"] = fit.guessing
        return predict(self.answers(responses), **same | chosen)

    def uncertainty(self, responses: ResponsesLike | None = None, **chosen: Any) -> Results[Any]:
        """Intervals of the abilities by several recipes; see `evalstats_plugin.irt.uncertainty`."""
        return self._asked("bootstrap", "uncertainty", responses, **chosen)

    def bank(self, responses: ResponsesLike | None = None, **chosen: Any) -> Any:
        """Item bank for adaptive tests; see `evalstats_plugin.adaptive.item_bank`."""
        make = import_module("evalstats_plugin.adaptive").item_bank
        return make(self, self.answers(responses), **chosen)

    def answers(self, responses: ResponsesLike | None = None) -> ResponsesLike:
        """Answers to ask: those passed, or those that were fitted.

        Raises
        ------
        DesignError
            None are passed, and the fit does not hold its own.
        """
        if responses is not None:
            return responses
        if self.data is None:
            raise DesignError(
                "this fit does not hold its answers, as after loading it from a file: pass them"
            )
        return self.data

    def information(self, ability: ArrayLike | None = None) -> FloatArray:
        """Test information at abilities (Q,), or at those of the models, shape (N,)."""
        fit = expect_kind(self, IRTFit)
        return test_information(fit, fit.ability if ability is None else ability)

    def _asked(
        self, module: str, function: str, responses: ResponsesLike | None, *more: Any, **chosen: Any
    ) -> Any:
        """Ask a function of the package, which is loaded on use."""
        ask = getattr(import_module(f"evalstats_plugin.irt.{module}"), function)
        return ask(self, self.answers(responses), *more, **chosen)

    def save(self, path: str | Path) -> Path:
        """Write to one Parquet file: a line per model, then per item; the rest in its metadata."""
        # pyarrow has no types of its own.
        pa: Any = import_module("pyarrow")
        n, m = len(self.models), len(self.item_ids)
        nothing = {"model": pa.nulls(n), "item": pa.nulls(m)}

        def column(of: str, values: Any) -> Any:
            parts = [
                pa.array(values) if of == kind else nothing[kind].cast(pa.array(values).type)
                for kind in nothing
            ]
            return pa.chunked_array(parts)

        columns = {
            "kind": pa.array(["model"] * n + ["item"] * m),
            "name": pa.array([*self.models, *self.item_ids.astype(str)]),
            "task": column("item", self.tasks.astype(str)),
        }
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NAMES}
        arrays: dict[str, FloatArray] = {
            name: rest.pop(name)
            for name, values in list(rest.items())
            if name not in _SMALL and isinstance(values, np.ndarray)
        }
        for name, values in arrays.items():
            flat = values if values.ndim == 1 else list(values.reshape(len(values), -1))
            columns[name] = column(_entity(name), flat)
        meta: dict[str, Any] = {
            "kind": next(kind for kind, cls in _KINDS.items() if isinstance(self, cls)),
            "n_models": n,
            "integer_ids": np.issubdtype(self.item_ids.dtype, np.integer),
            "fit": json.loads(json.dumps(rest, default=_bare)),
            "shapes": {name: values.shape for name, values in arrays.items()},
        }
        return write_signed(pa.table(columns), Path(path), _META, meta)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        LogError
            No such file, not a fit, a damaged one, or one of another kind.
        """
        fit = load_fit(Path(path))
        if not isinstance(fit, cls):
            kind = type(fit).__name__
            raise LogError(f"{path} holds a {kind}, not a {cls.__name__}: read it with {kind}.load")
        return fit


_INSTEAD = {
    "IRTFit": "a fit of one ability to right and wrong answers: fit item model factor",
    "OrderedFit": "a fit of ordered scores, but abilities, items, comparisons, m2 (C2), q3 and "
    "predictions can: or fit item model 2pl",
    "FactorFit": "a factor model, but abilities, items, item_fit, dif, q3, predictions and a bank "
    "can: or fit item model 2pl",
}
"""What is refused of each kind of fit, and what there is instead."""

KindT = TypeVar("KindT", bound=SavedFit)


def expect_kind(fit: SavedFit, *kinds: type[KindT]) -> KindT:
    """Return a fit of one of these kinds.

    Raises
    ------
    DesignError
        It is of another kind; the message names what can be asked of that.
    """
    if isinstance(fit, kinds):
        return fit
    raise DesignError(f"this cannot be asked of {_INSTEAD[type(fit).__name__]}")


_LATER = cast("FloatArray", None)
"""Default of arrays that are filled in when their size is known."""


@dataclass(frozen=True, eq=False, kw_only=True)
class IRTFit(SavedFit, Drawable):
    """A fitted item response model: ``P(right) = c + (u - c) / (1 + exp(-a (θ - b)))``.

    Numbers are float64 arrays of N models or M items; what an estimator does not give is NaN. All
    abilities are on one scale, fixed by `identification`.
    """

    drawn_as: ClassVar[tuple[str, ...]] = ("fit",)

    item_model: str
    """A name of `ITEM_MODELS` other than ``"factor"``."""
    estimator: str
    ability: FloatArray
    """θ, shape (N,)."""
    ability_covariance: FloatArray
    """Shape (N, N)."""
    discrimination: FloatArray
    """a, shape (M,), positive or negative."""
    difficulty: FloatArray
    """b, shape (M,)."""
    guessing: FloatArray
    """c, shape (M,): P(right) of a model of very low ability."""
    discrimination_std_error: FloatArray
    difficulty_std_error: FloatArray
    guessing_std_error: FloatArray
    upper: FloatArray = _LATER
    """u, shape (M,): P(right) of a model of very high ability; 1 where it is left out."""
    upper_std_error: FloatArray = _LATER
    item_covariance: FloatArray | None = None
    """Shape (M, p, p): of a, the intercept d = -ab and, where there are any, the logits of c and
    1 - u."""
    predicted: FloatArray | None = None
    """P(right) of the models on the items, averaged over the posteriors of both, shape (N, M); None
    where the estimator does not average, and for models scored later."""
    ability_quantiles: FloatArray | None = None
    """Limits of the abilities of models that are wrong, or right, on none or a few items, at the
    tail probabilities `TAILS`, shape (N, T); NaN for others, infinite where answers set none."""
    ability_draws: FloatArray | None = None
    """Draws from the posterior, shape (N, chains, draws); None of estimators other than
    ``"mcmc"``."""
    scale_covariance: FloatArray | None = None
    """Covariance of the errors of 0 and 1 of the estimator's scale, which all items share, shape
    (2, 2); None of estimators other than ``"mml"``."""
    identification: str
    """What fixes the scale: where 0 is, or ``"ability ~ N(0, 1)"`` or ``"abilities sum to 0"``."""
    hyperparameters: dict[str, Any] = field(default_factory=dict[str, Any])
    """Parameters of the distributions of abilities and items; those of priors of items are on the
    scale that the estimator works on, ``scale["of"]``: θ is slope · θ' + intercept of ability θ'
    there. The upper asymptote u if below 1."""
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])
    """iterations, converged, log_likelihood, seconds, device, dtype, reason, options that are not
    the default, and more."""

    def __post_init__(self) -> None:
        n, m = len(self.models), len(self.item_ids)
        expected = {"ability": (n,), "ability_covariance": (n, n), "tasks": (m,)}
        # Frozen: fields are set as a dataclass sets them. Files of version 0.2 have no `upper`.
        for name, default in (
            ("upper", self.hyperparameters.get("upper", 1.0)),
            ("upper_std_error", math.nan),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.full(m, default))
        for name in ("discrimination", "difficulty", "guessing", "upper"):
            expected |= {name: (m,), f"{name}_std_error": (m,)}
        if self.ability_quantiles is not None:
            expected["ability_quantiles"] = (n, len(TAILS))
        self._check_shapes(expected)

    @property
    def ability_std_error(self) -> FloatArray:
        """Standard errors of the abilities, shape (N,); NaN of those with a limit on one side."""
        return np.sqrt(np.diagonal(self.ability_covariance))

    @property
    def shrinks(self) -> bool:
        """Whether abilities are means or modes of posteriors, which their distribution draws in."""
        return self.diagnostics.get("scored_by", self.estimator) in _SHRINKING

    @property
    def version(self) -> str:
        """Hash of the items with their parameters: which bank a later model is scored on."""
        names = [
            (str(task), str(item)) for task, item in zip(self.tasks, self.item_ids, strict=True)
        ]
        values = (self.discrimination, self.difficulty, self.guessing, self.upper)
        content = json.dumps(names).encode() + np.stack(values).astype("<f8").tobytes()
        return hashlib.sha256(content).hexdigest()[:12]

    @property
    def intercept(self) -> FloatArray:
        """The logit at ability 0 without guessing, d = -ab, shape (M,)."""
        return -self.discrimination * self.difficulty

    @property
    def intercept_std_error(self) -> FloatArray:
        """Standard errors of the intercepts, shape (M,); NaN without `item_covariance`."""
        if self.item_covariance is None:
            return np.full(len(self.item_ids), np.nan)
        return np.sqrt(self.item_covariance[:, 1, 1])

    def limits(
        self, confidence_level: float = 0.95, *, kind: Literal["percentile", "hdi"] = "percentile"
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper limits of the abilities, each of shape (N,).

        A model all right has no upper limit, ∞, and one all wrong no lower one. Of posterior draws
        their percentiles, or the shortest interval that holds as many of them (highest density
        interval, HDI) [CS99]_; normal limits of estimators without draws.
        """
        tail = (1 - confidence_level) / 2
        if self.ability_draws is None:
            width = normal_quantile(confidence_level) * self.ability_std_error
            low, high = self.ability - width, self.ability + width
            return self._by_tail(tail, low), self._by_tail(1 - tail, high)
        draws = np.sort(self.ability_draws.reshape(len(self.models), -1), axis=1)
        if kind == "percentile":
            low, high = np.quantile(draws, [tail, 1 - tail], axis=1)
            return low, high
        inside = math.ceil(confidence_level * draws.shape[1])
        widths = draws[:, inside - 1 :] - draws[:, : draws.shape[1] - inside + 1]
        first = widths.argmin(axis=1)[:, None]
        at = (np.take_along_axis(draws, first + k, axis=1)[:, 0] for k in (0, inside - 1))
        return next(at), next(at)

    @property
    def endless(self) -> IntArray:
        """1 for models without an upper limit, -1 without a lower one, else 0; shape (N,)."""
        if self.ability_quantiles is None:
            return np.zeros(len(self.models), dtype=np.int64)
        ends = self.ability_quantiles[:, [0, -1]]
        return np.isposinf(ends[:, 1]).astype(np.int64) - np.isneginf(ends[:, 0])

    @property
    def ability_distribution(self) -> tuple[float, float]:
        """Mean and standard deviation of abilities: of the fit, or of its models if it has none."""
        hyperparameters = self.hyperparameters
        if "ability_sd" in hyperparameters:
            mean, sd = hyperparameters.get("ability_mean", 0.0), hyperparameters["ability_sd"]
            return float(mean), float(sd)
        told = self.ability[np.isfinite(self.ability) & (self.endless == 0)]
        told = told if len(told) > 1 else self.ability
        return float(told.mean()), max(float(told.std(ddof=1)), _NARROWEST)

    def _by_tail(self, tail: float, limits: FloatArray) -> FloatArray:
        """Put the limits of models that have `ability_quantiles` in the place of normal ones."""
        if self.ability_quantiles is None:
            return limits
        limits = limits.copy()
        for i in np.flatnonzero(~np.isnan(self.ability_quantiles[:, 0])):
            limits[i] = _quantile(self.ability_quantiles[i], tail)
        return limits

    def draws(self, n: int, *, rng: Rng = None) -> FloatArray:
        """Plausible values: draws of the abilities with their errors, shape (n, N).

        Of posterior draws where there are any, else normal; a model without a standard error (all
        right or all wrong) is drawn from its limits, and infinite where answers set none.
        """
        if n < 1:
            raise SelectionError(f"draws are {n}: ask for 1 or more")
        random = stream(rng, "plausible values")
        if self.ability_draws is not None:
            kept = self.ability_draws.reshape(len(self.models), -1).T
            return kept[random.integers(0, len(kept), n)]
        is_finite = np.isfinite(self.ability_covariance.diagonal())
        values = np.full((n, len(self.models)), np.nan)
        within = self.ability_covariance[np.ix_(is_finite, is_finite)]
        if is_finite.any():
            values[:, is_finite] = random.multivariate_normal(self.ability[is_finite], within, n)
        for i in np.flatnonzero(~is_finite):
            tails = random.random(n)
            if self.ability_quantiles is not None:
                values[:, i] = _quantile(self.ability_quantiles[i], tails)
        return values

    def to_arviz(self) -> Any:
        """Return the posterior draws of the abilities as ArviZ holds them.

        ``InferenceData`` with ArviZ 0, ``DataTree`` with ArviZ 1.

        Raises
        ------
        DesignError
            ArviZ is not installed.
        SelectionError
            The estimator is not ``"mcmc"``, and has no draws.
        """
        if self.ability_draws is None:
            msg = f"estimator {self.estimator} has no posterior draws: fit with estimator mcmc"
            raise SelectionError(msg)
        return inference_data(
            {"posterior": {"ability": np.moveaxis(self.ability_draws, 0, 2)}},
            coords={"model": list(self.models)},
            dims={"ability": ["model"]},
        )

    def predict(self, *, plug_in: bool = False) -> FloatArray:
        """P(right), or expected score, of every model on every item, shape (N, M).

        Averaged over the posterior of each item where the estimator has one (``"mml-items"``), and
        over the normal error of each ability: an average of curves is flatter than the curve at
        the estimates, which is too sure of itself. Items of other estimators, and all items where
        models were scored later, are taken as known.

        Parameters
        ----------
        plug_in
            Predict at the estimates, as if they were known.
        """
        if plug_in:
            return self.chance(self.ability)
        if self.predicted is not None:
            return self.predicted
        error = self.ability_std_error
        is_finite = np.isfinite(self.ability) & np.isfinite(error)
        error = np.where(is_finite, error, 0.0)
        probability = np.zeros((len(self.models), len(self.item_ids)))
        for z, weight in zip(*_NORMAL, strict=True):
            probability += weight / math.sqrt(2 * math.pi) * self.chance(self.ability + z * error)
        return probability

    def chance(self, ability: FloatArray) -> FloatArray:
        """P(right) at abilities (Q,), the items as estimated, shape (Q, M)."""
        logit = ability[:, None] * self.discrimination + self.intercept
        return self.guessing + (self.upper - self.guessing) * special.expit(logit)

    def _of_items(self) -> dict[str, Any]:
        names = ["discrimination", "difficulty", "guessing"]
        names += ["upper"] if (self.upper < 1).any() else []
        columns = [column for name in names for column in (name, f"{name}_std_error")]
        return {name: getattr(self, name) for name in columns}


@dataclass(frozen=True, eq=False, kw_only=True)
class OrderedFit(SavedFit):
    """A fit of ordered scores: one ability per model, and for each item steps between its levels.

    Numbers are float64 arrays of N models or M items; K is the largest number of levels of an item.
    """

    item_model: str
    """``"graded"`` or ``"gpcm"``."""
    ability: FloatArray
    """θ, shape (N,): posterior means."""
    ability_covariance: FloatArray
    """Shape (N, N)."""
    discrimination: FloatArray
    """a, shape (M,)."""
    discrimination_std_error: FloatArray
    steps: FloatArray
    """Shape (M, K - 1), NaN beyond an item's own. ``"graded"``: ability at which the next level or
    more is as likely as not; ``"gpcm"``: at which the next level is as likely as the one before."""
    steps_std_error: FloatArray
    level: FloatArray
    """Levels that models reached, as places among ``diagnostics["levels"]``, shape (M, K); NaN
    beyond an item's own."""
    identification: str
    """What fixes the scale: where 0 is."""
    hyperparameters: dict[str, Any] = field(default_factory=dict[str, Any])
    """Mean and standard deviation of the abilities' distribution."""
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])
    """iterations, converged, log_likelihood, n_parameters, levels, prior, seconds, and more."""

    estimator = "mml"

    def __post_init__(self) -> None:
        (n, m), k = (len(self.models), len(self.item_ids)), self.level.shape[1]
        expected = {
            "ability": (n,), "ability_covariance": (n, n), "tasks": (m,), "level": (m, k),
            "discrimination": (m,), "discrimination_std_error": (m,),
            "steps": (m, k - 1), "steps_std_error": (m, k - 1),
        }  # fmt: skip
        self._check_shapes(expected)

    @property
    def ability_std_error(self) -> FloatArray:
        """Standard errors of the abilities, shape (N,)."""
        return np.sqrt(np.diagonal(self.ability_covariance))

    @property
    def endless(self) -> IntArray:
        """Zeros: posterior means have limits on both sides; shape (N,)."""
        return np.zeros(len(self.models), dtype=np.int64)

    def limits(self, confidence_level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper limits of the abilities, each of shape (N,)."""
        width = normal_quantile(confidence_level) * self.ability_std_error
        return self.ability - width, self.ability + width

    @property
    def ability_distribution(self) -> tuple[float, float]:
        """Mean and standard deviation of abilities."""
        return self.hyperparameters["ability_mean"], self.hyperparameters["ability_sd"]

    def chances(self, ability: FloatArray) -> FloatArray:
        """P of each level of every item at abilities (Q,), shape (Q, M, K); 0 where it has none."""
        logit = self.discrimination[:, None] * (ability[:, None, None] - self.steps)
        ends = np.ones((*logit.shape[:2], 1))
        if self.item_model == "graded":
            above = np.nan_to_num(special.expit(logit))
            return -np.diff(np.concatenate([ends, above, 0 * ends], axis=2), axis=2)
        whole = np.concatenate([0 * ends, np.cumsum(logit, axis=2)], axis=2)
        return special.softmax(np.where(np.isfinite(self.level), whole, -np.inf), axis=2)

    def predict(self) -> FloatArray:
        """Expected score of every model on every item at the estimates, shape (N, M)."""
        values = np.asarray(self.diagnostics["levels"])
        observed = np.isfinite(self.level)
        score = np.where(observed, values[np.where(observed, self.level, 0).astype(np.int64)], 0.0)
        return (self.chances(self.ability) * score).sum(axis=2)

    def _of_items(self) -> dict[str, Any]:
        table: dict[str, Any] = {
            "discrimination": self.discrimination,
            "discrimination_std_error": self.discrimination_std_error,
        }
        for k in range(self.steps.shape[1]):
            table[f"step_{k + 1}"] = self.steps[:, k]
            table[f"step_{k + 1}_std_error"] = self.steps_std_error[:, k]
        return table


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorFit(SavedFit):
    """A fitted factor model: ``P(right) = 1 / (1 + exp(-(a·θ + d)))`` in K dimensions.

    A model has K abilities, and the loadings tell which items each of them is about. Without
    rotation the dimensions are uncorrelated and ordered by the variance that they explain; the
    loadings of each have a positive sum.
    """

    estimator: str
    ability: FloatArray
    """θ, shape (N, K): mean 0 and variance 1 over the models of the fit."""
    ability_covariance: FloatArray
    """Shape (N, K, K): of each model's abilities, given the items."""
    loading: FloatArray
    """a, shape (M, K)."""
    intercept: FloatArray
    """d, shape (M,): the logit at abilities 0."""
    item_covariance: FloatArray
    """Shape (M, K + 1, K + 1): of the loadings and the intercept, given the abilities."""
    correlation: FloatArray
    """Correlation of the dimensions, shape (K, K): I unless rotated obliquely."""
    prior_precision: FloatArray
    """Precision of the prior of abilities, shape (K, K); it shrinks models scored later, too."""
    rotation: Rotation = "none"
    hyperparameters: dict[str, Any] = field(default_factory=dict[str, Any])
    """ridge: the precision of loadings around their mean."""
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])
    """iterations, converged, log_likelihood, choices, seconds, device, dtype, reason."""

    item_model = "factor"
    summarised = (
        "item_model", "estimator", "n_dimensions", "rotation", "correlation", "explained",
        "identification", "hyperparameters", "diagnostics",
    )  # fmt: skip

    def __post_init__(self) -> None:
        n, m, k = len(self.models), len(self.item_ids), self.n_dimensions
        expected = {
            "ability": (n, k), "ability_covariance": (n, k, k), "loading": (m, k),
            "intercept": (m,), "tasks": (m,), "item_covariance": (m, k + 1, k + 1),
            "correlation": (k, k), "prior_precision": (k, k),
        }  # fmt: skip
        self._check_shapes(expected)

    def abilities(self, responses: ResponsesLike | None = None, **chosen: Any) -> Results[Any]:
        """Abilities and loadings; see `evalstats_plugin.irt.factor_abilities`."""
        return self._asked("rows", "factor_abilities", responses, **chosen)

    @property
    def n_dimensions(self) -> int:
        """K, the number of abilities per model."""
        return int(self.correlation.shape[0])

    @property
    def identification(self) -> str:
        """What fixes the scale and direction of the dimensions."""
        turned = "" if self.rotation == "none" else f", turned by {self.rotation}"
        return f"abilities have mean 0 and variance 1 in each dimension{turned}"

    @property
    def ability_std_error(self) -> FloatArray:
        """Standard errors of the abilities given the items, shape (N, K)."""
        return np.sqrt(np.diagonal(self.ability_covariance, axis1=1, axis2=2))

    @property
    def loading_std_error(self) -> FloatArray:
        """Standard errors of the loadings given the abilities, shape (M, K)."""
        return np.sqrt(np.diagonal(self.item_covariance, axis1=1, axis2=2)[:, :-1])

    @property
    def intercept_std_error(self) -> FloatArray:
        """Standard errors of the intercepts given the abilities, shape (M,)."""
        return np.sqrt(self.item_covariance[:, -1, -1])

    @property
    def explained(self) -> FloatArray:
        """Variance of the logits over models by each dimension, averaged over items, shape (K,)."""
        return np.square(self.loading).mean(axis=0)

    @property
    def empty(self) -> tuple[int, ...]:
        """Dimensions, numbered from 1, that explain nothing: the prior shrank all loadings to 0."""
        explained = self.explained
        return tuple((np.flatnonzero(explained <= _NOTHING * explained.max()) + 1).tolist())

    def predict(self) -> FloatArray:
        """P(right) of every model on every item at the estimates, shape (N, M)."""
        return special.expit(self.ability @ self.loading.T + self.intercept)

    def rotated(self, how: Rotation) -> FactorFit:
        """Rotate the dimensions so that most items load on few; predictions stay the same.

        Raises
        ------
        SelectionError
            No such rotation, or the fit is rotated already.
        DesignError
            A dimension has no loadings.
        """
        from evalstats_plugin.irt.model.curves import rotation_matrix

        if how not in ROTATIONS:
            raise SelectionError(no_such("rotation", how, ROTATIONS, ", ".join(ROTATIONS)))
        if self.rotation != "none":
            msg = f"this fit is turned by {self.rotation} already: fit again without rotation"
            raise SelectionError(msg)
        if how == "none" or self.n_dimensions == 1:
            return self
        if self.empty:
            msg = f"dimensions {self.empty} explain nothing and cannot be turned: fit fewer"
            raise DesignError(msg)
        turn = rotation_matrix(self.loading, how)
        back = np.linalg.inv(turn)
        wide = np.eye(self.n_dimensions + 1)
        wide[:-1, :-1] = turn
        return replace(
            self,
            ability=self.ability @ back.T,
            ability_covariance=back @ self.ability_covariance @ back.T,
            loading=self.loading @ turn,
            item_covariance=wide.T @ self.item_covariance @ wide,
            correlation=back @ self.correlation @ back.T,
            prior_precision=turn.T @ self.prior_precision @ turn,
            rotation=how,
        )

    def _of_models(self, confidence_level: float) -> dict[str, Any]:
        k, error = self.n_dimensions, self.ability_std_error.ravel()
        width, ability = normal_quantile(confidence_level) * error, self.ability.ravel()
        return {
            "model": np.repeat(np.asarray(self.models), k),
            "dimension": np.tile(np.arange(1, k + 1), len(self.models)),
            "ability": ability,
            "std_error": error,
            "low": ability - width,
            "high": ability + width,
        }

    def _of_items(self) -> dict[str, Any]:
        k = self.n_dimensions
        loadings = {f"loading_{j + 1}": self.loading[:, j] for j in range(k)}
        errors = {f"loading_{j + 1}_std_error": self.loading_std_error[:, j] for j in range(k)}
        whole = {"intercept": self.intercept, "intercept_std_error": self.intercept_std_error}
        return loadings | errors | whole


def _quantile(row: FloatArray, tail: ArrayLike) -> FloatArray:
    """Quantiles at tail probabilities, from those at `TAILS`; beyond these, as the last two go on.

    Infinite where one of both neighbours is.
    """
    z = special.ndtri(np.asarray(tail, dtype=np.float64))
    upper = np.clip(np.searchsorted(_SCORES, z), 1, len(_SCORES) - 1)
    low, high = row[upper - 1], row[upper]
    share = (z - _SCORES[upper - 1]) / (_SCORES[upper] - _SCORES[upper - 1])
    with np.errstate(invalid="ignore"):
        inside = low + share * (high - low)
    return np.where(np.isinf(low), low, np.where(np.isinf(high), high, inside))


def plain(value: Any) -> Any:
    """Replace NumPy values by plain ones, and numbers that are not finite by None, for JSON."""
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        return {str(key): plain(item) for key, item in pairs.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[Any]", value)]
    return finite(value) if isinstance(value, float) else value


AnyFit: TypeAlias = IRTFit | FactorFit | OrderedFit


def load_fit(path: Path) -> AnyFit:
    """Read an `IRTFit`, `FactorFit` or `OrderedFit` that its `save` wrote.

    Raises
    ------
    LogError
        No such file, not a fit, or a damaged one.
    """
    kinds = {
        "kind": "a text", "n_models": "a count", "integer_ids": "true or false",
        "shapes": "fields", "fit": "fields",
    }  # fmt: skip
    wanted = "give a file that a fit's save, or `irt fit --save`, wrote"
    other = "not a fit written by evalstats-plugin"
    table, meta = read_signed(path, _META, kinds, wanted=wanted, other=other)
    with reporting_damage(path):
        if meta["kind"] not in _KINDS:
            raise ValueError(f"the field 'kind' is {meta['kind']!r}")
        record, rest = _KINDS[meta["kind"]], meta["fit"]
        check_fields(rest, kinds_of(record, _NAMES))
        n, names = meta["n_models"], texts_in(table, "name")
        at = {"model": slice(0, n), "item": slice(n, len(names))}
        rest |= {name: np.array(rest[name]) for name in _SMALL if rest.get(name) is not None}
        ids = np.asarray(names[n:])
        values: dict[str, Any] = {
            **rest,
            "notes": tuple(rest["notes"]),
            "models": tuple(names[:n]),
            "item_ids": ids.astype(np.int64) if meta["integer_ids"] else ids,
            "tasks": np.asarray(texts_in(table, "task", at["item"])),
            **{
                name: numbers_in(table, name, shape, at[_entity(name)])
                for name, shape in meta["shapes"].items()
            },
        }
        return record(**values)


_KINDS: dict[str, type[AnyFit]] = {
    "factor": FactorFit, "one ability": IRTFit, "ordered": OrderedFit,
}  # fmt: skip


def _entity(name: str) -> str:
    """Return whether an array has a row per model or per item."""
    return "model" if name.startswith(("ability", "predicted")) else "item"


def _bare(value: Any) -> Any:
    """Convert arrays to lists and NumPy numbers to numbers."""
    return np.asarray(value).tolist()


def item_information(fit: IRTFit, ability: ArrayLike) -> FloatArray:
    """Item information: Fisher information on ability of one answer to each item, shape (Q, M).

    ``(∂P)² / (P (1 - P))``; for a 2PL a² P (1 - P), largest for models that answer the item right
    half the time [Lor80]_.

    Parameters
    ----------
    ability : shape (Q,)
        Abilities at which to compute it.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, item_information, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=30, n_items=8, item_model="rasch")
    >>> item_information(fit_irt(matrix, "rasch"), [-1.0, 0.0, 1.0]).shape
    (3, 8)
    """
    fit = expect_kind(fit, IRTFit)
    at: FloatArray = np.asarray(ability, dtype=np.float64)
    logit = at[:, None] * fit.discrimination + fit.intercept
    up, down = special.expit(logit), special.expit(-logit)
    height = fit.upper - fit.guessing
    slope = fit.discrimination * height * up * down
    right, wrong = fit.guessing + height * up, (1 - fit.upper) + height * down
    with np.errstate(invalid="ignore", divide="ignore"):
        # Divide one by one: the product of both may underflow.
        return np.where(slope == 0, 0.0, slope / right * (slope / wrong))


def test_information(fit: IRTFit, ability: ArrayLike) -> FloatArray:
    """Test information: the sum of the information of all items, shape (Q,).

    Its inverse square root is the standard error of an ability estimated from all items.

    Parameters
    ----------
    ability : shape (Q,)
        Abilities at which to compute it.

    Examples
    --------
    >>> from evalstats_plugin import irt
    >>> matrix, _ = irt.simulate_responses(rng=0, n_models=30, n_items=8, item_model="rasch")
    >>> fit = irt.fit_irt(matrix, "rasch")
    >>> irt.test_information(fit, [-1.0, 0.0, 1.0]).round(1).tolist()
    [1.2, 1.3, 1.2]
    """
    return item_information(fit, ability).sum(axis=1)


def reliability(fit: IRTFit | OrderedFit) -> Reliability:
    """Reliability of the abilities of a fit: how well its models are told apart, 0 to 1.

    For posterior means or modes, var(mean) / (var(mean) + mean posterior variance); for other
    estimates, 1 - mean error variance / var(estimate) [WM82]_. Error that all models have in common
    does not count, as it moves all of them alike.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, reliability, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=30, n_items=60, item_model="rasch")
    >>> told_apart = reliability(fit_irt(matrix, "rasch"))
    >>> round(told_apart.reliability, 2), round(told_apart.separation, 1), told_apart.kind
    (0.91, 3.2, 'separation')
    """
    fit = expect_kind(fit, IRTFit, OrderedFit)
    finite = np.isfinite(fit.ability) & np.isfinite(fit.ability_std_error)
    seen = float(fit.ability[finite].var(ddof=1)) if finite.sum() > 1 else np.nan
    covariance = fit.ability_covariance[np.ix_(finite, finite)]
    n = int(finite.sum())
    in_common = covariance.mean() * n if n else 0.0
    error = float((np.trace(covariance) - in_common) / max(n - 1, 1))
    posterior = isinstance(fit, OrderedFit) or fit.shrinks
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.float64(seen) / (seen + error) if posterior else 1 - np.float64(error) / seen
        share = float(np.clip(share, 0, 1))
        separation = float(np.sqrt(np.float64(share) / (1 - np.float64(share))))
    return Reliability(share, separation, "eap" if posterior else "separation")


class Reliability(NamedTuple):
    """Reliability: the share of variance in estimated abilities that is true variance."""

    reliability: float
    separation: float
    """True standard deviation in units of the standard error: √(r / (1 - r))."""
    kind: str
    """``"eap"`` for posterior means, which vary too little; ``"separation"`` for estimates that
    vary too much because of their errors."""


def marginal_reliability(fit: IRTFit) -> float:
    """Marginal reliability: expected for models from the fit's distribution of abilities [GBR84]_.

    The mean of I / (I + 1/σ²) over abilities, with I the test information and σ the standard
    deviation of abilities.

    Examples
    --------
    >>> from evalstats_plugin.irt import fit_irt, marginal_reliability, simulate_responses
    >>> matrix, _ = simulate_responses(rng=0, n_models=30, n_items=60, item_model="rasch")
    >>> round(marginal_reliability(fit_irt(matrix, "rasch")), 2)
    0.92
    """
    fit = expect_kind(fit, IRTFit)
    centre, sd = fit.ability_distribution
    at = np.linspace(-6, 6, 241)
    weight = np.exp(-at * at / 2)
    information = sd**2 * test_information(fit, centre + sd * at)
    return float(weight @ (information / (information + 1)) / weight.sum())


RaschOr2PL = Literal["rasch", "2pl"]
"""Item models of the estimators that fit abilities and items together."""


def irt_fit(
    matrix: ResponseMatrix,
    *,
    item_model: str,
    ability: Array,
    covariance: Array,
    discrimination: Array,
    intercept: Array,
    item_covariance: Array,
    **rest: Any,
) -> IRTFit:
    """Record estimates where P(right) = 1 / (1 + exp(-(aθ + d))), on whatever device they are.

    Difficulties are -d / a, with their errors, unless `rest`, the other fields, has them.

    Parameters
    ----------
    ability, covariance
        Shape (N,), and (N, N).
    discrimination, intercept
        Shape (M,).
    item_covariance : shape (M, 2, 2)
        Of discrimination and intercept.
    """
    a, d, spread = as_array(discrimination), as_array(intercept), as_array(item_covariance)
    # A discrimination of 0 would divide by 0: such an item gets an extreme difficulty.
    a = np.where(a == 0, np.finfo(float).tiny, a)
    none = np.full(len(a), np.nan)
    with np.errstate(over="ignore"):
        difficulty = -d / a
    usual: dict[str, Any] = {
        "difficulty": difficulty,
        "guessing": np.zeros(len(a)),
        "discrimination_std_error": none if item_model == "rasch" else np.sqrt(spread[:, 0, 0]),
        "difficulty_std_error": difficulty_error(a, d, spread),
        "guessing_std_error": none,
    }
    fit = IRTFit(
        item_model=item_model,
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        ability=as_array(ability),
        ability_covariance=as_array(covariance),
        discrimination=a,
        item_covariance=spread,
        **usual | rest,
    )
    return replace(fit, notes=(*fit.notes, *suspects_note(fit)))


def difficulty_error(a: FloatArray, d: FloatArray, covariance: FloatArray) -> FloatArray:
    """Standard error of b = -d/a by the delta method, from covariances of (a, d, …) (M, p, p)."""
    with np.errstate(over="ignore", invalid="ignore"):
        toward = np.stack([d / a**2, -1 / a], axis=1)
        return np.sqrt(np.einsum("mp,mpr,mr->m", toward, covariance[:, :2, :2], toward))


def suspects_note(fit: IRTFit) -> list[str]:
    """Note on items that more able models get right less often."""
    wrong = int((fit.discrimination < 0).sum())
    items = counted(wrong, "item")
    return [f"negative discrimination of {items}: look at their labels"] if wrong else []


def undetermined_note(fit: AnyFit) -> list[str]:
    """Note on abilities by ``"mml"`` whose errors are far larger than their spread."""
    if not isinstance(fit, IRTFit) or fit.estimator != "mml":
        return []
    variance, spread = np.diagonal(fit.ability_covariance), fit.ability_distribution[1]
    error = np.sqrt(variance[variance >= 0])
    median = float(np.median(error)) if len(error) else 0.0
    if not median > _TOO_UNSURE * spread:
        return []
    return [
        "the answers do not determine the scale: the median standard error of abilities is "
        f"{median:,.1f}, and they spread by {spread:.1f} (sd). Take estimator auto, which "
        "integrates items out or gives them a prior"
    ]


def dispersion_note(dispersion: float) -> list[str]:
    """Note on scores that vary less or more than right and wrong answers."""
    if dispersion == 1:
        return []
    return [
        f"scores vary {dispersion:.2g} times as much as right or wrong answers would (dispersion, "
        "estimated with the rest): errors allow for it"
    ]


def below_chance_note(matrix: ResponseMatrix | ResponseStore, guess: FloatArray) -> list[str]:
    """Note on models that are right less often than by guessing; a store is not read for it."""
    if not isinstance(matrix, ResponseMatrix) or not guess.any():
        return []
    scored = ~np.isnan(matrix.scores)
    right = np.where(scored, matrix.scores, 0.0).sum(axis=(1, 2))
    chance = scored.sum(axis=2) @ guess
    low = [model for model, below in zip(matrix.models, right < chance, strict=True) if below]
    if not low:
        return []
    return [f"right less often than by guessing: {few(low)}; their abilities are hardly known"]


def not_converged(steps: int) -> str:
    """Note on a search that reached its most steps."""
    return (
        f"not converged after {counted(steps, 'step')}: these are the last estimates. Allow more "
        "steps (option max_steps), or take item model rasch, or an item prior"
    )


def run_facts(counts: Counts, began: float) -> dict[str, Any]:
    """Diagnostics of a run: seconds since `began`, device and dtype."""
    return {
        "seconds": time.perf_counter() - began,
        "device": "cpu" if is_numpy(counts.right) else str(counts.right.device),
        "dtype": str(counts.right.dtype).removeprefix("torch."),
    }

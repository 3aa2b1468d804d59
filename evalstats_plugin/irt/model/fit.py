"""What a fitted item response model is: abilities, items, how sure, and how it was found."""
# PART factor_fit - What a fitted factor model is: several abilities per model, and what each item asks of them.
# PART saved - What all fitted models can do: be written as a dict, saved and loaded.
# PART storage - Fitted item response models on disk: one Parquet file each.
# PART precision - Where on the scale does a test measure well, and how well does it tell models apart?

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.data.results import finite
from evalstats_plugin.errors import DesignError, LogError, SelectionError, few, no_such
from evalstats_plugin.runtime.files import read_ours, rebuilding, write_ours
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import normal_quantile

if TYPE_CHECKING:
    import pandas as pd


Rotation = Literal["none", "varimax", "promax"]


ROTATIONS = ("none", "varimax", "promax")


_NOTHING = 1e-6
"""Of the variance that the strongest dimension explains."""


_META = b"evalstats_irt"


_NAMES = ("models", "item_ids", "tasks")


# Of neither models nor items; kept in the metadata.
_SMALL = ("correlation", "prior_precision")


class AbilityDifference(NamedTuple):
    """How much abler model b is than model a."""

    difference: float
    std_error: float
    low: float
    high: float
    p_value: float
    """Of no difference, two-sided."""
    prob_better: float
    """That b is abler."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedFit(ABC):
    """A fit of models and items."""

    models: tuple[str, ...]
    item_ids: NDArray[Any]
    """Shape (M,), like `tasks`."""
    tasks: NDArray[Any]
    notes: tuple[str, ...] = ()

    @abstractmethod
    def to_frame(
        self, of: Literal["models", "items"] = "models", *, confidence_level: float = 0.95
    ) -> pd.DataFrame:
        """Return the models or the items, a line each."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """What was fitted and how, ready for JSON: everything but models, items and notes."""

    def to_dict(self, *, confidence_level: float = 0.95) -> dict[str, Any]:
        """Everything but covariances, ready for JSON: finite numbers, strings, lists, None."""
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

    def save(self, path: str | Path) -> Path:
        """Write to one Parquet file: a line per model, then per item; the rest in its metadata."""
        return save_fit(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        return load_as(cls, Path(path))


@dataclass(frozen=True, eq=False, kw_only=True)
class IRTFit(SavedFit):
    """A fitted item response model: ``P(right) = c + (u - c) / (1 + exp(-a (θ - b)))``.

    Numbers are float64 arrays; what an estimator does not give is NaN. All abilities are on one
    scale, which `identification` tells, and their covariance holds every pair of models.
    """

    item_model: str
    """``"rasch"``, ``"1pl"``, ``"2pl"`` or ``"3pl"``."""
    estimator: str
    response: str = "binomial"
    """Or ``"beta"``: scores anywhere in [0, 1], whose mean is what P(right) is elsewhere."""
    ability: FloatArray
    """θ, shape (N,)."""
    ability_covariance: FloatArray
    """Shape (N, N)."""
    discrimination: FloatArray
    """a, shape (M,), of either sign."""
    difficulty: FloatArray
    """b, shape (M,)."""
    guessing: FloatArray
    """c, shape (M,): what a model of no ability gets right."""
    discrimination_std_error: FloatArray
    difficulty_std_error: FloatArray
    guessing_std_error: FloatArray
    item_covariance: FloatArray | None = None
    """Shape (M, p, p): of a and the intercept d = -ab, and of logit c where it is estimated."""
    precision: FloatArray | None = None
    """φ of a Beta response, shape (M,): scores vary by μ(1 - μ) / (1 + φ) around their mean μ."""
    identification: str
    """What fixes the scale, such as ``"ability ~ N(0, 1)"`` or ``"abilities sum to 0"``."""
    hyperparameters: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of distributions of abilities or items; the upper asymptote u, where it is below 1; how far
    inwards a Beta response's scores were drawn."""
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])
    """iterations, converged, log_likelihood, seconds, device, dtype, reason, and more."""

    def __post_init__(self) -> None:
        n, m = len(self.models), len(self.item_ids)
        expected = {"ability": (n,), "ability_covariance": (n, n), "tasks": (m,)}
        for name in ("discrimination", "difficulty", "guessing"):
            expected |= {name: (m,), f"{name}_std_error": (m,)}
        if self.precision is not None:
            expected["precision"] = (m,)
        for name, shape in expected.items():
            found = np.shape(getattr(self, name))
            if found != shape:
                msg = f"{name} has shape {found}, expected {shape}"
                raise ValueError(msg)

    @property
    def ability_std_error(self) -> FloatArray:
        """Shape (N,)."""
        return np.sqrt(np.diagonal(self.ability_covariance))

    @property
    def intercept(self) -> FloatArray:
        """Logit at ability 0, guessing aside: d = -ab, shape (M,)."""
        return -self.discrimination * self.difficulty

    @property
    def intercept_std_error(self) -> FloatArray:
        """Shape (M,), NaN where no covariance is known."""
        if self.item_covariance is None:
            return np.full(len(self.item_ids), np.nan)
        return np.sqrt(self.item_covariance[:, 1, 1])

    def predict(self, *, plug_in: bool = False) -> FloatArray:
        """P(right), or expected score, of every model on every item, shape (N, M).

        Of a fit by ``"mml-items"`` it is averaged over what is not known of abilities and items:
        with a variance v of the logit μ it is nearly ``σ(μ / sqrt(1 + π v / 8))`` [Mac92]_, closer
        to 1/2 the less is known. Other estimators, and abilities without a finite error, predict
        at the estimates.

        Parameters
        ----------
        plug_in
            Predict at the estimates, as if they were known.
        """
        logit = self.ability[:, None] * self.discrimination + self.intercept
        if self.estimator == "mml-items" and not plug_in:
            logit = logit / np.sqrt(1 + np.pi / 8 * self._logit_variance())
        upper = float(self.hyperparameters.get("upper", 1.0))
        expected = self.guessing + (upper - self.guessing) * special.expit(logit)
        # Where scores were drawn inwards before the fit, their means go back outwards.
        inwards = float(self.hyperparameters.get("inwards", 0.0))
        return np.clip((expected - inwards) / (1 - 2 * inwards), 0, 1) if inwards else expected

    def _logit_variance(self) -> FloatArray:
        """Of aθ + d, shape (N, M): [θ 1] C [θ 1]ᵀ + a² Var θ, and 0 where θ has no finite error."""
        items = self.item_covariance
        if items is None:
            msg = "item_covariance is None, expected one of an mml-items fit: predict(plug_in=True)"
            raise ValueError(msg)
        variance = np.diagonal(self.ability_covariance)
        known = np.isfinite(self.ability) & np.isfinite(variance)
        theta, variance = (np.where(known, x, 0.0) for x in (self.ability, variance))
        of_models = np.stack([theta**2, 2 * theta, np.ones_like(theta), variance], axis=1)
        of_items = [items[:, 0, 0], items[:, 0, 1], items[:, 1, 1], self.discrimination**2]
        return np.maximum(of_models @ np.stack(of_items), 0) * known[:, None]

    def ability_difference(
        self, a: str, b: str, confidence_level: float = 0.95
    ) -> AbilityDifference:
        """How much abler model `b` is than model `a`, with a normal interval.

        Raises
        ------
        SelectionError
            A model is not in the fit.
        """
        i, j = self._place(a), self._place(b)
        covariance = self.ability_covariance
        difference = float(self.ability[j] - self.ability[i])
        variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
        std_error = float(np.sqrt(max(variance, 0.0)))
        width = normal_quantile(confidence_level) * std_error
        z = difference / std_error if std_error > 0 else float(np.sign(difference)) * np.inf
        return AbilityDifference(
            difference,
            std_error,
            difference - width,
            difference + width,
            p_value=float(2 * special.ndtr(-abs(z))) if difference else 1.0,
            prob_better=float(special.ndtr(z)) if difference else 0.5,
        )

    def _place(self, model: str) -> int:
        if model not in self.models:
            raise SelectionError(no_such("model", model, self.models, few(self.models)))
        return self.models.index(model)

    def to_frame(
        self, of: Literal["models", "items"] = "models", *, confidence_level: float = 0.95
    ) -> pd.DataFrame:
        """One line per model with its interval, or one line per item."""
        import pandas as pd

        if of == "models":
            width = normal_quantile(confidence_level) * self.ability_std_error
            return pd.DataFrame(
                {
                    "model": self.models,
                    "ability": self.ability,
                    "std_error": self.ability_std_error,
                    "low": self.ability - width,
                    "high": self.ability + width,
                }
            )
        if of != "items":
            raise SelectionError(no_such("table", of, ("models", "items"), "models, items"))
        names = ("discrimination", "difficulty", "guessing")
        columns = [column for name in names for column in (name, f"{name}_std_error")]
        columns += [] if self.precision is None else ["precision"]
        table = {"item": self.item_ids, "task": self.tasks}
        return pd.DataFrame(table | {name: getattr(self, name) for name in columns})

    def summary(self) -> dict[str, Any]:
        """What was fitted and how, ready for JSON: everything but models, items and notes."""
        names = (
            "item_model", "estimator", "response", "identification", "hyperparameters",
            "diagnostics",
        )  # fmt: skip
        return {name: plain(getattr(self, name)) for name in names}


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorFit(SavedFit):
    """A fitted factor model: ``P(right) = 1 / (1 + exp(-(a·θ + d)))`` in K dimensions.

    No one number says how able a model is: abilities of different dimensions are about different
    items, which the loadings tell. Without rotation the dimensions are uncorrelated and come in the
    order of the variance that they explain; each points where its loadings have a positive sum.
    """

    estimator: str
    ability: FloatArray
    """θ, shape (N, K): mean 0 and variance 1 over the models of the fit."""
    ability_covariance: FloatArray
    """Shape (N, K, K): of each model's abilities, items taken as known."""
    loading: FloatArray
    """a, shape (M, K)."""
    intercept: FloatArray
    """d, shape (M,): the logit of a model whose abilities are all 0."""
    item_covariance: FloatArray
    """Shape (M, K + 1, K + 1): of the loadings and the intercept, abilities taken as known."""
    correlation: FloatArray
    """Of the dimensions, shape (K, K): I unless rotated obliquely."""
    prior_precision: FloatArray
    """Of abilities, shape (K, K): what draws them towards 0, and any models scored later."""
    rotation: Rotation = "none"
    hyperparameters: dict[str, Any] = field(default_factory=dict[str, Any])
    """ridge: the precision of loadings around their mean."""
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])
    """iterations, converged, log_likelihood, choices, seconds, device, dtype, reason."""

    item_model = "factor"

    def __post_init__(self) -> None:
        n, m, k = len(self.models), len(self.item_ids), self.n_dimensions
        expected = {
            "ability": (n, k), "ability_covariance": (n, k, k), "loading": (m, k),
            "intercept": (m,), "tasks": (m,), "item_covariance": (m, k + 1, k + 1),
            "correlation": (k, k), "prior_precision": (k, k),
        }  # fmt: skip
        for name, shape in expected.items():
            found = np.shape(getattr(self, name))
            if found != shape:
                msg = f"{name} has shape {found}, expected {shape}"
                raise ValueError(msg)

    @property
    def n_dimensions(self) -> int:
        """K."""
        return int(self.correlation.shape[0])

    @property
    def identification(self) -> str:
        """What fixes scale and direction of the dimensions."""
        turned = "" if self.rotation == "none" else f", turned by {self.rotation}"
        return f"abilities have mean 0 and variance 1 in each dimension{turned}"

    @property
    def ability_std_error(self) -> FloatArray:
        """Shape (N, K); items taken as known."""
        return np.sqrt(np.diagonal(self.ability_covariance, axis1=1, axis2=2))

    @property
    def loading_std_error(self) -> FloatArray:
        """Shape (M, K); abilities taken as known."""
        return np.sqrt(np.diagonal(self.item_covariance, axis1=1, axis2=2)[:, :-1])

    @property
    def intercept_std_error(self) -> FloatArray:
        """Shape (M,); abilities taken as known."""
        return np.sqrt(self.item_covariance[:, -1, -1])

    @property
    def explained(self) -> FloatArray:
        """Variance of the logits over models, mean of the items, by dimension alone: shape (K,)."""
        return np.square(self.loading).mean(axis=0)

    @property
    def empty(self) -> tuple[int, ...]:
        """Dimensions, from 1, that explain nothing: the prior has taken all their loadings."""
        explained = self.explained
        return tuple((np.flatnonzero(explained <= _NOTHING * explained.max()) + 1).tolist())

    def predict(self) -> FloatArray:
        """P(right) of every model on every item at the estimates, shape (N, M)."""
        return special.expit(self.ability @ self.loading.T + self.intercept)

    def rotated(self, how: Rotation) -> FactorFit:
        """Turn the dimensions so that most items load on few; predictions stay as they are.

        Raises
        ------
        SelectionError
            No such rotation, or a fit that is rotated already.
        DesignError
            A dimension has no loadings.
        """
        from evalstats_plugin.irt.model.curves import turned

        if how not in ROTATIONS:
            raise SelectionError(no_such("rotation", how, ROTATIONS, ", ".join(ROTATIONS)))
        if self.rotation != "none":
            msg = f"this fit is turned by {self.rotation} already, expected one without rotation"
            raise SelectionError(msg)
        if how == "none" or self.n_dimensions == 1:
            return self
        if self.empty:
            msg = f"dimensions {self.empty} explain nothing, expected loadings to turn: fit fewer"
            raise DesignError(msg)
        turn = turned(self.loading, how)
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

    def to_frame(
        self, of: Literal["models", "items"] = "models", *, confidence_level: float = 0.95
    ) -> pd.DataFrame:
        """One line per model and dimension with its interval, or one line per item."""
        import pandas as pd

        if of not in ("models", "items"):
            raise SelectionError(no_such("table", of, ("models", "items"), "models, items"))
        k = self.n_dimensions
        if of == "models":
            error = self.ability_std_error.ravel()
            width = normal_quantile(confidence_level) * error
            ability = self.ability.ravel()
            columns = {
                "model": np.repeat(np.asarray(self.models), k),
                "dimension": np.tile(np.arange(1, k + 1), len(self.models)),
                "ability": ability,
                "std_error": error,
                "low": ability - width,
                "high": ability + width,
            }
            return pd.DataFrame(columns)
        loadings = {f"loading_{j + 1}": self.loading[:, j] for j in range(k)}
        errors = {f"loading_{j + 1}_std_error": self.loading_std_error[:, j] for j in range(k)}
        whole = {"intercept": self.intercept, "intercept_std_error": self.intercept_std_error}
        return pd.DataFrame(
            {"item": self.item_ids, "task": self.tasks, **loadings, **errors, **whole}
        )

    def summary(self) -> dict[str, Any]:
        """What was fitted and how, ready for JSON: everything but models, items and notes."""
        names = (
            "item_model", "estimator", "n_dimensions", "rotation", "correlation", "explained",
            "identification", "hyperparameters", "diagnostics",
        )  # fmt: skip
        return {name: plain(getattr(self, name)) for name in names}


def plain(value: Any) -> Any:
    """Numbers that JSON knows, in place of NumPy's and of what is not finite."""
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())  # pyright: ignore[reportUnknownMemberType]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        return {str(key): plain(item) for key, item in pairs.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[Any]", value)]
    return finite(value) if isinstance(value, float) else value


FitT = TypeVar("FitT", bound=SavedFit)


_KINDS: dict[str, type[IRTFit | FactorFit]] = {"factor": FactorFit, "one ability": IRTFit}


def save_fit(fit: SavedFit, path: Path) -> Path:
    """Write models with their row of the covariance, then items with theirs."""
    # pyarrow has no types of its own.
    pa: Any = import_module("pyarrow")
    n, m = len(fit.models), len(fit.item_ids)
    nothing = {"model": pa.nulls(n), "item": pa.nulls(m)}

    def column(of: str, values: Any) -> Any:
        parts = [
            pa.array(values) if of == kind else nothing[kind].cast(pa.array(values).type)
            for kind in nothing
        ]
        return pa.chunked_array(parts)

    columns = {
        "kind": pa.array(["model"] * n + ["item"] * m),
        "name": pa.array([*fit.models, *fit.item_ids.astype(str)]),
        "task": column("item", fit.tasks.astype(str)),
    }
    arrays = _arrays(fit)
    for name, values in arrays.items():
        flat = values if values.ndim == 1 else list(values.reshape(len(values), -1))
        columns[name] = column(_of(name), flat)
    meta = _metadata(fit) | {"shapes": {name: values.shape for name, values in arrays.items()}}
    return write_ours(pa.table(columns), path, _META, meta)


def _of(name: str) -> str:
    return "model" if name.startswith("ability") else "item"


def _arrays(fit: SavedFit) -> dict[str, NDArray[np.float64]]:
    """Numbers of each model or item, by field."""
    values = {f.name: getattr(fit, f.name) for f in fields(fit) if f.name not in (*_NAMES, *_SMALL)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _metadata(fit: SavedFit) -> dict[str, Any]:
    arrays = _arrays(fit)
    rest = {f.name: getattr(fit, f.name) for f in fields(fit) if f.name not in (*_NAMES, *arrays)}
    return {
        "kind": next(kind for kind, cls in _KINDS.items() if isinstance(fit, cls)),
        "n_models": len(fit.models),
        "integer_ids": bool(np.issubdtype(fit.item_ids.dtype, np.integer)),
        "fit": json.loads(json.dumps(rest, default=_bare)),
    }


def _bare(value: Any) -> Any:
    """Arrays and NumPy numbers as lists and numbers."""
    return np.asarray(value).tolist()


def load_fit(path: Path) -> IRTFit | FactorFit:
    """Read what `save_fit` wrote.

    Raises
    ------
    LogError
        No such file, not a fit, or a damaged one.
    """
    expected = "expected a file that a fit's save, or `irt --save`, wrote"
    other = "not a fit written by evalstats-plugin"
    table, meta = read_ours(path, _META, expected=expected, other=other)
    with rebuilding(path):
        return _fit_of(table, meta)


def load_as(kind: type[FitT], path: Path) -> FitT:
    """Read a fit that must be of this kind.

    Raises
    ------
    LogError
        No such file, not a fit, or one of another kind.
    """
    found = load_fit(path)
    if not isinstance(found, kind):
        msg = f"{path} holds a {type(found).__name__}, expected a {kind.__name__}"
        raise LogError(f"{msg}: read it with {type(found).__name__}.load")
    return found


def _fit_of(table: Any, meta: dict[str, Any]) -> IRTFit | FactorFit:
    n = meta["n_models"]
    names: list[str] = table["name"].to_pylist()
    at = {"model": slice(0, n), "item": slice(n, len(names))}

    def array(name: str, shape: list[int]) -> NDArray[np.float64]:
        rows = at[_of(name)]
        part = table[name].slice(rows.start, rows.stop - rows.start).combine_chunks()
        flat = part if len(shape) == 1 else part.flatten()
        return np.array(flat.to_numpy(zero_copy_only=False), dtype=np.float64).reshape(shape)

    rest = meta["fit"]
    rest |= {name: np.array(rest[name]) for name in _SMALL if name in rest}
    ids = np.asarray(names[n:])
    values: dict[str, Any] = {
        **rest,
        "notes": tuple(rest["notes"]),
        "models": tuple(names[:n]),
        "item_ids": ids.astype(np.int64) if meta["integer_ids"] else ids,
        "tasks": np.asarray(table["task"].to_pylist()[n:]),
        **{name: array(name, shape) for name, shape in meta["shapes"].items()},
    }
    return _KINDS[meta["kind"]](**values)


def reliability(fit: IRTFit) -> Reliability:
    """How well the models of the fit are told apart, 0 (not at all) to 1.

    With posterior means, var(mean) / (var(mean) + mean of their variances); with other estimates,
    1 - mean error variance / var(estimate) [WM82]_. What errors have in common moves all models
    alike, and does not count.
    """
    n = len(fit.models)
    finite = np.isfinite(fit.ability) & np.isfinite(fit.ability_std_error)
    seen = float(fit.ability[finite].var(ddof=1)) if finite.sum() > 1 else np.nan
    covariance = fit.ability_covariance[np.ix_(finite, finite)]
    n = int(finite.sum())
    error = float((np.trace(covariance) - covariance.mean() * n) / max(n - 1, 1))
    posterior = fit.estimator == "mml"
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.float64(seen) / (seen + error) if posterior else 1 - np.float64(error) / seen
        share = float(np.clip(share, 0, 1))
        separation = float(np.sqrt(np.float64(share) / (1 - np.float64(share))))
    return Reliability(share, separation, "eap" if posterior else "separation")


class Reliability(NamedTuple):
    """Share of the variance of estimated abilities that is of the abilities themselves."""

    reliability: float
    separation: float
    """True standard deviation in units of the standard error: √(r / (1 - r))."""
    kind: str
    """``"eap"``, of posterior means, which spread too little; ``"separation"``, of estimates that
    spread too much by their errors."""


def item_information(fit: IRTFit, ability: ArrayLike) -> FloatArray:
    """Fisher information on ability of one answer to each item, shape (Q, M).

    ``(∂P)² / (P (1 - P))``, for a 2PL a² P (1 - P): items tell most about models that get them
    right half the time [Lor80]_.

    Parameters
    ----------
    ability : shape (Q,)
    """
    at: FloatArray = np.asarray(ability, dtype=np.float64)
    logit = at[:, None] * fit.discrimination + fit.intercept
    up, down = special.expit(logit), special.expit(-logit)
    upper = float(fit.hyperparameters.get("upper", 1.0))
    height = upper - fit.guessing
    slope = fit.discrimination * height * up * down
    right, wrong = fit.guessing + height * up, (1 - upper) + height * down
    with np.errstate(invalid="ignore", divide="ignore"):
        # Divided one by one: the product of both may underflow.
        return np.where(slope == 0, 0.0, slope / right * (slope / wrong))


def total_information(fit: IRTFit, ability: ArrayLike) -> FloatArray:
    """Information of all items together, shape (Q,); one over its root is the standard error."""
    return item_information(fit, ability).sum(axis=1)


def marginal_reliability(fit: IRTFit) -> float:
    """Reliability expected of models drawn from the fit's distribution of abilities [GBR84]_.

    The mean of I / (I + 1/σ²), with I the information at an ability.
    """
    known = fit.hyperparameters
    centre = float(known.get("ability_mean", fit.ability.mean()))
    sd = float(known.get("ability_sd", fit.ability.std(ddof=1)))
    at = np.linspace(-6, 6, 241)
    weight = np.exp(-at * at / 2)
    information = sd**2 * total_information(fit, centre + sd * at)
    return float(weight @ (information / (information + 1)) / weight.sum())

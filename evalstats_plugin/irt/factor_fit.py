"""What a fitted factor model is: several abilities per model, and what each item asks of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import special

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.saved import SavedFit, plain
from evalstats_plugin.stats.interval import FloatArray, normal_quantile
from evalstats_plugin.wording import no_such

if TYPE_CHECKING:
    import pandas as pd

Rotation = Literal["none", "varimax", "promax"]
ROTATIONS = ("none", "varimax", "promax")
_NOTHING = 1e-6
"""Of the variance that the strongest dimension explains."""


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
        from evalstats_plugin.irt.rotation import turned

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

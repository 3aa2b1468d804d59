"""What a fitted item response model is: abilities, items, how sure, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.irt.saved import SavedFit, plain
from evalstats_plugin.stats.interval import FloatArray, normal_quantile
from evalstats_plugin.wording import few, no_such

if TYPE_CHECKING:
    import pandas as pd


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

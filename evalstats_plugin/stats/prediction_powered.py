"""Mean of human labels, few of them, with a judge's scores of many items [ABF23]_ [ADZ23]_.

With the power-tuned weight of PPI++ this is the regression estimator of `control_variate`, the
judge being the covariate: mean of the labels + λ (mean judge score of unlabelled items - that of
labelled ones). A useless judge gets weight 0, and a biased one does no harm.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats import control_variate
from evalstats_plugin.stats.interval import FloatArray, Interval


class Powered(NamedTuple):
    """Estimate with limits, and how much the judge helped; arrays of shape (...)."""

    estimate: FloatArray
    interval: Interval
    std_error: FloatArray
    power: FloatArray
    """λ: weight of the judge."""
    gain: FloatArray
    """How many times as many labels would be as good without a judge."""
    n: FloatArray
    """Labelled items."""
    population: FloatArray
    """Judged items."""


def ppi(
    labels: ArrayLike,
    judged: ArrayLike,
    *,
    bounds: tuple[float, float] | None,
    confidence_level: float,
) -> Powered:
    """Prediction-powered mean of the labels (PPI++) [ADZ23]_.

    Parameters
    ----------
    labels, judged : shape (..., M)
        Human and judge scores of the same items; NaN labels are unlabelled. A label counts only
        where the judge has scored too.
    bounds
        Least and greatest possible label, or None. With bounds the interval is that of an effective
        number of 0/1 labels, and needs no large number of them; without, a t interval.

    Notes
    -----
    The normal interval of the papers has no width while no labelled item shows an error, and
    covers far too seldom with few labels of a good judge or a strong model.
    """
    low, high = (0.0, 1.0) if bounds is None else bounds
    span = high - low
    values = (np.asarray(labels, dtype=np.float64) - low) / span
    if bounds is not None and np.any((values < -1e-9) | (values > 1 + 1e-9)):
        raise ValueError(f"labels must lie within their bounds {bounds}")
    adjusted = control_variate.adjust(values, judged, leverage_power=1 if bounds else 2)
    if bounds is None:
        unit = control_variate.t_interval(adjusted, confidence_level=confidence_level)
        estimate = adjusted.estimate
    else:
        unit = control_variate.bounded_interval(
            adjusted, unseen_errors="full", confidence_level=confidence_level
        )
        estimate = np.clip(adjusted.estimate, 0.0, 1.0)
    return Powered(
        low + span * estimate,
        Interval(*(low + span * limit for limit in unit)),
        span * np.sqrt(adjusted.variance),
        # b (mean of all - mean of labelled) = λ (mean of unlabelled - mean of labelled).
        span * adjusted.slope * (1 - adjusted.n / adjusted.population),
        adjusted.gain,
        adjusted.n,
        adjusted.population,
    )

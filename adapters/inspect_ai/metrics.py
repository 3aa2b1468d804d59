"""Metrics for a task's ``metrics=[...]``: confidence intervals computed while the task runs.

Inspect calls a metric repeatedly for its live display, first without scores, and a metric that
raises ends the whole run. So these never raise: a value that is no number is left out, and without
any numbers there is no interval. The keys stand alone (``ci95_low``), because Inspect logs the keys
of a dict as the names of metrics; those of other methods than the default begin with their names.
The numbers are those of `evalstats_plugin.intervals`: a method for right or wrong answers is used
on those, and partial credit (or epochs, which Inspect averages first) gets the default for its
kind, which a warning says once.
"""

from __future__ import annotations

import logging
import math
from functools import lru_cache
from pathlib import Path

from inspect_ai.scorer import Metric, SampleScore, Value, ValueToFloat, metric

from evalstats_plugin.adapters.inspect_ai.estimands import as_score
from evalstats_plugin.runtime.files import field_of

_log = logging.getLogger(__name__)


@metric
def beta_interval(level: float = 0.95, to_float: ValueToFloat | None = None) -> Metric:
    """Shortest interval of the Beta(1, 1) posterior: ``ci95_low`` and ``ci95_high``.

    Parameters
    ----------
    level
        Confidence level, between 0 and 1; it is part of the keys.
    to_float
        Converts a score's value to a number. Default: Inspect's own conversion, except that a
        value it does not know is left out instead of counted as 0.
    """
    return _interval_metric("beta-hpd", level, to_float)


@metric
def jeffreys(level: float = 0.95, to_float: ValueToFloat | None = None) -> Metric:
    """Equal-tailed interval of the Beta(½, ½) posterior: ``jeffreys_ci95_low``, ``…_high``.

    Arguments as for `beta_interval`, also of the following.
    """
    return _interval_metric("jeffreys", level, to_float)


@metric
def wilson(level: float = 0.95, to_float: ValueToFloat | None = None) -> Metric:
    """Wilson's score interval: ``wilson_ci95_low`` and ``wilson_ci95_high``."""
    return _interval_metric("wilson", level, to_float)


@metric
def clopper_pearson(level: float = 0.95, to_float: ValueToFloat | None = None) -> Metric:
    """Exact (Clopper–Pearson) interval, conservative: ``clopper_pearson_ci95_low``, ``…_high``."""
    return _interval_metric("clopper-pearson", level, to_float)


@metric
def cluster_interval(
    cluster: str, level: float = 0.95, to_float: ValueToFloat | None = None
) -> Metric:
    """Interval for clustered items: ``cluster_ci95_low`` and ``cluster_ci95_high``.

    Parameters
    ----------
    cluster
        Field of a sample's metadata, or a dotted path to it, that names the sample's cluster (a
        passage, a repository); a sample without it is a cluster of its own. Reports on the log
        use the same field.
    level, to_float
        As for `beta_interval`.
    """
    return _interval_metric("auto", level, to_float, cluster)


def _interval_metric(
    method: str, level: float, to_float: ValueToFloat | None, cluster: str | None = None
) -> Metric:
    if not 0 < level < 1:
        raise ValueError(f"level {level} is no confidence level: choose a number between 0 and 1")
    # Several metrics of one scorer have keys of their own.
    name = "cluster" if cluster is not None else "" if method == "beta-hpd" else method
    prefix = f"{name.replace('-', '_')}_ci".removeprefix("_")
    low_key, high_key = (f"{prefix}{100 * level:g}_{end}" for end in ("low", "high"))

    def compute(scores: list[SampleScore]) -> Value:
        if not scores:
            # An empty dict would be logged as NaN, and None is an error in a dict of metrics.
            return {low_key: 0.0, high_key: 1.0}
        try:
            limits = _limits(scores, method, level, to_float, cluster)
        except Exception as error:  # noqa: BLE001 - no error may end the run
            _warn_once(f"no interval: {type(error).__name__}: {error}")
            return {}
        return {} if limits is None else {low_key: limits[0], high_key: limits[1]}

    return compute


@lru_cache(maxsize=64)
def _warn_once(text: str) -> None:
    """Warn, but not again at every update of the display."""
    _log.warning(text)


def _limits(
    scores: list[SampleScore],
    method: str,
    level: float,
    to_float: ValueToFloat | None,
    cluster: str | None,
) -> tuple[float, float] | None:
    import numpy as np

    from evalstats_plugin.data.measure import Measure
    from evalstats_plugin.data.responses import Responses, Source, as_clusters
    from evalstats_plugin.scores.intervals import intervals

    values = np.array([_number(s.score.value, to_float) for s in scores])
    finite = np.isfinite(values)
    clusters = None
    if cluster is not None:
        texts = [field_of(s.sample_metadata or {}, cluster) for s in scores]
        labels, _ = as_clusters(texts, cluster)
        if labels is None:
            raise LookupError(f"no sample's metadata has the field {cluster!r}")
        clusters = np.compress(finite, labels)
    responses = Responses(
        model="",
        measure=Measure(task="", metric=""),
        item_ids=np.arange(np.count_nonzero(finite)),
        scores=values[finite, None],
        clusters=clusters,
        source=Source(Path(), "inspect_ai"),
    )
    [row] = intervals([responses], confidence_level=level, method=method, rng=0)
    if row.low is not None and row.method != method and cluster is None and method != "beta-hpd":
        _warn_once(f"{method} is for scores of 0 and 1: of partial credit {row.method} is logged")
    return None if row.low is None or row.high is None else (row.low, row.high)


def _number(value: Value | None, to_float: ValueToFloat | None) -> float:
    """Read a score's value as Inspect does, but NaN where Inspect would warn and count 0."""
    if to_float is not None and value is not None:
        return float(to_float(value))
    number = as_score(value)
    return math.nan if number is None else number

"""Which items belong together: by the metadata field that a log's own metrics cluster by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from evalstats_plugin.adapters.inspect_ai.scorers import Scorer

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

_OPTION = "cluster"


def cluster_field(log: EvalLog, scorer: Scorer) -> str | None:
    """Return the field by which the metrics of a scorer cluster items, where one of them does."""
    scores = log.results.scores if log.results else []
    logged = (m.params for s in scores if scorer.is_of(s) for m in s.metrics.values())
    configured = (
        o for s in log.eval.scorers or () if s.name == scorer.name for o in _options(s, scorer)
    )
    for options in (*logged, *configured):
        if isinstance(options.get(_OPTION), str):
            return options[_OPTION]
    return None


def _options(configured: Any, scorer: Scorer) -> Iterator[dict[str, Any]]:
    """Give the options of a scorer's metrics, which may be told apart by the score's keys."""
    metrics = cast("list[Any] | dict[str, Any]", configured.metrics or [])
    for metric in [metrics] if isinstance(metrics, dict) else metrics:
        if isinstance(metric, dict):
            by_key = cast("dict[str | None, Any]", metric)
            yield from (m.options or {} for m in by_key.get(scorer.key, by_key.get("*", ())))
        else:
            yield metric.options or {}


def fields_of(log: EvalLog, scorers: Iterable[Scorer], asked: str | None) -> frozenset[str]:
    """Return every field that may be needed."""
    if asked is not None:
        return frozenset({asked})
    return frozenset(f for s in scorers if (f := cluster_field(log, s)) is not None)

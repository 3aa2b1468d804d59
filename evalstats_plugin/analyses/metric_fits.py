"""One fit for each metric, over all models and tasks of several logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from evalstats_plugin.analyses.ability_data import short, usable
from evalstats_plugin.engines import mapped
from evalstats_plugin.errors import DesignError
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.responses import Responses
from evalstats_plugin.runs import choose_runs
from evalstats_plugin.wording import few

FitT = TypeVar("FitT")


class MetricFits(Generic[FitT]):
    """Fits by metric; a metric that cannot be fitted is left out with a note.

    Parameters
    ----------
    found
        Responses of each log.
    fit
        Raises `DesignError` where it cannot.
    nothing, missing
        What is said where no metric, or where one metric, has a fit.

    Raises
    ------
    DesignError
        No metric can be fitted.
    """

    def __init__(
        self,
        found: Mapping[str, Sequence[Responses]],
        fit: Callable[[ResponseSet], FitT],
        *,
        nothing: str,
        missing: str,
    ) -> None:
        self._found = found
        kept, notes = choose_runs([r for each in found.values() for r in each], "latest")
        # A log that a later run replaces takes no part.
        self._kept = {id(r) for r in kept}
        used, unused = usable(kept)
        self.by_metric: dict[str, FitT] = {}
        failed: dict[str, DesignError] = {}
        metrics = list(dict.fromkeys(short(r.metric) for r in used))
        under = (ResponseSet(tuple(r for r in used if short(r.metric) == m)) for m in metrics)
        for metric, outcome in zip(metrics, mapped(partial(_outcome, fit), under), strict=True):
            if isinstance(outcome, DesignError):
                failed[metric] = outcome
            else:
                self.by_metric[metric] = outcome
        if not self.by_metric:
            reasons = few([f"{metric}: {error}" for metric, error in failed.items()], most=2)
            msg = f"{nothing}: {reasons or 'no log holds scores of items'}"
            raise DesignError(msg)
        said = [f"{missing} on {metric}: {error}" for metric, error in failed.items()]
        self.notes = (*notes, *unused, *said)

    def of_log(self, location: str) -> tuple[list[Responses], dict[str, FitT]]:
        """Return what a log has a part in: its responses, and the fits of their metrics."""
        own = [r for r in self._found[location] if id(r) in self._kept]
        metrics = dict.fromkeys(short(r.metric) for r in own)
        return own, {m: self.by_metric[m] for m in metrics if m in self.by_metric}


def _outcome(fit: Callable[[ResponseSet], FitT], under: ResponseSet) -> FitT | DesignError:
    try:
        return fit(under)
    except DesignError as error:
        return error

"""Which of several models makes the answers most probable?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evalstats_plugin.analyses.hierarchical_records import Evidence
from evalstats_plugin.errors import DesignError
from evalstats_plugin.tables.hierarchical import CLOSED_FORM

if TYPE_CHECKING:
    from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit

COMPARED = ("task", *CLOSED_FORM)
"""Models whose evidence is known of nested evals."""


def is_known(fit: HierarchicalFit) -> bool:
    """Tell whether the evidence of models of these data can be had."""
    return min(fit.counts.right.shape) == 1


def evidence_rows(fit: HierarchicalFit, seed: int) -> list[Evidence]:
    """Fit the models that are not there yet, and order them by evidence."""
    if not is_known(fit):
        n, t = fit.counts.right.shape
        msg = (
            f"{n} models on {t} tasks: the evidence is known of one model or of one task only; "
            "compare the loo() of fits"
        )
        raise DesignError(msg)
    fits = [fit if fit.model == name else fit.with_model(name, seed) for name in COMPARED]
    known = [
        (x, x.log_evidence, x.log_evidence_error or 0.0) for x in fits if x.log_evidence is not None
    ]
    values = np.array([value for _, value, _ in known])
    relative = np.exp(values - values.max())
    share = relative / relative.sum()
    rows = [
        Evidence(model=x.model, log_evidence=value, std_error=error,
                 log_bayes_factor=value - float(values.max()), probability=float(p),
                 inference=x.inference)
        for (x, value, error), p in zip(known, share, strict=True)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row.log_evidence)

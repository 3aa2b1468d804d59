"""Scores with intervals: epochs, clusters, groups, metrics that are not means.

* `intervals`: the public function, and scores of groups of tasks; `methods`: its methods, the
  defaults and why
* `cells`: one model on one task under one metric, with clusters; `attained`: what the rows of one
  metric know together
* `metrics`: F1, AUC, BLEU and other metrics that are not means
* `epochs`: pass@k, and the variance between and within items
* `judged`, `control_variate`: scores made more precise by other scores
* `findings`: what is wrong with logs
* `items`: statistics of items; `rows`: the records that are returned
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.scores.epochs import at_k, variance_parts
    from evalstats_plugin.scores.findings import Finding
    from evalstats_plugin.scores.rows import ScoreInterval

__all__ = [
    "Finding",
    "ScoreInterval",
    "at_k",
    "variance_parts",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "Finding": "findings",
        "ScoreInterval": "rows",
        "at_k": "epochs",
        "variance_parts": "epochs",
    },
)

"""How sure is each score? Intervals, epochs, clusters, groups, metrics that are no means.

* `intervals`: the public function; `methods`: its methods, the defaults and why
* `cells`: one model on one task under one metric, with clusters
* `metrics`: F1, AUC, BLEU and other metrics that are no means; `groups`: scores of groups of tasks
* `epochs`: pass@k and variance between and within items
* `judged`, `control_variate`: scores corrected by other scores
* `items`: items one by one; `rows`: what is returned
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.scores.epochs import at_k, variance_parts
    from evalstats_plugin.scores.intervals import intervals
    from evalstats_plugin.scores.rows import Intervals, ScoreInterval, VarianceParts

__all__ = [
    "Intervals",
    "ScoreInterval",
    "VarianceParts",
    "at_k",
    "intervals",
    "variance_parts",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "Intervals": "rows",
        "ScoreInterval": "rows",
        "VarianceParts": "rows",
        "at_k": "epochs",
        "intervals": "intervals",
        "variance_parts": "epochs",
    },
)

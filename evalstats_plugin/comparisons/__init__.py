"""Comparisons of models: paired, unpaired, across tasks, sequential; ranks and power analysis.

* `compare`: the public function; `design`: which models can be compared on which items;
  `methods`: the methods, the defaults and why
* `paired`, `unpaired`, `tasks`, `metrics`, `sequential`: an analysis each; `stored`: the paired
  one for a store on disk
* `ranks`: sets of possible ranks
* `power`: how many items, epochs or models are needed; `pilot`: variances estimated from logs
* `rows`: the records that are returned
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.power import PowerAssumptions, PowerDesign, power_curve
    from evalstats_plugin.comparisons.ranks import rank_sets
    from evalstats_plugin.comparisons.rows import Comparison

__all__ = [
    "Comparison",
    "PowerAssumptions",
    "PowerDesign",
    "power_curve",
    "rank_sets",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "Comparison": "rows",
        "PowerAssumptions": "power",
        "PowerDesign": "power",
        "power_curve": "power",
        "rank_sets": "ranks",
    },
)

"""Which model is better? Paired, unpaired, across tasks, sequential; power.

* `compare`: the public function; `design`: which models can be compared, and how;
  `methods`: the methods, the defaults and why
* `paired`, `unpaired`, `tasks`, `metrics`, `sequential`: a design each; `stored`: of a store
* `ranks`: ranks that the comparisons leave open
* `power`, `pilot`: how many items, epochs or models are needed
* `rows`: what is returned
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.compare import compare
    from evalstats_plugin.comparisons.power import PowerAssumptions, PowerDesign, power, power_curve
    from evalstats_plugin.comparisons.ranks import rank_sets
    from evalstats_plugin.comparisons.rows import Comparison, Comparisons

__all__ = [
    "Comparison",
    "Comparisons",
    "PowerAssumptions",
    "PowerDesign",
    "compare",
    "power",
    "power_curve",
    "rank_sets",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "Comparison": "rows",
        "Comparisons": "rows",
        "PowerAssumptions": "power",
        "PowerDesign": "power",
        "compare": "compare",
        "power": "power",
        "power_curve": "power",
        "rank_sets": "ranks",
    },
)

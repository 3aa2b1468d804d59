"""Rankings from comparisons: Bradley–Terry, Thurstone, Plackett–Luce; what to compare next.

* `rank`: the public function; `rows`: what it returns; `goodness`: how well it fits
* `next`: which pair to ask next, and when to stop
* `contests`: comparisons, read and counted; `ratings`: Bradley–Terry and Plackett–Luce
* `thurstone`: Thurstone's model; `judging`: people and programs that compare
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.ranking.next import next_contests
    from evalstats_plugin.ranking.rank import rank
    from evalstats_plugin.ranking.rows import RankedPlayer, Ranking

__all__ = [
    "RankedPlayer",
    "Ranking",
    "next_contests",
    "rank",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "RankedPlayer": "rows",
        "Ranking": "rows",
        "next_contests": "next",
        "rank": "rank",
    },
)

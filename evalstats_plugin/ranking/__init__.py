"""Rankings from pairwise comparisons: Bradley–Terry, Thurstone and Plackett–Luce models.

* `rank`: the public function; `rows`: its result; `goodness`: goodness of fit
* `next`: which pair to compare next, and when to stop
* `contests`: comparisons, read and counted; `ratings`: Bradley–Terry and Plackett–Luce
* `thurstone`: Thurstone's model; `hamiltonian`: draws from posteriors
* `judging`: people and programs as judges
"""

from typing import TYPE_CHECKING

from evalstats_plugin.runtime.lazy import public_names

if TYPE_CHECKING:
    from evalstats_plugin.ranking.contests.contests import Contests
    from evalstats_plugin.ranking.contests.from_scores import contests_from_scores
    from evalstats_plugin.ranking.next import Stopping, certainty, next_contests
    from evalstats_plugin.ranking.rank import (
        BootstrapOptions,
        MlOptions,
        PosteriorOptions,
        ThurstoneOptions,
    )
    from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry
    from evalstats_plugin.ranking.ratings.plackett_luce import fit_plackett_luce
    from evalstats_plugin.ranking.ratings.uncertainty import profile_interval
    from evalstats_plugin.ranking.rows import RankedPlayer, Ranking
    from evalstats_plugin.ranking.thurstone.judges import fit_thurstone_judges
    from evalstats_plugin.ranking.thurstone.model import fit_thurstone

__all__ = [
    "BootstrapOptions",
    "Contests",
    "MlOptions",
    "PosteriorOptions",
    "RankedPlayer",
    "Ranking",
    "Stopping",
    "ThurstoneOptions",
    "certainty",
    "contests_from_scores",
    "fit_bradley_terry",
    "fit_plackett_luce",
    "fit_thurstone",
    "fit_thurstone_judges",
    "next_contests",
    "profile_interval",
]
__getattr__, __dir__ = public_names(
    __name__,
    {
        "BootstrapOptions": "rank",
        "Contests": "contests.contests",
        "MlOptions": "rank",
        "PosteriorOptions": "rank",
        "RankedPlayer": "rows",
        "Ranking": "rows",
        "Stopping": "next",
        "ThurstoneOptions": "rank",
        "certainty": "next",
        "contests_from_scores": "contests.from_scores",
        "fit_bradley_terry": "ratings.bradley_terry",
        "fit_plackett_luce": "ratings.plackett_luce",
        "fit_thurstone": "thurstone.model",
        "fit_thurstone_judges": "thurstone.judges",
        "next_contests": "next",
        "profile_interval": "ratings.uncertainty",
    },
)

"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.ranking.contests.contests import Contests as Contests
from evalstats_plugin.ranking.contests.from_scores import (
    contests_from_scores as contests_from_scores,
)
from evalstats_plugin.ranking.next import next_contests as next_contests
from evalstats_plugin.ranking.rank import MlOptions as MlOptions
from evalstats_plugin.ranking.rank import ThurstoneOptions as ThurstoneOptions
from evalstats_plugin.ranking.rank import leaderboard as leaderboard
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry as fit_bradley_terry
from evalstats_plugin.ranking.ratings.plackett_luce import fit_plackett_luce as fit_plackett_luce
from evalstats_plugin.ranking.ratings.profile import profile_interval as profile_interval
from evalstats_plugin.ranking.rows import Leaderboard as Leaderboard
from evalstats_plugin.ranking.rows import RankedPlayer as RankedPlayer
from evalstats_plugin.ranking.rows import Ranking as Ranking
from evalstats_plugin.ranking.thurstone.model import fit_thurstone as fit_thurstone

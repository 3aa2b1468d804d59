"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.comparisons.gating import Gate as Gate
from evalstats_plugin.comparisons.gating import GateRow as GateRow
from evalstats_plugin.comparisons.judged import JudgedScores as JudgedScores
from evalstats_plugin.comparisons.judged import NextLabel as NextLabel
from evalstats_plugin.comparisons.leaderboard import ScoreTable as ScoreTable
from evalstats_plugin.comparisons.leaderboard import TableCell as TableCell
from evalstats_plugin.comparisons.planning.power import PowerAssumptions as PowerAssumptions
from evalstats_plugin.comparisons.planning.power import power_curve as power_curve
from evalstats_plugin.comparisons.planning.solver import PowerDesign as PowerDesign
from evalstats_plugin.comparisons.ranks import rank_sets as rank_sets
from evalstats_plugin.comparisons.rows import Comparison as Comparison
from evalstats_plugin.comparisons.rows import SliceComparison as SliceComparison

"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.scores.costs import CostRow as CostRow
from evalstats_plugin.scores.epochs import at_k as at_k
from evalstats_plugin.scores.epochs import curves as curves
from evalstats_plugin.scores.epochs import variance_parts as variance_parts
from evalstats_plugin.scores.findings import Finding as Finding
from evalstats_plugin.scores.judged import JudgeAgreement as JudgeAgreement
from evalstats_plugin.scores.judged import JudgeBias as JudgeBias
from evalstats_plugin.scores.judged import Label as Label
from evalstats_plugin.scores.noise import NoiseRow as NoiseRow
from evalstats_plugin.scores.rows import CorrectedScore as CorrectedScore
from evalstats_plugin.scores.rows import ItemComparison as ItemComparison
from evalstats_plugin.scores.rows import ItemComparisons as ItemComparisons
from evalstats_plugin.scores.rows import ScoreInterval as ScoreInterval
from evalstats_plugin.scores.slices import SliceScore as SliceScore

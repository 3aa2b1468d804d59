"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin import adaptive as adaptive
from evalstats_plugin import comparisons as comparisons
from evalstats_plugin import data as data
from evalstats_plugin import hierarchical as hierarchical
from evalstats_plugin import irt as irt
from evalstats_plugin import logs as logs
from evalstats_plugin import ranking as ranking
from evalstats_plugin import report as report
from evalstats_plugin import scores as scores
from evalstats_plugin.adaptive.calibrate import adaptive_session as adaptive_session
from evalstats_plugin.adaptive.calibrate import item_bank as item_bank
from evalstats_plugin.comparisons.compare import compare as compare
from evalstats_plugin.comparisons.gating import gate as gate
from evalstats_plugin.comparisons.judged import judge as judge
from evalstats_plugin.comparisons.judged import next_labels as next_labels
from evalstats_plugin.comparisons.leaderboard import table as table
from evalstats_plugin.comparisons.power import power as power
from evalstats_plugin.data.matrix import ResponseMatrix as ResponseMatrix
from evalstats_plugin.data.measure import Measure as Measure
from evalstats_plugin.data.measure import Scale as Scale
from evalstats_plugin.data.methods import Method as Method
from evalstats_plugin.data.responses import Group as Group
from evalstats_plugin.data.responses import Responses as Responses
from evalstats_plugin.data.responses import Source as Source
from evalstats_plugin.data.results import Results as Results
from evalstats_plugin.data.runs import ResponseSet as ResponseSet
from evalstats_plugin.data.store import ResponseStore as ResponseStore
from evalstats_plugin.hierarchical.fitting import pool as pool
from evalstats_plugin.hookspecs import hookimpl as hookimpl
from evalstats_plugin.irt.fitting import fit_irt as fit_irt
from evalstats_plugin.irt.scoring import score_models as score_models
from evalstats_plugin.logs.annotating import annotate as annotate
from evalstats_plugin.logs.annotating import strip as strip
from evalstats_plugin.logs.exporting import export as export
from evalstats_plugin.logs.reading import read as read
from evalstats_plugin.logs.reading import read_contests as read_contests
from evalstats_plugin.logs.texts import compare_items as compare_items
from evalstats_plugin.ranking.rank import rank as rank
from evalstats_plugin.report.paper import paper as paper
from evalstats_plugin.runtime.files import reporting_damage as reporting_damage
from evalstats_plugin.runtime.workers import workers as workers
from evalstats_plugin.scores.intervals import intervals as intervals
from evalstats_plugin.scores.noise import noise as noise

__version__: str

"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.data.importing import store_table as store_table
from evalstats_plugin.data.importing import write_store as write_store
from evalstats_plugin.data.matrix import ResponseMatrix as ResponseMatrix
from evalstats_plugin.data.measure import Measure as Measure
from evalstats_plugin.data.measure import Scale as Scale
from evalstats_plugin.data.methods import Method as Method
from evalstats_plugin.data.metrics import StockMetric as StockMetric
from evalstats_plugin.data.responses import Group as Group
from evalstats_plugin.data.responses import Provenance as Provenance
from evalstats_plugin.data.responses import Responses as Responses
from evalstats_plugin.data.responses import Source as Source
from evalstats_plugin.data.results import Results as Results
from evalstats_plugin.data.runs import ResponseSet as ResponseSet
from evalstats_plugin.data.store import ResponseStore as ResponseStore

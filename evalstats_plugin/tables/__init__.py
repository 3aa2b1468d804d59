"""The tables of methods: every analysis takes its own from here, and people's lists all of them."""

from evalstats_plugin.tables.clustered import CLUSTERED
from evalstats_plugin.tables.comparisons import COMPARISONS
from evalstats_plugin.tables.composites import COMPOSITE_COMPARISONS, COMPOSITES
from evalstats_plugin.tables.means import METHODS
from evalstats_plugin.tables.sequential import SEQUENTIAL
from evalstats_plugin.tables.unpaired import UNPAIRED

INTERVALS = (*METHODS, *CLUSTERED, *COMPOSITES, *SEQUENTIAL)
"""Of one score."""

PAIRED = (*COMPARISONS, *COMPOSITE_COMPARISONS)
"""Of two models on the same items."""

__all__ = ["INTERVALS", "PAIRED", "UNPAIRED"]

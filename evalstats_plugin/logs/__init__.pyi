"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.logs.annotating import annotate as annotate
from evalstats_plugin.logs.annotating import annotate_results as annotate_results
from evalstats_plugin.logs.annotating import strip as strip
from evalstats_plugin.logs.exporting import export as export
from evalstats_plugin.logs.reading import check as check
from evalstats_plugin.logs.reading import read as read
from evalstats_plugin.logs.reading import read_contests as read_contests

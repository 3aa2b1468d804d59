"""Public names, which load on first use: `runtime.lazy.public_names` reads this list."""

from evalstats_plugin.report.figures import FIGURES as FIGURES
from evalstats_plugin.report.figures import draw as draw

"""The tables of methods: every analysis takes its own from here, and people's lists all of them."""

from collections.abc import Mapping

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.methods import Method
from evalstats_plugin.tables.clustered import CLUSTERED
from evalstats_plugin.tables.comparisons import COMPARISONS
from evalstats_plugin.tables.composites import COMPOSITE_COMPARISONS, COMPOSITES
from evalstats_plugin.tables.means import METHODS
from evalstats_plugin.tables.sequential import SEQUENTIAL
from evalstats_plugin.tables.unpaired import UNPAIRED
from evalstats_plugin.wording import no_such

INTERVALS = (*METHODS, *CLUSTERED, *COMPOSITES, *SEQUENTIAL)
"""Of one score."""

PAIRED = (*COMPARISONS, *COMPOSITE_COMPARISONS)
"""Of two models on the same items."""

_PURPOSES: Mapping[str, tuple[Method, ...]] = {
    "the interval of one score": INTERVALS,
    "models on the same items": PAIRED,
    "models on items of their own (unpaired)": UNPAIRED,
}

__all__ = ["INTERVALS", "PAIRED", "UNPAIRED", "check_name"]


def check_name(name: str, table: Mapping[str, Method]) -> None:
    """Raise `SelectionError`, with the closest names, for a method that the table does not hold."""
    if name == "auto" or name in table:
        return
    known = f"auto, {', '.join(table)}"
    for purpose, methods in _PURPOSES.items():
        if name in {method.name for method in methods}:
            msg = (
                f"method {name!r} is for {purpose}, not for what is asked here. There are: {known}"
            )
            raise SelectionError(msg)
    raise SelectionError(no_such("method", name, table, known))

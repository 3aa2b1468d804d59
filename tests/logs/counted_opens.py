"""Counts how often Python opens each file while folders are read, for test_opened_once."""

import json
import sys
from collections import Counter

if __name__ == "__main__":
    roots = tuple(sys.argv[1:])
    opens: Counter[str] = Counter()

    def count(event: str, arguments: tuple[object, ...]) -> None:
        """Count an opening of a file below the folders."""
        if event == "open" and str(arguments[0]).startswith(roots):
            opens[str(arguments[0])] += 1

    sys.addaudithook(count)
    import evalstats_plugin

    for root in roots:
        evalstats_plugin.read(root, runs="all", include_incomplete=True)
    loaded = [name for name in sys.modules if ".adapters." in name]
    sys.stdout.write(json.dumps([opens, loaded]))

"""``make bench``: run every benchmark and keep the figures."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from benchmarks import comparisons, inspect_big, intervals, irt, reading

FIGURES = Path(__file__).parent / "results" / "figures.json"


def main() -> None:
    """Run, print, keep."""
    figures = {
        "python": platform.python_version(),
        # Its memory is that of a process that has done nothing else.
        "comparisons": comparisons.run(),
        "reading": reading.run(),
        "intervals": intervals.run(),
        "irt": irt.run(),
        "inspect_big": inspect_big.run(),
    }
    text = json.dumps(figures, indent=2)
    print(text)
    FIGURES.write_text(text + "\n")


if __name__ == "__main__":
    main()

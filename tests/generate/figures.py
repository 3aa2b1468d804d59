"""Write the figures of runs anew, after a change of results that is wanted.

python tests/generate/figures.py [SET ...]
"""

from __future__ import annotations

import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("figures", "data", "adversary", "validation")]

from figures import KEPT, figures_of, keep  # noqa: E402


def main(names: list[str]) -> None:
    """Run every run of the sets."""
    warnings.simplefilter("error")
    for name in names or sorted(path.stem for path in KEPT.glob("*.json")):
        told = {}
        for run, what in import_module(f"test_figures_of_{name}").RUNS.items():
            start = time.process_time()
            told[run] = figures_of(what)
            print(f"{time.process_time() - start:5.2f} s  {name}: {run}", flush=True)
        keep(name, told)


if __name__ == "__main__":
    main(sys.argv[1:])

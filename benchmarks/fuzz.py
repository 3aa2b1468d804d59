"""Damages files for every reader, many times: coverage-guided where atheris is installed.

``python -m benchmarks.fuzz [INPUTS] [READER...]`` tries so many inputs on each reader and keeps
the figures; of some readers, beside those of the others. atheris goes beside the other peers::

    pip install --no-deps --target .venv-bench/atheris atheris

An input is a string of bytes that steers `damage` in ``tests/robustness``, so that the fuzzer
learns which damage leads where. What is none of our errors, hangs or eats memory ends the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIGURES = Path(__file__).parent / "results" / "fuzz.json"
PEERS = ROOT / ".venv-bench" / "atheris"
INPUTS = 3_000
SLOW = 30
"""Of readers that load Inspect's own, so many times fewer."""
_INSTRUMENTED = (
    "adapters.inspect_ai.reader", "adapters.lm_eval.reader", "logs.annotating", "logs.reading",
    "ranking.contests.fullrank", "ranking.judging.session",
)  # fmt: skip
_LONGEST = 64
_SECONDS = 10
_MEGABYTES = 2_048

sys.path[:0] = [str(ROOT / "tests" / "robustness"), str(ROOT / "tests" / "cli"), str(PEERS)]


def try_one_reader(name: str, inputs: str, told: str) -> None:
    """Try inputs on one reader, in a process of its own, and tell what came of them."""
    import atheris

    with atheris.instrument_imports(include=["evalstats_plugin"]):
        for module in _INSTRUMENTED:
            import_module(f"evalstats_plugin.{module}")
    from damage import Choices, damaged
    from readers import READERS, outcome

    reader = READERS[name]
    folder = Path(tempfile.mkdtemp())
    path = reader.make(folder)
    good = path.read_bytes()
    seen: Counter[str] = Counter()
    start = time.process_time()

    def one_input(data: bytes) -> None:
        path.write_bytes(damaged(good, Choices(data), reader.damage))
        seen[outcome(reader, path)] += 1
        if seen.total() == int(inputs):
            seconds = round(time.process_time() - start, 1)
            Path(told).write_text(json.dumps({**seen, "seconds": seconds}))

    options = [f"-runs={inputs}", f"-max_len={_LONGEST}", f"-timeout={_SECONDS}", "-seed=1"]
    options += [f"-rss_limit_mb={_MEGABYTES}", "-len_control=0", f"-artifact_prefix={folder}/"]
    atheris.Setup([sys.argv[0], *options], one_input)
    atheris.Fuzz()


def run(inputs: int, names: list[str]) -> dict[str, Any]:
    """Return what came of so many inputs for each reader."""
    figures: dict[str, Any] = {}
    for name in names:
        n = max(inputs // (SLOW if "Inspect" in name else 1), 50)
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder) / "told.json"
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.fuzz", "--one", name, str(n), told],
                capture_output=True,
                text=True,
                check=False,
                cwd=ROOT,
            )
            if told.exists():
                figures[name] = json.loads(told.read_text())
            else:
                figures[name] = {"problem": (done.stdout + done.stderr)[-2000:]}
        print(name, figures[name], flush=True)
    return figures


def main() -> None:
    """Try every reader, or those named."""
    from readers import READERS

    arguments = sys.argv[1:]
    if arguments[:1] == ["--one"]:
        try_one_reader(*arguments[1:])
        return
    inputs = int(arguments[0]) if arguments else INPUTS
    known = json.loads(FIGURES.read_text())["readers"] if FIGURES.exists() else {}
    figures = {**known, **run(inputs, arguments[1:] or list(READERS))}
    total = sum(sum(f.get(k, 0) for k in ("read", "refused")) for f in figures.values())
    text = json.dumps({"engine": "atheris", "inputs": total, "readers": figures}, indent=2)
    FIGURES.write_text(text + "\n")


if __name__ == "__main__":
    main()

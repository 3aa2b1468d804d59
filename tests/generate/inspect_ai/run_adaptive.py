"""Make the adaptive Inspect fixture anew: one simulated model, tested with the true item bank.

    pip install --editable ".[inspect]"
    python tests/generate/inspect_ai/run_adaptive.py [--logs fixtures/logs/inspect_ai]
    python fixtures/checksums.py --write

Apart from `generate.py`, as this runs our own code in the harness.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ABILITY = 0.3


def run(log_dir: str) -> None:
    """Test a new model on `arith` until the standard error of its ability is 0.45."""
    import answers
    import benchmark_tasks as tasks
    from inspect_ai import eval as run_eval
    from inspect_ai import task_with

    from evalstats_plugin.adapters.inspect_ai.adaptive.asking import adaptive
    from evalstats_plugin.adaptive.bank import ItemBank

    parameters = [answers.item(number) for number in range(tasks.N_ITEMS)]
    ItemBank.from_arrays(
        [a for _, a in parameters],
        [-a * b for b, a in parameters],
        item_ids=[str(number + 1) for number in range(tasks.N_ITEMS)],
        tasks="arith",
        provenance={"metrics": ["match"]},
    ).save("bank.parquet")
    answers.ABILITY["epsilon"] = ABILITY
    run_eval(
        task_with(tasks.arith(), early_stopping=adaptive("bank.parquet", stop_at=0.45)),
        model=answers.simulated("epsilon"),
        log_dir=log_dir,
        display="none",
        log_level="error",
        max_samples=tasks.N_ITEMS,
    )


def main() -> None:
    """Run in a temporary folder, with relative paths, and put the log under ``logs``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    logs = HERE.parents[2] / "fixtures" / "logs" / "inspect_ai"
    parser.add_argument("--logs", type=Path, default=logs)
    target = parser.parse_args().logs.absolute() / version("inspect_ai") / "adaptive"
    with tempfile.TemporaryDirectory() as work:
        for name in ("answers.py", "benchmark_tasks.py"):
            shutil.copy(HERE / name, work)
        os.chdir(work)
        sys.path.insert(0, work)
        run("adaptive")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree("adaptive", target)
        os.chdir(HERE)


if __name__ == "__main__":
    main()

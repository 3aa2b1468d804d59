"""Make the Inspect fixtures anew: the real harness, offline, on simulated models.

    pip install "inspect_ai==0.3.285"
    python tests/generate/inspect_ai/generate.py [--logs fixtures/logs/inspect_ai]
    python fixtures/checksums.py --write

Two minutes on two cores. The runs land under ``LOGS/<version of the installed inspect_ai>/<run>/``
and replace what is there. Everything happens in a temporary folder with relative paths, because
Inspect writes paths into its logs.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
QUESTIONS = HERE.parent / "lm_eval" / "data" / "mc.jsonl"
SOURCES = ("answers.py", "benchmark_tasks.py", "pairwise_tasks.py", "run_tasks.py")
CANCEL_AFTER_LOGGING = 3.0


def generate(work: Path, logs: Path) -> None:
    """Make every run in ``work`` and put what the harness wrote under ``logs``."""
    for name in SOURCES:
        shutil.copy(HERE / name, work)
    shutil.copy(QUESTIONS, work)
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", INSPECT_TELEMETRY="")
    command = [sys.executable, "run_tasks.py"]
    subprocess.run([*command, "main"], cwd=work, env=environment, check=True)
    cancel(subprocess.Popen([*command, "cancelled"], cwd=work, env=environment), work / "cancelled")
    target = logs / version("inspect_ai")
    for run in sorted(p for p in work.iterdir() if p.is_dir()):
        shutil.rmtree(target / run.name, ignore_errors=True)
        shutil.copytree(run, target / run.name)


def cancel(process: "subprocess.Popen[bytes]", log_dir: Path) -> None:
    """Interrupt a run once it has logged a while."""
    while not any(log_dir.glob("*.eval")):
        time.sleep(0.1)
    time.sleep(CANCEL_AFTER_LOGGING)
    process.send_signal(signal.SIGINT)
    process.wait(60)


def main() -> None:
    """Read the command line and generate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    logs = HERE.parents[2] / "fixtures" / "logs" / "inspect_ai"
    parser.add_argument("--logs", type=Path, default=logs)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        generate(Path(work), arguments.logs)


if __name__ == "__main__":
    main()

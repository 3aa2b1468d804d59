"""Make the lm-eval fixtures anew: the real harness, offline, on tiny models trained on the spot.

    pip install "lm_eval==0.4.13" "torch==2.13.0" transformers accelerate sacrebleu scikit-learn
    python tests/generate/lm_eval/generate.py [--work FOLDER] [--logs fixtures/logs/lm_eval]
    python fixtures/checksums.py --write

Ten minutes on two cores. The runs land under ``LOGS/<version of the installed lm_eval>/<run>/``
and replace what is there; models (1.6 MB) and console output stay in the work folder, a temporary
one unless ``--work`` names it. Every path handed to the harness is relative to the work folder,
because the harness writes paths into its logs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from documents import write_documents
from tiny_models import STEPS, train_models

HERE = Path(__file__).resolve().parent
BOOTSTRAP_ITERS = 1000
ALL_TASKS = (
    "es_mc,es_bin,es_multirc_like,es_gen,es_repeats,es_passk,es_repeats_nofilter,es_bleu,"
    "es_ppl,es_lambada_like,es_one,es_odd,es_group"
)
DUMMY = ("--model", "dummy")


def model(name: str, *settings: str) -> tuple[str, ...]:
    """Name a tiny model and its settings on the command line."""
    model_args = ",".join((f"pretrained=models/{name}", *settings))
    return ("--model", "hf", "--model_args", model_args, "--device", "cpu")


def full_runs() -> list[tuple[str, ...]]:
    """List two runs of every model into one folder: all tasks, then some again later."""
    settings = ("--batch_size", "16", "--seed", "1234", "--log_samples", "--output_path", "out")
    return [
        (*model(name), *settings, "--tasks", tasks)
        for name in STEPS
        for tasks in (ALL_TASKS, "es_group_unw,es_mc")
    ]


def special_runs() -> list[tuple[str, ...]]:
    """List runs that each show one thing a reader of logs can meet."""
    logged = ("--log_samples", "--output_path")
    able, middling = model("m2"), "m1"
    return [
        # No model name, hence a random folder name.
        (*DUMMY, "--tasks", "es_mc,es_gen,es_repeats,es_group", *logged, "out_dummy"),
        # An output path that is a file: no model folder and no "results_" in the name.
        (*DUMMY, "--tasks", "es_mc,es_gen", *logged, "out_file/run.json"),
        (*able, "--tasks", "es_gen,es_mc", "--predict_only", *logged, "out_predict_only"),
        (*able, "--tasks", "es_mc,es_group", "--limit", "7", *logged, "out_limit"),
        (*able, "--tasks", "es_mc", "--samples", '{"es_mc": [3, 9, 41]}', *logged, "out_samples"),
        (*able, "--tasks", "es_mc", "--output_path", "out_nosamples"),
        # A judge compares two answers, beside a task that compares nothing.
        (*DUMMY, "--tasks", "es_pairs,es_one", *logged, "out_pairs"),
        # Two models that differ in their settings only share one folder.
        (*model(middling, "dtype=float32"), "--tasks", "es_mc", *logged, "out_variant"),
        (*model(middling, "dtype=bfloat16"), "--tasks", "es_mc", *logged, "out_variant"),
    ]


def run_harness(work: Path, arguments: tuple[str, ...]) -> None:
    """Run ``lm_eval run`` in the work folder, without network and without a pool of processes."""
    environment = dict(
        os.environ,
        BOOTSTRAP_ITERS=str(BOOTSTRAP_ITERS),
        CUDA_VISIBLE_DEVICES="",
        DISABLE_MULTIPROC="1",
        HF_DATASETS_OFFLINE="1",
        HF_HOME=str(work / "hf_home"),
        HF_HUB_OFFLINE="1",
        TOKENIZERS_PARALLELISM="false",
        TRANSFORMERS_OFFLINE="1",
    )
    command = [sys.executable, str(HERE / "lm_eval_boot.py"), "run", *arguments]
    sys.stderr.write("lm_eval run " + " ".join(arguments) + "\n")
    with (work / "runs.log").open("ab") as log:
        subprocess.run(
            [*command, "--include_path", "tasks"],
            cwd=work,
            env=environment,
            stdout=log,
            stderr=log,
            check=True,
        )


def generate(work: Path, logs: Path) -> None:
    """Make every run in ``work`` and put what the harness wrote under ``logs``."""
    write_documents(HERE / "data")
    for name in ("tasks", "data"):
        shutil.copytree(
            HERE / name,
            work / name,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    train_models(work / "models")
    for stale in work.glob("out*"):
        shutil.rmtree(stale)
    for arguments in (*full_runs(), *special_runs()):
        run_harness(work, arguments)
    target = logs / version("lm_eval")
    for run in sorted(work.glob("out*")):
        shutil.rmtree(target / run.name, ignore_errors=True)
        shutil.copytree(run, target / run.name)


def main() -> None:
    """Read the command line and generate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder for models and console output, kept")
    logs = HERE.parents[2] / "fixtures" / "logs" / "lm_eval"
    parser.add_argument("--logs", type=Path, default=logs)
    arguments = parser.parse_args()
    if arguments.work is not None:
        arguments.work.mkdir(parents=True, exist_ok=True)
        generate(arguments.work.resolve(), arguments.logs)
        return
    with tempfile.TemporaryDirectory() as work:
        generate(Path(work), arguments.logs)


if __name__ == "__main__":
    main()

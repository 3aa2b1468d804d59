"""Make fixtures/logs/opencompass: results of two simulated models, laid out by OpenCompass.

    python tests/generate/opencompass/generate.py CLONE

CLONE is a checkout of github.com/open-compass/opencompass: its `BaseEvaluator` adds up, and lays
out the details of, sums that GSM8K's rule scores. One data set is asked once, one in four runs.
"""

import importlib.util
import json
import random
import sys
import types
from pathlib import Path

from datasets import Dataset

FOLDER = Path(__file__).parents[3] / "fixtures" / "logs" / "opencompass" / "a5acc4b"
MODELS = {"tiny-a-hf": 0.8, "tiny-b-hf": 0.4}
TASKS = {"sums": 1, "sums_n4": 4}
N = 15


def base_evaluator(clone):
    """Load one file of OpenCompass, without the rest and what that needs."""
    registry, logging = types.ModuleType("registry"), types.ModuleType("logging")
    registry.TEXT_POSTPROCESSORS = {}
    logging.get_logger = lambda _: types.SimpleNamespace(info=print)
    sys.modules |= {
        "opencompass": types.ModuleType("opencompass"), "opencompass.registry": registry,
        "opencompass.utils": types.ModuleType("utils"), "opencompass.utils.logging": logging,
    }  # fmt: skip
    file = Path(clone) / "opencompass" / "openicl" / "icl_evaluator" / "icl_base_evaluator.py"
    spec = importlib.util.spec_from_file_location("icl_base_evaluator", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BaseEvaluator


def main(clone):
    class Sums(base_evaluator(clone)):
        def score(self, predictions, references):
            pairs = list(zip(predictions, references, strict=True))
            details = [{"pred": p, "answer": r, "correct": p == r} for p, r in pairs]
            return {
                "accuracy": 100 * sum(p == r for p, r in pairs) / len(pairs),
                "details": details,
            }

    for model, ability in MODELS.items():
        rng = random.Random(ability)
        for task, n in TASKS.items():
            rows = [{"subdivision": task.replace("_", "-"), "idx": k} for k in range(N)] * n
            right = [str(3 * row["idx"] + 7) for row in rows]
            given = [r if rng.random() < ability else f"{r}0" for r in right]
            result = Sums().evaluate(
                1, n, Dataset.from_list(rows), predictions=given, references=right
            )
            file = FOLDER / "results" / model / f"{task}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(result, ensure_ascii=False, indent=4))


if __name__ == "__main__":
    main(*sys.argv[1:])

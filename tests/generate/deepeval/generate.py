"""Make fixtures/logs/deepeval: test runs that DeepEval wrote of two simulated models.

    cd EMPTY_FOLDER && python tests/generate/deepeval/generate.py

Needs deepeval 4.3.1, and asks no model: the metrics compare numbers, and one fails on one answer.
"""

import os
import random
import shutil
from pathlib import Path

os.environ |= {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "DEEPEVAL_DISABLE_DOTENV": "1"}

import deepeval
from deepeval import evaluate
from deepeval.evaluate import AsyncConfig, DisplayConfig, ErrorConfig
from deepeval.metrics import BaseMetric
from deepeval.test_case import LLMTestCase

FOLDER = Path(__file__).parents[3] / "fixtures" / "logs" / "deepeval" / deepeval.__version__
MODELS = {"tiny-a": 2, "tiny-b": 6}


class Closeness(BaseMetric):
    async_mode = False

    def __init__(self, name, threshold, scale):
        self.title, self.threshold, self.scale = name, threshold, scale

    def measure(self, test_case, *_args, **_kwargs):
        given, expected = float(test_case.actual_output), float(test_case.expected_output)
        if self.scale > 9 and given == expected + 5:
            raise ValueError("the judge gave no score")
        self.score = round(max(0.0, 1 - abs(given - expected) / self.scale), 3)
        self.success = self.score >= self.threshold
        self.reason = "distance from the expected number"
        return self.score

    async def a_measure(self, test_case, *_args, **_kwargs):
        return self.measure(test_case)

    def is_successful(self):
        return bool(self.success)

    @property
    def __name__(self):
        return self.title


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for model, spread in MODELS.items():
        rng = random.Random(spread)
        cases = []
        for k in range(10):
            error = 5 if k == 7 else rng.randint(-spread, spread)
            case = LLMTestCase(
                input=f"What is {k} + 4?",
                actual_output=str(k + 4 + error),
                expected_output=str(k + 4),
            )
            case._dataset_alias = "sums"  # as of a data set that Confident AI keeps
            cases.append(case)
        evaluate(
            cases, [Closeness("Exactness", 1.0, 1), Closeness("Closeness", 0.7, 10)],
            hyperparameters={"model": model},
            async_config=AsyncConfig(run_async=False),
            error_config=ErrorConfig(ignore_errors=True),
            display_config=DisplayConfig(show_indicator=False),
        )  # fmt: skip
        shutil.copy(".deepeval/.latest_run_full.json", FOLDER / f"test_run_{model}.json")


if __name__ == "__main__":
    main()

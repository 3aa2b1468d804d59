"""Make fixtures/logs/simple_evals: simple-evals' own GPQA evaluation of two simulated models.

    python tests/generate/simple_evals/generate.py CLONE

CLONE is a checkout of github.com/openai/simple-evals, in a folder whose name Python can import
(simple_evals); its evaluation class asks, scores and adds up, and the result is written as its
command does. The questions are sums, asked three times each, in place of GPQA's, which ask not to
be published in plain text. One model has a system message.
"""

import importlib
import json
import random
import re
import sys
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parents[3] / "fixtures" / "logs" / "simple_evals" / "ee3b031"
MODELS = {"tiny_a": (0.8, ""), "tiny-b": (0.5, "You are a helpful assistant.")}
N, REPEATS, DATE = 12, 3, "20261128_010203"


def frame(*_args):
    rng = random.Random(1)
    rows = []
    for _ in range(N):
        a, b = rng.randrange(10, 99), rng.randrange(10, 99)
        wrong = {f"Incorrect Answer {k}": str(a + b + k) for k in (1, 2, 3)}
        rows.append({"Question": f"What is {a} + {b}?", "Correct Answer": str(a + b), **wrong})
    return pd.DataFrame(rows)


class Sampler:
    def __init__(self, types, ability, system):
        self.types, self.ability, self.system = types, ability, system
        self.rng = random.Random(ability)

    def _pack_message(self, role, content):
        return {"role": role, "content": content}

    def __call__(self, messages):
        text = messages[-1]["content"]
        a, b = map(int, re.search(r"What is (\d+) \+ (\d+)", text).groups())
        answer = a + b + (0 if self.rng.random() < self.ability else 1)
        letter = re.search(rf"([A-D])\) {answer}$", text, re.MULTILINE)[1]
        before = [self._pack_message("system", self.system)] if self.system else []
        reply = f"<p>Score: 1.0</p> is no score but a reply.\nAnswer: {letter}"
        return self.types.SamplerResponse(reply, [*before, *messages], {})


def main(clone):
    sys.path.insert(0, str(Path(clone).resolve().parent))
    package = Path(clone).name
    types = importlib.import_module(f"{package}.types")
    gpqa = importlib.import_module(f"{package}.gpqa_eval")
    common = importlib.import_module(f"{package}.common")
    common.map_with_progress = lambda function, rows: list(map(function, rows))
    gpqa.pandas = type("OfSums", (), {"read_csv": staticmethod(frame)})
    FOLDER.mkdir(parents=True, exist_ok=True)
    for model, (ability, system) in MODELS.items():
        result = gpqa.GPQAEval(n_repeats=REPEATS)(Sampler(types, ability, system))
        whole = {name: getattr(result, name) for name in
                 ("score", "metrics", "htmls", "convos", "metadata")}  # fmt: skip
        name = f"gpqa_{model}_{DATE}_allresults.json"
        (FOLDER / name).write_text(json.dumps(whole, indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:])

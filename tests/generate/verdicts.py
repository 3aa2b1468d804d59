"""Make fixtures/data/judged/verdicts.csv: two judges of three models' answers, people's of a part.

    python tests/generate/verdicts.py

Simulated: one judge prefers length and is lenient, the other errs at random in one of five answers;
people looked at 60 of 200 items, drawn at random.
"""

import csv
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[2] / "fixtures" / "data" / "judged" / "verdicts.csv"
MODELS = {"llama-3-8b": 0.2, "qwen-2.5-72b": 1.2, "gemma-2-9b": 0.4}
N, LABELLED = 200, 60


def main():
    rng = np.random.default_rng(40)
    item = rng.normal(size=N)
    seen = np.isin(np.arange(N), rng.choice(N, LABELLED, replace=False))
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with FILE.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["model", "task", "item", "gpt", "claude", "label", "length"])
        for model, ability in MODELS.items():
            latent = ability + item + rng.normal(size=N)
            length = rng.normal(size=N)
            gpt = latent + 0.3 + 0.7 * length + 0.5 * rng.normal(size=N) > 0
            claude = (latent > 0) ^ (rng.random(N) < 0.2)
            for j in range(N):
                label = int(latent[j] > 0) if seen[j] else ""
                characters = round(float(np.exp(6 + 0.4 * length[j])))
                rows.writerow([model, "chat", j, int(gpt[j]), int(claude[j]), label, characters])


if __name__ == "__main__":
    main()

"""Make fixtures/data/digits: which of 797 handwritten digits each of 150 classifiers reads rightly.

``python tests/generate/digits/generate.py`` (from the root; scikit-learn 1.9). The digits are
scikit-learn's copy of the UCI test set of Alpaydin and Kaynak (1998), CC BY 4.0: the first 1,000
train, the others are the items. Classifiers differ in kind, in how many digits they saw and in how
many of their labels were changed, so that they range from guessing to nearly perfect, as in the
exercise on machine response patterns of the AIMS chapter on item response theory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

OUT = Path("fixtures/data/digits/responses.npz")
N_TRAIN = 1000
KINDS: dict[str, Any] = {
    "nearest": lambda seed: KNeighborsClassifier(1 + 2 * (seed % 4)),
    "tree": lambda seed: DecisionTreeClassifier(max_depth=3 + seed % 10, random_state=seed),
    "forest": lambda seed: RandomForestClassifier(10, random_state=seed),
    "logistic": lambda seed: LogisticRegression(C=10.0 ** (seed % 4 - 3), max_iter=200),
    "bayes": lambda _: GaussianNB(var_smoothing=0.05),
    "vectors": lambda seed: SVC(C=10.0 ** (seed % 3 - 1)),
}


def main() -> None:
    """Train the classifiers, and write who was right."""
    pixels, digit = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    names, right = list[str](), list[np.ndarray]()
    for seed in range(150):
        kind = list(KINDS)[seed % len(KINDS)]
        n = int(np.exp(rng.uniform(np.log(30), np.log(N_TRAIN))))
        changed = rng.choice((0.0, 0.0, 0.2, 0.5))
        rows = rng.choice(N_TRAIN, n, replace=False)
        labels = np.where(rng.random(n) < changed, rng.integers(0, 10, n), digit[rows])
        model = KINDS[kind](seed).fit(pixels[rows] / 16, labels)
        names.append(
            f"{kind}-{n}" + (f"-{changed:.0%}-wrong-labels" if changed else "") + f"-{seed}"
        )
        right.append(model.predict(pixels[N_TRAIN:] / 16) == digit[N_TRAIN:])
    OUT.parent.mkdir(exist_ok=True)
    np.savez_compressed(OUT, models=np.array(names), right=np.packbits(np.array(right), axis=1))


if __name__ == "__main__":
    main()

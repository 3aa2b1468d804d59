"""Print the generating vector of the lattice points in ranking/thurstone/exact.py.

Component by component: the next component is the odd number for which the worst-case error in the
weighted Sobolev space of smoothness 1 (shift-averaged) has the smallest geometric mean over all
numbers of points from 2**7 to 2**16 (an embedded lattice rule; Cools, Kuo and Nuyens 2006,
doi:10.1137/06065074X). Run from the repository:

    python tests/generate/ranking/lattice.py
"""

from __future__ import annotations

import numpy as np

DIMENSIONS, LEAST, MOST, TRIED = 30, 7, 16, 800


def main() -> None:
    size = 2**MOST
    at = np.arange(size) / size
    kernel = at * at - at + 1 / 6
    places, rng = np.arange(size), np.random.default_rng(1)
    levels = [places[:: 2 ** (MOST - m)] for m in range(LEAST, MOST + 1)]
    product, vector = np.ones(size), []
    for dimension in range(1, DIMENSIONS + 1):
        weight = 1 / dimension
        candidates = [1] if dimension == 1 else rng.choice(size // 2, TRIED, replace=False) * 2 + 1
        best: tuple[float, int, np.ndarray] | None = None
        for z in candidates:
            tried = product * (1 + weight * kernel[places * int(z) % size])
            worst = float(np.mean([np.log(tried[level].mean() - 1) for level in levels]))
            if best is None or worst < best[0]:
                best = (worst, int(z), tried)
        assert best is not None
        vector.append(best[1])
        product = best[2]
        print(dimension, best[1], f"{np.exp(best[0]):.3g}", flush=True)
    print(tuple(vector))


if __name__ == "__main__":
    main()

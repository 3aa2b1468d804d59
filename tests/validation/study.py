"""What the validation studies share: streams, rows of coverage, and how figures are written."""

import json
from pathlib import Path

import numpy as np

from evalstats_plugin.stats.clustered import by_cluster
from evalstats_plugin.stats.pairs.differences import Differences
from evalstats_plugin.stats.pairs.simultaneous import AllPairs, Units
from evalstats_plugin.stats.streams import child, stream

FOLDER = Path(__file__).parents[2] / "fixtures" / "validation"


class Streams:
    """Random streams of a study, each for what its name says.

    A name that was given before is refused: data, and what is drawn of them, would be made by the
    same numbers. A stream does not depend on which others there are, so that a study can be
    extended, or cut in pieces, without a change to what it had.

    >>> streams = Streams("coverage of means")
    >>> bool(streams("scores").random() == streams("resamples").random())
    False
    """

    def __init__(self, study, seed=0):
        self._root, self._given = stream(seed, study), set()

    def __call__(self, *name):
        key = " / ".join(map(str, name))
        if key in self._given:
            raise ValueError(f"stream {key!r} was given before: name what else is drawn")
        self._given.add(key)
        return child(self._root, key)


def holds(low, high, truth):
    """Whether limits hold the truth; NaN limits hold nothing."""
    return (low <= truth + 1e-12) & (truth - 1e-12 <= high)


def all_pairs(scores, a, b, *, clusters=None, span=1.0, n_draws=999):
    """Pairs of models judged at once, of scores of shape (N, M), NaN where one is missing."""
    numbers = np.arange(scores.shape[1]) if clusters is None else clusters

    def rows(which):
        x = scores[b[which]] - scores[a[which]]
        seen = ~np.isnan(x)
        return by_cluster(np.where(seen, x, 0.0), numbers), by_cluster(seen * 1.0, numbers)

    x, sizes = rows(np.arange(len(a)))
    alone = Differences(x, sizes=None if (sizes == 1).all() else sizes, span=span)
    sums = by_cluster(np.nan_to_num(scores), numbers)
    whole = by_cluster(np.ones(scores.shape[1]), numbers)
    units = Units(sums, whole, rows if np.isnan(scores).any() else None)
    return AllPairs(alone, units, a, b, n_draws=n_draws)


def coverage_row(case, method, limits, truth, bounds=(-np.inf, np.inf)):
    """Simulated coverage of one method in one case, and the mean width within the bounds."""
    low, high = np.asarray(limits[0]), np.asarray(limits[1])
    coverage = float(np.mean(holds(low, high, truth)))
    width = np.clip(high, *bounds) - np.clip(low, *bounds)
    defined = np.isfinite(width)
    return case | {
        "method": method,
        "coverage": coverage,
        "std_error": float(np.sqrt(coverage * (1 - coverage) / len(width))),
        "width": float(width[defined].mean()) if defined.any() else None,
    }


def undefined(limits):
    """Share of limits that are not there, to be added to a row."""
    width = np.asarray(limits[1]) - np.asarray(limits[0])
    return {"undefined": float(1 - np.isfinite(width).mean())}


def rounded(value, digits=4):
    """Round whatever floats a row holds."""
    if isinstance(value, dict):
        return {key: rounded(one, digits) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one, digits) for one in value]
    return round(float(value), digits) if isinstance(value, float) else value


def write_figures(name, sections, digits=4):
    """Write rows by section, a line each, without dates: the file changes only when a method does.

    Sections are functions that give rows.
    """
    figures = {section: rounded(rows(), digits) for section, rows in sections.items()}
    lines = [
        f'"{section}": [\n'
        + ",\n".join(json.dumps(one, ensure_ascii=False) for one in rows)
        + "\n]"
        for section, rows in figures.items()
    ]
    file = FOLDER / f"{name}.json"
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert figures == json.loads(file.read_text("utf-8"))


def zero_one_or_between(rng, shape):
    """Partial credit as in LiveBench: 40% zeros, 35% ones."""
    kind = rng.uniform(size=shape)
    return np.where(kind < 0.4, 0.0, np.where(kind < 0.75, 1.0, rng.uniform(size=shape)))


# Name: how to draw scores of a shape, and their true mean.
BOUNDED_SCORES = {
    "Beta(2, 5)": (lambda rng, shape: rng.beta(2, 5, shape), 2 / 7),
    "40% at 0, 35% at 1, rest uniform": (zero_one_or_between, 0.475),
    "means of 4 epochs": (
        lambda rng, shape: rng.binomial(4, rng.beta(1.2, 0.3, shape)) / 4,
        0.8,
    ),
    "90% at 1, rest below 0.5": (
        lambda rng, shape: np.where(rng.uniform(size=shape) < 0.9, 1, rng.uniform(0, 0.5, shape)),
        0.925,
    ),
    "97% at 1, 3% at 0": (lambda rng, shape: 1.0 * (rng.uniform(size=shape) < 0.97), 0.97),
    "95% at 0.1, 5% at 1": (
        lambda rng, shape: np.where(rng.uniform(size=shape) < 0.95, 0.1, 1.0),
        0.145,
    ),
}

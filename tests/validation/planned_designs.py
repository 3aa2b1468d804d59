"""Power that `power` promises from a large pilot, and power that is reached, of drawn designs.

A pilot is drawn from a design of `random_designs`; comparisons of fresh items, clusters, tasks are
judged as `compare` judges them. The difference that is planned for is that of the comparisons.
"""

import numpy as np
import random_designs
import study
from scipy import special

import evalstats_plugin as es
from evalstats_plugin.comparisons import PowerDesign
from evalstats_plugin.stats.pairs.differences import Differences
from evalstats_plugin.stats.sequential import log_capital

Z = float(special.ndtri(0.975))
KINDS = (
    "items", "clusters", "fewer epochs", "more epochs", "fixed tasks", "random tasks",
    "non-inferiority", "sequential",
)  # fmt: skip


def promised_and_reached(seed, *, pilot=20_000, runs=4000):
    """Return the row of one design."""
    kind = KINDS[seed % len(KINDS)]
    made = random_designs.design(seed)
    rng = study.Streams("promised and reached")(seed)
    n = int(rng.choice([12, 20, 50, 120]))
    function = {
        "items": _items, "clusters": _clusters, "fewer epochs": _epochs, "more epochs": _epochs,
        "fixed tasks": _fixed, "random tasks": _random, "non-inferiority": _non_inferior,
        "sequential": _sequential,
    }[kind]  # fmt: skip
    more = {"own": 4, "planned": 1} if kind == "fewer epochs" else {"own": 2, "planned": 6}
    row = function(made, n, rng, pilot, runs, **(more if "epochs" in kind else {}))
    off = abs(row["promised"] - row["reached"])
    return {"design": seed, "kind": kind, "scores": made.kind, "pilot": pilot} | row | {"off": off}


def _row(rows, n, found, **more):
    (row,) = (one for one in rows if one.quantity == "power")
    return more | {"n": n, "promised": row.power, "reached": float(np.mean(found)),
                   "method": row.method}  # fmt: skip


def _pilot(a, b, clusters=None, task="t"):
    """Responses of two models."""
    scores = np.stack([a, b])
    matrix = es.ResponseMatrix.from_array(scores, models=["a", "b"], clusters=clusters)
    return [r.measured(task=task) for r in matrix.to_responses()]


def _finds(x, sizes=None):
    return np.abs(Differences(x, sizes=sizes, span=1.0).deviate) >= Z


def _items(made, n, rng, pilot, runs):
    shift = made.shift_for(n)
    a, b = made.pair(runs * n, rng, shift=shift)
    known = _pilot(*made.pair(pilot, rng, shift=shift))
    rows = es.power(known, difference=float((b - a).mean()), n_items=n)
    return _row(rows, n, _finds((b - a).reshape(runs, n)))


def _clusters(made, n, rng, pilot, runs):
    size, n = made.cluster_size, max(n // 2, 8)
    shift = made.shift_for(n * size)
    a, b = made.pair(pilot // 2, rng, shift=shift, clustered=True)
    names = np.repeat(np.arange(pilot // 2), size).astype(str)
    known = _pilot(a.ravel(), b.ravel(), names)
    a, b = made.pair(runs * n, rng, shift=shift, clustered=True)
    rows = es.power(known, difference=float((b - a).mean()), n_items=n * size)
    sums = (b - a).sum(axis=1).reshape(runs, n)
    return _row(rows, n, _finds(sums, np.full(sums.shape, float(size))), size=size)


def _epochs(made, n, rng, pilot, runs, own, planned):
    shift = made.shift_for(n) * (0.7 if planned < own else 0.4)
    known = _pilot(*made.answers(pilot, rng, shift=shift, epochs=own))
    a, b = made.pair(runs * n, rng, shift=shift, epochs=planned)
    rows = es.power(known, difference=float((b - a).mean()), n_items=n, n_epochs=planned)
    return _row(rows, n, _finds((b - a).reshape(runs, n)), own=own, epochs=planned)


def _fixed(made, n, rng, pilot, runs):
    shifts = made.shift_for(3 * n) * np.array([0.5, 1.0, 1.5])
    known, parts = [], []
    for task, shift in enumerate(shifts):
        known += _pilot(*made.pair(pilot, rng, shift=shift), task=f"t{task}")
        a, b = made.pair(runs * n, rng, shift=shift)
        parts.append((b - a).reshape(runs, n))
    rows = es.power(known, difference=float(np.mean(parts)), n_items=n,
                    design=PowerDesign(tasks="fixed"))  # fmt: skip
    whole = np.mean([x.mean(axis=1) for x in parts], axis=0)[:, None]
    rest = [(x - x.mean(axis=1, keepdims=True)) * np.sqrt(n / (n - 1)) for x in parts]
    return _row(rows, n, _finds(np.concatenate([whole + x for x in rest], axis=1)), tasks=3)


def _random(made, n, rng, pilot, runs):
    tasks, each, runs, n = pilot // 10, 30, runs // 2, min(n, 20)
    shift = made.shift_for(20 * n)

    def scores(count, n_items):
        """Scores of both models, by task."""
        apart = np.repeat(shift * rng.uniform(-2, 4, count), n_items)
        return [x.reshape(count, n_items) for x in made.pair(count * n_items, rng, shift=apart)]

    a, b = scores(tasks, each)
    known = [r for task, pair in enumerate(zip(a, b, strict=True))
             for r in _pilot(*pair, task=f"t{task}")]  # fmt: skip
    a, b = scores(40_000, n)
    rows = es.power(known, difference=float((b - a).mean()), n_items=n,
                    design=PowerDesign(tasks="random"))  # fmt: skip
    (row,) = (one for one in rows if one.quantity == "n_tasks")
    runs = min(runs, 200_000 // row.n_tasks)
    a, b = scores(runs * row.n_tasks, n)
    found = _finds((b - a).mean(axis=1).reshape(runs, row.n_tasks))
    return {"items": n, "n": row.n_tasks, "promised": row.power, "reached": float(found.mean()),
            "method": row.method}  # fmt: skip


def _non_inferior(made, n, rng, pilot, runs):
    a, b = made.pair(pilot, rng)
    margin = float(2.9 * (b - a).std() / np.sqrt(n))
    known = _pilot(a, b)
    a, b = made.pair(runs * n, rng)
    rows = es.power(known, difference=float((b - a).mean()), n_items=n,
                    design=PowerDesign(margin=margin))  # fmt: skip
    low, _ = Differences((b - a).reshape(runs, n), span=1.0).one_more(Z)
    return _row(rows, n, np.nan_to_num(low, nan=-np.inf) > -margin, margin=margin)


def _sequential(_, n, rng, pilot, runs):
    n = 4 * n
    up, down = (float(x) for x in rng.uniform([0.15, 0.03], [0.3, 0.1]))
    drawn = rng.choice([-1, 0, 1], p=[down, 1 - up - down, up], size=pilot)
    rows = es.power(_pilot((drawn < 0) * 1.0, (drawn > 0) * 1.0), difference=up - down,
                    n_items=n, design=PowerDesign(look_every=10))  # fmt: skip
    d = rng.choice([-1, 0, 1], p=[down, 1 - up - down, up], size=(runs, n))
    looks = np.arange(10, n + 1, 10) - 1
    wins = (d > 0).cumsum(axis=1)[:, looks] * 1.0
    won = log_capital(wins, wins + (d < 0).cumsum(axis=1)[:, looks])
    return _row(rows, n, (won >= np.log(20)).any(axis=1)) | {"look_every": 10}

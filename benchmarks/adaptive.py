"""How long the step from one answer to the next items takes in an adaptive test.

``python -m benchmarks.adaptive``. A bank of 50,000 items in six tasks,
100 steps each. A step is `record` for every item of the last batch, and `next`; its time is of the
processor, so that whatever else the machine does is left out. Where `score` is said, every answer
is followed by the score predicted on all items, which otherwise is computed when it is asked for.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import keep
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.selection import RULE_NAMES
from evalstats_plugin.adaptive.session import AdaptiveSession

ITEMS = 50_000
STEPS = 100
BATCH = 16
FEWER = 10
"""Steps with batches: 160 items as well."""
WAYS = ((1, False, False), (1, True, False), (BATCH, False, False), (1, False, True))
"""Size of a batch, balance, and whether the full score is asked for at every step."""


def main() -> None:
    """Run, print, keep."""
    keep("adaptive", run(), items=ITEMS)


def run() -> list[dict[str, Any]]:
    """Time every rule: item by item, balanced over tasks, and in batches."""
    bank, right = world()
    rows: list[dict[str, Any]] = []
    for rule in RULE_NAMES:
        for batch, balance, score in WAYS:
            seconds = timed(bank, right, score=score, rule=rule, batch=batch, balance=balance)
            per_item = 1000 * seconds / batch
            row = {
                "rule": rule,
                "batch": batch,
                "balanced": balance,
                "score": score,
                "median_ms_per_item": round(float(np.median(per_item)), 2),
                "worst_ms_per_item": round(float(per_item.max()), 2),
            }
            print(json.dumps(row), flush=True)
            rows.append(row)
    return rows


def world() -> tuple[ItemBank, NDArray[np.float64]]:
    """Draw a bank, and the answers of one model."""
    rng = np.random.default_rng(20261121)
    a, b = np.exp(0.4 * rng.normal(size=ITEMS)), rng.normal(size=ITEMS)
    bank = ItemBank.from_arrays(
        a,
        -a * b,
        tasks=[f"task_{k % 6}" for k in range(ITEMS)],
        item_covariance=np.tile(0.05 * np.eye(2), (ITEMS, 1, 1)),
    )
    p = 1 / (1 + np.exp(-(a * (0.5 - b))))
    return bank, (rng.random(ITEMS) < p).astype(np.float64)


def timed(
    bank: ItemBank, right: NDArray[np.float64], *, score: bool, **settings: Any
) -> NDArray[np.float64]:
    """Processor seconds of each step."""
    session = AdaptiveSession(bank, rng=1, **settings)
    places = session.next()
    seconds = list[float]()
    for _ in range(STEPS if settings["batch"] == 1 else FEWER):
        began = time.process_time()
        for place in places.tolist():
            session.record(place, right[place])
            if score:
                session.full_score()
        places = session.next()
        seconds.append(time.process_time() - began)
    return np.array(seconds)


if __name__ == "__main__":
    main()

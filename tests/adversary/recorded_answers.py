"""What the package answers to every question about evaluations drawn at random.

Studies (`make validate`) measured that these numbers hold; they are too long for every change.
`fixtures/golden/recorded.json` keeps the answers of the code that was studied, so that
`test_recorded` notices where later code answers otherwise. Where it should, a study is to be run
again first, then `python tests/generate/recorded.py`.

* `drawn`: evaluations by a seed
* `QUESTIONS`, `SLOW`: name → what is asked; `questions`: those about one evaluation
* `recorded`: an answer, each field in two numbers
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

import evalstats_plugin as es
from evalstats_plugin import irt
from evalstats_plugin.comparisons import PowerDesign
from evalstats_plugin.comparisons.methods import PAIRED, UNPAIRED
from evalstats_plugin.errors import EvalStatsError
from evalstats_plugin.scores.methods import CLUSTERED, METHODS

Question = Callable[["es.ResponseSet"], Any]

SEEDS = range(9)
SIGNIFICANT = 9
"""Digits kept of each number."""
MOST_SLOW = 90
"""Answers up to which slow questions are asked."""


def drawn(seed: int) -> pd.DataFrame:
    """Scores of some models on some tasks, in long form."""
    random = np.random.default_rng([20261128, seed])
    n_models, n_tasks = int(random.integers(2, 5)), 1 + seed // 2 % 2
    kind = random.choice(["right or wrong", "right or wrong", "grid", "continuous"])
    n_epochs = int(random.choice([1, 1, 1, 3]))
    clustered, missing = bool(seed % 2), random.choice([0.0, 0.0, 0.08])
    able = random.normal(0.4, 0.8, n_models)
    rows = list[pd.DataFrame]()
    for t in range(n_tasks):
        n = int(np.exp(random.uniform(np.log(5), np.log(40))))
        group = np.sort(random.integers(0, max(n // 4, 2), n))
        hard = random.normal(0, 1.1, n) + clustered * random.normal(0, 0.8, n)[group]
        logit = able[:, None, None] - hard[:, None] + random.normal(0, 0.4, (n_models, n, n_epochs))
        chance = 1 / (1 + np.exp(-logit))
        score = {
            "right or wrong": random.random(chance.shape) < chance,
            "grid": random.binomial(4, chance) / 4,
            "continuous": np.clip(chance + random.normal(0, 0.1, chance.shape), 0, 1).round(4),
        }[str(kind)]
        at = np.indices(chance.shape).reshape(3, -1)
        rows.append(
            pd.DataFrame(
                {
                    "model": [f"model {i}" for i in at[0]],
                    "task": f"task {t}",
                    "item": [f"item {j}" for j in at[1]],
                    "epoch": at[2],
                    "score": score.ravel().astype(np.float64),
                    **({"cluster": [f"passage {g}" for g in group[at[1]]]} if clustered else {}),
                }
            )
        )
    whole = pd.concat(rows, ignore_index=True)
    return whole[random.random(len(whole)) >= missing]


def _gate(data: es.ResponseSet, **asked: Any) -> Any:
    return es.gate(data, baseline=_first(data), **asked)


def _first(data: es.ResponseSet) -> str:
    return data.responses[0].model


def _fit(data: es.ResponseSet, item_model: str, **asked: Any) -> Any:
    fit = irt.fit_irt(data, item_model, rng=0, **asked)
    return [fit.to_dict() | {"diagnostics": {}}, fit.abilities(), fit.items()]


def _judged(data: es.ResponseSet, **asked: Any) -> Any:
    return es.judge(_labelled(data), judge="judge", human="people", **asked)


def _labelled(data: es.ResponseSet) -> es.ResponseSet:
    """What people say of two models' answers, half of the time, and what a judge says."""
    matrix = np.nan_to_num(data.matrix().scores, nan=0.5).mean(axis=2)
    people, judge = matrix[0].copy(), np.clip(0.8 * matrix[0] + 0.2 * matrix[1], 0, 1)
    people[len(people) // 2 :] = np.nan
    frame = pd.DataFrame(
        {
            "model": np.repeat(["a", "b"], len(people)), "item": [*range(len(people))] * 2,
            "people": np.concatenate([people, np.roll(people, 1)]),
            "judge": np.concatenate([judge, judge[::-1]]),
        }
    )  # fmt: skip
    return es.read(frame, columns={"score": ["people", "judge"]})


QUESTIONS: dict[str, Question] = {
    **{
        f"intervals, {method}": partial(es.intervals, method=method, rng=0)
        for method in dict.fromkeys(["auto", *(m.name for m in (*METHODS, *CLUSTERED))])
    },
    "intervals, .8": partial(es.intervals, confidence_level=0.8),
    "intervals, population": partial(es.intervals, population=200),
    "intervals, clusters": partial(es.intervals, estimand="clusters"),
    "intervals, fixed": partial(es.intervals, clusters="fixed"),
    "intervals, bounds": partial(es.intervals, missing="bounds"),
    **{
        f"compare, {method}": partial(es.compare, method=method, rng=0)
        for method in dict.fromkeys(["auto", *(m.name for m in PAIRED)])
        if method not in ("percentile", "bca")
    },
    **{
        f"compare unpaired, {method}": partial(es.compare, design="unpaired", method=method, rng=0)
        for method in dict.fromkeys(["auto", *(m.name for m in UNPAIRED)])
    },
    "compare tasks": partial(es.compare, design="tasks", rng=0),
    "compare, step down": partial(es.compare, correction="stepdown", rng=0),
    "compare, BH": partial(es.compare, correction="bh", rng=0),
    "compare, none": partial(es.compare, correction="none", rng=0),
    "compare, shrunk": partial(es.compare, probabilities="shrunk", rng=0),
    "compare, baseline": lambda data: es.compare(data, baseline=_first(data), rng=0),
    "gate": partial(_gate, rng=0),
    "gate, margin": partial(_gate, margin=0.05, non_inferior=True, rng=0),
    "power": partial(es.power, difference=0.12),
    "slices": partial(es.slices, rng=0),
    "compare slices": partial(es.compare_slices, rng=0),
    "noise": es.noise,
    "table": partial(es.table, rng=0),
    "judge": _judged,
    "judge, finite": partial(_judged, population="these"),
    "next labels": lambda data: es.next_labels(_labelled(data), 5, judge="judge", human="people"),
    **{f"irt, {model}": partial(_fit, item_model=model) for model in ("rasch", "2pl")},
    "irt, map": partial(_fit, item_model="2pl", estimator="map"),
    "irt, jml": partial(_fit, item_model="rasch", estimator="jml"),
    "rank": partial(es.rank, rng=0),
}
SLOW: dict[str, Question] = {
    **{
        f"compare, {method}": partial(es.compare, method=method, rng=0)
        for method in ("percentile", "bca")
    },
    "power, items": partial(es.power, n_items=300),
    **{
        f"power, {name}": partial(es.power, difference=0.15, design=PowerDesign(**asked))
        for name, asked in {
            "unpaired": {"paired": False},
            "looks": {"look_every": 200},
            "surely": {"assurance": 0.8},
            "margin": {"margin": 0.1},
            "all": {"tasks": "fixed"},
        }.items()
    },
    "irt, weak": partial(_fit, item_model="2pl", options=irt.MmlOptions(prior="weak")),
    "irt, 3pl": partial(
        _fit, item_model="3pl", options=irt.MmlOptions(prior="weak", std_errors=True)
    ),
    "irt, graded": partial(_fit, item_model="graded", options=irt.OrderedOptions(std_errors=True)),
}
"""Asked of fewer evaluations, without epochs."""


@cache
def _read(seed: int) -> es.ResponseSet:
    return es.read(drawn(seed))


def questions(seed: int) -> list[str]:
    """Names of the questions about an evaluation: a third of all, by turns."""
    frame = drawn(seed)
    some = frame["epoch"].max() == 0 and len(frame) < MOST_SLOW
    return [name for name in (*QUESTIONS, *(SLOW if some else ())) if _turn(name, seed) == 0]


def recorded(seed: int, question: str) -> dict[str, list[float]]:
    """An answer: of each field how many values it has, and one sum of them."""
    return _fields(_asked((QUESTIONS | SLOW)[question], _read(seed)))


def _turn(name: str, seed: int) -> int:
    return (zlib.crc32(name.encode()) + seed) % 3


def _asked(question: Question, data: es.ResponseSet) -> Any:
    try:
        return question(data)
    except EvalStatsError as error:
        return {"error": str(error)}


def _fields(answer: Any) -> dict[str, list[float]]:
    values: dict[str, list[float]] = defaultdict(list)
    _collect(answer, "", values)
    return {
        field: [
            len(x),
            _rounded(math.fsum(v * w for v, w in zip(x, _weights(len(x)), strict=True))),
        ]
        for field, x in sorted(values.items())
    }


def _weights(n: int) -> Iterable[float]:
    """Between 1 and 2, so that values that change places change the sum."""
    return (1 + (0.6180339887 * k) % 1 for k in range(n))


def _rounded(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT}g}")


def _collect(value: Any, field: str, values: dict[str, list[float]]) -> None:
    """Gather numbers by field, and texts as numbers that stand for them."""
    if hasattr(value, "to_dict") and not isinstance(value, (pd.DataFrame, Mapping)):
        notes = getattr(value, "notes", ())
        _collect([value.to_dict(), list(notes)], field, values)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            _collect(part, str(name), values)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _collect(part, field, values)
    elif isinstance(value, str):
        values[f"{field}, text"].append(float(zlib.crc32(value.encode()) % 9973))
    elif value is None or not math.isfinite(value):
        values[f"{field}, none"].append(1.0)
    else:
        values[field].append(float(value))

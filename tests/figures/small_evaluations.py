"""Small drawn evaluations of every kind of score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from given_responses import given_responses

from evalstats_plugin.data.responses import Group, Responses, Source

Kind = Literal["binary", "partial", "points", "real", "errors", "epochs", "clusters", "missing",
               "grid", "saturated"]  # fmt: skip
KINDS: tuple[Kind, ...] = ("binary", "partial", "points", "real", "errors", "epochs", "clusters",
                           "missing", "grid", "saturated")  # fmt: skip


@cache
def evaluation(
    kind: Kind = "binary", *, n_models: int = 3, n_items: int = 40, tasks: Sequence[str] = ("t",),
    groups: tuple[Group, ...] = (), seed: int = 1,
) -> tuple[Responses, ...]:  # fmt: skip
    """Return responses of models of rising ability to tasks of rising size."""
    rng = np.random.default_rng(seed)
    return tuple(
        _responses(kind, f"m{model}", task, n_items + 7 * place, model, groups, rng)
        for place, task in enumerate(tasks)
        for model in range(n_models)
    )


def _responses(
    kind: Kind, model: str, task: str, n: int, place: int, groups: tuple[Group, ...],
    rng: np.random.Generator,
) -> Responses:  # fmt: skip
    share = np.clip(np.random.default_rng(n).uniform(0.1, 0.9, n) + 0.06 * place, 0.02, 0.98)
    scores = 1.0 * (rng.random((n, 3 if kind == "epochs" else 1)) < share[:, None])
    more: dict[str, Any] = {"bounds": (0.0, 1.0)}
    if kind == "partial":
        scores = np.clip(share[:, None] + 0.2 * rng.normal(size=(n, 1)), 0, 1)
    elif kind == "points":
        scores, more["bounds"] = rng.binomial(9, share)[:, None] + 1.0, (1.0, 10.0)
    elif kind == "real":
        scores, more["bounds"] = rng.normal(0.2 * place, 1, (n, 1)), None
    elif kind == "errors":
        scores, more["higher_is_better"] = scores * rng.random((n, 1)), False
    elif kind == "clusters":
        scores = 1.0 * (rng.random((n, 1)) < share[np.arange(n) // 4][:, None])
        more["clusters"] = np.array([f"c{k // 4}" for k in range(n)])
    elif kind == "missing":
        scores[rng.random((n, 1)) < 0.15] = np.nan
    elif kind == "grid":
        scores = rng.binomial(4, share)[:, None] / 4
    elif kind == "saturated":
        scores = 1.0 * (rng.random((n, 1)) < 0.97)
    return given_responses(
        model=model, task=task, item_ids=np.arange(n), scores=scores, groups=groups,
        source=Source(Path(f"{model}.json"), "test"), **more,
    )  # fmt: skip


def parts(responses: Sequence[Responses], **changes: Any) -> list[Responses]:
    """Return responses with other fields than those drawn."""
    return [replace(r, **changes) for r in responses]


def in_groups(kind: Kind = "binary", n_models: int = 3) -> list[Responses]:
    """Return four tasks, of which three are in a group that counts items and two of a part."""
    outer, inner = Group("all", 0, "micro", 3), Group("part", 1, "macro", 2)
    every = evaluation(kind, n_models=n_models, n_items=24, tasks=("t0", "t1", "t2", "t3"))
    around = {"t0": (outer, inner), "t1": (outer, inner), "t2": (outer,), "t3": ()}
    return [replace(r, groups=around[r.task]) for r in every]


def labelled(metric: str, n: int = 40, seed: int = 3) -> list[Responses]:
    """Return two models whose metric is no mean of items: labels, texts, or chances and labels."""
    rng, given = np.random.default_rng(seed), []
    for model in range(2):
        pairs = np.empty((n, 2), dtype=object)
        for i in range(n):
            gold = int(rng.integers(0, 3 if metric == "mcc" else 2))
            right = rng.random() < 0.7 + 0.1 * model
            if metric in {"bleu", "chrf", "ter"}:
                words = [f"w{k}" for k in rng.integers(0, 12, 6)]
                said = [w if rng.random() < 0.8 else "other" for w in words]
                pairs[i] = (" ".join(words), " ".join(said))
            elif metric == "roc_auc":
                pairs[i] = (gold, float(rng.beta(2 + gold, 2)))
            else:
                pairs[i] = (str(gold), str(gold if right else int(rng.integers(0, 3))))
        given.append(
            given_responses(
                model=f"m{model}", metric=metric, aggregation=metric, item_ids=np.arange(n),
                scores=np.empty((n, 0)), pairs=pairs, source=Source(Path("a.json"), "test"),
                clusters=np.arange(n) // 3 if seed % 2 == 0 else None,
            )
        )  # fmt: skip
    return given

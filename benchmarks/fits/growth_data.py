"""Data of any size, drawn from known truth."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.data.store import ResponseStore
    from evalstats_plugin.irt.model.fit import IRTFit

Array = NDArray[np.float64]
BLOCK = 500
"""Items of a store that are drawn at once."""


def matrix(models: int, tasks: int, items: int, *, partial: bool = False) -> ResponseMatrix:
    """Scores of models on tasks of so many items each, 0/1 or anywhere between."""
    rng = np.random.default_rng(models + tasks + items)
    scores = _right(rng, rng.normal(size=models), tasks * items)
    if partial:
        scores *= rng.random((models, tasks * items))
    return ResponseMatrix.from_array(scores, tasks=_tasks(tasks, items))


def answers(models: int, items: int) -> ResponseMatrix:
    """0/1 answers of models to the items of one task."""
    return matrix(models, 1, items)


def beta_scores(models: int, items: int) -> Array:
    """Scores anywhere between 0 and 1."""
    return np.random.default_rng(0).beta(2, 1, size=(models, items))


def contests(
    players: int, number: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Who met whom and who won: every player the next one, then any."""
    rng = np.random.default_rng(players + number)
    rating = rng.normal(size=players)
    first = np.arange(number) % players
    second = (first + rng.integers(1, max(players, 2), number)) % players
    second[:players] = (first[:players] + 1) % players
    chance = 1 / (1 + np.exp(rating[second] - rating[first]))
    return first, second, (rng.random(number) < chance).astype(np.float64)


def bank(items: int) -> ItemBank:
    """2PL items of which the errors are known."""
    from evalstats_plugin.adaptive.bank import ItemBank

    rng = np.random.default_rng(items)
    a, b = np.exp(0.4 * rng.normal(size=items)), rng.normal(size=items)
    return ItemBank.from_arrays(
        a,
        -a * b,
        tasks=[f"task_{k % 6}" for k in range(items)],
        item_covariance=np.tile(0.05 * np.eye(2), (items, 1, 1)),
    )


def fit_of(items: int) -> IRTFit:
    """2PL items as the fit of a few models found them, whatever their number."""
    from dataclasses import replace

    import evalstats_plugin as es

    found = es.fit_irt(answers(60, 8), "2pl", "mml", device="cpu")
    known = answers(1, items)
    rng = np.random.default_rng(items)
    return replace(
        found,
        item_ids=known.item_ids,
        tasks=known.tasks,
        discrimination=np.exp(0.3 * rng.normal(size=items)),
        difficulty=rng.normal(size=items),
        guessing=np.zeros(items),
        upper=np.ones(items),
        discrimination_std_error=np.full(items, 0.1),
        difficulty_std_error=np.full(items, 0.1),
        guessing_std_error=np.zeros(items),
        upper_std_error=np.zeros(items),
        item_covariance=None,
    )


def store(models: int, items: int) -> ResponseStore:
    """0/1 answers on disk."""
    from evalstats_plugin.data import write_store

    rng = np.random.default_rng(models + items)
    ability = rng.normal(size=models)

    def blocks() -> Iterator[ResponseMatrix]:
        for start in range(0, items, BLOCK):
            stop = min(start + BLOCK, items)
            yield ResponseMatrix.from_array(
                _right(rng, ability, stop - start),
                items=[f"item_{j}" for j in range(start, stop)],
            )

    return write_store(_folder() / "answers.parquet", blocks())


def lm_eval_log(items: int) -> Path:
    """A log of lm-eval: results, and samples of five-shot multiple choice (about 4 kB each)."""
    folder = _folder() / "org__model"
    folder.mkdir()
    when = "2026-01-01T00-00-00.000000"
    context = "Question: which of these is a prime number?\nAnswer: 7\n\n" * 12
    right = 0
    with (folder / f"samples_bench_{when}.jsonl").open("w", encoding="utf-8") as file:
        for doc_id in range(items):
            file.write(json.dumps(sample(doc_id, context, "acc")) + "\n")
            right += doc_id % 3 == 0
    scored = {"alias": "bench", "acc,none": right / items, "acc_stderr,none": "N/A"}
    results = {
        "results": {"bench": scored},
        "configs": {"bench": {"task": "bench", "output_type": "multiple_choice"}},
        "versions": {"bench": 1.0},
        "n-shot": {"bench": 5},
        "higher_is_better": {"bench": {"acc": True}},
        "n-samples": {"bench": {"original": items, "effective": items}},
        "config": {"model": "hf", "model_args": {"pretrained": "org/model"}},
        "lm_eval_version": "0.4.13",
        "model_name": "org/model",
        "model_name_sanitized": "org__model",
    }
    (folder / f"results_{when}.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


def sample(doc_id: int, context: str, metric: str) -> dict[str, Any]:
    """One line of lm-eval's samples: a question of four choices, right or wrong."""
    arguments = {
        f"gen_args_{i}": {"arg_0": f"{context}{doc_id}", "arg_1": f" choice {i}"} for i in range(4)
    }
    return {
        "doc_id": doc_id,
        "doc": {"question": f"{doc_id}?", "choices": list("abcd"), "answer": doc_id % 4},
        "target": str(doc_id % 4),
        "arguments": arguments,
        "resps": [[[f"-{i}.25", "False"]] for i in range(4)],
        "filtered_resps": [[f"-{i}.25", "False"] for i in range(4)],
        "filter": "none",
        "metrics": [metric],
        "doc_hash": f"{doc_id:064x}",
        "prompt_hash": f"{doc_id + 1:064x}",
        "target_hash": f"{doc_id % 4:064x}",
        metric: float(doc_id % 3 == 0),
    }


def _right(rng: np.random.Generator, ability: Array, items: int) -> Array:
    """0/1 answers of the 2PL model, shape (N, M)."""
    chance = ability[:, None] - rng.normal(size=items)
    chance *= -np.exp(0.3 * rng.normal(size=items))
    np.exp(chance, out=chance)
    chance += 1
    np.reciprocal(chance, out=chance)
    return (rng.random(chance.shape) < chance).astype(np.float64)


def _tasks(tasks: int, items: int) -> list[str]:
    return np.repeat([f"task_{t}" for t in range(tasks)], items).tolist()


def _folder() -> Path:
    return Path(tempfile.mkdtemp())  # in a folder that is removed at the end

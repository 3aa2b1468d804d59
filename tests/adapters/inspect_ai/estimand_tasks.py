"""Tasks with every kind of value that the header of a log can hold; no model is asked."""

from __future__ import annotations

import math
import sys
from typing import Any

from inspect_ai import Epochs, Task
from inspect_ai import eval as run_eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import (
    Metric,
    SampleScore,
    Score,
    accuracy,
    aggregate,
    frequency,
    grouped,
    mean,
    metric,
    scorer,
    std,
    stderr,
    var,
)  # fmt: skip
from inspect_ai.solver import solver

N_ITEMS = 9
REDUCERS = (
    "pass_at_2", "pass_k_2", "at_least_2", "pass_at_1", "pass_at_4", "pass_k_4", "max", "mode",
    "median", "majority", "mean",
)  # fmt: skip


def reducers() -> list[str]:
    """Return those of `REDUCERS` that Inspect has: the oldest that we read has no majority."""

    def known(name: str) -> bool:
        try:
            return bool(Epochs(1, [name]).reducer)
        except LookupError:
            return False

    return [name for name in REDUCERS if known(name)]


@solver
def _answer():
    async def solve(state, generate):  # noqa: ARG001 - Inspect's signature
        state.output = ModelOutput.from_content("canned", "-")
        if state.metadata["fails"] and state.epoch == 1:
            raise ValueError("cut off")
        return state

    return solve


def _chance(item: int, epoch: int) -> float:
    return math.sin(12.9898 * item + 78.233 * epoch) * 43758.5453 % 1


def _value(kind: str, item: int, epoch: int) -> Any:
    found = _chance(item, epoch)
    if kind == "missing" and found > 0.8:
        return math.nan
    if kind == "partial":
        return round(found, 2)
    if kind == "grades":
        return "CPIN"[int(4 * found)]
    if kind == "keys":
        return {"right": "CI"[found > 0.5], "style": round(_chance(epoch, item), 2)}
    return "CI"[found > 0.6]


@metric
def longest_run() -> Metric:
    return lambda scores: 3.0 if scores else 0.0


def _values(scores: list[SampleScore]) -> list[float]:
    return [float(s.score.value) for s in scores]  # pyright: ignore[reportArgumentType]


@metric
def rms() -> Metric:
    def root_mean_square(scores: list[SampleScore]) -> float:
        return math.sqrt(sum(x * x for x in _values(scores)) / max(len(scores), 1))

    return root_mean_square


@metric
def share_of_words() -> Metric:
    def right_words(scores: list[SampleScore]) -> float:
        words = [(s.score.metadata or {})["words"] for s in scores] or [1]
        return sum(map(math.prod, zip(words, _values(scores), strict=False))) / sum(words)

    return right_words


@metric
def median() -> Metric:
    def middle(scores: list[SampleScore]) -> float:
        return sorted(_values(scores) or [0.0])[len(scores) // 2]

    return middle


@metric
def last() -> Metric:
    def of_the_last(scores: list[SampleScore]) -> float:
        return (_values(scores) or [0.0])[-1]

    return of_the_last


def _scorer(kind: str, metrics: Any):
    @scorer(metrics=metrics, name=kind)
    def graded():
        async def score(state, target):  # noqa: ARG001 - Inspect's signature
            item = int(state.sample_id)
            return Score(value=_value(kind, item, state.epoch), metadata={"words": 1 + item % 4})

        return score

    return graded()


def _task(name: str, kinds: dict[str, Any], epochs: Any = None, **more: Any) -> Task:
    """Return a task with a scorer of each kind, with the metrics given."""
    dataset = [
        Sample(
            id=i, input=f"item {i}", target="-",
            metadata={"page": i // 2, "part": "abc"[min(i // 3, 2)], "even": i % 4 == 0,
                      "fails": "errors" in name and i == 2},
        )
        for i in range(N_ITEMS)
    ]  # fmt: skip
    scorers = [_scorer(kind, metrics) for kind, metrics in kinds.items()]
    return Task(dataset=dataset, solver=_answer(), scorer=scorers, epochs=epochs, name=name, **more)


def tasks() -> list[Task]:
    """Return tasks of every shape."""
    plain = [accuracy(), stderr()]
    kinds = {
        "binary": plain, "partial": [mean(), stderr(cluster="page"), std(), var()],
        "grades": [*plain, frequency()], "missing": plain,
        "keys": {"right": [accuracy(), stderr()], "*": [mean()]},
    }  # fmt: skip
    some = {"binary": plain}
    parts = [
        grouped(accuracy(), "part"), grouped(mean(), "even", name_template="even {group_name}"),
        grouped(mean(), "even", all="groups", all_label="overall"), stderr(cluster="page"),
    ]  # fmt: skip
    lenient = {"fail_on_error": False}
    found = [
        _task("one", kinds, Epochs(1, ["pass_at_1", "max", "mode", "median", "mean"])),
        _task("three", kinds, Epochs(3, ["mean", *REDUCERS[:3]])),
        _task("only_pass_at_4", some, Epochs(4, "pass_at_4")),
        _task("groups", {"grades": parts, "binary": [grouped(accuracy(), "part", all=False)]}),
        _task("groups_of_epochs", {"binary": parts}, Epochs(4, "pass_at_2")),
        _task("others", {"grades": [frequency(normalize=False), longest_run()],
                         "keys": [aggregate("right", accuracy()), {"style": [mean()]}]}),
        _task("headline", {"binary": [longest_run(), accuracy(), stderr()]}),
        _task("rms", {"partial": [rms(), mean()]}),
        _task("rms_of_clusters", {"partial": [rms(), mean(), stderr(cluster="page")]}),
        _task("rms_of_epochs", {"partial": [rms(), mean()]}, Epochs(3, "mean")),
        _task("rms_of_samples", {"partial": [rms(), mean()]}, Epochs(3, [])),
        _task("words", {"partial": [share_of_words(), mean()]}),
        _task("std", {"partial": [std(), mean()]}),
        _task("leaps", {"partial": [median(), last(), mean()]}),
        _task("no_reducer", {"missing": plain}, Epochs(3, [])),
        _task("errors", some, Epochs(3, ["mean", "max"]), **lenient),
        _task("scored_errors", some, Epochs(3, ["mean", "pass_at_2"]), score_on_error=True,
              **lenient),
    ]  # fmt: skip
    return [*found, _task("four", kinds, Epochs(4, reducers()))]


if __name__ == "__main__":
    made = tasks()
    run_eval(made, model="mockllm/model", log_dir=sys.argv[1], max_tasks=len(made),
             log_realtime=False, display="log")  # fmt: skip

"""Tasks that run without a network: the solver answers by itself and no model is called."""

# ruff: noqa: ARG001 - solvers and scorers are called with what Inspect calls them with

from __future__ import annotations

import math
import os
import signal

import anyio
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, accuracy, match, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from evalstats_plugin.adapters.inspect_ai.metrics import beta_interval, cluster_interval, jeffreys

N_ITEMS = 12
# Each right where the other is wrong on one item more than once: 8 and 11 of 12 are right.
WRONG = {"a": {0, 3, 6, 9}, "b": {3}}


@solver
def canned(*, fail: tuple[int, ...] = (), interrupt: bool = False) -> Solver:
    """Answer right or wrong by model and item; fail or press Ctrl-C where asked to."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        item = int(state.sample_id)
        if item in fail:
            raise ValueError("no answer")
        if interrupt and item == N_ITEMS - 1:
            os.kill(os.getpid(), signal.SIGINT)
            await anyio.sleep(300)  # the signal is heard a while later, and cancels this
        right = item not in WRONG[str(state.model.name)]
        state.output = ModelOutput.from_content("canned", "42" if right else "7")
        return state

    return solve


@scorer(metrics={"*": [mean(), beta_interval()]})
def two_keys() -> Scorer:
    """A score of two parts, one of which nobody ever gives."""

    async def score(state: TaskState, target: Target) -> Score:
        return Score(value={"style": float(int(state.sample_id) % 2), "length": math.nan})

    return score


@scorer(metrics=[accuracy(), beta_interval(), jeffreys(level=0.9)])
def never_sure() -> Scorer:
    """A scorer that scores nothing."""

    async def score(state: TaskState, target: Target) -> Score:
        return Score.unscored()

    return score


def _dataset() -> MemoryDataset:
    return MemoryDataset(
        [
            Sample(id=i, input=f"What is {i}?", target="42", metadata={"page": i // 4})
            for i in range(N_ITEMS)
        ],
        name="demo",
    )


@task
def sums() -> Task:
    """A task that ends well, and uses a metric of ours."""
    metrics = [accuracy(), stderr(), beta_interval()]
    return Task(dataset=_dataset(), solver=canned(), scorer=match(), metrics=metrics)


@task
def empty() -> Task:
    """A task of which no sample is scored."""
    fail = tuple(range(N_ITEMS))
    return Task(
        dataset=_dataset(), solver=canned(fail=fail), scorer=match(),
        metrics=[beta_interval()], fail_on_error=False,
    )  # fmt: skip


@task
def keys() -> Task:
    """A task with metrics of ours on a score of two keys, and on no score at all."""
    return Task(dataset=_dataset(), solver=canned(), scorer=[two_keys(), never_sure()])


@task
def pages() -> Task:
    """A task whose items come in clusters."""
    metrics = [accuracy(), cluster_interval("page")]
    return Task(dataset=_dataset(), solver=canned(), scorer=match(), metrics=metrics)


@task
def too_many_errors() -> Task:
    """A task that runs to its end and is then marked as an error."""
    return Task(
        dataset=_dataset(), solver=canned(fail=(1, 2, 3)), scorer=match(),
        fail_on_error=0.1, continue_on_fail=True,
    )  # fmt: skip


@task
def crash() -> Task:
    """A task that the first error ends."""
    return Task(dataset=_dataset(), solver=canned(fail=(1,)), scorer=match())


@task
def interrupted() -> Task:
    """A task in the middle of which somebody presses Ctrl-C."""
    return Task(dataset=_dataset(), solver=canned(interrupt=True), scorer=match())

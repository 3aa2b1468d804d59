"""A task that runs without a network and notes each question that is really asked."""

# ruff: noqa: ARG001 - solvers are called with what Inspect calls them with

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ContentText,
    ModelOutput,
)
from inspect_ai.scorer import match
from inspect_ai.solver import Generate, Solver, TaskState, solver

from evalstats_plugin.adapters.inspect_ai.adaptive.asking import adaptive

N_ITEMS = 24
END_AFTER = "EVALSTATS_TEST_END_AFTER"
"""Environment variable: questions after which the run gets a signal, such as ``7 SIGKILL``."""


@solver
def noted(asked: str | None, fail: str) -> Solver:
    """Answer two of three items right; fail on some, or once on each; end it after so many."""
    tried: set[tuple[object, int]] = set()

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        take = (state.sample_id, state.epoch)
        if asked:
            await _note(Path(asked), f"{state.model.name} {take[0]} {take[1]}")
        again = take in tried
        tried.add(take)
        if fail == "all" or (fail == "even" and int(take[0]) % 2 == 0):
            raise ValueError("no answer")
        if fail == "once" and not again:
            raise ValueError("no answer yet")
        state.output = ModelOutput.from_content("canned", "42" if int(take[0]) % 3 else "7")
        return state

    return solve


async def _note(path: Path, question: str) -> None:
    before = path.read_text().splitlines() if path.exists() else []
    after, _, name = os.environ.get(END_AFTER, "").partition(" ")
    if after and len(before) == int(after):
        os.kill(os.getpid(), signal.Signals[name])
        await anyio.sleep(300)  # an interrupt is heard a while later, and cancels this
    path.write_text("\n".join([*before, question]) + "\n")


def _dataset() -> MemoryDataset:
    samples = [Sample(id=i, input=f"What is {i}?", target="42") for i in range(N_ITEMS)]
    return MemoryDataset(samples, name="demo")


@task
def plain(asked: str | None = None, fail: str = "") -> Task:
    """All items, unless somebody stops it."""
    return Task(dataset=_dataset(), solver=noted(asked, fail), scorer=match())


@task
def kinds() -> Task:
    """Questions of every kind: long, with choices, of several messages, with an image, no id."""
    image = "data:image/png;base64,iVBORw0KGgo="
    asked = [ContentText(text="What is this?"), ContentImage(image=image)]
    samples = [
        Sample(input="What is " + "very " * 1000 + "long?", target="42"),
        Sample(input="Which?", choices=["7", "42", "8"], target="B"),
        Sample(input="Which two?", choices=["7", "42", "8"], target=["A", "C"]),
        Sample(input=[ChatMessageSystem(content="Be brief."), ChatMessageUser(content="Well?")]),
        Sample(input=[ChatMessageUser(content=asked)], target="a picture"),
    ]
    dataset = MemoryDataset(samples, name="kinds")
    dataset.shuffle_choices(seed=3)
    return Task(dataset=dataset, solver=noted(None, ""), scorer=match())


@task
def stopped(bank: str, asked: str, state: str | None = None) -> Task:
    """The same with early stopping of its own."""
    return Task(
        dataset=_dataset(),
        solver=noted(asked, ""),
        scorer=match(),
        early_stopping=adaptive(bank, max_items=8, state=state),
        name="plain",
    )

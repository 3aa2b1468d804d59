"""Gates: how often are releases called regressed, or passed, that should not be?

Writes fixtures/validation/gate.json: simulations with fixed seeds of 57 tasks in one group, 0/1
scores of the same items, at the default level.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import study

import evalstats_plugin as es
from evalstats_plugin.data.responses import Group

pytestmark = pytest.mark.validation
N_TASKS, N_EQUAL, N_RUNS = 57, 1000, 50
GROUP = Group("all", 0, "micro", N_TASKS, logged=0.0)
# Name: items of a task, what the candidate loses everywhere and on the first task alone, options.
DESIGNS = {
    "equal, 20 items": (20, 0.0, 0.0, {}),
    "equal, 100 items": (100, 0.0, 0.0, {}),
    "0.03 worse everywhere": (100, 0.03, 0.0, {}),
    "0.3 worse on one task": (100, 0.0, 0.3, {}),
    "0.05 worse everywhere, non-inferior by 0.05": (
        100, 0.05, 0.0, {"margin": 0.05, "non_inferior": True},
    ),
    "equal, non-inferior by 0.3": (100, 0.0, 0.0, {"margin": 0.3, "non_inferior": True}),
}  # fmt: skip


def _responses(rng, n_items, everywhere, on_one):
    """Return old and new on all tasks: four of five answers of an item are the same."""
    found = []
    for task in range(N_TASKS):
        skill = rng.beta(4, 2, n_items)
        loss = everywhere + (on_one if task == 0 else 0.0)
        old = rng.random(n_items) < skill
        again = rng.random(n_items) < skill
        new = np.where(rng.random(n_items) < 0.8, old, again)
        # Right answers are lost with the chance that makes the mean loss.
        new &= rng.random(n_items) >= loss / skill.mean()
        matrix = es.ResponseMatrix.from_array(np.array([old, new], dtype=float))
        found += [_of_task(r, task) for r in matrix.to_responses()]
    return found


def _of_task(responses, task):
    return replace(responses.measured(task=f"task {task}"), groups=(GROUP,))


@cache
def rows():
    found = []
    for seed, (name, (n_items, everywhere, on_one, options)) in enumerate(DESIGNS.items()):
        n_runs = N_RUNS if everywhere or on_one or options else N_EQUAL
        decisions = [
            es.gate(
                _responses(np.random.default_rng([20, seed, i]), n_items, everywhere, on_one),
                baseline="model_0",
                rng=i,
                **options,
            ).decision
            for i in range(n_runs)
        ]
        share = {d: decisions.count(d) / n_runs for d in ("pass", "regressed", "inconclusive")}
        found.append({"design": name, "n_tasks": N_TASKS, "n_runs": n_runs, **share})
    return found


@cache
def detected():
    """How often drops are called regressed that a gate on equal models says it would detect."""
    found = []
    for n_items in (60, 200, 800):
        pilots = (_two(np.random.default_rng([21, n_items, i]), n_items, 0.0) for i in range(30))
        said = [es.gate(two, baseline="model_0", rng=0)[0].detectable for two in pilots]
        drop = float(np.mean([each for each in said if each is not None]))
        decisions = [
            es.gate(
                _two(np.random.default_rng([22, n_items, i]), n_items, drop),
                baseline="model_0",
                rng=0,
            ).decision
            for i in range(300)
        ]
        share = decisions.count("regressed") / len(decisions)
        found.append({"n_items": n_items, "drop": drop, "n_runs": 300, "regressed": share})
    return found


def _two(rng, n_items, loss):
    return [r for r in _responses(rng, n_items, loss, 0.0) if r.task == "task 0"]


def test_the_figures_are_written():
    study.write_figures("gate", {"decisions": rows, "detected": detected}, digits=4)


def test_drops_of_the_size_said_are_detected():
    """About the power of 0.8 that is said: it is of McNemar's test, the gate's limits have less."""
    assert all(0.65 <= row["regressed"] <= 0.9 for row in detected())


def test_errors_are_held_and_losses_found():
    """At most 5 in 100 wrong; a small loss everywhere is found by the group."""
    of = {row["design"]: row for row in rows()}
    error = 3 * np.sqrt(0.05 * 0.95 / N_EQUAL)

    assert of["equal, 20 items"]["regressed"] <= 0.05 + error
    assert of["equal, 100 items"]["regressed"] <= 0.05 + error
    assert of["0.05 worse everywhere, non-inferior by 0.05"]["pass"] <= 0.05
    assert of["0.03 worse everywhere"]["regressed"] >= 0.9
    assert of["0.3 worse on one task"]["regressed"] >= 0.9
    assert of["equal, non-inferior by 0.3"]["pass"] >= 0.9

"""How a group weighs its tasks: from its value, its other metrics, other models; or both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import Group, Source, intervals
from evalstats_plugin.adapters.lm_eval.groups import Tree, pooled_stderr, unweighted_stderr
from evalstats_plugin.data.scales import settled

SIZES = {"a": 10, "b": 30}


def _tree(**metrics: tuple[float, float, float]) -> Tree:
    """Of each metric the value of the group, and of its two tasks."""
    results: dict[str, dict[str, float]] = {"g": {}, "a": {}, "b": {}}
    for metric, values in metrics.items():
        for name, value in zip(results, values, strict=True):
            results[name][f"{metric},none"] = value
    sizes = {task: {"effective": n} for task, n in SIZES.items()}
    return Tree({"results": results, "group_subtasks": {"g": ["a", "b"]}, "n-samples": sizes})


@pytest.mark.parametrize(
    ("metrics", "weighting"),
    [
        ({"acc": (0.35, 0.5, 0.3)}, "micro"),
        ({"acc": (0.4, 0.5, 0.3)}, "macro"),
        ({"acc": (1.0, 1.0, 1.0)}, "either"),
        ({"acc": (1.0, 1.0, 1.0), "acc_norm": (0.4, 0.5, 0.3)}, "macro"),
        ({"acc": (1.0, 1.0, 1.0), "acc_norm": (0.35, 0.5, 0.3)}, "micro"),
        ({"acc": (1.0, 1.0, 1.0), "acc_stderr": (0.4, 0.5, 0.3)}, "either"),
    ],
)
def test_where_all_tasks_have_one_value_other_metrics_tell(
    metrics: dict[str, tuple[float, float, float]], weighting: str
) -> None:
    """A saturated group fits both; standard errors are no metrics."""
    assert (weighting, ()) == _tree(**metrics).weighting("g", "acc,none")


def test_only_what_is_logged_of_the_group_tells() -> None:
    """Neither a metric that fits neither mean, nor one that has no value there."""
    apart = _tree(acc=(1.0, 1.0, 1.0), own=(0.9, 0.5, 0.3), acc_norm=(0.4, 0.5, 0.3))
    assert apart.weighting("g", "acc,none") == ("macro", ())
    assert apart.weighting("g", "acc_norm,none") == ("macro", ())
    weighting, [note] = apart.weighting("g", "own,none")
    assert (weighting, note[:8]) == ("micro", "mismatch")
    assert apart.weighting("g", "f1,none") == ("micro", ())
    assert apart.weighting("none such", "acc,none") == ("micro", ())


@pytest.mark.parametrize("n", [1, 2, 5])
def test_errors_of_a_group_are_those_of_its_formulas(n: int) -> None:
    """Pooled: the variances of tasks within, by their degrees of freedom; macro: of a mean."""
    rng = np.random.default_rng(n)
    errors, sizes = rng.uniform(0.01, 0.2, n).tolist(), rng.integers(3, 50, n).tolist()
    variances = [e**2 * k for e, k in zip(errors, sizes, strict=True)]
    within = sum((k - 1) * v for k, v in zip(sizes, variances, strict=True))
    pooled = within / (sum(sizes) - n) / sum(sizes)

    assert pooled_stderr(errors, sizes) == pytest.approx(pooled**0.5, rel=1e-12)
    assert unweighted_stderr(errors) == pytest.approx(np.linalg.norm(errors) / n, rel=1e-12)


def _saturated(weighting: Any, model: str = "m", right: float = 1.0) -> list[Any]:
    group = Group("g", 0, weighting, 2, logged=right)
    return [
        given_responses(
            model=model, task=task, scores=np.full((n, 1), right), item_ids=np.arange(n),
            groups=(group,), source=Source(path=Path("x"), harness="lm_eval"),
        )
        for task, n in SIZES.items()
    ]  # fmt: skip


def test_the_wider_interval_is_shown_where_nothing_tells() -> None:
    """And the other is in the note."""
    [micro, *_] = intervals(_saturated("micro"))
    [macro, *_] = intervals(_saturated("macro"))
    [either, *_] = intervals(_saturated("either"))

    assert micro.low is not None
    assert macro.low is not None
    assert macro.low < micro.low
    assert (either.low, either.high, either.estimate) == (macro.low, macro.high, 1.0)
    assert f"the wider interval is shown (macro); micro: {micro.low:.3f}" in either.notes[-1]


def test_another_models_group_tells() -> None:
    """A harness weighs the group alike for all models."""
    both = [*_saturated("either"), *_saturated("macro", "other")]

    assert {g.weighting for r in settled(both) for g in r.groups} == {"macro"}

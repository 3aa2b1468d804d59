"""The smallest evaluations on which a relation once failed, each with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evaluations import SCALES, Evaluation, Task, fill
from test_relations import ALL

VALUES = "every adapter gives the logged values"
RIGHT, MARGIN = SCALES["right"], SCALES["margin"]


def _of_models(*models: str) -> Evaluation:
    return fill(Evaluation(models, (Task("one", 3, (RIGHT,)),), seed=1))


def _trials() -> Evaluation:
    """Two trials, of which one lacks an instance: the mean of trials is not that of instances."""
    scores = np.array([[[1.0, 1.0], [0.0, np.nan], [1.0, 0.0]]])
    e = Evaluation(("a",), (Task("one", 3, (RIGHT,)),), n_epochs=2)
    return replace(e, scores={("one", "right"): scores})


def _cut() -> Evaluation:
    """Of four items the log has lost two."""
    scores = np.array([[[4.0], [5.0], [-2.0], [-3.0]]])
    e = Evaluation(("a",), (Task("one", 4, (MARGIN,), n_cut=2),))
    return replace(e, scores={("one", "margin"): scores})


def _few_of_many() -> Evaluation:
    """The header is of 60 items, nearly all right; the log holds the first six, all wrong."""
    scores = np.ones((1, 60, 1))
    scores[0, :6] = 0
    e = Evaluation(("a",), (Task("one", 60, (RIGHT,), n_cut=54),), seed=1)
    return replace(e, scores={("one", "right"): scores})


def _by_cluster() -> Evaluation:
    """The log also gives the mean of each passage, after that of all items."""
    task = Task("one", 12, (RIGHT,), clusters=tuple(i % 3 for i in range(12)))
    return fill(Evaluation(("a", "b"), (task,), by_cluster=True, seed=5))


def _saturated(scale: str) -> Evaluation:
    task = Task("one", 8, (SCALES[scale],), "all best")
    return fill(Evaluation(("a",), (task,), seed=1))


def _steps(scale: str) -> Evaluation:
    return fill(Evaluation(("a", "b"), (Task("one", 12, (SCALES[scale],)),)))


@pytest.mark.parametrize(
    ("relation", "evaluation"),
    [
        # lm-eval puts their logs into ".__models__m0" and "..__up", which look hidden.
        pytest.param(VALUES, _of_models("./models/m0", "../up"), id="models in hidden folders"),
        # HELM logs the mean of trials; a row with another estimate said nothing of it.
        pytest.param(VALUES, _trials(), id="uneven trials of HELM"),
        # A row of lighteval had another estimate than the header, without a note.
        pytest.param(VALUES, _cut(), id="details of lighteval cut off"),
        # Limits of the six items were written under the value of all sixty.
        pytest.param("an annotation contradicts no header", _few_of_many(), id="few of many"),
        # A table showed the last passage's mean as the score of the task.
        pytest.param("a table shows headlines once", _by_cluster(), id="parts of a task"),
        # Of a scale of 100, in lm-eval's logs, a perfect model had the interval [100, 100].
        pytest.param("no adapter gives certainty", _saturated("percent"), id="all of 100"),
        # 12 items up by a step and none down were no evidence, nor were 20.
        pytest.param("one more win is more evidence", _steps("tenths"), id="steps of a tenth"),
        pytest.param("one more win is more evidence", _steps("grade"), id="grades"),
    ],
)
def test_a_counterexample_is_none_any_more(
    relation: str, evaluation: Evaluation, tmp_path: Path
) -> None:
    """Each fails on the code before its cure."""
    ALL[relation].check(evaluation, tmp_path)

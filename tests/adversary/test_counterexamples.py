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


@pytest.mark.parametrize(
    ("relation", "evaluation"),
    [
        # lm-eval puts their logs into ".__models__m0" and "..__up", which look hidden.
        pytest.param(VALUES, _of_models("./models/m0", "../up"), id="models in hidden folders"),
        # HELM logs the mean of trials; a row with another estimate said nothing of it.
        pytest.param(VALUES, _trials(), id="uneven trials of HELM"),
        # A row of lighteval had another estimate than the header, without a note.
        pytest.param(VALUES, _cut(), id="details of lighteval cut off"),
        # Models whose names differ by a mark that is not printed.
        pytest.param(VALUES, _of_models("abc", "\u202eabd"), id="names that are turned round"),
    ],
)
def test_a_counterexample_is_none_any_more(
    relation: str, evaluation: Evaluation, tmp_path: Path
) -> None:
    """Each fails on the code before its cure."""
    ALL[relation].check(evaluation, tmp_path)

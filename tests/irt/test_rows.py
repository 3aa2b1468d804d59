"""Records of a fitted scale: notes on the order, extreme models, items of a bank."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix, fit_irt, score_models
from evalstats_plugin.data.matrix import submatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt import IRTFit, MmlOptions, simulate_responses
from evalstats_plugin.irt.answers import scored_part
from evalstats_plugin.irt.rows import HELD, abilities

pytestmark = pytest.mark.needs("torch")
STUDIES = Path(__file__).parents[2] / "fixtures" / "validation"


@pytest.fixture(scope="module")
def matrix() -> ResponseMatrix:
    """Give twelve models of very different ability, the last all right."""
    rng = np.random.default_rng(0)
    logit = np.linspace(-2, 2, 12)[:, None] - rng.standard_normal(60)
    scores = (rng.random((12, 60)) < 1 / (1 + np.exp(-logit))).astype(float)
    scores[-1] = 1
    return ResponseMatrix.from_array(scores)


@pytest.fixture(scope="module")
def fit(matrix: ResponseMatrix) -> IRTFit:
    """Give its Rasch fit."""
    return fit_irt(matrix, "rasch", rng=0)


def test_an_order_unlike_that_of_scores_is_noted(fit: IRTFit, matrix: ResponseMatrix) -> None:
    """The Rasch ability of complete data goes by the score; turned round it does not."""
    turned = replace(fit, ability=-fit.ability)

    assert not any("order the models otherwise" in n for n in abilities(fit, matrix).notes)
    (note,) = (n for n in abilities(turned, matrix).notes if "order the models otherwise" in n)
    assert "rank correlation -1.00" in note
    few = ResponseMatrix.from_array(matrix.scores[:9])
    part = replace(
        turned, models=few.models, ability=turned.ability[:9],
        ability_covariance=turned.ability_covariance[:9, :9], ability_quantiles=None,
    )  # fmt: skip
    assert not any("order the models otherwise" in n for n in abilities(part, few).notes)


def test_models_all_right_are_marked(fit: IRTFit, matrix: ResponseMatrix) -> None:
    """Their answers set no limit above."""
    rows = abilities(fit, matrix).rows

    said = ("every answer right: it may be more able by any amount",)
    assert {"model_11": said} == {r.model: r.notes for r in rows if r.notes}


def test_items_of_a_bank_fit_new_models_as_defined(fit: IRTFit, matrix: ResponseMatrix) -> None:
    """Outfit is the mean squared standardised residual, here by its formula over the part taken."""
    some = np.array([40, 3, 17])
    part = ResponseMatrix.from_array(
        matrix.scores[:4, some], models=matrix.models[:4], items=list(matrix.item_ids[some])
    )
    scored = score_models(fit, part)
    items = {item.item: item for item in abilities(scored, part, items=True).items}

    assert set(matrix.item_ids[some]) == set(items)
    for k, j in enumerate(some.tolist()):
        logit = fit.discrimination[j] * (scored.ability - fit.difficulty[j])
        p = 1 / (1 + np.exp(-logit))
        expected = np.mean((part.scores[:, k, 0] - p) ** 2 / (p * (1 - p)))
        item = items[str(matrix.item_ids[j])]
        assert expected == pytest.approx(item.outfit)
        assert fit.difficulty[j] == item.difficulty
        assert part.scores[:, k].mean() == pytest.approx(item.score)


def test_a_baseline_may_be_named_without_its_settings(fit: IRTFit, matrix: ResponseMatrix) -> None:
    """As models in logs are labelled where settings differ."""
    models = (*fit.models[:-1], "m (temperature=1)")
    labelled = replace(fit, models=models)
    found = abilities(labelled, replace(matrix, models=models), baseline="m").differences

    assert {"m (temperature=1)"} == {row.model_a for row in found}
    with pytest.raises(SelectionError, match="no model is called 'model_99'; did you mean"):
        abilities(fit, matrix, baseline="model_99")


def test_a_confidence_level_in_percent_is_refused(fit: IRTFit, matrix: ResponseMatrix) -> None:
    """With 95 no item was suspect, and none was flagged."""
    for ask in (fit.abilities, fit.suspects, fit.items, partial(fit.dif, matrix.models[:5])):
        with pytest.raises(DesignError, match="confidence level 95 is not between 0 and 1"):
            ask(confidence_level=95)


def test_abilities_are_of_the_models_and_items_of_the_fit(
    fit: IRTFit, matrix: ResponseMatrix
) -> None:
    """Models in another order had each other's scores; items of no fit counted in scores."""
    every = np.arange(len(matrix.item_ids))
    with pytest.raises(DesignError, match="models and the fit has 12, in another order"):
        abilities(fit, submatrix(matrix, np.arange(12)[::-1], every))
    with pytest.raises(DesignError, match="only one of them has model_11"):
        abilities(fit, submatrix(matrix, np.arange(11), every))
    bank = fit_irt(submatrix(matrix, slice(None), every[:-7]), "rasch")
    more = abilities(score_models(bank, matrix), matrix)

    assert {row.n_items for row in more} == {len(every) - 7}
    scores = {row.model: row.score for row in more}
    assert scores["model_3"] == pytest.approx(matrix.scores[3, :-7].mean())


def test_the_ends_of_ordered_scores_are_no_right_answers() -> None:
    """A model with the lowest grade, 1, on every item was said to have every answer right."""
    rng = np.random.default_rng(0)
    grades = np.clip(np.round(3 + rng.normal(size=(30, 1)) + rng.normal(size=(30, 8))), 1, 5)
    grades[4], grades[5] = 1, 5
    answers = ResponseMatrix.from_array(grades)
    notes = {row.model: row.notes for row in abilities(fit_irt(answers, "graded"), answers)}

    assert notes["model_4"] == ("the lowest score on every item",)
    assert notes["model_5"] == ("the highest score on every item",)
    assert not any(notes[model] for model in answers.models[6:])


def test_what_has_no_score_is_left_out_and_told() -> None:
    """Items and models alike; what stays keeps its names."""
    scores = np.array([[1, 0, np.nan], [0, 1, np.nan], [np.nan] * 3])
    kept = scored_part(ResponseMatrix.from_array(scores))

    assert ("model_0", "model_1") == kept.models
    assert ["item_0", "item_1"] == kept.item_ids.tolist()
    assert (
        "1 item that no model has a score of: not used",
        "models without any score: model_2",
    ) == kept.notes
    with pytest.raises(DesignError, match=r"every score is 1 \(2 models, 1 item\)"):
        scored_part(ResponseMatrix.from_array([[1.0], [1.0]]))


def test_items_are_listed_alike_whatever_a_processor_rounds_to() -> None:
    """Items as hard as one another keep the order of the logs; last digits once decided."""
    matrix, _ = simulate_responses(rng=4, n_models=6, n_items=30, item_model="rasch")
    fit = fit_irt(matrix, "rasch")
    noise = np.random.default_rng(1).normal(size=30)
    other = replace(fit, difficulty=fit.difficulty * (1 + 1e-14 * noise))

    assert len(np.unique(fit.difficulty.round(9))) < 30
    assert [i.item for i in fit.items(matrix)] == [i.item for i in other.items(matrix)]


def test_what_intervals_of_discriminations_hold_is_what_the_studies_found() -> None:
    """Of few models by the study of slopes, from 300 by that of drawn designs."""
    rows = json.loads((STUDIES / "slopes.json").read_text("utf-8"))["by_models"]
    by = {(row["estimator"], row["which"]): (row["mean"], row["worst"]) for row in rows}
    some, few, more = HELD["mml-items"]
    drawn = json.loads((STUDIES / "irt_drawn.json").read_text("utf-8"))["rows"]
    (many,) = (
        (round(row["mean"], 2), round(row["worst"], 2))
        for row in drawn
        if row["estimator"] == "mml" and row["quantity"] == "discriminations"
    )

    assert by["mml-items", "few models"] == few
    assert by["mml-items", f"{some} models or more"] == more
    assert HELD["mml"][1:] == (by["mml", "estimated"], many)


@pytest.mark.parametrize(
    ("item_model", "estimator", "prior", "expected"),
    [
        ("2pl", "mml-items", None, HELD["mml-items"][1]),
        ("2pl", "mml", "estimated", HELD["mml"][1]),
        ("2pl", "mml", "weak", None),
        ("1pl", "mml", "estimated", None),
        ("rasch", "mml-items", None, None),
    ],
)
def test_tables_of_items_say_what_intervals_of_discriminations_hold(
    item_model: str, estimator: str, prior: str | None, expected: tuple[float, float] | None
) -> None:
    """Where the spread of discriminations is estimated and taken as known; not without items."""
    matrix, _ = simulate_responses(rng=0, n_models=12, n_items=25)
    options = None if prior is None else MmlOptions(prior=prior)
    fit = fit_irt(matrix, item_model, estimator, options=options)
    notes = [note for note in fit.items().notes if "errors of discriminations" in note]

    assert len(notes) == (expected is not None)
    if expected is not None:
        assert f"of 95 % intervals {100 * expected[0]:.0f} % held" in notes[0]
        assert f"{100 * expected[1]:.0f} % in the worst" in notes[0]
    assert not any("errors of discriminations" in note for note in fit.abilities().notes)

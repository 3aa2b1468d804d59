"""Abilities for people: tables, marks and sentences."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest

from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.irt.methods import ITEM_ZERO
from evalstats_plugin.irt.rows import Abilities, Ability, ItemEstimate
from evalstats_plugin.report import abilities

FIT: dict[str, Any] = {
    "item_model": "2pl",
    "estimator": "mml-items",
    "identification": "abilities sum to 0",
    "hyperparameters": {},
    "diagnostics": {
        "reason": "2 models",
        "converged": True,
        "iterations": 5,
        "log_likelihood": -12.345,
        "seconds": 0.25,
        "device": "cpu",
    },
}


def _ability(model: str, estimate: float | None, **changed: Any) -> Ability:
    known: dict[str, Any] = {
        "model": model, "task": "t", "metric": "acc", "n_items": 1200, "n_models": 2,
        "score": 0.5, "estimate": estimate, "low": -0.1, "high": 1.234, "std_error": 0.34,
        "confidence_level": 0.9, "item_model": "2pl", "estimator": "mml-items",
        "scale": "abilities sum to 0",
    }  # fmt: skip
    return Ability(**known | changed)


def _item(name: str, task: str = "t", **changed: Any) -> ItemEstimate:
    known: dict[str, Any] = {
        "item": name, "task": task, "metric": "acc", "n_models": 2, "score": 0.5,
        "difficulty": 0.25, "difficulty_std_error": 0.5, "discrimination": -0.75,
        "discrimination_std_error": 0.125, "guessing": 0.0, "upper": 1.0, "infit": 1.5,
        "outfit": None, "item_rest": None,
    }  # fmt: skip
    return ItemEstimate(**known | changed)


def _printed(results: Abilities) -> str:
    file = StringIO()
    abilities.ABILITIES.print_table(results, file, heading="made by hand", width=80)
    assert max(map(len, file.getvalue().splitlines())) <= 80
    return " ".join(file.getvalue().split())


def test_models_are_told_with_what_is_odd_about_them() -> None:
    """Footnotes number what rows say; an estimate that is not there is a dash."""
    rows = (
        _ability("a|b", 0.567, notes=("every answer right",)),
        _ability("unknown", None, low=None, high=None, std_error=None, score=None),
    )
    text = _printed(Abilities(rows, ("said once",), fit=FIT))

    assert "a|b +0.57 [-0.10, +1.23] 0.34 50.0 % 1,200 1" in text
    assert "unknown – – – – 1,200" in text
    assert "90 % interval" in text
    assert "1. every answer right (a|b)" in text
    assert "* said once" in text


def test_items_of_several_tasks_are_named_with_their_task() -> None:
    """In the table and in the notes; beyond the first lines they are counted, but in Markdown."""
    items = tuple(_item(str(i), f"t{i % 2}", notes=("odd",) * (i == 0)) for i in range(43))
    results = Abilities((_ability("a", 0.5),), items=items, fit=FIT)
    text, document = _printed(results), abilities.ABILITIES.to_markdown(results, "made by hand")

    assert "Items: 43, 1 of them to look at; 18 more are in --format csv" in text
    assert "0 t0 +0.25 0.50 -0.75 0.12 50.0 % 1.50 – 1" in text
    assert "1. odd (t0 item 0)" in text
    assert " 24 t0 " in text
    assert " 25 t1 " not in text
    assert "**Items: 43, 1 of them to look at**" in document
    assert "| 42 | t0 |" in document


def test_differences_have_a_verdict_in_words() -> None:
    """Of ability, not of scores."""
    row = Comparison(
        model_a="a", model_b="b", task="t", metric="ability on acc", n_items=9, difference=-1.0,
        low=-1.5, high=-0.5, p_value=0.001, p_adjusted=0.002, prob_better=0.0005,
        method="mml-items", confidence_level=0.9, higher_is_better=True,
    )  # fmt: skip
    results = Abilities((_ability("a", 0.5),), differences=(row,), fit=FIT)

    assert "b -1.00 [-1.50, -0.50] 0.0020 <0.1 % less able" in _printed(results)
    assert (
        "| b | -1.00 | [-1.50, -0.50] | 0.0020 | &lt;0.1 % | less able |"
        in abilities.ABILITIES.to_markdown(results, "made by hand")
    )


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "0 is the mean of these models (abilities sum to 0), and moves with them."),
        (
            {"identification": ITEM_ZERO},
            "0 = a model that answers the average item right half of the time",
        ),
        (
            {"identification": "0 is the ability of m"},
            "0 is the ability of m; 1 = a logit on an average item.",
        ),
        (
            {"identification": "ability ~ N(0, 1)"},
            "0 is the mean of such models, and 1 is how far they spread (ability ~ N(0, 1)).",
        ),
        (
            {"identification": "ability ~ N(0, σ²), discriminations are 1"},
            "0 is the mean of such models (ability ~ N(0, σ²), discriminations are 1).",
        ),
        (
            {"item_model": "3pl", "identification": ITEM_ZERO},
            "answers the average item halfway between chance and all right; other models",
        ),
        (
            {"diagnostics": {"scored_by": "eap", "n_items": 7}},
            "The scale is that of the saved fit (abilities sum to 0).",
        ),
    ],
)
def test_the_scale_is_explained_as_it_is(changed: dict[str, Any], expected: str) -> None:
    """What 0 and 1 mean depends on the estimator and the item model."""
    assert expected in abilities.legend(Abilities((), fit=FIT | changed))[0]


def test_how_it_went_is_said() -> None:
    """Also, loudly, when it did not go well; and for a bank."""
    failed = FIT | {"diagnostics": FIT["diagnostics"] | {"converged": False}}
    bank = FIT | {"diagnostics": {"scored_by": "eap", "n_items": 7}}

    assert (
        "Item model 2pl, estimator mml-items: 2 models. Converged after 5 steps, log-likelihood "
        "-12.35."
    ) == abilities.fit_summary(FIT)
    assert "NOT converged after 5 steps" in abilities.fit_summary(failed)
    assert (
        "Scored (eap) on 7 items of a saved 2pl fit, which count as known."
        == abilities.fit_summary(bank)
    )


def test_json_has_models_or_items_differences_and_the_fit() -> None:
    """Under names of their own; numbers as they are."""
    results = Abilities((_ability("a", 0.5),), items=(_item("x", notes=("odd",)),), fit=FIT)
    whole = json.loads(abilities.ABILITIES.to_json(results, {"version": "1"}))
    items = json.loads(abilities.items_json(results, {"version": "1"}))

    assert whole["results"][0]["estimate"] == 0.5
    (item,) = items["results"]
    assert (item["item"], item["outfit"], item["notes"]) == ("x", None, ["odd"])
    assert whole["differences"] == []
    assert whole["fit"] == items["fit"] == FIT

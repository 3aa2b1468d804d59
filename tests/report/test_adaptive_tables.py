"""What adaptive tests found, as people read it."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

from evalstats_plugin.adaptive.calibrate import BankTask
from evalstats_plugin.adaptive.replaying import AdaptiveTest, AdaptiveTests, ReplayAccuracy
from evalstats_plugin.adaptive.simulation import SimulatedAccuracy
from evalstats_plugin.data.results import Results
from evalstats_plugin.report import adaptive

TEST = AdaptiveTest(
    model="org/a_model_with_a_name_that_is_far_too_long_for_a_column-Instruct-v0.3",
    task="leaderboard_math_hard",
    metric="exact_match,none",
    n_items=1234,
    n_in_bank=12345,
    ability=-10.234,
    low=-11.0,
    high=-9.5,
    std_error=0.38,
    full_score=0.12345,
    full_score_low=0.1,
    full_score_high=0.15,
    observed=0.5,
    n_observed=12345,
    stopped="1234 items asked",
    rule="information",
    confidence_level=0.95,
    notes=("a note",),
)


def _printed(results: AdaptiveTests, width: int = 80) -> list[str]:
    file = StringIO()
    adaptive.TESTS.print_table(results, file, heading="how", width=width)
    return file.getvalue().splitlines()


def test_long_names_and_large_numbers_fit_80_columns_uncut() -> None:
    """Numbers are whole; a long name keeps its beginning and its end."""
    lines = _printed(AdaptiveTests((TEST, replace(TEST, model="b"))))
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("org/a_m") and "v0.3" in line for line in lines)
    for text in ("1234/12345", "-10.23", "[-11.00, -9.50]", "0.1235", "0.5000"):
        assert any(text in line for line in lines)
    assert "1. a note (leaderboard_math_hard exact_match)" in [line.strip() for line in lines]
    assert any("stopped, 1234 items asked" in line for line in lines)


def test_a_test_without_a_log_of_all_items_has_no_such_column() -> None:
    """What `adapt run` shows."""
    lines = "\n".join(_printed(AdaptiveTests((replace(TEST, observed=None),))))
    assert "Log" not in lines
    assert "Log" in "\n".join(_printed(AdaptiveTests((TEST,))))


def test_several_models_are_followed_by_how_right_their_tests_were() -> None:
    """Printed, and in JSON."""
    rows = [replace(TEST, model=name) for name in ("a|b", "c")]
    accuracy = ReplayAccuracy(
        n_models=2,
        n_items=10,
        score_mae=0.03125,
        score_width=0.1,
        score_coverage=0.5,
        rank_correlation=None,
    )
    results = AdaptiveTests(tuple(rows), accuracy=accuracy)
    lines = [" ".join(line.split()) for line in _printed(results)]
    assert "How right the tests were" in lines
    assert "2 10.0 0.0312 0.100 50 % –" in lines
    about = json.loads(adaptive.TESTS.to_json(results, {"rule": "information"}))["evalstats"]
    assert (0.03125, 2) == (about["accuracy"]["score_mae"], about["accuracy"]["n_models"])
    markdown = adaptive.TESTS.to_markdown(results, "how")
    assert "| a\\|b | leaderboard_math_hard | information | 1234/12345 |" in markdown
    assert "| 2 | 10.0 | 0.0312 | 0.100 | 50 % | – |" in markdown


def test_simulated_tests_say_how_wrong_the_items_were() -> None:
    """And have a dash where models do not differ."""
    row = SimulatedAccuracy(
        rule="random",
        n_items=10,
        n_models=50,
        ability_rmse=0.5,
        ability_rmse_low=0.4,
        ability_rmse_high=0.6,
        rank_correlation=None,
        score_mae=0.05,
        score_mae_low=0.04,
        score_mae_high=0.06,
        score_width=0.2,
        score_coverage=0.95,
        ability_coverage=0.9,
        confidence_level=0.95,
        misspecified=2.0,
    )
    file = StringIO()
    adaptive.ACCURACY.print_table(Results((row,)), file, heading="how", width=80)
    shown = " ".join(file.getvalue().split())
    assert "50 models drawn from the bank, errors of items × 2" in shown
    assert "10 0.500 90 % – 0.0500 [0.0400, 0.0600] 0.200 95 %" in shown


def test_a_bank_says_of_each_reason_how_many_and_names_a_few() -> None:
    """The rest is in JSON."""
    left = (*(f"q{k}: misfit" for k in range(8)), "q9: drift")
    row = BankTask(
        task="t|u",
        metric="acc",
        n_items=20,
        n_usable=11,
        n_models=40,
        difficulty=None,
        discrimination=1.0,
        std_error=0.25,
        cost=12345.0,
        left_out=left,
    )
    file = StringIO()
    adaptive.BANK.print_table(Results((row,)), file, heading="how", width=80)
    shown = " ".join(file.getvalue().split())
    assert "t|u 20 11 – 1.00 0.250 12,345" in shown
    assert "not asked, misfit: 8 of t|u (q0, q1, q2, q3, q4, and 3 more)" in shown
    assert "not asked, drift: 1 of t|u (q9)" in shown
    assert "| t\\|u | 20 | 11 |" in adaptive.BANK.to_markdown(Results((row,)), "how")

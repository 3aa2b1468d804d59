"""The figures of the adaptive studies: bars where they are met, what was measured where not.

`tests/validation/test_adaptive_real.py`, `test_adaptive_design.py` and `test_adaptive_coverage.py`
write them.
"""

import json
from pathlib import Path

import pytest

from evalstats_plugin.adaptive.selection import RULE_NAMES

FOLDER = Path(__file__).parents[2] / "fixtures" / "validation"


def real(name):
    rows = json.loads((FOLDER / f"adaptive_{name}.json").read_text("utf-8"))[name]
    return {(row["rule"], row["n"]): row for row in rows}


def test_ten_items_of_livebench_rank_models_and_predict_their_full_score():
    rows = real("livebench_binary")

    assert rows["information", 10]["rank_correlation"] >= 0.95
    assert rows["information", 10]["score_mae"] <= 0.030
    # As well as 50 items at random, or more.
    assert rows["information", 10]["rank_correlation"] > rows["random", 50]["rank_correlation"]


def test_every_rule_is_in_the_study():
    names = {rule for rule, _ in real("livebench_binary")}

    assert {*RULE_NAMES, "information, balanced"} == names


@pytest.mark.parametrize("name", ["livebench_binary", "gsm8k", "hellaswag"])
def test_intervals_hold_the_scores_of_real_models_like_the_banks(name):
    rows = real(name)
    held = {rule: [r["score_coverage"] for (own, _), r in rows.items() if own == rule]
            for rule in RULE_NAMES}  # fmt: skip

    for rule in ("design", "random"):
        assert 0.93 < sum(held[rule]) / len(held[rule])
    assert 0.88 < min(held["information"])


def design(section):
    return json.loads((FOLDER / "adaptive_design.json").read_text("utf-8"))[section]


@pytest.mark.parametrize("name", ["LiveBench", "metabench ARC", "AlpacaEval", "drawn worlds"])
def test_limits_by_design_hold_the_score_of_every_kind_of_model(name):
    rows = {(row["kind"], row["how"], row["n"]): row for row in design(name)}

    for (kind, how, n), row in rows.items():
        if how == "curves":
            continue
        assert row["held"] >= 0.93 - 3 * max(row["held_se"], 0.01)
        assert abs(row["bias"]) <= 0.01 + 3 * row["bias_se"]
        if how == "design":
            most = 1.02 if row["tests"] > 100 else 1.05
            assert row["width"] <= most * rows[kind, "random sample", n]["width"]
    # The control: by the curves alone, some kinds of models are not held.
    assert min(row["held"] for key, row in rows.items() if key[1] == "curves") < 0.8


def test_limits_of_a_difference_hold_and_are_narrow_where_models_err_alike():
    pairs = json.loads((FOLDER / "adaptive_pairs.json").read_text("utf-8"))["pairs"]
    rows = {(row["kind"], row["how"], row["n"]): row for row in pairs}

    assert all(row["held"] >= 0.93 for (_, how, _), row in rows.items() if how == "shared")
    for n in (25, 50):
        assert rows["versions", "shared", n]["width"] < 0.65 * rows["versions", "apart", n]["width"]
    # The control: Student's t on the same few items of two versions does not hold.
    assert rows["versions", "sample, shared", 10]["held"] < 0.8


def test_a_comparison_is_called_wrong_as_seldom_as_it_says():
    equal, apart = design("clear")

    assert equal["above"] + equal["below"] <= 0.05
    assert apart["above"] >= 0.8


def test_intervals_at_stopping_hold_what_they_say_and_peeking_does_not():
    rows = json.loads((FOLDER / "adaptive.json").read_text("utf-8"))["coverage"]
    *honest, peeking = rows

    assert 12 == len(honest)
    for row in honest:
        least = 0.91 if row["of"] == "ability" else 0.93
        assert least <= row["coverage"] <= 0.97
    assert peeking["coverage"] + 3 * peeking["std_error"] < 0.9


def test_adaptive_tests_stop_sooner_than_random_ones():
    rows = json.loads((FOLDER / "adaptive.json").read_text("utf-8"))["coverage"]
    items = {row["rule"]: row["items"] for row in rows if row["stop"] == "std_error 0.3"}

    assert items["information"] < 0.4 * items["random"]


def test_a_bank_that_is_too_sure_of_its_items_harms_from_twice_on():
    rows = json.loads((FOLDER / "adaptive.json").read_text("utf-8"))["misspecified"]
    by_times = {row["times"]: row for row in rows}

    assert all(by_times[times]["ability_coverage"] > 0.93 for times in (0.0, 1.0))
    assert 0.88 < by_times[2.0]["ability_coverage"] < 0.93
    # The negative control: errors three times what the bank says are no longer covered.
    assert by_times[3.0]["ability_coverage"] < 0.9
    assert by_times[3.0]["ability_rmse"] > 1.2 * by_times[1.0]["ability_rmse"]

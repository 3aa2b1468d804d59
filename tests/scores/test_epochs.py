"""Items taken several times: pass@k and variance parts of real logs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from scipy import stats

import evalstats_plugin as es
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.scores.epochs import with_at_k

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOGS = FIXTURES / "logs" / "inspect_ai" / "0.3.285" / "models"
EPOCHS = sorted(LOGS.glob("*arith-epochs*"))


def _matrix(scores: object) -> es.ResponseMatrix:
    return es.ResponseMatrix.from_array(scores)  # pyright: ignore[reportArgumentType]


def test_a_metric_of_k_takes_is_named_after_both() -> None:
    """The filter stays behind its comma; scores lie in [0, 1]."""
    found = es.scores.at_k(_matrix(np.ones((2, 3, 4))), "pass@4", "pass^2", "maj@3")

    assert ["pass@4 score", "pass^2 score", "maj@3 score"] == [r.metric for r in found][:3]
    assert all(r.scores.shape == (3, 1) and r.bounds == (0.0, 1.0) for r in found)
    assert 6 == len(found)


def test_pass_at_2_is_what_inspect_logged() -> None:
    """Its own pass_at_2 reducer, which averages over pairs of epochs too."""
    logged = {"mockllm/alpha": 61 / 90, "mockllm/beta": 64 / 90}
    found = es.scores.at_k(es.read(*EPOCHS), "pass@2")
    means = {r.model: float(r.scores.mean()) for r in found}

    for model, expected in logged.items():
        assert means[model] == pytest.approx(expected, abs=1e-12)


def test_items_with_too_few_epochs_are_left_out_with_a_note() -> None:
    """Not the others."""
    scores = np.ones((1, 3, 2))
    scores[0, 0, 1] = np.nan
    row = es.intervals(es.scores.at_k(_matrix(scores), "pass^2"))[0]

    assert (2, 1) == (row.n_items, row.n_missing)
    assert "1 item has fewer than 2 scored epochs" in row.notes


def test_intervals_and_comparisons_take_them_as_they_are() -> None:
    """Without knowing of k; a perfect pass@k is no certainty."""
    rng = np.random.default_rng(0)
    scores = 1.0 * (rng.uniform(size=(2, 40, 5)) < [[[0.9]], [[0.5]]])
    derived = es.scores.at_k(_matrix(scores), "pass@4")
    first, second = es.intervals(derived)
    pair = es.compare(derived)[0]

    assert "reach" == second.method
    assert 1.0 == first.estimate == first.high
    assert first.low is not None
    assert first.low < 0.99
    assert pair.difference == pytest.approx(second.estimate - 1.0)  # pyright: ignore[reportOptionalOperand]


def test_what_runs_in_place_of_a_method_is_said_of_curves_too() -> None:
    scores = (np.random.default_rng(2).random((1, 9, 3)) < 0.5) * 1.0
    found = es.scores.curves(
        _matrix(scores), "pass@1..2", intervals=partial(es.intervals, method="wilson")
    )

    assert found.notes == ("wilson does not fit 2 of 2 scores: reach there",)


def test_a_perfect_score_of_as_many_takes_as_there_are_is_a_proportion() -> None:
    """pass@k of k epochs is right or wrong for each item: the Beta posterior of n trials."""
    derived = es.scores.at_k(_matrix([[[1, 0], [0, 0], [1, 1], [0, 1]]]), "pass@2")
    row = es.intervals(derived)[0]

    assert ("beta-hpd", 0.75, 4) == (row.method, row.estimate, row.n_items)


def test_what_cannot_be_derived_is_named() -> None:
    """Tasks with one epoch or partial credit, beside one that has three epochs."""
    found = es.scores.at_k(es.read(LOGS), "pass@2", "maj@3")

    assert {"arith_epochs"} == {r.task for r in found}
    assert any(
        n.startswith("pass@2, maj@3 not derived, 1 epoch only: arith match") for n in found.notes
    )
    assert any(
        "scores other than 0 and 1: rubric_task rubric:style (such as 0." in n for n in found.notes
    )


def test_derived_rows_come_below_what_they_are_derived_from() -> None:
    """In the order asked for."""
    found = with_at_k(es.read(*EPOCHS), ("pass@2", "maj@3"))

    assert ["match", "pass@2 match", "maj@3 match"] == [r.metric for r in found][:3]
    assert 12 == len(found)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.ones((1, 3, 2)), r"pass@4 needs .* 2 epochs only: task score"),
        (np.full((1, 3, 4), 0.5), r"scores other than 0 and 1: task score \(such as 0\.5\)"),
        (np.where(np.eye(4) > 0, 1.0, np.nan)[None], "no item with 4 scored epochs"),
    ],
)
def test_scores_that_cannot_give_it_are_refused(scores: np.ndarray, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        es.scores.at_k(_matrix(scores), "pass@4")


@pytest.mark.parametrize("name", ["pass@0", "pass", "best@4", "pass@4.5", ""])
def test_names_of_another_form_are_refused(name: str) -> None:
    with pytest.raises(SelectionError, match="write pass@4"):
        es.scores.at_k(_matrix(np.ones((1, 3, 2))), name)


def test_variance_parts_split_the_standard_error_that_is_logged() -> None:
    """15 items in 4 epochs: the formulas written out."""
    rng = np.random.default_rng(1)
    scores = 1.0 * (rng.uniform(size=(1, 15, 4)) < rng.uniform(size=(1, 15, 1)))
    row = es.scores.variance_parts(_matrix(scores))[0]
    p = scores[0].mean(axis=1)
    within = (p * (1 - p)).mean() * 4 / 3
    total = p.var(ddof=1)

    assert row.within == pytest.approx(within)
    assert row.between == pytest.approx(total - within / 4)
    assert row.std_error == pytest.approx(np.sqrt(total / 15))
    assert row.std_error_more_epochs == pytest.approx(np.sqrt((total - within / 8) / 15))
    assert row.std_error_more_items == pytest.approx(np.sqrt(total / 30))
    assert row.share_within == pytest.approx(within / (within + total - within / 4))


def test_a_variance_below_zero_is_reported_and_noted() -> None:
    """Shown as it is, but taken as 0: all is within items, and twice the epochs halve it."""
    scores = np.array([[[1, 0], [0, 1], [1, 0], [1, 1.0]]])
    row = es.scores.variance_parts(_matrix(scores))[0]

    assert row.between is not None
    assert row.between < 0
    assert 1.0 == row.share_within
    assert row.std_error is not None
    assert row.std_error_more_epochs == pytest.approx(row.std_error / np.sqrt(2))
    assert any("below 0" in note for note in row.notes)


def test_clusters_make_the_variance_between_larger() -> None:
    """The standard error is the one `intervals` gives."""
    responses = es.read(*EPOCHS)
    alone = ResponseSet(tuple(replace(r, clusters=None) for r in responses))
    clustered, plain = es.scores.variance_parts(responses)[3], es.scores.variance_parts(alone)[3]

    rows = [row for row in es.intervals(responses) if row.metric == "match"]
    assert clustered.std_error == rows[3].std_error
    assert clustered.within == plain.within
    assert clustered.between > plain.between  # pyright: ignore[reportOperatorIssue]


def test_one_epoch_tells_nothing_of_epochs() -> None:
    """None, not 0."""
    row = es.scores.variance_parts(_matrix([[1, 0, 1]]))[0]

    assert (None, None, None) == (row.within, row.share_within, row.std_error_more_epochs)
    assert row.std_error is not None


def test_scores_that_do_not_vary_are_not_certain() -> None:
    """No standard error is given for 15 of 15."""
    row = es.scores.variance_parts(_matrix(np.ones((1, 15, 4))))[0]

    assert (None, None, None) == (row.std_error, row.std_error_more_items, row.between)


def test_nothing_to_split_is_an_error() -> None:
    with pytest.raises(DesignError, match="two or more item scores"):
        es.scores.variance_parts(_matrix([[1.0]]))


def test_one_trial_per_item_says_what_its_interval_covers() -> None:
    """pass@4 of four epochs is 0 or 1; 5 of 10 items: .89 of samples cover a score of ½."""
    right = np.zeros((10, 4))
    right[:5, 0] = 1
    few = given_responses(
        model="m", task="t", metric="acc", item_ids=np.arange(10), scores=right,
        source=es.data.Source(path=Path("x"), harness="test"),
    )  # fmt: skip
    many = replace(few, item_ids=np.arange(300), scores=np.tile(right, (30, 1)))
    [row], [of_many] = (es.intervals(es.scores.at_k([r], "pass@4")) for r in (few, many))

    assert row.notes[-1] == (
        "each item is a single 0 or 1, and 10 items are few for it: over the scores in this "
        "interval beta-hpd covers 89 to 99 %"
    )
    assert of_many.notes == ()
    # On another scale the same; limits beyond the scale once covered "nan to nan %".
    [derived] = es.scores.at_k([few], "pass@4")
    points = derived.under(derived.measure.on((2.0, 6.0), "logged"))
    [row_of_points] = es.intervals([replace(points, scores=2 + 4 * derived.scores)])
    assert row_of_points.notes == row.notes
    [wald] = es.intervals(
        [replace(derived, scores=np.arange(10)[:, None] // 8 * 1.0)], method="wald"
    )
    shares = np.arange(11) / 10
    half = stats.norm.ppf(0.975) * np.sqrt(shares * (1 - shares) / 10)
    p = np.linspace(0, (shares + half)[2], 202)[1:-1, None]
    held = np.abs(p - shares) <= half
    covered = (stats.binom.pmf(np.arange(11), 10, p) * held).sum(axis=1)
    said = f"wald covers {100 * covered.min():.0f} to {100 * covered.max():.0f} %"
    assert wald.low < 0  # pyright: ignore[reportOptionalOperand]
    assert wald.notes[-1].endswith(said)

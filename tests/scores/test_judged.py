"""How good is a model, by a judge and few human labels?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from scipy import stats

from evalstats_plugin import Responses, Source
from evalstats_plugin.comparisons.judged import JudgedScores, judge
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.scores.judged import METHOD, JudgeBias, in_words
from evalstats_plugin.stats.survey.prediction_powered import ppi


def _responses(metric: str, scores: np.ndarray, **more: object) -> Responses:
    source = Source(path=Path("log.json"), harness="test")
    given = {"model": "m", "task": "t", "item_ids": np.arange(len(scores)), **more}
    return given_responses(metric=metric, scores=scores[:, None], source=source, **given)  # pyright: ignore[reportArgumentType]


def _data(n: int = 40, n_judged: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all true labels, those known, and what the judge says."""
    rng = np.random.default_rng(5)
    truth = (rng.uniform(size=n_judged) < 0.7) * 1.0
    judged = np.where(rng.uniform(size=n_judged) < 0.9, truth, 1 - truth)
    return truth, np.where(np.arange(n_judged) < n, truth, np.nan), judged


def _both(n: int = 40) -> list[Responses]:
    _, labels, judged = _data(n)
    return [_responses("human,strict", labels), _responses("llm_judge", judged)]


def _run(responses: list[Responses], **more: object) -> JudgedScores:
    given: dict[str, object] = {"human": "human", "judge": "llm_judge", **more}
    return judge(responses, **given)  # pyright: ignore[reportArgumentType]


def test_a_judge_sharpens_few_labels() -> None:
    """The numbers of the formula, around the truth, and what they rest on."""
    truth, labels, judged = _data()
    found = ppi([labels], [judged], bounds=(0, 1), confidence_level=0.95)
    (row,) = _run(_both())

    assert (METHOD, 40, "human,strict") == (row.method, row.n_items, row.metric)
    assert (found.estimate[0], *(limit[0] for limit in found.interval)) == pytest.approx(
        (row.estimate, row.low, row.high), abs=1e-12
    )
    assert row.low <= truth.mean() <= row.high  # pyright: ignore[reportOptionalOperand]
    assert (40, 400, "llm_judge", ()) == (row.n_items, row.n_judged, row.judge, row.notes)
    assert row.judged == pytest.approx(judged.mean(), abs=1e-12)
    assert 0 < (row.weight or 0) < 1 < (row.worth or 0)
    assert 50 == row.n_more
    assert (row.half_width_more or 0) < (row.high - row.low) / 2  # pyright: ignore[reportOptionalOperand]


def test_labels_may_come_from_elsewhere() -> None:
    """By item id: the same as if they were a metric."""
    _, labels, judged = _data()
    known = {str(i): float(x) for i, x in enumerate(labels) if not np.isnan(x)}
    (metric,) = _run(_both())
    (row,) = judge([_responses("llm_judge", judged)], judge="llm_judge", labels=known)

    assert (metric.estimate, metric.low, metric.high) == pytest.approx(
        (row.estimate, row.low, row.high), abs=1e-12
    )
    assert "human" == row.metric
    points = {item: 1 + 4 * score for item, score in known.items()}
    (of_points,) = judge(
        [_responses("llm_judge", judged)], judge="llm_judge", labels=points,
        measure=Measure(metric="human", scale=Scale(1, 5)),
    )  # fmt: skip
    assert of_points.low == pytest.approx(1 + 4 * (row.low or 0))


def test_each_model_and_task_has_a_row() -> None:
    """Where both metrics are there; the others have none."""
    _, labels, judged = _data()
    more = [_responses(m, s, model="other") for m, s in (("human", labels), ("llm_judge", judged))]
    alone = _responses("llm_judge", judged, model="third")

    assert ["m", "other"] == [row.model for row in _run([*_both(), *more, alone])]


def test_labels_of_all_items_make_a_note() -> None:
    """The judge has nothing to add."""
    (row,) = _run(_both(400))

    assert "all 400 items that llm_judge scored have a human label: it adds nothing" in row.notes


def test_limits_of_an_agreement_are_those_of_its_posterior() -> None:
    """Beta, with half an answer more on either side."""
    scores = np.array([0.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    for judged, n_right in ((scores, 6), (1 - scores, 0), (np.append(scores[:5], 0.0), 5)):
        (found,) = _run([_responses("human", scores), _responses("llm_judge", judged)]).agreement
        posterior = stats.beta(n_right + 0.5, 6.5 - n_right)

        assert found.agreement == pytest.approx(n_right / 6)
        assert (found.agreement_low, found.agreement_high) == pytest.approx(
            posterior.ppf([0.025, 0.975]).tolist(), abs=0.02
        )
    for human, judged in ((scores, np.ones(6)), (np.ones(6), scores)):
        (found,) = _run([_responses("human", human), _responses("llm_judge", judged)]).agreement
        assert found.correlation is None


def test_a_feature_that_no_labelled_answer_has_tells_nothing() -> None:
    """Five labels are enough to say how a judge errs, and none of these has a length."""
    labels, scores = np.array([0.0, 1, 1, 0, 1, np.nan]), np.array([0.0, 1, 0, 0, 1, 1])
    answers = [_responses("human", labels), _responses("llm_judge", scores)]
    lengths = {"length": {("m", "t", "5"): 3.0}}

    assert [row.feature for row in _run(answers).bias] == ["score"]
    assert _run(answers, features=lengths).bias == ()


def test_a_constant_added_to_all_lengths_or_scores_changes_no_bias() -> None:
    """Nor where lengths, or labels, tell the models apart."""
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(2, 30))
    sizes = []
    for shift in (0.0, 64.0):
        answers = []
        for k, model in enumerate("ab"):
            answers += [
                _responses("human", np.full(30 - 9 * k, k + shift), model=model),
                _responses("llm_judge", (k + shift + noise[k])[: 30 - 9 * k], model=model),
            ]
        lengths = {(m, "t", str(i)): k + shift for k, m in enumerate("ab") for i in range(30)}
        bounds = [Measure(metric=m, scale=Scale(-9, 99)) for m in ("human", "llm_judge")]
        bias = _run(answers, features={"length": lengths}, measure=bounds).bias
        sizes.append([(row.feature, row.size, row.in_reverse) for row in bias])

    assert [name for name, *_ in sizes[0]] == ["length", "score", "a", "b"]
    for one, other in zip(*sizes, strict=True):
        assert one[1:] == pytest.approx(other[1:], abs=1e-9)


def test_words_say_what_a_row_has() -> None:
    """A judge on another scale has no mean beside it, and few labels perhaps no estimate."""
    (row,) = _run(_both(5))
    row = replace(row, judged=0.5, estimate=0.25, low=0.125, high=0.75)

    assert in_words(row) == (
        "judged 0.500, corrected 0.250 [0.125, 0.750] by 5 human labels (ppi++)"
    )
    for lacking in ("low", "high"):
        without = replace(row, judged=None, estimate=None, n_items=1, **{lacking: None})
        assert in_words(without) == "corrected – by 1 human label (ppi++)"


def test_points_without_known_bounds_get_a_t_interval() -> None:
    """Symmetric; with bounds it is not."""
    _, labels, judged = _data()
    grades = [_responses("human", 200 + 4 * labels), _responses("llm_judge", 100 * judged)]
    (free,), (bounded,) = (
        _run(grades),
        _run(grades, measure=Measure(metric="human", scale=Scale(200, 204))),
    )

    assert (free.low or 0) + (free.high or 0) == pytest.approx(2 * (free.estimate or 0))
    assert (bounded.low or 0) + (bounded.high or 0) != pytest.approx(2 * (free.estimate or 0))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"human": "humann"}, "did you mean human,strict"),
        ({"judge": "judge"}, "did you mean llm_judge"),
        ({"human": None}, "pass one of human and labels"),
        ({"labels": {"1": 1.0}}, "pass one of human and labels"),
    ],
)
def test_metrics_that_are_not_there_get_the_closest_names(
    more: dict[str, object], message: str
) -> None:
    """And labels come from one place."""
    with pytest.raises(SelectionError, match=message):
        _run(_both(), **more)


def test_too_few_labels_are_refused() -> None:
    """Four; five are enough."""
    with pytest.raises(DesignError, match="'m' on 't' has 4 human labels; label at least 5"):
        _run(_both(4))
    assert 5 == _run(_both(5))[0].n_items


def test_labelled_items_that_the_judge_has_not_scored_are_named() -> None:
    """Leaving them out unasked could leave out the hard ones."""
    _, labels, judged = _data()
    judged[[3, 7]] = np.nan

    with pytest.raises(DesignError, match=r"2 of 40 labelled items .* \(3, 7\)"):
        _run([_responses("human", labels), _responses("llm_judge", judged)])


def test_no_item_in_common_is_refused() -> None:
    """Labels of other items."""
    _, labels, judged = _data()
    elsewhere = _responses("human", labels, item_ids=np.arange(1000, 1400))

    with pytest.raises(DesignError, match="none of them the same"):
        _run([elsewhere, _responses("llm_judge", judged)])


def test_labels_of_one_model_do_not_serve_two() -> None:
    """They are of its answers."""
    _, _, judged = _data()
    two = [_responses("llm_judge", judged, model=m) for m in "ab"]

    with pytest.raises(DesignError, match="one model's answers"):
        judge(two, judge="llm_judge", labels={"1": 1.0})


def test_human_and_judge_must_meet() -> None:
    """One labelled model, another judged one."""
    _, labels, judged = _data()
    apart = [_responses("human", labels), _responses("llm_judge", judged, model="b")]

    with pytest.raises(DesignError, match="give both for the same model and task"):
        _run(apart)


@pytest.mark.parametrize(
    ("p", "size", "in_reverse", "verdict"),
    [
        (None, 0.2, 0.1, "none found"),
        (0.26, 0.2, 0.1, "none found"),
        (0.25, 0.2, 0.1, "biased"),
        (0.01, 0.2, None, "biased"),
        (0.01, 0.2, -0.1, "unsure"),
        (0.01, -0.2, 0.1, "unsure"),
        (0.01, -0.2, -0.1, "biased"),
        (0.01, 0.2, 0.0, "unsure"),
        (0.01, 0.0, 0.5, "unsure"),
        (0.01, None, 0.5, "unsure"),
    ],
)
def test_a_preference_counts_if_people_do_not_share_it(
    p: float | None, size: float | None, in_reverse: float | None, verdict: str
) -> None:
    """At a level of 75 %, up to its own p-value; of the same sign in reverse."""
    row = JudgeBias(
        task="t", judge="j", feature="length", n_labels=9, size=size, low=None, high=None,
        p_adjusted=p, in_sd=None, in_reverse=in_reverse, confidence_level=0.75,
    )  # fmt: skip
    assert row.verdict == verdict

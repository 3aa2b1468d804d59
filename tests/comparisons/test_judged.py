"""Which model is better, by judges that people's labels correct; and how good the judges are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from given_responses import given_responses
from scipy import stats

from evalstats_plugin import Responses, Source, judge, next_labels
from evalstats_plugin.comparisons.judged import JudgedScores, _chances_of_next, _off_by_score
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.scores.judged import Label
from evalstats_plugin.stats.metrics import agreement, quadratic_weights
from evalstats_plugin.stats.survey.prediction_powered import cross_fitted

MODELS = ("a", "b", "c")
N, LABELLED = 300, 60


def _one(model: str, metric: str, scores: np.ndarray, **more: object) -> Responses:
    source = Source(path=Path("log.json"), harness="test")
    return given_responses(  # pyright: ignore[reportArgumentType]
        model=model, task="t", metric=metric, scores=scores[:, None], source=source,
        item_ids=np.arange(len(scores)), **more,
    )  # fmt: skip


def _answers(seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """Labels of all answers and what two judges say; b is better than a, c is like a."""
    rng = np.random.default_rng(seed)
    item = rng.normal(size=N)
    found: dict[str, dict[str, np.ndarray]] = {}
    for model, ability in zip(MODELS, (0.0, 1.2, 0.0), strict=True):
        length = rng.normal(size=N)
        latent = ability + item + rng.normal(size=N)
        seen = latent + 0.5 * rng.normal(size=N) + 0.9 * length
        right = rng.random(N) < 0.8
        label = (latent > 0) * 1.0
        found[model] = {
            "human": np.where(np.arange(N) < LABELLED, label, np.nan), "all": label,
            "gpt": (seen > 0) * 1.0, "claude": np.where(right, label, 1 - label), "length": length,
        }  # fmt: skip
    return found


def _responses(*metrics: str, models: tuple[str, ...] = MODELS) -> list[Responses]:
    answers = _answers()
    return [_one(m, metric, answers[m][metric]) for m in models for metric in metrics]


def _both(
    models: Sequence[str],
    human: Callable[[str], np.ndarray],
    gpt: Callable[[str], np.ndarray],
    **more: object,
) -> list[Responses]:
    """Labels and what a judge says of some models."""
    named = (("human", human), ("gpt", gpt))
    return [_one(m, metric, scores(m), **more) for m in models for metric, scores in named]


def _rows_of_both(a: JudgedScores, b: JudgedScores) -> Iterator[tuple[Any, Any]]:
    """Scores and differences of two analyses, side by side."""
    yield from zip([*a, *(a.differences or ())], [*b, *(b.differences or ())], strict=True)


def _features(name: str = "length") -> dict[str, dict[tuple[str, str, str], float]]:
    answers = _answers()
    values = {
        (m, "t", str(j)): float(x) for m in MODELS for j, x in enumerate(answers[m]["length"])
    }
    return {name: values}


def test_models_are_compared_by_labels_and_judge() -> None:
    """Wins and losses are those of the labels; limits are shorter than of labels alone."""
    found = judge(_responses("human", "gpt"), judge="gpt", human="human", baseline="a")
    plain = _responses("human", "gpt")
    flat = [_one(r.model, "gpt", np.zeros(N)) if r.metric == "gpt" else r for r in plain]
    alone = judge(flat, judge="gpt", human="human", baseline="a")

    assert found.differences is not None
    assert alone.differences is not None
    of_b, _ = found.differences
    labels = {m: answer["human"][:LABELLED] for m, answer in _answers().items()}
    verdicts = [(row.model_b, row.verdict) for row in found.differences]
    assert verdicts == [("b", "better"), ("c", "unclear")]
    assert ((labels["b"] > labels["a"]).sum(), LABELLED) == (of_b.n_wins, of_b.n_items)
    for ours, without in zip(found.differences, alone.differences, strict=True):
        assert ours.high - ours.low < without.high - without.low  # pyright: ignore[reportOptionalOperand]
    mean = float((labels["b"] - labels["a"]).mean())
    assert alone.differences[0].difference == pytest.approx(mean, abs=1e-12)
    assert "corrected by gpt on 300" in of_b.notes[0]


def test_with_labels_of_all_items_it_is_the_comparison_of_labels() -> None:
    """The same engine: limits, p-values and verdicts of `compare`."""
    from evalstats_plugin import compare

    answers = _answers()
    labels = [_one(m, "human", answers[m]["all"]) for m in MODELS]
    scale = Measure(metric="human", scale=Scale(0, 1))
    found = judge([*labels, *_responses("gpt")], judge="gpt", human="human", measure=scale)
    plain = compare(labels, overall=False)

    assert found.differences is not None
    for ours, own in zip(found.differences, plain, strict=True):
        assert ours.difference == pytest.approx(own.difference, abs=1e-12)
        assert (ours.low, ours.high) == pytest.approx((own.low, own.high), abs=2e-3)
        assert ours.p_adjusted == pytest.approx(own.p_adjusted, abs=0.02)


def test_models_may_be_labelled_on_other_items() -> None:
    """Then they are independent, and the limits wider."""
    answers = _answers()
    moved = [
        _one(m, "human", np.where((np.arange(N) // LABELLED) == k, answers[m]["all"], np.nan))
        for k, m in enumerate(MODELS)
    ]
    apart = judge([*moved, *_responses("gpt")], judge="gpt", human="human")
    together = judge(_responses("human", "gpt"), judge="gpt", human="human")

    assert apart.differences is not None
    assert together.differences is not None
    row, same = apart.differences[0], together.differences[0]
    assert "0 of 120 items have labels of both models" in row.notes
    assert row.high - row.low > same.high - same.low  # pyright: ignore[reportOptionalOperand]
    error = np.sqrt(sum(each.std_error**2 for each in apart.rows[:2]))  # pyright: ignore[reportOptionalOperand]
    assert row.std_error == pytest.approx(error, rel=0.15)


def test_a_judge_that_was_never_wrong_proves_no_difference() -> None:
    """Twenty labels, on which the judge agrees, leave room for an error of either model."""
    answers = _answers()
    few = np.where(np.arange(N) < 20, 1.0, np.nan)
    responses = _both("ab", lambda m: few * answers[m]["all"], lambda m: answers[m]["all"])
    found = judge(responses, judge="gpt", human="human", population="these")

    assert found.differences is not None
    (row,) = found.differences
    truth = np.mean(answers["b"]["all"] - answers["a"]["all"])
    assert row.difference == pytest.approx(truth, abs=0.02)
    # As an error in one of twenty items would move it, at least.
    assert row.low < truth - 0.05  # pyright: ignore[reportOptionalOperand]
    assert row.high > truth + 0.05  # pyright: ignore[reportOptionalOperand]


def test_these_items_leave_less_open_than_new_ones() -> None:
    """Scores and differences; nothing is open where every item has a label."""
    new, these = (
        judge(_responses("human", "gpt"), judge="gpt", human="human", population=population)
        for population in ("new", "these")
    )

    assert "these 300 items" == these[0].population
    for a, b in _rows_of_both(new, these):
        assert a.high - a.low > b.high - b.low


def test_clusters_are_what_is_sampled() -> None:
    """Four equal copies of an item are no four items."""
    answers = _answers()
    clusters = np.repeat(np.arange(N // 4), 4).astype(str)
    copied = {(m, k): answers[m][k][: N // 4].repeat(4) for m in MODELS[:2] for k in ("all", "gpt")}
    known = np.arange(N) < 120
    responses = _both(
        "ab", lambda m: np.where(known, copied[m, "all"], np.nan), lambda m: copied[m, "gpt"],
        clusters=clusters,
    )  # fmt: skip
    few = np.arange(N // 4) < 30
    single = _both(
        "ab", lambda m: np.where(few, copied[m, "all"][::4], np.nan),
        lambda m: copied[m, "gpt"][::4],
    )  # fmt: skip
    found, own = (judge(each, judge="gpt", human="human") for each in (responses, single))

    assert (30, 120) == (found[0].n_clusters, found[0].n_items)
    for a, b in _rows_of_both(found, own):
        assert (a.low, a.high) == pytest.approx((b.low, b.high), abs=0.01)


def test_labels_that_are_spread_over_clusters_know_less_of_the_judges_mean() -> None:
    """One label in each cluster: the judge's mean of all items varies as clusters do."""
    rng = np.random.default_rng(2)
    shared = np.repeat(rng.normal(size=60), 10)
    latent = 2 * shared + 0.3 * rng.normal(size=600)
    seen = np.arange(600) % 10 == 0
    label, judged = np.where(seen, latent, np.nan), latent + 0.2 * rng.normal(size=600)
    clusters = (np.arange(600) // 10).astype(str)
    given, alone = (
        judge(
            [_one("a", "human", label, clusters=c), _one("a", "gpt", judged, clusters=c)],
            judge="gpt", human="human",
        )[0]
        for c in (clusters, None)
    )  # fmt: skip
    of_clusters = 2 * shared[::10].std(ddof=1) / np.sqrt(60)

    assert given.std_error == pytest.approx(of_clusters, rel=0.1)
    assert (alone.std_error or 0) < 0.6 * of_clusters


def test_more_labels_are_worth_what_they_then_are() -> None:
    """About as sure as said, with 50 more; and surer yet of these items alone."""
    answers = _answers()["a"]

    def labelled(n: int, population: str) -> tuple[float, float]:
        label = np.where(np.arange(N) < n, answers["all"], np.nan)
        responses = [_one("a", "human", label), _one("a", "gpt", answers["gpt"])]
        row = judge(responses, judge="gpt", human="human", population=population)[0]  # pyright: ignore[reportArgumentType]
        return (row.high - row.low) / 2, row.half_width_more or 0  # pyright: ignore[reportOptionalOperand]

    for population in ("new", "these"):
        (_, expected), (later, _) = labelled(60, population), labelled(110, population)
        assert later == pytest.approx(expected, rel=0.12)
    # With the last labels nothing is open.
    (now, expected), later = labelled(N - 50, "these"), labelled(N, "these")
    assert expected < 0.05 * now
    assert later == pytest.approx((0, 0), abs=0.02)


def test_several_judges_are_corrected_by_their_mean() -> None:
    """And looked at one by one; the mean of two is worth more than either."""
    both = judge(_responses("human", "gpt", "claude"), judge=["gpt", "claude"], human="human")
    one = judge(_responses("human", "gpt"), judge="gpt", human="human")

    assert "the mean of 2 judges" == both[0].judge
    assert (both[0].worth or 0) > (one[0].worth or 0)
    pairs = [("human", "gpt"), ("human", "claude"), ("gpt", "claude")]
    assert pairs == [(row.rater_a, row.rater_b) for row in both.agreement]
    assert [180, 180, 900] == [row.n_answers for row in both.agreement]
    for row in both.agreement:
        assert row.kappa_low < row.kappa < row.kappa_high  # pyright: ignore[reportOptionalOperand]
        assert row.ac1_low < row.ac1 < row.ac1_high  # pyright: ignore[reportOptionalOperand]


def test_agreement_of_printed_tables() -> None:
    """Gwet (2002), 118, 5, 2, 0: kappa -.0234, AC1 .9408; and near scores by hand."""
    found = agreement([[118, 5], [2, 0]])

    assert -0.0234 == pytest.approx(float(found.kappa), abs=5e-5)
    assert 0.9408 == pytest.approx(float(found.ac1), abs=5e-5)
    # Of near scores as agreement in part: by hand.
    table = np.array([[4, 1, 0], [1, 2, 1], [0, 0, 1]]) / 10
    weights = quadratic_weights([1, 2, 3])
    expected = (weights * np.outer(table.sum(axis=1), table.sum(axis=0))).sum()
    kappa = ((weights * table).sum() - expected) / (1 - expected)
    assert kappa == pytest.approx(float(agreement(table, weights).kappa), abs=1e-12)


def test_twenty_answers_of_perfect_agreement_are_no_proof() -> None:
    """The lower limit leaves room for some disagreement."""
    labels = np.where(np.arange(N) < 20, np.arange(N) % 2, np.nan).astype(float)
    responses = [_one("a", "human", labels), _one("a", "gpt", (np.arange(N) % 2).astype(float))]
    (row,) = judge(responses, judge="gpt", human="human").agreement

    assert 1.0 == row.agreement == row.kappa
    assert 0.6 < (row.kappa_low or 0) < 0.95


def test_a_preference_for_length_is_found_and_another_is_not() -> None:
    """Of the judge that prefers it, corrected for models and labels."""
    found = judge(
        _responses("human", "gpt", "claude"), judge=["gpt", "claude"], human="human",
        features=_features(),
    )  # fmt: skip
    by = {(row.judge, row.feature): row for row in found.bias}

    assert {"length", "score", *MODELS} == {row.feature for row in found.bias}
    assert "biased" == by["gpt", "length"].verdict
    assert "none found" == by["claude", "length"].verdict
    assert sum(by["gpt", m].size or 0 for m in MODELS) == pytest.approx(0, abs=1e-9)
    shown = [row for row in found.bias if 0.01 < (row.p_adjusted or 0) < 0.99]
    assert shown
    for row in shown:
        # At once for the five features of a judge: Šidák's share of .05 each.
        alone = 1 - (1 - row.p_adjusted) ** 0.2  # pyright: ignore[reportOptionalOperand]
        error = abs(row.size) / stats.norm.isf(alone / 2)  # pyright: ignore[reportArgumentType]
        half = stats.norm.isf((1 - 0.95**0.2) / 2) * error
        assert (row.high - row.low) / 2 == pytest.approx(half, rel=0.06)  # pyright: ignore[reportOptionalOperand]


def test_a_model_is_favoured_by_as_much_as_the_judge_adds() -> None:
    """Points for one model's answers, against the average model: 2/3 of them, of three."""
    rng = np.random.default_rng(5)
    responses: list[Responses] = []
    for m in MODELS:
        label = rng.normal(size=N)
        given = label + 0.3 * (m == "a") + 0.01 * rng.normal(size=N)
        responses += [_one(m, "human", label), _one(m, "gpt", given)]
    by = {row.feature: row for row in judge(responses, judge="gpt", human="human").bias}

    assert 0.2 == pytest.approx(by["a"].size, abs=0.005)
    assert -0.1 == pytest.approx(by["b"].size, abs=0.005)


def test_quality_that_labels_do_not_show_is_no_bias() -> None:
    """Longer answers are better, the judge is fair, and labels are right or wrong."""
    rng = np.random.default_rng(1)
    quality = rng.normal(size=2000)
    length = 0.7 * quality + 0.7 * rng.normal(size=2000)
    judged = (quality + 0.5 * rng.normal(size=2000) > 0) * 1.0
    responses = [_one("a", "human", (quality > 0) * 1.0), _one("a", "gpt", judged)]
    features = {"length": {("a", "t", str(j)): float(x) for j, x in enumerate(length)}}
    first = judge(responses, judge="gpt", human="human", features=features).bias[0]

    assert "unsure" == first.verdict
    assert (first.in_reverse or 0) < 0 < (first.size or 0)


def test_judges_on_a_scale_of_their_own() -> None:
    """Grades of 1 to 10 correct right and wrong: no means side by side, no kappa."""
    answers = _answers()
    grades = [_one(m, "grade", np.round(5.5 + 3 * (answers[m]["gpt"] - 0.5))) for m in MODELS]
    scale = Measure(metric="grade", scale=Scale(1, 10))
    found = judge([*_responses("human"), *grades], judge="grade", human="human", measure=scale)

    assert all(row.judged is None and (row.worth or 0) > 1 for row in found)
    assert all(row.kappa is None and (row.correlation or 0) > 0.3 for row in found.agreement)


def test_labels_of_a_file_name_their_model() -> None:
    """The same as labels that are a metric."""
    answers = _answers()
    labels = [
        Label(str(j), float(x), m) for m in MODELS for j, x in enumerate(answers[m]["human"])
        if not np.isnan(x)
    ]  # fmt: skip
    given, metric = (
        judge(_responses(*names), judge="gpt", **more)  # pyright: ignore[reportArgumentType]
        for names, more in ((("gpt",), {"labels": labels}), (("human", "gpt"), {"human": "human"}))
    )

    for a, b in zip(given, metric, strict=True):
        assert (a.model, a.estimate) == (b.model, pytest.approx(b.estimate, abs=1e-12))


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([Label("1", 1.0)], DesignError, "say in a column 'model' which one each label is of"),
        ([Label("1", 1.0, "d")], SelectionError, "no model that the judge scored is called 'd'"),
        ([Label("1", 1.0, "a", "u")], SelectionError, "no task that the judge scored"),
        ([Label("1", 1.0, "a")] * 2, DesignError, "item '1' of 'a' has a second label"),
        ([], DesignError, "there is no human label"),
        ([Label(str(j), 1.0, "a") for j in range(900, 910)], DesignError, "none of them the same"),
        ([Label(str(j), 1.0, "a", "", 2.0) for j in range(9)], DesignError, r"not in \(0, 1\]"),
        (
            [Label(str(j), 1.0, "a", "", 0.5 if j else None) for j in range(9)],
            DesignError,
            "1 label of 'a' on 't' have no probability",
        ),
    ],
)
def test_labels_that_fit_nothing_are_refused(
    labels: list[Label], error: type[Exception], message: str
) -> None:
    """With what is wrong, and what to do."""
    with pytest.raises(error, match=message):
        judge(_responses("gpt"), judge="gpt", labels=labels)


def test_next_labels_are_drawn_with_the_probabilities_that_they_say() -> None:
    """Over many seeds: as often as stated, and more often where the judge is unsure."""
    rng = np.random.default_rng(3)
    judged = rng.random(40)
    responses = [_one("a", "gpt", judged)]
    seen = np.zeros(40)
    for seed in range(400):
        drawn = next_labels(responses, 10, judge="gpt", rng=seed)
        chance = {int(row.item): row.probability for row in drawn}
        seen[list(chance)] += 1
        assert 10 == len(drawn)
    unsure = np.sqrt(judged * (1 - judged))
    expected = 10 * (0.5 / 40 + 0.5 * unsure / unsure.sum())

    assert all(chance[j] == pytest.approx(expected[j], rel=1e-9) for j in chance)
    assert np.abs(seen / 400 - expected).max() < 4 * np.sqrt(0.25 / 400)


def test_what_is_drawn_next_goes_with_the_labels_there_are() -> None:
    """All models' answers to an item together; the file of both is complete."""
    found = next_labels(_responses("human", "gpt"), 30, judge="gpt", human="human", rng=1)
    asked = [row for row in found if row.score is None]

    assert (3 * LABELLED, 30) == (len(found) - len(asked), len(asked))
    assert {frozenset(MODELS)} == {
        frozenset(row.model for row in asked if row.item == item)
        for item in {r.item for r in asked}
    }
    # Chosen now or before: 60 of 300 items, then 10 of the other 240.
    assert all(row.probability > LABELLED / N for row in found)
    mean = np.mean([row.probability for row in asked])
    assert mean == pytest.approx(1 - (1 - 60 / 300) * (1 - 10 / 240), abs=0.02)
    answers = _answers()
    labels = [
        Label(r.item, float(answers[r.model]["all"][int(r.item)]), r.model, r.task, r.probability)
        for r in found
    ]
    result = judge(_responses("gpt"), judge="gpt", labels=labels)
    assert [70, 70, 70] == [row.n_items for row in result]


def test_labels_to_ask_for_are_shared_by_tasks_as_their_answers_are() -> None:
    """Of 17 for tasks of 40, 20 and 20 answers: 8 and 4 and 4, and the one that is left first."""
    rng = np.random.default_rng(4)
    tasks = {"s": 40, "t": 20, "u": 20}
    responses = [_one("a", "gpt", rng.random(n)).measured(task=task) for task, n in tasks.items()]
    found = next_labels(responses, 17, judge="gpt")

    assert Counter(row.task for row in found) == {"s": 9, "t": 4, "u": 4}


@pytest.mark.parametrize(
    ("n", "known", "message"),
    [(2, LABELLED, "2 labels of 't' are fewer than its 3 models"), (9, N, "has a label")],
)
def test_no_label_to_ask_for_is_an_error(n: int, known: int, message: str) -> None:
    """Fewer than models, or none left."""
    answers = _answers()
    seen = np.arange(N) < known
    labels = [_one(m, "human", np.where(seen, answers[m]["all"], np.nan)) for m in MODELS]
    with pytest.raises(DesignError, match=message):
        next_labels([*labels, *_responses("gpt")], n, judge="gpt", human="human")


def _least_squares(y: np.ndarray, columns: list[np.ndarray], items: np.ndarray):
    """Return coefficients, and errors by leaving out each item in turn."""
    x = np.stack(columns, axis=1)
    whole = np.linalg.lstsq(x, y)[0]
    names = np.unique(items)
    without = np.array([np.linalg.lstsq(x[items != k], y[items != k])[0] for k in names])
    n = len(names)
    return whole, np.sqrt((n - 1) / n * ((without - whole) ** 2).sum(axis=0)), n


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_preferences_are_those_of_a_regression(scale: float) -> None:
    """Fitted by another hand; on another scale than people's the label is only allowed for."""
    answers = _answers(2)
    responses = []
    for m in MODELS:
        for metric in ("human", "gpt"):
            x = answers[m][metric]
            # Models are labelled on other items, and one answer has no length.
            x = (
                np.where(np.arange(N) < 50 - 10 * MODELS.index(m), x, np.nan)
                if metric == "human"
                else scale * x
            )
            bounds = (0.0, scale if metric == "gpt" else 1.0)
            responses.append(_one(m, metric, x, bounds=bounds))
    features = _features()
    del features["length"]["b", "t", "7"]
    rows = {
        row.feature: row
        for row in judge(responses, judge="gpt", human="human", features=features).bias
    }
    # Lengths are those of the first answers, which have nothing to do with these scores.
    length = {m: x["length"].copy() for m, x in _answers().items()}
    length["b"][7] = np.nan
    lists = [
        [k, j, scale * answers[m]["gpt"][j], answers[m]["human"][j], length[m][j]]
        for k, m in enumerate(MODELS)
        for j in range(50 - 10 * k)
        if not np.isnan(length[m][j])
    ]
    model, items, y, label, long = np.array(lists).T

    def unit(x: np.ndarray) -> np.ndarray:
        return (x - x.mean()) / x.std()

    of_models = [np.where(model == k, 1.0, -0.5) for k in range(3)]
    ones, own = np.ones(len(y)), scale == 1
    names = ["length", *(["score"] if own else []), *MODELS]
    tested = [unit(long), *([unit(label)] if own else []), *of_models]
    first = [ones] if own else [ones, unit(label)]
    sizes, errors, n = _least_squares(y - label if own else y, [*first, *tested], items)
    back, _, _ = _least_squares(label, [ones, y, unit(long), *of_models], items)
    reverse = dict(zip(["length", *MODELS], -back[2:], strict=True))
    df = n - len(first) - len(tested)
    z = stats.t.isf((1 - 0.95 ** (1 / len(tested))) / 2, df)
    spread = y.std()

    assert list(rows) == names
    for k, name in enumerate(names, len(first)):
        row, more = rows[name], 1.5 if name in MODELS else 1.0
        size, error = more * sizes[k], more * errors[k]
        p = 2 * stats.t.sf(abs(size) / error, df)
        assert row.n_labels == len(y)
        assert row.size == pytest.approx(size, rel=1e-6, abs=1e-9)
        assert (row.low, row.high) == pytest.approx(
            (size - z * error, size + z * error), rel=1e-6, abs=1e-9
        )
        assert row.p_adjusted == pytest.approx(1 - (1 - p) ** len(tested), rel=1e-6)
        assert row.in_sd == pytest.approx(size / spread, rel=1e-6, abs=1e-9)
        if name == "score":
            assert row.in_reverse is None
        else:
            assert row.in_reverse == pytest.approx(more * reverse[name], rel=1e-6, abs=1e-9)


def test_few_labels_or_a_judge_that_is_always_right_show_no_preference() -> None:
    """Fewer items than the regression needs, or no error that could be explained."""
    answers = _answers()

    def features(n_labels: int, judged: str) -> set[str]:
        def labels(m: str) -> np.ndarray:
            return np.where(np.arange(N) < n_labels, answers[m]["all"], np.nan)

        responses = _both(MODELS, labels, lambda m: answers[m][judged])
        return {row.feature for row in judge(responses, judge="gpt", human="human").bias}

    assert features(7, "gpt") == features(8, "all") == set()
    assert features(8, "gpt") == {"score", *MODELS}


def test_items_of_which_the_judge_is_as_unsure_are_drawn_in_every_company() -> None:
    """No two of them are always drawn together, or never."""
    responses = [_one("a", "gpt", np.full(6, 0.5))]
    pairs = {
        frozenset(row.item for row in next_labels(responses, 2, judge="gpt", rng=seed))
        for seed in range(200)
    }
    assert len(pairs) == 15


def test_labels_show_where_a_judge_is_off() -> None:
    """Root mean squares by quarters of its scores, with ten labels' weight of all, by hand."""
    rng = np.random.default_rng(9)
    judged = rng.random((2, 120))
    labels = judged + rng.normal(size=(2, 120)) * np.where(judged > 0.7, 0.4, 0.05)
    labels[rng.random(labels.shape) < 0.4] = np.nan
    judged[0, 3] = np.nan
    labels[0, 3] = np.nan
    task = SimpleNamespace(labels=labels, judged=judged)
    seen = ~np.isnan(labels)
    found = _off_by_score(task, seen)  # pyright: ignore[reportArgumentType]
    slope = float(cross_fitted(labels, judged, shared=True).slope.mean())
    rest = (labels - slope * judged)[seen]
    rest -= rest.mean()
    cuts = np.quantile(judged[seen], [0.25, 0.5, 0.75])
    part = np.digitize(judged[seen], cuts, right=True)
    overall = (rest**2).mean()
    squares = [
        (((rest[part == k]) ** 2).sum() + 10 * overall) / ((part == k).sum() + 10) for k in range(4)
    ]
    every = np.digitize(np.nan_to_num(judged), cuts, right=True)

    np.testing.assert_allclose(found, np.sqrt(np.array(squares)[every].mean(axis=0)), rtol=1e-9)


@pytest.mark.parametrize("n", [1, 5, 12, 19])
def test_chances_of_labels_add_up_and_none_is_above_one(n: int) -> None:
    """Half alike, half by how unsure the judge is; what would be above 1 goes to the others."""
    rng = np.random.default_rng(n)
    unsure = rng.lognormal(0, 2, 30)
    free = rng.random(30) < 0.7
    chance = _chances_of_next(unsure, free, n)[free]
    share = 0.5 / free.sum() + 0.5 * unsure[free] / unsure[free].sum()
    below = chance < 1

    assert chance.sum() == pytest.approx(min(n, free.sum()))
    assert chance.max() <= 1
    if below.any():
        scale = chance[below] / share[below]
        assert scale == pytest.approx(scale[0])
        assert (scale[0] * share[~below] >= 1 - 1e-12).all()
    alike = _chances_of_next(np.zeros(30), free, 1)[free]
    assert alike == pytest.approx(1 / free.sum())

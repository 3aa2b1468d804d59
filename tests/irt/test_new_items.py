"""Items that no model answered: difficulties from features, with errors that hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt import IRTFit, NewItems, fit_irt, predict_items, text_features
from evalstats_plugin.irt.new_items import _regression

pytestmark = pytest.mark.needs("torch")

KNOWN, NEW, WIDTH = 150, 100, 4


def _study(seed: int, told: float, n: int = 30) -> tuple[IRTFit, NewItems, np.ndarray, np.ndarray]:
    """Fit 150 items, predict 100 others; features tell a share of the variance of difficulty.

    Returns the fit, the predictions, the true difficulties on the fit's scale, and the answers to
    the new items.
    """
    rng = np.random.default_rng([seed, n])
    x, weights = rng.normal(size=(KNOWN + NEW, WIDTH)), np.array([2.0, -1.0, 1.0, 0.5])
    line = x @ weights / np.linalg.norm(weights)
    b = np.sqrt(told) * line + np.sqrt(1 - told) * rng.normal(size=len(x))
    p = special.expit(rng.normal(size=(n, 1)) - b)
    answers = (rng.random(p.shape) < p) * 1.0
    fit = fit_irt(ResponseMatrix.from_array(answers[:, :KNOWN]), "rasch")
    items = [*fit.item_ids.astype(str), *(f"new-{k}" for k in range(NEW))]
    features = pd.DataFrame(x, columns=list("abcd")).assign(item=items)
    precision = fit.difficulty_std_error**-2
    shift = precision @ (fit.difficulty - b[:KNOWN]) / precision.sum()
    return fit, predict_items(fit, features), b[KNOWN:] + shift, answers[:, KNOWN:]


@pytest.mark.parametrize("told", [0.0, 0.6, 0.95])
def test_intervals_hold_new_difficulties_and_say_what_features_explain(told: float) -> None:
    """Whether features tell nothing, much or nearly all; 600 items each."""
    found = [_study(seed, told) for seed in range(6)]
    held = np.mean(
        [r.low <= b <= r.high for _, rows, truth, _ in found for r, b in zip(rows, truth)]  # noqa: B905
    )
    explained = np.mean([rows.explained for _, rows, _, _ in found])

    assert 0.91 <= held <= 0.985
    assert explained == pytest.approx(told, abs=0.15)
    assert 0.9 <= np.mean([rows.held for _, rows, _, _ in found]) <= 0.99


def test_scores_on_new_items_are_calibrated_and_beat_the_mean() -> None:
    """P(right) by model and item, over the errors of ability and difficulty."""
    found = [_study(seed, 0.8, n=40) for seed in range(4)]
    p = np.concatenate([np.ravel(rows.predicted) for _, rows, _, _ in found])
    y = np.concatenate([np.ravel(answers) for *_, answers in found])
    bins = np.digitize(p, [0.2, 0.4, 0.6, 0.8])

    assert np.mean((p - y) ** 2) < 0.9 * np.var(y)
    for k in range(5):
        assert y[bins == k].mean() == pytest.approx(p[bins == k].mean(), abs=0.06)
    assert [r.score for r in found[0][1]] == pytest.approx(
        np.mean(found[0][1].predicted, axis=0).tolist()
    )


def test_posterior_means_are_freed_of_their_population() -> None:
    """Ten models pull difficulties by a quarter; the spread of new ones is that of the truth."""
    _, rows, truth, _ = _study(1, 0.95, n=10)
    slope = np.polyfit(truth, [r.difficulty for r in rows], 1)[0]

    assert slope == pytest.approx(1, abs=0.15)


def test_features_of_noise_give_the_mean_with_a_note() -> None:
    """All predictions are near each other, and as unsure as items are spread."""
    fit, rows, _, _ = _study(2, 0.0)

    assert np.std([r.difficulty for r in rows]) < 0.3 * fit.hyperparameters["difficulty_sd"]
    assert rows[0].std_error == pytest.approx(fit.hyperparameters["difficulty_sd"], rel=0.2)
    assert "next to nothing" in rows.notes[0]


def test_texts_of_like_words_are_alike() -> None:
    """Shared words and pairs of words; the order of texts changes nothing but their order."""
    texts = ["add two and three", "add two and nine", "name the capital of Peru"]
    found = text_features(texts)
    near, far = found[0, :-1] @ found[1, :-1], found[0, :-1] @ found[2, :-1]

    assert found.shape == (3, 256)
    assert near > 0.4 > abs(far)
    assert text_features(texts[::-1])[::-1] == pytest.approx(found)


def test_items_are_learnt_from_texts() -> None:
    """Items with one word are hard, those with another easy."""
    rng = np.random.default_rng(0)
    hard = rng.random(120) < 0.5
    p = special.expit(rng.normal(size=(20, 1)) - np.where(hard, 2, -2))
    matrix = ResponseMatrix.from_array((rng.random(p.shape) < p) * 1.0)
    fit = fit_irt(matrix, "rasch")
    words = [f"{'prove' if h else 'name'} item {k}" for k, h in enumerate(hard)]
    features = pd.DataFrame(
        {
            "item": [*matrix.item_ids.astype(str), "x", "y"],
            "text": [*words, "prove this", "name that"],
        }
    )
    first, second = predict_items(fit, features)

    assert first.difficulty - second.difficulty > 2
    assert first.score < 0.45
    assert second.score > 0.7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.drop(columns="item"), "need the column item"),
        (lambda d: d[["item"]], "there are no features"),
        (lambda d: d.iloc[:KNOWN], "add rows of new items"),
        (lambda d: d.iloc[KNOWN - 3 :], "3 items of the fit with features"),
        (lambda d: pd.concat([d, d.iloc[:1]]), "stand twice among the features"),
        (lambda d: d.assign(a=np.nan), "features with gaps: a"),
    ],
)
def test_features_that_cannot_be_used_are_refused(change, message: str) -> None:
    rng = np.random.default_rng(0)
    fit = fit_irt(ResponseMatrix.from_array(rng.integers(0, 2, (5, KNOWN)) * 1.0), "rasch")
    items = [*fit.item_ids.astype(str), "new"]
    features = pd.DataFrame({"item": items, "a": rng.normal(size=KNOWN + 1)})
    with pytest.raises(DesignError, match=message):
        predict_items(fit, change(features))


def test_estimates_that_a_prior_pulls_are_refused() -> None:
    rng = np.random.default_rng(0)
    fit = fit_irt(ResponseMatrix.from_array(rng.integers(0, 2, (5, 20)) * 1.0), "rasch", "map")
    with pytest.raises(SelectionError, match="fit by mml-items or mml"):
        predict_items(fit, pd.DataFrame({"item": ["x"], "a": [1.0]}))


@pytest.mark.parametrize("seed", [1, 5, 8, 13])
def test_many_weak_features_are_not_taken_for_none(seed: int) -> None:
    """Three hundred numbers that tell a seventeenth of the variance, as embeddings of texts do."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(700, 300)) * np.geomspace(1, 0.05, 300)
    x /= np.sqrt((x**2).sum(axis=1).mean())
    line = 0.5 * x @ rng.normal(size=300)
    y = line + 2 * rng.normal(size=700) + 0.9 * rng.normal(size=700)
    found = _regression(x[:600], x[600:], y[:600], np.full(600, 0.9))

    assert np.corrcoef(found.mean, line[600:])[0, 1] > 0.2
    assert np.std(found.mean) > 0.05

"""Machine response patterns: real digits, and a classifier that shows what it was given."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.model.simulate import simulate_response_patterns


class Recorder:
    """Remembers its training data, predicts the label of the first example."""

    seen: list[tuple[np.ndarray, np.ndarray]]

    def __init__(self, seen):
        self.seen = seen

    def fit(self, x, y):
        self.seen.append((x, y))

    def predict(self, x):
        return np.repeat(self.seen[-1][1][0], len(x))


def numbered(n=400):
    """Each example is its own number, its label the number modulo 4."""
    x = np.arange(n)[:, None]
    return x, np.array(list("abcd"))[x[:, 0] % 4]


def test_labels_are_turned_with_the_noise_and_examples_are_drawn_once():
    x, y = numbered()
    seen = []
    found = simulate_response_patterns(
        lambda: Recorder(seen), x, y, x[:8], y[:8], n_models=200, rng=0
    )

    for (features, labels), size, noise in zip(
        seen, found.training_size, found.label_noise, strict=True
    ):
        places = features[:, 0]
        wrong = labels != y[places]
        assert size == len(places) == len(set(places.tolist()))
        assert set(labels[:4]) == set("abcd")
        assert not wrong[:4].any()
        assert abs(wrong[4:].sum() - noise * (size - 4)) <= 4.5 * np.sqrt(0.25 * size) + 1
    # Both uniform, by their means: standard errors 8.2 and .010.
    assert found.training_size.mean() == pytest.approx(202, abs=30)
    assert found.label_noise.mean() == pytest.approx(0.25, abs=0.035)
    assert found.training_size.min() >= 4
    assert found.training_size.max() <= 400


def test_answers_are_graded_against_the_test_labels():
    x, y = numbered()
    seen = []
    found = simulate_response_patterns(
        lambda: Recorder(seen), x, y, x[:8], y[:8], n_models=5, rng=1
    )
    for row, (_, labels) in zip(found.matrix.scores[:, :, 0], seen, strict=True):
        np.testing.assert_array_equal(row, y[:8] == labels[0])


def test_more_models_leave_the_first_as_they_are():
    x, y = load_digits(return_X_y=True)
    few, many = (
        simulate_response_patterns(GaussianNB(), x[:300], y[:300], x[300:330], y[300:330],
                                   n_models=n, rng=2) for n in (3, 6)
    )  # fmt: skip

    np.testing.assert_array_equal(few.matrix.scores, many.matrix.scores[:3])
    np.testing.assert_array_equal(few.label_noise, many.label_noise[:3])


@pytest.mark.needs("torch")
def test_abilities_of_real_classifiers_follow_their_training():
    """Handwritten digits, Gaussian naive Bayes: more data help, wrong labels harm."""
    x, y = load_digits(return_X_y=True)
    untouched = GaussianNB()
    found = simulate_response_patterns(
        untouched, x[:1200], y[:1200], x[1200:1400], y[1200:1400], n_models=120, rng=0
    )
    fit = fit_irt(found.matrix)

    assert not hasattr(untouched, "classes_")
    assert (120, 200, 1) == found.matrix.scores.shape
    assert np.corrcoef(fit.ability, found.label_noise)[0, 1] < -0.5
    by = np.column_stack([np.ones(120), found.label_noise, np.log(found.training_size)])
    slope, rest, _, _ = np.linalg.lstsq(by, fit.ability, rcond=None)
    error = np.sqrt(rest / 117 * np.diag(np.linalg.inv(by.T @ by)))
    # At equal label noise: the slope of the training size is four of its errors.
    assert slope[2] > 3 * error[2]
    assert 0.3 < found.matrix.scores.mean() < 0.9


def test_data_that_cannot_be_learnt_from_are_refused():
    x, y = numbered(8)
    with pytest.raises(DesignError, match="1 classes and 2 models make no answers"):
        simulate_response_patterns(GaussianNB(), x[:1], y[:1], x, y, n_models=2)
    with pytest.raises(DesignError, match=r"8 test examples have labels of shape \(3,\)"):
        simulate_response_patterns(GaussianNB(), x, y, x, y[:3], n_models=2)

"""Metrics of a confusion table are those of scikit-learn."""

import warnings

import numpy as np
import pytest
from sklearn import metrics

from evalstats_plugin.stats import metrics as stats_metrics

SKLEARN = {
    "f1": metrics.f1_score,
    "precision": metrics.precision_score,
    "recall": metrics.recall_score,
    "mcc": metrics.matthews_corrcoef,
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "macro_f1": lambda gold, predicted: metrics.f1_score(gold, predicted, average="macro"),
    "weighted_f1": lambda gold, predicted: metrics.f1_score(gold, predicted, average="weighted"),
}


@pytest.mark.parametrize(
    ("metric", "n_labels"),
    [
        (m, k)
        for m in stats_metrics.CONFUSION_METRICS
        for k in ((2,) if m in stats_metrics.BINARY else (2, 3, 7))
    ],
)
def test_metrics_are_those_of_scikit_learn(metric, n_labels):
    """On labels of which some are never gold, or never predicted."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        most = n_labels - seed % 2
        gold, predicted = rng.integers(0, most, (2, rng.integers(2, 25)))
        table = stats_metrics.one_hot(gold, predicted, n_labels).sum(axis=0)
        found = stats_metrics.CONFUSION_METRICS[metric](table.reshape(n_labels, n_labels))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = SKLEARN[metric](gold, predicted)

        # What is 0/0 is 0 there.
        assert np.nan_to_num(found) == pytest.approx(expected, abs=1e-12)


def test_a_rare_label_is_not_a_rounding_error():
    """One positive item among up to a hundred million, which is found; weights may be small."""
    for n in (10.0, 1e6, 1e8):
        assert 1 == pytest.approx(stats_metrics.mcc(np.diag([n, 1.0]) / 7), rel=1e-6)
    assert np.isnan(stats_metrics.mcc(np.diag([1 / 3, 0.0])))


def test_a_positive_label_needs_two_labels():
    """A programming mistake, said with the shape."""
    with pytest.raises(ValueError, match=r"shape \(\.\.\., 2, 2\).* have \(3, 3\)"):
        stats_metrics.f1(np.eye(3))

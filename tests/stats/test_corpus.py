"""Scores from summed counts are those of sacrebleu."""

import random
import re
import sys

import numpy as np
import pytest
import sacrebleu

from evalstats_plugin.errors import install_hint
from evalstats_plugin.stats import metric_intervals, metrics

WORDS = ["the", "cat", "sat", "on", "a", "mat", ".", "dog", "ran", ",", "to", "house", "big"]
SCORES = {
    "bleu": sacrebleu.corpus_bleu,
    "chrf": sacrebleu.corpus_chrf,
    "chrf++": lambda answers, references: sacrebleu.corpus_chrf(answers, references, word_order=2),
    "ter": sacrebleu.corpus_ter,
}


def texts(seed, n):
    """References, some of them empty, and answers, some of them right."""
    rng = random.Random(seed)  # noqa: S311 - texts to try, no secrets

    def sentence():
        return " ".join(rng.choice(WORDS) for _ in range(rng.choice([0, 1, 2, 3, 4, 9, 20])))

    references = [sentence() for _ in range(n)]
    return references, [r if rng.random() < 0.3 else sentence() for r in references]


@pytest.mark.parametrize("metric", SCORES)
@pytest.mark.parametrize("n", [1, 2, 12])
def test_sums_give_the_score_of_sacrebleu(metric, n):
    """Without matches, without words, with smoothing, with a brevity penalty."""
    for seed in range(25 if n < 3 else 8):
        references, answers = texts(seed, n)
        counts = metrics.corpus_counts(metric, [[r] for r in references], answers)
        expected = SCORES[metric](answers, [references]).score

        assert metrics.CORPUS_METRICS[metric](counts.sum(axis=0)) == pytest.approx(
            expected, abs=1e-10
        )


@pytest.mark.parametrize("metric", SCORES)
def test_several_references_are_taken_together(metric):
    """As many for each document."""
    first, answers = texts(1, 6)
    second, _ = texts(2, 6)
    counts = metrics.corpus_counts(metric, list(zip(first, second, strict=True)), answers)
    expected = SCORES[metric](answers, [first, second]).score

    assert metrics.CORPUS_METRICS[metric](counts.sum(axis=0)) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("metric", SCORES)
def test_all_resamples_at_once_equal_one_by_one(metric):
    """Values of leaving out each document, against sacrebleu without it."""
    references, answers = texts(4, 8)
    counts = metrics.corpus_counts(metric, [[r] for r in references], answers)
    found = metric_intervals.leave_one_out(counts, metrics.CORPUS_METRICS[metric])
    expected = [
        SCORES[metric](answers[:i] + answers[i + 1 :], [references[:i] + references[i + 1 :]]).score
        for i in range(8)
    ]

    assert found == pytest.approx(expected, abs=1e-10)


def test_without_sacrebleu_the_extra_is_named(monkeypatch):
    """Only these metrics need it."""
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)

    with pytest.raises(ModuleNotFoundError, match=re.escape(install_hint("text"))):
        metrics.corpus_counts("bleu", [["a"]], ["a"])


def test_no_documents_have_no_counts():
    """And no crash."""
    assert metrics.corpus_counts("bleu", [], []).shape == (0, 0)
    assert np.isfinite(metrics.bleu(np.zeros(10)))

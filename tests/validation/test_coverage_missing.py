"""Items without a score: do intervals hold the truth whatever those items would have scored?

Writes fixtures/validation/missing.json. Scores go missing at random, or because they are wrong, or
right. Of one score: the share of right answers; of two models: their difference, and how often
the verdict is false where they are equal.
"""

from functools import cache

import numpy as np
import pytest
import study
from given_responses import given_responses
from scipy import special

from evalstats_plugin import intervals
from evalstats_plugin.comparisons.design import Pairing, Request
from evalstats_plugin.comparisons.families import settle
from evalstats_plugin.comparisons.methods import PAIRED
from evalstats_plugin.comparisons.paired import paired_tables
from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.methods import table_of
from evalstats_plugin.data.responses import Source
from evalstats_plugin.scores.missing import open_level
from evalstats_plugin.stats import bounded

pytestmark = pytest.mark.validation
LEVEL = 0.95
SEED = 20261123
SOURCE = Source(path=study.FOLDER, harness="simulated")
# Chance to go missing of a right answer, and of a wrong one.
MECHANISMS = {
    "none": (0.0, 0.0),
    "5 % at random": (0.05, 0.05),
    "10 % of the wrong": (0.0, 0.1),
    "half of the wrong": (0.0, 0.5),
    "10 % of the right": (0.1, 0.0),
}
PAIRS = {
    "none": ((0, 0), (0, 0)),
    "5 % at random, of each": ((0.05, 0.05), (0.05, 0.05)),
    "20 % of b's wrong": ((0, 0), (0, 0.2)),
    "10 % of a's wrong and of b's right": ((0, 0.1), (0.1, 0)),
    "half of b's wrong": ((0, 0), (0, 0.5)),
}
N_SCORES, N_PAIRS = 4000, 2000


def beta(right, n, level):
    return bounded.beta_hpd(right, n, prior=(1.0, 1.0), confidence_level=level)


def whatever(right, missing, n):
    """As `scores.intervals` does for counts, level by level."""
    shares = right / n, (right + missing) / n
    error = np.sqrt(np.maximum(*(p * (1 - p) / (n - 1) for p in shares)) + 0.25 / n**2)
    levels = np.where(missing > 0, open_level(missing / n, error, LEVEL), LEVEL)
    low, high = np.empty((2, len(right)))
    for level in np.unique(levels):
        same = levels == level
        low[same] = beta(right[same], np.full(same.sum(), float(n)), level)[0]
        high[same] = beta((right + missing)[same], np.full(same.sum(), float(n)), level)[1]
    return low, high


@cache
def score_rows():
    rows = []
    for n in (20, 50, 200, 1000):
        for share in (0.5, 0.9):
            for name, chances in MECHANISMS.items():
                rng = np.random.default_rng([SEED, n, int(10 * share), len(rows)])
                right = rng.random((N_SCORES, n)) < share
                gone = rng.random(right.shape) < np.where(right, *chances)
                seen, missing = (right & ~gone).sum(axis=1) * 1.0, gone.sum(axis=1) * 1.0
                case = {"items": n, "share": share, "missing": name}
                limits = {
                    "drop": beta(seen, n - missing, LEVEL),
                    "bounds": whatever(seen, missing, n),
                    "zero": beta(seen, np.full(N_SCORES, float(n)), LEVEL),
                }
                rows += [study.coverage_row(case, k, v, share, (0, 1)) for k, v in limits.items()]
    return rows


def responses(model, scores):
    return given_responses(
        model=model, task="t", metric="acc", item_ids=np.arange(len(scores)),
        scores=scores[:, None], source=SOURCE,
    )  # fmt: skip


def compared(scores, how):
    """Limits of each pair alone: a model of the first half with one of the second."""
    n = len(scores) // 2
    pairing = Pairing(
        measure=Measure(task="t", metric="acc"), models=tuple(map(str, range(2 * n))),
        a=np.arange(n), b=n + np.arange(n), kind="binary", bounds=(0.0, 1.0), clusters=None,
        scores=scores, open=np.isnan(scores),
    )  # fmt: skip
    request = Request(
        baseline=None, confidence_level=LEVEL, method="auto", table=table_of((), PAIRED),
        correction="none", family="task", rng=np.random.default_rng(0), missing=how,
    )  # fmt: skip
    rows = settle(paired_tables([pairing], request), request)
    return np.array([(row.low, row.high) for row in rows]).T


@cache
def pair_rows():
    rows = []
    for n, gap in ((50, 0.15), (50, 0.0), (200, 0.1), (200, 0.0)):
        for name, chances in PAIRS.items():
            rng = np.random.default_rng([SEED, n, int(100 * gap), len(rows)])
            ease = special.expit(rng.normal(0, 1.5, (N_PAIRS, n))) * 0.8 + 0.1
            scores = []
            for sign, chance in zip((-1, 1), chances, strict=True):
                score = (rng.random(ease.shape) < ease + sign * gap / 2) * 1.0
                score[rng.random(ease.shape) < np.where(score == 1, *chance)] = np.nan
                scores.append(score)
            case = {"items": n, "difference": gap, "missing": name, "runs": N_PAIRS}
            for how in ("drop", "bounds"):
                low, high = compared(np.concatenate(scores), how)
                verdict = (low > 0) | (high < 0)
                row = study.coverage_row(case, how, (low, high), gap, (-1, 1))
                rows.append(row | {"verdicts": float(verdict.mean())})
    return rows


def test_the_figures_are_written():
    study.write_figures("missing", {"scores": score_rows, "pairs": pair_rows})


def of(rows, method, **wanted):
    return [
        one
        for one in rows
        if one["method"] == method and all(one[key] == value for key, value in wanted.items())
    ]


def test_bounds_cover_a_score_whatever_is_missing():
    assert all(one["coverage"] >= 0.93 for one in of(score_rows(), "bounds"))


def test_dropping_covers_too_little_where_the_wrong_go_missing():
    """Negative control."""
    assert min(one["coverage"] for one in of(score_rows(), "drop")) < 0.5


def test_bounds_cover_a_difference_whatever_is_missing():
    for one in of(pair_rows(), "bounds"):
        assert one["coverage"] >= 0.95 - 3 * one["std_error"] - 0.01, one


def test_equal_models_get_a_verdict_in_no_more_than_one_of_twenty():
    for one in of(pair_rows(), "bounds", difference=0.0):
        assert one["verdicts"] <= 0.05 + 2 * one["std_error"], one


def test_the_study_counts_as_the_program_does():
    """On one case, by `intervals` itself."""
    scores = np.concatenate([np.ones(60), np.zeros(25), np.full(15, np.nan)])
    (row,) = intervals([responses("m", scores)])
    low, high = whatever(np.array([60.0]), np.array([15.0]), 100)

    assert (low[0], high[0]) == pytest.approx((row.missing_low, row.missing_high), abs=1e-9)

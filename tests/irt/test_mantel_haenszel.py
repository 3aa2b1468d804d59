"""Mantel and Haenszel's test against a published table, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.irt.dif import mantel_haenszel

# Admissions to six departments of Berkeley, 1973: men and women × admitted and rejected
# (Bickel, Hammel & O'Connell 1975, Science 187:398-404).
BERKELEY = [
    [[512, 313], [89, 19]],
    [[353, 207], [17, 8]],
    [[120, 205], [202, 391]],
    [[138, 279], [131, 244]],
    [[53, 138], [94, 299]],
    [[22, 351], [24, 317]],
]


def test_berkeley_admissions_agree_with_r():
    """As ``mantelhaen.test(UCBAdmissions)`` prints it."""
    found = mantel_haenszel(BERKELEY)
    limits = np.exp(found.log_odds + np.array([-1, 1]) * stats.norm.ppf(0.975) * found.std_error)

    assert found.chi_square == pytest.approx(1.4269, abs=5e-5)
    assert found.p_value == pytest.approx(0.2323, abs=5e-5)
    assert np.exp(found.log_odds) == pytest.approx(0.9046968, abs=5e-8)
    np.testing.assert_allclose(limits, [0.7719074, 1.0603298], atol=5e-8)


def test_one_stratum_is_one_table():
    """The odds ratio itself with Woolf's error, and the hypergeometric moments of SciPy."""
    found = mantel_haenszel([[[12, 5], [6, 9]]])
    table = stats.hypergeom(32, 18, 17)

    assert found.log_odds == pytest.approx(np.log(12 * 9 / 30))
    assert found.std_error == pytest.approx(np.sqrt(1 / 12 + 1 / 5 + 1 / 6 + 1 / 9))
    assert found.chi_square == pytest.approx((abs(12 - table.mean()) - 0.5) ** 2 / table.var())


def test_many_families_at_once_are_each_alone():
    """Empty strata and strata of one group tell nothing."""
    tables = np.array([BERKELEY, BERKELEY[::-1]])
    padded = np.concatenate([tables, np.zeros((2, 1, 2, 2)), [[[[3, 1], [0, 0]]]] * 2], axis=1)

    for field in mantel_haenszel(tables)._fields:
        expected = getattr(mantel_haenszel(BERKELEY), field)
        np.testing.assert_allclose(getattr(mantel_haenszel(padded), field), [expected] * 2)


def test_groups_exchanged_turn_the_sign():
    found, turned = mantel_haenszel(BERKELEY), mantel_haenszel(np.array(BERKELEY)[:, ::-1])

    assert turned.log_odds == pytest.approx(-found.log_odds)
    assert turned.p_value == pytest.approx(found.p_value)


def test_nothing_to_compare_is_undefined():
    assert np.isnan(mantel_haenszel([[[3, 0], [4, 0]]]).p_value)

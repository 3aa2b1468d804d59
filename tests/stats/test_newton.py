"""Newton's method: maxima known in closed form, each with its own convergence."""

from typing import NamedTuple

import numpy as np
import pytest

from evalstats_plugin.stats.newton import line_search, newton

HALVINGS = "evalstats_plugin.stats.newton._HALVINGS"


class At(NamedTuple):
    value: np.ndarray
    gradient: np.ndarray
    curvature: np.ndarray


SHARES = np.array([0.01, 0.5, 0.9, 1 - 1e-6])


def logistic(x):
    """Log-likelihood of a share of right answers at a logit, whose maximum is its logit."""
    p = 1 / (1 + np.exp(-x[0]))
    return At(SHARES * x[0] - np.logaddexp(0, x[0]), SHARES - p, p * (1 - p))


def direction(_, at):
    step = at.gradient / at.curvature
    return step[None], step * at.gradient


def test_maxima_are_found_where_full_steps_diverge(monkeypatch):
    """From logit 3, Newton steps for a share of .01 overshoot to -17 and beyond without halving."""
    start = np.full((1, 4), 3.0)
    found = newton(start, logistic, direction, tolerance=1e-20, max_steps=100)

    np.testing.assert_allclose(
        found.parameters[0], np.log(SHARES / (1 - SHARES)), rtol=1e-6, atol=1e-12
    )
    assert found.convergence.converged.all()
    assert found.convergence.why == ""
    monkeypatch.setattr(HALVINGS, 0)
    with np.errstate(all="ignore"):
        control = newton(start, logistic, direction, tolerance=1e-20, max_steps=100)
    assert not control.convergence.converged.all()


def test_each_objective_stops_by_itself():
    """One that starts at its maximum does not move while others go on."""
    start = np.log(SHARES / (1 - SHARES))[None].copy()
    start[0, 1:] += 1
    found = newton(start, logistic, direction, tolerance=1e-9, max_steps=50)
    alone = newton(
        start[:, 1:2], lambda x: At(*(v[1:2] for v in logistic(np.repeat(x, 4, axis=1)))),
        direction, tolerance=1e-9, max_steps=50,
    )  # fmt: skip

    assert found.parameters[0, 0] == pytest.approx(start[0, 0], abs=1e-12)
    assert found.parameters[0, 1] == alone.parameters[0, 0]
    assert found.convergence.steps > alone.convergence.steps


def test_last_step_is_taken_or_left():
    start = np.log(SHARES / (1 - SHARES))[None] + 1e-3
    kept, moved = (
        newton(start, logistic, direction, tolerance=1.0, max_steps=5, take_last=last)
        for last in (False, True)
    )

    np.testing.assert_array_equal(kept.parameters, start)
    assert (moved.parameters != start).all()
    assert kept.convergence.steps == moved.convergence.steps == 1


def test_reason_is_given_where_there_is_no_maximum():
    """-e^-x rises forever."""

    def rising(x):
        return At(-np.exp(-x[0]), np.exp(-x[0]), np.exp(-x[0]))

    far = newton(np.zeros((1, 1)), rising, direction, tolerance=0.0, max_steps=7)
    assert far.convergence.why == "did not converge in 7 steps (last change 0.002)"


def test_values_that_are_not_numbers_are_never_accepted():
    def broken(x):
        at = logistic(x)
        return at._replace(value=np.where(np.abs(x[0]) > 1, np.nan, at.value))

    found = newton(np.zeros((1, 4)), broken, direction, tolerance=1e-12, max_steps=50)

    assert np.abs(found.parameters).max() <= 1
    assert found.convergence.converged.tolist() == [False, True, False, False]


@pytest.mark.parametrize("size", [0.0, 1e6])
def test_a_fall_is_a_rounding_error_in_relation_to_the_objective(size, monkeypatch):
    """Up to 1e-10 of 1 plus its size; beyond, the step is halved until it falls by less."""

    def falling(x):
        return At(size - np.abs(x[0]), x[0], x[0])

    start = np.zeros((1, 1))
    allowed = 1e-10 * (1 + size)
    for share, halvings in ((0.5, 0), (0.9, 0), (1.5, 1), (3.0, 2), (60.0, 6)):
        moved, at = line_search(start, falling(start), np.array([[share * allowed]]), falling)
        assert moved[0, 0] == pytest.approx(share * allowed / 2**halvings)
        assert at.value == pytest.approx(size - moved[0])
    monkeypatch.setattr(HALVINGS, 3)
    still, _ = line_search(start, falling(start), np.array([[1.0]]), falling)
    assert still[0, 0] == 0

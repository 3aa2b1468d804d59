"""How searches go on and end: each threshold from both sides, on steps that are given."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evalstats_plugin.irt.estimators import items_integrated
from evalstats_plugin.irt.estimators.item_population import Population, points
from evalstats_plugin.irt.estimators.items_integrated import Evaluation
from evalstats_plugin.irt.estimators.optimise import FirstOrder, squarem
from evalstats_plugin.irt.model.data import Counts, settled_dispersion


def geometric(rates, start, *, falls=0.0, tolerance=1e-9, max_steps=99):
    """The points at which SQUAREM evaluates steps towards 0 that shrink by these rates."""
    seen = []

    def step(at):
        seen.append(at.tolist())
        return rates * at, -falls * at.abs().sum() - 1

    rates = torch.tensor(rates, dtype=torch.float64)
    start = torch.tensor(start, dtype=torch.float64)
    return squarem(step, start, tolerance=tolerance, max_steps=max_steps), seen


def test_squarem_extrapolates_by_the_ratio_of_move_and_bend_within_its_range():
    """1 / (1 - rate) plain steps: 64 at most, and a quarter at least where steps turn back."""
    for rate, length in ((0.5, 2.0), (0.99, 64.0), (-9.0, 0.25)):
        _, seen = geometric([rate], [1.0], max_steps=4)
        landed = (1 - length * (1 - rate)) ** 2
        assert np.ravel(seen) == pytest.approx([1.0, rate, landed, rate * landed], abs=1e-12)


def test_squarem_undoes_an_extrapolation_that_lowers_the_objective():
    """Unless the plain steps turn back; both extrapolations are to the fixed point."""
    for rate, falls, then in ((0.5, 1.0, 0.0), (0.5, -1.0, 0.25), (-1.5, -1.0, 0.0)):
        _, seen = geometric([rate], [1.0], falls=falls, max_steps=4)
        assert seen[3] == pytest.approx([then], abs=1e-12)


def test_squarem_looks_at_the_second_step_where_the_first_is_short():
    """Within a hundred tolerances; two steps that are left are plain ones."""
    for first, steps in ((99.5, 2), (100.5, 4)):
        found, _ = geometric([0.001], [first / 0.999], tolerance=1.0)
        assert bool(found.converged)
        assert found.steps == steps
    assert np.ravel(geometric([0.5], [1.0], max_steps=3)[1]) == pytest.approx([1, 0.5, 0.25])


@pytest.mark.parametrize(("dtype", "rounds"), [(torch.float64, 3), (torch.float32, 10)])
def test_squarem_ends_where_the_objective_stays_though_parameters_do_not(dtype, rounds):
    """Which have no finite optimum: three steps a round, and one more that tells."""

    def search(heights):
        told = iter(heights)

        def onward(at):
            return at + 1.0, torch.tensor(next(told), dtype=torch.float64)

        start = torch.zeros(2, dtype=dtype)
        return squarem(onward, start, tolerance=1e-6, max_steps=len(heights))

    found = search([-7.0] * 60)
    assert bool(found.converged)
    assert found.steps == 3 * rounds + 1
    moving = [-7.0 * (1 + 1e-9) ** -k for k in range(60)]
    assert not bool(search(moving).converged)
    assert search([-7.0] * 4 + [-6.0] * 56).steps > 3 * rounds + 1


def test_lbfgs_steps_are_those_of_the_dense_inverse_of_the_last_ten_pairs():
    """Of the update formula; a problem that has shown no curvature goes along its gradient."""
    rng = np.random.default_rng(0)
    bend = np.diag([1.0, 7.0, 30.0])
    search, at, pairs, last = FirstOrder("lbfgs"), np.ones(3), [], None
    slopes = np.array([3.0, -2.0, 0.5])
    for turn in range(14):
        gradient = -bend @ at
        both = [torch.tensor(np.stack(x)) for x in ((at, at), (gradient, slopes))]
        step = search.step(*both, torch.tensor(5.0)).numpy()
        if last is not None:
            pairs = [*pairs, (at - last[0], last[1] - gradient)][-10:]
            s, y = pairs[-1]
            inverse = s @ y / (y @ y) * np.eye(3)
            for s, y in pairs:
                turned = np.eye(3) - np.outer(y, s) / (s @ y)
                inverse = turned.T @ inverse @ turned + np.outer(s, s) / (s @ y)
            np.testing.assert_allclose(step[0], inverse @ gradient, rtol=1e-6)
            np.testing.assert_allclose(step[1], slopes)
        else:
            for found, g in zip(step, (gradient, slopes), strict=True):
                np.testing.assert_allclose(found, g / np.linalg.norm(g))
        last, at = (at, gradient), at + rng.normal(size=3) * (1 + turn)


@pytest.mark.parametrize(("factor", "n_fits"), [(1.0049, 2), (1.0051, 9), (1 / 1.0051, 9)])
def test_a_dispersion_is_estimated_until_it_stays_the_same(factor, n_fits):
    """By half a percent, and eight times at most; the last fit is with the last estimate."""
    asked = []
    fit, phi = settled_dispersion(0.5, lambda x: asked.append(x) or x, lambda x, _: x * factor)

    assert fit == phi == pytest.approx(0.5 * factor ** (n_fits - 1))
    assert len(asked) == n_fits


class Steps:
    """Newton steps that are given: a row each of size, change, gain, concave, and rise."""

    def __init__(self, monkeypatch, n, rows):
        self.rows, self.log, self.n, self.height, self.rise = iter(rows), [], n, 0.0, 0.0
        for name in ("_newton_step", "points", "evaluate"):
            monkeypatch.setattr(items_integrated, name, getattr(self, name))

    def _newton_step(self, state):
        size, change, gain, concave, self.rise = next(self.rows)
        self.height = float(state.objective)
        step = np.zeros(self.n + 2)
        step[0], step[1], step[-1] = size, -size, change
        return step, gain, concave

    def points(self, *_, coarseness=1.0, wider=1.0):
        self.log.append(f"points {coarseness:g}" + (f" wider {wider:g}" if wider > 1 else ""))

    def evaluate(self, _counts, ability, population, *_, given_missing=None):
        self.log.append(f"at {ability[0]:.3g}" + ("" if given_missing is None else " known"))
        height, flat = np.float64(self.height + self.rise), np.zeros((self.n + 2, self.n + 2))
        return Evaluation(ability, population, height, height, flat[0], flat, flat)

    def newton(self, *more, items=20):
        """The search from 0, and what it did, in one line."""
        counts = Counts(np.zeros((self.n, items)), np.ones((self.n, items)))
        start = np.zeros(self.n), Population("rasch", np.zeros(2))
        return items_integrated._newton_search(counts, start, *more), ", ".join(self.log)

    def coarse(self, max_steps):
        counts, flat = Counts(*np.zeros((2, self.n, 20))), np.zeros(self.n)
        found = items_integrated._coarse_search(
            counts, flat, Population("rasch", np.zeros(2)), max_steps
        )
        at = round(float(found.seen.ability[0]), 9), round(float(found.moved[0][0]), 9)
        return (*at, found.steps), ", ".join(self.log)


def test_a_search_goes_from_coarse_points_to_the_finest_and_stays_there(monkeypatch):
    """Its steps are .4 long at most, and halved where the likelihood falls by more than .001."""
    rows = [
        (0.8, 0.2, 1.01, True, 1.0),
        (0.1, 0.2, 0.99, True, 0.0),
        (0.2, 0.1, 0.051, True, -0.0009),
        (0.2, 0.151, 0.049, True, -0.0011),
        (0.2, 0.151, 0.049, True, 0.0),
        (0.2, 0.01, 0.049, False, 0.0),
        (0.1, 0.149, 0.049, True, 0.0),
        (0.1, 0.049, 1.1e-9, True, 0.0),
        (0.5, 0.004, 1e-10, False, 1.0),
        (0.1, 0.0, 0.1, True, 0.0),
        (1e-4, 0.01, 0.9e-9, True, 0.0),
    ]
    found, did = Steps(monkeypatch, 11, rows).newton(50)

    assert did == (
        "points 1.6, at 0, points 1.6, at 0.4, points 1, at 0.4, points 1, at 0.6, points 1, "
        "at 0.8, at 0.7, points 1, at 0.9, points 0.85, at 0.9, at 1, at 1.4, points 0.85, at 1.4"
    )
    assert found.converged
    assert found.iterations == len(rows)
    assert found.state.ability[0] == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("n", "second", "then"),
    [
        (11, (0.1, 0.1, 5.0, True, 0.0), "points 1, at 0"),
        (10, (0.1, 0.1, 5.0, True, 0.0), "at 0.05"),
    ],
)
def test_a_step_refused_on_coarse_points_gets_finer_ones(monkeypatch, n, second, then):
    rows = [(0.1, 0.1, 5.0, True, -1.0), second]
    first = 1.6 if n > 10 else 1
    _, did = Steps(monkeypatch, n, rows).newton(2)

    assert did == f"points {first:g}, at 0, points {first:g}, at 0.1, {then}"


def test_a_search_that_is_refused_for_ever_ends(monkeypatch):
    """A fall is allowed for each item; and a likelihood that bends upwards needs finer points."""
    found, did = Steps(monkeypatch, 10, [(0.1, 0.1, 5.0, True, -1.0)] * 60).newton(60)
    assert not found.converged
    assert found.iterations == 25
    assert did.count("at") == 25
    rows = [(0.1, 0.1, 5.0, True, x) for x in (-0.0049, -0.0051, 0.0)]
    _, did = Steps(monkeypatch, 10, rows).newton(3, items=5000)
    assert did == "points 1, at 0, points 1, at 0.1, points 1, at 0.2, at 0.15"
    _, did = Steps(monkeypatch, 11, [(0.1, 0.1, 5.0, False, 0.0)]).newton(1)
    assert did == "points 1.6, at 0, points 1, at 0"


def test_a_search_near_the_maximum_ends_with_a_short_step(monkeypatch):
    """With the missing information of another search; or it starts with the spacing it is told."""
    rows = [(5.1e-4, 0.0, 1e-8, True, 0.0), (4.9e-4, 0.0, 1e-8, True, 0.0)]
    found, did = Steps(monkeypatch, 11, rows).newton(9, np.zeros((11, 11)), 0.85)
    assert did == "points 0.85, at 0 known, at 0.00051"
    assert (found.converged, found.iterations) == (True, 2)
    assert found.state.ability[0] == pytest.approx(1e-3)
    found, did = Steps(monkeypatch, 11, rows).newton(2, None, 0.425, 1.5)
    assert did == "points 0.425 wider 1.5, at 0, at 0.00051, at 0.001"
    assert not found.converged


def test_a_coarse_search_ends_where_the_next_step_promises_little(monkeypatch):
    """Or where the likelihood falls by a tenth, or bends upwards, or no steps are left."""

    def search(*rows, most=9):
        return Steps(monkeypatch, 11, rows).coarse(most)

    long, good = (0.8, 0.1, 5.0, True, 1.0), (0.2, 0.1, 1.01, True, -0.09)
    near, falls = (0.2, 0.1, 0.99, True, 0.0), (0.2, 0.1, 5.0, True, -0.11)
    whole, did = search(long, good, near)
    assert whole == (0.6, 0.8, 2)
    assert did == "points 1.6, at 0, points 1.6, at 0.4, points 1.6, at 0.6"
    assert search(long, falls)[0] == (0.4, 0.4, 2)
    assert search(long, (0.2, 0.1, 5.0, False, 0.0))[0] == (0.4, 0.4, 1)
    assert search(long, good, good, most=1)[0] == (0.4, 0.6, 1)


def test_a_refit_takes_sixty_steps_at_most(monkeypatch):
    """Each .4 long at most; it ends with a step that promises less than a millionth."""
    counts = Counts(np.eye(11, 20), np.ones((11, 20)))
    models = np.arange(11)
    for gains, n, converged in (([2e-6] * 99, 61, False), ([2e-6, 0.9e-6], 2, True)):
        steps = Steps(monkeypatch, 11, [(0.8, 0.0, gain, True, 0.0) for gain in gains])
        start = items_integrated.Start(
            steps.evaluate(None, np.zeros(11), Population("rasch", np.zeros(2)), None), None
        )
        found = items_integrated.refit(counts, start, models, 1.0)
        assert found.converged == converged
        assert len(steps.log) == n + 1
        assert found.state.ability[0] == pytest.approx(0.4 * (n if converged else n - 1))


def test_ends_of_segments_are_those_of_each_line_and_every_fourth_point():
    """Where both ends of a segment are far from an item's posterior, so is what lies between."""
    population = Population("2pl", torch.tensor([0.2, 0.1, 0.0, 0.3, -1.1], dtype=torch.float64))
    laid = points(population, torch.linspace(-1, 1, 5).double(), torch.ones(5).double())
    place = -1
    for k, end in enumerate(laid.end.tolist()):
        place = place + 1 if k and laid.x2[k] == laid.x2[k - 1] else 0
        closes = k + 1 == len(laid.x2) or bool(laid.x2[k + 1] != laid.x2[k])
        assert end == (closes or place % 4 == 0)
    assert math.isclose(float(laid.log_weight(population).exp().sum()), 1.0)


@pytest.mark.parametrize(
    ("errors", "spacings", "left"),
    [
        ([0.9e-3 * 64 / 100], [], 0.9e-3),
        ([-1.0, 0.0], [0.85], 0.0),
        ([1.1e-3 * 64 / 100, 1.0, 0.5, 0.25], [0.85, 0.425, 0.2125], 0.25 * 100 / 64),
    ],
)
def test_points_reach_farther_then_lie_closer_until_the_likelihood_stays(
    monkeypatch, errors, spacings, left
):
    """By a thousandth, on 64 of the items; three searches are the most."""
    told, asked, tried = iter(errors), [], []

    def finer(*_, coarseness, wider):
        tried.append((coarseness, wider))
        return "finer"

    def blocks(counts, _ability, _population, grid):
        assert counts.right.shape[1] == 64
        yield SimpleNamespace(log_likelihood=np.array([next(told) if grid == "finer" else 0.0]))

    def search(_counts, _start, most, **how):
        asked.append(how["coarseness"])
        assert (most, how["wider"]) == (7, 1.5)
        return maximum._replace(iterations=2)

    monkeypatch.setattr(items_integrated, "points", finer)
    monkeypatch.setattr(items_integrated, "_blocks", blocks)
    monkeypatch.setattr(items_integrated, "_newton_search", search)
    population, flat = Population("rasch", np.zeros(2)), np.zeros((7, 7))
    state = Evaluation(np.zeros(5), population, 0.0, 0.0, flat[0], flat, flat)
    maximum = items_integrated._Maximum(state, "here", 10, converged=True)
    counts = Counts(np.zeros((5, 100)), np.ones((5, 100)))
    found, error = items_integrated._with_settled_points(counts, maximum, 7)

    assert asked == spacings
    assert error == pytest.approx(left)
    assert found.iterations == 10 + 2 * len(spacings)
    assert tried == [(0.7 * x, 1.5) for x in (0.85, *spacings)]


def test_the_start_that_is_highest_after_four_steps_is_searched_on(monkeypatch):
    """One whose difficulties are all alike only where there is no other."""
    asked = []

    def best(*attempts, most=20):
        """Of attempts by height, spread of difficulties, and whether they have converged."""

        def search(_counts, start, most):
            asked.append((start[0], most))
            height, sd, converged = attempts[start[0]]
            population = Population("2pl", np.array([0.0, math.log(sd)]))
            state = Evaluation(start[0], population, height, 0.0, None, None, None)
            return items_integrated._Maximum(state, None, 4, converged=converged)

        asked.clear()
        monkeypatch.setattr(items_integrated, "_search", search)
        starts = [(k, None) for k in range(len(attempts))]
        found = items_integrated._best_search(None, starts, most)
        return found.state.ability, found.iterations, list(asked)

    low, high, alike = (-5.0, 1.0, False), (-4.0, 0.051, False), (-1.0, 0.049, False)
    done = (-4.0, 1.0, True)
    assert best(low) == (0, 4, [(0, 20)])
    assert best(low, high, alike) == (1, 8, [(0, 4), (1, 4), (2, 4), (1, 16)])
    assert best(alike, (-2.0, 0.01, False)) == (0, 8, [(0, 4), (1, 4), (0, 16)])
    assert best(low, done) == (1, 4, [(0, 4), (1, 4)])
    assert best(low, high, most=5) == (1, 8, [(0, 4), (1, 4), (1, 1)])
    assert best(low, high, most=4) == (1, 4, [(0, 4), (1, 4)])
    assert best(low, high, most=3) == (1, 4, [(0, 3), (1, 3)])


@pytest.mark.parametrize(("n", "spreads"), [(10, [0.15, 0.5]), (11, [0.3])])
def test_few_models_start_from_two_spreads_of_discriminations(monkeypatch, n, spreads):
    asked = []

    def best(_counts, starts, _most):
        asked.extend(float(population.values[4].exp()) for _, population in starts)
        raise StopIteration

    monkeypatch.setattr(items_integrated, "_best_search", best)
    right = torch.tensor(np.random.default_rng(0).integers(0, 2, (n, 20)), dtype=torch.float64)
    with pytest.raises(StopIteration):
        items_integrated.items_integrated(Counts(right, torch.ones_like(right)), "2pl")

    assert asked == pytest.approx(spreads)


@pytest.mark.parametrize(
    ("at", "bend", "mode", "information"),
    [
        (-2.0, 12.0, (-2.0 * 12 + math.log(0.25) * 4) / 16, 16.0),
        (-40.0, 1.0, -4.0, 5.0),
        (40.0, 1.0, 0.5, 5.0),
        (-1.0, -1.0, None, 4.0),
    ],
)
def test_a_common_chance_of_guessing_is_the_mode_of_a_normal_prior(
    monkeypatch, at, bend, mode, information
):
    """The logit's prior is N(logit .2, .5²), within (-4, .5); information is that of it at least.

    Of a quadratic log-likelihood, on which abilities depend linearly.
    """
    moves, asked = np.array([0.3, -0.1]), []

    def fit(counts, kind, *, dispersion, max_steps, mended):
        x = float(np.log(counts.guess[0] / (1 - counts.guess[0])))
        asked.append((kind, dispersion, max_steps, mended))
        found = SimpleNamespace(
            objective=-bend * (x - at) ** 2 / 2, ability=moves * x, covariance=np.eye(2),
            dispersion=0.7,
        )  # fmt: skip
        found._replace = lambda **new: SimpleNamespace(**{**vars(found), **new})
        return found

    monkeypatch.setattr(items_integrated, "items_integrated", fit)
    counts = Counts(np.zeros((2, 3)), np.ones((2, 3)))
    found, c, error = items_integrated.with_common_guessing(
        counts, "rasch", dispersion=None, max_steps=9
    )
    x = math.log(c / (1 - c))

    if mode is not None:
        assert x == pytest.approx(mode, abs=0.02)
    assert error == pytest.approx(c * (1 - c) * information**-0.5, rel=1e-6)
    np.testing.assert_allclose(
        found.covariance, np.eye(2) + np.outer(moves, moves) / information, rtol=1e-6
    )
    assert asked[0] == ("rasch", None, 9, True)
    assert set(asked[1:-1]) == {("rasch", 0.7, 9, True)}
    assert asked[-1] == ("rasch", 0.7, 9, False)


@pytest.mark.parametrize(
    ("n", "spread", "noise", "words"),
    [
        (10, 0.61, 0.1, "spread widely"),
        (10, 0.59, 0.1, ""),
        (11, 0.61, 0.1, ""),
        (11, 0.3, 8.99, ""),
        (11, 0.3, 9.01, "hardly anything"),
        (10, 0.61, 9.01, "spread widely"),
    ],
)
def test_notes_on_discriminations_from_both_sides_of_their_thresholds(n, spread, noise, words):
    """Ten models whose spread is above .6; a tenth of the variance that answers explain."""
    fit = SimpleNamespace(
        item_model="2pl", models=range(n), hyperparameters={"log_discrimination_sd": spread},
        discrimination=np.array([0.0, 2.0]), discrimination_std_error=np.full(2, noise**0.5),
    )  # fmt: skip
    found = items_integrated.discriminations_note(fit)

    assert len(found) == bool(words)
    assert words in " ".join(found)
    fit.item_model = "rasch"
    assert not items_integrated.discriminations_note(fit)

"""Bradley–Terry beside its definition: one likelihood a contest, differentiated by computer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.goodness import predictive_fit
from evalstats_plugin.ranking.ratings import likelihood
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry

KINDS = ("model", "sandwich", "cluster", "judge")


def log_probability(ties, x, tie, outcome):
    """Log probability of each outcome; numbers may be complex."""
    up, down = np.exp(x / 2), np.exp(-x / 2)
    if ties == "half":
        total = np.log(up + down)
        return outcome * x / 2 - (1 - outcome) * x / 2 - total
    if ties == "davidson":
        parts = np.stack([down, np.exp(tie) + 0 * x, up])
        parts = parts / parts.sum(axis=0)
    else:
        won, lost = 1 / (1 + np.exp(tie - x)), 1 / (1 + np.exp(tie + x))
        parts = np.stack([lost, 1 - won - lost, won])
    return np.log(parts[(2 * outcome).astype(int), np.arange(len(x))])


@dataclass
class Defined:
    """The log-likelihood of each contest, its gradient and curvature, at an estimate."""

    contests: Contests
    ties: str
    predictors: np.ndarray
    """What the ratings and effects of the parameters are multiplied with, one row a contest."""
    at: np.ndarray

    def values(self, at):
        x = self.predictors @ at[: self.predictors.shape[1]]
        chance = log_probability(self.ties, x, at[-1], self.contests.outcome)
        return self.contests.weight * chance

    def scores(self, at):
        """By a complex step, which leaves no rounding error, shape (C, p)."""
        steps = 1e-30j * np.eye(len(at))
        return np.array([self.values(at + step).imag for step in steps]).T / 1e-30

    @cached_property
    def information(self):
        """Minus second derivatives of each contest, shape (C, p, p)."""
        h = 1e-5
        steps = h * np.eye(len(self.at))
        moved = [self.scores(self.at - s) - self.scores(self.at + s) for s in steps]
        return np.array(moved).transpose(1, 0, 2) / (2 * h)


def defined(fit, contests, ties, *, position, features=()):
    """Contests of a fit, at its estimates."""
    rows = np.arange(len(contests))
    players = np.zeros((len(contests), len(contests.players)))
    players[rows, contests.first], players[rows, contests.second] = 1, -1
    columns = [players, *([np.ones(len(contests))] if position else [])]
    columns += [contests.features[:, contests.feature_names.index(name)] for name in features]
    at = np.r_[fit.rating, list(fit.parameters.values())]
    return Defined(contests, ties, np.column_stack(columns), at)


def expected_covariance(own, kind, held, one_way, corrected):
    """Inverse information, or the sandwich of units' scores, of ratings relative to their mean."""
    n, scores, curves = len(own.contests.players), own.scores(own.at), own.information
    scores[one_way] = 0
    information = curves.sum(axis=0) + held
    together = np.zeros_like(information)
    together[:n, :n] = 1
    relative = np.eye(len(information)) - together / n
    bread = relative @ np.linalg.inv(information + together) @ relative
    if kind == "model":
        return bread
    each = {"cluster": own.contests.cluster, "judge": own.contests.judge}
    unit = each.get(kind, np.arange(len(scores)))
    number = len(np.unique(unit))
    middle = curves[one_way].sum(axis=0) + held
    for k in np.unique(unit):
        score, own_curve = scores[unit == k].sum(axis=0), curves[unit == k].sum(axis=0)
        term = score
        for _ in range(3 if corrected else 0):
            term = own_curve @ bread @ term
            score = score + term
        factor = 1 - 1 / number if corrected else 1 if kind == "sandwich" else number / (number - 1)
        middle += factor * np.outer(score, score)
    return bread @ middle @ bread


def drawn(seed=0, size=60, names=("style", "length")):
    """Weighted votes on four players, many of them alike, of nine clusters and five judges."""
    rng = np.random.default_rng(seed)
    first = rng.integers(4, size=size)
    second = (first + rng.integers(1, 4, size=size)) % 4
    made = Contests.of(
        first, second, rng.choice([0, 0.5, 1], size=size, p=[0.3, 0.25, 0.45]), ordered=True,
        weight=rng.choice([0.5, 1.0, 1.75], size=size),
    )  # fmt: skip
    return replace(
        made, cluster=rng.integers(9, size=size), judge=rng.integers(5, size=size),
        features=rng.normal(size=(size, 2)) * [1, 50], feature_names=names,
    )  # fmt: skip


def check(fit, own, held, *, even=None, one_way=None, kind="model", corrected=True):
    """Assert that a fit is at the maximum, with the covariance of its kind."""
    one_way = np.zeros(len(own.contests), bool) if one_way is None else one_way
    held = np.diag(held).astype(float)
    gradient = own.scores(own.at).sum(axis=0) - held @ own.at
    if even is not None:
        gradient += even.scores(even.at).sum(axis=0)
        held += even.information.sum(axis=0)
    information = own.information.sum(axis=0) + held
    n = len(own.contests.players)
    information[:n, :n] += 1

    scale = np.sqrt(np.diagonal(information))
    np.testing.assert_allclose(np.linalg.solve(information, gradient) * scale, 0, atol=1e-7)
    assert fit.log_likelihood == pytest.approx(own.values(own.at).sum(), rel=1e-12)
    expected = expected_covariance(own, kind, held, one_way, corrected)
    errors = np.sqrt(np.diagonal(expected))
    found = np.array(list(fit.parameter_std_errors.values()))
    np.testing.assert_allclose(fit.covariance, expected[:n, :n], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found, errors[n:], rtol=1e-6)
    assert fit.diagnostics["covariance"] == kind
    assert fit.diagnostics["converged"]


@pytest.mark.parametrize("ties", ["half", "davidson", "rao-kupper"])
@pytest.mark.parametrize("prior_sd", [None, 0.7])
@pytest.mark.parametrize("features", [(), ("length", "style")])
def test_estimates_and_errors_are_those_of_the_definition(ties, prior_sd, features, monkeypatch):
    made = drawn()
    for corrected, kinds in ((True, KINDS), (False, ("sandwich", "cluster"))):
        for kind in kinds:
            monkeypatch.setattr(likelihood, "_CELLS", 2**23 if kind == "cluster" else 60)
            monkeypatch.setattr(likelihood, "CORRECTED", 100 if corrected else 0)
            fit = fit_bradley_terry(
                made, ties=ties, position=True, features=features, covariance=kind,
                prior_sd=prior_sd,
            )  # fmt: skip
            names = ["position", *features, *(() if ties == "half" else ("tie",))]
            own = defined(fit, made, ties, position=True, features=features)
            held = np.r_[np.full(4, 0 if prior_sd is None else prior_sd**-2), np.zeros(len(names))]

            assert list(fit.parameters) == names
            loss = -fit.log_likelihood / made.weight.sum()
            assert predictive_fit(fit, made).log_loss == pytest.approx(loss, rel=1e-9)
            check(fit, own, held, kind=kind, corrected=corrected)
            assert fit.diagnostics["n_ties"] == (made.outcome == 0.5).sum() > 1
            assert fit.diagnostics["n_contests"] == 60
            groups = {"cluster": 9, "judge": 5}.get(kind)
            assert fit.diagnostics.get("n_clusters") == groups
            freedom = fit.diagnostics.get("degrees_of_freedom")
            assert freedom == (None if groups is None else groups - 1)
            assert fit.estimator == ("ml" if prior_sd is None else "laplace")


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
@pytest.mark.parametrize("kind", ["model", "sandwich", "cluster"])
@pytest.mark.parametrize("tied", ["none", "all"])
def test_half_a_contest_between_equals_holds_the_share_of_ties(ties, kind, tied):
    """Half of it is a tie, a quarter a win of either; the errors count it as information."""
    made = drawn()
    outcome = np.full(60, 0.5) if tied == "all" else np.where(made.outcome > 0.5, 1.0, 0.0)
    made = replace(made, outcome=outcome)
    fit = fit_bradley_terry(made, ties=ties, covariance=kind)
    own = defined(fit, made, ties, position=False)
    between = replace(
        made, first=np.zeros(3, int), second=np.ones(3, int), outcome=np.array([0, 0.5, 1]),
        weight=np.array([0.125, 0.25, 0.125]),
    )  # fmt: skip
    even = Defined(between, ties, np.zeros((3, 4)), own.at)

    check(fit, own, np.zeros(5), even=even, kind="model" if tied == "all" else kind)
    assert [f"{'only' if tied == 'all' else 'no'} ties: half" in n for n in fit.notes].count(True)


@pytest.mark.parametrize("ties", ["half", "davidson"])
@pytest.mark.parametrize("kind", ["sandwich", "cluster"])
def test_answers_that_all_agree_have_the_errors_of_the_model(ties, kind):
    """Of a player whom all others beat scores do not vary, and neither does the prior."""
    made = drawn()
    beaten = (made.first == 2) | (made.second == 2)
    outcome = np.where(beaten, np.where(made.first == 2, 0.0, 1.0), made.outcome)
    made = replace(made, outcome=outcome)
    fit = fit_bradley_terry(made, ties=ties, covariance=kind, features=("style",))

    own = defined(fit, made, ties, position=False, features=("style",))
    held = np.r_[np.full(4, 0.04), np.zeros(1 + (ties == "davidson"))]
    check(fit, own, held, one_way=beaten, kind=kind)
    assert fit.notes[0].startswith("player_2 lost every comparison: their ratings have no finite")
    assert fit.estimator == "laplace"


def test_a_search_that_is_cut_short_is_said_to_be(monkeypatch):
    monkeypatch.setattr(likelihood, "_MAX_STEPS", 2)
    fit = fit_bradley_terry(drawn(), covariance="model")

    assert not fit.diagnostics["converged"]
    assert fit.diagnostics["iterations"] == 2
    assert fit.notes[0].startswith("the fit did not converge in 2 steps (last change ")


@pytest.mark.parametrize("ties", ["half", "rao-kupper"])
def test_effects_without_a_maximum_have_a_prior_of_their_size(ties):
    """Of position and of a feature, by its mean square; covariances are the model's."""
    made = drawn(size=80)
    wins = made.outcome != 0.5
    style = np.where(wins, made.outcome - 0.5, 0) * np.random.default_rng(3).uniform(20, 60, 80)
    made = replace(made, features=style[:, None], feature_names=("style",))
    fit = fit_bradley_terry(made.take(wins), ties=ties, position=True, features=("style",))

    own = defined(fit, made.take(wins), ties, position=True, features=("style",))
    square = (style[wins] ** 2).mean()
    rest = np.zeros(1 if ties == "rao-kupper" else 0)
    between = replace(
        made, first=np.zeros(3, int), second=np.ones(3, int), outcome=np.array([0, 0.5, 1]),
        weight=np.array([0.125, 0.25, 0.125]),
    )  # fmt: skip
    even = Defined(between, ties, np.zeros((3, 6)), own.at) if len(rest) else None
    check(fit, own, np.r_[np.zeros(4), 0.04, square / 25, rest], even=even)
    assert "are separated by position, style and" in fit.notes[-1]

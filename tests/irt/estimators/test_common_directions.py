"""Few directions in place of an inverse: against the inverse, and Louis' identity."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

from evalstats_plugin.irt.estimators import information
from evalstats_plugin.irt.estimators.information import (
    _linearised,
    _observed,
    eliminated,
    nearly_eliminated,
)
from evalstats_plugin.irt.estimators.mml import fit_marginal
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.arrays import inverse_information
from evalstats_plugin.irt.model.data import Counts


def joint(strong: float, r: int = 200, m: int = 150) -> tuple[torch.Tensor, torch.Tensor]:
    """Edges (2, R, M) that share two directions, and the items' own parts."""
    rng = np.random.default_rng(4)
    shared = np.linalg.qr(rng.standard_normal((r, 2)))[0]
    loads = np.sqrt(strong) * np.linalg.qr(rng.standard_normal((2 * m, 2)))[0].T
    flat = shared @ loads + 0.004 * rng.standard_normal((r, 2 * m))
    root = rng.standard_normal((m, 2, 4))
    own = torch.from_numpy(root @ root.transpose(0, 2, 1))
    half = torch.linalg.cholesky(own)
    edges = torch.einsum("mpq,rqm->prm", half, torch.from_numpy(flat).view(r, 2, m))
    return edges.contiguous(), own


def test_nearly_eliminated_agrees_with_the_inverse():
    edges, own = joint(0.95)
    guess = torch.ones(len(edges[0]), 1, dtype=edges.dtype)
    nothing = torch.zeros(len(edges[0]), dtype=edges.dtype)
    exact = eliminated(torch.eye(len(edges[0]), dtype=edges.dtype), edges, own)
    for given in (edges, edges.float()):
        found = nearly_eliminated(given, own, guess, nothing)
        assert found is not None
        covariance = found.directions @ found.directions.T + torch.diag(found.spread)
        torch.testing.assert_close(
            covariance.diagonal(), exact.covariance.diagonal(), rtol=1e-3, atol=0
        )
        assert float((covariance - exact.covariance).abs().max()) < 0.005
        torch.testing.assert_close(found.items, exact.items, rtol=1e-3, atol=1e-5)


def test_nearly_eliminated_is_none_for_many_or_indefinite_directions():
    edges, own = joint(0.95)
    guess = torch.ones(len(edges[0]), 1, dtype=edges.dtype)
    nothing = torch.zeros(len(edges[0]), dtype=edges.dtype)

    assert nearly_eliminated(20 * edges, own, guess, nothing) is None
    assert nearly_eliminated(joint(1.05)[0], own, guess, nothing) is None
    rng = np.random.default_rng(1)
    many = torch.from_numpy(rng.standard_normal((2, 40, 400))) * 0.05
    alone = torch.eye(2, dtype=torch.float64).expand(400, 2, 2)
    assert nearly_eliminated(many, alone, guess[:40], nothing[:40]) is None


def test_least_precision_is_a_lower_bound():
    """Where sums say that a direction has less than no precision, it has what it had alone."""
    edges, own = joint(1.05)
    guess = torch.ones(len(edges[0]), 1, dtype=edges.dtype)
    found = nearly_eliminated(edges, own, guess, torch.full_like(guess[:, 0], 0.01))

    assert found is not None
    assert float(found.directions.square().sum(dim=0).max()) == pytest.approx(99)
    assert float(found.items.diagonal(dim1=1, dim2=2).min()) > 0


@pytest.mark.parametrize("prior", ["none", "weak", "estimated"])
def test_errors_are_those_of_the_information(prior: str, monkeypatch: pytest.MonkeyPatch):
    """By Louis' identity, within 1 %; without the models' common square they were 3 % off."""
    rng = np.random.default_rng(10)
    theta, b, a = (
        rng.standard_normal(300),
        rng.standard_normal(240),
        np.exp(0.3 * rng.standard_normal(240)),
    )
    right = rng.random((300, 240)) < special.expit(a * (theta[:, None] - b))
    there = rng.random((300, 240)) < 0.8
    counts = Counts(torch.from_numpy(right * there).double(), torch.from_numpy(there).double())
    options = MmlOptions(prior=prior)  # type: ignore[arg-type]
    found = fit_marginal(counts, options)
    exact = _observed(found.answers, found, sandwich=False, exact=True)
    expanded = _observed(found.answers, found, sandwich=False, exact=False)
    dense = _linearised(found.answers, found)
    monkeypatch.setattr(information, "_DENSE_WORK", 0)
    few = _linearised(found.answers, found)
    monkeypatch.setattr(
        information, "common_curvature", lambda _, fit: fit.items.slope.new_zeros(2, 0, 240)
    )
    without = _linearised(found.answers, found)

    def off(one: information.Covariances) -> float:
        """Largest relative error of a standard error."""
        pairs = [(one.abilities.diagonal(), exact.abilities.diagonal())]
        pairs += [(one.items[:, k, k], exact.items[:, k, k]) for k in (0, 1)]
        return max(float((x / y).sqrt().sub(1).abs().max()) for x, y in pairs)

    assert not torch.equal(few.abilities, dense.abilities)
    assert off(expanded) < 0.0005
    assert off(dense) < 0.01
    assert off(few) < 0.01
    assert off(without) > 2 * off(dense)


def test_steep_items_far_from_most_models_have_errors():
    """Quotients of 0 by 0 once reached an eigenvalue routine, which raised an exception."""
    rng = np.random.default_rng(3)
    theta, b = rng.standard_normal(3000), rng.standard_normal(40)
    a = np.where(np.arange(40) < 3, 20.0, 1.0)
    right = rng.random((3000, 40)) < special.expit(a * (theta[:, None] - b))
    counts = Counts(torch.from_numpy(right).double(), torch.ones(3000, 40).double())
    options = MmlOptions(prior="estimated")
    found = fit_marginal(counts, options)
    few = information._in_few_directions(
        found.answers, found, information._complete_information(found.answers, found)
    )

    assert few is not None
    assert bool(few.items.isfinite().all())


def test_parameters_in_flat_directions_are_unknown_and_the_others_are_known():
    information = torch.tensor([[2.0, 0, 0], [0, 1, -1], [0, -1, 1]]).double()
    inverse, unknown = inverse_information(information)

    assert unknown.tolist() == [False, True, True]
    assert float(inverse[0, 0]) == pytest.approx(0.5)
    assert bool(inverse.isfinite().all())


@pytest.mark.parametrize(("work", "many", "quick"), [
    (2 * 12 * 12 * 9, 4, 0), (2 * 12 * 12 * 9 - 1, 4, 1),
    (2 * 12 * 12 * 9, 9 / 12, 0), (2 * 12 * 12 * 9, 8.9 / 12, 1),
])  # fmt: skip
def test_few_directions_are_tried_above_so_much_work_or_so_many_items(
    work: float,
    many: float,
    quick: int,
    monkeypatch: pytest.MonkeyPatch,
):
    """Of 12 models and 9 items: an inverse of N² numbers for each of two parameters."""
    rng = np.random.default_rng(0)
    right = torch.from_numpy(1.0 * (rng.random((12, 9)) < 0.6))
    fit = fit_marginal(Counts(right, torch.ones_like(right)), MmlOptions(prior="weak"))
    asked = list[int]()
    monkeypatch.setattr(information, "_DENSE_WORK", work)
    monkeypatch.setattr(information, "_MANY", many)
    monkeypatch.setattr(information, "_in_few_directions", lambda *_: asked.append(1))

    _linearised(fit.answers, fit)
    assert len(asked) == quick

"""Long tests with holes: searched in windows and in single precision first, to the same end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

from evalstats_plugin.irt.estimators import items_integrated as estimators_items_integrated
from evalstats_plugin.irt.estimators import mml
from evalstats_plugin.irt.estimators.grid import (
    FAINT,
    Answers,
    even_nodes,
    posterior,
    posterior_widths,
    windows,
)
from evalstats_plugin.irt.estimators.items_integrated import items_integrated
from evalstats_plugin.irt.estimators.mml import fit_marginal, from_totals
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.data import Counts


def drawn(
    n: int, m: int, *, missing: float = 0.3, sign: float = 1.0, seed: int = 0
) -> tuple[Counts, np.ndarray]:
    """2PL answers with holes, and the true abilities and items (3, ·)."""
    rng = np.random.default_rng(seed)
    theta, b = rng.standard_normal(n), rng.standard_normal(m)
    a = sign * np.exp(0.3 * rng.standard_normal(m))
    right = rng.random((n, m)) < special.expit(a * (theta[:, None] - b))
    there = rng.random((n, m)) >= missing
    counts = Counts(torch.from_numpy(right * there).double(), torch.from_numpy(there).double())
    return counts, theta


def _plain(
    counts: Counts, options: MmlOptions, monkeypatch: pytest.MonkeyPatch, item_model: str = "2pl"
) -> mml.Marginal:
    with monkeypatch.context() as here:
        here.setattr(mml, "_LONG", 2**60)
        return fit_marginal(counts, options, item_model)


@pytest.mark.parametrize(
    ("options", "item_model"),
    [
        (MmlOptions(prior="estimated"), "2pl"),
        (MmlOptions(prior="none"), "2pl"),
        (MmlOptions(), "1pl"),
    ],
    ids=["estimated", "none", "common slope"],
)
def test_the_optimum_is_that_of_the_whole_grid(
    options: MmlOptions, item_model: str, monkeypatch: pytest.MonkeyPatch
):
    counts, _ = drawn(400, 350)
    found = fit_marginal(counts, options, item_model)
    expected = _plain(counts, options, monkeypatch, item_model)

    assert found.answers.windows is not None
    assert expected.answers.windows is None
    assert found.search.converged
    for name in ("slope", "intercept"):
        one, other = getattr(found.items, name), getattr(expected.items, name)
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(found.mean, expected.mean, atol=2e-5, rtol=0)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=5e-3)


def test_reflected_items_get_the_same_fit(monkeypatch: pytest.MonkeyPatch):
    """The scale turns at the end, when the windows are of the old one."""
    counts, _ = drawn(400, 350, sign=-1.0)
    found = fit_marginal(counts, MmlOptions(prior="estimated"))
    expected = _plain(counts, MmlOptions(prior="estimated"), monkeypatch)

    torch.testing.assert_close(found.mean, expected.mean, atol=2e-5, rtol=0)


def test_windows_that_are_too_narrow_are_noticed(monkeypatch: pytest.MonkeyPatch):
    """As where shares of right answers mislead: widened until nothing is lost."""
    counts, _ = drawn(400, 350)
    expected = fit_marginal(counts, MmlOptions(prior="estimated"))
    monkeypatch.setattr("evalstats_plugin.irt.estimators.grid.REACH", 2.5)
    monkeypatch.setattr("evalstats_plugin.irt.estimators.grid.SLACK", 0.0)
    found = fit_marginal(counts, MmlOptions(prior="estimated"))

    assert found.search.converged
    assert found.answers.windows is not None
    assert float(found.answers.windows.lost(found.weights)) <= FAINT
    torch.testing.assert_close(found.mean, expected.mean, atol=2e-5, rtol=0)


def test_in_windows_the_posterior_is_the_posterior():
    counts, theta = drawn(300, 500)
    items = from_totals(counts.right, counts.trials, common_slope=False).items
    whole = Answers(counts.right, counts.trials, None)
    nodes = even_nodes(-6, 6, 161, counts.right)
    seen = posterior_widths(whole, items, nodes)
    by = windows(seen.mean, seen.sd, nodes.at)
    narrow = posterior(whole.narrowed(by), items, nodes)

    inside = sum((w.rows.stop - w.rows.start) * (w.nodes.stop - w.nodes.start) for w in by.parts)
    assert inside < 0.6 * 300 * 161
    torch.testing.assert_close(narrow.weights, seen.posterior.weights, atol=1e-10, rtol=0)
    torch.testing.assert_close(narrow.log_likelihood, seen.posterior.log_likelihood)
    assert np.corrcoef(seen.mean, theta)[0, 1] > 0.95


def test_windows_report_the_weight_at_their_ends():
    """The control: shifted by one, they cut posteriors in two."""
    counts, _ = drawn(300, 500)
    items = from_totals(counts.right, counts.trials, common_slope=False).items
    whole = Answers(counts.right, counts.trials, None)
    nodes = even_nodes(-6, 6, 161, counts.right)
    seen = posterior_widths(whole, items, nodes)
    for shift, wrong in ((0.0, False), (1.0, True)):
        by = windows(seen.mean + shift, seen.sd, nodes.at)
        lost = by.lost(posterior(whole.narrowed(by), items, nodes).weights)
        assert (float(lost) > FAINT) == wrong


def test_start_values_are_near_the_estimates():
    counts, _ = drawn(400, 350)
    start = from_totals(counts.right, counts.trials, common_slope=False)
    found = fit_marginal(counts, MmlOptions(prior="estimated"))

    assert float((start.items.intercept - found.items.intercept).abs().median()) < 0.1
    assert float((start.items.slope - found.items.slope).abs().median()) < 0.25
    assert np.corrcoef(start.ability, found.mean)[0, 1] > 0.99
    same = from_totals(counts.right, counts.trials, common_slope=True).items.slope
    assert float(same.std()) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "n", "m"),
    [
        ("rasch", 60, 700),
        ("2pl", 60, 700),
        ("2pl-signed", 30, 1200),
        pytest.param("rasch", 30, 1200, marks=pytest.mark.validation),
        pytest.param("2pl", 30, 1200, marks=pytest.mark.validation),
        pytest.param("2pl-signed", 60, 700, marks=pytest.mark.validation),
    ],
)
def test_two_stage_search_finds_the_same_maximum(
    n: int, m: int, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """Estimates to a thousandth of their errors, and these within a thousandth."""
    counts, _ = drawn(n, m)
    found = items_integrated(counts, kind)
    monkeypatch.setattr(estimators_items_integrated, "_LARGE", 2**60)
    expected = items_integrated(counts, kind)
    error = expected.covariance.diagonal().sqrt()

    assert found.converged
    assert float(((found.ability - expected.ability) / error).abs().max()) < 1e-3
    torch.testing.assert_close(found.covariance.diagonal().sqrt(), error, rtol=1.5e-3, atol=0)
    torch.testing.assert_close(found.difficulty, expected.difficulty, rtol=0, atol=2e-5)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-3)
    for name, value in expected.hyperparameters.items():
        assert value == pytest.approx(found.hyperparameters[name], abs=1e-4)

"""Figures of the steps that estimators of item response models take, at given numbers.

Where a search ends does not depend on much that is on its way: here each step is seen by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from figures import Run, changed

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.irt.estimators import (
    grid,
    information,
    items_integrated,
    mml,
    optimise,
    ordered,
    refits,
    variational,
)
from evalstats_plugin.irt.estimators.extremes import NODES, placed
from evalstats_plugin.irt.estimators.item_population import Population, points
from evalstats_plugin.irt.methods import MmlOptions, OrderedOptions, ViOptions
from evalstats_plugin.irt.model.curves import Items
from evalstats_plugin.irt.model.data import Counts

N, M = 9, 14


@cache
def counts(
    n: int = N, m: int = M, *, trials: int = 1, missing: float = 0.0, guess: Sequence[float] = ()
) -> Counts:
    """Right answers of models of rising ability; the first and the last are not extreme."""
    rng = np.random.default_rng(n + 7 * m)
    slope, middle = np.exp(0.4 * rng.normal(size=m)), rng.normal(size=m)
    chance = 1 / (1 + np.exp(-slope * (np.linspace(-1.5, 1.5, n)[:, None] - middle)))
    tried = trials * (rng.random((n, m)) >= missing)
    right = rng.binomial(tried, chance)
    right[:, 0], right[:, 1] = tried[:, 0] * (np.arange(n) > 1), tried[:, 1] * (np.arange(n) < 4)
    return Counts(
        torch.tensor(right, dtype=torch.float64), torch.tensor(tried, dtype=torch.float64),
        guess=torch.tensor(np.resize(guess, m)) if guess else None,
    )  # fmt: skip


GIVEN: Mapping[str, Counts] = {
    "whole": counts(),
    "holes": counts(missing=0.3, trials=3),
    "one hole": Counts(counts().right, counts().trials.clone().index_put_(
        (torch.tensor([2]), torch.tensor([0])), torch.tensor(0.0, dtype=torch.float64))),
    "guessed": counts(guess=(0.0, 0.2, 0.25), trials=2, missing=0.1),
}  # fmt: skip
POPULATIONS: Mapping[str, Sequence[float]] = {
    "rasch": (0.2, 0.1),
    "2pl": (0.2, 0.1, 0.05, 0.3, -1.1),
    "2pl-signed": (-0.3, 0.1, 0.9, 0.2, -0.8),
}


def _population(kind: Any) -> Population:
    return Population(kind, torch.tensor(POPULATIONS[kind], dtype=torch.float64))


def _ability(given: Counts) -> torch.Tensor:
    return torch.linspace(-1.2, 1.4, len(given.right), dtype=torch.float64)


def _placed(kind: str, given: Counts, **more: Any) -> Any:
    ability, population = _ability(given), _population(kind)
    return points(population, ability, given.trials.amax(1), **more)


def _steps(kind: str, name: str) -> dict[str, Any]:
    """The likelihood at given numbers, and the step from there."""
    given, like = GIVEN[name], _ability(GIVEN[name])
    at, laid = (like, _population(kind)), _placed(kind, given)
    state = items_integrated.evaluate(given, *at, laid)
    known = items_integrated.evaluate(given, *at, laid, given_missing=state.missing[:9, :9])
    errors = 0.1 + 0.05 * torch.arange(len(like))
    return {
        "state": state, "known": known.missing,
        "step": items_integrated._newton_step(state),
        "from afar": items_integrated._newton_step(
            items_integrated.evaluate(given, 4 * like, at[1], laid)),
        "coarse": [items_integrated._coarse_search(given, far * like, at[1], 9) for far in (1, 4)],
        "dispersion": items_integrated._dispersion(
            given, 1.3, items_integrated._Maximum(state, laid, 1, converged=True)),
        "covariance": items_integrated._inverse(state),
        "means": items_integrated.item_means(given, state, laid, 1.2),
        "curves": [items_integrated.averaged_curves(given, like, e, at[1], like[:3])
                   for e in (errors / 2, errors)],
        "posterior": items_integrated._posterior(given, state, laid),
        "hyper": items_integrated._hyperparameters(at[1], 0.3),
    }  # fmt: skip


def _searched(kind: Any, name: str) -> dict[str, Any]:
    """The end of a search, what is known there, and a fit that starts from it."""
    given = GIVEN[name]
    fit = items_integrated.items_integrated(given, kind)
    start = items_integrated.start_of(given, fit, kind)
    clusters = torch.arange(M) // 3
    fewer = torch.tensor([0, 2, 3, 5, 7, 8])
    others = given.of_items(torch.tensor([0, 0, 1, 2, 2, 2, 4, 5, 6, 7, 9, 9, 12, 13]))
    return {
        "fit": fit._replace(iterations=0, node_error=0.0),
        "by two stages": items_integrated._two_stage_search(
            given, (start.state.ability + 0.3, start.state.population), 50).state.ability,
        "sandwich": items_integrated.sandwich(given, fit, kind),
        "by clusters": items_integrated.sandwich(given, fit, kind, clusters),
        "others": items_integrated.refit(others, start, torch.arange(N), fit.dispersion).state[:3],
        "fewer": items_integrated.refit(
            given.of_models(fewer), start, fewer, fit.dispersion).state[:3],
        "again": items_integrated.refit(
            given.of_models(torch.tensor([0, 0, 3, 5, 5])), start, torch.tensor([0, 0, 3, 5, 5]),
            fit.dispersion).state[:3],
    }  # fmt: skip


def _extreme(guess: float) -> dict[str, Any]:
    """Models right, or wrong, on all items, on all but a few, and on a part of one."""
    right = torch.tensor([
        [2.0, 1, 2, 1, 0], [0, 0, 0, 0, 0], [2, 1, 2, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0.2, 0, 0],
        [2, 1, 1.5, 1, 0], [1, 1, 1, 1, 0]])  # fmt: skip
    tried = torch.tensor([2.0, 1, 2, 1, 0]).expand(7, 5).clone()
    tried[:, 4] = torch.tensor([0.0, 1, 1, 1, 1, 0, 0])
    given = Counts(
        right.double(),
        tried.double(),
        guess=torch.full((5,), guess, dtype=torch.float64) if guess else None,
    )
    extreme = items_integrated.extreme_models(given)
    curve = 0.5 + 0.5 * np.tanh(NODES[:, None] - np.linspace(-1, 1, 5))
    return {
        "extreme": extreme, "mended": items_integrated._as_if_half(given, extreme).right,
        "inner": items_integrated.taking_part(given),
        "placed": placed(right.numpy(), tried.numpy(), extreme.numpy(), np.full(5, guess), curve),
        "fit": items_integrated.items_integrated(given, "rasch").ability,
        "fitted": items_integrated.items_integrated(given, "rasch").quantiles,
    }  # fmt: skip


def _unmoved() -> list[Any]:
    """Fits that may take no step, or few."""
    return [items_integrated.items_integrated(counts(), kind, max_steps=most)._replace(
        node_error=0.0) for kind in ("rasch", "2pl") for most in (0, 1, 5)]  # fmt: skip


# Marginal maximum likelihood.

FORMS: Mapping[str, tuple[str, MmlOptions]] = {
    "none": ("2pl", MmlOptions(prior="none")),
    "weak": ("2pl", MmlOptions(prior="weak")),
    "estimated": ("2pl", MmlOptions(prior="estimated")),
    "1pl": ("1pl", MmlOptions(prior="weak")),
    "1pl estimated": ("1pl", MmlOptions(prior="estimated")),
    "3pl": ("3pl", MmlOptions(prior="weak")),
    "upper": ("2pl", MmlOptions(prior="weak", upper=0.97)),
    "4pl": ("4pl", MmlOptions(prior="estimated")),
    "4pl common": ("4pl", MmlOptions(prior="weak", common_asymptotes=True)),
    "3pl without a prior": ("3pl", MmlOptions(prior="weak", guessing_prior=None)),
}


def _items(form: mml.ItemForm) -> Items:
    one = torch.linspace(-1, 1, M, dtype=torch.float64)
    return Items(
        1 + 0.3 * torch.sin(9 * one) * (not form.common_slope), one.flip(0),
        -1.5 + 0.2 * one if form.guess else None, -2.5 + 0.1 * one if form.slip else None,
    )  # fmt: skip


def _em(name: str, given: Counts) -> dict[str, Any]:
    """A step of the items, a fit of two steps, and errors by both sorts of information."""
    model, options = FORMS[name]
    form = mml.ItemForm.of(given, model, options)
    fit = mml._Fit(grid.arrange(given), _items(form), options, form)
    point, height = fit.step(fit.start())
    weights = grid.posterior(fit.answers, fit.items, fit.nodes).weights
    by = mml.derivatives(fit.answers, fit.items, weights, fit.nodes)
    found = mml.fit_marginal(given, replace(options, max_steps=22), model)
    told: dict[str, Any] = {
        "point": point, "height": height, "next": fit.step(point),
        "gradient": by.gradient, "information": by.information,
        "newton": mml.newton_step(by, common_slope=form.common_slope, longest=0.3),
        "halved": fit._halved(fit.items, 40 * mml.newton_step(by, common_slope=False), weights,
                              fit.prior),
        "complete": information._complete_information(fit.answers, found),
        "prior": fit.prior and [fit.prior.reversed(), fit.prior.expanded(
            *torch.tensor([0.2, 1.2, 0.9], dtype=torch.float64))],
        "errors": [information._observed(fit.answers, found, sandwich=sandwich, exact=exact)
                   for sandwich, exact in ((True, True), (False, True), (False, False))],
    }  # fmt: skip
    if form.common_asymptotes:
        told["common"] = mml._common_step(by, longest=0.4)
    else:
        told["linear"] = information._linearised(fit.answers, found)
    return told


def _common_steps() -> list[Any]:
    """Steps where information is small beside what keeps it from being none."""
    root = torch.sin(torch.arange(2 * 4 * 4, dtype=torch.float64)).reshape(2, 4, 4)
    whole = root @ root.mT + 0.1 * torch.eye(4, dtype=torch.float64)
    gradient = torch.cos(torch.arange(8.0, dtype=torch.float64)).reshape(2, 4)
    return [
        step
        for scale in (1.0, 1e-8, 1e-9)
        for step in (
            mml._common_step(mml.Derivatives(scale * gradient, scale * whole)),
            mml.newton_step(mml.Derivatives(scale * gradient, scale * whole), common_slope=False),
            mml.newton_step(mml.Derivatives(
                scale * gradient[:, :2], scale * whole[:, :2, :2]), common_slope=True),
        )
    ]  # fmt: skip


@cache
def _long() -> Counts:
    return counts(130, 40, missing=0.2)


def _long_test(prior: Any, model: str) -> dict[str, Any]:
    """Answers of more models than a window has, from start values by their totals."""
    given, like = _long(), torch.zeros(1, dtype=torch.float64)
    start = mml.from_totals(given.right, given.trials, common_slope=model == "1pl")
    form = mml.ItemForm.of(given, model, MmlOptions(prior=prior))
    fit = mml._Fit(grid.arrange(given), start.items, MmlOptions(prior=prior), form)
    laid = grid.windows(start.ability, start.std_error, grid.even_nodes(-6, 6, 241, like).at)
    fit.nodes, fit.answers = grid.even_nodes(-6, 6, 241, like), fit.whole.narrowed(laid)
    found = mml.fit_marginal(given, MmlOptions(prior=prior, max_steps=30), model)
    told: dict[str, Any] = {
        "start": start, "step": fit.step(fit.start()), "ends": laid.ends, "inner": laid.inner,
        "widths": fit.widths(fit.unpack(fit.start())),
        "quick": [
            [information.is_quick(n, found._replace(items=Items(one, one)))
             for n in (39, 559, 560, 690, 5590, 5591, 390_625, 390_626)]
            for one in (torch.ones(40), torch.ones(4000))
        ],
        "linear": information._linearised(found.answers, found),
    }  # fmt: skip
    if model == "2pl":
        complete = information._complete_information(found.answers, found)
        told["directions"] = information._in_few_directions(found.answers, found, complete)
    return told


def _windows(n: int, wider: float) -> grid.Windows:
    at = torch.linspace(-5, 5, 321, dtype=torch.float64)
    place = torch.cos(torch.arange(float(n), dtype=torch.float64) ** 2)
    return grid.windows(3 * place, 0.05 + 0.1 * place**2, at, wider=wider)


def _nodes(reach: float, sd: float) -> Any:
    mean = torch.tensor([0.3, -reach], dtype=torch.float64)
    laid = grid.even_nodes(-6, 6, 61, mean)
    placed_anew = grid.fitting_nodes(laid, mean, torch.tensor([2 * sd, sd], dtype=torch.float64))
    few = grid.coarse(Items(mean, mean), torch.linspace(-6, 6, 401, dtype=torch.float64))
    return [placed_anew, len(few.at), few.at, few.to_nodes]


def _joint(p: int, r: int, m: int, scale: float) -> dict[str, Any]:
    """Parts of a joint precision, inverted whole and in few directions."""
    rng = np.random.default_rng(p)
    root = rng.standard_normal((m, p, p + 2))
    own = torch.tensor(root @ root.transpose(0, 2, 1))
    edges = torch.tensor(scale * rng.standard_normal((p, r, m)))
    guess = torch.stack([torch.ones(r), torch.linspace(-1, 1, r)], 1).double()
    near = information.nearly_eliminated(edges, own, guess, torch.full((r,), 0.05).double())
    dense = torch.eye(r).double() + torch.diag(torch.linspace(0, 1, r).double())
    # The sign of a direction is arbitrary.
    return {
        "whole": information.eliminated(dense, edges, own),
        "indefinite": information.eliminated(dense - 2, edges, own),
        "near": near and [near.spread, near.directions.abs(), near.items],
    }  # fmt: skip


# Other estimators.


def _mean_field(kind: Any, prior: Any) -> dict[str, Any]:
    field = variational.MeanField(counts(trials=2, missing=0.2), kind, ViOptions(prior=prior))
    lower = torch.tensor([[0.4, 0.0], [0.1, 0.3]], dtype=torch.float64)
    one = torch.linspace(-1, 1, M, dtype=torch.float64)
    items = torch.stack([torch.ones_like(one) + 0.2 * one.square(), one], 1)
    moments = variational._Moments(
        torch.linspace(-1, 2, N, dtype=torch.float64),
        torch.linspace(0.1, 0.4, N, dtype=torch.float64), items, (lower @ lower.T).expand(M, 2, 2),
    )  # fmt: skip
    point, bound = field.step(field.pack(moments))
    return {"point": point, "bound": bound, "prior": field.prior(moments),
            "moments": field.unpack(point), "next": field.step(point)}  # fmt: skip


def _climbed(name: str) -> list[Any]:
    """Steps from gradients alone, on a bowl and on a saddle; the last point comes twice."""
    steepness = torch.tensor([[1.0, 9.0, 3.0], [4.0, -1.0, 0.5]], dtype=torch.float64)
    search, at, told = optimise.FirstOrder(name), torch.ones(2, 3, dtype=torch.float64), []
    for turn in range(14):
        step = search.step(at, -steepness * at + 0.1 * at**3, torch.full((2, 1), 9.0).double())
        told.append(step)
        at = at + (0.5 * step if turn < 12 else 0)
    return told


def _regressed() -> Any:
    """Logistic regressions on two columns and an offset."""
    given = counts(trials=2, missing=0.2)
    design = torch.stack([torch.ones(M), torch.linspace(-1, 2, M)], 1).double()
    precision = torch.tensor([[1.0, 0.2], [0.2, 0.5]]).double()
    prior = torch.tensor([0.1, -0.4]).double(), precision
    return optimise.posterior_mode(given, design, torch.linspace(1, -1, M).double() ** 2, prior)


def _summary(n_resamples: int) -> Any:
    """Refits of which some lack a model, and in some a model is all right."""
    values = np.sin(np.arange(4.0 * n_resamples)).reshape(n_resamples, 4)
    values[1::3, 1], values[:, 2], values[2:, 3] = np.nan, np.nan, np.nan
    values[0, 0] = np.inf
    items = [np.stack([row, row**2]) for row in values]
    return [refits._summary(values, items, level, []) for level in (0.5, 0.9)]


def _ordered(model: str, with_prior: bool, zero: str) -> dict[str, Any]:  # noqa: FBT001
    """The likelihood of ordered scores at given numbers, and errors there."""
    rng = np.random.default_rng(5)
    places = rng.integers(0, 4, (6, 5, 1))
    places[:, 0], places[:, 1] = 2, places[:, 1] % 2
    places[3, 4] = -1
    problem = ordered._Problem.of(places, model, with_prior=with_prior)
    searched = problem.start() + 0.1 * np.sin(np.arange(problem.size))
    point = problem.plain(searched)
    spread, moves = problem.errors(point, zero, 2 if zero == "named" else None)
    unit, at = problem.zero(point)
    return {
        "loss": problem.loss(searched), "objective": problem.objective(point),
        "abilities": problem.abilities(point), "spread": spread,
        "moves": moves, "zero": [unit, at], "record": problem.record(point, unit, at, spread),
        "without": problem.record(point, unit, at, None),
    }  # fmt: skip


def _from_zero(model: str, zero: str) -> Any:
    """A fit of ordered scores in few steps, from several zeros."""
    rng = np.random.default_rng(3)
    given = ResponseMatrix.from_array(rng.integers(0, 3, (7, 5)) / 2.0)
    options = OrderedOptions(prior="weak", max_steps=4, std_errors=zero != "models")
    fit = ordered.fit_ordered(given, model, options, zero)
    return [fit.ability, fit.ability_covariance, fit.steps, fit.steps_std_error,
            fit.hyperparameters, len(fit.notes), fit.level]  # fmt: skip


RUNS: Mapping[str, Mapping[str, Run]] = {
    **{f"steps of {kind}": {name: partial(_steps, kind, name) for name in GIVEN}
       for kind in POPULATIONS},
    **{f"searched by {kind}": {name: partial(_searched, kind, name) for name in (
        ("one hole", "holes", "guessed") if kind == "rasch" else ("holes",)
    )} for kind in POPULATIONS},
    "extreme": {str(guess): partial(_extreme, guess) for guess in (0.0, 0.2)},
    **{f"EM of {name}": {
        kind: partial(_em, name, GIVEN[kind]) for kind in ("whole", "holes")
    } for name in FORMS},
    "EM of given guesses": {"weak": partial(_em, "weak", GIVEN["guessed"])},
    "few steps": {"of items": _unmoved},
    "common steps": {"of little": _common_steps},
    "long tests": {f"{prior} {model}": partial(_long_test, prior, model) for prior, model in (
        ("weak", "2pl"), ("estimated", "2pl"), ("estimated", "1pl"))},
    "windows": {f"{n} {wider}": partial(_windows, n, wider) for n, wider in (
        (3, 1.0), (199, 1.0), (200, 2.0), (350, 0.5))},
    "nodes": {f"{reach} {sd}": partial(_nodes, reach, sd) for reach, sd in (
        (0.5, 0.3), (4.0, 0.05), (9.0, 0.5), (1.0, 0.001))},
    "eliminated": {f"{p} {scale}": partial(_joint, p, r, m, scale) for p, r, m, scale in (
        (1, 6, 9, 0.1), (2, 20, 12, 0.02), (3, 12, 5, 0.1), (2, 5, 40, 0.5))},
    "variational": {f"{kind} {prior}": partial(_mean_field, kind, prior)
                    for kind in ("rasch", "2pl")
                    for prior in ("vague", "hierarchical", "gaussian-gamma")},
    "gradients": {name: partial(_climbed, name) for name in ("gd", "adam", "lbfgs")},
    "regressions": {"a prior": _regressed},
    "refits": {str(n): partial(_summary, n) for n in (2, 3, 12)},
    "zeros": {f"{model} {zero}": partial(_from_zero, model, zero)
              for model in ("graded", "gpcm") for zero in ("items", "models", "model_2")},
    "ordered": {f"{model} {prior} {zero}": partial(_ordered, model, prior, zero)
                for model in ("graded", "gpcm")
                for prior, zero in ((True, "items"), (True, "named"), (False, "models"))},
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not; information that is nearly singular costs digits."""
    assert changed("estimators", run, RUNS[run], rel=1e-5) == []

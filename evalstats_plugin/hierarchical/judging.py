"""Judge models of one's own: with their data before they are fitted, and by their fits after.

* `check_model`: shapes, possible values, priors, what data do not identify, and cost of engines
* `diagnosis`: convergence, predictive checks by group, and calibration of left-out predictions
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.hierarchical.engines.plates.distributions import CONSTRAINTS
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Particles,
    Scene,
    axis_of,
    draw_particles,
    example,
    joint_bound,
    log_factors,
    weigh,
)
from evalstats_plugin.hierarchical.engines.plates.fit import (
    CHAIN_DRAWS,
    FitOptions,
    first_particles,
    memory_needed,
)
from evalstats_plugin.hierarchical.engines.plates.model import (
    Bound,
    Data,
    Latent,
    Model,
    Observed,
    On,
    bind,
    check_support,
    prior_values,
    support_in_words,
    with_sizes,
)
from evalstats_plugin.hierarchical.engines.plates.nuts import (
    WARM_UP_DRAWS,
    Posterior,
    chains_for,
)
from evalstats_plugin.hierarchical.engines.plates.results import PlatedFit, no_proposals
from evalstats_plugin.hierarchical.fit import expected_density, left_out, predictive_check
from evalstats_plugin.hierarchical.rows import (
    Check,
    Diagnosis,
    EngineCost,
    ModelCheck,
    ModelPart,
)
from evalstats_plugin.runtime.chains import smoothed_weights
from evalstats_plugin.runtime.torch import generator_of, resolve_device
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.streams import stream

_Result = TypeVar("_Result")

_PRIOR_DRAWS, _PRIOR_NUMBERS = 1000, 4_000_000
"""Draws from the prior, and most numbers of a latent or of data in them."""

_SHOWN = (0.05, 0.95)
"""Quantiles of these draws that are shown."""

_FAR, _WIDE, _SURE = 0.0005, 100.0, 0.9
"""Tail probability of prior predictions beyond which data surprise; ratio of the spreads of prior
predictions and of data that is noted; and share of pairs of 0/1 answers, drawn with the same
latents, that agree: the prior makes them nearly certain."""

_MOST_DERIVATIVES, _POINTS, _MORE_SUMS = 4_000_000, 3, 5
"""Most factors × numbers for which identification is checked; points at which it is; and sums of
factors beyond as many as numbers."""

_NULL, _TAKES_PART = 1e-9, 1e-3
"""Singular value, as a share of the largest, that counts as 0; and share of a direction from which
a number takes part in it."""

_LEAVES, _COPIES = 15, 4
"""Gradients along a usual path of the no-U-turn sampler, and copies of its draws and data."""

_TIMED, _SLOW = 5, 0.2
"""Steps that are timed, and seconds of one from which two are enough."""

_RECORDING_SECONDS, _RECORDED = 0.1, 4.0
"""Seconds for recording a gradient, and times that it is as fast afterwards."""

_WORST, _GROUPS = 3, 5
"""Members of each plate that are listed, those that fit worst; and groups of cells by predicted
probability, each of as many cells or more."""

_DRAWS = 1000
"""Most draws of a fit that predictions are made from."""

_DOUBTED = 0.05
"""Two-sided p-value, times the numbers of checks and of members, below which a check fails."""


def check_model(model: Model, data: Data, *, device: str = "auto", rng: int = 0) -> ModelCheck:
    """Check a model with data before it is fitted; see `Model.check`."""
    where = resolve_device(device)
    generator = generator_of(rng, "check of a model", where)
    try:
        bound = bind(with_sizes(model, data), data, where)
        joint, s = joint_bound(bound), bound.structure
        most = max(math.prod(bound.shape(plate)) for plate in s.chains)
        count = max(100, min(_PRIOR_DRAWS, _PRIOR_NUMBERS // most))
        values = prior_values(joint, count, generator)
        check_support(joint, values)
    except DesignError as error:
        return ModelCheck(rows=(), seed=rng, problem=str(error))
    notes = _unidentified(bound, generator)
    rows = [
        ModelPart(name=name, kind="latent", on=_place(bound, x.plate, x.shape),
                  values=_values(example(joint, x, values)), observed="",
                  **_quantiles(values[name]))
        for name, x in s.latents.items()
    ]  # fmt: skip
    for name, plate in s.inputs.items():
        on = _place(bound, plate, bound.shape_of_value(name))
        rows.append(ModelPart(name=name, kind="input", on=on, values="", low=None, high=None,
                              observed=_range(bound.arrays[name])))  # fmt: skip
    for observed in s.observed.values():
        row, surprises = _data(joint, observed, values, generator)
        rows.append(row)
        notes += surprises
    engines = (_particles(bound, generator), _chains(bound, generator))
    fitting = [engine.method for engine in engines if engine.seconds is not None]
    notes += [f"method {x.method!r} does not fit: {x.why}" for x in engines if x.seconds is None]
    return ModelCheck(
        rows=tuple(rows),
        notes=tuple(notes),
        seed=rng,
        engines=engines,
        method=fitting[0] if fitting else None,
        problem="" if fitting else "no method fits (see the notes)",
    )


def _place(bound: Bound, plate: On, vector: tuple[int, ...]) -> str:
    s = bound.structure
    plates = [f"{p} {s.sizes[p]}" for p in s.chains[plate]]
    shape = f"vector {' × '.join(map(str, vector))}"
    return ", ".join([*plates, *([shape] if vector else [])])


def _values(distribution: Any) -> str:
    """Possible values in words; bounds that depend on other latents are those of one draw."""
    support = getattr(distribution, "support", None)
    if support is None:
        return ""
    base = getattr(support, "base_constraint", support)
    low, high = (torch.as_tensor(getattr(base, f"{side}_bound", math.nan))
                 for side in ("lower", "upper"))  # fmt: skip
    return "numbers" if base is CONSTRAINTS.real else support_in_words(support, low, high)


def _quantiles(draws: Tensor) -> dict[str, Any]:
    flat = draws.double().flatten().cpu().numpy()
    return dict(zip(("low", "high"), np.quantile(flat, _SHOWN).tolist(), strict=True))


def _range(values: Tensor, missing: int = 0) -> str:
    ends = f"{float(values.min()):.4g} to {float(values.max()):.4g}"
    return f"{ends}; {missing} missing" if missing else ends


def _data(
    joint: Bound, o: Observed, values: Mapping[str, Tensor], generator: torch.Generator
) -> tuple[ModelPart, list[str]]:
    """Describe data beside draws from the prior, and note where these are far apart."""
    s, array, given = joint.structure, joint.arrays[o.name], {**joint.arrays, **values}
    vector = joint.shape_of_value(o.name)
    seen = torch.ones_like(array) > 0
    for part in (joint.exists(o.plate), joint.present.get(o.name)):
        if part is not None:
            seen = seen & (part.reshape([*part.shape, *[1] * (array.ndim - part.ndim)]) > 0)
    y = array[seen]
    density = example(joint, Latent(o.name, o.density, o.plate), values)
    row = ModelPart(name=o.name, kind="data", on=_place(joint, o.plate, vector),
                    values=_values(density), low=None, high=None,
                    observed=_range(y, int((~seen).sum())))  # fmt: skip
    group = next(iter(s.groups), None)
    count = len(next(iter(values.values())).movedim(axis_of(joint), 0)) if group else 1
    shape = joint.shape(o.plate, group, count) + list(vector)
    try:
        drawn, again = (joint.sampled(o.density, given, o.name, shape, generator).double()
                        for _ in range(2))  # fmt: skip
    except DesignError:
        return row, []
    predicted, data = drawn.flatten().cpu().numpy(), y.cpu().numpy()
    ends = np.quantile(predicted, [_FAR, 1 - _FAR])
    outside = int(((data < ends[0]) | (data > ends[1])).sum())
    width, own = (float(np.ptp(np.quantile(x, [0.05, 0.95]))) for x in (predicted, data))
    notes: list[str] = []
    if outside:
        notes.append(
            f"{outside} of {counted(len(data), 'value')} of {o.name!r} lie beyond what the priors "
            f"predict ({ends[0]:.3g} to {ends[1]:.3g}): widen them"
        )
    if 0 < own < width / _WIDE:
        notes.append(
            f"the priors predict {o.name!r} {width / own:.0f} times as wide as the data are: "
            "narrow them"
        )
    agree = float((drawn == again).double().mean())
    if set(np.unique(predicted)) <= {0.0, 1.0} and agree > _SURE:
        notes.append(
            f"the priors make {o.name!r} nearly certain: answers drawn twice agree in "
            f"{100 * agree:.0f} %: narrow the priors of the log odds"
        )
    return replace(row, **_quantiles(drawn)), notes


def _unidentified(bound: Bound, generator: torch.Generator) -> list[str]:
    """Name latents that may move, alone or together, without a change of what depends on them.

    What depends on them are data, and priors given other latents: the rank of their derivatives by
    all numbers shows what only the priors of latents without parents hold in place.
    """
    try:
        posterior = Posterior(bound, generator)
    except DesignError:
        return ["what the data do not identify is not checked: some latents are not numbers"]
    s, size = bound.structure, posterior.size
    factors = sum(math.prod(bound.shape(x.plate)) for x in (*s.groups.values(),
                                                            *s.observed.values()))  # fmt: skip
    if size * factors > _MOST_DERIVATIVES:
        return [f"what the data do not identify is not checked: {size} numbers are many"]
    columns = _columns(posterior)
    present = np.array([member is not None for _, member in columns])
    null = np.eye(int(present.sum()))
    for _ in range(_POINTS):
        derivatives = _derivatives(posterior, generator)
        if derivatives is None:
            continue
        _, values, directions = np.linalg.svd(derivatives[:, present])
        rank = int((values > _NULL * values.max(initial=0.0)).sum())
        null = directions[rank:] if len(directions) - rank < len(null) else null
    named = [column for column in columns if column[1] is not None]
    return list(_open_directions(null.T @ null, named)) if len(null) else []


def _columns(posterior: Posterior) -> list[tuple[str, str | None]]:
    """Latent and member of each number; no member where a ragged plate lacks it."""
    joint, named = posterior.joint, list[tuple[str, str | None]]()
    for part in posterior.parts:
        plates = joint.structure.chains[part.latent.plate]
        around, shape = joint.exists(part.latent.plate), list(part.shape)
        shape[posterior.axis] = 1
        n = joint.structure.ndim
        full = torch.ones(shape) > 0 if around is None else around.reshape(
            [*around.shape[:n], *[1] * (len(shape) - n)]).expand(shape)  # fmt: skip
        sizes = joint.structure.lengths(part.latent.plate)
        for at, exists in np.ndenumerate(full.reshape([*sizes, *shape[n:]]).cpu().numpy()):
            member = " × ".join(f"{p} {i}" for p, i in zip(plates, at, strict=False))
            named.append((part.latent.name, member if exists else None))
    return named


def _derivatives(posterior: Posterior, generator: torch.Generator) -> FloatArray | None:
    """Derivatives of random sums of factors at one point, (sums, numbers); None beyond a support.

    As many sums as numbers, and a few more, have the rank of all factors.
    """
    joint, s, size = posterior.joint, posterior.joint.structure, posterior.size
    count, device = size + _MORE_SUMS, generator.device
    point = 2 * torch.rand([1, size], generator=generator, dtype=torch.float64, device=device) - 1
    flat = point.expand(count, size).clone().requires_grad_()
    rooted = {g.name for g in s.groups.values()
              if not any(s.parents_of(x) for x in g.latents)}  # fmt: skip
    total = torch.zeros((), dtype=torch.float64, device=device)
    with torch.enable_grad():
        near, _ = posterior.latents(flat, posterior.centring)
        particles = Particles({x: near[x] for x in s.latents}, no_proposals(joint))
        try:
            for plate in s.chains:
                factors = log_factors(joint, particles, plate, s.whole(plate))
                for name, factor in factors.items():
                    by_sum = factor.movedim(posterior.axis, 0)
                    if name in rooted or len(by_sum) < count:
                        continue
                    sign = torch.randint(0, 2, by_sum.shape, generator=generator, device=device)
                    total = total + ((2 * sign - 1) * by_sum).sum()
        except DesignError:
            return None
        if not total.requires_grad:
            return np.zeros((1, size))
        gradient = torch.autograd.grad(total, flat)[0].cpu().numpy()
    return gradient if np.isfinite(gradient).all() else None


def _open_directions(share: FloatArray, columns: list[tuple[str, str | None]]) -> Iterator[str]:
    """Describe the directions that nothing holds in place, given the projection onto them."""
    names = [name for name, _ in columns]
    together = {name: {name} for name in names}
    for i, j in np.argwhere(np.abs(share) > _TAKES_PART).tolist():
        if names[i] not in together[names[j]]:
            joined = together[names[i]] | together[names[j]]
            together |= dict.fromkeys(joined, joined)
    own = np.diagonal(share)
    for group in dict.fromkeys(map(frozenset, together.values())):
        inside = np.array([name in group for name in names])
        count = round(float(own[inside].sum()))
        if not count:
            continue
        listed = [name for name in dict.fromkeys(names) if name in group]
        free = [member for (_, member), x in zip(columns, inside & (own > 1 - _NULL), strict=True)
                if x]  # fmt: skip
        if len(listed) > 1 or len(free) < count:
            what = " and ".join(map(repr, listed))
            yield (f"the data leave {counted(count, 'direction')} of {what} open"
                   f"{', such as a shift that cancels' * (len(listed) > 1)}: only priors decide "
                   "there")  # fmt: skip
        else:
            where = f" of {few(list(filter(None, free)))}" * (count < int(inside.sum()))
            yield f"nothing observed depends on {listed[0]!r}{where}: its posterior is the prior"


def _timed(step: Callable[[], _Result]) -> tuple[_Result, float]:
    """Return what a step gives, and the seconds of the fastest of five; of two where it is slow."""
    spent: list[float] = []
    while True:
        began = time.perf_counter()
        result = step()
        spent.append(time.perf_counter() - began)
        if len(spent) == _TIMED or (len(spent) > 1 and spent[-1] > _SLOW):
            return result, min(spent)


def _particles(bound: Bound, generator: torch.Generator) -> EngineCost:
    """Cost of the default method, timed by one of its steps."""
    options = FitOptions()
    try:
        proposals, blocks = first_particles(bound, options, generator)

        def step() -> Scene:
            particles = draw_particles(bound, proposals, options.k, generator)
            weigh(scene := Scene(bound, particles, blocks))
            return scene

        scene, seconds = _timed(step)
    except DesignError as error:
        return EngineCost(method="qem", seconds=None, bytes=None, why=str(error))
    stored = 8 * sum(x.numel() for part in scene.particles for x in part.values())
    return EngineCost(
        method="qem",
        seconds=seconds * (options.iterations + options.sets + options.wider),
        bytes=stored * (options.sets + options.wider) + memory_needed(bound, options.k, blocks),
        why="plates are nested, so that particles of all latents are combined",
    )


def _chains(bound: Bound, generator: torch.Generator) -> EngineCost:
    """Cost of the no-U-turn sampler, timed by one of its gradients."""
    try:
        posterior = Posterior(bound, generator)
        chains = chains_for(bound)
        rows = stream(0, "times of gradients").uniform(-1, 1, (chains, posterior.size))
        _, seconds = _timed(lambda: posterior(rows))
    except DesignError as error:
        return EngineCost(method="nuts", seconds=None, bytes=None, why=str(error))
    s, draws = bound.structure, WARM_UP_DRAWS + CHAIN_DRAWS
    cells = sum(math.prod(bound.shape(o.plate)) for o in s.observed.values())
    return EngineCost(
        method="nuts",
        seconds=_RECORDING_SECONDS + seconds / _RECORDED * draws * _LEAVES,
        bytes=8 * chains * (_COPIES * posterior.size * draws + _COPIES * cells),
        why="Markov chains, which take crossed plates and any latents that are numbers",
    )


def diagnosis(fit: Any, *, rng: int = 0) -> Diagnosis:
    """Judge a fit of a model of one's own; see `Model.doctor`.

    Parameters
    ----------
    fit
        A `PlatedFit`, or the fit of a formula, which holds one.
    """
    whole: PlatedFit = getattr(fit, "plated", None) or fit
    every = -(-len(next(iter(whole.draws.values()))) // _DRAWS)
    by_chain = {x: draws.reshape(whole.chains, -1, *draws.shape[1:])[:, ::every]
                for x, draws in whole.draws.items()}  # fmt: skip
    some = replace(whole, draws={x: draws.reshape(-1, *draws.shape[2:])
                                 for x, draws in by_chain.items()})  # fmt: skip
    likely, predicted = some.log_likelihood(), some.predictive(rng=rng)
    seen = {name: some.observed_cells(name) for name in likely}
    cells = np.concatenate([x[:, seen[name]] for name, x in likely.items()], axis=1)
    numbers = np.concatenate([x.reshape(*x.shape[:2], -1) for x in by_chain.values()], axis=2)
    loo = left_out(cells.reshape(*numbers.shape[:2], -1), numbers)
    generator, checks, first = stream(rng, "checks of a fit"), list[_Judged](), 0
    for name, drawn in predicted.items():
        y, count = some.data_of(name), int(seen[name].sum())
        checks += _group_checks(some, name, y, np.where(np.isnan(y), np.nan, drawn))
        own = slice(first, first + count)
        at = y[seen[name]], drawn[:, seen[name]]
        checks += _calibration(name, *at, cells[:, own], loo.cells[own], generator)
        first += count
    density = expected_density(loo)
    return Diagnosis(
        rows=tuple(row for row, _ in checks),
        notes=(*whole.notes, *density.notes),
        seed=rng,
        answer=_answer(whole, checks, density.notes),
        loo=density,
    )


_Judged = tuple[Check, int]
"""A check, and the number of members from which it was listed as the worst fit."""


def _group_checks(fit: PlatedFit, name: str, y: FloatArray, drawn: FloatArray) -> Iterator[_Judged]:
    """Compare the mean and spread of data, and the means of members of plates, with predictions."""
    s = fit.bound.structure
    chain = s.chains[s.observed[name].plate]
    for what, of in (("mean", np.nanmean), ("sd", np.nanstd)):
        again = of(drawn.reshape(len(drawn), -1), axis=1)
        yield predictive_check(f"{what} of {name}", float(of(y)), again), 1
    for plate in chain:
        kept = [chain.index(p) for p in s.chains[plate]]
        others = tuple(i for i in range(y.ndim) if i not in kept)
        if not others or math.prod(y.shape[i] for i in others) == 1:
            continue  # One value each.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # Of members without data.
            own = np.nanmean(y, axis=others)
            means = np.nanmean(drawn, axis=tuple(i + 1 for i in others))
        again = np.nanstd(means.reshape(len(means), -1), axis=1)
        statistic = f"sd of {plate} means of {name}"
        yield predictive_check(statistic, float(np.nanstd(own)), again), 1
        by_member = [(at, predictive_check("", float(own[at]), means[(slice(None), *at)]))
                     for at in np.ndindex(own.shape) if not np.isnan(own[at])]  # fmt: skip
        by_member.sort(key=lambda x: min(x[1].p_value, 1 - x[1].p_value))
        for at, check in by_member[:_WORST]:
            members = zip(s.chains[plate], at, strict=True)
            where = ", ".join(f"{p} {fit.names[p][i] if p in fit.names else i}" for p, i in members)
            yield replace(check, statistic=f"mean of {name}, {where}"), len(by_member)


def _calibration(
    name: str, y: FloatArray, drawn: FloatArray, log_likelihood: FloatArray, log_left_out:
    FloatArray, rng: np.random.Generator,
) -> Iterator[_Judged]:  # fmt: skip
    """Compare probabilities of left-out cells with how often what they are of is observed."""
    if y.ndim > 1:
        return
    if set(np.unique(y)) | set(np.unique(drawn)) <= {0.0, 1.0}:
        p = np.where(y == 1, np.exp(log_left_out), -np.expm1(log_left_out)).clip(0, 1)
        # Fixed ends: quantiles would part equal cells by their answers, as the prediction of each
        # lacks its own.
        for low in range(0, 100, 100 // _GROUPS):
            high = low + 100 // _GROUPS
            inside = (p >= low / 100) & ((p < high / 100) | (high == 100))
            if (count := int(inside.sum())) < _GROUPS:
                continue
            again = (rng.random((_DRAWS, count)) < p[inside]).mean(axis=1)
            statistic = f"left-out {name} where {low} to {high} % is predicted"
            yield predictive_check(statistic, float(y[inside].mean()), again), 1
        return
    weights = np.exp(smoothed_weights(-log_likelihood.T)[0]).T
    below, at = ((weights * (x(drawn, y))).sum(axis=0) for x in (np.less, np.equal))
    place = below + rng.random(len(y)) * at
    for level in (0.5, 0.9):
        inside = np.abs(place - 0.5) <= level / 2
        again = rng.binomial(len(y), level, _DRAWS) / len(y)
        statistic = f"left-out {name} within {100 * level:.0f} % limits"
        yield predictive_check(statistic, float(inside.mean()), again), 1


def _answer(fit: PlatedFit, checks: list[_Judged], unreliable: tuple[str, ...]) -> str:
    """Say in one sentence whether to trust a fit."""
    least = min((float(x.min()) for x in fit.ess.values()), default=math.nan)
    sure = f"at least {least:.0f} particles are effective"
    if fit.r_hat is not None:
        sure = f"chains agree (R-hat {fit.r_hat:.3f}, at least {least:.0f} effective draws)"
    if fit.notes:
        sure = "do not trust this fit yet (see the notes)"
    adjusted_p = [(2 * len(checks) * many * min(row.p_value, 1 - row.p_value), row)
                  for row, many in checks]  # fmt: skip
    wrong = sorted((x for x in adjusted_p if x[0] < _DOUBTED), key=lambda x: x[0])
    model = "predictions match the data"
    if wrong:
        row, more = wrong[0][1], f", and {len(wrong) - 1} more" * (len(wrong) > 1)
        model = (f"but the model does not reproduce the {row.statistic}: {row.observed:.3g}, "
                 f"predicted {row.low:.3g} to {row.high:.3g}{more}")  # fmt: skip
    said = f"{sure}; {model}{'; some left-out predictions are unreliable' if unreliable else ''}."
    return f"{said[:1].upper()}{said[1:]}"

"""Formulas: the grammar of mixed models for models, tasks and items, compiled to plates.

``score ~ model + (model | task) + (1 | task:item)``: what stands alone has an effect of its own,
``(1 | group)`` is an effect of each member of a group around 0, and ``(model | task)`` an effect
of each model on each task whose effects on one task are correlated between models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from keyword import iskeyword
from operator import add
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch import distributions as td

from evalstats_plugin.errors import DesignError, SelectionError, few, no_such
from evalstats_plugin.hierarchical.data import EvalCounts, Standardised, data_of_plates
from evalstats_plugin.hierarchical.engines.crossed import expected_share
from evalstats_plugin.hierarchical.engines.plates.model import (
    Latent,
    Model,
    Observed,
    Plate,
    with_arguments,
)
from evalstats_plugin.hierarchical.engines.plates.results import PlatedFit
from evalstats_plugin.hierarchical.engines.posterior import COEFFICIENT_SD, INTERCEPT_SD
from evalstats_plugin.hierarchical.methods import FAMILIES, Prior, prior_of
from evalstats_plugin.stats.arrays import FloatArray

_GROUPS: Mapping[str, tuple[Any, str]] = {
    "model": ("model", "model"),
    "task": ("task", "task"),
    "task:item": ("item", "question"),
    "model:task": (("model", "task"), "interaction"),
}
"""By group: its plate, and the name of the prior of its standard deviation."""

_SCALE_PRIORS: Mapping[str, Any] = {
    "gamma": td.Gamma,
    "half-normal": td.HalfNormal,
    "lognormal": td.LogNormal,
}

_SAME = {"item": "task:item", "item:task": "task:item", "task:model": "model:task"}

_PAIRS = (("model", "task"), ("task", "model"))

_SUPPORTED = (
    "1, model, task, names of covariates, (1 | model), (1 | task), (1 | task:item), "
    "(1 | model:task), (model | task) and (task | model), joined by +"
)


_ITEMS = "by_task_item"
"""Name of the effects of items."""

_Part = Callable[[Mapping[str, Tensor]], Tensor]
"""A term of the mean score, from latents and inputs by name."""


class Terms(NamedTuple):
    """Terms of a formula, in its order."""

    fixed: tuple[str, ...]
    grouped: tuple[tuple[str, str], ...]
    """What varies, and the group over whose members it varies."""


def parse(formula: str) -> Terms:
    """Read a formula.

    Raises
    ------
    DesignError
        It is not of this grammar, or has a term twice.

    Examples
    --------
    >>> parse("score ~ model + (model | task) + (1 | item)")
    Terms(fixed=('model',), grouped=(('model', 'task'), ('1', 'task:item')))
    """
    left, tilde, right = formula.partition("~")
    if not tilde or left.strip() != "score" or not right.strip():
        msg = f"formula {formula!r} is not 'score ~' and then terms"
        raise DesignError(f"{msg}: write one such as 'score ~ model + (1 | task)'")
    fixed: list[str] = []
    grouped: list[tuple[str, str]] = []
    for part in re.split(r"\+(?![^(]*\))", right):
        term = re.sub(r"\s+", " ", part.strip())
        if re.fullmatch(r"1|[^\W\d]\w*", term):
            fixed.append(term)
            continue
        match = re.fullmatch(r"\(\s*(\w+)\s*\|\s*(\w+(?:\s*:\s*\w+)?)\s*\)", term)
        what, group = match.groups() if match else ("", "")
        group = re.sub(r"\s", "", group)
        group = _SAME.get(group, group)
        if not ((what == "1" and group in _GROUPS) or (what, group) in _PAIRS):
            msg = f"term {term!r} of the formula is not supported"
            raise DesignError(f"{msg}: there are {_SUPPORTED}")
        grouped.append((what, group))
    terms = [*fixed, *grouped]
    if len(set(terms)) < len(terms):
        raise DesignError(f"formula {formula!r} has a term twice: leave one of them out")
    return Terms(tuple(x for x in fixed if x != "1"), tuple(grouped))


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A formula as a model on plates, with the data of its answers."""

    model: Model
    data: Mapping[str, Any]
    family: str
    level: Callable[..., Tensor]
    """The mean score of a model on a task, or its log odds, without effects of items."""

    def accuracy(self, fit: PlatedFit) -> FloatArray:
        """Draws of the expected score of each model on each task, (chains, draws, N, T).

        Over all items like those of a task: their effects are integrated out.
        """
        level = fit.by_draw(self.level, ("model", "task"))
        if self.family != "gaussian":
            none = np.zeros(len(level))
            level = expected_share(level, fit.draws.get(f"sd_{_ITEMS}", none))
        return level.reshape(fit.chains, -1, *level.shape[1:])


def compiled(
    formula: str,
    family: str,
    counts: EvalCounts,
    covariates: Mapping[str, Standardised],
    priors: Mapping[str, Prior],
) -> Compiled:
    """Compile a formula to a model on the plates ``model``, ``task`` and ``item``.

    The intercept, effects of their own and coefficients of standardised covariates have N(0, 1)
    priors, standard deviations those of `HierarchicalOptions`, correlations a uniform one.

    Raises
    ------
    SelectionError
        No such family.
    DesignError
        A term that is not supported, a covariate whose name is taken, scores that the family does
        not have.
    """
    terms = parse(formula)
    if family not in FAMILIES:
        raise SelectionError(no_such("family", family, FAMILIES, ", ".join(FAMILIES)))
    given = _covariates(terms, covariates)
    latents = [Latent("intercept", td.Normal(0.0, INTERCEPT_SD))]
    inputs: dict[str, Any] = {}
    data: dict[str, Any] = {}
    parts: dict[str, _Part] = {"intercept": lambda own: own["intercept"]}
    for name in terms.fixed:
        if name in ("model", "task"):
            latents.append(Latent(name, td.Normal(0.0, COEFFICIENT_SD), name))
            parts[name] = lambda own, name=name: own[name]
        else:
            values = given[name]
            data[f"x_{name}"] = values.ravel()
            inputs[f"x_{name}"] = "model" if len(values) > 1 else "task"
            latents.append(Latent(name, td.Normal(0.0, COEFFICIENT_SD)))
            parts[name] = lambda own, name=name: own[name] * own[f"x_{name}"]
    for what, group in terms.grouped:
        # The name of an argument, too.
        name = f"{'' if what == '1' else what + '_'}by_{group.replace(':', '_')}"
        plate, scale = _GROUPS[group]
        sd = f"sd_{name}"
        kind, *numbers = prior_of(priors, scale if what == "1" else "interaction")
        prior = _SCALE_PRIORS[str(kind)](*(float(x) for x in numbers))
        if what == "1":
            latents += [Latent(sd, prior), Latent(name, _around_zero(sd), plate)]
            parts[name] = lambda own, name=name: own[name]
            continue
        count = len(counts.models if what == "model" else counts.tasks)
        if count < 2:
            raise DesignError(f"({what} | {group}) needs 2 {what}s or more: take (1 | {group})")
        factor, which = f"factor_{name}", f"which_{what}"
        latents += [Latent(sd, prior, shape=(count,)),
                    Latent(factor, td.LKJCholesky(count, 1.0), shape=(count, count)),
                    Latent(name, td.Normal(0.0, 1.0), plate, shape=(count,))]  # fmt: skip
        data[which], inputs[which] = np.eye(count), what
        parts[name] = lambda own, name=name, sd=sd, factor=factor, which=which: (
            own[which] * own[sd] * (own[factor] @ own[name])).sum(-1)  # fmt: skip
    later = {"beta": "precision", "gaussian": "noise"}.get(family, "trials")
    own = [*(x.name for x in latents), *inputs, "score", later]
    if taken := [name for name in given if own.count(name) > 1 or iskeyword(name)]:
        msg = f"covariates {few(list(map(repr, taken)))} have names of other parts of the model"
        raise DesignError(f"{msg}, or words of Python: rename them")
    level = with_arguments(
        _sum([part for name, part in parts.items() if name != _ITEMS]),
        [*(x.name for x in latents if x.plate != "item"), *inputs],
    )
    by_item = family in ("beta", "gaussian") or ("1", "task:item") in terms.grouped
    plates = [Plate("model"), Plate("task")]
    if by_item:
        sizes = np.bincount(counts.task, minlength=len(counts.tasks)).tolist()
        ragged = tuple(sizes) if len(set(sizes)) > 1 else sizes[0]
        plates = [Plate("model"), Plate("task", len(sizes)), Plate("item", ragged, within="task")]
    answers, on = _answers(counts, family, by_item=by_item)
    data |= answers
    if family in ("bernoulli", "binomial"):
        inputs["trials"] = on
    elif family == "beta":
        latents.append(Latent("precision", td.Gamma(2.0, 0.1)))
    else:
        latents.append(Latent("noise", td.Gamma(2.0, 2.0)))
    used = [*(x.name for x in latents), *inputs]
    observed = Observed("score", _density(family, _sum(list(parts.values())), used), on)
    made = Model(plates=plates, latents=latents, observed=[observed], inputs=inputs)
    return Compiled(model=made, data=data, family=family, level=level)


def _sum(parts: Sequence[_Part]) -> Callable[..., Tensor]:
    def total(**own: Tensor) -> Tensor:
        return reduce(add, (part(own) for part in parts))

    return total


def _density(family: str, mean: Callable[..., Tensor], used: Sequence[str]) -> Any:
    """Distribution of a score, as a function of latents and inputs by name."""

    def density(**own: Tensor) -> Any:
        level = mean(**own)
        if family == "gaussian":
            return td.Normal(level, own["noise"])
        if family == "beta":
            # Beyond, a concentration is 0 in double precision.
            share, size = level.clamp(-_FAR, _FAR).sigmoid(), own["precision"]
            return td.Beta(share * size, (1 - share) * size)
        return td.Binomial(own["trials"], logits=level)

    return with_arguments(density, used)


_FAR = 30.0
"""Largest log odds of the mean of a beta distribution."""


def _around_zero(sd: str) -> Any:
    def prior(**own: Tensor) -> Any:
        return td.Normal(0 * own[sd], own[sd])

    return with_arguments(prior, [sd])


def _covariates(terms: Terms, covariates: Mapping[str, Standardised]) -> dict[str, FloatArray]:
    """Values of the covariates of a formula."""
    given: dict[str, FloatArray] = {}
    for kind, table in covariates.items():
        for k, name in enumerate(table.names):
            if name in given:
                msg = f"covariate {name!r} is of models and of tasks, which a formula cannot tell"
                raise DesignError(f"{msg} apart: rename one of them")
            given[name] = table.values[:, k, None] if kind == "models" else table.values[None, :, k]
    named = [name for name in terms.fixed if name not in ("model", "task")]
    if strange := [name for name in named if name not in given]:
        msg = f"the formula has {few(list(map(repr, strange)))}, which the data lack"
        raise DesignError(f"{msg}: give covariates, or take terms of {_SUPPORTED}")
    if unused := [name for name in given if name not in named]:
        msg = f"covariates {few(list(map(repr, unused)))} are not in the formula"
        raise DesignError(f"{msg}: add them as terms, or leave them out")
    return given


def _answers(
    counts: EvalCounts, family: str, *, by_item: bool
) -> tuple[dict[str, FloatArray], tuple[str, str]]:
    """Scores, and trials where these are counted, with the plates that they are on."""
    on = ("model", "item" if by_item else "task")
    chain = ("model", "task", "item") if by_item else on
    plates = {"right": chain, "trials": chain}
    laid = data_of_plates(counts, plates, ("right",), None)
    if family in ("bernoulli", "binomial"):
        if not (counts.question_right == np.rint(counts.question_right)).all():
            msg = f"scores are not all right or wrong, as family {family!r} has them"
            raise DesignError(f"{msg}: take 'gaussian', or 'beta' for scores above 0 and below 1")
        if by_item:
            return {"score": laid["right"], "trials": laid["trials"]}, on
        right, trials = counts.by_epoch
        # Where nothing is observed, the number of trials is not used; 0 has no density.
        return {"score": np.where(trials > 0, right, np.nan), "trials": np.maximum(trials, 1.0)}, on
    scores = laid["right"] / laid["trials"]
    ends = int(((scores == 0) | (scores == 1)).sum())
    if family == "beta" and ends:
        msg = f"{ends} scores are 0 or 1, to which a beta distribution gives no probability"
        raise DesignError(f"{msg}: take family 'gaussian'")
    return {"score": scores}, on

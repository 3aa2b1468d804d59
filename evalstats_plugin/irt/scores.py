"""Abilities of models on items that are fitted already."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.curves import Items, curves
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.posterior import arrange, moments
from evalstats_plugin.irt.quadrature import even_nodes, fitting_nodes, posterior_widths

ScoreMethod = Literal["eap", "map", "ml", "wle"]
FARTHEST = 20.0


class Scores(NamedTuple):
    """Both of shape (N,), on the scale on which abilities are N(0, 1)."""

    ability: Tensor
    std_error: Tensor


def score(counts: Counts, items: Items, method: ScoreMethod = "eap") -> Scores:
    """Estimate abilities, items being known.

    ``"eap"`` and ``"map"`` are mean and mode of the posterior under a standard normal ability,
    ``"ml"`` has no prior and is infinite for models all right or all wrong, ``"wle"`` is Warm's
    estimate [War89]_: finite, and free of the bias of order 1/M.
    """
    answers = arrange(counts)
    nodes = even_nodes(-6, 6, 61, counts.right)
    # The grid follows the posteriors, whose centres are seen better on each finer one.
    seen = posterior_widths(answers, items, nodes)
    for _ in range(4):
        better = fitting_nodes(nodes, seen.mean, seen.sd)
        if better is None:
            break
        nodes = better
        seen = posterior_widths(answers, items, nodes)
    mean, variance = moments(seen.posterior.weights, nodes.at)
    if method == "eap":
        return Scores(mean, variance.sqrt())
    return _root(counts, items, mean, method)


def _root(counts: Counts, items: Items, start: Tensor, method: ScoreMethod) -> Scores:
    """Solve the score equation by Fisher scoring, all models at once."""
    at, right, trials = start, counts.right.T, counts.trials.T
    prior = 1.0 if method == "map" else 0.0
    information = torch.ones_like(at)
    longest = torch.ones_like(at)
    before = torch.zeros_like(at)
    for _ in range(200):
        curve = curves(items, at)
        slope = curve.slope * items.slope[:, None]
        odds = slope / (curve.right * curve.wrong)
        information = (trials * slope * odds).sum(dim=0) + prior
        gradient = ((right - trials * curve.right) * odds).sum(dim=0) - prior * at
        if method == "wle":
            bend = curve.bend * items.slope[:, None].square()
            gradient = gradient + (trials * bend * odds).sum(dim=0) / (2 * information)
        step = (gradient / information.clamp_min(1e-12)).nan_to_num(0.0)
        # Where steps turn back they shorten, so that no two points are visited in turn for ever.
        longest = torch.where(step * before < 0, longest / 2, longest)
        before = step.clamp(-longest, longest)
        at = (at + before).clamp(-FARTHEST, FARTHEST)
        if float(before.abs().max()) < 1e-12:
            break
    if method == "ml":
        total, most = counts.right.sum(dim=1), counts.trials.sum(dim=1)
        away = torch.where(total == most, math.inf, torch.where(total == 0, -math.inf, 0.0))
        if bool((items.slope > 0).all()) and items.logistic:
            at = at + away
        information = torch.where(at.abs() < FARTHEST, information, math.nan)
    return Scores(at, information.rsqrt())

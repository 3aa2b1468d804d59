"""Codes read off the answers by an encoder, as in a sparse autoencoder with a top-k rule [GTT25]_.

s_i = TopK(ReLU(E x_i + e)), where x_i is how far the models' answers to item i are from their usual
ones, 0 where missing. The decoder is the model of `sparse_codes`. All is learnt together by Adam
[KB15]_ on the same objective, every answer in every step, and at last models by Newton's method.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.hierarchical.sparse_codes import SparseCodes, balanced, fit_models
from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.progress import told

_RATE = 0.05
STEPS = 300
ROUGH_STEPS = 120
"""While candidates compete."""


class Encoder(NamedTuple):
    """From answers to codes."""

    weight: Tensor
    """E, shape (N, F)."""
    bias: Tensor
    """e, shape (F,)."""
    usual: Tensor
    """Share of right answers of each model, shape (N,)."""
    active: int
    """Features that an item may have."""
    scale: Tensor
    """What the codes kept are multiplied by, shape (F,)."""

    def encode(self, counts: Counts) -> Tensor:
        """Codes of items answered by these models, shape (M, F)."""
        return self.codes_of(surprises(counts, self.usual))

    def codes_of(self, surprise: Tensor) -> Tensor:
        """Codes of items by how their answers differ from what is usual, (N, M) to (M, F)."""
        found = torch.relu(surprise.T @ self.weight + self.bias)
        values, place = found.topk(self.active, dim=1)
        return torch.zeros_like(found).scatter(1, place, values) * self.scale

    def reordered(self, order: Tensor, scale: Tensor) -> Encoder:
        """Features in another order, and codes on another scale."""
        return self._replace(weight=self.weight[:, order], bias=self.bias[order], scale=scale)


class AmortisedSearch(NamedTuple):
    """Where the search ended."""

    codes: SparseCodes
    encoder: Encoder
    objective: float
    steps: int


def surprises(counts: Counts, usual: Tensor) -> Tensor:
    """Share of right answers, less what is usual of the model; 0 where missing. Shape (N, M)."""
    share = counts.right / counts.trials.clamp_min(1e-300)
    return torch.where(counts.trials > 0, share - usual[:, None], 0.0)


def fit_amortised_codes(
    counts: Counts, codes: SparseCodes, penalty: float, active: int, *, steps: int = STEPS
) -> AmortisedSearch:
    """Learn encoder and decoder together.

    Parameters
    ----------
    codes
        Where the decoder starts; the encoder starts as a ridge regression of their codes.
    penalty
        Of the sum of all codes; capabilities have a ridge of 1.
    active
        k: features that an item may have, 1 to F.
    """
    usual = (counts.right.sum(1) + 0.5) / (counts.trials.sum(1) + 1)
    surprise = surprises(counts, usual)
    codes = balanced(codes, penalty)
    first = _first_encoder(surprise, codes.code)
    free = (codes.capability, codes.performance, codes.intercept, *first)
    parameters = [x.detach().clone().requires_grad_() for x in free]
    optimiser = torch.optim.Adam(parameters, lr=_RATE)

    def assembled() -> tuple[SparseCodes, Encoder]:
        w, c, d, weight, bias = parameters
        encoder = Encoder(weight, bias, usual, active, torch.ones_like(bias))
        return SparseCodes(w, c, encoder.codes_of(surprise), d), encoder

    for step in told("step", range(steps)):
        # The second half slows down to a stop.
        optimiser.param_groups[0]["lr"] = _RATE * min(1.0, 2 * (1 - step / steps))
        optimiser.zero_grad()
        (-assembled()[0].objective(counts, penalty)).backward()
        optimiser.step()
    parameters = [x.detach() for x in parameters]
    found, encoder = assembled()
    found = fit_models(counts, found)
    return AmortisedSearch(found, encoder, float(found.objective(counts, penalty)), steps)


def _first_encoder(surprise: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
    n, m = surprise.shape
    ridge = 0.1 * m * torch.eye(n).to(surprise)
    weight = torch.linalg.solve(surprise @ surprise.T + ridge, surprise @ (code - code.mean(0)))
    return weight, code.mean(0) - (surprise.T @ weight).mean(0)

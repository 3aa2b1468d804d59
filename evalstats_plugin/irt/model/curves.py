"""Item response curves and rotation of factor loadings, in torch.

* `curves`: P(right) = c + (u - c) / (1 + exp(-(aθ + d))) with its derivatives
* `log_odds_and_wrong`, `gradients`, `ability_information`: what follows from them
* `rotation_matrix`: `varimax` [Kai58]_ and `promax` [HW64]_
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.runtime.torch import linalg
from evalstats_plugin.stats.arrays import FloatArray


class Items(NamedTuple):
    """Parameters of M items; each of shape (M,)."""

    slope: Tensor
    """a, the discrimination."""
    intercept: Tensor
    """d = -ab."""
    guess: Tensor | None = None
    """Logit of c; None where nothing is guessed."""
    slip: Tensor | None = None
    """Logit of 1 - u; None where the upper asymptote is 1."""

    def part(self, at: slice | Tensor) -> Items:
        """Return some of the items."""
        return Items(*(None if x is None else x[at] for x in self))  # pyrefly: ignore[bad-argument-type]

    def to(self, dtype: torch.dtype) -> Items:
        """Return the items in another dtype."""
        return Items(*(None if x is None else x.to(dtype) for x in self))  # pyrefly: ignore[bad-argument-type]

    @property
    def free(self) -> list[Tensor]:
        """Slopes, intercepts, and logits of c and 1 - u where there are any."""
        return [x for x in self if x is not None]

    @property
    def logistic(self) -> bool:
        """Whether the log-odds are aθ + d, without asymptotes."""
        return self.guess is None and self.slip is None


class Curves(NamedTuple):
    """Curves of M items at Q abilities; each of shape (M, Q)."""

    right: Tensor
    """P(right)."""
    wrong: Tensor
    """1 - P, to full precision."""
    slope: Tensor
    """Derivative of P by the logit aθ + d."""
    asymptotes: list[Tensor]
    """Derivatives of P by the logits of c and 1 - u, of those that the items have."""
    bend: Tensor
    """Second derivative of P by the logit aθ + d."""


def curves(items: Items, at: Tensor) -> Curves:
    """Return probabilities and derivatives at the abilities `at`, shape (Q,)."""
    logit = torch.addcmul(items.intercept[:, None], items.slope[:, None], at)
    up, down = torch.sigmoid(logit), torch.sigmoid(-logit)
    both = up * down
    if items.logistic:
        return Curves(up, down, both, [], both * (down - up))
    lower, above = (
        torch.zeros_like(logit) if x is None else torch.sigmoid(x)[:, None]
        for x in (items.guess, items.slip)
    )
    height = 1 - above - lower
    return Curves(
        right=lower + height * up,
        wrong=above + height * down,
        slope=height * both,
        asymptotes=[
            *([] if items.guess is None else [lower * (1 - lower) * down]),
            *([] if items.slip is None else [-above * (1 - above) * up]),
        ],
        bend=height * both * (down - up),
    )


def log_odds_and_wrong(items: Items, at: Tensor) -> tuple[Tensor, Tensor]:
    """Return log P/(1 - P) and log(1 - P), both of shape (M, Q)."""
    if items.logistic:
        logit = torch.addcmul(items.intercept[:, None], items.slope[:, None], at)
        return logit, -torch.nn.functional.softplus(logit)
    curve = curves(items, at)
    # For the steepest items it vanishes in single precision.
    wrong = torch.log(curve.wrong.clamp_min(torch.finfo(items.slope.dtype).tiny))
    return torch.log(curve.right) - wrong, wrong


def gradients(curve: Curves, at: Tensor) -> Tensor:
    """Derivatives of P by a, d and the logits of c and 1 - u, if there are any; (p, M, Q)."""
    return torch.stack([curve.slope * at, curve.slope, *curve.asymptotes])


def ability_information(items: Items, at: Tensor) -> Tensor:
    """Fisher information on θ of one trial of each item, shape (M, Q)."""
    curve = curves(items, at)
    by_ability = curve.slope * items.slope[:, None]
    # Far from the steepest items both vanish.
    spread = (curve.right * curve.wrong).clamp_min(torch.finfo(at.dtype).tiny)
    return by_ability * (by_ability / spread)


class Rotated(NamedTuple):
    """Rotated loadings: ``loading = before @ turn``."""

    loading: Tensor
    """Shape (M, K)."""
    turn: Tensor
    """Shape (K, K)."""


def varimax(loading: Tensor) -> Rotated:
    """Rotate loadings (M, K) so that the variance of the squared ones is largest [Kai58]_.

    Every item is scaled to the same communality first (Kaiser's normalisation).
    """
    length = linalg.vector_norm(loading, dim=1, keepdim=True)
    rows = loading / torch.where(length > 0, length, 1.0)
    turn = torch.eye(loading.shape[1]).to(loading)
    before = -1.0
    for _ in range(1000):
        turned = rows @ turn
        # The criterion's gradient; its polar factor is the next rotation.
        gradient = rows.T @ (turned**3 - turned * (turned**2).mean(0))
        left, spread, right = linalg.svd(gradient)
        turn, total = left @ right, float(spread.sum())
        if abs(total - before) <= 1e-15 * total:
            break
        before = total
    return Rotated(loading @ turn, turn)


def promax(loading: Tensor) -> Rotated:
    """Rotate obliquely after varimax, to bring small loadings closer to 0 [HW64]_.

    The target is each loading to the fourth power, with its sign. Abilities keep unit variances;
    their correlation is the inverse of ``turn.T @ turn``.
    """
    start = varimax(loading)
    target = start.loading * start.loading.abs() ** 3
    oblique = linalg.lstsq(start.loading, target)[0]
    variance = linalg.inv(oblique.T @ oblique).diagonal()
    turn = start.turn @ (oblique * variance.sqrt())
    return Rotated(loading @ turn, turn)


def rotation_matrix(loading: FloatArray, how: Literal["varimax", "promax"]) -> FloatArray:
    """Matrix (K, K) that rotates loadings (M, K).

    The rotated dimensions are ordered by what they explain, with positive sums of loadings.
    """
    before = torch.as_tensor(loading)
    rotated = varimax(before) if how == "varimax" else promax(before)
    order = rotated.loading.square().sum(0).argsort(descending=True, stable=True)
    sign = torch.where(rotated.loading.sum(0) < 0, -1.0, 1.0).to(before)
    return (rotated.turn * sign)[:, order].numpy()

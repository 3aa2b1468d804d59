"""Item response curves: P(right) = c + (u - c) / (1 + exp(-(aθ + d))), and its derivatives."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Items(NamedTuple):
    """Parameters of M items; each of shape (M,)."""

    slope: Tensor
    """a, the discrimination."""
    intercept: Tensor
    """d = -ab."""
    guess: Tensor | None = None
    """Logit of c; None where nothing is guessed."""
    upper: float = 1.0

    def part(self, at: slice | Tensor) -> Items:
        """Some of the items."""
        guess = None if self.guess is None else self.guess[at]
        return Items(self.slope[at], self.intercept[at], guess, self.upper)

    def to(self, dtype: torch.dtype) -> Items:
        """The same as numbers of another kind."""
        guess = None if self.guess is None else self.guess.to(dtype)
        return Items(self.slope.to(dtype), self.intercept.to(dtype), guess, self.upper)

    @property
    def logistic(self) -> bool:
        """Whether the log-odds are aθ + d themselves."""
        return self.guess is None and self.upper == 1


class Curves(NamedTuple):
    """Of M items at Q abilities; each of shape (M, Q)."""

    right: Tensor
    """P(right)."""
    wrong: Tensor
    """1 - P, to full precision."""
    slope: Tensor
    """∂P by the logit aθ + d."""
    guess: Tensor | None
    """∂P by the logit of c."""
    bend: Tensor
    """Second derivative of P by the logit."""


def curves(items: Items, at: Tensor) -> Curves:
    """Return probabilities and derivatives at the abilities `at`, shape (Q,)."""
    logit = torch.addcmul(items.intercept[:, None], items.slope[:, None], at)
    up, down = torch.sigmoid(logit), torch.sigmoid(-logit)
    both = up * down
    if items.logistic:
        return Curves(up, down, both, None, both * (down - up))
    lower = torch.zeros_like(logit) if items.guess is None else torch.sigmoid(items.guess)[:, None]
    height = items.upper - lower
    guess = None if items.guess is None else lower * (1 - lower) * down
    return Curves(
        right=lower + height * up,
        wrong=(1 - items.upper) + height * down,
        slope=height * both,
        guess=guess,
        bend=height * both * (down - up),
    )


def log_odds_and_wrong(items: Items, at: Tensor) -> tuple[Tensor, Tensor]:
    """Return log P/(1 - P) and log(1 - P), both of shape (M, Q)."""
    if items.logistic:
        logit = torch.addcmul(items.intercept[:, None], items.slope[:, None], at)
        return logit, -torch.nn.functional.softplus(logit)
    found = curves(items, at)
    # Of the steepest items it vanishes in single precision.
    wrong = torch.log(found.wrong.clamp_min(torch.finfo(items.slope.dtype).tiny))
    return torch.log(found.right) - wrong, wrong


def gradients(found: Curves, at: Tensor) -> Tensor:
    """∂P by a, d and, where estimated, logit c; shape (p, M, Q)."""
    by = [found.slope * at, found.slope]
    return torch.stack(by if found.guess is None else [*by, found.guess])


def ability_information(items: Items, at: Tensor) -> Tensor:
    """Fisher information on θ of one trial of each item, shape (M, Q)."""
    found = curves(items, at)
    by_ability = found.slope * items.slope[:, None]
    # Far from the steepest items both vanish.
    spread = (found.right * found.wrong).clamp_min(torch.finfo(at.dtype).tiny)
    return by_ability * (by_ability / spread)

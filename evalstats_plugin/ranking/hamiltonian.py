"""Split Hamiltonian Monte Carlo around a normal approximation of a posterior [SLJN14]_.

Exact rotations of the normal, with kicks by the gradient of the remainder. All chains are one
batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import run_chains
from evalstats_plugin.stats.arrays import FloatArray

LogPosterior: TypeAlias = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""Log posterior up to a constant (K,), and its gradient (P, K), at parameters (P, K)."""

_ACCEPTANCE = 0.9
"""Target acceptance of trajectories."""
_MOST_STEPS = 32
_FINE_EVERY, _FINER = 4, 3
"""How often, and by what factor, steps are finer, for chains in regions of steep gradients."""
_WIDER = 1.5
"""Variance of the rotated normal relative to the approximation's, as the posterior's tails are
longer."""


class NormalApproximation(NamedTuple):
    """Normal approximation of a posterior of P parameters.

    Draws are correct for any covariance, but mix well only if it is close to the posterior's.
    """

    mean: FloatArray
    covariance: FloatArray


def split_hamiltonian(
    log_posterior: LogPosterior,
    around: NormalApproximation,
    rng: np.random.Generator,
    length: ChainLength,
) -> FloatArray:
    """Draw from a posterior; chains start at draws from the normal approximation.

    Returns
    -------
    shape (chains, draws, P)
    """
    target = _Target(log_posterior, around.mean[:, None], cholesky(_WIDER * around.covariance))
    u = rng.normal(size=(len(around.mean), length.chains))

    def sweep(state: _State, k: int) -> _State:
        u, log_steps = state
        steps, fine = int(np.clip(np.exp(log_steps), 2, _MOST_STEPS)), k % _FINE_EVERY == 0
        u, accepted = _trajectory(target, u, steps * _FINER if fine else steps, rng)
        if k < 0 and not fine:
            log_steps -= (accepted - _ACCEPTANCE) / (length.warm_up + k + 1) ** 0.5
        return _State(u, log_steps)

    kept = np.empty((length.draws, *u.shape))
    for k, state in enumerate(run_chains(_State(u, np.log(4.0)), sweep, length)):
        kept[k] = target.mean + target.factor @ state.u
    return kept.transpose(2, 0, 1)


class _State(NamedTuple):
    u: FloatArray
    """Positions of K chains in the coordinates of the normal, shape (P, K)."""
    log_steps: float
    """Log of the number of steps of a trajectory."""


class _Target(NamedTuple):
    """Posterior in the coordinates u of its normal approximation, mean + L u."""

    log_posterior: LogPosterior
    mean: FloatArray
    """Shape (P, 1)."""
    factor: FloatArray


# If a parameter under- or overflows, the gradient is not finite and the proposal is rejected.
@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _trajectory(
    target: _Target, u: FloatArray, steps: int, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """Propose by about a quarter turn, split into rotations between gradient kicks."""
    momentum = rng.normal(size=u.shape)
    point = _at(target, u)
    before = point.log_ratio - 0.5 * (u * u + momentum * momentum).sum(axis=0)
    # Random length, to avoid periodic trajectories.
    turn = rng.uniform(0.7, 1.3) * np.pi / 2 / steps
    cos, sin = np.cos(turn), np.sin(turn)
    for _ in range(steps):
        momentum = momentum + 0.5 * turn * point.slope
        moved = cos * point.u + sin * momentum
        momentum = cos * momentum - sin * point.u
        point = _at(target, moved)
        momentum = momentum + 0.5 * turn * point.slope
    after = point.log_ratio - 0.5 * (point.u**2 + momentum**2).sum(axis=0)
    # A chain at a point without a finite density accepts any finite proposal.
    before = np.where(np.isfinite(before), before, -np.inf)
    gain = np.where(np.isfinite(after), after - before, -np.inf)
    accepted = gain > -rng.exponential(size=len(gain))
    return np.where(accepted, point.u, u), float(np.exp(np.minimum(gain, 0)).mean())


class _Point(NamedTuple):
    """K chains: positions (P, K), log ratio of posterior to normal (K,), its gradient (P, K)."""

    u: FloatArray
    log_ratio: FloatArray
    slope: FloatArray


def _at(target: _Target, u: FloatArray) -> _Point:
    log_posterior, slope = target.log_posterior(target.mean + target.factor @ u)
    return _Point(u, log_posterior + 0.5 * (u * u).sum(axis=0), target.factor.T @ slope + u)


def cholesky(matrix: FloatArray) -> FloatArray:
    """Lower Cholesky factor of a matrix that may be asymmetric by rounding."""
    return np.linalg.cholesky((matrix + matrix.T) / 2).astype(np.float64)

"""QEM: proposals that move to the posterior's moments, as in expectation maximisation [HBA25]_.

Each iteration estimates the posterior expectations of the sufficient statistics by massively
parallel importance sampling and moves the proposals' mean parameters towards them. No gradient of
the model is needed, and how latents are parametrised does not matter.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from evalstats_plugin.hierarchical.distributions import Normal
from evalstats_plugin.hierarchical.evidence import Scene, mean_under, weigh
from evalstats_plugin.hierarchical.proposals import Proposals

# Iterations whose mean log evidence is compared with that of as many before.
_WINDOW = 5
# The last step is so many times, and once, shorter than the first.
_SHORTENED = 9.0
# A step is halved so many times at most.
_HALVINGS = 4


@dataclass
class Safeguard:
    """Halve the step where the evidence stops rising, and go back to the best proposals if it fell.

    Long steps are noisy where few particles count, and proposals that follow noise count fewer.
    """

    step: float
    best: Proposals | None = None
    halvings: int = 0
    _level: tuple[float, float] = (-np.inf, 0.0)
    """Mean log evidence of the best window, and its standard error."""
    _recent: list[tuple[float, Proposals]] = field(default_factory=list[tuple[float, Proposals]])

    def after(self, log_evidence: float, proposals: Proposals) -> Proposals:
        """Proposals to go on from, given the evidence found with these."""
        self._recent.append((log_evidence, proposals))
        values = np.array([x for x, _ in self._recent])
        if len(values) < _WINDOW:
            return proposals
        mean, error = _mean(values[-_WINDOW:])
        if mean > self._level[0]:
            self.best, self._level = self._recent[-1][1], (mean, error)
        if len(values) < 2 * _WINDOW or self.halvings == _HALVINGS:
            return proposals
        before, error_before = _mean(values[-2 * _WINDOW : -_WINDOW])
        if mean - before > -0.5 * np.hypot(error, error_before):
            return proposals
        self.step, self.halvings = self.step / 2, self.halvings + 1
        self._recent.clear()
        far = self._level[0] - mean > 3 * np.hypot(error, self._level[1])
        return self.best if far and self.best is not None else proposals


def qem(
    proposals: Proposals, scene_of: Callable[[Proposals], Scene], iterations: int, step: float
) -> tuple[Proposals, list[float]]:
    """Adapt proposals that are no functions of parents.

    Parameters
    ----------
    scene_of
        Draws fresh particles from proposals.
    step
        How far mean parameters move to the estimates, above 0 and up to 1; the safeguard may
        shorten it.

    Returns
    -------
    tuple
        Adapted proposals, and log P_MP of each iteration.
    """
    history: list[float] = []
    safeguard = Safeguard(step)
    for t in range(iterations):
        scene = scene_of(proposals)
        weighed = weigh(scene)
        history.append(weighed.log_evidence)
        kept = safeguard.after(weighed.log_evidence, proposals)
        # The moments found belong to the proposals that they were found with.
        moved = kept is proposals
        far = safeguard.step * _shortened(t, iterations)
        proposals = improved(scene, weighed.weights, kept, far) if moved else kept
    return proposals, history


def improved(
    scene: Scene, weights: dict[str, Tensor], proposals: Proposals, step: float
) -> Proposals:
    """Proposals with mean parameters part of the way to the posterior's."""
    latents = scene.bound.structure.latents
    means: dict[str, list[Tensor]] = {}
    for name, family in proposals.families.items():
        group = latents[name].set_of_particles
        values = family.statistics(scene.particles.values[name])
        found = [mean_under(scene.bound, weights[group], v, group) for v in values]
        moved = [old + step * (new - old) for old, new in zip(family.means(), found, strict=True)]
        if isinstance(family, Normal):
            # The square of a noisy mean is too large on average, the variance so much too small:
            # step after step, proposals would get too narrow to find the posterior.
            away = scene.particles.values[name] - family.means()[0]
            noise = mean_under(scene.bound, weights[group] ** 2, away * away, group)
            moved[1] = moved[1] + step**2 * noise
        means[name] = moved
    return proposals.moved(means)


def _shortened(t: int, iterations: int) -> float:
    """Shorter steps later on, which average the noise of more estimates."""
    return 1 / (1 + _SHORTENED * t / iterations)


def _mean(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)

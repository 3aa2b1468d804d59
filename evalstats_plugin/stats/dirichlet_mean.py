"""Distribution of a mean with Dirichlet weights: Σ pᵢ xᵢ, p ~ Dirichlet(w).

This is what a Dirichlet-process posterior says about a mean. With gamma variables gᵢ of shape wᵢ,
P(mean ≤ t) = P(Σ gᵢ (t - xᵢ) ≥ 0): an integral of Π (1 - s dᵢ)^-wᵢ / s, dᵢ = t - xᵢ, along any
path upwards through the real numbers between its singularities 0 and 1/max d. Near the path of
steepest descent nothing oscillates, so that a dozen nodes give all digits, those of small tail
probabilities included.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.stats.interval import FloatArray, IntArray, increasing_root

ComplexArray: TypeAlias = NDArray[np.complex128]

# The trapezoid rule starts with an error near exp(-15) and squares it with each refinement.
FIRST_EXPONENT = 15.0
REFINEMENTS = 7
# A change this small means that the refined sum is exact to rounding.
SETTLED = 1e-6
# Relative size at which the terms of a sum no longer matter.
NEGLIGIBLE = 1e-14
# Cells are worked on in blocks of about this many numbers, which stay in the processor's cache.
BLOCK_SIZE = 2**15


def quantile(atoms: FloatArray, weights: FloatArray, probability: float) -> FloatArray:
    """Quantile of the mean, exact to about 1e-11 of the range of the atoms.

    Parameters
    ----------
    atoms : shape (C, D)
    weights : shape (C, D)
        Positive, or zero for padding, whose atom must not lie outside the others. At least two
        distinct atoms of each cell need a positive weight.

    Examples
    --------
    >>> atoms, weights = np.array([[0.0, 0.5, 1.0]]), np.array([[1.0, 1.0, 1.0]])
    >>> print(f"{quantile(atoms, weights, 1 / 2)[0]:.9f}")  # symmetric about its middle
    0.500000000
    """
    rows = max(BLOCK_SIZE // atoms.shape[1], 1)
    parts = [
        _quantile_block(atoms[i : i + rows], weights[i : i + rows], probability)
        for i in range(0, len(atoms), rows)
    ]
    return np.concatenate([np.zeros(0), *parts])


def cdf_and_density(
    atoms: FloatArray, weights: FloatArray, at: FloatArray, *, refinements: int
) -> tuple[FloatArray, FloatArray]:
    """P(mean ≤ at) and its derivative.

    Parameters
    ----------
    atoms, weights : shape (C, D)
        As for `quantile`.
    at : shape (C,)
        Between the atoms of each cell.
    refinements
        How often the step may be halved: `REFINEMENTS` for all digits, 0 for about four.
    """
    mean = _total(weights, atoms) / weights.sum(axis=1)
    # The smaller tail is the one to integrate: P(mean > at) by looking from above.
    sign = np.where(at > mean, -1.0, 1.0)
    lowest: FloatArray = atoms.min(axis=1)
    highest: FloatArray = atoms.max(axis=1)
    reach = np.where(at > mean, highest - at, at - lowest)
    # With s in units of 1/reach the nearest singularity lies at 1.
    distance = (at[:, None] - atoms) * (sign / reach)[:, None]
    # Where a path proves useless the sum along it overflows, and another one is taken.
    with np.errstate(over="ignore", invalid="ignore"):
        tail, density = _integral(distance, weights, refinements)
    return np.where(at > mean, 1 - tail, tail), density / reach


def _quantile_block(atoms: FloatArray, weights: FloatArray, probability: float) -> FloatArray:
    """Root in the normal score of a Beta variable with the mean's own mean and variance.

    The mean is so nearly that variable that one or two Newton steps do.
    """
    lowest, highest = atoms.min(axis=1), atoms.max(axis=1)
    unit_atoms = (atoms - lowest[:, None]) / (highest - lowest)[:, None]
    a, b = _matching_beta(unit_atoms, weights)
    target = float(special.ndtri(probability))

    def newton(start: FloatArray, refinements: int, max_steps: int) -> FloatArray:
        def excess(score: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
            at = np.asarray(
                special.betaincinv(a[cells], b[cells], special.ndtr(score)), dtype=np.float64
            )
            below, density = cdf_and_density(
                unit_atoms[cells], weights[cells], at, refinements=refinements
            )
            probit = special.ndtri(below)
            log_beta_density = (
                special.xlogy(a[cells] - 1, at)
                + special.xlog1py(b[cells] - 1, -at)
                - special.betaln(a[cells], b[cells])
            )
            slope = density * np.exp((probit**2 - score**2) / 2 - log_beta_density)
            return probit - target, slope

        return increasing_root(excess, start, bracket=(-37, 8), tolerance=1e-6, max_steps=max_steps)

    rough = newton(np.full(len(atoms), target), refinements=0, max_steps=1)
    score = newton(rough, refinements=REFINEMENTS, max_steps=100)
    return lowest + (highest - lowest) * special.betaincinv(a, b, special.ndtr(score))


def _matching_beta(atoms: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    total = weights.sum(axis=1)
    mean = _total(weights, atoms) / total
    spread = _total(weights, (atoms - mean[:, None]) ** 2) / total
    size = mean * (1 - mean) * (total + 1) / spread - 1
    return mean * size, (1 - mean) * size


class _Path(NamedTuple):
    """s(u) = saddle + scale · (tan(bend) (cosh u - 1) + i sinh u), one path per cell."""

    saddle: FloatArray
    scale: FloatArray
    bend: FloatArray


def _integral(
    distance: FloatArray, weights: FloatArray, refinements: int
) -> tuple[FloatArray, FloatArray]:
    """Trapezoid rule, refined for the cells whose sums still change."""
    path = _steepest_descent(distance, weights)
    step = 2 * np.pi * (np.pi / 2 - np.abs(path.bend)) / FIRST_EXPONENT
    total, peak = _sum_along(distance, weights, path, step, offset=0.0)
    # Where the terms grow on the way, digits cancel; straight up they never grow.
    growing = ~(peak <= 10)
    if np.any(growing):
        path = path._replace(bend=np.where(growing, 0.0, path.bend))
        straight = _Path(*(part[growing] for part in path))
        total[:, growing], _ = _sum_along(
            distance[growing], weights[growing], straight, step[growing], offset=0.0
        )
    active = np.arange(len(distance))
    for _ in range(refinements):
        part = _Path(*(field[active] for field in path))
        between, _ = _sum_along(distance[active], weights[active], part, step[active], offset=0.5)
        refined = (total[:, active] + between) / 2
        change = np.abs(refined - total[:, active])
        total[:, active] = refined
        step[active] /= 2
        active = active[np.any(change > SETTLED * np.abs(refined), axis=0)]
        if len(active) == 0:
            break
    return total[0], total[1]


def _saddle(distance: FloatArray, weights: FloatArray) -> FloatArray:
    """Where the integrand is lowest on (0, 1), and so highest on a path that crosses there."""

    def derivative(logit: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
        s, rest = special.expit(logit), special.expit(-logit)
        ratio = distance[cells] / (1 - s[:, None] * distance[cells])
        first = _total(weights[cells], ratio)
        second = _total(weights[cells] * ratio, ratio)
        # s times the derivative of the integrand's logarithm.
        return s * first - 1, s * rest * (first + s * second)

    # Any path through (0, 1) gives the same integral; near the saddle it takes the fewest nodes.
    start = np.zeros(len(distance))
    root = increasing_root(derivative, start, bracket=(-36, 36), tolerance=0.1)
    return np.asarray(special.expit(root), dtype=np.float64)


def _steepest_descent(distance: FloatArray, weights: FloatArray) -> _Path:
    """Path that keeps the integrand's phase, to second order in the distance from its saddle."""
    saddle = _saddle(distance, weights)
    ratio = distance / (1 - saddle[:, None] * distance)
    weighted = weights * ratio**2
    curvature = weighted.sum(axis=1) + saddle**-2
    third = 2 * (_total(weighted, ratio) - saddle**-3)
    scale = np.minimum(2 / np.sqrt(curvature), np.minimum(saddle, 1 - saddle))
    tangent = np.clip(scale * third / (3 * curvature), -0.7, 0.7)
    return _towards_decay(distance, weights, _bent(saddle, scale, tangent))


def _bent(saddle: FloatArray, scale: FloatArray, tangent: FloatArray) -> _Path:
    """Path with the largest scale that keeps both singularities π/2 - |bend| off real u."""
    bend = np.arctan(tangent)
    room = np.minimum((1 - saddle) / (1 - np.sin(bend)), saddle / (1 + np.sin(bend)))
    return _Path(saddle, np.minimum(scale, room * np.cos(bend)), bend)


def _towards_decay(distance: FloatArray, weights: FloatArray, path: _Path) -> _Path:
    """Bends anew where the integrand is slow to decay: nearly equal scores, or very few.

    Nearly equal scores act like a factor exp(δ s), which decays to one side only, and the saddle
    does not tell to which.
    """
    slow = np.nonzero(_log_size(distance, weights, path, (4,)) > -20)[0]
    if len(slow) == 0:
        return path
    few, few_weights = distance[slow], weights[slow]
    here = _Path(*(part[slow] for part in path))
    paths = [here, *(_bent(here.saddle, here.scale, np.full(len(slow), t)) for t in (-1.0, 1.0))]
    sizes = np.stack([_log_size(few, few_weights, one, (4, 8, 12, 16)) for one in paths])
    best = np.argmin(sizes, axis=0)
    for part, choices in zip(path, zip(*paths, strict=True), strict=True):
        part[slow] = np.choose(best, choices)
    return path


def _log_size(
    distance: FloatArray, weights: FloatArray, path: _Path, places: tuple[int, ...]
) -> FloatArray:
    """Logarithm of the integrand's product relative to that at the saddle, the largest at u."""
    ratio = distance / (1 - path.saddle[:, None] * distance)
    sizes: list[FloatArray] = []
    for u in places:
        move = path.scale * (np.tan(path.bend) * (np.cosh(u) - 1) + 1j * np.sinh(u))
        squared = (1 - move.real[:, None] * ratio) ** 2 + (move.imag[:, None] * ratio) ** 2
        sizes.append(-0.5 * _total(weights, np.log(squared)))
    return np.max(sizes, axis=0)


def _sum_along(
    distance: FloatArray, weights: FloatArray, path: _Path, step: FloatArray, *, offset: float
) -> tuple[FloatArray, FloatArray]:
    """Sums over u = (node + offset) · step, and the largest term relative to that at the saddle.

    Gives shape (2, C): the sum for P(mean ≤ t), and the one for its derivative.
    """
    at_saddle = 1 - path.saddle[:, None] * distance
    factor = step / np.pi * np.exp(-_total(weights, np.log(at_saddle)))
    ratio, weights_at_saddle = distance / at_saddle, weights / at_saddle
    tangent = np.tan(path.bend)
    sums = np.zeros((2, len(distance)))
    peak = np.ones(len(distance))
    for node in range(4000):
        # Beyond, cells whose sums are long complete would overflow while others go on.
        u = np.minimum((node + offset) * step, 200.0)
        move = path.scale * (tangent * (np.cosh(u) - 1) + 1j * np.sinh(u))
        direction = path.scale * (tangent * np.sinh(u) + 1j * np.cosh(u))
        product, rate = _factors(move, ratio, weights, weights_at_saddle)
        # The rule's first node is an end point, and counts by half.
        end_weight = 0.5 if node + offset == 0 else 1.0
        below = end_weight * product * direction / (path.saddle + move)
        terms = np.stack([below, below * (path.saddle + move) * rate])
        sums += terms.imag
        size = np.abs(terms)
        peak = np.maximum(peak, size[0] * path.saddle / path.scale)
        if np.all(size <= NEGLIGIBLE * np.abs(sums)):
            break
    return sums * factor, peak


def _factors(
    move: ComplexArray, ratio: FloatArray, weights: FloatArray, weights_at_saddle: FloatArray
) -> tuple[ComplexArray, ComplexArray]:
    """Π (1 - s d)^-w relative to that at the saddle, and Σ w / (1 - s d).

    In real arithmetic, several times as fast as complex logarithms.
    """
    # (1 - s d) / (1 - saddle d) = real - i imaginary.
    real = 1 - move.real[:, None] * ratio
    imaginary = move.imag[:, None] * ratio
    squared = real**2 + imaginary**2
    angle = np.arctan(imaginary / real)
    if np.any(real < 0):
        angle += np.where(real < 0, np.copysign(np.pi, imaginary), 0)
    product = np.exp(-0.5 * _total(weights, np.log(squared)) + 1j * _total(weights, angle))
    inverse = weights_at_saddle / squared
    return product, _total(inverse, real) + 1j * _total(inverse, imaginary)


def _total(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Weighted sum over the atoms of each cell."""
    return np.asarray(np.einsum("cd,cd->c", weights, values), dtype=np.float64)

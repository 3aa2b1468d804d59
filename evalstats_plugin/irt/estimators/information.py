"""Covariances of items and abilities from the observed information of the marginal likelihood.

By Louis' identity [Lou82]_ the observed information of the items is that of complete data, less
the posterior covariance of each model's score function.

* `covariances`: by `_observed` for up to hundreds of items, where the posterior covariance of a
  score function is summed over the nodes if that is quick, and else over its coefficients in
  polynomials of ability, orthonormal under the posterior (Parseval's identity): four of them leave
  errors within .1 %. For more items by `_linearised`. This takes each score function as linear (all
  of them together as quadratic) and eliminates the items block by block: standard errors are within
  1 % unless models are far fewer than items, and up to 18 % too small where items are steep
* `eliminated`: the block elimination; `nearly_eliminated`: the same for very many models, in the
  few directions in which their errors are correlated
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.estimators.grid import Answers, blocks
from evalstats_plugin.irt.estimators.mml import Marginal, logistic_information
from evalstats_plugin.irt.model.arrays import inverse_information, on_host
from evalstats_plugin.irt.model.curves import Items, curves, gradients
from evalstats_plugin.runtime.torch import block_diagonal, cholesky, linalg

EXACT_WORK = 5e9
"""Multiplications up to which the information is computed exactly: about half a second."""

POLYNOMIALS, _POLYNOMIAL_WORK = 4, 2.5e9
"""Degree of the polynomials, and models × squared parameters up to which they are used."""

_WHOLE_WORK = 3.2e10
"""Cubed parameters up to which the information is quickly inverted as a whole."""

# Multiplications up to which the linearised precision is inverted as a whole, and the number of
# items per model above which it is approximated even then.
_DENSE_WORK, _MANY = 2e8, 4

# Length of a polynomial before it is normalised below which it is rounding alone.
_NO_SHAPE = 1e-6

# Directions of `nearly_eliminated`, and its subspace iterations.
_DIRECTIONS, _TURNS = 8, 3

# Largest eigenvalue outside these directions for which the approximation is used.
_REST = 0.15


class Covariances(NamedTuple):
    """Covariances of item estimates and of abilities, the latter with the error of the items."""

    items: Tensor
    """Shape (M, p, p), of a, d and the logits of c and 1 - u, if there are any."""
    abilities: Tensor
    """Shape (N, N)."""
    with_slope: Tensor | None
    """Covariance of a common slope with each ability, and its variance, shape (N + 1,)."""


def covariances(answers: Answers, fit: Marginal, *, sandwich: bool = False) -> Covariances:
    """Invert the observed information, exactly where that is quick, else linearised.

    With `sandwich`, covariances are robust to a wrong model: the inverse information on both sides
    of the cross-products of the scores.
    """
    n = len(fit.mean)
    exact = sandwich or len(fit.nodes.at) * n * _size(fit) ** 2 <= EXACT_WORK
    if exact or _is_inverted_whole(n, fit):
        return _observed(answers, fit, sandwich=sandwich, exact=exact)
    return _linearised(answers, fit)


def is_quick(n: int, fit: Marginal) -> bool:
    """Whether covariances of n models take at most about two seconds."""
    if _is_inverted_whole(n, fit):
        return _size(fit) ** 3 <= _WHOLE_WORK
    return 4 * n * n * _size(fit) <= 2 * EXACT_WORK


def _is_inverted_whole(n: int, fit: Marginal) -> bool:
    """Whether the information of n models on all items is inverted as a whole."""
    limit = max(_POLYNOMIAL_WORK, EXACT_WORK / len(fit.nodes.at))
    return n * _size(fit) ** 2 <= limit or fit.form.common_asymptotes


def _size(fit: Marginal) -> int:
    """Parameters of all items."""
    return len(fit.items.free) * len(fit.items.slope)


def _complete_information(answers: Answers, fit: Marginal) -> Tensor:
    """Expected complete-data information of each item, with its priors, (M, p, p)."""
    at, by_pattern = fit.nodes.at, answers.of_patterns(fit.weights)
    by_block: list[Tensor] = []
    for part in blocks(answers.right.shape[1], len(at)):
        items = fit.items.part(part)
        if items.logistic:
            trials = answers.tried(part, by_pattern)
            by_block.append(logistic_information(trials, curves(items, at), at))
            continue
        curve = curves(items, at)
        by = gradients(curve, at)
        right = (fit.weights.T @ answers.right[:, part]).T
        wrong = answers.tried(part, by_pattern) - right
        odds = right / curve.right - wrong / curve.wrong
        twice = right / curve.right.square() + wrong / curve.wrong.square()
        ones = torch.ones_like(at)
        axes = torch.stack([at, ones])
        total = torch.einsum("pmq,rmq,mq->mpr", by, by, twice)
        total[:, :2, :2] -= torch.einsum("pq,rq,mq->mpr", axes, axes, odds * curve.bend)
        asymptotes = zip(items.free[2:], curve.asymptotes, strict=True)
        for column, (logit, moved) in enumerate(asymptotes, start=2):
            level = torch.sigmoid(logit)[:, None]
            # P is c(1 - σ) + uσ, so that the derivative by a level is a share, of c of (1 - σ).
            share = moved.abs() / (level * (1 - level))
            cross = -(odds * moved.abs() * (1 - share)) @ axes.T
            total[:, column, :2] -= cross
            total[:, :2, column] -= cross
            total[:, column, column] -= (odds * moved * (1 - 2 * level)).sum(dim=1)
        by_block.append(total)
    information = torch.cat(by_block)
    if fit.prior is not None:
        information[:, fit.prior.columns, fit.prior.columns] += fit.prior.precision
    for column, _, precision in fit.form.log_priors(fit.items):
        information[:, column, column] += precision
    return information


def _observed(answers: Answers, fit: Marginal, *, sandwich: bool, exact: bool) -> Covariances:
    """Covariances by Louis' identity; parameters are in the order (p, M)."""
    complete = _complete_information(answers, fit)
    m, p, _ = complete.shape
    if exact:
        mean, lost, with_ability = _posterior_scores(answers, fit)
    else:
        coefficients = [
            _score_slopes(answers, fit, [shape]).permute(1, 0, 2).flatten(1)
            for shape in _polynomials(fit, POLYNOMIALS)
        ]
        lost = torch.stack([rows.T @ rows for rows in coefficients]).sum(dim=0)
        # The coefficient of degree 1 is the covariance with ability over its deviation.
        mean, with_ability = fit.mean, coefficients[0] * fit.variance.sqrt()[:, None]
    information = -lost
    of_each = torch.einsum("mpr,mn->pmrn", complete, torch.eye(m).to(complete))
    information += of_each.reshape(p * m, p * m)
    if fit.prior is not None and fit.prior.estimated:
        held, of_each = fit.prior.free_directions(fit.items)
        rows = torch.nn.functional.pad(held.permute(1, 0, 2), (0, 0, 0, p - 2)).reshape(-1, p * m)
        information -= rows.T @ linalg.solve(of_each, rows)
    shared = [fit.form.common_slope, False, *[fit.form.common_asymptotes] * (p - 2)]
    covariance, unknown = inverse_information(_free(_free(information, shared).T, shared))
    if sandwich:
        scores = _free(mean, shared)
        covariance = covariance @ (scores.T @ scores) @ covariance
    # How posterior means move with the parameters.
    moves = _free(with_ability, shared)
    abilities = moves @ covariance @ moves.T
    abilities.diagonal().add_(fit.variance)
    # Where the parameters of each item are among the free ones.
    size = torch.tensor([1 if common else m for common in shared])
    place = size.cumsum(0) - size + torch.arange(m)[:, None] * (size == m)
    place = place.to(covariance.device)
    items = covariance[place[:, :, None], place[:, None]]
    nowhere = unknown[place].any(dim=1)
    items = torch.where(nowhere[:, None, None], torch.nan, items)
    with_slope = None
    if fit.form.common_slope:
        with_slope = torch.cat([moves @ covariance[0], covariance[0, :1]])
    return Covariances(items, abilities, with_slope)


def _posterior_scores(answers: Answers, fit: Marginal) -> tuple[Tensor, Tensor, Tensor]:
    """Posterior means of scores (N, P), Σ of covariances (P, P), covariance with ability (N, P)."""
    first, second = _score_parts(fit.items, fit.nodes.at)
    trials = answers.of_models(answers.trials)
    n, size = len(trials), first.shape[0] * first.shape[1]
    squares = first.new_zeros(size, size)
    mean, with_ability = first.new_zeros(2, n, size)
    for node, weight in enumerate(fit.weights.T):
        score = answers.right[:, None] * first[..., node] + trials[:, None] * second[..., node]
        score = score.reshape(n, size)
        weighted = score * weight[:, None]
        squares.addmm_(weighted.T, score)
        mean += weighted
        with_ability += weighted * (fit.nodes.at[node] - fit.mean)[:, None]
    return mean, squares - mean.T @ mean, with_ability


def _free(by_parameter: Tensor, shared: Sequence[bool]) -> Tensor:
    """Sum parameters that all items share over the items, in rows of p · M numbers."""
    parts = zip(by_parameter.chunk(len(shared), dim=1), shared, strict=True)
    return torch.cat([x.sum(dim=1, keepdim=True) if one else x for x, one in parts], dim=1)


def _linearised(answers: Answers, fit: Marginal) -> Covariances:
    """Invert the linearised joint precision of abilities, common slope and items."""
    n = len(fit.mean)
    # A common slope depends on squares of θ: its score is quadratic.
    degree = 2 if fit.form.common_slope else 1
    complete = _complete_information(answers, fit)
    if degree == 1 and (2 * n * n * len(complete) > _DENSE_WORK or len(complete) > _MANY * n):
        quick = _in_few_directions(answers, fit, complete)
        if quick is not None:
            return quick
    slopes = _score_slopes(answers, fit, _polynomials(fit, degree))
    if degree == 1:
        slopes = torch.cat([slopes, common_curvature(answers, fit)], dim=1)
    dense = torch.eye(slopes.shape[1]).to(fit.mean)
    if fit.prior is not None and fit.prior.estimated:
        held, free = fit.prior.free_directions(fit.items)
        dense = block_diagonal(dense, free)
        held = torch.nn.functional.pad(held, (0, 0, 0, 0, 0, len(slopes) - 2))
        slopes = torch.cat([slopes, held], dim=1)
    if fit.form.common_slope:
        # The slope joins the abilities, with its information and its cross terms.
        edge = torch.cat([-slopes[0].sum(dim=1), complete[:, 0, 0].sum()[None]])
        dense = torch.nn.functional.pad(dense, (0, 1, 0, 1))
        dense[-1], dense[:, -1] = edge, edge
        slopes = torch.cat([slopes[1:], -complete[None, None, :, 0, 1]], dim=1)
        complete = complete[:, 1:, 1:]
    covariance, items, last = eliminated(dense, slopes, complete)
    width = fit.variance.sqrt()
    abilities = width[:, None] * covariance[:n, :n] * width
    if not fit.form.common_slope:
        return Covariances(items, abilities, None)
    items = torch.nn.functional.pad(items, (1, 0, 1, 0))
    items[:, 0, 0] = covariance[-1, -1]
    items[:, 0, 1] = items[:, 1, 0] = last[0]
    with_slope = torch.cat([width * covariance[-1, :n], covariance[-1, -1:]])
    return Covariances(items, abilities, with_slope)


def _in_few_directions(answers: Answers, fit: Marginal, complete: Tensor) -> Covariances | None:
    """Quick approximation of the linearised covariances; None where it is not accurate."""
    n, width = len(fit.mean), fit.variance.sqrt()
    single = torch.float32
    rough = fit._replace(
        items=fit.items.to(single),
        nodes=fit.nodes._replace(at=fit.nodes.at.to(single)),
        **{x: getattr(fit, x).to(single) for x in ("mean", "variance", "weights")},
    )
    last = [common_curvature(answers, fit).to(single)]
    if fit.prior is not None and fit.prior.estimated:
        held, free = fit.prior.free_directions(fit.items)
        # In units in which their precision is 1.
        held = linalg.solve_triangular(linalg.cholesky(free), held, upper=False)
        last.append(torch.nn.functional.pad(held, (0, 0, 0, 0, 0, len(last[0]) - 2)).to(single))
    more = torch.cat(last, dim=1)
    slopes = _score_slopes(answers.to(single), rough, _polynomials(rough, 1), more=more)
    guess = slopes.new_zeros(slopes.shape[1], 2 + slopes.shape[1] - n)
    guess[:n, 0], guess[:n, 1] = 1 / width, fit.mean / width
    guess[n:, 2:].fill_diagonal_(1.0)
    # Precision of the N(0, 1) prior of abilities, in units of their posterior precision.
    least = torch.cat([fit.variance, fit.variance.new_zeros(slopes.shape[1] - n)])
    inverse = nearly_eliminated(slopes, complete, guess, least)
    if inverse is None:
        return None
    directions = width[:, None] * inverse.directions[:n]
    abilities = directions @ directions.T
    abilities.diagonal().add_(fit.variance * inverse.spread[:n])
    return Covariances(inverse.items, abilities, None)


def _score_parts(items: Items, at: Tensor) -> tuple[Tensor, Tensor]:
    """Parts of the score ``right · first + trials · second`` at the nodes, both (p, M, Q)."""
    curve = curves(items, at)
    if items.logistic:
        # Without a quotient by P (1 - P), which is 0 / 0 far from steep items.
        axes = torch.stack([at, torch.ones_like(at)])[:, None]
        return axes.expand(-1, *curve.right.shape[:1], -1), -axes * curve.right
    by, tiny = gradients(curve, at), torch.finfo(at.dtype).tiny
    return by / (curve.right * curve.wrong).clamp_min(tiny), -by / curve.wrong.clamp_min(tiny)


def _score_slopes(
    answers: Answers, fit: Marginal, shapes: Sequence[Tensor], *, more: Tensor | None = None
) -> Tensor:
    """Coefficients of each model's score function in polynomials of its ability.

    The polynomials, `shapes` (N, Q), are orthonormal under its posterior. Shape (p, N · degree, M),
    with rows of `more` (p, ·, M) last.
    """
    first, second = _score_parts(fit.items, fit.nodes.at)
    trials = answers.of_models(answers.trials)
    if fit.items.logistic:
        first = first[:, :1]
    n, extra = len(trials), 0 if more is None else more.shape[1]
    coefficients = second.new_empty(len(second), n * len(shapes) + extra, second.shape[1])
    for place, shape in enumerate(shapes):
        weighted_shape = fit.weights * shape
        slopes = coefficients[:, place * n : (place + 1) * n]
        torch.matmul(weighted_shape, second.mT, out=slopes)
        slopes.mul_(trials).addcmul_(weighted_shape @ first.mT, answers.right)
    if more is not None:
        coefficients[:, n * len(shapes) :] = more
    return coefficients


def common_curvature(answers: Answers, fit: Marginal) -> Tensor:
    """Coefficient in the sum of the models' quadratic polynomials: the spread of abilities.

    Shape (p, 1, M). Quadratic terms of each model would add almost nothing else.
    """
    first, second = _score_parts(fit.items, fit.nodes.at)
    bow = _polynomials(fit, 2)[1]
    weighted_bow = fit.weights * bow / len(bow) ** 0.5
    tried = answers.tried(slice(None), answers.of_patterns(weighted_bow))
    if fit.items.logistic:
        axes = torch.stack([fit.nodes.at, torch.ones_like(fit.nodes.at)], dim=1)
        right = (weighted_bow @ axes).T @ answers.right
    else:
        right = (first * (weighted_bow.T @ answers.right).T).sum(dim=2)
    return (right + (second * tried).sum(dim=2))[:, None]


def _polynomials(fit: Marginal, degree: int) -> list[Tensor]:
    """Polynomials of degree 1 to `degree`, orthonormal under each posterior, (N, Q) each.

    0 where a posterior is on so few nodes that it has no polynomial of this degree.
    """
    line = (fit.nodes.at - fit.mean[:, None]) / fit.variance.sqrt()[:, None]
    polynomials = [torch.ones_like(line), line]
    while len(polynomials) <= degree:
        shape = polynomials[-1] * line
        # A multiple of a polynomial by its argument is orthogonal to all but the last two.
        for other in polynomials[-2:]:
            shape = shape - (fit.weights * shape * other).sum(dim=1, keepdim=True) * other
        length = (fit.weights * shape.square()).sum(dim=1, keepdim=True).sqrt()
        polynomials.append(torch.where(length > _NO_SHAPE, shape / length, 0.0))
    return polynomials[1:]


class Eliminated(NamedTuple):
    """Blocks of the inverse of the joint precision of R parameters and M items."""

    covariance: Tensor
    """Of the R parameters, shape (R, R)."""
    items: Tensor
    """Of each item's parameters, shape (M, p, p)."""
    last: Tensor
    """Of the last of the R parameters with each item's parameters, shape (p, M)."""


def eliminated(dense: Tensor, edges: Tensor, item_blocks: Tensor) -> Eliminated:
    """Invert ``[[dense, -edges], [-edges', item_blocks]]``, whose items' part is block diagonal.

    Parameters
    ----------
    dense : shape (R, R)
        Symmetric.
    edges : shape (p, R, M)
    item_blocks : shape (M, p, p)
        Symmetric blocks.
    """
    inverse = linalg.inv(item_blocks)
    factor = cholesky(inverse)
    scaled = edges.new_empty(edges.shape[1], len(edges), edges.shape[2])
    _scale(edges, factor, out=scaled.unbind(1))
    flat = scaled.flatten(1)
    inverted = _halves(dense, flat)
    if inverted is None:
        # Not positive definite: inverted in twice the time.
        through = torch.einsum("mpr,rnm->pnm", inverse, edges)
        rest = dense.clone()
        for here, product in zip(edges, through, strict=True):
            rest.addmm_(here, product.T, alpha=-1)
        covariance = linalg.inv(rest)
        spread = torch.stack([covariance @ part for part in through])
        items = inverse + torch.einsum("pnm,rnm->mpr", through, spread)
        return Eliminated(covariance, items, spread[:, -1])
    covariance, half = inverted
    last = (covariance[-1] @ flat).view(scaled.shape[1:])
    half = half.view(scaled.shape)
    spread = torch.stack(
        [torch.stack([(a * b).sum(dim=0) for b in half.unbind(1)]) for a in half.unbind(1)]
    )
    items = inverse + factor @ spread.permute(2, 0, 1) @ factor.mT
    return Eliminated(covariance, items, torch.einsum("mrk,km->rm", factor, last))


def _halves(dense: Tensor, edges: Tensor) -> tuple[Tensor, Tensor] | None:
    """``(dense - edges edges')⁻¹ = S'S`` and ``S edges``; None if not positive definite."""
    factor, failed = linalg.cholesky_ex(dense - edges @ edges.T)
    if bool(failed) or not bool(factor.diagonal().isfinite().all()):
        return None
    half = linalg.solve_triangular(factor, edges, upper=False)
    return torch.cholesky_inverse(factor), half


class NearlyEliminated(NamedTuple):
    """Blocks of the approximate inverse of the joint precision of R parameters and M items."""

    spread: Tensor
    """Variances of the R parameters without the part of the directions, shape (R,)."""
    directions: Tensor
    """Shape (R, k): the covariance is ``diag(spread) + directions @ directions.T``."""
    items: Tensor
    """Covariance of each item's parameters, shape (M, p, p)."""


def nearly_eliminated(
    edges: Tensor, item_blocks: Tensor, guess: Tensor, least: Tensor
) -> NearlyEliminated | None:
    """Invert ``[[I, -edges], [-edges', item_blocks]]``, where the items' part is block diagonal.

    Parameters
    ----------
    edges : shape (p, R, M)
        May be in single precision: their part of the result is small.
    item_blocks : shape (M, p, p)
        Symmetric blocks.
    guess : shape (R, g)
        Start values of the leading directions.
    least : shape (R,)
        Precision of each of the R parameters that does not depend on the items: a lower bound where
        cancellation makes the difference inaccurate.

    Returns
    -------
    NearlyEliminated
        None where more directions matter, or the precision in one of them would not be positive.
    """
    inverse = linalg.inv(item_blocks)
    factor = cholesky(inverse)
    scaled = torch.empty_like(edges)
    _scale(edges, factor.to(edges.dtype), out=scaled.unbind(0))
    # Directions of the largest eigenvalues, by subspace iteration; those at the start that are not
    # guessed only have to differ.
    place = torch.arange(scaled.shape[1], device=scaled.device, dtype=scaled.dtype)[:, None]
    count = torch.arange(guess.shape[1], _DIRECTIONS, device=scaled.device)
    base = torch.cat([guess.to(scaled.dtype), torch.cos(place * (1 + count))], dim=1)
    for _ in range(_TURNS):
        base = linalg.qr(base)[0]
        # Products with few columns are fast in this order.
        base = torch.stack([((base.T @ part) @ part.T).T for part in scaled]).sum(dim=0)
    base = linalg.qr(base.to(item_blocks.dtype))[0]
    seen = torch.stack([base.T @ part.to(item_blocks.dtype) for part in scaled])
    square = torch.einsum("pkm,plm->kl", seen, seen)
    if not bool(square.isfinite().all()):
        return None
    value, turn = linalg.eigh(square)
    base = base @ turn
    remaining = torch.maximum(1 - value, least @ base.square())
    rest, worst = on_host([value[0], remaining.min()])
    if not (rest < _REST and worst > 0):
        return None
    seen = torch.einsum("kl,pkm->plm", turn, seen)
    of_models = torch.stack([part.square().sum(dim=1) for part in scaled]).sum(dim=0)
    of_items = torch.stack([torch.stack([(a * b).sum(dim=0) for b in scaled]) for a in scaled])
    beyond = 1 / remaining - 1
    shared = torch.einsum("pkm,k,qkm->mpq", seen, beyond, seen)
    cost = of_items.permute(2, 0, 1).to(shared.dtype) + shared
    return NearlyEliminated(
        spread=1 + of_models.to(value.dtype) - base.square() @ value,
        directions=base * beyond.clamp_min(0).sqrt(),
        items=inverse + factor @ cost @ factor.mT,
    )


def _scale(edges: Tensor, factor: Tensor, *, out: Sequence[Tensor]) -> None:
    """Write the p parts of `edges` (p, R, M) in units in which each item's precision is 1.

    `factor` are Cholesky factors (M, p, p) of the inverses.
    """
    for k, part in enumerate(out):
        torch.mul(edges[k], factor[:, k, k], out=part)
        for other in range(k + 1, len(edges)):
            part.addcmul_(edges[other], factor[:, other, k])

"""Arrays of NumPy or of torch: the functions that both have, and one place for those that differ.

Small data are fitted with NumPy, because importing torch takes longer than such a fit; large data,
other devices and single precision with torch. Code for both takes functions from `namespace`.

* `namespace`: NumPy or torch, by the kind of an array
* `array_of`, `zeros`, `places`, `cast`: arrays like another one; `as_array`: of NumPy
* `sigmoid`, `log_scores`, `normalised`, …: what each computes fastest in its own way
* `complement`, `inverse_information`, `solve_positive`: bases and inverses of matrices
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from evalstats_plugin.stats.arrays import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

Array: TypeAlias = "Tensor"
"""A NumPy array or a torch tensor. Type checkers see a tensor; only what both have is used."""

_np: Any = np

# Share of the largest curvature below which the data do not tell a direction, and share of an
# item's parameter in such directions from which its errors are unknown.
_FLAT, _UNKNOWN = 1e-9, 1e-3


class _Namespace(Protocol):
    """Functions that NumPy and torch have under one name."""

    float32: Any
    float64: Any
    int64: Any
    uint8: Any
    linalg: _Linalg

    def abs(self, x: Array, /) -> Array: ...
    def amax(self, x: Array, axis: int, /) -> Array: ...
    def broadcast_to(self, x: Array, shape: tuple[int, ...], /) -> Array: ...
    def ceil(self, x: Array, /) -> Array: ...
    def clip(self, x: Array, low: float | None, high: float | None, /) -> Array: ...
    def concatenate(self, parts: Sequence[Array], axis: int = 0, /) -> Array: ...
    def cumsum(self, x: Array, axis: int, /) -> Array: ...
    def diag(self, x: Array, /) -> Array: ...
    def einsum(self, how: str, /, *parts: Array) -> Array: ...
    def exp(self, x: Array, /) -> Array: ...
    def full_like(self, x: Array, value: float, /) -> Array: ...
    def isfinite(self, x: Array, /) -> Array: ...
    def isin(self, x: Array, values: Array, /) -> Array: ...
    def log(self, x: Array, /) -> Array: ...
    def maximum(self, x: Array, y: Array, /) -> Array: ...
    def minimum(self, x: Array, y: Array, /) -> Array: ...
    def ones_like(self, x: Array, /) -> Array: ...
    def sqrt(self, x: Array, /) -> Array: ...
    def stack(self, parts: Sequence[Array], axis: int = 0, /) -> Array: ...
    def swapaxes(self, x: Array, first: int, other: int, /) -> Array: ...
    def where(self, condition: Array, x: Array | float, y: Array | float, /) -> Array: ...
    def zeros_like(self, x: Array, /) -> Array: ...


class _Linalg(Protocol):
    def cholesky(self, x: Array, /) -> Array: ...
    def eigh(self, x: Array, /) -> tuple[Array, Array]: ...
    def qr(self, x: Array, /, mode: str = ...) -> tuple[Array, Array]: ...
    def solve(self, x: Array, y: Array, /) -> Array: ...


def is_numpy(x: Array) -> bool:
    """Whether this is an array, or a number, of NumPy."""
    return isinstance(x, np.ndarray | np.generic)


def _torch() -> Any:
    import torch

    return torch


def namespace(x: Array) -> _Namespace:
    """Return NumPy or torch, by the kind of the array."""
    return _np if is_numpy(x) else _torch()


def array_of(values: Any, like: Array) -> Array:
    """Numbers as an array of the kind, dtype and device of another."""
    if is_numpy(like):
        return _np.asarray(values, like.dtype)
    return _torch().as_tensor(values, dtype=like.dtype, device=like.device)


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Zeros of the kind, dtype and device of another array."""
    return _np.zeros(shape, like.dtype) if is_numpy(like) else like.new_zeros(shape)


def places(count: int, like: Array) -> Array:
    """Return the whole numbers below `count`, of the kind and on the device of another array."""
    return _np.arange(count) if is_numpy(like) else _torch().arange(count, device=like.device)


def cast(x: Array, like: Any) -> Array:
    """Convert to a dtype of either, or to the dtype and device of another array."""
    return _np.asarray(x, like.dtype if is_numpy(like) else like) if is_numpy(x) else x.to(like)


def by_columns(x: Array) -> Array:
    """Lay a matrix out column by column, for code that reads blocks of columns."""
    return _np.asfortranarray(x) if is_numpy(x) else x.T.contiguous().T


def on_host(numbers: Sequence[Array]) -> list[float]:
    """Numbers (arrays without axes), in one transfer from their device."""
    together: Any = namespace(numbers[0]).stack(numbers)
    return together.tolist()


def as_array(array: Array) -> FloatArray:
    """Return an array on the host, as float64; tensors are copied from other devices."""
    return np.asarray(array if is_numpy(array) else array.detach().cpu(), dtype=np.float64)


def nonzero(x: Array) -> Array:
    """Places of what is true, shape (K,)."""
    return _np.flatnonzero(x) if is_numpy(x) else _torch().nonzero(x)[:, 0]


def stable_order(x: Array) -> Array:
    """Places of numbers in ascending order, equal ones as they come."""
    return _np.argsort(x, kind="stable") if is_numpy(x) else x.argsort(stable=True)


def repeat(x: Array, counts: Array) -> Array:
    """Repeat each element so often."""
    return _np.repeat(x, counts) if is_numpy(x) else x.repeat_interleave(counts)


def largest(x: Array, count: int) -> tuple[Array, Array]:
    """Return the largest numbers of each row of a matrix in any order, and their places."""
    if not is_numpy(x):
        return x.topk(count, sorted=False)
    at = _np.argpartition(x, x.shape[1] - count, axis=1)[:, x.shape[1] - count :]
    return _np.take_along_axis(x, at, 1), at


def add_to_rows(total: Array, at: Array, part: Array) -> None:
    """Add to rows of a matrix, each of which is named once."""
    if is_numpy(total):
        total[at] += part
    else:
        total.index_add_(0, at, part)


def add_at(total: Array, rows: Array, columns: Array, part: Array) -> None:
    """Add to elements of a matrix, which may be named several times."""
    if is_numpy(total):
        _np.add.at(total, (rows, columns), part)
    else:
        total.index_put_((rows, columns), part, accumulate=True)


def add_product(total: Array, left: Array, other: Array) -> None:
    """Add a product of matrices."""
    if is_numpy(total):
        total += left @ other
    else:
        total.addmm_(left, other)


def less_product(x: Array, left: Array, other: Array) -> Array:
    """``x - one * other``."""
    return x - left * other if is_numpy(x) else x.addcmul(left, other, value=-1)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + _np.exp(-x)) if is_numpy(x) else x.sigmoid()


def softplus(x: Array) -> Array:
    """Log(1 + exp(x))."""
    if is_numpy(x):
        return _np.maximum(x, 0) + _np.log1p(_np.exp(-_np.abs(x)))
    return _torch().nn.functional.softplus(x)


def lines(intercept: Array, slope: Array, x: Array) -> Array:
    """``intercept + slope * x`` of Q lines at N places, shape (Q, N)."""
    if is_numpy(x):
        return intercept[:, None] + slope[:, None] * x
    return _torch().addmm(intercept[:, None], slope[:, None], x[None])


def log_softmax(x: Array) -> Array:
    """Log of the shares exp(x) / Σ exp(x)."""
    if not is_numpy(x):
        return x.log_softmax(0)
    x = x - x.max()
    return x - _np.log(_np.exp(x).sum())


def log_scores(right: Array, trials: Array, log_weight: Array, logit: Array, level: Array) -> Array:
    """Log-likelihood of m items (m, N) at P points (P, N) plus the log weight, shape (m, P)."""
    if not is_numpy(right):
        return _torch().addmm(log_weight, right, logit.T).addmm_(trials, level.T, alpha=-1)
    score = right @ logit.T
    score -= trials @ level.T
    score += log_weight
    return score


def normalised(score: Array) -> tuple[Array, Array]:
    """Weights exp(score) of each row, which sum to 1, in the place of the score; log of the sum."""
    if not is_numpy(score):
        value = score.logsumexp(1)
        return score.sub_(value[:, None]).exp_(), value
    top = _np.max(score, 1)
    score -= top[:, None]
    weight = _np.exp(score, out=score)
    total = weight.sum(1)
    weight /= total[:, None]
    return weight, top + _np.log(total)


def complement(columns: Array) -> Array:
    """Orthonormal basis of the directions orthogonal to `columns` (P, k), shape (P, P - k)."""
    xp = namespace(columns)
    return xp.linalg.qr(columns, mode="complete")[0][:, columns.shape[1] :]


def solve_triangular(x: Array, y: Array, *, upper: bool) -> Array:
    """Solve ``x @ z = y`` for a triangular matrix x."""
    if is_numpy(x):
        return _np.linalg.solve(x, y)
    return _torch().linalg.solve_triangular(x, y, upper=upper)


def solve_positive(x: Array, y: Array) -> tuple[Array, Array]:
    """Solve ``x @ z = y``, shape (P,), and tell whether x is not positive definite."""
    if not is_numpy(x):
        factor, failed = _torch().linalg.cholesky_ex(x)
        return _torch().cholesky_solve(y[:, None], factor)[:, 0], failed
    factor = _factor(x)
    if factor is None:
        return y, _np.ones(())
    return _np.linalg.solve(factor.T, _np.linalg.solve(factor, y)), _np.zeros(())


def inverse_information(information: Array) -> tuple[Array, Array]:
    """Invert an information, shape (P, P), and tell which of its parameters are unknown, (P,).

    Directions along which it is flat or negative are left out.
    """
    xp = namespace(information)
    tiny = float(np.finfo("f4" if information.dtype == xp.float32 else "f8").tiny)
    # torch has a faster function for this power.
    scale = xp.clip(xp.abs(information.diagonal()), tiny, None) ** -0.5
    unit = information * scale[:, None] * scale
    unknown = places(len(unit), unit) < 0
    factor = _factor(unit)
    if factor is None and not bool(xp.isfinite(unit).all()):
        return xp.full_like(unit, np.nan), ~unknown
    if factor is None:
        value, turn = xp.linalg.eigh(unit)
        flat = value < _FLAT * value[-1]
        unknown = (turn[:, flat] ** 2).sum(1) > _UNKNOWN
        turn, value = turn[:, ~flat], value[~flat]
        inverse = (turn / value) @ turn.T
    elif is_numpy(unit):
        half = _np.linalg.inv(factor)
        inverse = half.T @ half
    else:
        inverse = _torch().cholesky_inverse(factor)
    return inverse * scale[:, None] * scale, unknown


def _factor(x: Array) -> Array | None:
    """Cholesky factor of a matrix; None if it is not positive definite."""
    if is_numpy(x):
        try:
            factor, failed = _np.linalg.cholesky(x), False
        except np.linalg.LinAlgError:
            return None
    else:
        factor, failed = _torch().linalg.cholesky_ex(x)
    return None if failed or not namespace(x).isfinite(factor.diagonal()).all() else factor

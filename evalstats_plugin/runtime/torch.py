"""Devices, memory checks, Cholesky factors and Pólya–Gamma draws in torch.

* `resolve_device`, `resolve_dtype`, `check_memory`: where to compute
* `generator_of`, `drawing_from`: torch's random numbers, from named streams
* `linalg`, `split`, `unique`, `block_diagonal`: functions that torch's stubs leave untyped
* `cholesky`: factors without waiting for the device
* `polya_gamma`, `polya_gamma_mean`, `polya_gamma_variance`: Pólya–Gamma variables PG(n, z), which
  make logistic likelihoods conditionally normal [PSW13]_
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError, SelectionError, check_known
from evalstats_plugin.runtime.memory import budget
from evalstats_plugin.stats.arrays import Rng
from evalstats_plugin.stats.streams import seed_for

_torch: Any = torch

linalg = cast("_Linalg", torch.linalg)


class _Linalg(Protocol):
    """What is used of ``torch.linalg``; matrices may have batch axes in front."""

    def cholesky(self, a: Tensor, /) -> Tensor: ...
    def cholesky_ex(self, a: Tensor, /) -> tuple[Tensor, Tensor]: ...
    def eigh(self, a: Tensor, /) -> tuple[Tensor, Tensor]: ...
    def inv(self, a: Tensor, /) -> Tensor: ...
    def inv_ex(self, a: Tensor, /) -> tuple[Tensor, Tensor]: ...
    def lstsq(self, a: Tensor, b: Tensor, /) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
    def qr(self, a: Tensor, /, mode: Literal["reduced", "r"] = ...) -> tuple[Tensor, Tensor]: ...
    def solve(self, a: Tensor, b: Tensor, /) -> Tensor: ...
    def solve_ex(self, a: Tensor, b: Tensor, /) -> tuple[Tensor, Tensor]: ...
    def solve_triangular(self, a: Tensor, b: Tensor, /, *, upper: bool) -> Tensor: ...
    def svd(self, a: Tensor, /, *, full_matrices: bool = ...) -> tuple[Tensor, Tensor, Tensor]: ...
    def vector_norm(
        self, x: Tensor, /, *, dim: int | None = None, keepdim: bool = False
    ) -> Tensor: ...


def block_diagonal(*blocks: Tensor) -> Tensor:
    """``torch.block_diag``."""
    return _torch.block_diag(*blocks)


def split(whole: Tensor, size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """``torch.split``."""
    return _torch.split(whole, size, dim)


def unique(values: Tensor) -> tuple[Tensor, Tensor]:
    """``torch.unique``: the distinct values, and the place of each value among them."""
    return _torch.unique(values, return_inverse=True)


_DTYPES: Mapping[str, torch.dtype] = {"float64": torch.float64, "float32": torch.float32}

MANY = 64
"""Greatest n of a PG(n, z) that is drawn as a sum; larger ones are drawn as normal."""

# Where the sampler changes between the two series of the density.
_TURN = 0.64

# Φ(-1/√_TURN).
_EDGE = 0.5 * math.erfc(math.sqrt(0.5 / _TURN))


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the named device; ``"auto"`` is CUDA if available."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        if resolved.type == "cuda" and not torch.cuda.is_available():
            msg = f"device {str(device)!r} asked for, but torch sees no CUDA; use device='cpu'"
            raise SelectionError(msg)
    except RuntimeError as error:
        msg = f"no device is called {str(device)!r}; there are: auto, cpu, cuda"
        raise SelectionError(msg) from error
    return resolved


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the named floating-point type, ``"float64"`` or ``"float32"``."""
    if isinstance(dtype, torch.dtype):
        return dtype
    check_known("dtype", dtype, _DTYPES)
    return _DTYPES[dtype]


def generator_of(rng: Rng, purpose: str, device: torch.device) -> torch.Generator:
    """Return a torch generator on a device, for a purpose; see `evalstats_plugin.stats.streams`."""
    return torch.Generator(device).manual_seed(seed_for(rng, purpose))


@contextmanager
def drawing_from(generator: torch.Generator) -> Generator[None]:
    """Let what draws from torch's global generator, its distributions, draw from this one."""
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    devices = [generator.device] if generator.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def check_memory(needed: int, device: torch.device, what: str, *, otherwise: str = "") -> None:
    """Raise `DesignError` where a fit needs more bytes than are free.

    `otherwise` is a further remedy for the message, besides fitting fewer at a time.
    """
    free = _free_memory(device)
    if free is None or needed <= free:
        return
    raise DesignError(
        f"{what} need about {needed / 2**30:.2f} GiB of memory on {device}, {free / 2**30:.2f} GiB "
        f"are free: fit fewer at a time{', or ' * bool(otherwise)}{otherwise}"
    )


def _free_memory(device: torch.device) -> int | None:
    """Free bytes, or None where unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return budget()


def cholesky(matrix: Tensor) -> Tensor:
    """Lower Cholesky factors of matrices (..., n, n); NaN for those not positive definite.

    ``torch.linalg.cholesky`` raises an error instead, for which the host must wait for the device.

    >>> cholesky(torch.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    >>> cholesky(-torch.eye(1))
    tensor([[nan]])
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return factor.masked_fill((failed != 0)[..., None, None], torch.nan)


def polya_gamma_mean(n: Tensor, z: Tensor) -> Tensor:
    """Mean of PG(n, z): n tanh(z/2) / (2z)."""
    x = z.abs().clamp_min(1e-4)
    # Near 0 the quotient would lose digits: use the series 1/4 - z²/48.
    return n * torch.where(z.abs() < 1e-3, 0.25 - z * z / 48, torch.tanh(x / 2) / (2 * x))


def polya_gamma_variance(n: Tensor, z: Tensor) -> Tensor:
    """Variance of PG(n, z): n (sinh z - z) / (4 z³ cosh²(z/2)), without overflow."""
    x = z.abs().clamp_min(0.05)
    e = torch.exp(-x)
    # sinh z / cosh²(z/2) = 2 tanh(z/2), and 1 / cosh²(z/2) = 4 e^-z / (1 + e^-z)².
    value = (2 * torch.tanh(x / 2) - x * 4 * e / (1 + e) ** 2) / (4 * x**3)
    series = 1 / 24 - z * z / 120 + 17 * z**4 / 13440
    return n * torch.where(z.abs() < 0.05, series, value)


def polya_gamma(n: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw PG(n, z), n whole numbers ≥ 0, of the shape of both; 0 where n is 0."""
    n, z = torch.broadcast_tensors(n, z)
    out = torch.zeros_like(z)
    if not n.numel():
        return out
    many = n > MANY
    # One wait for the device for both.
    top, most = torch.stack([n.max(), torch.where(many, 0, n).max()]).tolist()
    if top > MANY:
        drawn = polya_gamma_mean(n, z) + polya_gamma_variance(n, z).sqrt() * normal(z, generator)
        out = torch.where(many, drawn.clamp_min(1e-12), out)
    for k in range(math.ceil(most)):
        at = torch.nonzero(~many & (n > k), as_tuple=True)
        out[at] += _one(z[at], generator)
    return out


def _one(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw PG(1, z) = J*(1, z/2) / 4, shape (K,), by rejection, in parallel until all are drawn."""
    half = z.abs() / 2
    out, left = torch.empty_like(half), torch.arange(len(half), device=z.device)
    rate = math.pi**2 / 8 + half * half / 2
    right_mass = math.pi / (2 * rate) * torch.exp(-rate * _TURN)
    left_mass = 2 * torch.exp(-half) * _inverse_gaussian_below(half)
    share = right_mass / (right_mass + left_mass)
    while len(left):
        h = half[left]
        u = uniform(h, generator)
        tail = _TURN - torch.log(uniform(h, generator)) / rate[left]
        x = torch.where(u < share[left], tail, _truncated(h, u >= share[left], generator))
        # Rejected ones are drawn again.
        out[left] = x
        left = left[~_accepted(x, generator)]
    return out / 4


def normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers of the shape of `like`."""
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers on (0, 1) of the shape of `like`, with finite logarithms."""
    drawn = torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
    return drawn.clamp_min(1e-300)


def _inverse_gaussian_below(h: Tensor) -> Tensor:
    """P(X < _TURN) of an inverse Gaussian of mean 1/h and shape 1."""
    root = 1 / math.sqrt(_TURN)
    first = torch.special.ndtr(root * (_TURN * h - 1))
    return first + torch.exp(2 * h + torch.special.log_ndtr(-root * (_TURN * h + 1)))


def _truncated(h: Tensor, wanted: Tensor, generator: torch.Generator) -> Tensor:
    """Inverse Gaussian of mean 1/h and shape 1, truncated to (0, _TURN); 0 where not wanted."""
    out = torch.zeros_like(h)
    left = wanted.nonzero()[:, 0]
    while len(left):
        at = h[left]
        slow = at * _TURN < 1
        # 1/X² of a normal X beyond 1/√_TURN: the truncated inverse Gaussian for h = 0.
        tail = torch.special.ndtri(_EDGE * uniform(at, generator)) ** -2
        x = torch.where(slow, tail, _inverse_gaussian(at, generator))
        # Below its mean the density is tilted from that of h = 0.
        kept = torch.where(slow, uniform(at, generator) < torch.exp(-at * at * x / 2), x < _TURN)
        out[left] = x
        left = left[~kept]
    return out


def _inverse_gaussian(h: Tensor, generator: torch.Generator) -> Tensor:
    """Inverse Gaussian of mean 1/h and shape 1 [MSH76]_."""
    m = 1 / h.clamp_min(1e-8)
    y = normal(h, generator).square()
    # The smaller root, without subtracting nearly equal numbers.
    x = m * 2 / (2 + m * y + torch.sqrt(4 * m * y + (m * y) ** 2))
    return torch.where(uniform(h, generator) * (m + x) <= m, x, m * m / x)


def _accepted(x: Tensor, generator: torch.Generator) -> Tensor:
    """Accept or reject by the alternating series, whose partial sums bound it from both sides."""
    first = _term(0, x)
    y = uniform(x, generator) * first
    total, decided = first, torch.zeros_like(x, dtype=torch.bool)
    accepted = torch.zeros_like(decided)
    n = 0
    while not bool(decided.all()):
        n += 1
        odd = n % 2 == 1
        total = total - _term(n, x) if odd else total + _term(n, x)
        settled = (y <= total) if odd else (y > total)
        accepted = accepted | (settled & ~decided) if odd else accepted
        decided = decided | settled
    return accepted


def _term(n: int, x: Tensor) -> Tensor:
    """Term n of the density's series."""
    k = n + 0.5
    low = (2 / (math.pi * x)) ** 1.5 * torch.exp(-2 * k * k / x)
    high = torch.exp(-k * k * math.pi**2 * x / 2)
    return math.pi * k * torch.where(x <= _TURN, low, high)

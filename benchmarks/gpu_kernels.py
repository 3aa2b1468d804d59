"""What `gpu` measures: kernels, with the bytes and operations that each needs at least."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch  # noqa: TID253 - it is what is measured
from torch import Tensor  # noqa: TID253
from torch.distributions import Normal  # noqa: TID253

from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Scene,
    draw_particles,
    first_proposals,
    weigh,
)
from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate, bind
from evalstats_plugin.irt.estimators.grid import (
    arrange,
    coarse,
    even_nodes,
    log_likelihood,
    posterior,
)
from evalstats_plugin.irt.estimators.mml import derivatives
from evalstats_plugin.irt.model.curves import Items
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.runtime.torch import generator_of, polya_gamma

NODES, PARTICLES = 61, 30
SEED = 20261121


class Kernel(NamedTuple):
    """Some work, and the least that it can be done with."""

    name: str
    run: Callable[[], Any]
    n_bytes: float
    operations: float = 0.0


def answers_of(n: int, m: int, device: torch.device, dtype: torch.dtype, missing: float) -> Counts:
    """Of a 2PL, drawn on the device: the largest do not come from the host."""
    generator = generator_of(SEED, "benchmark", device)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    ability, slope, intercept = normal(n, 1), (0.3 * normal(m)).exp(), normal(m)
    drawn = torch.rand((n, m), generator=generator, dtype=dtype, device=device)
    right = (drawn < torch.sigmoid(torch.addcmul(intercept, ability, slope))).to(dtype)
    there = torch.rand((n, m), generator=generator, dtype=dtype, device=device) >= missing
    return Counts(right.mul_(there), there.to(dtype))


def kernels(n: int, m: int, device: torch.device, dtype: torch.dtype) -> Iterator[Kernel]:
    """Every kernel at one size."""
    yield from _of_marginal(n, m, device, dtype)
    yield from _of_draws(n, m, device, dtype)
    yield from _of_particles(n, device)


def _of_marginal(n: int, m: int, device: torch.device, dtype: torch.dtype) -> Iterator[Kernel]:
    word = dtype.itemsize
    for missing, what in ((0.0, ""), (0.1, ", with holes")):
        counts = answers_of(n, m, device, dtype, missing)
        answers, one = arrange(counts), torch.ones_like(counts.right[0])
        items = Items(one, torch.linspace(-1, 1, m, dtype=dtype, device=device))
        nodes = even_nodes(-6, 6, NODES, one)
        found = posterior(answers, items, nodes)
        # Right answers are read once, trials too where they differ; products are with two columns
        # for right answers, and with the points of the grid for trials.
        cells, patterns = n * m, len(answers.trials)
        read = word * (cells + (cells if patterns == n else m))
        points = len(coarse(items, nodes.at).at)
        products = 4 * cells + 2 * patterns * m * points
        grid = word * n * NODES
        yield Kernel(
            f"log-likelihood{what}",
            lambda a=answers, i=items, x=nodes: log_likelihood(a, i, x.at),
            read + grid, products,
        )  # fmt: skip
        yield Kernel(
            f"E-step{what}", lambda a=answers, i=items, x=nodes: posterior(a, i, x),
            read + 2 * grid, products,
        )  # fmt: skip
        yield Kernel(
            f"M-step{what}",
            lambda a=answers, i=items, w=found.weights, x=nodes: derivatives(a, i, w, x),
            read + grid, products,
        )  # fmt: skip


def _of_draws(n: int, m: int, device: torch.device, dtype: torch.dtype) -> Iterator[Kernel]:
    word, cells = dtype.itemsize, n * m
    generator = generator_of(SEED, "benchmark", device)
    z = torch.randn((n, m), generator=generator, dtype=dtype, device=device)
    one = torch.ones((), dtype=dtype, device=device)
    yield Kernel("Pólya–Gamma numbers", lambda: polya_gamma(one, z, generator), 2 * word * cells)


def _around(mu: Tensor) -> Normal:
    return Normal(mu, 0.8)


def _seen(z: Tensor) -> Normal:
    return Normal(z, 0.6)


def _of_particles(n: int, device: torch.device) -> Iterator[Kernel]:
    model = Model(
        plates=[Plate("model", n), Plate("task", 8, within="model")],
        latents=[
            Latent("mu", Normal(0.0, 1.0), "model"),
            Latent("z", _around, "task"),
        ],
        observed=[Observed("x", _seen, "task")],
    )
    seen = np.random.default_rng(SEED).normal(size=(n, 8))
    bound = bind(model, {"x": seen}, device)
    generator = generator_of(SEED, "benchmark", device)
    drawn = draw_particles(bound, first_proposals(bound, generator), PARTICLES, generator)
    scene = Scene(bound, drawn, {"model": n, "task": 8})
    # The table of both latents is written once; once more for the derivative.
    table = 8.0 * n * 8 * PARTICLES**2
    yield Kernel("log-joint, contracted, weights", lambda: weigh(scene), 4 * table)

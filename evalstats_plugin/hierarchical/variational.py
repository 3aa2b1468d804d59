"""Variational inference: raise the expected log evidence by its gradient [KB15]_.

The bound is E log P_MP, massively parallel [HLA23]_, or that of ordinary importance sampling
(IWAE) [BGS16]_; both are differentiated through the particles.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.proposals import Proposals


def variational(
    proposals: Proposals,
    bound_of: Callable[[Proposals], Tensor],
    iterations: int,
    step: float,
) -> tuple[Proposals, list[float]]:
    """Adapt proposals by Adam.

    Parameters
    ----------
    bound_of
        One estimate of the bound, with fresh particles.
    step
        Learning rate.

    Returns
    -------
    tuple
        Adapted proposals, and the estimate of each iteration.

    Raises
    ------
    DesignError
        A gradient is not finite.
    """
    leaves = _leaves(proposals)
    flat = [x for tensors in leaves.values() for x in tensors]
    optimiser = torch.optim.Adam(flat, lr=step)
    history: list[float] = []
    for _ in range(iterations):
        optimiser.zero_grad()
        with torch.enable_grad():
            estimate = bound_of(_rebuilt(proposals, leaves))
            (-estimate).backward()
        history.append(float(estimate.detach()))
        _check_gradients(leaves, len(history))
        optimiser.step()
    found = {key: [x.detach() for x in tensors] for key, tensors in leaves.items()}
    return _rebuilt(proposals, found), history


def _check_gradients(leaves: dict[tuple[str, str], list[Tensor]], iteration: int) -> None:
    """Raise an error that names the proposal; the host waits once for all of them."""
    found = {
        name: torch.stack([torch.isfinite(x.grad).all() for x in tensors if x.grad is not None])
        for name, tensors in leaves.items()
        if any(x.grad is not None for x in tensors)
    }
    if not found or bool(torch.cat(list(found.values())).all()):
        return
    name = next(name for (name, _), fine in found.items() if not bool(fine.all()))
    msg = (
        f"the gradient by the proposal of {name!r} is not finite at iteration {iteration}: take a "
        "smaller step, or method='qem'"
    )
    raise DesignError(msg)


def _leaves(proposals: Proposals) -> dict[tuple[str, str], list[Tensor]]:
    """What is learned, by latent and by name of a parameter."""
    found = {(x, ""): list(family.unconstrained()) for x, family in proposals.families.items()}
    for latent, named in proposals.parameters.items():
        found |= {(latent, name): [value] for name, value in named.items()}
    return {key: [x.detach().clone().requires_grad_() for x in v] for key, v in found.items()}


def _rebuilt(proposals: Proposals, leaves: dict[tuple[str, str], list[Tensor]]) -> Proposals:
    families = {
        x: type(family).from_unconstrained(leaves[x, ""])
        for x, family in proposals.families.items()
    }
    parameters = {
        latent: {name: leaves[latent, name][0] for name in named}
        for latent, named in proposals.parameters.items()
    }
    return Proposals(families, parameters)

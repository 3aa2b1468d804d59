"""Where to compute, whether it fits there, and its random numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from evalstats_plugin.errors import DesignError, SelectionError


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the device named; ``"auto"`` is CUDA where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        if found.type == "cuda" and not torch.cuda.is_available():
            msg = f"device {str(device)!r} asked for, but torch sees no CUDA; use device='cpu'"
            raise SelectionError(msg)
    except RuntimeError as error:
        msg = f"no device is called {str(device)!r}; there are: auto, cpu, cuda"
        raise SelectionError(msg) from error
    return found


def generator_of(rng: np.random.Generator, device: torch.device) -> torch.Generator:
    """Random numbers of torch on a device, seeded from NumPy's."""
    return torch.Generator(device).manual_seed(int(rng.integers(2**62)))


def check_memory(needed: int, device: torch.device, what: str) -> None:
    """Raise `DesignError` where a fit needs more bytes than there are."""
    free = _free_memory(device)
    if free is None or needed <= free:
        return
    msg = (
        f"{what} need about {needed / 2**30:.2f} GiB of memory on {device}, {free / 2**30:.2f} GiB "
        "are free: fit fewer at a time, or take dtype=torch.float32"
    )
    raise DesignError(msg)


def _free_memory(device: torch.device) -> int | None:
    """Bytes free, or None where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    lines = [line.split() for line in table.read_text().splitlines()]
    return next((int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"), None)

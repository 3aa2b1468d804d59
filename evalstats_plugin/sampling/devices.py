"""Where to compute, whether it fits there, and its random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.wording import no_such

_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {"float64": torch.float64, "float32": torch.float32}
)


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


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the floating-point numbers named, ``"float64"`` or ``"float32"``."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in _DTYPES:
        raise SelectionError(no_such("dtype", dtype, _DTYPES, ", ".join(_DTYPES)))
    return _DTYPES[dtype]


def generator_of(rng: np.random.Generator, device: torch.device) -> torch.Generator:
    """Random numbers of torch on a device, seeded from NumPy's."""
    return torch.Generator(device).manual_seed(int(rng.integers(2**62)))


def check_memory(needed: int, device: torch.device, what: str, *, otherwise: str = "") -> None:
    """Raise `DesignError` where a fit needs more bytes than there are.

    `otherwise` is what else than fewer at a time would help.
    """
    free = _free_memory(device)
    if free is None or needed <= free:
        return
    msg = (
        f"{what} need about {needed / 2**30:.2f} GiB of memory on {device}, {free / 2**30:.2f} GiB "
        f"are free: fit fewer at a time{', or ' * bool(otherwise)}{otherwise}"
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

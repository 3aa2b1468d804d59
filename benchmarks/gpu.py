"""How near our kernels come to what a device can do at most.

``make bench-gpu``, or ``python -m benchmarks.gpu [--device cpu] [--dtype float32] [--quick]``.
First the device's own floors are measured: bytes a second of a large copy, and operations a second
of a large matrix product, in the same precision. Then each kernel: the bytes that it must at least
read and write and the operations that it must do are counted, and the fraction shown is that of the
longer of the two times that these would take at the floors; what fits into caches can be faster
than the copy. Last are whole fits on the device and on the CPU. Sizes go down where memory is
short. Figures of a GPU are kept in ``results/gpu.json`` with its name; those of a CPU are printed
only, unless ``--output`` says where to.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch  # noqa: TID253 - it is what is measured

from benchmarks.gpu_kernels import NODES, Kernel, answers_of, kernels
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.mml import Marginal, fit_marginal
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.data import Counts, memory_needed
from evalstats_plugin.runtime.torch import check_memory, resolve_device

FIGURES = Path(__file__).parent / "results" / "gpu.json"
SIZES = ((1_000, 1_000), (2_000, 10_000), (5_000, 50_000))
QUICK = ((200, 400),)
FIT_STEPS = 30
"""Of a whole fit, on both devices: what is compared is time, not the estimates of one of them."""
TIMES = 2
"""So many fits must fit into memory: two kinds of answers are held, and what is made of them."""


class Floors(NamedTuple):
    """What the device does at most."""

    bytes_per_second: float
    operations_per_second: float


def main() -> None:
    """Measure, print, and keep what is of a GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--dtype", default="float64", choices=("float32", "float64"))
    parser.add_argument("--quick", action="store_true", help="one small size, to see that it runs")
    parser.add_argument("--output", type=Path, help="file of the figures")
    given = parser.parse_args()
    device, dtype = resolve_device(given.device), getattr(torch, given.dtype)
    small = given.quick or device.type == "cpu"
    found = measure(device, dtype, fitting(QUICK if small else SIZES, device, dtype), quick=small)
    print(shown(found))
    kept = given.output or (None if device.type == "cpu" else FIGURES)
    if kept is None:
        print("no GPU was measured: nothing is kept")
    else:
        kept.write_text(json.dumps(found, indent=2) + "\n")


def measure(
    device: torch.device, dtype: torch.dtype, sizes: list[tuple[int, int]], *, quick: bool
) -> dict[str, Any]:
    """Floors, kernels and whole fits, as they are kept."""
    floors = floors_of(device, dtype, quick=quick)
    rows = [
        {"models": n, "items": m} | of_kernel(kernel, floors, device)
        for n, m in sizes
        for kernel in kernels(n, m, device, dtype)
    ]
    return {
        "device": name_of(device),
        "host": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "dtype": str(dtype).removeprefix("torch."),
        "gigabytes_per_second": round(floors.bytes_per_second / 1e9, 1),
        "gigaflops": round(floors.operations_per_second / 1e9, 1),
        "kernels": rows,
        "fits": [whole_fit(n, m, device, dtype) for n, m in sizes],
    }


def name_of(device: torch.device) -> str:
    """As its maker calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({torch.get_num_threads()} threads)"


def fitting(
    sizes: tuple[tuple[int, int], ...], device: torch.device, dtype: torch.dtype
) -> list[tuple[int, int]]:
    """Sizes that memory holds, here and there; where they do not fit, with fewer items."""
    found: list[tuple[int, int]] = []
    for n, m in sizes:
        items = m
        while not all(_holds(n, items, place, dtype) for place in (device, torch.device("cpu"))):
            items //= 2
        found.append((n, items))
    return found


def _holds(n: int, m: int, device: torch.device, dtype: torch.dtype) -> bool:
    try:
        check_memory(TIMES * memory_needed(n, m, dtype.itemsize), device, "cells")
    except DesignError:
        return False
    return True


def seconds(run: Callable[[], Any], device: torch.device, repeats: int = 5) -> float:
    """Least time of a run, once it has run: by the device's own clock where there is one.

    On one thread of a CPU it is processor time, which other processes do not stretch.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    run()
    taken: list[float] = []
    for _ in range(repeats):
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize(device)
            taken.append(begin.elapsed_time(end) / 1e3)
        else:
            start = clock()
            run()
            taken.append(clock() - start)
    return min(taken)


def floors_of(device: torch.device, dtype: torch.dtype, *, quick: bool) -> Floors:
    """By a copy and a matrix product far larger than caches."""
    size, side = (2**24, 512) if quick else (2**28, 8192)
    source = torch.ones(size, dtype=dtype, device=device)
    target = torch.empty_like(source)
    copied = seconds(lambda: target.copy_(source), device)
    a, b = (torch.rand(side, side, dtype=dtype, device=device) for _ in range(2))
    multiplied = seconds(lambda: a @ b, device)
    return Floors(2 * size * dtype.itemsize / copied, 2 * side**3 / multiplied)


def of_kernel(kernel: Kernel, floors: Floors, device: torch.device) -> dict[str, Any]:
    """Time of a kernel, and the fraction of the floor that binds it."""
    taken = seconds(kernel.run, device)
    memory = kernel.n_bytes / floors.bytes_per_second
    arithmetic = kernel.operations / floors.operations_per_second
    return {
        "kernel": kernel.name,
        "milliseconds": round(1e3 * taken, 3),
        "bound_by": "memory" if memory >= arithmetic else "arithmetic",
        "fraction": round(max(memory, arithmetic) / taken, 4),
    }


def whole_fit(n: int, m: int, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """A 2PL with an estimated prior, on the device and on the CPU."""
    counts = answers_of(n, m, device, dtype, 0.1)
    there, taken = _fitted(counts, device)
    row: dict[str, Any] = {"models": n, "items": m, "steps": FIT_STEPS, "seconds": round(taken, 3)}
    if device.type == "cpu":
        return row
    host = Counts(counts.right.cpu(), counts.trials.cpu())
    here, slow = _fitted(host, torch.device("cpu"))
    apart = float((there.mean.cpu() - here.mean).abs().max())
    return row | {"seconds_on_cpu": round(slow, 3), "largest_difference_of_abilities": apart}


def _fitted(counts: Counts, device: torch.device) -> tuple[Marginal, float]:
    def fit() -> Marginal:
        how = MmlOptions(prior="estimated", nodes=NODES, max_steps=FIT_STEPS, tolerance=0.0)
        return fit_marginal(counts, how)

    start = time.perf_counter()
    found = fit()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return found, time.perf_counter() - start


def shown(found: Mapping[str, Any]) -> str:
    """Return the figures as tables."""
    lines = [
        f"{found['device']}, {found['dtype']}, torch {found['torch']}",
        f"copy {found['gigabytes_per_second']:,} GB/s, product {found['gigaflops']:,} GFLOP/s",
    ]
    for row in found["kernels"]:
        size = f"{row['models']} × {row['items']}"
        figures = f"{row['milliseconds']:>9.2f} ms {row['fraction']:>6.1%} of {row['bound_by']}"
        lines.append(f"{size:<13}{row['kernel']:<33}{figures}")
    for row in found["fits"]:
        beside = f", on the CPU {row['seconds_on_cpu']} s" if "seconds_on_cpu" in row else ""
        lines.append(f"{row['models']} × {row['items']}, {row['steps']} steps of a 2PL: "
                     f"{row['seconds']} s{beside}")  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""The benchmark of a GPU runs, on a CPU, and counts what it should."""

import torch

from benchmarks import gpu, gpu_kernels


def test_the_benchmark_runs(monkeypatch):
    monkeypatch.setattr(gpu, "FIT_STEPS", 4)
    monkeypatch.setattr(gpu_kernels, "PARTICLES", 6)
    cpu = torch.device("cpu")
    found = gpu.measure(cpu, torch.float64, [(20, 24)], quick=True)

    assert found["device"].startswith("cpu")
    assert len(found["kernels"]) == 8
    for row in found["kernels"]:
        assert row["fraction"] > 0
        assert row["bound_by"] in ("memory", "arithmetic")
    assert found["fits"][0]["seconds"] > 0
    assert max(len(line) for line in gpu.shown(found).splitlines()) <= 80


def test_a_kernel_at_the_floor_has_a_fraction_of_one():
    """A copy, counted as the floors count it; twice the work that is needed has half of it."""
    cpu = torch.device("cpu")
    x = torch.ones(2**22, dtype=torch.float64)
    y = torch.empty_like(x)
    floors = gpu.Floors(2 * 8 * len(x) / gpu.seconds(lambda: y.copy_(x), cpu, 20), 1e30)

    def twice() -> None:
        y.copy_(x)
        y.copy_(x)

    once = gpu.of_kernel(gpu.Kernel("copy", lambda: y.copy_(x), 16.0 * len(x)), floors, cpu)
    double = gpu.of_kernel(gpu.Kernel("copies", twice, 16.0 * len(x)), floors, cpu)

    assert 0.3 < once["fraction"] < 3
    assert double["fraction"] < 0.85 * once["fraction"]


def test_sizes_go_down_with_memory(monkeypatch):
    monkeypatch.setattr("evalstats_plugin.runtime.torch._free_memory", lambda _: 2**20)

    [(n, m)] = gpu.fitting(((100, 4000),), torch.device("cpu"), torch.float64)

    assert n == 100
    assert (
        0 < gpu.TIMES * gpu.memory_needed(n, m) <= 2**20 < gpu.TIMES * gpu.memory_needed(n, 2 * m)
    )

"""A GPU gives what the CPU gives, from the same random numbers. Skipped where there is none."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from model_fits import FITS
from single_precision import TOLERANCES, in_single_precision
from torch.overrides import TorchFunctionMode

from evalstats_plugin.runtime import torch as runtime_torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA")

_DRAWING = (torch.rand, torch.randn, torch.randint, torch.multinomial, torch.binomial)


class HostNumbers(TorchFunctionMode):
    """Random numbers are the CPU's, brought to the device: each device would draw its own."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func not in _DRAWING and "generator" not in kwargs:
            return func(*args, **kwargs)
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
        place = kwargs.get("device") or (tensors[0].device if tensors else "cpu")
        if "device" in kwargs:
            kwargs["device"] = "cpu"
        if "generator" in kwargs:
            kwargs["generator"] = _HOST[id(kwargs["generator"])]
        moved = [x.cpu() if isinstance(x, torch.Tensor) else x for x in args]
        return func(*moved, **kwargs).to(place)


_HOST: dict[int, torch.Generator] = {}


@pytest.fixture
def host_numbers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For each generator of a device, one of the host with the same seed."""
    generator = torch.Generator
    held: list[torch.Generator] = []

    class Twin(generator):
        def __new__(cls, device: Any = "cpu") -> Any:
            made = generator(device)
            held.append(made)
            _HOST[id(made)] = generator("cpu")
            return _Seeded(made)

    class _Seeded:
        """Seeds both."""

        def __init__(self, made: torch.Generator) -> None:
            self.made = made

        def manual_seed(self, seed: int) -> torch.Generator:
            _HOST[id(self.made)].manual_seed(seed)
            return self.made.manual_seed(seed)

    monkeypatch.setattr(runtime_torch.torch, "Generator", Twin)
    with HostNumbers():
        yield
    _HOST.clear()


@pytest.mark.usefixtures("host_numbers")
@pytest.mark.parametrize("name", FITS)
def test_a_model_is_the_same_on_a_gpu(name, agree):
    agree(FITS[name]("cuda"), FITS[name]("cpu"), 1e-8)


@pytest.mark.usefixtures("host_numbers")
@pytest.mark.parametrize("name", TOLERANCES)
def test_a_gpu_in_single_precision_is_near_double(name, agree, monkeypatch):
    expected = FITS[name]("cpu")
    in_single_precision(monkeypatch)

    agree(FITS[name]("cuda"), expected, TOLERANCES[name])


def test_auto_is_the_gpu():
    assert runtime_torch.resolve_device("auto").type == "cuda"

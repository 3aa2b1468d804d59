"""The pretended device refuses what a real one refuses, and sees who waits."""

import numpy as np
import pytest
import torch
from pretended_device import DEVICE, DeviceTensor, caller, pretended_device

from evalstats_plugin.irt.estimators.grid import coarse
from evalstats_plugin.irt.model.curves import Items


def there(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, int(np.prod(shape)), dtype=torch.float64).reshape(shape).to(DEVICE)


def mixes(x: torch.Tensor) -> torch.Tensor:
    return x + torch.ones(len(x), dtype=x.dtype, device="cpu")


def forgets_the_device(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(len(x), dtype=x.dtype)
    return total.add_(x)


def indexes_from_the_host(x: torch.Tensor) -> torch.Tensor:
    return x[torch.arange(2)]


@pytest.mark.parametrize("wrong", [mixes, forgets_the_device, indexes_from_the_host])
def test_tensors_of_two_devices_cannot_be_mixed(wrong):
    with pretended_device(), pytest.raises(RuntimeError, match="on the same device"):
        wrong(there(4))


def test_numbers_without_dimensions_can():
    with pretended_device() as trips:
        found = there(4) * torch.tensor(2.0, dtype=torch.float64)

        assert found.device == DEVICE
    assert [x.kind for x in trips] == ["up"]


def test_generators_belong_to_a_device():
    with pretended_device():
        own = torch.Generator(DEVICE).manual_seed(1)
        drawn = torch.randn(3, generator=own, device=DEVICE, dtype=torch.float64)
        with pytest.raises(RuntimeError, match="generator of the device"):
            torch.randn(3, generator=torch.Generator().manual_seed(1), device=DEVICE)
        with pytest.raises(RuntimeError, match="generator of the device"):
            torch.randn(3, generator=own)
    expected = torch.randn(3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    assert drawn.numbers.tolist() == expected.tolist()


def test_a_device_has_no_numpy():
    with pretended_device(), pytest.raises(TypeError, match="copy it to the host"):
        there(2).numpy()
    with pretended_device(), pytest.raises(RuntimeError, match="numpy"):
        np.asarray(there(2))


WAITING = {
    "item": lambda x: x[0, 0].item(),
    "float": lambda x: float(x[0, 0]),
    "truth": lambda x: bool((x > 0).any()),
    "branch": lambda x: 1 if x[0, 0] > 0 else 0,
    "list": lambda x: x.tolist(),
    "copy": lambda x: x.cpu(),
    "mask": lambda x: x[x > 0],
    "assignment by mask": lambda x: x.__setitem__(x > 0, x[x > 0]),
    "places": lambda x: torch.where(x > 0),
    "nonzero": torch.nonzero,
    "unique": torch.unique,
    "factor": lambda x: torch.linalg.cholesky(x @ x.T + torch.eye(2, device=DEVICE)),
    "inverse": lambda x: torch.linalg.inv(x @ x.T + torch.eye(2, device=DEVICE)),
    "equality": lambda x: torch.equal(x, x),
    "repeats": lambda x: torch.repeat_interleave(x[0], (x[0] > 0).long()),
}


@pytest.mark.parametrize("name", WAITING)
def test_who_waits_is_seen(name):
    with pretended_device() as trips:
        x = there(2, 3)
        del trips[:]
        WAITING[name](x)

    assert {t.kind for t in trips} == {"down"}


PASSING = {
    "choice": lambda x: torch.where(x > 0, x, 0.0),
    "fill": lambda x: x.masked_fill(x > 0, 0.0),
    "number into a mask": lambda x: x.__setitem__(x > 0, 0.0),
    "factor": lambda x: torch.linalg.cholesky_ex(x @ x.T + torch.eye(2, device=DEVICE)),
    "sums": lambda x: x.new_zeros(4).index_add_(0, torch.arange(2, device=DEVICE), x[:, 0]),
    "views": lambda x: x[1:].T.add_(1),
}


@pytest.mark.parametrize("name", PASSING)
def test_what_need_not_wait_does_not(name):
    with pretended_device() as trips:
        x = there(2, 3)
        del trips[:]
        PASSING[name](x)

    assert trips == []


def test_data_that_go_to_the_device_are_seen():
    with pretended_device() as trips:
        x = there(3)
        del trips[:]
        found = [
            torch.tensor([1.0, 2.0], device=DEVICE),
            torch.as_tensor(np.arange(2), device=DEVICE),
            x.new_tensor([1.0]),
            x[[0, 2]],
        ]

        assert all(f.device == DEVICE for f in found)
    assert [t.kind for t in trips] == ["up"] * 4


def test_the_line_of_the_package_is_named():
    with pretended_device() as trips:
        coarse(Items(there(5), there(5)), there(61))

    assert [t.place.split(":")[0] for t in trips if t.kind == "down"] == ["irt/estimators/grid.py"]
    assert caller() == "outside"


def test_derivatives_are_those_of_the_host():
    def by(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        total = torch.linalg.solve_ex(x @ x.T + torch.eye(2).to(x), x).result.exp().sum()
        return torch.autograd.grad(total, x)[0]

    with pretended_device():
        x = there(2, 3)
        found = by(x)

        assert isinstance(found, DeviceTensor)
    torch.testing.assert_close(found.numbers, by(x.numbers), rtol=0, atol=0)


def test_nothing_is_left_of_it():
    with pretended_device():
        x = there(2)

    assert type(torch.Generator()) is torch.Generator
    with pytest.raises(RuntimeError, match="outside of"):
        x.exp()

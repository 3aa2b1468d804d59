"""A device that is not there: tensors that lie on "meta", but have numbers.

Under `PretendedDevice` an operation on tensors of the device ``"meta"`` is computed on the CPU, and
what comes out lies on "meta" again. As on CUDA, tensors of two devices cannot be mixed, except for
those without dimensions, and `numpy` refuses. Unlike on CUDA, what would make the host wait for the
device, or the device for the host, is written down with the line that asked for it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

DEVICE = torch.device("meta")
_PACKAGE = "/evalstats_plugin/"
_WRAPPERS = ("/irt/model/arrays.py", "/runtime/torch.py")
"""Their callers are named, because they wrap functions of PyTorch."""

_aten = torch.ops.aten

_WAITING = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "equal",
    "bincount",
    "_linalg_check_errors",
    "linalg_lstsq",
}
"""The host needs numbers to go on: the size of what comes out, a truth, an error."""

_FROM_NUMBERS = (torch.tensor, torch.as_tensor, torch.asarray)


class Trip(NamedTuple):
    """Between host and device."""

    kind: str
    """``"up"`` to the device, ``"down"`` to the host, which waits."""
    operation: str
    place: str
    """File and line of the package."""


class DeviceTensor(torch.Tensor):
    """A tensor that says that it lies on `DEVICE`."""

    numbers: torch.Tensor

    @staticmethod
    def __new__(cls, numbers: torch.Tensor) -> Self:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            layout=numbers.layout,
            device=DEVICE,
            requires_grad=False,
        )
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        msg = f"{func} on a pretended device outside of `PretendedDevice`"
        raise RuntimeError(msg)


class DeviceGenerator(torch.Generator):
    """Random numbers of `DEVICE`: those of the CPU, so that results can be compared."""

    @property
    def device(self) -> torch.device:
        """As it says."""
        return DEVICE


class _Operations(TorchDispatchMode):
    """What comes after automatic differentiation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here: what keeps the compiler away would double the time."""
        return False

    def __init__(self, trips: list[Trip]) -> None:
        super().__init__()
        self.trips = trips

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [*_leaves(args), *_leaves(tuple(kwargs.values()))]
        here = any(isinstance(x, DeviceTensor) for x in given)
        asked = kwargs.get("device")
        if not here and (asked is None or asked.type != DEVICE.type):
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name not in ("copy_", "_to_copy"):
            _check_mixing(given, func)
        self._note(name, args, kwargs)
        plain = {key: _each(_numbers, value) for key, value in kwargs.items()}
        if asked is not None:
            plain["device"] = torch.device("cpu")
        found = func(*_each(_numbers, args), **plain)
        to_host = asked is not None and asked.type == "cpu"
        if to_host or (name == "copy_" and not isinstance(args[0], DeviceTensor)):
            return args[0] if name == "copy_" else found
        found = _each(lambda x: DeviceTensor(x) if isinstance(x, torch.Tensor) else x, found)
        return return_and_correct_aliasing(func, args, kwargs, found)

    def _note(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kind = "down" if _waits(name, args, kwargs) else None
        if name == "_to_copy" and kwargs.get("device") is not None:
            there = isinstance(args[0], DeviceTensor)
            goes = kwargs["device"].type == DEVICE.type
            kind = None if there == goes else "up" if goes else "down"
        elif name == "copy_":
            there, goes = isinstance(args[1], DeviceTensor), isinstance(args[0], DeviceTensor)
            kind = None if there == goes else "up" if goes else "down"
        if kind is not None:
            self.trips.append(Trip(kind, name, caller()))


class _Calls(TorchFunctionMode):
    """What PyTorch does before it comes to operations, for tensors of "meta" without numbers."""

    def __init__(self, trips: list[Trip]) -> None:
        super().__init__()
        self.trips = trips

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        _check_generator(func, args, kwargs)
        first = args[0] if args else None
        there = isinstance(first, DeviceTensor)
        if func is torch.Tensor.tolist and there:
            return first.cpu().tolist()
        if func is torch.Tensor.numpy and there:
            msg = "can't convert a tensor of a device to numpy: copy it to the host first, by cpu()"
            raise TypeError(msg)
        if func is torch.Tensor.new_tensor and there:
            return torch.tensor(args[1], dtype=kwargs.get("dtype", first.dtype)).to(DEVICE)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and there:
            return func(first, _index(args[1]), *args[2:])
        if func in _FROM_NUMBERS and not there and _asks(kwargs.get("device")):
            return func(*args, **{**kwargs, "device": "cpu"}).to(DEVICE)
        return func(*args, **kwargs)


@contextmanager
def pretended_device() -> Iterator[list[Trip]]:
    """Have `DEVICE` until the end, and get the trips."""
    trips: list[Trip] = []
    generator = torch.Generator

    class Generator(generator):
        def __new__(cls, device: Any = "cpu") -> Any:
            return DeviceGenerator("cpu") if _asks(device) else generator(device)

    torch.Generator = Generator  # type: ignore[misc]
    try:
        with _Calls(trips), _Operations(trips):
            yield trips
    finally:
        torch.Generator = generator  # type: ignore[misc]


def trips_by_place(trips: list[Trip]) -> Counter[tuple[str, str, str]]:
    """How often each line made each kind of trip."""
    return Counter(trips)


def caller() -> str:
    """Line of the package that is being run."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if _PACKAGE in file and not file.endswith(_WRAPPERS):
            return f"{file.split(_PACKAGE)[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return "outside"


def _asks(device: Any) -> bool:
    return device is not None and torch.device(device).type == DEVICE.type


def _numbers(x: Any) -> Any:
    return x.numbers if isinstance(x, DeviceTensor) else x


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """As PyTorch's tree_map, of lists and tuples alone, in a third of the time."""
    if isinstance(value, (list, tuple)):
        return type(value)([_each(change, x) for x in value])
    return change(value)


def _leaves(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [leaf for value in values for leaf in _leaves(value)]
    return [values]


def _index(key: Any) -> Any:
    """Lists and arrays in an index go to the device."""
    if isinstance(key, tuple):
        return tuple(_index(x) for x in key)
    return torch.as_tensor(key).to(DEVICE) if isinstance(key, list | range | np.ndarray) else key


def _check_mixing(given: list[Any], func: Callable[..., Any]) -> None:
    for x in given:
        if isinstance(x, torch.Tensor) and not isinstance(x, DeviceTensor) and x.dim():
            msg = (
                f"Expected all tensors to be on the same device, found one of shape "
                f"{tuple(x.shape)} on {x.device} in {func} beside {DEVICE}, at {caller()}"
            )
            raise RuntimeError(msg)


def _check_generator(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before PyTorch unpacks it: what comes to operations has forgotten its class."""
    generator = kwargs.get("generator")
    if generator is None:
        return
    here = _asks(kwargs.get("device")) or any(isinstance(x, DeviceTensor) for x in args)
    if isinstance(generator, DeviceGenerator) != here:
        msg = f"Expected a generator of the device of {func}, at {caller()}"
        raise RuntimeError(msg)


def _waits(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name in ("index", "index_put", "index_put_"):
        masks = any(x is not None and x.dtype == torch.bool for x in args[1])
        # One number into the places of a mask is masked_fill.
        return masks and (name == "index" or args[2].numel() > 1)
    return name in _WAITING

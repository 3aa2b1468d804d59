"""Devices by name."""

import pytest
import torch

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.runtime.torch import resolve_device


def test_devices_that_are_not_there_are_refused():
    """By name, with those that there are."""
    assert resolve_device("auto").type in ("cpu", "cuda")
    with pytest.raises(SelectionError, match="no device is called 'gpu0'"):
        resolve_device("gpu0")
    if not torch.cuda.is_available():
        with pytest.raises(SelectionError, match="sees no CUDA"):
            resolve_device("cuda")

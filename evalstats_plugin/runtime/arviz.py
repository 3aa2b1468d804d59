"""Draws as ArviZ holds them: its majors 0 and 1 are given the same groups in two ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from evalstats_plugin.errors import DesignError, install_hint

Group = Mapping[str, Any]


def inference_data(
    groups: Mapping[str, Group], coords: Mapping[str, Sequence[Any]], dims: Mapping[str, list[str]]
) -> Any:
    """Return groups of variables as ``InferenceData`` (ArviZ 0) or ``DataTree`` (ArviZ 1).

    Parameters
    ----------
    groups
        Arrays by name, by group: of shape (chains, draws, ...) in ``"posterior"``,
        ``"log_likelihood"`` and ``"posterior_predictive"``, without draws in ``"observed_data"``
        and ``"constant_data"``. Empty groups are left out.
    coords
        Names along each dimension.
    dims
        Dimensions of each variable, after those of chains and draws.

    Raises
    ------
    DesignError
        ArviZ is not installed; the message says how to install it.
    """
    try:
        az: Any = import_module("arviz")
    except ModuleNotFoundError as error:
        msg = f"{error.name} is not installed, and this needs ArviZ: {install_hint('models')}"
        raise DesignError(msg) from error
    filled = {name: dict(group) for name, group in groups.items() if group}
    names = {"coords": dict(coords), "dims": dict(dims)}
    if az.__version__.startswith("0."):
        return az.from_dict(**filled, **names)
    return az.from_dict(filled, **names)

"""Lazy loading: public names of a package on first use, and torch where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from evalstats_plugin.errors import DesignError


def public_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose public names load on first use.

    Parameters
    ----------
    package
        Its ``__name__``.
    modules
        By public name the module, relative to the package, that defines it; "" where the name is
        itself a module of the package.
    """

    def load(name: str) -> Any:
        if name not in modules:
            msg = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(msg)
        if not modules[name]:
            return import_module(f"{package}.{name}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return load, lambda: sorted(modules)


def need_torch(what: str) -> None:
    """Raise `DesignError` if torch is not installed; `what` names, in the plural, what needs it."""
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        msg = f"{what} need torch: pip install 'evalstats-plugin[models]'"
        raise DesignError(msg) from error

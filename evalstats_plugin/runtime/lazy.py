"""Lazy loading: public names of a package on first use, and torch where it is installed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from evalstats_plugin.errors import DesignError, install_hint

_OF_MODELS = {"torch", "arviz", "opt_einsum"}
"""Modules that come with the extra ``models``."""


def public_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package of lazily loaded names.

    Its public names are those that the stub beside its ``__init__.py`` imports, so that type
    checkers and the running program go by one list (Scientific Python, SPEC 1). The stub is read
    when a name is first asked for; the command's ``--help`` asks for none.

    Parameters
    ----------
    package, file
        Its ``__name__`` and ``__file__``.

    Raises
    ------
    DesignError
        On access to a name: what it needs is not installed.
    """

    @cache
    def declared() -> tuple[dict[str, str], list[str]]:
        import ast

        stub = ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8"))
        modules = {
            alias.name: str(node.module)
            for node in stub.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        others = [ast.unparse(node.target) for node in stub.body if isinstance(node, ast.AnnAssign)]
        return modules, sorted([*modules, *others])

    def load(name: str) -> Any:
        if name == "__all__":
            return declared()[1]
        modules = {} if name.startswith("__") else declared()[0]
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:
            return import_module(f"{package}.{name}")
        try:
            return getattr(import_module(modules[name]), name)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in _OF_MODELS:
                raise
            msg = f"{package}.{name} needs {error.name}: {install_hint('models')}"
            raise DesignError(msg) from error

    return load, lambda: sorted(declared()[0])


def need_torch(what: str) -> None:
    """Raise `DesignError` if torch is not installed; `what` names, in the plural, what needs it."""
    collecting = gc.isenabled()
    # A quarter of a million objects that stay: looking for garbage among them takes a sixth of the
    # time.
    gc.disable()
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        raise DesignError(f"{what} need torch: {install_hint('models')}") from error
    finally:
        if collecting:
            gc.enable()

"""A command and the function of Python that answers the same question have the same defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NamedTuple

import click
import pytest

import evalstats_plugin as es
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.simulation import simulate
from evalstats_plugin.cli import main
from evalstats_plugin.comparisons.planning.solver import PowerDesign
from evalstats_plugin.logs.reading import check


class Same(NamedTuple):
    """What a command is in Python."""

    functions: tuple[Callable[..., Any], ...]
    least: int
    """Options that are arguments too, at least."""
    renamed: Mapping[str, str] = {}
    apart: Mapping[str, tuple[Any, Any]] = {}
    """Defaults that are written in two ways and mean the same."""


BATCH = {"batch": (None, 1)}
"""Each harness has its own where none is given."""

SAME = {
    "report": Same((es.intervals, es.read), 14, {"limits": "bounds"}),
    "compare": Same((es.compare, es.read), 15, {"limits": "bounds"}),
    "judge score": Same((es.judge, es.read), 11, {"limits": "bounds", "items": "population"}),
    "judge label": Same((es.next_labels, es.read), 9, {"limits": "bounds"}, {"next": (50, None)}),
    "gate": Same((es.gate, es.read), 12, {"limits": "bounds"}),
    "table": Same((es.table, es.read), 11, {"limits": "bounds"}),
    "power": Same(
        (es.power, PowerDesign, es.read), 13, {"items": "n_items", "epochs": "n_epochs"},
        {"design": ("paired", None)},
    ),
    "pool": Same((es.pool, es.read), 8, apart={"family": (None, "bernoulli")}),
    "irt fit": Same((es.fit_irt, es.read), 9, apart={"item_model": (None, "2pl")}),
    "rank stats": Same((es.rank,), 4, {"method": "model"}),
    "rank models": Same((es.rank, es.read), 10, {"method": "model"}),
    "adapt bank": Same((es.fit_irt, es.read), 8, apart={"item_model": (None, "2pl")}),
    "adapt replay": Same((Plan, es.read), 15, apart=BATCH),
    "adapt run inspect": Same((Plan,), 10, apart=BATCH),
    "adapt run lm-eval": Same((Plan,), 10, apart=BATCH),
    "adapt simulate": Same((simulate,), 2),
    "annotate": Same(
        (es.annotate, es.read, es.intervals), 13, {"limits": "bounds"},
        {"compare": ("no", False)},
    ),
    "export": Same((es.export, es.read), 7),
    "check": Same((check,), 1),
}  # fmt: skip
"""By command. ``--seed 0`` is no default of Python's: commands print the same twice."""


def _command(name: str) -> click.Command:
    found: click.Command = main
    for part in name.split():
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found, info_name="x"), part)
        assert inner is not None
        found = inner
    return found


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    if is_dataclass(function):
        return {
            f.name: f.default if f.default is not MISSING else f.default_factory()  # pyright: ignore[reportCallIssue]
            for f in fields(function)
            if (f.default, f.default_factory) != (MISSING, MISSING)
        }
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


@pytest.mark.parametrize("name", SAME)
def test_a_command_and_its_function_have_the_same_defaults(name: str) -> None:
    same = SAME[name]
    in_python = {
        k: v for function in reversed(same.functions) for k, v in _defaults(function).items()
    }
    compared: dict[str, tuple[Any, Any]] = {}
    for option in _command(name).params:
        argument = same.renamed.get(str(option.name), str(option.name))
        if not isinstance(option, click.Option) or option.required or argument not in in_python:
            continue
        default = option.default if option.expose_value else False
        compared[str(option.name)] = (default, in_python[argument])

    wrong = {
        option: both
        for option, both in compared.items()
        if (both[0] or None) != (both[1] or None) and both != same.apart.get(option)
    }
    assert wrong == {}
    assert len(compared) >= same.least, sorted(compared)

"""Statistical methods as table rows: `Method`, and the choice of a method for given scores.

A method is a plain function, named by ``"module:function"`` and loaded on use. Its arguments depend
on its family:

========== ==============================================================================
binary     ``f(successes, n, *, confidence_level)``, arrays of one length
bounded    ``f(scores, *, bounds, confidence_level)``, scores (cells, M), NaN where missing
real       ``f(scores, *, confidence_level)``
resampling ``f(scores, *, confidence_level, n_resamples, rng)``
ratio      ``f(numerator, denominator, *, confidence_level)``, both (cells, M)
clustered  ``f(totals, sizes, *, confidence_level)``, both (cells, C); -bounded, -real,
           -resampling; -paired: ``f(only_a, only_b, sizes, *, confidence_level)``
paired     ``f(counts, *, confidence_level)``, a `PairedCounts` of any shape
unpaired   ``f(counts, *, confidence_level)``, the `Counts` of `stats.unpaired`; -bounded:
           ``f(scores, a, b, *, bounds, confidence_level)``, scores (N, M), a and b (P,);
           -real: ``f(totals, sizes, a, b, *, confidence_level)``, both (N, C)
========== ==============================================================================

It returns ``Interval(low, high)``, or ``Difference(low, high, prob_better)`` for
clustered-paired. Other families may return ``prob_better`` too, which a comparison then shows.
Methods for comparisons receive the differences of two models' scores, or counts for 0/1 scores;
unpaired methods receive the scores of both models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal

from evalstats_plugin.errors import PluginError, SelectionError, no_such

Kind = Literal["binary", "bounded", "real", "ratio", "f1", "confusion", "auc", "corpus"]
"""Kind of the scores of one model on one task."""

Family = Literal[
    "binary", "bounded", "real", "resampling", "ratio",
    "clustered", "clustered-bounded", "clustered-real", "clustered-resampling",
    "paired", "clustered-paired", "unpaired", "unpaired-bounded", "unpaired-real",
    "f1", "confusion", "auc", "sums",
]  # fmt: skip

Question = Literal["interval", "comparison"]
"""What a method estimates."""

_SERVES: Mapping[Family, tuple[Kind, ...]] = MappingProxyType(
    {
        "binary": ("binary",),
        "bounded": ("binary", "bounded"),
        "real": ("binary", "bounded", "real"),
        "resampling": ("binary", "bounded", "real"),
        "ratio": ("ratio",),
        "clustered": ("binary",),
        "clustered-bounded": ("binary", "bounded"),
        "clustered-real": ("binary", "bounded", "real"),
        "clustered-resampling": ("binary", "bounded", "real"),
        "clustered-paired": ("binary",),
        "paired": ("binary",),
        "unpaired": ("binary",),
        "unpaired-bounded": ("binary", "bounded"),
        "unpaired-real": ("binary", "bounded", "real"),
        "f1": ("f1",), "confusion": ("f1", "confusion"), "auc": ("auc",),
        "sums": ("f1", "confusion", "corpus"),
    }
)  # fmt: skip
"""Kinds of scores that each family accepts."""


@dataclass(frozen=True, slots=True)
class Method:
    """One statistical method: its name, family, question, function and source."""

    name: str
    family: Family
    function: str
    """``"module:function"``."""
    summary: str
    source: str
    question: Question = "interval"
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Fixed arguments, such as ``{"prior": (1.0, 1.0)}``."""

    def serves(self, kind: Kind) -> bool:
        """Return whether the method applies to scores of this kind."""
        return kind in _SERVES[self.family]

    def load(self) -> Callable[..., Any]:
        """Import the function and fix its options."""
        module, _, name = self.function.partition(":")
        try:
            function = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            msg = f"method {self.name!r} names {self.function!r}, which cannot be loaded: {error}"
            raise PluginError(msg) from error
        return partial(function, **self.options)


def choose(
    kind: Kind,
    name: str,
    table: Mapping[str, Method],
    defaults: Mapping[Kind, tuple[str, str]],
) -> Method:
    """Return the method for scores of a kind: the named one where it fits, else the default."""
    if name != "auto" and table[name].serves(kind):
        return table[name]
    return table[defaults[kind][0]]


def table_of(extra: Iterable[Method], own: Iterable[Method]) -> dict[str, Method]:
    """Return our own methods for one question and those that plugins add, by name.

    Raises
    ------
    PluginError
        Two methods of one name.
    """
    table: dict[str, Method] = {}
    own = tuple(own)
    for method in (*own, *(m for m in extra if m.question == own[0].question)):
        if method.name in table:
            msg = (
                f"two methods are called {method.name!r}: {table[method.name].function} and "
                f"{method.function}; a plugin must choose another name"
            )
            raise PluginError(msg)
        table[method.name] = method
    return table


def check_name(
    name: str,
    table: Mapping[str, Method],
    elsewhere: Mapping[str, tuple[Method, ...]] = MappingProxyType({}),
) -> None:
    """Raise `SelectionError`, with the closest names, for a method that is not in the table.

    ``elsewhere`` has the methods of other questions, by purpose.
    """
    if name == "auto" or name in table:
        return
    known = f"auto, {', '.join(table)}"
    for purpose, methods in elsewhere.items():
        if name in {method.name for method in methods}:
            msg = (
                f"method {name!r} is for {purpose}, not for what is asked here. There are: {known}"
            )
            raise SelectionError(msg)
    raise SelectionError(no_such("method", name, table, known))

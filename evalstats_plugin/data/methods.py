"""Statistical methods as table rows: `Method`, and the choice of a method for given scores.

A method is a plain function, named by ``"module:function"`` and loaded on use. Its arguments depend
on its family:

========== ==============================================================================
binary     ``f(successes, n, *, confidence_level)``, arrays of one length
bounded    ``f(scores, *, bounds, confidence_level)``, scores (cells, M), NaN where missing;
           -attained: also ``attained``, whether scores of the metric reach the lower bound, and
           the upper one, arrays (cells,)
real       ``f(scores, *, confidence_level)``
resampling ``f(scores, *, confidence_level, n_resamples, rng)``
ratio      ``f(numerator, denominator, *, confidence_level)``, both (cells, M)
clustered  ``f(totals, sizes, *, confidence_level)``, both (cells, C); -bounded, -real;
           -sized: also ``estimand`` and ``clusters`` (`stats.grid_posteriors`);
paired     ``f(counts, *, confidence_level)``, a `PairedCounts` of any shape; -mean is the
           default of comparisons alone, `stats.pairs.differences`
unpaired   ``f(counts, *, confidence_level)``, the `Counts` of `stats.pairs.unpaired`; -bounded:
           ``f(scores, a, b, *, bounds, confidence_level)``, scores (N, M), a and b (P,);
           -real: ``f(totals, sizes, a, b, *, confidence_level)``, both (N, C)
========== ==============================================================================

It returns ``Interval(low, high)``. Unpaired families may return ``prob_better`` too, which a
comparison then shows.
Methods for comparisons receive the differences of two models' scores, or counts for 0/1 scores;
unpaired methods receive the scores of both models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from evalstats_plugin.errors import PluginError, SelectionError, no_such

Kind = Literal["binary", "bounded", "real", "ratio", "f1", "confusion", "auc", "corpus", "left-out"]
"""Kind of the scores of one model on one task."""

Family = Literal[
    "binary", "bounded", "bounded-attained", "real", "resampling", "ratio",
    "clustered", "clustered-sized", "clustered-bounded", "clustered-real",
    "paired", "paired-mean", "unpaired", "unpaired-bounded", "unpaired-real",
    "f1", "confusion", "auc", "sums", "left-out",
]  # fmt: skip

Question = Literal["interval", "comparison"]
"""What a method estimates."""

Prior: TypeAlias = tuple[float, float] | float | str
"""Parameters of a Beta or Dirichlet prior, or the name of a prior."""

_SERVES: Mapping[Family, tuple[Kind, ...]] = {
    "binary": ("binary",),
    "bounded": ("binary", "bounded"),
    "bounded-attained": ("binary", "bounded"),
    "real": ("binary", "bounded", "real"),
    "resampling": ("binary", "bounded", "real"),
    "ratio": ("ratio",),
    "clustered": ("binary",),
    "clustered-sized": ("binary",),
    "clustered-bounded": ("binary", "bounded"),
    "clustered-real": ("binary", "bounded", "real"),
    "paired": ("binary",),
    "paired-mean": ("binary", "bounded", "real"),
    "unpaired": ("binary",),
    "unpaired-bounded": ("binary", "bounded"),
    "unpaired-real": ("binary", "bounded", "real"),
    "f1": ("f1",), "confusion": ("f1", "confusion"), "auc": ("auc",),
    "sums": ("f1", "confusion", "corpus"), "left-out": ("left-out",),
}  # fmt: skip
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
    prior: Prior | None = None
    """Argument ``prior`` of the function; None for a function that has none."""
    mass: float | None = None
    """The same for ``mass``: prior weight at each bound."""

    def serves(self, kind: Kind) -> bool:
        """Return whether the method applies to scores of this kind."""
        return kind in _SERVES[self.family]

    def load(self) -> Callable[..., Any]:
        """Import the function, and fix its prior or mass where it has one."""
        module, _, name = self.function.partition(":")
        try:
            function = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise PluginError(
                f"the function {self.function!r} of method {self.name!r} cannot be loaded: {error}"
            ) from error
        fixed = {"prior": self.prior, "mass": self.mass}
        return partial(function, **{name: x for name, x in fixed.items() if x is not None})


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
            raise PluginError(
                f"Two methods are called {method.name!r}: {table[method.name].function} and "
                f"{method.function}. Rename the one that a plugin adds."
            )
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
    listed = f"auto, {', '.join(table)}"
    for purpose, methods in elsewhere.items():
        if name in {method.name for method in methods}:
            raise SelectionError(
                f"Method {name!r} is for {purpose}, and does not apply here. Choose from: {listed}"
            )
    raise SelectionError(no_such("method", name, table, listed))

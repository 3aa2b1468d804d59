"""The table of methods, and the one place that picks a default and says why.

A method is a plain function named by ``"module:function"`` and loaded when it is used. What it
is called with depends on its family:

========== ==============================================================================
binary     ``f(successes, n, *, confidence_level)``, arrays of one length
bounded    ``f(scores, *, bounds, confidence_level)``, scores (cells, M), NaN where missing
real       ``f(scores, *, confidence_level)``
resampling ``f(scores, *, confidence_level, n_resamples, rng)``
ratio      ``f(numerator, denominator, *, confidence_level)``, both (cells, M)
clustered  ``f(totals, sizes, *, confidence_level)``, both (cells, C); -bounded, -real
paired     ``f(counts, *, confidence_level)``, a `PairedCounts` of any shape
========== ==============================================================================

and it answers ``Interval(low, high)``. A method whose question is a comparison is given the
differences of two models' scores, or of 0/1 scores the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal

from evalstats_plugin.errors import PluginError, SelectionError
from evalstats_plugin.wording import no_such

Kind = Literal["binary", "bounded", "real", "ratio"]
"""What the scores of one model on one task are like."""

Family = Literal[
    "binary", "bounded", "real", "resampling", "ratio",
    "clustered", "clustered-bounded", "clustered-real", "paired",
]  # fmt: skip

Question = Literal["interval", "comparison"]

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
        "paired": ("binary",),
    }
)


@dataclass(frozen=True, slots=True)
class Method:
    """One statistical method: what it is called, what it answers, and where it comes from."""

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
        """Whether the method can be used on scores of this kind."""
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


def _prior(a: float, b: float) -> Mapping[str, Any]:
    return MappingProxyType({"prior": (a, b)})


def _mass(mass: float) -> Mapping[str, Any]:
    return MappingProxyType({"mass": mass})


_BINOMIAL = "evalstats_plugin.stats.binomial:"
_BOUNDED = "evalstats_plugin.stats.bounded:"
_MEAN = "evalstats_plugin.stats.mean:"
_RATIO = "evalstats_plugin.stats.ratio:"
_BOOTSTRAP = "evalstats_plugin.stats.bootstrap:"

METHODS: tuple[Method, ...] = (
    Method(
        "beta-hpd", "binary", _BINOMIAL + "beta_hpd",
        "Beta posterior (prior 1, 1), shortest interval: always holds the estimate",
        "Bowyer et al. 2025", options=_prior(1.0, 1.0),
    ),
    Method(
        "beta", "binary", _BINOMIAL + "beta_equal_tailed",
        "Beta posterior (prior 1, 1), equal tails", "Bowyer et al. 2025", options=_prior(1.0, 1.0),
    ),
    Method(
        "jeffreys", "binary", _BINOMIAL + "jeffreys",
        "Beta posterior (prior ½, ½), equal tails, open at 0 and n",
        "Brown, Cai, DasGupta 2001",
    ),
    Method("wilson", "binary", _BINOMIAL + "wilson", "score interval", "Wilson 1927"),
    Method(
        "wilson-cc", "binary", _BINOMIAL + "wilson_cc",
        "score interval with continuity correction", "Newcombe 1998",
    ),
    Method(
        "clopper-pearson", "binary", _BINOMIAL + "clopper_pearson",
        "exact: never covers less than the level", "Clopper, Pearson 1934",
    ),
    Method(
        "mid-p", "binary", _BINOMIAL + "mid_p",
        "Clopper–Pearson with half of the observed outcome", "Newcombe 1998",
    ),
    Method(
        "agresti-coull", "binary", _BINOMIAL + "agresti_coull",
        "Wald after adding z²/2 successes and failures", "Agresti, Coull 1998",
    ),
    Method(
        "wald", "binary", _BINOMIAL + "wald",
        "estimate ± z standard errors; zero width at 0 and n: only to compare with",
        "Brown, Cai, DasGupta 2001",
    ),
    Method(
        "dp-jeffreys", "bounded", _BOUNDED + "dirichlet_process",
        "Dirichlet-process posterior of a bounded mean, mass ½ at each end",
        "Ferguson 1973; README, Methods", options=_mass(0.5),
    ),
    Method(
        "dp-uniform", "bounded", _BOUNDED + "dirichlet_process",
        "the same with mass 1 at each end: Beta(1, 1) on binary scores",
        "Ferguson 1973; README, Methods", options=_mass(1.0),
    ),
    Method(
        "gaffke", "bounded", _BOUNDED + "gaffke",
        "guarantee-style bound on a bounded mean; Clopper–Pearson on binary scores",
        "Gaffke 2005; Learned-Miller, Thomas 2019",
    ),
    Method(
        "logit-t", "bounded", _BOUNDED + "logit_t",
        "t interval on the logit scale", "README, Methods",
    ),
    Method("t", "real", _MEAN + "t_interval", "Student's t interval of a mean", "Student 1908"),
    Method(
        "z", "real", _MEAN + "z_interval",
        "mean ± z standard errors, the central limit theorem: only to compare with",
        "Miller 2024",
    ),
    Method(
        "percentile", "resampling", _BOOTSTRAP + "percentile",
        "percentile bootstrap", "Efron 1979",
    ),
    Method(
        "bca", "resampling", _BOOTSTRAP + "bca",
        "bias-corrected and accelerated bootstrap", "Efron 1987",
    ),
    Method(
        "bootstrap-t", "resampling", _BOOTSTRAP + "studentised",
        "studentised bootstrap", "Efron, Tibshirani 1993",
    ),
    Method(
        "jackknife-t", "ratio", _RATIO + "ratio_jackknife",
        "t interval of a ratio of sums, jackknife, effective number of items; "
        "perplexities on the log scale",
        "README, Methods",
    ),
    Method(
        "ratio-t", "ratio", _RATIO + "ratio_t",
        "the same by linearisation", "Cochran 1977, ch. 6",
    ),
)  # fmt: skip

CLUSTERED: tuple[Method, ...] = (
    Method(
        "betabinomial", "clustered", "evalstats_plugin.stats.beta_binomial:interval",
        "Beta-Binomial posterior, intra-cluster correlation ~ U(0, 1)",
        "Bowyer et al. 2025; README, Methods", options=MappingProxyType({"prior": "uniform-icc"}),
    ),
    Method(
        "betabinomial-gamma", "clustered", "evalstats_plugin.stats.beta_binomial:interval",
        "the same with the paper's prior, dispersion ~ Gamma(1, 1): strong clusters expected",
        "Bowyer et al. 2025", options=MappingProxyType({"prior": "gamma-dispersion"}),
    ),
    Method(
        "logit-t-cr1", "clustered-bounded", "evalstats_plugin.stats.clustered:logit_t_cr1",
        "t interval on the logit scale, clustered standard error",
        "Liang, Zeger 1986; Miller 2024",
    ),
    Method(
        "t-cr1", "clustered-real", "evalstats_plugin.stats.clustered:t_cr1",
        "t interval with clustered standard error", "Liang, Zeger 1986; Miller 2024",
    ),
)  # fmt: skip
"""For scores whose items come in clusters."""

DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            "beta-hpd",
            "coverage averaged over all true scores is exactly the level at every n, it always "
            "holds the estimate and is the shortest such interval",
        ),
        "bounded": (
            "dp-jeffreys",
            "of all that reach the level on average over six kinds of partial credit at n = 5 to "
            "200 it is the narrowest, and it is never of zero width",
        ),
        "real": (
            "t",
            "without bounds, skewed scores need many items whatever the method: the bootstrap "
            "covers less, its studentised form is twice as wide",
        ),
        "ratio": (
            "jackknife-t",
            "it keeps its level where a few long texts carry much of the weight",
        ),
    }
)
"""Method used for ``"auto"`` on each kind of score, and why (``make validate`` measures it)."""


CLUSTERED_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": (
            "betabinomial",
            "at the level from two clusters on, and narrower than the clustered t",
        ),
        "bounded": ("logit-t-cr1", "never of zero width, close to the level from 20 clusters on"),
        "real": ("t-cr1", "without bounds there is nothing better for few clusters"),
    }
)
"""The same, for items in clusters."""


def choose(
    kind: Kind,
    name: str,
    table: Mapping[str, Method],
    defaults: Mapping[Kind, tuple[str, str]] = DEFAULTS,
) -> Method:
    """Return the method for scores of a kind: the named one where it fits, else the default."""
    if name != "auto" and table[name].serves(kind):
        return table[name]
    return table[defaults[kind][0]]


def table_of(
    extra: Iterable[Method] = (), own: Iterable[Method] = (*METHODS, *CLUSTERED)
) -> dict[str, Method]:
    """Return our own methods for one question, and what others add, by name.

    Two of one name are an error.
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


def check_name(name: str, table: Mapping[str, Method]) -> None:
    """Raise `SelectionError`, with the closest names, for a method that does not exist."""
    if name == "auto" or name in table:
        return
    raise SelectionError(no_such("method", name, table, f"auto, {', '.join(table)}"))

"""Options that mean the same in every command that has them, and how intervals are computed.

Each function returns a field of a record of options, by the name that the option has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from evalstats_plugin.cli.shell import options
from evalstats_plugin.cli.shell.options import INTERVALS, OUTPUT, Name, Parsed, picked, under
from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.data.measure import Measure
    from evalstats_plugin.data.methods import Method
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.data.store import ResponseStore
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.scores import rows


Design = Literal["paired", "unpaired", "tasks", "sequential"]
Correction = Literal["simultaneous", "stepdown", "bh", "none"]
Family = Literal["auto", "task", "group", "run"]
Estimand = Literal["items", "clusters"]
ClustersAre = Literal["random", "fixed"]
Missing = Literal["drop", "bounds", "zero"]

DESIGNS, CORRECTIONS, FAMILIES, ESTIMANDS, CLUSTERS, MISSING = map(
    get_args, (Design, Correction, Family, Estimand, ClustersAre, Missing)
)
"""Values of `comparisons.compare`, `comparisons.design` and `scores.intervals`, which cost NumPy
and SciPy to import; a test compares."""

OF_ONE_SCORE = ("prior", "population", "estimand", "clusters")
"""Fields of `Intervals` that only the intervals of scores have."""

_analysis, _out = under(INTERVALS), under(OUTPUT)


def level() -> Any:
    """Return the field of the confidence level."""
    return _analysis(
        "Confidence level of the intervals, between 0 and 1.", "-c", default=0.95, metavar="LEVEL"
    )


def seed() -> Any:
    """Return the field of the random seed."""
    return _analysis("Random seed.", default=0, type=click.IntRange(min=0), metavar="N")


def quiet() -> Any:
    """Return the field of whether only results are printed."""
    return _out("Print only the results: no progress, no messages.", "-q", default=False)


def form(*more: str) -> Any:
    """Return the field of the form that results are printed in."""
    forms = click.Choice(["table", "json", "csv", "markdown", *more])
    return _out("Form of the results.", "--format", default="table", type=forms)


def file(text: str, *names: str, metavar: str = "FILE", **settings: Any) -> Any:
    """Return the field of a file that is written; its command also gets ``--overwrite``."""
    return _out(text, *names, metavar=metavar, type=click.Path(), writes=True, **settings)


def baseline(text: str = "Show the differences from this model.") -> Any:
    """Return the field of the model that others are compared with."""
    return _out(text, metavar="MODEL")


def correction(heading: str) -> Any:
    """Return the field of how several comparisons are allowed for."""
    return under(heading)(
        "How many pairs are allowed for. simultaneous: intervals and p-values that hold for all at "
        "once and agree; stepdown: finds a little more, by p-values; bh: screens many pairs for a "
        "small share of false findings; none: each pair alone.",
        default=CORRECTIONS[0], type=Name("correction", CORRECTIONS), metavar="NAME",
    )  # fmt: skip


def by(heading: str) -> Any:
    """Return the field of what makes slices of a task."""
    return under(heading)(
        "Slices of each task by this field of its items, such as language, tags or n_words:4 "
        "(quartiles of a number), or this setting of the runs, such as temperature; their limits "
        "hold together.",
        metavar="FIELD",
    )


def top(heading: str) -> Any:
    """Return the field of how many slices there are."""
    return under(heading)(
        "Of --by: this many of the largest slices of a task; the rest is one.",
        type=click.IntRange(min=1), metavar="N",
    )  # fmt: skip


def parse_bounds(text: str) -> tuple[str, tuple[float, float]]:
    """Read ``METRIC=LOW,HIGH``."""
    metric, equals, numbers = text.rpartition("=")
    example = f"--bounds {metric or 'rougeL'}=0,100"
    pair = options.parse_pair(numbers, f"--bounds {metric}:", example) if equals else None
    if pair is None or not pair[0] < pair[1]:
        raise SelectionError(
            f"--bounds {text!r} does not give a metric its lowest and highest score: write it like "
            "--bounds rougeL=0,100"
        )
    return metric, pair


def _complete_methods(ctx: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    from evalstats_plugin.comparisons.methods import PAIRED, UNPAIRED
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.scores.methods import INTERVALS as OF_SCORES

    own = (*PAIRED, *UNPAIRED) if ctx.info_name == "compare" else OF_SCORES
    names = dict.fromkeys((*load_plugins(()).methods(own), "auto"))
    return [name for name in names if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """How intervals are computed."""

    confidence_level: float = level()
    method: str = _analysis(
        "Interval method, used wherever it fits the scores; `plugins --methods` lists them.",
        default="auto", metavar="NAME", shell_complete=_complete_methods,
    )  # fmt: skip
    limits: tuple[tuple[str, tuple[float, float]], ...] = _analysis(
        "Lowest and highest possible score of a metric; may be repeated.",
        "--bounds", default=(), multiple=True, metavar="METRIC=LOW,HIGH", type=Parsed(parse_bounds),
    )  # fmt: skip
    seed: int = seed()
    prior: tuple[float, float] | None = _analysis(
        "Parameters of the Beta prior, for the methods that have one.",
        metavar="A,B", type=Parsed(options.parse_prior),
    )  # fmt: skip
    population: int | str | None = _analysis(
        "Number of items of the whole benchmark, where only a part was run: the intervals are for "
        "the score on the whole.",
        metavar="N|logged", type=Parsed(options.parse_population),
    )  # fmt: skip
    estimand: Estimand = _analysis(  # noqa: RUF009 - a field
        "Of items in clusters: the mean in which every item counts alike, or every cluster does.",
        default=ESTIMANDS[0], type=Name("estimand", ESTIMANDS), metavar="items|clusters",
    )  # fmt: skip
    clusters: ClustersAre = _analysis(  # noqa: RUF009 - a field
        "random: the interval is for new clusters like these; fixed: for new items of these very "
        "clusters.",
        default=CLUSTERS[0], type=Name("kind of clusters", CLUSTERS), metavar="random|fixed",
    )  # fmt: skip
    missing: Missing = _analysis(  # noqa: RUF009 - a field
        "Items without a score. drop: left out, and notes say what other scores of them would "
        "change; bounds: intervals hold whatever they would have been; zero: the worst score.",
        default=MISSING[0], type=Name("rule for missing scores", MISSING), metavar="NAME",
    )  # fmt: skip

    def measures(self, responses: ResponseSet | ResponseStore, *more: str) -> list[Measure]:
        """Return the scales of the metrics that are there, or that have one of `more` names.

        A file of defaults may name others, too.
        """
        from evalstats_plugin.data.measure import Measure, Scale
        from evalstats_plugin.data.store import ResponseStore

        is_store = isinstance(responses, ResponseStore)
        metrics_read = responses.metrics.tolist() if is_store else [r.metric for r in responses]
        metrics = {*more, *map(str, metrics_read)}
        given = [Measure(metric=name, scale=Scale(*limits)) for name, limits in self.limits]
        return [own for own in given if any(own.is_of("", metric) for metric in metrics)]

    def given(self, responses: ResponseSet | ResponseStore, *more: str) -> dict[str, Any]:
        """Return the level, scales and seed, as functions take them; `more` as of `measures`."""
        return {
            "confidence_level": self.confidence_level,
            "measure": self.measures(responses, *more),
            "rng": self.seed,
        }

    def how(self) -> dict[str, object]:
        """Return what is printed with results."""
        return picked(self, "confidence_level", "method", "seed")

    def chosen(self, plugins: Plugins, own: Sequence[Method]) -> Method | Literal["auto"]:
        """Return the method of this name.

        Raises
        ------
        SelectionError
            There is none for this question.
        """
        from evalstats_plugin.data.methods import check_name
        from evalstats_plugin.plugins import PURPOSES

        table = plugins.methods(own)
        check_name(self.method, table, PURPOSES)
        return table.get(self.method, "auto")

    def of(self, responses: ResponseSet, plugins: Plugins) -> rows.Intervals:
        """Return the intervals of every score."""
        from evalstats_plugin.scores.intervals import intervals
        from evalstats_plugin.scores.methods import INTERVALS as OF_SCORES

        return intervals(
            responses,
            method=self.chosen(plugins, OF_SCORES),
            **picked(self, "missing", *OF_ONE_SCORE),
            **self.given(responses),
        )

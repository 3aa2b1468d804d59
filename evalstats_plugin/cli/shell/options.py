"""Options that mean the same in every command."""
# PART sections - A command whose options are listed in groups, as its help would be too long to read else.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.scores.rows import Intervals


RUNS = ("latest", "all", "epochs", "error")
"""Values of `evalstats_plugin.data.runs.Runs`, which costs NumPy to import; a test compares."""


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


cluster = click.option(
    "--cluster",
    metavar="FIELD",
    help="Field of an item that says which items belong together, such as a passage's id.",
)


include_incomplete = click.option(
    "--include-incomplete",
    is_flag=True,
    help="Read cancelled and failed runs too, as far as they got.",
)


seed = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
    help="Of random numbers.",
)  # fmt: skip


derive = click.option(
    "--derive",
    metavar="METRIC",
    multiple=True,
    help="Also precision, recall, … of the labels that f1 or mcc was logged with; may be repeated.",
)


CORRECTIONS = ("holm", "bh", "maxt", "none")
"""Values of `evalstats_plugin.comparisons.design.Correction`; a test compares."""


at_k = click.option(
    "--at-k",
    metavar="NAME",
    multiple=True,
    help="Also of k takes of each item: pass@4 (one is right), pass^4 (all), maj@3 (most); may be "
    "repeated.",
)


form = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "markdown"]),
    default="table",
    show_default=True,
)


quiet = click.option("--quiet", "-q", is_flag=True, help="No progress, nothing but results.")


READING = {
    "What is read": (
        "task", "metric", "cluster", "include_incomplete", "runs", "skip_broken",
        "columns", "wide",
    ),
}  # fmt: skip
"""The section of `evalstats_plugin.cli.shell.options` of what is read, alike wherever there is one."""


def _chain(*options: Callable[[Any], Any]) -> Callable[[FunctionT], FunctionT]:
    def decorate(function: FunctionT) -> FunctionT:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _read_prior(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[float, float] | None:
    return parse_pair(text, "--prior")


def _read_bounds(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> Mapping[str, tuple[float, float]]:
    return parse_bounds(texts)


def _read_population(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> int | str | None:
    return parse_population(text)


def _read_columns(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> Mapping[str, list[str]]:
    return parse_columns(texts)


selection = _chain(
    click.option(
        "--task", "-t", metavar="NAME", multiple=True,
        help="Only this task or group; may hold * and ?; may be repeated.",
    ),
    click.option(
        "--metric", "-m", metavar="NAME", multiple=True,
        help='Only this metric, such as "acc" or "acc,none"; may be repeated.',
    ),
)  # fmt: skip


level_and_method = _chain(
    click.option(
        "--confidence-level", "-c", type=float, default=0.95, show_default=True,
        help="Of the intervals, between 0 and 1.",
    ),
    click.option(
        "--method", metavar="NAME", default="auto", show_default=True,
        help="Interval method wherever it fits the scores; `plugins --methods` lists them.",
    ),
    click.option(
        "--bounds", metavar="METRIC=LOW,HIGH", multiple=True,
        callback=_read_bounds,
        help="Least and greatest possible score of a metric; may be repeated.",
    ),
    seed,
)  # fmt: skip


analysis = _chain(
    level_and_method,
    click.option(
        "--prior", metavar="A,B", callback=_read_prior,
        help="Beta prior of the methods that have one.",
    ),
    click.option(
        "--population", metavar="N|logged", callback=_read_population,
        help="Items in the whole benchmark, when only a part was run: intervals for the whole.",
    ),
)  # fmt: skip


saving = _chain(
    click.option(
        "--control-variate", is_flag=True,
        help="Models that ran a part of what others took: intervals for all of it, by how hard "
        "the others found each item.",
    ),
    click.option(
        "--judge", metavar="METRIC",
        help="Metric of a judge that scored all items, with --human or --labels.",
    ),
    click.option(
        "--human", metavar="METRIC", help="Metric of human labels, which few items have."
    ),
    click.option(
        "--labels", metavar="FILE",
        help="Human labels from a CSV or JSONL file with the fields item and score.",
    ),
)  # fmt: skip


tables = _chain(
    click.option(
        "--columns", metavar="PART=COLUMN,...", multiple=True, callback=_read_columns,
        help="Tables (CSV, TSV, JSONL, Parquet): which column is what, where its name does not "
        "tell, such as item=question_id,score=correct; several scores are metrics.",
    ),
    click.option(
        "--wide", type=click.Choice(["models", "items"]), default=None,
        help="Tables are matrices of scores, with a row for each of these.",
    ),
)  # fmt: skip


reading = _chain(
    selection,
    cluster,
    include_incomplete,
    tables,
    click.option(
        "--runs", type=click.Choice(RUNS), default="latest", show_default=True,
        help="Several runs of one model on one task: take the latest, each, all as epochs, or "
        "refuse.",
    ),
    click.option("--skip-broken", is_flag=True, help="Go on without logs that cannot be read."),
)  # fmt: skip


comparison = _chain(
    click.option(
        "--unpaired", is_flag=True, help="Take the models' scores as samples of items of their own."
    ),
    click.option(
        "--across-tasks", is_flag=True,
        help="One comparison over all tasks, which count as drawn from many such.",
    ),
    click.option(
        "--sequential", is_flag=True,
        help="Valid however often you look while items come in, and whenever you stop.",
    ),
    click.option(
        "--correction", type=click.Choice(CORRECTIONS), default="holm", show_default=True,
        help="For many pairs: holm and maxt let hardly any false finding through, bh only a few.",
    ),
)  # fmt: skip


def design_of(chosen: Mapping[str, Any]) -> Literal["paired", "unpaired", "tasks", "sequential"]:
    """Return the one design of a comparison that the flags ask for."""
    given = [name for name in ("unpaired", "across_tasks", "sequential") if chosen[name]]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        msg = f"{names} found, which do not go together: pass one of them"
        raise SelectionError(msg)
    if chosen["unpaired"]:
        return "unpaired"
    if chosen["across_tasks"]:
        return "tasks"
    return "sequential" if chosen["sequential"] else "paired"


def parse_pair(text: str | None, option: str) -> tuple[float, float] | None:
    """Read ``A,B``."""
    if text is None:
        return None
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        msg = f"{option} {text!r} found, expected two numbers such as 1,1"
        raise SelectionError(msg) from None
    return first, second


def parse_bounds(texts: tuple[str, ...]) -> Mapping[str, tuple[float, float]]:
    """Read ``METRIC=LOW,HIGH``."""
    bounds: dict[str, tuple[float, float]] = {}
    for text in texts:
        metric, equals, numbers = text.rpartition("=")
        pair = parse_pair(numbers, "--bounds") if equals else None
        if pair is None or pair[0] >= pair[1]:
            msg = f"--bounds {text!r} found, expected METRIC=LOW,HIGH such as rougeL=0,100"
            raise SelectionError(msg)
        bounds[metric] = pair
    return bounds


def parse_columns(texts: tuple[str, ...]) -> dict[str, list[str]]:
    """Read ``PART=COLUMN,...``: the columns of each part."""
    columns: dict[str, list[str]] = {}
    for pair in (pair for text in texts for pair in text.split(",")):
        part, equals, name = pair.partition("=")
        if not (equals and part.strip() and name.strip()):
            msg = (
                f"--columns {pair!r} found, expected PART=COLUMN such as item=question_id,"
                "score=correct (a column with a comma in its name has to be renamed)"
            )
            raise SelectionError(msg)
        columns.setdefault(part.strip(), []).append(name.strip())
    return columns


def parse_population(text: str | None) -> int | str | None:
    """Read a number of items, or ``logged``."""
    if text is None or text == "logged":
        return text
    if not text.isdigit() or int(text) == 0:
        msg = f"--population {text!r} found, expected a number of items or 'logged'"
        raise SelectionError(msg)
    return int(text)


class Sectioned(click.Command):
    """Shows options under headings; those of none come last, as ever."""

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options for each heading."""
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and (record := param.get_help_record(ctx)) is not None
        }
        for heading, names in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(name) for name in names])
        if records:
            with formatter.section("Options"):
                formatter.write_dl(list(records.values()))


def analyse(responses: ResponseSet, chosen: Mapping[str, Any], plugins: Plugins) -> Intervals:
    """Run the interval analysis as the options say."""
    from evalstats_plugin.data.methods import check_name
    from evalstats_plugin.plugins import PURPOSES
    from evalstats_plugin.scores.intervals import intervals

    if chosen.get("derive"):
        from evalstats_plugin.scores.metrics import with_derived

        responses = replace(responses, responses=with_derived(responses, chosen["derive"]))
    table = plugins.methods()
    check_name(chosen["method"], table, PURPOSES)
    name = chosen["method"]
    return intervals(
        responses,
        confidence_level=chosen["confidence_level"],
        method=name if name == "auto" else table[name],
        prior=chosen["prior"],
        bounds=chosen["bounds"],
        population=chosen["population"],
        rng=chosen["seed"],
    )

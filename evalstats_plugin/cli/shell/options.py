"""Options that mean the same in every command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    help="Field that groups items into clusters, such as a passage's id.",
)

include_incomplete = click.option(
    "--include-incomplete",
    is_flag=True,
    help="Also read cancelled and failed runs, as far as they got.",
)

seed = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
    help="Random seed.",
)  # fmt: skip

derive = click.option(
    "--derive",
    metavar="METRIC",
    multiple=True,
    help="Also report precision, recall, … from the labels that f1 or mcc was "
    "logged with; may be repeated.",
)

CORRECTIONS = ("holm", "bh", "maxt", "none")
"""Values of `evalstats_plugin.comparisons.design.Correction`; a test compares."""

at_k = click.option(
    "--at-k",
    metavar="NAME",
    multiple=True,
    help="Also report pass@4 (at least one of 4 epochs right), pass^4 (all), maj@3 "
    "(majority) and the like; may be repeated.",
)

form = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "markdown"]),
    default="table",
    show_default=True,
)

quiet = click.option("--quiet", "-q", is_flag=True, help="Print results only, no progress.")

READING = {
    "What is read": (
        "task", "metric", "cluster", "include_incomplete", "runs", "skip_broken",
        "columns", "wide",
    ),
}  # fmt: skip
"""Help section of the options of what is read, the same in every command."""

confidence_level = click.option(
    "--confidence-level", "-c", type=float, default=0.95, show_default=True,
    help="Confidence level of the intervals, between 0 and 1.",
)  # fmt: skip


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

bounds = click.option(
    "--bounds", metavar="METRIC=LOW,HIGH", multiple=True, callback=_read_bounds,
    help="Lowest and highest possible score of a metric; may be repeated.",
)  # fmt: skip

level_and_method = _chain(
    confidence_level,
    click.option(
        "--method", metavar="NAME", default="auto", show_default=True,
        help="Interval method wherever it fits the scores; `plugins --methods` lists them.",
    ),
    bounds,
    seed,
)  # fmt: skip

analysis = _chain(
    level_and_method,
    click.option(
        "--prior", metavar="A,B", callback=_read_prior,
        help="Beta prior, for the methods that have one.",
    ),
    click.option(
        "--population", metavar="N|logged", callback=_read_population,
        help="Number of items in the whole benchmark if only a part was run: intervals "
        "for the whole.",
    ),
)  # fmt: skip

tables = _chain(
    click.option(
        "--columns", metavar="PART=COLUMN,...", multiple=True, callback=_read_columns,
        help="Tables (CSV, TSV, JSONL, Parquet): the column of each part, such as "
        "item=question_id,score=correct; several score columns are metrics.",
    ),
    click.option(
        "--wide", type=click.Choice(["models", "items"]), default=None,
        help="The table is a matrix of scores with one row per model or per item.",
    ),
)  # fmt: skip

reading = _chain(
    selection,
    cluster,
    include_incomplete,
    tables,
    click.option(
        "--runs", type=click.Choice(RUNS), default="latest", show_default=True,
        help="Several runs of one model on one task: use the latest, all, all as "
        "epochs, or fail.",
    ),
    click.option("--skip-broken", is_flag=True, help="Skip logs that cannot be read."),
)  # fmt: skip

comparison = _chain(
    click.option(
        "--unpaired", is_flag=True, help="Unpaired: treat the models' items as independent samples."
    ),
    click.option(
        "--across-tasks", is_flag=True,
        help="One comparison over all tasks, with the tasks as random units.",
    ),
    click.option(
        "--sequential", is_flag=True,
        help="Anytime-valid: valid however often you look and whenever you stop.",
    ),
    click.option(
        "--correction", type=click.Choice(CORRECTIONS), default="holm", show_default=True,
        help="Multiplicity correction over pairs: holm and maxt control the "
        "family-wise error rate, bh the false discovery rate.",
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
    found: dict[str, tuple[float, float]] = {}
    for text in texts:
        metric, equals, numbers = text.rpartition("=")
        pair = parse_pair(numbers, "--bounds") if equals else None
        if pair is None or pair[0] >= pair[1]:
            msg = f"--bounds {text!r} found, expected METRIC=LOW,HIGH such as rougeL=0,100"
            raise SelectionError(msg)
        found[metric] = pair
    return found


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

"""The border to click: command classes, records of options, and options that commands share.

The options of a command are the fields of a frozen record, and what it shares with other commands
are records too; the type of a field decides the type of its option::

    @dataclass(frozen=True, kw_only=True)
    class Options:
        derive: tuple[str, ...] = under("More scores")("Also report …", metavar="METRIC")

    @click.command(cls=Command)
    @paths
    @takes("asked", Options)
    @takes("reading", Reading)
    @click.pass_context
    def report(ctx, paths, *, asked: Options, reading: Reading): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import click
from click.shell_completion import CompletionItem

from evalstats_plugin.errors import SelectionError, no_such

if TYPE_CHECKING:
    from evalstats_plugin.data.methods import Method
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.scores import rows

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

Design = Literal["paired", "unpaired", "tasks", "sequential"]

Correction = Literal["simultaneous", "stepdown", "bh", "none"]

Family = Literal["auto", "task", "group", "run"]

DESIGNS = ("paired", "unpaired", "tasks", "sequential")
"""Names of `evalstats_plugin.comparisons.compare`, which costs NumPy to import; a test compares."""

CORRECTIONS = ("simultaneous", "stepdown", "bh", "none")
"""Values of `evalstats_plugin.comparisons.design.Correction`; a test compares."""

FAMILIES = ("auto", "task", "group", "run")
"""Values of `evalstats_plugin.comparisons.design.Family`; a test compares."""

Sections = Mapping[str, Mapping[str, tuple[str, str]]]
"""By heading and name of a command: its function (``"module:function"``) and its summary."""


class LazyGroup(click.Group):
    """Lists commands without importing them, and corrects their names."""

    def __init__(self, *args: Any, sections: Sections | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._sections: Sections = sections or {}

    def sections(self, ctx: click.Context) -> Sections:  # noqa: ARG002 - others look at it
        """Return the commands there are, by heading."""
        return self._sections

    def _offers(self, ctx: click.Context) -> dict[str, tuple[str, str]]:
        return {name: offer for part in self.sections(ctx).values() for name, offer in part.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order that help shows them."""
        return list(self._offers(ctx))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is none of this name."""
        offer = self._offers(ctx).get(cmd_name)
        if offer is None:
            return None
        module, _, name = offer[0].partition(":")
        return getattr(import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of commands for each heading, all of them aligned."""
        widest = max(map(len, self._offers(ctx)), default=0)
        for heading, part in self.sections(ctx).items():
            with formatter.section(heading):
                formatter.write_dl([(n.ljust(widest), text) for n, (_, text) in part.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Offer the commands without importing them."""
        offered: list[CompletionItem[str]] = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in self._offers(ctx).items()
            if name.startswith(incomplete)
        ]
        return offered + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, and what files set its options to."""
        names = self.list_commands(ctx)
        if args[0] not in names and args[0][:1] != "-" and not ctx.resilient_parsing:
            raise click.UsageError(no_such("command", args[0], names, ", ".join(names)), ctx)
        name, command, rest = super().resolve_command(ctx, args)
        runs = not (ctx.resilient_parsing or {"-h", "--help"} & set(rest))
        if name is None or command is None or isinstance(command, click.Group) or not runs:
            return name, command, rest
        if not ctx.find_root().params.get("no_config"):
            from evalstats_plugin.cli.shell.defaults import take_defaults

            take_defaults(ctx, name, command, quiet=bool({"-q", "--quiet"} & set(rest)))
        return name, command, rest


class Option(click.Option):
    """An option that help lists under a heading."""

    def __init__(self, *args: Any, heading: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.heading = heading


class Command(click.Command):
    """Lists its options under their headings, in the order of the first of each."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options for each heading."""
        parts: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                parts.setdefault(getattr(param, "heading", OUTPUT), []).append(record)
        for heading, records in parts.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class Name(click.Choice[str]):
    """One of some names, completed in shells and corrected in messages."""

    def __init__(self, what: str, names: Iterable[str]) -> None:
        super().__init__(list(names))
        self.what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - as click calls it
        """Return the name.

        Raises
        ------
        SelectionError
            There is no such name; the message lists those there are.
        """
        if value not in self.choices:
            names = list(map(str, self.choices))
            raise SelectionError(no_such(self.what, value, names, ", ".join(names)))
        return value


class Parsed(click.ParamType[Any]):
    """A value that a function makes of a text; its errors are the user's."""

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self.name = parse.__name__
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002 - as click calls it
        """Return the value."""
        return self.parse(value) if isinstance(value, str) else value


def under(heading: str) -> Callable[..., Any]:
    """Return what makes fields of options that help lists under a heading."""
    return partial(_option, heading)


def _option(heading: str, text: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """Return a field of a record of options.

    Parameters
    ----------
    text
        Help.
    names
        Besides that of the field: a short one, or all of them.
    settings
        Those of click's option.
    """
    about = {"heading": heading, "help": text, "names": names, **settings}
    if settings.get("required"):
        return field(metadata=about) if default is None else field(default=default, metadata=about)
    return field(default=default, metadata={"default": default, **about})


def takes(
    name: str,
    record: type,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    **changed: Mapping[str, Any],
) -> Decorator:
    """Add the options of a record to a command, which gets the record by keyword `name`.

    Parameters
    ----------
    only, without
        Fields that this command has options for, or has not; others keep their default.
    changed
        Other settings of click's option, by field.
    """
    own = [f for f in fields(record) if (not only or f.name in only) and f.name not in without]
    own.sort(key=lambda f: f.name not in record.__annotations__)  # inherited ones last

    def decorate(function: FunctionT) -> FunctionT:
        @wraps(function)
        def run(*args: Any, **chosen: Any) -> Any:
            given = {f.name: chosen.pop(f.name) for f in own}
            return function(*args, **{name: record(**given)}, **chosen)

        decorated: Any = run
        for f in reversed(own):
            settings = {**_TYPES.get(str(f.type).removesuffix(" | None"), {}), **f.metadata}
            settings |= changed.get(f.name, {})
            names = settings.pop("names")
            if not any(n.startswith("--") for n in names):
                names = (f"--{f.name.replace('_', '-')}", *names)
            default = settings.get("default")
            settings.setdefault("show_default", default is not False and default not in _EMPTY)
            decorated = click.option(*names, f.name, cls=Option, **settings)(decorated)
        return decorated

    return decorate


_EMPTY = (None, (), "")
"""Defaults that help does not show."""

_TYPES: Mapping[str, Mapping[str, Any]] = {
    "bool": {"is_flag": True},
    "float": {"type": float},
    "int": {"type": int},
    "tuple[str, ...]": {"multiple": True},
}
"""Settings of click's option by the type of the field."""


class Decorator(Protocol):
    """Adds options to a command."""

    def __call__(self, function: FunctionT, /) -> FunctionT:
        """Return the function with them."""
        ...


paths = click.argument("paths", nargs=-1, required=True, metavar="PATHS...", type=click.Path())

INTERVALS, OUTPUT, READ = "Intervals and seed", "Output", "What is read"
_analysis, _out = under(INTERVALS), under(OUTPUT)
POSITIVE = click.IntRange(min=1)


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
    return _out("Print the results alone: no progress, no messages.", "-q", default=False)


def form(default: str = "table") -> Any:
    """Return the field of the form that results are printed in."""
    forms = click.Choice(["table", "json", "csv", "markdown"])
    return _out("Form of the results.", "--format", default=default, type=forms)


def file(text: str, *names: str, metavar: str = "FILE", **settings: Any) -> Any:
    """Return the field of a file that is written."""
    return _out(text, *names, metavar=metavar, type=click.Path(), **settings)


def baseline(text: str = "Show the differences from this model.") -> Any:
    """Return the field of the model that others are compared with."""
    return _out(text, metavar="MODEL")


def device() -> Any:
    """Return the field of where to compute."""
    where = click.Choice(["auto", "cpu", "cuda"])
    return _analysis("Where to compute; auto: on CUDA if there is one.", default="auto", type=where)


def correction(heading: str) -> Any:
    """Return the field of how several comparisons are allowed for."""
    return under(heading)(
        "How many pairs are allowed for. simultaneous: intervals and p-values that hold for all at "
        "once and agree; stepdown: finds a little more, by p-values; bh: screens many pairs for a "
        "small share of false findings; none: each pair alone.",
        default=CORRECTIONS[0], type=Name("correction", CORRECTIONS), metavar="NAME",
    )  # fmt: skip


def family(heading: str) -> Any:
    """Return the field of which comparisons are corrected together."""
    return under(heading)(
        "What is corrected together. task: the pairs of a task; group: a group of the harness with "
        "its tasks; run: all tasks of a metric; auto: groups, and all tasks that are in none.",
        default=FAMILIES[0], type=Name("family", FAMILIES), metavar="NAME",
    )  # fmt: skip


def parse_pair(text: str, option: str = "--prior") -> tuple[float, float]:
    """Read ``A,B``."""
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        msg = f"{option} {text!r} is not two numbers: write it like {option} 1,1"
        raise SelectionError(msg) from None
    return first, second


def parse_bounds(text: str) -> tuple[str, tuple[float, float]]:
    """Read ``METRIC=LOW,HIGH``."""
    metric, equals, numbers = text.rpartition("=")
    pair = parse_pair(numbers, "--bounds") if equals else None
    if pair is None or pair[0] >= pair[1]:
        msg = (
            f"--bounds {text!r} does not give a metric its lowest and highest score: write it like "
            "--bounds rougeL=0,100"
        )
        raise SelectionError(msg)
    return metric, pair


def parse_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``PART=COLUMN,...``: pairs of a part and its column."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    for part, equals, name in pairs:
        if not (equals and part.strip() and name.strip()):
            msg = (
                f"--columns {part + equals + name!r} does not name a part and its column: write it "
                "like --columns item=question_id,score=correct (rename columns with a comma in "
                "their name)"
            )
            raise SelectionError(msg)
    return tuple((part.strip(), name.strip()) for part, _, name in pairs)


def parse_population(text: str) -> int | str:
    """Read a number of items, or ``logged``."""
    if text == "logged":
        return text
    if not text.isdigit() or int(text) == 0:
        msg = f"--population {text!r} is not a number of items: give one, or 'logged'"
        raise SelectionError(msg)
    return int(text)


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
        metavar="A,B", type=Parsed(parse_pair),
    )  # fmt: skip
    population: int | str | None = _analysis(
        "Number of items of the whole benchmark, where only a part was run: the intervals are for "
        "the score on the whole.",
        metavar="N|logged", type=Parsed(parse_population),
    )  # fmt: skip

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """Return the lowest and highest possible score, by metric."""
        return dict(self.limits)

    def how(self) -> dict[str, object]:
        """Return what is printed with results."""
        return {
            "confidence_level": self.confidence_level, "method": self.method, "seed": self.seed
        }  # fmt: skip

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
            confidence_level=self.confidence_level,
            method=self.chosen(plugins, OF_SCORES),
            prior=self.prior,
            bounds=self.bounds,
            population=self.population,
            rng=self.seed,
        )

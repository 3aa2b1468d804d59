"""The border to click: command classes, records of options, and options that commands share.

The options of a command are the fields of a frozen record, and what it shares with other commands
are records too; the type of a field decides the type of its option::

    @dataclass(frozen=True, kw_only=True)
    class ReportOptions:
        derive: tuple[str, ...] = under("More scores")("Also report …", metavar="METRIC")

    @command()
    @paths
    @takes("asked", ReportOptions)
    @takes("reading", Reading)
    @click.pass_context
    def report(ctx, paths, *, asked: ReportOptions, reading: Reading): ...
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, cast

import click
from click.shell_completion import CompletionItem

from evalstats_plugin.errors import EvalStatsError, SelectionError, check_known, no_such
from evalstats_plugin.runtime.untrusted import echo, echo_message

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


Sections = Mapping[str, Mapping[str, tuple[str, str]]]
"""By heading and name of a command: its function (``"module:function"``) and its summary."""


_TYPES: Mapping[str, Mapping[str, Any]] = {
    "bool": {"is_flag": True},
    "float": {"type": float},
    "int": {"type": int},
    "tuple[str, ...]": {"multiple": True},
}
"""Settings of click's option by the type of the field."""


paths = click.argument("paths", nargs=-1, required=True, metavar="PATHS...", type=click.Path())


INTERVALS, OUTPUT, READ = "Confidence intervals", "Output", "Input"


ALL = "evalstats-plugin.help-all"
"""Whether a context's help lists every option."""


ARGUMENTS = "evalstats-plugin.arguments"
"""What was typed after the command's name, in a context."""


MOST_LISTED = 14
"""Options of a command up to which its help lists all of them."""


SELDOM = frozenset((
    "at-k", "bounds", "clusters", "columns", "correction", "estimand", "family",
    "include-incomplete", "mapping", "memory", "method", "missing", "missing-code", "model-name",
    "overwrite", "population", "prior", "probabilities", "quiet", "runs", "seed", "skip-broken",
    "top", "wide",
))  # fmt: skip
"""Options that the short help leaves out."""


POSITIVE = click.IntRange(min=1)


TABLE = "tool.evalstats-plugin"


USER_FILE = "evalstats-plugin.toml"


SHARED = (
    "bounds", "cluster", "confidence-level", "format", "include-incomplete", "quiet", "runs",
    "seed", "skip-broken",
)  # fmt: skip
"""Options that mean the same in every command that has them; all others belong to a command."""


OF_PROJECTS = frozenset((
    "at-k", "balance", "baseline", "batch", "bootstrap", "bootstrap-iters", "bounds", "by",
    "certainty", "chains", "cluster", "clusters", "columns", "confidence-level", "control-variate",
    "correction", "derive", "design", "design-effect", "device", "difference", "dimensions",
    "discordance", "draws", "epochs", "estimand", "estimator", "family", "figure",
    "focal", "format", "goal", "human", "include-incomplete", "inference", "item-model",
    "judge", "mask", "max-items", "max-seconds", "method", "methods", "metric", "missing",
    "misspecified", "models", "n-models", "over", "pairs", "population", "power", "prior",
    "prior-sd", "reliability", "rule", "runs", "scale", "score-width",
    "seed", "skip-broken", "stop-at", "task", "test-metric", "through", "ties", "top", "variances",
    "warm-up", "wide",
))  # fmt: skip
"""Options that a project's file may set: what is read, computed and shown."""


def offers(module: str = "", /, **summaries: str) -> dict[str, tuple[str, str]]:
    """Return the function and the summary of each command of a module under ``cli``.

    Without a module each command is in the module of its own name. A command has the name of its
    function, with hyphens.
    """
    return {
        name.replace("_", "-"): (f"evalstats_plugin.cli.{module or name}:{name}", text)
        for name, text in summaries.items()
    }


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
        return offer and resolve_name(offer[0])

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
            raise click.UsageError(no_such("command", args[0], names), ctx)
        name, command, rest = super().resolve_command(ctx, args)
        runs = not (ctx.resilient_parsing or {"-h", "--help"} & set(rest))
        if name is None or command is None or isinstance(command, click.Group) or not runs:
            return name, command, rest
        if not ctx.find_root().params.get("no_config"):
            take_defaults(ctx, name, command, quiet=bool({"-q", "--quiet"} & set(rest)))
        return name, command, rest


class Option(click.Option):
    """An option that help lists under a heading."""

    def __init__(self, *args: Any, heading: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.heading = heading


class Command(click.Command):
    """Lists its options under their headings, in the order of the first of each.

    Parameters
    ----------
    examples
        Arguments as one types them, with what they are for: the last lines of the help.
    """

    def __init__(
        self, *args: Any, examples: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.examples = examples or {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; where some are seldom needed, also what shows them."""
        params = super().get_params(ctx)
        # The help option is the last.
        return [*params[:-1], _HELP_ALL, params[-1]] if self._seldom(params) else params

    @staticmethod
    def _seldom(params: Sequence[click.Parameter]) -> list[click.Parameter]:
        """Return the options that the short help leaves out."""
        few = len(params) <= MOST_LISTED
        return [] if few else [p for p in params if SELDOM & {o.lstrip("-") for o in p.opts}]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options for each heading, and the examples."""
        params = self.get_params(ctx)
        left_out = [] if ctx.meta.get(ALL) else self._seldom(params)
        parts: dict[str, list[tuple[str, str]]] = {}
        for param in params:
            if param in left_out or not isinstance(param, click.Option):
                continue
            if (record := param.get_help_record(ctx)) is not None:
                parts.setdefault(getattr(param, "heading", OUTPUT), []).append(record)
        for heading, records in parts.items():
            with formatter.section(heading):
                formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{len(left_out)} more options: --help-all")
        if self.examples:
            with formatter.section("Examples"):
                for arguments, purpose in self.examples.items():
                    formatter.write_text(f"{purpose}:")
                    formatter.write(f"{'':{formatter.current_indent + 2}}{ctx.command_path} ")
                    formatter.write(f"{arguments}\n")

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function, with the records that `takes` gave it in place of their options."""
        given = dict(ctx.params)
        records: Mapping[str, Any] = getattr(self.callback, "__records__", {})
        for name, (record, options) in records.items():
            given[name] = record(**{option: given.pop(option) for option in options})
        return ctx.invoke(cast("Function", self.callback), **given)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; for an option that does not exist the message names the closest one."""
        ctx.meta[ARGUMENTS] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            option_names = [
                name for p in self.get_params(ctx) for name in p.opts if name[:2] == "--"
            ]
            close = get_close_matches(error.option_name, option_names, n=1, cutoff=0.5)
            raise click.NoSuchOption(error.option_name, possibilities=close, ctx=ctx) from error


def _show_all(ctx: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - as click calls it
    if value and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all,
    help="Show every option and exit.",
)  # fmt: skip


class Deciding(Command):
    """A command that takes no option from files: others may have written those of a project."""


def command(
    *examples: tuple[str, str], name: str | None = None, cls: type[Command] = Command
) -> Callable[[Function], Command]:
    """Return a decorator that makes a command of a function, and ends its help with examples.

    Parameters
    ----------
    examples
        Arguments as one types them, and what they are for.
    name
        Name of the command; by default that of the function.
    """
    return click.command(name, cls=cls, examples=dict(examples))


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
        check_known(self.what, value, list(map(str, self.choices)))
        return value


class Parsed(click.ParamType[Any]):
    """A value that a function parses from a text; its errors are the user's."""

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self.name = getattr(parse, "__name__", "value")
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002 - as click calls it
        """Return the value."""
        return self.parse(value) if isinstance(value, str) else value


def under(heading: str) -> Function:
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
    made: Function | None = None,
    **changed: Mapping[str, Any],
) -> Decorator:
    """Add the options of a record to a command, which gets the record by keyword `name`.

    Parameters
    ----------
    only, without
        Fields that this command has options for, or has not; others keep their default.
    made
        Function that makes the record, where it is not the class itself.
    changed
        Other settings of click's option, by field.
    """
    own = [f for f in fields(record) if (not only or f.name in only) and f.name not in without]
    own.sort(key=lambda f: f.name not in record.__annotations__)  # inherited ones last

    def decorate(function: Function) -> Function:
        decorated: Any = function
        records: Mapping[str, Any] = getattr(function, "__records__", {})
        decorated.__records__ = {name: (made or record, [f.name for f in own]), **records}
        parameters: Sequence[click.Parameter] = getattr(function, "__click_params__", ())
        writes = any(f.metadata.get("writes") for f in own)
        if writes and "overwrite" not in {p.name for p in parameters}:
            decorated = overwrite(function)
        for f in reversed(own):
            settings = {**_TYPES.get(str(f.type).removesuffix(" | None"), {}), **f.metadata}
            settings |= changed.get(f.name, {})
            names = settings.pop("names")
            settings.pop("writes", None)
            if not any(n.startswith("--") for n in names):
                names = (f"--{f.name.replace('_', '-')}", *names)
            default = settings.get("default")
            is_shown = default is not False and default not in (None, (), "")
            settings.setdefault("show_default", is_shown)
            decorated = click.option(*names, f.name, cls=Option, **settings)(decorated)
        return decorated

    return decorate


def picked(asked: object, *names: str) -> dict[str, Any]:
    """Return options of a record by name, where a function takes them by the same names."""
    return {name: getattr(asked, name) for name in names}


def overwrite(function: Function) -> Function:
    """Add ``--overwrite``: without it the command replaces no file that it did not read."""
    return click.option(
        "--overwrite", is_flag=True, help="Replace files that exist.", expose_value=False,
        callback=_overwriting, cls=Option, heading=OUTPUT,
    )(function)  # fmt: skip


def _overwriting(ctx: click.Context, _option: click.Parameter, allowed: bool) -> None:  # noqa: FBT001 - as click calls it
    from evalstats_plugin.runtime.writing import overwriting

    ctx.with_resource(overwriting(allowed=allowed))


def parse_dimensions(text: str) -> int | str:
    """Read a number of dimensions, or ``auto``."""
    return _number_or(text, "auto", "dimensions")


def parse_population(text: str) -> int | str:
    """Read a number of items, or ``logged``."""
    return _number_or(text, "logged", "items", "population")


def _number_or(text: str, word: str, things: str, option: str = "") -> int | str:
    if text == word:
        return text
    number = count_in(text)
    if number is None:
        what = f"--{option or things} {text!r} is not a number of {things}"
        raise SelectionError(f"{what}: give one, or {word!r}")
    return number


def count_in(text: str) -> int | None:
    """Return the whole number above 0 that a text stands for; None for another text.

    >>> count_in("25"), count_in("0"), count_in("2.5"), count_in("²")
    (25, None, None, None)
    """
    return (int(text) or None) if re.fullmatch("[0-9]{1,18}", text) else None


def parse_prior(text: str) -> tuple[float, float]:
    """Read ``A,B``, both above 0."""
    prior = parse_pair(text, "--prior", "--prior 1,1")
    if not all(0 < parameter < float("inf") for parameter in prior):
        msg = f"--prior {text!r} is not two numbers above 0: write it like --prior 1,1"
        raise SelectionError(msg)
    return prior


def parse_pair(text: str, option: str, example: str) -> tuple[float, float]:
    """Read ``A,B``."""
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        msg = f"{option} {text!r} is not two numbers: write it like {example}"
        raise SelectionError(msg) from None
    return first, second


def parse_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``PART=COLUMN,...``: pairs of a part and its column."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    for part, equals, name in pairs:
        if not (equals and part.strip() and name.strip()):
            raise SelectionError(
                f"--columns {part + equals + name!r} does not name a part and its column: write it "
                "like --columns item=question_id,score=correct (rename columns with a comma in "
                "their name)"
            )
    return tuple((part.strip(), name.strip()) for part, _, name in pairs)


class _Table(NamedTuple):
    """One table of options, and where it was read."""

    path: Path
    heading: str
    values: Mapping[str, Any]
    of_user: bool
    """Whether the file is the user's own, not a project's."""

    def inner(self, name: str) -> _Table:
        """Return the table of one command; empty if there is none."""
        heading = f"{self.heading}.{name}".lstrip(".")
        return _Table(self.path, heading, self.values.get(name, {}), self.of_user)

    def check_allowed(self, option: str) -> None:
        """Refuse what only the command line and the user's own file may set."""
        if not self.of_user and option not in OF_PROJECTS:
            raise self.refused(
                f"{option} cannot be set by a project, whose files others may have written. Give "
                f"--{option} on the command line, or set it in ~/.config/{USER_FILE}"
            )

    def refused(self, problem: str) -> SelectionError:
        """Return the error that says where the problem is."""
        return SelectionError(f"{self.path}: {f'[{self.heading}]: ' * bool(self.heading)}{problem}")


def take_defaults(ctx: click.Context, name: str, command: click.Command, *, quiet: bool) -> None:
    """Give a command, which comes next, click's default map; print what it used when it is done.

    Errors are those of `defaults_for`.
    """
    if isinstance(command, Deciding):
        with suppress(EvalStatsError):
            every = list(defaults_for(ctx, name, command, Path.cwd(), quiet=True))
            if every and not quiet:
                words = _in_words({key: (value, path) for key, value, path in every})
                echo_message("note", f"{name} takes no defaults from files; not used: {words}")
        return
    used: dict[str, tuple[Any, Path]] = {}

    def use(key: str, value: Any, path: Path) -> Any:
        used[key] = (value, path)
        return value

    options = options_of(command)
    # Click calls it where the command line does not have the option.
    defaults = {
        options[key].name: partial(use, key, value, path)
        for key, value, path in defaults_for(ctx, name, command, Path.cwd(), quiet=quiet)
    }
    if not defaults:
        return
    ctx.default_map = {name: defaults}

    def tell() -> None:
        if used and not (quiet or used.get("quiet", (False,))[0]):
            echo(f"defaults: {_in_words(used)}", err=True)

    ctx.find_root().call_on_close(tell)


def defaults_for(
    ctx: click.Context, name: str, command: click.Command, folder: Path, *, quiet: bool = False
) -> Iterator[tuple[str, Any, Path]]:
    """Give option, value and file of what the files for a folder say; what goes before comes last.

    Raises
    ------
    SelectionError
        A file cannot be read, or says what no option can be.
    """
    options = options_of(command)
    for file in _files(folder, quiet=quiet):
        for key, value, table in _settings(ctx, name, options, file):
            try:
                yield key, checked(command, options[key], value), file.path
            except SelectionError as error:
                raise table.refused(f"{key} = {value!r}: {error}") from error


def _files(folder: Path, *, quiet: bool) -> Iterator[_Table]:
    """Give the user's file and the nearest pyproject.toml with our table."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    user = Path(os.path.expanduser(home), USER_FILE)  # noqa: PTH111 - Path's raises where no home is
    if user.is_file():
        yield _Table(user, "", _parsed(_text(user), user), of_user=True)
    for parent in (folder, *folder.parents):
        path = parent / "pyproject.toml"
        # Looked at before it is parsed: it may be another project's, and parsing takes time.
        if path.is_file() and f"[{TABLE}" in (text := _text(path)):
            if sys.platform != "win32" and path.stat().st_uid not in (os.getuid(), 0):
                if not quiet:
                    echo_message("note", f"{path} is ignored: another user owns it")
                continue
            tool = _parsed(text, path).get("tool", {})
            yield _Table(path, TABLE, tool.get("evalstats-plugin", {}), of_user=False)
            return


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}. Repair it, or leave it out with --no-config"
        raise SelectionError(msg) from error


def _parsed(text: str, path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not TOML: {error}. Repair it, or leave it out with --no-config"
        raise SelectionError(msg) from error


def _settings(
    ctx: click.Context, name: str, options: Mapping[str, click.Option], table: _Table
) -> Iterator[tuple[str, Any, _Table]]:
    """Give what a file says about a command: option, value and table, the outermost first."""
    groups: list[click.Context] = [ctx]
    while groups[0].parent is not None:
        groups.insert(0, groups[0].parent)
    for group, following in zip(groups, (*(g.info_name for g in groups[1:]), name), strict=True):
        command_names = cast("click.Group", group.command).list_commands(group)
        for key, value in table.values.items():
            option = key.replace("_", "-")
            if isinstance(value, dict):
                if key not in command_names:
                    raise table.refused(no_such("command", key, command_names))
            elif key in command_names:
                inner = table.inner(key).heading
                raise table.refused(f"{key} is a command, not an option: write a table [{inner}]")
            elif option not in SHARED:
                inner = table.inner(command_names[0]).heading
                shared = f"{', '.join(SHARED)}. Others go into a command's table, such as [{inner}]"
                raise table.refused(no_such("option that commands share", key, SHARED, shared))
            elif option in options:
                table.check_allowed(option)
                yield option, value, table
        table = table.inner(str(following))
    for key, value in table.values.items():
        option = key.replace("_", "-")
        if option not in options:
            raise table.refused(no_such(f"option of {name}", key, options))
        table.check_allowed(option)
        yield option, value, table


def options_of(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command that a file may set, by their long names."""
    return {
        name.removeprefix("--"): param
        for param in command.params
        if isinstance(param, click.Option) and param.expose_value and not param.is_eager
        for name in param.opts
        if name.startswith("--")
    }


def checked(command: click.Command, option: click.Option, value: Any) -> Any:
    """Return a value in the form that click takes, or say why the option cannot have it."""
    several = isinstance(value, list)
    if isinstance(value, bool) != option.is_flag:
        raise SelectionError("give true or false" if option.is_flag else "give a value")
    if several and not option.multiple:
        raise SelectionError("give one value, not a list")
    if not all(isinstance(each, str | int | float) for each in (value if several else [value])):
        raise SelectionError("give a text or a number, not a table or a date")
    taken: Any = [value] if option.multiple and not several else value
    try:
        with click.Context(command) as ctx:
            option.process_value(ctx, taken)
    except click.ClickException as error:
        raise SelectionError(error.message.rstrip(".")) from error
    except EvalStatsError as error:
        raise SelectionError(str(error)) from error
    return taken


def _in_words(used: Mapping[str, tuple[Any, Path]]) -> str:
    """Return what of the files was used, in one line."""
    by_path: dict[Path, list[str]] = {}
    for key, (value, path) in used.items():
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        by_path.setdefault(path, []).append(
            f"{key} {text.lower() if isinstance(value, bool) else text}"
        )
    here = Path.cwd()
    return "; ".join(
        f"{', '.join(keys)} (from {path.relative_to(here) if path.is_relative_to(here) else path})"
        for path, keys in by_path.items()
    )

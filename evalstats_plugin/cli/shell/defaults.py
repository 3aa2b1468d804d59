"""Defaults of options from files: a user's own, and the nearest pyproject.toml's.

A project's file goes before the user's, and the command line before both. What a file decided is
printed on standard error, so that nobody wonders where a number comes from.

A project may be somebody else's: its file sets numbers, methods and formats (`OF_PROJECTS`), never
what runs programs, writes files or hides messages, and it is ignored where another user owns it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from evalstats_plugin.errors import EvalStatsError, SelectionError, no_such
from evalstats_plugin.runtime.untrusted import echo, echo_message

TABLE = "tool.evalstats-plugin"
USER_FILE = "evalstats-plugin.toml"

SHARED = (
    "bounds", "cluster", "confidence-level", "format", "include-incomplete", "quiet", "runs",
    "seed", "skip-broken",
)  # fmt: skip
"""Options that mean the same in every command that has them; all others belong to a command."""

OF_PROJECTS = frozenset((
    "above", "at-k", "balance", "baseline", "batch", "bootstrap", "bootstrap-iters", "bounds",
    "certainty", "chains", "cluster", "columns", "confidence-level", "control-variate",
    "correction", "derive", "design", "design-effect", "device", "difference", "dimensions",
    "discordance", "draws", "drift", "epochs", "estimator", "every-rule", "family", "figure",
    "focal", "format", "goal", "human", "include-incomplete", "inference", "item-model", "judge",
    "mask", "max-items", "max-seconds", "method", "methods", "metric", "misspecified", "models",
    "n-models", "over", "pairs", "population", "power", "prior", "prior-sd", "randomesque",
    "reliability", "rule", "runs", "scale", "score-width", "scoring", "seed", "skip-broken",
    "stop-at", "task", "test-metric", "through", "ties", "variances", "warm-up", "wide",
))  # fmt: skip
"""Options that a project's file may set: what is read, computed and shown."""


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
    used: dict[str, tuple[Any, Path]] = {}

    def use(key: str, value: Any, path: Path) -> Any:
        used[key] = (value, path)
        return value

    options = _options(command)
    # Click calls it where the command line does not have the option.
    defaults = {
        str(options[key].name): partial(use, key, value, path)
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
    options = _options(command)
    for file in _files(folder, quiet=quiet):
        for key, value, table in _settings(ctx, name, options, file):
            try:
                yield key, _checked(command, options[key], value), file.path
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
            if _of_another_user(path):
                if not quiet:
                    echo_message("note", f"{path} is ignored: another user owns it")
                continue
            tool = _parsed(text, path).get("tool", {})
            yield _Table(path, TABLE, tool.get("evalstats-plugin", {}), of_user=False)
            return


def _of_another_user(path: Path) -> bool:
    """Whether somebody else than this user and the administrator owns a file."""
    return hasattr(os, "getuid") and path.stat().st_uid not in (os.getuid(), 0)


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
        there = cast("click.Group", group.command).list_commands(group)
        for key, value in table.values.items():
            option = key.replace("_", "-")
            if isinstance(value, dict):
                if key not in there:
                    raise table.refused(no_such("command", key, there, ", ".join(there)))
            elif key in there:
                inner = table.inner(key).heading
                raise table.refused(f"{key} is a command, not an option: write a table [{inner}]")
            elif option not in SHARED:
                inner = table.inner(there[0]).heading
                known = f"{', '.join(SHARED)}. Others go into a command's table, such as [{inner}]"
                raise table.refused(no_such("option that commands share", key, SHARED, known))
            elif option in options:
                table.check_allowed(option)
                yield option, value, table
        table = table.inner(str(following))
    for key, value in table.values.items():
        option = key.replace("_", "-")
        if option not in options:
            raise table.refused(no_such(f"option of {name}", key, options, ", ".join(options)))
        table.check_allowed(option)
        yield option, value, table


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command that a file may set, by their long names."""
    return {
        name.removeprefix("--"): param
        for param in command.params
        if isinstance(param, click.Option) and param.expose_value and not param.is_eager
        for name in param.opts
        if name.startswith("--")
    }


def _checked(command: click.Command, option: click.Option, value: Any) -> Any:
    """Return a value in the form that click takes, or say why the option cannot have it."""
    several = _is_list(value)
    if isinstance(value, bool) != option.is_flag:
        raise SelectionError("give true or false" if option.is_flag else "give a value")
    if several and not option.multiple:
        raise SelectionError("give one value, not a list")
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
        text = " ".join(map(str, value)) if _is_list(value) else str(value)
        by_path.setdefault(path, []).append(
            f"{key} {text.lower() if isinstance(value, bool) else text}"
        )
    here = Path.cwd()
    return "; ".join(
        f"{', '.join(keys)} (from {path.relative_to(here) if path.is_relative_to(here) else path})"
        for path, keys in by_path.items()
    )


def _is_list(value: object) -> bool:
    return isinstance(value, list)

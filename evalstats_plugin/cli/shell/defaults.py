"""Defaults of options from files: a user's own, and the nearest pyproject.toml's.

A project's file goes before the user's, and the command line before both. What a file decided is
said on standard error, so that nobody wonders where a number comes from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import click

from evalstats_plugin.errors import EvalStatsError, SelectionError, no_such

TABLE = "tool.evalstats-plugin"
USER_FILE = "evalstats-plugin.toml"

SHARED = (
    "bounds", "cluster", "confidence-level", "format", "include-incomplete", "quiet", "runs",
    "seed", "skip-broken",
)  # fmt: skip
"""Options that mean the same in every command that has them; all others belong to a command."""


@dataclass(frozen=True)
class _Table:
    """One table of options, and where it was read."""

    path: Path
    heading: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.path}: [{self.heading}]" if self.heading else f"{self.path}"

    def inner(self, name: str) -> _Table:
        """Return the table of one command; empty if there is none."""
        found = self.values.get(name, {})
        return _Table(self.path, self.heading_of(name), cast("dict[str, Any]", found))

    def heading_of(self, name: str) -> str:
        """Return the heading of one command's table."""
        return f"{self.heading}.{name}" if self.heading else name

    def options(self) -> dict[str, Any]:
        """Return what is no table."""
        return {k.replace("_", "-"): v for k, v in self.values.items() if not isinstance(v, dict)}


@dataclass
class Defaults:
    """What the files say, and what of it was used."""

    tables: Sequence[_Table] = ()
    used: dict[str, tuple[Any, Path]] = field(default_factory=dict[str, tuple[Any, Path]])

    def of(self, command: click.Command, name: str, commands: Sequence[str]) -> dict[str, Any]:
        """Return the default map of one command and, in it, of its own commands.

        Parameters
        ----------
        commands
            Names that a table of the files may have.
        """
        found: dict[str, Any] = {}
        for table in self.tables:
            _check_shared(table, commands)
            self._add(found, command, table.inner(name), (table,))
        return found

    def _add(
        self,
        found: dict[str, Any],
        command: click.Command,
        table: _Table,
        shared: tuple[_Table, ...],
    ) -> None:
        """Add what one table and those around it say about a command."""
        if isinstance(command, click.Group):
            with click.Context(command) as ctx:
                names = command.list_commands(ctx)
                inner = {name: command.get_command(ctx, name) for name in names}
            _check_shared(table, names)
            for name, one in inner.items():
                if one is not None:
                    nested = found.setdefault(name, {})
                    self._add(nested, one, table.inner(name), (*shared, table))
            return
        options = _options(command)
        for outer in shared:
            given = {key: value for key, value in outer.options().items() if key in options}
            self._set(found, command, outer, given)
        for key in table.values:
            if key.replace("_", "-") not in options:
                what = f"option of {command.name}"
                raise SelectionError(f"{table}: {no_such(what, key, options, ', '.join(options))}")
        self._set(found, command, table, table.options())

    def _set(
        self, found: dict[str, Any], command: click.Command, table: _Table, given: Mapping[str, Any]
    ) -> None:
        options = _options(command)
        for key, value in given.items():
            option = options[key]
            checked = _checked(command, option, value, f"{table} has {key} = {value!r}")
            # Click calls it where the command line does not have the option.
            found[str(option.name)] = partial(self._use, key, checked, table.path)

    def _use(self, key: str, value: Any, path: Path) -> Any:
        self.used[key] = (value, path)
        return value

    def said(self) -> str:
        """Return what of the files was used, in one line; empty if nothing."""
        by_path: dict[Path, list[str]] = {}
        for key, (value, path) in self.used.items():
            by_path.setdefault(path, []).append(f"{key} {_shown(value)}")
        return "; ".join(
            f"{', '.join(keys)} (from {_place(path)})" for path, keys in by_path.items()
        )


def read_defaults(folder: Path) -> Defaults:
    """Read the user's file and the nearest pyproject.toml with our table, from a folder upwards.

    Raises
    ------
    SelectionError
        A file is not TOML, or cannot be read.
    """
    tables: list[_Table] = []
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    user = Path(os.path.expanduser(home), USER_FILE)  # noqa: PTH111 - Path's raises where no home is
    if user.is_file():
        tables.append(_Table(user, "", _parsed(_text(user), user)))
    for parent in (folder, *folder.parents):
        path = parent / "pyproject.toml"
        # Looked at before it is parsed: it may be another project's, and parsing takes time.
        if path.is_file() and f"[{TABLE}" in (text := _text(path)):
            tool = _parsed(text, path).get("tool", {})
            tables.append(_Table(path, TABLE, tool.get("evalstats-plugin", {})))
            break
    return Defaults(tables)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text: {error}. --no-config goes on without it"
        raise SelectionError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}. --no-config goes on without it"
        raise SelectionError(msg) from error


def _parsed(text: str, path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not TOML: {error}. --no-config goes on without it"
        raise SelectionError(msg) from error


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command that a file may set, by their long names."""
    return {
        name.removeprefix("--"): param
        for param in command.params
        if isinstance(param, click.Option) and param.expose_value and not param.is_eager
        for name in param.opts
        if name.startswith("--")
    }


def _check_shared(table: _Table, commands: Sequence[str]) -> None:
    """Refuse what is neither a command nor an option that all commands share."""
    for key, value in table.values.items():
        if isinstance(value, dict):
            if key not in commands:
                known = ", ".join(commands)
                raise SelectionError(f"{table}: {no_such('command', key, commands, known)}")
        elif key in commands:
            msg = f"{table} has {key} = {value!r}, expected a table [{table.heading_of(key)}]"
            raise SelectionError(msg)
        elif key.replace("_", "-") not in SHARED:
            known = (
                f"{', '.join(SHARED)}. An option of one command belongs into its table, such as "
                f"[{table.heading_of(commands[0])}]"
            )
            what = "option that commands share"
            raise SelectionError(f"{table}: {no_such(what, key, SHARED, known)}")


def _checked(command: click.Command, option: click.Option, value: Any, found: str) -> Any:
    """Return a value in the form that click takes, or say why the option cannot have it."""
    expected = ""
    several = _is_list(value)
    if isinstance(value, bool) != option.is_flag:
        expected = "true or false" if option.is_flag else "no truth value"
    elif several and not option.multiple:
        expected = "one value, not a list"
    if expected:
        msg = f"{found}, expected {expected}"
        raise SelectionError(msg)
    taken: Any = [value] if option.multiple and not several else value
    process: Callable[[click.Context, Any], Any] = option.process_value
    try:
        with click.Context(command) as ctx:
            process(ctx, taken)
    except click.ClickException as error:
        msg = f"{found}: {error.message.rstrip('.')}"
        raise SelectionError(msg) from error
    except EvalStatsError as error:
        msg = f"{found}: {error}"
        raise SelectionError(msg) from error
    return taken


def _place(path: Path) -> str:
    """Return where a file is, from the current folder if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _shown(value: Any) -> str:
    if _is_list(value):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_list(value: object) -> bool:
    return isinstance(value, list)

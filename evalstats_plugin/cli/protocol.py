"""Files that pin how a gate decides: `--protocol FILE`.

A protocol is TOML whose keys are options of the command, checked as those are. What it leaves out
has its default, and an option on the command line that says otherwise is refused: the decision
follows from the logs and one file, whose SHA-256 is printed with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from evalstats_plugin.cli.shell.options import Parsed, checked, options_of
from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.runtime.files import plain_bytes

FREE = ("junit", "format", "quiet")
"""Options that decide nothing."""


@dataclass(frozen=True)
class Protocol:
    """What a file pins, by name of the option."""

    path: str
    digest: str
    """SHA-256 of its bytes, in hexadecimal."""
    pinned: Mapping[str, Any]

    def check_kept(self, ctx: click.Context) -> None:
        """Refuse options of the command line that the protocol does not have, or has otherwise."""
        for name, option in options_of(ctx.command).items():
            source = ctx.get_parameter_source(str(option.name))
            if name in FREE or source is not ParameterSource.COMMANDLINE:
                continue
            value = self.pinned.get(name, option.get_default(ctx))
            if ctx.params[str(option.name)] != option.type_cast_value(ctx, value):
                says = f"says {name} = {value!r}" if name in self.pinned else f"does not set {name}"
                raise SelectionError(
                    f"--{name} contradicts the protocol {self.path}, which {says}: leave the "
                    "option out, or change the protocol"
                )


def take_protocol(ctx: click.Context, _: click.Parameter, path: str | None) -> Protocol | None:
    """Read a protocol, and make what it says the defaults of the command.

    Raises
    ------
    SelectionError
        It cannot be read, has a key that no option has, or a value that the option cannot have.
    """
    if path is None:
        return None
    import tomllib

    content = plain_bytes(Path(path), f"the protocol {path}")
    try:
        told = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SelectionError(f"the protocol {path} is not TOML: {error}") from error
    options = {name: o for name, o in options_of(ctx.command).items() if name not in FREE}
    pinned: dict[str, Any] = {}
    for name, value in told.items():
        if name not in options:
            raise SelectionError(f"{path}: {no_such('key of a protocol', name, options)}")
        try:
            pinned[name] = _strictly(ctx.command, options[name], value)
        except SelectionError as error:
            raise SelectionError(f"{path}: {name} = {value!r}: {error}") from error
    if any(set(model) & set("*?") for model in pinned.get("models", ())):
        raise SelectionError(f"{path}: models are named in full: others could match * and ?")
    # A second run could be chosen for its result.
    pinned.setdefault("runs", "error")
    if "baseline-logs" in pinned:
        folder = Path(path).parent
        pinned["baseline-logs"] = [str(folder / logs) for logs in pinned["baseline-logs"]]
    ctx.default_map = {str(options[name].name): value for name, value in pinned.items()}
    return Protocol(path, hashlib.sha256(content).hexdigest(), pinned)


def _strictly(command: click.Command, option: click.Option, value: Any) -> Any:
    """Return a value of the very type of the option: click itself takes a text for a number."""
    taken = checked(command, option, value)
    kind, what = (str, int, float), "a text or a number"
    if isinstance(option.type, type(click.INT)):
        kind, what = (int,), "a whole number"
    elif isinstance(option.type, type(click.FLOAT)):
        kind, what = (int, float), "a number"
    elif not isinstance(option.type, Parsed):
        kind, what = (str,), "a text"
    each = taken if isinstance(taken, list) else [taken]
    if not option.is_flag and not all(type(one) in kind for one in each):
        raise SelectionError(f"give {what}")
    return taken

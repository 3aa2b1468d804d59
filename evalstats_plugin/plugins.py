"""Find plugins by entry point, and isolate those that fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import TracebackType
from typing import Any

import pluggy

from evalstats_plugin import hookspecs
from evalstats_plugin.comparisons.methods import PAIRED, UNPAIRED
from evalstats_plugin.data.methods import Method, table_of
from evalstats_plugin.errors import EvalStatsError, LogError, PluginError
from evalstats_plugin.hookspecs import Command, Exporter
from evalstats_plugin.scores.methods import INTERVALS

BLOCK_VARIABLE = "EVALSTATS_NO_PLUGINS"
"""Environment variable: names of plugins not to load, separated by commas."""

BLOCKED = "blocked by name"

PURPOSES: Mapping[str, tuple[Method, ...]] = {
    "the interval of one score": INTERVALS,
    "models on the same items": PAIRED,
    "models on items of their own (unpaired)": UNPAIRED,
}
"""Methods by what they are for: names that another table holds are explained in messages."""


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """One plugin, as ``evalstats-plugin plugins`` lists it."""

    entry: EntryPoint
    hooks: tuple[str, ...] = ()
    problem: str = ""
    """Why it is not in use: an error of its own, or that it was blocked."""

    @property
    def name(self) -> str:
        """Name of the entry point, by which it can be blocked."""
        return self.entry.name

    # A distribution's metadata are a file, which is read when somebody asks.
    @property
    def distribution(self) -> str:
        """Name of the distribution; "" where unknown."""
        return self.entry.dist.name if self.entry.dist else ""

    @property
    def version(self) -> str:
        """Version of the distribution; "" where unknown."""
        return self.entry.dist.version if self.entry.dist else ""


@dataclass(frozen=True, eq=False)
class Plugins:
    """The plugins in use."""

    manager: pluggy.PluginManager
    listing: tuple[LoadedPlugin, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict[str, str])
    """Module of each plugin in use, by the plugin's name."""

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each plugin that failed (blocked ones did not)."""
        return tuple(
            f"plugin {p.name!r} is not in use: {p.problem}"
            for p in self.listing
            if p.problem and p.problem != BLOCKED
        )

    def call(self, hook: str, *, without: Iterable[str] = (), **arguments: Any) -> Any:
        """Call a hook; an unexpected exception names the plugin it came from.

        A file that the system does not let a plugin read is no failure of the plugin's.
        Plugins whose names are in ``without`` are not asked.
        """
        silent = [plugin for plugin in map(self.manager.get_plugin, without) if plugin is not None]
        try:
            return self.manager.subset_hook_caller(hook, silent)(**arguments)
        except EvalStatsError:
            raise
        except OSError as error:
            where = error.filename or arguments.get("path") or arguments.get("folder")
            if where is None:
                raise
            raise LogError(f"{where} cannot be read ({error.strerror or error})") from error
        except Exception as error:
            culprit = self._culprit(error.__traceback__)
            msg = f"plugin {culprit!r} failed in {hook}: {type(error).__name__}: {error}"
            raise PluginError(msg) from error

    def _culprit(self, traceback: TracebackType | None) -> str:
        found = "unknown"
        while traceback is not None:
            module = str(traceback.tb_frame.f_globals.get("__name__", ""))
            for name, root in self.modules.items():
                if module == root or module.startswith(root + "."):
                    found = name
            traceback = traceback.tb_next
        return found

    def methods(self, own: Iterable[Method] = INTERVALS) -> dict[str, Method]:
        """Return every method for one question by name: our own, and what plugins add."""
        return table_of((m for found in self.call("evalstats_methods") for m in found), own)

    def commands(self) -> dict[str, Command]:
        """Return every plugin's commands by name."""
        return {c.name: c for found in self.call("evalstats_commands") for c in found}

    def blocked(self) -> tuple[str, ...]:
        """Return the names of those that are not to be loaded."""
        return tuple(p.name for p in self.listing if p.problem == BLOCKED)

    @property
    def installed(self) -> bool:
        """Whether `load_plugins` finds the same plugins, here and in other processes."""
        return self is load_plugins(self.blocked())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: other processes load the same installed plugins."""
        if not self.installed:
            msg = "plugins made by hand cannot be sent to another process"
            raise PluginError(msg)
        return load_plugins, (self.blocked(),)

    def harness_commands(self) -> dict[str, Command]:
        """Return the commands that drive a harness, by the harness's name."""
        return {c.name: c for found in self.call("evalstats_harness_commands") for c in found}

    def exporters(self) -> dict[str, Exporter]:
        """Return every format that responses can be written in, by name."""
        return {e.name: e for found in self.call("evalstats_exporters") for e in found}


def load_plugins(blocked: Iterable[str] = ()) -> Plugins:
    """Load every installed plugin that is not blocked by name or by the environment.

    Raises
    ------
    PluginError
        When a blocked name is not that of an installed plugin.
    """
    from_environment = os.environ.get(BLOCK_VARIABLE, "").split(",")
    return _load(frozenset({*blocked, *(n.strip() for n in from_environment)} - {""}))


@lru_cache(maxsize=8)
def _load(blocked: frozenset[str]) -> Plugins:
    found = sorted(entry_points(group=hookspecs.PROJECT), key=lambda e: e.name)
    names = {entry.name for entry in found}
    if unknown := sorted(blocked - names):
        msg = f"no plugin is called {', '.join(unknown)}; installed are {', '.join(sorted(names))}"
        raise PluginError(msg)
    manager = new_manager()
    listing: list[LoadedPlugin] = []
    modules: dict[str, str] = {}
    for entry in found:
        problem = BLOCKED if entry.name in blocked else _register(manager, entry.name, entry.load)
        hooks = ()
        if not problem:
            plugin = manager.get_plugin(entry.name)
            modules[entry.name] = getattr(plugin, "__name__", entry.value)
            hooks = tuple(sorted(c.name for c in manager.get_hookcallers(plugin) or ()))
        listing.append(LoadedPlugin(entry, hooks, problem))
    return Plugins(manager, tuple(listing), modules)


def new_manager() -> pluggy.PluginManager:
    """Return a plugin manager that knows the contract and no plugin yet."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def _register(manager: pluggy.PluginManager, name: str, importer: Callable[[], Any]) -> str:
    """Register one plugin; return what is wrong with it, or nothing."""
    try:
        plugin = importer()
        manager.register(plugin, name=name)
        # Without this a misspelt hook would be ignored in silence.
        manager.check_pending()
    except Exception as error:  # noqa: BLE001 - whatever a plugin raises must not hurt the others
        if manager.has_plugin(name):
            manager.unregister(name=name)
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text}"
    return ""

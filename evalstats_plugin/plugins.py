"""Finds adapters and methods by entry point, and keeps a broken one from hurting the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pluggy

from evalstats_plugin import hookspecs
from evalstats_plugin.errors import EvalStatsError, LogError, PluginError
from evalstats_plugin.methods import Method, table_of
from evalstats_plugin.tables import INTERVALS

if TYPE_CHECKING:
    from evalstats_plugin.analyses.ability_records import Abilities
    from evalstats_plugin.analyses.hierarchical_crossing import PooledScores
    from evalstats_plugin.results import Comparisons, Intervals, RankSets

BLOCK_VARIABLE = "EVALSTATS_NO_PLUGINS"
"""Environment variable: names of plugins not to load, separated by commas."""

SCHEMA_VERSION = 1
"""Of the annotation block."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command a plugin adds to ``evalstats-plugin``; the function is a click command."""

    name: str
    summary: str
    function: str
    """``"module:attribute"``, loaded when the command is run."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format that responses can be written in.

    The function takes responses, the file or folder to write, and the exporter's own options as
    keywords; it returns the files written and notes on what the format cannot hold.
    """

    name: str
    summary: str
    function: str
    """``"module:function"``, loaded when it is used."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """What is written into a log: results, and how they came about."""

    intervals: Intervals
    version: str
    rescore: bool = False
    """Whether logged values that the items contradict are to be replaced."""
    comparisons: Comparisons | None = None
    """Of this log's model with others: what no single log can tell."""
    ranks: RankSets | None = None
    """Of all models on this log's tasks: which ranks the items leave open."""
    items: Mapping[str, Mapping[str, float | str]] | None = None
    """Statistics of each item, by its id as text, to be written beside the item."""
    item_columns: bool = False
    """Whether to show them in the list of items too, where the harness has one."""
    abilities: Abilities | None = None
    """Of this log's models, and the items of its tasks that a person should look at."""

    pooled: PooledScores | None = None
    """Of this log's models, on its tasks and over all tasks of all logs."""

    def block(self) -> dict[str, Any]:
        """Return the annotation as JSON values; every list holds things of one type.

        There is no time in it: annotating twice gives the same bytes.
        """
        rows = self.intervals.rows
        flagged = self.abilities.flagged if self.abilities else ()
        noted = (self.intervals, self.abilities, self.pooled)
        return {
            "schema_version": SCHEMA_VERSION,
            "evalstats_plugin_version": self.version,
            "confidence_level": rows[0].confidence_level if rows else None,
            "seed": self.intervals.seed,
            "intervals": [_written(row, _INTERVAL) for row in rows],
            "comparisons": [_written(row, _COMPARISON) for row in self.comparisons or ()],
            "ranks": [_written(row, _RANK) for row in self.ranks or ()],
            "abilities": [_written(row, _ABILITY) for row in self.abilities or ()],
            "suspect_items": [
                {**_written(item, _ITEM), "reasons": list(item.notes)} for item in flagged
            ],
            "pooled": [_written(row, _POOLED) for row in self.pooled or ()],
            "notes": [note for results in noted if results is not None for note in results.notes],
        }


# What is written of each result, in this order.
_INTERVAL = (
    "kind", "task", "metric", "n_items", "n_epochs", "n_missing", "n_clusters", "estimate", "low",
    "high", "std_error", "design_effect", "icc", "method", "notes",
)  # fmt: skip
_COMPARISON = (
    "task", "metric", "model_a", "model_b", "n_items", "difference", "low", "high", "p_value",
    "p_adjusted", "low_adjusted", "high_adjusted", "prob_better", "method", "notes",
)  # fmt: skip
_RANK = (
    "task", "metric", "model", "n_models", "best_rank", "worst_rank", "letters", "prob_best",
)  # fmt: skip
_ABILITY = (
    "task", "metric", "model", "n_items", "n_models", "estimate", "low", "high", "std_error",
    "item_model", "estimator", "scale", "notes",
)  # fmt: skip
_ITEM = ("task", "metric", "item", "difficulty", "discrimination")
_POOLED = (
    "task", "metric", "model", "n_items", "score", "estimate", "low", "high", "std_error", "method",
    "notes",
)  # fmt: skip


def _written(row: Any, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in names}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}  # pyright: ignore[reportUnknownArgumentType]


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """One plugin, as ``evalstats-plugin plugins`` lists it."""

    entry: EntryPoint
    hooks: tuple[str, ...] = ()
    problem: str = ""
    """Why it is not in use: an error of its own, or that it was blocked."""

    @property
    def name(self) -> str:
        """As it is blocked by."""
        return self.entry.name

    # A distribution's metadata are a file, which is read when somebody asks.
    @property
    def distribution(self) -> str:
        """Name of what was installed; "" where that is not known."""
        return self.entry.dist.name if self.entry.dist else ""

    @property
    def version(self) -> str:
        """Of the distribution."""
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
        """Whether they are as `load` finds them, in other processes as in this one."""
        return self is load(self.blocked())

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process by name: it has them installed as well."""
        if not self.installed:
            msg = "plugins made by hand cannot be sent to another process"
            raise PluginError(msg)
        return load, (self.blocked(),)

    def harness_commands(self) -> dict[str, Command]:
        """Return the commands that drive a harness, by the harness's name."""
        return {c.name: c for found in self.call("evalstats_harness_commands") for c in found}

    def exporters(self) -> dict[str, Exporter]:
        """Return every format that responses can be written in, by name."""
        return {e.name: e for found in self.call("evalstats_exporters") for e in found}


BLOCKED = "blocked by name"


def load(blocked: Iterable[str] = ()) -> Plugins:
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

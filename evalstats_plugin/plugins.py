"""Find plugins by entry point, check what they return, and isolate those that fail.

A plugin that cannot be imported, raises, exits, or returns what its hook must not is named in
`Plugins.problems`, and the others go on; `strict` makes it an error.
"""

from __future__ import annotations

import os
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import astuple, dataclass, field
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from io import StringIO
from tempfile import TemporaryFile
from time import monotonic
from typing import TYPE_CHECKING, Any, cast, get_args

import pluggy

from evalstats_plugin import hookspecs
from evalstats_plugin.comparisons.methods import PAIRED, UNPAIRED
from evalstats_plugin.data.methods import Family, Method, Question, table_of
from evalstats_plugin.errors import EvalStatsError, LogError, PluginError
from evalstats_plugin.hookspecs import Command, Exporter, ItemText
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.scores.methods import INTERVALS

if TYPE_CHECKING:
    from evalstats_plugin.data.metrics import StockMetric

BLOCK_VARIABLE = "EVALSTATS_NO_PLUGINS"
"""Environment variable: names of plugins not to load, separated by commas."""

OTHERS = "*"
"""As a name of a plugin not to load: all that do not come with the package."""

BLOCKED = "blocked by name"

STRICT_VARIABLE = "EVALSTATS_STRICT_PLUGINS"
"""Environment variable: whether a plugin that fails is an error."""

_OWN = "evalstats_plugin.adapters."
"""Modules of plugins that come with the package: their names go before those of others."""

PURPOSES: Mapping[str, tuple[Method, ...]] = {
    "the interval of one score": INTERVALS,
    "models on the same items": PAIRED,
    "models on items of their own (unpaired)": UNPAIRED,
}
"""Methods by what they are for: names that another table holds are explained in messages."""


_PRINTED = 1000
"""Bytes of what a plugin prints that are looked at."""

SLOW = 10.0
"""Seconds after which a plugin without an answer is named: it holds up every command."""


def _are_logs(answer: Any, arguments: Mapping[str, Any]) -> bool:
    given = {file.path for file in arguments["files"]}
    return isinstance(answer, Mapping) and all(
        (log in given or log == arguments["folder"])
        and _is_list(others)
        and all(hasattr(p, "name") for p in others)
        for log, others in cast("Mapping[Any, Any]", answer).items()
    )


def _are_responses(answer: Any, _: object) -> bool:
    from evalstats_plugin.data.responses import Responses

    return _is_list(answer) and all(
        isinstance(r, Responses)
        and all(isinstance(x, str) for x in (r.model, r.task, r.metric))
        and len(r.scores) == len(r.item_ids)
        and all(map(_is_list, (r.settings, r.groups, r.beside, r.notes)))
        for r in answer
    )


def _are_contests(answer: Any, _: object) -> bool:
    from evalstats_plugin.ranking.contests.contests import Contests

    return isinstance(answer, Contests)


def _are_texts(answer: Any, arguments: Mapping[str, Any]) -> bool:
    asked = {(task, item) for task, items in arguments["items"].items() for item in items}
    return isinstance(answer, Mapping) and all(
        place in asked
        and isinstance(text, ItemText)
        and all(isinstance(part, str) for part in astuple(text))
        for place, text in cast("Mapping[Any, Any]", answer).items()
    )


def _are_methods(answer: Any, _: object) -> bool:
    return _is_list(answer) and all(
        isinstance(m, Method)
        and _is_word(m.name)
        and m.family in get_args(Family)
        and m.question in get_args(Question)
        and _FUNCTION.fullmatch(m.function)
        for m in answer
    )


def _are_metrics(answer: Any, _: object) -> bool:
    from evalstats_plugin.data.metrics import StockMetric

    return _is_list(answer) and all(isinstance(m, StockMetric) for m in answer)


def _are_offers(answer: Any, _: object) -> bool:
    return _is_list(answer) and all(
        isinstance(offer, Command | Exporter)
        and _is_word(offer.name)
        and isinstance(offer.summary, str)
        and _FUNCTION.fullmatch(offer.function)
        for offer in answer
    )


def _is_list(answer: Any) -> bool:
    return isinstance(answer, Sequence) and not isinstance(answer, str | bytes)


def _is_word(name: Any) -> bool:
    return isinstance(name, str) and name.isprintable() and len(name.split()) == 1


_FUNCTION = re.compile(r"[\w.]+:\w+")

_RESPONSES = _are_responses, "a list of Responses, with lists for settings and notes, or None"
_COMMANDS = _are_offers, "a list of Command with names of one word"

_NEEDED: Mapping[str, tuple[Callable[[Any, Mapping[str, Any]], bool], str]] = {
    "evalstats_find_logs": (
        _are_logs,
        "a mapping from each log, which is one of the files given or their folder, to a list of "
        "the other files of its run",
    ),
    "evalstats_read_log": _RESPONSES,
    "evalstats_read_results": _RESPONSES,
    "evalstats_read_contests": (_are_contests, "Contests, or None"),
    "evalstats_read_texts": (
        _are_texts,
        "a mapping from (task, item), which is one of the items asked for, to its ItemText, or "
        "None",
    ),
    "evalstats_annotate_log": (
        lambda answer, _: hasattr(answer, "name"), "the path of the file that was written, or None"
    ),
    "evalstats_annotate_results": (
        lambda answer, _: isinstance(answer, Mapping), "a mapping, or None"
    ),
    "evalstats_methods": (_are_methods, "a list of Method, each with a family that Method knows"),
    "evalstats_metrics": (_are_metrics, "a list of StockMetric"),
    "evalstats_commands": _COMMANDS,
    "evalstats_harness_commands": _COMMANDS,
    "evalstats_exporters": (_are_offers, "a list of Exporter with names of one word"),
    "evalstats_generator": (
        lambda answer, _: callable(answer), "a function that takes a text and returns one, or None"
    ),
}  # fmt: skip
"""Whether an answer is what a hook must return, which None always is; and that in words."""


def strict() -> bool:
    """Whether a plugin that fails is an error; otherwise it is passed over and named."""
    return os.environ.get(STRICT_VARIABLE, "") not in ("", "0")


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """One plugin, as ``evalstats-plugin plugins`` lists it."""

    entry: EntryPoint
    hooks: tuple[str, ...] = ()
    problem: str = ""
    """Why it is not in use: an error of its own, or that it was blocked."""
    read_only: str = ""
    """Why its logs are not annotated: the plugin's ``READ_ONLY``."""

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

    failures: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """One sentence for each plugin and hook that failed while others went on."""

    @property
    def problems(self) -> tuple[str, ...]:
        """One sentence for each plugin that could not be loaded (blocked ones could) or failed."""
        unused = (
            f"plugin {p.name!r} is not in use: {p.problem}"
            for p in self.listing
            if p.problem and p.problem != BLOCKED
        )
        return (*unused, *self.failures.values())

    def in_order(self, hook: str) -> list[str]:
        """Return the names of the plugins with a hook, in the order in which they are asked."""
        implementations = getattr(self.manager.hook, hook).get_hookimpls()
        return list(dict.fromkeys(each.plugin_name for each in reversed(implementations)))

    def call(self, hook: str, *, only: str = "", **arguments: Any) -> Any:
        """Call a hook of all plugins, or of one by name.

        A plugin that fails, or returns what the hook must not, is passed over and named in
        `failures`; one that needs more than `SLOW` seconds for no answer is named there too. A file
        that the system does not let it read is no failure of its.

        Returns
        -------
        The first answer where one is enough (None without any), else every plugin's, in a list.

        Raises
        ------
        PluginError
            A plugin failed and no other has an answer, where one is needed; or any plugin failed
            and plugins are `strict`.
        """
        one_is_enough = getattr(self.manager.hook, hook).spec.opts["firstresult"]
        answers: list[Any] = []
        failed: dict[str, PluginError] = {}
        for name in [only] if only else self.in_order(hook):
            start = monotonic()
            try:
                answer = self._ask(name, hook, arguments)
            except PluginError as error:
                failed[name] = error
                continue
            if not answer and (seconds := monotonic() - start) > SLOW:
                slow = f"plugin {name!r} took {seconds:.0f} s in {hook}"
                self.failures.setdefault((name, hook), f"{slow}: --no-plugin {name} leaves it out")
            answers += [] if answer is None else [answer]
            if answers and one_is_enough:
                break
        if one_is_enough and failed and not answers:
            raise next(iter(failed.values()))
        for name, error in failed.items():
            self._pass_over(name, hook, error)
        return (answers or [None])[0] if one_is_enough else answers

    def _pass_over(self, name: str, hook: str, error: PluginError) -> None:
        if strict():
            raise error
        self.failures.setdefault((name, hook), str(error))

    def _ask(self, name: str, hook: str, arguments: Mapping[str, Any]) -> Any:
        """Return one plugin's answer, None without one."""
        silent = [p for other, p in self.manager.list_name_plugin() if other != name]
        one_is_enough = getattr(self.manager.hook, hook).spec.opts["firstresult"]
        try:
            answers = self.manager.subset_hook_caller(hook, silent)(**arguments)
            answer = answers if one_is_enough else next(iter(answers), None)
            is_needed, needed = _NEEDED[hook]
            fits = answer is None or is_needed(answer, arguments)
        except EvalStatsError:
            raise
        except (Exception, SystemExit) as error:
            log: LogFile | None = arguments.get("log")
            path = log.path if log else arguments.get("path") or arguments.get("folder")
            if isinstance(error, OSError) and (where := error.filename or path):
                raise LogError(f"{where} cannot be read ({error.strerror or error})") from error
            text = " ".join(str(error).split())
            msg = f"plugin {name!r} failed in {hook}: {type(error).__name__}: {text}"
            raise PluginError(msg) from error
        if not fits:
            shown = reprlib.repr(answer)
            msg = f"plugin {name!r} returned {shown} in {hook}. Return {needed}."
            raise PluginError(msg)
        return answer

    def _named(self, hook: str, what: str, taken: Iterable[str] = ()) -> dict[str, Any]:
        """Return what plugins add by name; a name that is taken already is refused."""
        by_name: dict[str, Any] = {}
        own = [n for n in self.in_order(hook) if self.modules.get(n, "").startswith(_OWN)]
        for plugin in dict.fromkeys((*own, *self.in_order(hook))):
            for each in (entry for answer in self.call(hook, only=plugin) for entry in answer):
                if each.name in by_name or each.name in taken:
                    msg = f"plugin {plugin!r} adds a {what} {each.name!r}, a name that is taken"
                    self._pass_over(plugin, hook, PluginError(f"{msg}. Rename it."))
                else:
                    by_name[each.name] = each
        return by_name

    def methods(self, own: Iterable[Method] = INTERVALS) -> dict[str, Method]:
        """Return every method for one question by name: our own, and what plugins add."""
        taken = [m.name for some in PURPOSES.values() for m in some]
        return table_of(self._named("evalstats_methods", "method", taken).values(), own)

    def metrics(self) -> tuple[StockMetric, ...]:
        """Return the lines that plugins add to the registry of metrics."""
        return tuple(m for answer in self.call("evalstats_metrics") for m in answer)

    def commands(self, taken: Iterable[str] = ()) -> dict[str, Command]:
        """Return every plugin's commands by name, without names that are taken."""
        return self._named("evalstats_commands", "command", taken)

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
        return self._named("evalstats_harness_commands", "command")

    def exporters(self) -> dict[str, Exporter]:
        """Return every format that responses can be written in, by name."""
        return self._named("evalstats_exporters", "format")


def load_plugins(blocked: Iterable[str] = ()) -> Plugins:
    """Load every installed plugin that is not blocked by name or by the environment.

    Raises
    ------
    PluginError
        When a blocked name is not that of an installed plugin; or one cannot be loaded, and
        plugins are `strict`.
    """
    from_environment = os.environ.get(BLOCK_VARIABLE, "").split(",")
    names = {*blocked, *(n.strip() for n in from_environment)} - {""}
    if OTHERS in names:
        entries = entry_points(group=hookspecs.PROJECT)
        names = names - {OTHERS} | {e.name for e in entries if not e.value.startswith(_OWN)}
    loaded = _load(frozenset(names))
    if strict() and loaded.problems:
        raise PluginError("; ".join(loaded.problems))
    return loaded


@lru_cache(maxsize=8)
def _load(blocked: frozenset[str]) -> Plugins:
    entries = sorted(entry_points(group=hookspecs.PROJECT), key=lambda e: e.name)
    names = {entry.name for entry in entries}
    if unknown := sorted(blocked - names):
        msg = f"no plugin is called {', '.join(unknown)}; installed are {', '.join(sorted(names))}"
        raise PluginError(msg)
    manager = new_manager()
    listing: list[LoadedPlugin] = []
    modules: dict[str, str] = {}
    for entry in entries:
        problem = (
            BLOCKED
            if entry.name in blocked
            else _register(manager, entry.name, partial(_load_in_silence, entry))
        )
        hooks, read_only = (), ""
        if not problem:
            plugin = manager.get_plugin(entry.name)
            modules[entry.name] = getattr(plugin, "__name__", entry.value)
            hooks = tuple(sorted(c.name for c in manager.get_hookcallers(plugin) or ()))
            read_only = str(getattr(plugin, "READ_ONLY", ""))
        listing.append(LoadedPlugin(entry, hooks, problem, read_only))
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
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - it must not hurt the others
        if manager.has_plugin(name):
            manager.unregister(name=name)
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text}"
    return ""


def _load_in_silence(entry: EntryPoint) -> Any:
    """Load a plugin; standard output is for results, and what it prints there is an error.

    Raises
    ------
    PluginError
        It printed something.
    """
    if entry.value.startswith(_OWN):
        return entry.load()
    sys.stdout.flush()
    printed = StringIO()
    with TemporaryFile() as file, ExitStack() as ends:
        with suppress(OSError):  # a process without standard output
            before = os.dup(1)
            ends.callback(os.close, before)
            ends.callback(os.dup2, before, 1)
            os.dup2(file.fileno(), 1)
        with redirect_stdout(printed):
            plugin = entry.load()
        file.seek(0)
        text = printed.getvalue() + file.read(_PRINTED).decode(errors="replace")
    if text:
        raise PluginError(f"it prints while it is loaded: {reprlib.repr(text)}")
    return plugin

"""The plugin contract as a test: `check_adapter` tries an adapter on a log of its harness.

    def test_my_adapter() -> None:
        check_adapter("tests/run.json", my_adapter)

It reads the log, copies of it that are cut off, and copies in which something is broken; it writes
into a copy, and takes that out again. What does not hold is one `AssertionError` that lists all.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np

from evalstats_plugin.data.responses import Responses, Selection, repeated_item
from evalstats_plugin.errors import EvalStatsError, PluginError, few
from evalstats_plugin.logs.annotating import annotate, strip
from evalstats_plugin.plugins import Plugins, load_plugins, new_manager
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.stats.streams import stream

BROKEN: Mapping[str, Any] = {
    "null": None, "a text": "x", "an empty text": "", "true": True, "a huge number": 1e300,
    "not a number": float("nan"), "a list": [1, 2], "an object": {"a": 1},
    "an odd name": "\x1b[31m\u202e=cmd()|<b>\n\ud800",
}  # fmt: skip
"""What stands in place of a value in a broken copy of a log."""

_CUTS = (0.0, 0.3, 0.7, 0.97)
"""Shares of a file at which it is cut off."""

_SAME = 1e-9

_MOST_SHOWN = 12


@dataclass
class _Check:
    """An adapter, a log, and what was wrong."""

    plugins: Plugins
    name: str
    log: Path
    problems: list[str] = field(default_factory=list[str])

    def read(self, log: Path, **wanted: Any) -> list[Responses] | None:
        return self.read_by(self.name, log, Selection(**wanted))

    def read_by(self, name: str, log: Path, selection: Selection) -> list[Responses] | None:
        return self.plugins.call(
            "evalstats_read_log", only=name, log=LogFile(log), selection=selection
        )


def check_adapter(
    log: str | Path, adapter: ModuleType | None = None, *, n_broken: int = 150, rng: int = 0
) -> None:
    """Try an adapter on one log: does it keep the contract that all analyses rely on?

    Parameters
    ----------
    log
        A log of the harness, in the folder with the other files of its run.
    adapter
        Module with the hooks; the installed plugin that reads the log where it is left out.
    n_broken
        Broken copies to read.
    rng
        Seed of what is broken in them.

    Raises
    ------
    AssertionError
        Something does not hold; the message lists what, and what to do.
    LogError
        No adapter reads the log.

    Notes
    -----
    Looked at are: the log is found in its folder and known to no other adapter; item ids are
    unique; scores lie on the scale of their measure, and items give the logged value, or a note
    says why not; reading again, reading names alone, and reading one task or metric agree; an
    annotated copy and one without the annotation read the same; copies that are cut off, or hold
    something else in place of a value, give an `EvalStatsError` or responses, and no other error.
    """
    path = Path(log)
    plugins = _with(adapter) if adapter is not None else load_plugins()
    check = _Check(plugins, "adapter" if adapter else _reader_of(path, plugins), path)
    responses = _of_log(check)
    if responses:
        _selected(check, responses)
        with TemporaryDirectory() as folder:
            _round_trip(check, _scores(responses), Path(folder))
            _broken(check, Path(folder), n_broken, stream(rng, "broken logs"))
    if check.problems:
        more = len(check.problems) - _MOST_SHOWN
        shown = [f"- {problem}" for problem in check.problems[:_MOST_SHOWN]]
        shown += [f"- and {more} more"] if more > 0 else []
        raise AssertionError("\n".join([f"{path} breaks the contract of adapters:", *shown]))


def _with(adapter: ModuleType) -> Plugins:
    """Return the installed plugins with one that is not installed, which is asked first."""
    installed, manager = load_plugins(), new_manager()
    for name, plugin in installed.manager.list_name_plugin():
        if plugin is not None and plugin is not adapter:
            manager.register(plugin, name=name)
    manager.register(adapter, name="adapter")
    manager.check_pending()
    return Plugins(manager, installed.listing, {**installed.modules, "adapter": adapter.__name__})


def _reader_of(log: Path, plugins: Plugins) -> str:
    from evalstats_plugin.logs.reading import read_log

    for name in plugins.in_order("evalstats_read_log"):
        claim = plugins.call(
            "evalstats_read_log", only=name, log=LogFile(log),
            selection=Selection(include_incomplete=True),
        )  # fmt: skip
        if claim is not None:
            return name
    read_log(log, Selection(), plugins)  # which says that no adapter knows it
    raise AssertionError(f"{log} is of no adapter")


def _of_log(check: _Check) -> list[Responses]:
    """Read the log, and look at what it gives."""
    try:
        responses = check.read(check.log, include_incomplete=True)
    except PluginError as error:
        check.problems.append(str(error))
        return []
    if not responses:
        what = "None: it is taken for another's" if responses is None else "no responses"
        check.problems.append(f"evalstats_read_log returned {what}")
        return []
    _found(check)
    for r in responses:
        check.problems += [f"{r.task} {r.metric}: {problem}" for problem in _wrong_with(r, check)]
    rows = () if check.problems else intervals(responses, rng=0)
    for row in rows:
        if row.logged is None or row.notes:
            continue
        estimate = np.nan if row.estimate is None else row.estimate
        if not np.isclose(estimate, row.logged, rtol=_SAME, atol=_SAME):
            check.problems.append(
                f"{row.task} {row.metric}: the log says {row.logged:.6g}, the items give "
                f"{estimate:.6g}. Say in notes why, or leave out what is not of these items"
            )
    if _scores(check.read(check.log, include_incomplete=True) or []) != _scores(responses):
        check.problems.append("reading the log again gives something else")
    return responses


def _wrong_with(r: Responses, check: _Check) -> Iterator[str]:
    twice = repeated_item(r.item_ids)
    if twice is not None:
        yield (
            f"item {str(r.item_ids[twice[0]])!r} is there twice. Give items ids of their own, and "
            "put repeated answers into one row of scores"
        )
    scores = r.scores[np.isfinite(r.scores)]
    scale = r.measure.scale
    if (
        scale is not None
        and len(scores)
        and (scores.min() < scale.low or scores.max() > scale.high)
    ):
        yield f"scores from {scores.min():g} to {scores.max():g} leave the scale {scale}"
    if not len(scores) and r.logged is None and r.pairs is None and r.predicted is None:
        yield "there is no score and no logged value"
    for what, name in (("model", r.model), ("task", r.task), ("metric", r.metric)):
        if not name.strip():
            yield f"the {what} has no name"
    if not r.source.harness:
        yield "the source names no harness"
    if r.source.path != check.log:
        yield f"the source is {r.source.path}, and not the log. Pass path=log.path"


def _found(check: _Check) -> None:
    """Whether the log is found in its folder, and others leave it alone."""
    log = check.log
    for name in check.plugins.in_order("evalstats_find_logs"):
        files = [] if log.is_dir() else [LogFile(log)]
        folder = log if log.is_dir() else log.parent
        logs = check.plugins.call("evalstats_find_logs", only=name, folder=folder, files=files)
        claimed = any(log in mine for mine in logs)
        if claimed != (name == check.name) and not (name == "tabular" and check.name != name):
            what = (
                "does not find it in its folder" if name == check.name else "takes it for its own"
            )
            check.problems.append(f"{name} {what} (evalstats_find_logs)")
        other = name != check.name and log.is_file()
        if other and check.read_by(name, log, Selection()) is not None:
            check.problems.append(f"{name} reads it too (evalstats_read_log)")
    with TemporaryDirectory() as folder:
        for k, content in enumerate((b"", b"\0", b"{}", b"[]", b"some text\n", b'{"a": 1}')):
            other = Path(folder) / f"{k}{log.suffix}"
            other.write_bytes(content)
            _tried(check, other, f"a file of others ({content!r})")


def _selected(check: _Check, responses: Sequence[Responses]) -> None:
    """Whether a part of the log, and its names alone, are what they are of the whole."""
    names = [(r.model, r.task, r.metric) for r in responses]
    headers = check.read(check.log, header_only=True, include_incomplete=True) or []
    lacking = {name[1:] for name in names} - {(r.task, r.metric) for r in headers}
    if lacking:
        shown = few([" ".join(name) for name in sorted(lacking)])
        check.problems.append(f"header_only leaves out {shown}: names that are read otherwise")
    first = responses[0]
    parts: tuple[tuple[dict[str, tuple[str, ...]], Callable[[Responses], bool]], ...] = (
        ({"tasks": (first.task,)}, lambda r: r.task == first.task),
        ({"tasks": ("no such task",)}, lambda _: False),
        ({"metrics": ("no such metric",)}, lambda _: False),
    )
    for wanted, kept in parts:
        selected = check.read(check.log, include_incomplete=True, **wanted) or []
        expected = [name for name, r in zip(names, responses, strict=True) if kept(r)]
        if [(r.model, r.task, r.metric) for r in selected] != expected:
            check.problems.append(
                f"a selection of {wanted} is not kept. Ask selection.wants_task(task) and "
                "selection.wants_metric(metric, task)"
            )


def _scores(responses: Sequence[Responses]) -> list[tuple[Any, ...]]:
    """Return what is read of a log, to be compared."""
    return [
        (
            r.model, r.task, r.metric, r.item_ids.astype(str).tolist(),
            np.nan_to_num(r.scores, nan=-1.0, posinf=-2.0, neginf=-3.0).tolist(), r.logged, r.notes,
        )
        for r in responses
    ]  # fmt: skip


def _round_trip(check: _Check, before: list[tuple[Any, ...]], folder: Path) -> None:
    """Whether copies that were annotated once and twice, and stripped, read as before."""
    if check.name not in check.plugins.in_order("evalstats_annotate_log"):
        return
    log = _copied(check, folder / "annotated")
    write = partial(
        annotate, in_place=True, selection=Selection(include_incomplete=True), plugins=check.plugins
    )
    try:
        written = write(log)
    except EvalStatsError as error:
        check.problems.append(f"the log cannot be annotated: {error}")
        return
    once = [each.read_bytes() for each in written]
    for what in ("annotated", "annotated again", "without its annotation"):
        if what == "annotated again":
            write(log)
            if once != [each.read_bytes() for each in written]:
                check.problems.append("annotating again gives another file")
        elif what == "without its annotation":
            strip(log, in_place=True, plugins=check.plugins)
        if _scores(check.read(log, include_incomplete=True) or []) != before:
            check.problems.append(f"a log that was {what} reads otherwise than before")


def _copied(check: _Check, to: Path) -> Path:
    """Return a copy of the log, beside copies of the other files of its run."""
    log = check.log
    if log.is_dir():
        return Path(shutil.copytree(log, to))
    to.mkdir(parents=True)
    for each in sorted(log.parent.iterdir()):
        if each.is_file():
            shutil.copy(each, to / each.name)
    return to / log.name


def _broken(check: _Check, folder: Path, n: int, rng: np.random.Generator) -> None:
    """Read copies that are cut off, or have something else in place of a value."""
    log = _copied(check, folder / "broken")
    files = [log] if log.is_file() else [f for f in sorted(log.rglob("*")) if f.is_file()]
    for file in files[:2]:
        whole = file.read_bytes()
        for share in _CUTS:
            file.write_bytes(whole[: int(share * len(whole))])
            _tried(check, log, f"a log cut off at {100 * share:.0f} %")
        for what, content in _copies(whole, n // len(files[:2]), rng):
            file.write_bytes(content)
            _tried(check, log, f"a log with {what}")
        file.write_bytes(whole)


def _tried(check: _Check, log: Path, what: str) -> None:
    """Read and analyse a log that may be broken: only errors of ours may come of it."""
    problem = ""
    try:
        for r in check.read(log, include_incomplete=True) or []:
            twice = repeated_item(r.item_ids)
            problem = problem or ("an item id is there twice" if twice else "")
            with suppress(EvalStatsError):
                intervals([replace(r, beside=())], rng=0)
    except PluginError as error:
        problem = str(error)
    except EvalStatsError:
        return
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        problem = f"{type(error).__name__}: {error}"
    shown = f"{what}: {problem}. Raise LogError, which says what is wrong and where"
    if problem and shown not in check.problems:
        check.problems.append(shown)


def _copies(whole: bytes, n: int, rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Yield contents in which a value is another, or in binary files a byte."""
    parsed, write = _parsed(whole)
    if parsed is None:
        for _ in range(min(n, 20) if whole else 0):
            at = int(rng.integers(len(whole)))
            byte = bytes([whole[at] ^ int(rng.integers(1, 256))])
            yield f"byte {at} changed", whole[:at] + byte + whole[at + 1 :]
        return
    # Values under the same keys are of one kind, whatever their places in lists.
    of_kind = {
        tuple("*" if isinstance(step, int) else step for step in place): place
        for place in _places(parsed)
    }
    places = list(of_kind.values())
    every = [(place, kind) for place in places for kind in (*BROKEN, "nothing")]
    for k in rng.permutation(len(every))[:n].tolist():
        place, kind = every[int(k)]
        changed = copy.deepcopy(parsed)
        owner: Any = changed
        for step in place[:-1]:
            owner = owner[step]
        if kind == "nothing":
            del owner[place[-1]]
        else:
            owner[place[-1]] = BROKEN[kind]
        yield f"{kind} at {'.'.join(map(str, place))}", write(changed)


def _parsed(whole: bytes) -> tuple[Any, Callable[[Any], bytes]]:
    """Return the values of JSON or of its lines, and what writes them; None for other files."""
    with suppress(ValueError, RecursionError):
        return json.loads(whole), lambda found: json.dumps(found).encode()
    with suppress(ValueError, RecursionError):
        lines = [json.loads(line) for line in whole.splitlines() if line.strip()]
        return lines, lambda found: "\n".join(map(json.dumps, found)).encode() + b"\n"
    return None, lambda _: b""


def _places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the keys that lead to each value."""
    if place:
        yield place
    inner: Any = value
    if isinstance(value, dict):
        for key in inner:
            yield from _places(inner[key], (*place, key))
    elif isinstance(value, list):
        for k in range(min(len(inner), 3)):
            yield from _places(inner[k], (*place, k))

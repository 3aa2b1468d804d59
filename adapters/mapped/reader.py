"""Read JSON and JSONL of any tool as a mapping in TOML says.

::

    items = "results[*]"       # the entries: one for each answer, or each metric of an answer
    item = ".id"               # a path with a dot first starts at the entry,
    model = "config.model"     # any other at the top of the file
    score = ".success"

``[*]`` is each entry of a list or an object; in another path it is the entry that ``items`` is at,
and ``[#]`` its name or number. ``[0]`` and ``[-1]`` are the first and the last, ``["a b"]`` is a
name with any letters. In place of a path there may be a list of them (the first that holds
something counts) or a table: ``{value = "x"}``, ``{path = ".text", after = "Score: "}``,
``{path = ".accuracy", times = 0.01}``, or ``{all = [".base", ".plus"]}``, the lowest of scores. A
score that is a list is one of several epochs. With ``items = "."`` each file is one entry, and
the files of a model and task are joined: those of one item are its epochs. Without ``item``
entries are values of a ``model`` on a ``task``, with ``n`` or ``std_error`` where there is one.

The mappings in ``formats`` are for tools that log everything in one file. Entries become rows of a
table, which `tabular.reader` reads.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from evalstats_plugin.adapters.tabular.reader import WORDS, responses_of
from evalstats_plugin.adapters.tabular.recognition import BY_ORDER, LINES, OF_SUMMARIES
from evalstats_plugin.data.measure import COST, agree
from evalstats_plugin.data.responses import Responses, Selection, Source
from evalstats_plugin.data.tables import as_text, json_cell, read_lines, record_table
from evalstats_plugin.errors import DesignError, LogError, SelectionError, few, no_such
from evalstats_plugin.runtime.files import (
    LogFile,
    number_in,
    parse_json,
    plain_bytes,
    reporting_damage,
    section,
)
from evalstats_plugin.runtime.untrusted import printable_name

Key: TypeAlias = str | int

_PARTS = (
    "model", "task", "metric", "item", "epoch", "cluster", "input", "weight", "higher_is_better",
    "lower_is_better", "min_score", "max_score", "aggregation", "version", "when",
    *OF_SUMMARIES,
)  # fmt: skip
"""Keys of what is read of entries, besides scores."""

_NEEDED = ("item", "metric", "epoch")
"""Those that every entry must have, where the mapping names them."""

_KINDS: tuple[tuple[tuple[str, ...], tuple[type, ...], str], ...] = (
    (("items", "name", "within"), (str,), "a text"),
    (("scores", "costs", "logged", "settings", "values"), (Mapping,), "a table"),
    (("files", "skip"), (list,), "a list"),
    ((*_PARTS, "score"), (str, list, Mapping), "a path, a list of paths, or a table"),
)
"""What the keys hold."""

_KEYS = tuple(key for keys, _, _ in _KINDS for key in keys)

_STEP = re.compile(r'\.?([^.\[\]"]+)|\[(?:([*#])|(-?\d{1,9})|"([^"]+)")\]')
"""A name; or in brackets a sign, a number, or a name with any letters."""

_BESIDE: Mapping[str, tuple[str, ...]] = {
    "path": ("after", "before", "times"), "value": (), "all": ("times",)
}  # fmt: skip
"""What a table in place of a path may hold beside each of its three keys."""

_LONGEST_SETTING = 60
_DEEPEST, _MOST_FIELDS, _MOST_SHOWN = 4, 200, 12


class _Step(Enum):
    EACH = "*"
    KEY = "#"


class _Path(NamedTuple):
    """A path into JSON."""

    text: str
    steps: tuple[Key | _Step, ...]

    @property
    def is_of_entry(self) -> bool:
        """Whether it starts at the entry, and not at the top of the file."""
        return self.text.startswith(".")


class _Entry(NamedTuple):
    """An entry of a file."""

    top: Any
    keys: tuple[Key, ...]
    """What ``[*]`` stands for in the path of the entries, in order."""
    value: Any


@dataclass(frozen=True)
class _Part:
    """What is read of an entry: a value, what is at a path, or the first or lowest of choices."""

    path: _Path | None = None
    value: Any = None
    choices: tuple[_Part, ...] = ()
    is_lowest: bool = False
    after: tuple[str, ...] = ()
    """The text behind the first of these that is there."""
    before: tuple[str, ...] = ()
    """The text up to the nearest of these."""
    times: float = 1.0


@dataclass(frozen=True)
class _Mapping:
    """Where the entries of a file are, and what is read of them."""

    where: str
    """The TOML file, for messages."""
    raw: Mapping[str, Any]
    items: _Path
    parts: Mapping[str, _Part]
    scores: Mapping[str, _Part]
    """By name; "" where there is one score."""
    costs: Mapping[str, _Part]
    """Money, tokens, time: by name, and read only if they are asked for."""
    logged: Mapping[str, _Part]
    settings: Mapping[str, _Part]
    values: Mapping[str, Any]
    """Score by its text in lower case."""
    is_strict: bool
    """Whether a path that no entry has is an error: in a mapping that a user wrote."""


def read_log(log: LogFile, selection: Selection, tool: str | None = None) -> list[Responses]:
    """Read a file as the mapping for its tool says, or without one as the caller's does."""
    if tool is not None:
        mapping = _of_tool(tool)
    else:
        if selection.columns or selection.wide:
            raise SelectionError("a mapping says where everything is: leave columns and wide out")
        mapping = _parsed(selection.mapping)
        files = mapping.raw.get("files")
        if files and _names_in(log.path, files) is None:
            return []
    with reporting_damage(log.path):
        return list(_responses(log, mapping, selection))


@lru_cache(maxsize=8)
def _of_tool(tool: str) -> _Mapping:
    return _parsed(Path(__file__).with_name("formats") / f"{tool}.toml", is_strict=False)


def _parsed(given: Any, *, is_strict: bool = True) -> _Mapping:
    """Return a mapping from its TOML file, or from its content.

    Raises
    ------
    SelectionError
        It is not TOML, or has an unknown key or path; the message has the key and the cure.
    """
    if isinstance(given, Mapping):
        return _mapping("mapping", cast("Mapping[str, Any]", given), is_strict=is_strict)
    try:
        raw = tomllib.loads(plain_bytes(Path(given)).decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SelectionError(f"{given} is not TOML ({error})") from error
    except LogError as error:
        raise SelectionError(str(error)) from error
    return _mapping(Path(given).name, raw, is_strict=is_strict)


def _mapping(where: str, raw: Mapping[str, Any], *, is_strict: bool) -> _Mapping:
    for key, value in raw.items():
        if key not in _KEYS:
            raise SelectionError(f"{where}: {no_such('key', key, _KEYS)}")
        kinds, what = next((kinds, what) for keys, kinds, what in _KINDS if key in keys)
        if not isinstance(value, kinds):
            raise _wrong(f"{where}: {key}", value, f"Write {what}")
    items = _path(f"{where}: items", raw.get("items", ""))
    is_file = items.text == "."
    is_list = _Step.EACH in items.steps and _Step.KEY not in items.steps and not items.is_of_entry
    if not (is_file or is_list):
        cure = 'Write where the entries are, as "results[*]", "[*]" for a list or JSONL'
        raise _wrong(f"{where}: items", items.text, f'{cure}, or "." where each file is one entry')
    if "item" not in raw and not {"model", "task"} <= raw.keys():
        number = "[#]".join(items.text.rsplit("[*]", 1))
        place = "" if is_file else f'; "{number}" is its place'
        cure = f'Write the id of the question, as item = ".id"{place}'
        cure += ". Values without items need model and task instead"
        raise _wrong(f"{where}: item", None, cure)
    if ("score" in raw) == bool(raw.get("scores")):
        cure = 'Write one path, as score = ".success", or a table [scores] of several'
        raise _wrong(f"{where}: score", raw.get("score"), cure)
    for pattern in raw.get("files", ()):
        names = re.findall(r"\{(.*?)\}", str(pattern))
        is_text = isinstance(pattern, str)
        if not is_text or len(set(names)) < len(names) or set(names) - {"model", "task"}:
            cure = "Write names of files with *, ?, {model} and {task}"
            raise _wrong(f"{where}: files", pattern, cure)
    named = [k for k in _PARTS if k in raw and (k, raw[k]) != ("epoch", BY_ORDER)]
    scores, costs, logged, settings = (
        {str(n): _part(f"{where}: {key}.{n}", part) for n, part in raw.get(key, {}).items()}
        for key in ("scores", "costs", "logged", "settings")
    )
    if both := sorted(scores.keys() & costs.keys()):
        raise _wrong(f"{where}: costs", both[0], "It is the name of a score, too: write another")
    for name, part in logged.items():
        if part.path and part.path.is_of_entry and not is_file:
            cure = "Write a path from the top of the file: it is one value for all entries"
            raise _wrong(f"{where}: logged.{name}", part.path.text, cure)
        if name not in (scores or ("score",)):
            raise SelectionError(f"{where}: logged: {no_such('score', name, scores or ('score',))}")
    return _Mapping(
        where, raw, items, {key: _part(f"{where}: {key}", raw[key]) for key in named},
        scores or {"": _part(f"{where}: score", raw["score"])}, costs, logged, settings,
        {str(text).casefold(): score for text, score in raw.get("values", {}).items()},
        is_strict,
    )  # fmt: skip


def _wrong(key: str, value: object, cure: str) -> SelectionError:
    what = "is missing" if value in (None, "") else f"is {value!r}"
    return SelectionError(f"{key} {what}. {cure}.")


def _part(key: str, given: Any) -> _Part:
    if isinstance(given, str):
        return _Part(_path(key, given))
    if isinstance(given, list) and given:
        return _Part(choices=tuple(_part(key, each) for each in cast("list[Any]", given)))
    table = section(given)
    either = [name for name in _BESIDE if name in table]
    if len(either) != 1 or set(table) - {*either, *_BESIDE[either[0]]}:
        cure = 'Write a path, as ".name", a list of paths, or a table with path, value or all'
        more = "with path also after, before and times, with all times"
        raise _wrong(key, cast("object", given), f"{cure}; {more}")
    if "value" in table:
        return _Part(value=table["value"])
    inside, times = _part(key, table[either[0]]), table.get("times", 1.0)
    if not isinstance(times, int | float):
        raise _wrong(f"{key}.times", times, "Write a number")
    return _Part(
        choices=inside.choices or (inside,), is_lowest="all" in table,
        after=_texts(table.get("after", [])), before=_texts(table.get("before", [])),
        times=times,
    )  # fmt: skip


def _texts(given: Any) -> tuple[str, ...]:
    texts = cast("list[Any]", given) if isinstance(given, list) else [given]
    return tuple(str(text) for text in texts if text)


def _path(key: str, text: str) -> _Path:
    """Return a path from its text.

    >>> _path("item", 'eval[*][0]["a b"].c').steps[2:]
    (0, 'a b', 'c')
    """
    steps: list[Key | _Step] = []
    # The dot of an entry stands alone, or before a bracket.
    rest = text[1:] if text == "." or text.startswith(".[") else text
    while rest and (found := _STEP.match(rest)):
        name, sign, number, quoted = found.groups()
        steps.append(name or quoted or (_Step(sign) if sign else int(number)))
        rest = rest[found.end() :]
    if rest or (text.startswith(".") and _Step.KEY in steps):
        cure = 'Write names with dots, [*], [0] or ["a name"]; [#] in paths from the top'
        raise _wrong(key, text, cure)
    return _Path(text, tuple(steps))


def _entries(top: Any, steps: Sequence[Key | _Step], skip: Sequence[str] = ()) -> Iterator[_Entry]:
    """Yield what is at a path, with the names and numbers that ``[*]`` stands for."""
    value = top
    for at, step in enumerate(steps):
        if isinstance(step, _Step):
            pairs: Iterable[tuple[Key, Any]] = section(value).items()
            if isinstance(value, list):
                pairs = enumerate(cast("list[Any]", value))
            for key, inside in pairs:
                if key not in skip:
                    for entry in _entries(inside, steps[at + 1 :], skip):
                        yield _Entry(top, (key, *entry.keys), entry.value)
            return
        value = _get(value, step)
    if value is not None:
        yield _Entry(top, (), value)


def _get(value: Any, key: Key) -> Any:
    if isinstance(key, str):
        return section(value).get(key)
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return listed[key] if -len(listed) <= key < len(listed) else None


def _at(path: _Path, entry: _Entry) -> Any:
    """Return what an entry has at a path: a list of what there is where it has a further [*]."""
    keys = iter(() if path.is_of_entry else entry.keys)
    steps: list[Key | _Step] = []
    for step in path.steps:
        key = next(keys, None) if isinstance(step, _Step) else step
        if step is _Step.KEY:
            return key
        steps.append(step if key is None else key)
    found = [each.value for each in _entries(entry.value if path.is_of_entry else entry.top, steps)]
    return found if _Step.EACH in steps else next(iter(found), None)


def _read(part: _Part, entry: _Entry, values: Mapping[str, Any]) -> Any:
    """Return a part of an entry, None where it has none or it is empty.

    ``values`` are scores by their texts in lower case.
    """
    if part.path is not None:
        value = _at(part.path, entry)
        return None if value in ("", [], {}) else value
    found = [_read(choice, entry, values) for choice in part.choices]
    if not part.is_lowest:
        return _made(next((each for each in found if each is not None), part.value), part)
    return None if None in found else part.times * min(_number(_score(v, values)) for v in found)


def _made(value: Any, part: _Part) -> Any:
    """Return a value with its text cut out and its number scaled, or each value of a list so.

    A number may be written as a text, as one that was cut out is.
    """
    if isinstance(value, list):
        return [_made(each, part) for each in cast("list[Any]", value)]
    if isinstance(value, str):
        if part.after:
            start = next((text for text in part.after if text in value), None)
            value = None if start is None else value.partition(start)[2]
        for end in part.before:
            value = value and value.partition(end)[0]
    if part.times == 1 or not isinstance(value, str | int | float):
        return value
    try:
        return part.times * (number_in(value) if isinstance(value, str) else value)
    except ValueError:
        return value


def _score(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_score(each, values) for each in cast("list[Any]", value)]
    return values.get(value.strip().casefold(), value) if isinstance(value, str) else value


def _number(score: Any) -> float:
    if not isinstance(score, str):
        return float(score)
    try:
        number = WORDS.get(score.strip().casefold())
        return number_in(score) if number is None else number
    except ValueError:
        msg = f"the score {score!r} is no number: add it to [values] of the mapping"
        raise ValueError(msg) from None


def _responses(log: LogFile, mapping: _Mapping, selection: Selection) -> Iterator[Responses]:
    top, notes = _document(log, mapping)
    if task := _same_task(log.path, mapping):
        notes += (f"{mapping.where} names no task: {task!r} is used",)
    entries = list(_entries(top, mapping.items.steps, mapping.raw.get("skip", ())))
    if not entries:
        raise LogError(_no_entries(log.path, mapping, top))
    file = _File(log.path, mapping, entries)
    columns = _columns(file, selection)
    source = Source(
        path=log.path, harness=str(mapping.raw.get("name", "mapped")),
        version=columns.pop("version", [None])[0], when=columns.pop("when", [""])[0],
    )  # fmt: skip
    by_order = mapping.raw.get("epoch") == BY_ORDER
    # Scores that stand for missing are taken out later: the value that the tool gives has them.
    columns_of = (("epoch", BY_ORDER),) if by_order else ()
    chosen = replace(selection, mapping=None, cluster=None, missing_codes=(), columns=columns_of)
    scores = {
        name: file.column(f"scores.{name}" if name else "score", part)
        for name, part in mapping.scores.items()
    }
    costs = {
        name: file.column(f"costs.{name}", part)
        for name, part in mapping.costs.items()
        if selection.wants_cost(name)
    }
    every = replace(chosen, metrics=()) if selection.costs else chosen
    if not any(scores.values()):
        raise LogError(file.unmatched("score", next(iter(mapping.scores.values()))))
    for settings, rows in _by_settings(file).items():
        if not by_order:
            _refuse_twice(file, columns, rows)
        for name, values in (*scores.items(), *costs.items()):
            if values is None:
                continue
            records = [record for k in rows for record in _records(columns, k, name, values[k])]
            table = record_table(records, str(log.path), notes)
            try:
                made = list(responses_of(table, log.path, every if name in costs else chosen))
            except DesignError as error:
                hint = f"Rows are entries of {mapping.items.text}; [values] gives scores to texts."
                raise DesignError(f"{error} {hint}") from error
            own = mapping.logged.get(name or "score")
            logged = own and _read(own, entries[rows[0]], {})
            if own and logged is None and mapping.is_strict and not file.is_there(own):
                raise LogError(file.unmatched(f"logged.{name or 'score'}", own))
            for r in made:
                known = replace(r, source=source, settings=settings)
                if name in costs:
                    known = known.measured(scale=COST, scale_from="logged", higher_is_better=False)
                if not mapping.is_strict and selection.cluster is None:
                    known = _without_single_clusters(known)
                yield known if len(made) > 1 else _with_logged(known, logged)


def _by_settings(file: _File) -> dict[tuple[tuple[str, str], ...], list[int]]:
    """Return the entries of each combination of settings of the model."""
    parts = file.mapping.settings.items()
    columns = {name: file.column(f"settings.{name}", part) for name, part in parts}
    rows: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for i in range(len(file.entries)):
        held = ((name, column[i]) for name, column in columns.items() if column)
        settings = tuple((name, _setting(value)) for name, value in held if value is not None)
        rows.setdefault(settings, []).append(i)
    return rows


def _without_single_clusters(r: Responses) -> Responses:
    """Return responses without clusters where each holds one item: none was repeated."""
    single = r.clusters is not None and len(set(r.clusters.tolist())) == len(r.clusters)
    return replace(r, clusters=None) if single else r


def _document(log: LogFile, mapping: _Mapping) -> tuple[Any, tuple[str, ...]]:
    """Return what is in a file, and notes."""
    if log.path.suffix.lower() in LINES:
        return read_lines(log.read_bytes(), str(log.path))
    top = parse_json(log.read_bytes(), log.path)
    inside = _get(top, mapping.raw["within"]) if "within" in mapping.raw else None
    return top if inside is None else inside, ()


@dataclass(frozen=True)
class _File:
    """The entries of a file."""

    path: Path
    mapping: _Mapping
    entries: Sequence[_Entry]

    def column(self, key: str, part: _Part) -> list[Any] | None:
        """Return a part of every entry; None where none has it, which a user's mapping must not.

        Scores that are all null are missing.

        Raises
        ------
        LogError
            No entry has it, or some have no item, metric or epoch.
        """
        values = self.mapping.values
        column = [_read(part, entry, values) for entry in self.entries]
        lacking = [k for k, value in enumerate(column) if value is None]
        if len(lacking) == len(column):
            is_null = self.mapping.is_strict and self.is_there(part)
            if key in _NEEDED or (self.mapping.is_strict and not is_null):
                raise LogError(self.unmatched(key, part))
            return column if is_null and key.startswith("score") else None
        if lacking and key in _NEEDED:
            raise LogError(
                f"{self.path}: {self.place(lacking[0])} has no {key} ({self.mapping.where}: {key} "
                f"= {self.mapping.raw[key]!r}). Write it into every entry, or name another path."
            )
        return [_score(value, values) for value in column] if key.startswith("score") else column

    def place(self, k: int) -> str:
        """Return the path of an entry, with its names and numbers."""
        text = self.mapping.items.text
        for key in self.entries[k].keys:
            text = text.replace("[*]", f"[{json.dumps(key)}]", 1)
        return text

    def paths(self, part: _Part) -> tuple[str, list[str]]:
        """Return the path of a part, and those that there are in the first entry or the file."""
        while part.path is None and part.choices:
            part = part.choices[0]
        text = part.path.text if part.path else str(part.value)
        entry = self.entries[0]
        value, before = (entry.value, ".") if text.startswith(".") else (entry.top, "")
        return text, list(islice(_fields(value, before), _MOST_FIELDS))

    def is_there(self, part: _Part) -> bool:
        """Whether there is a path such as that of a part, even if all it holds is null."""
        text, known = self.paths(part)
        return text in known

    def unmatched(self, key: str, part: _Part) -> str:
        """Return the message that no entry has a part, with the closest and the existing paths."""
        text, known = self.paths(part)
        what = f"field of {self.mapping.items.text if text.startswith('.') else 'the file'}"
        told = no_such(what, text, known, few(known, _MOST_SHOWN) or "none")
        return f"{self.path}: {self.mapping.where}: {key}: {told}"


def _columns(file: _File, selection: Selection) -> dict[str, list[Any]]:
    """Return the columns of a table with a row for each entry."""
    parts = {key: file.column(key, part) for key, part in file.mapping.parts.items()}
    for key, field in (("cluster", selection.cluster), (selection.by, selection.by)):
        if key is not None and field is not None:
            path = _path(field, field if field.startswith(".") else f".{field}")
            found = [_at(path, entry) for entry in file.entries]
            if key == "cluster" or any(value is not None for value in found):
                parts[key] = found
    columns = {
        key: [as_text(json_cell(value)) for value in column]
        for key, column in parts.items()
        if column
    }
    names = _names_in(file.path, file.mapping.raw.get("files", ())) or {}
    names |= {"model": selection.model_name} if selection.model_name else {}
    names |= {"task": task} if (task := _same_task(file.path, file.mapping)) else {}
    for key in ("model", "task"):
        if key in names or key in columns:
            given = columns.get(key, [""] * len(file.entries))
            columns[key] = [value or names.get(key, "") for value in given]
    if "input" in columns:
        columns["hash"] = [_digest(text) for text in columns.pop("input")]
    return columns


def _same_task(path: Path, mapping: _Mapping) -> str | None:
    """Return the task of files that each name their model, where nothing names the task."""
    names = _names_in(path, mapping.raw.get("files", ())) or {}
    if "model" not in names or "task" in names or "task" in mapping.parts:
        return None
    return str(mapping.raw.get("name", "task"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16] if text else ""


def _records(
    columns: Mapping[str, list[Any]], k: int, name: str, score: Any
) -> Iterator[dict[str, Any]]:
    """Yield the rows of an entry: one for each epoch, where its score is a list."""
    row = {key: column[k] for key, column in columns.items()}
    if metric := ",".join(part for part in (row.get("metric"), name) if part):
        row["metric"] = metric
    several = cast("list[Any]", score) if isinstance(score, list) else [score]
    for nth, each in enumerate(several):
        # Epochs sort as numbers, in which 1.1 is 1.10.
        epoch = {"epoch": f"{row['epoch']}.{nth:06d}" if "epoch" in row else nth}
        yield {**row, "score": each, **(epoch if len(several) > 1 else {})}


def _refuse_twice(file: _File, columns: Mapping[str, list[Any]], rows: Sequence[int]) -> None:
    told = [columns[key] for key in ("model", "task", "metric", "item", "epoch") if key in columns]
    seen: dict[tuple[Any, ...], int] = {}
    for k in rows:
        first = seen.setdefault(tuple(column[k] for column in told), k)
        if first != k:
            one = "one model and one task"
            of = f"item {columns['item'][k]!r}, {one}" if "item" in columns else one
            apart = 'epoch = ".repeat", model' if "item" in columns else 'item = ".id", model'
            order = '; epoch = "order" numbers answers to an item in their order'
            raise LogError(
                f"{file.path}: {file.place(first)} and {file.place(k)} are both of {of}. Say in "
                f"{file.mapping.where} what tells them apart, as {apart}, task or [settings]"
                f"{order if 'item' in columns else ''}."
            )


def _with_logged(r: Responses, logged: Any) -> Responses:
    """Return responses with the value that the tool gives, and a note where items give another."""
    means = r.item_means
    if not isinstance(logged, int | float) or not (
        math.isfinite(logged) and np.isfinite(means).any()
    ):
        return r
    mean = float(np.nanmean(means))
    with_value = replace(r, logged=float(logged))
    if agree(mean, logged):
        return with_value
    return with_value.noted(f"mismatch: {logged:.6g} was logged, the items give {mean:.6g}")


def _setting(value: Any) -> str:
    text = printable_name(value if isinstance(value, str) else json.dumps(value, sort_keys=True))
    long = len(text) > _LONGEST_SETTING
    return f"{text[:_LONGEST_SETTING]}… {_digest(text)[:8]}" if long else text


def _names_in(path: Path, patterns: Sequence[str]) -> dict[str, str] | None:
    """Return the names in a file's path by the first pattern that fits, None where none does.

    >>> _names_in(Path("out/humaneval/m_1.json"), ["{task}/{model}.json"])
    {'task': 'humaneval', 'model': 'm_1'}
    """
    signs = {"*": "[^/]*", "?": "[^/]"}
    for pattern in patterns:
        expression = "".join(
            f"(?P<{part[1:-1]}>[^/]+?)" if part[:1] == "{" else signs.get(part) or re.escape(part)
            for part in re.split(r"(\{\w+\}|[*?])", pattern)
        )
        end = "/".join(path.parts[-1 - pattern.count("/") :])
        if match := re.fullmatch(expression, end):
            return match.groupdict()
    return None


def _no_entries(path: Path, mapping: _Mapping, top: Any) -> str:
    lists = [field for field in islice(_fields(top, ""), _MOST_FIELDS) if field.endswith("[*]")]
    if mapping.items.text in lists:
        return f"{path}: {mapping.items.text} is empty: the run has no results"
    shown = few(lists, _MOST_SHOWN) or "none"
    return f"{path}: {mapping.where}: items: {no_such('list', mapping.items.text, lists, shown)}"


def _fields(value: Any, before: str, depth: int = 0) -> Iterator[str]:
    """Yield the paths in JSON, those of lists with ``[*]``."""
    if isinstance(value, list):
        yield f"{before}[*]"
        inside = cast("list[Any]", value)
        if inside and isinstance(inside[0], Mapping) and depth < _DEEPEST:
            yield from _fields(inside[0], f"{before}[*].", depth + 1)
    elif isinstance(value, Mapping) and depth < _DEEPEST:
        dot = before if before in ("", ".") else f"{before.removesuffix('.')}."
        for name, inside in cast("Mapping[str, Any]", value).items():
            quoted = f'{"." if dot == "." else dot.removesuffix(".")}["{name}"]'
            text = f"{dot}{name}" if _STEP.fullmatch(name) else quoted
            yield from _fields(inside, text, depth + 1)
    elif before.rstrip("."):
        yield before

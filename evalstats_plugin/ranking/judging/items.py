"""Items to be compared: read from the lines of a file, the files of a folder, JSON or CSV rows."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from evalstats_plugin.data.tables import decoded
from evalstats_plugin.errors import DesignError, LogError, few
from evalstats_plugin.runtime.files import parse_json

NAMES = ("name", "id", "model", "item")
TEXTS = ("text", "answer", "output", "response", "completion")
PROMPTS = ("prompt", "question", "input")
"""Fields of a row that may hold the name, the text and the prompt, in order of preference."""
LONGEST_NAME = 80
"""Most characters of a text that is its own name; a longer one is named by its place."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to be compared."""

    name: str
    text: str
    prompt: str | None = None
    """What the text answers, if known."""
    place: str = ""
    """Line, row or file of the item, for messages."""
    markdown: bool = False
    """Whether to lay out the text as Markdown."""


@dataclass(frozen=True)
class Items:
    """Two or more items with different names."""

    items: tuple[Item, ...]
    source: str

    def __post_init__(self) -> None:
        """Require at least two items with different names."""
        if len(self.items) < 2:
            given = f"one item ({self.items[0].name})" if self.items else "no items"
            raise DesignError(f"{self.source}: {given}: give two or more to compare")
        places: dict[str, str] = {}
        for item in self.items:
            if item.name in places:
                raise DesignError(
                    f"{self.source}: {item.name!r} occurs twice ({places[item.name]} and "
                    f"{item.place}): remove or rename one"
                )
            places[item.name] = item.place

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the given order."""
        return tuple(item.name for item in self.items)

    @property
    def prompt(self) -> str | None:
        """The prompt that all items answer; None if there is none, or several."""
        prompts = {item.prompt for item in self.items}
        return prompts.pop() if len(prompts) == 1 else None

    def in_order(self, names: Sequence[str]) -> Items:
        """Select the items of these names, which must all exist, in this order."""
        by_name = {item.name: item for item in self.items}
        if missing := [name for name in names if name not in by_name]:
            raise DesignError(
                f"{self.source} lacks {len(missing)} items that were compared before "
                f"({few(missing)}): give all of them"
            )
        return Items(tuple(by_name[name] for name in names), self.source)


def read_items(path: str | Path, prompt: str | None = None) -> Items:
    """Read the items of a text file, a folder, a JSON, JSONL or CSV file.

    Parameters
    ----------
    path
        A text file with one item a line, which is its own name; a folder with one item a file,
        named after the file; rows of JSONL, JSON or CSV with ``text`` and optionally ``name`` and
        ``prompt``; ``-`` for lines from standard input.
    prompt
        What all items answer; replaces the prompts of the rows.

    Raises
    ------
    LogError
        The file does not exist, is not UTF-8, or a row cannot be read.
    DesignError
        Fewer than two items, or one item twice.
    """
    where = Path(path)
    if str(path) == "-":
        items, source = _lines(sys.stdin.buffer.read(), "standard input"), "standard input"
    else:
        source = str(path)
        try:
            items = _folder(where) if where.is_dir() else _file(where)
        except OSError as error:
            raise LogError(f"{path} cannot be read as items: {error.strerror or error}") from error
    if prompt is not None:
        items = [replace(item, prompt=prompt) for item in items]
    elif len({item.prompt for item in items}) > 1:
        # No prompt is common to all, so each item shows its own above the text.
        items = [
            item
            if item.prompt is None
            else replace(
                item, text=f"{item.prompt}\n\n---\n\n{item.text}", prompt=None, markdown=True
            )
            for item in items
        ]
    return Items(tuple(items), source)


def _file(path: Path) -> list[Item]:
    content = path.read_bytes()
    if path.suffix == ".jsonl":
        items: list[Item] = []
        for n, text in _numbered(content, str(path)):
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise LogError(f"{path}, line {n} is not JSON: {error}") from error
            items.append(_row(row, f"line {n}", str(path)))
        return items
    if path.suffix == ".json":
        whole = parse_json(content, path)
        if isinstance(whole, dict):
            whole = cast("dict[str, Any]", whole).get("items")
        if not isinstance(whole, list):
            raise LogError(f'{path}: no list of items: give a list, or an object with "items"')
        rows = enumerate(cast("list[Any]", whole), 1)
        return [_row(row, f"item {n}", str(path)) for n, row in rows]
    if path.suffix in (".csv", ".tsv"):
        text = io.StringIO(decoded(content, str(path)), newline="")
        reader = csv.DictReader(text, delimiter="\t" if path.suffix == ".tsv" else ",")
        # Without a column of texts they are lines that happen to be called so.
        try:
            if set(TEXTS) & set(reader.fieldnames or ()):
                return [_row(row, f"row {n}", str(path)) for n, row in enumerate(reader, 1)]
        except csv.Error as error:
            raise LogError(f"{path} cannot be read as CSV: {error}; write JSONL") from error
    return _lines(content, str(path))


def _lines(content: bytes, source: str) -> list[Item]:
    return [Item(text, text, place=f"line {n}") for n, text in _numbered(content, source)]


def _numbered(content: bytes, source: str) -> list[tuple[int, str]]:
    """Numbers and text of the lines that are not blank, as editors count them."""
    # Not splitlines, which also splits at characters that JSON strings may contain.
    lines = enumerate(decoded(content, source).split("\n"), 1)
    return [(n, text.strip()) for n, text in lines if text.strip()]


def _folder(folder: Path) -> list[Item]:
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    # Names without endings read better, if they remain different.
    stems = {p.stem for p in files}
    short = len(stems) == len(files)
    return [
        Item(
            p.stem if short else p.name,
            decoded(p.read_bytes(), str(p)),
            place=p.name,
            markdown=p.suffix.lower() in (".md", ".markdown"),
        )
        for p in files
    ]


def _row(row: Any, place: str, source: str) -> Item:
    """Read one row: a text, or an object with a text."""
    if isinstance(row, str):
        return Item(_name(row, place), row, None, place, markdown="\n" in row.strip())
    if not isinstance(row, dict):
        msg = f"{source}, {place}: {type(row).__name__} is no item: give a text or an object"
        raise LogError(msg)
    fields = cast("dict[str, Any]", row)
    text = _first(fields, TEXTS)
    if text is None:
        raise LogError(
            f"{source}, {place}: no field with the item's text among "
            f"{few(list(fields)) or 'none'}: call it one of {', '.join(TEXTS)}"
        )
    name, prompt = _first(fields, NAMES) or _name(text, place), _first(fields, PROMPTS)
    # Answers of models are usually Markdown, but single lines rarely are.
    return Item(name, text, prompt, place, markdown="\n" in text.strip())


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """First of the fields that has a value, as text."""
    values = [fields[name] for name in names if fields.get(name) is not None]
    return str(values[0]) if values else None


def _name(text: str, place: str) -> str:
    """Use a short text of one line as the name, else the place and the first words."""
    name = text.strip()
    if name and "\n" not in name and len(name) <= LONGEST_NAME:
        return name
    return f"{place}: {' '.join(name.split())[:40]}".rstrip(": ")

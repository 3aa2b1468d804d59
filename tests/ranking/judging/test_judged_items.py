"""`evalstats_plugin.ranking.judging.items`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalstats_plugin.errors import DesignError, LogError
from evalstats_plugin.ranking.judging.items import LONGEST_NAME, read_items


def test_a_text_file_has_one_item_a_line(tmp_path: Path) -> None:
    """Blank lines and a byte order mark are none."""
    file = tmp_path / "items.txt"
    file.write_bytes("\ufeffespresso\r\n\n  flat white \nçay\n".encode())

    items = read_items(file)

    assert ("espresso", "flat white", "çay") == items.names
    assert items.prompt is None
    assert not any(item.markdown for item in items.items)


def test_a_folder_has_one_item_a_file(tmp_path: Path) -> None:
    """Named without the ending where that is enough; hidden files are none."""
    for name, text in (("b.md", "# B"), ("a.txt", "A"), (".hidden", "x")):
        (tmp_path / name).write_text(text)

    items = read_items(tmp_path, prompt="Which?")

    assert ("a", "b") == items.names
    assert (False, True) == tuple(item.markdown for item in items.items)
    assert "Which?" == items.prompt
    (tmp_path / "a.md").write_text("other")
    assert ("a.md", "a.txt", "b.md") == read_items(tmp_path).names


def test_rows_of_jsonl_have_text_name_and_prompt(tmp_path: Path) -> None:
    """A text that is long is named by its place; U+2028 within JSON does not end a line."""
    rows = [
        {"model": "m1", "output": "one\u2028two", "question": "Q"},
        {"answer": "x" * (LONGEST_NAME + 1), "prompt": "Q"},
    ]
    file = tmp_path / "items.jsonl"
    file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))

    items = read_items(file)

    assert ("m1", "line 2: " + "x" * 40) == items.names
    assert "one\u2028two" == items.items[0].text
    assert "Q" == items.prompt


def test_rows_of_csv_are_items_where_a_column_is_of_texts(tmp_path: Path) -> None:
    """Else they are lines."""
    file = tmp_path / "items.csv"
    file.write_text('name,text\nant,small\nbee,"larger, a bit"\n')
    assert [(i.name, i.text) for i in read_items(file).items] == [
        ("ant", "small"), ("bee", "larger, a bit"),
    ]  # fmt: skip
    file.write_text("ant, small\nbee\n")
    assert read_items(file).names == ("ant, small", "bee")
    file.write_text("name,text\nant,small\nbee," + "x" * 140_000)
    with pytest.raises(LogError, match="cannot be read as CSV: field larger than"):
        read_items(file)


def test_different_prompts_are_shown_above_their_items(tmp_path: Path) -> None:
    """And none above both."""
    file = tmp_path / "items.jsonl"
    rows = [{"text": "a", "prompt": "P"}, {"text": "b", "prompt": "R"}]
    file.write_text("\n".join(json.dumps(row) for row in rows))

    items = read_items(file)

    assert items.prompt is None
    assert "P\n\n---\n\na" == items.items[0].text


def test_the_items_of_a_file_of_comparisons_are_items(tmp_path: Path) -> None:
    """So that another judge can start from it."""
    file = tmp_path / "comparisons.json"
    file.write_text(json.dumps({"items": ["a", "b"], "comparisons": []}))

    assert ("a", "b") == read_items(file).names


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no items: give two or more to compare"),
        (b"tea\n", r"one item \(tea\): give two or more"),
        (b"tea\ncake\n tea\n", r"'tea' occurs twice \(line 1 and line 3\)"),
        (b"tea\ncaf\xe9\n", r"items.txt: byte 0xe9 at position 7 \(line 2\) is not UTF-8; convert"),
        (b"\xef\xbb\xbftea\n\xff", r"byte 0xff at position 4 \(line 2\)"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """With the line, and what to do."""
    file = tmp_path / "items.txt"
    file.write_bytes(content)

    with pytest.raises((DesignError, LogError), match=message):
        read_items(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "a"}\n{"text"', "line 2 is not JSON"),
        (
            '{"text": "a"}\n{"txt": "b"}',
            "line 2: no field with the item's text among txt: call it one of text",
        ),
        ('{"text": "a"}\n3', "line 2: int is no item: give a text or an object"),
    ],
)
def test_an_invalid_row_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """By its number."""
    file = tmp_path / "items.jsonl"
    file.write_text(text)

    with pytest.raises(LogError, match=message):
        read_items(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """One message."""
    with pytest.raises(LogError, match="cannot be read as items: No such file"):
        read_items(tmp_path / "none.txt")

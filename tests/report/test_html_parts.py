"""Parts of the page that need no browser."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix, intervals
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.report.html.page import environment
from evalstats_plugin.report.html.parts import (
    PageColumn,
    codes,
    held_items,
    items_data,
    natural,
    packed,
    packing,
    page_table,
    scores_table,
    shortened,
    table_data,
    texts_data,
)
from evalstats_plugin.report.tables import Table
from evalstats_plugin.report.text import number
from evalstats_plugin.scores.items import item_answers
from evalstats_plugin.scores.rows import Intervals


def _answers(scores: np.ndarray) -> list:
    return item_answers(ResponseMatrix.from_array(scores).to_responses())[0]


def _html(table: Table) -> str:
    importing = '{% from "table.jinja" import table %}{{ table(given) }}'
    return environment().from_string(importing).render(given=table)


def test_texts_and_attributes_are_escaped_and_cleaned() -> None:
    """Whatever is not said to be HTML is text, without control characters."""
    name = 'x < "y" & \x1b\u202e'
    columns = [PageColumn(name, str, hint=name, heads=True)]
    found = _Parts()
    html = _html(page_table(name, [name], columns))
    found.feed(html)

    assert html.count("x &lt; &#34;y&#34; &amp; \ufffd\ufffd") == 5
    titles = [dict(attributes).get("title") for tag, attributes in found.found if tag == "th"]
    assert titles == ['x < "y" & \ufffd\ufffd', None]


def test_data_cannot_end_its_block_and_is_read_back_whole() -> None:
    """Neither by </script> nor by <!--, and line separators of JavaScript are escaped."""
    value = {"a": "</script><!--<script>&\u2028\ud800", "b": [None, 0.5]}
    block = environment().from_string("{{ value|tojson }}")
    inside = block.render(value=value)

    assert not set("<>&\u2028") & set(inside)
    assert inside.isascii()
    assert json.loads(inside) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        block.render(value=float("nan"))


def test_shortened_numbers_are_written_as_the_long_ones() -> None:
    """What scripts get, they write as the terminal does, but for a minus before nothing."""
    rng = np.random.default_rng(0)
    values = [*(10 ** rng.uniform(-6, 9, 2000) * rng.choice([-1, 1], 2000)), 99.99996, 9999.996]
    for value in values:
        again = number(shortened(float(value)))

        assert again.replace("-0.0000", "0.0000") == number(value).replace("-0.0000", "0.0000")


def _unpacked(letters: str, bits: int, n: int) -> list[int]:
    """Read a row of letters as one long binary number."""
    alphabet = ascii_uppercase + ascii_lowercase + digits + "-_"
    binary = "".join(f"{alphabet.index(letter):06b}" for letter in letters)
    return [int(binary[bits * i :][:bits], 2) for i in range(n)]


@pytest.mark.parametrize(("n_values", "bits"), [(1, 1), (2, 2), (7, 3), (8, 6), (63, 6), (64, 12)])
def test_answers_survive_their_packing(n_values: int, bits: int) -> None:
    """In as few bits as the number of values and "missing" take."""
    rng = np.random.default_rng(n_values)
    scores = (
        np.concatenate([np.arange(n_values), rng.integers(0, n_values, 1000 - n_values)]).reshape(
            -1, 8
        )
        / 7
    )
    scores = np.where(rng.random(scores.shape) < 0.1, np.nan, scores)
    scores.flat[:n_values] = np.arange(n_values) / 7
    values, found = packing(scores)
    rows = [_unpacked(row, bits, 8) for row in packed(codes(scores, values), bits)]
    back = np.array([[values[c - 1] if c else np.nan for c in row] for row in rows])

    assert found == bits
    np.testing.assert_allclose(back, scores, atol=1e-12)


def test_of_very_many_values_those_far_apart_stay_different() -> None:
    """In even steps from the least to the greatest, 15 and 20 were one score beside 1e7."""
    scores = np.append(1e7 + np.arange(3000.0), [15.0, 20.0])[None]
    values, bits = packing(scores)

    assert (bits, len(values)) == (12, 3002)
    assert codes(scores, values)[0, -2] < codes(scores, values)[0, -1]
    assert 4095 == len(packing(np.arange(20_000.0)[None])[0])


def test_of_too_many_items_the_flagged_are_kept() -> None:
    """And what is left out is said."""
    scores = (np.random.default_rng(1).random((12, 50)) < 0.5) * 1.0
    scores[:, 40:] = 1.0
    found = _answers(scores)
    [one], said = held_items(found, most=15)
    flags = [one.answers.flags[j] for j in one.places]

    assert flags.count("all right") == 10
    assert len(flags) == 15
    assert said == "This page holds 15 of the 50 items, flagged ones first."
    assert held_items(found)[1] == ""
    assert sum(len(o.places) for o in held_items(found, letters=42)[0]) == 42 // 4
    [block] = items_data([one], one.answers.models)
    # Right, wrong or missing take two bits: three models a letter.
    assert len(block["letters"]) == 15 * 12 / 3


def test_items_lie_in_the_order_of_their_numbers() -> None:
    """As the page's script sorts them; numbers of any length are compared."""
    names = ["item_10", "item_2", "b", "1" * 5000, "10", "9", "item_2a"]

    assert ["9", "10", "1" * 5000, "b", "item_2", "item_2a", "item_10"] == sorted(
        names, key=natural
    )


def test_bars_lie_where_the_numbers_say() -> None:
    """From 0 to 1 for shares, over the intervals of a task for others."""
    rng = np.random.default_rng(3)
    matrix = ResponseMatrix.from_array(rng.normal(size=(2, 30)) * 20 + 5)
    found = intervals(matrix)
    column = next(c for c in scores_table(found, {}).columns if c.kind == "interval")
    known = [x for row in found for x in (row.low, row.high)]
    assert {(min(known), max(known))} == {column.axis(row) for row in found}
    whole = replace(found.rows[0], low=0.2, high=0.4, estimate=0.3)
    text = _html(scores_table(Intervals((whole,)), {}))
    assert '<rect class="reach" x="20.0" y="4" width="20.0" height="5">' in text


def test_a_column_without_anything_to_say_is_left_out() -> None:
    """Such as epochs, where items were taken once; one that names the rows stays."""
    columns = [
        PageColumn("Model", lambda _: "", heads=True),
        PageColumn("Epochs", lambda _: None, kind="count"),
        PageColumn("Items", lambda row: row, kind="count"),
    ]

    table = page_table("X", [0, None], columns)
    assert [c["title"] for c in table_data("x", table)["columns"]] == ["Model", "Items"]


class _Parts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_texts_are_sent_once_an_item_and_within_a_limit() -> None:
    """Question and target are common to the models; what does not fit is counted."""
    held, _ = held_items(_answers(np.eye(3)))
    models = held[0].answers.models
    texts = {
        (model, held[0].answers.task, item): ItemText("2+2?\nthink\x1b", "4", model * 3, "doc_id 1")
        for item in held[0].answers.item_ids
        for model in models
    }
    found, said = texts_data(held, models, texts)

    assert said == ""
    assert len(found) == 3
    assert found["0.1"] == {
        "question": "2+2?\nthink\ufffd", "target": "4",
        "answers": {str(k): [model * 3, "doc_id 1"] for k, model in enumerate(models)},
    }  # fmt: skip
    found, said = texts_data(held, models, texts, most=100)
    assert said == "Texts of 7 answers would make this page too large."
    assert sum(len(one["answers"]) for one in found.values()) == 2

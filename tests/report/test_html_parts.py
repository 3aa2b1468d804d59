"""Parts of the page that need no browser."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix, compare, intervals
from evalstats_plugin.comparisons.rows import Comparisons
from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.html import parts
from evalstats_plugin.report.html.page import environment
from evalstats_plugin.report.html.parts import (
    ALPHABET,
    Column,
    Table,
    codes,
    comparisons_table,
    held,
    held_items,
    items_table,
    natural,
    packed,
    packing,
    ranks,
    scores_table,
    shortened,
    table_data,
)
from evalstats_plugin.report.text import number
from evalstats_plugin.scores.items import item_answers
from evalstats_plugin.scores.rows import Intervals

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    "<defs><style>*{stroke-linecap: butt}</style></defs>"
    '<use xlink:href="#a" style="fill: red"/>'
    '<text style="font: 8px serif">style="x: y" &lt;b></text>'
    '<path style="fill: red"/></svg>'
)


def _answers(scores: np.ndarray) -> list:
    return item_answers(ResponseMatrix.from_array(scores).to_responses())[0]


def _html(table: Table) -> str:
    importing = '{% from "table.jinja" import table %}{{ table(given) }}'
    return environment().from_string(importing).render(given=table)


def test_texts_and_attributes_are_escaped_and_cleaned() -> None:
    """Whatever is not said to be HTML is text, without control characters."""
    name = 'x < "y" & \x1b\u202e'
    columns = [Column(title=name, hint=name, values=[name], heads=True)]
    found = _Parts()
    html = _html(Table(name="t", caption=name, columns=columns))
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
    binary = "".join(f"{ALPHABET.index(letter):06b}" for letter in letters)
    if bits == 12:
        return [int(binary[12 * i : 12 * i + 12], 2) for i in range(n)]
    per = 6 // bits
    return [int(binary[6 * (i // per) + bits * (i % per) :][:bits], 2) for i in range(n)]


@pytest.mark.parametrize(("n_values", "bits"), [(1, 1), (2, 2), (7, 3), (8, 6), (63, 6), (64, 12)])
def test_answers_survive_their_packing(n_values: int, bits: int) -> None:
    """In as few bits as the number of values and "missing" take; many values nearly."""
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
    np.testing.assert_allclose(back, scores, atol=n_values / 7 / 8188 if bits == 12 else 1e-12)


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
    table = items_table([one])
    # Right, wrong or missing take two bits: three models a letter.
    assert len(table_data(table)["blocks"][0]["letters"]) == 15 * 12 / 3


def test_items_lie_in_the_order_of_their_numbers() -> None:
    """As the page's script sorts them; numbers of any length are compared."""
    names = ["item_10", "item_2", "b", "1" * 5000, "10", "9", "item_2a"]

    assert ["9", "10", "1" * 5000, "b", "item_2", "item_2a", "item_10"] == sorted(
        names, key=natural
    )


def test_of_too_many_comparisons_those_with_the_best_are_kept() -> None:
    """As many as there are others, for each task."""
    p = np.array([[0.9], [0.1], [0.5], [0.4], [0.3]])
    scores = (np.random.default_rng(2).random((5, 100)) < p) * 1.0
    tasks = ["t"] * 50 + ["u"] * 50
    rows = compare(ResponseMatrix.from_array(scores, tasks=tasks), rng=0).rows
    kept, said = held(rows, ranks(rows), most=10)

    assert held(rows, ranks(rows), most=20) == (list(rows), "")
    assert all("model_0" in (row.model_a, row.model_b) for row in kept)
    assert len(kept) == 2 * 4
    assert "holds 8 of the 20 comparisons: those with the highest-ranked model" in said
    assert len(held(rows, [], most=3)[0]) == 3


def test_bars_lie_where_the_numbers_say() -> None:
    """From 0 to 1 for shares, over the intervals of a task for others, 0 in the middle of all."""
    rng = np.random.default_rng(3)
    matrix = ResponseMatrix.from_array(rng.normal(size=(2, 30)) * 20 + 5)
    found = intervals(matrix)
    column = next(c for c in scores_table(found, {}).columns if c.kind == "interval")
    known = [x for row in found for x in (row.low, row.high)]
    assert column.axes == [(min(known), max(known))]
    whole = replace(found.rows[0], low=0.2, high=0.4, estimate=0.3)
    text = _html(scores_table(Intervals((whole,)), {}))
    assert '<rect class="reach" x="20.0" y="4" width="20.0" height="5">' in text
    table = comparisons_table(compare(matrix, rng=0).rows, {})
    column = next(c for c in table.columns if c.kind == "interval")
    assert [low for low, _ in column.axes] == [-high for _, high in column.axes]


def test_a_column_without_anything_to_say_is_left_out() -> None:
    """Such as epochs, where items were taken once; one that names the rows stays."""
    columns = [
        Column(title="Model", values=["", ""], heads=True),
        Column(title="Epochs", kind="count", values=[None, None]),
        Column(title="Items", kind="count", values=[0, None]),
    ]

    table = Table(name="x", caption="X", columns=columns)
    assert [c["title"] for c in table_data(table)["columns"]] == ["Model", "Items"]


class _Parts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_figures_say_their_styles_by_classes() -> None:
    """A strict page allows no style attributes; text that looks like one stays text."""
    styles: dict[str, str] = {}
    text = parts.inline(SVG, styles)
    parser = _Parts()
    parser.feed(text)

    assert styles == {"fill: red": "s0", "font: 8px serif": "s1"}
    assert [(tag, at.get("class")) for tag, at in parser.found] == [
        ("svg", None), ("defs", None), ("use", "s0"), ("text", "s1"), ("path", "s0"),
    ]  # fmt: skip
    assert parser.found[2][1]["href"] == "#a"
    assert 'style="x: y" &lt;b' in text
    found = parts.Drawn(styles=styles)
    assert found.css == ".s0{fill: red}\n.s1{font: 8px serif}"


def test_figures_that_cannot_be_drawn_are_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without Matplotlib, too large for the page, or refused by the figure itself."""
    scores = (np.random.default_rng(4).random((3, 20)) < 0.5) * 1.0
    matrix = ResponseMatrix.from_array(scores, tasks=["t"] * 10 + ["u"] * 10)
    results = intervals(matrix), compare(matrix, rng=0)
    monkeypatch.setattr(parts, "LARGEST", 10)
    assert parts.drawn(*results).figures == []
    assert "(t score, u score): it would make" in parts.drawn(*results).left_out[1]

    def refuse(name: str, *_: object) -> None:
        msg = f"no {name}"
        raise DesignError(msg)

    monkeypatch.setattr(parts, "draw", refuse)
    said = parts.drawn(*results).left_out
    assert [text.rpartition(": ")[2] for text in said] == ["no forest", "no ranks", "no matrix"]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    [said] = parts.drawn(*results).left_out
    assert "pip install" in said


def test_with_a_baseline_differences_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks and a matrix take every two models."""
    scores = (np.random.default_rng(5).random((4, 20)) < 0.5) * 1.0
    matrix = ResponseMatrix.from_array(scores)
    names: list[str] = []
    monkeypatch.setattr(parts.Drawn, "add", lambda _self, name, *_args: names.append(name))
    for baseline in (None, "model_1"):
        parts.drawn(intervals(matrix), compare(matrix, baseline=baseline, rng=0))
    parts.drawn(intervals(matrix), Comparisons(()))

    assert names == ["forest", "ranks", "matrix", "forest", "differences", "forest"]

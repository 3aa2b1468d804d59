"""Tables with a row per item and epoch: what is read of them, and what is refused."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalstats_plugin import annotate, compare, export, fit_irt, intervals, read
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import (
    DesignError,
    EvalStatsError,
    LogError,
    PluginError,
    SelectionError,
    WriteError,
)
from evalstats_plugin.logs.reading import check

Table = Callable[..., Path]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Write a table, of lines in UTF-8 or of bytes."""

    def write(*lines: str | bytes, name: str = "t.csv") -> Path:
        path = tmp_path / name
        parts = [line.encode() if isinstance(line, str) else line for line in lines]
        path.write_bytes(b"\n".join(parts) + b"\n")
        return path

    return write


def _scores(responses: ResponseSet) -> dict[tuple[str, str, str], list[list[float]]]:
    return {
        (r.model, r.task, r.metric): np.nan_to_num(r.scores, nan=-9).tolist() for r in responses
    }


def test_a_tidy_table_is_read_as_what_to_frame_gives(table: Table) -> None:
    """Models, tasks, metrics, items, epochs, clusters; an epoch that is not there is missing."""
    path = table(
        "model,task,metric,item,epoch,score,cluster",
        "a,sums,acc,1,0,1,x",
        "a,sums,acc,1,1,0,x",
        "a,sums,acc,2,0,1,y",
        "a,sums,f1,1,0,0.5,x",
        "b,sums,acc,1,0,0,x",
        "b,times,acc,q,0,1,z",
    )
    found = read(path)

    assert _scores(found) == {
        ("a", "sums", "acc"): [[1, 0], [1, -9]],
        ("a", "sums", "f1"): [[0.5]],
        ("b", "sums", "acc"): [[0]],
        ("b", "times", "acc"): [[1]],
    }
    first = found.responses[0]
    assert first.item_ids.tolist() == ["1", "2"]
    assert first.clusters is not None
    assert first.clusters.tolist() == ["x", "y"]
    assert first.source.harness == "tabular"
    again = found.to_frame().to_csv(index=False).encode()
    assert _scores(read(table(again, name="again.csv"))) == _scores(found)


def test_ids_that_are_all_numbers_are_numbers(table: Table) -> None:
    """So that items stay in their order; one that is no number makes all of them texts."""
    numbers = read(table("model,item,score", "a,10,1", "a,9,0")).responses[0].item_ids
    texts = read(table("model,item,score", "a,10,1", "a,09,0")).responses[0].item_ids

    assert numbers.dtype == np.int64
    assert numbers.tolist() == [10, 9]
    assert texts.tolist() == ["10", "09"]


@pytest.mark.parametrize(
    ("cells", "scores"),
    [
        (["1", "0", "0.25", "1e-1"], [1, 0, 0.25, 0.1]),
        (["True", "false", "YES", "n"], [1, 0, 1, 0]),
        (["correct", "Incorrect", "pass", "FAILED"], [1, 0, 1, 0]),
        (["85%", "12.5 %", "100%", "0%"], [0.85, 0.125, 1, 0]),
        (["", "NaN", "n/a", "0.5"], [math.nan, math.nan, math.nan, 0.5]),
        (["NULL", "None", "-", "1"], [math.nan, math.nan, math.nan, 1]),
        (["inf", "-inf", "nan", "-2"], [math.inf, -math.inf, math.nan, -2]),
        (["85%", "1", "0.5", ""], [0.85, 1, 0.5, math.nan]),
        (["C", "i", "P", "N"], [1, 0, 0.5, 0]),
        (["c", "c", "", "c"], [1, 1, math.nan, 1]),
        (["P", "f", "NA", "p"], [1, 0, math.nan, 1]),
        (["n", "n", "y", "n"], [0, 0, 1, 0]),
    ],
)
def test_scores_may_be_numbers_words_or_percentages(
    table: Table, cells: list[str], scores: list[float]
) -> None:
    """Numbers, truth values, percentages, nothing."""
    found = read(table("model,item,score", *(f"a,q{k},{c}" for k, c in enumerate(cells))))

    np.testing.assert_array_equal(found.responses[0].scores[:, 0], scores)


def test_semicolons_and_decimal_commas(table: Table) -> None:
    """As spreadsheets of half of Europe write them; a note says so."""
    [r] = read(table("model;item;score", "a;q1;0,5", "a;q2;1", "a;q3;12,5%"))

    assert r.scores[:, 0].tolist() == [0.5, 1, 0.125]
    assert "score: a decimal comma, 0,5 is 0.5" in r.notes


@pytest.mark.parametrize(
    ("separator", "start", "end"),
    [(",", "", "\n"), ("\t", "\ufeff", "\r\n"), ("|", "\ufeff", "\n")],
)
def test_marks_ends_and_index_columns_do_not_matter(
    table: Table, separator: str, start: str, end: str
) -> None:
    """A byte-order mark, ends of lines of Windows, quotes, and the index that pandas writes."""
    rows = [["", "Model", "Question ID", "Correct"], ["0", '"a, b"', "q1", "True"]]
    text = start + end.join(separator.join(row) for row in rows)
    [r] = read(table(text))

    assert (r.model, r.task, r.metric) == ("a, b", "t", "Correct")
    assert r.item_ids.tolist() == ["q1"]
    assert r.scores.tolist() == [[1.0]]


def test_columns_may_have_any_names(table: Table) -> None:
    """Several scores are several metrics; another column numbers the epochs."""
    path = table(
        "who,what,n,right,partial,day",
        "a,q1,1,yes,0.5,monday", "a,q1,2,no,0.25,monday", "b,q1,1,no,1,friday",
    )  # fmt: skip
    columns = {"model": "who", "item": "what", "epoch": "n", "score": ["right", "partial"]}
    found = read(path, columns=columns, cluster="day")

    assert _scores(found) == {
        ("a", "t", "right"): [[1, 0]],
        ("b", "t", "right"): [[0]],
        ("a", "t", "partial"): [[0.5, 0.25]],
        ("b", "t", "partial"): [[1]],
    }
    assert [str(r.clusters[0]) for r in found if r.clusters is not None] == ["monday"] * 2 + [
        "friday"
    ] * 2


def test_file_name_is_the_model_where_no_column_names_it(table: Table) -> None:
    """Two files of one model each join on their items."""
    one = table("item,correct", "q1,1", "q2,0", "q3,1", name="model_a.csv")
    two = table("item,correct", "q3,1", "q2,1", "q1,1", name="model_b.csv")
    found = read(one, two)
    matrix = found.matrix()

    assert matrix.models == ("model_a", "model_b")
    assert matrix.scores[:, :, 0].tolist() == [[1, 0, 1], [1, 1, 1]]
    assert found.responses[0].model == "model_a"
    assert "no column says the model: the file's name is used" in found.responses[0].notes


def test_a_column_with_a_similar_name_is_suggested(table: Table) -> None:
    """A typing error in an optional column is not passed over in silence."""
    [r] = read(table("modell,item,score,correct", "a,q1,1,1"))

    assert any("--columns model=modell if that was meant" in note for note in r.notes)
    assert any("score is read as the score and correct is not" in note for note in r.notes)


def test_weights_hashes_bounds_and_direction(table: Table) -> None:
    """Columns that our own exports have."""
    path = table(
        "model,item,score,weight,hash,higher_is_better,min_score,max_score,aggregation",
        "a,1,-3,2,h1,false,-10,0,perplexity", "a,2,-4,5,h2,false,-10,0,perplexity",
    )  # fmt: skip
    [r] = read(path)

    assert r.weights is not None
    assert r.item_hashes is not None
    assert (r.weights.tolist(), r.item_hashes.tolist()) == ([2, 5], ["h1", "h2"])
    assert (r.higher_is_better, r.bounds, r.aggregation) == (False, (-10.0, 0.0), "perplexity")


@pytest.mark.parametrize(
    ("columns", "cells", "direction"),
    [
        ("lower_is_better", "true", False), ("lower_is_better", "0", True),
        ("Lower Is Better", "1", False), ("lower_is_better", "", None),
        ("higher_is_better,lower_is_better", "False,True", False),
    ],
)  # fmt: skip
def test_either_direction_may_be_said(
    table: Table, columns: str, cells: str, *, direction: bool | None
) -> None:
    """By which of the two columns it may be, or by both."""
    [of_items] = read(table(f"model,item,score,{columns}", f"a,1,3,{cells}", f"a,2,4,{cells}"))
    [summary] = read(table(f"model,task,n,score,{columns}", f"a,t,9,3.5,{cells}"))

    assert [r.higher_is_better for r in (of_items, summary)] == [direction, direction]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (("1", "", "2"), "weight is '' in row 2. Write a number of 0 or more"),
        (("1", "-1", "2"), "weight is '-1' in row 2. Write a number of 0 or more"),
        (("inf", "1", "2"), "weight is 'inf' in row 1. Write a number of 0 or more"),
        (("0", "0", "2"), r"weight is '0' in row 1 \(and 1 more row\). Write one above 0"),
    ],
)
def test_what_weighs_no_item_is_refused(table: Table, weights: Any, message: str) -> None:
    """But for items without a score, here the third."""
    scored = zip(weights, ("-3", "-4", ""), strict=True)
    rows = [f"a,{i},{score},{w},perplexity" for i, (w, score) in enumerate(scored)]

    with pytest.raises(DesignError, match=message):
        read(table("model,item,score,weight,aggregation", *rows))


def test_columns_that_a_mean_does_not_use_are_named(table: Table) -> None:
    """Weights of a mean, and a metric whose value its items do not give."""
    [mean] = read(table("model,item,score,weight", "a,1,1,2", "a,2,0,3"))
    [other] = read(table("model,item,score,aggregation", "a,1,1,f1", "a,2,0,f1"))

    assert any("column 'weight' is left out: weights are used with" in n for n in mean.notes)
    assert "not averaged: its aggregation (f1) is not a mean" in other.notes


def test_epochs_are_numbered_by_row_order_on_request(table: Table) -> None:
    """A table that just repeats items."""
    path = table("model,item,score", "a,q1,1", "a,q2,1", "a,q1,0", "b,q1,0", "a,q1,1")

    assert _scores(read(path, columns={"epoch": "order"})) == {
        ("a", "t", "score"): [[1, 0, 1], [1, -9, -9]],
        ("b", "t", "score"): [[0]],
    }


def test_jsonl_and_parquet(table: Table, tmp_path: Path) -> None:
    """The same table in two other forms."""
    import pandas as pd

    lines = table(
        '{"model": "a", "item": "q1", "correct": true}',
        '{"model": "a", "item": "q2", "correct": null}',
        name="t.jsonl",
    )
    frame = pd.DataFrame({"model": ["a", "a"], "item": ["q1", "q2"], "correct": [True, None]})
    frame.to_parquet(tmp_path / "t.parquet")
    expected = {("a", "t", "correct"): [[1], [-9]]}

    assert _scores(read(lines)) == expected
    assert _scores(read(tmp_path / "t.parquet")) == expected


def test_tables_in_a_folder_are_found_by_their_columns(table: Table, tmp_path: Path) -> None:
    """Others in it are none of ours."""
    table("model,item,score", "a,q1,1", name="scores.csv")
    table("date,price", "monday,3", name="prices.csv")
    table('{"doc_id": 1, "doc": {}, "target": "x", "score": 1}', name="samples.jsonl")
    (tmp_path / "not.parquet").write_bytes(b"PAR1")

    assert [r.source.path.name for r in read(tmp_path)] == ["scores.csv"]


@pytest.mark.parametrize(
    ("lines", "error", "parts"),
    [
        (["model,itm,scroe", "a,q1,1"], SelectionError, ["--columns item=itm,score=scroe"]),
        (["model,item,score"], DesignError, ["has columns and no rows"]),
        (["model,item,score", "a,q1,perhaps"], DesignError, ["is 'perhaps' in row 1", "85%"]),
        (["model,item,score", 'a,q1,"0,5"', "a,q2,0.5"], DesignError, ["commas and points"]),
        (["model,item,score", "a,q1,85%", "a,q2,90"], DesignError, ["is '90' in row 2", "85%"]),
        (["model,item,score", "a,q1,1", "a,q2,1_0"], DesignError, ["is '1_0' in row 2"]),
        (["model,item,score", "a,q1,P", "a,q2,P"], DesignError, ["'P' in row 1 (and 1 more"]),
        (["model,item,score", "a,q1,1", "a,,1"], DesignError, ["row 2 has no item"]),
        (["model,item,score", "a,q1,1", ",q2,1"], DesignError, ["row 2 has no model"]),
        (["model,item,score", "a,q1,1", "a,q1,0"], DesignError, ["rows 1 and 2", "epoch=order"]),
        (
            ["model,item,epoch,score", "a,q1,2,1", "a,q1,1,1", "a,q1,2,0"],
            DesignError, ["rows 1 and 3", "'q1'", "and one epoch"],
        ),
        (
            ["model,item,score,min_score,max_score", "a,q1,1,0,1", "a,q2,7,0,1"],
            DesignError, ["score 7 in row 2", "out of the bounds 0 to 1"],
        ),
        (
            ["model,item,score,min_score,max_score", "a,q1,1,1,0"],
            DesignError, ["min_score is '1' and max_score is '0'"],
        ),
        (
            ["model,item,epoch,score,hash", "a,q1,1,1,h", "a,q1,2,1,g"],
            DesignError, ["item 'q1'", "another hash in row 2"],
        ),
        (
            ["model,item,score,higher_is_better", "a,q1,1,true", "a,q2,1,false"],
            DesignError, ["higher_is_better is true, false"],
        ),
        (
            ["model,item,score,lower_is_better", "a,q1,1,low"],
            DesignError, ["lower_is_better is 'low'. Write true or false."],
        ),
        (
            ["model,item,score,lower_is_better,higher_is_better", "b,q1,1,,", "a,q1,1,1,true"],
            DesignError, ["contradict each other in row 2. Leave one of the columns out."],
        ),
        (["model,item,score", "a,q1,1,9"], LogError, ["4 cells, but the heading has 3"]),
        (["model,item,score,score", "a,q1,1,9"], LogError, ["3, 4 are both called 'score'"]),
        (["model,item,score", b"m\xfcller,q1,1"], LogError, ["byte 0xfc", "line 2", "iconv"]),
        (["model,item,score\r\nmü,1,1".encode("utf-16")], LogError, ["UTF-16"]),
        ([""], LogError, ["is empty"]),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_is_refused_with_the_place(
    table: Table, lines: list[str | bytes], error: type[EvalStatsError], parts: list[str]
) -> None:
    """What was found, where, and what to do."""
    with pytest.raises(error) as caught:
        read(table(*lines))
    for part in ("t.csv", *parts):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"item": "qestion"}, "has no column 'qestion'; did you mean question"),
        ({"itm": "question"}, "no part of a row is called 'itm'; did you mean item"),
        ({"item": ["question", "model"]}, "item has two columns"),
    ],
)
def test_columns_that_are_not_there_are_refused(
    table: Table, columns: dict[str, str | list[str]], message: str
) -> None:
    """The closest is named."""
    with pytest.raises(SelectionError, match=message):
        read(table("model,question,score", "a,q1,1"), columns=columns)


def test_columns_are_refused_where_no_table_is(tmp_path: Path) -> None:
    """What was asked for would have no effect."""
    logs = Path(__file__).parents[3] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
    with pytest.raises(SelectionError, match=r"are about tables .* is a log of lm_eval"):
        read(logs, task="es_one", columns={"item": "x"})
    assert not list(tmp_path.iterdir())


def test_texts_of_parquet_files_are_checked(tmp_path: Path) -> None:
    """Arrow reads bytes that are no text without a word."""
    models = pa.array([b"m1", b"\xff"], pa.binary()).view(pa.string())
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"model": models, "item": ["q", "q"], "score": [1.0, 0.0]}), path)

    with pytest.raises(LogError, match=r"t\.parquet cannot be read as Parquet.*may be damaged"):
        read(path)


@pytest.mark.parametrize("name", ["t.xlsx", "t.csv.gz"])
def test_workbooks_and_damaged_archives_are_refused(table: Table, name: str) -> None:
    """What to do with them first."""
    with pytest.raises(LogError, match=r"save the sheet as CSV|cannot be unpacked .* again"):
        read(table(b"PK\x03\x04", name=name))


@pytest.mark.parametrize("name", ["t.csv.zip", "t.jsonl.zst", "t.tsv.7z"])
def test_packed_tables_are_to_be_unpacked_first(table: Table, name: str) -> None:
    """Also where their content would be one; what holds no table by its name is no log at all."""
    with pytest.raises(LogError, match="is packed: unpack it first"):
        read(table("model,item,score", "a,q,1", name=name))
    with pytest.raises(LogError) as refused:
        read(table(b"PK\x03\x04", name="t.other.zip"))
    assert "unpack it" not in str(refused.value)


def test_fits_and_banks_are_refused_as_scores(tmp_path: Path) -> None:
    """Fits and banks are Parquet too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    bank = pa.table({"item": ["q"], "score": [1.0]})
    pq.write_table(bank.replace_schema_metadata({b"evalstats_bank": b"{}"}), tmp_path / "b.parquet")
    with pytest.raises(LogError, match=r"holds no scores.*own \(evalstats_bank\)"):
        read(tmp_path / "b.parquet")


@pytest.mark.needs("torch")
def test_every_analysis_accepts_a_table(table: Table) -> None:
    """From a table to an interval, a comparison and abilities; the mean is that of the rows."""
    rng = np.random.default_rng(5)
    right = rng.random((3, 40)) < np.array([0.3, 0.6, 0.9])[:, None]
    rows = [f"m{i},q{j},{right[i, j]}" for i in range(3) for j in range(40)]
    found = read(table("model,item,correct", *rows))

    assert [row.estimate for row in intervals(found)] == right.mean(axis=1).tolist()
    best = next(r for r in compare(found) if (r.model_a, r.model_b) == ("m0", "m2"))
    assert best.difference == pytest.approx(right[2].mean() - right[0].mean())
    assert best.verdict == "better"
    models = fit_irt(found.matrix(), "rasch").to_frame("models")
    assert models.sort_values("ability")["model"].tolist() == ["m0", "m1", "m2"]


def test_a_large_table_is_read_in_a_quarter_of_a_second(
    tmp_path: Path, within: Callable[..., Any]
) -> None:
    """250,000 right or wrong answers; CPU time."""
    import pyarrow as pa
    from pyarrow import csv

    scores = np.random.default_rng(0).integers(2, size=(50, 4, 1250))
    i, t, j = (index.ravel().astype(str) for index in np.indices(scores.shape))
    path = tmp_path / "big.csv"
    columns = {"model": i, "task": t, "item": j, "score": scores.ravel()}
    csv.write_csv(pa.table(columns), path)
    found = within(0.25, lambda: read(path))

    assert len(found) == 200
    last = next(r for r in found if (r.model, r.task) == ("49", "3"))
    np.testing.assert_array_equal(last.scores[:, 0], scores[49, 3])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b'model,item,epoch,score,cluster\n"a,b",q1,1,1,x\na,q2,1,0.5,y\nb,q1,1,85%,x\n'),
        ("t.jsonl", b'{"model":"a","item":1,"score":true}\n{"model":"b","item":2,"score":0.5}\n'),
    ],
)
def test_damage_is_an_error_of_the_table_never_of_the_program(
    table: Table, name: str, content: bytes
) -> None:
    """Bytes changed, added and removed at random: read, or refused by our own errors."""
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(60):
        damaged = bytearray(content)
        at = int(rng.integers(len(damaged)))
        damaged[at : at + int(rng.integers(3))] = bytes(
            rng.choice(np.frombuffer(b'\x00\n\r",;%{[9\xff', np.uint8), rng.integers(3)).tolist()
        )
        try:
            read(table(bytes(damaged), name=name))
        except PluginError:
            raise
        except EvalStatsError:
            refused += 1

    assert 5 < refused < 60


def test_spreadsheets_in_other_languages_and_their_empty_rows(table: Table) -> None:
    """WAHR is true; empty rows at the end are left out with a note, others are refused."""
    found = read(table("model;item;score", "a;q1;WAHR", "a;q2;falsch", ";;", ";;", name="x.csv"))

    assert _scores(found) == {("a", "x", "score"): [[1], [0]]}
    assert "2 empty rows at the end left out" in found.responses[0].notes
    with pytest.raises(DesignError, match="row 2 has no item"):
        read(table("model,item,score", "a,q1,1", ",,", "a,q2,0", name="y.csv"))


def test_rows_twice_because_a_column_was_not_known(table: Table) -> None:
    """The column that was perhaps meant is named, and what else may be done."""
    path = table("Modell,item,score", "a,q1,1", "b,q1,0")

    with pytest.raises(DesignError, match=r"Remove all but one.*--columns model=Modell if that"):
        read(path)


def test_a_folder_of_logs_is_read_without_the_tables_in_it(tmp_path: Path) -> None:
    """They would count the answers twice; named they are read, and a note names them."""
    run = Path("fixtures/logs/lm_eval/0.4.13/out/models__m2")
    shutil.copytree(run, tmp_path / "out" / "m2")
    copied = tmp_path / "out" / "scores.csv"
    export(read(run, task="es_mc", metric="acc"), copied)
    found = read(tmp_path / "out", task="es_mc", metric="acc")
    both = read(tmp_path / "out", copied, task="es_mc", metric="acc", runs="all")

    assert {r.source.harness for r in found} == {"lm_eval"}
    assert any("passed over" in note and "scores.csv" in note for note in found.notes)
    assert {r.source.harness for r in both} == {"lm_eval", "tabular"}
    assert not any("passed over" in note for note in both.notes)


def test_folder_search_ignores_tables_with_generic_names_only(table: Table, tmp_path: Path) -> None:
    """Named they are."""
    anything = table("id,value", "1,2", "2,3", name="prices.csv")
    table("id,correct", "1,1", "2,0", name="gpt.csv")

    assert {r.model for r in read(tmp_path)} == {"gpt"}
    assert {r.model for r in read(anything)} == {"prices"}


def test_a_table_is_not_annotated(table: Table, tmp_path: Path) -> None:
    """The message says what to do instead."""
    run = Path("fixtures/logs/lm_eval/0.4.13/out/models__m2")
    path = table("model,item,score", "a,q1,1", name="scores.csv")

    with pytest.raises(WriteError, match=r"no place for intervals.*--format csv.*every-eval-ever"):
        annotate(run, path, output=tmp_path / "annotated")
    assert not list(tmp_path.glob("annotated/**/scores.csv"))


def test_a_table_with_an_empty_cell_fails_alone(tmp_path: Path) -> None:
    """It is left out, or a finding; the others are read."""
    (tmp_path / "good.csv").write_text("model,item,score\nm,q1,1\nm,q2,0\n")
    (tmp_path / "bad.csv").write_text("model,item,score\nm,q1,1\nm,,0\n")
    found = read(tmp_path, skip_broken=True)

    assert len(found) == 1
    assert "left out: " in found.notes[0]
    assert [finding.problem for finding in check(tmp_path)] == ["unreadable"]


def test_values_without_items_are_read_with_the_interval_that_they_allow(tmp_path: Path) -> None:
    """As tables in papers: of right and wrong answers the counts are known."""
    file = tmp_path / "summary.csv"
    file.write_text("model,task,mean,count\na,t,0.75,40\nb,t,0.612,40\n")
    right, in_part = intervals(read(file))
    exact = intervals(read(_items(tmp_path / "items.csv", 30, 40)))[0]

    assert (right.n_items, right.estimate, right.low) == (40, 0.75, exact.low)
    assert "taken for right and wrong answers, and none in part" in right.notes
    assert (in_part.estimate, in_part.low) == (0.612, None)
    for text, message in (
        ("model,accuracy,n\na,0.5,10\na,0.6,10\n", "are all of model 'a'.*name the column of item"),
        ("model,accuracy,n\na,0.5,1.5\n", r"n is 1.5 in row 1. Write a whole number of items"),
    ):
        file.write_text(text)
        with pytest.raises(DesignError, match=message):
            read(file)


def test_settings_tell_apart_the_runs_of_one_model(table: Table) -> None:
    """Only where an item would be there twice; the slices' field among them is no tag then."""
    rows = [f"a,{t},q{k},{int(k < t)},x" for t in (1, 2) for k in range(3)]
    path = table("model,temperature,item,score,topic", *rows)
    alone = table("model,temperature,item,score,topic", *rows[:3], name="alone.csv")

    assert _scores(read(path)) == {
        ("a (temperature=1)", "t", "score"): [[1], [0], [0]],
        ("a (temperature=2)", "t", "score"): [[1], [1], [0]],
    }
    assert [r.tags is None for r in read(path, by="topic")] == [False, False]
    assert [r.model for r in read(alone)] == ["a"]


def _items(file: Path, right: int, n: int) -> Path:
    rows = [f"a,q{i},{int(i < right)}" for i in range(n)]
    file.write_text("\n".join(["model,item,score", *rows, ""]))
    return file


def test_a_refusal_names_only_what_no_column_holds(table: Table) -> None:
    """Of a table with a column item it said that none holds the item."""
    with pytest.raises(SelectionError, match="that it holds the score"):
        read(table("item,judge_a,judge_b", "1,1,0"))
    with pytest.raises(SelectionError, match="--columns 'score=Is Corect' "):
        read(table("item,Is Corect", "1,1"))
    [r] = read(table("item,Is Correct?", "1,1"))

    assert "Is Correct?" == r.metric


def test_a_second_row_without_a_score_is_left_out(table: Table) -> None:
    """Answers were given again, and only the last graded; two grades are still refused."""
    rows = ("model,item,score", "a,1,", "a,2,", "a,1,1", "a,2,0", "b,1,", "b,2,1")
    a, b = read(table(*rows))

    assert [[1.0], [0.0]] == a.scores.tolist()
    assert np.array_equal([[math.nan], [1.0]], b.scores, equal_nan=True)
    assert "2 rows without a score left out: another row of the item has one" in a.notes
    assert not any("left out" in note for note in b.notes)
    with pytest.raises(DesignError, match="rows 3 and 7"):
        read(table(*rows, "a,1,1"))

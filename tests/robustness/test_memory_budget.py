"""Work that would not fit is known by its size before it begins: by blocks, or refused."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.comparisons import leaderboard, ranks
from evalstats_plugin.comparisons.ranks import ranks_with_groups
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.runtime import memory

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")
ON_UNIT = es.Measure(scale=es.Scale(0, 1))
Run = Callable[..., "CompletedProcess[str]"]


def _bomb(path: Path, n_rows: int) -> Path:
    """Write a small file of very many equal rows."""
    whole = 1_000_000
    table = pa.table(
        {
            "model": pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(whole, np.int32)), pa.array(["m"])
            ),
            "item": pa.array(np.zeros(whole, np.int64)),
            "score": pa.array(np.zeros(whole)),
        }
    )
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(n_rows // whole):
            writer.write_table(table)
    return path


def test_a_small_file_of_very_many_rows_is_refused(run: Run, tmp_path: Path) -> None:
    """By its footer, with the number; read, it would take gigabytes."""
    bomb = _bomb(tmp_path / "bomb.parquet", 5_000_000)
    assert bomb.stat().st_size < 776_000

    done = run("report", bomb, "--memory", "100MB")

    assert 2 == done.returncode
    words = " ".join(done.stderr.split())
    assert "the 5,000,000 rows of" in words
    assert "bytes) of memory, and 100.0 MB may be used: read a part of it" in words


def test_a_long_text_in_every_row_takes_its_memory_once(tmp_path: Path) -> None:
    """100 KB in each of 100,000 rows: 10 GB if it were copied."""
    path = tmp_path / "t.parquet"
    n = 100_000
    text = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(n, np.int32)), pa.array(["x" * 100_000])
    )
    table = {"model": text, "item": pa.array(np.arange(n)), "score": pa.array(np.arange(n) % 2)}
    pq.write_table(pa.table(table), path)

    with memory.limited("1GB"):
        found = es.read(path)

    assert n == len(next(iter(found)).scores)


@pytest.mark.parametrize("name", ["results_x.json", "x.csv", "x.jsonl"])
def test_a_file_without_end_is_refused_by_its_size(tmp_path: Path, name: str) -> None:
    """Sparse: a terabyte that lies nowhere."""
    path = tmp_path / name
    path.write_text('{"model": "m", "item": 1, "score": 1}\n')
    os.truncate(path, 10**12)

    with memory.limited("1GB"), pytest.raises(LogError, match=r"1\.0 TB.*1,000,000,000,000 bytes"):
        es.read(path)


def test_a_matrix_of_models_without_common_items_is_refused() -> None:
    """Joined, it would have every model on every item."""
    ids = np.arange(1000)
    [one] = es.ResponseMatrix.from_array(np.ones((1, 1000))).to_responses()
    many = [
        replace(one, model=f"m{i}", item_ids=ids + 1000 * i)
        for i in range(40)
    ]  # fmt: skip

    with (
        memory.limited("10MB"),
        pytest.raises(
            DesignError, match=r"the scores of 40 models on 40,000 items need about 38\.4 MB"
        ),
    ):
        es.ResponseMatrix.join(many)


def test_all_pairs_of_very_many_models(run: Run, tmp_path: Path) -> None:
    """`table` ranks them by blocks and says so; `compare` is refused, but for a baseline."""
    n = 300
    rows = [f"m{i},q{j},{(i * j) % 3 % 2}" for i in range(n) for j in range(10)]
    log = tmp_path / "scores.csv"
    log.write_text("\n".join(["model,item,score", *rows]))
    asked = (log, "--memory", "15MB")

    table, refused, one = (
        run("table", *asked, "--format", "json"),
        run("compare", *asked),
        run("compare", *asked, "--baseline", "m1", "--format", "json"),
    )

    found = json.loads(table.stdout)
    assert any("the 44,850 pairs of 300 models at once need about 17.9 MB" in note
               for note in found["evalstats"]["notes"])  # fmt: skip
    assert n == len([row for row in found["results"] if row["worst_rank"]])
    words = " ".join(refused.stderr.split())
    assert 2 == refused.returncode
    assert "44,850 pairs of 300 models need about 40.4 MB (40,365,000 bytes)" in words
    assert "name a baseline (--baseline; in Python: baseline=)" in words
    assert n - 1 == len(json.loads(one.stdout)["results"])


@pytest.mark.parametrize("kind", ["0/1", "partial credit", "clusters"])
def test_ranks_by_blocks_are_those_of_single_pairs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At Bonferroni's share of three columns of 66 pairs, whatever the block."""
    rng = np.random.default_rng(6)
    scores = (rng.random((12, 240)) < np.linspace(0.1, 0.9, 12)[:, None]) * 1.0
    scores *= 1.0 if kind == "0/1" else rng.random((12, 240))
    clusters = np.repeat(np.arange(60), 4).astype(str) if kind == "clusters" else None
    matrix = es.ResponseMatrix.from_array(
        scores, tasks=["t", "u"] * 120, measure=ON_UNIT, clusters=clusters
    )

    with memory.limited("40KB"):
        by_blocks = es.table(matrix, rng=0)
    monkeypatch.setattr(
        leaderboard,
        "ranks_with_groups",
        lambda responses, request, overall: ranks_with_groups(
            responses,
            replace(request, correction="none", confidence_level=1 - 0.05 / (3 * 66)),
            overall,
        ),
    )
    alone = es.table(matrix, rng=0)

    assert [replace(row, letters="") for row in alone] == list(by_blocks)
    assert any("ranks by blocks" in note for note in by_blocks.notes)
    assert {row.task: row.worst_rank for row in alone if row.best_rank == 1}.keys() == {
        "overall", "t", "u",
    }  # fmt: skip
    assert len({row.best_rank for row in by_blocks if row.task == "t"}) > 3


def test_two_thousand_models_in_a_table() -> None:
    """Their ranks too, without all their pairs at once; those of 20,000 take a minute."""
    rng = np.random.default_rng(0)
    names = [f"m{i}" for i in range(2000)]
    scores = (rng.random((2000, 100)) < np.linspace(0, 1, 2000)[:, None]) * 1.0
    began = time.process_time()

    with memory.limited("500MB"):
        found = es.table(es.ResponseMatrix.from_array(scores, models=names), rng=0)

    assert 2000 == len(found)
    assert "the 1,999,000 pairs of 2,000 models at once need about 799.6 MB" in found.notes[0]
    of = {row.model: row for row in found}
    assert (of["m0"].best_rank or 0) > 800
    assert (of["m1999"].worst_rank or 9999) < 1200
    assert time.process_time() - began < 10


def test_ranks_that_would_take_hours_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of scores that are compared one by one."""
    monkeypatch.setattr(ranks, "MOST_STEPS", 1000)
    scores = np.random.default_rng(0).random((20, 30))
    matrix = es.ResponseMatrix.from_array(scores, measure=ON_UNIT)

    with memory.limited("40KB"):
        found = es.table(matrix, rng=0)

    assert "no ranks on task: 20 models on 30 items would take hours" in found.notes[1]
    assert {None} == {row.best_rank for row in found}


@pytest.mark.parametrize("size", ["", "lots", "4 XB", "0", "-1GB", "1_000MB", "nan"])
def test_an_amount_of_memory_that_is_none(size: str) -> None:
    with pytest.raises(SelectionError, match="write it like 4GB or 512MB"):
        memory.parse_size(size)


def test_the_budget_is_half_of_the_machine_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no more than is free."""
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    monkeypatch.setattr(memory, "_of_machine", lambda: 16 * 10**9)
    for free, expected in ((12 * 10**9, 8 * 10**9), (3 * 10**9, 3 * 10**9), (None, 8 * 10**9)):
        monkeypatch.setattr(memory, "free_memory", lambda free=free: free)
        assert expected == memory.budget()
    with memory.limited("4GB"):
        assert 4 * 10**9 == memory.budget()
    assert memory.VARIABLE not in os.environ

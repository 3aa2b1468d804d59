"""A fit read from disk in pieces is the fit in memory."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evalstats_plugin import fit_irt
from evalstats_plugin.data.importing import write_store
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.store import ROWS
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model import stored
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth
from evalstats_plugin.irt.model.stored import StoredCells, low_rank, stored_counts


def drawn(n: int, m: int, missing: float, seed: int = 0) -> ResponseMatrix:
    """Answers of a 2PL with holes."""
    rng = np.random.default_rng(seed)
    scores = draw_responses(draw_truth(rng, n, m), rng).scores
    scores[rng.random(scores.shape) < missing] = np.nan
    return ResponseMatrix.from_array(scores)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("item_model", ["rasch", "2pl", "3pl"])
def test_the_fit_is_the_same(tmp_path: Path, item_model: str, missing: float):
    matrix = drawn(320, 150 if item_model == "3pl" else ROWS + 80, missing)
    store = write_store(tmp_path / "s.parquet", matrix)
    options = MmlOptions(std_errors=False, max_steps=12)
    one, other = (
        fit_irt(x, item_model, "mml", options=options, device="cpu") for x in (matrix, store)
    )

    # In memory, long tests with holes are searched another way, to the same optimum.
    apart = missing > 0 and item_model != "3pl"
    close = {"atol": 5e-5 if apart else 1e-8, "rtol": 5e-5 if apart else 1e-7}
    np.testing.assert_allclose(other.ability, one.ability, **close)
    np.testing.assert_allclose(other.discrimination, one.discrimination, **close)
    np.testing.assert_allclose(other.difficulty, one.difficulty, **close)
    assert other.diagnostics["log_likelihood"] == pytest.approx(
        one.diagnostics["log_likelihood"], rel=1e-8 if apart else 1e-12
    )


@pytest.mark.parametrize("kept", [0, 2**30])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_products_are_those_of_the_tensor(
    tmp_path: Path, missing: float, kept: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stored, "_KEPT", kept)
    matrix = drawn(16, 2 * ROWS + 9, missing)
    store = write_store(tmp_path / "s.parquet", matrix)
    counts = stored_counts(store, device="cpu")
    keep = torch.rand(matrix.scores.shape[1], generator=torch.Generator().manual_seed(1)) < 0.4
    there = torch.from_numpy(~np.isnan(matrix.scores[:, :, 0])).double()
    right = torch.from_numpy(np.nan_to_num(matrix.scores[:, :, 0]))
    for cells, whole in ((counts.right, right), (counts.trials, there)):
        assert isinstance(cells, StoredCells)
        for cut in (slice(None), slice(1000, 1100), keep):
            part, expected = cells[:, cut], whole[:, cut]
            columns = torch.rand(expected.shape[1], 3, dtype=torch.float64)
            rows = torch.rand(2, 16, dtype=torch.float64)
            torch.testing.assert_close(part @ columns, expected @ columns)
            torch.testing.assert_close(rows @ part, rows @ expected)
            torch.testing.assert_close(part.sum(dim=0), expected.sum(dim=0))
            torch.testing.assert_close(part.sum(dim=1), expected.sum(dim=1))
        assert len(cells.kept) == (3 if kept else 0)


def test_products_of_curves_and_of_many_models_are_those_of_the_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stored, "_MODELS", 7)
    matrix = drawn(16, 2 * ROWS + 9, 0.3)
    # The first row group has no holes.
    matrix.scores[:, :ROWS] = np.nan_to_num(matrix.scores[:, :ROWS])
    counts = stored_counts(write_store(tmp_path / "s.parquet", matrix), device="cpu")
    there = torch.from_numpy(~np.isnan(matrix.scores[:, :, 0])).double()
    at = torch.linspace(-5, 5, 80, dtype=torch.float64)
    ease = torch.linspace(-3, 3, there.shape[1], dtype=torch.float64)
    wrong = -torch.nn.functional.softplus(at + ease[:, None])
    rows = torch.rand(50, 16, dtype=torch.float64)

    assert low_rank(wrong)[1] is not None
    torch.testing.assert_close(counts.trials @ wrong, there @ wrong, rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(rows @ counts.trials, rows @ there)


def test_few_models_are_read_into_memory(tmp_path: Path):
    matrix = drawn(12, 60, 0.1)
    store = write_store(tmp_path / "s.parquet", matrix)
    one, other = fit_irt(matrix, "rasch"), fit_irt(store, "rasch")

    assert other.estimator == "mml-items"
    np.testing.assert_array_equal(one.ability, other.ability)


def test_epochs_are_trials(tmp_path: Path):
    rng = np.random.default_rng(5)
    scores = (rng.random((310, 40, 3)) < 0.6).astype(float)
    scores[rng.random(scores.shape) < 0.2] = np.nan
    matrix = ResponseMatrix.from_array(scores)
    store = write_store(tmp_path / "s.parquet", matrix)
    one, other = (
        fit_irt(x, "2pl", "mml", options=MmlOptions(std_errors=False, max_steps=6))
        for x in (matrix, store)
    )

    np.testing.assert_allclose(other.ability, one.ability, atol=1e-9)


def test_what_cannot_be_fitted_is_said(tmp_path: Path):
    def store(scores: np.ndarray, name: str):
        return write_store(tmp_path / name, ResponseMatrix.from_array(scores))

    apart = np.full((4, 6), np.nan)
    apart[:2, :3] = apart[2:, 3:] = np.eye(2, 3)
    with pytest.raises(DesignError, match="2 groups that answered no common item"):
        stored_counts(store(apart, "a"))
    chain = apart.copy()
    chain[1, 3] = 1.0
    stored_counts(store(chain, "b"))
    empty = np.ones((4, 6))
    empty[:, 2] = np.nan
    with pytest.raises(DesignError, match=r"1 item without a score of any model \(item_2\)"):
        stored_counts(store(empty, "c"))
    with pytest.raises(DesignError, match=r"score 7 of model 'model_1' on item item_1"):
        stored_counts(store(np.array([[0, 1.0], [1, 7.0]]), "d"))
    with pytest.raises(SelectionError, match="std_errors and sandwich need all answers in memory"):
        fit_irt(store(np.eye(3), "e"), "2pl", options=MmlOptions(std_errors=True))


_OTHER = """
import sys
import numpy as np
import torch.distributed
from evalstats_plugin import fit_irt
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.irt import MmlOptions

torch.set_num_threads(1)
folder, *stores = sys.argv[1:]
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/meeting", rank=1, world_size=2
)
few = MmlOptions(max_steps=3)
for k, path in enumerate(stores):
    fit = fit_irt(ResponseStore(path), "2pl", "mml", device="cpu", options=few)
    np.save(f"{folder}/{k}.npy", fit.ability)
torch.distributed.destroy_process_group()
"""


def test_processes_that_share_the_items_find_the_same_numbers(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
):
    """Complete answers, and answers with holes; one of two processes is that of the tests."""
    stores = [
        write_store(tmp_path / f"{missing}.parquet", drawn(120, 2 * ROWS + 9, missing))
        for missing in (0.0, 0.2)
    ]
    (tmp_path / "other_rank.py").write_text(_OTHER)
    # torch.distributed replaces it.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    paths = [store.path for store in stores]

    def abilities() -> list[np.ndarray]:
        few = MmlOptions(max_steps=3)
        return [fit_irt(s, "2pl", "mml", device="cpu", options=few).ability for s in stores]

    with ThreadPoolExecutor(1) as beside:
        other = beside.submit(run, tmp_path, *paths, module="other_rank", folder=tmp_path)
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=2,
            timeout=timedelta(seconds=120),
        )  # fmt: skip
        try:
            shared = abilities()
        finally:
            torch.distributed.destroy_process_group()
        ended = other.result()
    assert ended.returncode == 0, ended.stderr
    for k, alone in enumerate(abilities()):
        np.testing.assert_array_equal(shared[k], alone)
        np.testing.assert_array_equal(np.load(tmp_path / f"{k}.npy"), alone)

"""All that is done in pieces gives in two processes what it gives in one, to the last digit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from given_responses import given_responses
from threadpoolctl import threadpool_info

from evalstats_plugin import annotate, fit_irt, read, strip
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.replaying import replay
from evalstats_plugin.adaptive.simulation import simulate
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Source
from evalstats_plugin.errors import LogError, WriteError
from evalstats_plugin.hierarchical import capabilities
from evalstats_plugin.hierarchical.fitting import HierarchicalOptions, pool
from evalstats_plugin.irt.bootstrap import bootstrap_abilities
from evalstats_plugin.irt.holdout import hold_out
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth
from evalstats_plugin.runtime.workers import parallel_map, workers
from evalstats_plugin.scores.intervals import intervals

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
LM_EVAL = LOGS / "lm_eval" / "0.4.13" / "out"
INSPECT = LOGS / "inspect_ai" / "0.3.285" / "tiny_perfect"


pytestmark = pytest.mark.usefixtures("same_two")


def answers(n: int = 24, m: int = 60) -> ResponseMatrix:
    """Of a Rasch model with one dimension."""
    rng = np.random.default_rng(5)
    return draw_responses(draw_truth(rng, n, m), rng)


def bank(m: int = 60) -> ItemBank:
    rng = np.random.default_rng(0)
    spread = np.tile(0.03 * np.eye(2), (m, 1, 1))
    a, d = rng.uniform(0.8, 2, m), rng.normal(size=m)
    return ItemBank.from_arrays(a, d, tasks="t", item_covariance=spread)


def predicted() -> Any:
    return hold_out(answers(12, 30), ("random", "rows"), seeds=[0], device="cpu")


def capable() -> Any:
    """With one penalty, which goes to the other processes by value."""
    matrix = answers(8, 16)
    cloudpickle.register_pickle_by_value(capabilities)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capabilities, "PENALTIES", (1.0,))
        fit = capabilities.fit_capabilities(matrix, 1, rng=0, device="cpu")
        scores = capabilities.compare_held_out(matrix, 1, rng=0, device="cpu")
        halves = capabilities.stability(fit, matrix, rng=1, device="cpu")
    cloudpickle.unregister_pickle_by_value(capabilities)
    tried = [(t["penalty"], t["log_loss"]) for t in fit.diagnostics["choices"]]
    return tried, [row[:4] for row in scores], *halves


def simulated() -> Any:
    return simulate(bank(), (5, 10), ("information", "random"), n_models=20, rng=1)


def replayed() -> Any:
    items, rng = bank(), np.random.default_rng(1)
    source = Source(path="a.json", harness="lm_eval")
    logs = [
        given_responses(
            model=f"model_{k}", task="t", metric="acc", item_ids=items.item_ids,
            scores=(rng.random((60, 1)) < 0.3 + 0.2 * k).astype(np.float64),
            higher_is_better=True, bounds=(0.0, 1.0), aggregation="mean", source=source,
        )
        for k in range(3)
    ]  # fmt: skip
    return replay(items, logs, Plan(bank=Path("bank"), max_items=8))


def bootstrapped() -> Any:
    """So many answers that sums would be shared by threads."""
    rng = np.random.default_rng(4)
    matrix = draw_responses(draw_truth(rng, 20, 500), rng)
    fit = fit_irt(matrix, "rasch")
    drawn = [
        bootstrap_abilities(fit, matrix, over=over, n_resamples=12, confidence_level=0.8, rng=3)
        for over in ("items", "models", "parametric")
    ]  # fmt: skip
    return [(row.low, row.high) for rows in drawn for row in rows]


def other_priors() -> Any:
    """Each is fitted in a process of its own."""
    options = HierarchicalOptions(chains=2, draws=40, warm_up=10)
    matrix = answers(4, 60)
    tasks = np.repeat(["a", "b", "c"], 20).tolist()
    evals = ResponseMatrix.from_array(matrix.scores, tasks=tasks)
    fit = pool(evals, "task", "gibbs", rng=1, options=options)
    priors = {"near": ("gamma", 2.0, 2.1), "far": ("lognormal", -4.0, 0.1)}
    return fit.prior_sensitivity(priors)


@pytest.mark.parametrize(
    "work",
    [predicted, capable, simulated, replayed, bootstrapped, other_priors],
    ids=lambda work: work.__name__,
)
def test_two_processes_find_the_same_numbers(work: Any):
    alone = work()
    with workers(2):
        found = work()

    np.testing.assert_equal(_plain(found), _plain(alone))


def _plain(found: Any) -> Any:
    """Arrays or lists of plain values."""
    return found.to_dict() if hasattr(found, "to_dict") else found


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs of two harnesses."""
    shutil.copytree(LM_EVAL, tmp_path / "logs" / "lm_eval")
    shutil.copytree(INSPECT, tmp_path / "logs" / "inspect_ai")
    return tmp_path / "logs"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_logs_are_annotated_with_the_same_bytes(tmp_path: Path):
    logs = [LM_EVAL / "models__m0", LM_EVAL / "models__m1"]
    alone = annotate(*logs, output=tmp_path / "alone", compare=True, fits=["irt"])
    with workers(2):
        found = annotate(*logs, output=tmp_path / "found", compare=True, fits=["irt"])

    names = [[str(p.relative_to(tmp_path / folder)) for p in paths]
             for folder, paths in (("alone", alone), ("found", found))]  # fmt: skip
    assert names[0] == names[1]
    assert len(names[0]) >= 3
    assert contents(tmp_path / "found") == contents(tmp_path / "alone")


def test_annotations_are_taken_out_again(logs: Path):
    before = contents(logs / "lm_eval")
    with workers(2):
        written = annotate(logs, in_place=True)
        assert {path.suffix for path in written} == {".json", ".eval"}
        assert contents(logs / "lm_eval") != before
        strip(logs, in_place=True)

    assert contents(logs / "lm_eval") == before


def test_a_broken_log_fails_alone(logs: Path):
    """It is the last one that is read, and named in the error; with a callback there is none."""
    last = max(logs.rglob("results_*.json"))
    last.write_bytes(last.read_bytes()[:500])
    with workers(2), pytest.raises(LogError, match=r"is not JSON.*; 6 of 7 logs were written"):
        annotate(logs, in_place=True)
    left_out: list[Path] = []
    with workers(2):
        written = annotate(logs, in_place=True, on_broken=lambda log, _: left_out.append(log))

    assert len(written) == 6
    assert left_out == [last]


def test_the_others_are_written_where_one_cannot_be(tmp_path: Path):
    folders = sorted({path.parent for path in LM_EVAL.rglob("results_*.json")})
    logs = [p for folder in folders for p in sorted(folder.glob("results_*.json"))]
    # A folder lies where the second log is to go.
    blocked = tmp_path / logs[1].relative_to(LM_EVAL)
    (blocked / "in the way").mkdir(parents=True)
    n = len(logs)
    said = f"{n - 1} of {n} logs were written"
    with workers(2), pytest.raises(WriteError, match=said):
        annotate(LM_EVAL, output=tmp_path)

    assert sum(p.is_file() for p in tmp_path.rglob("results_*.json")) == n - 1


def test_one_log_of_two_names_is_written_by_one_process(tmp_path: Path):
    log = tmp_path / "results_2026-11-21T00-00-00.000000.json"
    log.write_bytes(min(LM_EVAL.rglob("results_*.json")).read_bytes())
    samples = min(LM_EVAL.rglob("results_*.json")).parent
    for path in samples.glob("samples_*"):
        shutil.copy(path, tmp_path)
    link = tmp_path / "results_2026-11-21T00-00-01.000000.json"
    link.symlink_to(log)
    with workers(2):
        assert len(annotate(log, link, in_place=True)) == 2

    assert link.is_symlink()
    assert b'"evalstats"' in log.read_bytes()


def test_custom_analyses_run_in_workers(tmp_path: Path):
    level = 0.8

    def at_that_level(responses: Any) -> Any:
        return intervals(responses, confidence_level=level, rng=0)

    alone = annotate(LM_EVAL, output=tmp_path / "alone", analysis=at_that_level)
    with workers(2):
        found = annotate(LM_EVAL, output=tmp_path / "found", analysis=at_that_level)

    assert [p.read_bytes() for p in found] == [p.read_bytes() for p in alone]
    assert b'"confidence_level": 0.8' in alone[0].read_bytes()


def threads(_piece: int) -> tuple[int, list[int]]:
    """Threads of torch, and of the libraries of numpy and scipy."""
    return torch.get_num_threads(), [lib["num_threads"] for lib in threadpool_info()]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_piece_is_done_by_one_thread(n_jobs: int):
    """Sums that several share differ in their last digits: the control, with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with workers(n_jobs):
            found = list(parallel_map(threads, range(3)))

        assert {1} == {number for own, others in found for number in (own, *others)}
        assert torch.get_num_threads() == 2
        assert threads(0)[0] == 2
    finally:
        torch.set_num_threads(before)


def test_logs_are_read_the_same_in_several_processes():
    alone = read(LM_EVAL).to_frame()
    heard: list[int] = []
    with workers(2):
        found = read(LM_EVAL, on_log=lambda _log, i, _n: heard.append(i))

    assert found.to_frame().equals(alone)
    assert heard == list(range(len(heard)))
    assert len(heard) >= 3


def test_broken_logs_are_reported_as_without_workers(tmp_path: Path):
    shutil.copytree(LM_EVAL, tmp_path / "logs")
    samples = next((tmp_path / "logs").rglob("samples_es_mc_*.jsonl"))
    samples.write_text(samples.read_text()[:100])
    with pytest.raises(LogError) as alone:
        read(tmp_path / "logs")
    with workers(2):
        with pytest.raises(LogError) as found:
            read(tmp_path / "logs")
        notes = read(tmp_path / "logs", skip_broken=True).notes

    assert str(found.value) == str(alone.value)
    assert notes == read(tmp_path / "logs", skip_broken=True).notes

"""Votes of k answers: by every subset, by the harnesses' own votes, and for all k at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from math import factorial, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from given_responses import given_responses

import evalstats_plugin as es
from evalstats_plugin import Responses
from evalstats_plugin.cli import main
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.scores import curves
from evalstats_plugin.stats.clustered import majority_at_k, vote_at_k

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
INSPECT = sorted((LOGS / "inspect_ai" / "0.3.285" / "models").glob("*arith-epochs*"))


def _run(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, list(map(str, arguments)))


def _score_of_vote(answers: Sequence[str], scores: Sequence[float]) -> float:
    """Score of the most frequent answer, the mean of several that are as frequent."""
    named = [answer or f"epoch {i}" for i, answer in enumerate(answers)]
    counts = Counter(named)
    winners = [a for a in counts if counts[a] == max(counts.values())]
    return float(
        np.mean([
            np.mean([s for a, s in zip(named, scores, strict=True) if a == winner])
            for winner in winners
        ])
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_a_vote_is_the_mean_over_all_subsets(seed: int) -> None:
    """Few answers or many, some empty, and epochs without a score."""
    rng = np.random.default_rng([47, seed])
    n_epochs = int(rng.integers(2, 10))
    k = int(rng.integers(1, n_epochs + 1))
    texts = np.array(["", "a", "b", "c", "d", "e"], dtype=object)[: int(rng.integers(2, 7))]
    answers = rng.choice(texts, (4, n_epochs))
    right = {text: float(rng.random() < 0.5) for text in texts}
    scores = np.array([[right[text] for text in row] for row in answers])
    scores[rng.random(scores.shape) < 0.1] = np.nan

    voted = vote_at_k(answers, scores, k=k)

    for row, of_row, value in zip(answers, scores, voted, strict=True):
        scored = np.flatnonzero(~np.isnan(of_row))
        if len(scored) < k:
            assert np.isnan(value)
            continue
        each = [_score_of_vote(row[[*s]], of_row[[*s]]) for s in combinations(scored, k)]
        assert value == pytest.approx(np.mean(each), abs=1e-12)


@pytest.mark.parametrize("n_epochs", [1, 4, 7, 33])
def test_two_answers_are_a_majority(n_epochs: int) -> None:
    right = np.arange(n_epochs + 1)
    scores = (np.arange(n_epochs) < right[:, None]) * 1.0
    answers = np.where(scores == 1, "yes", "no").astype(object)
    for k in range(1, n_epochs + 1):
        expected = majority_at_k(right, n_epochs, k=k)
        np.testing.assert_allclose(vote_at_k(answers, scores, k=k), expected, atol=1e-12)


def test_many_epochs_of_many_answers_are_summed_exactly() -> None:
    """Of 64 answers that all differ each wins alike; 40 equal ones win any vote of 26 or more."""
    answers = np.array([[str(i) for i in range(64)], ["a"] * 40 + [str(i) for i in range(24)]])
    scores = np.zeros((2, 64))
    scores[0, :16] = scores[1, :40] = 1.0
    for k in (1, 2, 26, 64):
        voted = vote_at_k(answers.astype(object), scores, k=k)
        assert voted[0] == pytest.approx(0.25, rel=1e-12)
        assert k < 26 or voted[1] == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(ValueError, match="k must be 1 or more"):
        vote_at_k(answers, scores, k=0)


def test_answers_of_inspect_are_those_of_its_samples() -> None:
    """By every subset of the answers that Inspect itself reads."""
    from inspect_ai.log import read_eval_log

    own: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for path in INSPECT[:2]:
        log = read_eval_log(str(path))
        for s in log.samples or []:
            score = (s.scores or {})["match"]
            pair = (str(score.answer or ""), 1.0 if score.value == "C" else 0.0)
            own.setdefault(log.eval.model, {}).setdefault(str(s.id), []).append(pair)
    read = es.read(*INSPECT[:2], metric="match", repeats="answers")
    for k in (1, 2, 3):
        for r in es.scores.at_k(read, f"cons@{k}"):
            if r.metric != f"cons@{k} match":
                continue
            for item, value in zip(r.item_ids.tolist(), r.item_means, strict=True):
                each = [
                    _score_of_vote([a for a, _ in s], [x for _, x in s])
                    for s in combinations(own[r.model][str(item)], k)
                ]
                assert value == pytest.approx(np.mean(each), abs=1e-12)
    assert len(own) == 2


@pytest.mark.needs("lm_eval==0.4.13")
def test_the_vote_of_all_answers_is_what_lm_eval_logged() -> None:
    """Its filter majority_vote takes the first of answers that are as frequent."""
    read = es.read(LOGS / "lm_eval" / "0.4.13" / "out", task="es_repeats", repeats="answers")
    votes = {r.model: r for r in read if r.metric == "exact_match,maj@4"}
    every = [r.as_epochs for r in read if r.as_epochs.answers is not None]
    assert len(every) == len(votes) > 1
    for r in every:
        answers = r.answers
        assert answers is not None
        assert answers.shape == (len(r.item_ids), 4)
        (cons,) = es.scores.at_k(r, "cons@4")
        counts = [Counter(row).most_common() for row in answers.tolist()]
        clear = np.array([len(c) == 1 or c[0][1] > c[1][1] for c in counts])
        assert clear.sum() > 5
        np.testing.assert_array_equal(cons.item_means[clear], votes[r.model].item_means[clear])


def test_votes_need_answers_and_curves_need_a_range() -> None:
    read = es.read(*INSPECT, metric="match", repeats=True)
    with pytest.raises(DesignError, match=r"no text of each answer logged.*repeats=\"answers\""):
        es.scores.at_k(read, "cons@2")
    for name in ("pass@1", "pass@3..2", "pass@0..2", "best@1..2", "..", "pass@1..2..3"):
        with pytest.raises(SelectionError):
            curves(read, name)
    with pytest.raises(DesignError, match="pass@4 needs"):
        curves(read, "pass@1..4")


def _true_vote(p: np.ndarray[Any, Any], k: int) -> float:
    """Chance that answer 0 wins k independent votes, over all their counts."""
    total = 0.0
    for counts in product(range(k + 1), repeat=len(p)):
        if sum(counts) == k and counts[0] == max(counts):
            ways = factorial(k) / prod(map(factorial, counts))
            total += ways * prod(p ** np.array(counts)) / counts.count(max(counts))
    return total


@pytest.mark.parametrize("n_designs", [5, pytest.param(25, marks=pytest.mark.validation)])
def test_limits_of_a_curve_hold_for_all_k_at_once(n_designs: int) -> None:
    """Kinds of items drawn at random; single limits, the control, hold less."""
    rng = np.random.default_rng(48)
    joint, alone = [], []
    for _ in range(n_designs):
        kinds = rng.dirichlet(rng.uniform(0.3, 2.0, 3), size=5)
        truth = [np.mean([_true_vote(p, k) for p in kinds]) for k in range(1, 6)]
        n, n_epochs = int(rng.integers(20, 80)), int(rng.integers(5, 8))
        models: list[Responses] = []
        for i in range(20):
            own = kinds[rng.integers(0, len(kinds), n)]
            drawn = (rng.random((n, n_epochs, 1)) > own.cumsum(axis=1)[:, None, :2]).sum(axis=2)
            models.append(
                given_responses(
                    model=f"m{i:02}", item_ids=np.arange(n), scores=(drawn == 0) * 1.0,
                    answers=np.array(["x", "y", "z"], dtype=object)[drawn],
                    source=es.Source(path=Path("m.json"), harness="test"),
                )
            )  # fmt: skip
        together = es.intervals(es.scores.at_k(models, *(f"cons@{k}" for k in range(1, 6))))
        for rows, held in ((curves(models, "cons@1..5"), joint), (together, alone)):
            for model in models:
                own_rows = sorted(
                    (r for r in rows if r.model == model.model), key=lambda r: r.metric
                )
                held.append(all(
                    (r.low or 0.0) <= value <= (1.0 if r.high is None else r.high)
                    for r, value in zip(own_rows, truth, strict=True)
                ))  # fmt: skip
    assert np.mean(joint) >= 0.95
    assert np.mean(alone) < np.mean(joint) - 0.02


def test_the_command_shows_points_and_curves() -> None:
    logs = [*INSPECT[:2], "-m", "match"]
    done = _run("report", *logs, "--at-k", "cons@1..3", "--at-k", "pass@2", "--format", "csv")
    assert done.exit_code == 0, done.stderr
    for name in ("cons@1 match", "cons@2 match", "cons@3 match", "pass@2 match"):
        assert done.stdout.count(name) >= 2
    assert "limits of cons@1..3 hold for all 3 k at once" in done.stdout
    assert _run("compare", *logs, "--at-k", "cons@3").exit_code == 0
    wrong = _run("report", *logs, "--at-k", "cons@3..1")
    assert (wrong.exit_code, "write pass@1..8" in wrong.stderr) == (2, True)

"""Figures of judges whose scores few human labels correct, and of what costs and repeats say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from figures import Run, changed
from given_responses import given_responses

import evalstats_plugin as es
from evalstats_plugin.data.measure import COST, Measure
from evalstats_plugin.data.responses import Responses, Source
from evalstats_plugin.scores.judged import Label, noted

N, LABELLED = 90, 40
MODELS = ("a", "b", "c")


@cache
def _said(model: int) -> dict[str, np.ndarray]:
    """What people and two judges say of a model's answers, and how long these are."""
    rng = np.random.default_rng(model)
    length = rng.normal(size=N)
    quality = np.random.default_rng(9).normal(size=N) + 0.5 * model + rng.normal(size=N)
    seen = quality + 0.6 * rng.normal(size=N) + 0.4 * length
    right = 1.0 * (quality > 0)
    return {
        "human": np.where(np.arange(N) < LABELLED, right, np.nan),
        "grade": np.where(np.arange(N) < LABELLED, quality, np.nan),
        "gpt": 1.0 * (seen > 0),
        "score": np.clip(0.5 + seen / 6, 0, 1),
        "points": np.round(np.clip(5 + 2 * seen, 1, 10)),
        "noisy": np.where(rng.random(N) < 0.8, right, 1 - right),
        "length": length,
    }


def _responses(
    *metrics: str, clusters: bool = False, n: int = 3, n_epochs: int = 1
) -> list[Responses]:
    """Scores of the first n models; those of a later epoch are those of the item's neighbour."""
    bounds = {"grade": None, "points": (1.0, 10.0)}
    return [
        given_responses(
            model=model, metric=metric, item_ids=np.arange(N),
            scores=np.column_stack([np.roll(_said(k)[metric], j) for j in range(n_epochs)]),
            source=Source(Path(f"{model}.json"), "test"), bounds=bounds.get(metric, (0.0, 1.0)),
            clusters=np.arange(N) // 3 if clusters else None,
        )
        for k, model in enumerate(MODELS[:n]) for metric in metrics
    ]  # fmt: skip


def _judged(judge: Sequence[str] = ("gpt",), human: str = "human", *, clusters: bool = False,
            n: int = 3, features: bool = False, **more: object) -> Run:  # fmt: skip
    given = _responses(human, *judge, clusters=clusters, n=n)
    lengths = {
        (model, "t", str(j)): float(x)
        for k, model in enumerate(MODELS[:n]) for j, x in enumerate(_said(k)["length"])
    }  # fmt: skip

    def run() -> object:
        told = es.judge(given, judge=list(judge), human=human, rng=0,
                        features={"length": lengths} if features else None, **more)  # fmt: skip  # pyright: ignore[reportArgumentType]
        return {"scores": told, "differences": told.differences, "agreement": told.agreement,
                "bias": told.bias, "verdicts": [row.verdict for row in told.bias]}  # fmt: skip

    return run


def _labels(*, chosen: bool) -> list[Label]:
    rng = np.random.default_rng(4)
    chance = rng.uniform(0.3, 0.9, N)
    return [
        Label(str(j), float(_said(k)["noisy"][j]), model, "t", float(chance[j]) if chosen else None)
        for j in range(N) if rng.random() < chance[j] for k, model in enumerate(MODELS)
    ]  # fmt: skip


def _timed(*, graded: bool = False, clusters: bool = False) -> list[Responses]:
    """Two models, their answers' cost in tokens, and one answer whose cost nobody knows."""
    rng, given = np.random.default_rng(6), []
    for model in ("a", "b"):
        right = rng.random(40)
        right = right if graded else 1.0 * (right < 0.6)
        tokens = np.round(rng.gamma(2.0, 30.0, 40) * (1 + right))
        tokens[3] = np.nan
        more = {"model": model, "item_ids": np.arange(40),
                "source": Source(Path(f"{model}.json"), "test"),
                "clusters": np.arange(40) // 3 if clusters else None}  # fmt: skip
        spent = Responses(measure=Measure(task="t", metric="tokens", scale=COST),
                          scores=tokens[:, None], **more)  # fmt: skip
        given += [given_responses(scores=right[:, None], bounds=(0.0, 1.0), **more), spent]
    return given


RUNS: Mapping[str, Mapping[str, Run]] = {
    "judged": {
        "right or wrong": _judged(),
        "a baseline": _judged(baseline="a", confidence_level=0.9),
        "these items": _judged(population="these"),
        "shares": _judged(["score"], features=True),
        "points": _judged(["points"], "grade", features=True),
        "two judges": _judged(["gpt", "noisy"]),
        "two scales": _judged(["gpt", "points"], features=True),
        "clusters": _judged(clusters=True, features=True),
        "clusters of these": _judged(clusters=True, population="these"),
        "one model": _judged(n=1, features=True),
    },
    "judged by labels": {
        f"{'chosen' if chosen else 'alike'} {population}": partial(
            es.judge, _responses("gpt"), judge="gpt", labels=_labels(chosen=chosen),
            population=population, rng=0)
        for chosen in (False, True) for population in ("new", "these")
    },
    "labels to ask for": {
        "with labels": partial(es.next_labels, _responses("human", "score"), 12, judge="score",
                               human="human", rng=0),
        "without": partial(es.next_labels, _responses("score"), 12, judge="score", rng=0),
        "of two judges": partial(es.next_labels, _responses("gpt", "noisy"), 12,
                                 judge=["gpt", "noisy"], rng=0),
    },
    "labels to ask for of many": {
        f"{n} by {judge}{' with labels' * labelled}": partial(
            es.next_labels, _responses(*(["human"] if labelled else []), judge), n, judge=judge,
            human="human" if labelled else None, rng=0)
        for judge, n in (("gpt", 12), ("score", 84), ("score", 90), ("points", 88), ("noisy", 3))
        for labelled in (False, True)
    } | {
        "of two scales": partial(es.next_labels, _responses("gpt", "points"), 60,
                                 judge=["gpt", "points"], rng=0),
        "of a judge who is always sure": partial(es.next_labels, [
            replace(r, scores=np.ones((N, 1))) if r.metric == "gpt" else r
            for r in _responses("gpt", "points")], 9, judge=["gpt", "points"], rng=0),
    },
    "what is lacking": {
        "a judge of one model": partial(
            es.judge, _responses("human", n=1) + _responses("gpt"), judge="gpt", human="human",
            rng=0),
        "scores of some": partial(es.judge, [
            replace(r, scores=np.where(np.arange(N)[:, None] % 7, r.scores, np.nan))
            for r in _responses("human", "gpt", "noisy")], judge=["gpt", "noisy"], human="human",
            rng=0),
        "few labels": partial(es.judge, [
            replace(r, scores=np.where(np.arange(N)[:, None] < 3, r.scores, np.nan))
            if r.metric == "human" else r for r in _responses("human", "gpt")],
            judge="gpt", human="human", rng=0),
        "a judge who is always sure": partial(es.judge, [
            replace(r, scores=np.ones((N, 1))) if r.metric == "gpt" else r
            for r in _responses("human", "gpt", "points")], judge=["gpt", "points"],
            human="human", rng=0),
        "noted": lambda: [
            [row.notes[-1][:7], re.findall(r"[\d.]+", row.notes[-1])] for row in noted(
                es.intervals(_responses("gpt", "noisy"), rng=0), ["gpt"],
                list(es.judge(_responses("human", "gpt"), judge="gpt", human="human", rng=0)))
            if row.notes],
        "noise of two answers": partial(es.noise, [
            r.of_items(np.arange(N) < 2) for r in _responses("gpt", "noisy", n_epochs=2)],
            judges=["gpt", "noisy"]),
        "noise with gaps": partial(es.noise, [
            replace(r, scores=np.where(np.arange(N)[:, None] % 5, r.scores, np.nan))
            for r in _responses("gpt", "score", n_epochs=2)], judges=["gpt", "score"]),
        "costs of none": partial(es.costs, [
            replace(r, scores=np.full((40, 1), np.nan)) if r.metric == "tokens" else r
            for r in _timed()]),
        "costs alike": partial(es.costs, [
            replace(r, scores=np.full((40, 1), 9.0)) if r.metric == "tokens" else r
            for r in _timed()]),
        "one cost": partial(es.costs, [
            replace(r, scores=np.where(np.arange(40)[:, None] == 5, 9.0, np.nan))
            if r.metric == "tokens" else r for r in _timed()]),
        "none right": partial(es.costs, [
            replace(r, scores=0 * r.scores) if r.metric == "acc" else r for r in _timed()]),
        "heavy": partial(es.costs, [
            replace(r, scores=np.exp(r.scores / 20)) if r.metric == "tokens" else r
            for r in _timed()]),
    },
    "noise of judges": {
        "two": partial(es.noise, _responses("gpt", "noisy", n_epochs=2), judges=["gpt", "noisy"]),
        "shares": partial(es.noise, _responses("gpt", "score", n_epochs=3), judges=["gpt", "score"],
                          confidence_level=0.9),
    },
    "costs": {
        "tokens": partial(es.costs, _timed()),
        "90 %": partial(es.costs, _timed(), confidence_level=0.9),
        "clusters": partial(es.costs, _timed(clusters=True)),
        "of grades": partial(es.costs, _timed(graded=True)),
    },
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("judges", run, RUNS[run]) == []

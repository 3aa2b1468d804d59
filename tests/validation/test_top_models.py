"""The best of ten held-out models under one budget: items where they tell most, or shared equally.

Writes top_models.json (figures only; EVALSTATS_DATA as in test_adaptive_real). Groups of ten models
kept out of the bank: how often the K that `TopK` holds best are those with the highest full scores
after so many items of all, beside the same number shared equally, and how often a selection that is
called clear at 95 % is wrong.
"""

import numpy as np
import pytest
from study import write_figures
from test_adaptive_real import FOLDER, atlas, livebench

from evalstats_plugin.adaptive import AdaptiveSession, TopK, item_bank
from evalstats_plugin.adaptive.selection import INSURANCE
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.irt.fitting import fit_irt

pytestmark = pytest.mark.validation
SETS = {"livebench_binary": lambda: livebench(binary=True), "arc": lambda: atlas("arc_mixtral")}
AT, MODELS, SPLITS, GROUPS = (100, 200, 400, 600), 10, (400, 401), 8
SHARES = (0.0, INSURANCE)


def is_right(chosen, truth, k):
    """Whether the chosen have the highest scores; of equal scores any."""
    return bool(truth[list(chosen)].min() >= np.sort(truth)[-k] - 1e-12)


def together(bank, answers, k, seed, insurance):
    """Places of the chosen at each number of items, and whether and when it was clear."""
    settings = {"insurance": insurance, "rng": seed}
    sessions = {str(i): AdaptiveSession(bank, **settings) for i in range(len(answers))}
    top, chosen = TopK(sessions, k, max_items=AT[-1], rng=seed), {}
    while (step := top.next()) is not None:
        name, place = step
        top.record(name, place, float(answers[int(name), place]))
        if top.n in AT:
            chosen[top.n] = [int(name) for name in top.best]
    last = [int(name) for name in top.best]
    clear = top.stopped.startswith("clear")
    return {n: chosen.get(n, last) for n in AT}, clear, top.n, last


def equally(bank, answers, k, seed, insurance):
    """Places of the chosen where every model is asked the same number of items."""
    settings = {"insurance": insurance, "rng": seed}
    scores, sessions = {}, [AdaptiveSession(bank, **settings) for _ in answers]
    for n in range(1, AT[-1] // len(answers) + 1):
        for session, own in zip(sessions, answers, strict=True):
            for place in session.next(1).tolist():
                session.record(place, float(own[place]))
        if (asked := n * len(answers)) in AT:
            scores[asked] = np.array([one.full_score()[""].estimate for one in sessions])
    return {n: np.argsort(-scores[n], kind="stable")[:k].tolist() for n in AT}


def rows(scores, tasks, insurance):
    found = {k: [] for k in (1, 3)}
    for seed in SPLITS:
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(scores))
        calibrated, tested = np.split(order, [int(0.7 * len(order))])
        matrix = ResponseMatrix.from_array(
            scores[calibrated], tasks="task" if tasks is None else tasks
        )
        bank = item_bank(fit_irt(matrix, "2pl", rng=seed), matrix, rng=seed)
        tested = tested[np.isfinite(scores[tested]).all(axis=1)]
        for group in range(GROUPS):
            answers = scores[rng.choice(tested, MODELS, replace=False)]
            truth = answers.mean(axis=1)
            for k, own in found.items():
                chosen, clear, n, last = together(bank, answers, k, group, insurance)
                shared = equally(bank, answers, k, group, insurance)
                own.append(
                    {
                        "together": [is_right(chosen[n], truth, k) for n in AT],
                        "equally": [is_right(shared[n], truth, k) for n in AT],
                        "clear": clear,
                        "items": n,
                        "wrong": clear and not is_right(last, truth, k),
                    }
                )
    return [
        {"insurance": insurance, "k": k, "models": MODELS, "groups": len(own), "at": list(AT)}
        | {
            way: [float(np.mean([one[way][i] for one in own])) for i in range(len(AT))]
            for way in ("together", "equally")
        }
        | {
            "clear": float(np.mean([one["clear"] for one in own])),
            "items": float(np.mean([one["items"] for one in own])),
            "wrong": int(sum(one["wrong"] for one in own)),
        }
        for k, own in found.items()
    ]


@pytest.mark.skipif(FOLDER is None, reason="EVALSTATS_DATA names no folder")
def test_items_go_where_they_tell_most():
    """No clear selection is wrong, and with few items more are right than by equal shares."""
    found = {
        name: [row for insurance in SHARES for row in rows(*data(), insurance)]
        for name, data in SETS.items()
    }
    write_figures("top_models", {name: (lambda own=own: own) for name, own in found.items()})

    every = [row for own in found.values() for row in own]
    assert sum(row["wrong"] for row in every) <= 0.05 * sum(row["groups"] for row in every)
    assert sum(map(sum, (row["together"] for row in every))) > sum(
        map(sum, (row["equally"] for row in every))
    )

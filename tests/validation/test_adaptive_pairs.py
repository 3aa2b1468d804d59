"""Two models tested by the same drawn items. Writes fixtures/validation/adaptive_pairs.json.

How often limits of the difference of two full scores hold it, and how wide they are, over worlds
drawn as in `test_adaptive_design`, and pairs of models that the bank does not know:

models    two models
versions  a model, and the same with a fifth of its answers drawn anew
unlike    two models whose answers belong to the items in another order: the bank is wrong

``shared``: rule ``random``, the same items for both; ``apart``: rule ``design``, each its own.
Beside them simple random samples without a bank: ``sample, shared`` (Student's t of the differences
on the same items, corrected for the finite population) and ``sample, apart`` (Wald's interval of
two shares, corrected likewise). Worlds, pairs, draws and samples have streams of their own.
"""

import json
from functools import partial

import numpy as np
import pytest
from scipy import special
from study import FOLDER, Streams, write_figures
from test_adaptive_design import Z, calibrated, world

from evalstats_plugin.adaptive.design import Draws, full_score
from evalstats_plugin.adaptive.scoring import Belief, Shares, curves_of, laplace
from evalstats_plugin.adaptive.selection import drawn_from
from evalstats_plugin.data.responses import DrawnItems, difference_error

pytestmark = pytest.mark.validation
KINDS = ("models", "versions", "unlike")
AT = (10, 25, 50)
WORLDS = 18


def answers_of(kind, scores, rng):
    """Answers of 2 × P models: those of pair p are p and p + P."""
    first, second = np.array_split(rng.permutation(scores)[: 2 * (len(scores) // 2)], 2)
    if kind == "versions":
        anew = rng.random(first.shape) < 0.2
        second = np.where(anew, rng.random(first.shape) < first.mean(axis=1)[:, None], first)
    answers = np.concatenate([first, second]).astype(float)
    return answers[:, rng.permutation(answers.shape[1])] if kind == "unlike" else answers


def by_design(bank, answers, rng, *, shared):
    """Differences of pairs and their standard errors, by the number of items."""
    bank, shares, half = bank.drawable(), Shares.of(bank), len(answers) // 2
    draws = Draws(shares.of_items(bank.usable), alike=shared, targets=None)
    belief, found = Belief.prior(bank, len(answers)), {}
    state, asked = laplace(belief), np.zeros(answers.shape, dtype=bool)
    for n in range(1, max(AT) + 1):
        ahead = draws.ahead(belief, curves_of(belief, state), bank.usable & ~asked)
        places = drawn_from(ahead.probability, rng)
        places = np.full_like(places, places[0]) if shared else places
        draws.record(belief, ahead, places, np.zeros((len(answers), 0), dtype=int))
        asked[np.arange(len(answers)), places] = True
        right = np.take_along_axis(answers, places[:, None], axis=1)
        belief = belief.answered(places[:, None], right, np.ones_like(right))
        state = laplace(belief, state)
        if n in AT:
            full = full_score(draws, belief, shares, state, bank.usable)
            estimate, error = full.estimate[:, 0], full.std_error[:, 0]
            a, b = error[:half], error[half:]
            together = np.hypot(a, b)
            if shared:
                off, items = (
                    draws.residuals(belief)[:, :, 0].T,
                    tuple(f"task / {k}" for k in range(n)),
                )
                drawn = [DrawnItems(items, np.ones(n), each) for each in off]
                pairs = zip(drawn[:half], a, drawn[half:], b, strict=True)
                together = np.array([difference_error(*pair) for pair in pairs])
            found[n] = estimate[half:] - estimate[:half], Z * together
    return found


def by_sample(answers, rng, *, shared):
    """The same of simple random samples: half widths of 95 % limits."""
    half, m = len(answers) // 2, answers.shape[1]
    order = rng.random(answers.shape).argsort(axis=1)
    order[half:] = order[:half] if shared else order[half:]
    found = {}
    for n in AT:
        right = np.take_along_axis(answers, order[:, :n], axis=1)
        a, b = right[:half], right[half:]
        variance = (b - a).var(axis=1, ddof=1) if shared else a.var(axis=1) + b.var(axis=1)
        z = special.stdtrit(n - 1, 0.975) if shared else Z
        found[n] = b.mean(axis=1) - a.mean(axis=1), z * np.sqrt(variance / n * (1 - n / m))
    return found


def figures():
    streams, rows = Streams("pairs of adaptive tests"), {}
    for k in range(WORLDS):
        scores = world(streams(k, "world"))
        bank, outside = calibrated(scores, "as", streams(k, "bank"))
        for kind in KINDS:
            answers = answers_of(kind, scores[outside], streams(k, kind, "pairs"))
            half = len(answers) // 2
            truth = answers[half:].mean(axis=1) - answers[:half].mean(axis=1)
            tests = {
                "shared": partial(by_design, bank, shared=True),
                "apart": partial(by_design, bank, shared=False),
                "sample, shared": partial(by_sample, shared=True),
                "sample, apart": partial(by_sample, shared=False),
            }
            for how, test in tests.items():
                found = test(answers=answers, rng=streams(k, kind, how))
                for n, (estimate, reach) in found.items():
                    held = np.abs(estimate - truth) <= reach + 1e-9
                    rows.setdefault((kind, how, n), []).append((estimate - truth, 2 * reach, held))
    return [summary(key, parts) for key, parts in rows.items()]


def summary(key, parts):
    error, width, held = (np.concatenate(each) for each in zip(*parts, strict=True))
    by_world = [each[2].mean() for each in parts]
    return dict(zip(("kind", "how", "n"), key, strict=True)) | {
        "pairs": len(error),
        "held": float(held.mean()),
        "held_se": float(np.std(by_world, ddof=1) / np.sqrt(len(parts))),
        "bias": float(error.mean()),
        "bias_se": float(error.std() / np.sqrt(len(error))),
        "mae": float(np.abs(error).mean()),
        "width": float(width.mean()),
    }


def test_limits_hold_the_difference_and_the_same_items_make_them_narrower():
    write_figures("adaptive_pairs", {"pairs": figures})

    found = json.loads((FOLDER / "adaptive_pairs.json").read_text("utf-8"))["pairs"]
    rows = {(row["kind"], row["how"], row["n"]): row for row in found}
    for (kind, how, n), row in rows.items():
        if how in ("shared", "apart"):
            assert row["held"] >= 0.93, (kind, n)
            assert abs(row["bias"]) <= 3 * row["bias_se"]
    for n in AT:
        assert rows["versions", "shared", n]["width"] < 0.8 * rows["versions", "apart", n]["width"]

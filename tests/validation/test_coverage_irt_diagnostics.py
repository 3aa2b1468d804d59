"""Item response diagnostics: how often is a sound item accused, and a faulty one found?

Writes fixtures/validation/irt_diagnostics.json. Simulations with fixed seeds, whose standard error
is stated with each row; levels are 5 %.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt.dif import dif
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth
from evalstats_plugin.irt.suspects import suspect_items

pytestmark = pytest.mark.validation
FILE = Path(__file__).parents[2] / "fixtures" / "validation" / "irt_diagnostics.json"
R = 12
GROUPS = ((20, 100, 0.0), (60, 100, 1.0), (300, 40, 0.5))
SHAPES = ((10, 300), (20, 300), (50, 300), (350, 60))
HARDER, UNFAIR = 1.5, 0.1


def two_groups(rng, n, m, gap, unfair):
    """The first half of the models is focal, `gap` less able; some items are harder for it."""
    truth = draw_truth(rng, n, m, "rasch")
    focal = np.arange(n) < n // 2
    difficulty = truth.difficulty + HARDER * np.outer(focal, np.arange(m) < unfair)
    p = special.expit((truth.ability - gap * focal)[:, None] - difficulty)
    matrix = ResponseMatrix.from_array((rng.random((n, m)) < p).astype(float))
    return fit_irt(matrix, "rasch"), matrix, matrix.models[: n // 2]


def dif_rows():
    rows = []
    for n, m, gap in GROUPS:
        level, power, false = [], [], []
        for seed in range(R):
            rng = np.random.default_rng(seed)
            fair = dif(*two_groups(rng, n, m, gap, 0), purify=False)
            level.append(np.nanmean(fair.p_value < 0.05))
            unfair = int(UNFAIR * m)
            mixed = dif(*two_groups(rng, n, m, gap, unfair))
            power.append(mixed.flagged[:unfair].mean())
            false.append(mixed.flagged[unfair:].mean())
        rows.append(
            {"n_models": n, "n_items": m, "gap": gap}
            | {"level": float(np.mean(level)), "std_error": float(np.std(level) / R**0.5)}
            | {"found": float(np.mean(power)), "found_falsely": float(np.mean(false))}
        )
    return rows


def suspect_rows():
    rows = []
    for n, m in SHAPES:
        sound, found, others = [], [], []
        for seed in range(R):
            rng = np.random.default_rng(seed)
            truth = draw_truth(rng, n, m, "2pl")
            matrix = draw_responses(truth, rng)
            sound.append(len(suspect_items(fit_irt(matrix), matrix)) / m)
            middle = np.argsort(np.abs(truth.difficulty))[:5]
            scores = matrix.scores.copy()
            scores[:, middle] = 1 - scores[:, middle]
            turned = ResponseMatrix.from_array(scores)
            listed = {row.item for row in suspect_items(fit_irt(turned), turned)}
            hits = len({f"item_{j}" for j in middle} & listed)
            found.append(hits / 5)
            others.append((len(listed) - hits) / m)
        rows.append(
            {"n_models": n, "n_items": m, "sound_items_listed": float(np.mean(sound))}
            | {"reversed_keys_found": float(np.mean(found))}
            | {"std_error": float(np.std(found) / R**0.5), "others_listed": float(np.mean(others))}
        )
    return rows


def test_sound_items_are_left_alone_and_faulty_ones_found():
    rows = {"dif": dif_rows(), "suspects": suspect_rows()}
    FILE.write_text(json.dumps({"replications": R, **rows}, indent=1) + "\n", encoding="utf-8")

    assert all(row["level"] <= 0.05 + 3 * row["std_error"] + 0.005 for row in rows["dif"])
    large = [row for row in rows["dif"] if row["n_models"] == 300]
    assert all(row["found"] > 0.8 for row in large)
    assert all(row["found_falsely"] < 0.03 for row in rows["dif"])
    assert rows["dif"][0]["level"] > 0.02
    assert all(row["sound_items_listed"] < 0.005 for row in rows["suspects"])
    assert rows["suspects"][-1]["reversed_keys_found"] > 0.95

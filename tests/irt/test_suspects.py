"""Items to look at: planted faults are named, sound data stay unaccused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt.fit_statistics import Cells, cells_of
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth
from evalstats_plugin.irt.suspects import _unanswered, slope_tests, suspect_items

pytestmark = pytest.mark.needs("torch")


def drawn(seed, n, m, item_model="2pl"):
    rng = np.random.default_rng(seed)
    truth = draw_truth(rng, n, m, item_model)
    return draw_responses(truth, rng), truth


@pytest.mark.parametrize(("n", "m"), [(10, 300), (50, 200), (350, 60)])
def test_sound_items_are_hardly_ever_listed(n, m):
    """Answers drawn from the model: of four data sets, one item in all at most per set."""
    listed = [len(suspect_items(fit_irt(x), x)) for x, _ in (drawn(s, n, m) for s in range(4))]

    assert sum(listed) <= 4


@pytest.mark.parametrize("item_model", ["rasch", "2pl"])
def test_a_key_turned_round_is_found_by_any_fit(item_model):
    """80 models; also by a fit that holds all discriminations equal, or positive."""
    matrix, truth = drawn(0, 80, 200)
    middle = np.argsort(np.abs(truth.difficulty) + (truth.discrimination < 0.9))[:4]
    scores = matrix.scores.copy()
    scores[:, middle] = 1 - scores[:, middle]
    turned = replace(matrix, scores=scores)
    found = suspect_items(fit_irt(turned, item_model), turned)
    named = {row.item: row.reasons for row in found}

    wrong = {item for item, why in named.items() if "its key may be wrong" in " ".join(why)}

    assert len({f"item_{j}" for j in middle} & wrong) >= 3
    assert len(found) <= 6


def test_an_item_that_none_gets_right_among_easy_ones_is_listed():
    """Its neighbours are its cluster: as hard an item in a hard cluster is no surprise."""
    rng = np.random.default_rng(1)
    truth = draw_truth(rng, 40, 100, "rasch")
    difficulty = np.where(np.arange(100) < 50, truth.difficulty * 0.5 - 1, 4.5)
    matrix = draw_responses(truth._replace(difficulty=difficulty), rng)
    scores = matrix.scores.copy()
    scores[:, 0] = 0
    clusters = np.repeat(["easy", "hard"], 50)
    broken = replace(matrix, scores=scores, clusters=clusters)
    found = {row.item: row.reasons for row in suspect_items(fit_irt(broken, "rasch"), broken)}

    assert "no model gets it right" in " ".join(found["item_0"])
    assert not {f"item_{j}" for j in range(50, 100)} & set(found)
    assert (scores[:, 50:].sum(axis=0) == 0).sum() > 10


def test_an_answer_that_is_sure_and_was_not_given_counts_nothing():
    """P is 1 to all digits where an item separates models: 0 times infinity made no number."""
    right = np.array([[0.0, 1, 1], [0, 0, 1], [0, 1, 0], [0, 1, 1]])
    trials, probability = np.ones((4, 3)), np.full((4, 3), 0.9)
    trials[0, 1], right[0, 1], probability[0, 1] = 0, 0, 1.0
    reasons = [[], [], []]
    _unanswered(Cells(right, trials, probability), np.zeros(3, dtype=np.int64), 0.05, reasons)

    assert [len(each) for each in reasons] == [1, 0, 0]


def test_a_copied_item_names_its_twin_and_noise_is_told():
    matrix, _ = drawn(2, 350, 50)
    scores = matrix.scores.copy()
    scores[:, 1] = scores[:, 0]
    # Ability explains little of a mixture of two opposite items.
    coin = np.random.default_rng(3).random(350) < 0.5
    scores[:, 2, 0] = np.where(coin, 1 - scores[:, 0, 0], scores[:, 3, 0])
    odd = ResponseMatrix.from_array(scores)
    found = {row.item: " ".join(row.reasons) for row in suspect_items(fit_irt(odd, "rasch"), odd)}

    assert "goes with item item_1 beyond ability" in found["item_0"]
    assert "goes with item item_0 beyond ability" in found["item_1"]
    assert "noisier than ability explains" in found["item_2"]


def test_the_list_is_ready_for_logs():
    """Texts and finite numbers by item, of one task."""
    matrix, truth = drawn(4, 60, 80)
    place = int(np.argmin(np.abs(truth.difficulty)))
    scores = matrix.scores.copy()
    scores[:, place] = 1 - scores[:, place]
    tasks = np.where(np.arange(80) == place, "one", "two")
    turned = replace(matrix, scores=scores, tasks=tasks)
    found = suspect_items(fit_irt(turned), turned)
    entry = found.by_item("one")[f"item_{place}"]

    assert "its key may be wrong" in entry["suspect"]
    assert all(isinstance(v, str) or np.isfinite(v) for v in entry.values())
    assert f"item_{place}" not in found.by_item("two")
    assert found.to_frame()["item"][0] == f"item_{place}"
    assert entry["item_rest"] < 0


def test_three_models_do_not_reverse_a_key_by_a_hair():
    """Where most items follow ability, one that does not says little of three models."""
    follows = np.repeat([[0.0, 0, 1], [0, 1, 1], [0, 0, 0], [1, 1, 1]], [90, 60, 30, 40], axis=0)
    odd = np.repeat([[1.0, 1, 0]], 40, axis=0)
    matrix = ResponseMatrix.from_array(np.concatenate([follows, odd]).T)

    fit = fit_irt(matrix)
    found = suspect_items(fit, matrix)

    assert -1.645 < slope_tests(cells_of(fit, matrix), fit.ability, 1, 0.5).none[-1] < -1.3
    assert not [row for row in found if "its key may be wrong" in " ".join(row.reasons)]


@pytest.mark.parametrize(("slope", "field"), [(0.0, "none"), (1.2, "typical")])
def test_slope_tests_are_standard_normal_where_what_they_test_is_so(slope, field):
    """4000 items, 60 models of given ability: mean 0, variance 1 (standard errors .016, .022)."""
    rng = np.random.default_rng(5)
    theta = rng.standard_normal(60)
    p = special.expit(slope * theta[:, None] + np.linspace(-1, 1, 4000))
    right = (rng.random(p.shape) < p).astype(float)
    found = slope_tests(Cells(right, np.ones_like(p), p), theta, mean=1.2, sd=0)
    z, other = getattr(found, field), found.none + found.typical - getattr(found, field)

    assert np.mean(z) == pytest.approx(0, abs=0.08)
    assert np.var(z) == pytest.approx(1, abs=0.12)
    assert abs(np.mean(other)) > 2


def test_reasons_keep_reversed_apart_from_unlike_the_others():
    """Of 30 models some wrong keys are reversed beyond chance, others only unlike other items."""
    matrix, truth = drawn(2, 30, 200)
    middle = np.argsort(np.abs(truth.difficulty) + (truth.discrimination < 0.9))[:4]
    scores = matrix.scores.copy()
    scores[:, middle] = 1 - scores[:, middle]
    turned = replace(matrix, scores=scores)
    reasons = [row.reasons[0] for row in suspect_items(fit_irt(turned), turned)]

    sure = [text for text in reasons if "less often, beyond chance" in text]
    unlike = [text for text in reasons if "that it is reversed may be chance" in text]
    assert (len(sure), len(unlike)) == (2, 1)

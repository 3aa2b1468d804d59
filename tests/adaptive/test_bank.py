from dataclasses import replace

import numpy as np
import pytest

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import Shares
from evalstats_plugin.errors import DesignError, ItemConflictError, LogError


def small(**others):
    m = 6
    return ItemBank.from_arrays(
        np.linspace(0.5, 2, m),
        np.linspace(-1, 1, m),
        tasks=["x", "x", "x", "y", "y", "y"],
        item_covariance=np.tile(0.01 * np.eye(2), (m, 1, 1)),
        misfit_loadings=np.arange(12.0).reshape(m, 2) / 10,
        hashes=np.array(["h0", "h1", None, "h3", "h4", "h5"], dtype=object),
        cost=np.arange(1.0, 7.0),
        models=("p", "q"),
        abilities=np.array([0.5, -0.5]),
        scores=np.array([0.7, np.nan]),
        misfit={"": 0.02},
        provenance={"estimator": "mml"},
        **others,
    )


def test_a_bank_is_read_as_it_was_saved(tmp_path):
    bank = small().without(np.arange(6) == 2, "drift")

    found = ItemBank.load(bank.save(tmp_path / "bank.parquet"))

    assert bank.keys() == found.keys()
    assert ["", "", "drift", "", "", ""] == found.reasons.tolist()
    assert bank.hashes.tolist() == found.hashes.tolist()
    for name in ("discrimination", "intercept", "cost", "item_covariance", "misfit_loadings"):
        np.testing.assert_array_equal(getattr(bank, name), getattr(found, name))
    assert 0.7 == found.scores[0]
    assert np.isnan(found.scores[1])
    assert {"": 0.02} == found.misfit


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (np.ones(2), r"cost has shape \(2,\), not \(6,\)"),
        (np.array([1, 1, 1, 1, 1, np.nan]), "some costs are not numbers of 0 or above"),
        (-np.ones(6), "some costs are not numbers of 0 or above"),
    ],
)
def test_costs_that_no_item_can_have_are_refused(cost, message):
    with pytest.raises(ValueError, match=message):
        replace(small(), cost=cost)


def test_one_task_of_several_has_its_own_misfit():
    """It had that of the score over all tasks, where errors of tasks cancel."""
    bank = replace(small(), misfit={"": 0.01, "x": 0.07, "y": 0.02})

    assert Shares.of(bank).misfit.tolist() == [0.01, 0.07, 0.02]
    assert Shares.of(bank.of_tasks(["x"])).misfit.tolist() == [0.07]
    assert Shares.of(small().of_tasks(["x"])).misfit.tolist() == [0.02]


@pytest.mark.parametrize("content", [None, b"no parquet"])
def test_what_is_no_bank_is_refused(tmp_path, content):
    path = tmp_path / "bank.parquet"
    if content:
        path.write_bytes(content)

    with pytest.raises(LogError, match="give an item bank"):
        ItemBank.load(path)


def test_items_of_another_version_are_named():
    with pytest.raises(ItemConflictError, match=r"other questions than .*, 1 item: x / item_1"):
        small().matched(["x", "x"], ["item_0", "item_1"], ["h0", "other"])


@pytest.mark.parametrize("unknown", [None, "", "None"])
def test_a_hash_that_is_not_known_is_no_other_one(unknown):
    """Logs without a hash of an item, also as arrays of texts store it."""
    kept = small().matched(["x", "x"], ["item_0", "item_1"], ["h0", unknown])

    assert [0, 1] == np.flatnonzero(kept.usable).tolist()


def test_items_the_harness_lacks_are_not_asked():
    found = small().matched(["x", "y"], ["item_0", "item_4"], ["h0", None])

    assert [0, 4] == np.flatnonzero(found.usable).tolist()
    assert "not in the harness" == found.reasons[1]
    assert "4 of the bank's 6 items are not in the harness" in found.notes


def test_a_harness_with_none_of_the_items_is_refused():
    with pytest.raises(DesignError, match="of those it has none"):
        small().matched(["z"], ["item_0"])


def test_a_bank_without_usable_items_tells_why():
    bank = small().without(np.ones(6, bool), "misfit")

    with pytest.raises(DesignError, match=r"none of the bank's 6 items.*misfit \(6\)"):
        bank.require_usable()

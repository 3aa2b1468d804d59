from dataclasses import replace

import numpy as np
import pytest

from evalstats_plugin.adaptive.bank import ItemBank, merge
from evalstats_plugin.errors import DesignError, ItemConflictError


def banks(*, through_models=False, drift=False):
    """Two banks of one world, the second on another scale: θ_a = 1.5 θ_b - 0.4."""
    rng = np.random.default_rng(0)
    a, b = np.exp(0.3 * rng.normal(size=60)), rng.normal(size=60)
    theta = rng.normal(size=12)
    a_two, b_two = a.copy(), b.copy()
    if drift:
        b_two[30] += 2.0
    covariance = np.tile(0.01 * np.eye(2), (40, 1, 1))
    names = [f"i{j}" for j in range(60)]
    start = 40 if through_models else 20
    end = start + (20 if through_models else 40)
    first = ItemBank.from_arrays(
        a[:40], -a[:40] * b[:40], item_ids=names[:40], item_covariance=covariance,
        models=tuple(f"m{k}" for k in range(8)), abilities=theta[:8], scores=np.zeros(8),
        hashes=np.array(names[:40], dtype=object), provenance={"metrics": ["f1"]},
    )  # fmt: skip
    own_a, own_b = 1.5 * a_two[start:end], (b_two[start:end] + 0.4) / 1.5
    second = ItemBank.from_arrays(
        own_a, -own_a * own_b, item_ids=names[start:end],
        item_covariance=covariance[: end - start],
        models=tuple(f"m{k}" for k in range(4, 12)), abilities=(theta[4:] + 0.4) / 1.5,
        scores=np.zeros(8), hashes=np.array(names[start:end], dtype=object),
        provenance={"metrics": ["acc", "f1"]},
    )  # fmt: skip
    return first, second, a, b, theta


@pytest.mark.parametrize("through", ["items", "models"])
def test_two_banks_come_on_the_scale_of_the_first(through):
    first, second, a, b, theta = banks(through_models=through == "models")

    found = merge(first, second, through=through)

    assert 60 == len(found) == found.usable.sum()
    np.testing.assert_allclose(a, found.discrimination, rtol=1e-6)
    np.testing.assert_allclose(-a * b, found.intercept, atol=1e-6)
    np.testing.assert_allclose(theta, found.abilities, atol=1e-6)
    np.testing.assert_allclose(1.5, found.provenance["link"]["slope"])
    assert ["acc", "f1"] == found.provenance["metrics"]


def test_what_one_bank_alone_knows_of_its_items_is_kept():
    """Hashes, dispersions and misfit were dropped where the other bank had none."""
    first, second, *_ = banks()
    tasks = np.array(["task"] * 20 + ["other"] * 20)
    first = replace(first, hashes=None, misfit={"": 0.03})
    second = replace(second, tasks=tasks, dispersion=np.full(40, 0.3))

    found = merge(first, second)

    assert found.hashes.tolist() == [None] * 40 + [f"i{j}" for j in range(40, 60)]
    assert found.dispersion.tolist() == [1.0] * 40 + [0.3] * 20
    assert found.misfit == {"": 0.03, "task": 0.03}
    # Cut from a bank of several, whose misfit over all of them is of other items.
    cut = replace(first, misfit={"": 0.01, "task": 0.04})
    assert merge(cut, second).misfit == {"": 0.04, "task": 0.04}


def test_an_item_that_drifted_is_not_asked():
    first, second, *_ = banks(drift=True)

    found = merge(first, second)

    assert ["i30"] == found.item_ids[~found.usable].tolist()
    assert "drift" == found.reasons[30]
    assert "1 common items drifted between the banks" in found.notes


def test_banks_without_anything_in_common_are_refused():
    first, second, *_ = banks(through_models=True)

    with pytest.raises(DesignError, match="0 items in common are too few"):
        merge(first, second)


def test_common_models_of_one_ability_link_no_banks():
    first, second, *_ = banks(through_models=True)

    with pytest.raises(DesignError, match="have the same ability in a bank"):
        merge(first, replace(second, abilities=np.ones(8)), through="models")


def test_another_question_under_the_same_name_is_refused():
    first, second, *_ = banks()
    hashes = second.hashes.copy()
    hashes[0] = "other"

    with pytest.raises(ItemConflictError, match="task / i20"):
        merge(first, second.__class__(**(vars(second) | {"hashes": hashes})))

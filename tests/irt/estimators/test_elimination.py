"""Items eliminated: against the inverse of the whole joint precision."""

import numpy as np
import pytest
import torch

from evalstats_plugin.irt.estimators.information import _halves, eliminated


def _joint(r, m, p, seed=0):
    """Parts of a positive definite joint precision, and all of it, items one after another."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((m, p, p + 2))
    own = root @ root.transpose(0, 2, 1)
    edges = rng.standard_normal((p, r, m)) * 0.3
    needed = np.einsum("prm,mpq,qsm->rs", edges, np.linalg.inv(own), edges)
    spread = rng.standard_normal((r, r + 3))
    dense = needed + spread @ spread.T
    return dense, edges, own, _whole(dense, edges, own)


def _whole(dense, edges, own):
    p, r, m = edges.shape
    whole = np.zeros((r + m * p, r + m * p))
    whole[:r, :r] = dense
    for j in range(m):
        at = slice(r + j * p, r + (j + 1) * p)
        whole[at, at] = own[j]
        whole[:r, at] = -edges[:, :, j].T
        whole[at, :r] = -edges[:, :, j]
    return whole


def _check(dense, edges, own, whole):
    p, r, m = edges.shape
    found = eliminated(*(torch.from_numpy(x) for x in (dense, edges, own)))

    inverse = np.linalg.inv(whole)
    items = [inverse[k : k + p, k : k + p] for k in range(r, r + m * p, p)]
    np.testing.assert_allclose(found.covariance, inverse[:r, :r], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.items, items, rtol=1e-9, atol=1e-11)
    last = inverse[r - 1, r:].reshape(m, p).T
    np.testing.assert_allclose(found.last, last, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(("r", "m"), [(7, 12), (30, 4), (1, 1)])
def test_blocks_are_those_of_the_whole_inverse(r, m, p):
    _check(*_joint(r, m, p))


@pytest.mark.parametrize("which", ["own", "dense"])
def test_blocks_agree_where_a_part_is_not_positive_definite(which):
    """As the information of items with guessing may be."""
    dense, edges, own, _ = _joint(6, 9, 2)
    if which == "own":
        own[3] = [[1.0, 2.0], [2.0, 1.0]]
    else:
        dense[2, 2] -= 100

    _check(dense, edges, own, _whole(dense, edges, own))


def test_indefinite_matrices_have_no_halves():
    one = torch.eye(3, dtype=torch.float64)

    assert _halves(one, 2 * one) is None
    assert _halves(one * torch.nan, one) is None
    assert _halves(one, 0.5 * one) is not None

"""Markov chains: order of sweeps, progress, and diagnostics of draws."""

import numpy as np
import pytest

from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import chain_agreement, run_chains
from evalstats_plugin.runtime.progress import listening

LENGTH = ChainLength(draws=3, warm_up=2)


def test_sweeps_are_numbered_from_the_end_of_the_warm_up():
    seen = []

    def sweep(state, k):
        seen.append(k)
        return [*state, k]

    kept = list(run_chains([], sweep, LENGTH))

    assert seen == [-2, -1, 0, 1, 2]
    assert kept == [[-2, -1, 0], [-2, -1, 0, 1], [-2, -1, 0, 1, 2]]


def test_progress_of_warm_up_and_draws_is_reported():
    seen = []
    with listening(lambda progress: seen.append((progress.stage, progress.done))):
        list(run_chains(0, lambda state, _: state, LENGTH))

    assert ("warm-up draw", 2) in seen
    assert seen[-1] == ("draw", 3)


def test_chains_of_one_distribution_agree_and_shifted_ones_do_not():
    draws = np.random.default_rng(0).normal(size=(4, 1000, 2))
    good = chain_agreement(draws)
    bad = chain_agreement(draws + np.arange(4)[:, None, None])

    assert good.converged
    assert good.notes == ()
    assert good.diagnostics == {"r_hat": good.r_hat, "ess": good.ess, "converged": True}
    assert 3000 < good.ess < 5000
    assert bad.converged is False
    assert bad.notes == (
        f"the chains disagree (R-hat {bad.r_hat:.3f}, limit 1.01): take more draws",
    )
    # The worst quantity counts.
    assert chain_agreement(np.concatenate([draws, draws * 0 + draws[::-1]], 2)).converged
    mixed = draws.copy()
    mixed[0, :, 1] += 3
    assert chain_agreement(mixed).converged is False


@pytest.mark.parametrize("warm_up", [0, 5])
def test_warm_up_draws_are_not_kept(warm_up):
    kept = list(run_chains(0, lambda x, _: x + 1, ChainLength(draws=2, warm_up=warm_up)))

    assert kept == [warm_up + 1, warm_up + 2]

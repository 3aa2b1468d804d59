"""Long fits tell how far they are, to whoever asked and to nobody else."""

from __future__ import annotations

import pytest

from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import (
    FactorOptions,
    JmlOptions,
    McmcOptions,
    MmlOptions,
    ViOptions,
)
from evalstats_plugin.irt.model.simulate import simulate_responses
from evalstats_plugin.runtime.progress import Progress, listening, report_progress

MATRIX = simulate_responses(rng=0, n_models=8, n_items=30)[0]


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("item_model", "estimator", "options", "stages"),
    [
        ("2pl", "mml", MmlOptions(prior="weak"), {"step"}),
        ("2pl", "jml", JmlOptions(), {"step"}),
        ("2pl", "vi", ViOptions(max_steps=9), {"step"}),
        ("factor", "map", FactorOptions(dimensions=1, ridge=3.0), {"step"}),
        ("rasch", "mcmc", McmcOptions(chains=2, draws=5, warm_up=3), {"warm-up draw", "draw"}),
    ],
)  # fmt: skip
def test_estimators_report_every_step(item_model, estimator, options, stages):
    """Counted up; draws have a total."""
    heard: list[Progress] = []
    with listening(heard.append):
        fit_irt(MATRIX, item_model, estimator, rng=0, options=options)
    silent = len(heard)
    fit_irt(MATRIX, item_model, estimator, rng=0, options=options)

    assert stages == {step.stage for step in heard}
    assert silent == len(heard) > 2
    assert all(step.total is None or step.done <= step.total for step in heard)
    if "draw" in stages:
        assert Progress("draw", 5, 5) == heard[-1]


def test_listeners_apply_inside_their_block_only():
    """Also where it fails; the inner one goes first."""
    outer: list[Progress] = []
    inner: list[Progress] = []

    def fail() -> None:
        with listening(inner.append):
            report_progress("a", 1)
            raise ZeroDivisionError

    with listening(outer.append):
        with pytest.raises(ZeroDivisionError):
            fail()
        report_progress("b", 2)
    report_progress("c", 3)

    assert [Progress("a", 1, None)] == inner
    assert [Progress("b", 2, None)] == outer

"""What tests of several engines share."""

import pytest


@pytest.fixture
def short_warm_up(monkeypatch):
    """Warm the no-U-turn sampler up for less long, and record a density once, not twice.

    For posteriors of a few numbers; where few chains are left, their rows are filled up.
    """
    from evalstats_plugin.hierarchical.engines.plates import nuts

    record = nuts.Posterior.record
    monkeypatch.setattr(nuts, "_WINDOWS", (10, 10, 10, 20, 20, 20))
    monkeypatch.setattr(nuts.Posterior, "record", lambda own, sizes: record(own, {max(sizes)}))

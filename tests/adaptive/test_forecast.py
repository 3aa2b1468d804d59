import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import Plan, forecast


def bank_of(n_items, **others):
    rng = np.random.default_rng(0)
    return ItemBank.from_arrays(np.full(n_items, 1.5), rng.normal(size=n_items), **others)


def test_a_fixed_length_costs_what_its_items_cost():
    bank = bank_of(40, cost=np.full(40, 25.0))

    found = forecast(Plan(bank="unused", max_items=8), bank)

    assert found.startswith("8 of 40 items, cost 200 of 1,000 for all")


def test_a_smaller_error_takes_more_items_and_a_useless_bank_all_of_them():
    bank = bank_of(150)

    counts = [
        int(forecast(Plan(bank="unused", stop_at=error), bank).split()[0]) for error in (0.5, 0.25)
    ]

    # Items of slope 1.5 at the ability tell 1.5²/4 each: 0.25⁻² - 1 is had from 27 at the least.
    assert counts[0] < counts[1]
    assert 27 <= counts[1] < 100
    assert forecast(Plan(bank="unused", stop_at=0.01), bank_of(60)).startswith("60 of 60 items")


def test_a_forecast_that_takes_long_gives_up(monkeypatch):
    monkeypatch.setattr("evalstats_plugin.adaptive.plan._SECONDS", 0.0)

    found = forecast(Plan(bank="unused", stop_at=0.01), bank_of(600, cost=np.ones(600)))

    assert found.startswith("more than ")
    assert "cost" not in found

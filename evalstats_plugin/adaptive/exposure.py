"""How often items may be asked, so that no item is seen by more than a share of the models."""

from __future__ import annotations

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.constraints import SympsonHetter
from evalstats_plugin.adaptive.simulate import Options, draw_models, run_sessions
from evalstats_plugin.errors import DesignError

_ROUNDS = 14
_AIM = 0.95
"""Of the share asked for: the counts are chance in part, and the largest should keep to it."""
_FULL_STEPS = 4
"""Rounds before steps become shorter: by then only chance is left in the counts."""


def exposure_control(
    bank: ItemBank,
    n_items: int,
    *,
    most: float = 0.25,
    options: Options | None = None,
    n_models: int = 400,
    rng: np.random.Generator | int | None = None,
) -> SympsonHetter:
    """Find with what probability to ask chosen items, so that few models see the same [SH85]_.

    Rounds of simulated tests. An item's probability is made smaller by as much as it was seen too
    often, which lets the next best items in, whose turn is in the next round.

    Parameters
    ----------
    n_items
        Of a test.
    most
        Share of models that may see an item.

    Raises
    ------
    DesignError
        The share is none, or so small that there are too few items for all models.
    """
    if not 0 < most <= 1:
        raise DesignError(f"share {most} of models that may see an item, expected 0 to 1")
    usable = int(bank.usable.sum())
    if n_items > most * usable:
        msg = f"{n_items} items a test of {usable} that may be asked are a share of"
        least = n_items / max(usable, 1)
        raise DesignError(f"{msg} {least:.2f} at the least, expected at most {most:g}: allow more")
    source = np.random.default_rng(rng)
    probability = np.ones(len(bank))
    known = options or Options()
    for number in range(_ROUNDS):
        answers = draw_models(bank, n_models, rng=source).answers
        control = known._replace(exposure=SympsonHetter(probability))
        places = run_sessions(bank, answers, (n_items,), control, rng=source).places
        seen = np.bincount(places.ravel(), minlength=len(bank)) / n_models
        wanted = np.minimum(_AIM * most * probability / np.maximum(seen, 1e-9), 1.0)
        step = 1 / max(number - _FULL_STEPS + 2, 1)
        probability = probability ** (1 - step) * wanted**step
    return SympsonHetter(probability)

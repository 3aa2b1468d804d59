"""Adaptive tests of many models by one program, one after another.

``python adaptive_fits.py PROGRAM FOLDER CPU_LIMIT ITEMS MODELS`` reads ``data.npz`` (a and b of the
items, ``right``: what each model would answer), asks ITEMS items of each of the first MODELS
models, and writes their abilities and 95 % limits to ``found.npz``. The clock starts with the bank
as the program wants it, and what a program makes once for a bank is made before it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import clock
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
HALF = 1.959963984540054
WARM = 3
"""Items of the test before the clock starts."""


class Data(NamedTuple):
    """A bank of M items, and what S models would answer."""

    a: Array
    b: Array
    right: NDArray[np.bool_]
    """Shape (S, M)."""


Tester = Callable[[NDArray[np.bool_], int], tuple[float, float, float]]
"""Gives a model's ability and its limits from its answers, shape (M,), and a number of items."""


def ours(rule: str, data: Data) -> Tester:
    """Sessions by a rule; limits of the posterior, whose prior is N(0, 1)."""
    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.adaptive.session import AdaptiveSession
    from evalstats_plugin.adaptive.stopping import Items

    bank = ItemBank.from_arrays(data.a, -data.a * data.b)

    def test(right: NDArray[np.bool_], n: int) -> tuple[float, float, float]:
        session = AdaptiveSession(bank, rule=rule, stop=(Items(n),), rng=0)
        while session.stopped is None:
            place = int(session.next()[0])
            session.record(place, float(right[place]))
        return session.ability, *session.interval()

    return test


def catsim(selector: str, data: Data) -> Tester:
    """Maximum likelihood by a bounded search after every answer; limits by its standard error."""
    from catsim import selection
    from catsim.estimation import NumericalSearchEstimator
    from catsim.irt import see
    from catsim.item_bank import ItemBank

    m = len(data.a)
    bank = ItemBank(np.column_stack([data.a, data.b, np.zeros(m), np.ones(m)]))

    def test(right: NDArray[np.bool_], n: int) -> tuple[float, float, float]:
        choose = getattr(selection, selector)(*(() if selector in _PLAIN else (n,)))
        search = NumericalSearchEstimator()
        asked, answers, ability = list[int](), list[bool](), 0.0
        for _ in range(n):
            place = choose.select(item_bank=bank, administered_items=asked, est_theta=ability)
            asked.append(int(place))
            answers.append(bool(right[place]))
            known = {"administered_items": asked, "response_vector": answers}
            ability = search.estimate(item_bank=bank, est_theta=ability, **known)
        error = see(ability, bank.get_items(asked))
        return ability, ability - HALF * error, ability + HALF * error

    return test


_PLAIN = ("MaxInfoSelector", "UrrySelector")
"""Selectors that need not know how long the test is."""


def adaptivetesting(_: str, data: Data) -> Tester:
    """Mode of the posterior under N(0, 1), quicker than its mean; the most informative items."""
    from adaptivetesting import models
    from adaptivetesting.implementations import TestAssembler
    from adaptivetesting.math.estimators import BayesModal, NormalPrior

    class Asked(TestAssembler):
        """A test whose answers are known."""

        right: Mapping[int, int]

        def get_response(self, item: Any) -> int:
            return self.right[item.id]

    def test(right: NDArray[np.bool_], n: int) -> tuple[float, float, float]:
        items = list[Any]()
        for place, (a, b) in enumerate(zip(data.a.tolist(), data.b.tolist(), strict=True)):
            item = models.TestItem()
            item.id, item.a, item.b, item.c, item.d = place, a, b, 0.0, 1.0
            items.append(item)
        session = Asked(
            models.ItemPool(items), "test", "model", BayesModal,
            {"prior": NormalPrior(0, 1), "optimization_interval": (-6, 6)}, simulation=False,
        )  # fmt: skip
        session.right = dict(enumerate(right.astype(int).tolist()))
        for _ in range(n):
            session.run_test_once()
        ability, error = session.ability_level, session.standard_error
        return ability, ability - HALF * error, ability + HALF * error

    return test


FITS: Mapping[str, tuple[str, Callable[[str, Data], Tester], str]] = MappingProxyType(
    {
        "evalstats-plugin": ("evalstats-plugin", ours, "information"),
        "evalstats-plugin, design": ("evalstats-plugin", ours, "design"),
        "catsim": ("catsim", catsim, "MaxInfoSelector"),
        "catsim, Urry's rule": ("catsim", catsim, "UrrySelector"),
        "catsim, a-stratified": ("catsim", catsim, "AStratSelector"),
        "adaptivetesting": ("adaptivetesting", adaptivetesting, ""),
    }
)
"""Distribution, what prepares a test, and how it chooses items."""


def main(name: str, folder: str, cpu_limit: str, items: str, models: str) -> None:
    """Test, keep the abilities and print what it took."""
    clock.limit(float(cpu_limit))
    distribution, prepare, how = FITS[name]
    with np.load(Path(folder) / "data.npz") as arrays:
        data = Data(arrays["a"], arrays["b"], arrays["right"])
    test = prepare(how, data)
    test(data.right[0], WARM)
    n = int(items)
    found, taken = clock.timed(lambda: [test(right, n) for right in data.right[: int(models)]])
    ability, low, high = np.array(found).T
    np.savez(Path(folder) / "found.npz", ability=ability, low=low, high=high)
    clock.tell(distribution, taken)


if __name__ == "__main__":
    main(*sys.argv[1:])

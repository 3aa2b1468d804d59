"""Work that cannot fit is refused with its size and a way out, before memory is allocated."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin import compare
from evalstats_plugin.data.responses import Responses, Source
from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.rank import rank
from evalstats_plugin.report.html import page
from evalstats_plugin.runtime import workers
from evalstats_plugin.scores.rows import Intervals

ITEMS = np.array(["1", "2", "3"])
SCORES = np.array([[0.0], [1.0], [1.0]])


def _models(n: int) -> list[Responses]:
    source = Source(path=Path("log.json"), harness="lm-eval")
    return [
        Responses(
            model=f"m{i}", task="t", metric="acc", item_ids=ITEMS, scores=SCORES, source=source
        )
        for i in range(n)
    ]


def test_too_many_pairs_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "free_memory", lambda: 16 * 2**30)
    models = _models(10_000)
    began = time.process_time()

    with pytest.raises(DesignError, match=r"49,995,000 pairs of 10,000 models.*name a baseline"):
        compare(models)
    assert time.process_time() - began < 2


def test_too_many_players(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "free_memory", lambda: 16 * 2**30)
    n = 100_000
    first = np.arange(n)
    names = [f"p{i}" for i in range(n)]
    contests = Contests.of(first, (first + 1) % n, np.ones(n), players=names)

    with pytest.raises(DesignError, match=r"100,000 players.*223\.5 GiB.*rank fewer players"):
        rank(contests)


def test_too_many_rows_of_a_page() -> None:
    class Many(Intervals):
        def __len__(self) -> int:
            return 5_000_000

    with pytest.raises(DesignError, match=r"5,000,000 rows.*200,000 at most: name a baseline"):
        page.to_html(page.Page(responses=(), intervals=Many(())))

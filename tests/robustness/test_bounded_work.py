"""Work that cannot fit is refused before memory is allocated; extreme scores end soon."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from given_responses import given_responses
from logs import commands_that_read

from evalstats_plugin import ResponseMatrix, compare, fit_irt, intervals, power
from evalstats_plugin.cli import main
from evalstats_plugin.data.responses import Responses, Source
from evalstats_plugin.errors import DesignError, EvalStatsError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.rank import rank
from evalstats_plugin.report.html import page
from evalstats_plugin.runtime import memory
from evalstats_plugin.scores.rows import Intervals

ITEMS = np.array(["1", "2", "3"])
SCORES = np.array([[0.0], [1.0], [1.0]])


def _models(n: int) -> list[Responses]:
    source = Source(path=Path("log.json"), harness="lm-eval")
    return [
        given_responses(
            model=f"m{i}", task="t", metric="acc", item_ids=ITEMS, scores=SCORES, source=source
        )
        for i in range(n)
    ]


def test_too_many_pairs_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.VARIABLE, "16GiB")
    models = _models(10_000)
    began = time.process_time()

    for baseline in (None, "best"):  # which the scores choose
        with pytest.raises(DesignError, match=r"49,995,000 pairs of 10,000 models.*name a base"):
            compare(models, baseline=baseline)
    assert time.process_time() - began < 2


def test_too_many_players(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.VARIABLE, "16GiB")
    n = 100_000
    first = np.arange(n)
    names = [f"p{i}" for i in range(n)]
    contests = Contests.of(first, (first + 1) % n, np.ones(n), players=names)

    with pytest.raises(
        DesignError, match=r"100,000 players.*240,000,000,000 bytes.*rank fewer players"
    ):
        rank(contests)


def test_too_many_rows_of_a_page() -> None:
    class Many(Intervals):
        def __len__(self) -> int:
            return 5_000_000

    with pytest.raises(
        DesignError, match=r"5,000,000 rows.*200,000 at most: choose models or tasks"
    ):
        page.to_html(page.Page(responses=(), intervals=Many(())))


_RIGHT = np.random.default_rng(0).random((5, 12, 1)) < 0.6
EXTREMES = {
    "zeros": np.zeros((5, 12, 1)),
    "ones": np.ones((5, 12, 1)),
    "one value": np.full((5, 12, 1), 0.3),
    "huge": np.where(_RIGHT, 1e300, -1e300),
    "one huge": np.where(np.arange(60).reshape(5, 12, 1) == 7, 1.7e308, _RIGHT),
    "subnormal": _RIGHT * 1e-310,
    "missing": np.full((5, 12, 1), np.nan),
    "a model missing": np.where(np.arange(5)[:, None, None] == 2, np.nan, _RIGHT),
}

FUNCTIONS: dict[str, Callable[[ResponseMatrix], Any]] = {
    "intervals": lambda m: intervals(m, rng=0),
    "compare": lambda m: compare(m, rng=0),
    "compare unpaired": lambda m: compare(m, design="unpaired", rng=0),
    "compare tasks": lambda m: compare(m, design="tasks", rng=0),
    "compare sequential": lambda m: compare(m, design="sequential", rng=0),
    "power": power,
    **{
        f"fit_irt {model}": lambda m, model=model: fit_irt(m, model, rng=0)
        for model in ("rasch", "2pl", "3pl")
    },
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize(("scores", "function"), product(EXTREMES, FUNCTIONS))
def test_extreme_scores_give_results_or_a_clear_error(scores: str, function: str) -> None:
    """Overflow, no spread and no data: no warning, no foreign exception, and soon."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with suppress(EvalStatsError):
            results = FUNCTIONS[function](ResponseMatrix.from_array(EXTREMES[scores]))
            json.dumps(results.to_dict(), allow_nan=False)

    assert time.process_time() - began < 10


GIVEN = {
    "gate": ("--baseline", "m0"),
    "judge score": ("--human", "score", "--judge", "score"),
    "judge label": ("--human", "score", "--judge", "score", "--to", "next.csv"),
    "irt capabilities": ("--dimensions", "1"),
    "irt dif": ("--focal", "m0"),
    "irt holdout": ("--draws", "1"),
    "irt link": ("--to", "none.parquet"),
    "irt new-items": ("--features", "features.csv"),
    "irt score": ("--bank", "none.parquet"),
    "adapt bank": ("-o", "bank.parquet"),
    "adapt replay": ("--bank", "none.parquet"),
    "annotate": ("-o", "copies"),
    "export": ("-o", "t.csv"),
    "paper": ("-o", "paper", "--overwrite"),
    "rescore": ("-o", "rescored"),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", commands_that_read())
def test_commands_on_extreme_scores_warn_of_nothing_foreign(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tables: scores that overflow, that are all alike, and that are all missing."""
    monkeypatch.chdir(tmp_path)
    Path("features.csv").write_text("item,text\nnew,what is it?\nnewer,who is it?\n")
    for kind in ("one huge", "ones", "missing"):
        rows = [
            f"m{i},q{j},{'' if np.isnan(x) else x}"
            for (i, j, _), x in np.ndenumerate(EXTREMES[kind])
        ]
        Path(f"{kind}.csv").write_text("\n".join(["model,item,score", *rows]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            done = CliRunner().invoke(main, [*name.split(), f"{kind}.csv", *GIVEN.get(name, ())])

        assert done.exception is None or isinstance(done.exception, SystemExit), kind
        assert "Missing option" not in done.stderr, f"add to GIVEN: {done.stderr}"
        assert (done.exit_code == 2) == ("error: " in done.stderr.lower())

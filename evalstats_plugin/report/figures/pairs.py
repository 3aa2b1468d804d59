"""Comparisons of one task, as figures need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.notes import short_metric
from evalstats_plugin.results import Results
from evalstats_plugin.wording import few


def one_task(results: Results[Any]) -> Sequence[Any]:
    """Return the rows of the one task and metric that there is.

    Raises
    ------
    DesignError
        There are several, or none.
    """
    rows: Sequence[Any] = results.rows
    found = [f"{row.task} {short_metric(row.metric)}" for row in rows]
    several = list(dict.fromkeys(found))
    if len(several) != 1:
        named = f" ({few(several)})" if several else ""
        msg = f"{len(several)} tasks and metrics found{named}, expected one in this figure: "
        raise DesignError(f"{msg}choose a task and a metric (--task, --metric)")
    return rows


def apart_letters(letters: Sequence[str]) -> list[list[str]]:
    """Return the letters of each model; with more than 26 groups they have commas between.

    >>> apart_letters(["a", "ab"]), apart_letters(["z", "z,aa"])
    ([['a'], ['a', 'b']], [['z'], ['z', 'aa']])
    """
    between = any("," in own for own in letters)
    return [own.split(",") if between else list(own) for own in letters]

"""Several abilities of each model, for people: tables, and sentences that explain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from evalstats_plugin.analyses.ability_factors import (
    FactorAbilities,
    FactorAbility,
    FactorLoading,
)
from evalstats_plugin.report import formats
from evalstats_plugin.report.ability_tables import (
    Lines,
    Page,
    page_markdown,
    plain,
    print_page,
    share,
    signed,
)
from evalstats_plugin.results import Results
from evalstats_plugin.wording import few

WITH_ERRORS = 3
"""Dimensions up to which a table of 80 columns has room for standard errors."""
MOST_ITEMS = 5
"""Shown of each dimension."""


def print_factors(
    results: FactorAbilities, file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print models, the items that ask most of each dimension, and what it all means."""
    print_page(_page(results), results, file, heading=heading, width=width)


def to_markdown(results: FactorAbilities, heading: str) -> str:
    """Return the same as Markdown."""
    return page_markdown(_page(results), results, heading)


def to_json(results: FactorAbilities, about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, models, items, and the fit."""
    whole = json.loads(formats.to_json(results, about))
    whole["items"] = Results(results.items).to_dict()
    whole["fit"] = results.fit
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)


def _page(results: FactorAbilities) -> Page:
    first = results.rows[0]
    k = int(results.fit["n_dimensions"])
    title = f"Abilities on {few(first.task.split(', '), 3)} ({first.metric}), {k} dimensions"
    tables: list[tuple[str, Lines, Sequence[int]]] = [(title, _models(results.rows, k), (0,))]
    tables += [
        (f"Dimension {j + 1}: items that ask most of it", _items(results.items, j + 1), (0,))
        for j in range(k)
    ]
    correlation = results.fit["correlation"]
    pairs = [
        f"{i + 1} and {j + 1}: {correlation[i][j]:+.2f}" for i in range(k) for j in range(i + 1, k)
    ]
    turned = str(results.fit["rotation"])
    oblique = f" Correlations of the dimensions: {'; '.join(pairs)}." if turned == "promax" else ""
    legend = (
        "Each dimension is an ability of its own, with mean 0 and variance 1 over these models; "
        "which one, its items tell. Loading: by how much the logit of a right answer rises with "
        "that ability; items with a negative one ask for the opposite. Without a rotation the "
        "first dimension is what most items share."
        f"{oblique}",
        _fitted(results.fit),
    )
    return Page(tables, legend)


def _models(rows: Sequence[FactorAbility], k: int) -> Lines:
    lines = [["Model", *(f"Dim. {j + 1}" for j in range(k)), "Score"]]
    for start in range(0, len(rows), k):
        own = rows[start : start + k]
        lines.append([own[0].model, *(_cell(row, k) for row in own), share(own[0].score)])
    return lines


def _cell(row: FactorAbility, k: int) -> str:
    number = signed(row.estimate)
    return f"{number} ±{plain(row.std_error)}" if k <= WITH_ERRORS else number


def _items(items: Sequence[FactorLoading], dimension: int) -> Lines:
    own = [item for item in items if item.dimension == dimension][:MOST_ITEMS]
    lines = [["Item", "Task", "Loading", "± s.e.", "Score"]]
    lines += [
        [row.item, row.task, signed(row.loading), plain(row.std_error), share(row.score)]
        for row in own
    ]
    return lines


def _fitted(fit: Mapping[str, Any]) -> str:
    how: Mapping[str, Any] = fit["diagnostics"]
    chosen = {row["n_dimensions"]: row["log_loss"] for row in how.get("choices", [])}
    for row in how.get("choices", []):
        chosen[row["n_dimensions"]] = min(chosen[row["n_dimensions"]], row["log_loss"])
    tried = ", ".join(f"{size}: {loss:.4f}" for size, loss in chosen.items())
    why = f" Log loss of answers held out, by dimensions: {tried}." if len(chosen) > 1 else ""
    end = "Converged" if how.get("converged") else "NOT converged"
    return (
        f"Item model factor, rotation {fit['rotation']}, estimator {fit['estimator']}. {end} after "
        f"{how.get('iterations')} steps.{why}"
    )

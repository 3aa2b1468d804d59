"""For people: what fits predicted of answers held out, and items that treat groups unlike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from statistics import mean, stdev
from typing import Any, TextIO

from evalstats_plugin.analyses.ability_dif import ItemDifference, ItemDifferences
from evalstats_plugin.analyses.ability_holdout import HeldOut, HeldOuts
from evalstats_plugin.report import formats
from evalstats_plugin.report.ability_tables import (
    Lines,
    Page,
    page_markdown,
    print_page,
    share,
    signed,
)
from evalstats_plugin.report.comparisons import p_value
from evalstats_plugin.report.text import percent
from evalstats_plugin.tables.masks import MASKS
from evalstats_plugin.wording import few

MOST_ITEMS = 25
_SIZES = {"A": "negligible", "B": "moderate", "C": "large"}


def print_held_out(results: HeldOuts, file: TextIO, *, heading: str, width: int | None) -> None:
    """Print scores by mask, and calibration."""
    print_page(_held_out(results), results, file, heading=heading, width=width)


def held_out_markdown(results: HeldOuts, heading: str) -> str:
    """Return the same as Markdown."""
    return page_markdown(_held_out(results), results, heading)


def held_out_json(results: HeldOuts, about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, a row for each mask and seed, and calibration."""
    whole = json.loads(formats.to_json(results, about))
    whole["calibration"] = [asdict(part) for part in results.calibration]
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)


def print_differences(
    results: ItemDifferences, file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print the items that differ first."""
    print_page(_differences(results), results, file, heading=heading, width=width)


def differences_markdown(results: ItemDifferences, heading: str) -> str:
    """Return the same as Markdown, with all items."""
    return page_markdown(_differences(results, len(results)), results, heading)


def differences_json(results: ItemDifferences, about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, the items, and the models of the focal group."""
    whole = json.loads(formats.to_json(results, about))
    whole["focal"] = list(results.focal)
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)


def _held_out(results: HeldOuts) -> Page:
    lines = [["Held out", "AUC", "Log loss", "of the mean", "Brier", "Cells", "Draws"]]
    masks: list[str] = []
    for mask, rows in groupby(results.rows, key=lambda row: row.mask):
        masks.append(mask)
        lines.append(_mask_line(mask, list(rows)))
    tables: list[tuple[str, Lines, Sequence[int]]] = [
        (f"Answers held out and predicted ({results.rows[0].item_model})", lines, (0,))
    ]
    for mask in masks:
        bins = [["Predicted", "Observed", "± s.e.", "Cells"]]
        bins += [
            [share(b.predicted), share(b.observed), share(b.std_error), f"{b.n_cells:,}"]
            for b in results.calibration
            if b.mask == mask
        ]
        tables.append((f"Calibration, {mask}", bins, ()))
    said = "; ".join(f"{mask}: {MASKS[mask]}" for mask in masks)
    legend = (
        f"Held out, the rest being fitted: {said}. AUC: chance that a right answer was given a "
        "higher probability than a wrong one, 0.5 by guessing. Log loss: less is better; of the "
        "mean: were the share of right answers predicted everywhere. ±: standard deviation over "
        "the draws, which is no standard error.",
        "Calibration: cells of like predicted probability, all draws together; observed is the "
        "share that was right, s.e. its chance error if predictions are true.",
    )
    return Page(tables, legend)


def _mask_line(mask: str, rows: Sequence[HeldOut]) -> list[str]:
    numbers = [_spread([getattr(row, name) for row in rows]) for name in ("auc", "log_loss")]
    base, brier = (
        _spread([getattr(row, name) for row in rows], alone=True)
        for name in ("base_log_loss", "brier")
    )
    cells = f"{round(mean(row.n_cells for row in rows)):,}"
    return [mask, *numbers, base, brier, cells, str(len(rows))]


def _spread(values: Sequence[float | None], *, alone: bool = False) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    text = f"{mean(known):.4f}"
    return text if alone or len(known) < 2 else f"{text} ± {stdev(known):.4f}"


def _differences(results: ItemDifferences, most: int = MOST_ITEMS) -> Page:
    level = percent(results.rows[0].confidence_level) if results.rows else ""
    lines = [["Item", "Task", "Log odds", f"{level} interval", "p, adj.", "Size", "Verdict"]]
    lines += [_item_line(row) for row in results.rows[:most]]
    more = len(results) - most
    title = (
        f"Items: {len(results)}, of which {len(results.flagged)} differ between "
        f"{len(results.focal)} models and {results.n_others} others"
    )
    title += f"; {more} more are in --format csv" if more > 0 else ""
    legend = (
        f"The focal models: {few(results.focal)}. Log odds: of a right answer, focal models over "
        "others of the same ability; below 0 the item is harder for them. harder, easier: beyond "
        "chance at the confidence level, allowing for the number of items (Holm). Size: classes of "
        "ETS, by the item alone. An item that differs measures something besides ability.",
    )
    return Page([(title, lines, (0, 1, 3))], legend)


def _item_line(row: ItemDifference) -> list[str]:
    limits = (
        "–" if row.low is None or row.high is None else f"[{signed(row.low)}, {signed(row.high)}]"
    )
    verdict = "unclear"
    if row.flagged:
        verdict = "harder" if (row.log_odds or 0) < 0 else "easier"
    size = "–" if row.log_odds is None else _SIZES[row.size]
    return [
        row.item,
        row.task,
        signed(row.log_odds),
        limits,
        p_value(row.p_adjusted),
        size,
        verdict,
    ]

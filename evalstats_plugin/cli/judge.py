"""Analyses of ``evalstats-plugin report`` that get more out of the same items."""
# PART labels - Reads human labels from a file.

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalstats_plugin.errors import LogError, SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.scores.rows import Intervals


EXPECTED = "expected one object or line per item with the fields 'item' and 'score'"


def analyse_saving(
    responses: ResponseSet, chosen: Mapping[str, Any], plugins: Plugins
) -> Intervals | None:
    """Run the analysis that the options ask for; None if they ask for neither."""
    given = [f"--{name}" for name in ("judge", "human", "labels") if chosen[name] is not None]
    _check(given, chosen)
    if chosen["control_variate"]:
        from evalstats_plugin.data.methods import check_name
        from evalstats_plugin.plugins import PURPOSES
        from evalstats_plugin.scores.control_variate import control_variate

        table, name = plugins.methods(), chosen["method"]
        check_name(name, table, PURPOSES)
        return control_variate(
            responses,
            confidence_level=chosen["confidence_level"],
            method=name if name == "auto" else table[name],
            bounds=chosen["bounds"],
            rng=chosen["seed"],
        )
    if not given:
        return None
    from evalstats_plugin.scores.judged import prediction_powered

    return prediction_powered(
        responses,
        human=chosen["human"],
        judge=chosen["judge"],
        labels=None if chosen["labels"] is None else read_labels(chosen["labels"]),
        confidence_level=chosen["confidence_level"],
        bounds=chosen["bounds"],
    )


def _check(given: list[str], chosen: Mapping[str, Any]) -> None:
    """Refuse options that do not go together."""
    if given and (chosen["judge"] is None or len(given) != 2):
        msg = f"{', '.join(given)} found, expected --judge with one of --human and --labels"
        raise SelectionError(msg)
    asked = [*(["--control-variate"] if chosen["control_variate"] else []), *given[:1]]
    if asked and chosen["population"] is not None:
        asked.append("--population")
    if asked and chosen["prior"] is not None:
        asked.append("--prior")
    if len(asked) > 1:
        msg = f"{' and '.join(asked)} found, which do not go together: pass one of them"
        raise SelectionError(msg)
    if given and chosen["method"] != "auto":
        msg = f"{given[0]} and --method found: a judge and labels have one method, ppi++"
        raise SelectionError(msg)


def read_labels(path: str) -> dict[str, float]:
    """Read labels by item id, from CSV with a heading or, by the ending .jsonl, lines of JSON.

    An empty score is an item without a label.

    Raises
    ------
    LogError
        If the file cannot be read, lacks a field, or names an item twice.
    """
    labels: dict[str, float] = {}
    for number, row in _rows(Path(path)):
        if "item" not in row or "score" not in row:
            there = ", ".join(map(repr, row)) or "nothing"
            msg = f"{path}, record {number}: {there} found, {EXPECTED}"
            raise LogError(msg)
        item, score = str(row["item"]), row["score"]
        if score in (None, ""):
            continue
        if item in labels:
            msg = f"{path}, record {number}: item {item!r} has a second label; expected one"
            raise LogError(msg)
        try:
            labels[item] = float(score)
        except (TypeError, ValueError):
            msg = f"{path}, record {number}: score {score!r} found, expected a number"
            raise LogError(msg) from None
    return labels


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: labels cannot be read: {error}"
        raise LogError(msg) from error
    if path.suffix != ".jsonl":
        yield from enumerate(csv.DictReader(text.splitlines()), 1)
        return
    for number, line in enumerate(filter(str.strip, text.splitlines()), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            msg = f"{path}, record {number}: not JSON: {error}"
            raise LogError(msg) from error
        if not isinstance(row, dict):
            msg = f"{path}, record {number}: {line[:40]} found, {EXPECTED}"
            raise LogError(msg)
        yield number, row  # pyright: ignore[reportUnknownVariableType] - checked on use

"""Which models and tasks can be compared at all, and what is said of those that cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from evalstats_plugin.analyses.cells import Bounds, Cell, make_cell, takes_are_binary
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.methods import Kind
from evalstats_plugin.responses import Responses
from evalstats_plugin.runs import run_of
from evalstats_plugin.wording import few, no_such

BEST = "best"
"""Baseline that stands for the model with the best score of each task, if no model is called so."""


def comparable(
    responses: Sequence[Responses],
    bounds: Bounds,
    baseline: str | None,
    is_usable: Callable[[Cell], bool],
) -> tuple[list[list[Cell]], list[str]]:
    """Return what can be compared, by task and metric, and notes on what cannot.

    Raises `DesignError` where there is nothing to compare.
    """
    latest = {(r.model, r.task, r.metric): r for r in sorted(responses, key=run_of)}
    models = list(dict.fromkeys(r.model for r in responses))
    groups: dict[tuple[str, str], list[Responses]] = {}
    for r in responses:
        # A task that was run in several groups has a row in each: the latest is compared.
        if latest[r.model, r.task, r.metric] is r:
            # Harnesses that have no filters log "acc" for what lm-eval logs as "acc,none".
            groups.setdefault((r.task, r.metric.removesuffix(",none")), []).append(r)
    found: list[list[Cell]] = []
    left_out: dict[str, list[str]] = {}
    for (task, metric), group in groups.items():
        cells = [make_cell(r, bounds) for r in group]
        usable = [c for c in cells if is_usable(c)]
        why = why_left_out(len(cells), [c.responses.model for c in usable], baseline)
        if why:
            left_out.setdefault(why, []).append(f"{task} {metric.removesuffix(',none')}")
        else:
            found.append(usable)
    return found, said_of(left_out, models, nothing_left=not found)


def has_item_scores(cell: Cell) -> bool:
    """Whether a paired comparison can use a model's answers."""
    means = cell.kind not in (None, "ratio") and cell.composite is None
    return means and len(cell.values) > 0


def check_baseline(baseline: str | None, models: Iterable[str]) -> None:
    """Raise `SelectionError`, with the closest names, for a model that does not exist."""
    models = list(dict.fromkeys(models))
    if baseline not in (None, BEST, *models):
        raise SelectionError(no_such("model", str(baseline), models, few(models)))


def why_left_out(n_models: int, usable: Sequence[str], baseline: str | None) -> str:
    """Why the models of a task cannot be compared; nothing if they can."""
    if n_models < 2:
        return "one model only"
    if len(usable) < 2:
        return "fewer than two models have a mean of item scores"
    if baseline is not None and baseline not in usable:
        return f"{baseline} has no item scores"
    return ""


def said_of(
    left_out: Mapping[str, Sequence[str]], models: Sequence[str], *, nothing_left: bool
) -> list[str]:
    """Return notes on the tasks left out, by the reason.

    Raises `DesignError` where nothing is left to compare.
    """
    notes = [f"not compared, {why}: {few(places)}" for why, places in left_out.items()]
    if nothing_left and len(models) < 2:
        found = f"one model ({models[0]})" if models else "no responses"
        raise DesignError(f"{found} found, expected two or more on the same task")
    if nothing_left:
        raise DesignError(f"no two models found that can be compared; {'; '.join(notes)}")
    return notes


def common_kind(cells: Sequence[Cell]) -> tuple[Kind, tuple[float, float] | None, tuple[str, ...]]:
    """What the differences are like: as the scores, where those are alike."""
    if all(c.kind == "binary" for c in cells):
        return "binary", (0.0, 1.0), ()
    bounds = {c.bounds for c in cells}
    if any(c.kind == "real" for c in cells) or len(bounds) > 1:
        return "real", None, ()
    guessed = any(c.responses.bounds is None and not takes_are_binary(c.responses) for c in cells)
    return "bounded", bounds.pop(), ("scores taken to lie in [0, 1]",) if guessed else ()

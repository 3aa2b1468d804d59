"""Several epochs: pass@k, pass^k, maj@k and cons@k, and the variance between and within items.

`at_k` and `with_at_k` derive responses under a new metric, which `intervals` and `compare` accept
as any others; `curves` has limits for all k at once. `variance_parts` also predicts what more
epochs or more items would gain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.measure import SHARE
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import Results, finite
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import DesignError, SelectionError, few
from evalstats_plugin.scores.cells import Cell, epochs_are_binary, make_cell
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.scores.rows import Intervals, ScoreInterval, VariancePart, VarianceParts
from evalstats_plugin.stats import clustered as stats_clustered

AT_K = ("pass@k", "pass^k", "maj@k", "cons@k")
"""Whether at least one, all, or most of k answers to an item are right, or the most frequent is."""

VOTE = "cons@"
"""How names begin for which the answers themselves are needed."""


def repeats_for(names: Sequence[str]) -> bool | Literal["answers"]:
    """Return what is to be read of repeats for scores at k."""
    return "answers" if any(name.startswith(VOTE) for name in names) else bool(names)


_NOT_BINARY = "scores other than 0 and 1"


def at_k(responses: ResponsesLike, *names: str) -> ResponseSet:
    """Derive scores at k answers per item: ``"pass@4"``, ``"pass^4"``, ``"maj@3"``.

    Each gives `Responses` whose item scores are unbiased estimates in [0, 1], under a metric such
    as ``"pass@4 acc,none"``; `intervals` and `compare` accept them as they are. What cannot be
    derived is named in the notes.

    Parameters
    ----------
    responses
        With k epochs or more of 0/1 scores. Items with fewer than k epochs get no score.
    names
        ``pass@k``: at least one of k answers is right; ``pass^k``: all are; ``maj@k``: most are,
        and a tie counts as half; ``cons@k``: the most frequent answer of k is right
        (self-consistency), of responses read with ``repeats="answers"``.

    Raises
    ------
    SelectionError
        For a name of another form.
    DesignError
        Where nothing has k epochs of 0/1 scores.
    """
    return _derived(responses, names, keep=False)


def with_at_k(responses: ResponseSet, names: Sequence[str]) -> ResponseSet:
    """Return the responses, each followed by what `at_k` derives from it."""
    return _derived(responses, names, keep=True)


def curves(
    responses: ResponsesLike,
    *names: str,
    confidence_level: float = 0.95,
    intervals: Callable[..., Intervals] = intervals,
) -> Intervals:
    """Give scores at k = 1, 2, … answers limits that hold for every k of a curve at once.

    Parameters
    ----------
    responses
        As of `at_k`.
    names
        First and last k of each curve: ``"pass@1..8"``, ``"cons@1..16"``.
    confidence_level
        Of all k of a model's curve together: each has limits at level ** (1 / K), by Šidák's
        inequality, which holds for estimates that depend on each other [Sid67]_.
    intervals
        As `evalstats_plugin.intervals`, perhaps with other defaults.

    Raises
    ------
    SelectionError
        For a name of another form.
    DesignError
        Where nothing has so many epochs of 0/1 scores.
    """
    rows: list[ScoreInterval] = []
    notes: list[str] = []
    for name in names:
        match = re.fullmatch(r"(.*[@^])([1-9][0-9]{0,2})\.\.([1-9][0-9]{0,2})", name)
        if match is None or int(match[2]) >= int(match[3]):
            raise SelectionError(f"{name!r} is no curve: write pass@1..8, for example")
        points = range(int(match[2]), int(match[3]) + 1)
        derived = at_k(responses, *(f"{match[1]}{k}" for k in points))
        found = intervals(derived, confidence_level=confidence_level ** (1 / len(points)))
        notes += found.notes
        joint = f"limits of {name} hold for all {len(points)} k at once"
        rows += (
            replace(row, confidence_level=confidence_level, notes=(*row.notes, joint))
            for row in found
        )
    return Results(tuple(rows), tuple(dict.fromkeys(notes)))


def is_curve(name: str) -> bool:
    """Whether a name is of a curve, not of one k."""
    return ".." in name


def _derived(responses: ResponsesLike, names: Sequence[str], *, keep: bool) -> ResponseSet:
    asked: list[tuple[str, str, int]] = []
    for name in dict.fromkeys(names):
        match = re.fullmatch(r"(pass@|pass\^|maj@|cons@)([1-9][0-9]*)", name)
        if match is None:
            raise SelectionError(f"{name!r} is not {' or '.join(AT_K)}; write pass@4, for example")
        asked.append((name, match[1], int(match[2])))
    listed, notes = as_list(responses)
    derived_responses: list[Responses] = []
    unfit: dict[str, dict[str, dict[str, str]]] = {name: {} for name, _, _ in asked}
    for r in listed:
        derived_responses += [r] if keep else []
        epochs = r.as_epochs
        for name, kind, k in asked:
            if why := _unfit(epochs, kind, k):
                place = f"{r.task} {epochs.metric.removesuffix(',none')}"
                example = ""
                if why == _NOT_BINARY:
                    other = ~np.isin(epochs.scores, (0.0, 1.0)) & ~np.isnan(epochs.scores)
                    example = f" (such as {epochs.scores[other][0]:g})"
                unfit[name].setdefault(why, {}).setdefault(place, place + example)
            else:
                derived_responses.append(_derive(epochs, name, kind, k))
    derived = {r.metric.partition(" ")[0] for r in derived_responses}
    for name in (name for name in unfit if name not in derived):
        why = "; ".join(f"{why}: {few([*at.values()])}" for why, at in unfit[name].items())
        raise DesignError(
            f"{name} needs at least as many epochs of 0/1 scores; {why or 'there are no responses'}"
        )
    alike: dict[tuple[str, str], list[str]] = {}
    for name, reasons in unfit.items():
        for why, at in reasons.items():
            alike.setdefault((why, few([*at.values()])), []).append(name)
    left_out = [f"{', '.join(of)} not derived, {why}: {at}" for (why, at), of in alike.items()]
    return ResponseSet(tuple(derived_responses), (*notes, *left_out))


def _unfit(r: Responses, kind: str, k: int) -> str:
    """Return why a score at k cannot be derived; nothing if it can."""
    n_epochs = int(r.scores.shape[1])
    if not len(r.item_ids):
        return "no item scores"
    if r.aggregation != "mean":
        return f"not a mean but {r.aggregation}"
    if not epochs_are_binary(r):
        return _NOT_BINARY
    if n_epochs < k:
        return f"{n_epochs} epoch{'s' if n_epochs > 1 else ''} only"
    if (~np.isnan(r.scores)).sum(axis=1).max() < k:
        return f"no item with {k} scored epochs"
    votes_on_nothing = kind == VOTE and (r.answers is None or r.answers.shape != r.scores.shape)
    lacking = 'no text of each answer logged, or read (in Python read(repeats="answers"))'
    return lacking if votes_on_nothing else ""


def _derive(r: Responses, name: str, kind: str, k: int) -> Responses:
    scored = ~np.isnan(r.scores)
    n_epochs = scored.sum(axis=1)
    if kind == VOTE:
        scores = stats_clustered.vote_at_k(np.asarray(r.answers), r.scores, k=k)
    else:
        formula = {
            "pass@": stats_clustered.pass_at_k,
            "pass^": stats_clustered.pass_hat_k,
            "maj@": stats_clustered.majority_at_k,
        }[kind]
        scores = formula(np.where(scored, r.scores, 0.0).sum(axis=1), n_epochs, k=k)
    notes = r.notes
    if short := int((n_epochs < k).sum()):
        have = "items have" if short > 1 else "item has"
        notes = (*notes, f"{short} {have} fewer than {k} scored epochs")
    own = r.measure.on(SHARE, "registry")
    return replace(
        r,
        measure=replace(own, metric=f"{name} {r.metric}", reducer=name, is_headline=False),
        scores=scores[:, None],
        answers=None,
        unreduced=r,
        beside=(),
        weights=None,
        # What the harness logged is of the metric itself, not of k answers.
        groups=tuple(replace(g, logged=None, logged_std_error=None) for g in r.groups),
        logged=None,
        logged_std_error=None,
        logged_n=None,
        notes=notes,
    )


def variance_parts(responses: ResponsesLike) -> VarianceParts:
    """Split the variance of each score into parts between and within items.

    Gives the standard error now, with twice the epochs, and with twice the items. Where items come
    in clusters it is the clustered one, and the part between items is all that epochs cannot
    remove.

    Raises
    ------
    DesignError
        Where no model has a mean of two or more item scores.
    """
    listed, notes = as_list(responses)
    cells = [make_cell(r.as_epochs) for r in listed if len(r.item_ids)]
    rows = [_part(cell) for cell in cells if cell.kind not in (None, "ratio") and cell.n > 1]
    if not rows:
        raise DesignError("no model has a mean of two or more item scores; read logs with samples")
    return VarianceParts(tuple(rows), notes)


def _part(cell: Cell) -> VariancePart:
    r, n = cell.responses, cell.n
    parts = stats_clustered.variance_parts(r.scores)
    within, noise = float(parts.within), float(parts.noise)
    now = math.nan if cell.std_error is None else cell.std_error**2
    # Noise of epochs is independent between items, also within a cluster.
    between = now * n - noise
    variance_between = max(between, 0.0) if math.isfinite(between) else math.nan
    # What is not between items is within them: where that is all, twice the epochs halve it.
    more_epochs = (now + variance_between / n) / 2
    single = variance_between + within
    notes = cell.notes
    if between < 0:
        notes = (*notes, "the estimated variance between items is below 0; 0 is used")
    return VariancePart(
        model=r.model,
        task=r.task,
        metric=r.metric,
        n_items=n,
        n_epochs=max(r.scores.shape[1], 1),
        estimate=finite(cell.estimate),
        between=finite(between),
        within=finite(within),
        share_within=finite(within / single) if single > 0 else None,
        std_error=finite(math.sqrt(now)),
        std_error_more_epochs=finite(math.sqrt(more_epochs)),
        std_error_more_items=finite(math.sqrt(now / 2)),
        notes=notes,
    )

"""Capability models: from responses to a `CapabilityFit`."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.hierarchical.capabilities_choice import Tried, candidates, choose
from evalstats_plugin.hierarchical.capabilities_fit import CapabilityFit
from evalstats_plugin.hierarchical.sparse_codes import (
    SparseCodes,
    fit_sparse_codes,
    standardised,
    start,
)
from evalstats_plugin.hierarchical.sparse_codes_amortised import Encoder, fit_amortised_codes
from evalstats_plugin.irt.data import Counts, counts_of
from evalstats_plugin.irt.factor import check_dimensions
from evalstats_plugin.irt.fitted import as_array, run_facts
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.sampling.devices import check_memory
from evalstats_plugin.wording import no_such

Kind = Literal["l1", "topk"]
Level = Literal["item", "task"]
KINDS, LEVELS = ("l1", "topk"), ("item", "task")
NOTE = "features are what answers have in common, not skills by name: see how stable they are"


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """What is seldom changed."""

    active: int | Literal["auto"] = "auto"
    """Features that an item may have, of top-k codes; ``"auto"`` goes by held-out answers."""
    level: Level = "item"
    """``"task"``: the answers of a task are summed, and tasks have codes."""


class CodeRule(NamedTuple):
    """How sparse codes are to be; None where held-out answers are to tell."""

    kind: str
    penalty: float | None = None
    active: int | None = None


class CodesFound(NamedTuple):
    """Codes of one search, in the order and on the scale of results."""

    codes: SparseCodes
    encoder: Encoder | None
    diagnostics: dict[str, Any]
    penalty: float
    active: int | None


def fit_capabilities(
    matrix: ResponseMatrix,
    n_features: int,
    *,
    kind: Kind = "l1",
    penalty: float | Literal["auto"] = "auto",
    rng: np.random.Generator | int | None = None,
    device: str | torch.device = "auto",
    options: CodeOptions | None = None,
) -> CapabilityFit:
    """Find up to F features, few of which each item asks for, and how good models are at each.

    Parameters
    ----------
    matrix
        Scores in [0, 1]; epochs are counts, and cells may be missing.
    n_features
        F, at most N - 1. Of more than the answers support, some stay empty.
    kind
        ``"l1"``: every item's code is fitted; ``"topk"``: codes are read off by an encoder, which
        can then read those of other items.
    penalty
        Of the sum of all codes; ``"auto"`` goes by held-out answers, or is 3 for top-k codes, which
        are sparse by rule.

    Raises
    ------
    DesignError
        Scores outside [0, 1], models without a common item, more features than models and items
        can tell apart, a penalty or number of active features that cannot be, not enough memory.
    SelectionError
        No such kind, level or device.

    Examples
    --------
    >>> scores = np.random.default_rng(0).integers(0, 2, (8, 40))
    >>> fit = fit_capabilities(ResponseMatrix.from_array(scores), 2, penalty=3.0, rng=0)
    >>> fit.code.shape, bool((fit.code >= 0).all())
    ((40, 2), True)
    """
    began = time.perf_counter()
    chosen = options or CodeOptions()
    rule = _rule(kind, penalty, chosen.active, n_features)
    counts, ids, tasks = columns_of(matrix, chosen.level, device)
    found = find_codes(counts, n_features, rule, np.random.default_rng(rng))
    encoder = found.encoder
    fit = CapabilityFit(
        kind=kind,
        level=chosen.level,
        models=matrix.models,
        item_ids=ids,
        tasks=tasks,
        capability=as_array(found.codes.capability),
        performance=as_array(found.codes.performance),
        code=as_array(found.codes.code),
        intercept=as_array(found.codes.intercept),
        encoder=None
        if encoder is None
        else as_array(torch.cat([encoder.weight, encoder.bias[None], encoder.scale[None]])),
        usual=None if encoder is None else as_array(encoder.usual),
        hyperparameters={"penalty": found.penalty, "active": found.active},
        diagnostics=found.diagnostics | run_facts(counts, began),
    )
    return replace(fit, notes=(*counts.notes, *_notes(fit)))


def columns_of(
    matrix: ResponseMatrix, level: str, device: str | torch.device
) -> tuple[Counts, NDArray[Any], NDArray[Any]]:
    """Counts of items or of tasks, and the names of both.

    Raises
    ------
    DesignError
        See `counts_of`.
    SelectionError
        No such level or device.
    """
    if level not in LEVELS:
        raise SelectionError(no_such("level", level, LEVELS, ", ".join(LEVELS)))
    counts = counts_of(matrix, device=device)
    if level == "item":
        return counts, matrix.item_ids, matrix.tasks
    names, first, place = np.unique(
        matrix.tasks.astype(str), return_index=True, return_inverse=True
    )
    # In the order in which tasks come.
    order = np.argsort(first)
    task = torch.from_numpy(np.argsort(order)[place]).to(counts.right.device)
    right, trials = (
        x.new_zeros(len(x), len(names)).index_add_(1, task, x)
        for x in (counts.right, counts.trials)
    )
    return Counts(right, trials, counts.notes), names[order], names[order]


def find_codes(
    counts: Counts, n_features: int, rule: CodeRule, rng: np.random.Generator
) -> CodesFound:
    """Choose how sparse codes are, where that is asked for, and find them."""
    check_dimensions(counts, n_features)
    n, m = counts.right.shape
    check_memory(8 * 16 * n * m, counts.right.device, f"{n} models × {m} items")
    rules, tried = candidates(rule.kind, n_features, *rule[1:]), tuple[Tried, ...]()
    best = rules[0]
    if len(rules) > 1:
        tried = choose(counts, n_features, rules, rng)
        best = rules[min(range(len(tried)), key=lambda k: tried[k].log_loss)]
    diagnostics: dict[str, Any] = {"choices": [t._asdict() for t in tried]}
    first = start(counts, n_features)
    if best.active is None:
        search = fit_sparse_codes(counts, first, best.penalty)
        diagnostics |= {"objective": search.objective, "iterations": search.steps}
        diagnostics["converged"] = search.converged
        return CodesFound(standardised(search.codes).codes, None, diagnostics, *best)
    learnt = fit_amortised_codes(counts, first, best.penalty, best.active)
    diagnostics |= {"objective": learnt.objective, "iterations": learnt.steps}
    codes, order, scale = standardised(learnt.codes)
    return CodesFound(codes, learnt.encoder.reordered(order, scale), diagnostics, *best)


def _rule(
    kind: str,
    penalty: float | Literal["auto"],
    active: int | Literal["auto"],
    n_features: int,
) -> CodeRule:
    """Check what codes are to be."""
    if kind not in KINDS:
        raise SelectionError(no_such("kind", kind, KINDS, ", ".join(KINDS)))
    if penalty != "auto" and not 0 < penalty < np.inf:
        raise DesignError(f"penalty is {penalty!r}, expected a number above 0 or 'auto'")
    if active != "auto" and kind == "l1":
        msg = f"active is {active!r}, but the penalty makes codes of kind 'l1' sparse: take 'topk'"
        raise DesignError(msg)
    if active != "auto" and not 1 <= active <= n_features:
        msg = f"active is {active!r}, expected 'auto' or a number from 1 to {n_features} features"
        raise DesignError(msg)
    known = None if penalty == "auto" else penalty
    return CodeRule(kind, known, None if active == "auto" else active)


def _notes(fit: CapabilityFit) -> list[str]:
    notes = [NOTE]
    used = fit.n_features - len(fit.empty)
    if used < fit.n_features:
        notes.append(
            f"{used} of {fit.n_features} features are used: these answers do not support more "
            "under this penalty"
        )
    if not fit.diagnostics.get("converged", True):
        notes.append(
            f"not converged after {fit.diagnostics['iterations']} steps: these are the last "
            "estimates; take fewer features or a stronger penalty"
        )
    return notes

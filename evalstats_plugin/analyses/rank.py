"""In what order are the models, and which orders cannot be told apart?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from evalstats_plugin.analyses.compare import Correction, Rng, compare
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Comparison, RankSet, RankSets


def rank_sets(
    responses: ResponseSet | ResponseMatrix | Iterable[Responses],
    *,
    confidence_level: float = 0.95,
    correction: Correction = "holm",
    rng: Rng = None,
) -> RankSets:
    """Give every model on every task the ranks that the items leave open [MRS24]_.

    A model's best possible rank is one more than the number of models that are better beyond
    chance; its worst, the number of models less those that are worse beyond chance. With a
    correction that guards all pairs of a task (``"holm"``, ``"maxt"``), all sets of the task hold
    the true ranks at once with the confidence level.

    Parameters
    ----------
    responses, confidence_level, correction, rng
        As for `compare`, which is run on every pair.
    """
    found = compare(responses, confidence_level=confidence_level, correction=correction, rng=rng)
    tables: dict[tuple[str, str], list[Comparison]] = {}
    for row in found:
        tables.setdefault((row.task, row.metric), []).append(row)
    sets = [s for rows in tables.values() for s in _of_table(rows)]
    return RankSets(tuple(sets), found.notes, found.seed)


def _of_table(rows: Sequence[Comparison]) -> list[RankSet]:
    """Rank the models of one task under one metric."""
    models = list(dict.fromkeys(m for row in rows for m in (row.model_a, row.model_b)))
    index = {model: i for i, model in enumerate(models)}
    worse, better = (
        [(index[row.model_a], index[row.model_b]) for row in rows if row.verdict == word]
        for word in ("worse", "better")
    )
    pairs = np.array([*worse, *(pair[::-1] for pair in better)], dtype=np.int64).reshape(-1, 2)
    won, lost = (np.bincount(pairs[:, i], minlength=len(models)) for i in (0, 1))
    return [
        RankSet(
            model=model,
            task=rows[0].task,
            metric=rows[0].metric,
            n_models=len(models),
            best_rank=int(lost[i]) + 1,
            worst_rank=len(models) - int(won[i]),
            confidence_level=rows[0].confidence_level,
        )
        for i, model in enumerate(models)
    ]

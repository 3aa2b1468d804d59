"""In what order are the models, and which orders cannot be told apart?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.comparisons.design import Correction, Pairing, Request, pairings
from evalstats_plugin.comparisons.methods import COMPARISONS
from evalstats_plugin.comparisons.paired import PairSolver, units
from evalstats_plugin.comparisons.rows import Comparison, RankSet, RankSets
from evalstats_plugin.data import methods
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import records
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, Rng

MOST_LETTERED = 200
"""Models of one task up to which they are given letters; nobody could read more."""


N_FLIPS = 1999
"""Fewer than where p-values are shown: here only whether they pass the level matters."""


N_DRAWS = 10_000
"""Of all models' true scores together, for the probability to be best."""


def rank_sets(
    responses: ResponseSet | ResponseMatrix | Iterable[Responses],
    *,
    confidence_level: float = 0.95,
    correction: Correction = "maxt",
    rng: Rng = None,
) -> RankSets:
    """Give every model on every task the ranks that the items leave open [MRS24]_.

    A model's best possible rank is one more than the number of models that are better beyond
    chance; its worst, the number of models less those that are worse beyond chance. With a
    correction that guards all pairs of a task (``"maxt"``, ``"holm"``), all sets of the task hold
    the true ranks at once with the confidence level. Models that share a letter cannot be told
    apart. How probable each is to be the best is judged on the items that all models answered.

    Parameters
    ----------
    responses, confidence_level, correction, rng
        As for `compare`. Here ``"maxt"`` is the default: it leaves fewer ranks open.
    """
    request = Request(
        baseline=None,
        confidence_level=confidence_level,
        method="auto",
        table=methods.table_of([], COMPARISONS),
        correction=correction,
        bounds={},
        rng=np.random.default_rng(rng),
    )
    notes = responses.notes if isinstance(responses, (ResponseSet, ResponseMatrix)) else ()
    if isinstance(responses, ResponseMatrix):
        responses = responses.to_responses()
    pairs, left_out = pairings(list(responses), {}, None)
    sets = [row for pairing in pairs for row in _of_task(pairing, request)]
    seed = rng if isinstance(rng, int) else None
    return RankSets(tuple(sets), (*notes, *left_out), seed)


def ranks_of(rows: Sequence[Comparison]) -> list[RankSet]:
    """Rank the models of one task under one metric, best first, from the rows of every two.

    Empty where some pairs are not there, such as with a baseline.
    """
    from evalstats_plugin.stats import many

    models = list(dict.fromkeys(name for row in rows for name in (row.model_a, row.model_b)))
    n = len(models)
    if len(rows) != n * (n - 1) // 2 or n > MOST_LETTERED:
        return []
    place = {model: i for i, model in enumerate(models)}
    a = np.array([place[row.model_a] for row in rows])
    b = np.array([place[row.model_b] for row in rows])
    verdicts = np.array([row.verdict for row in rows])
    beats = np.zeros((n, n), dtype=np.bool_)
    beats[b, a], beats[a, b] = verdicts == "better", verdicts == "worse"
    sign = -1 if rows[0].higher_is_better is False else 1
    ahead = np.zeros((n, n))
    ahead[b, a] = [sign * (row.difference or 0.0) for row in rows]
    order = np.argsort((ahead - ahead.T).sum(axis=0), kind="stable")
    beats = beats[np.ix_(order, order)]
    limits = many.rank_limits(beats)
    columns: dict[str, Sequence[Any]] = {
        "model": [models[i] for i in order.tolist()],
        "best_rank": limits.best.tolist(),
        "worst_rank": limits.worst.tolist(),
        "letters": _letters(beats),
    }
    same = {
        "task": rows[0].task,
        "metric": rows[0].metric,
        "n_models": n,
        "confidence_level": rows[0].confidence_level,
    }
    return records(RankSet, columns, same)


def _of_task(pairing: Pairing, request: Request) -> list[RankSet]:
    """Rank the models of one task under one metric."""
    from evalstats_plugin.stats import many

    n = len(pairing.models)
    beats = _beats(pairing, request)
    limits = many.rank_limits(beats)
    prob, notes = _prob_best(pairing, request.rng)
    letters: list[str] = [""] * n
    if n <= MOST_LETTERED:
        sign = 1 if pairing.higher_is_better is False else -1
        order = np.argsort(sign * pairing.means(), kind="stable")
        in_order = _letters(beats[np.ix_(order, order)])
        letters = [in_order[i] for i in np.argsort(order).tolist()]
    columns: dict[str, Sequence[Any]] = {
        "model": pairing.models,
        "best_rank": limits.best.tolist(),
        "worst_rank": limits.worst.tolist(),
        "letters": letters,
        "prob_best": [None] * n if prob is None else prob.tolist(),
    }
    same = {
        "task": pairing.task,
        "metric": pairing.metric,
        "n_models": n,
        "confidence_level": request.confidence_level,
        "notes": notes,
    }
    return records(RankSet, columns, same)


def _beats(pairing: Pairing, request: Request) -> BoolArray:
    """Whether the model of the row is better than that of the column beyond chance, (N, N)."""
    from evalstats_plugin.stats import many

    solver = PairSolver(request)
    if request.correction == "maxt":
        of_units = units(pairing, solver.choose(pairing).name)
        p_values = many.max_t_of_pairs(*of_units, rng=request.rng, n_flips=N_FLIPS)
    else:
        p_values = solver.p_values(pairing)
        if request.correction != "none":
            adjust = {"holm": many.holm, "bh": many.benjamini_hochberg}
            p_values = adjust[request.correction](p_values)
    higher = pairing.mean_differences()
    sign = -1 if pairing.higher_is_better is False else 1
    found = p_values <= 1 - request.confidence_level
    beats = np.zeros((len(pairing.models),) * 2, dtype=np.bool_)
    beats[pairing.b, pairing.a] = found & (sign * higher > 0)
    beats[pairing.a, pairing.b] = found & (sign * higher < 0)
    return beats


def _letters(beats: BoolArray) -> list[str]:
    """Give letters to models in this order."""
    from evalstats_plugin.stats import many

    return many.letters(many.groups_alike(beats | beats.T))


def _prob_best(
    pairing: Pairing, rng: np.random.Generator
) -> tuple[FloatArray | None, tuple[str, ...]]:
    """P(best) on the items that all models answered, and what there is to say of it."""
    from evalstats_plugin.stats import many

    scores = pairing.scores
    common = ~np.isnan(scores).any(axis=0)
    n_common, n_items = int(common.sum()), scores.shape[1]
    if n_common < 2:
        note = f"no P(best): of {n_items} items, {n_common} were answered by all models"
        return None, (note,)
    notes = (f"P(best) from the {n_common} of {n_items} items that all models answered",)
    values = scores[:, common]
    low, high = pairing.bounds or (float(values.min()), float(values.max()))
    if pairing.clusters is not None:
        values = _cluster_means(values, pairing.clusters[common])
    sign = -1.0 if pairing.higher_is_better is False else 1.0
    prob = many.prob_best(sign * values, spread=high - low, rng=rng, n_draws=N_DRAWS)
    return prob, notes if n_common < n_items else ()


def _cluster_means(scores: FloatArray, clusters: NDArray[np.int64]) -> FloatArray:
    """One value per cluster, with the mean of the items and a spread as of the clusters' sums."""
    _, where = np.unique(clusters, return_inverse=True)
    membership = np.eye(int(where.max()) + 1)[where]
    sizes = membership.sum(axis=0)
    means = scores.mean(axis=1, keepdims=True)
    return means + (scores @ membership - sizes * means) / sizes.mean()

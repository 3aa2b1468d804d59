"""One kind of work at one size after the other, each in a process of its own.

``python growth_fits.py JOB CPU_LIMIT SIZE…`` where a size is numbers joined by ``x``, such as
``100x50``. The job runs on a little first; what is loaded by then is in every process that is
forked from here, and not counted. Prints a line of JSON for each size: CPU seconds; memory that was
held at the worst moment, data and results included; or the error. Stops at a size that takes longer
than the limit.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from time import process_time
from types import MappingProxyType

import clock
import growth_data as data
import numpy as np

from evalstats_plugin.errors import EvalStatsError

Work = Callable[[], object]
"""What is measured; data were made before."""
ASKED = 20
"""Items of an adaptive test."""


def read(items: int) -> Work:
    """Read an lm-eval log."""
    import evalstats_plugin as es

    folder = data.lm_eval_log(items)
    return lambda: es.read(folder)


def join(models: int, tasks: int, items: int) -> Work:
    """Join the responses of all models on items."""
    from evalstats_plugin.data.matrix import ResponseMatrix

    responses = data.matrix(models, tasks, items).to_responses()
    return lambda: ResponseMatrix.join(responses)


def intervals(models: int, tasks: int, items: int, *, partial: bool = False) -> Work:
    """Give every score an interval."""
    import evalstats_plugin as es

    matrix = data.matrix(models, tasks, items, partial=partial)
    return lambda: es.intervals(matrix)


def intervals_partial(models: int, tasks: int, items: int) -> Work:
    """Give scores with partial credit an interval."""
    return intervals(models, tasks, items, partial=True)


def baseline(models: int, tasks: int, items: int, *, partial: bool = False) -> Work:
    """Compare all models with the first."""
    import evalstats_plugin as es

    matrix = data.matrix(models, tasks, items, partial=partial)
    return lambda: es.compare(matrix, baseline=matrix.models[0], rng=0)


def baseline_partial(models: int, tasks: int, items: int) -> Work:
    """Compare all models with the first, partial credit."""
    return baseline(models, tasks, items, partial=True)


def pairs(models: int, tasks: int, items: int) -> Work:
    """Compare every two models."""
    import evalstats_plugin as es

    matrix = data.matrix(models, tasks, items)
    return lambda: es.compare(matrix, rng=0)


def pairs_partial(models: int, tasks: int, items: int) -> Work:
    """Compare every two models, partial credit."""
    import evalstats_plugin as es

    matrix = data.matrix(models, tasks, items, partial=True)
    return lambda: es.compare(matrix, rng=0)


def bootstrap_t(items: int, resamples: int) -> Work:
    """Studentised bootstrap of one mean."""
    from evalstats_plugin.stats.means import studentised_bootstrap

    scores, rng = data.beta_scores(1, items), np.random.default_rng(0)
    return lambda: studentised_bootstrap(
        scores, confidence_level=0.95, rng=rng, n_resamples=resamples
    )


def bca(items: int, resamples: int) -> Work:
    """BCa bootstrap of one mean."""
    from evalstats_plugin.stats.means import bca_bootstrap as limits

    scores, rng = data.beta_scores(1, items), np.random.default_rng(0)
    return lambda: limits(scores, confidence_level=0.95, rng=rng, n_resamples=resamples)


def max_t(models: int, items: int, resamples: int) -> Work:
    """P-values of all pairs from draws of the largest of them."""
    from evalstats_plugin.stats.pairs.differences import Differences
    from evalstats_plugin.stats.pairs.simultaneous import AllPairs, Units

    scores = data.beta_scores(models, items)
    a, b = np.triu_indices(models, 1)
    units = Units(scores, np.ones(items))

    def work() -> object:
        alone = Differences(scores[b] - scores[a], span=1.0)
        return AllPairs(alone, units, a, b, n_draws=resamples).p_values

    return work


def clustered(clusters: int) -> Work:
    """Posterior of a mean of right answers in clusters of 1 to 200 items."""
    from evalstats_plugin.stats.grid_posteriors import beta_binomial

    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 201, clusters)
    right = rng.binomial(sizes, rng.beta(3, 2, clusters))
    return lambda: beta_binomial(right, sizes, confidence_level=0.95, prior="uniform-icc")


def fit(models: int, items: int) -> Work:
    """Fit a 2PL model."""
    import evalstats_plugin as es

    matrix = data.answers(models, items)
    return lambda: es.fit_irt(matrix, "2pl", device="cpu")


def fit_store(models: int, items: int) -> Work:
    """Fit a 2PL model to answers on disk."""
    import evalstats_plugin as es

    store = data.store(models, items)
    return lambda: es.fit_irt(store, "2pl", "mml", device="cpu")


def score(models: int, items: int) -> Work:
    """Score models on items fitted before."""
    import evalstats_plugin as es

    matrix = data.answers(models, items)
    known = data.fit_of(items)
    return lambda: es.score_models(known, matrix, device="cpu")


def rate(players: int, contests: int) -> Work:
    """Bradley–Terry ratings with sandwich intervals, from the arrays of contests."""
    from evalstats_plugin.ranking.contests.contests import Contests
    from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry

    first, second, outcome = data.contests(players, contests)
    return lambda: fit_bradley_terry(
        Contests.of(first, second, outcome, players=players), covariance="sandwich"
    )


def rank(players: int, contests: int) -> Work:
    """Ratings, open ranks, chances to be the best, and how well the model fits."""
    import evalstats_plugin as es
    from evalstats_plugin.ranking.contests.contests import Contests

    found = Contests.of(*data.contests(players, contests), players=players)
    return lambda: es.rank(found, rng=0)


def hierarchical(models: int, tasks: int, items: int) -> Work:
    """Accuracy of every model on every task, each borrowing from the others."""
    import evalstats_plugin as es

    matrix = data.matrix(models, tasks, items)
    return lambda: es.pool(matrix, rng=0, device="cpu")


def adaptive(items: int) -> Work:
    """Test one model by the 20 items of a bank that tell most, one after the other."""
    from evalstats_plugin.adaptive.session import AdaptiveSession

    bank = data.bank(items)
    right = np.random.default_rng(1).integers(0, 2, items).astype(np.float64)

    def test() -> None:
        # A bank of its own: what is computed of a bank once is part of the test.
        session = AdaptiveSession(replace(bank), rng=0, stop=())
        for _ in range(min(items, ASKED)):
            (place,) = session.next().tolist()
            session.record(place, right[place])

    return test


def simulate(items: int, models: int) -> Work:
    """Simulate adaptive tests of 20 items."""
    from evalstats_plugin.adaptive import simulate as run_simulation

    bank = data.bank(items)
    at = [min(items, ASKED)]
    return lambda: run_simulation(bank, at, ["auto"], n_models=models, rng=0)


JOBS: Mapping[str, tuple[Callable[..., Work], tuple[int, ...]]] = MappingProxyType(
    {
        "read": (read, (5,)),
        "join": (join, (3, 2, 5)),
        "intervals": (intervals, (3, 2, 5)),
        "intervals_partial": (intervals_partial, (3, 2, 5)),
        "baseline": (baseline, (3, 2, 5)),
        "baseline_partial": (baseline_partial, (3, 2, 5)),
        "pairs": (pairs, (3, 2, 5)),
        "pairs_partial": (pairs_partial, (3, 2, 5)),
        "bootstrap_t": (bootstrap_t, (5, 99)),
        "bca": (bca, (5, 99)),
        "max_t": (max_t, (3, 5, 99)),
        "clustered": (clustered, (5,)),
        "fit": (fit, (300, 20)),
        "fit_store": (fit_store, (300, 20)),
        "score": (score, (5, 8)),
        "rate": (rate, (4, 100)),
        "rank": (rank, (4, 100)),
        "hierarchical": (hierarchical, (4, 3, 5)),
        "adaptive": (adaptive, (50,)),
        "simulate": (simulate, (50, 4)),
    }
)
"""What makes the data and the work of a size, and the size that it warms up with."""


def measure(prepare: Callable[..., Work], size: tuple[int, ...]) -> dict[str, float | str]:
    """Return CPU seconds and megabytes, or the error."""
    before = _memory("VmRSS")
    try:
        work = prepare(*size)
        Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is of the work
        began = process_time()
        work()
        seconds = process_time() - began
        megabytes = _memory("VmHWM") - before
        if seconds < clock.QUICK:
            seconds = clock.timed(work)[1]["cpu_seconds"]
    except EvalStatsError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"cpu_seconds": seconds, "peak_mb": max(megabytes, 0.0)}


def main(job: str, cpu_limit: str, *sizes: str) -> None:
    """Warm up, then do all sizes."""
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        measure_all(job, float(cpu_limit), [tuple(map(int, text.split("x"))) for text in sizes])


def measure_all(job: str, cpu_limit: float, sizes: Iterable[tuple[int, ...]]) -> None:
    """Print the figures of each size."""
    prepare, little = JOBS[job]
    prepare(*little)()
    for size in sizes:
        found = apart(prepare, size, cpu_limit)
        print(json.dumps({"size": size, **found}), flush=True)
        if "stopped" in found:
            break


def apart(
    prepare: Callable[..., Work], size: tuple[int, ...], cpu_limit: float
) -> dict[str, float | str]:
    """Measure in a process of its own."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        clock.limit(cpu_limit)
        try:
            os.write(theirs, json.dumps(measure(prepare, size)).encode())
        except Exception:  # noqa: BLE001 - the parent goes on with the next size
            traceback.print_exc()
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(said) if said else {"stopped": True, "status": status}


def _memory(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])

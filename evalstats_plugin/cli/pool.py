"""``evalstats-plugin pool``: scores borrow from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from evalstats_plugin.cli.shell import running, shared
from evalstats_plugin.cli.shell.options import Name, command, picked, takes, under
from evalstats_plugin.cli.shell.running import Run
from evalstats_plugin.errors import DesignError, LogError
from evalstats_plugin.hierarchical.methods import FAMILIES, HIERARCHICAL_MODELS, INFERENCES

LONG = 20.0
"""Expected seconds from which on the cost is printed before a fit starts."""

_model = under("Model")


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """How scores are pooled."""

    method: str = _model(
        f"Hierarchical model: auto, {', '.join(HIERARCHICAL_MODELS)}.  [default: auto, by data]",
        default="auto", show_default=False, metavar="NAME",
        type=Name("hierarchical model", ("auto", *HIERARCHICAL_MODELS)),
    )  # fmt: skip
    inference: str = _model(
        f"How the posterior is computed: auto, {', '.join(INFERENCES)}.  [default: auto, by the "
        "structure]",
        default="auto", show_default=False, metavar="NAME",
        type=Name("inference", ("auto", *INFERENCES)),
    )  # fmt: skip
    formula: str | None = _model(
        "In place of a model, such as 'score ~ model + (model | task) + (1 | task:item)'.",
        metavar="TEXT",
    )
    family: str | None = _model(
        f"Distribution of scores in a formula: {', '.join(FAMILIES)}.  [default: bernoulli]",
        default=None, show_default=False, metavar="NAME", type=Name("family", FAMILIES),
    )  # fmt: skip
    chains: int = _model("Number of Markov chains.", default=4, metavar="N")
    draws: int = _model("Draws kept of each chain.", default=1000, metavar="N")
    warm_up: int = _model("Warm-up draws of each chain.", default=300, metavar="N")
    covariates: tuple[str, ...] = _model(
        "Table with a column model (or task) and columns of numbers that may explain performance "
        "(or difficulty); may be repeated.",
        default=(), metavar="CSV", type=click.Path(),
    )  # fmt: skip
    compare: tuple[str, ...] = _model(
        "Compare with this model by leave-one-out predictions; may be repeated.",
        default=(), metavar="NAME", type=Name("hierarchical model", HIERARCHICAL_MODELS),
    )  # fmt: skip
    by: str | None = _model(
        "Slices of each task in place of tasks, by this field of its items, such as language or "
        "n_words:4 (quartiles of a number): small slices borrow from the others.", metavar="FIELD",
    )  # fmt: skip
    top: int | None = shared.top("Model")
    confidence_level: float = shared.level()
    seed: int = shared.seed()
    baseline: str | None = shared.baseline()


@command(
    ("logs/ --metric acc", "Scores that borrow from each other"),
    ("logs/ --metric acc --baseline llama", "Differences from one model"),
)
@takes("asked", PoolOptions)
@running.on_logs("hierarchical")
def pool(run: Run, *, asked: PoolOptions) -> None:
    """Pool models and tasks: hierarchical models, in which each score borrows from the others.

    Partial pooling helps most where tasks have few items. PATHS are results files, folders or
    patterns.
    """
    from evalstats_plugin.hierarchical import fitting
    from evalstats_plugin.hierarchical.data import eval_counts
    from evalstats_plugin.irt.fitting import duration_in_words
    from evalstats_plugin.report import hierarchical

    if asked.family is not None and asked.formula is None:
        raise DesignError("--family is of scores in a formula: give --formula")
    if asked.formula is not None and asked.compare:
        raise DesignError("--compare knows no formulas: leave it out")
    running.check_top(asked.by, asked.top)
    responses = run.read(by=asked.by)
    covariates = read_covariates(asked.covariates) if asked.covariates else None
    counts = eval_counts(responses, asked.by, asked.top)
    length = fitting.HierarchicalOptions(**picked(asked, "chains", "draws", "warm_up"))
    if asked.formula is None:
        seconds = fitting.expected_seconds(counts, asked.method, asked.inference, length)
        if seconds >= LONG:
            n, t, m = len(counts.models), len(counts.tasks), len(counts.task)
            cost = duration_in_words(seconds)
            run.output.tell(f"{n:,} models × {t:,} tasks ({m:,} questions): {cost} on one core")
    with running.progress_on_work("fitting", quiet=run.output.quiet):
        fit = fitting.pool(
            counts,
            asked.method,
            asked.inference,
            formula=asked.formula,
            family=asked.family or "bernoulli",
            covariates=covariates,
            confidence_level=asked.confidence_level,
            rng=asked.seed,
            options=length,
        )
    run.output.draw({"hierarchical": lambda: fit})
    results = fit
    if run.output.form != "csv":
        results = hierarchical.shown(fit, baseline=asked.baseline, compare=asked.compare)
    how = {
        **({"by": asked.by} if asked.by else {}),
        "model": fit.model,
        "inference": fit.inference,
        "confidence_level": asked.confidence_level,
        "seed": asked.seed,
    }
    run.output.show(results, how, hierarchical.HIERARCHICAL)


def read_covariates(paths: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Read tables of models, and of tasks, as `pool` takes them.

    Raises
    ------
    LogError
        A file cannot be read, is neither of models nor of tasks, or holds what is no number.
    """
    by_kind: dict[str, dict[str, dict[str, float]]] = {}
    for path in paths:
        rows = running.csv_rows(path, "covariates")
        column_names = list(rows[0]) if rows else []
        kind = next((name for name in ("model", "task") if name in column_names), None)
        if kind is None or len(column_names) < 2:
            raise LogError(
                f"{path} has the columns {', '.join(map(repr, column_names)) or 'none'}: it needs "
                "a column 'model' or 'task', and columns of numbers"
            )
        table: dict[str, dict[str, float]] = {name: {} for name in column_names if name != kind}
        for line, row in enumerate(rows, 2):
            for covariate, by_name in table.items():
                where = f"{path}, line {line}, {covariate!r}:"
                by_name[row[kind]] = running.number_of(row[covariate], where)
        by_kind.setdefault(f"{kind}s", {}).update(table)
    return by_kind

"""``evalstats-plugin pool`` and ``irt capabilities``: scores, and items, share what they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click

from evalstats_plugin.cli.shell.options import (
    POSITIVE,
    Command,
    Name,
    baseline,
    device,
    level,
    paths,
    seed,
    takes,
    under,
)
from evalstats_plugin.cli.shell.running import (
    Output,
    Reading,
    csv_rows,
    output,
    plugins_of,
    progress_on_work,
    reading,
)
from evalstats_plugin.errors import LogError, counted
from evalstats_plugin.hierarchical.methods import HIERARCHICAL_MODELS, INFERENCES

if TYPE_CHECKING:
    import pandas as pd

    from evalstats_plugin.data.matrix import ResponseMatrix
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.hierarchical.data import EvalCounts
    from evalstats_plugin.hierarchical.fit import HierarchicalFit
    from evalstats_plugin.hierarchical.fitting import HierarchicalOptions
    from evalstats_plugin.report.hierarchical import CapabilityReport
    from evalstats_plugin.stats.arrays import FloatArray

LONG = 20.0
"""Expected seconds from which on the cost is printed before a fit starts."""

_KINDS = {"model": "models", "task": "tasks"}

_model = under("Model")


@dataclass(frozen=True, kw_only=True)
class Options:
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
    chains: int = _model("Number of Markov chains.", default=4, metavar="N")
    draws: int = _model("Draws kept of each chain.", default=1000, metavar="N")
    warm_up: int = _model("Warm-up draws of each chain.", default=300, metavar="N")
    covariates: tuple[str, ...] = _model(
        "Table with a column model (or task) and columns of numbers that may explain performance "
        "(or difficulty); may be repeated.",
        default=(), metavar="CSV", type=click.Path(),
    )  # fmt: skip
    tails: float | None = _model(
        "Degrees of freedom of Student's t for interactions of models and tasks, such as 4; model "
        "shared.  [default: normal]", default=None, show_default=False, metavar="DF",
    )  # fmt: skip
    compare: tuple[str, ...] = _model(
        "Compare with this model by leave-one-out predictions; may be repeated.",
        default=(), metavar="NAME", type=Name("hierarchical model", HIERARCHICAL_MODELS),
    )  # fmt: skip
    predict: Literal["task", "model"] | None = _model(
        "Predict the scores of a new task, or of a new model.", default=None, metavar="task|model",
        type=Name("prediction", ("task", "model")),
    )  # fmt: skip
    confidence_level: float = level()
    seed: int = seed()
    baseline: str | None = baseline()

    def length(self) -> HierarchicalOptions:
        """Return the length of Markov chains."""
        from evalstats_plugin.hierarchical.fitting import HierarchicalOptions

        return HierarchicalOptions(
            chains=self.chains, draws=self.draws, warm_up=self.warm_up, tails=self.tails
        )


@click.command(cls=Command)
@paths
@takes("asked", Options)
@output("hierarchical")
@reading
@click.pass_context
def pool(
    ctx: click.Context, paths: tuple[str, ...], *, reading: Reading, output: Output, asked: Options
) -> None:
    """Pool models and tasks: hierarchical models, in which each score borrows from the others.

    Partial pooling helps most where tasks have few items. PATHS are results files, folders or
    patterns.
    """
    from evalstats_plugin.report import hierarchical

    output.check("hierarchical")
    responses = reading.read(paths, plugins_of(ctx), quiet=output.quiet)
    fit = _fitted(responses, asked, output)
    output.draw({"hierarchical": lambda: fit})
    shown = partial(
        hierarchical.shown, fit, baseline=asked.baseline, compare=asked.compare,
        predict=asked.predict,
    )  # fmt: skip
    output.show(
        ctx,
        fit if output.form == "csv" else shown(),
        {
            "model": fit.model,
            "inference": fit.inference,
            "confidence_level": asked.confidence_level,
            "seed": asked.seed,
        },
        print_table=hierarchical.print_hierarchical,
        to_markdown=hierarchical.hierarchical_markdown,
        to_json=hierarchical.hierarchical_json,
    )


def _fitted(responses: ResponseSet, asked: Options, output: Output) -> HierarchicalFit:
    from evalstats_plugin.hierarchical.data import eval_counts
    from evalstats_plugin.hierarchical.fitting import fit_hierarchical
    from evalstats_plugin.runtime.workers import listening

    covariates = read_covariates(asked.covariates) if asked.covariates else None
    counts = eval_counts(responses)
    _tell_cost(counts, asked, output)
    with progress_on_work("fitting", quiet=output.quiet) as on_step, listening(on_step):
        return fit_hierarchical(
            counts,
            asked.method,
            asked.inference,
            covariates=covariates,
            confidence_level=asked.confidence_level,
            rng=asked.seed,
            options=asked.length(),
        )


def _tell_cost(counts: EvalCounts, asked: Options, output: Output) -> None:
    from evalstats_plugin.hierarchical.fitting import expected_seconds
    from evalstats_plugin.irt.fitting import duration_in_words

    seconds = expected_seconds(counts, asked.method, asked.inference, asked.length())
    if seconds >= LONG:
        n, t, m = len(counts.models), len(counts.tasks), len(counts.task)
        cost = duration_in_words(seconds)
        output.tell(f"{n:,} models × {t:,} tasks ({m:,} questions): {cost} on one core")


def read_covariates(paths: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Read tables of models, and of tasks, as `fit_hierarchical` takes them.

    Raises
    ------
    LogError
        A file cannot be read, is neither of models nor of tasks, or holds what is no number.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for path in paths:
        kind, table = _table(path)
        found.setdefault(_KINDS[kind], {}).update(table)
    return found


def _table(path: str) -> tuple[str, dict[str, dict[str, float]]]:
    """Return what the rows are of, and by covariate the number of each."""
    rows = csv_rows(path, "covariates")
    there = list(rows[0]) if rows else []
    kind = next((name for name in _KINDS if name in there), None)
    if kind is None or len(there) < 2:
        msg = (
            f"{path} has the columns {', '.join(map(repr, there)) or 'none'}: it needs a column "
            "'model' or 'task', and columns of numbers"
        )
        raise LogError(msg)
    table: dict[str, dict[str, float]] = {name: {} for name in there if name != kind}
    for line, row in enumerate(rows, 2):
        for covariate, by_name in table.items():
            by_name[row[kind]] = _number(row[covariate], f"{path}, line {line}, {covariate!r}")
    return kind, table


def _number(text: str | None, where: str) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise LogError(f"{where}: {text!r} is not a number") from None


MOST_CAPABILITIES = 3
"""Most capabilities that are looked for unless more are asked for."""


@dataclass(frozen=True, kw_only=True)
class CapabilityOptions:
    """What capabilities are looked for, and how."""

    dimensions: int | None = _model(
        "Number of capabilities, at most: those that the answers do not support stay empty.  "
        f"[default: half the number of models, at most {MOST_CAPABILITIES}]",
        type=POSITIVE, metavar="K",
    )  # fmt: skip
    method: str = _model(
        "How items get what they need: auto, l1 (each item its own estimates), topk (an encoder, "
        "as in sparse autoencoders).  [default: auto, by held-out answers]",
        default="auto", show_default=False, metavar="NAME",
        type=Name("method", ("auto", "l1", "topk")),
    )  # fmt: skip
    features: str | None = _model(
        "CSV file with the column item, task where ids are not unique, and text or columns of "
        "numbers such as an embedding, which the encoder reads beside the answers.  [default: the "
        "questions of the logs, where they have them]",
        type=click.Path(), metavar="CSV",
    )  # fmt: skip
    device: str = device()
    seed: int = seed()


@click.command(cls=Command)
@paths
@takes("asked", CapabilityOptions)
@output()
@reading
@click.pass_context
def capabilities(
    ctx: click.Context,
    paths: tuple[str, ...],
    *,
    reading: Reading,
    output: Output,
    asked: CapabilityOptions,
) -> None:
    """Find capabilities: what some items need beyond one ability, and which models have it.

    A sparse factor model: each item needs few capabilities. It is compared with a plain
    hierarchical model by answers that neither has seen, and says so if that predicts as well. PATHS
    are results files, folders or patterns.
    """
    from evalstats_plugin.irt.answers import ability_matrix
    from evalstats_plugin.report import hierarchical
    from evalstats_plugin.runtime.lazy import need_torch

    need_torch("capabilities")
    responses = reading.read(paths, plugins_of(ctx), quiet=output.quiet)
    matrix = ability_matrix(responses)
    found = _found_capabilities(ctx, responses, matrix, asked, output)
    output.show(
        ctx,
        found,
        {"method": found.fit.kind, "device": found.fit.diagnostics["device"], "seed": asked.seed},
        print_table=hierarchical.print_capabilities,
        to_markdown=hierarchical.capabilities_markdown,
        to_json=hierarchical.capabilities_json,
    )


def _found_capabilities(
    ctx: click.Context,
    responses: ResponseSet,
    matrix: ResponseMatrix,
    asked: CapabilityOptions,
    output: Output,
) -> CapabilityReport:
    """Compare on held-out answers, fit the sparse model that predicts best, and look again."""
    from evalstats_plugin.hierarchical.engines import capabilities as engine
    from evalstats_plugin.report.hierarchical import CapabilityReport, capability_rows
    from evalstats_plugin.runtime.workers import listening

    asked_for = asked.dimensions or min(MOST_CAPABILITIES, max(1, len(matrix.models) // 2))
    questions = _questions(ctx, responses, matrix)
    features, notes = _features_of_items(matrix, questions, asked)
    kinds = ("l1", "topk") if asked.method == "auto" else (asked.method,)
    if features is not None:
        # The encoder with features stands for the one without.
        kinds = tuple(kind for kind in kinds if kind != "topk")
    size = f"{len(matrix.models):,} models × {len(matrix.item_ids):,} items"
    same: dict[str, Any] = {"rng": asked.seed, "device": asked.device}
    with (
        progress_on_work(f"fitting {size}", quiet=output.quiet) as on_step,
        listening(on_step),
    ):
        compared = engine.compare_held_out(
            matrix, asked_for, (engine.PLAIN, *kinds), features=features, **same
        )
        best = min(compared[1:], key=lambda score: score.log_loss).item_model
        used = features if best == engine.WITH_FEATURES else None
        kind = "l1" if best == "l1" else "topk"
        fit = engine.fit_capabilities(matrix, asked_for, kind=kind, features=used, **same)
        again = None
        if len(matrix.item_ids) >= 2 * asked_for:
            again = engine.stability(fit, matrix, features=used, **same)
    return CapabilityReport(
        rows=capability_rows(fit, again),
        notes=tuple(dict.fromkeys((*fit.notes, *notes, *responses.notes))),
        seed=asked.seed,
        fit=fit,
        compared=compared,
        plain_is_as_good=engine.plain_is_as_good(compared),
        questions=questions,
    )


def _questions(
    ctx: click.Context, responses: ResponseSet, matrix: ResponseMatrix
) -> dict[tuple[str, str], str]:
    """Return the questions of the first log that has them, by task and item."""
    from evalstats_plugin.irt.answers import item_keys
    from evalstats_plugin.logs.texts import item_texts

    wanted: dict[str, list[str]] = {}
    for task, item in item_keys(matrix):
        wanted.setdefault(task, []).append(item)
    texts = item_texts(responses, wanted, plugins_of(ctx))
    return {(t, i): text.question for (_, t, i), text in reversed(texts.items()) if text.question}


def _features_of_items(
    matrix: ResponseMatrix, questions: dict[tuple[str, str], str], asked: CapabilityOptions
) -> tuple[FloatArray | None, list[str]]:
    """Return numbers known of each item, the mean where none are, and notes."""
    import numpy as np

    from evalstats_plugin.irt.answers import item_keys
    from evalstats_plugin.irt.new_items import feature_numbers

    if asked.method == "l1" or (asked.features is None and not questions):
        return None, []
    table = _table_of_features(questions, asked.features)
    tasks = table["task"].astype(str) if "task" in table else [""] * len(table)
    known = dict(
        zip(zip(tasks, table["item"].astype(str), strict=True), range(len(table)), strict=True)
    )
    place = np.array([
        known.get((task if "task" in table else "", item), -1) for task, item in item_keys(matrix)
    ])  # fmt: skip
    there = place >= 0
    if not there.any():
        msg = f"{asked.features} has no row of an item of these logs: name items as the logs do"
        raise LogError(msg)
    used = np.zeros(len(table), dtype=bool)
    used[place[there]] = True
    numbers, _ = feature_numbers(table, used)
    found = np.where(there[:, None], numbers[place], numbers[used].mean(axis=0))
    n = int((~there).sum())
    return found, [f"{counted(n, 'item')} without features"] if n else []


def _table_of_features(questions: dict[tuple[str, str], str], path: str | None) -> pd.DataFrame:
    if path is not None:
        from evalstats_plugin.cli.shell.running import read_features

        return read_features(path)
    import pandas as pd

    return pd.DataFrame(
        [{"task": t, "item": i, "text": text} for (t, i), text in questions.items()]
    )

"""``evalstats-plugin pool``: hierarchical models, in which scores borrow from each other."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell import options, output
from evalstats_plugin.cli.shell.commands import Sectioned
from evalstats_plugin.cli.shell.options import READING
from evalstats_plugin.errors import LogError, SelectionError, no_such
from evalstats_plugin.hierarchical.methods import HIERARCHICAL_MODELS, INFERENCES

if TYPE_CHECKING:
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.hierarchical.fit import HierarchicalFit

LONG = 20.0
"""Expected seconds from which on the cost is printed before a fit starts."""

_KINDS = {"model": "models", "task": "tasks"}
_EXPECTED = "expected a CSV file with a column 'model' or 'task' and columns of numbers"

_SECTIONS = {
    "Model": ("model", "inference", "chains", "draws", "warm_up", "covariates"),
    "Output": (
        "baseline", "confidence_level", "seed", "figure", "figure_file", "form", "quiet",
    ),
    **READING,
}  # fmt: skip


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--model",
    metavar="NAME",
    default="auto",
    help=f"Hierarchical model: auto, {', '.join(HIERARCHICAL_MODELS)}.  [default: auto, by data]",
)
@click.option(
    "--inference",
    metavar="NAME",
    default="auto",
    help=f"How it is inferred: auto, {', '.join(INFERENCES)}.  [default: auto, by structure]",
)
@click.option("--chains", type=int, metavar="N", help="Number of Markov chains.  [default: 4]")
@click.option("--draws", type=int, metavar="N", help="Draws kept of each chain.  [default: 1000]")
@click.option(
    "--warm-up", type=int, metavar="N", help="Warm-up draws of each chain.  [default: 300]"
)
@click.option(
    "--covariates",
    metavar="CSV",
    multiple=True,
    help="Table with a column model (or task) and columns of numbers that may explain "
    "performance (or difficulty); may be repeated.",
)
@click.option("--baseline", metavar="MODEL", help="Compare the others with this model.")
@output.figure_option("hierarchical")
@options.reading
@options.confidence_level
@options.seed
@options.form
@options.quiet
@click.pass_context
def pool(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Pool models and tasks: hierarchical models, in which each score borrows from the others.

    Partial pooling helps most where tasks have few items. PATHS are as of `report`.
    """
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.cli.shell.reading import read_logs
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.report import hierarchical

    if chosen["model"] not in ("auto", *HIERARCHICAL_MODELS):
        shown = ", ".join(HIERARCHICAL_MODELS)
        raise SelectionError(
            no_such("hierarchical model", chosen["model"], HIERARCHICAL_MODELS, shown)
        )
    output.check_figure(chosen, "hierarchical")
    fit = _fitted(read_logs(paths, chosen, load_plugins(ctx.obj or ())), chosen)
    output.save_asked(chosen, {"hierarchical": lambda: fit})
    show(
        ctx,
        fit if chosen["form"] == "csv" else hierarchical.shown(fit, baseline=chosen["baseline"]),
        {**chosen, "model": fit.model, "inference": fit.inference},
        ("model", "inference", "confidence_level", "seed"),
        print_table=hierarchical.print_hierarchical,
        to_markdown=hierarchical.hierarchical_markdown,
        to_json=hierarchical.hierarchical_json,
    )


def _fitted(responses: ResponseSet, chosen: Mapping[str, Any]) -> HierarchicalFit:
    from evalstats_plugin.cli.shell.reading import progress_on_work
    from evalstats_plugin.hierarchical.fitting import fit_hierarchical
    from evalstats_plugin.runtime.workers import listening

    model, inference = chosen["model"], chosen["inference"]
    length = ("chains", "draws", "warm_up")
    options = {name: chosen[name] for name in length if chosen[name] is not None}
    given = chosen["covariates"]
    covariates = read_covariates(given) if given else None
    if not chosen["quiet"]:
        _tell_cost(responses, model, inference, options)
    with (
        progress_on_work("fitting", quiet=chosen["quiet"]) as on_step,
        listening(on_step),
    ):
        return fit_hierarchical(
            responses,
            model,
            inference,
            covariates=covariates,
            confidence_level=chosen["confidence_level"],
            rng=chosen["seed"],
            options=options,
        )


def _tell_cost(
    responses: ResponseSet, model: str, inference: str, options: Mapping[str, int]
) -> None:
    from evalstats_plugin.hierarchical.data import eval_counts
    from evalstats_plugin.hierarchical.fitting import expected_seconds, options_of
    from evalstats_plugin.irt.fitting import duration_in_words

    counts = eval_counts(responses)
    seconds = expected_seconds(counts, model, inference, options_of(options)[0])
    if seconds >= LONG:
        n, t, m = len(counts.models), len(counts.tasks), len(counts.task)
        cost = duration_in_words(seconds)
        text = f"{n:,} models × {t:,} tasks ({m:,} questions): {cost} on one core"
        click.echo(text, file=sys.stderr)


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
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: covariates cannot be read: {error}"
        raise LogError(msg) from error
    rows = list(csv.DictReader(text.splitlines()))
    there = list(rows[0]) if rows else []
    kind = next((name for name in _KINDS if name in there), None)
    if kind is None or len(there) < 2:
        msg = f"{path}: {', '.join(map(repr, there)) or 'no rows'} found, {_EXPECTED}"
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
        msg = f"{where}: {text!r} found, expected a number"
        raise LogError(msg) from None

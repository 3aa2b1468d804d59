"""``evalstats-plugin irt``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli import options
from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.tables.estimators import ESTIMATORS, ITEM_MODELS

if TYPE_CHECKING:
    from evalstats_plugin.analyses.ability_records import Abilities
    from evalstats_plugin.irt.fit import IRTFit
    from evalstats_plugin.matrix import ResponseMatrix

LARGE = 5_000_000
"""Models × items from which on the cost of a fit is told before it starts."""


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--item-model",
    metavar="NAME",
    help=f"How items differ: {', '.join(ITEM_MODELS)}.  [default: 2pl]",
)
@click.option(
    "--estimator",
    metavar="NAME",
    help=f"How it is fitted: auto, {', '.join(ESTIMATORS)}.  [default: auto, by shape]",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="auto is CUDA where there is one.",
)
@click.option(
    "--baseline", metavar="MODEL", help="Show how much abler than this model the others are."
)
@click.option("--items", is_flag=True, help="Show the items too, those to look at first.")
@click.option("--save", metavar="FILE", help="Keep the fit: its items are a bank for --bank.")
@click.option(
    "--bank",
    metavar="FILE",
    help="Score the models on the items of a saved fit, which stay as they are.",
)
@options.reading
@click.option(
    "--confidence-level",
    "-c",
    type=float,
    default=0.95,
    show_default=True,
    help="Of the intervals, between 0 and 1.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of random numbers.")
@options.form
@options.quiet
@click.pass_context
def irt(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Show how able each model and how hard each item is, on one scale.

    PATHS are results files, folders or patterns. All tasks that they hold make one scale; a task
    with several metrics needs --metric. CSV is one table: of items with --items, of differences
    with --baseline, else of models.
    """
    from evalstats_plugin.analyses.ability_data import ability_matrix
    from evalstats_plugin.cli.printing import show
    from evalstats_plugin.cli.reading import read_logs
    from evalstats_plugin.plugins import load
    from evalstats_plugin.report import abilities as report

    _check_options(chosen)
    responses = read_logs(paths, chosen, load(ctx.obj or ()))
    matrix = ability_matrix(responses)
    results = _analyse(matrix, chosen)
    results = replace(results, notes=(*dict.fromkeys((*results.notes, *responses.notes)),))
    fit = results.fit
    ran = {name: fit[name] for name in ("item_model", "estimator")}
    ran["device"] = fit["diagnostics"].get("device", chosen["device"])
    show(
        ctx,
        report.one_table(results) if chosen["form"] == "csv" else results,
        {**chosen, **ran},
        ("item_model", "estimator", "device", "baseline", "confidence_level", "seed"),
        print_table=report.print_abilities,
        to_markdown=report.to_markdown,
        to_json=report.to_json,
    )


def _check_options(chosen: Mapping[str, Any]) -> None:
    """Refuse names that do not exist before anything is read, and options that contradict."""
    from evalstats_plugin.wording import no_such

    for what, names in (("item model", ITEM_MODELS), ("estimator", ("auto", *ESTIMATORS))):
        option = what.replace(" ", "_")
        given = chosen[option]
        if given is None:
            continue
        if given not in names:
            raise SelectionError(no_such(what, given, names, ", ".join(names)))
        if chosen["bank"] is not None:
            msg = (
                f"--{option.replace('_', '-')} and --bank found together, expected one of them: "
                "the bank's items are kept as they were fitted"
            )
            raise SelectionError(msg)


def _analyse(matrix: ResponseMatrix, chosen: Mapping[str, Any]) -> Abilities:
    from evalstats_plugin.analyses.ability_rows import abilities
    from evalstats_plugin.cli.progress import progress_on_work

    size = f"{len(matrix.models):,} models × {len(matrix.item_ids):,} items"
    with progress_on_work(f"fitting {size}", quiet=chosen["quiet"]):
        fit = _fit(matrix, chosen)
        if chosen["save"] is not None:
            fit.save(chosen["save"])
        return abilities(
            fit,
            matrix,
            confidence_level=chosen["confidence_level"],
            baseline=chosen["baseline"],
            items=chosen["items"],
        )


def _fit(matrix: ResponseMatrix, chosen: Mapping[str, Any]) -> IRTFit:
    from evalstats_plugin.analyses.abilities import fit_irt, score_models

    if chosen["bank"] is not None:
        bank = _bank(Path(chosen["bank"]))
        scored = score_models(bank, matrix, device=chosen["device"])
        return replace(scored, notes=(*matrix.notes, *scored.notes))
    if len(matrix.models) * len(matrix.item_ids) >= LARGE and not chosen["quiet"]:
        _tell_cost(matrix)
    return fit_irt(
        matrix,
        chosen["item_model"] or "2pl",
        chosen["estimator"] or "auto",
        device=chosen["device"],
        rng=chosen["seed"],
    )


def _tell_cost(matrix: ResponseMatrix) -> None:
    from evalstats_plugin.irt.data import memory_needed

    n, m = len(matrix.models), len(matrix.item_ids)
    needed = memory_needed(n, m) / 2**30
    text = f"{n:,} models × {m:,} items: the fit needs {needed:.1f} GiB of memory or more"
    click.echo(text, file=sys.stderr)


def _bank(path: Path) -> IRTFit:
    from evalstats_plugin.irt.fit import IRTFit

    try:
        return IRTFit.load(path)
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read as a fit that `irt --save` wrote: {error}"
        raise LogError(msg) from error

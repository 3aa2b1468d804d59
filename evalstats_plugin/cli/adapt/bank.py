"""``evalstats-plugin adapt bank`` and ``adapt merge``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell import options

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.data.runs import ResponseSet


_output = click.option(
    "--output", "-o", required=True, type=click.Path(path_type=Path), metavar="FILE.parquet",
    help="File to write. An existing bank is replaced; any other file is kept.",
)  # fmt: skip


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@_output
@click.option("--item-model", metavar="NAME", default="2pl", show_default=True, help="As in `irt`.")
@click.option("--estimator", metavar="NAME", default="auto", show_default=True, help="As in `irt`.")
@click.option(
    "--cost", metavar="CSV",
    help="CSV file with the columns item, cost (for example tokens per item) and, "
        "with several tasks, task.",
)  # fmt: skip
@click.option(
    "--drift", is_flag=True,
    help="Leave out items with drift: easier or harder than in the earlier half of "
        "the logs.",
)  # fmt: skip
@options.reading
@options.seed
@options.form
@options.quiet
@click.pass_context
def bank(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Make an item bank from logs of many models.

    PATHS are results files, folders or patterns: the more models the better, 30 are few. Items
    that fit badly, or that able models fail, are kept for the full score and never asked.
    """
    from evalstats_plugin.adaptive.calibrate import item_bank, recent_models, without_drift
    from evalstats_plugin.cli.shell.reading import progress_on_work, read_logs
    from evalstats_plugin.errors import SelectionError
    from evalstats_plugin.irt.answers import ability_matrix
    from evalstats_plugin.irt.fitting import fit_irt
    from evalstats_plugin.plugins import load_plugins

    check_target(chosen["output"])
    responses = read_logs(paths, chosen, load_plugins(ctx.obj or ()))
    matrix = ability_matrix(responses)
    cost = None if chosen["cost"] is None else _costs(chosen["cost"], matrix)
    recent = recent_models(matrix, responses) if chosen["drift"] else []
    if recent and chosen["item_model"] == "factor":
        msg = "--drift found with --item-model factor, expected an item model of one ability"
        raise SelectionError(f"{msg}: drift is a difference between models of the same")
    n, m = len(matrix.models), len(matrix.item_ids)
    if not chosen["quiet"]:
        click.echo(f"calibrating {m} items on {n} models", err=True)
    with progress_on_work("calibrating", quiet=chosen["quiet"]):
        # A name that a user gives is any of its overloads.
        fit_any: Any = fit_irt
        fit = fit_any(matrix, chosen["item_model"], chosen["estimator"], rng=chosen["seed"])
        origin = _origin(responses)
        made = item_bank(fit, matrix, cost=cost, provenance=origin, rng=chosen["seed"])
        if recent:
            made = without_drift(made, fit, matrix, recent)
            made.require_usable()
    said = {**chosen, "estimator": fit.estimator}
    _save(ctx, made, said, ("item_model", "estimator", "seed"), responses.notes)


def _origin(responses: ResponseSet) -> dict[str, Any]:
    """Say where a calibration is from."""
    sources = [each.source for each in responses.responses]
    dates = sorted({source.when for source in sources if source.when})
    return {
        "logs": sorted({str(source.path) for source in sources}),
        "dates": dates[:1] + dates[-1:],
        "harness": sorted({f"{source.harness} {source.version}" for source in sources}),
    }


@click.command()
@click.argument("first", metavar="BANK")
@click.argument("second", metavar="BANK")
@_output
@click.option(
    "--through", type=click.Choice(["items", "models"]), default="items", show_default=True,
    help="What the banks share and are linked by; at least three.",
)  # fmt: skip
@options.form
@options.quiet
@click.pass_context
def merge(ctx: click.Context, first: str, second: str, **chosen: Any) -> None:
    """Merge two item banks on one scale, that of the first.

    Items that are harder in one bank than in the other have drifted and are not asked.
    """
    from evalstats_plugin.adaptive import bank as bank_module
    from evalstats_plugin.adaptive.bank import ItemBank

    check_target(chosen["output"])
    banks = ItemBank.load(first), ItemBank.load(second)
    made = bank_module.merge(*banks, through=chosen["through"])
    _save(ctx, made, chosen, ("through",), ())


def check_target(path: Path) -> None:
    """Refuse to replace what is no item bank.

    Raises
    ------
    WriteError
        There is such a file.
    """
    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.errors import LogError, WriteError

    if not path.exists():
        return
    try:
        ItemBank.load(path)
    except LogError as error:
        msg = f"{path} is there and no item bank, so it is not replaced: name another file"
        raise WriteError(msg) from error


def _save(
    ctx: click.Context,
    made: ItemBank,
    chosen: dict[str, Any],
    how: tuple[str, ...],
    notes: tuple[str, ...],
) -> None:
    """Write a bank, and show what it holds."""
    from evalstats_plugin.adaptive.calibrate import contents
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.report import adaptive

    made.save(chosen["output"])
    show(
        ctx,
        contents(made, notes),
        # Nothing here has an interval.
        {**chosen, "confidence_level": 0.95},
        how,
        print_table=adaptive.print_bank,
        to_markdown=adaptive.bank_markdown,
    )
    if not chosen["quiet"]:
        click.echo(f"bank: {chosen['output']}", err=True)


def _costs(path: str, matrix: Any) -> list[float]:
    import csv

    from evalstats_plugin.errors import SelectionError, few

    known: dict[tuple[str, str], float] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            lines = csv.DictReader(file)
            if not {"item", "cost"} <= {*(lines.fieldnames or ())}:
                raise ValueError(f"columns {few(list(lines.fieldnames or ())) or 'none'}")
            for row in lines:
                known[row.get("task") or "", row["item"]] = float(row["cost"])
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        msg = f"{path} cannot be used ({type(error).__name__}: {error}), expected a CSV file with"
        raise SelectionError(
            f"{msg} the columns item, cost and, for several tasks, task"
        ) from error
    keys = list(zip(matrix.tasks.astype(str), matrix.item_ids.astype(str), strict=True))
    found = [known.get(key, known.get(("", key[1]), -1.0)) for key in keys]
    missing = [" / ".join(key) for key, cost in zip(keys, found, strict=True) if not cost >= 0]
    if missing:
        msg = f"{path} has no cost, of 0 or above, of {len(missing)} items: {few(missing, 3)}"
        raise SelectionError(msg)
    return found

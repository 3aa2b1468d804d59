"""``evalstats-plugin adapt bank`` and ``adapt merge``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from evalstats_plugin.cli.shell import running, shared
from evalstats_plugin.cli.shell.fitting import IrtOptions
from evalstats_plugin.cli.shell.options import command, takes, under
from evalstats_plugin.cli.shell.running import Output, Run
from evalstats_plugin.errors import SelectionError, counted, few

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.irt.model.fit import FactorFit, IRTFit


_written = under("Bank")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The bank that is written."""

    file: str = shared.file(
        "File to write.", "--output", "-o", required=True, metavar="FILE.parquet"
    )

    def place(self) -> Path:
        """Return the file's path; a bad one is refused before the work."""
        from evalstats_plugin.runtime.writing import check_output_path

        return check_output_path(self.file, [".parquet"], asked="-o", makes_folder=True)


@dataclass(frozen=True, kw_only=True)
class BankOptions(Target):
    """The bank that is written, and what its items cost."""

    cost: str | None = _written(
        "CSV file with the columns item, cost (for example tokens per item) and, with several "
        "tasks, task.",
        type=click.Path(), metavar="CSV",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Merging(Target):
    """How banks are merged."""

    through: Literal["items", "models"] = _written(
        "What the banks share and are linked by; at least three.",
        default="items", type=click.Choice(["items", "models"]),
    )  # fmt: skip


@command()
@takes("written", BankOptions)
@takes("asked", IrtOptions, only=("item_model", "estimator", "dimensions", "seed"))
@running.on_logs()
def bank(run: Run, *, written: BankOptions, asked: IrtOptions) -> None:
    """Make an item bank from logs of many models.

    PATHS are results files, folders or patterns: the more models the better, 30 are few. Items
    that fit badly, or that the better models fail, are kept for the full score and never asked.
    """
    from evalstats_plugin.adaptive.calibrate import item_bank
    from evalstats_plugin.irt.answers import ability_matrix

    asked.check()
    file = written.place()
    responses = run.read()
    matrix = ability_matrix(responses)
    costs = None if written.cost is None else _costs(written.cost, matrix)
    models, items = counted(len(matrix.models), "model"), counted(len(matrix.item_ids), "item")
    run.output.tell(f"calibrating {items} on {models}")
    # A test stops at an error in units of how far models spread.
    fit = cast("IRTFit | FactorFit", replace(asked, zero="models").fit(matrix, run.output))
    sources = [each.source for each in responses.responses]
    dates = sorted({source.when for source in sources if source.when})
    provenance = {
        "logs": sorted({str(source.path) for source in sources}),
        "dates": dates[:1] + dates[-1:],
        "harness": sorted({f"{source.harness} {source.version}" for source in sources}),
    }
    with running.progress_on_work("calibrating", quiet=run.output.quiet):
        made = item_bank(fit, matrix, cost=costs, provenance=provenance, rng=asked.seed)
    how = {"item_model": asked.fitted_model, "estimator": fit.estimator, "seed": asked.seed}
    _save(made, file, run.output, how, responses.notes)


@command()
@click.argument("first", metavar="BANK", type=click.Path())
@click.argument("second", metavar="BANK", type=click.Path())
@takes("asked", Merging)
@running.output()
def merge(first: str, second: str, *, asked: Merging, output: Output) -> None:
    """Merge two item banks on one scale, that of the first.

    Items that are harder in one bank than in the other have drifted and are not asked.
    """
    from evalstats_plugin.adaptive import bank as bank_module
    from evalstats_plugin.adaptive.bank import ItemBank

    file = asked.place()
    banks = ItemBank.load(first), ItemBank.load(second)
    made = bank_module.merge(*banks, through=asked.through)
    _save(made, file, output, {"through": asked.through}, ())


def _save(
    made: ItemBank, file: Path, output: Output, how: Mapping[str, object], notes: tuple[str, ...]
) -> None:
    """Write a bank, and show what it holds."""
    from evalstats_plugin.adaptive.calibrate import contents
    from evalstats_plugin.report import adaptive

    made.save(file)
    output.show(contents(made, notes), how, adaptive.BANK)
    output.tell(f"bank: {file}")


def _costs(path: str, matrix: Any) -> list[float]:
    """Read what each item of the matrix costs."""
    cost_of: dict[tuple[str, str], float] = {}
    for line, row in enumerate(running.csv_rows(path, "costs", needs=("item", "cost")), 2):
        place = row.get("task") or "", row["item"]
        cost_of[place] = running.number_of(row["cost"], f"{path}, line {line}: cost")
    keys = list(zip(matrix.tasks.astype(str), matrix.item_ids.astype(str), strict=True))
    costs = [cost_of.get(key, cost_of.get(("", key[1]), -1.0)) for key in keys]
    missing = [" / ".join(key) for key, cost in zip(keys, costs, strict=True) if not cost >= 0]
    if missing:
        items = counted(len(missing), "item")
        raise SelectionError(f"{path} has no cost of 0 or above for {items}: {few(missing, 3)}")
    return costs

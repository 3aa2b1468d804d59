"""Contests out of the samples of a harness, each the verdict of a judge on two answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.ranking.assembly import contests_of
from evalstats_plugin.ranking.columns import Column, Table
from evalstats_plugin.ranking.contests import Contests
from evalstats_plugin.ranking.records import Record, record_table
from evalstats_plugin.ranking.spellings import COLUMNS, column_of
from evalstats_plugin.wording import few

RESULTS = ("winner", "outcome", "preference")
_GRADES = frozenset({"C", "I", "P", "N"})


def contests_of_samples(
    samples: Sequence[Record],
    where: str,
    columns: Mapping[str, str],
    verdicts: Sequence[str],
    defaults: Mapping[str, str],
) -> Contests:
    """Make contests of samples, one each; what was read as what is noted.

    Parameters
    ----------
    columns
        Field by part of a comparison, as the caller asks.
    verdicts
        Fields in which the judge's verdict may stand, if the caller names none. A field of the
        item does not count: it may be another judge's.
    defaults
        Field by part, for judges and items whose fields are not known by their names.

    Raises
    ------
    SelectionError
        It cannot be told who was compared, or where the verdict is.
    """
    table = record_table(samples, where)
    asked = dict(columns)
    if "loser" not in asked and not asked.keys() & set(RESULTS):
        part, field = _verdict(table, [v for v in verdicts if v in table.names])
        asked[part] = field
    for part, field in defaults.items():
        asked.setdefault(part, column_of(part, table.names) or field)
    made = contests_of(table, asked)
    told = ", ".join(f"{part}={field}" for part, field in asked.items() if part not in columns)
    return replace(made, notes=(f"read as {told}", *made.notes) if told else made.notes)


def _verdict(table: Table, verdicts: Sequence[str]) -> tuple[str, str]:
    """Return the one field that says who won, and as what it is to be read."""
    if len(verdicts) != 1:
        found = f"{len(verdicts)} fields ({few(verdicts)})" if verdicts else "no field"
        msg = (
            f"{table.where}: {found} found that may say who won, expected one: name it, as in "
            f"winner={verdicts[0] if verdicts else 'FIELD'}; there are: {few(table.names, 20)}"
        )
        raise SelectionError(msg)
    [field] = verdicts
    column = table.load([field])[field]
    if column.values and set(column.values) <= _GRADES:
        msg = (
            f"{table.where}: {field} holds grades ({few(column.values)}), expected who won of two: "
            f"name the field that says so, as in winner=FIELD; there are: {few(table.names, 20)}"
        )
        raise SelectionError(msg)
    return _part(field, column), field


def _part(field: str, column: Column) -> str:
    last = field.rpartition(".")[2]
    if named := next((part for part in RESULTS if last in COLUMNS[part]), None):
        return named
    # An outcome is a number from 0 to 1, or a word; 1 and 2 are places.
    return "winner" if set(column.values) == {"1", "2"} else "outcome"

"""``evalstats-plugin report --model hierarchical``: options that go together, and the answer."""
# PART covariates - Reads what is known of models and tasks beside their scores.

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell import output
from evalstats_plugin.errors import LogError, SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.hierarchical.fit import HierarchicalFit


FAMILY = "hierarchical"


LONG = 20.0
"""Seconds from which on the time is told before a fit starts."""


OWN = ("inference", "chains", "draws", "warm_up", "covariates", "baseline")
"""Options that only a hierarchical model has."""


_OTHERS = (
    "prior", "bounds", "population", "derive", "at_k", "control_variate", "judge", "human",
    "labels",
)  # fmt: skip
"""Options that it has no use for."""


_KINDS = {"model": "models", "task": "tasks"}


_EXPECTED = "expected a CSV file with a column 'model' or 'task' and columns of numbers"


def hierarchical_model(chosen: Mapping[str, Any]) -> str | None:
    """Return the name of the model that ``--model`` asks for, None without it.

    Raises
    ------
    SelectionError
        There is no such model, or options do not go together.
    """
    from evalstats_plugin.errors import no_such
    from evalstats_plugin.hierarchical.methods import HIERARCHICAL_MODELS

    given = [name for name, value in chosen.items() if value not in (None, (), {}, False)]
    if chosen["model"] is None:
        own = [name for name in OWN if name in given]
        if own:
            msg = f"--{_spelt(own[0])} found without --model {FAMILY}, which it is an option of"
            raise SelectionError(msg)
        return None
    family, _, name = str(chosen["model"]).partition(":")
    if family != FAMILY:
        shown = f"{FAMILY}, {', '.join(f'{FAMILY}:{known}' for known in HIERARCHICAL_MODELS)}"
        raise SelectionError(no_such("model", chosen["model"], (FAMILY,), shown))
    name = name or "auto"
    if name not in ("auto", *HIERARCHICAL_MODELS):
        shown = ", ".join(HIERARCHICAL_MODELS)
        raise SelectionError(no_such("hierarchical model", name, HIERARCHICAL_MODELS, shown))
    idle = [other for other in _OTHERS if other in given]
    idle += ["method"] if chosen["method"] != "auto" else []
    if idle:
        msg = (
            f"--model {FAMILY} and --{_spelt(idle[0])} found together: it has no use for that; "
            "pass one of them"
        )
        raise SelectionError(msg)
    return name


def _spelt(name: str) -> str:
    return name.replace("_", "-")


def show_hierarchical(
    ctx: click.Context, responses: ResponseSet, chosen: Mapping[str, Any], model: str
) -> None:
    """Fit, draw the figure asked for, and print."""
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.report import hierarchical

    fit = _fitted(responses, chosen, model)
    output.save_asked(chosen, {"hierarchical": lambda: fit})
    shown = hierarchical.shown(fit, baseline=chosen["baseline"])
    show(
        ctx,
        fit if chosen["form"] == "csv" else shown,
        {**chosen, "model": f"{FAMILY}:{fit.model}", "inference": fit.inference},
        ("model", "inference", "confidence_level", "seed"),
        print_table=hierarchical.print_hierarchical,
        to_markdown=hierarchical.hierarchical_markdown,
        to_json=hierarchical.hierarchical_json,
    )


def _fitted(responses: ResponseSet, chosen: Mapping[str, Any], model: str) -> HierarchicalFit:
    from evalstats_plugin.cli.shell.reading import progress_on_work
    from evalstats_plugin.hierarchical.fitting import fit_hierarchical
    from evalstats_plugin.runtime.workers import telling

    inference = chosen["inference"] or "auto"
    length = ("chains", "draws", "warm_up")
    options = {name: chosen[name] for name in length if chosen[name] is not None}
    given = chosen["covariates"]
    covariates = read_covariates(given) if given else None
    if not chosen["quiet"]:
        _tell_cost(responses, model, inference, options)
    with (
        progress_on_work("fitting", quiet=chosen["quiet"]) as on_step,
        telling(on_step),
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
    from evalstats_plugin.irt.fitting import in_words

    counts = eval_counts(responses)
    seconds = expected_seconds(counts, model, inference, options_of(options)[0])
    if seconds >= LONG:
        n, t, m = len(counts.models), len(counts.tasks), len(counts.task)
        text = f"{n:,} models × {t:,} tasks ({m:,} questions): {in_words(seconds)} on one core"
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

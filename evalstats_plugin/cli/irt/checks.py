"""Checks of ``evalstats-plugin irt``: answers held out, and items that treat groups unlike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click

from evalstats_plugin.cli.irt.fit import fit_as_chosen, work_on
from evalstats_plugin.cli.shell.output import show

if TYPE_CHECKING:
    from evalstats_plugin.data.matrix import ResponseMatrix
    from evalstats_plugin.irt.model.fit import IRTFit


def show_held_out(
    ctx: click.Context, matrix: ResponseMatrix, chosen: Mapping[str, Any], notes: Sequence[str]
) -> None:
    """Predict answers held out, and print how well."""
    from evalstats_plugin.irt.holdout import hold_out
    from evalstats_plugin.report import abilities

    first = chosen["seed"]
    with work_on(matrix, chosen, "holding out answers of"):
        results = hold_out(
            matrix,
            tuple(dict.fromkeys(chosen["holdout"])),
            item_model=chosen["item_model"],
            dimensions=chosen["dimensions"],
            seeds=range(first, first + chosen["draws"]),
            device=chosen["device"],
        )
    show(
        ctx,
        replace(results, notes=(*dict.fromkeys((*results.notes, *notes)),)),
        chosen,
        ("item_model", "draws", "seed"),
        print_table=abilities.print_held_out,
        to_markdown=abilities.held_out_markdown,
        to_json=abilities.held_out_json,
    )


def show_differences(
    ctx: click.Context, matrix: ResponseMatrix, chosen: Mapping[str, Any], notes: Sequence[str]
) -> None:
    """Fit, compare a group of models with the others item by item, and print the items."""
    from evalstats_plugin.cli.shell.reading import read_patterns
    from evalstats_plugin.irt.dif import item_dif, models_like
    from evalstats_plugin.report import abilities

    focal = models_like(read_patterns(chosen["dif"]), matrix.models)
    with work_on(matrix, chosen, "fitting"):
        fit = cast("IRTFit", fit_as_chosen(matrix, chosen))
        if chosen["save"] is not None:
            fit.save(chosen["save"])
        results = item_dif(fit, matrix, focal, confidence_level=chosen["confidence_level"])
    show(
        ctx,
        replace(results, notes=(*dict.fromkeys((*results.notes, *notes)),)),
        {**chosen, "estimator": fit.estimator},
        ("item_model", "estimator", "confidence_level", "seed"),
        print_table=abilities.print_differences,
        to_markdown=abilities.differences_markdown,
        to_json=abilities.differences_json,
    )

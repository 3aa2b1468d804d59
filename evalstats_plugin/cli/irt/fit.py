"""Fits of ``evalstats-plugin irt``, and the tables of models that come of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from evalstats_plugin.cli.shell import output
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.runtime.lazy import need_torch

if TYPE_CHECKING:
    from evalstats_plugin.data.matrix import ResponseMatrix
    from evalstats_plugin.irt.model.fit import FactorFit, IRTFit
    from evalstats_plugin.irt.rows import Abilities, FactorAbilities


LARGE = 5_000_000
"""Models × items from which on the memory that a fit needs is told before it starts."""

LONG = 30.0
"""Seconds from which on the time is told as well."""


def show_abilities(
    ctx: click.Context, matrix: ResponseMatrix, chosen: Mapping[str, Any], notes: Sequence[str]
) -> None:
    """Fit or score, and print the models."""
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.report import abilities as report_abilities

    results, made = _results(matrix, chosen)
    output.save_asked(chosen, _drawn(results, made, matrix))
    results = replace(results, notes=(*dict.fromkeys((*results.notes, *notes)),))
    fit = results.fit
    ran = {name: fit[name] for name in ("item_model", "estimator")}
    ran["device"] = fit["diagnostics"].get("device", chosen["device"])
    several = fit["item_model"] == "factor"
    table = results
    if chosen["form"] == "csv":
        table = _long_table(cast("FactorAbilities", results), chosen) if several else None
        table = table or report_abilities.one_table(cast("Abilities", results))
    show(
        ctx,
        table,
        {**chosen, **ran},
        ("item_model", "estimator", "device", "baseline", "confidence_level", "seed"),
        print_table=report_abilities.print_factors if several else report_abilities.print_abilities,
        to_markdown=report_abilities.factors_markdown
        if several
        else report_abilities.abilities_markdown,
        to_json=report_abilities.factors_json if several else report_abilities.abilities_json,
    )


def _long_table(results: FactorAbilities, chosen: Mapping[str, Any]) -> Any:
    from evalstats_plugin.data.results import Results

    return Results(results.items if chosen["items"] else results.rows, results.notes)


def _drawn(
    results: Abilities | FactorAbilities, fit: IRTFit | FactorFit, matrix: ResponseMatrix
) -> dict[str, Callable[[], Any]]:
    """Return what figures are drawn of."""

    def items() -> Any:
        from evalstats_plugin.irt.rows import abilities

        return results if results.items else abilities(cast("IRTFit", fit), matrix, items=True)

    return {"abilities": lambda: results, "items": items, "fit": lambda: fit}


def _results(
    matrix: ResponseMatrix, chosen: Mapping[str, Any]
) -> tuple[Abilities | FactorAbilities, IRTFit | FactorFit]:
    from evalstats_plugin.irt.bootstrap import bootstrap_abilities
    from evalstats_plugin.irt.rows import abilities, factor_abilities

    level = chosen["confidence_level"]
    with work_on(matrix, chosen, "fitting"):
        fit = fit_as_chosen(matrix, chosen)
        if chosen["save"] is not None:
            fit.save(chosen["save"])
        if fit.item_model == "factor":
            several = cast("FactorFit", fit)
            return factor_abilities(several, matrix, confidence_level=level), fit
        one = cast("IRTFit", fit)
        shown = {
            "confidence_level": level, "baseline": chosen["baseline"], "items": chosen["items"],
        }  # fmt: skip
        if chosen["bootstrap"] is None:
            return abilities(one, matrix, **shown), fit
        drawn_anew = bootstrap_abilities(
            one,
            matrix,
            over=chosen["over"],
            n_resamples=chosen["bootstrap"],
            rng=chosen["seed"],
            device=chosen["device"],
            **shown,
        )
        return drawn_anew, fit


@contextmanager
def work_on(
    matrix: ResponseMatrix, chosen: Mapping[str, Any], what: str
) -> Generator[None, None, None]:
    """Say what is worked on, and how far it is, where someone looks on."""
    from evalstats_plugin.cli.shell.reading import progress_on_work
    from evalstats_plugin.runtime.workers import listening

    size = f"{len(matrix.models):,} models × {len(matrix.item_ids):,} items"
    with (
        progress_on_work(f"{what} {size}", quiet=chosen["quiet"]) as on_step,
        listening(on_step),
    ):
        yield


def fit_as_chosen(matrix: ResponseMatrix, chosen: Mapping[str, Any]) -> IRTFit | FactorFit:
    """Fit, score on a bank, or fit and link to one."""
    from evalstats_plugin.irt.fitting import fit_irt
    from evalstats_plugin.irt.model.fit import load_fit
    from evalstats_plugin.irt.scoring import score_models

    if chosen["bank"] is not None:
        bank = load_fit(Path(chosen["bank"]))
        scored: Any = score_models(cast("Any", bank), matrix, device=chosen["device"])
        return replace(scored, notes=(*matrix.notes, *scored.notes))
    anchor = None if chosen["link"] is None else _one_ability(chosen["link"])
    if not chosen["quiet"]:
        _tell_cost(matrix, chosen)
    run: Any = fit_irt
    fit: Any = run(
        matrix,
        chosen["item_model"],
        chosen["estimator"],
        response=chosen["response"],
        device=chosen["device"],
        rng=chosen["seed"],
        options=_options(matrix, chosen),
    )
    return fit if anchor is None else _linked(anchor, fit, str(chosen["link"]))


def _options(matrix: ResponseMatrix, chosen: Mapping[str, Any]) -> dict[str, Any]:
    from evalstats_plugin.cli.shell.reading import read_group_of_model

    if chosen["item_model"] == "factor":
        return {name: chosen[name] for name in ("dimensions", "rotation")}
    if chosen["groups"] is None:
        return {}
    return {"groups": read_group_of_model(chosen["groups"], matrix.models)}


def _one_ability(path: str) -> IRTFit:
    from evalstats_plugin.irt.model.fit import IRTFit, load_fit

    bank = load_fit(Path(path))
    if not isinstance(bank, IRTFit):
        msg = f"--link {path} holds a factor model, expected a fit of one ability for each model"
        raise SelectionError(msg)
    return bank


def _linked(anchor: IRTFit, fit: IRTFit, path: str) -> IRTFit:
    from evalstats_plugin.irt.linking import linking_constants, on_scale_of

    found = linking_constants(anchor, fit)
    slope_error, shift_error = found.covariance.diagonal() ** 0.5
    note = (
        f"on the scale of {Path(path).name}: {found.slope:.3f} (s.e. {slope_error:.3f}) × ability "
        f"{found.intercept:+.3f} (s.e. {shift_error:.3f}), by {found.n_common} common items "
        f"({found.method}); intervals allow for that error"
    )
    linked = on_scale_of(anchor, fit, found)
    return replace(linked, notes=(*linked.notes, note))


def _tell_cost(matrix: ResponseMatrix, chosen: Mapping[str, Any]) -> None:
    need_torch("item response models", "irt")
    from evalstats_plugin.irt.fitting import duration_in_words, expected_seconds
    from evalstats_plugin.irt.model.data import memory_needed

    n, m = len(matrix.models), len(matrix.item_ids)
    seconds = expected_seconds(chosen["item_model"], chosen["estimator"], chosen["response"], n, m)
    if n * m < LARGE and seconds < LONG:
        return
    needed = memory_needed(n, m) / 2**30
    text = (
        f"{n:,} models × {m:,} items: the fit needs {needed:.1f} GiB of memory or more, and on one "
        f"processor core {duration_in_words(seconds)}"
    )
    click.echo(text, file=sys.stderr)

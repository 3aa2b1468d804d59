"""``evalstats-plugin report --model hierarchical``: options that go together, and the answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli import figures
from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit
    from evalstats_plugin.response_set import ResponseSet

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


def hierarchical_model(chosen: Mapping[str, Any]) -> str | None:
    """Return the name of the model that ``--model`` asks for, None without it.

    Raises
    ------
    SelectionError
        There is no such model, or options do not go together.
    """
    from evalstats_plugin.tables.hierarchical import HIERARCHICAL_MODELS
    from evalstats_plugin.wording import no_such

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
    from evalstats_plugin.cli.printing import show
    from evalstats_plugin.report import hierarchical as report

    fit = _fitted(responses, chosen, model)
    figures.save_asked(chosen, {"hierarchical": lambda: fit})
    shown = report.shown(fit, baseline=chosen["baseline"])
    show(
        ctx,
        fit if chosen["form"] == "csv" else shown,
        {**chosen, "model": f"{FAMILY}:{fit.model}", "inference": fit.inference},
        ("model", "inference", "confidence_level", "seed"),
        print_table=report.print_hierarchical,
        to_markdown=report.to_markdown,
        to_json=report.to_json,
    )


def _fitted(responses: ResponseSet, chosen: Mapping[str, Any], model: str) -> HierarchicalFit:
    from evalstats_plugin.analyses.hierarchical import fit_hierarchical
    from evalstats_plugin.cli.covariates import read_covariates
    from evalstats_plugin.cli.progress import progress_on_work
    from evalstats_plugin.irt.progress import telling

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
    from evalstats_plugin.analyses.ability_cost import in_words
    from evalstats_plugin.analyses.hierarchical_cost import expected_seconds
    from evalstats_plugin.analyses.hierarchical_data import eval_counts
    from evalstats_plugin.analyses.hierarchical_options import options_of

    counts = eval_counts(responses)
    seconds = expected_seconds(counts, model, inference, options_of(options)[0])
    if seconds >= LONG:
        n, t, m = len(counts.models), len(counts.tasks), len(counts.task)
        text = f"{n:,} models × {t:,} tasks ({m:,} questions): {in_words(seconds)} on one core"
        click.echo(text, file=sys.stderr)

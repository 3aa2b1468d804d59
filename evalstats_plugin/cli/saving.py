"""Analyses of ``evalstats-plugin report`` that get more out of the same items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evalstats_plugin.errors import SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.response_set import ResponseSet
    from evalstats_plugin.results import Intervals


def analyse_saving(
    responses: ResponseSet, chosen: Mapping[str, Any], plugins: Plugins
) -> Intervals | None:
    """Run the analysis that the options ask for; None if they ask for neither."""
    given = [f"--{name}" for name in ("judge", "human", "labels") if chosen[name] is not None]
    _check(given, chosen)
    if chosen["control_variate"]:
        from evalstats_plugin.analyses.control_variate import control_variate
        from evalstats_plugin.tables import check_name

        table, name = plugins.methods(), chosen["method"]
        check_name(name, table)
        return control_variate(
            responses,
            confidence_level=chosen["confidence_level"],
            method=name if name == "auto" else table[name],
            bounds=chosen["bounds"],
            rng=chosen["seed"],
        )
    if not given:
        return None
    from evalstats_plugin.analyses.prediction_powered import prediction_powered
    from evalstats_plugin.cli.labels import read_labels

    return prediction_powered(
        responses,
        human=chosen["human"],
        judge=chosen["judge"],
        labels=None if chosen["labels"] is None else read_labels(chosen["labels"]),
        confidence_level=chosen["confidence_level"],
        bounds=chosen["bounds"],
    )


def _check(given: list[str], chosen: Mapping[str, Any]) -> None:
    """Refuse options that do not go together."""
    if given and (chosen["judge"] is None or len(given) != 2):
        msg = f"{', '.join(given)} found, expected --judge with one of --human and --labels"
        raise SelectionError(msg)
    asked = [*(["--control-variate"] if chosen["control_variate"] else []), *given[:1]]
    if asked and chosen["population"] is not None:
        asked.append("--population")
    if asked and chosen["prior"] is not None:
        asked.append("--prior")
    if len(asked) > 1:
        msg = f"{' and '.join(asked)} found, which do not go together: pass one of them"
        raise SelectionError(msg)
    if given and chosen["method"] != "auto":
        msg = f"{given[0]} and --method found: a judge and labels have one method, ppi++"
        raise SelectionError(msg)

"""Figures that a sentence quotes, each read from the study or benchmark that found it."""

from __future__ import annotations

import json
import re

from parts import ROOT, read_study, short

BENCHMARKS = ROOT / "benchmarks" / "results" / "figures.json"
_QUOTE = re.compile(r"<!-- quote ([\w.]+) -->.*?<!-- /quote -->")
_CELL = re.compile(
    r"<!-- cell (\w+)\.(\w+) (\S+?=.+?) (?:(mean|least|most) )?(\w+) -->.*?<!-- /cell -->"
)
_STUDY = re.compile(
    r"<!-- study (many_models|abilities|ranking|hierarchical|probabilities)\.(\w+) -->"
    r".*?<!-- /study -->"
)


def _false_findings(correction: str) -> str:
    """Return in how many of 100 evals of equal models a correction lets a false finding through."""
    study = read_study("paired_engine")
    (row,) = (r for r in study["families"] if (r["scores"], r["n"]) == ("right", 100))
    share = row[{"simultaneous": "false_finding", "none": "uncorrected"}[correction]]
    return f"{100 * share:.0f}"


def _coverage_of_abilities(name: str) -> str:
    """Return the least coverage of joint maximum likelihood, or the range of the default."""
    study = read_study("abilities")
    method = "mml-items 2pl" if name == "default" else name
    cover = [
        row[what]
        for row in study["abilities"]
        for what in ("coverage", "coverage_of_differences")
        if row["method"] == method
    ]
    least, most = short(min(cover)), short(max(cover))
    return f"{least} to {most}" if name == "default" else least


def _about_rankings(name: str) -> str:
    """Return coverage from discordant pairs, or how many rankings were simulated."""
    if name == "runs":
        study = read_study("ranking_acquisition")
        (runs,) = {row["runs"] for row in study["rules"]}
        return str(runs)
    covariance = {"naive": "model", "clustered": "cluster"}[name]
    study = read_study("ranking_discordant")
    (row,) = (
        row
        for row in study["rows"]
        if (row["items"], row["ties"], row["covariance"]) == (200, "drop", covariance)
    )
    return short(row["coverage"])


def _about_pooling(name: str) -> str:
    """Return coverage and width of pooled contrasts, of predictions, or what the engines did."""
    if name in ("seconds", "ess"):
        study = read_study("hierarchical_crossed")["reference"]
        figure = study["cpu_seconds"] if name == "seconds" else min(study["least_ess"].values())
        return f"{figure:.0f}"
    if name in ("evidence", "global"):
        study = read_study("hierarchical_engine")["nested"]
        errors = [abs(row["error"]) for row in study["qem"] if row["k"] == 30]
        return _figure(max(errors) if name == "evidence" else abs(study["global_10000_error"]))
    if name in ("calibrated", "narrowed", "forgetful"):
        return _calibration(name)
    if name.startswith("unlike_"):
        return _where_the_truth_is_unlike(name.removeprefix("unlike_"))
    study = read_study("hierarchical_coverage")
    rows = {(row["intervals"], row["contrast"]): row for row in study["rows"]}
    contrast, _, what = name.partition("_")
    pooled, alone = rows["pooled", contrast], rows["per-task", contrast]
    narrower = f"{100 * (1 - pooled['width'] / alone['width']):.0f}"
    return short(pooled["coverage"]) if what == "coverage" else narrower


def _calibration(what: str) -> str:
    """Return the smallest p-value of engines, the largest of controls, or that of a wrong one."""
    engines = dict(read_study("hierarchical_calibration"))
    wrong = engines.pop("nuts without the volume of its maps")["quantities"]
    if what == "forgetful":
        return f"{max(wrong['sd']['p_value'], 0.0001):.4f}"
    quantities = [x for engine in engines.values() for x in engine["quantities"].values()]
    if what == "narrowed":
        return f"{max(x['p_value_of_control'] for x in quantities):.0e}"
    return _figure(min(x["p_value"] for x in quantities))


def _where_the_truth_is_unlike(what: str) -> str:
    """Return the least or most coverage where effects are not as assumed."""
    known = read_study("hierarchical_predictions")["rows"]
    rows = [r for r in known if r["interactions"] != "normal"]
    return short((min if what == "least" else max)(r["coverage"] for r in rows))


def _sure_of_near_ties(p_better: str) -> str:
    """Return how many of 100 statements above .95 are true, of near-tied models on 50 items."""
    study = read_study("probabilities")
    sure = [
        row["sure"]
        for row in study["better"]
        if (row["models"], row["items"], row["p_better"]) == ("near", 50, p_better) and row["sure"]
    ]
    n = sum(one["n"] for one in sure)
    return f"{100 * sum(one['true'] * one['n'] for one in sure) / n:.0f}"


def _figure(figure: float) -> str:
    """Write two digits, or all of a larger whole number."""
    return f"{figure:.2g}" if figure < 100 else f"{figure:.0f}"


_FINDINGS = {
    "many_models": _false_findings,
    "abilities": _coverage_of_abilities,
    "ranking": _about_rankings,
    "hierarchical": _about_pooling,
    "probabilities": _sure_of_near_ties,
}


def _study(match: re.Match[str]) -> str:
    study, name = match.groups()
    return f"<!-- study {study}.{name} -->{_FINDINGS[study](name)}<!-- /study -->"


def _quote(match: re.Match[str]) -> str:
    section, _, name = match[1].partition(".")
    figure = json.loads(BENCHMARKS.read_text())[section][name]
    return f"<!-- quote {match[1]} -->{_figure(figure)}<!-- /quote -->"


def _cell(match: re.Match[str]) -> str:
    start = match[0].partition("-->")[0]
    return f"{start}-->{cell(*match.groups())}<!-- /cell -->"


def cell(study: str, section: str, wanted: str, kind: str | None, column: str) -> str:
    """Return the mean, least or greatest of one column of a study, or its only value."""
    keys = dict(part.split("=", 1) for part in wanted.split(";"))
    figures = [
        float(row[column])
        for row in read_study(study)[section]
        if all(str(row[key]) in value.split("|") for key, value in keys.items())
        and row[column] is not None
    ]
    if not figures or (kind is None and len(figures) != 1):
        msg = f"{study}.{section} {wanted} {kind} {column}: {len(figures)} rows found"
        raise ValueError(msg)
    of = {"mean": lambda x: sum(x) / len(x), "least": min, "most": max}.get(kind or "", min)
    return _written(of(figures))


def _written(figure: float) -> str:
    return short(figure) if abs(figure) < 1 else f"{figure:.3g}"


def rendered_findings(text: str) -> str:
    """Return a page with every quoted figure as its study or benchmark has it now.

    The markers are ``quote section.name`` (benchmarks), ``study study.name`` (what takes a
    calculation) and ``cell study.section key=value;key=value mean column``, of rows that match.
    """
    for marker, replace in ((_CELL, _cell), (_QUOTE, _quote), (_STUDY, _study)):
        text = marker.sub(replace, text)
    return text

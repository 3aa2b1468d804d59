"""Which method for which scores, with its measured coverage and that of the usual way."""

from __future__ import annotations

import re
from typing import NamedTuple

from parts import read_study, short
from parts.findings import cell


class Choice(NamedTuple):
    """A row of the table. A figure is ``{study.section rows}``: mean coverage (least coverage).

    ``{study.section rows column}`` is one figure, with ``mean`` or ``least`` before the column
    where several rows match.
    """

    scores: str
    method: str
    covers: str
    usual: str = ""


_CHOICES = (
    Choice(
        "right or wrong answers, n = 10", "`beta-hpd` [BAI25]",
        "{intervals.binary method=beta_hpd;n=10}",
        "mean ± z standard errors: {intervals.binary method=wald;n=10}",
    ),
    Choice(
        "the same, n = 100", "`beta-hpd`", "{intervals.binary method=beta_hpd;n=100}",
        "{intervals.binary method=wald;n=100}",
    ),
    Choice(
        "right or wrong, and the level must never be missed", "`clopper-pearson`",
        "{intervals.binary method=clopper_pearson;n=10}, "
        "{intervals.binary method=clopper_pearson;n=10 width} wide, not "
        "{intervals.binary method=beta_hpd;n=10 width}",
    ),
    Choice(
        "[partial credit](../guides/partial-credit.md) in [0, 1]", "`reach` [Fer73]",
        "{partial_credit.one method=reach}", "Student's t: {partial_credit.one method=t_interval}",
    ),
    Choice(
        "the same, and failures are feared that no row shows", "`dp-jeffreys`",
        "{partial_credit.one method=dirichlet_process(0.5)}, up to five times as wide",
    ),
    Choice(
        "the same, and the level must never be missed", "`gaffke`",
        "{intervals.bounded method=gaffke}",
        "percentile bootstrap: {intervals.bounded method=bootstrap_percentile}",
    ),
    Choice(
        "scores without bounds (rewards, Elo)", "`t`", "{intervals.unbounded method=t_interval}",
        "mean ± z standard errors: {intervals.unbounded method=z_interval}",
    ),
    Choice(
        "perplexity, bits per byte: ratios of sums", "`jackknife-t`",
        "{intervals.ratio method=ratio_jackknife}",
        "linearised t: {intervals.ratio method=ratio_t}",
    ),
    Choice(
        "a group of tasks", "`beta-neff` [KG98]", "{intervals.group method=beta_effective}",
        "combined Wald intervals: {intervals.group method=mover(wald)}",
    ),
    Choice(
        "items in [clusters](../guides/clusters.md) (passages, repositories)",
        "`size-betabinomial`, `logit-t-cr2`", "{cluster_sizes.scores method=default}",
        "as if there were none: {clusters.scores method=naive_beta}; "
        "clustered standard errors, z: {clusters.scores method=cluster_z}",
    ),
    Choice(
        "[epochs](../guides/epochs.md), pass@k", "`--at-k`", "{epochs.of_k method=auto}",
        "t interval: {epochs.of_k method=t_interval}",
    ),
    Choice(
        "[F1](../guides/partial-credit.md#f1-and-other-metrics)", "`wilson-f1` [Wil27]",
        "{confusion.f1 method=wilson-f1}", "delta method: {confusion.f1 method=wald-f1}",
    ),
    Choice(
        "MCC, balanced accuracy, macro-F1", "`dirichlet-table`",
        "{confusion.tables method=dirichlet-table}",
        "percentile bootstrap: {confusion.tables method=percentile}",
    ),
    Choice(
        "two models on the same items, whatever the scores",
        "`compare` (`symmetric-bootstrap`), n = 20 to 300",
        "{paired_engine.sizes method=engine;n=20 coverage_shift_p1} to "
        "{paired_engine.sizes method=engine;n=300 coverage_shift_p1} (99 % of random designs)",
        "paired t: {paired_engine.sizes method=t;n=20 coverage_shift_p1} to "
        "{paired_engine.sizes method=t;n=300 coverage_shift_p1}",
    ),
    Choice(
        "two models on items of their own", "`compare --design unpaired`",
        "{paired.unpaired method=newcombe}", "z: {paired.unpaired method=wald}",
    ),
    Choice(
        "two models, items in 8 clusters of unequal size", "`compare --cluster`",
        "{paired_engine.clusters method=engine;clusters=8 coverage} "
        "({paired_engine.clusters method=engine;clusters=8 coverage_worst})",
        "clustered t: {paired_engine.clusters method=t_cr2;clusters=8 coverage} "
        "({paired_engine.clusters method=t_cr2;clusters=8 coverage_worst})",
    ),
    Choice(
        "a run you [look at while it goes on](../guides/power.md#looking-while-it-runs)",
        "`beta-mixture`, `compare --design sequential`",
        "{savings.looks method=beta_mixture} at all of 100 looks",
        "any interval for one look: {savings.looks method=beta_hpd}",
    ),
    Choice(
        "a part of the benchmark, and other models' scores on all of it", "`--control-variate`",
        "{savings.control_variate method=cuped}, "
        "{savings.control_variate method=cuped mean width} wide",
        "the part alone: as sure, {savings.control_variate method=beta_hpd+fpc mean width} wide",
    ),
    Choice(
        "a [judge](../guides/judges.md) on all items, people's labels on few", "`judge` [ADZ23]",
        "{savings.prediction_powered method=ppi++}",
        "published normal interval: {savings.prediction_powered method=ppi++ z}",
    ),
)  # fmt: skip
_FIGURE = re.compile(r"\{(\w+)\.(\w+) (\S+?=.+?)(?: (?:(mean|least) )?([a-z]\w+))?\}")


def choices() -> str:
    """Return the table of methods with coverage of the method and of the usual way."""
    lines = ["| You have | Take | It covers | The usual way covers |", "|---|---|---|---|"]
    for choice in _CHOICES:
        covers, usual = (_FIGURE.sub(_figures, text) for text in (choice.covers, choice.usual))
        lines.append(f"| {choice.scores} | {choice.method} | {covers} | {usual} |")
    return "\n".join(lines)


def _figures(match: re.Match[str]) -> str:
    study, section, wanted, kind, column = match.groups()
    if column:
        return cell(study, section, wanted, kind, column)
    columns = read_study(study)[section][0]
    least = "least" if "least" in columns else "coverage"
    mean = cell(study, section, wanted, "mean", "coverage")
    return f"{mean} ({cell(study, section, wanted, 'least', least)})"


_SHOWN_FIRST = {
    "right or wrong answers, n = 10": (
        "`beta-hpd`", "intervals.binary", "method=beta_hpd;n=10", "method=wald;n=10",
    ),
    "partial credit": (
        "`reach`", "partial_credit.one", "method=reach", "method=z_interval",
    ),
    "a group of tasks": (
        "`beta-neff`", "intervals.group", "method=beta_effective", "method=mover(wald)",
    ),
    "items in clusters": (
        "`size-betabinomial`", "clusters.scores", "method=size_betabinomial", "method=cluster_z",
    ),
    "F1": ("`wilson-f1`", "confusion.f1", "method=wilson-f1", "method=wald-f1"),
}  # fmt: skip


def coverage_first() -> str:
    """Return mean coverage of some defaults and of mean ± z standard errors, for README."""
    lines = ["| scores | default | covers | mean ± z standard errors |", "|---|---|---|---|"]
    for scores, (name, where, ours, usual) in _SHOWN_FIRST.items():
        study, section = where.split(".")
        covers = (cell(study, section, rows, "mean", "coverage") for rows in (ours, usual))
        lines.append(f"| {scores} | {name} | {' | '.join(covers)} |")
    return "\n".join(lines)


def irt_drawn() -> str:
    """Return coverage of the 2PL on item response designs drawn at random, by quantity."""
    head = ("Estimator", "95 % intervals of", "mean", "1st percentile", "chance", "worst design")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in read_study("irt_drawn")["rows"]:
        if row["item_model"] != "2pl":
            continue
        figures = (short(row[key]) for key in ("mean", "first_percentile", "noise", "worst"))
        lines.append(f"| `{row['estimator']}` | {row['quantity']} | {' | '.join(figures)} |")
    return "\n".join(lines)

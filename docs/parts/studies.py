"""Tables of figures that the validation studies and the benchmarks left as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from evalstats_plugin.scores.methods import METHODS
from parts import ROOT, read_study, short
from parts.side_by_side import ratio, seconds

RESULTS = ROOT / "benchmarks" / "results"
_NO_NAMES: Mapping[str, str] = MappingProxyType({})


def reading() -> str:
    """Return what reading changed, of all that was tried under watch: logs, and every trap."""
    logs, *traps = read_study("reading")["folders"]
    counted = ("n_folders", "runs", "ended_well", "events", "changes")
    trapped = {key: sum(row[key] for row in traps) for key in counted}
    lines = [
        "| folders | how many | runs | with a result | audit events | changes |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, row in (("logs", logs), ("traps", trapped)):
        lines.append(f"| {name} | {' | '.join(f'{row[key]:,}' for key in counted)} |")
    return "\n".join(lines)


def processors() -> str:
    """Return how many commands of pages print the same on two processors."""
    lines = ["| what is printed | commands | that differ | most, in units of the last digit |"]
    lines.append("|---|--:|--:|--:|")
    for row in read_study("processors")["all"]:
        what = "drawn at random" if row["drawn"] else "not drawn"
        lines.append(
            f"| {what} | {row['commands']} | {row['that_differ']} | {row['most_units']:g} |"
        )
    return "\n".join(lines)


def reference_posteriors() -> str:
    """Return the worst errors of each method of `infer` in the gate of known posteriors."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for name, row in read_study("reference_posteriors").items():
        by_method.setdefault(name.rsplit(", ", 1)[1], []).append(row)
    lines = ["| method | quantities | means, in standard deviations | standard deviations, log |"]
    lines.append("|---|--:|--:|--:|")
    lines += [
        f"| `{method}` | {len(rows)} | {max(x['error_of_mean'] for x in rows):.2f} "
        f"| {max(x['ratio_of_sd'] for x in rows):.2f} |"
        for method, rows in sorted(by_method.items(), key=lambda x: (x[0] != "nuts", x[0]))
    ]
    return "\n".join(lines)


def kills() -> str:
    """Return how often writers were killed or found the disk full."""
    study = read_study("kills")
    (whole,) = study["summary"]
    commands = ", ".join(row["command"] for row in study["commands"])
    return (
        f"{whole['kills']:,} kills and {whole['full_disks']:,} full disks ({commands} and others)."
    )


def coverage() -> str:
    """Return the figures of the validation study on 0/1 scores."""
    study = read_study("intervals")
    names = {
        **_NAMES,
        **{
            m.function.partition(":")[2]: m.name
            for m in METHODS
            if m.prior is None and m.mass is None
        },
    }
    sizes = (3, 10, 30, 100)
    lines = [
        "| method | " + " | ".join(f"n = {n}" for n in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for method in dict.fromkeys(row["method"] for row in study["binary"]):
        rows = {row["n"]: row for row in study["binary"] if row["method"] == method}
        figures = (
            f"{short(rows[n]['coverage'])} ({short(rows[n]['least'])}), {short(rows[n]['width'])}"
            for n in sizes
        )
        lines.append(f"| `{names[method]}` | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def partial() -> str:
    """Return the figures on partial credit and on groups: mean and least coverage, mean width."""
    study = read_study("intervals")
    names = {
        **_NAMES,
        **{
            m.function.partition(":")[2]: m.name
            for m in METHODS
            if m.prior is None and m.mass is None
        },
    }
    lines = ["| what | method | coverage (least) | mean width |", "|---|---|---|---|"]
    for section, what in _SECTIONS.items():
        for method in dict.fromkeys(row["method"] for row in study[section]):
            if method in _IN_JSON_ALONE:
                continue
            rows = [row for row in study[section] if row["method"] == method]
            cover = [row["coverage"] for row in rows]
            width = [row["width"] for row in rows if row["width"] is not None]
            name = re.sub(r"[\w.]+(\([\d.]+\))?", lambda m: names.get(m[0], m[0]), method)
            held = f"{short(sum(cover) / len(cover))} ({short(min(cover))})"
            lines.append(f"| {what} | `{name}` | {held} | {short(sum(width) / len(width))} |")
            what = ""  # noqa: PLW2901 - said once per section
    return "\n".join(lines)


def studies() -> str:
    """Return what the other studies found: mean and least coverage, mean width."""
    lines = ["| what | method | coverage (least) | mean width |", "|---|---|---|---|"]
    for (file, section), what in _STUDIES.items():
        study = read_study(file)
        for method in dict.fromkeys(row["method"] for row in study[section]):
            if method in _IN_JSON_ALONE:
                continue
            rows = [row for row in study[section] if row["method"] == method]
            cover = [row["coverage"] for row in rows]
            least = min(row.get("least", row["coverage"]) for row in rows)
            width = [w for row in rows if (w := row.get("width", row.get("width_100"))) is not None]
            held = f"{short(sum(cover) / len(cover))} ({short(least)})"
            mean_width = short(sum(width) / len(width)) if width else "–"
            name = method.replace("_", "-")
            lines.append(f"| {what} | `{name}` | {held} | {mean_width} |")
            what = ""  # noqa: PLW2901 - said once per section
    return "\n".join(lines)


_STUDIES = {
    ("paired", "paired"): "difference on the same items, 0/1 scores, n = 10 to 100 (exact)",
    ("paired", "unpaired"): "difference on items of their own, 0/1 scores (exact)",
    ("paired", "unpaired_scores"): "the same with partial credit, n = 5 to 50",
    ("partial_credit", "one"): "partial credit in [0, 1]: 23 kinds, n = 5 to 200",
    ("partial_credit", "failing"): "the same near .80, up to 20 % of items failed, n = 5 to 30",
    ("clusters", "scores"): "0/1 scores in 2 to 60 clusters, ICC 0 to .5",
    ("cluster_sizes", "scores"): "the same, unequal sizes, 5 to 200 clusters, ICC 0 to .6",
    ("clusters", "paired"): "difference of 0/1 scores in 6 to 60 clusters, ICC 0 to .33",
    ("missing", "scores"): "0/1 scores, up to half of the wrong missing, n = 20 to 1,000",
    ("missing", "pairs"): "difference of two models with missing scores, n = 50 and 200",
    ("confusion", "f1"): "F1, n = 3 to 300 (exact)",
    ("confusion", "tables"): "MCC, balanced accuracy, macro-F1, n = 10 to 300",
    ("confusion", "paired"): "difference of F1 and of MCC",
    ("epochs", "of_k"): "pass@4, pass^4, maj@3, n = 10 to 100 items, 4 to 16 epochs",
    ("savings", "looks"): "0/1 scores, at all of 100 looks (width at n = 100)",
    ("savings", "control_variate"): "a part of the items, the others' scores known on all",
    ("savings", "prediction_powered"): "20 to 100 human labels, 1,000 items judged",
}

_IN_JSON_ALONE = {
    "agresti_min", "mn_ratio", "beta_ratio(0.5)", "beta_ratio(1)", "katz", "mn_odds",
    "beta_odds(0.5)", "beta_odds(1)", "naive_wilson", "naive_bonett_price", "fixed_task_bootstrap",
    "cuped-t-hc2", "cuped-t-hc3", "betabinomial_gamma", "mover(wilson)", "mover(jeffreys)",
    "mover(mid_p)", "mover_dp", "jeffreys_f1",
}  # fmt: skip
"""Methods for ratios and odds, and variants of methods that the table has."""

# Functions that several methods share, or that are none by themselves.
_NAMES = {
    "beta_equal_tailed": "beta",
    "beta_hpd": "beta-hpd",
    "dirichlet_process(0.5)": "dp-jeffreys",
    "dirichlet_process(1)": "dp-uniform",
    "beta_effective": "beta-neff",
    "bootstrap_percentile": "percentile",
    "bootstrap_bca": "bca",
    "bootstrap_studentised": "bootstrap-t",
}
_SECTIONS = {
    "bounded": "partial credit in [0, 1]: six kinds, n = 5 to 200",
    "ratio": "ratio of sums: six kinds, n = 5 to 100",
    "group": "group of 2 to 57 tasks of 0/1 scores, n = 5 to 100 each",
    "group_bounded": "group of tasks with partial credit",
}


def asked() -> str:
    """Return how many comparisons a ranking of 20 takes, by the rule that chooses them."""
    study = read_study("ranking_acquisition")
    lines = [
        "| rule | τ .9, players far apart | τ .9, near each other | the best right in 90 % |",
        "|---|---|---|---|",
    ]
    runs = {
        (row["rule"], row["sd"]): row
        for row in study["rules"]
        if (row["link"], row["random_share"]) == ("probit", 0.0)
    }
    for rule in ("order", "thompson", "random", "best", "fullrank"):
        far, near = runs.get((rule, 3.0)), runs.get((rule, 1.0))
        found = (_asked(far, "tau .9 at"), _asked(near, "tau .9 at"), _asked(far, "best .9 at"))
        lines.append(f"| `{rule}` | {' | '.join(found)} |")
    return "\n".join(lines)


def _asked(run: dict[str, Any] | None, goal: str) -> str:
    if run is None:
        return "–"
    return str(run[goal]) if run[goal] is not None else f"> {run['asked']}"


def tested() -> str:
    """Return the errors of adaptive tests of real models, and how often intervals held, by rule."""
    sets = {"livebench_binary": "LiveBench", "gsm8k": "GSM8K"}
    at = (10, 50)
    heads = [f"{shown}, {n} items" for shown in sets.values() for n in at]
    lines = [f"| `--rule` | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    found = {
        (name, row["rule"], row["n"]): row
        for name in sets
        for row in read_study(f"adaptive_{name}")[name]
    }
    for rule in ("design", "random", "information"):
        cells = [_tested(found[name, rule, n]) for name in sets for n in at]
        lines.append(f"| `{rule}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _tested(row: dict[str, Any]) -> str:
    off, half = (f"{row[key]:.4f}".lstrip("0") for key in ("score_mae", "score_mae_half_width"))
    rank, held = (short(row[key]) for key in ("rank_correlation", "score_coverage"))
    return f"{off} ± {half}, {rank}, {held}"


def by_design() -> str:
    """Return how often limits by design held the full score, their width and error, by model."""
    kinds = {
        "as": "as they are", "above": "stronger than the bank's", "below": "weaker",
        "leaked": "30 % of items leaked", "coin": "tossing coins",
        "reversed": "easy and hard exchanged", "other": "another kind of questions",
    }  # fmt: skip
    sets = {
        "LiveBench": "LiveBench", "AlpacaEval": "AlpacaEval", "drawn worlds": "15 drawn worlds"
    }  # fmt: skip
    at = (10, 50)
    study = read_study("adaptive_design")
    lines = [f"| Models tested | {' | '.join(sets.values())} |", "|---" * (1 + len(sets)) + "|"]
    for kind, shown in kinds.items():
        cells: list[str] = []
        for name in sets:
            found = {(r["how"], r["n"]): r for r in study[name] if r["kind"] == kind}
            held = ", ".join(_hundredths(found["design", n]["held"]) for n in at)
            wide = ", ".join(
                f"{found['design', n]['width'] / found['random sample', n]['width']:.2f}"
                for n in at
            )
            curves = ", ".join(_hundredths(found["curves", n]["held"]) for n in at)
            cells.append(f"{held}; {wide} *({curves})*")
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def by_shared_draws() -> str:
    """Return how often limits of a difference of two models held it, and their width."""
    kinds = {
        "models": "two models", "versions": "two versions of a model",
        "unlike": "two models unlike the bank",
    }  # fmt: skip
    ways = {
        "shared": "the same items (`random`)", "apart": "each its own (`design`)",
        "sample, shared": "a simple random sample, the same items",
    }  # fmt: skip
    found = {(r["kind"], r["how"], r["n"]): r for r in read_study("adaptive_pairs")["pairs"]}
    lines = [f"| Compared | {' | '.join(ways.values())} |", "|---" * (1 + len(ways)) + "|"]
    for kind, shown in kinds.items():
        cells: list[str] = []
        for how in ways:
            rows = [found[kind, how, n] for n in (10, 50)]
            held = ", ".join(_hundredths(row["held"]) for row in rows)
            cells.append(f"{held}; {', '.join(_hundredths(row['width']) for row in rows)}")
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _hundredths(figure: float) -> str:
    return f"{figure:.2f}".removeprefix("0")


def battles() -> str:
    """Return how programs for Bradley–Terry do on a million battles."""
    return _beside("ranking", {"rmse": "off by", "coverage": "coverage"})


def peers() -> str:
    """Return how item response programs do."""
    errors = {"log_loss": "log loss", "rmse_ability": "abilities off by"}
    study = _benchmark("irt_peers")
    truth = {job: f"{job}; truth: {of['log_loss']:.4f}" for job, of in study["truth"].items()}
    return _beside(
        "irt_peers", errors, jobs={job: truth[job] for job in _ITEM_JOBS}, left_out=_OTHER_SETTINGS
    )


_OTHER_SETTINGS = ("torch_measure JML", "py-irt default", "girth_mcmc")
"""Settings with which a program does worse, and a program that does not start."""
_ITEM_JOBS = ("2PL 200 × 1,000", "2PL 1,000 × 1,000", "2PL 40 × 5,000")


def rivals() -> str:
    """Return how programs for intervals and comparisons do."""
    errors = {
        "interval_score": "interval score",
        "brier": "Brier score",
        "largest_error": "limits off by",
    }
    return _beside("comparison_peers", errors)


def harnesses() -> str:
    """Return what harnesses print for a score, beside our intervals."""
    errors = {
        "coverage": "coverage / of strong models",
        "interval_score": "interval score / of strong models",
    }
    jobs = ("3,000 accuracies of 15 items", "600 F1 of 200 items", "600 MCC of 200 items")
    return _beside("harness_errors", errors, jobs={job: job for job in jobs})


def _beside(
    name: str,
    errors: Mapping[str, str],
    jobs: Mapping[str, str] = _NO_NAMES,
    left_out: Collection[str] = (),
) -> str:
    """Return programs side by side: a row for each program and job, ours first.

    Jobs that are named are shown alone, under these names.
    """
    heads = ("", "program", "CPU time", "beside ours", *errors.values())
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    before = ""
    for run in _benchmark(name)["runs"]:
        if (jobs and run["job"] not in jobs) or run["program"] in left_out:
            continue
        job = jobs.get(run["job"], run["job"])
        cells = (
            job if job != before else "",
            run["program"] + ("" if run["share"] == 1 else f" (1/{1 / run['share']:,.0f} of it)"),
            *_taken(run),
            *(_error(run, key) for key in errors),
        )
        lines.append(f"| {' | '.join(cells)} |")
        before = job
    return "\n".join(lines)


def _taken(run: dict[str, Any]) -> tuple[str, str]:
    """Write CPU time, and how many times ours that is; or why there is nothing."""
    said = "; ".join(str(run[key]) for key in ("failed", "note") if key in run)
    if "cpu_seconds" not in run:
        return said, "–"
    took = seconds(run["cpu_seconds"]["median"]) + (f" ({said})" if said else "")
    return took, ratio(run["ratio"]) if "ratio" in run else "–"


def _error(run: dict[str, Any], key: str) -> str:
    """Write an error, and the one of strong models if it is known."""
    found = [_four_digits(run[name]) for name in (key, f"{key}_of_strong") if name in run]
    return " / ".join(found) or "–"


def _four_digits(figure: float) -> str:
    if 0 < abs(figure) < 5e-4:
        return f"{figure:.0e}"
    return f"{figure:.4f}".removeprefix("0")


def _benchmark(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def big() -> str:
    """Return the table of what is done on disk: with all answers, and with some missing."""
    of = json.loads((ROOT / "benchmarks" / "results" / "big.json").read_text())
    runs = {f"{of['answers']:,}": of}
    if "missing" in of:
        runs[f"{1 - of['missing']['share']:.0%} of them"] = of["missing"]

    def cells(name: str, run: dict[str, Any]) -> dict[str, str]:
        comparison, intervals = run.get("compare_seconds"), run.get("intervals_seconds")
        return {
            "answers": name,
            "on disk": f"{run['store_mb']} MB",
            "read once": f"{run['pass_seconds']:.2f} s",
            "step of the fit": f"{run['step_seconds']:.1f} s",
            "steps": str(run["steps"]),
            "whole fit": f"{run['fit_seconds']} s",
            "compare": "" if comparison is None else f"{comparison:.1f} s",
            "intervals": "" if intervals is None else f"{intervals:.0f} s",
            "peak memory": f"{run['peak_mb']:,} MB",
        }

    rows = [cells(name, run) for name, run in runs.items()]
    # A column that no run has is left out.
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

"""Tables of figures that the validation studies and the benchmarks left as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from evalstats_plugin.tables.means import METHODS
from parts import ROOT, read_study, short

BATTLES = ROOT / "benchmarks" / "ranking.json"
PEERS = ROOT / "benchmarks" / "irt_peers.json"


def coverage() -> str:
    """Return the figures of the validation study on 0/1 scores."""
    study = read_study("intervals")
    names = {**_NAMES, **{m.function.partition(":")[2]: m.name for m in METHODS if not m.options}}
    sizes = (3, 10, 30, 100)
    lines = [
        "| method | " + " | ".join(f"n = {n}" for n in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for method in dict.fromkeys(row["method"] for row in study["binary"]):
        rows = {row["n"]: row for row in study["binary"] if row["method"] == method}
        figures = (
            " / ".join(short(rows[n][what]) for what in ("coverage", "least", "width"))
            for n in sizes
        )
        lines.append(f"| `{names[method]}` | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def partial() -> str:
    """Return the figures on partial credit and on groups: mean and least coverage, mean width."""
    study = read_study("intervals")
    names = {**_NAMES, **{m.function.partition(":")[2]: m.name for m in METHODS if not m.options}}
    lines = ["| what | method | mean coverage | least | mean width |", "|---|---|---|---|---|"]
    for section, what in _SECTIONS.items():
        for method in dict.fromkeys(row["method"] for row in study[section]):
            rows = [row for row in study[section] if row["method"] == method]
            cover = [row["coverage"] for row in rows]
            width = [row["width"] for row in rows if row["width"] is not None]
            name = re.sub(r"[\w.]+(\([\d.]+\))?", lambda m: names.get(m[0], m[0]), method)
            figures = (sum(cover) / len(cover), min(cover), sum(width) / len(width))
            lines.append(f"| {what} | `{name}` | " + " | ".join(map(short, figures)) + " |")
            what = ""  # noqa: PLW2901 - said once per section
    return "\n".join(lines)


def studies() -> str:
    """Return what the other studies found: mean and least coverage, mean width."""
    lines = ["| what | method | mean coverage | least | mean width |", "|---|---|---|---|---|"]
    for (file, section), what in _STUDIES.items():
        study = read_study(file)
        for method in dict.fromkeys(row["method"] for row in study[section]):
            rows = [row for row in study[section] if row["method"] == method]
            cover = [row["coverage"] for row in rows]
            least = min(row.get("least", row["coverage"]) for row in rows)
            width = [w for row in rows if (w := row.get("width", row.get("width_100"))) is not None]
            shown = " | ".join(map(short, (sum(cover) / len(cover), least)))
            mean_width = short(sum(width) / len(width)) if width else "–"
            name = method.replace("_", "-")
            lines.append(f"| {what} | `{name}` | {shown} | {mean_width} |")
            what = ""  # noqa: PLW2901 - said once per section
    return "\n".join(lines)


_STUDIES = {
    ("paired", "paired"): "difference on the same items, 0/1 scores, n = 10 to 100 (exact)",
    ("paired", "unpaired"): "difference on items of their own, 0/1 scores (exact)",
    ("paired", "unpaired_scores"): "the same with partial credit, n = 5 to 50",
    ("clusters", "scores"): "0/1 scores in 2 to 60 clusters, ICC 0 to .5",
    ("clusters", "paired"): "difference of 0/1 scores in 6 to 60 clusters, ICC 0 to .33",
    ("confusion", "f1"): "F1, n = 3 to 300 (exact)",
    ("confusion", "tables"): "MCC, balanced accuracy, macro-F1, n = 10 to 300",
    ("confusion", "paired"): "difference of F1 and of MCC",
    ("epochs", "of_k"): "pass@4, pass^4, maj@3, n = 10 to 100 items, 4 to 16 epochs",
    ("savings", "looks"): "0/1 scores, at all of 100 looks (width at n = 100)",
    ("savings", "control_variate"): "a part of the items, the others' scores known on all",
    ("savings", "prediction_powered"): "20 to 100 human labels, 1,000 items judged",
}

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
        "| `--rule` | τ .9, players far apart | τ .9, near each other | the best right in 90 % |",
        "|---|---|---|---|",
    ]
    runs = {
        (row["rule"], row["sd"]): row
        for row in study["rules"]
        if (row["link"], row["random_share"]) == ("probit", 0.0)
    }
    for rule in dict.fromkeys(rule for rule, _ in runs):
        far, near = runs.get((rule, 3.0)), runs.get((rule, 1.0))
        found = (_asked(far, "tau .9 at"), _asked(near, "tau .9 at"), _asked(far, "best .9 at"))
        lines.append(f"| `{rule}` | {' | '.join(found)} |")
    return "\n".join(lines)


def _asked(run: dict[str, Any] | None, goal: str) -> str:
    if run is None:
        return "–"
    return str(run[goal]) if run[goal] is not None else f"> {run['asked']}"


def tested() -> str:
    """Return the errors of adaptive tests of real models, by the rule that chooses items."""
    sets = {"livebench_binary": "LiveBench", "arc": "ARC"}
    at = (10, 100)
    heads = [f"{shown}, {n} items" for shown in sets.values() for n in at]
    lines = [f"| `--rule` | {' | '.join(heads)} |", "|---" * 5 + "|"]
    found = {
        (name, row["rule"], row["n"]): row
        for name in sets
        for row in read_study(f"adaptive_{name}")[name]
    }
    for rule in dict.fromkeys(rule for _, rule, _ in found):
        cells = [_tested(found.get((name, rule, n))) for name in sets for n in at]
        shown = f"`{rule}`" if rule.isidentifier() or rule.replace("-", "").isalpha() else rule
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _tested(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    off, half = (f"{row[key]:.4f}".lstrip("0") for key in ("score_mae", "score_mae_half_width"))
    return f"{off} ± {half} / {row['rank_correlation']:.3f}".replace(" 0.", " .")


def battles() -> str:
    """Return how programs for Bradley–Terry do on a million battles."""
    lines = [
        "| 1,000,000 battles of 100 models | fit | 1,000 bootstraps | rating off by at most |",
        "|---|---|---|---|",
    ]
    runs = [run for run in json.loads(BATTLES.read_text())["runs"] if run["contests"] == 1_000_000]
    for program in dict.fromkeys(run["program"] for run in runs):
        fits = [run for run in runs if run["program"] == program]
        fit = next(run for run in fits if "bootstrap_samples" not in run)
        many = next((run for run in fits if "bootstrap_samples" in run), None)
        took = "–" if many is None else f"{many['seconds_of_1000']:.1f} s"
        off = f"{fit['largest_difference']:.0e}" if fit["largest_difference"] else "–"
        lines.append(f"| {program} | {fit['seconds']:.3f} s | {took} | {off} |")
    return "\n".join(lines)


def peers() -> str:
    """Return how item response programs do: CPU seconds, MB, log loss, errors of abilities."""
    study = json.loads(PEERS.read_text())
    sizes = list(study["truth"])
    shown = [" × ".join(f"{int(n):,}" for n in size.split("x")) for size in sizes]
    lines = ["| 2PL | " + " | ".join(shown) + " |", "|---|" + "---|" * len(sizes)]
    runs = {(run["program"], run["size"]): run for run in study["runs"]}
    for program in dict.fromkeys(run["program"] for run in study["runs"]):
        found = [_run(runs.get((program, size))) for size in sizes]
        lines.append(f"| {program} | " + " | ".join(found) + " |")
    truth = [_four_digits(study["truth"][size]["log_loss"]) for size in sizes]
    lines.append("| the truth itself | " + " | ".join(f"– / – / {x} / –" for x in truth) + " |")
    lines += [
        f"| {name} | {why}: not run |" + " |" * len(sizes[1:])
        for name, why in study["not_run"].items()
    ]
    return "\n".join(lines)


def _run(run: dict[str, Any] | None) -> str:
    """Write what one fit took and found, or why it found nothing."""
    if run is None:
        return "not run"
    said = "; ".join(str(run[name]) for name in ("note", "failed") if name in run)
    if "seconds" not in run:
        return said
    errors = (_four_digits(run.get(name)) for name in ("log_loss", "rmse_ability"))
    took = f"{run['seconds']:.1f} s / {run['peak_mb']} MB / {' / '.join(errors)}"
    return f"{took} ({said})" if said else took


def _four_digits(figure: float | None) -> str:
    return "–" if figure is None else f"{figure:.4f}".removeprefix("0")


def big() -> str:
    """Return the table of the fit from disk."""
    of = json.loads((ROOT / "benchmarks" / "big.json").read_text())
    cells = {
        "answers": f"{of['answers']:,}",
        "on disk": f"{of['store_mb']} MB",
        "read once": f"{of['pass_seconds']:.2f} s",
        "step of the fit": f"{of['step_seconds']:.1f} s",
        "steps": str(of["steps"]),
        "whole fit": f"{of['fit_seconds']} s",
        "intervals": f"{of['intervals_seconds']:.0f} s",
        "peak memory": f"{of['peak_mb']:,} MB",
    }
    return "\n".join(
        f"| {' | '.join(row)} |" for row in (cells, ["---"] * len(cells), cells.values())
    )


def rivals() -> str:
    """Return the table of programs for intervals and comparisons."""
    runs = json.loads((ROOT / "benchmarks" / "comparison_peers.json").read_text())["runs"]
    jobs = {
        "leaderboard": "3,000 intervals, 73,500 pairs",
        "clustered": "40 posteriors of 500 clusters",
    }
    lines = ["| | program | CPU time | peak memory | done | error |", "|---|---|---|---|---|---|"]
    for run in runs:
        if "seconds" not in run:
            lines.append(f"| {jobs[run['job']]} | {run['program']} | {run['failed']} | | | |")
            continue
        errors = {
            "interval_score": "interval score {:.4f}",
            "brier": "Brier {:.4f}",
            "largest_error": "limits off by {:.0e}",
        }
        said = ", ".join(text.format(run[key]) for key, text in errors.items() if key in run)
        lines.append(
            f"| {jobs[run['job']]} | {run['program']} | {_seconds(run['seconds'])} s | "
            f"{run['peak_mb']:,} MB | {run['done']} of {60 if run['job'] == 'leaderboard' else 40} "
            f"| {said or '–'} |"
        )
    return "\n".join(lines)


def _seconds(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:.2g}"

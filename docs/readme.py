"""Writes the parts of README.md that are output of the program, or checks that they are.

``python docs/readme.py`` rewrites them, ``python docs/readme.py --check`` fails if they differ.
A part lies between ``<!-- name -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evalstats_plugin import hookspecs
from evalstats_plugin.methods import Method
from evalstats_plugin.tables.clustered import CLUSTERED
from evalstats_plugin.tables.comparisons import COMPARISONS
from evalstats_plugin.tables.composites import COMPOSITE_COMPARISONS, COMPOSITES
from evalstats_plugin.tables.means import DEFAULTS, METHODS
from evalstats_plugin.tables.sequential import SEQUENTIAL
from evalstats_plugin.tables.unpaired import UNPAIRED

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BENCHMARKS = ROOT / "benchmarks" / "figures.json"
BATTLES = ROOT / "benchmarks" / "ranking.json"
PEERS = ROOT / "benchmarks" / "irt_peers.json"
_PART = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)
# Sessions that show posterior draws.
_DRAWN = re.compile(r"<!-- (ranked|hierarchical) -->\n(.*?)<!-- end -->", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?")
_QUOTE = re.compile(r"<!-- quote ([\w.]+) -->.*?<!-- /quote -->")
_FINDINGS = re.compile(
    r"<!-- study (many_models|abilities|ranking|hierarchical)\.(\w+) -->.*?<!-- /study -->"
)


def methods() -> str:
    """Return the table of methods, defaults marked."""
    defaults = {name: kind for kind, (name, _) in DEFAULTS.items()}
    lines = ["| `--method` | for scores that are | what it is | source |", "|---|---|---|---|"]
    for m in METHODS:
        default = f" (default for {defaults[m.name]} scores)" if m.name in defaults else ""
        lines.append(f"| `{m.name}`{default} | {m.family} | {m.summary} | {m.source} |")
    return "\n".join(lines)


def clustered() -> str:
    """Return the table of methods for items in clusters."""
    return _plain(CLUSTERED)


def comparisons() -> str:
    """Return the table of methods for comparisons."""
    return _plain(COMPARISONS)


def composites() -> str:
    """Return the table of methods for metrics that are not means."""
    return _plain((*COMPOSITES, *COMPOSITE_COMPARISONS))


def independent() -> str:
    """Return the table of methods for models on items of their own."""
    return _plain(UNPAIRED)


def sequences() -> str:
    """Return the table of methods that stay valid at every look."""
    return _plain(SEQUENTIAL)


def _plain(table: Sequence[Method]) -> str:
    lines = ["| `--method` | for scores that are | what it is | source |", "|---|---|---|---|"]
    lines += [f"| `{m.name}` | {m.family} | {m.summary} | {m.source} |" for m in table]
    return "\n".join(lines)


def compared() -> str:
    """Return what a comparison of the bundled models looks like at 80 columns."""
    logs = "fixtures/logs/lm_eval/0.4.13/out"
    return _session("compare", logs, "-t", "es_mc", "-m", "acc", "--baseline", "models/m1")


def planned() -> str:
    """Return what a plan looks like at 80 columns."""
    logs = "fixtures/logs/lm_eval/0.4.13/out"
    return _session("power", logs, "-t", "es_mc", "-m", "acc", "--difference", "0.05")


def abilities() -> str:
    """Return what abilities look like at 80 columns."""
    logs = "fixtures/logs/inspect_ai/0.3.285/models"
    return _session("irt", logs, "-t", "arith", "--item-model", "rasch")


def hierarchical() -> str:
    """Return what scores that borrow from each other look like at 80 columns."""
    logs = "fixtures/logs/inspect_ai/0.3.285/models"
    tasks = ("-t", "arith", "-t", "arith_epochs", "-t", "graded", "-m", "match")
    return _session("report", logs, *tasks, "--model", "hierarchical")


def ranked() -> str:
    """Return what a ranking from judged comparisons looks like at 80 columns."""
    return _session("rank", "stats", "fixtures/logs/inspect_ai/0.3.285/pairwise")


def asked() -> str:
    """Return how many comparisons a ranking of 20 takes, by the rule that chooses them."""
    study = json.loads((ROOT / "fixtures" / "validation" / "ranking_acquisition.json").read_text())
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


def why() -> str:
    """Return why each default is the default."""
    return "\n".join(f"- {kind}: `{name}`, because {why}" for kind, (name, why) in DEFAULTS.items())


def hooks() -> str:
    """Return every hook with its exact signature and what it is for."""
    lines: list[str] = []
    for name, function in vars(hookspecs).items():
        if name.startswith("evalstats_"):
            arguments = ", ".join(inspect.signature(function).parameters)
            summary = (function.__doc__ or "").splitlines()[0]
            lines.append(f"- `{name}({arguments})`: {summary[0].lower()}{summary[1:]}")
    return "\n".join(lines)


def report() -> str:
    """Return what the report of one bundled log looks like at 80 columns."""
    logs = "fixtures/logs/lm_eval/0.4.13/out/models__m2"
    return _session(
        "report", logs, "-t", "es_group", "-t", "es_one", "-t", "es_bin", "-t", "es_gen"
    )


def _session(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "evalstats_plugin", *arguments],
        capture_output=True, text=True, check=True, cwd=ROOT, env={"COLUMNS": "80"},
    )  # fmt: skip
    shown = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    return f"```console\n$ evalstats-plugin {' '.join(arguments)}\n{shown}\n```"


def coverage() -> str:
    """Return the figures of the validation study on 0/1 scores."""
    study = json.loads((ROOT / "fixtures" / "validation" / "intervals.json").read_text())
    names = {**_NAMES, **{m.function.partition(":")[2]: m.name for m in METHODS if not m.options}}
    sizes = (3, 10, 30, 100)
    lines = [
        "| method | " + " | ".join(f"n = {n}" for n in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for method in dict.fromkeys(row["method"] for row in study["binary"]):
        rows = {row["n"]: row for row in study["binary"] if row["method"] == method}
        figures = (
            " / ".join(_short(rows[n][what]) for what in ("coverage", "least", "width"))
            for n in sizes
        )
        lines.append(f"| `{names[method]}` | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def partial() -> str:
    """Return the figures on partial credit and on groups: mean and least coverage, mean width."""
    study = json.loads((ROOT / "fixtures" / "validation" / "intervals.json").read_text())
    names = {**_NAMES, **{m.function.partition(":")[2]: m.name for m in METHODS if not m.options}}
    lines = ["| what | method | mean coverage | least | mean width |", "|---|---|---|---|---|"]
    for section, what in _SECTIONS.items():
        for method in dict.fromkeys(row["method"] for row in study[section]):
            rows = [row for row in study[section] if row["method"] == method]
            cover = [row["coverage"] for row in rows]
            width = [row["width"] for row in rows if row["width"] is not None]
            name = re.sub(r"[\w.]+(\([\d.]+\))?", lambda m: names.get(m[0], m[0]), method)
            figures = (sum(cover) / len(cover), min(cover), sum(width) / len(width))
            lines.append(f"| {what} | `{name}` | " + " | ".join(map(_short, figures)) + " |")
            what = ""  # noqa: PLW2901 - said once per section
    return "\n".join(lines)


def studies() -> str:
    """Return what the other studies found: mean and least coverage, mean width."""
    lines = ["| what | method | mean coverage | least | mean width |", "|---|---|---|---|---|"]
    for (file, section), what in _STUDIES.items():
        study = json.loads((ROOT / "fixtures" / "validation" / f"{file}.json").read_text())
        for method in dict.fromkeys(row["method"] for row in study[section]):
            rows = [row for row in study[section] if row["method"] == method]
            cover = [row["coverage"] for row in rows]
            least = min(row.get("least", row["coverage"]) for row in rows)
            width = [w for row in rows if (w := row.get("width", row.get("width_100"))) is not None]
            shown = " | ".join(map(_short, (sum(cover) / len(cover), least)))
            mean_width = _short(sum(width) / len(width)) if width else "–"
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


def _figure(figure: float) -> str:
    """Write two digits, or all of a larger whole number."""
    return f"{figure:.2g}" if figure < 100 else f"{figure:.0f}"


def _short(figure: float) -> str:
    return f"{figure:.3f}".removeprefix("0")


def rendered(text: str) -> str:
    """Return README with every part as the program gives it now."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{globals()[name]()}\n<!-- end -->"

    figures = json.loads(BENCHMARKS.read_text())

    def quote(match: re.Match[str]) -> str:
        section, _, name = match.group(1).partition(".")
        return f"<!-- quote {match.group(1)} -->{_figure(figures[section][name])}<!-- /quote -->"

    return _FINDINGS.sub(_finding, _QUOTE.sub(quote, _PART.sub(replace, text)))


def _finding(match: re.Match[str]) -> str:
    """Return a figure of a study that a sentence quotes."""
    study, name = match.groups()
    findings = {
        "many_models": _false_findings,
        "abilities": _coverage_of_abilities,
        "ranking": _about_rankings,
        "hierarchical": _about_pooling,
    }
    found = findings[study](name)
    return f"<!-- study {study}.{name} -->{found}<!-- /study -->"


def _false_findings(correction: str) -> str:
    """Return in how many of 100 evals of equal models a correction lets a false finding through."""
    study = json.loads((ROOT / "fixtures" / "validation" / "many_models.json").read_text())
    (row,) = (
        row
        for row in study["findings"]
        if (row["abilities"], row["models"], row["items"], row["correction"])
        == ("one_level", 10, 100, correction)
    )
    return f"{100 * row['family_wise_error']:.0f}"


def _coverage_of_abilities(name: str) -> str:
    """Return the least coverage of joint maximum likelihood, or the range of the default."""
    study = json.loads((ROOT / "fixtures" / "validation" / "abilities.json").read_text())
    method = "mml-items 2pl" if name == "default" else name
    cover = [
        row[what]
        for row in study["abilities"]
        for what in ("coverage", "coverage_of_differences")
        if row["method"] == method
    ]
    least, most = _short(min(cover)), _short(max(cover))
    return f"{least} to {most}" if name == "default" else least


def _about_rankings(name: str) -> str:
    """Return coverage from discordant pairs, or how many rankings were simulated."""
    folder = ROOT / "fixtures" / "validation"
    if name == "runs":
        study = json.loads((folder / "ranking_acquisition.json").read_text())
        (runs,) = {row["runs"] for row in study["rules"]}
        return str(runs)
    covariance = {"naive": "model", "clustered": "cluster"}[name]
    study = json.loads((folder / "ranking_discordant.json").read_text())
    (row,) = (
        row
        for row in study["rows"]
        if (row["items"], row["ties"], row["covariance"]) == (200, "drop", covariance)
    )
    return _short(row["coverage"])


def _about_pooling(name: str) -> str:
    """Return coverage and width of pooled contrasts, or what the engines did."""
    folder = ROOT / "fixtures" / "validation"
    if name in ("seconds", "ess"):
        study = json.loads((folder / "hierarchical_crossed.json").read_text())["reference"]
        figure = study["cpu_seconds"] if name == "seconds" else min(study["least_ess"].values())
        return f"{figure:.0f}"
    if name in ("evidence", "global"):
        study = json.loads((folder / "hierarchical_engine.json").read_text())["nested"]
        errors = [abs(row["error"]) for row in study["qem"] if row["k"] == 30]
        return _figure(max(errors) if name == "evidence" else abs(study["global_10000_error"]))
    study = json.loads((folder / "hierarchical_coverage.json").read_text())
    rows = {(row["intervals"], row["contrast"]): row for row in study["rows"]}
    contrast, _, what = name.partition("_")
    pooled, alone = rows["pooled", contrast], rows["per-task", contrast]
    if what == "coverage":
        return _short(pooled["coverage"])
    return f"{100 * (1 - pooled['width'] / alone['width']):.0f}"


def _same(text: str, new: str) -> bool:
    """Whether README is up to date: to the letter, where draws of chains are shown nearly.

    Another processor rounds otherwise, and a chain that rounds otherwise ends elsewhere.
    """
    found, expected = (dict(_DRAWN.findall(one)) for one in (text, new))
    rest = [_DRAWN.sub("", one) for one in (text, new)]
    return rest[0] == rest[1] and all(_near(found[name], expected[name]) for name in expected)


def _near(found: str, expected: str) -> bool:
    """Whether two sessions say the same, numbers to a tenth or a unit."""
    words = [_NUMBER.sub("#", " ".join(one.split())).replace("-", " ") for one in (found, expected)]
    if " ".join(words[0].split()) != " ".join(words[1].split()):
        return False
    numbers = [[float(x) for x in _NUMBER.findall(one)] for one in (found, expected)]
    return all(abs(a - b) <= max(1.0, 0.1 * abs(b)) for a, b in zip(*numbers, strict=True))


def main() -> None:
    """Rewrite or check."""
    text = README.read_text()
    new = rendered(text)
    if "--check" not in sys.argv:
        README.write_text(new)
    elif not _same(text, new):
        sys.exit("README.md differs from what the program gives: run `python docs/readme.py`")


if __name__ == "__main__":
    main()

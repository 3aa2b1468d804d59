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

from evalstats_plugin import hookspecs
from evalstats_plugin.analyses.comparison_methods import COMPARISONS
from evalstats_plugin.methods import CLUSTERED, DEFAULTS, METHODS, Method

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BENCHMARKS = ROOT / "benchmarks" / "figures.json"
_PART = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)
_QUOTE = re.compile(r"<!-- quote ([\w.]+) -->.*?<!-- /quote -->")


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


def _plain(table: Sequence[Method]) -> str:
    lines = ["| `--method` | for scores that are | what it is | source |", "|---|---|---|---|"]
    lines += [f"| `{m.name}` | {m.family} | {m.summary} | {m.source} |" for m in table]
    return "\n".join(lines)


def compared() -> str:
    """Return what a comparison of the bundled models looks like at 80 columns."""
    logs = "fixtures/logs/lm_eval/0.4.13/out"
    return _session("compare", logs, "-t", "es_mc", "-m", "acc", "--baseline", "models/m1")


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

    return _QUOTE.sub(quote, _PART.sub(replace, text))


def main() -> None:
    """Rewrite or check."""
    text = README.read_text()
    new = rendered(text)
    if "--check" not in sys.argv:
        README.write_text(new)
    elif new != text:
        sys.exit("README.md differs from what the program gives: run `python docs/readme.py`")


if __name__ == "__main__":
    main()

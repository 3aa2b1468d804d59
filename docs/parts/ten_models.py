"""Ten models of the Stan user's guide in four languages: lines of each, and speed of two samplers.

`benchmarks/nuts_peers.py` times them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType

from parts import ROOT

FOLDER = ROOT / "docs" / "ten_models"
FILES: Mapping[str, str] = MappingProxyType(
    {"plated": "plated.py", "NumPyro": "numpyro_models.py", "brms": "brms.R"}
)
FORMULAS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "Linear regression": ("score ~ size", "gaussian"),
        "Hierarchical logistic regression": ("score ~ size + (1 | task)", "bernoulli"),
        "Item response, one parameter": ("score ~ (1 | model) + (1 | task:item)", "bernoulli"),
        "Correlated effects of groups": ("score ~ model + (model | task)", "gaussian"),
    }
)
"""Formulas of `pool`, with their families, where its grammar has the model."""

SHOWN = ("Hierarchical logistic regression", "Change point")
"""Models whose code is on the page."""


def sections(language: str) -> dict[str, str]:
    """Return the code of each model; imports stand before the first."""
    parts = re.split(r"^# (.+)\n", (FOLDER / FILES[language]).read_text(), flags=re.MULTILINE)
    # A file in R begins with a comment that is no model's name.
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {name: code.strip() for name, code in found.items() if not name.endswith(".")}


def imports(language: str) -> str:
    """Return what stands before the first model."""
    return re.split(r"^# .+\n", (FOLDER / FILES[language]).read_text(), flags=re.MULTILINE)[0]


def lines(code: str) -> int:
    """Count lines that are neither blank nor a comment."""
    return sum(bool(x.strip()) and not x.lstrip().startswith("#") for x in code.splitlines())


def ten_models() -> str:
    """Return the table of lines."""
    by_language = {language: sections(language) for language in FILES}
    rows = ["| model | formula of `pool` | plated | NumPyro | brms |", "|---|---|--:|--:|--:|"]
    totals = dict.fromkeys(FILES, 0)
    for name in by_language["plated"]:
        formula = " ".join(FORMULAS.get(name, ("", ""))[:1])
        counts = {x: lines(by_language[x][name]) if name in by_language[x] else None for x in FILES}
        for language, count in counts.items():
            totals[language] += count or 0
        numbers = " | ".join("–" if x is None else str(x) for x in counts.values())
        escaped = formula.replace("|", "\\|")
        rows.append(f"| {name} | {f'`{escaped}`' if formula else '–'} | {numbers} |")
    rows.append(f"| all | | {' | '.join(str(x) for x in totals.values())} |")
    return "\n".join(rows)


def sampled() -> dict[str, dict[str, float]]:
    """Return each model's effective draws for a CPU second: "plated", and the faster "NumPyro"."""
    path = ROOT / "benchmarks" / "results" / "nuts_peers.json"
    speeds: dict[str, dict[str, float]] = {}
    for row in json.loads(path.read_text())["runs"]:
        of_model = speeds.setdefault(row["job"], {})
        name = "NumPyro" if row["program"].startswith("NumPyro") else "plated"
        of_model[name] = max(of_model.get(name, 0.0), row["ess_per_second"])
    return speeds


def ten_sampled() -> str:
    """Return the table of speeds."""
    rows = ["| model | plated | NumPyro | ratio |", "|---|--:|--:|--:|"]
    for name, speed in sampled().items():
        plated, theirs = speed["plated"], speed["NumPyro"]
        rows.append(f"| {name} | {plated:,.0f} | {theirs:,.0f} | {plated / theirs:.1f} |")
    return "\n".join(rows)


def ten_plated() -> str:
    """Return the code on plates of two models, as it is run by a test."""
    plated = sections("plated")
    return "\n\n".join(f"```python\n# {name}\n{plated[name]}\n```" for name in SHOWN)

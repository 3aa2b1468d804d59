"""What MkDocs does not do by itself: first page, links of sources, MathML, words of searches.

Nothing of it needs a script when a page is read. GitHub, which shows the same pages, renders the
formulas itself and leaves the keys as text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

import evalstats_plugin

README = Path(__file__).parents[2] / "README.md"

_KEY = re.compile(r"\[((?:vd)?[A-Z][A-Za-z]*\d\d[a-z]?)\]_?(?!\()")
_ADJACENT = re.compile(r"(\[(?:vd)?[A-Z][A-Za-z]*\d\d[a-z]?\])\s(?=\[(?:vd)?[A-Z])")
REFERENCES = "reference/references"
PYTHON = "reference/python"
_ENTRY = re.compile(r"^- \[((?:vd)?[A-Z][A-Za-z]*\d\d[a-z]?)\] ", re.MULTILINE)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_TEXT = re.compile(r"<(pre|code|script|style|a)\b.*?</\1>|<[^>]*>", re.DOTALL)

_SEARCHED: dict[str, tuple[str, ...]] = {
    "start/install": ("Jupyter", "Colab", "Python 3.14", "Docker", "pip", "conda"),
    "start/lm-eval": ("MMLU", "GSM8K", "lm-evaluation-harness", "EleutherAI"),
    "start/inspect": ("UK AISI", "inspect_ai", "eval log", "viewer"),
    "start/table": ("CSV", "pandas", "polars", "DataFrame", "Excel", "Parquet", "Jupyter"),
    "start/compare": ("significance", "p-value", "A/B test", "better"),
    "start/paper": ("LaTeX table", "paper", "MMLU"),
    "start/arena": ("Chatbot Arena", "LMArena", "votes", "Elo"),
    "guides/report": ("error bars", "confidence interval", "standard error", "prompt", "language"),
    "guides/clusters": (
        "clustered standard errors", "passages", "design effect", "ICC", "missing answers",
        "errors", "timeouts", "refusals", "unanswered",
    ),
    "guides/epochs": ("pass@k", "maj@k", "self-consistency", "temperature", "seeds", "variance"),
    "guides/partial-credit": (
        "judge scores", "rubric", "Likert", "continuous", "F1", "BLEU", "ROUGE", "AUC",
        "perplexity", "MCC",
    ),
    "guides/many-models": ("multiple comparisons", "Bonferroni", "significance", "p-value"),
    "guides/power": (
        "sample size", "how many questions", "minimum detectable effect", "early stopping",
        "peeking",
    ),
    "guides/gate": ("GitHub Actions", "CI", "regression test", "release", "badge", "pull request"),
    "guides/leaderboard": ("leaderboard", "LaTeX table", "paper", "ranking of models", "MMLU"),
    "guides/rankings": ("Elo", "Bradley-Terry", "Chatbot Arena", "LMArena", "AlpacaEval"),
    "guides/judges": ("LLM judge", "LLM as a judge", "human labels", "annotators", "kappa"),
    "guides/abilities": ("item response theory", "IRT", "contamination", "label errors", "2PL"),
    "guides/adaptive": ("fewer items", "computerized adaptive testing", "CAT", "cheaper evals"),
    "guides/hierarchical": ("multilevel model", "mixed effects", "partial pooling", "Bayesian"),
    "guides/annotate": (
        "viewer", "write back", "metadata", "W&B", "wandb", "Weights & Biases", "MLflow",
        "Every Eval Ever",
    ),
    "reference/models": ("Stan", "PyMC", "NumPyro", "brms", "MCMC", "probabilistic programming"),
    "reference/big": ("GPU", "CUDA", "cluster", "Slurm", "memory", "Dask"),
    "explanation/methods": ("McNemar", "bootstrap", "Wilson", "formula"),
    "reference/errors": ("exit code", "traceback"),
}  # fmt: skip
"""Words that people search for, by page."""
_LISTS = ("explanation/proof", "reference/commands", "reference/python", "reference/references",
          "reference/speed")  # fmt: skip
"""Pages that name everything: others come before them."""
_MODULES = {
    "scores": "Scores",
    "comparisons": "Comparisons",
    "irt": "Item response theory",
    "hierarchical": "Hierarchical models",
    "ranking": "Rankings",
    "adaptive": "Adaptive tests",
    "data": "Data",
    "logs": "Logs",
    "report": "Reports",
}
"""Modules whose public names the page of Python explains, with their headings there."""


def on_files(files: Files, config: Any) -> Files:
    """Make the first page of README, whose links begin at the root, and a page of each notebook."""
    text = README.read_text().replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    for path in sorted((README.parent / "docs" / "notebooks").glob("*.ipynb")):
        page = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, page, content=notebook_page(path)))
    return files


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown: its texts, code, tables and figures."""
    parts: list[str] = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            text = output.get("text") or data.get("text/plain", "")
            if "image/png" in data:
                picture = "".join(data["image/png"].split())
                parts.append(f'<img alt="Figure" src="data:image/png;base64,{picture}">')
            elif "text/html" in data:
                parts.append(re.sub(r"\n\s*", "", data["text/html"]))
            elif text:
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """Give every entry of the references an anchor; keep two keys from being read as a link.

    Links to notebooks lead to their pages, and the search learns a page's words.
    """
    name = page.file.src_uri.removesuffix(".md")
    page.meta["tags"] = list(_SEARCHED.get(name, ()))
    page.meta["search"] = {"boost": 0.1 if name in _LISTS else 1}
    markdown = markdown.replace(".ipynb)", ".md)")
    if name == PYTHON:
        markdown += public_names()
    if page.file.src_uri == f"{REFERENCES}.md":
        return _ENTRY.sub(r'- <a id="\1"></a><b>\1</b> ', markdown)
    return _ADJACENT.sub(r"\1&#32;", markdown)


def public_names() -> str:
    """Return where mkdocstrings is to put each public name, once, under its module."""
    package = evalstats_plugin.__name__
    first = [name for name in evalstats_plugin.__all__ if name not in _MODULES and name[0] != "_"]
    parts = [f"\n## {package}", *(f"::: {package}.{name}" for name in first)]
    for module, title in _MODULES.items():
        names = getattr(evalstats_plugin, module).__all__
        parts.append(f"## {title}")
        parts += [f"::: {package}.{module}.{name}" for name in names if name not in first]
    return "\n\n".join(parts)


def on_page_content(html: str, page: Any, **_others: Any) -> str:
    """Write formulas as MathML, and link the keys of sources to the references."""
    made = _FORMULA.sub(_mathml, html)
    if page.file.src_uri == f"{REFERENCES}.md":
        return made
    up = "../" * page.file.src_uri.count("/")
    link = rf'[<a href="{up}{REFERENCES}.html#\1">\1</a>]'
    return _outside_of_code(made, lambda text: _KEY.sub(link, text))


def _mathml(match: re.Match[str]) -> str:
    formula = html.unescape(match[2]).strip()
    display = "block" if match[1] == "div" else "inline"
    return convert(formula.removeprefix("\\(").removeprefix("\\[")[: -len("\\)")], display=display)


def _outside_of_code(page: str, change: Callable[[str], str]) -> str:
    """Change the text of a page, and neither its tags nor its code nor its links."""
    parts: list[str] = []
    end = 0
    for tag in _TEXT.finditer(page):
        parts += [change(page[end : tag.start()]), tag[0]]
        end = tag.end()
    return "".join([*parts, change(page[end:])])

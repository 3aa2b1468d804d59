"""The site builds without a warning, its links lead somewhere, and it needs no network."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from inspect import ismodule
from pathlib import Path

import pytest
from click.testing import CliRunner
from mkdocs.__main__ import cli

# For other languages than English lunr would load it, and with it SciPy's and scikit-learn's all.
_nltk, sys.modules["nltk"] = sys.modules.get("nltk"), None  # type: ignore[assignment]
from lunr import lunr  # noqa: E402

if _nltk is None:
    del sys.modules["nltk"]
else:
    sys.modules["nltk"] = _nltk

ROOT = Path(__file__).parents[2]

QUERIES = {
    "mmlu": "guides/leaderboard,start/lm-eval,start/table",
    "jupyter": "start/install,notebooks/paper-table,faq",
    "polars": "start/table",
    "pandas dataframe": "start/table",
    "wandb": "guides/annotate,faq",
    "weights & biases": "guides/annotate,faq",
    "github actions": "guides/gate",
    "ci release gate": "guides/gate",
    "pass@k": "guides/epochs",
    "maj@k": "guides/epochs",
    "significance": "start/compare,guides/many-models",
    "p-value": "start/compare,explanation/methods,guides/many-models",
    "error bars": "guides/report,explanation/words,faq",
    "standard error": "explanation/methods,explanation/words,guides/clusters",
    "confidence interval": "explanation/methods,guides/report,explanation/choosing",
    "leaderboard": "guides/leaderboard",
    "latex table": "start/paper,guides/leaderboard",
    "paper": "start/paper,guides/leaderboard",
    "elo": "start/arena,guides/rankings",
    "bradley-terry": "guides/rankings",
    "chatbot arena": "start/arena,guides/rankings",
    "llm judge": "guides/judges",
    "human labels": "guides/judges",
    "item response theory": "guides/abilities",
    "irt difficulty": "guides/abilities",
    "adaptive testing": "guides/adaptive",
    "fewer items": "guides/adaptive",
    "sample size": "guides/power",
    "how many questions": "guides/power",
    "clustered standard errors": "guides/clusters",
    "missing answers": "guides/clusters",
    "temperature": "guides/report,guides/epochs",
    "bootstrap": "explanation/methods",
    "mcnemar": "explanation/methods",
    "f1": "guides/partial-credit",
    "bleu": "guides/partial-credit",
    "inspect viewer": "start/inspect,guides/annotate",
    "lm-eval": "start/lm-eval",
    "promptfoo": "reference/formats",
    "gpu": "reference/big,reference/speed",
    "python 3.14": "start/install",
    "exit code": "reference/errors",
    "plugin": "reference/plugins",
    "hierarchical model": "guides/hierarchical,reference/models",
    "multiple comparisons": "guides/many-models,explanation/methods",
    "contamination": "guides/abilities,faq",
    "zero width interval": "gallery/small-evals,index,faq,explanation/methods",
    "noise between runs": "guides/epochs,explanation/methods,reference/commands",
    "which items are broken": "guides/abilities,notebooks/abilities",
    "label next": "guides/judges",
    "strip annotation": "guides/annotate,start/inspect,start/lm-eval",
    "non-inferiority margin": "guides/gate,explanation/methods",
    "ties in votes": "guides/rankings",
    "prior sensitivity": "guides/hierarchical,reference/models",
    "toml mapping": "reference/formats",
    "slices by language": "guides/report,guides/gate",
}
"""What people search for, and the pages of which one should be among the first five."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, strictly: a link or an anchor that is not there is an error."""
    folder = tmp_path_factory.mktemp("site")
    config = ROOT / "docs" / "site" / "mkdocs.yml"
    # In this process, which has imported most of what it needs.
    arguments = ["build", "--quiet", "-f", str(config), "--site-dir", str(folder)]
    done = CliRunner(env={"NO_MKDOCS_2_WARNING": "1"}).invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return folder


def test_every_page_is_built(site: Path) -> None:
    """README is the first one."""
    docs = ROOT / "docs"
    sources = (*docs.rglob("*.md"), *docs.rglob("*.ipynb"))
    pages = {page.relative_to(docs).with_suffix("") for page in sources}

    built = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    assert {Path("index"), *pages} <= built
    notebook = (site / "notebooks" / "two-models.html").read_text()
    assert "<td>models/m2</td>" in notebook
    assert '<img alt="Figure" src="data:image/png;base64,' in notebook
    assert "mean ± z standard errors" in (site / "index.html").read_text()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Neither fonts nor scripts, pictures or style."""
    outside = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"(?:https?:)?//|<link[^>]+rel=\"(?:stylesheet|preconnect|icon)\"[^>]+href=\"(?:https?:)?//|@import|url\(['\"]?https?:"
    )  # fmt: skip
    found = {
        page.name: outside.findall(page.read_text())
        for page in (*site.rglob("*.html"), *site.rglob("*.css"))
    }

    assert len(found) > 20
    assert {} == {name: what for name, what in found.items() if what}


@pytest.mark.needs("playwright")
def test_search_works_from_the_disk(site: Path, program: Callable[[str], str]) -> None:
    """Without a server, where browsers start no worker."""
    browser = program("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=browser, args=["--no-sandbox", "--disable-gpu"]
        )
        page = chromium.new_page()
        page.goto((site / "start" / "table.html").as_uri())
        page.click("input.md-search__input")
        page.type("input.md-search__input", "LaTeX")
        found = page.wait_for_selector(".md-search-result__link", state="attached", timeout=20_000)
        assert found is not None
        links = page.eval_on_selector_all(".md-search-result__link", "all => all.map(a => a.href)")
        chromium.close()

    assert any("guides/leaderboard.html" in link for link in links)


def test_formulas_need_no_script(site: Path) -> None:
    """They are MathML; nothing of their source is left in the text."""
    methods = (site / "explanation" / "methods.html").read_text()

    assert methods.count("<math") > 20
    assert "\\(" not in methods
    assert "arithmatex" not in methods


def test_keys_of_sources_are_links(site: Path) -> None:
    """On pages and in what docstrings say, adjacent ones too."""
    keys = {"explanation/methods": "CP34", "guides/hierarchical": "GTT25", "reference/python": ""}
    for name, key in keys.items():
        page = re.sub(
            r"<(pre|code)\b.*?</\1>", "", (site / f"{name}.html").read_text(), flags=re.DOTALL
        )
        assert not key or f'reference/references.html#{key}"' in page
        assert [] == re.findall(r"\[(?:vd)?[A-Z][A-Za-z]*\d\d[a-z]?\]", page)
    assert 'id="BHA24"' in (site / "reference" / "references.html").read_text()


def test_every_public_name_is_explained(site: Path) -> None:
    """From its docstring, under its own anchor."""
    import evalstats_plugin

    page = (site / "reference" / "python.html").read_text()
    top = [name for name in evalstats_plugin.__all__ if not name.startswith("_")]
    modules = {name: getattr(evalstats_plugin, name) for name in top}
    modules = {name: module for name, module in modules.items() if ismodule(module)}
    wanted = [name for name in top if name not in modules]
    for package, module in modules.items():
        wanted += [f"{package}.{name}" for name in module.__all__ if name not in top]
    missing = [name for name in wanted if f'id="evalstats_plugin.{name}"' not in page]

    assert len(modules) > 8
    assert missing == []


def test_search_finds_the_page(site: Path) -> None:
    """With the weights of the pages' own search: tags before titles before texts."""
    sections = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    documents = [
        ({**section, "tags": " ".join(section.get("tags", ()))}, {"boost": section["boost"]})
        for section in sections
    ]
    weights = {"tags": 1e6, "title": 1e3, "text": 1}
    fields = [{"field_name": name, "boost": weight} for name, weight in weights.items()]
    index = lunr(ref="location", fields=fields, documents=documents)
    for query, wanted in QUERIES.items():
        hits = (hit["ref"].partition("#")[0] for hit in index.search(query))
        pages = [page.removesuffix(".html") for page in dict.fromkeys(hits)]

        assert {*wanted.split(",")} & {*pages[:5]}, (query, pages[:5])
    assert len(QUERIES) > 40

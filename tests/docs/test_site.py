"""The site builds without a warning, its links lead somewhere, and it needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from inspect import ismodule
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, strictly: a link or an anchor that is not there is an error."""
    folder = tmp_path_factory.mktemp("site")
    config = ROOT / "docs" / "site" / "mkdocs.yml"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", config, "--site-dir", folder],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
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
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
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
    missing = [
        name
        for name in evalstats_plugin.__all__
        if not name.startswith("_")
        and not ismodule(getattr(evalstats_plugin, name))
        and f'id="evalstats_plugin.{name}"' not in page
    ]

    assert missing == []

"""What MkDocs does not do by itself: the first page, keys of sources as links, formulas as MathML.

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

README = Path(__file__).parents[2] / "README.md"

_KEY = re.compile(r"\[((?:vd)?[A-Z][A-Za-z]*\d\d[a-z]?)\]_?(?!\()")
_ADJACENT = re.compile(r"(\[(?:vd)?[A-Z][A-Za-z]*\d\d[a-z]?\])\s(?=\[(?:vd)?[A-Z])")
REFERENCES = "reference/references"
_ENTRY = re.compile(r"^- \[((?:vd)?[A-Z][A-Za-z]*\d\d[a-z]?)\] ", re.MULTILINE)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_TEXT = re.compile(r"<(pre|code|script|style|a)\b.*?</\1>|<[^>]*>", re.DOTALL)


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

    Links to notebooks lead to their pages.
    """
    markdown = markdown.replace(".ipynb)", ".md)")
    if page.file.src_uri == f"{REFERENCES}.md":
        return _ENTRY.sub(r'- <a id="\1"></a><b>\1</b> ', markdown)
    return _ADJACENT.sub(r"\1&#32;", markdown)


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

"""Names, docstrings, messages and pages use the field's words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "evalstats_plugin").rglob("*.py"), *(ROOT / "adapters").rglob("*.py")])
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WORDS = {
    "foretold, foretell": "predicted",
    "lest": "so that … not",
    "abler, as able": "more able, of equal ability",
    "for want of": "because there is no",
    "whoever": "the reader's role, such as 'callback'",
    "met with": "found",
    "for ever": "without end",
    "for certain": "the level, such as '95 % simultaneous'",
    "take(s), takes of": "epoch(s)",
    "nowhere else": "only here",
    "hitherto, thereof, wherein, thereby": "plain words",
    "of random numbers.": "Random seed.",
    "…, of which some": "a sentence of its own, 'whose', or 'some of them'",
    "as far as it got": "what there is, such as 'the items that it finished'",
    "is none": "what it is not, such as 'is not a number'",
    "what … makes of it": "the verb, such as 'moves'",
}
"""What is not written, and what to write instead."""
BANNED = re.compile(
    r"\b(foret\w+|lest|abler|as able|for want of|whoever|met with|for ever|for certain"
    r"|(?:one|two|each|single|every|more|several|[2-9]|k|the same) takes?"
    r"(?! part| time| a| one| the)"
    r"|takes? of (?:an|one|the same) items?|take\(s\)|hitherto|thereof|wherein|thereby)\b"
    r"|take\(s\)|^Of (?:random numbers|draws|the intervals)\b"
    # "Each of which" and "the last of which" are plain; so is "if there is none".
    r"|(?<!\b(?:each|none|both|last|pair|some|most) )(?<!\b(?:all|two|one) )of (?:which|whom)\b"
    r"|as far as (?:it|they) (?:got|go(?:es)?)"
    r"|(?<!there )(?:is|are) (?-i:none)\b(?! of (?:them|these))"
    r"|\bwhat [^.,;]{2,30} makes? of\b",
    re.IGNORECASE,
)
RIDDLE = re.compile(r", expected\b")
"""A message says the problem, then the fix."""


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """Give the syntax trees of all modules, which take seconds to make."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in SOURCES}


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts of a module, with their lines; an f-string counts as one, without its values."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "…" for p in node.values]
            yield node.lineno, "".join(map(str, parts))
            nodes += (p for p in node.values if not isinstance(p, ast.Constant))
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node.lineno, node.value
        else:
            nodes += ast.iter_child_nodes(node)


def prose(text: str) -> str:
    """A page without what stands in fences and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def test_docstrings_and_messages_use_the_fields_words(trees: dict[str, ast.Module]) -> None:
    wrong = [
        f"{name}:{line}: {match[0]}"
        for name, tree in trees.items()
        for line, text in strings(tree)
        for match in [BANNED.search(text) or RIDDLE.search(text)]
        if match
    ]

    assert wrong == []


def test_pages_use_the_fields_words() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {match[0]}"
        for page in PAGES
        for match in BANNED.finditer(prose(page.read_text()))
    ]

    assert wrong == []


@pytest.mark.parametrize(
    "text",
    ["as foretold", "models as able", "two takes of an item", "better for certain", "3 take(s)",
     "lest it diverge", "for want of scores", "Of draws.", "a log, of which it is the mean",
     "reads it as far as it got", "a size that is none", "what the error makes of it"],
)  # fmt: skip
def test_other_words_are_found(text: str) -> None:
    assert BANNED.search(text)


def test_shares_are_written_with_a_space_before_the_sign() -> None:
    """Of 95 % intervals 81% held: two ways in one sentence."""
    assert [] == [path.name for path in SOURCES if re.search(r":\.\d%}", path.read_text())]


def test_riddles_are_found() -> None:
    [(_, message)] = strings(ast.parse('f"level {x} found, expected one between 0 and 1"'))

    assert RIDDLE.search(message)
    assert not RIDDLE.search("The level is 95, but must lie between 0 and 1.")


SECTION = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}\n|\Z)", re.DOTALL | re.MULTILINE)


def misnamed(tree: ast.AST) -> Iterator[str]:
    """Yield the documented parameters that their function does not have."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        nodes += (inside for inside in ast.iter_child_nodes(node) if isinstance(inside, ast.stmt))
        if isinstance(node, ast.FunctionDef):
            section = SECTION.search(ast.get_docstring(node) or "")
            heads = re.findall(r"^[\w*][\w*, ]*", section[1], re.MULTILINE) if section else []
            named = {name.strip("* ") for head in heads for name in head.split(",")}
            arguments = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
            yield from filter(str.isidentifier, named - arguments)


def test_documented_parameters_are_those_of_the_function(trees: dict[str, ast.Module]) -> None:
    sections = "Parameters\n    ----------\n    x, *y : int\n    z\n"
    wrong = {name: [*misnamed(tree)] for name, tree in trees.items()}
    documented = ast.parse(f'def f(x, *y):\n    """Add.\n\n    {sections}    """')

    assert {name: names for name, names in wrong.items() if names} == {}
    assert list(misnamed(documented)) == ["z"]

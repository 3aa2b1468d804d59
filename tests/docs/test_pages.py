"""The pages tell the truth: sessions, figures and tables are the program's, and examples run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import render
from parts import sessions

import evalstats_plugin

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")),
]


def _check(page: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", root / "docs" / "render.py", "--check", page],
        capture_output=True,
        text=True,
        check=False,
    )


_OURS = re.compile(
    r"(evalstats-plugin [^|<>&;$`\\\n]+?)"
    r"(?: > ([\w.]+)|(; echo \"exit code \$\?\")| \| (.+))?",
    re.DOTALL,
)
"""A command of ours, the file it writes, whether its exit code is shown, what it is piped into."""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_as_the_program_is(
    page: str,
    run: Callable[..., subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`python docs/render.py` renews what is shown; the Python examples are doctests."""
    in_shell = sessions.shell

    def in_copy(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run the program in a copy of a process that has started; a shell does what is left."""
        parts = _OURS.fullmatch(command)
        if parts is None:
            return in_shell(command, folder)
        ours, file, code, rest = parts.groups()
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            done = run(
                *shlex.split(ours)[1:],
                together=not (file or rest),
                EVALSTATS_NO_CONFIG="",
                **sessions.environment(folder),
            )
        if code:
            done.stdout += f"exit code {done.returncode}\n"
            done.returncode = 0
        if file:
            (folder / file).write_text(done.stdout)
            done.stdout = done.stderr
        if not rest:
            return done
        (folder / ".piped").write_text(done.stdout)
        piped = in_shell(f"cat .piped | {rest}", folder)
        (folder / ".piped").unlink()
        piped.stdout = done.stderr + piped.stdout
        return piped

    monkeypatch.setattr(sessions, "shell", in_copy)

    assert render.problem(ROOT / page) == ""


# A marker that begins a line, and is not alone on it; of a table or a session it stands alone.
_BREAKS_A_PARAGRAPH = re.compile(r"^[ \t>*+-]*<!--[^\n]*?-->[ \t]*[^\s|].*", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_no_line_begins_with_a_figure(page: str) -> None:
    """Markdown takes a comment that begins a line for HTML, and ends the paragraph there."""
    assert [] == _BREAKS_A_PARAGRAPH.findall((ROOT / page).read_text())


def test_a_line_that_begins_with_a_figure_is_found() -> None:
    """In a paragraph or a list; not where it comes later, nor a marker on a line of its own."""
    figure = "<!-- study ranking.naive -->.642<!-- /study -->"
    wrong = [f"{figure} of the time", f"  {figure}.", f"- {figure}"]
    right = [f"hold {figure}", "<!-- battles -->", "<!-- nearly: draws -->", "<!-- end -->"]

    assert wrong == _BREAKS_A_PARAGRAPH.findall("\n".join([*wrong, *right]))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Give a folder with what renders pages, and nothing to render."""
    for name in ("render.py", "parts"):
        (tmp_path / "docs").mkdir(exist_ok=True)
        subprocess.run(["cp", "-R", ROOT / "docs" / name, tmp_path / "docs"], check=True)
    for name in ("fixtures", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```console\n$ echo found\nlost\n```\n", "differs from what the program gives"),
        ("```pycon\n>>> 1 + 1\n3\n```\n", "Expected:\n    3\nGot:\n    2"),
        ("<!-- study many_models.none -->7<!-- /study -->\n", "differs from what the program"),
        (
            "<!-- cell intervals.binary method=wald;n=10 coverage -->.95<!-- /cell -->\n",
            "differs from what the program gives",
        ),
        ("```console\n$ evalstats-plugin report nowhere\n```\n", "ended with 2"),
        ("```console\n$ echo found 7.52\nfound 7.54\n```\n", "differs from what"),
        ("```console\n$ echo found 7\nfound 8\n```\n", "differs from what"),
        ("```console\n$ echo found 7.5\nfound 7.50\n```\n", "differs from what"),
        ("<!-- nearly: draws -->\n```console\n$ echo found 7.5\nfound 9.5\n```\n", "differs from"),
        ("<!-- nearly: draws -->\n```console\n$ echo found 7.5\nlost 7.5\n```\n", "differs from"),
    ],
)
def test_a_page_that_says_something_else_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """Each kind of part, with something wrong in it."""
    monkeypatch.setattr(render, "ROOT", tmp_path)
    page = tmp_path / "wrong.md"
    page.write_text(text)
    try:
        found = render.problem(page)
    except SystemExit as end:
        found = str(end)

    assert said in found


def test_sessions_that_show_draws_may_differ_a_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number to a tenth or a unit, as another processor may draw it."""
    monkeypatch.setattr(render, "ROOT", tmp_path)
    page = tmp_path / "near.md"
    page.write_text("<!-- nearly: draws -->\n```console\n$ echo found 7.5\nfound 7.8\n```\n")

    assert render.problem(page) == ""


def test_last_decimals_may_be_rounded_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one, as on another processor; `pages that say something else` holds the controls."""
    monkeypatch.setattr(render, "ROOT", tmp_path)
    page = tmp_path / "rounded.md"
    page.write_text(
        "```console\n$ echo 'p .004, [-0.500, 1.2], 12 items'\n"
        "p .005, [-0.499, 1.3], 12 items\n```\n"
    )

    assert render.problem(page) == ""


def test_rendering_writes_what_checking_expects(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new page: commands and markers alone, then their output; the script says the same."""
    monkeypatch.setattr(render, "ROOT", copied)
    page = copied / "docs" / "new.md"
    page.write_text("```console\n$ echo found\n```\n<!-- study ranking.runs -->?<!-- /study -->\n")
    assert "differs from what the program gives" in render.problem(page)
    with pytest.raises(SystemExit, match="differs from what the program gives"):
        render.main(["docs/new.md", "--check"])
    with pytest.raises(SystemExit, match=r"^0$"):
        render.main(["docs/new.md"])

    assert "$ echo found\nfound\n```" in page.read_text()
    assert "-->?<!--" not in page.read_text()
    assert _check("docs/new.md", copied).returncode == 0


def test_every_public_name_is_in_an_example() -> None:
    """Those that plugins need on the page of plugins."""
    examples = {
        page: "\n".join(re.findall(r"```py\w+\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
        for page in ("docs/reference/python.md", "docs/reference/plugins.md")
    }
    of_plugins = {"Method", "hookimpl", "reporting_damage"}

    for name in set(evalstats_plugin.__all__) - {"__version__"}:
        wanted = rf"\b{name}\b" if name in of_plugins else rf"\bes\.{name}\b"
        page = "docs/reference/plugins.md" if name in of_plugins else "docs/reference/python.md"
        assert re.search(wanted, examples[page]), name

"""Shells complete commands, options and files, and nothing heavy is loaded for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evalstats_plugin.cli import SECTIONS
from evalstats_plugin.cli.plugins import SHELLS

VARIABLE = "_EVALSTATS_PLUGIN_COMPLETE"

HEAVY = {"lm_eval", "numpy", "pandas", "pyarrow", "rich", "scipy", "textual", "torch"}


Run = Callable[..., subprocess.CompletedProcess[str]]


def _typed(line: str) -> dict[str, str]:
    """Return what bash tells a program about a line, typed so far."""
    last = str(len(line.split(" ")) - 1)
    return {VARIABLE: "bash_complete", "COMP_WORDS": line, "COMP_CWORD": last}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("evalstats-plugin rep", ["plain,report"]),
        ("evalstats-plugin rank st", ["plain,stats"]),
        ("evalstats-plugin compare --corr", ["plain,--correction"]),
        ("evalstats-plugin compare --correction st", ["plain,stepdown"]),
        ("evalstats-plugin report --method clo", ["plain,clopper-pearson"]),
        ("evalstats-plugin compare --method tan", ["plain,tango"]),
        ("evalstats-plugin report fix", ["file,fix"]),
        ("evalstats-plugin report --nothing", []),
    ],
)
def test_what_is_offered(run: Run, typed: str, offered: list[str]) -> None:
    """Commands, those of commands, options, their values, methods, and files for the rest."""
    assert offered == run(**_typed(typed)).stdout.split()


def test_all_commands_are_offered(run: Run) -> None:
    """Those of plugins too."""
    shown = run(**_typed("evalstats-plugin ")).stdout.split()
    offered = {item.removeprefix("plain,") for item in shown}

    own = {name for part in SECTIONS.values() for name in part}

    assert {*own, "lm-eval"} <= offered


@pytest.mark.parametrize("typed", ["", "rank ", "adapt ", "report --", "compare --method "])
def test_completing_loads_nothing_heavy(typed: str) -> None:
    """A key that takes a second to answer is not pressed twice."""
    code = (
        "import os, sys\nfrom evalstats_plugin.cli import main\n"
        "try:\n    main(prog_name='evalstats-plugin')\n"
        "except SystemExit:\n    print('\\n' + ' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **_typed(f"evalstats-plugin {typed}")},
    )
    offered, modules = done.stdout.rsplit("\n\n", 1) if "\n\n" in done.stdout else ("", "")

    assert offered.startswith("plain,")
    assert set() == set(modules.split()) & HEAVY


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_calls_the_program(run: Run, shell: str) -> None:
    """It sets the variable by which the program knows that it is asked to complete."""
    assert f"{VARIABLE}={shell}_complete" in run("completion", shell).stdout


def test_the_script_works_in_bash(tmp_path: Path) -> None:
    """A shell that has read it completes a command."""
    program = tmp_path / "evalstats-plugin"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m evalstats_plugin "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(evalstats-plugin completion bash)"\n'
        "COMP_WORDS=(evalstats-plugin comp)\nCOMP_CWORD=1\n"
        "_evalstats_plugin_completion evalstats-plugin\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )

    assert done.stdout.split() == ["compare", "completion"]


@pytest.mark.parametrize("shell", ["/bin/tcsh", ""])
def test_a_shell_that_is_not_known_is_refused(run: Run, shell: str) -> None:
    """Without an argument, the environment says which."""
    done = run("completion", SHELL=shell)

    assert done.returncode == 2
    assert "name one of bash, zsh, fish" in done.stderr

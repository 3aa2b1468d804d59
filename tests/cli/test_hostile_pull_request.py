"""The action of examples/ci on pull requests that want a candidate to pass: none does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from threading import Thread

import pytest
from hostile_requests import ATTEMPTS, LOGS, candidate, lines, release, write

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "examples" / "ci"
Run = Callable[..., "CompletedProcess[str]"]

INPUTS = {
    "LOGS": str(LOGS), "PROTOCOL": "evals/gate.toml", "BASELINE_LOGS": "", "BASELINE": "",
    "MODELS": "", "TASK": "", "METRIC": "", "MARGIN": "", "NON_INFERIOR": "false",
    "FAIL_IF_INCONCLUSIVE": "true", "LINK": "https://logs.example/{path}",
}  # fmt: skip
DECISIONS = {0: "pass", 3: "regressed", 4: "inconclusive", 2: "refused"}


def _git(repository: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    who = (*who, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=repository, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a clone of a repository with the base branch."""
    repository = tmp_path_factory.mktemp("base")
    _git(repository, "init", "-q", "-b", "main")
    release(repository)
    _git(repository, "add", "-A")
    _git(repository, "commit", "-qm", "Release")
    _git(repository.parent, "clone", "-q", str(repository), str(repository / "clone"))
    return repository / "clone"


@pytest.fixture
def workspace(clone: Path, tmp_path: Path) -> Path:
    """Give a clone in which a pull request is checked out."""
    here = shutil.copytree(clone, tmp_path / "workspace")
    candidate(here)
    return here


def _environment(workspace: Path, python: str, **more: str) -> dict[str, str]:
    """Return the environment of a step, with this text as the installed interpreter."""
    temporary = workspace.parent / "temporary"
    (temporary / "evalstats-plugin" / "bin").mkdir(parents=True)
    interpreter = temporary / "evalstats-plugin" / "bin" / "python"
    interpreter.write_text(f"#!/bin/bash\n{python}\n")
    interpreter.chmod(0o755)
    base = _git(workspace, "rev-parse", "origin/main")
    files = {n: str(temporary / n) for n in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    places = {"RUNNER_TEMP": str(temporary), "GITHUB_WORKSPACE": str(workspace)}
    own = {name: value for name, value in os.environ.items() if not name.startswith("EVALSTATS_")}
    return {**own, **INPUTS, **files, **places, "BASE": base, **more}


REAL = f'exec {sys.executable} "$@"'

ASKED = """printf '%s\\0' "$@" > "$RUNNER_TEMP/asked"
cat "$RUNNER_TEMP/told"
exit "$(cat "$RUNNER_TEMP/code")\""""


def _decide(environment: dict[str, str], run: Run | None = None) -> CompletedProcess[str]:
    """Run the step; with `run`, the interpreter it calls is a copy of one that is warm already."""
    temporary = Path(environment["RUNNER_TEMP"])
    pipes = asked, told, code = [temporary / name for name in ("asked", "told", "code")]

    def answer() -> None:
        *isolated, module, first, rest = asked.read_text().split("\0", 5)
        assert [*isolated, module] == ["-I", "-X", "utf8", "-m"]
        assert first == "evalstats_plugin"
        done = run(*rest.split("\0")[:-1], folder=Path(environment["GITHUB_WORKSPACE"]))
        told.write_text(done.stdout)
        code.write_text(str(done.returncode))

    if run is not None:
        for pipe in pipes:
            os.mkfifo(pipe)
        Thread(target=answer, daemon=True).start()
    return subprocess.run(
        [ACTION / "decide.sh"],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_pull_request_cannot_have_its_candidate_pass(
    run: Run, workspace: Path, attempt: str
) -> None:
    """Regressed stays so, unless something is missing or refused: then nothing passes either."""
    change, decision = ATTEMPTS[attempt]
    change(workspace)
    _git(workspace, "add", "-A")
    _git(workspace, "commit", "-qm", attempt)
    environment = _environment(workspace, ASKED)

    done = _decide(environment, run)

    assert decision == DECISIONS[done.returncode], done.stderr
    assert not (workspace / "hacked").exists()
    output = Path(environment["GITHUB_OUTPUT"])
    if decision == "refused":
        assert "::error::the gate could not decide" in done.stderr
        assert not output.exists()
    else:
        assert f"decision={decision}" in output.read_text().splitlines()
        summary = Path(environment["GITHUB_STEP_SUMMARY"]).read_text()
        assert summary.startswith(f"**{decision.upper()}**")
        assert "Protocol " in summary


def test_modules_and_variables_of_the_candidate_are_not_used(workspace: Path) -> None:
    """The real interpreter, in a workspace full of modules with names that it imports."""
    evil = f"open({str(workspace / 'hacked')!r}, 'w')\n"
    for name in ("json.py", "sitecustomize.py", "numpy.py", "evalstats_plugin.py", "click.py"):
        (workspace / name).write_text(evil)
    variables = {
        "PYTHONPATH": str(workspace), "PYTHONSTARTUP": str(workspace / "json.py"),
        "EVALSTATS_NO_PLUGINS": "tabular", "EVALSTATS_STRICT_PLUGINS": "1",
    }  # fmt: skip
    home = workspace / "home"
    home.mkdir()
    (home / "evalstats-plugin.toml").write_text("confidence-level = 0.9999999999\n")

    environment = _environment(workspace, REAL, XDG_CONFIG_HOME=str(home), **variables)
    done = _decide(environment)

    assert done.returncode == 3, done.stderr
    links = f"](https://logs.example/{LOGS}/candidate.csv)"
    assert links in Path(environment["GITHUB_STEP_SUMMARY"]).read_text()
    assert not (workspace / "hacked").exists()


def test_an_equal_candidate_passes(run: Run, workspace: Path) -> None:
    """So that the gate can be passed at all."""
    write(workspace / LOGS / "candidate.csv", lines("candidate", 9))

    assert _decide(_environment(workspace, ASKED), run).returncode == 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"MARGIN": "50%"}, "contradicts the protocol"),
        ({"PROTOCOL": "evals/none.toml"}, "has no evals/none.toml"),
        ({"PROTOCOL": "../../GITHUB_OUTPUT"}, "lies outside the repository"),
        ({"BASE": "main"}, "is no commit"),
        ({"BASE": "--output=x"}, "is no commit"),
    ],
)
def test_what_makes_no_sense_is_refused(
    workspace: Path, inputs: dict[str, str], message: str
) -> None:
    """Inputs against the protocol, and paths or commits that are none of the base branch."""
    environment = _environment(workspace, REAL if "MARGIN" in inputs else "exit 9", **inputs)
    Path(environment["GITHUB_OUTPUT"]).touch()
    done = _decide(environment)

    assert done.returncode == 2
    assert message in done.stderr


GH = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
store = Path(os.environ["STORE"])
comments = json.loads(store.read_text()) if store.exists() else []
call = sys.argv[1:]
if "--jq" in call:
    # As gh does with jq: ids of comments that this account began with the marker.
    asked = call[call.index("--jq") + 1]
    for one in comments:
        if json.dumps(one["user"]) in asked and json.dumps(one["body"].splitlines()[0]) in asked:
            print(one["id"])
else:
    text = Path(next(a for a in call if a.startswith("body=@"))[6:]).read_text()
    if "PATCH" in call:
        number = int(next(a for a in call if "/comments/" in a).rsplit("/", 1)[1])
        next(c for c in comments if c["id"] == number)["body"] = text
    else:
        comments.append({"id": len(comments) + 1, "user": "github-actions[bot]", "body": text})
    store.write_text(json.dumps(comments))
"""


def test_one_comment_is_renewed(tmp_path: Path) -> None:
    """Two pushes: one comment, with the later decision; another's with the marker is left alone."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gh").write_text(GH)
    (tools / "gh").chmod(0o755)
    store, comment = tmp_path / "comments.json", tmp_path / "gate.md"
    theirs = {"id": 1, "user": "mallory", "body": "<!-- evalstats-plugin gate gate -->\nPASS"}
    store.write_text(json.dumps([theirs]))
    environment = {
        **os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "STORE": str(store),
        "RUNNER_TEMP": str(tmp_path), "COMMENT": str(comment), "COMMENT_ID": "gate",
        "AUTHOR": "github-actions[bot]", "NUMBER": "7", "GITHUB_REPOSITORY": "a/b",
    }  # fmt: skip
    for text in ("**REGRESSED**: first", "**PASS**: second"):
        comment.write_text(text)
        subprocess.run([ACTION / "comment.sh"], env=environment, check=True)

    first, own = json.loads(store.read_text())
    assert first == theirs
    assert own["body"].endswith("**PASS**: second")


def test_the_package_is_installed_from_where_the_action_is(tmp_path: Path) -> None:
    """At the action's own ref, with both harnesses; a copy of the folder alone is refused."""
    tools, log = tmp_path / "tools", tmp_path / "calls"
    tools.mkdir()
    # In place of Python: makes the environment, and says what it was asked.
    (tools / "python3").write_text(
        f'#!/bin/bash\necho "$@" >> {log}\n'
        f'if [[ "$3" == venv ]]; then mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; fi\n'
    )
    (tools / "python3").chmod(0o755)
    copied = tmp_path / "copy" / "actions" / "gate" / "install.sh"
    copied.parent.mkdir(parents=True)
    copied.write_bytes((ACTION / "install.sh").read_bytes())
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RUNNER_TEMP": str(tmp_path)}

    done, refused = (
        subprocess.run(
            ["bash", script], env=environment, capture_output=True, text=True, check=False
        )
        for script in (ACTION / "install.sh", copied)
    )

    assert (done.returncode, refused.returncode) == (0, 2), done.stderr
    assert log.read_text().splitlines()[1].endswith(f"{ROOT}[inspect,lm-eval]")
    assert "use the action where it is" in refused.stderr

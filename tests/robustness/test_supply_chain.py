"""What the package must never do: run what a file holds, or talk to the network by itself."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("evalstats_plugin/**/*.py"), *ROOT.glob("adapters/**/*.py")])

RUNS_WHAT_IT_READS = frozenset(
    {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"}
)
TALKS = frozenset(
    {"requests", "httpx", "aiohttp", "urllib3", "socket", "ssl", "http", "ftplib", "smtplib",
     "telnetlib", "xmlrpc", "websockets", "huggingface_hub"}
)  # fmt: skip
# `urllib.parse` takes an address apart and calls nobody.
TALKS_INSIDE = frozenset({"urllib.request", "urllib.error"})
_TELLING = frozenset({"weights_only", "allow_pickle", "shell", "trust_remote_code"})
NEVER_CALLED = frozenset({"eval", "exec", "compile", "__import__"})


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module
            yield from (f"{module}.{name.name}" for name in node.names)
        elif (
            isinstance(node, ast.Call)
            and _name(node.func).endswith("import_module")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _calls(tree: ast.AST) -> Iterator[tuple[str, dict[str, str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = {k.arg: k.value for k in node.keywords if k.arg in _TELLING}
            yield _name(node.func), {name: ast.unparse(value) for name, value in given.items()}


_NAMES = RUNS_WHAT_IT_READS | TALKS | _TELLING | {
    "urllib", "read_pickle", r"np\.load", r"torch\.load", r"yaml\.\w*load"
}  # fmt: skip
_SUSPECT = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b|(?<!\.)\b(?:{'|'.join(NEVER_CALLED)})\(")
"""What a module must hold to be parsed, which takes a hundred times as long as looking for it."""


def problems(source: str) -> list[str]:
    """Return what a module does that it must not."""
    if not _SUSPECT.search(source):
        return []
    tree = ast.parse(source)
    found: list[str] = []
    for name in _imports(tree):
        top = name.partition(".")[0]
        if top in RUNS_WHAT_IT_READS:
            found.append(f"imports {name}, which runs what a file holds")
        if top in TALKS or name in TALKS_INSIDE:
            found.append(f"imports {name}, which talks to the network")
    for name, keywords in _calls(tree):
        if name in NEVER_CALLED or name.endswith("read_pickle"):
            found.append(f"calls {name}")
        if name == "torch.load" and keywords.get("weights_only") != "True":
            found.append("calls torch.load without weights_only=True")
        if name == "np.load" and keywords.get("allow_pickle") != "False":
            found.append("calls np.load without allow_pickle=False")
        if keywords.get("allow_pickle", "False") != "False":
            found.append(f"calls {name} with allow_pickle")
        if name in {"yaml.load", "yaml.unsafe_load", "yaml.full_load"}:
            found.append(f"calls {name}, expected yaml.safe_load")
        if keywords.get("shell", "False") != "False":
            found.append(f"calls {name} through a shell")
        if keywords.get("trust_remote_code", "False") != "False":
            found.append(f"calls {name} with trust_remote_code")
    return found


_OWN_FILES = {
    "evalstats_plugin/runtime/workers.py": [
        "imports pickle, which runs what a file holds",
        "imports cloudpickle, which runs what a file holds",
    ]
}
"""Workers load the function that their parent wrote into a new folder of its own."""


def test_modules_run_and_send_nothing() -> None:
    """No pickle, no sockets, no shell, no code out of files."""
    found = {str(path.relative_to(ROOT)): problems(path.read_text()) for path in SOURCES}

    assert len(found) > 200
    assert _OWN_FILES == {path: wrong for path, wrong in found.items() if wrong}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from dill import loads",
        "import urllib.request",
        "from urllib import request",
        "import_module('socket')",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path)",
        "np.savez(path, x, allow_pickle=True)",
        "pd.read_pickle(path)",
        "eval(text)",
        "subprocess.run(text, shell=True)",
        "yaml.load(text)",
        "load_dataset(name, trust_remote_code=True)",
    ],
)
def test_the_check_finds(source: str) -> None:
    """Each of these is a problem."""
    assert 1 <= len(problems(source))


def test_what_decides_whether_a_build_is_green_is_pinned() -> None:
    """Linter, type checker and the harnesses that the tests compare with, to the release."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    pinned = {r.partition("==")[0] for r in groups["dev"] if isinstance(r, str) and "==" in r}

    assert {"inspect-ai", "lm-eval", "pyrefly", "ruff", "ty"} <= pinned
    assert "torch==" in (ROOT / "constraints.txt").read_text()


def test_a_build_runs_nothing_it_fetched_unseen() -> None:
    """Packages come through their managers; no script is piped from the network into a shell."""
    scripts = [ROOT / "Makefile", *(ROOT / ".ci").iterdir()]
    unseen = re.compile(r"\b(?:curl|wget)\b|--trusted-host|--no-verify|GIT_SSL_NO_VERIFY|sudo ")

    assert {} == {p.name: found for p in scripts if (found := unseen.findall(p.read_text()))}
    assert ["curl"] == unseen.findall("curl https://example.org/install.sh | sh")


_WITHOUT_NETWORK = """
import json, socket, sys
tried = []

def refuse(self, address, *rest):
    tried.append(str(address))
    raise OSError("no network in this test")

socket.socket.connect = refuse
socket.socket.connect_ex = refuse
socket.getaddrinfo = lambda *a, **k: tried.append(str(a)) or refuse(None, a)

from pathlib import Path
from evalstats_plugin import annotate, compare, intervals, read

logs = sys.argv[1:]
responses = read(*logs, task=["es_mc", "arith"], metric=["acc", "match"])
intervals(responses)
assert len(compare(responses))
annotate(*logs, output=sys.argv[-1] + "-annotated")
print(json.dumps(tried))
"""


def test_nothing_is_asked_of_the_network(tmp_path: Path) -> None:
    """Reading, intervals, comparisons and annotations, with a network that refuses."""
    logs = ROOT / "fixtures" / "logs"
    shutil.copytree(logs / "lm_eval" / "0.4.13" / "out_samples", tmp_path / "logs")
    for log in sorted(logs.glob("inspect_ai/0.3.285/models/*_arith_*"))[:2]:
        shutil.copy(log, tmp_path / "logs")
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_NETWORK, tmp_path / "logs"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

    assert 0 == done.returncode, done.stderr
    assert [] == json.loads(done.stdout.splitlines()[-1])

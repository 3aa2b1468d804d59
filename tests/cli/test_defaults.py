"""Defaults of options from files: who wins, what is said, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from evalstats_plugin.cli import main
from evalstats_plugin.cli.shell.options import OF_PROJECTS, SHARED

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
POWER = ("power", "--discordance", ".2", "--difference", ".1", "--format", "json")


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_in(run: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Give a function that runs a command in a folder, its own place for a user's files."""

    def run_there(
        folder: Path, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(folder)
        home = {"XDG_CONFIG_HOME": str(folder / "config"), "EVALSTATS_NO_CONFIG": ""}
        return run(*arguments, **{**home, **environment})

    return run_there


def _project(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def _user(folder: Path, text: str) -> Path:
    path = folder / "config" / "evalstats-plugin.toml"
    path.parent.mkdir()
    path.write_text(text)
    return path


def _power_asked(done: subprocess.CompletedProcess[str]) -> float:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["evalstats"]["power"]


def test_a_project_says_what_its_commands_do(run_in: Command, tmp_path: Path) -> None:
    """Shared options and those of one command; what was used is said, the output stays clean."""
    _project(
        tmp_path,
        "[tool.evalstats-plugin]\nconfidence-level = 0.9\nseed = 3\n"
        "[tool.evalstats-plugin.power]\npower = 0.9\n[tool.evalstats-plugin.report]\nprior='2,2'\n",
    )
    done = run_in(tmp_path, *POWER)
    about = json.loads(done.stdout)["evalstats"]

    assert (about["power"], about["confidence_level"]) == (0.9, 0.9)
    assert done.stderr == "defaults: power 0.9, confidence-level 0.9 (from pyproject.toml)\n"


def test_the_command_line_goes_before_the_project_and_the_project_before_the_user(
    run_in: Command,
    tmp_path: Path,
) -> None:
    """And only what was used is said."""
    _user(tmp_path, "confidence-level = 0.8\n[power]\npower = 0.7\n")
    assert _power_asked(run_in(tmp_path, *POWER)) == 0.7
    _project(tmp_path, "[tool.evalstats-plugin.power]\npower = 0.9\n")
    both = run_in(tmp_path, *POWER)

    assert _power_asked(both) == 0.9
    assert "confidence-level 0.8 (from config/evalstats-plugin.toml)" in both.stderr
    assert "power 0.9 (from pyproject.toml)" in both.stderr
    given = run_in(tmp_path, *POWER, "--power", "0.6", "-c", ".95")
    assert _power_asked(given) == 0.6
    assert given.stderr == ""


def test_a_project_is_found_from_its_folders(run_in: Command, tmp_path: Path) -> None:
    """As other tools find theirs; a pyproject.toml without our table is passed over."""
    _project(tmp_path, "[tool.evalstats-plugin.power]\npower = 0.9\n")
    inner = tmp_path / "package" / "evals"
    inner.mkdir(parents=True)
    _project(tmp_path / "package", "[project]\nname = 'other'\n")

    done = run_in(inner, *POWER)

    assert _power_asked(done) == 0.9
    assert done.stderr == f"defaults: power 0.9 (from {tmp_path / 'pyproject.toml'})\n"


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(("--no-config",), {}), ((), {"EVALSTATS_NO_CONFIG": "1"})],
)
def test_files_can_be_left_out(
    run_in: Command, tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    """By option or by environment; a broken file does no harm then."""
    _project(tmp_path, "[tool.evalstats-plugin.power]\npower = = 0.9\n")
    done = run_in(tmp_path, *arguments, *POWER, **environment)

    assert _power_asked(done) == 0.8
    assert done.stderr == ""


def test_quiet_says_nothing(run_in: Command, tmp_path: Path) -> None:
    """Given on the command line, or in the file itself."""
    path = _user(tmp_path, "[power]\npower = 0.9\n")
    assert run_in(tmp_path, *POWER, "--quiet").stderr == ""
    path.write_text("quiet = true\n")

    assert run_in(tmp_path, *POWER).stderr == ""


def test_commands_of_commands_have_tables(run_in: Command, tmp_path: Path) -> None:
    """`rank stats` is [tool.evalstats-plugin.rank.stats]; what `rank` says holds for all of its."""
    (tmp_path / "judged.csv").write_text("winner,loser\n" + "a,b\n" * 6 + "b,a\n" * 2)
    _project(
        tmp_path,
        "[tool.evalstats-plugin.rank]\nformat = 'json'\n"
        "[tool.evalstats-plugin.rank.stats]\nmethod = 'bradley-terry'\n",
    )
    done = run_in(tmp_path, "rank", "stats", "judged.csv")

    assert json.loads(done.stdout)["evalstats"]["model"] == "bradley-terry"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[tool.evalstats-plugin.power]\npover = 0.9\n", ("pover", "did you mean power")),
        ("[tool.evalstats-plugin]\nsed = 1\n", ("'sed'", "did you mean seed", "seed, skip-broken")),
        ("[tool.evalstats-plugin.repot]\n", ("'repot'", "did you mean report")),
        (
            "[tool.evalstats-plugin]\npower = 0.9\n",
            ("power is a command", "write a table [tool.evalstats-plugin.power]"),
        ),
        ("[tool.evalstats-plugin.power]\npower = 'much'\n", ("'much' is not a valid float",)),
        ("[tool.evalstats-plugin.power]\nmethod = 'm'\n", ("no method is called 'm'",)),
        ("[tool.evalstats-plugin.power]\nquiet = true\n", ("quiet cannot be set by a project",)),
        ("[tool.evalstats-plugin.power]\nepochs = [1, 2]\n", ("give one value, not a list",)),
        (
            "[tool.evalstats-plugin.power]\nepochs = {x = 1}\n",
            ("give a text or a number, not a table",),
        ),
        ("[tool.evalstats-plugin.power\n", ("is not TOML", "--no-config")),
    ],
)
def test_what_a_file_gets_wrong_is_said_with_its_name(
    run_in: Command, tmp_path: Path, text: str, parts: tuple[str, ...]
) -> None:
    """One message, exit code 2; help is still to be had."""
    path = _project(tmp_path, text)
    done = run_in(tmp_path, *POWER)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {path}")
    for part in parts:
        assert part in done.stderr
    assert done.stderr.count("\n") == 1
    assert run_in(tmp_path, "power", "--help").returncode == 0


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("rank.judge", "command = 'touch PWNED; echo A'"),
        ("rank.judge", "model = 'x'"),
        ("rescore", "include-path = '.'"),
        ("rescore", "confirm-run-unsafe-code = true"),
        ("adapt.run.inspect", "model-args = 'x=y'"),
        ("annotate", "in-place = true"),
        ("annotate", "output = 'elsewhere'"),
        ("report", "html = 'victim.html'"),
        ("report", "quiet = true"),
    ],
)
def test_a_project_sets_nothing_that_runs_or_writes(
    run_in: Command, tmp_path: Path, command: str, line: str
) -> None:
    """The folder of a log may be somebody else's; the user's own file may say the same."""
    path = _project(tmp_path, f"[tool.evalstats-plugin.{command}]\n{line}\n")
    words = command.split(".")
    option = line.partition(" ")[0]
    refused = run_in(tmp_path, *words, "nothing")
    path.unlink()
    _user(tmp_path, f"[{command}]\n{line}\n")
    taken = run_in(tmp_path, *words, "nothing")

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {path}: [tool.evalstats-plugin.{command}]: {option}")
    assert "cannot be set by a project" in refused.stderr
    assert "cannot be set" not in taken.stderr
    assert not (tmp_path / "PWNED").exists()


def test_options_of_projects_exist_and_are_neither_paths_nor_texts_that_run() -> None:
    """OF_PROJECTS is written by hand."""
    known: dict[str, list[click.Option]] = {}
    with click.Context(main) as ctx:
        for command in _every_command(ctx, main):
            for param in command.params:
                for name in param.opts if isinstance(param, click.Option) else ():
                    known.setdefault(name.removeprefix("--"), []).append(param)

    assert OF_PROJECTS <= set(known)
    paths = {name for name, params in known.items() if isinstance(params[0].type, click.Path)}
    assert not OF_PROJECTS & paths


def _every_command(ctx: click.Context, group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from _every_command(ctx, command)
        elif command is not None:
            yield command


@pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a file away"
)
def test_a_file_of_another_user_is_ignored(run_in: Command, tmp_path: Path) -> None:
    """A folder that several people write to, such as /tmp."""
    path = _project(tmp_path, "[tool.evalstats-plugin.power]\npower = 0.9\n")
    os.chown(path, 12345, -1)
    done = run_in(tmp_path, *POWER)

    assert _power_asked(done) == 0.8
    assert done.stderr == f"note: {path} is ignored: another user owns it\n"


def test_a_value_of_a_file_that_an_analysis_refuses_is_traced(
    run_in: Command, tmp_path: Path
) -> None:
    """The error is the analysis's; the line after it says where the value came from."""
    _project(tmp_path, "[tool.evalstats-plugin]\nconfidence-level = 1.5\n")
    done = run_in(tmp_path, "report", str(LOGS), "-t", "es_one")

    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("error: ")
    assert done.stderr.splitlines()[-1] == "defaults: confidence-level 1.5 (from pyproject.toml)"


def test_options_that_commands_share_are_options_of_several() -> None:
    """SHARED is written by hand."""
    with click.Context(main) as ctx:
        commands = [main.get_command(ctx, name) for name in main.list_commands(ctx)]
        commands += [
            one.get_command(ctx, name)
            for one in commands
            if isinstance(one, click.Group)
            for name in one.list_commands(ctx)
        ]
    for option in SHARED:
        having = [one for one in commands if one is not None and f"--{option}" in _long_names(one)]
        assert len(having) >= 2, option


def _long_names(command: click.Command) -> set[str]:
    return {name for param in command.params for name in param.opts}


def test_the_module_stays_light() -> None:
    """Files are parsed only where they have something to say."""
    code = (
        "import sys\nfrom evalstats_plugin.cli import main\n"
        "main(['plugins', '--format', 'csv'], standalone_mode=False)\n"
        "print('tomllib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env={**os.environ, "XDG_CONFIG_HOME": "/nowhere"},
    )

    assert done.stdout.endswith("\nFalse\n")

"""Help: few options first, all on request, and examples that run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from lm_eval_logs import write_log

from evalstats_plugin.cli import main
from evalstats_plugin.cli.shell.options import MOST_LISTED, SELDOM, Command


def _commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            if isinstance(command, click.Group):
                yield from _commands(command, (*path, name))
            elif isinstance(command, Command):
                yield (*path, name)


def _command(path: tuple[str, ...]) -> Command:
    command: click.Command | None = main
    for name in path:
        assert isinstance(command, click.Group)
        with click.Context(command) as ctx:
            command = command.get_command(ctx, name)
    assert isinstance(command, Command)
    return command


COMMANDS = list(_commands(main))
WITH_EXAMPLES = [path for path in COMMANDS if _command(path).examples]


def _help(path: tuple[str, ...], flag: str) -> str:
    done = CliRunner().invoke(main, [*path, flag])
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_short_help_leaves_out_what_is_seldom_needed_and_counts_it(path: tuple[str, ...]):
    command = _command(path)
    # Commands keep the option for help that they had first, -h among its names or not.
    with click.Context(command, **main.context_settings) as ctx:
        options = [p for p in command.get_params(ctx) if isinstance(p, click.Option)]
    seldom = [p for p in options if SELDOM & {name.lstrip("-") for name in p.opts}]
    short = _help(path, "--help")

    if len(options) <= MOST_LISTED or not seldom:
        return
    full = _help(path, "--help-all")
    assert f"{len(seldom)} more options: --help-all" in short
    assert "more options" not in full
    for option in options:
        name = f"{option.opts[-1]}"
        assert f" {name}" in full
        assert (f"  {name} " not in short) == (option in seldom) or option not in seldom


def test_questions_that_people_ask_have_examples() -> None:
    named = {path[0] for path in WITH_EXAMPLES}

    assert {"check", "report", "table", "compare", "gate", "power", "paper", "annotate"} <= named
    assert all(len(_command(path).examples) == 2 for path in WITH_EXAMPLES)
    assert len(_help(("compare",), "--help").splitlines()) < 75


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give logs of three models, one of which was run twice, with the names that examples have."""
    folder = tmp_path_factory.mktemp("logs")
    rng = np.random.default_rng(0)
    for k, model in enumerate(("llama", "qwen", "yi", "llama")):
        right = (rng.random((2, 40)) < 0.4 + 0.1 * k).astype(float)
        write_log(folder / f"run_{k}", model, {"gsm8k": right[0], "mmlu": right[1]})
    return folder


@pytest.fixture(scope="module")
def bank(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fit the item bank that examples name."""
    file = tmp_path_factory.mktemp("bank") / "bank.parquet"
    saved = ["irt", "fit", str(logs), "--metric", "acc", "--save", str(file)]
    assert CliRunner().invoke(main, saved).exit_code == 0
    return file


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=" ".join)
def test_examples_run(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Path, bank: Path
) -> None:
    """On logs of the models and the task that they name."""
    shutil.copytree(logs, tmp_path / "logs")
    monkeypatch.chdir(tmp_path)
    votes = ["left,right,winner", *["llama,qwen,left", "qwen,llama,left", "qwen,yi,right"] * 3]
    Path("votes.csv").write_text("\n".join(votes))
    if "bank.parquet" in " ".join(_command(path).examples) and path[-1] != "fit":
        shutil.copy(bank, "bank.parquet")
    shown = _help(path, "--help")
    for arguments in _command(path).examples:
        assert f"evalstats-plugin {' '.join(path)} {arguments}".rstrip() in shown.replace(
            "main ", "evalstats-plugin "
        )
        done = CliRunner().invoke(main, [*path, *arguments.split()])
        # A gate that does not pass, and logs with findings, say so by the exit code.
        assert done.exit_code in ((0, 1, 3) if path[0] in ("gate", "check") else (0,)), done.output
        assert done.stdout or path[0] in ("paper", "export")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["compare", "x", "--tasks", "y"], "Did you mean '--task'?"),
        (["comapre"], "did you mean compare? There"),
        (["compare", "x", "--basline", "y"], "Did you mean '--baseline'?"),
    ],
)
def test_the_nearest_name_alone_is_suggested(arguments: list[str], expected: str) -> None:
    done = CliRunner().invoke(main, arguments)

    assert done.exit_code == 2
    assert expected in done.output

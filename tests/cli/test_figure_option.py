"""`--figure NAME -o FILE` of every command that has results to draw."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from in_process import ran
from lm_eval_logs import write_log

from evalstats_plugin.report.figures import FIGURES

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the logs of four models on two tasks."""
    rng = np.random.default_rng(3)
    folder = tmp_path_factory.mktemp("logs")
    for i in range(4):
        right = (rng.random(50) < 0.3 + 0.12 * i).astype(float).tolist()
        write_log(folder, f"org/model_${i}", {"easy": right[:30], "hard": right[30:]})
    return folder


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give comparisons of three players."""
    beaten = [(2, 0), (2, 1), (1, 0)] * 4
    whole = {
        "items": ["a", "b", "c"],
        "comparisons": [{"winner": w, "loser": x} for w, x in beaten],
    }
    file = tmp_path_factory.mktemp("answers") / "comparisons.json"
    file.write_text(json.dumps(whole))
    return file


def _ran(*arguments: str | Path) -> Result:
    return ran(*arguments, "-q")


COMMANDS = {
    "report": ("forest", "variance-parts"),
    "pool --method per-task": ("forest",),
    "compare --task easy": ("matrix", "differences", "ranks"),
    "irt fit --item-model rasch": ("forest", "ability-score"),
    "irt items --item-model rasch": ("curves", "information", "wright", "observed", "item-fit"),
    "power --task easy": ("power", "variance-parts"),
    "rank models": ("forest", "matrix", "ranks"),
}
"""Commands that take logs, with their figures."""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        pytest.param(c, name, marks=pytest.mark.needs("torch") if c.startswith("irt") else ())
        for c, own in COMMANDS.items()
        for name in own
    ],
)
def test_every_figure_of_a_command_is_written_beside_its_table(
    logs: Path, tmp_path: Path, command: str, name: str
) -> None:
    """As an .svg that names the models; the table is what it is without a figure."""
    file = tmp_path / "figure.svg"
    done = _ran(*command.split(), logs, "--figure", name, "-o", file)

    assert 0 == done.exit_code, done.output
    text = file.read_text()
    assert "<svg" in text
    if name not in ("curves", "information", "observed", "item-fit"):
        assert "model_$3" in text
    assert "│" in done.stdout or "─" in done.stdout


def test_help_lists_the_figures_there_are() -> None:
    """Each command its own; all of the table but one are of some command."""
    given = {
        "report": "forest, variance-parts",
        "pool": "forest",
        "compare": "matrix, differences, ranks",
        "irt fit": "forest, ability-score",
        "irt items": "curves, information, wright, observed, item-fit",
        "power": "variance-parts, power",
        "rank models": "forest, matrix, ranks",
        "rank stats": "forest, matrix, ranks",
        "adapt replay": "forest",
        "adapt simulate": "accuracy",
    }
    for command, names in given.items():
        said = ran(*command.split(), "--help").stdout

        assert f"DrawintoFILE:{names.replace(' ', '')}." in "".join(said.split()), command
    everywhere = {name for names in given.values() for name in names.split(", ")}
    assert {"trace"} == set(FIGURES) - everywhere


def test_rank_stats_draws_what_was_compared(answers: Path, tmp_path: Path) -> None:
    """As `rank models` does."""
    done = _ran("rank", "stats", answers, "--figure", "ranks", "-o", tmp_path / "ranks.pdf")

    assert 0 == done.exit_code, done.output
    assert (tmp_path / "ranks.pdf").read_bytes().startswith(b"%PDF")


def test_power_without_logs_has_a_curve(tmp_path: Path) -> None:
    """But no parts of a variance."""
    asked = ("power", "--discordance", "0.2", "-d", "0.1", "--figure")
    done = _ran(*asked, "power", "-o", tmp_path / "power.png")
    without = _ran(*asked, "variance-parts", "-o", tmp_path / "parts.png")

    assert (0, 2) == (done.exit_code, without.exit_code)
    assert (tmp_path / "power.png").read_bytes().startswith(b"\x89PNG")
    assert "error: no variance components" in without.stderr
    assert not (tmp_path / "parts.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--figure", "forst", "-o", "x.png"), "no figure is called 'forst'; did you mean forest"),
        (("--figure", "matrix", "-o", "x.png"), "choose forest, variance-parts"),
        (
            ("--figure", "trace", "-o", "x.png"),
            "(an adaptive test, item by item) is of other results",
        ),
        (("--figure", "forest"), "say where it goes with -o forest.png"),
        (("-o", "x.png"), "name it with --figure: forest, variance-parts"),
        (("--figure", "x.png"), "name a figure too: --figure forest -o x.png"),
        (("--figure", "forest", "-o", "x.jpg"), "must end in .png, .svg or .pdf"),
        (("--figure", "forest", "-o", "-"), "must end in .png, .svg or .pdf"),
        (("--figure", "forest", "-o", "nowhere/x.png"), "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_the_work(
    arguments: tuple[str, ...], said: str
) -> None:
    """In one line, with no log read: there is none."""
    done = _ran("report", "no-such-logs", *arguments)

    assert 2 == done.exit_code
    assert said in done.stderr
    assert 1 == len(done.stderr.strip().splitlines())
    assert "" == done.stdout


def test_what_has_no_figures_says_so(logs: Path, tmp_path: Path) -> None:
    """Several abilities; several tasks in a figure of one."""
    place = ("-o", tmp_path / "x.png")
    several = _ran("irt", "fit", logs, "--item-model", "factor", "--figure", "forest", *place)
    tasks = _ran("compare", logs, "--figure", "matrix", *place)

    assert [2, 2] == [done.exit_code for done in (several, tasks)]
    assert "these results have no figures: leave --figure forest out" in several.stderr
    assert "this figure shows one task and metric, not 2 (easy acc, hard acc)" in tasks.stderr
    assert tasks.stderr.endswith(", or draw 'differences'\n")
    assert [] == list(tmp_path.iterdir())

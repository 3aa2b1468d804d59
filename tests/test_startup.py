"""Start-up is light: nothing is loaded that a command does not need."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt.fitting import NEEDING_TORCH
from evalstats_plugin.logs import together

LOGS = Path(__file__).parent.parent / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
HEAVY = {"datasets", "lm_eval", "pandas", "pyarrow", "scipy.stats", "torch", "transformers"}


def _modules_after(code: str) -> set[str]:
    """Run code in a fresh interpreter and return what it has imported."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n' + ' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def _command(*arguments: str) -> str:
    return (
        "from evalstats_plugin.cli import main\n"
        f"main({list(arguments)!r}, standalone_mode=False, prog_name='evalstats-plugin')"
    )


LIGHT = (
    ("--help",), ("plugins",), ("report", "--help"), ("compare", "--help"), ("power", "--help"),
    ("irt", "--help"), ("adapt", "--help"), ("adapt", "run", "lm-eval", "--help"),
    ("export", "--help"),
)  # fmt: skip


def test_help_and_plugins_load_nothing_heavy() -> None:
    """Not even NumPy, SciPy or rich."""
    loaded = _modules_after("\n".join(_command(*arguments) for arguments in LIGHT))

    assert "evalstats_plugin.cli.adapt" in loaded
    assert set() == loaded & (HEAVY | {"numpy", "scipy", "rich"})


def test_reading_loads_numpy_only() -> None:
    """Adapters read without SciPy, pandas or the harness."""
    loaded = _modules_after(f"import evalstats_plugin\nevalstats_plugin.read({str(LOGS)!r})")

    assert "numpy" in loaded
    assert set() == loaded & (HEAVY | {"scipy", "rich"})


def test_reading_a_table_loads_no_pandas(tmp_path: Path) -> None:
    """PyArrow imports it for some conversions, which takes half a second."""
    table = tmp_path / "t.csv"
    table.write_text("model,item,score\na,q1,1\na,q2,\n")
    loaded = _modules_after(f"import evalstats_plugin\nevalstats_plugin.read({str(table)!r})")

    assert set() == loaded & (HEAVY - {"pyarrow"})


def test_the_report_loads_neither_pandas_nor_scipy_stats() -> None:
    """The main job itself stays light."""
    assert set() == _modules_after(_command("report", str(LOGS))) & HEAVY


@pytest.fixture
def small(tmp_path: Path) -> str:
    """Give a table of four models on fifty items."""
    table = tmp_path / "t.csv"
    rows = [f"m{i},q{j},{int((i + 2) * (j + 3) % 7 < 4)}" for i in range(4) for j in range(50)]
    table.write_text("\n".join(["model,item,score", *rows]))
    return str(table)


def test_questions_about_a_small_fit_load_no_torch(small: str) -> None:
    """Neither do residual correlations and what else makes an item suspect, nor refits."""
    asked = (("items",), ("fit", "--bootstrap", "40"), ("fit", "--uncertainty", "sandwich"))
    loaded = _modules_after("\n".join(_command("irt", *each, small) for each in asked))

    assert "scipy" in loaded
    assert "torch" not in loaded


def test_a_small_fit_loads_no_torch(small: str) -> None:
    """Importing it takes longer than the fit, with its items, their errors and what is odd."""
    loaded = _modules_after(_command("irt", "fit", small))

    assert "numpy" in loaded
    assert set() == loaded & (HEAVY - {"pyarrow"})


def _clock() -> float:
    """CPU seconds of all processes that have been started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def _slowness(imported: str, usual: float) -> float:
    """How many times longer importing others' packages takes than where budgets were measured."""
    start = _clock()
    _python("-c", f"import {imported}")
    return (_clock() - start) / usual


@pytest.mark.parametrize(
    ("arguments", "budget", "imported", "usual"),
    [
        (["--help"], 0.15, "click, pluggy, importlib.metadata", 0.078),
        # Three models, two runs each, fifteen tasks.
        (["report", str(LOGS)], 1.0, "click, pluggy, numpy, rich.table, scipy.special", 0.38),
        (
            ["irt", "fit", str(LOGS), "-t", "es_mc", "-m", "acc"],
            1.0,
            "click, pluggy, numpy, rich.table, scipy.special",
            0.38,
        ),
    ],
    ids=["help", "report", "irt fit"],
)
def test_commands_start_and_end_within_their_cpu_seconds(
    arguments: list[str], budget: float, imported: str, usual: float, within: Callable[..., None]
) -> None:
    """About half of which goes into Python and the packages we build on."""
    command = ["-m", "evalstats_plugin", *arguments]
    within(
        budget,
        lambda: _python(*command),
        clock=_clock,
        slowness=lambda: _slowness(imported, usual),
    )


@pytest.mark.parametrize(("n_models", "n_items", "times"), [(5, 60, 0), (40, 20, 1)])
def test_abilities_written_to_logs_load_torch_first_or_not_at_all(
    n_models: int, n_items: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded in a piece of work it would take all processors; more models than items need it."""
    asked: list[str] = []
    monkeypatch.setattr(together, "need_torch", asked.append)
    matrix = ResponseMatrix.from_array(
        np.random.default_rng(0).integers(0, 2, (n_models, n_items)) * 1.0
    )
    together.CrossedAbilities({r.model: [r] for r in matrix.to_responses()})

    assert asked == [NEEDING_TORCH] * times

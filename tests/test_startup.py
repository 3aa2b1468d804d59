"""Start-up is light: nothing is loaded that a command does not need."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("plugins",),
        ("report", "--help"),
        ("compare", "--help"),
        ("power", "--help"),
        ("irt", "--help"),
        ("adapt", "--help"),
        ("adapt", "run", "lm-eval", "--help"),
        ("export", "--help"),
    ],
)
def test_help_and_plugins_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Not even NumPy, SciPy or rich."""
    loaded = _modules_after(_command(*arguments))

    assert set() == loaded & (HEAVY | {"numpy", "scipy", "rich"})


def test_reading_loads_numpy_only() -> None:
    """Adapters read without SciPy, pandas or the harness."""
    loaded = _modules_after(f"import evalstats_plugin\nevalstats_plugin.read({str(LOGS)!r})")

    assert "numpy" in loaded
    assert set() == loaded & (HEAVY | {"scipy", "rich"})


def test_the_report_loads_neither_pandas_nor_scipy_stats() -> None:
    """The main job itself stays light."""
    assert set() == _modules_after(_command("report", str(LOGS))) & HEAVY


def _cpu_seconds(*arguments: str) -> float:
    """CPU time of one run; the least of three, because other work on the machine adds to it."""
    times: list[float] = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "evalstats_plugin", *arguments], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_help_takes_less_than_a_sixth_of_a_cpu_second() -> None:
    """0.15 s is the budget."""
    assert _cpu_seconds("--help") <= 0.15


def test_the_report_on_the_bundled_logs_takes_less_than_a_cpu_second() -> None:
    """Three models, two runs each, fifteen tasks."""
    assert _cpu_seconds("report", str(LOGS)) <= 1.0

"""The recipes of CONTRIBUTING.md, walked on a copy of the package: as few files as they say.

An adapter's recipe is walked by `tests/test_readme.py`, which installs the one of the plugin guide.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Change = Callable[[str, str, str], None]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Give a copy of the package as a wheel lays it out; what is compiled stays so."""
    copy = tmp_path / "evalstats_plugin"
    shutil.copytree(ROOT / "evalstats_plugin", copy)
    (copy / "adapters").symlink_to(ROOT / "adapters")
    return copy


@pytest.fixture
def change(package: Path) -> Change:
    """Insert lines before a line of a file of the copy."""

    def insert(file: str, before: str, lines: str) -> None:
        path = package / file
        text = path.read_text() if path.exists() else ""
        assert not before or text.count(before) == 1, before
        path.write_text(text.replace(before, lines + before) if before else text + lines)

    return insert


def _python(package: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False, cwd=package.parent,
        env={"PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_method_is_a_formula_and_a_row(package: Path, change: Change) -> None:
    """With them, `intervals` offers it, and messages list it."""
    change(
        "stats/bounded.py", "",
        "\n\ndef plus_four(successes: Any, n: Any, *, confidence_level: float) -> Any:\n"
        "    return wald(successes + 2, n + 4, confidence_level=confidence_level)\n",
    )  # fmt: skip
    change(
        "scores/methods.py", '    Method("wilson", "binary"',
        '    Method("plus-four", "binary", _BOUNDED + "plus_four", "four added", "Agresti"),\n',
    )  # fmt: skip
    shown = _python(
        package,
        "import evalstats_plugin as es, evalstats_plugin.errors\n"
        "m = es.ResponseMatrix.from_array([[1.0] * 8])\n"
        "row = es.intervals(m, method='plus-four')[0]\n"
        "print(row.method, round(row.low, 3))\n"
        "try: es.intervals(m, method='plus-fuor')\n"
        "except es.errors.SelectionError as error: print(error)\n",
    )

    assert shown.startswith("plus-four 0.62")
    assert "did you mean plus-four" in shown


def test_an_estimator_is_a_file_a_row_and_a_case(package: Path, change: Change) -> None:
    """A record of options beside those that are there; `fit_irt` then takes it by name."""
    change(
        "irt/estimators/strong.py", "",
        "from evalstats_plugin.irt.estimators import joint\n"
        "def fit_strong(matrix, counts, kind, options):\n"
        "    return joint.fit_jml(matrix, counts, kind, options)\n",
    )  # fmt: skip
    change(
        "irt/methods.py", '        "jml": Estimator(',
        '        "strong": Estimator("as jml", ("rasch",), StrongOptions),\n',
    )  # fmt: skip
    change(
        "irt/methods.py", "@dataclass(frozen=True, slots=True)\nclass Estimator",
        "@dataclass(frozen=True, kw_only=True)\n"
        "class StrongOptions(JmlOptions):\n"
        '    """Options of estimator strong."""\n',
    )  # fmt: skip
    change(
        "irt/fitting.py", "        case JmlOptions():\n",
        "        case _ if chosen.estimator == 'strong':\n"
        "            from evalstats_plugin.irt.estimators import strong\n"
        "            return strong.fit_strong(whole, counts, kind, options)\n",
    )  # fmt: skip
    change("irt/fitting.py", '"mml-items": 9.0', '"strong": 3.0, ')
    shown = _python(
        package,
        "from evalstats_plugin.irt import fit_irt, simulate_responses\n"
        "m, _ = simulate_responses(rng=0, n_models=12, n_items=40, item_model='rasch')\n"
        "print(fit_irt(m, 'rasch', 'strong').ability.shape)\n",
    )

    assert shown.startswith("(12")


def test_a_figure_is_a_function_and_a_row(package: Path, change: Change) -> None:
    """Results then draw it by name, and help lists it."""
    change(
        "report/figures/scores.py", "",
        "\n\ndef plot_dots(rows: Any, *, ax: Axes | None = None) -> Axes:\n"
        "    ax = canvas.axes_or_new(ax, 4, 3)\n"
        "    ax.plot([row.estimate for row in rows], 'o')\n"
        "    return ax\n",
    )  # fmt: skip
    change(
        "report/figures/__init__.py", '        ("forest", ',
        '        ("dots", "estimates as dots", "scores:plot_dots", ("intervals",)),\n',
    )  # fmt: skip
    shown = _python(
        package,
        "import evalstats_plugin as es\n"
        "rows = es.intervals(es.ResponseMatrix.from_array([[1.0] * 8]))\n"
        "print(len(rows.plot('dots').lines))\n",
    )

    assert shown == "1\n"

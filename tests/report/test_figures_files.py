"""Figures as files and as part of a page, and the table of figures."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from drawn_figures import HOSTILE, intervals

from evalstats_plugin.errors import DesignError, SelectionError, WriteError, install_hint
from evalstats_plugin.report.figures import FIGURES, canvas, draw, figures_of, named
from evalstats_plugin.report.figures.canvas import FORMATS, save
from evalstats_plugin.report.figures.scores import plot_forest

matplotlib = pytest.importorskip("matplotlib")
SVG = "{http://www.w3.org/2000/svg}"
STARTS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.mark.parametrize("ending", FORMATS)
def test_the_same_results_give_the_same_file(tmp_path: Path, ending: str) -> None:
    """Of every format, and nothing else is left there."""
    first = save(plot_forest(intervals(3)).figure, tmp_path / f"a{ending}").read_bytes()
    second = save(plot_forest(intervals(3)).figure, tmp_path / f"b{ending.upper()}").read_bytes()
    other = save(plot_forest(intervals(2)).figure, tmp_path / f"c{ending}").read_bytes()

    assert first.startswith(STARTS[ending])
    assert first == second != other
    assert not re.search(rb"20\d\d-\d\d-\d\dT|CreationDate", first)
    assert 3 == len(list(tmp_path.iterdir()))


def test_places_that_will_not_do_are_refused(tmp_path: Path) -> None:
    """With what would."""
    figure = plot_forest(intervals(2)).figure
    (tmp_path / "folder.png").mkdir()

    with pytest.raises(SelectionError, match=r"x\.jpg: .* must end in \.png, \.svg or \.pdf"):
        save(figure, "x.jpg")
    with pytest.raises(WriteError, match="there is no folder"):
        save(figure, tmp_path / "nowhere" / "x.png")
    with pytest.raises(WriteError, match="is a folder"):
        save(figure, tmp_path / "folder.png")


def test_letters_that_no_font_has_are_named(tmp_path: Path) -> None:
    """In a warning of ours; an .svg leaves them to its reader's fonts."""
    row = intervals(1, tasks=["t"])[0]
    figure = plot_forest(type(intervals(1))((_called(row, "model-\U00010384"),))).figure

    with pytest.warns(UserWarning, match=r"no font here has \U00010384: drawn as boxes"):
        save(figure, tmp_path / "x.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(figure, tmp_path / "x.svg")
    assert "\U00010384" in (tmp_path / "x.svg").read_text()


def _called(row: object, model: str) -> object:
    from dataclasses import replace

    return replace(row, model=model)  # type: ignore[type-var]


def test_text_stays_text_and_hostile_names_are_text_alone(tmp_path: Path) -> None:
    """In an .svg, which browsers open."""
    place = save(plot_forest(intervals(8)).figure, tmp_path / "x.svg")
    tree = ET.fromstring(place.read_text())  # noqa: S314 - our own
    words = {node.text for node in tree.iter(f"{SVG}text")}

    assert {HOSTILE[0], HOSTILE[3]} <= words
    assert not [node for node in tree.iter() if node.tag.endswith("script")]


def test_every_figure_of_the_table_is_a_function_that_takes_axes() -> None:
    """With a docstring that says what it draws."""
    for name, figure in FIGURES.items():
        module, _, function = figure.function.partition(":")
        found = getattr(import_module(module), function)
        parameters = inspect.signature(found).parameters

        assert name == figure.name
        assert function.startswith("plot_")
        assert parameters["ax"].kind is inspect.Parameter.KEYWORD_ONLY
        assert "Draw" in (found.__doc__ or "")
        assert figure.takes


def test_figures_are_found_by_name_and_kind() -> None:
    """What does not fit says what does."""
    assert ["matrix", "differences", "ranks"] == list(figures_of("comparisons"))
    assert "forest" == named("forest", ("abilities", "fit")).name
    with pytest.raises(SelectionError, match=r"'matrix' .*is of other results: choose forest, cur"):
        named("matrix", ("abilities", "fit"))
    with pytest.raises(SelectionError, match="no figure is called 'forst'; did you mean forest"):
        named("forst", ("abilities",))
    with pytest.raises(SelectionError, match="no figure is called"):
        draw("forst", intervals(2))
    assert plot_forest(intervals(2)).get_xlabel() == draw("forest", intervals(2)).get_xlabel()


def test_it_draws_into_axes_of_ones_own() -> None:
    """And gives them back; the figure is the caller's."""
    own = matplotlib.figure.Figure().add_subplot()

    assert plot_forest(intervals(2), ax=own) is own
    assert 2 == len(own.get_xlabel().split(","))


def test_settings_are_left_alone_and_do_not_show(tmp_path: Path) -> None:
    """Whoever uses TeX or large letters gets the same figure, and keeps the settings."""
    plain = save(plot_forest(intervals(2)).figure, tmp_path / "plain.svg").read_text()
    mine = {"text.usetex": True, "font.size": 30, "axes.facecolor": "red", "figure.dpi": 50}
    with matplotlib.rc_context(mine):
        figure = plot_forest(intervals(2)).figure

        assert mine.items() <= dict(matplotlib.rcParams).items()
    assert plain == save(figure, tmp_path / "mine.svg").read_text()


def test_pyplot_is_never_loaded(tmp_path: Path) -> None:
    """Its state is the user's, and a server has no screen."""
    code = (
        "import sys; sys.path.insert(0, 'tests/cli')\n"
        "from drawn_figures import intervals\n"
        "from evalstats_plugin.report.figures.canvas import save\n"
        "from evalstats_plugin.report.figures.scores import plot_forest\n"
        f"save(plot_forest(intervals(2)).figure, {str(tmp_path / 'x.svg')!r})\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=root)  # fmt: skip

    assert "False" == done.stdout.strip()


def test_without_matplotlib_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In place of a traceback."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(DesignError, match=re.escape(install_hint("figures"))):
        plot_forest(intervals(2))


def test_names_are_broken_between_words_and_never_lose_a_letter() -> None:
    """Letters of East Asia are as wide as two."""
    for name in (*HOSTILE, "模型" * 30, "\ud800 half", ""):
        lines = canvas.shown(name, 20).split("\n")

        assert max(map(canvas.letters, lines)) <= 20
        kept = "".join(lines).replace("\ufffd", "").replace(" ", "")
        wanted = "".join(one for one in name if not one.isspace() and one not in "\x07\ud800")
        assert (wanted or "(noname)") == kept
    assert "a-\nb" == canvas.shown("a-b", 2)

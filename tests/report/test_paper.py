"""The folder for a paper: its numbers are the table's, and it compiles."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import evalstats_plugin as es
from evalstats_plugin.cli import main
from evalstats_plugin.errors import SelectionError, WriteError
from evalstats_plugin.report.paper import folder
from evalstats_plugin.report.paper.folder import macro_words

FIGURES = {"forest": folder.plot_forest, "rank": folder.plot_ranks}


def _data(n_models: int = 3) -> es.ResponseMatrix:
    rng = np.random.default_rng(5)
    chance = np.linspace(0.9, 0.3, n_models)[:, None]
    right = rng.random((n_models, 80)) < chance
    models = [f"lab_{k % 2}/Model-{k}_x&y%{{z}}#" for k in range(n_models)]
    return es.ResponseMatrix.from_array(right.astype(float), models=models)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files of figures, of which only the names are looked at, hold none: fonts take long."""
    monkeypatch.setattr(folder, "_drawn", lambda *_, **__: b"%PDF")


@pytest.mark.usefixtures("undrawn")
def test_numbers_are_those_of_the_table_and_its_pairs(tmp_path: Path) -> None:
    """Each macro is the cell's estimate or the pair's difference, to the printed digits."""
    data = _data()
    table = es.table(data, rng=0)

    es.paper(data, tmp_path)

    text = (tmp_path / "numbers.tex").read_text()
    values = dict(re.findall(r"\\newcommand\{\\(\w+)\}\{(.*?)\} %", text))
    scores = [float(v) for name, v in values.items() if not re.search(r"(CI|N)$|^diff", name)]
    assert scores == pytest.approx([cell.estimate for cell in table], abs=0.0051)
    best, *others = table.models
    estimate = {cell.model: cell.estimate or 0.0 for cell in table}
    differences = [
        float(v.replace("$-$", "-"))
        for name, v in values.items()
        if name.startswith("diff") and not name.endswith("CI")
    ]
    expected = [estimate[model] - estimate[best] for model in others]
    assert differences == pytest.approx(expected, abs=0.0051)


def test_same_responses_give_the_same_files_and_others_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call changes no byte; a file with other content is refused, and nothing written."""
    data = _data()
    first = {path.name: path.read_bytes() for path in es.paper(data, tmp_path)}

    again = {path.name: path.read_bytes() for path in es.paper(data, tmp_path)}

    assert first == again
    drawn = {plot.__name__: first[f"{name}.pdf"] for name, plot in FIGURES.items()}
    monkeypatch.setattr(folder, "_drawn", lambda plot, *_, **__: drawn[plot.__name__])
    (tmp_path / "main.tex").write_text("mine")
    (tmp_path / "table.tex").unlink()
    with pytest.raises(WriteError, match=r"main\.tex exists already"):
        es.paper(data, tmp_path)
    assert not (tmp_path / "table.tex").exists()
    es.paper(data, tmp_path, overwrite=True)
    assert (tmp_path / "main.tex").read_bytes() == first["main.tex"]


@pytest.mark.usefixtures("undrawn")
def test_one_model_has_no_comparison_and_a_wrong_baseline_is_named(tmp_path: Path) -> None:
    """There is nothing to compare; the message of a wrong name lists the models."""
    names = [path.name for path in es.paper(_data(1), tmp_path / "one")]

    assert {"compare.tex", "rank.pdf"} & set(names) == set()
    with pytest.raises(SelectionError, match="no model is called 'Modle'"):
        es.paper(_data(), tmp_path / "three", baseline="Modle")
    assert not (tmp_path / "three").exists()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ("a", "the model with the best score (a), on the items that both answered; positive: "),
        ("e", "(e), on the items that both answered; lower scores are better, so negative: "),
        ("ae", "the first of the table, on the items that both answered; positive: the named model "
         "is ahead, negative where lower scores are better (e). "),
    ],
)  # fmt: skip
def test_the_caption_says_whom_a_sign_favours(tmp_path: Path, metrics: str, said: str) -> None:
    """A difference of errors below 0 is ahead; no model has the highest score of two scales."""
    parts = [
        part
        for name in metrics
        for part in _scored(name, {"a": "acc", "e": "brier_score"}[name]).to_responses()
    ]
    es.paper(parts, tmp_path)

    assert said in (tmp_path / "compare.tex").read_text()
    table = (tmp_path / "table.tex").read_text()
    ranked = "places left open by all 3 pairs of models at once, compared on the same items ("
    assert (ranked in table) == (len(metrics) == 1)
    # `check` looks at logs, not at items.
    assert "report --html lists suspects" in (tmp_path / "methods.md").read_text()


def _scored(task: str, metric: str) -> es.ResponseMatrix:
    scores = np.random.default_rng(1).random((3, 40)) / [[1], [2], [3]]
    return es.ResponseMatrix.from_array(scores, tasks=[task] * 40, metric=metric)


@pytest.mark.usefixtures("undrawn")
def test_the_readme_has_the_command_that_wrote_the_folder(tmp_path: Path) -> None:
    """With its options, without which the same logs give other files."""
    table = tmp_path / "scores.csv"
    table.write_text("model,item,acc\n" + "".join(f"m{i % 2},{i // 2},1\n" for i in range(20)))
    typed = [str(table), "-o", str(tmp_path / "paper"), "--percent", "--seed", "3"]

    done = CliRunner().invoke(main, ["paper", *typed, "-q"])

    assert (done.exit_code, done.stderr) == (0, "")
    command = f"    evalstats-plugin paper {' '.join(typed)}\n"
    assert command in (tmp_path / "paper" / "README.md").read_text()


@pytest.mark.usefixtures("undrawn")
def test_ranks_are_drawn_where_a_column_has_room(tmp_path: Path) -> None:
    """Of twelve models; of more the table has them, and main.tex asks for no such file."""
    drawn = {n: [path.name for path in es.paper(_data(n), tmp_path / f"{n}")] for n in (12, 13)}

    assert [("rank.pdf" in drawn[n]) for n in (12, 13)] == [True, False]
    assert "rank.pdf" not in (tmp_path / "13" / "main.tex").read_text()


def test_macro_names_are_letters_and_different() -> None:
    """Whatever scripts and digits names have."""
    names = ["a/x", "b/x", "7", "77", "答", "模型", "x", "X", "a b"]

    words = macro_words(names)

    assert len(set(words)) == len(names)
    assert all(re.fullmatch("[A-Za-z]+", word) for word in words)


@pytest.mark.needs("pdflatex")
@pytest.mark.parametrize("n_models", [2, 60])
def test_it_compiles_without_overfull_boxes(tmp_path: Path, n_models: int) -> None:
    """Names that LaTeX would take for commands are text; nothing is wider than the page."""
    es.paper(_data(n_models), tmp_path)

    for program in ("pdflatex -halt-on-error -interaction=nonstopmode", "bibtex"):
        done = subprocess.run(
            [*program.split(), "main"], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:]

    log = (tmp_path / "main.log").read_text(errors="replace")
    assert "Overfull" not in log
    assert "too large" not in log
    assert b"/FontFile2" in (tmp_path / "forest.pdf").read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_options_are_written_with_two_hyphens(tmp_path: Path) -> None:
    """LaTeX makes one dash of them, and nobody could type –cluster."""
    es.paper(_data(1), tmp_path)
    methods = (tmp_path / "methods.tex").read_text()

    assert r"-{}-\allowbreak{}cluster" in methods
    assert "--" not in methods


@pytest.mark.usefixtures("undrawn")
def test_macros_whose_words_run_together_get_names_of_their_own(tmp_path: Path) -> None:
    """Model "x" on task "y-z" and model "x-y" on task "z"."""
    rng = np.random.default_rng(6)
    rows = [
        {"model": model, "task": task, "item": item, "score": float(rng.random() < 0.5)}
        for model in ("x", "x-y")
        for task in ("y-z", "z", "y-b")
        for item in range(20)
    ]

    es.paper(rows, tmp_path)

    names = re.findall(r"\\newcommand\{\\(\w+)\}", (tmp_path / "numbers.tex").read_text())
    assert len(names) == len(set(names))


@pytest.mark.usefixtures("undrawn")
def test_names_that_begin_with_a_bracket_are_no_options_of_the_row_above(tmp_path: Path) -> None:
    """LaTeX reads a bracket or an asterisk after the end of a row as belonging to it."""
    data = es.ResponseMatrix.from_array(np.eye(3, 12), models=["[a]", "*b", "c"])

    es.paper(data, tmp_path, baseline="c")

    rows = (tmp_path / "compare.tex").read_text().partition("\\midrule\n")[2].splitlines()[:2]
    assert sorted(row[:4] for row in rows) == ["{}*b", "{}[a"]


def test_letters_that_no_font_has_are_named(tmp_path: Path) -> None:
    """They are boxes in the figures, and the command says so."""
    data = es.ResponseMatrix.from_array(np.eye(1, 12), models=["𐎠𐎡"])

    with pytest.warns(UserWarning, match="no font here has"):
        es.paper(data, tmp_path)

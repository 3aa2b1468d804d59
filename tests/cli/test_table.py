"""`evalstats-plugin table`: on the terminal, and as LaTeX that a real TeX accepts."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from evalstats_plugin.cli import main

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
GROUP = (LOGS, "-t", "es_group_unw", "-m", "acc")
Run = Callable[..., "CompletedProcess[str]"]


def test_the_table_fits_eighty_columns(run: Run) -> None:
    """More columns go below; names lose their middle."""
    done = run("table", LOGS)

    assert 0 == done.returncode
    assert max(map(len, done.stdout.splitlines())) <= 80
    # One of the eleven tasks has one item, and takes no rank from the others.
    assert "   1  models/m2  0.598 [0.505, 0.686]   a " in done.stdout
    assert "es_mul…_like" in done.stdout
    assert "Overall: mean of 11 columns (513 items), each counting the same." in done.stdout


def test_a_wide_terminal_has_one_line_for_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns went below as if every terminal had eighty."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    lines = CliRunner().invoke(main, ["table", str(LOGS), "-q"]).stdout.splitlines()

    assert 1 == sum("models/m2  0." in line and line.count(".") > 10 for line in lines)


def test_a_mark_that_nothing_has_is_not_explained(run: Run) -> None:
    """The only column has ranks beside it, and no stars."""
    assert "may be the best" not in run("table", LOGS, "-t", "es_mc", "-m", "acc").stdout


def test_notes_on_single_scores_say_of_which(run: Run, tmp_path: Path) -> None:
    """A score of half of the items stood beside the others without a word."""
    table = tmp_path / "scores.csv"
    lines = [
        f"{model},t{k:02},{i},{'' if i < k * (model == 'b') + (k == 11) else i % 2}"
        for model in "ab"
        for k in range(12)
        for i in range(30)
    ]
    table.write_text("\n".join(["model,task,item,score", *lines]))

    shown = run("table", table, "--format", "markdown", "-q").stdout
    one = run("table", table, "-t", "t11", "-t", "t01", "--format", "markdown", "-q").stdout

    assert (
        "\n- 1 to 12 of 30 items have no score and are left out (t01 by b, t02 by b, t03" in shown
    )
    assert 1 == shown.count("\n- ")
    assert [
        "- 1 of 30 items have no score and are left out (t01 by b, t11 by a)",
        "- 12 of 30 items have no score and are left out (t11 by b)",
    ] == [line for line in one.splitlines() if line.startswith("- ")]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Scores of models and tasks whose names are LaTeX, formulas and markup."""
    table = tmp_path / "scores.csv"
    names = [r"\input{/etc/passwd}", "a_b & c % $x$ #1 ~^{}", "=cmd()", "<b>bold</b>"]
    lines = [
        f'"{model}","{task}",{i},{int(i % (3 + k) > 0)}'
        for k, model in enumerate(names)
        for task in names[:2]
        for i in range(30)
    ]
    table.write_text("\n".join(["model,task,item,score", *lines]))
    return table


def test_latex_holds_no_command_of_a_log(run: Run, hostile: Path, tmp_path: Path) -> None:
    """Names are escaped; the caption cites what the .bib file has."""
    bib = tmp_path / "refs.bib"
    done = run("table", hostile, "--format", "latex", "--bib", bib, "-q")

    assert 0 == done.returncode
    assert r"\input" not in done.stdout
    assert r"\textbackslash{}input\{/etc/passwd\}" in done.stdout
    assert r"a\_b \& c \% \$x\$ \#1 \textasciitilde{}\textasciicircum{}\{\}" in done.stdout
    cited = {part.partition("}")[0] for part in done.stdout.split(r"\cite{")[1:]}
    entries = {line.split("{")[1].rstrip(",") for line in bib.read_text().splitlines()
               if line.startswith("@")}  # fmt: skip
    assert cited == entries


def _typeset(latex: str, folder: Path) -> str:
    """Typeset a table on A4 with a real TeX, and return what TeX had to say."""
    tex = str(shutil.which("pdflatex"))
    packages = latex.partition("\n")[0].removeprefix("% ")
    preamble = rf"\documentclass[a4paper]{{article}}{packages}\begin{{document}}"
    (folder / "page.tex").write_text(f"{preamble}\n{latex}\\end{{document}}\n")
    arguments = [tex, "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(arguments, cwd=folder, check=True, capture_output=True)
    return done.stdout.decode(errors="replace")


@pytest.mark.needs("pdflatex")
def test_half_widths_follow_a_plus_minus_sign(run: Run, tmp_path: Path) -> None:
    """Half of high minus low, and the caption says that this is what they are."""
    rows = json.loads(run("table", *GROUP, "--format", "json").stdout)["results"]
    latex = run("table", *GROUP, "--format", "latex", "--plus-minus", "-q").stdout
    lead = [row for row in rows if row["task"] == rows[0]["task"]]

    assert [rf"$\pm$ {(r['high'] - r['low']) / 2:.3f}" in latex for r in lead] == [True] * len(lead)
    assert r"$\pm$ half the width of its 95\,\% interval" in latex
    assert "Overfull" not in _typeset(latex, tmp_path)


@pytest.mark.needs("pdflatex")
def test_tex_accepts_names_that_are_markup(run: Run, hostile: Path, tmp_path: Path) -> None:
    """Nothing is read or run, and all fits."""
    said = _typeset(run("table", hostile, "--format", "latex", "-q").stdout, tmp_path)

    assert "1 page" in said
    assert "Overfull" not in said
    assert "passwd" not in said


@pytest.mark.needs("pdflatex")
def test_forty_models_on_eighteen_tasks_fit_a_page_of_a_paper(run: Run, tmp_path: Path) -> None:
    """Upright titles, one table, shrunk to the page; scores below 0 have a minus sign."""
    rng = np.random.default_rng(4)
    shares = np.linspace(0.9, 0.2, 40)[:, None]
    frame = pd.DataFrame(
        (rng.random((40, 18 * 12)) < shares) * 2.0 - 1.0,
        index=[f"provider/some-model-{k}b-instruct-2024-11-{k % 28 + 1:02}" for k in range(40)],
    )
    long = frame.rename_axis("model").reset_index().melt("model", var_name="item")
    long["task"] = [f"a_long_task_name_{int(item) // 12}" for item in long["item"]]
    long.rename(columns={"value": "score"}).to_csv(tmp_path / "scores.csv", index=False)
    bounds = ("--bounds", "score=-1,1", "--format", "latex", "-q")
    latex = run("table", tmp_path / "scores.csv", *bounds).stdout
    said = _typeset(latex, tmp_path)

    assert "S[table-format=-1.2]" in latex
    assert latex.count(r"\rotatebox{90}") == 18
    assert "1 page" in said
    assert "Overfull" not in said
    assert "too large" not in said


def test_every_form_holds_the_same_numbers(run: Run) -> None:
    """JSON, CSV, Markdown, LaTeX and the terminal."""
    rows = json.loads(run("table", *GROUP, "--format", "json").stdout)["results"]
    best = next(r for r in rows if r["model"] == "models/m2" and r["task"] == "es_group_unw")
    limits = f"[{best['low']:.3f}, {best['high']:.3f}]"

    table = run("table", *GROUP).stdout
    markdown = run("table", *GROUP, "--format", "markdown").stdout
    latex = run("table", *GROUP, "--format", "latex").stdout
    csv = run("table", *GROUP, "--format", "csv").stdout

    assert f"{best['estimate']:.3f} {limits}" in table
    assert f"| {best['estimate']:.3f} {limits} |" in markdown
    assert f"& {best['estimate']:.3f} & {limits} &" in latex
    assert f",{best['estimate']},{best['low']},{best['high']}," in csv


def test_brackets_in_the_name_of_an_excluded_model_are_no_pattern(tmp_path: Path) -> None:
    """`m[1]` left `m1` out, and stayed itself; as of --models, names may have commas between."""
    rows = [f"{m},i{i},{i % 2}" for m in ("m[1]", "m1", "m2", "m3") for i in range(4)]
    logs = tmp_path / "scores.csv"
    logs.write_text("\n".join(["model,item,score", *rows]))

    done = CliRunner().invoke(main, ["table", f"{logs}", "--exclude", "m[1],m2", "--format", "csv"])

    models = {line.partition(",")[0] for line in done.stdout.splitlines()[1:]}
    assert {"m1", "m3"} == models, done.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--exclude", "models/*"), "--exclude models/* leaves no model: name fewer"),
        (("--exclude", "models/m7"), "no model is called 'models/m7'"),
        (("--format", "latex", "--bib", "out/of/place.bib"), "--bib out/of/place.bib"),
        (("--models", "models/m7"), "no model is called 'models/m7'"),
    ],
)
def test_bad_options_are_refused(run: Run, options: tuple[str, ...], message: str) -> None:
    """Exit code 2, one line, nothing on standard output."""
    done = run("table", *GROUP, *options)

    assert 2 == done.returncode
    assert done.stderr.startswith(f"error: {message}")
    assert "" == done.stdout


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (("-t", "es_sub_a"), {"es_sub_a": "acc,none"}),
        (
            ("-t", "es_sub_a", "-t", "es_mc"),
            {"overall": "acc,none", "es_sub_a": "acc,none", "es_mc": "acc,none"},
        ),
        (
            ("-t", "es_sub_a", "-t", "es_group_unw"),
            {"es_group_unw": "acc,none", "es_sub_a": "acc,none"},
        ),
        (
            ("-t", "es_mc", "-t", "es_sub_a", "-m", "es_mc=acc_norm", "-m", "acc"),
            {"overall": "score", "es_sub_a": "acc,none", "es_mc": "acc_norm,none"},
        ),
        (("-t", "es_mc", "-m", "acc_norm", "-m", "acc"), {"es_mc": "acc_norm,none"}),
    ],
)  # fmt: skip
def test_tasks_and_metrics_that_are_named_are_columns(
    run: Run, options: tuple[str, ...], columns: dict[str, str]
) -> None:
    """Also a task inside a group, with its own metric."""
    done = run("table", LOGS, *options, "--format", "json")

    assert 0 == done.returncode
    rows = json.loads(done.stdout)["results"]
    assert columns == {row["task"]: row["metric"] for row in rows}
    assert 0 == run("table", LOGS, *options).returncode


def test_a_metric_of_a_task_that_is_not_there_is_refused(run: Run) -> None:
    done = run("report", LOGS, "-m", "arc=acc")

    assert 2 == done.returncode
    assert "no task in the logs is called 'arc'" in done.stderr

"""`evalstats-plugin judge`, and `report --control-variate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.cli.shell.running import read_labels
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import LogError
from evalstats_plugin.scores.control_variate import control_variate
from evalstats_plugin.scores.judged import Label

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
Run = Callable[..., "CompletedProcess[str]"]


def _set() -> ResponseSet:
    rng = np.random.default_rng(0)
    scores = (rng.uniform(size=(5, 80)) < rng.uniform(size=80)) * 1.0
    scores[0, 20:] = np.nan
    return ResponseSet(tuple(ResponseMatrix.from_array(scores).to_responses()))


def test_control_variates_say_when_they_change_nothing(run: Run) -> None:
    """All models took all items of these logs."""
    done = run("report", LOGS, "-t", "es_mc", "-m", "acc", "--control-variate")

    assert 0 == done.returncode
    assert "control variates changed nothing" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_control_variates_are_used_where_they_help() -> None:
    """The first model took a quarter of the items."""
    rows = control_variate(_set(), rng=0)

    assert ["cuped", *["beta-hpd"] * 4] == [row.method for row in rows]


def test_labels_and_a_judge(run: Run, tmp_path: Path) -> None:
    """Every fifth answer has a label, which is what the judge says but for one."""
    logged = json.loads(
        run("report", LOGS / "models__m2", "-t", "es_bin", "-m", "acc", "--format", "json").stdout
    )
    labels = tmp_path / "labels.csv"
    rows = [f"{i},{int(i % 2 == 0)}" for i in range(0, 60, 5)]
    labels.write_text("\n".join(["item,score", *rows, "1,"]))
    arguments = ("judge", LOGS / "models__m2", "-t", "es_bin", "--judge", "acc")
    done = run(*arguments, "--labels", labels, "--format", "json")
    (row,) = json.loads(done.stdout)["results"]

    assert 60 == logged["results"][0]["n_items"]
    assert ("ppi++", "human", 12) == (row["method"], row["metric"], row["n_items"])
    assert (12, 60, "acc,none") == (row["n_items"], row["n_judged"], row["judge"])
    table = run(*arguments, "--labels", labels).stdout
    assert max(len(line) for line in table.splitlines()) <= 80


def test_labels_may_be_lines_of_json(tmp_path: Path) -> None:
    """Empty scores are no labels."""
    file = tmp_path / "labels.jsonl"
    file.write_text('{"item": 3, "score": 0.5}\n\n{"item": "x", "score": null, "by": "me"}\n')

    assert [Label("3", 0.5)] == read_labels(str(file))


@pytest.mark.parametrize("mark", ["\n", "\r\n", "\x0c", "\x85", "\u2028"])
def test_texts_of_files_may_hold_any_line_end(tmp_path: Path, mark: str) -> None:
    """Lines of a text were run together, and what followed other line ends was a row of its own."""
    name = f"a{mark}b"
    table, lines = tmp_path / "labels.csv", tmp_path / "labels.jsonl"
    table.write_bytes(f'item,score\n"{name}",1\n'.encode())
    lines.write_text(json.dumps({"item": name, "score": 1}, ensure_ascii=False) + "\n")

    assert [Label(name, 1.0)] == read_labels(str(table)) == read_labels(str(lines))


def test_answers_to_label_are_no_formulas_where_people_open_them(run: Run, tmp_path: Path) -> None:
    """A spreadsheet would make 2 of =1+1; the apostrophe that marks a text is taken off again."""
    table, file = tmp_path / "verdicts.csv", tmp_path / "next.csv"
    rows = [f"{model},=1+{i},{i % 2}" for i in range(9) for model in ("a", "@b")]
    table.write_text("\n".join(["model,item,gpt", *rows]))
    run("judge", "label", table, "--judge", "gpt", "--to", file, "--next", "18")

    lines = file.read_text().splitlines()[1:]
    assert 18 == len(lines)
    assert all(line.startswith(("'=1+", "'@b")) for line in lines)
    file.write_text(file.read_text().replace(",,", ",1,"))
    assert {"=1+0", "=1+8"} <= {label.item for label in read_labels(str(file))}
    assert {"a", "@b"} == {label.model for label in read_labels(str(file))}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", f"item,score\n{'x' * 200_000},1", "labels cannot be read as CSV"),
        ("a.csv", "id,score\n1,1", "record 1 has the fields 'id', 'score': each needs"),
        ("a.csv", "item,score\n1,good", "record 1: score 'good' is not a number"),
        ("a.csv", "item,score\n1,1\n1,0", "record 2: item '1' has a second label"),
        ("a.jsonl", "{", "record 1: not JSON"),
        ("a.jsonl", "[1]", r"record 1: \[1\] is no object"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    """With its name and the record's number."""
    file = tmp_path / name
    file.write_text(text)

    with pytest.raises(LogError, match=f"{name}[,:] {message}"):
        read_labels(str(file))


def test_a_file_that_is_not_there_is_an_error(run: Run) -> None:
    """Exit code 2, one message."""
    done = run("judge", LOGS / "models__m2", "--judge", "acc", "--labels", "nowhere.csv")

    assert 2 == done.returncode
    assert "nowhere.csv: labels cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("judge", "--judge", "acc"), "neither --human nor --labels is given"),
        (("judge", "--judge", "a", "--human", "b", "--labels", "c"), "both --human and --labels"),
        (("report", "--control-variate", "--population", "100"), "--control-variate and --popul"),
        (("report", "--control-variate", "--prior", "1,1"), "--control-variate and --prior"),
        (("report", "--baseline", "m0"), "pass --html FILE too, or use `compare --baseline`"),
    ],
)
def test_conflicting_options_are_refused(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    """One line, exit code 2."""
    done = run(*arguments, LOGS / "models__m2", "-t", "es_bin")

    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def _verdicts(folder: Path) -> Path:
    """Write a table of two models' answers: two judges, labels of some, lengths."""
    rng = np.random.default_rng(3)
    rows = ["model,task,item,gpt,claude,label,length"]
    for model, ability in (("llama", 0.0), ("qwen", 1.5)):
        latent = ability + rng.normal(size=120)
        length = rng.normal(size=120)
        gpt = latent + 0.3 * rng.normal(size=120) + 0.8 * length > 0
        claude = np.where(rng.random(120) < 0.85, latent > 0, latent <= 0)
        rows += [
            f"{model},chat,{j},{int(gpt[j])},{int(claude[j])},"
            f"{int(latent[j] > 0) if j < 50 else ''},{200 + 40 * length[j]:.0f}"
            for j in range(120)
        ]
    file = folder / "verdicts.csv"
    file.write_text("\n".join(rows) + "\n")
    return file


def test_a_table_of_verdicts_is_read_as_it_is(run: Run, tmp_path: Path) -> None:
    """Columns are metrics; scores, the difference, agreement and bias stand in 80 columns."""
    table = _verdicts(tmp_path)
    asked = ("judge", table, "--judge", "gpt", "--judge", "claude", "--human", "label")
    done = run(*asked, "--feature", "length", "--explain")
    found = json.loads(run(*asked, "--feature", "length", "--format", "json").stdout)

    assert 0 == done.returncode
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    for text in ("qwen is better than llama", "chat: agreement", "human – gpt", "bias of claude"):
        assert text in done.stdout
    assert ["llama", "qwen"] == [row["model"] for row in found["results"]]
    assert 1 == len(found["differences"])
    assert 3 == len(found["agreement"])
    assert {"length", "score", "llama", "qwen"} == {row["feature"] for row in found["bias"]}
    assert 0 == run(*asked, "--format", "markdown").returncode
    assert 0 == run(*asked, "--format", "csv", "--items", "these").returncode


def test_labels_are_asked_for_filled_in_and_used(run: Run, tmp_path: Path) -> None:
    """From a plan without labels to corrected scores, with the probabilities of the plan."""
    table, plan = _verdicts(tmp_path), tmp_path / "plan.csv"
    asked = ("judge", "label", table, "--judge", "gpt", "--next", "40", "--to", plan)
    done = run(*asked)
    head, *rows = plan.read_text().splitlines()

    assert 0 == done.returncode
    assert "40 answers to label of 20 items, by each of 2 models; 0 have a label." in done.stdout
    assert "item,model,task,score,probability" == head
    assert 40 == len(rows)
    plan.write_text("\n".join([head, *(row.replace(",,", ",yes,") for row in rows[:20]),
                               *(row.replace(",,", ",no,") for row in rows[20:])]))  # fmt: skip
    found = run("judge", table, "--judge", "gpt", "--labels", plan, "--format", "json")
    assert [20, 20] == [row["n_items"] for row in json.loads(found.stdout)["results"]]
    again = run(*asked[:-1], tmp_path / "more.csv", "--labels", plan)
    assert "40 answers to label of 20 items, by each of 2 models; 40 have a label." in again.stdout


def test_other_commands_say_what_a_judge_is_worth(run: Run, tmp_path: Path) -> None:
    """Beside the judge's own scores: report, its page, table, and annotated logs."""
    labels, page, copies = (tmp_path / name for name in ("l.csv", "p.html", "copies"))
    labels.write_text("item,score\n" + "".join(f"{i},{i % 2}\n" for i in range(0, 60, 3)))
    given = (LOGS / "models__m2", "-t", "es_bin", "--judge", "acc", "--labels", labels)
    said = "by 20 human labels (ppi++)"
    report = run("report", *given, "-m", "acc", "--html", page)
    table = run("table", *given, "-m", "acc")
    annotated = run("annotate", *given, "-o", copies)

    assert [0, 0, 0] == [done.returncode for done in (report, table, annotated)]
    for text in (report.stdout, table.stdout):
        assert said in " ".join(text.split())
    assert said in page.read_text()
    assert any("judged 0." in path.read_text() for path in copies.rglob("results*.json"))


def test_a_page_says_what_labels_make_of_a_judge(run: Run, tmp_path: Path) -> None:
    """The table of verdicts as it is; items that nobody labelled do not count as missing."""
    table, page = _verdicts(tmp_path), tmp_path / "page.html"
    asked = ("--judge", "gpt", "--human", "label")
    done = run("report", table, *asked, "--html", page)
    rows = json.loads(run("report", table, *asked, "--format", "json").stdout)["results"]
    scores = json.loads(run("judge", table, *asked, "--format", "json").stdout)["results"]
    shown = page.read_text("utf-8")

    assert (0, 0) == (done.returncode, run("table", table, *asked).returncode)
    assert "Scores are those of a judge, gpt." in shown
    for score in scores:
        corrected = f"{score['estimate']:.4f} [{score['low']:.4f}, {score['high']:.4f}]"
        assert corrected[:6] in shown.partition("Scores as people")[2]
    best = max(scores, key=lambda score: score["estimate"])
    assert f"Corrected, {best['model']} is first: {best['estimate']:.4f}" in shown
    assert "no score" not in shown + done.stdout
    assert [50, 50] == [row["n_items"] for row in rows if row["metric"] == "label"]


def test_an_inspect_log_of_a_model_that_grades_is_read_as_it_is(run: Run, tmp_path: Path) -> None:
    """Labels name their models; the one without any is left out, and the note says so."""
    logs = LOGS.parents[2] / "inspect_ai" / "0.3.285" / "models"
    rows = [f"{i},mockllm/{m},{(i + len(m)) % 2}" for m in ("alpha", "gamma") for i in range(1, 25)]
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(["item,model,score", *rows]))
    given = ("--judge", "rubric:correct", "--labels", labels)
    done = run("judge", logs, "-t", "rubric_task", *given)

    assert 0 == done.returncode
    assert "without human labels, left out: mockllm/beta, mockllm/delta" in done.stdout
    assert "alpha" in done.stdout


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("item,score\n1,1", "say in a column 'model' which one each label is of"),
        ("item,model,score\n1,lama,1", "no model that the judge scored is called 'lama'"),
        ("item,model,score\n900,llama,1", "has 1 human label; label at least 5 items"),
        ("item,model,score\n" + "\n".join(f"{i},llama,7" for i in range(6)), "beyond the scale"),
        ("item,model,score\n" + "\n".join(f"x{i},llama,1" for i in range(6)), "none of them the"),
        ("item,model,score\n1,llama,great", "score 'great' is not a number"),
        ("item,model,score,probability\n1,llama,1,often", "probability 'often' is not a number"),
    ],
)
def test_labels_that_fit_nothing_end_with_exit_code_2(
    run: Run, tmp_path: Path, rows: str, message: str
) -> None:
    """One line that says what to do."""
    labels = tmp_path / "labels.csv"
    labels.write_text(rows)
    bounds = ("--bounds", "human=0,1")
    done = run("judge", _verdicts(tmp_path), "--judge", "gpt", "--labels", labels, *bounds)

    assert 2 == done.returncode
    assert message in done.stderr
    assert 1 == len(done.stderr.strip().splitlines())


def _two_judges(path: Path, rows: Callable[[int], str]) -> Path:
    path.write_text("\n".join(["model,question_text,gpt,people", *map(rows, range(60))]))
    return path


def test_columns_besides_those_of_scores_may_be_named(run: Run, tmp_path: Path) -> None:
    """The judge's column was then no longer looked for, nor in JSONL."""
    table = _two_judges(tmp_path / "t.csv", lambda i: f"{'ab'[i % 2]},q{i // 2},{i % 3},{i % 4}")
    columns = ("--columns", "item=question_text")
    done = run("judge", table, *columns, "--judge", "gpt", "--human", "people")
    lines = tmp_path / "t.jsonl"
    names, *rows = (line.split(",") for line in table.read_text().splitlines())
    lines.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    same = run("judge", lines, *columns, "--judge", "gpt", "--human", "people")

    assert 0 == done.returncode, done.stderr
    assert "bias of gpt" in done.stdout
    assert done.stdout == same.stdout


def test_a_note_on_some_pairs_says_on_which(run: Run, tmp_path: Path) -> None:
    """It stood under the table as if it were of all pairs."""

    def row(i: int) -> str:
        return f"{'abc'[i % 3]},q{i // 3 + 50 * (i % 3 == 2)},{i % 2},{i % 2}"

    table = _two_judges(tmp_path / "t.csv", row)
    columns = ("--columns", "item=question_text")
    arguments = (table, *columns, "--judge", "gpt")
    done = run("judge", *arguments, "--human", "people")
    asked = run("judge", "label", *arguments, "--next", "6")

    assert "0 of 40 items have labels of both models (a – c, b – c)" in " ".join(
        done.stdout.split()
    )
    assert 2 == asked.returncode
    assert "scored no item of 't' for each of its 3 models" in asked.stderr

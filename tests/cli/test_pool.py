"""`evalstats-plugin pool`, `irt capabilities`, and `annotate` with what they find."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from in_process import digests, ran
from lm_eval_logs import write_log

import evalstats_plugin as es
from evalstats_plugin import annotate, pool, read, strip
from evalstats_plugin.cli import main
from evalstats_plugin.cli import pool as command
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.hierarchical import HierarchicalOptions
from evalstats_plugin.hierarchical import capabilities as capability_search
from evalstats_plugin.hierarchical.methods import HIERARCHICAL_MODELS, INFERENCES
from evalstats_plugin.logs.together import CrossedCapabilities

ROOT = Path(__file__).parents[2]
INSPECT = ROOT / "fixtures" / "logs" / "inspect_ai" / "0.3.285" / "models"
LM_EVAL = ROOT / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
SHORT = ("--chains", "2", "--draws", "20", "--warm-up", "10", "-q")


@pytest.fixture
def seven(tmp_path: Path) -> Path:
    """Give the logs of seven models on three tasks; m6 took one, and one task has one question."""
    rng = np.random.default_rng(3)
    for i in range(7):
        right = (rng.random(41) < 0.3 + 0.1 * i).astype(float).tolist()
        tasks = {"easy": right[:25], "hard": right[25:40], "single": right[40:]}
        write_log(tmp_path / "logs", f"m{i}", tasks if i < 6 else {"easy": right[:25]})
    return tmp_path / "logs"


_ran = partial(ran, "pool", *SHORT)


def _json(*arguments: str | Path) -> dict[str, Any]:
    done = _ran(*arguments, "--format", "json")
    assert 0 == done.exit_code, done.output
    return json.loads(done.stdout)


def _refused(*arguments: str | Path) -> str:
    done = _ran(*arguments)

    assert 2 == done.exit_code, done.output
    assert "" == done.stdout
    assert 1 == len(done.stderr.strip().splitlines())
    return done.stderr


def test_help_names_every_model_and_engine() -> None:
    """Names with hyphens are broken at line ends."""
    shown = "".join(CliRunner().invoke(main, ["pool", "--help-all"]).stdout.split())

    assert ",".join(HIERARCHICAL_MODELS) in shown
    assert f"auto,{','.join(INFERENCES)}" in shown


def test_json_holds_scores_pairs_difficulties_and_the_fit(seven: Path) -> None:
    """As the function says with the same seed."""
    whole = _json(seven, "--seed", "3")
    options = HierarchicalOptions(chains=2, draws=20, warm_up=10)
    fit = pool(read(seven), rng=3, options=options)

    assert whole["results"] == json.loads(json.dumps(fit.to_dict()))
    assert whole["contrasts"] == fit.contrasts().to_dict()
    assert ["easy", "hard", "single"] == sorted(row["task"] for row in whole["difficulties"])
    assert ("shared", "gibbs") == (whole["fit"]["model"], whole["fit"]["inference"])
    assert "shared" == whole["evalstats"]["model"]
    (missing,) = (r for r in whole["results"] if (r["model"], r["task"]) == ("m6", "hard"))
    assert missing["score"] is None
    assert 0 < missing["low"] < missing["estimate"] < missing["high"] < 1


def test_a_formula_stands_in_place_of_a_model(seven: Path) -> None:
    """And is named in the output."""
    whole = _json(seven, "--formula", "score ~ model", "--draws", "8")

    assert ("score ~ model", "nuts") == (whole["fit"]["model"], whole["fit"]["inference"])
    assert 7 * 4 == len(whole["results"])


def test_slices_borrow_from_each_other_and_from_other_models() -> None:
    """The numbers are those of slices written as tasks; limits are narrower than those alone."""
    asked = (INSPECT, "-t", "rubric_task", "-m", "rubric:correct", "--by", "passage")
    shown = _json(*asked)
    responses = read(str(INSPECT), task="rubric_task", metric="rubric:correct", by="passage")
    as_tasks = [
        replace(r.of_items(r.tags == name), tags=None).measured(task=str(name))
        for r in responses
        if r.tags is not None
        for name in np.unique(r.tags)
    ]
    fit = pool(as_tasks, rng=0, options=HierarchicalOptions(chains=2, draws=20, warm_up=10))
    rows = {(row["model"], row["task"]): row for row in shown["results"]}
    assert {(row.model, row.task) for row in fit} == set(rows)
    for row in fit:
        assert row.estimate == rows[row.model, row.task]["estimate"]
    alone = es.slices(responses, by="passage", confidence_level=0.95)
    widths = [
        (rows[row.model, row.slice]["high"] - rows[row.model, row.slice]["low"])
        / (row.high - row.low)
        for row in alone
    ]
    assert np.median(widths) < 0.8
    assert "by passage" in _ran(*asked).output
    assert "pool --by passage" in CliRunner().invoke(main, ["report", *map(str, asked)]).output


def test_slices_that_share_items_are_not_pooled(tmp_path: Path) -> None:
    """An item of two tags would count twice; a task of one slice has nothing to borrow from."""
    rows = ["model,task,item,score,tags"]
    rows += [f'm,t,i{i},{i % 2},"[""odd"", ""all""]"' for i in range(9)]
    (tmp_path / "tags.csv").write_text("\n".join(rows))
    assert "share items" in _refused(tmp_path / "tags.csv", "--by", "tags")
    assert "--top" in _refused(tmp_path / "tags.csv", "--top", "2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--formula", "score ~ model * task"), "term 'model * task' of the formula is not"),
        (("--formula", "score ~ model", "--family", "beta"), "scores are 0 or 1"),
        (("--formula", "score ~ model", "--compare", "task"), "--compare knows no formulas"),
        (("--formula", "score ~ model", "--method", "task"), "in place of a model"),
        (("--family", "beta"), "give --formula"),
    ],
)
def test_formulas_that_do_not_fit_are_refused(
    seven: Path, arguments: tuple[str, ...], message: str
) -> None:
    """In one line."""
    assert message in " ".join(_refused(seven, *arguments).split())


def test_formulas_without_torch_are_refused(seven: Path) -> None:
    """By a message: an engine must not be loaded before it is known that there is torch."""
    code = "import sys; sys.modules['torch'] = None; from evalstats_plugin.cli import main; main()"
    asked = ["pool", str(seven), "--metric", "acc", "--formula", "score ~ model"]
    done = subprocess.run(
        [sys.executable, "-c", code, *asked], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr[:27]) == (2, "error: formulas need torch:")


def test_tables_fit_eighty_columns(seven: Path) -> None:
    """Of seven models each is compared with the next, or all with a baseline."""
    text = _ran(seven).stdout
    baseline = _ran(seven, "--baseline", "m0").stdout
    markdown = _ran(seven, "--format", "markdown").stdout
    said = " ".join(text.split())

    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "7 models on 3 tasks (acc), model shared, in percent" in said
    assert "Each model and the next, in points" in said
    assert 6 == text.count(" – m")
    assert "m6: 2 of 3 tasks not run: predicted from the other models and tasks" in said
    assert "a task has a single question" in said
    assert "Compared with m0, in points" in baseline
    assert 6 == baseline.count(" – m0")
    assert "| m5 | (all) |" in markdown


def test_csv_has_one_row_for_each_model_and_task(seven: Path) -> None:
    """And one for each model over all tasks, whose task is empty."""
    done = _ran(seven, "--format", "csv")
    rows = list(csv.DictReader(StringIO(done.stdout)))

    assert 7 * 4 == len(rows)
    assert 7 == sum(row["task"] == "" for row in rows)


def test_one_model_is_nested_and_models_are_compared_by_evidence(seven: Path) -> None:
    """Also one question, and all of them right."""
    whole = _json(seven / "m3")
    text = _ran(seven / "m3").stdout

    assert ("task", "importance") == (whole["fit"]["model"], whole["fit"]["inference"])
    assert [] == whole["contrasts"]
    assert {"task", "per-task", "beta-binomial"} == {row["model"] for row in whole["evidence"]}
    assert "Which model the answers speak for" in text
    assert "1 model on 3 tasks" in text


@pytest.mark.parametrize("scores", [[1.0], [1.0, 1.0, 1.0], [0.0, 0.5, 1.0]], ids=str)
def test_hardly_any_answers_give_finite_numbers(tmp_path: Path, scores: list[float]) -> None:
    """One model and one task; two models, all right or not."""
    write_log(tmp_path / "logs", "m0", {"a": scores})
    alone = _json(tmp_path / "logs")
    write_log(tmp_path / "logs", "m1", {"a": scores, "b": [1.0, 0.0]})
    both = _json(tmp_path / "logs")

    assert "per-task" == alone["fit"]["model"]
    assert 2 + 6 == len(alone["results"]) + len(both["results"])
    for row in (*alone["results"], *both["results"]):
        assert 0 <= row["low"] <= row["estimate"] <= row["high"] <= 1


def test_covariates_come_from_tables_of_models_and_of_tasks(seven: Path, tmp_path: Path) -> None:
    """Rows of models that are not there do no harm."""
    sizes, lengths = tmp_path / "sizes.csv", tmp_path / "lengths.csv"
    sizes.write_text("model,size\n" + "".join(f"m{i},{i}\n" for i in range(9)))
    lengths.write_text("task,length,year\neasy,1,3\nhard,2,1\nsingle,3,1\n")
    whole = _json(seven, "--covariates", sizes, "--covariates", lengths)
    text = _ran(seven, "--covariates", sizes).stdout

    assert ["size", "length", "year"] == [row["covariate"] for row in whole["effects"]]
    assert "Covariates" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--method", "tusk"), "no hierarchical model is called 'tusk'"),
        (("--inference", "nuts"), "no inference is called 'nuts'"),
        (("--method", "task", "--inference", "exact"), "does not fit model 'task'"),
        (("--baseline", "m9"), "no model is called 'm9'"),
        (("-c", "95"), "is not between 0 and 1"),
        (("--figure", "x.png"), "--figure forest -o x.png"),
        (("--covariates", "no.csv"), "no.csv: covariates cannot be"),
    ],
)
def test_options_that_cannot_be_met(seven: Path, options: tuple[str, ...], said: str) -> None:
    """One message, exit code 2."""
    assert said in _refused(seven, *options)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("who,size\nm0,1\n", "has the columns 'who', 'size': it needs a column 'model' or"),
        ("model,size\nm0,big\n", "line 2, 'size': 'big' is not a number"),
        ("model,size\nm0,1\n", "covariate 'size' has no value for models m1, m2"),
        ("model,size\n" + "".join(f"m{i},7\n" for i in range(7)), "is the same for all"),
        ("", "has the columns none"),
    ],
)
def test_covariates_that_cannot_be_used(seven: Path, tmp_path: Path, table: str, said: str) -> None:
    """What is wrong, and where."""
    (tmp_path / "x.csv").write_text(table)

    assert said in _refused(seven, "--covariates", tmp_path / "x.csv")


def test_several_metrics_of_a_task_need_a_choice() -> None:
    """Which tasks, and how to choose."""
    said = _refused(LM_EVAL)

    assert "tasks have several metrics: es_" in said
    assert "choose one with --metric" in said


def test_long_fits_tell_their_cost_beforehand(seven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error; not when quiet."""
    monkeypatch.setattr(command, "LONG", 0.0)
    arguments = ["pool", str(seven), *SHORT[:-1]]
    told = CliRunner().invoke(main, arguments)

    assert told.stderr == "7 models × 3 tasks (41 questions): a second or less on one core\n"
    assert "" == _ran(seven).stderr


def test_pooling_needs_no_torch(seven: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from evalstats_plugin.cli import main\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        f"        main(['pool', {str(seven)!r}, *{SHORT}, '--method', name])\n"
        "    except SystemExit as end:\n"
        "        print('ended', name, end.code)\n"
    )
    names = ("task", "shared", "across-task", "per-task")
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True,
                          text=True, check=False)  # fmt: skip

    assert (0, "") == (done.returncode, done.stderr)
    ended = [line for line in done.stdout.splitlines() if line.startswith("ended ")]
    assert [f"ended {name} 0" for name in names] == ended


def test_lm_eval_logs_carry_pooled_scores_and_lose_them_again(tmp_path: Path) -> None:
    """Twice is the same; samples are not touched; stripping gives the original to the byte."""
    folder = tmp_path / "models__m2"
    folder.mkdir()
    for file in (LM_EVAL / "models__m2").glob("*2026-11-21T07-08-19.905174*"):
        shutil.copy(file, folder)
    before = digests(folder)
    logs = annotate(folder, in_place=True, fits=["pool"])
    once = digests(folder)
    done = CliRunner().invoke(main, ["annotate", str(folder), "--in-place", "--fit", "pool"])
    blocks = [json.loads(log.read_text())["evalstats"] for log in logs]
    rows = [row for block in blocks for row in block["pooled"] if row["metric"] == "acc"]
    fit = pool(read(folder, metric="acc"), rng=0)
    expected = {row.task: row for row in fit}

    assert 0 == done.exit_code, done.output
    assert once == digests(folder)
    assert {str(log.relative_to(folder)) for log in logs} == {
        name for name in before if before[name] != once[name]
    }
    assert set(expected) == {row["task"] for row in rows}
    for row in rows:
        own = expected[row["task"]]
        assert (own.estimate, own.low, own.high) == (row["estimate"], row["low"], row["high"])
    strip(folder, in_place=True)
    assert before == digests(folder)


def test_inspect_logs_carry_pooled_scores_and_lose_them_again(tmp_path: Path) -> None:
    """Four models on one task; the summary says so."""
    from inspect_ai.log import read_eval_log

    for log in INSPECT.glob("*_arith_*.eval"):
        shutil.copy(log, tmp_path)
    whole = pool(read(tmp_path), rng=0)
    samples = {log: read_eval_log(str(log)).samples for log in tmp_path.glob("*.eval")}
    annotate(tmp_path, in_place=True, fits=["pool"])

    assert 4 == len(samples)
    for log in samples:
        found = read_eval_log(str(log), header_only=True)
        pooled = found.metadata["evalstats"]["pooled"]
        expected = [row for row in whole if row.model == found.eval.model]
        assert [(r.task, r.estimate, r.low, r.high) for r in expected] == [
            (r["task"], r["estimate"], r["low"], r["high"]) for r in pooled
        ]
        assert "match pooled on arith" in found.metadata["evalstats_summary"]
    strip(tmp_path, in_place=True)
    for log, kept in samples.items():
        found = read_eval_log(str(log))
        assert "evalstats" not in (found.metadata or {})
        assert kept == found.samples


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search for one capability, with two penalties tried on two folds."""
    for name, value in (("MOST_CAPABILITIES", 1), ("PENALTIES", (4.0, 2.5)), ("_FOLDS", 2)):
        monkeypatch.setattr(capability_search, name, value)


@pytest.fixture
def solvers(tmp_path: Path) -> Path:
    """Give the logs of 24 models on one task, every third question of which needs one skill."""
    rng = np.random.default_rng(0)
    needs = np.arange(90) % 3 == 0
    logit = rng.normal(size=(24, 1)) + 3 * rng.normal(size=(24, 1)) * needs
    right = rng.random((24, 90)) < 1 / (1 + np.exp(-logit))
    for i, row in enumerate(right.astype(float).tolist()):
        write_log(tmp_path / "logs", f"m{i:02}", {"quiz": row})
    return tmp_path / "logs"


@pytest.mark.usefixtures("quick")
def test_logs_carry_what_the_capabilities_command_finds_and_lose_it_again(solvers: Path) -> None:
    """Levels of each log's own model, and whether a plain model predicts as well."""
    before = digests(solvers)
    asked = ["irt", "capabilities", str(solvers), "-q", "--format", "json"]
    found = json.loads(CliRunner().invoke(main, asked, catch_exceptions=False).stdout)
    done = CliRunner().invoke(
        main, ["annotate", str(solvers), "--in-place", "--fit", "capabilities"]
    )
    models = {row["model"]: row for row in found["fit"]["models"]}

    assert 0 == done.exit_code, done.output
    assert found["results"]
    for log in map(Path, done.stdout.splitlines()):
        block = json.loads(log.read_text())["evalstats"]
        (model,) = {r.model for r in read(log)}
        assert [row["capability"] for row in found["results"]] == [
            row["capability"] for row in block["capabilities"]
        ]
        for row in block["capabilities"]:
            assert row["model"] == model
            assert row["level"] == models[model][f"feature_{row['capability']}"]
            assert row["overall"] == models[model]["performance"]
        assert f"capabilities on acc: {found['evalstats']['notes'][0]}" in block["notes"]
    strip(solvers, in_place=True)
    assert before == digests(solvers)


@pytest.mark.usefixtures("quick")
def test_items_carry_how_strongly_they_need_a_capability(solvers: Path) -> None:
    """Every third one; a log of another task carries nothing of them."""
    responses = list(read(solvers))
    found = CrossedCapabilities({"all": responses})
    needs = found.of_items(frozenset({"quiz"}))

    strong = [needs[str(i)]["evalstats_capability1"] > 0.5 for i in range(90)]
    assert np.mean(strong[::3]) > 0.9
    assert np.mean(strong[1::3] + strong[2::3]) < 0.2
    assert {} == found.of_items(frozenset({"other"}))


def test_a_model_that_cannot_be_fitted_over_logs_is_named(tmp_path: Path) -> None:
    """In Python as by the command."""
    done = CliRunner().invoke(main, ["annotate", str(LM_EVAL), "-o", str(tmp_path), "--fit", "pol"])

    assert 2 == done.exit_code
    assert "did you mean pool?" in done.stderr.lower()
    with pytest.raises(SelectionError, match="irt, pool, capabilities"):
        annotate(LM_EVAL, output=tmp_path, fits=["2pl"])


def test_stripping_and_pooling_do_not_go_together(tmp_path: Path) -> None:
    """One message."""
    done = CliRunner().invoke(
        main, ["annotate", str(LM_EVAL), "-o", str(tmp_path), "--strip", "--fit", "pool"]
    )

    assert 2 == done.exit_code
    assert "--strip and --fit do not go together" in done.stderr


def test_a_metric_that_cannot_be_pooled_is_told_in_the_log(tmp_path: Path) -> None:
    """Scores beyond 1; if there is nothing else, nothing is written."""
    write_log(tmp_path / "logs", "m0", {"a": [0.0, 50.0, 100.0]})
    before = digests(tmp_path)
    done = CliRunner().invoke(main, ["annotate", str(tmp_path), "--in-place", "--fit", "pool"])

    assert 2 == done.exit_code
    assert "no metric can be pooled: acc: score 50 of model 'm0' on item 1" in done.stderr
    assert before == digests(tmp_path)


def test_one_chain_is_compared_with_itself(seven: Path) -> None:
    """By its halves, so that there is an R-hat."""
    whole = _json(seven, "--chains", "1")

    assert 0.9 < whole["fit"]["diagnostics"]["worst_r_hat"]


def test_compared_models_stand_below_the_scores(seven: Path) -> None:
    found = _json(seven, "--method", "task", "--compare", "per-task")
    shown = _ran(seven, "--method", "task", "--compare", "per-task").stdout

    assert {row["model"] for row in found["compared"]} == {"task", "per-task"}
    assert "Left-out scores" in shown


_capabilities = partial(ran, "irt", "capabilities", "-q", "--seed", "1", "--dimensions", "1")


@pytest.mark.usefixtures("quick")
def test_a_planted_capability_is_found_with_its_questions(tmp_path: Path) -> None:
    """A third of the questions need it; it predicts better than the plain model."""
    rng = np.random.default_rng(0)
    needs = np.arange(90) % 3 == 0
    logit = rng.normal(size=(40, 1)) + 2.5 * rng.normal(size=(40, 1)) * needs
    right = rng.random((40, 90)) < 1 / (1 + np.exp(-logit))
    lines = [f"m{i},quiz,q{j},{x:d}" for (i, j), x in np.ndenumerate(right)]
    table = tmp_path / "answers.csv"
    table.write_text("\n".join(["model,task,item,score", *lines]))
    done = _capabilities(table, "--format", "json")
    found = json.loads(done.stdout)
    (row,) = found["results"]
    strong = {item["item"]: item["feature_1"] for item in found["fit"]["items"]}
    plain, sparse = found["held_out"]

    assert not found["plain_is_as_good"]
    assert "predict held-out answers better" in found["evalstats"]["notes"][0]
    assert row["found_again"] > 0.9
    assert row["by_chance"] < 0.5
    asked = [strong[f"q{j}"] > 0.5 for j in range(0, 90, 3)]
    spared = [strong[f"q{j}"] > 0.5 for j in range(90) if j % 3]
    assert np.mean(asked) > 0.9
    assert np.mean(spared) < 0.3
    assert sparse["gain"] == pytest.approx(plain["log_loss"] - sparse["log_loss"])
    assert sparse["gain"] > 4 * sparse["gain_error"] > 0
    assert plain["gain"] == 0


@pytest.mark.usefixtures("quick")
def test_a_plain_hierarchical_model_predicts_as_well_where_tasks_are_all(tmp_path: Path) -> None:
    """How good models are on each task is all that answers have in common."""
    rng = np.random.default_rng(1)
    logit = rng.normal(size=(8, 1)) + rng.normal(size=(8, 3))[:, np.arange(45) % 3]
    right = rng.random((8, 45)) < 1 / (1 + np.exp(-logit))
    lines = [f"m{i},t{j % 3},q{j},{x:d}" for (i, j), x in np.ndenumerate(right)]
    table = tmp_path / "answers.csv"
    table.write_text("\n".join(["model,task,item,score", *lines]))
    done = _capabilities(table)

    assert 0 == done.exit_code
    assert "a plain hierarchical model predicts as well" in done.stdout

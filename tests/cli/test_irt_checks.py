"""`evalstats-plugin irt`: refits, answers held out, unlike items, links, factors, and refusals."""

from __future__ import annotations

import csv
import json
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import once, ran
from lm_eval_logs import write_log

from evalstats_plugin import fit_irt, read
from evalstats_plugin.cli.shell.fitting import OVER, IrtOptions
from evalstats_plugin.irt import IRTFit, bootstrap, choosing, holdout
from evalstats_plugin.irt.answers import ability_matrix
from evalstats_plugin.irt.bootstrap import OVER as KNOWN_OVER
from evalstats_plugin.irt.linking import link
from evalstats_plugin.irt.methods import MASKS
from evalstats_plugin.irt.model.fit import FactorFit
from evalstats_plugin.irt.model.masks import MASKS as ALL_MASKS

pytestmark = pytest.mark.needs("torch")

N, M = 24, 60
NAMES = [f"chat-{i}" if i % 2 else f"base-{i}" for i in range(N)]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give 24 models on 60 items; item 7 is much harder for the chat models."""
    folder = tmp_path_factory.mktemp("logs")
    rng = np.random.default_rng(3)
    logit = np.linspace(-1.5, 1.5, N)[:, None] - rng.standard_normal(M)
    chat = np.array([name.startswith("chat") for name in NAMES])
    logit[chat, 7], logit[~chat, 7] = -3, 3
    right = (rng.random((N, M)) < 1 / (1 + np.exp(-logit))).astype(float)
    for name, row in zip(NAMES, right.tolist(), strict=True):
        write_log(folder, name, {"quiz": row})
    return folder


run = partial(ran, "irt")


def as_json(command: str, *arguments: str | Path) -> dict[str, Any]:
    """Run, and read its JSON."""
    done = run(command, *arguments, "--format", "json", "-q")
    assert 0 == done.exit_code, done.output
    return json.loads(done.stdout)


RASCH = ("--item-model", "rasch")
SHOWN = {
    "bootstrap": ("fit", "--bootstrap", "40", "--item-model", "rasch"),
    "holdout": ("holdout", "--mask", "random", "--mask", "rows", "--draws", "2"),
    "choose": ("choose", "--candidate", "rasch,2pl", "--draws", "1"),
    "dif": ("dif", "--focal", "chat-*"),
    "uncertainty": ("fit", "--item-model", "rasch", "--uncertainty", "model,sandwich,items"),
    "factor": ("fit", "--dimensions", "2"),
    "loadings": ("items", "--dimensions", "2"),
}
FITTING: tuple[tuple[Any, str], ...] = (
    (IrtOptions, "fit"), (bootstrap, "uncertainty"), (choosing, "choose_model"),
    (holdout, "hold_out"),
)  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_every_table_fits_eighty_columns_and_every_format_is_whole(
    name: str, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cell is cut; Markdown has tables; CSV one line per row of JSON. All of one fit."""
    for module, function in FITTING:
        monkeypatch.setattr(module, function, once(getattr(module, function)))
    command, *options = SHOWN[name]
    table, markdown, rows = (
        run(command, logs, *options, "--format", form, "-q")
        for form in ("table", "markdown", "csv")
    )
    whole = as_json(command, logs, *options)

    assert 0 == table.exit_code, table.output
    assert max(map(len, table.stdout.splitlines())) <= 80
    assert "…" not in table.stdout
    assert "| ---: |" in markdown.stdout
    assert len(whole["results"]) == len(list(csv.DictReader(StringIO(rows.stdout))))


def test_a_bootstrap_gives_percentiles_and_its_covariance(logs: Path) -> None:
    """Of the same point estimates; what is drawn decides how wide they are."""
    plain = {row["model"]: row for row in as_json("fit", logs, *RASCH)["results"]}
    whole = as_json("fit", logs, *RASCH, "--bootstrap", "100", "--baseline", "base-0")
    rows = {row["model"]: row for row in whole["results"]}
    again = as_json("fit", logs, *RASCH, "--bootstrap", "100", "--baseline", "base-0")

    assert whole == {**again, "fit": whole["fit"]}
    for name, row in rows.items():
        assert plain[name]["estimate"] == row["estimate"]
        assert plain[name]["std_error"] != row["std_error"]
        assert row["low"] < row["estimate"] < row["high"]
    width = np.mean([row["std_error"] / plain[n]["std_error"] for n, row in rows.items()])
    assert width == pytest.approx(1, abs=0.15)
    assert any("percentiles of 100 refits to items drawn anew" in n for n in
               whole["evalstats"]["notes"])  # fmt: skip
    assert 23 == len(whole["differences"])


def test_a_table_says_how_large_models_are_and_when_they_were_released(
    logs: Path, tmp_path: Path
) -> None:
    table = tmp_path / "models.csv"
    lines = [f"{name},{i},2024-{1 + i % 12:02}-01" for i, name in enumerate(NAMES)]
    table.write_text("\n".join(["model,size,released", *lines]))
    masks = ("--mask", "shifted-size", "--mask", "temporal", "--draws", "1")
    rows = as_json("holdout", logs, *RASCH, *masks, "--about", table)["results"]
    table.write_text("model,size\nbase-0,large\n")

    assert [row["mask"] for row in rows] == ["shifted-size", "temporal"]
    assert (
        "size of base-0 'large' is not a number"
        in run("holdout", logs, *masks, "--about", table).output
    )


@pytest.mark.parametrize(
    ("over", "extra", "said"),
    [
        ("models", (), "a model's ability varies only where it was drawn"),
        ("clusters", ("--cluster", "passage"), "clusters of items drawn anew"),
        ("parametric", (), "refits to answers simulated from the fit"),
    ],
)
def test_refits_go_over_what_is_asked(
    logs: Path, over: str, extra: tuple[str, ...], said: str
) -> None:
    """And the notes say so."""
    refits = ("--bootstrap", "40", "--over", over)
    notes = as_json("fit", logs, *RASCH, *refits, *extra)["evalstats"]["notes"]

    assert said in " ".join(notes)
    assert set(OVER) == set(KNOWN_OVER)


def test_answers_held_out_are_predicted_better_than_by_their_mean(logs: Path) -> None:
    """A row for each mask and seed, the same again; calibration adds up."""
    whole = as_json("holdout", logs, *SHOWN["holdout"][1:], "--seed", "4")
    rows = whole["results"]

    assert [("random", 4), ("random", 5), ("rows", 4), ("rows", 5)] == [
        (row["mask"], row["seed"]) for row in rows
    ]
    assert all(row["log_loss"] < row["base_log_loss"] for row in rows)
    assert all(0.6 < row["auc"] < 0.95 for row in rows)
    for mask in ("random", "rows"):
        cells = sum(row["n_cells"] for row in rows if row["mask"] == mask)
        assert cells == sum(b["n_cells"] for b in whole["calibration"] if b["mask"] == mask)
    assert rows == as_json("holdout", logs, *SHOWN["holdout"][1:], "--seed", "4")["results"]
    assert set(MASKS) == set(ALL_MASKS)


def test_new_items_are_predicted_from_questions_of_the_logs_and_from_numbers(
    tmp_path: Path,
) -> None:
    """Texts of the logs' items are taken from there; numbers stand in the file for all items."""
    few = ("fixtures/logs/lm_eval/0.4.13/out", "-t", "es_mc", "-m", "acc", *RASCH)
    texts, numbers, wrong = (tmp_path / name for name in ("texts.csv", "numbers.csv", "wrong.csv"))
    texts.write_text("item,text\nn1,How much is 2 + 3?\nn2,Name a river\n")
    numbers.write_text("item,steps\n" + "".join(f"{i},{i % 7}\n" for i in range(100, -1, -1)))
    wrong.write_text("item,steps\nn1,many\n")
    by_text = as_json("new-items", *few, "--features", texts)
    by_number = as_json("new-items", *few, "--features", numbers)
    table = run("new-items", *few, "--features", texts, "--format", "table")

    assert [row["item"] for row in by_text["results"]] == ["n1", "n2"]
    assert by_text["n_items"] == by_number["n_items"] == 60
    assert [row["item"] for row in by_number["results"]] == [str(i) for i in range(100, 59, -1)]
    assert all(r["low"] < r["difficulty"] < r["high"] for r in by_number["results"])
    assert "Learnt from 60 items" in table.output
    assert max(map(len, table.stdout.splitlines())) <= 80
    assert "steps 'many' is not a number" in run("new-items", *few, "--features", wrong).output
    assert run("new-items", *few, "--features", wrong).exit_code == 2


def test_an_item_that_is_harder_for_one_group_is_found(logs: Path) -> None:
    """By a pattern or by names, which give the same; no other is."""
    rows = as_json("dif", logs, "--focal", "chat-*")
    same = as_json("dif", logs, "--focal", ",".join(n for n in NAMES if n[0] == "c"))

    assert "7" == rows["results"][0]["item"]
    assert ["7"] == [row["item"] for row in rows["results"] if row["flagged"]]
    assert rows["results"][0]["log_odds"] < -2
    assert rows["results"] == same["results"]
    assert 12 == len(rows["focal"])
    assert "large harder" in " ".join(run("dif", logs, "--focal", "chat-*").stdout.split())


def test_a_fit_is_linked_to_a_saved_one(logs: Path, tmp_path: Path) -> None:
    """As `link` does; the note tells the constants."""
    bank = tmp_path / "bank.parquet"
    as_json(
        "fit", logs / "base-0", logs / "base-8", logs / "chat-3", logs / "chat-23", "--save", bank
    )
    whole = as_json("link", logs, "--to", bank)
    expected = link(IRTFit.load(bank), fit_irt(ability_matrix(read(logs)), rng=0))
    found = {row["model"]: row["estimate"] for row in whole["results"]}

    for name, value in zip(expected.models, expected.ability.tolist(), strict=True):
        assert value == pytest.approx(found[name], abs=1e-9)
    version = IRTFit.load(bank).version
    notes = whole["evalstats"]["notes"]
    assert any(f"on the scale of bank {version}: " in note for note in notes)


def test_factors_have_a_row_per_dimension_and_are_a_bank(logs: Path, tmp_path: Path) -> None:
    """Scored again on their own items they come back."""
    bank = tmp_path / "factors.parquet"
    whole = as_json("fit", logs, "--dimensions", "1", "--save", bank)
    scored = as_json("score", logs, "--bank", bank)
    two = as_json("fit", logs, "--dimensions", "2")
    found = {row["model"]: row["estimate"] for row in scored["results"]}

    assert 1 == FactorFit.load(bank).n_dimensions
    for row in whole["results"]:
        assert row["estimate"] == pytest.approx(found[row["model"]], abs=0.02)
    assert 2 * N == len(two["results"])
    assert 2 * M == len(two["items"])
    assert "factor" == two["fit"]["item_model"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("fit --bootstrap 0", "0 is not in the range x>=1"),
        ("fit --bootstrap 20", "20 resamples"),
        ("fit --bootstrap 40 --over clusters", "no item has a cluster"),
        ("fit --uncertainty jackknife", "no recipe is called 'jackknife'"),
        ("fit --over items", "--over is an option of the bootstrap: pass --bootstrap B too"),
        ("fit --dimensions none", "--dimensions 'none' is not a number of dimensions"),
        ("fit --dimensions 0", "--dimensions '0' is not a number"),
        ("fit --dimensions 24", "24 dimensions"),
        ("fit --dimensions 2 --item-model rasch", "rasch has one ability per model"),
        ("fit --dimensions 2 --baseline base-0", "--baseline needs one ability of each model"),
        ("fit --dimensions 2 --estimator mml", "not 'factor': choose map"),
        ("fit --save fit.json", "must end in .parquet"),
        ("fit --models gpt-*", "no model is called 'gpt-*'"),
        ("holdout --mask cells", "no mask is called 'cells'"),
        ("holdout --draws 0", "0 is not in the range x>=1"),
        ("holdout --item-model 3pl --estimator jml", "'3pl'"),
        ("holdout --save x.parquet", "No such option '--save'"),
        ("dif --focal gpt-*", "no model is called 'gpt-*'"),
        ("dif --focal base-0", "1 focal and 23 other models"),
        ("dif --focal ,", "no model is called ''"),
        ("dif --focal chat-* --item-model factor", "no item model is called 'factor'"),
        ("link --to none.parquet", "none.parquet does not exist"),
        ("score --bank none.parquet", "none.parquet does not exist"),
        ("score", "Missing option '--bank'"),
        ("fits", "no command is called 'fits'; did you mean fit"),
    ],
)
def test_options_that_cannot_be_met(logs: Path, command: str, message: str) -> None:
    """One message, exit code 2, nothing printed."""
    name, *options = command.split()
    done = run(name, logs, *options)

    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert message in " ".join(done.stderr.split())


def test_a_fit_is_saved_over_a_file_on_request_only(logs: Path, tmp_path: Path) -> None:
    """A folder is never replaced."""
    file, folder = (tmp_path / f"{n}.parquet" for n in ("file", "folder"))
    file.write_text("my thesis")
    folder.mkdir()
    refused = [run("fit", logs, "--save", path) for path in (file, folder)]

    assert [done.exit_code for done in refused] == [2, 2]
    assert "exists already" in refused[0].stderr
    assert "is a folder: name a file in it" in refused[1].stderr
    assert file.read_text() == "my thesis"
    as_json("fit", logs, "--save", file, "--overwrite", "--item-model", "rasch")
    assert IRTFit.load(file).item_model == "rasch"


def test_help_lists_options_in_groups() -> None:
    """Every option once."""
    text = run("fit", "--help-all").stdout

    for heading in ("What is fitted:", "Confidence intervals:", "Output:", "Input:"):
        assert heading in text
    assert all(text.count(f"  {name} ") == 1 for name in ("--estimator", "--bootstrap", "--save"))
    assert max(map(len, text.splitlines())) <= 80


def test_guessing_is_given_by_number_task_or_estimated(logs: Path) -> None:
    for value, expected in (("0.2", 0.2), ("quiz=0.1", 0.1)):
        items = as_json("items", logs, *RASCH, "--guessing", value)["results"]
        assert {row["guessing"] for row in items} == {expected}
    fitted = as_json("fit", logs, *RASCH, "--guessing", "estimated")["fit"]

    assert fitted["diagnostics"]["guessing"] == "estimated"
    page = run("fit", logs, *RASCH, "--guessing", "0.2", "--format", "markdown").output
    assert "average item halfway between chance and all right" in " ".join(page.split())
    assert "'x' is not a chance" in run("fit", logs, "--guessing", "x").output
    assert "no task is called" in run("fit", logs, "--guessing", "quizz=0.2").output


def test_held_out_answers_are_predicted_by_the_estimator_asked_for(logs: Path) -> None:
    one, other = (
        as_json("holdout", logs, "--draws", "1", "--estimator", name)["results"][0]["log_loss"]
        for name in ("auto", "jml")
    )

    assert one < other

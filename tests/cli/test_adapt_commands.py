"""``adapt bank``, ``merge``, ``replay`` and ``simulate``, as a person would run them."""

from __future__ import annotations

import csv
import json
import shutil
from io import StringIO
from pathlib import Path

import pytest
from adaptive_logs import TASKS, change_item, draw_logs
from click.testing import CliRunner, Result

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.selection import RULE_NAMES
from evalstats_plugin.cli import main
from evalstats_plugin.cli.adapt import options

pytestmark = pytest.mark.needs("torch")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give logs of 60 models to calibrate on; the first three items are backwards."""
    folder = tmp_path_factory.mktemp("logs")
    draw_logs(folder, 60, seed=1, backwards=3)
    return folder


@pytest.fixture(scope="module")
def bank(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give their item bank."""
    path = tmp_path_factory.mktemp("bank") / "bank.parquet"
    done = _adapt("bank", logs, "-o", path, "--quiet")
    assert 0 == done.exit_code, done.output
    return path


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give logs of 8 models that the bank does not know."""
    folder = tmp_path_factory.mktemp("others")
    draw_logs(folder, 8, seed=2, prefix="new", backwards=3)
    return folder


def _adapt(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, ["adapt", *map(str, arguments)])


def _json(*arguments: object) -> dict[str, object]:
    done = _adapt(*arguments, "--format", "json", "--quiet")
    assert 0 == done.exit_code, done.output
    return json.loads(done.stdout)


def test_names_on_the_command_line_are_those_of_the_rules() -> None:
    """They are written twice because NumPy takes time to load."""
    assert ("auto", *RULE_NAMES) == options.RULES


def test_a_bank_leaves_out_what_able_models_fail_and_says_so(logs: Path, tmp_path: Path) -> None:
    """The table and the JSON hold the same; the file is what was said."""
    path = tmp_path / "bank.parquet"
    table = _adapt("bank", logs, "-o", path)
    assert 0 == table.exit_code, table.output
    assert "calibrating 60 items on 60 models" in table.stderr
    assert max(map(len, table.stdout.splitlines())) <= 80
    assert "not asked, negative discrimination: 3 of task_a (0, 1, 2)" in table.stdout
    found = {row["task"]: row for row in _json("bank", logs, "-o", path, "--overwrite")["results"]}
    made = ItemBank.load(path)
    assert TASKS == {task: row["n_items"] for task, row in found.items()}
    assert int(made.usable.sum()) == sum(row["n_usable"] for row in found.values())
    assert {"0", "1", "2"} <= {text.partition(": ")[0] for text in found["task_a"]["left_out"]}
    assert ["acc,none"] == made.provenance["metrics"]


def test_costs_of_a_file_are_kept_and_budgets_go_by_them(
    logs: Path, others: Path, tmp_path: Path
) -> None:
    """Items of task_b cost ten times as much."""
    cost, path = tmp_path / "cost.csv", tmp_path / "bank.parquet"
    lines = [f"{t},{i},{1 + 9 * (t == 'task_b')}" for t, m in TASKS.items() for i in range(m)]
    cost.write_text("task,item,cost\n" + "\n".join(lines))
    found = {row["task"]: row for row in _json("bank", logs, "-o", path, "--cost", cost)["results"]}
    assert found["task_b"]["n_usable"] * 10 == found["task_b"]["cost"]
    rows = _json("replay", others, "--bank", path, "--budget", 25)["results"]
    assert all(0 < row["cost"] <= 25 for row in rows)
    cost.write_text("question,price\n1,2\n")
    anew = ("bank", logs, "-o", path, "--overwrite", "--cost", cost)
    done = _adapt(*anew)
    assert 2 == done.exit_code
    assert "columns question, price" in done.stderr.replace("\n", " ")
    cost.write_text("task,item,cost\n" + "\n".join(lines[1:]))
    assert "no cost of 0 or above for 1 item" in _adapt(*anew).stderr


def test_a_bank_of_two_abilities_is_tested_until_enough_is_known(
    logs: Path, others: Path, tmp_path: Path
) -> None:
    """Every form has both abilities; a contradiction is refused before the logs are read."""
    path = tmp_path / "two.parquet"
    contradiction = _adapt("bank", logs, "-o", path, "--item-model", "rasch", "--dimensions", 2)
    assert "has one ability per model: leave --dimensions out" in contradiction.stderr
    _json("bank", logs, "-o", path, "--dimensions", 2)

    three = [others / f"new_0{k}" for k in range(3)]
    asked = ("replay", *three, "--bank", path, "--information", 1.5)
    rows = _json(*asked)["results"]
    table = _adapt(*asked, "--quiet").stdout
    lines = csv.DictReader(StringIO(_adapt(*asked, "--quiet", "--format", "csv").stdout))

    assert all(row["stopped"].startswith("information ") for row in rows)
    assert all(2 == len(row["abilities"]) == len(row["ability_covariance"]) for row in rows)
    first, error = rows[0]["abilities"][0], rows[0]["abilities_std_error"][0]
    assert f"abilities 1: {first:+.2f} ± {error:.2f}, 2: " in table
    assert [row["abilities"] for row in rows] == [json.loads(line["abilities"]) for line in lines]


def test_replay_predicts_what_all_answers_say(others: Path, bank: Path) -> None:
    """Models that the bank does not know, on a third of the items."""
    same = ("replay", others, "--bank", bank, "--max-items", 20)
    whole = _json(*same, "--rule", "information")
    rows = whole["results"]
    assert 8 == len(rows)
    for row in rows:
        assert 20 == row["n_items"] == len(row["asked"]) == len({*row["asked"]})
        assert 60 == row["n_observed"]
    rule = whole["evalstats"]["accuracy"]
    errors = [abs(row["full_score"] - row["observed"]) for row in rows]
    assert sum(errors) / 8 == pytest.approx(rule["score_mae"])
    assert rule["score_mae"] < 0.06
    assert rule["rank_correlation"] > 0.8


def test_replay_shows_the_truth_and_why_each_test_stopped(others: Path, bank: Path) -> None:
    """In 80 columns, and as Markdown and CSV."""
    three = [others / f"new_0{k}" for k in range(3)]
    arguments = ("replay", *three, "--bank", bank, "--stop-at", 0.35, "--balance")
    table = _adapt(*arguments)
    assert 0 == table.exit_code, table.output
    assert max(map(len, table.stdout.splitlines())) <= 80
    assert "std_error 0." in table.stdout
    assert "How right the tests were" in table.stdout
    row = _json(*arguments)["results"][0]
    assert f"{row['observed']:.4f}" in table.stdout
    markdown = _adapt(*arguments, "--format", "markdown").stdout
    assert f"| {row['model']} | task_a, task_b | {row['rule']} |" in markdown
    assert 4 == len(_adapt(*arguments, "--format", "csv").stdout.splitlines())


def test_the_same_seed_gives_the_same_test_and_another_seed_other_items(
    others: Path, bank: Path
) -> None:
    """Items that are drawn are drawn anew; those that are chosen are the same."""
    arguments = ("replay", others, "--bank", bank, "--max-items", 5)
    first = [row["asked"] for row in _json(*arguments)["results"]]
    assert first == [row["asked"] for row in _json(*arguments)["results"]]
    assert first != [row["asked"] for row in _json(*arguments, "--seed", 1)["results"]]
    chosen = [row["asked"] for row in _json(*arguments, "--rule", "information")["results"]]
    assert 1 == len({asked[0] for asked in chosen})


def test_above_a_known_model_is_decided_with_few_items(others: Path, bank: Path) -> None:
    """The reason names the side, and abler models are found above."""
    known = ItemBank.load(bank)
    middle = known.models[int(abs(known.abilities).argmin())]
    rows = _json("replay", others, "--bank", bank, "--goal", f"compare:{middle}")["results"]
    clear = [row for row in rows if middle in row["stopped"]]
    assert clear
    for row in clear:
        assert row["stopped"].startswith("above" if row["ability"] > 0 else "below")


def test_simulate_shows_how_much_drawing_and_choosing_tell(bank: Path) -> None:
    """Every rule, with intervals over models."""
    whole = _json("simulate", "--bank", bank, "--items", "10,30", "--models", 30)
    rows = {(row["rule"], row["n_items"]): row for row in whole["results"]}
    assert {*RULE_NAMES} == {rule for rule, _ in rows}
    for row in rows.values():
        assert row["score_mae_low"] < row["score_mae"] < row["score_mae_high"]
    chosen, drawn = rows["information", 10], rows["random", 10]
    assert chosen["ability_rmse"] < drawn["ability_rmse"]
    assert chosen["rank_correlation"] > drawn["rank_correlation"]
    assert drawn["score_mae"] > rows["random", 30]["score_mae"]
    few = ("--models", 20, "--rule", "information", "--rule", "random")
    table = _adapt("simulate", "--bank", bank, "--items", "10,90", *few)
    assert max(map(len, table.stdout.splitlines())) <= 80
    assert "no look after 90" in table.stdout
    shown = ("--format", "markdown", "--quiet")
    assert 2 == _adapt("simulate", "--bank", bank, "--items", 5, *few, *shown).stdout.count("| 5 |")


def test_items_that_are_worse_known_than_said_break_coverage(bank: Path) -> None:
    """A negative control: twenty times the errors that the bank tells."""
    options = ("--items", 30, "--models", 60, "--rule", "information")
    (good,) = _json("simulate", "--bank", bank, *options)["results"]
    (bad,) = _json("simulate", "--bank", bank, *options, "--misspecified", 20)["results"]
    assert good["score_coverage"] >= 0.9
    assert bad["ability_coverage"] < 0.8
    assert bad["ability_rmse"] > 1.5 * good["ability_rmse"]


def test_banks_are_merged_on_one_scale(logs: Path, others: Path, tmp_path: Path) -> None:
    """Halves of the models: their items are common, and the merged bank can be used at once."""
    for half in "012", "345":
        folder = tmp_path / half
        for path in [p for p in logs.iterdir() if p.name[-2] in half]:
            shutil.copytree(path, folder / path.name)
        assert 0 == _adapt("bank", folder, "-o", tmp_path / f"{half}.parquet", "-q").exit_code
    parts = (tmp_path / "012.parquet", tmp_path / "345.parquet")
    done = _adapt("merge", *parts, "-o", tmp_path / "both.parquet", "--format", "csv")
    assert 0 == done.exit_code, done.output
    assert [*TASKS] == [line["task"] for line in csv.DictReader(StringIO(done.stdout))]
    merge = ("merge", *parts, "-o", tmp_path / "both.parquet", "--overwrite")
    done = _adapt(*merge, "--format", "markdown")
    assert "| task_a | 40 |" in done.stdout
    made = ItemBank.load(tmp_path / "both.parquet")
    assert (60, 60) == (len(made), len(made.models))
    assert ["acc,none"] == made.provenance["metrics"]
    replay = ("replay", others, "--bank", tmp_path / "both.parquet", "--max-items", 5)
    assert 0 == _adapt(*replay, "-q").exit_code


def test_bad_input_is_one_message_and_exit_code_2(
    logs: Path, others: Path, bank: Path, tmp_path: Path
) -> None:
    """Nothing is written, no traceback shown."""
    junk, changed = tmp_path / "junk.parquet", tmp_path / "changed"
    junk.write_text("junk")
    shutil.copytree(others, changed)
    change_item(changed, "task_b", 4)
    unusable = ItemBank.load(bank)
    none = unusable.without(unusable.usable, "misfit").save(tmp_path / "none.parquet")
    replay = ("replay", others, "--bank", bank)
    refused = {
        "exists already": ("bank", logs, "-o", junk),
        "does not exist": ("bank", tmp_path / "nowhere", "-o", tmp_path / "x.parquet"),
        "no item model is called '9pl'": (
            "bank", logs, "-o", tmp_path / "x.parquet", "--item-model", "9pl",
        ),
        "is no Parquet file, or damaged": ("replay", others, "--bank", junk),
        "nowhere does not exist": ("simulate", "--bank", tmp_path / "nowhere"),
        "none of the bank's 60 items may be asked": ("simulate", "--bank", none),
        "budget 0 is not above 0": (*replay, "--budget", 0),
        "the bank has no costs of items": (*replay, "--budget", 5),
        "no model is called 'gpt'": (*replay, "--goal", "compare:gpt"),
        "no rule is called 'best'": (*replay, "--rule", "best"),
        "reliability 1.5": (*replay, "--reliability", 1.5),
        "max_items -1": (*replay, "--max-items", -1),
        "task_b / 4; the bank was calibrated on another version": (
            "replay", changed, "--bank", bank,
        ),
        "task_a, task_b (f1)": (
            "replay", others, "--bank", bank, "--test-metric", "f1",
        ),
        "Invalid value for '--seed': -1": ("simulate", "--bank", bank, "--seed", -1),
        "--items '0' is not a list of numbers": ("simulate", "--bank", bank, "--items", "0"),
        "n_models": ("simulate", "--bank", bank, "--models", 2),
        "misspecified": ("simulate", "--bank", bank, "--misspecified", -1),
        "no command is called 'nowhere'": ("run", "nowhere"),
    }  # fmt: skip
    for message, arguments in refused.items():
        done = _adapt(*arguments)
        assert 2 == done.exit_code, (arguments, done.output)
        assert message in " ".join(done.stderr.split()), done.stderr
        assert "" == done.stdout
        assert 1 == done.stderr.lower().count("error:")
    assert "junk" == junk.read_text()
    assert not (tmp_path / "x.parquet").exists()

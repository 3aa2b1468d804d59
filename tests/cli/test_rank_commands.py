"""`evalstats-plugin rank`."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from evalstats_plugin import cli
from evalstats_plugin.cli import rank
from evalstats_plugin.cli.rank import options
from evalstats_plugin.errors import install_hint
from evalstats_plugin.ranking import leaderboard
from evalstats_plugin.ranking.judging.session import Session
from evalstats_plugin.ranking.judging.standing import GOALS
from evalstats_plugin.ranking.next import RULES

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
STATS = ("stats", "--estimator", "ep")
"""Where a number need not be exact."""
Call = Callable[..., Result]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Run a command of ours in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def invoke(*arguments: str | Path) -> Result:
        done = CliRunner().invoke(cli.main, ["rank", *map(str, arguments)])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return invoke


@pytest.fixture
def items(tmp_path: Path) -> Path:
    """Give a file of four items."""
    file = tmp_path / "drinks.txt"
    file.write_text("tea\ncoffee\nwater\nmilk\n")
    return file


@pytest.fixture
def fullrank(tmp_path: Path) -> Path:
    """Give a file as Fullrank writes it, in which c beat all and a lost to all."""
    beaten = [(2, 0), (2, 1), (1, 0)] * 4
    whole = {
        "items": ["a", "b", "c"],
        "prior_var": 2.0,
        "comparisons": [{"winner": w, "loser": x} for w, x in beaten],
    }
    file = tmp_path / "comparisons.json"
    file.write_text(json.dumps(whole, indent="\t"))
    return file


def test_every_command_is_listed_and_has_help(call: Call) -> None:
    """Each is loaded only when it is asked for."""
    listed = call("--help").stdout

    for part in rank.SECTIONS.values():
        for name, (_, summary) in part.items():
            assert re.search(rf"^  {name} +{re.escape(summary)}$", listed, re.MULTILINE)
            assert call(name, "--help").exit_code == 0


def test_the_names_in_the_help_are_all_there_are() -> None:
    """Of rules and goals, which cost NumPy to import."""
    assert sorted(options.RULES) == sorted(RULES)
    assert sorted(options.GOALS) == sorted(GOALS)


def test_fullrank_s_file_is_ranked_the_right_way_round(call: Call, fullrank: Path) -> None:
    """The winner has rank 1 and the largest P(best); limits hold the mean."""
    done = call("stats", fullrank, "--format", "json")
    whole = json.loads(done.stdout)
    rows = whole["results"]

    assert 0 == done.exit_code
    assert ["c", "b", "a"] == [row["player"] for row in rows]
    assert rows[0]["expected_rank"] < 1.3
    assert rows[2]["expected_rank"] > 2.7
    assert rows[0]["prob_best"] > 0.8
    assert 1 == pytest.approx(sum(row["prob_best"] for row in rows))
    assert all(row["low"] < row["mean"] < row["high"] for row in rows)
    assert ("rank stats", "thurstone", 0) == tuple(
        whole["evalstats"][key] for key in ("command", "model", "seed")
    )


def test_the_prior_of_the_file_counts_unless_another_is_asked_for(
    call: Call, fullrank: Path
) -> None:
    """A wider one lets ratings lie further apart."""

    def spread(*more: str) -> float:
        rows = json.loads(call(*STATS, fullrank, "--format", "json", *more).stdout)["results"]
        return rows[0]["mean"] - rows[2]["mean"]

    own = spread()
    assert own == pytest.approx(spread("--prior-sd", "1.4142135623730951"))
    assert spread("--prior-sd", "3") > own + 0.3 > spread("--prior-sd", "0.5") + 0.6


@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_stats_are_shown_in_every_form(call: Call, fullrank: Path, form: str) -> None:
    """A table of 80 columns, CSV with the fields by name, Markdown."""
    text = call("stats", fullrank, "--format", form, "--method", "bradley-terry").stdout

    if form == "csv":
        rows = list(csv.DictReader(StringIO(text)))
        wanted = {"player", "mean", "std_error", "low", "high", "expected_rank", "prob_best"}
        assert ["c", "b", "a"] == [row["player"] for row in rows]
        assert wanted <= rows[0].keys()
    else:
        assert max(map(len, text.splitlines())) <= 80 or form == "markdown"
        cells = [line.replace("|", " ").split() for line in text.splitlines()]
        assert ["c", "b", "a"] == [c[0] for c in cells if c and c[0] in ("a", "b", "c")][:3]


def test_a_file_may_come_on_standard_input_and_name_its_columns(call: Call, tmp_path: Path) -> None:
    """CSV of any spelling."""
    text = "left,right,choice\n" + "a,b,left\nb,c,left\na,c,left\n" * 5
    (tmp_path / "votes.csv").write_text(text)
    spelt = "first=left,second=right,winner=choice"
    given = ("--columns", spelt, "--format", "csv")
    from_file = call(*STATS, "votes.csv", *given).stdout
    from_input = CliRunner().invoke(cli.main, ["rank", *STATS, "-", *given], input=text).stdout

    assert ["a", "b", "c"] == [line.split(",")[0] for line in from_file.splitlines()[1:]]
    assert from_file == from_input


def test_two_judges_files_are_ranked_together_or_merged(call: Call, tmp_path: Path) -> None:
    """Each file is a judge; what is merged gives the same ranking."""
    for name in ("ann", "bob"):
        session = Session.open(tmp_path / f"{name}.json", ["x", "y", "z"])
        for pair in ((0, 1), (1, 2), (0, 2)):
            session.answer(*pair, 1.0)
    done = call("merge", "ann.json", "bob.json", "-o", "both.json")
    kept = json.loads((tmp_path / "both.json").read_text())["comparisons"]
    together = call(*STATS, "ann.json", "bob.json", "--format", "csv").stdout

    assert "6 answers on 3 items in both.json" in done.stderr
    assert ["ann"] * 3 + ["bob"] * 3 == [answer["judge"] for answer in kept]
    assert together == call(*STATS, "both.json", "--format", "csv").stdout


def test_models_are_ranked_by_their_logs(call: Call) -> None:
    """By items on which they differ, clustered by item."""
    done = call("models", LOGS, "-t", "es_bin", "--format", "json")
    rows = json.loads(done.stdout)["results"]

    assert {"models/m0", "models/m1", "models/m2"} == {row["player"] for row in rows}
    assert "bradley-terry ml, cluster" == rows[0]["method"]
    assert 180 - 60 == sum(row["n_contests"] for row in rows) / 2


REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def arena(tmp_path: Path) -> Path:
    """Give votes in which the one shown first and the longer answer win too often."""
    rng = np.random.default_rng(10)
    n, names = 2000, np.array(["<b>ant</b>", "bee", "cat"])
    first = rng.integers(0, 3, n)
    second = (first + rng.integers(1, 3, n)) % 3
    length = rng.integers(-200, 200, n)
    ability = np.array([0.8, 0.0, -0.8])
    logit = ability[first] - ability[second] + 0.5 + 0.01 * length
    won = rng.random(n) < 1 / (1 + np.exp(-logit))
    path = tmp_path / "votes.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["model_a", "model_b", "winner", "length", "language", "prompt_id"])
        rows.writerows(
            [names[a], names[b], "a" if w else "b", x, "en" if k % 3 else "de", k % 150]
            for k, (a, b, w, x) in enumerate(zip(first, second, won, length, strict=True))
        )
    return path


def test_a_leaderboard_is_that_of_python_with_style_categories_and_anchor(
    call: Call, arena: Path
) -> None:
    """Length is worth 1.0 % a unit; ratings are apart as they truly are."""
    options = ("--style", "length", "--category", "language", "--anchor", "bee=500")
    done = call("leaderboard", arena, *options, "--format", "json")
    shown = json.loads(done.stdout)
    found = leaderboard(
        arena, style=["length"], category="language", anchor="bee", anchor_rating=500, rng=0
    )

    assert shown["results"] == found.to_dict()
    assert {row["category"] for row in shown["results"]} == {"", "de", "en"}
    rating = {row.player: row.mean or 0.0 for row in found.overall}
    assert rating["bee"] == pytest.approx(500)
    assert rating["<b>ant</b>"] - rating["cat"] == pytest.approx(1.6 * 400 / np.log(10), abs=60)
    style = next(note for note in found.notes if note.startswith("style: "))
    assert style.startswith("style: one unit more of length changes the odds of a vote by +1.")
    assert found.wins.sum() == 2000


def test_the_page_of_a_leaderboard_runs_and_fetches_nothing(
    call: Call, arena: Path, tmp_path: Path
) -> None:
    page = tmp_path / "arena.html"
    done = call("leaderboard", arena, "--category", "language", "--html", page)
    html = page.read_text()

    assert done.exit_code == 0
    assert "<b>" not in html
    assert "&lt;b&gt;ant&lt;/b&gt; leads: it is better than each of the other 2" in html
    assert "default-src &#39;none&#39;" in html
    assert html.count("<script") == 1
    assert not re.findall(r"https?:|\bstyle=|\bon\w+=", html)


def test_the_numbers_of_the_page_lie_beside_it(call: Call, arena: Path, tmp_path: Path) -> None:
    """Fields are those of the guide; who may be the best agrees with P(best) and with the page."""
    page = tmp_path / "arena.html"
    call("leaderboard", arena, "--category", "language", "--html", page)
    told = json.loads(page.with_suffix(".leaderboard.json").read_text())
    again = call("leaderboard", arena, "--html", page)

    assert told["schema"] == "evalstats-plugin leaderboard 1"
    documented = (REPOSITORY / "docs" / "guides" / "rankings.md").read_text(encoding="utf-8")
    assert all(f"`{field}`" in documented for field in {*told, *told["players"][0]})
    assert ["<b>ant</b>", "bee", "cat"] == [row["player"] for row in told["players"]]
    assert {"de", "en"} == set(told["players"][0]["categories"])
    assert 2000 == sum(map(sum, told["wins"]))
    may = [row["player"] for row in told["players"] if row["may_be_best"]]
    assert html_bold(page.read_text()) == may
    for row in told["players"]:
        assert row["may_be_best"] or row["prob_best"] < 1 - told["confidence_level"]
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr


def html_bold(html: str) -> list[str]:
    return [unescape(x) for x in re.findall(r'<tr data-name="([^"]*)" class="may"', html)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--anchor", "wasp"), "no model is called 'wasp'"),
        (("--anchor", "bee=x"), "which is no number: write MODEL=1000"),
        (("--style", "size"), "has no column 'size'"),
        (("--category", "lang"), "did you mean language"),
        (("--style", "length", "--method", "thurstone"), "style control is for bradley-terry"),
    ],
)
def test_a_leaderboard_refuses_what_it_cannot_do(
    call: Call, arena: Path, options: tuple[str, ...], said: str
) -> None:
    done = call("leaderboard", arena, *options)

    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize("n", [7, 1500])
def test_exactly_as_many_draws_are_written_as_asked_for(
    call: Call, fullrank: Path, tmp_path: Path, n: int
) -> None:
    """One JSON list a line, items in the order of the file; the seed decides."""
    call("sample", fullrank, "out.jsonl", "-n", n)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    draws = [json.loads(line) for line in lines]
    again = call("sample", fullrank, "-n", n).stdout.splitlines()

    assert n == len(draws)
    assert {3} == {len(row) for row in draws}
    assert again == lines
    assert lines != call("sample", fullrank, "-n", n, "--seed", 1).stdout.splitlines()
    if n > 1000:
        assert sum(row[2] > row[0] for row in draws) / n > 0.9
        assert 1 - sum(max(row) == row[2] for row in draws) / n < 0.2


def test_next_and_record_lead_through_a_session(call: Call, items: Path, tmp_path: Path) -> None:
    """From no file to a ranking, without a terminal; what was shown first is kept."""
    for _ in range(6):
        done = call("next", "a.json", "--items", items, "-k", 1, "--seed", 3)
        [pair] = json.loads(done.stdout)["results"]
        better, worse = sorted((pair["first"], pair["second"]))
        call(
            "record", "a.json", "--items", items, "--winner", better, "--loser", worse,
            "--first", pair["first"], "--judge", "abc",
        )  # fmt: skip
    session = Session.open(tmp_path / "a.json")
    rows = json.loads(call("stats", "a.json", "--format", "json").stdout)["results"]

    assert 6 == len({answer.pair for answer in session.given}) == len(session.given)
    assert all(answer.placed and answer.judge == "abc" for answer in session.given)
    assert {0.0, 1.0} == {answer.outcome for answer in session.given}
    assert ["coffee", "milk", "tea", "water"] == [row["player"] for row in rows]


def test_ties_skips_and_undo_are_recorded(call: Call, items: Path, tmp_path: Path) -> None:
    """A skipped pair is not asked again; undo is one of the judge's own."""
    call("record", "a.json", "--items", items, "--tie", "tea", "milk")
    call("record", "a.json", "--skip", "tea", "coffee")
    call("record", "a.json", "--winner", "water", "--loser", "tea", "--judge", "bob")
    asked = json.loads(call("next", "a.json", "-k", 9).stdout)["results"]
    done = call("record", "a.json", "--undo", "--judge", "bob")
    session = Session.open(tmp_path / "a.json")

    assert 5 == len(asked)
    assert {"tea", "coffee"} not in [{pair["first"], pair["second"]} for pair in asked]
    assert "undone: water and tea; 1 answer in a.json" in done.stderr
    assert [0.5] == [answer.outcome for answer in session.given]
    assert 2 == call("record", "a.json", "--undo", "--judge", "bob").exit_code


@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_next_is_shown_in_every_form(call: Call, fullrank: Path, form: str) -> None:
    """With any rule."""
    text = call("next", fullrank, "-k", 2, "--format", form, "--rule", "thompson").stdout

    assert ("first,second,bits" if form == "csv" else "First") in text
    # Few bits are as many in a table as elsewhere.
    assert re.search(r"0\.\d{4}", text)
    cells = [line.replace("|", " ").replace(",", " ").split() for line in text.splitlines()]
    assert 2 == sum({*row[:2]} < {"a", "b", "c"} for row in cells if row)


def test_a_program_judges_and_unclear_replies_are_told(
    call: Call, items: Path, tmp_path: Path
) -> None:
    """Answers are kept under its name; exit code 1 where a reply was no verdict."""
    code = (
        "import json, sys; q = json.load(sys.stdin); "
        "print('hm' if {q['first'], q['second']} == {'tea', 'milk'} else "
        "'first' if q['first'] < q['second'] else 'second')"
    )
    program = shlex.join([sys.executable, "-c", code])
    done = call("judge", items, "--command", program, "--budget", 14, "--seed", 1, "--at-once", 2)
    session = Session.open(tmp_path / "drinks.comparisons.json")

    assert 1 == done.exit_code
    assert "1 reply was no verdict" in done.stderr
    assert f"{len(session.given)} more, {len(session.given)} answers in" in done.stderr
    assert {Path(sys.executable).name} == {answer.judge for answer in session.given}
    assert "tea" not in session.names[int(session.contests().wins().sum(axis=1).argmax())]


def test_a_judge_that_skips_every_pair_has_spent_no_budget(call: Call, items: Path) -> None:
    """The command said that it had, after a tenth of the questions."""
    done = call("judge", items, "--command", "echo skip", "--seed", 1)

    assert done.stderr.splitlines()[-1].endswith("(every pair was skipped)")


def test_a_model_judges_through_the_harness_that_can_ask_it(
    call: Call, items: Path, tmp_path: Path, installed: Callable[[str, str], None]
) -> None:
    """A plugin answers; one that nobody knows is refused."""
    installed("asker", """
from evalstats_plugin import hookimpl

@hookimpl
def evalstats_generator(model):
    if model != "mine/one":
        return None
    return lambda text: "Both fine. [[C]]" if "shorter" in text else "[[A]]"
""")  # fmt: skip
    asked = ("--budget", 5, "--criterion", "Which is shorter?", "-o", "a.json")
    done = call("judge", items, "--model", "mine/one", *asked)
    session = Session.open(tmp_path / "a.json")

    assert 0 == done.exit_code
    assert [(0.5, "mine/one")] * 5 == [(a.outcome, a.judge) for a in session.given]


def test_what_breaks_off_is_ranked_as_far_as_it_goes(call: Call, fullrank: Path) -> None:
    """And said so."""
    text = fullrank.read_text()
    fullrank.write_text(text[: len(text) * 4 // 5])
    done = call("stats", fullrank)

    assert 0 == done.exit_code
    assert "answers in front of that place are kept" in " ".join(done.stdout.split())


@pytest.mark.parametrize("command", [(*STATS, "--format", "csv"), ("next", "--seed", "1")])
def test_standard_input_tells_what_a_file_does(
    call: Call, fullrank: Path, command: tuple[str, ...]
) -> None:
    """Its prior too, which is not 1, and answers that break off."""
    for text in (fullrank.read_text(), fullrank.read_text()[:-80]):
        fullrank.write_text(text)
        found = call(*command, fullrank).stdout.replace(str(fullrank), "standard input")
        done = CliRunner().invoke(cli.main, ["rank", *command, "-"], input=text)

        assert 0 == done.exit_code
        assert found == done.stdout
        assert call(*command, fullrank, "--prior-sd", 1).stdout != found


def test_files_with_other_priors_need_one_named(call: Call, fullrank: Path, tmp_path: Path) -> None:
    """Rather than that of the first of them."""
    other = tmp_path / "other.json"
    other.write_text(fullrank.read_text().replace("2.0", "1.0"))

    assert "different prior variances (2, 1)" in call("stats", fullrank, other).stderr
    assert 0 == call(*STATS, fullrank, other, "--prior-sd", 1).exit_code


def test_next_asks_for_the_goal(call: Call, fullrank: Path) -> None:
    """The rule is the goal's, unless another is named."""
    for goal, (rule, _) in GOALS.items():
        done = call("next", fullrank, "--goal", goal)

        assert rule == json.loads(done.stdout)["evalstats"]["rule"]


def test_next_says_why_there_is_none(call: Call, tmp_path: Path) -> None:
    """One item; or all pairs skipped."""
    (tmp_path / "one.json").write_text('{"items": ["x"], "comparisons": []}')
    two = '{"items": ["x", "y"], "comparisons": [], "skipped": [{"first": 0, "second": 1}]}'
    (tmp_path / "two.json").write_text(two)

    assert 2 == call("next", "one.json").exit_code
    assert "has only x: it takes two or more to compare" in call("next", "one.json").stderr
    assert "every pair was skipped" in call("next", "two.json").stderr


def test_draws_on_standard_output_come_with_notes(call: Call, fullrank: Path) -> None:
    """On standard error, that only draws are taken for draws."""
    fullrank.write_text(fullrank.read_text()[:-80])
    done = call("sample", fullrank, "-n", 3)

    assert 3 == len(done.stdout.splitlines())
    assert "answers in front of that place are kept" in done.stderr


def test_elo_of_thurstone_is_said_to_be_what_is_shown(call: Call, fullrank: Path) -> None:
    """The ratings shown have the mean that the legend names."""
    done = call(*STATS, fullrank, "--scale", "elo")
    rows = json.loads(call(*STATS, fullrank, "--scale", "elo", "--format", "json").stdout)

    assert "378 points: 10 wins for 1 loss; the mean rating is 1000" in " ".join(
        done.stdout.split()
    )
    mean = sum(row["mean"] for row in rows["results"]) / len(rows["results"])
    assert mean == pytest.approx(1000)
    assert "ties none" in " ".join(done.stdout.split())


def test_several_metrics_are_refused_naming_the_option(call: Call) -> None:
    """And several tasks are said to be taken together."""
    assert "choose one with --metric" in call("models", LOGS).stderr
    assert "8 tasks together" in call("models", LOGS, "-m", "acc").stdout


@pytest.mark.usefixtures("items")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("record", "a.json", "--winner", "tee", "--loser", "milk"), "did you mean tea"),
        (("stats", "a.json", "--columns", "winner=w"), "columns winner named, but"),
        (("record", "a.json", "--tie", "tea", "tea"), "'tea' cannot be compared with itself"),
        (("record", "a.json", "--winner", "tea"), "--winner alone is no answer: pass --loser too"),
        (("record", "a.json"), "there is no answer: pass one of --winner"),
        (("record", "a.json", "--undo", "--tie", "tea", "milk"), "there are 2 answers"),
        (
            ("record", "a.json", "--tie", "tea", "milk", "--first", "water"),
            "--first 'water' is not in the pair",
        ),
        (("record", "none.json", "--tie", "a", "b"), "none.json does not exist"),
        (("next", "none.csv"), "none.csv does not exist: name the items"),
        (("next", "a.json", "--rule", "tompson"), "did you mean thompson"),
        (("next", "a.json", "--prior-sd", "0"), "--prior-sd is 0: give a number above 0"),
        (("stats", "a.json"), "no comparisons: give at least one"),
        (("stats", "none.csv"), "none.csv"),
        (("stats", "self.csv"), "with itself"),
        (("stats", "votes.csv", "--columns", "winner"), "does not name a part and its column"),
        (("stats", "votes.csv", "--estimator", "magic"), "no estimator of thurstone"),
        (("sample", "latin.csv", "o.jsonl"), "UTF-8"),
        (("judge", "drinks.txt"), "there is no judge: pass --command"),
        (("judge", "drinks.txt", "--model", "m", "--command", "c"), "both --command and --model"),
        (("judge", "drinks.txt", "--command", "/no/such"), "cannot be asked"),
        (("judge", "drinks.txt", "--command", " "), "the command is empty"),
        (("judge", "drinks.txt", "--command", "'"), "cannot be read as a command"),
        (("judge", "drinks.txt", "--command", "c", "--goal", "bst"), "did you mean best"),
        (("judge", "one.txt", "--command", "c"), "one item (tea): give two or more"),
        (("judge", "latin.txt", "--command", "c"), "latin.txt: byte 0xe9 at position 7 (line 2)"),
        (("compare", "drinks.txt"), "needs a terminal"),
        (("merge", "votes.csv", "-o", "x.doc"), ".doc"),
    ],
)
def test_bad_input_is_one_message(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Exit code 2, nothing on standard output, no traceback, nothing written."""
    items = ["tea", "coffee", "water", "milk"]
    (tmp_path / "a.json").write_text(json.dumps({"items": items, "comparisons": []}))
    (tmp_path / "one.txt").write_text("tea\n")
    (tmp_path / "latin.txt").write_bytes(b"tea\ncaf\xe9\n")
    (tmp_path / "latin.csv").write_bytes(b"winner,loser\ntea,caf\xe9\n")
    (tmp_path / "self.csv").write_text("winner,loser\ntea,tea\n")
    (tmp_path / "votes.csv").write_text("winner,loser\ntea,milk\n")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    done = call(*arguments)

    assert 2 == done.exit_code
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "" == done.stdout
    assert before == {p.name: p.read_bytes() for p in tmp_path.iterdir()}


def test_without_textual_the_program_says_what_to_install(
    call: Call, items: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything else."""
    monkeypatch.setitem(sys.modules, "textual", None)  # pyright: ignore[reportArgumentType]
    done = call("compare", items)

    assert 2 == done.exit_code
    assert install_hint("rank") in done.stderr


def test_the_terminal_program_is_started_on_the_items(
    call: Call, items: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the goal asked for; at the end it says where the answers are."""
    from evalstats_plugin.ranking.judging.screen import JudgingApp

    started: list[Any] = []

    def run(app: JudgingApp) -> None:
        started.append((app.goal.name, app.goal.wanted, app.goal.rule, app.items.prompt))
        app.session.answer(0, 1, 1.0)

    monkeypatch.setattr(JudgingApp, "run", run)
    monkeypatch.setattr("evalstats_plugin.cli.rank.judge.check_screen", lambda: None)
    done = call(
        "compare", items, "--goal", "best", "--certainty", "0.8", "--prompt", "Which?",
        "--judge", "ann", "--prior-sd", "2",
    )  # fmt: skip
    session = Session.open(tmp_path / "drinks.comparisons.json")

    assert [("best", 0.8, "thompson", "Which?")] == started
    assert "1 answer in drinks.comparisons.json" in done.stderr
    assert (4.0, "ann") == (session.prior_variance, session.given[0].judge)


def test_redirected_compare_prints_the_answers_as_fullrank_does(
    items: Path, tmp_path: Path
) -> None:
    """`rank compare ITEMS > comparisons.json`: the screen is on standard error."""
    screen, terminal = pty.openpty()
    with (tmp_path / "answers.json").open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "evalstats_plugin", "rank", "compare", items.name],
            cwd=tmp_path, stdin=terminal, stdout=file, stderr=terminal,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )  # fmt: skip
        os.close(terminal)
        seen, asked, keys, end = b"", 0, [b"f", b"j", b"q", b"q"], time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            if select.select([screen], [], [], 0.5)[0]:
                try:
                    seen += os.read(screen, 65536)
                except OSError:
                    break
            elif keys and len(seen) > asked and re.search(rb"tea|coffee|water|milk", seen):
                # A question is on the screen, and nothing more is being drawn.
                asked = len(seen)
                os.write(screen, keys.pop(0))
        process.kill()
        process.wait()
    os.close(screen)

    written = json.loads((tmp_path / "answers.json").read_text())
    assert ["tea", "coffee", "water", "milk"] == written["items"]
    assert 2 == len(written["comparisons"])
    assert written == json.loads((tmp_path / "drinks.comparisons.json").read_text())


def test_stats_read_standard_input_without_a_file(call: Call, fullrank: Path) -> None:
    """`rank stats < comparisons.json`."""
    named = call(*STATS, fullrank)
    piped = CliRunner().invoke(cli.main, ["rank", *STATS], input=fullrank.read_text())

    assert 0 == piped.exit_code
    assert named.stdout == piped.stdout

"""`evalstats-plugin compare`."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import get_args

import pytest
from in_process import once, ran

from evalstats_plugin.cli.shell import shared
from evalstats_plugin.comparisons import compare as analysis
from evalstats_plugin.comparisons.compare import DESIGNS
from evalstats_plugin.comparisons.design import Correction
from evalstats_plugin.comparisons.rows import Comparison, Comparisons
from evalstats_plugin.report import comparisons
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.scores.cells import Estimand, Missing
from evalstats_plugin.scores.intervals import ClustersAre

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
Run = Callable[..., "CompletedProcess[str]"]


def _row(**more: object) -> Comparison:
    given: dict[str, object] = {
        "model_a": "a", "model_b": "[red]b", "task": "t|x", "metric": "acc,none", "n_items": 30,
        "difference": 0.1, "low": 0.01, "high": 0.2, "p_value": 0.01, "p_adjusted": 0.02,
        "prob_better": 0.9951, "method": "dirichlet", "confidence_level": 0.95,
    }  # fmt: skip
    return Comparison(**{**given, **more})  # pyright: ignore[reportArgumentType]


def test_the_answer_comes_first_and_one_table_has_all_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sentence, ranks, pairs by tasks; nothing is told twice, and names are whole or elided.

    Details have every pair of every task, with limits, p, P(better) and verdict.
    """
    monkeypatch.setattr(analysis, "compare", once(analysis.compare))
    done, details = ran("compare", LOGS), ran("compare", LOGS, "--details")
    text = " ".join(done.stdout.split())

    assert done.exit_code == details.exit_code == 0
    assert max(len(line) for line in (done.stdout + details.stdout).splitlines()) <= 80
    assert text.startswith("m2 is better than each of the other 2 models on these 13 tasks (macro")
    assert "m2 m1 +0.2145 [+0.0" in text
    assert 1 == text.count(f"evalstats-plugin {VERSION}, seed 0")
    assert "unclear: these items do not" not in text
    assert "es_sub_a acc, 30 items" in details.stdout
    pair = "models/m2 models/m0 +0.4667 [+0.1531, +0.7897]  0.0002   >99.9 % better"
    assert pair in details.stdout
    explained = ran("compare", LOGS, "--explain").stdout
    assert "unclear: these items do not" in " ".join(explained.split())


def test_two_models_are_compared_row_by_row(run: Run) -> None:
    """Each with both scores, the better model first in the sentence."""
    done = run("compare", LOGS, "-t", "es_bin", "-m", "f1", "--models", "models/m0,models/m1")

    assert done.stdout.startswith("m1 is better than m0 on es_bin f1 (60 items): 0.6047 against 0")
    assert "es_bin f1  60  0.0000  0.6047  +0.6047 [+0.3220, +0.6808]  0.0002  ▲" in done.stdout


def test_a_baseline_is_named_once(run: Run) -> None:
    """In the sentence instead of a column."""
    done = run("compare", LOGS, "-t", "es_bin", "-m", "acc", "--baseline", "models/m1")

    assert done.stdout.startswith("Against m1 on es_bin acc (60 items): m0, m2 cannot be told")
    assert "Against" not in done.stdout[1:]


@pytest.mark.parametrize(
    "logs",
    [("lm_eval/0.4.13/out", "es_mc", "models/m1", "models/m2"),
     ("inspect_ai/0.3.285/models", "arith", "mockllm/alpha", "mockllm/beta")],
)  # fmt: skip
def test_items_add_up_to_the_comparison(run: Run, logs: tuple[str, str, str, str]) -> None:
    """Counts, differences and scores are those of the row; every item has its texts."""
    folder, task, a, b = logs
    done = run(
        "compare", LOGS.parents[2] / folder, "-t", task, "--models", f"{a},{b}", "--items",
        "--format", "json",
    )  # fmt: skip
    whole = json.loads(done.stdout)
    row, counts = whole["comparisons"][0], whole["counts"][0]
    items = [i for i in whole["results"] if i["metric"] == row["metric"]]

    assert (row["model_a"], row["model_b"]) == (a, b)
    assert row["n_items"] == counts["n_items"] == len(items)
    assert Counter(i["outcome"] for i in items) == Counter(counts["outcomes"])
    won, lost = counts["outcomes"]["won"], counts["outcomes"]["lost"]
    assert row["difference"] == pytest.approx((won - lost) / row["n_items"])
    assert row["difference"] == pytest.approx(counts["difference"])
    assert all(i["question"] and i["target"] and i["answer_a"] and i["where"] for i in items)
    assert [i["outcome"] in ("won", "lost") for i in items] == [True] * (won + lost) + [False] * (
        len(items) - won - lost
    )


def test_flipped_items_fit_eighty_columns(run: Run) -> None:
    """With what was asked, what is right and both answers."""
    arguments = ("compare", LOGS, "-t", "es_mc", "-m", "acc", "--models", "models/m1,models/m2")
    text = run(*arguments, "--items").stdout
    markdown = run(*arguments, "--items", "--format", "markdown").stdout

    assert max(map(len, text.splitlines())) <= 80
    assert "6 won, 1 lost, 47 both right, 6 neither" in text
    block = r"^4 +lost +0 8\+7= *\n +target: 15 *\n +models/m1: 15 *\n +models/m2: 14"
    assert re.search(block, text, re.MULTILINE)
    assert "| es_mc | 4 | lost | 1 | 0 | 0 | 8+7= | 15 | 15 | 14 | doc_id 4 |" in markdown


@pytest.mark.parametrize(
    ("correction", "said"),
    [
        ("simultaneous", "Limits and p hold for all slices and pairs of a task at once; inter"),
        ("none", "Limits and p look at each pair alone; inter"),
        ("bh", "Limits look at each pair alone, p is screened for false discoveries; inter"),
    ],
)
def test_the_legend_of_slices_follows_the_correction(
    run: Run, tmp_path: Path, correction: str, said: str
) -> None:
    """It said "at once" of limits that were of each pair alone."""
    table = tmp_path / "scores.csv"
    rows = [f"{m},{i},{(i + m) * i % 3 % 2},{'ab'[i % 2]}" for m in range(2) for i in range(20)]
    table.write_text("\n".join(["model,item,acc,lang", *rows]))
    done = run("compare", table, "--by", "lang", "--correction", correction)

    assert said in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ((), "there are 3 (models/m0, models/m1, models/m2): name them with --models A,B"),
        (("--baseline", "models/m0"), "there are 3"),
        (("--baseline", "models/m9"), "no model is called 'models/m9'"),
        (("--models", "models/m0"), "there are 1"),
        (("--design", "unpaired"), "--items is for the paired design"),
    ],
)
def test_items_are_of_two_models(run: Run, more: tuple[str, ...], problem: str) -> None:
    """Named by the options, or the only ones."""
    done = run("compare", LOGS, "-t", "es_mc", "--items", *more)

    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_texts_of_logs_are_escaped(run: Run, tmp_path: Path) -> None:
    """On the terminal, in Markdown and in CSV."""
    for name, answer in (("good", "7"), ("bad", "=SUM(A1)\x1b[2J|<b>")):
        sample = {
            "doc_id": 0, "doc": {"question": "\x1b[31mWhat|now?"}, "target": "7",
            "arguments": {}, "resps": [[answer]], "filtered_resps": [answer], "filter": "none",
            "metrics": ["exact_match"], "exact_match": float(answer == "7"),
        }  # fmt: skip
        folder = tmp_path / name
        folder.mkdir()
        samples = folder / "samples_odd_2026-01-01T00-00-00.000000.jsonl"
        samples.write_text(json.dumps(sample) + "\n" + json.dumps({**sample, "doc_id": 1}) + "\n")
    arguments = ("compare", tmp_path, "--items", "--baseline", "good")
    shown = {
        form: run(*arguments, "--format", form).stdout for form in ("table", "markdown", "csv")
    }
    [row, _] = csv.DictReader(StringIO(shown["csv"]))

    assert not any("\x1b" in text for text in shown.values())
    assert "What|now?" in shown["table"]
    assert "What\\|now?" in shown["markdown"]
    assert "<b>" not in shown["markdown"]
    assert row["answer_b"].startswith("'=SUM(A1)")


def test_an_unknown_baseline_gets_the_closest_names(run: Run) -> None:
    """Exit code 2, one message."""
    done = run("compare", LOGS, "-t", "es_bin", "--baseline", "models/m3")

    assert 2 == done.returncode
    assert done.stderr.startswith("error: no model is called 'models/m3'; did you mean models/m")
    assert "" == done.stdout


def test_one_model_is_not_enough(run: Run) -> None:
    """Exit code 2, saying what was found."""
    done = run("compare", LOGS / "models__m2")

    assert 2 == done.returncode
    assert (
        "error: there is only one model (models/m2); read logs of two models or more" in done.stderr
    )


def test_json_says_how_it_was_made(run: Run) -> None:
    """And holds one object per pair, without NaN."""
    done = run(
        "compare", LOGS, "-t", "es_mc", "-m", "acc", "--correction", "bh", "--format", "json"
    )
    whole = json.loads(done.stdout)

    assert "compare" == whole["evalstats"]["command"]
    assert "bh" == whole["evalstats"]["correction"]
    assert 3 == len(whole["results"])
    assert 60 == whole["results"][0]["n_items"]


def test_csv_and_markdown_have_a_line_per_pair(run: Run) -> None:
    """With names as they are in the logs."""
    arguments = ("compare", LOGS, "-t", "es_mc", "-m", "acc")
    rows = list(csv.DictReader(StringIO(run(*arguments, "--format", "csv").stdout)))
    markdown = run(*arguments, "--format", "markdown").stdout.splitlines()

    assert ["models/m1", "models/m2", "models/m2"] == [row["model_b"] for row in rows]
    assert markdown[0].startswith("m2 is ahead on es_mc acc (60 items); m1 cannot be told apart")
    assert markdown[4].startswith("| es_mc | acc | models/m1 | models/m0 | 60 | +0.5500 |")


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_every_format_is_the_same_twice(run: Run, form: str) -> None:
    """Random sign flips come from the seed."""
    arguments = ("compare", LOGS, "-t", "es_passk", "--correction", "stepdown", "--format", form)
    first, second = (run(*arguments) for _ in range(2))

    assert 0 == first.returncode
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({}, "better"),
        ({"difference": -0.1}, "worse"),
        ({"higher_is_better": False}, "worse"),
        ({"difference": -0.1, "higher_is_better": False}, "better"),
        ({"p_adjusted": 0.06}, "unclear"),
        ({"p_adjusted": 0.06, "confidence_level": 0.9}, "better"),
        ({"p_adjusted": None}, "unclear"),
    ],
)
def test_the_verdict_is_a_word(more: dict[str, object], word: str) -> None:
    """By the adjusted p-value and by which scores are better."""
    assert word == _row(**more).verdict


def test_probabilities_are_never_certain() -> None:
    """Nor are p-values zero."""
    assert ["<0.1 %", "50.0 %", ">99.9 %", "–"] == [
        comparisons.probability(p) for p in (0.0, 0.5, 1.0, None)
    ]
    assert ["<0.0001", "0.0500", "–"] == [comparisons.p_value(p) for p in (0.0, 0.05, None)]


def test_names_from_logs_are_not_taken_for_markup() -> None:
    """On the terminal and in Markdown; pairs of unequal size show their own."""
    rows = (_row(), _row(model_a="c", n_items=7, low=None, high=None, notes=("why",)))
    file = StringIO()
    comparisons.print_comparisons(Comparisons(rows), file, heading="", width=80)

    assert "[red]b" in file.getvalue()
    assert "1. why (t|x acc)" in file.getvalue()
    assert "| t\\|x | acc | [red]b | a | 30 |" in comparisons.comparisons_markdown(
        Comparisons(rows), ""
    )


def test_details_print_the_published_table() -> None:
    """Difference, standard error, correlation, n, wins, ties, losses; – where there are none."""
    full = {"std_error": 0.02345, "correlation": -0.0001, "n_wins": 9, "n_ties": 18, "n_losses": 3}
    file = StringIO()
    rows = Comparisons((_row(**full), _row(model_a="c")))
    comparisons.print_comparisons(rows, file, heading="", width=80, details=True)
    lines = [line.split() for line in file.getvalue().splitlines()]

    titles = ["Model", "Against", "Diff.", "Std.", "error", "Corr.", "n", "Wins", "Ties", "Losses"]
    assert titles in lines
    first, second = lines[lines.index(titles) + 2 :][:2]
    assert first[-6:] == ["0.0234", "0.00", "30", "9", "18", "3"]
    assert second[-6:] == ["–", "–", "30", "–", "–", "–"]
    plain = StringIO()
    comparisons.print_comparisons(rows, plain, heading="", width=80)
    assert "Std. error" not in plain.getvalue()


def test_choices_of_the_command_line_are_those_of_the_type() -> None:
    """`Correction` is not imported there, to keep --help light."""
    assert get_args(Correction) == shared.CORRECTIONS == get_args(shared.Correction)
    assert tuple(DESIGNS) == shared.DESIGNS == get_args(shared.Design)
    assert get_args(Estimand) == shared.ESTIMANDS == get_args(shared.Estimand)
    assert get_args(ClustersAre) == shared.CLUSTERS == get_args(shared.ClustersAre)
    assert get_args(Missing) == shared.MISSING == get_args(shared.Missing)


def test_the_bootstrap_is_there_to_compare_with(run: Run) -> None:
    """Its limits are near those of the default, and the same each time."""
    asked = ("compare", LOGS, "-t", "es_mc", "-m", "acc", "--baseline", "models/m1")
    default, percentile, again, bca = (
        json.loads(run(*asked, "--format", "json", *more).stdout)["results"]
        for more in ((), *[("--method", m) for m in ("percentile", "percentile", "bca")])
    )

    assert percentile == again
    for row, other, usual in zip(percentile, bca, default, strict=True):
        assert ("percentile", "bca") == (row["method"], other["method"])
        for limits in (row, other):
            assert usual["low"] == pytest.approx(limits["low"], abs=0.06)
            assert usual["high"] == pytest.approx(limits["high"], abs=0.06)


def test_a_misspelt_design_is_corrected(run: Run) -> None:
    """Here and where logs are annotated."""
    for command in (("compare", LOGS, "--design"), ("annotate", LOGS, "--compare")):
        done = run(*command, "unpard")

        assert done.returncode == 2
        assert "no design is called 'unpard'; did you mean" in " ".join(done.stderr.split())


def test_a_log_is_annotated_with_the_design_asked_for(run: Run, tmp_path: Path) -> None:
    """And a correction without a comparison is refused."""
    baseline = ("--baseline", "models/m1")
    done = run("annotate", LOGS, "-o", tmp_path, *baseline, "--compare", "tasks")
    log = max((tmp_path / "models__m2").glob("results_*.json"))
    rows = json.loads(log.read_text())["evalstats"]["comparisons"]
    alone = run("annotate", LOGS, "-o", tmp_path / "more", "--correction", "bh")

    assert 0 == done.returncode
    expected = [f"{n} tasks like these" for n in (4, 8)] + [f"these {n} tasks" for n in (4, 8)]
    assert set(expected) == {row["task"] for row in rows}
    assert {("models/m1", "models/m2")} == {(row["model_a"], row["model_b"]) for row in rows}
    assert 2 == alone.returncode
    assert "pass --compare paired too" in alone.stderr
    assert not (tmp_path / "more").exists()


def test_many_pairs_are_summed_up_as_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty models on four tasks are a page; --all-pairs prints all 190 pairs."""
    table = tmp_path / "scores.csv"
    lines = [
        f"a model with a long name {m:02},task {t},{i},{int((i * 7 + m * t) % 23 < 3 + m)}"
        for m in range(20)
        for t in range(4)
        for i in range(25)
    ]
    table.write_text("\n".join(["model,task,item,score", *lines]))

    monkeypatch.setattr(analysis, "compare", once(analysis.compare))
    short = ran("compare", table).stdout.splitlines()
    full = ran("compare", table, "--all-pairs").stdout.splitlines()
    rows = json.loads(ran("compare", table, "--format", "json").stdout)["results"]

    assert len(short) < 90
    assert max(map(len, short)) <= 80
    assert "Ranks that all 1,140 pairs leave open at once" in " ".join(short)
    assert len(full) > 190 * 2
    # The best of "task 3" is whoever has most wins; its last possible rank follows from them.
    own = [row for row in rows if row["task"] == "task 3"]
    wins = Counter(
        row["model_b"] if row["difference"] > 0 else row["model_a"]
        for row in own
        if row["p_adjusted"] <= 0.05
    )
    [(best, n_wins)] = wins.most_common(1)
    lines_of = iter(short)
    head = next(line for line in lines_of if "task 3" in line)
    line = next(line for line in lines_of if best in line)
    end = head.index("task 3") + len("task 3")
    assert line[:end].split()[-1].rstrip("*").split("–")[-1] == str(20 - n_wins)
    # So are those of few models on many tasks.
    monkeypatch.setattr(comparisons, "MOST_PAIRS", 190)
    for most, is_summed in ((1140, False), (1139, True)):
        monkeypatch.setattr(comparisons, "MOST_ROWS", most)
        said = " ".join(ran("compare", table).stdout.split())
        assert ("pairs leave open at once by family" in said) == is_summed


def test_what_other_models_were_asked_differently_is_not_told(run: Run, tmp_path: Path) -> None:
    """One of a hundred models had answered twice: two others were said to differ."""
    table = tmp_path / "t.csv"
    rows = [
        f"{m},{i},{k},{(i + k) % 2}" for m in "abc" for i in range(9) for k in range(1 + (m > "b"))
    ]
    table.write_text("\n".join(["model,item,epoch,score", *rows]))
    every, two = (run("compare", table, *more).stdout for more in ((), ("--models", "a,b")))

    assert "models were asked with different settings" in every
    assert "different settings" not in two

"""Published numbers: counts behind printed values, their intervals, and their comparison."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from evalstats_plugin import compare, export, intervals, read, table
from evalstats_plugin.cli import main
from evalstats_plugin.data.published import Printed, counts_behind
from evalstats_plugin.errors import DesignError, LogError
from evalstats_plugin.stats.means import t_quantile

LM_EVAL = """
| Tasks |Version|Filter|n-shot|  Metric   |   |Value |   |Stderr|
|-------|------:|------|-----:|-----------|---|-----:|---|-----:|
|- arc  |      1|none  |     0|acc        |↑  |0.2005|±  |0.0117|
|       |       |none  |     0|acc_norm   |↑  |0.2193|±  |0.0121|
|gsm8k  |      3|strict|     5|exact_match|↑  |0.1440|±  |0.0097|
|wiki   |      2|none  |     0|perplexity |↓  |37.37 |±  |N/A   |
"""
BOARD = """# Board
| Model | Arc | Gsm | Small |
|:--|---|---|--:|
| **alpha** | 0.612 ± 0.014 | 71.2% ± 1.2 | 14/20 |
| beta | $0.580 \\pm 0.014$ | 65.0% ± 1.3 | 45% (9/20) |
"""


def _run(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, list(map(str, arguments)))


def _in_full(k: int, n: int) -> tuple[Printed, Printed]:
    p = k / n
    error = math.sqrt(p * (1 - p) / (n - 1))
    return Printed.of(p, repr(p)), Printed.of(error, repr(error))


def _items(file: Path, right: int, n: int, model: str = "a") -> Path:
    rows = [f"{model},q{i},{int(i < right)}" for i in range(n)]
    file.write_text("\n".join(["model,item,score", *rows, ""]))
    return file


def test_counts_behind_numbers_in_full_are_unique() -> None:
    """Of drawn counts, as lm-eval writes them."""
    rng = np.random.default_rng(0)
    for n in rng.integers(3, 20_000, 100).tolist():
        k = int(rng.integers(1, n))
        found = counts_behind(*_in_full(k, n))

        assert found == (k, n, 1, n, "n - 1")


def test_counts_behind_rounded_numbers_are_all_that_round_to_them() -> None:
    """As a search through every k of n finds them."""
    for k, n, digits in ((7, 11, 2), (31, 50, 3), (60, 120, 3), (1, 90, 3), (88, 90, 4)):
        p = k / n
        error = math.sqrt(p * (1 - p) / (n - 1))
        value, se = (Printed.of(float(x), x) for x in (f"{p:.{digits}f}", f"{error:.{digits}f}"))
        found = counts_behind(value, se)
        pairs = [
            (size, right)
            for size in range(2, 1500)
            for right in range(size + 1)
            if abs(right / size - value.value) <= value.half + 1e-12
            and abs(math.sqrt(right * (size - right) / size**2 / (size - 1)) - se.value)
            <= se.half + 1e-12
        ]

        assert found is not None
        assert (found.n, found.n_pairs, found.largest_n) == (pairs[0][0], len(pairs), pairs[-1][0])
        nearest = [right for size, right in pairs if size == found.n]
        assert found.k == min(nearest, key=lambda k: abs(k / found.n - value.value))


def test_a_percentage_is_a_share_with_its_rounding() -> None:
    assert Printed.of(22.6, "22.6").per_cent == pytest.approx((0.226, 0.0005), rel=1e-12)


def test_impossible_numbers_have_no_counts() -> None:
    """No share of 17 items is .81 (GRIM), no standard error of a share is above one half."""
    assert counts_behind(Printed.of(0.81, "0.81"), n=17) is None
    assert counts_behind(Printed.of(0.82, "0.82"), n=17) == (14, 17, 1, 17, "n - 1")
    assert counts_behind(Printed.of(0.5, "0.5"), Printed.of(0.9, "0.9")) is None
    assert counts_behind(Printed.of(0.25, "0.25"), Printed.of(0.1, "0.1"), 200) is None
    # The largest that there is: of one half, exactly.
    assert counts_behind(Printed(0.5), Printed(0.5), 2) == (1, 2, 1, 2, "n - 1")


def test_a_standard_error_by_n_is_recognised() -> None:
    """Some programs divide by n instead of n - 1."""
    value, error = Printed.of(0.3, "0.30000000"), math.sqrt(0.3 * 0.7 / 50)
    found = counts_behind(value, Printed.of(error, f"{error:.8f}"))

    assert found == (15, 50, 1, 50, "n")


@pytest.mark.parametrize(
    "rows",
    [
        "model,task,acc,n\na,t,0.62,50\n",
        "model,task,n_correct,n\na,t,31,50\n",
        "model,task,acc\na,t,31/50\n",
        "model,task,acc,acc_stderr\na,t,0.62,0.069340920568\n",
        "model,task,acc,stderr\na,t,62.0%,6.93409205686%\n",
        "model,task,acc\na,t,0.62 ± 0.069340920568\n",
        "model,task,acc,acc_stderr\na,t,62.0,6.93409205686\n",
        "model,t_stderr,t\na,0.069340920568,0.62\n",
    ],
)
def test_intervals_are_those_of_the_items(rows: str, tmp_path: Path) -> None:
    """The same digits as of 31 right answers in 50 logged ones, however the counts are printed."""
    file = tmp_path / "summary.csv"
    file.write_text(rows)
    (found,) = intervals(read(file))
    (expected,) = intervals(read(_items(tmp_path / "items.csv", 31, 50)))

    assert (found.n_items, found.estimate, found.low, found.high, found.method) == (
        50, 0.62, expected.low, expected.high, expected.method,
    )  # fmt: skip
    assert found.std_error == pytest.approx(expected.std_error, abs=1e-15)


def test_json_lists_and_markdown_are_read(tmp_path: Path) -> None:
    """Records of counts, tables that lm-eval prints, leaderboards with a column for each task."""
    records = tmp_path / "board.json"
    records.write_text(json.dumps([{"model": "a", "task": "t", "n": 50, "n_correct": 31}]))
    lm_eval, board = tmp_path / "run.md", tmp_path / "board.md"
    lm_eval.write_text(LM_EVAL)
    board.write_text(BOARD)

    assert [(r.n_items, r.estimate) for r in intervals(read(records))] == [(50, 0.62)]
    assert [(r.model, r.task, r.metric, r.low is None) for r in intervals(read(lm_eval))] == [
        ("run", "arc", "acc", False),
        ("run", "arc", "acc_norm", False),
        ("run", "gsm8k", "exact_match,strict", False),
        ("run", "wiki", "perplexity", True),
    ]
    lm_eval.write_text(LM_EVAL.replace("perplexity", "badness   ").replace("acc_norm", "odd     "))
    assert [(r.metric, r.higher_is_better) for r in read(lm_eval)] == [
        ("acc", True), ("odd", True), ("exact_match,strict", True), ("badness", False),
    ]  # fmt: skip
    board.write_text("| Model | x ↓ | y ↑ | z |\n|--|--|--|--|\n| a | 5.1 | .3 | .4 |\n")
    assert [r.higher_is_better for r in read(board)] == [False, True, None]
    (tmp_path / "run.csv").write_text("model,task,gap,n,higher_is_better\na,t,0.2,50,false\n")
    less = read(tmp_path / "run.csv", columns={"score": "gap"})
    assert [r.higher_is_better for r in less] == [False]
    board.write_text(BOARD)
    by_place = {(r.model, r.task): r for r in intervals(read(board))}
    assert len(by_place) == 6
    assert by_place["alpha", "Small"].n_items == 20
    assert by_place["alpha", "Arc"].n_items == 1130
    assert any("n is the smallest of several" in note for note in by_place["alpha", "Arc"].notes)
    # Hundreds of values of one kind have one note.
    assert len({note for r in by_place.values() for note in r.notes}) <= 5


def test_what_lm_eval_prints_of_groups_is_read_once_and_is_no_count(tmp_path: Path) -> None:
    """Groups stand among the tasks and in a table of their own; their means count no answers."""
    head = "|Version|Filter|n-shot|Metric|   |Value |   |Stderr|\n|--|--|--|--|--|--|--|--|--|\n"
    groups = "|mmlu|2|none||acc|↑|0.4451|±|0.0041|\n| - stem|2|none||acc|↑|0.3822|±|0.0085|\n"
    task = "|  - anatomy|1|none|5|acc|↑|0.5259|±|0.0431|\n"
    log = tmp_path / "Qwen1.5-MoE-A2.7B.md"
    log.write_text(f"|Tasks{head}{groups}{task}\n|Groups{head}{groups}")
    rows = intervals(read(log))

    assert [(r.model, r.task, r.method) for r in rows] == [
        ("Qwen1.5-MoE-A2.7B", "mmlu", "z"),
        ("Qwen1.5-MoE-A2.7B", "stem", "z"),
        ("Qwen1.5-MoE-A2.7B", "anatomy", "beta-hpd"),
    ]
    assert "2 rows printed twice, read once" in rows[0].notes


def test_a_readme_of_several_tables_is_of_the_model_that_one_of_them_names(tmp_path: Path) -> None:
    """Means without a column of scores, names with addresses, errors and names in their rows."""
    folder = tmp_path / "phi-4"
    folder.mkdir()
    readme = folder / "README.md"
    tasks = (
        "### gsm8k\n| Task |Version| Metric |Value| |Stderr|\n|--|--|--|--|--|--|\n"
        "|gsm8k|3|exact_match,strict|0.7301| | |\n"
        "| | |exact_match_stderr,strict|0.0122| | |\n| | |alias|gsm8k| | |\n"
        "\n|Task|Version|Metric|Value| |Stderr|\n|--|--|--|--|--|--|\n|arc|0|acc|54.44|±|1.46|\n"
    )
    summary = (
        "|Benchmark|Model|gsm8k|Average|\n|--|--|--|--|\n"
        "|mine|[merge-7B](https://example.org/merge)|73|63.7|\n\n"
    )
    readme.write_text(summary + tasks)
    rows = read(readme)
    readme.write_text(tasks)

    assert [(r.model, r.task, r.metric, r.published) for r in rows] == [
        ("merge-7B", "gsm8k", "exact_match,strict", "counts"),
        ("merge-7B", "arc", "acc", "counts"),
    ]
    assert {"no numbers, left out: gsm8k", "1 table without a column of scores left out"} <= {
        note for r in rows for note in r.notes
    }
    assert [r.model for r in read(readme)] == ["phi-4", "phi-4"]


def test_leaderboards_as_people_publish_them_are_read(tmp_path: Path) -> None:
    """Models in the index, no error at all, columns with units of their own, runs of one model."""
    index, bare = tmp_path / "alpaca.csv", tmp_path / "arena.csv"
    index.write_text(",win_rate,standard_error,n_total\nNull,76.92,.91,805\nYi,29.7,1.6,805\n")
    bare.write_text("model,score,date\ngpt-4,82.63,2024\nclaude-3,79.3,2024\n")
    limits = tmp_path / "limits.csv"
    limits.write_text("model,score,rating_q025,rating_q975\ng,82.6,80.7,84.6\nc,0.5,0.3,0.7\n")
    units = tmp_path / "units.md"
    units.write_text("|Model|Rate|Words|\n|--|--|--|\n|a|1.8 %|172.4|\n|b|3.3 %|95.7|\n")
    runs = tmp_path / "runs.csv"
    rows = [f"p,{c},t,{s},{a},.05" for c in (1, 2) for s, a in ((0, 0.45), (5, 0.55))]
    runs.write_text("\n".join(["model,checkpoint,task,fewshot,acc,acc_stderr", *rows, ""]))

    wins = intervals(read(index))
    assert [(r.model, r.n_items, r.low is None) for r in wins] == [
        ("Null", 805, False), ("Yi", 805, False),
    ]  # fmt: skip
    assert [r.estimate for r in wins] == pytest.approx([0.7692, 0.297], abs=1e-3)
    assert wins[0].higher_is_better
    assert all("win_rate: values above 1 are read as percentages" in r.notes for r in wins)
    assert [(r.model, r.estimate, r.low) for r in intervals(read(bare))] == [
        ("gpt-4", 82.63, None), ("claude-3", 79.3, None),
    ]  # fmt: skip
    (first, second) = intervals(read(limits))
    assert (first.low, first.high) == pytest.approx((80.65, 84.55), abs=1e-4)
    assert (second.low, second.high, second.method) == pytest.approx((0.3, 0.7, "z"), abs=1e-4)
    assert "the standard error is that of the limits, taken for 95 %" in first.notes
    assert [r.task for r in read(units)] == ["Rate", "Words", "Rate", "Words"]
    assert [r.logged for r in read(units)] == pytest.approx([0.018, 172.4, 0.033, 95.7])
    assert [r.model for r in read(runs)] == [
        f"p (checkpoint={c}, num_fewshot={s})" for c in (1, 2) for s in (0, 5)
    ]
    units.write_text("|Model|Rate|\n|--|--|\n|a|1.8 %|\n|b|33|\n")
    with pytest.raises(DesignError, match=r"'33' in row 2, but others are percentages such as"):
        read(units)


def test_an_empty_cell_of_markdown_needs_no_blank(tmp_path: Path) -> None:
    """At the start of a row, where it is the task above, as at its end."""
    table = tmp_path / "run.md"
    rows = "|arc|acc|0.5|0.05|\n||acc_norm|0.6|0.049|\n||em|0.7||\n"
    table.write_text(f"|Tasks|Metric|Value|Stderr|\n|--|--|--|--|\n{rows}")

    assert [(r.task, r.metric, r.estimate, r.low is None) for r in intervals(read(table))] == [
        ("arc", "acc", 0.5, False), ("arc", "acc_norm", 0.6, False), ("arc", "em", 0.7, True),
    ]  # fmt: skip


def test_a_number_with_a_footnote_is_not_left_out(tmp_path: Path) -> None:
    board = tmp_path / "board.md"
    board.write_text("| Model | t |\n|--|--|\n| a² | 14/20† |\n| b | **9/20**¹ |\n| c | 11/20 |\n")
    marked = ["61.2^a", "61.2*", "**61.2**", "$61.2^{ab}$", "61.2[^1]", "<b>61.2</b><sup>a</sup>"]
    cells = "\n".join(f"| m{k} | {cell} |" for k, cell in enumerate([*marked, "61.2†"]))
    (tmp_path / "marks.md").write_text(f"| **Model** | u* |\n|--|--|\n{cells}\n")
    (tmp_path / "odd.md").write_text(
        "| Model | t | by |\n|--|--|--|\n| a\\|1 | .6 | A |\n| b | 2^10 | B |\n| c | — | C |\n"
    )

    assert [(r.model, r.estimate) for r in intervals(read(board))] == [
        ("a²", 0.7), ("b", 0.45), ("c", 0.55),
    ]  # fmt: skip
    marks = read(tmp_path / "marks.md")
    assert [(r.model, r.task, r.logged) for r in marks] == [(f"m{k}", "u", 61.2) for k in range(7)]
    assert not any("left out" in note for r in marks for note in r.notes)
    (odd,) = read(tmp_path / "odd.md")
    assert (odd.model, odd.logged, odd.notes[0]) == ("a|1", 0.6, "no numbers, left out: 2^10")


def test_what_lm_eval_0_3_wrote_is_read(tmp_path: Path) -> None:
    """Of numbers in full n is unique, .5 included; a perplexity has the limits of its error."""
    log = tmp_path / "old.json"
    results = {"t": {"acc": 0.45, "acc_stderr": 0.05}, "w": {"ppl": 20.0, "ppl_stderr": 2.0}}
    log.write_text(json.dumps({"results": results, "versions": {}, "config": {"model": "m"}}))
    acc, ppl = intervals(read(log))

    assert (acc.n_items, acc.estimate, acc.method) == (100, 0.45, "beta-hpd")
    note = "right answers and n are those that give value and standard error, the only ones"
    assert note in acc.notes
    assert (ppl.method, ppl.std_error, ppl.higher_is_better) == ("z", 2.0, False)
    assert (ppl.low, ppl.high) == pytest.approx((20 - 1.959964 * 2, 20 + 1.959964 * 2), abs=1e-5)


def test_means_have_the_limits_of_their_standard_error_on_the_scale(tmp_path: Path) -> None:
    """Student's t where n is known; an impossible share is flagged, and no limit is beyond 1."""
    file = tmp_path / "means.csv"
    file.write_text("model,task,metric,score,stderr,n\na,t,f1,0.5,0.1,10\n")
    (mean,) = intervals(read(file))
    half = 0.1 * float(t_quantile(9, confidence_level=0.95))

    assert (mean.method, mean.low) == ("t", pytest.approx(0.5 - half))
    file.write_text("model,task,acc,stderr\na,t,0.9,0.9\n")
    (share,) = intervals(read(file))
    assert (share.low, share.high, share.method) == (0.0, 1.0, "z")
    assert any(note.startswith("impossible for right and wrong answers") for note in share.notes)


def test_comparisons_are_unpaired_and_say_so(tmp_path: Path) -> None:
    """The same limits as of independent samples of items, with what the lost pairing costs."""
    file = tmp_path / "two.csv"
    file.write_text("model,task,score,n\na,t,0.62,50\nb,t,0.40,50\n")
    (found,) = compare(read(file))
    items = [_items(tmp_path / f"{m}.csv", k, 50, m) for m, k in (("a", 31), ("b", 20))]
    for path in items:
        path.write_text(path.read_text().replace("model,", "task,model,").replace("\n", "\nt,"))
        path.write_text(path.read_text().removesuffix("t,"))
    (expected,) = compare(read(*items), design="unpaired")

    assert (found.difference, found.low, found.high, found.p_value) == (
        expected.difference, expected.low, expected.high, expected.p_value,
    )  # fmt: skip
    assert any("pairing is lost" in note for note in found.notes)
    file.write_text("model,task,metric,score,stderr\na,t,f1,0.5,0.03\nb,t,f1,0.6,0.04\n")
    (means,) = compare(read(file))
    assert means.method == "normal"
    assert (means.low, means.high) == pytest.approx((0.1 - 0.0979982, 0.1 + 0.0979982), abs=1e-6)


def test_a_value_beside_models_with_items_is_named(tmp_path: Path) -> None:
    """It cannot be paired with them: the design for independent samples takes it."""
    items = tmp_path / "items.csv"
    items.write_text(
        "model,task,item,acc\n" + "".join(f"{m},t,{i},{i % 2}\n" for m in "ab" for i in range(9))
    )
    value = tmp_path / "value.csv"
    value.write_text("model,task,acc,n\nc,t,0.7,10\n")
    found = compare(read(items, value))

    assert len(found) == 1
    assert any("design unpaired takes them): c on t" in note for note in found.notes)
    assert len(compare(read(items, value), design="unpaired")) == 3


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("x.md", "no table\n", LogError, "has no table with a column of models"),
        ("x.md", "| model | t |\n|--|--|\n| a | 5/3 |\n", DesignError, "5 of 3 answers are right"),
        ("x.csv", "model,acc,stderr\na,0.5,-1\n", DesignError, "the standard error is -1 in row 1"),
        ("x.csv", "model,acc,stderr\na,0.5,?x\n", DesignError, "std_error is '.x' in row 1"),
        ("x.csv", "model,acc,n\na,0.5,1e300\n", DesignError, "Write a whole number of items"),
        ("x.csv", "model,acc,stderr\na,0.5,1e999\n", DesignError, "standard error is inf"),
        ("x.csv", "model,n_correct,n\na,1.5,3\n", DesignError, "Write a whole number of right"),
        ("x.csv", "model,acc,n\na,61,100\nb,0.8,100\n", DesignError, "acc is '0.8' in row 2, but "),
        ("x.csv", "task,acc,n\nt,1.0,100\nu,61,100\n", DesignError, "acc is '1.0' in row 1, but"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_refused(
    name: str, text: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    """With file and row."""
    (tmp_path / name).write_text(text)

    with pytest.raises(error, match=message):
        read(tmp_path / name)


def test_a_small_percentage_is_no_share(tmp_path: Path) -> None:
    """0.8 among 61.2 and 45 is not four fifths, whether or not the metric is known."""
    board = tmp_path / "board.md"
    board.write_text(
        "| model | t | u |\n|--|--|--|\n| a | 61.2 ± 1.4 | .8 ± .3 |\n| b | .8 ± .3 | .5 ± .3 |\n"
    )
    table = tmp_path / "table.csv"
    table.write_text("model,acc,n\na,61%,100\nb,0.8%,125\nc,0,9\n")
    by_place = {(r.model, r.task): r for r in intervals(read(board))}
    shares = {r.model: r.estimate for r in intervals(read(table))}

    assert (by_place["b", "t"].estimate, by_place["b", "t"].method) == (0.8, "z")
    assert (by_place["a", "u"].estimate, by_place["a", "u"].n_items) == (0.75, 4)
    assert shares == {"a": 0.61, "b": 0.008, "c": 0.0}
    # Right answers and items decide where they are given.
    table.write_text("model,acc,n_correct,n\na,61,61,100\nb,0.8,1,125\n")
    assert [r.estimate for r in intervals(read(table))] == [0.61, 0.008]


def test_odd_spellings_and_sizes_are_survived(tmp_path: Path) -> None:
    """Words, decimal commas, and errors of no size that a benchmark has."""
    file = tmp_path / "odd.csv"
    for score, error in (("yes", "0.1"), ("0,62", "0,1"), ("1e-300", "1e-300"), ("0.5", "1e-9")):
        file.write_text(f"model;task;acc;stderr\na;t;{score};{error.replace(',', '.')}\n")

        assert len(intervals(read(file))) == 1


def test_hostile_text_is_not_printed_raw(tmp_path: Path) -> None:
    """Neither names of models nor of tasks, which are headings, move the terminal."""
    board = tmp_path / "board.md"
    board.write_text("| model | t\x1b[31m |\n|--|--|\n| a\x1b]0;x\x07 | 5/9 |\n| b | 1/9 |\n")
    for command in ("report", "compare"):
        done = _run(command, board)

        assert done.exit_code == 0
        assert "\x1b" not in done.stdout
    assert _run("report", tmp_path / "board.md", "-t", "nothing").exit_code == 2


def test_an_exported_value_keeps_what_is_behind_it(tmp_path: Path) -> None:
    """The interval of a published standard error outlives another form of the same value."""
    file = tmp_path / "means.csv"
    file.write_text("model,task,metric,score,stderr\na,t,f1,0.5,0.03\n")
    (mean,) = intervals(read(file))
    export(read(file), tmp_path / "eee", to="every-eval-ever")
    (exported,) = intervals(read(tmp_path / "eee"))

    assert (exported.low, exported.high, exported.method) == (mean.low, mean.high, "z")


def test_a_table_of_values_has_the_verdicts_of_compare(tmp_path: Path) -> None:
    """Of independent samples: without items nobody knows which models were right on the same."""
    board = tmp_path / "board.md"
    board.write_text(BOARD)
    shown = table(read(board))
    cells = {(cell.task, cell.model): cell for cell in shown}
    verdicts = {(row.task, row.model_b): row.verdict for row in compare(read(board))}

    assert cells["Small", "alpha"].estimate == 0.7
    assert cells["Small", "alpha"].low is not None
    for task in ("Arc", "Gsm", "Small"):
        told_apart = cells[task, "alpha"].worst_rank == 1
        assert told_apart == (verdicts[task, "beta"] == "worse"), task
    assert shown.compared_on == "as independent samples"


def test_a_table_has_the_values_of_which_no_counts_are_known(tmp_path: Path) -> None:
    """Those with limits from their error, and those alone, which are not ranked."""
    board = tmp_path / "board.csv"
    rows = [
        "a,w,14/20,",
        "b,w,13/20,",
        "a,x,12/20,",
        "b,x,9/20,",
        "a,y,1.5,0.05",
        "b,y,1.6,0.02",
        "a,z,3.2,",
        "b,z,3.4,",
    ]
    board.write_text("\n".join(["model,task,score,std_error", *rows, ""]))
    shown = table(read(board))
    cells = {(cell.task, cell.model): cell for cell in shown}

    assert [(cells["y", m].estimate, cells["y", m].low is None) for m in "ab"] == [
        (1.5, False), (1.6, False),
    ]  # fmt: skip
    assert [(cells["z", m].estimate, cells["z", m].low) for m in "ab"] == [(3.2, None), (3.4, None)]
    assert [cells["z", m].best_rank for m in "ab"] == [None, None]
    assert [cells["y", m].best_rank for m in "ab"] == [1, 1]
    assert cells["overall", "a"].estimate == pytest.approx(0.65)
    assert any("because of values without items: y, z" in note for note in shown.notes)


def test_pages_and_papers_of_values_claim_no_common_items(tmp_path: Path) -> None:
    """Models are compared as independent samples, and both say so."""
    board, page = tmp_path / "board.md", tmp_path / "page.html"
    board.write_text(BOARD)
    assert _run("report", board, "--html", page).exit_code == 0
    assert _run("paper", board, "-o", tmp_path / "paper").exit_code == 0

    text, methods = page.read_text(), (tmp_path / "paper" / "methods.md").read_text()
    assert "Not everyone sat the same test" not in text
    assert "independent samples" in methods
    assert "items that both" not in methods
    assert "(2,494 items)" in methods


@pytest.mark.parametrize("less", [0, 1])
def test_numbers_in_full_have_the_counts_that_they_are_of(less: int):
    """Whatever their last digit."""
    for n in range(3, 40):
        for k in range(1, n):
            p = k / n
            error = math.sqrt(p * (1 - p) / (n - less))
            found = counts_behind(Printed.of(p, f"{p:.17f}"), Printed.of(error, f"{error:.17f}"))

            assert found is not None, (k, n)
            assert found.k * n == k * found.n
            assert (found.n, found.divisor) == (n, "n - 1" if less else "n")

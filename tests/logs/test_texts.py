"""Texts of items: those that a harness logged, of the items asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from evalstats_plugin import Measure, ResponseMatrix
from evalstats_plugin.adapters.lm_eval.texts import texts_of
from evalstats_plugin.data.responses import Responses, Source
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.logs.reading import read
from evalstats_plugin.logs.texts import (
    LONGEST,
    compare_items,
    item_texts,
    questions_of,
    with_response,
)

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
LM_EVAL = LOGS / "lm_eval"
INSPECT = LOGS / "inspect_ai" / "0.3.285"


def _texts_by_score(path: Path, task: str, metric: str) -> list[tuple[float, ItemText]]:
    """Return the score and the texts of every item."""
    [r] = read(path, task=task, metric=metric)
    ids = [str(i) for i in r.item_ids]
    texts = item_texts([r], {task: ids})

    assert set(texts) == {(r.model, task, item) for item in ids}
    return [(float(r.item_means[i]), texts[r.model, task, item]) for i, item in enumerate(ids)]


@pytest.mark.parametrize("version", ["0.4.2", "0.4.3", "0.4.7", "0.4.12", "0.4.13/out/models__m1"])
def test_choices_of_lm_eval_are_right_where_the_score_is_1(version: str) -> None:
    """The text of the likeliest choice is that of the target, in every layout of samples."""
    found = _texts_by_score(LM_EVAL / version, "es_mc", "acc,none")
    right = [text.answer.split("\n")[0].removeprefix("acc: ") == text.target for _, text in found]

    assert right == [score == 1 for score, _ in found]
    assert 0 < sum(right) < len(right)


def test_the_space_before_a_choice_of_lm_eval_has_no_length() -> None:
    """Divided by 2 and 3 letters, as lm-eval counts them, the second is likelier."""
    sample = {
        "doc_id": 0, "arguments": [["Q:", " ab"], ["Q:", " abc"]], "target": 1, "acc_norm": 1.0,
        "filtered_resps": [[-3.0, False], [-4.1, False]],
    }  # fmt: skip

    assert texts_of([sample])["0"].answer == "acc: ab\nacc_norm: abc"


@pytest.mark.parametrize("folder", ["models", "json"])
def test_answers_of_inspect_are_right_where_the_score_is_1(folder: str) -> None:
    """The scorer's answer holds the target, in both forms of logs."""
    log = next(p for p in sorted((INSPECT / folder).iterdir()) if "_arith_" in p.name)
    found = _texts_by_score(log, "arith", "match")

    assert [text.answer == f"ANSWER: {text.target}" for _, text in found] == [
        score == 1 for score, _ in found
    ]


def test_an_item_of_several_epochs_has_each_answer() -> None:
    """In one text, which says the epochs."""
    log = next(p for p in sorted((INSPECT / "models").iterdir()) if "arith-epochs" in p.name)

    assert item_texts(read(log), {"arith_epochs": ["item-003"]}) == {
        ("mockllm/alpha", "arith_epochs", "item-003"): ItemText(
            question="Question #3: what is six times seven?",
            target="42",
            answer="epoch 1: ANSWER: 7\nepoch 2: ANSWER: 7\nepoch 3: ANSWER: 42",
            where="sample item-003, epochs 1, 2, 3",
        )
    }


def test_choices_of_inspect_stand_below_the_question() -> None:
    """And a letter has its text beside it."""
    log = next(p for p in sorted((INSPECT / "es_mc").glob("*.eval")))
    [text] = item_texts(read(log), {"es_mc": ["3"]}).values()

    assert text.question == "5+7=\nA) 11\nB) 18\nC) 3\nD) 12"
    assert text.target == "D) 12"
    assert text.answer.split("\n")[0] in ("A) 11", "B) 18", "C) 3", "D) 12")


def _one_sample(folder: Path, **fields: Any) -> Responses:
    """Write a samples file of one item as lm-eval does, and read it."""
    sample = {
        "doc_id": 7, "doc": {"question": "Who wrote\nFaust?", "gold": "Goethe"}, "target": "Goethe",
        "arguments": {"gen_args_0": {"arg_0": "Who wrote\nFaust?", "arg_1": {"until": []}}},
        "resps": [["Goethe"]], "filtered_resps": ["Goethe"], "filter": "none",
        "metrics": ["exact_match"], "exact_match": 1.0,
    }  # fmt: skip
    path = folder / "samples_books_2026-01-01T00-00-00.000000.jsonl"
    path.write_text(json.dumps({**sample, **fields}) + "\n")
    return next(iter(read(path)))


EXAMPLES = "Answer.\n\nQuestion: Who wrote\nHamlet?\nAnswer: Shakespeare\n\n"
CHAT = json.dumps([{"role": "system", "content": "Hi"}, {"role": "user", "content": "Q: Faust?"}])


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        (f"{EXAMPLES}Question: Who wrote\nFaust?\nAnswer:", "Question: Who wrote\nFaust?\nAnswer:"),
        (f"{EXAMPLES}Complete the sentence", f"{EXAMPLES}Complete the sentence"),
        (CHAT, "Q: Faust?"),
        ("", "Who wrote\nFaust?"),
    ],
)
def test_a_question_is_the_prompt_without_its_examples(
    tmp_path: Path, prompt: str, question: str
) -> None:
    """From where the doc's own text begins; without such a text it is all of the prompt."""
    r = _one_sample(tmp_path, arguments={"gen_args_0": {"arg_0": prompt, "arg_1": {}}})

    assert item_texts([r], {"books": ["7"]})[r.model, "books", "7"].question == question


def test_a_filtered_answer_has_the_response_below_it(tmp_path: Path) -> None:
    """What was scored comes first."""
    r = _one_sample(tmp_path, resps=[["I think: Goethe."]], filtered_resps=["[invalid]"])

    assert item_texts([r], {"books": ["7"]})[r.model, "books", "7"] == ItemText(
        "Who wrote\nFaust?", "Goethe", "[invalid]\n\nI think: Goethe.", "doc_id 7"
    )


@pytest.mark.parametrize("odd", [None, 5, [], [[]], {}, {"a": 1}, ["x", [1]], [["", ""], ["", ""]]])
def test_samples_of_other_shapes_still_give_texts(tmp_path: Path, odd: Any) -> None:
    """A task's own requests and filters may be of any type."""
    r = _one_sample(tmp_path, arguments=odd, resps=odd, filtered_resps=odd, target=odd, doc=odd)
    [text] = item_texts([r], {"books": ["7"]}).values()

    assert text.where == "doc_id 7"


def test_only_lines_of_the_wanted_items_are_parsed(tmp_path: Path) -> None:
    """Damage elsewhere is not met; damage of a wanted line is an error of that log."""
    r = _one_sample(tmp_path)
    with r.source.path.open("a") as file:
        file.write('{"doc_id": 8, "doc": nonsense\n')

    assert [*item_texts([r], {"books": ["7"]})] == [(r.model, "books", "7")]
    with pytest.raises(LogError, match="line 2 is not JSON"):
        item_texts([r, replace(r, item_ids=r.item_ids + 1)], {"books": ["8"]})


@pytest.mark.needs("inspect_ai")
def test_a_sample_under_the_name_of_another_has_no_text(tmp_path: Path) -> None:
    """A damaged archive: the file of sample 3 holds a sample of another id."""
    from inspect_ai.log import read_eval_log  # noqa: F401 - teaches zipfile to read zstandard

    log = next(p for p in sorted((INSPECT / "models").iterdir()) if "_arith_" in p.name)
    damaged = tmp_path / log.name
    with ZipFile(log) as before, ZipFile(damaged, "w") as after:
        for member in before.namelist():
            content = before.read(member)
            if member == "samples/3_epoch_1.json":
                content = json.dumps(json.loads(content) | {"id": -1}).encode()
            after.writestr(member, content)
    [r] = read(damaged)

    assert [item for _, _, item in item_texts([r], {r.task: ["2", "3"]})] == ["2"]


def test_a_long_text_loses_its_middle(tmp_path: Path) -> None:
    """Both ends stay."""
    r = _one_sample(tmp_path, resps=[["a" * 9000 + "z"]], filtered_resps=["a" * 9000 + "z"])
    answer = item_texts([r], {"books": ["7"]})[r.model, "books", "7"].answer

    assert len(answer) < LONGEST
    assert (answer[0], "a … a" in answer, answer[-1]) == ("a", True, "z")


def test_tables_and_logs_without_samples_have_no_texts(tmp_path: Path) -> None:
    """Nor have results of files that are gone."""
    table = tmp_path / "scores.csv"
    table.write_text("model,task,item,score\nm,t,1,1\nm,t,2,0\n")
    found = [*read(table), *read(LM_EVAL / "0.4.13" / "out_nosamples")]

    assert item_texts(found, {r.task: ["1", "2"] for r in found}) == {}
    table.unlink()
    assert item_texts(found[:1], {"t": ["1"]}) == {}


def test_two_models_must_share_items() -> None:
    """And both must be there."""
    responses = read(LM_EVAL / "0.4.13" / "out", task="es_one")

    with pytest.raises(SelectionError, match="no model is called 'models/m7'; did you mean"):
        compare_items(responses, "models/m0", "models/m7")
    with pytest.raises(DesignError, match="no item has a score of both 'models/m0' and 'models/m0"):
        compare_items(responses, "models/m0", "models/m0")


def test_only_the_texts_of_the_rows_wanted_are_read() -> None:
    """Counts are over all items."""
    responses = read(LM_EVAL / "0.4.13" / "out", task="es_mc", metric=["acc", "acc_norm"])
    found = compare_items(responses, "models/m1", "models/m2", most=2)

    assert [(row.item, row.metric, row.target) for row in found] == [
        ("3", "acc,none", "12"), ("4", "acc,none", "15")
    ]  # fmt: skip
    assert (found.n_flipped, [c.n_items for c in found.counts]) == (7, [60, 60])


def _of_two(tmp_path: Path) -> tuple[list[Responses], Any]:
    """Return two metrics of models a and b, each with a log, and plugins that have texts of it."""
    scores = {"a": [1.0, 0.0, 1.0, 0.5], "b": [0.0, 1.0, 1.0, 0.25]}
    responses: list[Responses] = []
    for model, own in scores.items():
        (tmp_path / model).touch()
        source = Source(path=tmp_path / model, harness="toy")
        responses += [
            Responses(
                model=model, measure=Measure(task="t", metric=metric), source=source,
                item_ids=np.array(["p", "q", "r", "s"]), scores=np.array(own)[:, None],
            )
            for metric in ("acc", "f1")
        ]  # fmt: skip
    texts = {
        "a": {("t", "p"): ItemText("", "4", "five", "line 1"), ("t", "q"): ItemText(answer="x")},
        "b": {("t", "p"): ItemText("2 + 2?", "", "four"), ("t", "q"): ItemText("", "y", "z", "9")},
    }
    asked: list[Any] = []

    def call(_: str, *, log: Any, items: Any) -> Any:
        asked.append(items)
        own = texts[log.path.name]
        return {place: text for place, text in own.items() if place[1] in items[place[0]]} or None

    return responses, SimpleNamespace(call=call, asked=asked)


def test_texts_of_two_models_complete_each_other(tmp_path: Path) -> None:
    """All items; of a number of rows those that differ under the first metric."""
    responses, using = _of_two(tmp_path)
    every = compare_items(responses, "a", "b", plugins=using)
    worse = compare_items(responses, "a", "b", most=9, only="worse", plugins=using)
    one = compare_items(responses, "a", "b", most=1, plugins=using)
    outcomes = [(row.item, row.metric, row.outcome) for row in every]

    assert sorted(outcomes) == [
        (item, metric, outcome)
        for item, outcome in (("p", "worse"), ("q", "better"), ("r", "same"), ("s", "worse"))
        for metric in ("acc", "f1")
    ]
    p, q = (next(row for row in every if row.item == item) for item in ("p", "q"))
    assert (p.question, p.target, p.answer_a, p.answer_b, p.where) == (
        "2 + 2?", "4", "five", "four", "line 1"
    )  # fmt: skip
    assert (q.question, q.target, q.answer_a, q.answer_b, q.where) == ("", "y", "x", "z", "9")
    assert [(row.item, row.metric) for row in worse] == [("p", "acc"), ("s", "acc")]
    assert (every.n_flipped, worse.n_flipped, len(one)) == (3, 2, 1)
    # Each log once, and of it the items of the rows alone.
    assert using.asked[:2] == [{"t": {"p", "q", "r", "s"}}] * 2
    assert using.asked[-2:] == [{"t": {one.rows[0].item}}] * 2
    assert questions_of(responses, using) == {("t", "p"): "2 + 2?"}
    other = ResponseMatrix.from_array(np.eye(2), models=["a", "b"], items=["1", "2"]).to_responses()
    apart = [other[0], replace(other[1], item_ids=np.array(["3", "4"]))]
    with pytest.raises(DesignError, match="no item has a score of both 'a' and 'b'"):
        compare_items(apart, "a", "b", plugins=using)


def test_questions_are_of_the_first_log_and_texts_end_at_their_limit(tmp_path: Path) -> None:
    """A text of the longest length is whole; of one letter more the middle is left out."""
    responses, using = _of_two(tmp_path)
    long = "ab" * (LONGEST // 2)
    held = {"a": ItemText("first", long), "b": ItemText("second", long + "c")}
    using.call = lambda _, log, items: {("t", "p"): held[log.path.name]}  # noqa: ARG005
    texts = item_texts(responses, {"t": {"p"}, "u": {"q"}}, using)

    assert LONGEST == 2000
    assert questions_of(responses, using) == {("t", "p"): "first"}
    assert texts["a", "t", "p"].target == long
    assert texts["b", "t", "p"].target == f"{long[:998]} … {(long + 'c')[-998:]}"
    assert item_texts(responses, {"t": {"p"}}, using, longest=None)["b", "t", "p"] == held["b"]
    assert [with_response("4", r) for r in (" 4\n", " ", "It is 4")] == ["4", "4", "4\n\nIt is 4"]

"""Exports of arenas and judge benchmarks are read as they come; small files in their layouts."""

import io
import json

import numpy as np
import pandas as pd
import pytest

from evalstats_plugin.errors import EvalStatsError, LogError
from evalstats_plugin.logs.reading import read
from evalstats_plugin.ranking.contests.files import read_contests

ANSWER = [{"role": "assistant", "content": "…"}]


def lines(records):
    return io.BytesIO("".join(json.dumps(one) + "\n" for one in records).encode())


def named(made):
    return [
        (made.players[i], made.players[j], float(y))
        for i, j, y in zip(made.first, made.second, made.outcome, strict=True)
    ]


def test_arena_hard_judgments_are_two_games_each():
    """First the baseline is shown first, then the model; a verdict that is missing is left out."""
    made = read_contests(
        lines(
            [
                {"question_id": "q1", "model": "ant", "judge": "j", "games": [
                    {"user_prompt": "p", "judgment": "…", "score": "B>>A"},
                    {"user_prompt": "p", "judgment": "…", "score": "A>B"}]},
                {"question_id": "q2", "model": "bee", "judge": "j", "games": [
                    {"user_prompt": "p", "judgment": "…", "score": "A=B"},
                    {"user_prompt": "p", "judgment": "…", "score": None}]},
            ]
        )
    )  # fmt: skip

    assert named(made) == [
        ("baseline", "ant", 0.0),
        ("ant", "baseline", 1.0),
        ("baseline", "bee", 0.5),
    ]
    assert made.ordered
    assert [made.clusters[k] for k in made.cluster] == ["q1", "q1", "q2"]
    assert any("each game is a comparison" in note for note in made.notes)
    assert any("the file does not name it" in note for note in made.notes)


def test_arena_hard_2_names_the_baseline():
    made = read_contests(
        lines(
            [
                {"uid": "u1", "category": "hard_prompt", "judge": "j", "model": "ant",
                 "baseline": "cat", "games": [
                    {"score": "A>B", "judgment": {"answer": "…"}},
                    {"score": "B>A", "judgment": {"answer": "…"}}]},
            ]
        )
    )  # fmt: skip

    assert named(made) == [("cat", "ant", 1.0), ("ant", "cat", 0.0)]
    assert not any("does not name it" in note for note in made.notes)
    assert made.clusters == ("u1",)


def test_a_broken_game_is_no_comparison():
    record = {"question_id": "q", "model": "ant", "judge": "j", "games": ["?", {"score": "A>B"}]}
    assert named(read_contests(lines([record]))) == [("ant", "baseline", 1.0)]


def test_lmarena_votes_with_nested_columns(tmp_path):
    rows = [
        {
            "id": f"v{k}",
            "model_a": a,
            "model_b": b,
            "winner": winner,
            "evaluation_session_id": "s",
            "evaluation_order": 1,
            "conversation_a": ANSWER,
            "conversation_b": ANSWER,
            "conv_metadata": {"sum_assistant_a_tokens": 10, "sum_assistant_b_tokens": 12 + k},
            "category_tag": {"math_v0.1": {"math": False}},
            "language": "en",
            "is_code": False,
            "timestamp": "2025-06-01 10:00:00",
        }
        for k, (a, b, winner) in enumerate(
            [("ant", "bee", "model_a"), ("bee", "cat", "both_bad"), ("cat", "ant", "tie")]
        )
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "votes.parquet")
    for source in (tmp_path / "votes.parquet", lines(rows)):
        made = read_contests(source)
        assert named(made) == [("ant", "bee", 1.0), ("bee", "cat", 0.5), ("cat", "ant", 0.5)]
        assert made.ordered


def test_chatbot_arena_list_and_competition_table():
    battles = [
        {"question_id": "q1", "model_a": "ant", "model_b": "bee", "winner": "tie (bothbad)",
         "judge": "arena_user_1", "turn": 1, "anony": True, "language": "English",
         "tstamp": 1700000000.5, "conversation_a": ANSWER, "conversation_b": ANSWER},
        {"question_id": "q2", "model_a": "bee", "model_b": "ant", "winner": "model_b",
         "judge": "arena_user_2", "turn": 1, "anony": True, "language": "German",
         "tstamp": 1700000001.5, "conversation_a": ANSWER, "conversation_b": ANSWER},
    ]  # fmt: skip
    whole = read_contests(io.BytesIO(json.dumps(battles, indent=1).encode()))
    table = read_contests(
        io.BytesIO(
            b"id,model_a,model_b,prompt,response_a,response_b,winner_model_a,winner_model_b,"
            b"winner_tie\n1,ant,bee,p,x,y,0,0,1\n2,bee,ant,q,x,y,0,1,0\n3,ant,bee,p,x,y,1,0,0\n"
        )
    )

    assert named(whole) == [("ant", "bee", 0.5), ("bee", "ant", 0.0)]
    assert whole.judges == ("arena_user_1", "arena_user_2")
    assert named(table) == [("ant", "bee", 0.5), ("bee", "ant", 0.0), ("ant", "bee", 1.0)]
    assert len(table.clusters) == 2


def test_alpaca_eval_annotations_have_shares_of_a_preference():
    notes = [
        {"instruction": f"i{k}", "output_1": "x", "generator_1": "bee", "output_2": "y",
         "generator_2": "ant", "dataset": "d", "annotator": "w", "preference": value,
         "raw_completion": None, "price_per_example": 0.01, "time_per_example": 0.1}
        for k, value in enumerate([1.9998, 1.25, None, 2.0])
    ]  # fmt: skip
    made = read_contests(io.BytesIO(json.dumps(notes).encode()))

    assert [pair[:2] for pair in named(made)] == [("bee", "ant")] * 3
    np.testing.assert_allclose(made.outcome, [0.0002, 0.75, 0.0], atol=1e-9)
    assert not made.ordered


@pytest.mark.parametrize("games", [[], None])
def test_judgments_without_games_say_what_is_missing(games):
    record = {"question_id": "q", "model": "ant", "judge": "j", "games": games}
    with pytest.raises(EvalStatsError):
        read_contests(lines([record]))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("votes.csv", "model_a,model_b,winner\nant,bee,model_a\nbee,ant,tie\n"),
        ("judged.jsonl", '{"model": "ant", "games": [{"score": "B>>A"}, {"score": "A>B"}]}\n'),
        ("more.csv", "model_a,model_b,winner\n" + "ant,bee,model_a\n" * 9000),
    ],
)
def test_votes_given_as_scores_are_pointed_to_the_command_that_ranks_them(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")

    with pytest.raises(LogError, match=r"comparisons of two models.*rank leaderboard"):
        read(tmp_path / name)


def test_a_table_of_something_else_is_not_taken_for_votes(tmp_path):
    (tmp_path / "x.csv").write_text("colour,size\nred,3\n", encoding="utf-8")

    with pytest.raises(EvalStatsError, match="no column's name says"):
        read(tmp_path / "x.csv")

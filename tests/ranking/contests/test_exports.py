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


def table(heading, *rows):
    return io.BytesIO("\n".join((heading, *rows)).encode())


def test_mt_bench_judgments_are_two_games_each():
    """First model_1 is shown first, then model_2; the winner keeps its name in both games."""
    record = {"question_id": 81, "model_1": "ant", "model_2": "bee", "g1_winner": "model_1",
              "g2_winner": "model_1", "judge": ["j", "pair-v2"], "turn": 1}  # fmt: skip
    more = record | {"g1_winner": "tie", "g2_winner": "error"}
    made = read_contests(lines([record, more]))

    assert named(made) == [("ant", "bee", 1.0), ("bee", "ant", 0.0), ("ant", "bee", 0.5)]
    as_list = json.dumps([record, more], indent=1).encode()
    assert named(read_contests(io.BytesIO(as_list))) == named(made)
    assert made.ordered
    assert made.clusters == ("81",)
    assert any("MT-Bench" in note for note in made.notes)


@pytest.mark.parametrize(
    ("heading", "won", "tied", "lost"),
    [
        ("ID1,ID2,better_id", "ant", "tie", "bee"),
        ("modelA,modelB,Winner", "Model A", "Tie", "Model B"),
        ("Model 1,Model 2,Preferred", "Model 1", "no preference", "Model 2"),
        ("answer_a_model,answer_b_model,winner", "response_a", "tie (both good)", "response_b"),
        ("White,Black,Result", "1-0", "1/2-1/2", "0-1"),
        ("white_id,black_id,winner", "white", "draw", "black"),
        ("HomeTeam,AwayTeam,FTHG,FTAG,FTR", "2,0,H", "1,1,D", "0,2,A"),
        ("home_team,away_team,home_score,away_score", "2,0", "1,1", "0,10"),
        ("player_1,player_2,score_1,score_2", "6.5,6", "6,6", "5,6"),
        ("candidate,baseline,verdict", "win", "tie", "lose"),
        ("model_A,model_B,choice", "A++", "A=B", "B+"),
        ("system_a,system_b,preference", "a", "same", "b"),
        ("model_a,model_b,label", "A>B", "A=B", "B>>A"),
        ("model_a,model_b,outcome", "1", "0", "-1"),
        ("model_a,model_b,winner_model_a,winner_model_b,winner_tie", "True,False,False",
         "False,False,True", "False,True,False"),
    ],
)  # fmt: skip
def test_names_and_words_of_published_tables(heading, won, tied, lost):
    made = read_contests(table(heading, *(f"ant,bee,{result}" for result in (won, tied, lost))))
    assert named(made) == [("ant", "bee", 1.0), ("ant", "bee", 0.5), ("ant", "bee", 0.0)]


@pytest.mark.parametrize(
    "heading", ["winner_id,winner_name,loser_id,loser_name", "x,chosen_model,y,rejected_model"]
)
def test_winners_and_losers_by_other_names(heading):
    made = read_contests(table(heading, "7,ant,9,bee", "9,bee,7,ant"))
    assert named(made) == [("ant", "bee", 1.0), ("bee", "ant", 1.0)]


def test_scores_of_other_names_are_named_both():
    rows = "model_a,model_b,x,y\nant,bee,3,9"
    made = read_contests(table(rows), columns={"first_score": "x", "second_score": "y"})
    assert named(made) == [("ant", "bee", 0.0)]
    assert "the higher of x and y won; equal ones are a tie" in made.notes
    with pytest.raises(EvalStatsError, match="first_score alone says nothing"):
        read_contests(table(rows), columns={"first_score": "x"})


def test_judges_may_be_categories_too():
    rows = table("model_a,model_b,winner,judge", "ant,bee,a,j", "ant,bee,b,k")
    made = read_contests(rows, columns={"category": "judge"})
    assert (made.judges, made.categories) == (("j", "k"), ("j", "k"))


def test_counted_comparisons_are_each_one():
    made = read_contests(table("model,opponent,wins,ties,losses", "ant,bee,2,1,0", "cat,ant,0,0,1"))
    wins = [("ant", "bee", 1.0), ("ant", "bee", 1.0), ("ant", "bee", 0.5), ("cat", "ant", 0.0)]
    assert named(made) == wins
    # From both sides, each is counted once.
    both = table("model,opponent,wins,losses", "ant,bee,2,1", "bee,ant,1,2")
    assert sorted(named(read_contests(both))) == [("ant", "bee", y) for y in (0.0, 1.0, 1.0)]
    with pytest.raises(EvalStatsError, match=r"wins is '1\.5' in row 1.*a whole number"):
        read_contests(table("model,opponent,wins,losses", "ant,bee,1.5,2"))


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        ("rank_1,rank_2,rank_3", "ant,bee,cat"),
        ("annotator,ranking", "j,ant > bee > cat"),
        ("annotator,ranking", 'j,"[""ant"", ""bee"", ""cat""]"'),
    ],
)
def test_every_two_of_a_ranking_are_a_comparison(heading, row):
    made = read_contests(table(heading, row, row))
    pairs = [("ant", "bee", 1.0), ("ant", "cat", 1.0), ("bee", "cat", 1.0)]
    assert named(made) == pairs * 2
    assert made.cluster.tolist() == [0, 0, 0, 1, 1, 1]
    assert not made.ordered


def test_rankings_have_ties_and_each_player_once():
    made = read_contests(table("ranking", "ant = bee > cat"))
    assert named(made) == [("ant", "bee", 0.5), ("ant", "cat", 1.0), ("bee", "cat", 1.0)]
    with pytest.raises(EvalStatsError, match="row 1 ranks a player twice"):
        read_contests(table("ranking", "ant > ant"))
    with pytest.raises(EvalStatsError, match="no ranking in 1 row"):
        read_contests(table("ranking", "ant"))


def test_features_have_the_side_anywhere_in_their_name():
    """As in sum_assistant_a_tokens; and names inside objects may have dots."""
    rows = [
        {"model_a": "ant", "model_b": "bee", "winner": "a", "tag": {"math_v0.1": {"math": k > 0}},
         "sum_assistant_a_tokens": 9, "sum_assistant_b_tokens": k}
        for k in range(2)
    ]  # fmt: skip
    columns = {"features": "sum_assistant_tokens", "category": "tag.math_v0.1.math"}
    made = read_contests(lines(rows), columns=columns)
    assert made.features.tolist() == [[9.0], [8.0]]
    assert made.categories == ("false", "true")

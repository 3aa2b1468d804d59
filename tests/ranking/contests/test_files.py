"""Comparisons read from files of every kind, written, and refused."""

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evalstats_plugin.errors import DesignError, LogError, SelectionError, WriteError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.contests.files import (
    merge,
    read_contests,
    with_players,
    write_contests,
)
from evalstats_plugin.ranking.rank import leaderboard

ARENA = """model_a,model_b,winner,judge,question_id,tstamp
gpt,claude,model_b,u1,q1,1.5
claude,gpt,tie (bothbad),u1,q2,2.5
gpt,llama,model_a,u2,q1,3.5
llama,claude,tie,u2,q2,
"""
# As Fullrank's `compare` prints it: json.dumps(..., indent="\t") and a line end.
FULLRANK = (
    json.dumps(
        {
            "items": ["Apple", "Banana", "Crème"],
            "prior_var": 2.5,
            "comparisons": [
                {"winner": 2, "loser": 0}, {"winner": 0, "loser": 1}, {"winner": 1, "loser": 2},
            ],
        },
        indent="\t",
    )
    + "\n"
)  # fmt: skip


def read(text, **options):
    content = text.encode() if isinstance(text, str) else text
    return read_contests(io.BytesIO(content), **options)


def shown(made):
    """Winner, loser and outcome of each, whichever stands first."""
    names = made.players
    return [
        (names[i], names[j], float(y))
        for i, j, y in zip(made.first, made.second, made.outcome, strict=True)
    ]


def test_chatbot_arena():
    made = read(ARENA)

    assert made.players == ("claude", "gpt", "llama")
    assert shown(made) == [
        ("gpt", "claude", 0.0),
        ("claude", "gpt", 0.5),
        ("gpt", "llama", 1.0),
        ("llama", "claude", 0.5),
    ]
    assert made.ordered
    assert made.notes == ("model_a is taken for the one that was shown first, as arenas show it",)
    assert [made.judges[k] for k in made.judge] == ["u1", "u1", "u2", "u2"]
    assert [made.clusters[k] for k in made.cluster] == ["q1", "q2", "q1", "q2"]
    assert made.time.tolist() == ["1.5", "2.5", "3.5", ""]


def test_all_formats_of_one_table_read_alike(tmp_path):
    """CSV with other separators, JSON by rows and by columns, JSONL and Parquet."""
    frame = pd.read_csv(io.StringIO(ARENA))
    rows = json.loads(frame.to_json(orient="records"))
    frame.to_parquet(tmp_path / "t.parquet")
    forms = [
        ARENA.replace(",", ";"),
        ARENA.replace(",", "\t").replace("\n", "\r\n"),
        "\ufeff" + ARENA.replace("gpt,", '" gpt ",'),
        json.dumps(rows, indent=1),
        json.dumps({name: [row[name] for row in rows] for name in rows[0]}),
        "".join(json.dumps(row) + "\n" for row in rows),
        (tmp_path / "t.parquet").read_bytes(),
    ]
    expected = read(ARENA)

    for form in forms:
        made = read(form)
        assert shown(made) == shown(expected)
        assert made.judges == expected.judges
        assert made.clusters == expected.clusters
        assert made.time.tolist() == expected.time.tolist()
        assert made.notes == expected.notes


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (("first", "LEFT", "A", "model_a", "1", "win", "[[A]]", "A>B", "x"), 1.0),
        (("second", "right", "b", "model_b", "2", "loss", "[[B]]", "B>>A", "y"), 0.0),
        (("tie", "tie (bothbad)", "both_bad", "draw", "C", "Tie", "A=B"), 0.5),
    ],
)
def test_spellings_of_who_won(words, outcome):
    text = "first,second,winner\n" + "".join(f"x,y,{word}\n" for word in words)

    assert read(text).outcome.tolist() == [outcome] * len(words)


def test_winner_and_loser_with_ties_and_who_was_shown_first():
    made = read("winner,loser,tie,shown_first\na,b,,loser\nb,a,true,b\na,c,false,a\n")

    assert made.ordered
    assert shown(made) == [("b", "a", 0.0), ("b", "a", 0.5), ("a", "c", 1.0)]
    assert not read("winner,loser\na,b\n").ordered


def test_alpaca_eval_says_1_for_the_first_and_2_for_the_second():
    """The metric of AlpacaEval: 1.5, and formerly 0, for a draw; 2 where the second model wins."""
    rows = [
        {"generator_1": "base", "generator_2": "new", "instruction": f"i{k}", "preference": p}
        for k, p in enumerate((1, 2.0, 1.5, 0, 1.9, None))
    ]
    made = read(json.dumps(rows))

    np.testing.assert_allclose(made.outcome, [1, 0, 0.5, 0.5, 0.1])
    assert not made.ordered
    assert made.notes == ("1 comparison without an answer: left out",)
    assert made.clusters[made.cluster[1]] == "i1"


def test_columns_can_be_named():
    """Parts by any name, features by one column or by one for each side, names inside objects."""
    rows = [
        {"meta": {"l": "x", "r": "y"}, "out": 0.25, "len_a": 9, "len_b": 4, "md": 1, "who": "j"},
        {"meta": {"l": "y", "r": "z"}, "out": 1, "len_a": 2, "len_b": 4, "md": 0, "who": "k"},
    ]
    columns = {
        "first": "meta.l", "second": "meta.r", "outcome": "out", "features": "len, md",
        "judge": "who",
    }  # fmt: skip
    made = read(json.dumps(rows), columns=columns, players=["z", "y", "x", "never"])

    assert made.players == ("z", "y", "x", "never")
    assert shown(made) == [("x", "y", 0.25), ("y", "z", 1.0)]
    assert made.feature_names == ("len", "md")
    np.testing.assert_array_equal(made.features, [[5, 1], [-2, 0]])
    assert made.judges == ("j", "k")


def test_a_position_swaps_the_comparison_and_its_features():
    text = "player_a,player_b,outcome,position,feature:len\na,b,1,2,3\na,b,.75,1,3\n"
    made = read(text)

    assert shown(made) == [("b", "a", 0.0), ("a", "b", 0.75)]
    np.testing.assert_array_equal(made.features, [[-3], [3]])


def test_ambiguous_answers_are_read_as_names():
    """Players called A and B, each once on either side: the winner is named, and a note says so."""
    made = read("left,right,winner\nA,B,A\nB,A,A\n")
    placed = read("left,right,winner\n1,2,2\n1,3,2\n")

    assert made.outcome.tolist() == [1.0, 0.0]
    assert "read as names of players" in made.notes[0]
    # 2 did not play in the second row: so it is a place.
    assert placed.outcome.tolist() == [0.0, 0.0]


def test_an_incomplete_order_is_not_used():
    made = read("player_a,player_b,winner,order\nx,y,x,17\ny,x,x,18\n")

    assert not made.ordered
    assert made.notes == ("'order' does not tell of every comparison who was shown first: unused",)
    with pytest.raises(DesignError, match="order is '17' in row 1"):
        read("player_a,player_b,winner,order\nx,y,x,17\n", columns={"position": "order"})


def test_contradictory_answers_are_kept_and_counted():
    """u1 on q1 lets each win once, always the one shown first; other judges and items do not."""
    text = (
        "first,second,winner,judge,item\n"
        "x,y,first,u1,q1\ny,x,first,u1,q1\nx,y,x,u2,q1\nx,y,y,u1,q2\ny,z,tie,u1,q1\ny,z,y,u1,q1\n"
    )
    made = read(text)

    assert len(made) == 6
    assert made.notes == (
        "1 pair was answered both ways by one judge on one item: all kept; in 1 of them the same "
        "place won each time",
    )
    # Without items the same pair may be compared again.
    assert read(text.replace("item", "x")).notes == ()
    # Different epochs of an item do not contradict each other.
    again = "first,second,winner,item,epoch\nx,y,x,q1,1\nx,y,y,q1,2\ny,z,y,q1,1\n"
    assert read(again).notes == ()
    assert len(read(again.replace("y,q1,2", "y,q1,1")).notes) == 1
    # As many items as answers, of which one has no answer.
    notes = read("player_a,player_b,winner,item\nx,y,x,p\nx,y,y,p\nx,y,,q\n").notes
    assert "answered both ways" in notes[-1]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", LogError, "is empty. Write comparisons"),
        ("winner,loser\n", DesignError, "has columns and no rows"),
        (ARENA.encode("utf-16"), LogError, "line 1. is not UTF-8.*iconv -f UTF-16"),
        (
            "winner,loser\na,b\nné,b\n".encode("latin-1"),
            LogError,
            r"byte 0xe9 at position 18 \(line 3\) is not UTF-8; convert .*WINDOWS-1252",
        ),
        ("winner,loser,winner\na,b,a\n", LogError, r"columns 1, 3 are both called 'winner'"),
        ("winner,loser\na,b\nc\n", LogError, "row 2 has 1 cells, but the heading has 2"),
        ("winner,loser\na,b\nc,c\n", DesignError, "row 2 compares 'c' with itself"),
        ("winner,loser\na,\n", DesignError, "row 1 has not two players"),
        (
            "first,second,winner\nx,y,x\nx,y,z\nx,y,model Q\n",
            DesignError,
            r"winner is 'z' in row 2 \(and 1 more row\). Write the name of one of the",
        ),
        ("first,second,outcome\nx,y,1.5\n", DesignError, "outcome is '1.5' in row 1"),
        ("first,second,outcome\nx,y,.5\nx,y,?\n", DesignError, r"outcome is '\?' in row 2"),
        ("first,second,preference\nx,y,3\n", DesignError, r"preference is '3' .* from 1 .* to 2"),
        ("winner,loser,weight\nx,y,-1\n", DesignError, "weight is '-1' in row 1"),
        ("winner,loser,tie\nx,y,maybe\n", DesignError, "tie is 'maybe' in row 1"),
        ("first,second,winner\nx,y,\n", DesignError, "no answer in 1 row: give at least one"),
        ("alice,bob\nx,y\n", SelectionError, r"no columns name two players.*--columns first="),
        ("\x1f\x8b\x00".encode("latin-1"), LogError, r"packed \(gzip\): unpack it first"),
        (b"PAR1 and nothing", LogError, "cannot be read as Parquet"),
        ('[{"winner": "a", "loser": "b"}', LogError, "is not JSON.*cut off"),
        ("[1, 2]", LogError, "record 1 is 1. Write an object"),
        (
            '{"winner": "a", "loser": "b"}\n{"winner": \n{"winner": "a", "loser": "b"}\n',
            LogError,
            "line 2 is not JSON",
        ),
    ],
)
def test_unreadable_rows_are_refused_with_their_number(text, error, message):
    with pytest.raises(error, match=message):
        read(text)


def test_unknown_names_are_refused_with_the_closest():
    with pytest.raises(SelectionError, match="no column 'winer'; did you mean winner"):
        read(ARENA, columns={"winner": "winer"})
    with pytest.raises(SelectionError, match=r"no part of a comparison is called 'wins'.*winner"):
        read(ARENA, columns={"wins": "winner"})
    with pytest.raises(SelectionError, match="no player is called 'claude'; did you mean clade"):
        read(ARENA, players=["gpt", "clade", "llama"])
    with pytest.raises(SelectionError, match="no column 'length'"):
        read(ARENA, columns={"features": "length"})
    with pytest.raises(LogError, match="cannot be read: No such file"):
        read_contests("nowhere.csv")


def test_a_half_written_last_line_is_left_out(tmp_path):
    """A program was killed while writing; the lines before count."""
    whole = '{"winner": "a", "loser": "b"}\n'
    cut = (whole * 2 + '{"winner": "ü').encode()[:-1]
    made = read(cut)

    assert len(made) == 2
    assert made.notes == ("the last line is half written: left out",)
    # The last line need not have an end.
    assert read(whole * 2 + whole.strip()).notes == ()
    path = tmp_path / "x.jsonl"
    path.write_text('{"winner"')
    with pytest.raises(LogError, match="no whole comparison"):
        read_contests(path)


def test_standard_input(monkeypatch):
    class Input:
        buffer = io.BytesIO(ARENA.encode())

    monkeypatch.setattr("sys.stdin", Input)

    assert len(read_contests("-")) == 4


def test_a_fullrank_file_is_written_back_to_the_byte(tmp_path):
    source, copy = tmp_path / "comparisons.json", tmp_path / "copy.json"
    source.write_text(FULLRANK.replace('"prior_var": 2.5', '"prior_var": 1.0'))
    contests = read_contests(source)
    write_contests(contests, copy)

    assert contests.players == ("Apple", "Banana", "Crème")
    assert shown(contests) == [
        ("Crème", "Apple", 1.0), ("Apple", "Banana", 1.0), ("Banana", "Crème", 1.0),
    ]  # fmt: skip
    assert copy.read_bytes() == source.read_bytes()
    assert shown(read_contests(source)) == shown(contests)


def everything(*, ordered, outcomes=(1.0, 0.0, 0.5, 0.25)):
    """Contests with all that Fullrank's file can hold, and an item that was never compared."""
    made = Contests.of(
        [0, 1, 2, 0], [1, 2, 0, 2], list(outcomes), players=["a", "b", "c", "d"],
        weight=[1, 2.5, 1, 1], ordered=ordered,
    )  # fmt: skip
    more = {
        "judge": np.array([0, 1, 0, 1]),
        "judges": ("ann", "ben"),
        "cluster": np.array([0, 0, 1, 2]),
        "clusters": ("p", "q", "r"),
        "time": np.array(["12:00", "", "12:01", "12:02"], dtype=object),
    }
    return replace(made, **more)


def test_our_additions_to_the_fullrank_file_are_read_back(tmp_path):
    kinds = {"category": np.array([0, 1, 1, 0]), "categories": ("code", "talk")}
    made = replace(everything(ordered=True), **kinds)
    write_contests(made, tmp_path / "c.json")
    again = read_contests(tmp_path / "c.json")
    written = json.loads((tmp_path / "c.json").read_text())
    rows = written["comparisons"]

    assert written["prior_var"] == 1.0
    for name in vars(made):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name), err_msg=name)
    # What Fullrank itself looks at.
    assert [(row["winner"], row["loser"]) for row in rows] == [(0, 1), (2, 1), (2, 0), (2, 0)]
    assert [row.get("tie") for row in rows] == [None, None, True, None]
    assert rows[3]["outcome"] == 0.75


def test_without_an_order_the_winner_is_first(tmp_path):
    """Then a loss of the first comes back as a win of the second: the same, the other way round."""
    made = everything(ordered=False)
    write_contests(made, tmp_path / "c.json")
    again = read_contests(tmp_path / "c.json")

    assert not again.ordered
    np.testing.assert_array_equal(again.wins(), made.wins())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"items": "ab"}, LogError, "items. is not a list of texts"),
        ({"items": ["a", "a"]}, LogError, "items repeat a: list every item once"),
        ({"prior_var": -1}, LogError, "prior_var. is -1: give a number above 0"),
        ({"prior_var": 10**400}, LogError, "prior_var. is 1000"),
        ({"comparisons": []}, DesignError, "no comparisons: give at least one"),
        ({"comparisons": {"winner": 0}}, LogError, "not lists of answers: comparisons"),
        (
            {"comparisons": [{"winner": 0, "loser": 3}]},
            LogError,
            r"comparisons number 1: .* in the list of 3 items \(0 to 2\)",
        ),
        ({"comparisons": [{"winner": "a", "loser": 1}]}, LogError, "does not name a winner"),
        ({"comparisons": [{"first": 0, "second": 1}]}, LogError, "does not name a winner"),
        (
            {"comparisons": [{"winner": 0, "loser": 1, "first": 1.0}]},
            LogError,
            "does not name a winner",
        ),
        ({"comparisons": [{"winner": 1, "loser": 1}]}, LogError, "needs two different items"),
        (
            {"comparisons": [{"winner": 0, "loser": 1, "first": 2}]},
            LogError,
            "one of them the first",
        ),
        (
            {"comparisons": [{"winner": 0, "loser": 1, "weight": "heavy"}]},
            LogError,
            "a weight that is a number from 0",
        ),
        (
            {"comparisons": [{"winner": 0, "loser": 1, "weight": 1e300}]},
            LogError,
            r"a weight that is a number from 0 to 1e\+12",
        ),
    ],
)
def test_an_invalid_fullrank_file_is_refused(change, error, message):
    value = {"items": ["a", "b", "c"], "comparisons": [{"winner": 0, "loser": 1}]}

    with pytest.raises(error, match=message):
        read(json.dumps({**value, **change}))


def test_a_partly_known_order_is_noted_and_not_used():
    value = {
        "items": ["a", "b"],
        "comparisons": [{"winner": 0, "loser": 1, "first": 1}, {"winner": 0, "loser": 1}],
    }
    made = read(json.dumps(value))

    assert not made.ordered
    assert made.notes == ("1 of 2 comparisons do not tell who was shown first: unused",)
    assert shown(made) == [("b", "a", 0.0), ("a", "b", 1.0)]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("ordered", [True, False])
def test_written_files_read_the_same(tmp_path, ending, ordered):
    """Numbers to the last digit."""
    made = everything(ordered=ordered, outcomes=(1, 0.1 + 0.2, 0.5, 1 / 3))
    features = np.array([[1 / 3, 2], [0.1, -1], [1e-17, 0], [4, 4]])
    made = Contests(**{**vars(made), "features": features, "feature_names": ("len", "md")})
    path = write_contests(made, tmp_path / f"c.{ending}")
    again = read_contests(path, players=made.players)

    for name in vars(made):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name), err_msg=name)


def test_categories_are_written_too(tmp_path):
    text = "model_a,model_b,winner,kind\na,b,a,code\nb,a,a,talk\n"
    made = read(text, columns={"category": "kind"})
    path = write_contests(made, tmp_path / "c.csv")
    again = read_contests(path, columns={"category": "category"})

    assert again.categories == ("code", "talk")
    assert again.category.tolist() == [0, 1]


def test_unsupported_contests_are_not_written(tmp_path):
    made = everything(ordered=True)
    with pytest.raises(WriteError, match=r"no ending of a known format. Use one of \.csv"):
        write_contests(made, tmp_path / "c.xlsx")
    features = Contests(**{**vars(made), "features": np.ones((4, 1)), "feature_names": ("len",)})
    with pytest.raises(DesignError, match="no place for features"):
        write_contests(features, tmp_path / "c.json")
    assert list(tmp_path.iterdir()) == []


def test_two_judges_files_are_merged():
    """Players and items of one name are the same; the judge of the second file is given."""
    one = read("winner,loser,judge,item\na,b,ann,p\nb,c,ann,q\n")
    two = read("winner,loser,item\nc,a,p\nb,a,p\n")
    made = merge(one, two, judges=("unused", "ben"))

    assert made.players == ("a", "b", "c")
    assert shown(made) == [("a", "b", 1.0), ("b", "c", 1.0), ("c", "a", 1.0), ("b", "a", 1.0)]
    assert [made.judges[k] for k in made.judge] == ["ann", "ann", "ben", "ben"]
    assert [made.clusters[k] for k in made.cluster] == ["p", "q", "p", "p"]
    assert merge(one, two).judges == ("ann", "(unknown)")
    alone = merge(one, read("winner,loser\nc,d\nc,d\n"))
    assert alone.players == ("a", "b", "c", "d")
    assert len(set(alone.cluster.tolist())) == 4
    with pytest.raises(DesignError, match="1 name of judges for 2 files"):
        merge(one, two, judges=("ben",))
    with pytest.raises(DesignError, match="Give all the same features"):
        merge(one, read("winner,loser,feature:len\na,b,1\n"))


def test_answers_without_an_item_are_apart_in_several_files(tmp_path):
    """The second rows of two files were taken for answers on one item."""
    for name, winner in (("one", "a"), ("two", "b")):
        text = f"player_a,player_b,winner,item,judge\na,b,a,p,ann\na,b,{winner},,ann\n"
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    made = merge(*(read_contests(tmp_path / f"{name}.csv") for name in ("one", "two")))

    assert made.cluster.tolist() == [0, 1, 0, 2]
    assert made.notes == ()


def test_merging_notes_contradictions_and_lost_order():
    one = read("left,right,winner,item,worker\na,b,left,p,ann\n")
    two = read("winner,loser,item,worker\nb,a,p,ann\n")
    made = merge(one, two)

    assert not made.ordered
    assert made.notes == (
        "some of the files do not tell who was shown first: unused",
        "1 pair was answered both ways by one judge on one item: all kept",
    )


def test_players_can_be_put_in_another_order():
    made = read("winner,loser\na,b\nb,c\n")
    again = with_players(made, ["c", "b", "a", "z"])

    assert shown(again) == shown(made)
    assert again.players[3] == "z"
    with pytest.raises(SelectionError, match="no player is called 'a'"):
        with_players(made, ["b", "c"])


def test_real_votes_read_as_the_csv_module_reads_them(llmfao):
    """8,931 votes, opened as a stream; the columns are known by their names."""
    path = Path(__file__).parents[3] / "fixtures" / "data" / "llmfao" / "votes.csv.gz"
    with gzip.open(path) as file:
        made = read_contests(file)

    assert made.players == llmfao.players
    for name in ("first", "second", "outcome", "ordered"):
        np.testing.assert_array_equal(getattr(made, name), getattr(llmfao, name))
    for codes, names in (("judge", "judges"), ("cluster", "clusters")):
        mine, theirs = (np.array(getattr(c, names))[getattr(c, codes)] for c in (made, llmfao))
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(LogError, match=r"votes\.csv\.gz is packed .gzip.: unpack it first"):
        read_contests(path)


def test_the_category_of_a_fullrank_file_may_be_named(tmp_path):
    """`--category category` was refused, because such a file has no columns."""
    path = tmp_path / "votes.json"
    votes = json.loads(FULLRANK)
    for k, record in enumerate(votes["comparisons"]):
        record |= {"category": f"c{k}", "kind": f"k{k // 2}"}
    path.write_text(json.dumps(votes), encoding="utf-8")

    assert read_contests(path).categories == ("c0", "c1", "c2")
    made = read_contests(path, columns={"category": "kind", "item": "category"})
    assert [made.categories[k] for k in made.category] == ["k0", "k0", "k1"]
    assert [made.clusters[k] for k in made.cluster] == ["c0", "c1", "c2"]
    board = leaderboard(path, category="kind", rng=0, model="thurstone")
    assert list(board.by_category) == ["k0", "k1"]
    with pytest.raises(SelectionError, match="field of an answer is called 'kinds'; did you mean"):
        read_contests(path, columns={"category": "kinds"})
    with pytest.raises(SelectionError, match=r"columns judge named, but .* Fullrank's, without"):
        read_contests(path, columns={"category": "kind", "judge": "who"})


def test_a_million_rows_take_at_most_3_cpu_seconds(tmp_path, within):
    """.22 s on a quarter: items, judges and times that differ in every row among them."""
    rng = np.random.default_rng(0)
    n = 250_000
    i = rng.integers(0, 100, n)
    j = (i + rng.integers(1, 100, n)) % 100
    names = np.array([f"org/model-{k}" for k in range(100)])
    words = np.array(["model_a", "model_b", "tie", "tie (bothbad)"])
    won = rng.integers(0, 4, n)
    pd.DataFrame(
        {
            "question_id": [f"q{k}" for k in range(n)],
            "model_a": names[i],
            "model_b": names[j],
            "winner": words[won],
            "judge": [f"user_{k}" for k in rng.integers(0, 5000, n)],
        }
    ).to_csv(tmp_path / "arena.csv", index=False)
    read(ARENA)
    made = within(0.44, lambda: read_contests(tmp_path / "arena.csv"))

    expected = np.array([1, 0, 0.5, 0.5])[won]
    np.testing.assert_array_equal(made.outcome, expected)
    assert [made.players[k] for k in made.first[:50]] == names[i][:50].tolist()

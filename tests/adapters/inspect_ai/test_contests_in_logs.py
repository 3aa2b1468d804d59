"""Comparisons read from the logs of a judge, as Inspect wrote them."""

import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.logs.reading import read_contests
from evalstats_plugin.ranking.contests.files import write_contests

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "inspect_ai" / "0.3.285"
PAIRWISE = LOGS / "pairwise"
LENIENT = min(PAIRWISE.glob("*.eval"))
STRICT = min(PAIRWISE.glob("*.json"))
LETTER = {1.0: "A", 0.0: "B", 0.5: "C"}


def samples(path):
    """What Inspect itself reads, by epoch and id: both models, the verdict, the prompt."""
    from inspect_ai.log import read_eval_log

    found = read_eval_log(str(path)).samples
    return [
        (
            s.metadata["model_a"],
            s.metadata["model_b"],
            s.scores["verdict"].value,
            str(s.metadata["prompt_id"]),
        )
        for s in sorted(found, key=lambda s: (s.epoch, s.id))
    ]


def shown(made):
    return [
        (made.players[i], made.players[j], float(y), made.clusters[c])
        for i, j, y, c in zip(made.first, made.second, made.outcome, made.cluster, strict=True)
    ]


@pytest.mark.parametrize("log", [LENIENT, STRICT], ids=["eval", "json"])
def test_a_judges_log_needs_no_mapping(log):
    """Two models in the metadata and one scorer: the rest is known by name."""
    made = read_contests(log)

    assert shown(made) == samples(log)
    assert made.ordered
    assert made.judges == (f"mockllm/{'lenient' if log == LENIENT else 'strict'}",)
    assert made.notes[0] == (
        "read as outcome=scores.verdict.value, judge=model, item=metadata.prompt_id"
    )


def test_a_score_may_be_the_letter_of_the_winner(tmp_path):
    """As other judges' scorers have it; grades, of which C would be a tie, are refused."""
    log = json.loads(STRICT.read_text())
    for sample in log["samples"]:
        verdict = sample["scores"]["verdict"]
        verdict["value"] = LETTER[verdict["value"]]
    (tmp_path / "letters.json").write_text(json.dumps(log))

    assert shown(read_contests(tmp_path / "letters.json")) == samples(STRICT)
    for sample in log["samples"]:
        sample["scores"]["verdict"]["value"] = "C"
    (tmp_path / "grades.json").write_text(json.dumps(log))
    with pytest.raises(SelectionError, match=r"holds grades .C., not who won of two"):
        read_contests(tmp_path / "grades.json")


def test_the_logs_of_a_folder_are_merged(tmp_path):
    """Two judges on the same players and prompts; a table written by us beside them."""
    made = read_contests(PAIRWISE)

    assert shown(made) == [*samples(LENIENT), *samples(STRICT)]
    assert made.judges == ("mockllm/lenient", "mockllm/strict")
    assert len(made.clusters) == 12
    assert made.notes[0].startswith("each of 2 files: read as outcome=scores.verdict.value")
    counts = Counter(frozenset(pair[:2]) for pair in samples(LENIENT))
    assert counts == dict.fromkeys(map(frozenset, combinations(made.players, 2)), 12)
    table = write_contests(read_contests(LENIENT), tmp_path / "lenient.csv")
    again = read_contests(STRICT, table, players=made.players)
    assert again.players == made.players
    np.testing.assert_array_equal(again.wins(), made.wins())


def test_any_field_can_be_named():
    """The winner's name beside the score, a field of the item for each side, another item."""
    columns = {
        "first": "metadata.model_b",
        "second": "metadata.model_a",
        "winner": "scores.verdict.metadata.winner",
        "judge": "task",
        "item": "id",
        "features": "metadata.length",
    }
    plain, made = read_contests(LENIENT), read_contests(LENIENT, columns=columns)

    assert [(j, i, 1 - y) for i, j, y, _ in shown(plain)] == [each[:3] for each in shown(made)]
    assert made.judges == ("pairwise",)
    assert len(made.clusters) == 72
    # The second less the first of 20 to 89 characters: named the other way round, minus that.
    assert made.feature_names == ("metadata.length",)
    assert np.abs(made.features).max() > 30
    by_answer = read_contests(LENIENT, columns={"winner": "scores.verdict.answer"})
    assert shown(by_answer) == shown(plain)


def test_a_log_without_pairs_is_refused_with_what_it_has():
    arith = min((LOGS / "models").glob("*arith_[!e]*.eval"))

    with pytest.raises(SelectionError, match=r"holds grades .*metadata\.passage, metadata\.cat"):
        read_contests(arith)
    with pytest.raises(SelectionError, match=r"did you mean metadata\.model_a"):
        read_contests(LENIENT, columns={"first": "metadata.modela"})
    with pytest.raises(SelectionError, match=r"did you mean metadata\.prompt_id"):
        read_contests(LENIENT, columns={"item": "prompt_id"})


def test_several_scores_have_to_be_chosen_from():
    rubric = min((LOGS / "models").glob("*rubric*.eval"))

    with pytest.raises(SelectionError, match=r"2 fields .scores\.rubric\.value\.correct, "):
        read_contests(rubric)


def test_nothing_there_is_an_error(tmp_path):
    with pytest.raises(LogError, match="does not exist"):
        read_contests(tmp_path / "no.eval")
    (tmp_path / "half.eval").write_bytes(LENIENT.read_bytes()[:5000])
    with pytest.raises(LogError, match=r"half\.eval"):
        read_contests(tmp_path / "half.eval")

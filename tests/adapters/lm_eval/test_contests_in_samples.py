"""Comparisons read from the samples of a judge, as lm-eval wrote them."""

import json
import shutil
from pathlib import Path

import pytest

from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.logs.reading import read_contests

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "lm_eval" / "0.4.13"
PAIRS = LOGS / "out_pairs"
[SAMPLES] = PAIRS.glob("*/samples_es_pairs_*.jsonl")
[RESULTS] = PAIRS.glob("*/results_*.json")


def logged():
    lines = [json.loads(line) for line in SAMPLES.read_text().splitlines()]
    return [
        (r["doc"]["model_a"], r["doc"]["model_b"], r["outcome"], str(r["doc"]["prompt_id"]))
        for r in lines
    ]


def shown(made):
    return [
        (made.players[i], made.players[j], float(y), made.clusters[c])
        for i, j, y, c in zip(made.first, made.second, made.outcome, made.cluster, strict=True)
    ]


@pytest.mark.parametrize("path", [PAIRS, RESULTS, SAMPLES], ids=["folder", "results", "samples"])
def test_a_judges_samples_need_no_mapping(path):
    """Two models in the doc, a metric called outcome; the other task compares nothing."""
    made = read_contests(path)

    assert shown(made) == logged()
    assert len(made) == 60
    assert set(made.outcome.tolist()) == {0.0, 0.5, 1.0}
    assert made.judges == ("dummy",)
    assert made.ordered
    assert "read as outcome=outcome, item=doc.prompt_id, judge=model" in made.notes
    left_out = "1 task without comparisons of two players: left out"
    assert (left_out in made.notes) == (path != SAMPLES)


@pytest.fixture
def answered(tmp_path):
    """Give samples whose verdict stands in the answer, under two filters that disagree."""
    rows = []
    for line in SAMPLES.read_text().splitlines():
        row = json.loads(line)
        said = {1.0: "A", 0.0: "B", 0.5: "C"}[row.pop("outcome")]
        row |= {"metrics": ["length"], "length": 3.0, "resps": [[f"so: {said}"]]}
        rows.append(json.dumps(row | {"filter": "strict", "filtered_resps": [said]}))
        rows.append(json.dumps(row | {"filter": "always-a", "filtered_resps": ["A"]}))
    path = tmp_path / SAMPLES.name
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_verdict_in_the_answer_is_read_under_one_filter(answered):
    """Without the results file the judge has no name."""
    made = read_contests(answered)

    assert shown(made) == logged()
    assert made.judge is None
    assert made.notes[0] == "lines of filter 'strict' of ['strict', 'always-a']"
    other = read_contests(answered, columns={"filter": "always-a"})
    assert set(other.outcome.tolist()) == {1.0}
    with pytest.raises(SelectionError, match="has no filter 'loose'; there are: strict, always-a"):
        read_contests(answered, columns={"filter": "loose"})


def test_any_field_can_be_named(answered):
    shutil.copy(RESULTS, answered.parent)
    columns = {"winner": "filtered_resps", "item": "doc.question", "judge": "doc.answer_a"}
    made = read_contests(answered, columns=columns)

    assert made.clusters[0] == "prompt 0"
    assert made.judges[0] == "bee says 0"
    with pytest.raises(SelectionError, match=r"no column 'doc\.modela'; did you mean doc\.model_a"):
        read_contests(answered, columns={"first": "doc.modela"})


def test_a_run_without_pairs_or_samples_is_refused():
    with pytest.raises(SelectionError, match="no columns name two players"):
        read_contests(LOGS / "out_dummy")
    with pytest.raises(LogError, match=r"no samples of its run .run lm-eval with --log_samples"):
        read_contests(LOGS / "out_nosamples")

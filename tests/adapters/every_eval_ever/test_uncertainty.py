"""Every Eval Ever: our intervals in its schema, and the original bytes back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evalstats_plugin import annotate, intervals, read, strip
from evalstats_plugin.errors import LogError, WriteError

FIXTURES = Path(__file__).parents[3] / "fixtures"
LOGS = FIXTURES / "logs" / "every_eval_ever" / "0.3.0"
SCHEMA = json.loads((FIXTURES / "schemas" / "every_eval_ever" / "eval.schema.json").read_text())

# 8 right of 12: the shortest posterior interval under a uniform prior, by numerical integration
# of the Beta(9, 5) density (scipy.optimize, outside of this package).
LOW, HIGH = 0.4013, 0.8737


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """Give a copy of a converted log: 8 right of 12."""
    [aggregate] = (LOGS / "converted" / "data" / "sums").rglob("*.json")
    for path in aggregate.parent.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path / aggregate.name


def _result(path: Path, metric: str = "acc") -> dict[str, Any]:
    found = json.loads(path.read_text())
    jsonschema.validate(found, SCHEMA)
    return next(
        r
        for r in found["evaluation_results"]
        if r["metric_config"]["evaluation_description"] == metric
    )


def test_each_result_gets_its_uncertainty(sums: Path) -> None:
    """Standard error, interval with level and method, number of samples."""
    annotate(sums, in_place=True)
    [row] = [row for row in intervals(read(sums)) if row.metric == "acc"]
    uncertainty = _result(sums)["score_details"]["uncertainty"]

    assert uncertainty == {
        "standard_error": {"value": row.std_error, "method": "analytic"},
        "confidence_interval": {
            "lower": row.low,
            "upper": row.high,
            "confidence_level": 0.95,
            "method": "beta-hpd",
        },
        "num_samples": 12,
    }
    assert row.std_error == pytest.approx((8 / 12 * 4 / 12 / 11) ** 0.5)
    assert (row.low, row.high) == pytest.approx((LOW, HIGH), abs=1e-4)
    assert json.loads(sums.read_text())["evaluation_results"][0] == _result(sums, "acc_norm")
    assert "uncertainty" not in _result(sums, "acc_norm")["score_details"]


def test_a_score_in_percent_gets_limits_in_percent(sums: Path) -> None:
    """The uncertainty is in the units of the score beside it."""
    found = json.loads(sums.read_text())
    found["evaluation_results"][1]["score_details"] = {
        "score": 800 / 12, "uncertainty": {"num_bootstrap_samples": 9, "standard_deviation": 3.0},
    }  # fmt: skip
    sums.write_text(json.dumps(found))
    annotate(sums, in_place=True)
    uncertainty = _result(sums)["score_details"]["uncertainty"]
    interval = uncertainty["confidence_interval"]

    assert (interval["lower"], interval["upper"]) == pytest.approx(
        (100 * LOW, 100 * HIGH), abs=0.01
    )
    assert uncertainty["standard_deviation"] == 3.0
    assert "num_bootstrap_samples" not in uncertainty


def test_a_score_that_its_items_contradict_keeps_its_uncertainty(sums: Path) -> None:
    """Ours is of another number, and our block says so; rescoring replaces both."""
    found = json.loads(sums.read_text())
    details = {"score": 0.9, "uncertainty": {"num_samples": 3}}
    only = found["evaluation_results"][1]
    only["score_details"], found["evaluation_results"] = details, [only]
    sums.write_text(json.dumps(found))
    original = sums.read_bytes()
    annotate(sums, in_place=True)
    kept = _result(sums)["score_details"]
    annotate(sums, in_place=True, rescore=True)
    replaced = _result(sums)["score_details"]
    strip(sums, in_place=True)

    assert {k: kept[k] for k in details} == details
    [row] = json.loads(kept["details"]["evalstats"])["intervals"]
    assert (row["estimate"], row["low"]) == (0.9, None)
    assert row["notes"][0] == (
        "no interval under this name: 0.9 was logged, and the items give 0.666667"
    )
    assert replaced["score"] == 8 / 12
    assert replaced["uncertainty"]["num_samples"] == 12
    assert original == sums.read_bytes()


@pytest.mark.parametrize(
    "layout",
    [
        {"indent": 4}, {"indent": 1, "ensure_ascii": False}, {"separators": (",", ":")},
        {"indent": "\t", "sort_keys": True}, {},
    ],
)  # fmt: skip
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_original_bytes_come_back_whatever_the_layout(
    sums: Path, layout: dict[str, Any], mark: bytes
) -> None:
    """Also with odd spaces, names outside ASCII, escapes, and a byte-order mark."""
    found = json.loads(sums.read_text())
    found["model_info"]["name"] = 'Größe "1" \\ {x: [1, 2]}'
    found["evaluation_results"][1]["score_details"]["details"] = {
        "note": 'é "} ]',
        "evalstats?": "",
    }
    text = json.dumps(found, **layout).replace('"score_details":', '"score_details"  :\n  ')
    sums.write_bytes(mark + text.encode() + b"\n\n")
    original = sums.read_bytes()
    annotate(sums, in_place=True)
    annotated = sums.read_bytes()
    annotate(sums, in_place=True)
    twice = sums.read_bytes()
    strip(sums, in_place=True)

    assert original != annotated
    assert annotated == twice
    assert original == sums.read_bytes()
    assert json.loads(annotated.decode("utf-8-sig"))["model_info"] == found["model_info"]


@pytest.mark.needs("torch")
def test_comparisons_and_abilities_are_in_the_block(tmp_path: Path) -> None:
    """What no single log can tell is written into each, of its own task and metric."""
    copy = shutil.copytree(LOGS / "converted" / "data" / "sums", tmp_path / "one")
    other = shutil.copytree(copy, tmp_path / "two")
    for path in other.rglob("*.*"):
        path.write_text(path.read_text().replace("acme/tiny-1b", "acme/large-9b"))
    annotate(tmp_path, in_place=True, compare=True, fits=["irt"])
    [log] = other.rglob("*.json")
    block = json.loads(_result(log)["score_details"]["details"]["evalstats"])

    [row] = block["comparisons"]
    assert {row["model_a"], row["model_b"]} == {"acme/tiny-1b", "acme/large-9b"}
    assert (row["metric"], row["difference"], row["n_items"]) == ("acc", 0.0, 12)
    assert {row["model"] for row in block["abilities"]} == {"acme/large-9b"}


def test_what_cannot_be_annotated_is_refused(sums: Path) -> None:
    """Instances have a checksum; older versions of the schema have no place."""
    original = sums.read_bytes()
    with pytest.raises(WriteError, match="have a checksum and are never changed"):
        annotate(sums, in_place=True, items="metadata")
    with pytest.raises(LogError, match="annotate the aggregate file beside it"):
        annotate(sums.with_name(sums.stem + "_samples.jsonl"), in_place=True)
    assert original == sums.read_bytes()
    sums.write_bytes(original.replace(b'"0.3.0"', b'"0.2.2"'))
    with pytest.raises(LogError, match=r"'0\.2\.2', which has no place"):
        annotate(sums, in_place=True)


def test_a_block_that_was_edited_is_refused(sums: Path) -> None:
    """Nothing is guessed about what was there before."""
    annotate(sums, in_place=True)
    found = json.loads(sums.read_text())
    found["evaluation_results"][1]["score_details"]["details"]["evalstats"] = "{}"
    sums.write_text(json.dumps(found))

    with pytest.raises(LogError, match="is damaged, or of a later version"):
        strip(sums, in_place=True)
    with pytest.raises(LogError, match="is damaged, or of a later version"):
        read(sums)

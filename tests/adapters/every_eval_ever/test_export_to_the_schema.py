"""Any harness's logs in the shared schema: valid, and nothing lost that it can hold."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import Responses, Source, annotate, export, intervals, read
from evalstats_plugin.data.runs import ResponseSet, one_of_each
from evalstats_plugin.errors import SelectionError, WriteError

FIXTURES = Path(__file__).parents[3] / "fixtures"
SCHEMAS = FIXTURES / "schemas" / "every_eval_ever"
FIELDS = (
    "model", "task", "metric", "higher_is_better", "bounds", "aggregation", "settings", "groups",
    "logged", "logged_std_error", "logged_n", "population", "notes",
)  # fmt: skip
ARRAYS = ("item_ids", "clusters", "item_hashes", "weights")


def _validator(name: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def _key(r: Responses) -> tuple[str, str, str]:
    return r.model, r.task, r.metric


def _values(r: Responses) -> dict[str, str]:
    found: dict[str, Any] = {name: getattr(r, name) for name in FIELDS}
    for name in ARRAYS:
        value = getattr(r, name)
        found[name] = None if value is None else value.astype(str).tolist()
    found["when"] = r.source.when
    return {name: repr(value) for name, value in found.items()}


def test_every_file_passes_the_published_schema(logged: ResponseSet, tmp_path: Path) -> None:
    """Also when annotated; and the rules that the schema cannot say hold too."""
    done = export(logged, tmp_path, to="every-eval-ever", organization="ACME")
    annotate(*done.paths, in_place=True)
    aggregate, instance = _validator("eval"), _validator("instance_level_eval")
    for path in done.paths:
        found = json.loads(path.read_text())
        aggregate.validate(found)
        assert found["source_metadata"]["source_organization_name"] == "ACME"
        assert uuid.UUID(path.stem).version == 4
        assert re.fullmatch(r"data/[^/]+/[^/]+/[^/]+", path.parent.relative_to(tmp_path).as_posix())
        for result in found["evaluation_results"]:
            config, score = result["metric_config"], result["score_details"]["score"]
            assert config.get("min_score", score) <= score <= config.get("max_score", score)
        detail = found.get("detailed_evaluation_results")
        if detail is None:
            continue
        content = (tmp_path / detail["file_path"]).read_bytes()
        lines = [json.loads(line) for line in content.splitlines()]
        assert (detail["checksum"], detail["total_rows"]) == (
            hashlib.sha256(content).hexdigest(), len(lines),
        )  # fmt: skip
        ids = {result["evaluation_result_id"] for result in found["evaluation_results"]}
        for line in lines:
            # The schema is slow, and most lines are alike.
            if line["sample_id"] in ("0", "1") or line.get("error"):
                instance.validate(line)
            assert line["evaluation_id"] == found["evaluation_id"]
            assert line["model_id"] == found["model_info"]["id"]
            assert line["evaluation_result_id"] in ids


def test_nothing_is_lost_that_the_schema_can_hold(logged: ResponseSet, tmp_path: Path) -> None:
    """Scores, epochs, missing ones, hashes, clusters, weights, settings, groups, notes."""
    before = one_of_each(logged.responses)
    export(ResponseSet(tuple(before)), tmp_path, to="every-eval-ever")
    after = {_key(r): r for r in read(tmp_path)}
    held = [r for r in before if r.logged is None or np.isfinite(r.logged)]

    assert {_key(r) for r in held} == set(after)
    for r in held:
        again = after[_key(r)]
        if r.pairs is not None:
            assert (again.logged, len(again.item_ids)) == (r.logged, 0)
            continue
        assert _values(r) == _values(again)
        np.testing.assert_array_equal(r.scores, again.scores)
        assert again.measure.n_cut == 0
    found = [row.estimate for row in intervals(ResponseSet(tuple(held)))]
    assert len(found) >= len(held)


def test_what_the_schema_cannot_hold_is_said(tmp_path: Path) -> None:
    """Infinite values; labels and texts; tasks that lie in two groups twice."""
    done = export(
        read(FIXTURES / "logs" / "lm_eval" / "0.4.13" / "out"), tmp_path, to="every-eval-ever"
    )
    notes = "\n".join(done.notes)

    assert "without a finite value, which the schema asks for: models/m0, es_odd inf_met" in notes
    assert "only the value they make is held: es_bin f1,none" in notes
    assert "18 more responses of the same model, task and metric" in notes


def _responses(**changes: Any) -> Responses:
    known: dict[str, Any] = {
        "model": "m", "task": "t", "metric": "acc",
        "item_ids": np.array(["a", "b", "c"]),
        "scores": np.array([[1.0, np.nan], [np.nan, np.nan], [0.5, np.inf]]),
        "source": Source(Path("x"), "test", "1", "2026-11-21T00-00-00.5"),
    }  # fmt: skip
    return given_responses(**{**known, **changes})


def test_scores_that_json_has_no_number_for(tmp_path: Path) -> None:
    """An item without a score is one line, marked as an error; an epoch beside others is none."""
    r = _responses(logged=0.5, clusters=np.array(["x", "x", "y"]))
    [path] = export([r], tmp_path, to="every-eval-ever").paths
    instances = path.with_name(path.stem + "_samples.jsonl")
    lines = [json.loads(line) for line in instances.read_text().splitlines()]
    [again] = read(tmp_path)

    assert [
        (line["sample_id"], line["evaluation"]["score"], line.get("error")) for line in lines
    ] == [
        ("a", 1.0, None),
        ("b", 0.0, "no finite score (nan)"),
        ("c", 0.5, None),
        ("c", 0.0, "no finite score (inf)"),
    ]
    assert lines[3]["metadata"] == {"epoch": "2", "cluster": "y", "score": "inf"}
    np.testing.assert_array_equal(r.scores, again.scores)


def test_writing_again_replaces_and_variants_stay_apart(tmp_path: Path) -> None:
    """Files are named by what they hold: a model at two settings, a name that no folder takes."""
    settings = (("dtype", "float16"),)
    same = [
        _responses(logged=0.5),
        _responses(logged=0.5, model="org/m (dtype=float16)", settings=settings),
        _responses(logged=0.5, model="org/m (dtype=float32)", settings=settings),
        _responses(logged=0.5, model='a/b:c?"', task="data"),
    ]
    once = export(same, tmp_path, to="every-eval-ever").paths
    twice = export(same, tmp_path, to="every-eval-ever", overwrite=True).paths
    folders = [p.parent.relative_to(tmp_path / "data").as_posix() for p in once]
    ids = {json.loads(p.read_text())["model_info"]["id"] for p in once}

    assert once == twice
    assert len(set(once)) == 4
    assert folders == ["t/unknown/m", "t/org/m", "t/org/m", "data_/a/b_c_"]
    assert ids == {"m", "org/m", 'a/b:c?"'}
    assert {r.model for r in read(tmp_path)} == {r.model for r in same}
    times = {json.loads(p.read_text())["evaluation_timestamp"] for p in once}
    assert times == {"2026-11-21T00:00:00.5"}


def test_direction_and_what_is_right(tmp_path: Path) -> None:
    """Where lower is better the least score is the right one."""
    r = _responses(
        scores=np.array([[0.0], [1.0], [0.5]]), higher_is_better=False, bounds=(0.0, 1.0)
    )
    [path] = export([r], tmp_path, to="every-eval-ever").paths
    config = json.loads(path.read_text())["evaluation_results"][0]["metric_config"]
    lines = path.with_name(path.stem + "_samples.jsonl").read_text().splitlines()

    assert config["lower_is_better"] is True
    assert (config["score_type"], config["min_score"], config["max_score"]) == ("continuous", 0, 1)
    assert [json.loads(x)["evaluation"]["is_correct"] for x in lines] == [True, False, False]


def test_nothing_to_write_is_an_error(tmp_path: Path) -> None:
    """A value that is infinite; a relationship that the schema does not know."""
    with pytest.raises(WriteError, match="none of the 1 responses has a finite value"):
        export([_responses(logged=np.inf)], tmp_path, to="every-eval-ever")
    with pytest.raises(SelectionError, match="no relationship is called 'first'"):
        export([_responses(logged=1.0)], tmp_path, to="every-eval-ever", relationship="first")
    assert not list(tmp_path.iterdir())


def test_clusters_keep_their_names_whatever_their_length(tmp_path: Path) -> None:
    """As they were read: what is long in a log was shortened then."""
    names = np.array(["x" * 200, "x" * 200, '["' + "y" * 700 + '"]', ""])
    source = Source(path=tmp_path / "log", harness="test")
    r = given_responses(model="m", item_ids=np.arange(4), scores=np.ones((4, 1)), clusters=names,
                        source=source)  # fmt: skip
    done = export([r], tmp_path / "out", to="every-eval-ever")
    [again] = read(*done.paths)

    assert again.clusters is not None
    assert again.clusters.tolist() == names.tolist()

"""Every Eval Ever: what is read of files by us, by that project's converters, and by nobody."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import Responses, annotate, intervals, read
from evalstats_plugin.adapters.every_eval_ever.layout import metric_of
from evalstats_plugin.errors import EvalStatsError, LogError, PluginError, SelectionError
from evalstats_plugin.logs.reading import check

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "every_eval_ever" / "0.3.0"
CONVERTED = LOGS / "converted"

Change = Callable[[dict[str, Any], list[dict[str, Any]]], None]


def _files(name: str) -> tuple[Path, Path]:
    [aggregate] = (CONVERTED / "data" / name).rglob("*.json")
    return aggregate, aggregate.with_name(aggregate.stem + "_samples.jsonl")


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """Write a converted log with something changed; return the aggregate file."""

    def write(name: str, change: Change) -> Path:
        aggregate, instances = _files(name)
        found = json.loads(aggregate.read_text())
        lines = [json.loads(line) for line in instances.read_text().splitlines()]
        change(found, lines)
        path = tmp_path / aggregate.name
        text = "".join(json.dumps(line) + "\n" for line in lines)
        if isinstance(about := found.get("detailed_evaluation_results"), dict):
            about["checksum"] = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(json.dumps(found))
        (tmp_path / instances.name).write_text(text)
        return path

    return write


def _any_length(found: dict[str, Any], _lines: list[dict[str, Any]]) -> None:
    del found["detailed_evaluation_results"]["total_rows"]


def _by_metric(path: Path, **chosen: Any) -> dict[str, Responses]:
    return {r.metric: r for r in read(path, **chosen)}


def test_instances_without_an_id_go_to_the_result_that_they_give() -> None:
    """lm-eval's converter: two metrics of one name, the scores of one of them."""
    found = _by_metric(_files("sums")[0])
    scored, other = found["acc"], found["acc_norm"]

    assert (scored.model, scored.task) == ("acme/tiny-1b", "sums")
    assert scored.scores[:, 0].tolist() == [1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 1]
    assert scored.item_ids.tolist() == list(range(12))
    assert (scored.logged, scored.logged_std_error) == (8 / 12, 0.14)
    assert (scored.bounds, scored.higher_is_better) == ((0.0, 1.0), True)
    assert scored.source.when == "2026-09-21T14:13:20+00:00"
    assert not scored.notes
    assert (other.logged, len(other.item_ids)) == (0.75, 0)
    assert other.notes == ("no instances of this result",)


def test_epochs_are_in_the_metadata() -> None:
    """Inspect's converter; the instances have another name than the results."""
    r = _by_metric(_files("carrying")[0])["accuracy"]

    assert r.scores.tolist() == [
        [float((i + epoch) % 3 > 0) for epoch in (1, 2, 3)] for i in range(6)
    ]
    assert r.item_ids.tolist() == list(range(6))


@pytest.mark.parametrize(
    ("times", "when"),
    [
        ({}, "2026-09-21T14:13:20"),
        ({"evaluation_timestamp": None}, "2026-11-18T11:06:40"),
        ({"evaluation_timestamp": "1790000060"}, "2026-09-21T14:14:20"),
    ],
)
def test_a_run_is_as_old_as_it_says_or_at_least_as_its_retrieval(
    changed: Callable[..., Path], times: dict[str, Any], when: str
) -> None:
    """Seconds since 1970: 1,790,000,000 if evaluated, 1,795,000,000 if retrieved."""
    rs = read(changed("sums", lambda found, _lines: found.update(times)))

    assert {r.source.when[:19] for r in rs} == {when}


def test_hashes_tell_who_made_them() -> None:
    """Recipes differ: those of another converter, or harness, say nothing about these."""
    r = _by_metric(_files("sums")[0])["acc"]

    assert r.item_hashes is not None
    assert {h.rpartition(":")[0] for h in r.item_hashes.tolist()} == {"every_eval_ever lm_eval"}


def test_an_aggregate_alone_says_that_it_has_no_items() -> None:
    """As leaderboards are: a value without an interval, and why."""
    [row] = intervals(read(_files("leaderboard")[0]))

    assert (row.estimate, row.low) == (0.612, None)
    assert any("aggregate only" in note for note in row.notes)


def test_a_file_of_instances_is_read_with_its_aggregate(tmp_path: Path) -> None:
    """Named by itself; without the aggregate the message says what to put back."""
    aggregate, instances = _files("sums")
    alone = shutil.copy(instances, tmp_path)

    assert [r.metric for r in read(instances)] == [r.metric for r in read(aggregate)]
    with pytest.raises(LogError, match=r"no aggregate file beside it.*put the .*\.json"):
        read(alone)


def test_instances_are_found_from_the_root_of_the_database(tmp_path: Path) -> None:
    """The aggregate names them by their place there."""
    root = shutil.copytree(CONVERTED, tmp_path / "converted")
    [aggregate] = (root / "data" / "sums").rglob("*.json")
    moved = shutil.move(aggregate, root / "somewhere_else.json")

    assert len(_by_metric(Path(moved))["acc"].item_ids) == 12


def test_a_percentage_is_brought_to_the_scale_of_its_instances(
    changed: Callable[..., Path],
) -> None:
    """66.7 with scores of 0 and 1."""

    def percent(found: dict[str, Any], _lines: list[dict[str, Any]]) -> None:
        result = found["evaluation_results"][1]
        result["score_details"]["score"] *= 100
        result["score_details"]["uncertainty"]["standard_error"]["value"] *= 100
        result["metric_config"] |= {"max_score": 100.0}

    r = _by_metric(changed("sums", percent))["acc"]

    assert r.logged == pytest.approx(8 / 12, rel=1e-12)
    assert r.logged_std_error == pytest.approx(0.14, rel=1e-12)
    assert r.bounds == (0.0, 1.0)
    assert r.notes == ("the aggregate score is a percentage of what the instances give",)


def test_a_score_that_its_instances_contradict_is_noted(changed: Callable[..., Path]) -> None:
    """One result, instances of that id, another mean."""

    def wrong(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        found["evaluation_results"] = found["evaluation_results"][1:]
        found["evaluation_results"][0]["evaluation_result_id"] = "one"
        found["evaluation_results"][0]["score_details"]["score"] = 0.9
        for line in lines:
            line["evaluation_result_id"] = "one"

    r = _by_metric(changed("sums", wrong))["acc"]

    assert r.notes == ("mismatch: 0.9 was logged, the instances give 0.666667",)


def test_instances_that_fit_nothing_are_shown_apart(changed: Callable[..., Path]) -> None:
    """Two evaluations in one file, of which the aggregate has one."""

    def more(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        found["detailed_evaluation_results"]["total_rows"] += 2
        lines += [
            {**line, "evaluation_name": "others", "sample_id": f"o{k}"}
            for k, line in enumerate(lines[:2])
        ]

    found = {(r.task, r.metric): r for r in read(changed("sums", more))}

    assert len(found["sums", "acc"].item_ids) == 12
    assert found["others", "instances"].item_ids.tolist() == ["o0", "o1"]
    assert any("fit no one result" in note for note in found["others", "instances"].notes)


def test_instances_of_a_result_that_has_others_by_its_id_are_shown_apart(
    changed: Callable[..., Path],
) -> None:
    """Those that name the result by its id are its own, and take no other's place."""

    def half(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        found["evaluation_results"] = found["evaluation_results"][1:]
        found["evaluation_results"][0]["evaluation_result_id"] = "one"
        for line in lines[:5]:
            line["evaluation_result_id"] = "one"

    sizes = {r.metric: len(r.item_ids) for r in read(changed("sums", half))}

    assert sizes == {"acc": 5, "instances": 7}


def test_what_makes_another_model_of_the_name_is_read(changed: Callable[..., Path]) -> None:
    """Labels name the engine where it differs, and the temperature where nothing else does."""

    def hot(found: dict[str, Any], _lines: list[dict[str, Any]]) -> None:
        for result in found["evaluation_results"]:
            result["generation_config"] = {"generation_args": {"temperature": 0.7}}

    def served(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        found["model_info"]["inference_engine"] = {"name": "vllm", "version": "0.9"}
        hot(found, lines)

    first = _files("sums")[0]
    hot_labels = {r.model for r in read(first, changed("sums", hot), metric="acc")}
    labels = {r.model for r in read(first, changed("sums", served), metric="acc")}

    assert hot_labels == {"acme/tiny-1b (temperature=unset)", "acme/tiny-1b (temperature=0.7)"}
    assert labels == {"acme/tiny-1b (engine=unset)", "acme/tiny-1b (engine=vllm 0.9)"}


def test_levels_errors_repeats_and_fields_for_clusters(changed: Callable[..., Path]) -> None:
    """-1 is unknown where the schema says so; errors are counted; repeats become epochs."""

    def levels(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        _any_length(found, lines)
        found["evaluation_results"] = found["evaluation_results"][1:]
        config = found["evaluation_results"][0]["metric_config"]
        config |= {"score_type": "levels", "level_names": ["no", "yes"], "has_unknown_level": True}
        lines[0]["evaluation"]["score"] = -1
        lines[1]["error"] = "timeout"
        for k, line in enumerate(lines):
            line["metadata"] = {"passage": f"p{k // 4}", "weight": "2"}
        # The mean over items of what is known: 3 was right once of two times.
        found["evaluation_results"][0]["score_details"]["score"] = 6.5 / 11
        lines.append({**lines[3], "evaluation": {"score": 0.0, "is_correct": False}})

    path = changed("sums", levels)
    r = _by_metric(path, cluster="passage")["acc"]

    assert np.isnan(r.scores[0]).all()
    assert r.scores[3].tolist() == [1, 0]
    assert r.clusters is not None
    assert r.clusters.tolist() == [f"p{k // 4}" for k in range(12)]
    tags = _by_metric(path, by="passage")["acc"].tags
    assert tags is not None
    assert tags.tolist() == r.clusters.tolist()
    assert "items that are there again count as further epochs" in r.notes
    assert "1 instances with an error: scores as logged" in r.notes
    assert not any("mismatch" in note for note in r.notes)
    assert (r.weights, r.logged) == (None, 6.5 / 11)
    path.with_name(path.stem + "_samples.jsonl").unlink()
    path.write_text(path.read_text().replace(f'"score": {6.5 / 11}', '"score": -1'))
    assert [x.logged for x in read(path)] == [None]
    path = changed("sums", levels)
    with pytest.raises(SelectionError, match="has the field 'passag'"):
        read(path, cluster="passag")


def test_an_id_of_two_questions_is_refused(changed: Callable[..., Path]) -> None:
    """As of subtasks that number their items alike; answers to one question are its epochs."""

    def again(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        _any_length(found, lines)
        lines.append({**lines[3], "sample_hash": "of another question"})

    with pytest.raises(LogError, match=r"item '3' stands for different questions \(sample_hash\)"):
        read(changed("sums", again))


def test_results_of_one_name_and_metric_are_told_apart(changed: Callable[..., Path]) -> None:
    """By their ids, or their place."""

    def alike(found: dict[str, Any], _lines: list[dict[str, Any]]) -> None:
        for result in found["evaluation_results"]:
            result["metric_config"]["evaluation_description"] = "acc"
        found["evaluation_results"][1]["evaluation_result_id"] = "second"

    assert set(_by_metric(changed("sums", alike))) == {"acc (1)", "acc (second)"}


@pytest.mark.parametrize(
    ("config", "metric"),
    [
        ({"metric_name": "Sums", "metric_kind": "accuracy", "metric_id": "x/sums"}, "accuracy"),
        ({"evaluation_description": "Accuracy on Sums"}, "Accuracy"),
        ({"metric_name": "Sums"}, "Sums"),
    ],
)
def test_a_metric_is_not_called_like_its_task(config: dict[str, str], metric: str) -> None:
    """Unless it has no other name."""
    assert metric_of({"evaluation_name": "Sums", "metric_config": config}) == metric


def test_version_0_2_is_read(changed: Callable[..., Path]) -> None:
    """Its fields that are read have not changed; its instances may have another evaluation_id."""

    def older(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        found["schema_version"] = "0.2.1"
        for line in lines:
            line |= {"schema_version": "instance_level_eval_0.2.1", "evaluation_id": "None_samples"}

    assert len(_by_metric(changed("sums", older))["acc"].item_ids) == 12


def _set(*keys: Any, to: Any) -> Change:
    def change(found: dict[str, Any], _lines: list[dict[str, Any]]) -> None:
        inside: Any = found
        for key in keys[:-1]:
            inside = inside[key]
        inside[keys[-1]] = to

    return change


def _line(number: int, **to: Any) -> Change:
    def change(_found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        lines[number] |= to

    return change


def _twice(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    _any_length(found, lines)
    for line in lines:
        line["metadata"] = {"epoch": "1"}
    lines.append(lines[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("schema_version", to="0.4.0"), "schema version '0.4.0'.*Convert it to 0.2 or 0.3"),
        (_set("schema_version", to=None), "schema version None"),
        (_set("model_info", to=None), "has no model_info"),
        (_set("model_info", "id", to=7), "does not name its model"),
        (_set("evaluation_results", 0, "score_details", to={}), "evaluation result 1 has no"),
        (_set("evaluation_results", 1, "evaluation_name", to=None), "evaluation result 2 has no"),
        (_set("evaluation_results", 0, "score_details", "score", to="high"), "it is 'high'"),
        (_set("detailed_evaluation_results", "total_rows", to=13), "12 instances, .* says 13"),
        (_line(0, evaluation_id="another"), "line 1 has evaluation_id 'another'"),
        (_line(0, schema_version="1.0"), "line 1 is of schema version '1.0'"),
        (_line(2, evaluation={"score": None}), "line 3 has the score None"),
        (_twice, "item '0' is there twice in one epoch"),
    ],
)
def test_a_broken_log_is_refused_with_the_place(
    changed: Callable[..., Path], change: Change, message: str
) -> None:
    """File, line and what was expected."""
    path = changed("sums", change)
    with pytest.raises(LogError, match=message) as caught:
        read(path)
    assert path.stem in str(caught.value)


@pytest.mark.parametrize("end", [b'{"sample_id": "12", ', b"\xff\xfe\n", b"not JSON\n", b"{}\n"])
def test_a_broken_line_of_instances_is_named(changed: Callable[..., Path], end: bytes) -> None:
    """Cut off, not UTF-8, not JSON, no instance."""
    path = changed("sums", _any_length)
    instances = path.with_name(path.stem + "_samples.jsonl")
    instances.write_bytes(instances.read_bytes() + end)

    with pytest.raises(LogError, match=r"_samples\.jsonl: line 13"):
        read(path)


def test_json_of_others_is_not_ours(tmp_path: Path) -> None:
    """A file that mentions the schema's keys, but is none; an empty file of instances."""
    other = tmp_path / "notes.json"
    other.write_text('{"schema_version": "2", "about": "evaluation_id"}')
    with pytest.raises(LogError, match="is not a log that an installed adapter knows"):
        read(other)


def _places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        yield (*before, key)
        if isinstance(inner, (dict, list)):
            yield from _places(inner, (*before, key))


@pytest.mark.parametrize("odd", ["x", [1]])
def test_a_value_of_another_kind_is_an_error_of_the_log(tmp_path: Path, odd: Any) -> None:
    """Anywhere in the aggregate file: read, annotated, or refused by our own errors."""
    aggregate, instances = _files("sums")
    found = json.loads(aggregate.read_text())
    shutil.copy(instances, tmp_path)
    refused = 0
    for place in _places(found):
        changed = copy.deepcopy(found)
        inside = changed
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = odd
        path = tmp_path / aggregate.name
        path.write_text(json.dumps(changed))
        for act in (read, partial(annotate, in_place=True)):
            try:
                act(path)
            except PluginError as error:
                raise AssertionError((place, odd)) from error
            except EvalStatsError:
                refused += 1

    assert refused > 5


def test_the_schema_beside_its_files_is_none_of_them(tmp_path: Path) -> None:
    """It names all keys of an aggregate file, as the repositories that hold both have it."""
    schemas = Path(__file__).parents[3] / "fixtures" / "schemas" / "every_eval_ever"
    shutil.copytree(CONVERTED / "data" / "sums", tmp_path / "sums")
    shutil.copytree(schemas, tmp_path / "schemas")

    assert {r.task for r in read(tmp_path)} == {r.task for r in read(tmp_path / "sums")}
    with pytest.raises(LogError, match="not a log that an installed adapter knows"):
        read(tmp_path / "schemas" / "eval.schema.json")


def test_what_check_needs_is_read(changed: Callable[..., Path]) -> None:
    """What the model was asked, the model's folder, and items that the score counts."""

    def cut(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        del found["detailed_evaluation_results"]["total_rows"], lines[5:]
        [result, *_] = found["evaluation_results"]
        found["evaluation_results"] = [result]
        result["score_details"]["uncertainty"] = {"num_samples": 8}

    def reworded(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        cut(found, lines)
        lines[0]["input"]["formatted"] = "Question: what is 0 + 0?"

    def counted(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        cut(found, lines)
        found["detailed_evaluation_results"]["total_rows"] = 5
        lines[1]["input"] |= {"choices": []}
        lines[2]["input"].pop("choices", None)

    def again(found: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        cut(found, lines)
        lines.append({**lines[0], "metadata": {**lines[0]["metadata"], "epoch": "9"}})

    hows = (cut, reworded, counted, again)
    [before], [after], [whole], [repeated] = (read(changed("carrying", how)) for how in hows)
    known = before.provenance, after.provenance
    differ = np.asarray(known[0].prompt_hashes) != np.asarray(known[1].prompt_hashes)

    assert differ.tolist() == [True, False, False, False, False]
    assert (known[0].home, before.measure.n_cut) == ("tiny-1b", 3)
    # Of several epochs nobody knows whether the number is of items.
    assert (whole.measure.n_cut, repeated.measure.n_cut, repeated.scores.shape) == (0, 0, (5, 2))
    assert np.array_equal(whole.provenance.prompt_hashes, known[0].prompt_hashes)  # pyright: ignore[reportArgumentType]


def test_instances_of_another_checksum_are_told(tmp_path: Path) -> None:
    """As an export over an earlier one leaves them that was killed between the two files."""
    exported = min((LOGS / "exported").rglob("*_samples.jsonl"))
    for path in (exported, exported.with_name(exported.name.replace("_samples.jsonl", ".json"))):
        shutil.copy(path, tmp_path)
    assert "incomplete" not in [f.problem for f in check(tmp_path)]
    samples = tmp_path / exported.name
    samples.write_text(samples.read_text().replace('"score": 1.0', '"score": 0.0', 1))

    found = [f for f in check(tmp_path) if f.problem == "incomplete"]

    assert found
    assert all(r.provenance.is_altered for r in read(tmp_path) if len(r.item_ids))
    assert any("does not have the checksum" in note for r in read(tmp_path) for note in r.notes)

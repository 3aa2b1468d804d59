"""lm-eval's logs, every version: read, and every mean recomputed."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import read
from evalstats_plugin.adapters.lm_eval.groups import Tree, pooled_stderr, unweighted_stderr
from evalstats_plugin.adapters.lm_eval.reader import model_identity, with_answers
from evalstats_plugin.adapters.lm_eval.samples import collect, read_samples
from evalstats_plugin.adapters.lm_eval.values import brier_scores, mean_and_stderr
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.logs.reading import find_logs, read_log
from evalstats_plugin.plugins import load_plugins

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "lm_eval"
VERSIONS = sorted(p for p in LOGS.iterdir() if p.name != "0.3.0")
RESULTS = [p for v in VERSIONS for p in find_logs([v], load_plugins())]
THREE = LOGS / "0.4.13" / "out"


def _id(path: Path) -> str:
    return str(path.relative_to(LOGS))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def _of(path: Path) -> list[Responses]:
    return read_log(path, Selection(), load_plugins())


def test_every_version_folder_holds_logs() -> None:
    """A new version is a new folder, picked up by itself."""
    assert {"0.4.2", "0.4.3", "0.4.7", "0.4.12", "0.4.13", "0.5.0.dev1"} <= {
        v.name for v in VERSIONS
    }
    assert len(RESULTS) >= 19


@pytest.mark.parametrize("path", RESULTS, ids=_id)
def test_every_mean_and_stderr_is_recomputed(path: Path) -> None:
    """What lm-eval logged comes out of the items again, to 1e-12."""
    data = json.loads(path.read_text())
    checked = 0
    for r in _of(path):
        if r.aggregation != "mean" or not len(r.item_ids) or r.logged is None:
            continue
        # A task that scores in float32 (np_metric) logs what float32 arithmetic gives.
        dtype = np.float32 if r.metric.startswith("np_metric") else np.float64
        value, stderr = mean_and_stderr(r.scores[:, 0].astype(dtype))
        metric_list = data["configs"][r.task]["metric_list"]
        name = r.metric.partition(",")[0]
        aggregation = next((m["aggregation"] for m in metric_list if m["metric"] == name), "mean")

        assert value == pytest.approx(r.logged, rel=1e-12, abs=1e-12)
        if r.logged_std_error is not None and aggregation == "mean":
            assert stderr == pytest.approx(r.logged_std_error, rel=1e-12, abs=1e-12, nan_ok=True)
        checked += 1
    assert checked or "predict_only" in str(path) or "nosamples" in str(path)


@pytest.mark.parametrize("path", RESULTS, ids=_id)
def test_every_group_is_recomputed(path: Path) -> None:
    """A group's value and stderr come out of its tasks' by the formulas of its version."""
    data = json.loads(path.read_text())
    tree = Tree(data)
    old = (data.get("lm_eval_version") or "0.4.2") != "0.4.13"
    for group in tree.children:
        for key, logged in data["results"][group].items():
            name, comma, filter_name = key.partition(",")
            if not comma or name.endswith("_stderr"):
                continue
            tasks = [data["results"][t] for t in tree.leaves(group)]
            sizes = [tree.size(t) or _n_items(path, t) for t in tree.leaves(group)]
            weighting, notes = Tree({**data, "n-samples": _sizes(path, tree, group)}).weighting(
                group, key
            )
            values = [t[key] for t in tasks]
            stderr_key = f"{name}_stderr,{filter_name}"
            stderrs = [t[stderr_key] for t in tasks]
            micro = weighting == "micro"
            value = np.average(values, weights=sizes if micro else None)
            # Up to 0.4.12 the unweighted mean had the pooled standard error.
            pooled = micro or old
            stderr = pooled_stderr(stderrs, sizes) if pooled else unweighted_stderr(stderrs)

            assert notes == ()
            assert value == pytest.approx(logged, rel=1e-12)
            assert stderr == pytest.approx(data["results"][group][stderr_key], rel=1e-12)


def _n_items(path: Path, task: str) -> int:
    return next(len(r.item_ids) for r in _of(path) if r.task == task)


def _sizes(path: Path, tree: Tree, group: str) -> dict[str, dict[str, int]]:
    return {t: {"effective": int(tree.size(t)) or _n_items(path, t)} for t in tree.leaves(group)}


@pytest.mark.parametrize("path", RESULTS, ids=_id)
def test_nothing_logged_is_left_out(path: Path) -> None:
    """Every metric of every task has its responses, whether or not it can be averaged."""
    data = json.loads(path.read_text())
    groups = Tree(data).children
    expected = {
        (task, key)
        for task, values in data["results"].items()
        if task not in groups
        for key in values
        if "," in key and not key.partition(",")[0].endswith("_stderr")
    }

    assert expected == {(r.task, r.metric) for r in _of(path) if r.logged is not None} | {
        (r.task, r.metric) for r in _of(path) if r.aggregation == "bypass"
    }


def test_samples_lines_are_read_as_json_reads_them() -> None:
    """Cutting each line gives what parsing it whole gives, on every line of every fixture."""
    for path in LOGS.glob("0.[45].[!02-3]*/**/samples_*.jsonl"):
        lines = _lines(path)
        if "filter" not in lines[0]:
            continue
        found = read_samples(path, ["none"]).by_filter

        assert {line["filter"] for line in lines} == set(found)
        for name, column in found.items():
            mine = [line for line in lines if line["filter"] == name]
            assert [line["doc_id"] for line in mine] == column.doc_ids
            assert [line["doc_hash"] for line in mine] == column.doc_hashes
            for metric, values in column.values.items():
                expected = [line.get(metric) for line in mine]
                assert repr(expected) == repr(values)


@pytest.mark.parametrize(
    ("task", "metric", "reason"),
    [
        ("es_multirc_like", "em,none", "a list of 3: int"),
        ("es_odd", "list_metric,none", "a list of 2: bool"),
    ],
)
def test_what_is_no_score_is_never_averaged(task: str, metric: str, reason: str) -> None:
    """Pairs, texts and lists of booleans are reported by name, with the logged value."""
    found = read(THREE, task=task, metric=metric).responses[-1]

    assert len(found.item_ids) == 0
    assert f"not averaged: what is logged for an item is not its score ({reason})" in found.notes
    assert found.logged is not None


def test_brier_scores_are_computed_from_the_logged_likelihoods() -> None:
    """The log has them as text with 8 digits; their mean is the logged value to the last."""
    logs = [p for p in RESULTS if "out_nosamples" not in str(p)]
    found = [r for log in logs for r in _of(log) if r.metric.startswith("brier") and r.logged]

    assert len({r.source.version for r in found}) > 1
    for r in found:
        assert (r.aggregation, r.bounds) == ("mean", (0.0, 2.0))
        assert r.scores.mean() == pytest.approx(r.logged, rel=1e-12)


def test_numbers_beyond_0_to_1_are_no_probabilities() -> None:
    """One answer of 1e308, damaged or not, makes no score of infinity."""
    assert brier_scores([(0, [1.0, 0.0]), (1, [0.75, 0.25])]) == pytest.approx([0, 1.125])
    assert brier_scores([(0, [1.0, 1e308])]) is None


@pytest.mark.parametrize(
    ("task", "metric", "first"),
    [
        ("es_bin", "f1,none", [0, 0]),
        ("es_bin", "mcc,none", [0, 0]),
        ("es_bleu", "bleu,none", ["13", "============"]),
        ("es_bleu", "ter,none", ["13", "============"]),
    ],
)
def test_labels_and_texts_are_kept_in_pairs(task: str, metric: str, first: list[Any]) -> None:
    """What was expected and what was answered; no scores."""
    found = read(THREE / "models__m0", task=task, metric=metric).responses[0]

    assert found.pairs is not None
    assert first == found.pairs[0].tolist()
    assert found.scores.shape == (len(found.item_ids), 0)
    assert found.logged is not None


def test_an_aggregation_of_a_tasks_own_is_recognised_by_what_it_gives() -> None:
    """Only if it is one metric's value and no other's; missing answers stay missing."""
    base = read(THREE / "models__m1", task="es_bin", metric="f1").responses[0]
    values = [[0, 1], [1, 1], [2, 0], [2, 2], [1, 2], [0, 0], None]
    items = {"item_ids": np.arange(7), "item_hashes": None, "clusters": None, "notes": ()}

    def found(logged: float) -> dict[str, Any] | None:
        known = {each.name: getattr(base, each.name) for each in fields(base)}
        known["measure"] = replace(base.measure, aggregation="custom")
        return with_answers(known | items | {"logged": logged}, values)

    # By scikit-learn the MCC is 0.25, and macro F1, weighted F1 and balanced accuracy all 0.5.
    assert found(0.123) is None
    assert found(0.5) is None
    mcc = found(0.25)
    assert mcc is not None
    assert (mcc["measure"].aggregation, mcc["notes"]) == (
        "mcc",
        ("its aggregation gives what mcc gives, and is taken for it",),
    )
    assert mcc["pairs"][6].tolist() == [None, None]


def test_nan_infinity_and_missing_keys_are_what_they_are() -> None:
    """NaN is missing, a missing key is missing, Infinity stays, truth values are numbers."""
    odd = {r.metric: r for r in read(THREE, task="es_odd").responses if r.model == "models/m2"}
    missing = {m: int(np.isnan(r.scores).sum()) for m, r in odd.items() if len(r.item_ids)}

    assert missing["nan_metric,none"] == 4
    assert missing["partial_metric,none"] == 7
    assert missing["bool_metric,none"] == 0
    assert math.isinf(odd["inf_metric,none"].scores[0, 0])


@pytest.mark.parametrize("n_choices", [2, 4, 5])
def test_choices_that_are_asked_for_twice_count_once(n_choices: int) -> None:
    """For acc_mutual_info lm-eval asks for each choice again, without the question."""
    once, twice = (
        collect(
            [
                (k, k, {"filtered_resps": [[0.0, False]] * n, "metrics": [*metrics], **metrics})
                for k in range(3)
            ],
            ["none"],
            "samples.jsonl",
            choices=True,
        ).by_filter["none"]
        for n, metrics in (
            (n_choices, {"acc": 1.0}),
            (2 * n_choices, {"acc": 1.0, "acc_mutual_info": 0.0}),
        )
    )

    for samples in (once, twice):
        chance = samples.chance("acc")
        assert chance is not None
        assert chance.tolist() == [1 / n_choices] * 3
    assert once.chance("acc_norm_of_mine") is None
    # Whether the right choice is what the model would have written: no choice among some.
    once.values["exact_match"] = [1.0] * 3
    assert once.chance("exact_match") is None


def test_numbers_written_as_texts_are_read() -> None:
    """Up to 0.4.12 NumPy values are logged as "True" and "1.0"."""
    odd = {r.metric: r for r in read(LOGS / "0.4.12", task="es_odd2").responses}

    assert {0.0, 1.0} == set(odd["np_metric,none"].scores.ravel())
    assert {0.0, 1.0} == set(odd["bool_metric,none"].scores.ravel())


def test_repeats_of_0_5_are_epochs() -> None:
    """`scores_per_repeat` becomes the epochs of a metric of its own; its mean is pass@1."""
    found = {r.metric: r for r in read(LOGS / "0.5.0.dev1" / "es_rep5").responses}

    assert found["exact_match,none"].scores.shape == (40, 4)
    assert found["pass@1(exact_match),none"].logged == pytest.approx(
        found["exact_match,none"].scores.mean()
    )


def test_filters_are_kept_apart_in_every_layout() -> None:
    """Layouts that do not log the filter tell it by the order of an item's lines."""
    for version in ("0.4.2", "0.4.3", "0.4.7"):
        found = {r.metric: r for r in read(LOGS / version, task="es_gen").responses}

        assert sorted(found) == ["exact_match,flexible-extract", "exact_match,strict-match"]
        for r in found.values():
            assert len(set(r.item_ids.tolist())) == 40
            assert r.logged == pytest.approx(r.scores.mean())


def test_the_latest_run_counts_and_a_note_says_so() -> None:
    """es_mc was run twice; the task of a group keeps a row in each of its groups."""
    found = read(THREE)
    runs = Counter((r.model, r.task) for r in found if r.metric == "acc,none")

    assert runs["models/m1", "es_mc"] == 1
    assert runs["models/m1", "es_sub_a"] == 2
    assert any("several runs" in n and "es_mc by models/m1" in n for n in found.notes)


def test_runs_can_be_kept_apart_stacked_or_refused() -> None:
    """--runs all names each by its time, epochs stacks them, error refuses."""
    apart = read(THREE, task="es_mc", metric="acc", runs="all")
    stacked = read(THREE, task="es_mc", metric="acc", runs="epochs")

    assert len({r.model for r in apart}) == 6
    assert all("@ 20" in r.model for r in apart)
    assert [r.scores.shape for r in stacked] == [(60, 2)] * 3
    with pytest.raises(Exception, match="answered task 'es_mc' in 2 runs"):
        read(THREE, task="es_mc", runs="error")


def test_models_of_one_name_are_told_apart_by_their_arguments() -> None:
    """Two precisions land in one folder under one name; only the arguments differ."""
    found = read(LOGS / "0.4.13" / "out_variant")

    assert len({r.model for r in found}) == 2
    assert all("dtype=" in r.model for r in found)


def test_gpt_neox_is_named_by_its_checkpoint() -> None:
    """Its arguments are its whole configuration, of hundreds of entries."""
    arguments = {"load": "/ckpts/small", "iteration": 500, "train_iters": 900, "rank": 0}
    config = {"model": "neox", "model_args": arguments}
    assert model_identity({"config": config}) == ("/ckpts/small", (("iteration", "500"),))
    assert model_identity({"config": {"model_name": "acme/m", "model_dtype": "x"}})[0] == "acme/m"


def test_a_model_without_a_name_is_not_called_by_its_random_folder() -> None:
    """`--model dummy` logs into a folder with a random name."""
    assert {"dummy"} == {r.model for r in read(LOGS / "0.4.13" / "out_dummy")}


def test_two_repeats_are_several(tmp_path: Path) -> None:
    """Of one alone there is nothing to say."""
    source = next((THREE / "models__m0").glob("results_*09.284154.json"))
    data = json.loads(source.read_text())
    for path in source.parent.glob("*09.284154.jsonl"):
        shutil.copy(path, tmp_path)
    for repeats, notes in (
        (1, ()),
        (2, ("2 repeats; --at-k (in Python: read(repeats=True)) scores each",)),
    ):
        data["configs"]["es_repeats_nofilter"]["repeats"] = repeats
        (tmp_path / source.name).write_text(json.dumps(data))
        [r] = read(tmp_path, task="es_repeats_nofilter", metric="exact_match")

        assert r.notes == notes


def test_an_item_whose_choices_were_not_logged_has_no_chance() -> None:
    """It is unknown, and that of others is not; of one choice there is none either."""
    logged = ({"filtered_resps": [[0.0, False]] * 4}, {}, {"filtered_resps": [[0.0, False]]})
    records = [(k, k, {**each, "metrics": ["acc"], "acc": 1.0}) for k, each in enumerate(logged)]
    samples = collect(records, ["none"], "samples.jsonl", choices=True).by_filter["none"]
    chance = samples.chance("acc")

    assert chance is not None
    np.testing.assert_array_equal(chance, [0.25, np.nan, np.nan])


def test_results_in_one_file_with_their_samples_are_read(tmp_path: Path) -> None:
    """Many people dump what simple_evaluate returned: results and samples in one JSON."""
    source = next(THREE.glob("models__m2/results_*.json"))
    data = json.loads(source.read_text())
    stamp = source.stem.removeprefix("results_")
    data["samples"] = {
        task: _lines(source.parent / f"samples_{task}_{stamp}.jsonl") for task in data["configs"]
    }
    dumped = tmp_path / "dump.json"
    dumped.write_text(json.dumps(data))

    expected = {(r.task, r.metric): r.scores for r in _of(source)}
    found = {(r.task, r.metric): r.scores for r in _of(dumped)}
    assert expected.keys() == found.keys()
    for key, scores in expected.items():
        np.testing.assert_array_equal(scores, found[key])


def test_one_samples_file_is_read_with_the_results_beside_it() -> None:
    """A samples file may be named by itself."""
    path = next(THREE.glob("models__m2/samples_es_gen_*.jsonl"))

    assert {"es_gen"} == {r.task for r in read(path)}


def test_a_line_longer_than_any_real_one_is_refused(tmp_path: Path) -> None:
    """A 2 GB line is not read into memory."""
    path = tmp_path / "samples_t_2026-01-01T00-00-00.jsonl"
    with path.open("wb") as file:
        file.write(b'{"doc_id": 0, ')
        file.truncate(2 << 30)

    with pytest.raises(Exception, match="line 1 is longer than 256 MiB"):
        read_samples(path, ["none"])


def test_a_field_of_the_doc_says_which_items_belong_together() -> None:
    """es_bin asks three questions on each of twenty paragraphs."""
    found = read(THREE, task="es_bin", metric="acc", cluster="idx.paragraph").responses[0]

    assert 20 == len(set(found.clusters.tolist()))  # pyright: ignore[reportOptionalMemberAccess]
    plain = read(THREE, task="es_bin", metric="acc").responses[0]
    np.testing.assert_array_equal(plain.scores, found.scores)


def test_a_field_that_no_item_has_is_noted() -> None:
    """A cluster of one task need not be one of another."""
    field = "idx.paragraph"
    both = read(THREE, task=["es_mc", "es_bin"], metric="acc", cluster=field).responses
    found = next(r for r in both if r.task == "es_mc")

    assert found.clusters is None
    assert any("no item has the field 'idx.paragraph'" in note for note in found.notes)
    with pytest.raises(SelectionError, match="no item of these logs has the field"):
        read(THREE, task="es_mc", metric="acc", cluster=field)

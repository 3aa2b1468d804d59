"""HELM: run folders made from its published format, read as HELM itself sums them up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import intervals, read
from evalstats_plugin.adapters.helm.reader import (
    _Key,
    _key,
    _label,
    _mean,
    _mismatch,
    find_logs,
    read_log,
)
from evalstats_plugin.data.responses import Selection
from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.logs.reading import check
from evalstats_plugin.runtime.files import LogFile

N, TRIALS = 12, 3


def _stat(name: Mapping[str, Any], values: Sequence[float]) -> dict[str, Any]:
    """Return a statistic as HELM writes it, which leaves out what is None."""
    stat: dict[str, Any] = {"name": dict(name), "count": len(values)}
    if values:
        known = np.asarray(values, dtype=float)
        stat |= {
            "sum": known.sum(), "sum_squared": (known**2).sum(), "min": known.min(),
            "max": known.max(), "mean": known.mean(), "variance": known.var(),
            "stddev": known.std(),
        }  # fmt: skip
    else:
        stat |= {"sum": 0, "sum_squared": 0}
    return stat


def _write(folder: Path, name: str, content: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content, indent=2))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Give a run of 12 instances in two splits, in three trials, and once perturbed."""
    folder = tmp_path / "runs" / "v1" / "toy:subject=sums,model=acme_tiny"
    rng = np.random.default_rng(5)
    changed = {"name": "typos", "robustness": True, "computed_on": "perturbed"}
    groups = [
        ({"split": split} | more, ids)
        for split, ids in (("test", range(8)), ("valid", range(8, N)))
        for more in ({}, {"perturbation": changed})
    ]
    instances: list[dict[str, Any]] = []
    summed: dict[str, Any] = {}
    for about, ids in groups:
        for metric in ("exact_match", "f1_score", "num_output_tokens"):
            name = {"name": metric, **about}
            drawn = rng.random((len(ids), TRIALS)).round(3)
            scores = (drawn < 0.6) * 1.0 if metric == "exact_match" else drawn
            trials = [float(np.mean(scores[:, t])) for t in range(TRIALS)]
            summed[json.dumps(name)] = _stat(name, trials)
            for t in range(TRIALS):
                for i, item in enumerate(ids):
                    instances.append(
                        {
                            "instance_id": f"id{item}",
                            **({"perturbation": changed} if "perturbation" in about else {}),
                            "train_trial_index": t,
                            "stats": [_stat(name, [float(scores[i, t])])],
                        }
                    )
    spec = {"model": "acme/tiny", "model_deployment": "hf/tiny", "max_train_instances": 5}
    states = [
        {
            "instance": {"id": f"id{i}", "input": {"text": f"{i} + 1 = "}, "split": "test",
                         "references": [{"output": {"text": str(i + 1)}, "tags": ["correct"]}]},
            "train_trial_index": 0,
            "request": {"model": "acme/tiny", "prompt": f"Add.\n{i} + 1 = "},
        }
        for i in range(N)
    ]  # fmt: skip
    _write(folder, "per_instance_stats.json", instances)
    _write(folder, "stats.json", list(summed.values()))
    _write(folder, "run_spec.json", {"name": folder.name, "adapter_spec": spec})
    _write(folder, "scenario_state.json", {"adapter_spec": spec, "request_states": states})
    return folder


def _logged(run: Path) -> dict[str, float]:
    """Return the values of the run by the names of our rows."""
    found: dict[str, float] = {}
    for stat in json.loads((run / "stats.json").read_text()):
        name = stat["name"]
        parts = (name["name"], name["split"].removeprefix("test"),
                 "typos, perturbed" if "perturbation" in name else "")  # fmt: skip
        found["/".join(filter(None, parts))] = stat["mean"]
    return found


def test_each_value_of_a_run_is_the_estimate_of_a_row(run: Path) -> None:
    """Splits and perturbations are rows of their own, trials are epochs."""
    rows = {row.metric: row for row in intervals(read(run))}
    logged = {name: v for name, v in _logged(run).items() if not name.startswith("num_")}

    assert list(rows)[:2] == ["exact_match", "f1_score"]
    assert {name: row.estimate for name, row in rows.items()} == pytest.approx(logged, abs=1e-12)
    assert {(row.n_items, row.n_epochs) for row in rows.values()} == {(8, 3), (4, 3)}
    assert all(row.low is not None for row in rows.values())


def test_values_are_found_by_what_they_hold(run: Path, tmp_path: Path) -> None:
    """In a file of any name, such as a copy."""
    copied = tmp_path / "values of the run.json"
    shutil.copy(run / "stats.json", copied)

    found = {r.metric: r.logged for r in read(copied, model_name="tiny")}

    assert found == pytest.approx(
        {name: v for name, v in _logged(run).items() if not name.startswith("num_")}, abs=1e-12
    )


def test_a_run_says_what_it_is_of(run: Path) -> None:
    """Model and settings from the specification, questions and prompts from the state."""
    r = read(run, metric="exact_match").responses[0]

    assert (r.model, r.task) == ("acme/tiny", "toy:subject=sums")
    assert dict(r.settings) == {"deployment": "hf/tiny", "task.max_train_instances": "5"}
    assert r.item_ids.tolist() == [f"id{i}" for i in range(8)]
    assert r.item_hashes is not None
    assert r.provenance.prompt_hashes is not None
    assert {x.provenance.prompt_hashes is None for x in read(run) if "/typos" in x.metric} == {True}
    assert len(set(r.item_hashes.tolist())) == 8


def test_counts_are_read_if_named(run: Path) -> None:
    """Tokens say nothing of answers."""
    assert {r.metric for r in read(run, metric="num_output_tokens")} == {
        name for name in _logged(run) if name.startswith("num_output_tokens")
    }


@pytest.mark.parametrize("task", ["toy:subject=sums", "toy", "t*=sums", "toy:*"])
def test_a_metric_is_asked_for_of_a_task_with_an_equals_sign(run: Path, task: str) -> None:
    """By its whole name, by that before the colon, and by patterns; an unknown one is an error."""
    assert {r.metric for r in read(run, metric=f"{task}=f1_score")} == {
        name for name in _logged(run) if name.startswith("f1_score")
    }
    with pytest.raises(SelectionError, match="no task in the logs is called 'toy:subject' or"):
        read(run, metric="toy:subject=history=f1_score")


def test_the_files_of_a_run_are_one_log(run: Path) -> None:
    """Its scores, or its values where these are all, with the others beside it."""
    files = {path.stem: LogFile(path) for path in sorted(run.iterdir())}
    scores = files.pop("per_instance_stats")
    others = [file.path for file in files.values()]
    (run / "odd.json").write_text('{"instance_id": 1, "stats": [], "train_trial_index": 0}')
    found = find_logs([scores, *files.values(), LogFile(run / "odd.json")])
    values = files["stats"].path

    assert {log: {*beside} for log, beside in found.items()} == {scores.path: {*others}}
    assert find_logs([*files.values()]) == {values: [p for p in others if p != values]}


def test_names_alone_say_nothing_of_items(run: Path) -> None:
    """Reading them looks at no scores and no questions."""
    (run / "scenario_state.json").write_text("{")
    each = read_log(LogFile(run / "per_instance_stats.json"), Selection(header_only=True))

    assert each is not None
    assert {(len(r.item_ids), r.notes) for r in each} == {(0, ())}


def test_values_alone_and_items_alone_are_readable(run: Path, tmp_path: Path) -> None:
    """Without its other files a run is named after its folder, or by the caller."""
    for name in ("stats.json", "per_instance_stats.json"):
        alone = tmp_path / name.removesuffix(".json") / "toy:subject=sums,model=acme_tiny"
        alone.mkdir(parents=True)
        shutil.copy(run / name, alone)
        rows = {row.metric: row for row in intervals(read(alone, metric="exact_match"))}

        assert rows["exact_match"].model == "acme_tiny"
        assert rows["exact_match"].estimate == pytest.approx(_logged(run)["exact_match"], abs=1e-12)
        assert (rows["exact_match"].low is None) == (name == "stats.json")
    nameless = Path(shutil.copy(run / "per_instance_stats.json", tmp_path))
    with pytest.raises(LogError, match="does not name its model"):
        read(nameless)
    assert read(nameless, model_name="m").responses[0].model == "m"


def test_a_value_that_its_instances_contradict_is_a_finding(run: Path) -> None:
    """Half of the instances were removed after the run."""
    file = run / "per_instance_stats.json"
    instances = json.loads(file.read_text())
    file.write_text(json.dumps([one for one in instances if one["instance_id"] != "id3"]))

    assert {finding.problem for finding in check(run, metric="f1_score")} == {"contradiction"}


def test_a_score_that_two_metrics_compute_counts_once(run: Path) -> None:
    """HELM warns of it and goes on; a row says so, and two different scores are an error."""
    file = run / "per_instance_stats.json"
    instances = json.loads(file.read_text())
    file.write_text(json.dumps([*instances, instances[0]]))
    metric = instances[0]["stats"][0]["name"]["name"]

    [row, *others] = intervals(read(run, metric=metric))
    assert row.n_items == 8
    assert "1 duplicate score left out: one per instance and trial is used" in row.notes
    assert not any("duplicate" in note for each in others for note in each.notes)
    other = json.loads(json.dumps(instances[0]))
    other["stats"][0] |= {"count": 0}
    for both in ([other, *instances], [*instances, other]):
        file.write_text(json.dumps(both))
        assert intervals(read(run, metric=metric))[0].estimate == row.estimate
    other["stats"][0] |= {"count": 1, "mean": 0.123}
    file.write_text(json.dumps([*instances, other]))
    with pytest.raises(LogError, match="'id0' has two scores exact_match in one trial"):
        read(run)


def test_perturbations_of_one_name_are_told_apart_by_their_settings(run: Path) -> None:
    """As HELM compares them: with how many letters they change."""
    for name in ("per_instance_stats.json", "stats.json"):
        records = json.loads((run / name).read_text())
        stats = [s for one in records for s in one.get("stats", [one])]
        for stat in stats:
            if "perturbation" in stat["name"]:
                stat["name"]["perturbation"] |= {"prob": 0.1}
                again = json.loads(json.dumps(stat))
                again["name"]["perturbation"]["prob"] = 0.3
                owner = next((o for o in records if stat in o.get("stats", ())), None)
                (records if owner is None else owner["stats"]).append(again)
        (run / name).write_text(json.dumps(records))

    assert {r.metric for r in read(run, metric="exact_match")} == {
        "exact_match", "exact_match/valid",
        *(f"exact_match{split}/typos, perturbed, prob={p}"
          for split in ("", "/valid") for p in (0.1, 0.3)),
    }  # fmt: skip


def test_values_of_perturbations_that_were_none_are_no_rows(run: Path) -> None:
    """HELM logs a worst value for each kind; another value is one, and so is any that is named."""
    for name in ("per_instance_stats.json", "stats.json"):
        records = json.loads((run / name).read_text())
        for one in records:
            one |= {"stats": [s for s in one.get("stats", ()) if "perturbation" not in s["name"]]}
        kept = [one for one in records if "perturbation" not in one.get("name", ())]
        for one in [k for k in kept if name == "stats.json"]:
            worst = json.loads(json.dumps(one))
            worst["name"]["perturbation"] = {"name": "fairness", "computed_on": "worst"}
            worst["mean"] /= 1 + (one["name"]["name"] == "f1_score")
            kept.append(worst)
        (run / name).write_text(json.dumps(kept))

    found = {r.metric for r in read(run) if "worst" in r.metric}
    assert found == {"f1_score/fairness, worst", "f1_score/valid/fairness, worst"}
    assert len(read(run, metric="exact_match/fairness, worst").responses) == 1


def test_hidden_texts_are_no_questions(run: Path) -> None:
    """HELM's scripts write over what is not to be published: all questions would be alike."""
    file = run / "scenario_state.json"
    state = json.loads(file.read_text())
    for k, request in enumerate(state["request_states"]):
        request["instance"]["input"]["text"] = f"[encrypted_text_{k}]"
        request["request"]["prompt"] = "[redacted]"
    file.write_text(json.dumps(state))
    r = read(run, metric="exact_match").responses[0]

    assert r.item_hashes is None
    assert r.provenance.prompt_hashes is None


def test_notes_compare_a_value_with_the_mean_of_trials() -> None:
    """Nothing where they agree; that of instances, too, where trials differ in size."""
    scores = np.array([[1.0, 0.0], [1.0, np.nan], [0.0, np.nan]])

    assert list(_mismatch(scores[:1], 0.5)) == []
    assert list(_mismatch(scores, 1 / 3)) == [
        "0.333333 was logged, a mean of trials; of instances it is 0.5"
    ]
    assert list(_mismatch(scores, 0.5)) == ["mismatch: 0.5 was logged, the instances give 0.333333"]
    assert list(_mismatch(scores * np.nan, 0.5)) == list(_mismatch(scores, np.nan)) == []


def test_a_statistic_of_nothing_has_no_value():
    """Whatever is written as its mean."""
    assert np.isnan([_mean({"count": 0, "mean": 0.0}), _mean({"count": 1, "mean": None})]).all()
    assert _mean({"count": 2, "mean": 0.5}) == 0.5


def test_a_question_is_its_choices_in_any_order(run: Path) -> None:
    """A scenario may shuffle them; other choices are another question."""
    file = run / "scenario_state.json"
    hashes: list[list[bytes]] = []
    for texts in (("1", "2"), ("2", "1"), ("1", "3")):
        state = json.loads(file.read_text())
        for request in state["request_states"]:
            request["instance"]["references"] = [{"output": {"text": text}} for text in texts]
        file.write_text(json.dumps(state))
        (r, *_) = read(run, metric="exact_match")
        assert r.item_hashes is not None
        hashes.append(r.item_hashes.tolist())

    assert hashes[0] == hashes[1] != hashes[2]


def test_files_of_others_are_left_to_them(tmp_path: Path) -> None:
    """A list of other objects, and damage."""
    other = tmp_path / "list.json"
    cut = tmp_path / "per_instance_stats.json"
    cut.write_text('[{"instance_id": "a", "train_trial_index": 0, "stats": [')

    for text in ('[{"name": "x"}]', '{"instance_id": "a", "stats": [], "train_trial_index": 0}'):
        other.write_text(text)
        with pytest.raises(LogError, match="not a log that an installed adapter knows"):
            read(other, model_name="m")
    with pytest.raises(LogError, match="per_instance_stats"):
        read(cut, model_name="m")


def test_labels_name_what_tells_values_apart():
    """The split where a metric has several, the settings where a perturbation has."""
    plain, valid = _Key("em", "test", "", ""), _Key("em", "valid", "", "")
    other = _Key("f1", "valid", "", "")
    typos = [_Key("em", "test", "", "typos", settings) for settings in ("1", "2")]

    settings = {"p": 1, "n": 2}
    for changed in (settings, dict(reversed(settings.items()))):
        assert _key({"name": {"name": "em", "perturbation": changed}}).settings == "n=2, p=1"
    assert _label(plain, [plain, other]) == "em"
    assert _label(other, [plain, other]) == "f1"
    assert _label(valid, [plain, valid, other]) == "em/valid"
    assert _label(plain, [plain, valid, other]) == "em"
    assert _label(typos[0], [plain, typos[0]]) == "em/typos"
    assert [_label(each, [plain, *typos]) for each in typos] == ["em/typos, 1", "em/typos, 2"]

"""Inspect's logs: read, and every mean and standard error recomputed."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from inspect_ai.log import EvalLog, ProvenanceData, read_eval_log, write_eval_log
from inspect_ai.scorer import value_to_float

from evalstats_plugin import compare, intervals, read
from evalstats_plugin.adapters.inspect_ai.archive.guard import find_logs, form_of
from evalstats_plugin.adapters.inspect_ai.estimands import Estimand, Scorer, as_score
from evalstats_plugin.adapters.inspect_ai.reader import Table, _scores
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.errors import ItemConflictError, LogError, install_hint
from evalstats_plugin.logs.reading import read_log
from evalstats_plugin.plugins import load_plugins
from evalstats_plugin.runtime.files import LogFile

FIXTURES = Path(__file__).parents[3] / "fixtures" / "logs"
LOGS = FIXTURES / "inspect_ai"
VERSIONS = sorted(LOGS.iterdir())
LATEST = LOGS / "0.3.285"
PATHS = [
    log
    for v in VERSIONS
    for run in sorted(v.iterdir())
    for log in find_logs([LogFile(path) for path in sorted(run.iterdir())])
]


@cache
def _header(path: Path) -> EvalLog:
    return read_eval_log(str(path), header_only=True)


COMPLETE = [p for p in PATHS if _header(p).status == "success"]


def _id(path: Path) -> str:
    return str(path.relative_to(LOGS))


def _of(path: Path, **selection: Any) -> dict[str, Responses]:
    return {r.metric: r for r in read_log(path, Selection(**selection), load_plugins())}


def _log(run: str, model: str = "", task: str = "") -> Path:
    """Return the log of a run, of the model and task if there are several."""
    for path in find_logs([LogFile(path) for path in sorted((LATEST / run).iterdir())]):
        spec = _header(path).eval
        if model in spec.model and task in ("", spec.task):
            return path
    raise LookupError(run, model, task)


def _edited(path: Path, target: Path, edit: Callable[[EvalLog], None]) -> Path:
    """Write a log anew with something changed in it."""
    log = read_eval_log(str(path))
    edit(log)
    write_eval_log(log, str(target))
    return target


def _stderr(r: Responses) -> float:
    """Return the standard error as Inspect has it: of the mean, clustered where it was asked to."""
    means = r.item_means
    there = ~np.isnan(means)
    values = means[there]
    if r.clusters is None:
        return float(values.std(ddof=1) / math.sqrt(len(values)))
    deviations = values - values.mean()
    sums = [deviations[r.clusters[there] == c].sum() for c in set(r.clusters[there].tolist())]
    count = len(sums)
    return math.sqrt(float(np.square(sums).sum()) * count / (count - 1)) / len(values)


def test_every_kind_of_log_is_there() -> None:
    """Both forms, all four ways a run can end that leave a file, sets and reviewed logs."""
    assert {"eval", "json"} == {form_of(LogFile(p)) for p in PATHS}
    assert {"success", "error", "cancelled"} == {_header(p).status for p in PATHS}
    assert len(PATHS) >= 33


def test_no_log_tells_where_it_was_made() -> None:
    """Inspect would log folders in tracebacks, and in the error of a cancelled sample."""
    telling = re.compile(rb"/(?:home|root|Users|work|tmp|usr)/|site-packages")
    for path in PATHS:
        if path.suffix == ".json":
            assert not telling.search(path.read_bytes())
            continue
        with ZipFile(path) as archive:
            assert not any(telling.search(archive.read(name)) for name in archive.namelist())


@pytest.mark.parametrize("path", COMPLETE, ids=_id)
def test_every_mean_and_stderr_is_recomputed(path: Path) -> None:
    """What Inspect logged comes out of the samples again, to 1e-9."""
    found = _of(path)
    log = _header(path)
    checked = 0
    for score in log.results.scores:  # pyright: ignore[reportOptionalMemberAccess]
        if score.reducer not in (None, "mean"):
            continue
        r = found[score.name if score.name == score.scorer else f"{score.scorer}:{score.name}"]
        by_name = {m.name: m.value for m in score.metrics.values() if m.group is None}
        mean = by_name.get("accuracy", by_name.get("mean"))
        if log.invalidated or not by_name:
            continue
        checked += 1

        assert score.scored_samples == np.isfinite(r.item_means).sum()
        assert "stderr" not in by_name or by_name["stderr"] == pytest.approx(_stderr(r), abs=1e-9)
        if mean is not None:
            assert mean == pytest.approx(np.nanmean(r.item_means), abs=1e-9)
            assert mean == r.logged
    assert checked or log.invalidated


def test_nothing_disagrees_with_the_header() -> None:
    """No note of a mismatch on any fixture."""
    notes = [n for p in COMPLETE for r in _of(p).values() for n in r.notes]

    assert [] == [n for n in notes if n.startswith("mismatch")]


def test_epochs_are_kept_as_epochs() -> None:
    """Every epoch is where its sample says, not the value that Inspect reduced them to."""
    path = _log("models", "gamma", "arith_epochs")
    r = _of(path)["match"]
    rows = {item: row for row, item in enumerate(r.item_ids.tolist())}

    assert (30, 3) == r.scores.shape
    for sample in read_eval_log(str(path)).samples or ():
        expected = float(sample.scores["match"].value == "C")  # pyright: ignore[reportOptionalSubscript]
        assert expected == r.scores[rows[str(sample.id)], sample.epoch - 1]
    assert [each.metric for each in r.beside][:2] == ["match/pass_at_2", "match/mode"]


def test_each_key_of_a_score_is_a_metric() -> None:
    """A scorer that gives several values becomes "scorer:key", each with its own clusters."""
    found = _of(_log("models", "beta", "rubric_task"))

    assert ["rubric:correct", "rubric:style"] == list(found)
    assert found["rubric:correct"].clusters is None
    assert 8 == len(set(found["rubric:style"].clusters.tolist()))  # pyright: ignore[reportOptionalMemberAccess]
    assert found["rubric:style"].scores.max() > 0.5


def test_grades_are_numbers_and_nan_and_errors_are_missing() -> None:
    """C, P, I and N are 1, 1/2, 0 and 0; unscored samples and errors are told apart in notes."""
    path = _log("models", "delta", "graded")
    r = _of(path)["partial_credit"]
    samples = {str(s.id): s for s in read_eval_log(str(path)).samples or ()}
    grades = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}

    for item, score in zip(r.item_ids.tolist(), r.scores[:, 0], strict=True):
        value = (samples[item].scores or {}).get("partial_credit")
        expected = grades.get(str(value.value), math.nan) if value else math.nan
        np.testing.assert_equal(score, expected)
    assert "4 of 40 samples ended in an error" in r.notes
    assert "3 samples left unscored" in r.notes
    assert (0.0, 1.0) == r.bounds


@pytest.mark.parametrize(
    "value",
    ["C", "I", "P", "N", "yes", "No", "TRUE", "false", "0.25", " 7e-1", "-3", True, False, 2, 0.5],
)
def test_values_are_what_inspect_makes_of_them(value: Any) -> None:
    """The same mapping as Inspect's own."""
    assert value_to_float()(value) == as_score(value)


@pytest.mark.parametrize("value", ["c", "correct", "½", "nan", "inf", "", [1, 0], None, 10**400])
def test_what_is_no_number_is_missing(value: Any) -> None:
    """Where Inspect warns and counts 0, there is no score."""
    assert as_score(value) is None


def test_a_value_that_is_no_number_is_noted(tmp_path: Path) -> None:
    """The mean is then not Inspect's, and both notes say why."""

    def spoil(log: EvalLog) -> None:
        log.samples[0].scores["match"].value = "gibberish"  # pyright: ignore[reportOptionalSubscript]

    path = _edited(_log("models", "delta", "arith"), tmp_path / "log.eval", spoil)
    r = _of(path)["match"]

    assert math.isnan(r.scores[0, 0])
    assert any("not a number in 1 score ('gibberish')" in note for note in r.notes)
    assert any("50 scored items were logged, 49 are there" in note for note in r.notes)


def test_invalidated_samples_are_left_out() -> None:
    """Inspect's own metrics still count them; the edited score counts as edited."""
    r = _of(_log("reviewed"))["match"]
    original = _of(_log("models", "delta", "arith"))["match"]

    assert 48 == len(r.item_ids)
    assert {"4", "5"} == set(original.item_ids.tolist()) - set(r.item_ids.tolist())
    assert 1.0 == r.scores[r.item_ids.tolist().index("1"), 0]
    assert "2 invalidated samples are left out" in r.notes


def test_more_of_a_grade_is_better_whatever_it_is_called(tmp_path: Path) -> None:
    """Of a mean of letters the log says so; of numbers the registry, if it knows the scorer."""

    def rename(log: EvalLog) -> None:
        assert log.results is not None
        for score in log.results.scores:
            own = score.metrics.pop("accuracy")
            score.metrics = {"mean": own.model_copy(update={"name": "mean"}), **score.metrics}

    def in_numbers(log: EvalLog) -> None:
        rename(log)
        for sample in log.samples or ():
            for score in (sample.scores or {}).values():
                score.value = value_to_float()(score.value)

    log = _log("json", "beta")
    letters, numbers = (
        _of(_edited(log, tmp_path / f"{edit.__name__}.eval", edit)) for edit in (rename, in_numbers)
    )

    assert letters["match"].logged == numbers["match"].logged
    known = (letters["match"].measure.direction_from, numbers["match"].measure.direction_from)
    assert known == ("logged", "registry")


def test_a_scorer_named_as_a_cost_comes_first(tmp_path: Path) -> None:
    """The cost of that name is then not read."""

    def rename(log: EvalLog) -> None:
        assert log.results is not None
        for score in log.results.scores:
            score.name = score.scorer = "tokens"
        for spec in log.eval.scorers or ():
            spec.name = "tokens"
        for sample in log.samples or ():
            sample.scores = dict(zip(["tokens"], (sample.scores or {}).values(), strict=True))

    log = _log("models", "delta", "arith")
    path = _edited(log, tmp_path / "log.eval", rename)
    metrics = [r.metric for r in read_log(path, Selection(costs=True), load_plugins())]

    assert {"match", "tokens", "seconds"} <= _of(log, costs=True).keys()
    assert metrics == ["tokens", "seconds"]
    assert _of(path, costs=True)["tokens"].logged == _of(log)["match"].logged


def test_an_unscored_answer_is_no_share() -> None:
    """Nor is it another answer."""
    table = Table((), np.arange(3), np.arange(3), np.zeros(3, dtype=np.intp), 1)
    shares = _scores(Estimand(Scorer("s"), kind="share", name="C"), table, ["C", math.nan, "I"])

    np.testing.assert_array_equal(shares, [[1.0], [math.nan], [0.0]])


def test_epochs_behind_a_reducer_are_without_the_invalidated(tmp_path: Path) -> None:
    """Scores at k answers count the others alone."""

    def invalidate(log: EvalLog) -> None:
        log.invalidated = True
        for sample in log.samples or ():
            if sample.epoch == 2 and str(sample.id) in before.item_ids[:2].tolist():
                sample.invalidation = ProvenanceData(author="a reviewer")

    log = _log("models", "alpha", "arith_epochs")
    before = _of(log)["match"]
    r = _of(_edited(log, tmp_path / "log.eval", invalidate))["match"]
    epochs = next(other.as_epochs for other in r.beside if other.metric == "match/pass_at_2")
    expected = before.scores.copy()
    expected[:2, 1] = np.nan

    np.testing.assert_array_equal(epochs.scores, expected)
    np.testing.assert_array_equal(r.scores, expected)


@pytest.mark.parametrize(("run", "status"), [("broken", "error"), ("cancelled", "cancelled")])
def test_a_run_that_did_not_end_well_is_read_on_request_only(run: str, status: str) -> None:
    """The message names the status and the option; what is read says how far the run got."""
    with pytest.raises(LogError, match=f"status '{status}'.*--include-incomplete"):
        read(_log(run))

    found = list(_of(_log(run), include_incomplete=True).values())
    assert all(f"status '{status}'" in note for r in found for note in r.notes[-1:])
    assert all(r.population is None and np.isfinite(r.scores).any() for r in found)


def test_in_a_folder_such_a_run_is_left_out_with_a_note() -> None:
    """A run that was given up is nothing unusual beside others; one that was retried is done."""
    found = read(LATEST / "retried", LATEST / "cancelled", LATEST / "limit")
    failed, _ = sorted((LATEST / "retried").glob("*.eval"))
    [left_out] = [note for note in found.notes if note.startswith("left out:")]

    assert {"retried", "arith"} == {r.task for r in found}
    assert "status 'cancelled'" in left_out
    assert f"runs broken off, which another log took to their end: {failed}" in found.notes
    assert {"retried"} == {r.task for r in read(*(LATEST / "retried").glob("*.eval"))}
    with pytest.raises(LogError, match="status 'error'"):
        read(failed, LATEST / "limit")


def test_a_log_that_a_dead_process_left_is_read_on_request_only(tmp_path: Path) -> None:
    """Without a header there is the journal, and the status is "started"."""
    path = tmp_path / "log.eval"
    with ZipFile(_log("models", "alpha", "arith")) as source, ZipFile(path, "w") as target:
        for name in source.namelist():
            if name.startswith(("_journal", "samples/1")):
                target.writestr(name, source.read(name))

    with pytest.raises(LogError, match="status 'started'"):
        _of(path)
    assert len(_of(path, include_incomplete=True)["match"].item_ids)


def test_of_several_attempts_at_a_task_the_last_counts(tmp_path: Path) -> None:
    """The first attempt failed; asked for as well, it is the earlier of two runs."""
    shutil.copytree(LATEST / "retried", tmp_path, dirs_exist_ok=True)
    (r,) = read(tmp_path, include_incomplete=True).responses

    assert 20 == len(r.item_ids)
    assert 0.95 == r.logged


def test_a_limit_tells_the_size_of_the_whole() -> None:
    """Seven of fifty items were asked."""
    r = _of(_log("limit"))["match"]

    assert (7, 50) == (len(r.item_ids), r.population)
    assert _of(_log("models", "gamma", "arith"))["match"].population is None


def test_runs_that_differ_in_their_settings_are_told_apart() -> None:
    """By temperature, by grader, by a task's argument; each against runs of the same task only."""
    found = read(LATEST / "models", LATEST / "temperature", LATEST / "set", LATEST / "shots")
    models = {(r.task, r.model) for r in found}

    assert ("arith", "mockllm/gamma (temperature=0.7)") in models
    assert ("arith", "mockllm/delta (role.grader=mockllm/gamma)") in models
    assert ("reading", "mockllm/beta (shots=5)") in models
    assert ("graded", "mockllm/gamma") in models


def test_the_cluster_field_of_the_metrics_is_used() -> None:
    """`stderr(cluster="passage")` says that five questions each share a passage."""
    r = _of(_log("models", "alpha", "reading"))["match"]

    assert 10 == len(set(r.clusters.tolist()))  # pyright: ignore[reportOptionalMemberAccess]
    groups = ["match/algebra", "match/geometry", "match/logic"]
    assert [each.metric for each in r.beside] == groups


def test_the_callers_cluster_field_is_used() -> None:
    """A field of the metadata, instead of the log's own or where it has none."""
    named = _of(_log("models", "alpha", "reading"), cluster="category")["match"]
    missing = _of(_log("models", "alpha", "arith"), cluster="page")["match"]

    assert 3 == len(set(named.clusters.tolist()))  # pyright: ignore[reportOptionalMemberAccess]
    assert missing.clusters is None
    assert any("no item has the field 'page'" in note for note in missing.notes)


def test_a_field_too_long_for_summaries_is_read_from_the_samples(tmp_path: Path) -> None:
    """Two long passages that begin alike are two clusters."""

    def lengthen(log: EvalLog) -> None:
        for i, sample in enumerate(log.samples or ()):
            sample.metadata["passage"] = "long " * 400 + str(i % 2)
            sample.metadata["source"] = {"pages": ["x" * 700, i % 3, "x" * 700]}

    path = _edited(_log("models", "alpha", "reading"), tmp_path / "log.eval", lengthen)

    assert 2 == len(set(_of(path)["match"].clusters.tolist()))  # pyright: ignore[reportOptionalMemberAccess]
    by_page = _of(path, cluster="source")["match"].clusters
    assert 3 == len(set(by_page.tolist()))  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize("task", ["arith", "arith_epochs", "reading", "rubric_task", "graded"])
def test_both_forms_of_a_log_say_the_same(task: str, tmp_path: Path) -> None:
    """Written as .json by Inspect, a log gives the same responses."""
    path = _log("models", "beta", task)
    converted = tmp_path / "log.json"
    write_eval_log(read_eval_log(str(path)), str(converted), format="json")

    expected, found = _of(path), _of(converted)
    assert expected.keys() == found.keys()
    for metric, r in expected.items():
        other = found[metric]
        np.testing.assert_array_equal(r.scores, other.scores)
        np.testing.assert_array_equal(r.item_ids, other.item_ids)
        np.testing.assert_array_equal(r.item_hashes, other.item_hashes)  # pyright: ignore[reportArgumentType]
        assert (r.clusters is None) == (other.clusters is None)
        assert (r.model, r.logged, r.notes) == (other.model, other.logged, other.notes)


def test_names_are_listed_without_reading_samples() -> None:
    """Also of runs that failed."""
    found = [r for p in PATHS for r in read_log(p, Selection(header_only=True), load_plugins())]

    assert {0} == {len(r.item_ids) for r in found}
    assert {"match", "rubric:style", "partial_credit", "choice"} <= {r.metric for r in found}
    assert {"broken", "patient"} <= {r.task for r in found}


def test_metrics_and_tasks_are_chosen_by_name() -> None:
    """As with any other harness."""
    found = read(LATEST / "models", task="graded", metric="partial*")

    assert {("graded", "partial_credit")} == {(r.task, r.metric) for r in found}


def test_a_task_of_a_package_is_known_by_its_own_name_too(tmp_path: Path) -> None:
    """As `inspect_evals/gsm8k` is by `gsm8k`."""

    def pack(log: EvalLog) -> None:
        log.eval.task = "package/arith"

    path = _edited(_log("limit"), tmp_path / "log.eval", pack)

    for name in ("arith", "package/arith", "package/*"):
        assert ["package/arith"] == [r.task for r in read(path, task=name)]


def test_a_log_without_samples_has_its_logged_values(tmp_path: Path) -> None:
    """`--no-log-samples` leaves the header and empty summaries."""
    path = tmp_path / "log.eval"
    with ZipFile(_log("models", "alpha", "arith")) as source, ZipFile(path, "w") as target:
        target.writestr("header.json", source.read("header.json"))
        target.writestr("summaries.json", "[]")
    r = _of(path)["match"]

    assert (0, 0.34, 50) == (len(r.item_ids), r.logged, r.logged_n)
    assert any("no samples logged" in note for note in r.notes)


def test_the_same_question_has_the_same_fingerprint_in_any_run() -> None:
    """Which is how a join knows that one id means one question."""
    by_model = {m: _of(_log("models", m, "arith"))["match"] for m in ("alpha", "delta")}
    hashes = {m: r.item_hashes for m, r in by_model.items()}

    np.testing.assert_array_equal(hashes["alpha"], hashes["delta"])  # pyright: ignore[reportArgumentType]
    assert 50 == len(set(hashes["alpha"].tolist()))  # pyright: ignore[reportOptionalMemberAccess]
    assert all(h.startswith(b"inspect:") for h in hashes["alpha"].tolist())  # pyright: ignore[reportOptionalMemberAccess]


def test_other_questions_under_the_same_ids_are_not_joined(tmp_path: Path) -> None:
    """Two logs of one task whose questions differ must not be paired."""

    def rename(log: EvalLog) -> None:
        for sample in log.samples or ():
            sample.input = f"Another {sample.input}"

    _edited(_log("models", "alpha", "arith"), tmp_path / "a.eval", rename)
    shutil.copy(_log("models", "delta", "arith"), tmp_path / "b.eval")

    with pytest.raises(ItemConflictError, match=r"is one question in .* and another in"):
        read(tmp_path).matrix()


def test_lm_evals_logs_and_inspects_join_by_ids() -> None:
    """One benchmark, taken in both harnesses under the same ids."""
    found = read(
        FIXTURES / "lm_eval" / "0.4.13" / "out", LATEST / "es_mc", task="es_mc", metric="acc"
    )
    matrix = found.matrix()
    rows = compare(found)

    assert (4, 60, 1) == matrix.scores.shape
    assert not np.isnan(matrix.scores).any()
    assert {60} == {row.n_items for row in rows}
    assert 3 == sum("mockllm/delta" in (row.model_a, row.model_b) for row in rows)


def test_reading_other_logs_does_not_load_inspect() -> None:
    """It takes over a second to load."""
    code = (
        "import sys; import evalstats_plugin.adapters.inspect_ai; from evalstats_plugin import read"
        f"; read({str(FIXTURES / 'lm_eval' / '0.4.13' / 'out_limit')!r})"
        "; assert not any(m.split('.')[0] == 'inspect_ai' for m in sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_inspect_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness is an optional dependency."""
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)

    with pytest.raises(LogError, match=re.escape(install_hint("inspect"))):
        _of(_log_without_inspect())


def _log_without_inspect() -> Path:
    return min((LATEST / "tiny_perfect").glob("*.eval"))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the URL of a bucket that holds the logs of a set, and one of the other form."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client: Any = boto3.client("s3")
    client.create_bucket(Bucket="logs")
    for path in (*(LATEST / "set").iterdir(), *(LATEST / "json").iterdir()):
        key = f"{path.parent.name}/{path.name}"
        client.put_object(Bucket="logs", Key=key, Body=path.read_bytes())
    yield "s3://logs"
    server.stop()


@pytest.mark.needs("moto", "s3fs")
def test_logs_in_an_object_store_are_read(bucket: str) -> None:
    """A URL of a folder gives what the folder gives."""
    found = {r.model: r for r in read(f"{bucket}/set", f"{bucket}/json")}
    expected = {r.model: r for r in read(LATEST / "set", LATEST / "json")}

    assert expected.keys() == found.keys()
    for model, r in expected.items():
        np.testing.assert_array_equal(r.scores, found[model].scores)


def test_what_check_needs_is_read(tmp_path: Path) -> None:
    """Version of the task, and prompts, which the order of choices is a part of."""

    def turned(log: EvalLog) -> None:
        log.eval.task_version = 2
        for sample in log.samples or ():
            assert sample.choices
            letters = [sample.target] if isinstance(sample.target, str) else sample.target
            sample.target = [chr(64 + len(sample.choices) - (ord(t) - 65)) for t in letters]
            sample.choices = sample.choices[::-1]

    log = _log("es_mc")
    before, *_ = _of(log).values()
    after, *_ = _of(_edited(log, tmp_path / log.name, turned)).values()

    assert (before.provenance.task_version, after.provenance.task_version) == ("0", "2")
    assert before.item_hashes is not None
    assert (before.item_hashes == after.item_hashes).all()
    prompts = before.provenance.prompt_hashes, after.provenance.prompt_hashes
    assert (np.asarray(prompts[0]) != np.asarray(prompts[1])).all()


def test_items_that_are_gone_are_counted_where_the_header_lists_no_ids(tmp_path: Path) -> None:
    """By the header's number of samples."""

    def cut(log: EvalLog) -> None:
        log.eval.dataset.sample_ids = None
        log.samples = (log.samples or [])[:20]

    log = _log("es_mc")
    found, *_ = _of(_edited(log, tmp_path / log.name, cut)).values()

    assert (len(found.item_ids), found.measure.n_cut, found.is_partial) == (20, 40, True)


def test_a_header_of_fewer_samples_than_are_there_is_all_that_is_used(tmp_path: Path) -> None:
    """As after ``inspect log exclude``: nobody can say which samples are meant."""
    source = next((LATEST / "models").glob("*_arith_*"))
    log = read_eval_log(str(source))
    assert log.samples is not None
    assert log.results is not None
    kept = log.samples[10:]
    share = sum((s.scores or {})["match"].value == "C" for s in kept) / len(kept)
    for score in log.results.scores:
        score.metrics = {"accuracy": score.metrics["accuracy"]}
        score.metrics["accuracy"].value = share
        score.scored_samples, score.unscored_samples = len(kept), 10
    file = tmp_path / "some.eval"
    write_eval_log(log, str(file))
    (row,) = intervals(read(file, metric="match"), rng=0)

    assert share == row.estimate == row.logged
    assert row.low is None
    assert "40 scored items were logged, 50 are there" in row.notes[0]


def test_samples_stopped_by_a_limit_are_named(tmp_path: Path) -> None:
    """Both scores: they count as scored, and what the others give is said."""
    from inspect_ai.log import EvalSampleLimit

    def stopped(log: EvalLog) -> None:
        for sample in (log.samples or [])[::4]:
            sample.limit = EvalSampleLimit(type="token", limit=10)

    log = next((LATEST / "models").glob("*_arith_*"))
    found = _of(_edited(log, tmp_path / log.name, stopped))["match"]
    others = [k for k in range(len(found.item_ids)) if k % 4]

    expected = found.scores[others].mean()
    note = "13 of 50 samples stopped by a limit (token), and counted as scored; the others give"
    assert f"{note} {expected:.3f}" in found.notes


def test_a_sample_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """As where two runs were joined: neither of them counts silently."""

    def joined(log: EvalLog) -> None:
        log.samples = [*(log.samples or []), *(log.samples or [])[3:5]]

    log = next((LATEST / "json").glob("*_arith_*"))
    with pytest.raises(LogError, match=r"2 samples of item '4' in epoch 1; two runs may"):
        _of(_edited(log, tmp_path / log.name, joined))

"""Scoring logged responses again gives what lm-eval gave, or what was asked for instead."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sklearn.metrics
from counted_lm_eval import few_tasks
from lm_eval.utils import handle_non_serializable
from lm_eval_logs import THEIR_WRITER, as_summed

from evalstats_plugin import read
from evalstats_plugin.adapters.lm_eval.replay.model import Answers, LoggedTask
from evalstats_plugin.adapters.lm_eval.replay.run import PROVENANCE, replay
from evalstats_plugin.data.responses import Selection
from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.logs.reading import read_results
from evalstats_plugin.scores.epochs import at_k, variance_parts

FIXTURES = Path(__file__).parents[3] / "fixtures"
LOGS = FIXTURES / "logs" / "lm_eval"
RUNS = LOGS / "0.4.13"
TASKS = FIXTURES.parent / "tests" / "generate" / "lm_eval" / "tasks"
OLD_TASKS = FIXTURES.parent / "tests" / "generate" / "lm_eval" / "old"


@pytest.fixture(autouse=True)
def quick_harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let lm-eval resample in this process, and list few of its own 14,000 tasks."""
    monkeypatch.setenv("DISABLE_MULTIPROC", "1")
    with few_tasks():
        yield


def first_log(run: str) -> Path:
    """Return the earliest results file of a run of the newest version."""
    return min(RUNS.glob(f"{run}/**/*.json"))


def copy_of(log: Path, folder: Path) -> Path:
    """Copy the folder of a log, to change something in it."""
    shutil.copytree(log.parent, folder / "log")
    return folder / "log" / log.name


def samples_of(log: Path, task: str) -> Path:
    """Return the samples file of a task."""
    return next(log.parent.glob(f"samples_{task}_{log.stem.rpartition('_')[2]}.jsonl"))


def rewrite(samples: Path, change: Any) -> None:
    """Pass every sample of a file through a function; None removes it."""
    kept = [change(json.loads(line)) for line in samples.read_text().splitlines()]
    samples.write_text("".join(json.dumps(one) + "\n" for one in kept if one is not None))


def as_text(results: dict[str, Any]) -> str:
    """Write results as lm-eval does, without what only a replay has."""
    results = {key: value for key, value in results.items() if key not in ("samples", PROVENANCE)}
    return json.dumps(results, indent=2, default=handle_non_serializable, ensure_ascii=False)


def _by_counts(score: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    """Remember a score of labels, which depends on how often each pair of them occurs alone.

    lm-eval asks for it a thousand times, of answers drawn anew.
    """
    known: dict[frozenset[tuple[Any, int]], float] = {}

    def remembered(gold: Any, given: Any) -> float:
        key = frozenset(Counter(zip(gold, given, strict=True)).items())
        if key not in known:
            known[key] = score(gold, given)
        return known[key]

    return remembered


@pytest.fixture(scope="module")
def able_model() -> dict[str, Any]:
    """Replay the run of m2 on every task once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISABLE_MULTIPROC", "1")
        for name in ("f1_score", "matthews_corrcoef"):
            patch.setattr(sklearn.metrics, name, _by_counts(getattr(sklearn.metrics, name)))
        return replay(first_log("out/models__m2"), include_path=TASKS)


@pytest.mark.needs(f"lm_eval=={THEIR_WRITER}")
def test_a_replay_is_the_original_to_the_byte(able_model: dict[str, Any]):
    """Every value, standard error, group, hash and definition comes out as lm-eval wrote it."""
    expected = first_log("out/models__m2").read_text(encoding="utf-8")
    assert as_summed(as_text(able_model)) == as_summed(expected)


@pytest.mark.parametrize(
    "run",
    [
        "out_limit",
        "out_samples",
        "out_dummy",
        "out_file",
        "out_variant",
    ],
)
def test_other_runs_come_out_to_the_byte_as_well(run: str):
    """--limit, --samples, no model name, file-style output: all the same."""
    log = first_log(run)

    found = as_text(replay(log, include_path=TASKS))
    assert as_summed(found) == as_summed(log.read_text(encoding="utf-8"))


# Another lm-eval counts the items of groups otherwise.
@pytest.mark.needs(f"lm_eval=={THEIR_WRITER}")
def test_an_ignorant_model_and_an_unweighted_group_come_out_to_the_byte():
    """The later run of m0, whose tasks need no bootstrap."""
    log = max(RUNS.glob("out/models__m0/*.json"))

    found = as_text(replay(log, include_path=TASKS))
    assert as_summed(found) == as_summed(log.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("version", "tasks"), [("0.4.3", "tasks_old3"), ("0.4.7", "tasks_old"), ("0.4.12", "tasks_old")]
)
def test_logs_of_older_versions_give_their_values(version: str, tasks: str):
    """The values of tasks are those the old version computed, numbers as text included."""
    log = min(LOGS.glob(f"{version}/**/results*.json"))
    old = json.loads(log.read_text())["results"]

    new = replay(log, include_path=OLD_TASKS / tasks)["results"]

    assert {
        (task, key): float(new[task][key])
        for task, row in old.items()
        for key in row
        if "," in key and not key.endswith("_stderr,none") and task != "es_group"
    } == {
        (task, key): float(value)
        for task, row in old.items()
        for key, value in row.items()
        if "," in key and not key.endswith("_stderr,none") and task != "es_group"
    }


@pytest.mark.parametrize("version", ["0.4.2", "0.5.0.dev1"])
def test_logs_that_cannot_be_replayed_are_refused(version: str):
    """A layout or dialect that lm-eval 0.4.13 does not share is an error, not a wrong score."""
    log = min(LOGS.glob(f"{version}/**/results*.json"))

    with pytest.raises(LogError, match=r"0\.4\.2 and older|0\.5"):
        replay(log, include_path=OLD_TASKS / "tasks_old")


def test_another_filter_scores_the_same_responses():
    """The score is what the regular expression finds in the logged responses."""
    log = first_log("out/models__m1")
    steps = [
        {"function": "regex", "regex_pattern": r"(\d)", "group_select": -1},
        {"function": "take_first"},
    ]
    samples = [json.loads(line) for line in samples_of(log, "es_gen").read_text().splitlines()]
    responses = {one["doc_id"]: (one["resps"][0][0], one["target"]) for one in samples}
    hits = [re.findall(r"\d", text)[-1:] == [target] for text, target in responses.values()]

    new = replay(log, tasks=["es_gen"], filters=[{"name": "last-digit", "filter": steps}])

    row = new["results"]["es_gen"]
    assert row["exact_match,last-digit"] == pytest.approx(sum(hits) / len(hits), abs=1e-12)
    assert [key for key in row if "," in key] == [
        "exact_match,last-digit",
        "exact_match_stderr,last-digit",
    ]
    assert new["configs"]["es_gen"]["filter_list"] == [{"name": "last-digit", "filter": steps}]
    assert list(new["configs"]) == list(new["task_hashes"]) == list(new["samples"]) == ["es_gen"]


def test_a_run_without_scores_can_be_scored_later():
    """--predict_only now and metrics later give what a run with metrics gives."""
    full = json.loads(first_log("out/models__m2").read_text())["results"]

    new = replay(first_log("out_predict_only"), include_path=TASKS)["results"]

    for task in ("es_gen", "es_mc"):
        # The two runs batched differently, which moves log-likelihoods in the seventh digit.
        assert new[task] == pytest.approx(full[task], abs=1e-6)


def test_a_run_without_scores_takes_metrics_by_name():
    """Without a YAML file the metrics have to be named; the responses are those of the log."""
    full = json.loads(first_log("out/models__m2").read_text())["results"]["es_mc"]

    new = replay(first_log("out_predict_only"), tasks=["es_mc"], metrics=["acc", "acc_bytes"])

    assert new["results"]["es_mc"]["acc,none"] == full["acc,none"]
    assert new["results"]["es_mc"]["acc_stderr,none"] == pytest.approx(
        full["acc_stderr,none"], rel=1e-12
    )
    assert "acc_bytes,none" in new["results"]["es_mc"]


def test_a_run_without_scores_needs_metrics_or_definitions():
    """The log of --predict_only does not say what to score, and the error says what to give."""
    with pytest.raises(LogError, match=r"--predict_only.*--metric.*--include-path"):
        replay(first_log("out_predict_only"), tasks=["es_gen"])


def test_a_python_function_is_never_taken_from_the_log():
    """A task with functions needs its YAML file; the source text in the log is not run."""
    with pytest.raises(LogError, match=r"es_odd.*process_results.*--include-path"):
        replay(first_log("out/models__m2"), tasks=["es_odd"])


def redefined(folder: Path, **changes: Any) -> Path:
    """Copy a log of es_mc whose logged definition says something else."""
    log = copy_of(first_log("out_samples"), folder)
    data = json.loads(log.read_text())
    data["configs"]["es_mc"] |= changes
    log.write_text(json.dumps(data))
    return log


def test_a_template_in_a_log_cannot_reach_python(tmp_path: Path):
    """A log from somebody else may hold any template: it is rendered in a sandbox."""
    log = redefined(tmp_path, doc_to_text="{{ ''.__class__.__mro__ }}")

    with pytest.raises(LogError, match="SecurityError"):
        replay(log)


def test_a_metric_in_a_log_is_not_downloaded(tmp_path: Path):
    """A log does not choose which code is fetched from the hub and run."""
    metric = {"metric": "somebody/metric", "hf_evaluate": True}
    log = redefined(tmp_path, metric_list=[metric], task="mine", output_type="generate_until")

    with pytest.raises(LogError, match="'somebody/metric' is not lm-eval's own"):
        replay(log)


def test_what_breaks_in_scoring_is_told_with_the_log(tmp_path: Path):
    """An error from inside lm-eval names the file it was about."""
    log = redefined(tmp_path, doc_to_target="{{ no_such_field }}")

    with pytest.raises(LogError, match=r"results_.*scoring it broke with .*no_such_field"):
        replay(log)


def test_groups_that_are_not_known_get_no_scores():
    """Tasks are scored from the log alone; the group above them says why it is not."""
    new = replay(first_log("out_limit"), tasks=["es_group"])

    assert list(new["results"]) == ["es_sub_a", "es_sub_b", "es_sub_c", "es_subgroup", "es_group"]
    assert new["results"]["es_group"] == {"alias": "ES Group", "name": "es_group"}
    assert "groups" not in new
    assert any("'es_group' gets no scores" in note for note in new[PROVENANCE]["notes"])


def test_groups_with_a_task_missing_are_left_out():
    """A group of which only some tasks are scored again has no row that could be stale."""
    new = replay(first_log("out_limit"), tasks=["es_sub_a"], include_path=TASKS)

    assert list(new["results"]) == ["es_sub_a"]
    assert any("'es_group' is left out" in note for note in new[PROVENANCE]["notes"])


def test_annotations_of_the_old_scores_do_not_survive(tmp_path: Path):
    """An annotated log is scored again without its annotation, which was about other scores."""
    log = copy_of(first_log("out_samples"), tmp_path)
    log.write_text(json.dumps(json.loads(log.read_text()) | {"evalstats": {"results": []}}))

    assert "evalstats" not in replay(log)


def test_repeats_are_scored_one_by_one():
    """Repeat 0 is what score-first logged; each other one is counted by hand."""
    log = first_log("out/models__m2")
    samples = [json.loads(line) for line in samples_of(log, "es_repeats").read_text().splitlines()]
    by_doc = {one["doc_id"]: (one["resps"][0], one["target"]) for one in samples}
    by_hand = [
        [float((re.findall(r"\d+", text) or [""])[0] == target) for text in texts]
        for texts, target in by_doc.values()
    ]

    found = {r.metric: r for r in read(log, task="es_repeats", repeats=True)}
    first = found["exact_match,score-first"]

    assert first.item_ids.tolist() == list(by_doc)
    assert first.as_epochs.scores.tolist() == by_hand
    assert first.as_epochs.scores[:, 0].mean() == first.logged
    # The vote is over the same scores: one row of pass@4 is enough.
    assert [m for m, r in found.items() if r.unreduced is not None] == ["exact_match,score-first"]


@pytest.mark.parametrize("run", ["out/models__m1", "out_dummy"])
def test_scores_at_k_come_from_all_repeats(run: str):
    """pass@4: any of four; pass^4: all of them; and variance between epochs."""
    found = read(first_log(run), task="es_repeats", metric="exact_match", repeats=True)
    (first,) = (r for r in found if r.unreduced is not None)
    right = first.as_epochs.scores.sum(axis=1)

    rows = {r.metric: r for r in at_k(found, "pass@4", "pass^4", "maj@4")}

    key = "exact_match,score-first"
    assert rows[f"pass@4 {key}"].scores.mean() == (right > 0).mean()
    assert rows[f"pass^4 {key}"].scores.mean() == (right == 4).mean()
    assert rows[f"maj@4 {key}"].scores.mean() == ((right > 2) + (right == 2) / 2).mean()
    (part,) = (p for p in variance_parts(found) if p.n_epochs == 4)
    assert part.within == pytest.approx(first.as_epochs.scores.var(axis=1, ddof=1).mean())


def test_repeats_of_results_in_memory_are_scored_too():
    """`simple_evaluate` has responses as they were, and arguments as tuples."""
    log = first_log("out/models__m2")
    data = json.loads(log.read_text())
    lines = samples_of(log, "es_repeats_nofilter").read_text().splitlines()
    data["samples"] = {"es_repeats_nofilter": [json.loads(line) for line in lines]}

    (r,) = (
        r
        for r in read_results(data, Selection(("es_repeats_nofilter",), repeats=True))
        if r.unreduced is not None
    )

    assert r.as_epochs.scores.shape == (40, 3)
    assert r.as_epochs.scores[:, 0].mean() == r.logged


@pytest.mark.parametrize(
    ("log", "task", "reason"),
    [
        ("0.4.13/out/models__m2", "es_passk", "process_results is a Python function"),
        # That version compares the list ["8"] with "8", so that no answer is right.
        ("0.5.0.dev1/es_repeats", "es_repeats", "scores 3 of 40 items otherwise than the run"),
    ],
)
def test_repeats_that_cannot_be_scored_are_noted(log: str, task: str, reason: str):
    """The logged scores stay, and are never mixed with scores by other rules."""
    found = read(min((LOGS / log).rglob("results_*.json")), task=task, repeats=True)

    for r in found:
        assert r.unreduced is None
        assert any("its repeats are not scored one by one" in n and reason in n for n in r.notes)
        assert not any("--include-path" in n for n in r.notes)


def test_reading_alone_scores_no_repeats():
    """A log decides nothing about what runs: its filters are applied when somebody asks."""
    found = read(first_log("out/models__m2"), task="es_repeats")

    assert {r.unreduced for r in found} == {None}
    assert all("4 repeats; --at-k" in r.notes[-1] for r in found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: None if one["doc_id"] == 7 else one, r"es_mc \(59 of 60 items\)"),
        (
            lambda one: one | {"resps": one["resps"][:3]},
            "es_mc.*doc_id 0.*asks for answer number 4",
        ),
        (lambda one: one | {"doc_id": 5}, "line 2 repeats item 5 under filter"),
        (lambda one: one | {"resps": [*one["resps"], [["-1.0", "False"]]]}, "holds 5 answers"),
        (lambda one: one | {"resps": [[], *one["resps"][1:]]}, r"requests have \[0, 1\] answers"),
        (lambda one: {"doc_id": one["doc_id"]}, "is not a sample of lm-eval"),
    ],
)
def test_responses_that_do_not_fit_are_an_error(change: Any, message: str, tmp_path: Path):
    """A missing, doubled or superfluous response is told with its task and document."""
    log = copy_of(first_log("out_variant"), tmp_path)
    rewrite(samples_of(log, "es_mc"), change)

    with pytest.raises(LogError, match=message):
        replay(log)


def test_a_log_cut_off_in_the_middle_of_a_line_is_an_error(tmp_path: Path):
    """A run that was killed while it wrote is named by file and line."""
    log = copy_of(first_log("out_samples"), tmp_path)
    samples = samples_of(log, "es_mc")
    samples.write_text(samples.read_text()[:-40])

    with pytest.raises(LogError, match="line 3, the last, is cut off"):
        replay(log)


def test_a_log_without_samples_is_an_error():
    """Without --log_samples there are no responses, and the error names the option."""
    with pytest.raises(LogError, match="--log_samples"):
        replay(first_log("out_nosamples"))


def test_responses_differing_between_filters_are_an_error(tmp_path: Path):
    """All filters saw the same responses; a log that says otherwise is broken."""
    log = copy_of(first_log("out_file"), tmp_path)
    strict = "strict-match"
    rewrite(
        samples_of(log, "es_gen"),
        lambda one: one if one["filter"] == strict else one | {"resps": [["other"]]},
    )

    with pytest.raises(LogError, match="other responses than on an earlier line"):
        replay(log, tasks=["es_gen"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('doc_to_text: "{{question}}"', 'doc_to_text: "What is {{question}}"'),
        ("doc_to_choice: choices", "doc_to_choice: ['1', '2', '3', '4']"),
    ],
)
def test_a_task_that_has_changed_is_not_given_the_old_responses(
    before: str, after: str, tmp_path: Path
):
    """Responses are to the question that was asked, and score no other one."""
    definition = (TASKS / "mc.yaml").read_text()
    assert before in definition
    (tmp_path / "mc.yaml").write_text(definition.replace(before, after))

    with pytest.raises(LogError, match="the task has changed since the run"):
        replay(first_log("out_variant"), include_path=tmp_path)


def test_documents_keep_the_ids_of_the_log(tmp_path: Path):
    """lm-eval mislabels documents of an unsorted --samples: place, not doc_id, finds the answer."""
    log = copy_of(first_log("out_samples"), tmp_path)
    mislabelled = {3: 41, 9: 3, 41: 9}
    rewrite(samples_of(log, "es_mc"), lambda one: one | {"doc_id": mislabelled[one["doc_id"]]})

    new = replay(log)

    assert [one["doc_id"] for one in new["samples"]["es_mc"]] == [41, 3, 9]
    assert new["results"] == json.loads(log.read_text())["results"]


@pytest.mark.parametrize(
    ("asked_for", "message"),
    [
        ({"tasks": ["es_cm"]}, "no task 'es_cm' in this run; there are: es_mc"),
        ({"metrics": ["exact_macht"]}, "cannot be scored with 'exact_macht'"),
        ({"metrics": ["bleu"]}, "cannot be scored with 'bleu'"),
        ({"filters": [{"name": "x", "filter": [{"function": "lowercase"}]}]}, "generates text"),
        ({"include_path": "nowhere"}, "no such folder"),
    ],
)
def test_what_does_not_exist_is_named(asked_for: dict[str, Any], message: str):
    """A task, metric, filter or folder that is not there is an error, never a download."""
    with pytest.raises(SelectionError, match=message):
        replay(first_log("out_variant"), **asked_for)


@pytest.mark.parametrize(
    "broken",
    [
        {"name": "x", "filter": [{"function": "regexp"}]},
        {"name": "x"},
        {"filter": [{"function": "regex"}]},
    ],
)
def test_a_broken_filter_is_named(broken: dict[str, Any]):
    """A filter written by hand is checked before anything is scored."""
    with pytest.raises(SelectionError, match="filter"):
        replay(first_log("out_file"), tasks=["es_gen"], filters=[broken])


def request(context: str, continuation: str, index: int = 0) -> Any:
    """Make a request as lm-eval does."""
    asked = (context, continuation)
    return SimpleNamespace(
        task_name="t",
        doc_id=0,
        idx=index,
        args=asked,
        arguments=asked,
        request_type="loglikelihood",
    )


def answers(prompt: str, continuation: str, *, templated: bool) -> Answers:
    """Log one answer to one request."""
    task = LoggedTask("t", [3], [{}], [[(prompt, continuation)]], [[[["-1.5", "True"]]]])
    return Answers({"t": task}, templated=templated)


def test_examples_before_the_question_are_not_asked_again():
    """A few-shot prompt ends in the question, and the request gets the whole prompt back."""
    asked = request("2+2=", " 4")

    answer = answers("Add.\n\n1+1= 2\n\n2+2=", " 4", templated=False).take(asked)

    assert answer == ["-1.5", "True"]
    assert asked.arguments == ("Add.\n\n1+1= 2\n\n2+2=", " 4")


def test_a_chat_template_may_surround_the_question():
    """Markup after the question and a dropped delimiter are the template's doing."""
    logged = answers("<|user|>2+2=<|end|><|assistant|>", "4", templated=True)

    assert logged.take(request("2+2=", " 4")) == ["-1.5", "True"]


@pytest.mark.parametrize("templated", [False, True])
def test_another_question_is_refused(templated: bool):  # noqa: FBT001
    """Whatever stands before it, the question itself must be the logged one."""
    with pytest.raises(LogError, match=r"task 't', doc_id 3.*2\+2='.*'2\+3='"):
        answers("1+1= 2\n\n2+2=", " 4", templated=templated).take(request("2+3=", " 4"))


def test_a_response_asked_for_twice_and_logged_once_is_missing():
    """Repeats are given in order, and there are no more than were logged."""
    logged = answers("2+2=", " 4", templated=False)
    logged.take(request("2+2=", " 4"))

    with pytest.raises(LogError, match="doc_id 3: response 2 is asked for and missing"):
        logged.take(request("2+2=", " 4"))

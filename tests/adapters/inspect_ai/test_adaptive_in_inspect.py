"""Inspect asks only what an adaptive session wants, and its logs stay its own."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from evalstats_plugin import read
from evalstats_plugin.adapters.inspect_ai.adaptive import gate
from evalstats_plugin.adapters.inspect_ai.adaptive.asking import check_scorers
from evalstats_plugin.adapters.inspect_ai.adaptive.gate import ANSWERED
from evalstats_plugin.adapters.inspect_ai.adaptive.run import adaptive_task, plain_error
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.session import AnswersFile
from evalstats_plugin.cli import main
from evalstats_plugin.errors import SelectionError

TASKS = Path(__file__).with_name("adaptive_tasks.py")
N_ITEMS = 24
N_ASKED = 8
N_KILLED = 5
"""Questions after which a run is killed."""
MODEL = "mockllm/a"

# Inspect leaves streams of its own open, which is not for us to judge.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def streams_are_collected_here() -> Iterator[None]:
    """Have no later test blamed for them."""
    yield
    gc.collect()


@pytest.fixture(autouse=True, scope="module")
def impatient() -> Iterator[None]:
    """Look more often at what still runs: nothing here takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "LOOK", 0.01)
        patch.setattr(gate, "PATIENCE", 0.05)
        yield


@pytest.fixture(autouse=True)
def asyncio_stays() -> Iterator[None]:
    """Fail where Inspect has nest_asyncio replace asyncio.run: loops of later tests stayed open."""
    before = asyncio.run
    yield
    assert asyncio.run is before


@pytest.fixture(autouse=True)
def no_hanging() -> Iterator[None]:
    """End a test that hangs."""

    def hangs(*_: object) -> None:
        pytest.fail("hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of all items."""
    from inspect_ai import eval as run_eval

    folder = tmp_path_factory.mktemp("full")
    run_eval(f"{TASKS}@plain", model=MODEL, log_dir=str(folder), display="none")
    return folder


@pytest.fixture(scope="module")
def bank(full: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank whose questions are those of the log, as our reader fingerprints them."""
    return _bank(full, tmp_path_factory.mktemp("bank") / "bank.parquet")


def _bank(full: Path, path: Path, **changed: str) -> Path:
    found = read(full).responses[0]
    rng = np.random.default_rng(0)
    assert found.item_hashes is not None
    hashes = found.item_hashes.astype(str).astype(object)
    for item, text in changed.items():
        hashes[int(item.removeprefix("item"))] = text
    made = ItemBank.from_arrays(
        rng.uniform(0.8, 2, N_ITEMS),
        rng.normal(size=N_ITEMS),
        item_ids=found.item_ids.astype(str).tolist(),
        tasks="plain",
        hashes=hashes,
        provenance={"metrics": ["match"]},
    )
    return made.save(path)


def _command(bank: Path, folder: Path, *more: str) -> list[str]:
    arguments = ["adapt", "run", "inspect", f"{TASKS}@plain", "--model", MODEL]
    return [*arguments, "--bank", str(bank), "--log-dir", str(folder / "logs"), *more]


def _run(bank: Path, folder: Path, *more: str) -> Any:
    return CliRunner().invoke(main, _command(bank, folder, *more))


def _asking(folder: Path) -> tuple[str, ...]:
    """Ask some items, and note which."""
    return "--max-items", str(N_ASKED), "-T", f"asked={folder / 'asked.txt'}", "-q"


def _asked(folder: Path) -> list[str]:
    """Items in the order they were asked."""
    return [line.split()[1] for line in (folder / "asked.txt").read_text().splitlines()]


def _log(folder: Path) -> Any:
    """Read the only complete log of a folder as Inspect does."""
    from inspect_ai.log import list_eval_logs, read_eval_log

    logs = [read_eval_log(info) for info in list_eval_logs(str(folder))]
    [log] = [log for log in logs if log.status == "success"]
    return log


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def finished(bank: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Folder of a run that came to its end, and what the command said."""
    folder = tmp_path_factory.mktemp("finished")
    figure = ("--figure", "trace", "-o", str(folder / "trace.svg"))
    done = _run(bank, folder, *_asking(folder)[:-1], *figure)
    assert done.exit_code == 0, done.output
    return folder, done


@pytest.fixture(scope="module")
def killed(run: Run, bank: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run leaves behind that was killed in the middle."""
    folder = tmp_path_factory.mktemp("killed")
    command, how = _command(bank, folder, *_asking(folder)), f"{N_KILLED} SIGKILL"
    assert -signal.SIGKILL == run(*command, EVALSTATS_TEST_END_AFTER=how).returncode
    assert N_KILLED == len(_asked(folder))
    return folder


@pytest.fixture(scope="module")
def taken_up(run: Run, bank: Path, killed: Path) -> subprocess.CompletedProcess[str]:
    """What the same command said when it went on."""
    return run(*_command(bank, killed, *_asking(killed)[:-1], "--format", "json"))


def test_fewer_items_are_asked_and_the_log_is_an_ordinary_annotated_one(
    finished: tuple[Path, Any],
) -> None:
    """Inspect's own reader has the samples asked, the others as early stops with the reason.

    A figure lies where it was asked for.
    """
    folder, done = finished
    log = _log(folder / "logs")
    stops = log.results.early_stopping.early_stops
    block = log.metadata["evalstats"]["adaptive"]
    shown = log.results.scores[0].metrics
    score = block["full_score"]

    assert N_ASKED == len(_asked(folder)) == len(log.samples) == block["n_items"]
    assert {f"{N_ASKED} items asked"} == {stop.reason for stop in stops}
    assert set(map(str, range(N_ITEMS))) == {str(stop.id) for stop in stops} | set(_asked(folder))
    assert score["low"] < score["estimate"] < score["high"]
    assert score["low"] == shown["evalstats_full_score_ci95_lo"].value
    assert not any(name.startswith("evalstats_ci95") for name in shown)
    assert ", full score" in log.metadata["evalstats_summary"]
    assert "plain" == log.eval.task
    assert not list((folder / "logs").glob("*.answers"))
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "</svg>" in (folder / "trace.svg").read_text()


def test_it_is_no_other_model_than_in_a_run_of_all_items(
    full: Path, finished: tuple[Path, Any]
) -> None:
    """How a task was asked is no setting of the model; the task's own arguments are those of all.

    Each argument that only one log named made two models of one. The file of questions is an
    argument of the task that only one run was given.
    """
    folder, _ = finished
    adaptive, whole = read(folder / "logs", full, runs="all")

    assert dict(adaptive.settings).keys() - dict(whole.settings).keys() == {"task.asked"}
    assert set(whole.settings) <= set(adaptive.settings)


def test_a_file_of_one_task_needs_no_name_of_it(tmp_path: Path, bank: Path) -> None:
    """Of several it does, and they are named."""
    file = tmp_path / "one.py"
    file.write_text(
        f"import sys\nsys.path.append({str(TASKS.parent)!r})\n"
        "from inspect_ai import task\nimport adaptive_tasks\n\n\n"
        "@task(name='plain')\ndef only():\n    return adaptive_tasks.plain()\n"
    )
    task = adaptive_task(str(file), str(bank))

    assert "plain" == task.name
    with pytest.raises(Exception, match=r"has 3 tasks \(.*\): name one"):
        adaptive_task(str(TASKS), str(bank), {"bank": str(bank), "asked": "x"})


def test_errors_of_inspect_are_said_without_its_markup() -> None:
    """Brackets that are no markup stay."""
    assert "ValueError: ERROR: pip install openai" == plain_error(
        ValueError("[bold]ERROR[/bold]: pip install\nopenai")
    )
    assert "ValueError: list[/int]" == plain_error(ValueError("list[/int]"))


def test_our_reader_gives_the_predicted_score_of_all_items(finished: tuple[Path, Any]) -> None:
    """Items stopped early are not missing answers, nor are those asked a sample of all."""
    logs = finished[0] / "logs"
    [found] = read(logs).responses
    result = _log(logs).results.early_stopping.metadata

    assert N_ASKED == len(found.item_ids) == np.isfinite(found.item_means).sum()
    assert found.predicted is not None
    assert found.predicted.estimate == result["full_score"]["estimate"]
    assert len(found.predicted.item_ids) == found.predicted.n_in_bank == N_ITEMS
    assert found.population is None


def test_standard_output_is_for_results_alone(taken_up: subprocess.CompletedProcess[str]) -> None:
    """Inspect says hello to standard output; a JSON reader must not see that."""
    found = json.loads(taken_up.stdout)
    assert N_ASKED == found["results"][0]["n_items"]
    assert "adapt run inspect" == found["evalstats"]["command"]
    assert "inspect_ai" in taken_up.stderr


def test_items_are_chosen_by_what_they_tell_not_by_their_place(
    bank: Path, finished: tuple[Path, Any]
) -> None:
    """The first item is the one that a session alone would ask first."""
    asked = _asked(finished[0])
    plan = Plan(bank=bank, max_items=N_ASKED)
    session = plan.session(plan.load())
    for _ in range(N_ASKED):
        place = int(session.next()[0])
        session.record(place, float(int(session.bank.item_ids[place]) % 3 > 0))

    assert [step.item for step in session.answers] == asked
    assert [str(i) for i in range(N_ASKED)] != sorted(asked, key=int)


def test_a_killed_run_goes_on_without_asking_again(
    killed: Path, taken_up: subprocess.CompletedProcess[str]
) -> None:
    """And its samples are in the log that it comes to in the end."""
    assert taken_up.returncode == 0, taken_up.stderr
    log = _log(killed / "logs")

    assert f"going on: {N_KILLED} items are answered" in taken_up.stderr
    assert {1} == set(Counter(_asked(killed)).values())
    assert set(_asked(killed)) == {str(sample.id) for sample in log.samples}
    assert N_ASKED == len(_asked(killed)) == log.metadata["evalstats"]["adaptive"]["n_items"]
    assert N_ITEMS - N_ASKED == len(log.results.early_stopping.early_stops)
    assert [] == log.metadata["evalstats"]["adaptive"]["notes"]
    assert log.results.scores[0].scored_samples == N_ASKED
    assert 2 == len(list((killed / "logs").glob("*")))  # the log of the killed run is left alone


@pytest.mark.usefixtures("taken_up")
def test_the_log_of_a_killed_run_is_passed_over_beside_that_which_went_on(
    finished: tuple[Path, Any], killed: Path, tmp_path: Path
) -> None:
    """By itself it is an error still, and beside a run that began anew it is left out."""
    logs = sorted((killed / "logs").glob("*.eval"))
    [broken_off] = [log for log in logs if log.name not in _log(killed / "logs").location]
    both = CliRunner().invoke(main, ["report", str(killed / "logs")])
    named = CliRunner().invoke(main, ["report", *map(str, logs)])
    alone = CliRunner().invoke(main, ["report", str(broken_off)])
    shutil.copytree(finished[0] / "logs", tmp_path, dirs_exist_ok=True)
    shutil.copy(broken_off, tmp_path)
    anew = CliRunner().invoke(main, ["report", str(tmp_path)])

    assert [0, 0, 2, 1] == [done.exit_code for done in (both, named, alone, anew)]
    assert "runs broken off, which another log took to their end" in both.output
    assert broken_off.name in "".join(both.output.split())
    assert "left out" not in both.output
    assert "left out" in anew.output


def test_how_a_killed_run_asked_is_no_setting_of_the_model(killed: Path) -> None:
    """Its log says no more than what the adaptive task was given."""
    found = read(killed / "logs", include_incomplete=True, runs="all").responses

    assert {"task.asked", "task.fail"} >= {name for r in found for name, _ in r.settings}


def test_without_the_log_of_the_killed_run_its_answers_count_all_the_same(
    bank: Path, killed: Path, tmp_path: Path
) -> None:
    """They are in the trace, and the log says so."""
    before = (killed / "asked.txt").read_text().splitlines()[:N_KILLED]
    (tmp_path / "asked.txt").write_text("\n".join(before) + "\n")
    state = tmp_path / "state"
    plan = Plan(bank=bank, max_items=N_ASKED)
    whole = plan.load()
    about = {"model": MODEL, "task": "plain"}
    about["task_args"] = json.dumps({"asked": str(tmp_path / "asked.txt")})
    session, saved = plan.session(whole), AnswersFile(state, whole, about)
    for item in _asked(tmp_path):
        session.record(int(item), float(int(item) % 3 > 0))
        saved.append(session)
    saved.note(log=str(tmp_path / "gone.eval"))
    saved.close()
    done = _run(bank, tmp_path, *_asking(tmp_path), "--state", str(state))
    assert done.exit_code == 0, done.output
    log = _log(tmp_path / "logs")
    found = log.results.early_stopping

    assert {1} == set(Counter(_asked(tmp_path)).values())
    assert set(_asked(tmp_path)) == {step["item"] for step in found.metadata["trace"]}
    assert N_ASKED - N_KILLED == len(log.samples)
    assert N_KILLED == sum(stop.reason == ANSWERED for stop in found.early_stops)
    assert f"{N_KILLED} items were answered in an earlier run" in found.metadata["notes"][0]
    again = _run(bank, tmp_path, *_asking(tmp_path), "--state", str(state))
    assert again.exit_code == 0
    shutil.rmtree(tmp_path / "logs")
    gone = _run(bank, tmp_path, *_asking(tmp_path), "--state", str(state))
    assert 2 == gone.exit_code
    assert "whose log is gone" in gone.stderr
    assert N_ASKED == len(_asked(tmp_path))


def test_a_cancelled_run_says_how_to_go_on(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle: exit code 1, no traceback, and the same command goes on."""
    with monkeypatch.context() as patch:
        patch.setenv("EVALSTATS_TEST_END_AFTER", "3 SIGINT")
        cancelled = _run(bank, tmp_path, *_asking(tmp_path))

    assert 1 == cancelled.exit_code
    assert "cancelled: the same command again goes on" in cancelled.stderr
    assert "Traceback" not in cancelled.stderr
    assert _run(bank, tmp_path, *_asking(tmp_path)).exit_code == 0
    assert {1} == set(Counter(_asked(tmp_path)).values())
    assert set(_asked(tmp_path)) == {str(s.id) for s in _log(tmp_path / "logs").samples}


def test_a_finished_test_can_be_made_stricter(bank: Path, tmp_path: Path) -> None:
    """With a state file of one's own: what is known is not asked again."""
    more = ("-T", f"asked={tmp_path / 'asked.txt'}", "--state", str(tmp_path / "state"), "-q")
    assert _run(bank, tmp_path, "--max-items", "3", *more).exit_code == 0
    shutil.move(tmp_path / "logs", tmp_path / "first")
    state = tmp_path / "state"
    state.write_text(state.read_text().replace("/logs/", "/first/"))
    assert _run(bank, tmp_path, "--max-items", "5", *more).exit_code == 0
    log = _log(tmp_path / "logs")

    assert 5 == len(_asked(tmp_path)) == len(set(_asked(tmp_path))) == len(log.samples)
    assert "5 items asked" == log.results.early_stopping.metadata["stopped"]


def test_an_error_ends_the_run_as_it_does_in_inspect(bank: Path, tmp_path: Path) -> None:
    """Answers are kept; with --no-fail-on-error others are asked in the place of those."""
    more = ("-T", "fail=even")
    failed = _run(bank, tmp_path, *_asking(tmp_path), *more)
    assert 2 == failed.exit_code
    assert "did not end well: ValueError('no answer')" in failed.stderr
    assert "again goes on from" in failed.stderr
    before = [item for item in _asked(tmp_path) if int(item) % 2]
    done = _run(bank, tmp_path, *_asking(tmp_path), *more, "--no-fail-on-error")
    assert done.exit_code == 0, done.output
    found = _log(tmp_path / "logs").results.early_stopping.metadata

    assert N_ASKED == found["n_items"]
    assert all(int(step["item"]) % 2 for step in found["trace"])
    assert all(1 == Counter(_asked(tmp_path))[item] for item in before)
    assert any("not scored (errors)" in note for note in found["notes"])


def test_a_run_without_any_answer_is_an_error(bank: Path, tmp_path: Path) -> None:
    """Nothing can be said then, and that is said."""
    done = _run(bank, tmp_path, *_asking(tmp_path), "-T", "fail=all", "--no-fail-on-error")

    assert 2 == done.exit_code
    assert "no sample was scored" in done.stderr
    assert N_ITEMS == len(set(_asked(tmp_path))) == len(_asked(tmp_path))


@pytest.mark.parametrize(
    ("settings", "fail", "epochs"),
    [
        pytest.param({"max_samples": 1}, "", 1, marks=pytest.mark.validation),
        ({"max_samples": 5, "retry_on_error": 1}, "once", 1),
        ({"max_samples": 3, "fail_on_error": False}, "even", 2),
        pytest.param({"max_samples": 100}, "", 2, marks=pytest.mark.validation),
        ({"max_samples": 100, "limit": 20, "retry_on_error": 1}, "once", 2),
    ],
)
def test_it_comes_to_its_end_with_few_slots_errors_epochs_and_a_limit(
    bank: Path, tmp_path: Path, settings: dict[str, Any], fail: str, epochs: int
) -> None:
    """By Inspect's own means, as ``inspect eval evalstats_plugin/adaptive`` runs it."""
    from inspect_ai import eval as run_eval

    arguments = {"asked": str(tmp_path / "asked.txt"), "fail": fail}
    test = adaptive_task(f"{TASKS}@plain", str(bank), arguments, max_items=8)
    folder = str(tmp_path / "logs")
    run_eval(test, model=MODEL, log_dir=folder, display="none", epochs=epochs, **settings)
    log = _log(tmp_path / "logs")
    found = log.results.early_stopping
    takes = len(log.samples) + len(found.early_stops)

    assert 8 == found.metadata["n_items"]
    assert epochs * settings.get("limit", N_ITEMS) == takes
    assert (2 if fail == "once" else 1) == max(
        Counter((tmp_path / "asked.txt").read_text().splitlines()).values()
    )
    if settings["max_samples"] == 100:
        assert 8 * epochs == len(log.samples)
        assert {epochs} == {step["trials"] for step in found.metadata["trace"]}
    else:
        assert any("--max-samples" in note for note in found.metadata["notes"])


def test_a_task_can_stop_itself_for_several_models(bank: Path, tmp_path: Path) -> None:
    """Two lines in the task; each model has a session of its own."""
    from inspect_ai import eval as run_eval

    logs = run_eval(
        f"{TASKS}@stopped",
        task_args={"bank": str(bank), "asked": str(tmp_path / "asked.txt")},
        model=["mockllm/a", "mockllm/b"],
        max_tasks=2,
        max_samples=N_ITEMS,
        log_dir=str(tmp_path),
        display="none",
    )

    assert ["success"] * 2 == [log.status for log in logs]
    lines = [line.split()[0] for line in (tmp_path / "asked.txt").read_text().splitlines()]
    assert {"a": N_ASKED, "b": N_ASKED} == Counter(lines)


def test_without_samples_in_the_log_nothing_is_run(bank: Path, tmp_path: Path) -> None:
    """Inspect would ask our early stopping nothing then, and run everything."""
    from inspect_ai import eval as run_eval

    arguments = {"asked": str(tmp_path / "asked.txt")}
    test = adaptive_task(f"{TASKS}@plain", str(bank), arguments, max_items=8)
    folder = str(tmp_path)
    [log] = run_eval(test, model=MODEL, log_dir=folder, display="none", log_samples=False)

    assert "error" == log.status
    assert log.error is not None
    assert "leave out --no-log-samples" in log.error.message
    assert not (tmp_path / "asked.txt").exists()


def test_inspect_retries_a_killed_test_adaptively(run: Run, bank: Path, tmp_path: Path) -> None:
    """``inspect eval evalstats_plugin/adaptive`` without a state file, then ``eval-retry``."""
    arguments = {
        "task": f"{TASKS}@plain",
        "bank": str(bank),
        "task_args": json.dumps({"asked": str(tmp_path / "asked.txt")}),
        "max_items": str(N_ASKED),
    }
    named = [part for name, value in arguments.items() for part in ("-T", f"{name}={value}")]
    shown = ["--log-dir", str(tmp_path / "logs"), "--display", "none"]
    # As a program that lies anywhere: the checkout's own metadata are not those of an installation.
    killed = run(
        *("eval", "evalstats_plugin/adaptive", "--model", MODEL, *named, *shown),
        module="inspect_ai", folder=tmp_path, EVALSTATS_TEST_END_AFTER="4 SIGKILL",
    )  # fmt: skip
    assert -signal.SIGKILL == killed.returncode
    [left] = (tmp_path / "logs").glob("*.eval")
    retried = run("eval-retry", left, *shown, module="inspect_ai", folder=tmp_path)
    assert 0 == retried.returncode, retried.stderr
    log = _log(tmp_path / "logs")

    assert N_ASKED == len(_asked(tmp_path)) == len(set(_asked(tmp_path))) == len(log.samples)
    assert N_ASKED == log.results.early_stopping.metadata["n_items"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--budget", "0"], "budget 0 is not above 0"),
        (["--max-items", "0"], "max_items 0 is not above 0"),
        (["--budget", "5"], "the bank has no costs of items"),
        (["--goal", "compare:nobody"], "no model is called 'nobody'"),
        (["--limit", "0"], "0 is not in the range"),
        (["-T", "asked"], "write it like NAME=VALUE"),
        (["-T", "asked=[1"], "the value is not YAML"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--figure", "trace", "-o", "trace.txt"], "the name of this file must end in .png"),
        (["--model", "nope/x"], "cannot load model 'nope/x'"),
        (["--bank", "nope.parquet"], "does not exist"),
        (["--bank", str(TASKS)], "give an item bank"),
        (["--state", str(TASKS)], "no file of answers"),
    ],
)
def test_what_makes_no_sense_is_one_message(
    bank: Path, tmp_path: Path, more: list[str], said: str
) -> None:
    """Exit code 2, no traceback, nothing written."""
    done = _run(bank, tmp_path, *more)

    assert 2 == done.exit_code
    assert said in done.stderr
    assert 1 == sum(line.lower().startswith("error:") for line in done.stderr.splitlines())
    assert not list(tmp_path.iterdir())


def test_a_metric_that_is_not_there_is_named(bank: Path, tmp_path: Path) -> None:
    """Before the first call of the model."""
    done = _run(bank, tmp_path, "--test-metric", "nothing")

    assert 2 == done.exit_code
    assert not [path for path in tmp_path.glob("*.answers") if path.read_text()]
    assert "name one as the test's metric" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bank_that_does_not_fit_is_refused(full: Path, tmp_path: Path) -> None:
    """Another version of the task, another task, no item that may be asked, no item there."""
    made = [_bank(full, tmp_path / "other.parquet", item3="inspect:other")]
    for name, changed in (
        ("task", {"tasks": "elsewhere"}),
        ("none", {"tasks": "plain", "reasons": ["misfit"] * 3}),
        ("away", {"tasks": "plain", "item_ids": ["a", "b", "c"]}),
    ):
        bank = ItemBank.from_arrays(np.ones(3), np.zeros(3), **changed)  # pyright: ignore[reportArgumentType]
        made.append(bank.save(tmp_path / name))
    said = ["plain / 3", "no items of task", "may be asked", "are not in the harness"]
    for path, expected in zip(made, said, strict=True):
        done = _run(path, tmp_path)
        assert 2 == done.exit_code
        assert expected in done.stderr
    assert not (tmp_path / "logs").exists()


def test_answers_of_another_test_or_run_are_refused(bank: Path, tmp_path: Path) -> None:
    """Another model, another bank, other arguments of the task; or a run that still goes on."""
    whole, state = ItemBank.load(bank), tmp_path / "state"
    session = Plan(bank=bank).session(whole)
    session.record(0, 1.0)
    about = {"model": MODEL, "task": "plain", "task_args": "{}"}
    for changed, said in (
        ({"model": "mockllm/b"}, "answers of model 'mockllm/b', not 'mockllm/a'"),
        ({"task_args": '{"asked": "x"}'}, "answers of task_args"),
        ({"bank": "another"}, "answers of bank"),
        ({}, "in use by another adaptive run"),
    ):
        state.unlink(missing_ok=True)
        saved = AnswersFile(state, whole, {**about, **changed})
        saved.append(session)
        if changed:
            saved.close()
        written = state.read_bytes()
        done = _run(bank, tmp_path, "--state", str(state))
        assert 2 == done.exit_code
        assert said in done.stderr
        assert written == state.read_bytes()
    assert not (tmp_path / "logs").exists()


def test_questions_are_known_again_whatever_they_are_made_of(tmp_path: Path) -> None:
    """A fingerprint made before the run is that of the log, also with choices in another order."""
    from inspect_ai import eval as run_eval

    run_eval(f"{TASKS}@kinds", model=MODEL, log_dir=str(tmp_path), display="none")
    [found] = read(tmp_path).responses
    assert found.item_hashes is not None
    bank = ItemBank.from_arrays(
        np.ones(5),
        np.zeros(5),
        item_ids=found.item_ids.astype(str).tolist(),
        tasks="kinds",
        hashes=found.item_hashes.astype(str).astype(object),
    )
    path = bank.save(tmp_path / "bank.parquet")
    for changed, code in (({}, 0), ({"item_ids": ["2", "1", "3", "4", "5"]}, 2)):
        other = replace(bank, **{name: np.asarray(ids) for name, ids in changed.items()})
        command = [part.replace("@plain", "@kinds") for part in _command(path, tmp_path)]
        other.save(path)
        assert code == CliRunner().invoke(main, command).exit_code


def test_recorded_answers_are_asked_again_as_the_run_asked_them(bank: Path, full: Path) -> None:
    """Replay says what the run says, beside the score of all answers."""
    arguments = ["--bank", str(bank), "--max-items", str(N_ASKED), "--format", "json"]
    done = CliRunner().invoke(main, ["adapt", "replay", str(full), *arguments])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)["results"][0]
    right = sum(1 for i in range(N_ITEMS) if i % 3)

    assert right / N_ITEMS == row["observed"]
    assert N_ASKED == row["n_items"]
    assert row["full_score_low"] <= row["observed"] <= row["full_score_high"]


@pytest.mark.parametrize(
    ("scorers", "metrics", "named", "refused"),
    [
        (["match"], ["score"], False, False),
        (["match"], ["score"], True, True),
        (["match"], [], False, False),
        (["match", "model_graded"], ["match"], True, False),
        (["match", "model_graded"], ["match:x"], False, False),
        (["match", "model_graded"], ["score"], False, True),
        (["match", "model_graded"], [], False, True),
    ],
)
def test_the_metric_is_settled_before_anything_is_asked(
    *, scorers: list[str], metrics: list[str], named: bool, refused: bool
) -> None:
    """The bank's name of it does not matter where a task has one scorer."""
    with pytest.raises(SelectionError, match="name one") if refused else nullcontext():
        check_scorers(scorers, metrics, named=named)

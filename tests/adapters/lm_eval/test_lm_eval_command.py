"""``evalstats-plugin lm-eval`` is lm-eval, and annotation afterwards can never spoil it."""

import json
import logging
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NoReturn

import datasets
import pytest
from click.testing import CliRunner, Result
from counted_lm_eval import few_tasks
from lm_eval.loggers import EvaluationTracker

import evalstats_plugin
from evalstats_plugin.cli import main

GENERATOR = Path(__file__).parents[2] / "generate" / "lm_eval"
RUN = ("run", "--model", "dummy", "--include_path", "tasks", "--tasks", "es_mc", "--limit", "4")


@pytest.fixture(autouse=True)
def in_the_generator_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[None, None, None]:
    """Run where the tasks find their documents, and leave no cache or log handler behind."""
    monkeypatch.chdir(GENERATOR)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    # Even for local documents the hub is asked first, for a minute where there is no network.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with few_tasks():
        yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def annotated(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Take down what is asked to be annotated, in the place of annotating it."""
    paths: list[Path] = []

    def annotate(path: Path, *, in_place: bool) -> None:
        assert in_place
        assert json.loads(path.read_text())["results"]
        paths.append(path)

    monkeypatch.setattr(evalstats_plugin, "annotate", annotate, raising=False)
    return paths


def lm_eval(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["lm-eval", *map(str, arguments)])


@pytest.fixture
def saving(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a run in the place of lm-eval's that only saves: a real one takes seconds."""

    def set_up(output: Path | None, exit_code: int | None = None) -> None:
        def cli_evaluate() -> None:
            tracker = EvaluationTracker(output_path=output and str(output))
            tracker.save_results_aggregated({"results": {"t": {"acc,none": 1.0}}})
            if exit_code is not None:
                sys.exit(exit_code)

        monkeypatch.setattr("lm_eval.__main__.cli_evaluate", cli_evaluate)

    return set_up


def test_a_run_is_annotated_when_it_has_ended(tmp_path: Path):
    """A real run, from its arguments to the annotated results file."""
    result = lm_eval(*RUN, "--output_path", tmp_path / "out", "--log_samples")

    (results,) = (tmp_path / "out").glob("*/results_*.json")
    assert result.exit_code == 0
    assert "|es_mc|" in result.stdout
    assert f"annotated {results}" in result.stderr
    rows = json.loads(results.read_text())["evalstats"]["intervals"]
    row = next(row for row in rows if row["metric"] == "acc,none")
    limits = f"[{row['low']:.4f}, {row['high']:.4f}]"
    assert f"\n  es_mc acc,none {row['estimate']:.4f} {limits}\n" in result.stderr
    assert len(list((tmp_path / "out").glob("*/samples_es_mc_*.jsonl"))) == 1


@pytest.mark.parametrize("name", ["out", "out.json"])
def test_the_file_saved_is_the_file_annotated(
    name: str, tmp_path: Path, annotated: list[Path], saving: Callable[..., None]
):
    """lm-eval makes a folder per model, or puts the time into the name that was given."""
    saving(tmp_path / name)

    lm_eval("run")

    assert annotated == list(tmp_path.rglob("*.json"))
    assert len(annotated) == 1


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(2), KeyError()])
def test_a_failed_annotation_costs_nothing(
    error: BaseException,
    tmp_path: Path,
    saving: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
):
    """The results are as lm-eval wrote them, with its exit code; the failure is told."""

    def annotate(*_: Any, **__: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(evalstats_plugin, "annotate", annotate, raising=False)
    saving(tmp_path / "out")

    result = lm_eval("run")

    (results,) = (tmp_path / "out").glob("*/results_*.json")
    assert result.exit_code == 0
    assert json.loads(results.read_text())["results"] == {"t": {"acc,none": 1.0}}
    assert f"{results} is as lm-eval wrote it: not annotated" in result.stderr


def test_a_run_that_saves_nothing_says_so(annotated: list[Path], saving: Callable[..., None]):
    """Without --output_path there is no file to annotate."""
    saving(None)

    result = lm_eval("run")

    assert result.exit_code == 0
    assert "is --output_path given?" in result.stderr
    assert annotated == []


@pytest.mark.parametrize("exit_code", [0, 3])
def test_lm_eval_ending_in_an_exit_code_keeps_it(
    exit_code: int, tmp_path: Path, annotated: list[Path], saving: Callable[..., None]
):
    """What was saved before the end is annotated, whatever the exit code."""
    saving(tmp_path / "out.json", exit_code)

    result = lm_eval("run")

    assert result.exit_code == exit_code
    assert len(annotated) == 1


def test_an_exception_of_lm_eval_is_passed_on(
    annotated: list[Path], monkeypatch: pytest.MonkeyPatch
):
    """A crash of the harness looks as it does without us."""

    def cli_evaluate() -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", cli_evaluate)

    result = lm_eval("run")

    assert isinstance(result.exception, ZeroDivisionError)
    assert annotated == []


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (["-h"], 0, "usage: lm-eval"),
        (["--help"], 0, "usage: lm-eval"),
        (["run", "--no-such-option", "x"], 2, "unrecognized arguments: --no-such-option"),
    ],
)
def test_arguments_and_exit_codes_are_lm_evals(arguments: list[str], exit_code: int, said: str):
    """Options that we have too are lm-eval's here, and so are its errors."""
    result = lm_eval(*arguments)

    assert result.exit_code == exit_code
    assert said in result.output


def test_arguments_arrive_untouched(monkeypatch: pytest.MonkeyPatch):
    """Braces, equals signs, short options and empty texts reach lm-eval as they were typed."""
    seen: list[str] = []
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: seen.extend(sys.argv))
    arguments = ["run", "-m", "hf", "-xw", "--gen_kwargs", '{"a": 1}', "--seed=1,2", "-v", "", "-"]

    lm_eval(*arguments)

    assert seen == ["lm-eval", *arguments]


def test_watching_leaves_nothing_behind(annotated: list[Path]):
    """After the command, lm-eval and the interpreter are as before."""
    save, own_arguments = EvaluationTracker.save_results_aggregated, sys.argv

    lm_eval("--help")

    assert EvaluationTracker.save_results_aggregated is save
    assert sys.argv is own_arguments
    assert annotated == []

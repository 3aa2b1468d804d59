"""``evalstats-plugin rescore`` writes what lm-eval would have written, and says what changed."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from lm_eval_logs import as_summed

from evalstats_plugin import read
from evalstats_plugin.adapters.lm_eval.replay.run import PROVENANCE
from evalstats_plugin.cli import main
from evalstats_plugin.errors import install_hint

FIXTURES = Path(__file__).parents[3] / "fixtures"
RUNS = FIXTURES / "logs" / "lm_eval" / "0.4.13"
TASKS = FIXTURES.parent / "tests" / "generate" / "lm_eval" / "tasks"


def rescore(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["rescore", *map(str, arguments)])


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder."""
    return {
        path.relative_to(folder).as_posix(): as_summed(path.read_bytes().decode()).encode()
        for path in folder.rglob("*")
        if path.is_file()
    }


def without_provenance(content: bytes) -> bytes:
    """Take out the one block that only a rescored log has."""
    data = json.loads(content)
    data.pop(PROVENANCE, None)
    return json.dumps(data, indent=2, ensure_ascii=False).encode()


@pytest.mark.parametrize("run", ["out_dummy", "out_file", "out_samples", "out_limit"])
def test_scoring_the_same_again_writes_the_same_files(run: str, tmp_path: Path):
    """Names, folders and bytes are lm-eval's; only the results file says that it was rescored."""
    result = rescore(RUNS / run, "--include-path", TASKS, "--output", tmp_path)

    assert result.exit_code == 0, result.output
    written = contents(tmp_path)
    results = next(name for name in written if name.endswith(".json"))
    assert PROVENANCE.encode() in written[results]
    written[results] = without_provenance(written[results])
    assert written == contents(RUNS / run)


def test_the_table_shows_each_value_before_and_after(tmp_path: Path):
    """A run without scores gets some; the number 999 of --predict_only is no value."""
    result = rescore(RUNS / "out_predict_only", "--include-path", TASKS, "--output", tmp_path)

    assert result.exit_code == 0
    assert "es_gen  exact_match,strict-match      –    →  0.9750 ± 0.0250" in result.stdout
    assert "es_mc   brier_score,none              –    →  0.1090" in result.stdout
    assert "999" not in result.stdout


def test_json_is_the_only_thing_on_standard_output(tmp_path: Path):
    """What lm-eval prints while it scores goes to standard error."""
    result = rescore(
        *(RUNS / "out" / "models__m2", "-t", "es_bin", "--bootstrap-iters", 100),
        *("--format", "json", "--output", tmp_path),
    )

    data = json.loads(result.stdout)
    assert data["evalstats"]["command"] == "rescore"
    (row,) = (row for row in data["results"] if row["metric"] == "acc,none")
    assert row["old"] == row["new"]
    assert row["old_std_error"] == pytest.approx(row["new_std_error"], rel=1e-12)
    assert Path(row["output"]).is_file()


def test_a_log_without_the_task_is_left_as_it_is(tmp_path: Path):
    """The second run of the folder has no es_one: a note, and the first one is written."""
    result = rescore(RUNS / "out" / "models__m0", "-t", "es_one", "--output", tmp_path)

    assert result.exit_code == 0
    assert "note: left as it is: no task 'es_one' in this run" in result.stderr
    assert len(list(tmp_path.rglob("results_*.json"))) == 1


def test_one_log_of_two_that_cannot_be_scored_is_an_error(tmp_path: Path):
    """Exit code 1, and the whole one is written."""
    logs = shutil.copytree(RUNS / "out" / "models__m0", tmp_path / "logs")
    cut(max(logs.glob("samples_es_mc_*")), 30)
    result = rescore(logs, "-t", "es_mc", "--output", tmp_path / "new")

    assert result.exit_code == 1
    assert "holds only a part of what was scored: es_mc (30 of 60 items)" in result.stderr
    assert len(list((tmp_path / "new").rglob("results_*.json"))) == 1


def cut(samples: Path, n: int) -> None:
    """Keep the first lines of a file."""
    samples.write_bytes(b"".join(samples.read_bytes().splitlines(keepends=True)[:n]))


def test_a_part_is_scored_on_request_and_says_so(tmp_path: Path):
    """The new log is whole in itself: 30 items of a task of 60."""
    logs = shutil.copytree(RUNS / "out_file", tmp_path / "logs")
    cut(next(logs.glob("samples_es_mc_*")), 30)
    result = rescore(logs, "-t", "es_mc", "--allow-partial", "--output", tmp_path / "new")

    (results,) = (tmp_path / "new").glob("run_*.json")
    data = json.loads(results.read_text())
    assert result.exit_code == 0, result.output
    assert "note: task 'es_mc' is scored in part: 30 of 60 items" in result.stderr
    assert data["n-samples"]["es_mc"] == {"original": 60, "effective": 30}
    (r,) = read(results, metric="acc")
    assert (len(r.item_ids), r.population, r.is_whole) == (30, 60, True)


@pytest.mark.parametrize("form", ["list", "task"])
def test_filters_come_from_a_file_or_a_pattern(form: str, tmp_path: Path):
    """A YAML file with a filter list, alone or in a task, and NAME=REGEX are all taken."""
    steps = [{"function": "regex", "regex_pattern": r"(\d)"}, {"function": "take_first"}]
    listed: Any = [{"name": "first-digit", "filter": steps}]
    file = tmp_path / "filters.yaml"  # JSON is YAML
    file.write_text(json.dumps(listed if form == "list" else {"filter_list": listed}))

    result = rescore(
        *(RUNS / "out_file", "-t", "es_gen", "--filter", file, "--filter", r"digits=(\d+)"),
        *("--output", tmp_path / "new"),
    )

    assert result.exit_code == 0, result.output
    (results,) = (tmp_path / "new").glob("run_*.json")
    row = json.loads(results.read_text())["results"]["es_gen"]
    assert {"exact_match,first-digit", "exact_match,digits"} < set(row)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--filter", "digits"], "neither a YAML file nor NAME=REGEX"),
        (["--filter", "x=("], "cannot be used"),
        (["--filter", "nowhere.yaml"], "cannot be used"),
        (["--metric", "nonsense"], "cannot be scored with 'nonsense'"),
        (["--task", "nonsense"], "no task 'nonsense'"),
    ],
)
def test_bad_input_is_exit_code_2(arguments: list[str], message: str, tmp_path: Path):
    """What cannot be used is named, and nothing is written."""
    result = rescore(RUNS / "out_file", *arguments, "--output", tmp_path / "new")

    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "new").exists()


def test_the_source_is_never_written_to():
    """An output folder that would hit the log itself is refused."""
    before = contents(RUNS / "out_file")

    result = rescore(RUNS / "out_file", "--output", RUNS / "out_file")

    assert result.exit_code == 2
    assert "is the log itself" in result.stderr
    assert contents(RUNS / "out_file") == before


def test_what_was_rescored_before_is_not_overwritten(tmp_path: Path):
    """A second run of the same command is refused rather than mixed with the first."""
    rescore(RUNS / "out_samples", "--output", tmp_path)
    before = contents(tmp_path)

    result = rescore(RUNS / "out_samples", "--output", tmp_path)

    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert contents(tmp_path) == before


def test_without_lm_eval_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The command is listed without the harness, and names the extra when it is run."""
    monkeypatch.setitem(sys.modules, "lm_eval.api.group", None)

    result = rescore(RUNS / "out_samples", "--output", tmp_path)

    assert result.exit_code == 2
    assert install_hint("lm-eval") in result.stderr


def test_an_lm_eval_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Before 0.4.12 lm-eval builds tasks in another way."""
    monkeypatch.delattr("lm_eval.api.group.Group")

    result = rescore(RUNS / "out_samples", "--output", tmp_path)

    assert result.exit_code == 2
    assert "needs lm-eval 0.4.12 or later" in result.stderr

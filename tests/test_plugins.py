"""The plugin contract: every hook has a test here, and a plugin cannot hurt another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import evalstats_plugin
from evalstats_plugin import hookspecs, plugins
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.cli import main
from evalstats_plugin.errors import LogError, PluginError
from evalstats_plugin.logs.reading import read
from evalstats_plugin.logs.texts import item_texts
from evalstats_plugin.plugins import load_plugins, new_manager

HERE = Path(__file__).parent
LOGS = HERE.parent / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
HOOKS = [name for name in vars(new_manager().hook) if name.startswith("evalstats_")]
HEAD = "from evalstats_plugin import hookimpl\n"

Install = Callable[[str, str], None]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_proven_by_the_third_party_plugin(hook: str) -> None:
    """The package that the next tests install implements each hook, and they use each."""
    plugin = (HERE / "third_party" / "evalstats_toybench" / "__init__.py").read_text()

    assert f"def {hook}(" in plugin


@pytest.fixture(scope="module")
def site(build: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the third-party plugin: unpack its wheel, as pip does; return the folder."""
    source = shutil.copytree(HERE / "third_party", tmp_path_factory.mktemp("source") / "package")
    site = tmp_path_factory.mktemp("site")
    shutil.unpack_archive(build(source), site, "zip")
    return site


@pytest.fixture
def toybench(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have this process find the plugin."""
    monkeypatch.syspath_prepend(site)
    plugins._load.cache_clear()
    yield
    plugins._load.cache_clear()


@pytest.fixture
def toy_log(tmp_path: Path) -> Path:
    """Write a log of the imaginary harness: 15 right of 15."""
    log = tmp_path / "run.toy"
    answers = {f"q{i}": 1 for i in range(15)}
    log.write_text(json.dumps({"toybench": "sums", "model": "toy", "answers": answers}))
    return log


def _call(*arguments: str | Path, given: str | None = None, **environment: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", **environment}).invoke(
        main, [*map(str, arguments)], input=given, prog_name="evalstats-plugin"
    )


def test_an_installed_plugin_is_listed_with_version_and_hooks(site: Path) -> None:
    """Its entry point is found, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "evalstats_plugin", "plugins", "--format", "json"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    plugin = next(p for p in json.loads(done.stdout)["results"] if p["name"] == "toybench")

    assert plugin["distribution"] == "evalstats-toybench 2.3"
    assert sorted(HOOKS) == plugin["hooks"]


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_reads_its_format(toy_log: Path) -> None:
    """evalstats_find_logs finds the log in a folder, evalstats_read_log reads it."""
    done = _call("report", toy_log.parent, "--format", "json")
    [row] = json.loads(done.stdout)["results"]

    assert (
        row["model"], row["task"], row["n_items"], row["estimate"],
    ) == ("toy", "sums", 15, 1.0)  # fmt: skip
    assert row["low"] == pytest.approx(0.05 ** (1 / 16), abs=1e-9)


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_reads_results_in_memory(toy_log: Path) -> None:
    """evalstats_read_results answers for what is piped in."""
    done = _call("report", "-", "--format", "csv", given=toy_log.read_text())

    assert "toy,sums,accuracy,15" in done.stdout


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_reads_comparisons(tmp_path: Path) -> None:
    """evalstats_read_contests answers for its own logs; a plain file needs no plugin."""
    pairs = [{"first": "a", "second": "b", "better": "a"}]
    log, plain = tmp_path / "run.toy", tmp_path / "more.jsonl"
    log.write_text(json.dumps({"toybench": "sums", "pairs": pairs}))
    plain.write_text('{"first": "b", "second": "c", "better": "tie"}\n')
    made = evalstats_plugin.read_contests(log, plain, columns={"winner": "better"})

    assert (made.players, made.outcome.tolist()) == (("a", "b", "c"), [1.0, 0.5])


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_reads_texts(toy_log: Path) -> None:
    """evalstats_read_texts answers for the items that are asked for."""
    texts = item_texts(read(toy_log), {"sums": ["q3", "none"]})

    assert {place: (text.question, text.where) for place, text in texts.items()} == {
        ("toy", "sums", "q3"): ("How much is q3?", "line q3")
    }


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_asks_a_model() -> None:
    """evalstats_generator gives what puts a text to a model of its own, and to no other."""
    call = load_plugins().call

    assert call("evalstats_generator", model="toy/first")("Which?") == "[[A]]"
    assert call("evalstats_generator", model="toy/other") is None


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_annotates_and_strips(toy_log: Path) -> None:
    """evalstats_annotate_log writes the block and removes it."""
    original = toy_log.read_bytes()
    annotated = _call("annotate", toy_log, "--in-place")
    block = json.loads(toy_log.read_text())["evalstats"]
    _call("annotate", toy_log, "--in-place", "--strip")

    assert f"{toy_log}\n" == annotated.stdout
    assert block["intervals"][0]["task"] == "sums"
    assert original == toy_log.read_bytes()


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_annotates_results_in_memory(toy_log: Path) -> None:
    """evalstats_annotate_results is what annotate_results calls."""
    results = evalstats_plugin.logs.annotate_results(json.loads(toy_log.read_text()))

    assert results["evalstats"]["intervals"][0]["n_items"] == 15


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_adds_a_method(toy_log: Path) -> None:
    """evalstats_methods gives a method that --method can name."""
    done = _call("report", toy_log, "--method", "toy-everything", "--format", "json")
    [row] = json.loads(done.stdout)["results"]

    assert (row["method"], row["low"], row["high"]) == ("toy-everything", 0.0, 1.0)


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_adds_a_method_for_comparisons(toy_log: Path) -> None:
    """The same hook: a method says which question it answers."""
    log = json.loads(toy_log.read_text())
    answers = {item: i % 2 for i, item in enumerate(log["answers"])}
    (toy_log.parent / "other.toy").write_text(
        json.dumps({**log, "model": "other", "answers": answers})
    )
    done = _call("compare", toy_log.parent, "--method", "toy-anything", "--format", "json")
    [row] = json.loads(done.stdout)["results"]

    assert (row["method"], row["low"], row["high"]) == ("toy-anything", -1.0, 1.0)
    assert "toy-anything" in _call("plugins", "--methods").stdout
    assert _call("report", toy_log, "--method", "toy-anything").exit_code == 2


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_adds_a_command() -> None:
    """evalstats_commands gives a command that --help lists and that runs."""
    assert "toy Say hello." in " ".join(_call("--help").stdout.split())
    assert _call("toy").stdout == "hello from toybench\n"


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_drives_its_harness(tmp_path: Path) -> None:
    """evalstats_harness_commands gives a command that adapt run --help lists and that runs."""
    bank = ItemBank.from_arrays([1.0] * 5, range(5)).save(tmp_path / "bank.parquet")

    assert "toy Ask the toy model." in " ".join(_call("adapt", "run", "--help").stdout.split())
    assert "stopped: 3 items asked\n" == _call("adapt", "run", "toy", "--bank", bank).stdout


@pytest.mark.usefixtures("toybench")
def test_an_installed_plugin_adds_a_format(toy_log: Path, tmp_path: Path) -> None:
    """evalstats_exporters adds a format to export --to and export(), with its options."""
    written = tmp_path / "again" / "log.toy"
    written.parent.mkdir()
    done = _call("export", toy_log, "--output", written)
    again = json.loads(_call("report", written, "--format", "json").stdout)["results"]
    loud = evalstats_plugin.export(read(toy_log), written, to="toy", overwrite=True, loud=True)

    assert f"{written}\n" == done.stdout
    assert "note: 0 more responses are not held" in done.stderr
    assert [("toy", "sums", 15, 1.0)] == [
        (row["model"], row["task"], row["n_items"], row["estimate"]) for row in again
    ]
    assert loud.notes == ("0 more responses are not held",)
    assert json.loads(written.read_text())["model"] == "TOY"


@pytest.mark.usefixtures("toybench")
def test_a_plugin_can_be_blocked_by_name(toy_log: Path) -> None:
    """By option or by environment; then nobody knows its logs."""
    by_option = _call("--no-plugin", "toybench", "report", toy_log)
    by_environment = _call("report", toy_log, EVALSTATS_NO_PLUGINS="toybench")
    unknown = _call("--no-plugin", "toybech", "report", toy_log)

    for done in (by_option, by_environment):
        assert done.exit_code == 2
        assert "is not a log that an installed adapter knows (every_eval_ever, " in done.stderr
    assert unknown.exit_code == 2
    assert "no plugin is called toybech; installed are every_eval_ever, " in unknown.stderr
    assert "tabular, toybench" in unknown.stderr


def test_a_plugin_that_cannot_be_imported_is_named_and_hurts_nobody(installed: Install) -> None:
    """The report goes on and says what is missing."""
    installed("broken", "import a_module_that_is_not_there")
    notes = read(LOGS, task="es_one").notes

    assert any(
        "plugin 'broken' is not in use: ModuleNotFoundError: No module named" in n for n in notes
    )


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("print('hello')", "PluginError: it prints while it is loaded: 'hello\\n'"),
        ("import os\nos.write(1, b'hello')", "PluginError: it prints while it is loaded: 'hello'"),
        ("import sys\nsys.exit(0)", "SystemExit: 0"),
        ("raise BaseException('no')", "BaseException: no"),
        ("raise GeneratorExit", "GeneratorExit: "),
    ],
)
def test_a_plugin_that_does_more_than_load_is_left_out(
    installed: Install, capfd: pytest.CaptureFixture[str], source: str, problem: str
) -> None:
    """Named, while the others are in use; standard output is for results."""
    name = f"loud_{len(source)}"
    installed(name, f"{HEAD}{source}\n")

    plugins = load_plugins()

    assert problem == {p.name: p.problem for p in plugins.listing}[name]
    assert name not in plugins.modules
    assert {"lm_eval", "inspect_ai"} <= plugins.modules.keys()
    assert "" == capfd.readouterr().out


def test_all_plugins_of_others_can_be_left_out(installed: Install) -> None:
    """By one name; those that come with the package stay."""
    installed("other", HEAD)

    plugins = load_plugins(["*"])

    assert ("other",) == plugins.blocked()
    assert plugins.installed


def test_a_misspelt_hook_is_an_error_of_that_plugin(installed: Install) -> None:
    """Without a check pluggy would ignore it in silence."""
    installed("misspelt", HEAD + "@hookimpl\ndef evalstats_raed_log(path): return None\n")
    plugin = next(p for p in load_plugins().listing if p.name == "misspelt")

    assert "unknown hook 'evalstats_raed_log'" in plugin.problem
    assert {
        "every_eval_ever",
        "helm",
        "inspect_ai",
        "lighteval",
        "lm_eval",
        "mapped",
        "tabular",
    } == {p.name for p in load_plugins().listing if not p.problem}


def test_a_hook_with_an_unknown_argument_is_an_error_of_that_plugin(installed: Install) -> None:
    """The problem says which argument."""
    installed("wrong", HEAD + "@hookimpl\ndef evalstats_read_log(file): return None\n")
    plugin = next(p for p in load_plugins().listing if p.name == "wrong")

    assert "'file'" in plugin.problem


BROKEN = {
    "import_error": "import a_module_that_is_not_there",
    "import_exit": "import sys; sys.exit(3)",
    "import_syntax": "def (",
    "misspelt_hook": "@hookimpl\ndef evalstats_raed_log(log): return None",
    "finds_number": "@hookimpl\ndef evalstats_find_logs(files): return 5",
    "finds_list": "@hookimpl\ndef evalstats_find_logs(files): return list(files)",
    "finds_elsewhere": "from pathlib import Path\n@hookimpl\ndef evalstats_find_logs(files):\n"
    "    return {Path('/etc/passwd'): []}",
    "finds_raising": "@hookimpl\ndef evalstats_find_logs(files): return 1 / 0",
    "reads_text": "@hookimpl\ndef evalstats_read_log(log): return 'scores'",
    "reads_none_in_list": "@hookimpl\ndef evalstats_read_log(log): return [None]",
    "reads_raising": "@hookimpl\ndef evalstats_read_log(log): raise KeyError('model')",
    "reads_exiting": "import sys\n@hookimpl\ndef evalstats_read_log(log): sys.exit(3)",
    "texts_unasked": "from evalstats_plugin.hookspecs import ItemText\n@hookimpl\n"
    "def evalstats_read_texts(log): return {('es_one', 'unasked'): ItemText()}",
    "texts_number": "from evalstats_plugin.hookspecs import ItemText\n@hookimpl\n"
    "def evalstats_read_texts(log): return {('es_one', '0'): ItemText(8)}",
    "methods_number": "@hookimpl\ndef evalstats_methods(): return 7",
    "methods_rival": "from evalstats_plugin import Method\n@hookimpl\ndef evalstats_methods():\n"
    "    return [Method('wilson', 'binary', 'rival:f', '', '')]",
    "methods_family": "from evalstats_plugin import Method\n@hookimpl\ndef evalstats_methods():\n"
    "    return [Method('new', 'quantum', 'rival:f', '', '')]",
    "exporters_number": "@hookimpl\ndef evalstats_exporters(): return 3",
    "exporters_rival": "from evalstats_plugin.hookspecs import Exporter\n@hookimpl\n"
    "def evalstats_exporters(): return [Exporter('csv', '', 'rival:f')]",
    "commands_text": "@hookimpl\ndef evalstats_commands(): return ['rm']",
    "commands_escape": "from evalstats_plugin.hookspecs import Command\n@hookimpl\n"
    "def evalstats_commands(): return [Command('a\\x1b[2J', '', 'rival:f')]",
    "harness_raising": "@hookimpl\ndef evalstats_harness_commands(): raise RuntimeError('down')",
    "generator_number": "@hookimpl\ndef evalstats_generator(model): return 8",
}
"""Plugins that fail, by name, each in its own way."""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Copy logs of lm-eval, and add a file that no adapter knows: every plugin is asked."""
    copied = shutil.copytree(LOGS, tmp_path / "logs")
    for folder in {path.parent for path in copied.rglob("results_*.json")}:
        (folder / "notes.txt").touch()
    return copied


def test_broken_plugins_are_named_and_change_nothing_of_others(
    installed: Install, logs: Path
) -> None:
    """All of them at once: reading, methods, formats and commands are as without them."""

    def everything() -> tuple[object, ...]:
        plugins = load_plugins()
        found = [read(path, task="es_one") for path in (logs, min(logs.rglob("results_*.json")))]
        rows = [(r.model, r.task, r.metric, r.scores.tolist()) for some in found for r in some]
        return (
            rows, item_texts(found[0], {"es_one": ["0"]}), plugins.methods(),
            plugins.commands(), plugins.harness_commands(), plugins.exporters(),
        )  # fmt: skip

    before = everything()
    for name, code in BROKEN.items():
        installed(name, HEAD + code + "\n")
    after = everything()
    with pytest.raises(PluginError, match="'generator_number' returned 8 in evalstats_generator"):
        load_plugins().call("evalstats_generator", only="generator_number", model="x")
    named = " ".join(read(logs, task="es_one").notes)

    assert after == before
    assert [name for name in BROKEN if repr(name) not in named] == ["generator_number"]
    assert "\x1b" not in named


def test_a_slow_plugin_without_an_answer_is_named(
    installed: Install, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(
        "slow",
        HEAD + "import time\n@hookimpl\ndef evalstats_read_log(log):\n    time.sleep(0.3)\n",
    )
    monkeypatch.setattr("evalstats_plugin.plugins.SLOW", 0.2)

    notes = read(min(logs.rglob("results_*.json")), task="es_one").notes

    said = "plugin 'slow' took 0 s in evalstats_read_log: --no-plugin slow leaves it out"
    assert said in notes


def test_what_a_hook_must_return_is_part_of_the_error(installed: Install, logs: Path) -> None:
    """Plugin, hook, what it returned and what is needed."""
    installed("finds_number", HEAD + BROKEN["finds_number"] + "\n")

    assert (
        "plugin 'finds_number' returned 5 in evalstats_find_logs. Return a mapping from each log, "
        "which is one of the files given or their folder, to a list of the other files of its run."
    ) in read(logs, task="es_one").notes


@pytest.mark.parametrize("name", ["import_error", "finds_number", "methods_rival"])
def test_strict_plugins_make_a_failure_an_error(
    installed: Install, monkeypatch: pytest.MonkeyPatch, logs: Path, name: str
) -> None:
    """`--strict-plugins`, or the environment variable."""
    monkeypatch.setenv("EVALSTATS_STRICT_PLUGINS", "1")
    installed(name, HEAD + BROKEN[name] + "\n")

    with pytest.raises(PluginError, match=f"plugin '{name}'"):
        load_plugins().methods() and read(logs, task="es_one")


def test_a_log_that_its_own_plugin_cannot_read_is_left_out(installed: Install, logs: Path) -> None:
    """As a broken log is, whether or not broken ones are skipped; alone it is an error."""
    installed(
        "greedy",
        HEAD + "@hookimpl\ndef evalstats_find_logs(files):\n"
        "    return {f.path: [] for f in files if f.path.suffix == '.own'}\n"
        "@hookimpl\ndef evalstats_read_log(log):\n"
        "    return 1 / 0 if log.path.suffix == '.own' else None\n",
    )
    (logs / "run.own").touch()

    notes = read(logs, task="es_one").notes

    assert any(
        note.startswith("left out: plugin 'greedy' failed in evalstats_read_log: ZeroDivision")
        for note in notes
    )
    with pytest.raises(PluginError, match="plugin 'greedy' failed in evalstats_read_log: ZeroDiv"):
        read(logs / "run.own")


def test_a_log_nobody_knows_is_refused(tmp_path: Path) -> None:
    """A JSON file of another program, and the log of another harness."""
    other = tmp_path / "2026-01-01_task.json"
    other.write_text('{"run_spec": {"name": "mmlu"}, "stats": [], "results": {}}')

    with pytest.raises(LogError, match="is not a log that an installed adapter knows"):
        read(other)


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_with_its_signature(hook: str) -> None:
    """The page for authors of plugins holds the exact call."""
    import inspect

    names = ", ".join(inspect.signature(getattr(hookspecs, hook)).parameters)
    page = (HERE.parent / "docs" / "reference" / "plugins.md").read_text()

    assert f"{hook}({names})" in page


@pytest.mark.needs("torch")
def test_every_public_name_is_there_and_listed() -> None:
    """`__all__` is complete, sorted, and loads."""
    assert sorted(evalstats_plugin.__all__) == evalstats_plugin.__all__
    assert [*dir(evalstats_plugin), "__version__"] == [
        *(name for name in evalstats_plugin.__all__ if name != "__version__"),
        "__version__",
    ]
    for name in evalstats_plugin.__all__:
        assert getattr(evalstats_plugin, name) is not None


def test_a_file_that_one_plugin_claims_is_not_offered_to_the_next(
    installed: Install, tmp_path: Path
) -> None:
    """Tables come last, so that a harness's samples are no table."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "samples.jsonl").write_text('{"model": "a", "item": 1, "score": 1}\n')
    (logs / "run.log").touch()
    installed(
        "first",
        HEAD + "@hookimpl\ndef evalstats_find_logs(folder, files):\n"
        "    return {folder / 'run.log': [file.path for file in files]}\n"
        "@hookimpl\ndef evalstats_read_log(log): return []\n",
    )

    with pytest.raises(LogError, match=r"run\.log holds no scores at all"):
        read(logs)

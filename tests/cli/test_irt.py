"""`evalstats-plugin irt`, `annotate --fit irt`, and what importing costs."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from in_process import digests
from lm_eval_logs import write_log
from scipy import special

from evalstats_plugin import annotate, fit_irt, read, strip
from evalstats_plugin.cli import main
from evalstats_plugin.cli.shell import fitting
from evalstats_plugin.errors import install_hint
from evalstats_plugin.irt import IRTFit
from evalstats_plugin.irt.methods import ESTIMATORS, ITEM_MODELS

pytestmark = pytest.mark.needs("torch")

ROOT = Path(__file__).parents[2]
INSPECT = ROOT / "fixtures" / "logs" / "inspect_ai" / "0.3.285" / "models"
LM_EVAL = ROOT / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def seven(tmp_path: Path) -> Path:
    """Give the logs of seven models on two tasks; m6 took one of them, item 5 has a wrong key."""
    rng = np.random.default_rng(3)
    ability = np.linspace(-1.5, 1.5, 7)
    difficulty = rng.standard_normal(80)
    right = rng.random((7, 80)) < 1 / (1 + np.exp(difficulty - ability[:, None]))
    scores = right.astype(float)
    scores[:, 5] = [1, 1, 1, 1, 0, 0, 0]
    for i, row in enumerate(scores.tolist()):
        tasks = {"easy": row[:50], "hard": row[50:]}
        write_log(tmp_path / "logs", f"m{i}", tasks if i < 6 else {"easy": row[:50]})
    return tmp_path / "logs"


def _json(command: str, *arguments: str | Path) -> dict[str, Any]:
    done = CliRunner().invoke(
        main, ["irt", command, *map(str, arguments), "--format", "json", "-q"]
    )
    assert 0 == done.exit_code, done.output
    return json.loads(done.stdout)


def _refused(*arguments: str | Path, command: str = "fit") -> str:
    done = CliRunner().invoke(main, ["irt", command, *map(str, arguments)])

    assert 2 == done.exit_code, done.output
    assert "" == done.stdout
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def test_help_names_every_item_model_and_estimator() -> None:
    """Names with hyphens are broken at line ends."""
    shown = "".join(CliRunner().invoke(main, ["irt", "fit", "--help"]).stdout.split())
    assert ",".join(ITEM_MODELS) in shown
    assert f"auto,{','.join(ESTIMATORS)}" in shown


def test_one_scale_holds_models_that_took_different_tasks(seven: Path) -> None:
    """As the function says: the rows are the fit's own, the ablest first."""
    whole = _json("fit", seven)
    rows = whole["results"]
    fit = fit_irt(read(seven).matrix(), rng=0)
    frame = fit.to_frame("models").set_index("model")

    assert [50 if row["model"] == "m6" else 80 for row in rows] == [r["n_items"] for r in rows]
    assert sorted((r["estimate"] for r in rows), reverse=True) == [r["estimate"] for r in rows]
    for row in rows:
        found = [row[name] for name in ("estimate", "std_error", "low", "high")]
        expected = frame.loc[row["model"], ["ability", "std_error", "low", "high"]]
        np.testing.assert_allclose(found, expected.to_numpy(float), rtol=1e-12)
        right = read(seven / row["model"]).matrix().scores.mean()
        assert right == pytest.approx(row["score"])
    assert ("easy, hard", "acc", 7) == (rows[0]["task"], rows[0]["metric"], rows[0]["n_models"])
    assert ("2pl", "mml-items") == (rows[0]["item_model"], rows[0]["estimator"])
    assert "items are integrated out" in whole["fit"]["diagnostics"]["reason"]


def test_differences_come_from_the_whole_covariance(seven: Path) -> None:
    """Not from the two standard errors, which would be too wide or too narrow."""
    rows = _json("fit", seven, "--baseline", "m3", "-c", "0.9")["differences"]
    fit = fit_irt(read(seven).matrix(), rng=0)

    assert 6 == len(rows)
    for row in rows:
        a, b = (fit.models.index(name) for name in ("m3", row["model_b"]))
        variance = fit.ability_covariance[[a, b, a], [a, b, b]] @ [1, 1, -2]
        difference = fit.ability[b] - fit.ability[a]
        z, width = difference / variance**0.5, special.ndtri(0.95) * variance**0.5
        found = [row[n] for n in ("difference", "low", "high", "p_value", "prob_better")]
        expected = [difference - width, difference + width, 2 * special.ndtr(-abs(z))]
        np.testing.assert_allclose(found, [difference, *expected, special.ndtr(z)], rtol=1e-9)
        assert row["p_value"] <= row["p_adjusted"]


def test_items_to_look_at_come_first_with_their_reasons(seven: Path) -> None:
    """The one with the wrong key leads; the others go from hard to easy."""
    items = _json("items", seven)["results"]
    rest = [item["difficulty"] for item in items if not item["notes"]]

    assert ("easy", "5") == (items[0]["task"], items[0]["item"])
    assert "its key may be wrong" in items[0]["notes"][0]
    assert sorted(rest, reverse=True) == rest
    assert 80 == len({(item["task"], item["item"]) for item in items})
    assert {6, 7} == {item["n_models"] for item in items}


def test_the_tables_fit_eighty_columns_and_explain_themselves(run: Run, seven: Path) -> None:
    """No cell is cut; a sentence says what ability is, and what ran and why."""
    models, items = run("irt", "fit", seven, "--baseline", "m0"), run("irt", "items", seven)
    said = " ".join((models.stdout + items.stdout).split())

    for done in (models, items):
        assert done.returncode == 0, done.stderr
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "…" not in done.stdout
    assert "Ability on easy, hard (acc)" in said
    assert "Ability compared with m0" in said
    assert "55 more are in --format csv" in said
    assert "0 = a model that answers the average item right half of the time" in said
    assert "1 = a logit on an average item" in said
    assert "estimator mml-items: 7 models, fewer than 300" in said
    assert "Converged after" in said
    assert "its key may be wrong" in said


def test_csv_is_one_table(seven: Path) -> None:
    """Of models, of differences, or of items, as asked."""
    first: dict[str, list[str]] = {}
    for asked in ("fit", "fit --baseline m0", "items"):
        command, *options = asked.split()
        done = CliRunner().invoke(main, ["irt", command, str(seven), "--format", "csv", *options])
        lines = list(csv.DictReader(StringIO(done.stdout)))
        first[asked] = [str(len(lines)), *lines[0]]
    markdown = CliRunner().invoke(main, ["irt", "fit", str(seven), "--format", "markdown"]).stdout

    assert first["fit"][:3] == ["7", "model", "task"]
    assert first["fit --baseline m0"][:3] == ["6", "model_a", "model_b"]
    assert first["items"][:3] == ["80", "item", "task"]
    assert markdown.count("| m") == 7


def test_a_saved_fit_is_a_bank_for_models_one_at_a_time(seven: Path, tmp_path: Path) -> None:
    """A model of the calibration lands near where it was, its items kept as they are."""
    bank = tmp_path / "bank.parquet"
    whole = _json("fit", seven, "--save", bank, "--item-model", "rasch")
    scored = _json("score", seven / "m6", "--bank", bank)
    there = next(row for row in whole["results"] if row["model"] == "m6")

    assert ["m6"] == [row["model"] for row in scored["results"]]
    assert there["estimate"] == pytest.approx(scored["results"][0]["estimate"], abs=0.25)
    assert scored["fit"]["diagnostics"]["n_items"] == 50
    assert IRTFit.load(bank).item_model == "rasch"


def test_a_later_fit_is_on_the_scale_of_a_saved_one(seven: Path, tmp_path: Path) -> None:
    """`--zero bank`, as `irt link` does; a bank and its zero need each other."""
    bank = tmp_path / "bank.parquet"
    first = _json("fit", seven, "--save", bank)
    again = _json("fit", seven / "m0", seven / "m6", "--zero", "bank", "--bank", bank)
    linked = _json("link", seven / "m0", seven / "m6", "--to", bank)
    scored = _json("score", seven / "m6", "--bank", bank)
    version = IRTFit.load(bank).version

    assert again["results"] == linked["results"]
    assert version == again["fit"]["hyperparameters"]["link"]["bank"]
    assert version == scored["fit"]["diagnostics"]["bank"]
    assert first["fit"]["identification"] in again["fit"]["identification"]
    assert "need each other" in _refused(seven, "--zero", "bank")
    assert "need each other" in _refused(seven, "--bank", bank)


def test_ordered_scores_have_models_of_their_own(tmp_path: Path) -> None:
    """Right epochs are levels; what such fits have not is refused before logs are read."""
    rng = np.random.default_rng(0)
    for i, ability in enumerate(np.linspace(-1.5, 1.5, 6)):
        chance = 1 / (1 + np.exp(rng.standard_normal(30) - ability))
        grades = rng.binomial(4, chance) / 4
        write_log(tmp_path / "logs", f"m{i}", {"judged": grades.tolist()})
    file = tmp_path / "fit.parquet"
    shown = _json("fit", tmp_path / "logs", "--item-model", "graded", "--save", file)
    scores = [row["score"] for row in shown["results"]]

    assert "graded" == shown["fit"]["item_model"]
    assert [0, 0.25, 0.5, 0.75, 1] == shown["fit"]["diagnostics"]["levels"]
    assert scores == pytest.approx(sorted(scores, reverse=True), abs=0.1)
    set_prior = ("--item-model", "gpcm", "--set", "prior=none,max_steps=20")
    assert "none" == _json("fit", tmp_path / "logs", *set_prior)["fit"]["diagnostics"]["prior"]
    for option in (("--bootstrap", "9"), ("--guessing", "0.2"), ("--uncertainty", "all")):
        assert "ordered scores" in _refused("none", "--item-model", "graded", *option)
    assert "ordered scores" in _refused(tmp_path / "logs", "--bank", file, command="score")


def test_the_same_seed_gives_the_same_numbers(seven: Path) -> None:
    """To the last digit."""
    for command in ("fit", "items"):
        one, two = (_json(command, seven, "--seed", "5") for _ in range(2))

        assert one["results"] == two["results"]


def test_options_of_the_estimator_are_set_by_name(seven: Path) -> None:
    """Numbers, pairs of numbers, truths and names; the optimum is that of any optimiser."""
    newton, gradients, shrunk = (
        _json("fit", seven, "--estimator", "map", "--item-model", "rasch", "--set", settings)
        for settings in ("strength=2", "strength=2,optimiser=lbfgs", "strength=2,ability_sd=0.1")
    )
    known = ("prior=weak,common_asymptotes=true,upper_prior=-4:0.5",)
    four = _json("fit", seven, "--estimator", "mml", "--item-model", "4pl", "--set", *known)["fit"]

    estimates = [[row["estimate"] for row in x["results"]] for x in (newton, gradients, shrunk)]
    assert estimates[0] == pytest.approx(estimates[1], abs=1e-5)
    assert max(estimates[2]) < max(estimates[0]) / 2
    assert (four["item_model"], four["diagnostics"]["prior"]) == ("4pl", "weak")


def test_several_metrics_are_refused_with_what_to_pass() -> None:
    """The one that most tasks have is the example."""
    said = _refused(LM_EVAL)

    assert "es_sub_a (acc, acc_norm)" in said
    assert "--metric 'acc'" in said
    rows = _json("fit", LM_EVAL, "--metric", "acc")["results"]
    assert ["models/m2", "models/m1", "models/m0"] == [row["model"] for row in rows]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--estimator", "mlm"), ("no estimator is called 'mlm'", "did you mean mml")),
        (("--item-model", "5pl"), ("no item model is called '5pl'", "rasch, 1pl, 2pl, 3pl, 4pl")),
        (("--estimator", "mml-items", "--item-model", "3pl"), ("fits rasch, 2pl, not '3pl'",)),
        (("--baseline", "m9"), ("no model is called 'm9'", "did you mean")),
        (("--confidence-level", "95"), ("confidence level 95", "between 0 and 1")),
        (("--task", "none"), ("none",)),
        (("--set", "strength=2"), ("needs to know the estimator", "--estimator NAME")),
        (("--set", "strength"), ("'strength' is not NAME=VALUE",)),
        (("--set", "a=1", "--estimator", "map"), ("no option of MapOptions is called 'a'",)),
        (("--set", "strength=x", "--estimator", "map"), ("'x' is not a number",)),
        (("--set", "ability_sd=-1", "--estimator", "map"), ("-1.0 is not a number above 0",)),
        (("--set", "upper_prior=2", "--estimator", "mml"), ("not two numbers such as",)),
    ],
)
def test_options_that_cannot_be_met(
    seven: Path, options: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    """One message, exit code 2."""
    said = _refused(seven, *options)

    for part in parts:
        assert part in said


def test_data_that_cannot_be_fitted(tmp_path: Path) -> None:
    """One model; nothing in common; scores beyond 1; nothing that differs; a bank of others."""
    write_log(tmp_path / "one", "m0", {"a": [0, 1, 1]})
    for name, scores in (("parts", [0, 1, 1]), ("scores", [0, 50, 100]), ("same", [1, 1, 1])):
        other = "b" if name == "parts" else "a"
        for model, task in (("m0", "a"), ("m1", other)):
            write_log(tmp_path / name, model, {task: scores})

    assert "ability is only defined in comparison, and there is 1 model" in _refused(
        tmp_path / "one"
    )
    assert "[1] m0 (3 items), [2] m1 (3 items)" in _refused(tmp_path / "parts")
    assert "score 50 of model 'm0' on item 1" in _refused(tmp_path / "scores")
    assert "every score is 1" in _refused(tmp_path / "same")
    not_a_fit = tmp_path / "x.parquet"
    not_a_fit.write_bytes(b"no Parquet")
    assert "x.parquet is no Parquet file, or damaged: give a file that a fit's save" in _refused(
        tmp_path / "one", "--bank", not_a_fit, command="score"
    )


@pytest.mark.parametrize("more", [[], ["--estimator", "mml"]], ids=["small", "mml"])
def test_without_torch_small_fits_work_and_others_say_what_to_install(
    seven: Path, more: list[str]
) -> None:
    """Not a traceback."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from evalstats_plugin.cli import main\n"
        f"main(['irt', 'fit', {str(seven)!r}, *{more}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "Traceback" not in done.stderr
    if more:
        assert 2 == done.returncode
        assert install_hint("models") in done.stderr
    else:
        assert (0, "") == (done.returncode, done.stderr)
        assert "estimator mml-items" in done.stdout


def test_large_fits_tell_their_cost_beforehand(
    seven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error; not when quiet."""
    monkeypatch.setattr(fitting, "LARGE", 1)
    told = CliRunner().invoke(main, ["irt", "fit", str(seven)])
    quiet = CliRunner().invoke(main, ["irt", "fit", str(seven), "--quiet"])

    assert told.stderr == (
        "7 models × 80 items: the fit needs 0.0 GiB of memory or more, and on one processor core "
        "a second or less\n"
    )
    assert "" == quiet.stderr


@pytest.mark.parametrize(
    ("code", "banned"),
    [
        ("import evalstats_plugin", {"torch", "numpy"}),
        (
            "from evalstats_plugin import fit_irt, irt, score_models\nirt.IRTFit",
            {"torch", "pandas"},
        ),
        (
            "from evalstats_plugin.cli import main\n"
            "main(['irt', 'fit', '--help'], standalone_mode=False)",
            {"torch", "numpy", "scipy", "pandas"},
        ),
    ],
)
def test_names_and_help_load_no_torch(code: str, banned: set[str]) -> None:
    """It costs more than a second."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n' + ' '.join(sys.modules))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert set() == set(done.stdout.splitlines()[-1].split()) & banned


def test_lm_eval_logs_carry_ability_and_items_to_look_at_and_lose_them_again(seven: Path) -> None:
    """Twice is the same; samples are not touched; stripping gives the original to the byte."""
    before = digests(seven)
    logs = annotate(seven, in_place=True, fits=["irt"], items="metadata")
    once = digests(seven)
    annotate(seven, in_place=True, fits=["irt"], items="metadata")
    twice = digests(seven)
    blocks = {log.parent.name: json.loads(log.read_text())["evalstats"] for log in logs}
    strip(seven, in_place=True)
    rows = {row["model"]: row for row in _json("fit", seven)["results"]}

    assert once == twice
    assert before == digests(seven)
    assert {str(log.relative_to(seven)) for log in logs} == {
        name for name in before if before[name] != once[name]
    }
    for model, block in blocks.items():
        (ability,) = block["abilities"]
        expected = rows[model]
        assert {name: expected[name] for name in ability if name != "notes"} == {
            name: value for name, value in ability.items() if name != "notes"
        }
        flagged = block["suspect_items"][0]
        assert ("easy", "5") == (flagged["task"], flagged["item"])
        assert "its key may be wrong" in flagged["reasons"][0]
    assert {"easy"} == {item["task"] for item in blocks["m6"]["suspect_items"]}


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_inspect_samples_carry_their_parameters_and_lose_them_again(tmp_path: Path) -> None:
    """Beside the classical statistics; the log says how able its model is."""
    from inspect_ai.log import read_eval_log

    for log in INSPECT.glob("*_arith_*.eval"):
        shutil.copy(log, tmp_path)
    before = {log: read_eval_log(str(log)).samples for log in tmp_path.glob("*.eval")}
    done = CliRunner().invoke(
        main, ["annotate", str(tmp_path), "--in-place", "--fit", "irt", "--items", "columns"]
    )
    rows = {row["model"]: row for row in _json("fit", tmp_path)["results"]}
    items = {item["item"]: item for item in _json("items", tmp_path)["results"]}

    assert 0 == done.exit_code, done.output
    assert 4 == len(before)
    for log in before:
        found = read_eval_log(str(log))
        (ability,) = found.metadata["evalstats"]["abilities"]
        assert rows[found.eval.model]["estimate"] == ability["estimate"]
        assert ("2pl", "mml-items", 4) == tuple(
            ability[name] for name in ("item_model", "estimator", "n_models")
        )
        assert "ability on match" in found.metadata["evalstats_summary"]
        for sample in found.samples:
            item = items[str(sample.id)]
            assert item["difficulty"] == sample.metadata["evalstats_difficulty"]
            assert item["discrimination"] == sample.metadata["evalstats_discrimination"]
            assert "evalstats_p" in sample.metadata
    strip(tmp_path, in_place=True)
    for log, samples in before.items():
        found = read_eval_log(str(log))
        assert "evalstats" not in found.metadata
        assert [s.metadata for s in samples] == [s.metadata for s in found.samples]
        assert [list(s.scores) for s in samples] == [list(s.scores) for s in found.samples]


def test_annotating_a_single_model_is_refused(seven: Path) -> None:
    """Ability is only defined in comparison; nothing is written."""
    before = digests(seven)
    done = CliRunner().invoke(main, ["annotate", str(seven / "m0"), "--in-place", "--fit", "irt"])

    assert 2 == done.exit_code
    assert "acc: ability is only defined in comparison, and there is 1 model" in done.stderr
    assert before == digests(seven)


def test_a_metric_without_a_scale_is_told_in_the_log(tmp_path: Path) -> None:
    """The others are annotated."""
    folder = tmp_path / "models"
    shutil.copytree(LM_EVAL, folder)
    log = annotate(folder, in_place=True, fits=["irt"])[-1]
    block = json.loads(log.read_text())["evalstats"]

    assert "acc" in {row["metric"] for row in block["abilities"]}
    assert "always1" not in {row["metric"] for row in block["abilities"]}
    assert any(n.startswith("no ability on always1: every score is 1") for n in block["notes"])

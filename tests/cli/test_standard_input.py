"""``report -``: standard input is read as the same file is, under the same options."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from evalstats_plugin import cli

NAMES = ("q", "right answer", "who", "Ünit", "level,2", "x=y")


def _report(path: str, *options: str, given: bytes | None = None) -> str:
    """Return CSV without the path of the log, which alone may differ."""
    done = CliRunner().invoke(cli.main, ["report", path, *options, "--format", "csv"], input=given)
    assert done.exit_code == 0, done.output
    return done.stdout.replace(f",{path},", ",standard input,")


def _table(rng: np.random.Generator) -> tuple[bytes, list[str]]:
    """Return a table whose columns only ``--columns`` tells apart, and its options."""
    item, score, model = (f"c{k}" for k in rng.permutation(9)[:3])
    n = int(rng.integers(5, 30))
    text = io.StringIO()
    rows = csv.writer(text, delimiter="\t" if rng.random() < 0.5 else ",")
    rows.writerow([item, score, model])
    for k in range(n):
        for name in ("m1", "m2"):
            rows.writerow([f"i{k}", int(rng.integers(0, 2)), name])
    columns = f"item={item},score={score},model={model}"
    return text.getvalue().encode(), ["--columns", columns]


def _matrix(rng: np.random.Generator) -> tuple[bytes, list[str]]:
    """Return a matrix with a row for each model, in which a number stands for a missing score."""
    code = float(rng.integers(2, 99))
    scores = rng.integers(0, 2, (int(rng.integers(2, 5)), 12)).astype(float)
    scores[0, :3] = code
    lines = [",".join(["model", *(f"q{k}" for k in range(12))])]
    lines += [",".join([f"m{i}", *map(str, row)]) for i, row in enumerate(scores.tolist())]
    return "\n".join(lines).encode(), ["--wide", "models", "--missing-code", f"{code:g}"]


def _mapped(rng: np.random.Generator, toml: Path) -> tuple[bytes, list[str]]:
    """Return JSON of no known tool, and the mapping that reads it."""
    items, item, score = (f"k{k}" for k in rng.permutation(9)[:3])
    toml.write_text(f'items = "{items}[*]"\nitem = ".{item}"\nscore = ".{score}"\nmodel = "who"\n')
    rows = [{item: f"i{k}", score: bool(rng.integers(0, 2))} for k in range(20)]
    return json.dumps({"who": "m", items: rows}).encode(), ["--mapping", str(toml)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["table", "matrix", "mapped"])
def test_what_is_piped_in_is_read_by_the_options_that_describe_it(
    kind: str, seed: int, tmp_path: Path
) -> None:
    """--columns, --wide, --missing-code and --mapping were once ignored, or the JSON refused."""
    rng = np.random.default_rng(seed)
    made = {
        "table": lambda: _table(rng),
        "matrix": lambda: _matrix(rng),
        "mapped": lambda: _mapped(rng, tmp_path / "map.toml"),
    }
    content, options = made[kind]()
    # The name of a table's file is the task where no column names one.
    file = tmp_path / ("standard input.json" if kind == "mapped" else "standard input.csv")
    file.write_bytes(content)

    assert _report("-", *options, given=content) == _report(str(file), *options)
    assert CliRunner().invoke(cli.main, ["report", "-"], input=content).exit_code == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "standard input is not JSON"),
        (b"5", "no object"),
        (b'["/etc/passwd"]', "no object"),
        (b'"/etc/passwd"', "no object"),
        (b'{"a": [1, "x"], "b": [1, 2]}', "cannot be read as a table"),
        (b'{"a": [1], "b": [1, 2]}', "cannot be read as a table"),
        (b'{"a": 1}', "of no harness"),
        (b"[" * 100_000, "standard input is not JSON"),
    ],
)
def test_what_no_harness_returned_is_refused(content: bytes, said: str) -> None:
    """In a line, and a text in it is never taken for a path."""
    done = CliRunner().invoke(cli.main, ["report", "-"], input=content)

    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.output


def test_an_option_that_does_not_fit_standard_input_is_refused() -> None:
    """A column that is not there, and a mapping that cannot be read."""
    given = b"item,score\na,1\nb,0\n"
    wrong = (["--columns", "item=question"], ["--mapping", "no-such.toml"])
    for options in wrong:
        done = CliRunner().invoke(cli.main, ["report", "-", *options], input=given)

        assert done.exit_code == 2
        assert done.stderr.startswith("error: ")

"""What every adapter must do, on every version of its harness that fixtures hold.

A new version is a new folder under fixtures/logs; an adapter that annotates adds a reader to OPENS.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import annotate, intervals, read, strip
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import LogError
from evalstats_plugin.logs.reading import find_logs
from evalstats_plugin.plugins import load_plugins
from evalstats_plugin.testing import check_adapter

LOGS = Path(__file__).parent.parent / "fixtures" / "logs"
SCHEMA = LOGS.parent / "schemas" / "every_eval_ever" / "eval.schema.json"
REFUSED = {"lm_eval/0.3.0"}
WITHOUT_VALUES = {
    "deepeval/4.3.1", "evalplus/2024-04", "promptfoo/0.118.10", "promptfoo/0.119.9"
}  # fmt: skip
"""Logs with scores of items alone, or with counts and sums of them."""
VERSIONS = [
    version
    for harness in sorted(LOGS.iterdir())
    for version in sorted(harness.iterdir())
    if f"{harness.name}/{version.name}" not in REFUSED
]
NEWEST = {version.parent: version for version in VERSIONS}.values()
"""The last version of each harness."""


def _open_lm_eval(log: Path) -> Any:
    from lm_eval.utils import make_table

    data = json.loads(log.read_text())
    data.setdefault("n-shot", {})
    return make_table(data)


def _open_inspect(log: Path) -> Any:
    from inspect_ai.log import read_eval_log

    return read_eval_log(str(log), header_only=True).eval.eval_id


def _open_every_eval_ever(log: Path) -> Any:
    import jsonschema

    found = json.loads(log.read_text())
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    return found["evaluation_id"], [
        r["score_details"]["score"] for r in found["evaluation_results"]
    ]


OPENS: dict[str, Callable[[Path], Any]] = {
    "every_eval_ever": _open_every_eval_ever,
    "inspect_ai": _open_inspect,
    "lm_eval": _open_lm_eval,
}


def _of(versions: list[Path]) -> pytest.MarkDecorator:
    names = [f"{v.parent.name}-{v.name}" for v in versions]
    return pytest.mark.parametrize("version", versions, ids=names)


versions = _of(VERSIONS)


def _scores(responses: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for r in responses:
        shown = np.nan_to_num(r.scores, nan=-1.0, posinf=-2.0).tolist()
        found.append((r.model, r.task, r.metric, r.item_ids.tolist(), shown, r.logged, r.notes))
    return found


@pytest.fixture
def copy(version: Path, tmp_path: Path) -> Path:
    """Give a copy of the logs of one version."""
    return shutil.copytree(version, tmp_path / version.name)


@cache
def _all_of(version: Path) -> tuple[Responses, ...]:
    """Return what the logs of a version hold; several tests only look at it."""
    return read(version, include_incomplete=True).responses


@versions
def test_an_adapter_reads_its_harness(version: Path) -> None:
    """Every log gives responses whose source is that harness."""
    found = _all_of(version)

    assert {version.parent.name} == {r.source.harness for r in found}
    assert any(len(r.item_ids) for r in found)
    for r in found:
        assert isinstance(r, Responses)


@versions
def test_our_own_adapters_keep_the_contract(version: Path, needs: Callable[..., None]) -> None:
    """As anybody's: `check_adapter` on the first log that holds scores of items.

    The log of the newest version is broken most often: the same reader reads them all.
    """
    if version.parent.name == "inspect_ai":
        needs(f"inspect_ai>={version.name}")  # An older one rewrites no log of it.
    held = [r.source.path for r in _all_of(version) if len(r.item_ids)]

    check_adapter(min(held), n_broken=8 if version in NEWEST else 2)


ANNOTATED = _of([v for v in VERSIONS if v.parent.name in OPENS])


@ANNOTATED
def test_an_annotated_copy_opens_in_its_harness(
    version: Path, tmp_path: Path, needs: Callable[..., None]
) -> None:
    """What the harness shows is as before, of a log of each folder."""
    _check_annotated(version, tmp_path / version.name, needs, every_log=False)


@pytest.mark.validation
@ANNOTATED
def test_every_annotated_copy_opens_in_its_harness(
    version: Path, tmp_path: Path, needs: Callable[..., None]
) -> None:
    _check_annotated(version, tmp_path / version.name, needs, every_log=True)


def _check_annotated(
    version: Path, copy: Path, needs: Callable[..., None], *, every_log: bool
) -> None:
    if version.parent.name == "inspect_ai":
        needs(f"inspect_ai>={version.name}")  # An older one rewrites no log of it.
    shutil.copytree(version, copy, ignore=None if every_log else _but_five)
    opens = OPENS[version.parent.name]
    before = _scores(read(copy, include_incomplete=True))
    logs = annotate(copy, in_place=True)
    shown = logs if every_log else {log.relative_to(copy).parts[0]: log for log in logs}.values()

    assert logs
    for log in shown:
        assert opens(version / log.relative_to(copy)) == opens(log)
    strip(copy, in_place=True)
    assert before == _scores(read(copy, include_incomplete=True))


def _but_five(folder: str, names: list[str]) -> list[str]:
    """Leave out what further models of Inspect answered: five logs have a task each."""
    return sorted(names)[5:] if Path(folder).name == "models" else []


@versions
def test_a_cut_off_log_is_an_error_of_that_log(version: Path, copy: Path) -> None:
    """Half of a file is refused by name."""
    log = find_logs([copy], load_plugins())[0]
    content = log.read_bytes()
    log.write_bytes(content[: len(content) // 2])

    with pytest.raises(LogError, match=log.name.replace("+", r"\+")):
        read(log)
    assert version.name == copy.name


@versions
def test_each_logged_value_is_the_estimate_of_its_row_or_has_a_reason(version: Path) -> None:
    """To 1e-12, tasks and groups; tests of the adapters have every shape of their logs."""
    logs: dict[Path, list[Responses]] = {}
    for r in _all_of(version):
        logs.setdefault(r.source.path, []).append(r)
    rows = [row for responses in logs.values() for row in intervals(responses, rng=0)]
    logged = [row for row in rows if row.logged is not None]

    assert logged or f"{version.parent.name}/{version.name}" in WITHOUT_VALUES
    for row in logged:
        same = row.estimate == pytest.approx(row.logged, rel=1e-12, abs=1e-12)
        assert same or row.notes, row

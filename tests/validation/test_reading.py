"""Does reading change anything? Every command on every folder, under watch. Writes reading.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import study
from planted import KINDS, plant, state
from works import COMMANDS, OF_VOTES, SLOW, changes, folders_of_logs, watcher

from evalstats_plugin.adapters.lm_eval.replay.confined import landlock_version

pytestmark = pytest.mark.validation

WORKS = (*COMMANDS, *SLOW, *OF_VOTES)


@pytest.mark.needs("torch", "inspect_ai>=0.3.285")
def test_nothing_that_reads_changes_anything(run: Callable[..., Any], tmp_path: Path) -> None:
    watch, root = watcher(run, tmp_path), tmp_path / "planted"
    planted = {kind: plant(root, kind) for kind in KINDS}
    before = state(root)
    names = {**dict.fromkeys(folders_of_logs(), "logs"), **{f: k for k, f in planted.items()}}
    results = watch((folder, work) for folder in names for work in WORKS)
    rows: list[dict[str, Any]] = []
    for name in ("logs", *KINDS):
        some = [r for r in results if names[Path(r["folder"])] == name]
        rows.append(
            {
                "folders": name,
                "n_folders": len(some) // len(WORKS),
                "runs": len(some),
                "ended_well": sum(r["code"] in (0, 1, 3, 4) for r in some),
                "events": sum(r["n_events"] for r in some),
                "changes": len(changes(some)),
            }
        )
    assert changes(results) == []
    assert state(root) == before
    whole = {
        "commands": len(WORKS),
        "folders": sum(row["n_folders"] for row in rows),
        "runs": sum(row["runs"] for row in rows),
        "thousand_events": round(sum(row["events"] for row in rows) / 1000),
        "changes": 0,
        "landlock": landlock_version(),
    }
    study.write_figures("reading", {"summary": lambda: [whole], "folders": lambda: rows})

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
    rows: list[dict[str, Any]] = []
    for name, folders in (("logs", folders_of_logs()), *((k, [f]) for k, f in planted.items())):
        results = [r for folder in folders for r in watch((folder, work) for work in WORKS)]
        rows.append(
            {
                "folders": name,
                "n_folders": len(folders),
                "runs": len(results),
                "ended_well": sum(r["code"] in (0, 1, 3, 4) for r in results),
                "events": sum(r["n_events"] for r in results),
                "changes": len(changes(results)),
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

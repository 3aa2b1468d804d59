"""Figures of reading: every log here by every adapter that knows it, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from figures import Run, changed, table_of

import evalstats_plugin as es
from evalstats_plugin.data.responses import Responses

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
OTHER = {"path", "measure", "source", "provenance", "groups", "beside", "unreduced", "predicted"}


def _told(responses: Responses) -> dict[str, Any]:
    source, origin = responses.source, responses.provenance
    told = {f.name: getattr(responses, f.name) for f in fields(responses) if f.name not in OTHER}
    return {
        **told, "measured": responses.measure, "groups": list(responses.groups),
        "run": [source.harness, source.version, source.when, source.run, source.is_annotated],
        "log": source.path.name, "of": [origin.task_version, origin.is_altered, origin.home],
        "prompts": origin.prompt_hashes, "forecast": responses.predicted,
        "epochs": None if responses.unreduced is None else responses.unreduced.scores,
        "also": [[each.metric, each.scores] for each in responses.beside],
    }  # fmt: skip


def _read(*paths: Path, **options: Any) -> dict[str, Any]:
    return table_of([_told(each) for each in es.read(*paths, **options)])


RUNS: Mapping[str, Mapping[str, Run]] = {
    f"{harness.name} {version.name}": {
        run.name: partial(_read, run) for run in sorted(version.iterdir())
    }
    for harness in sorted(LOGS.iterdir()) for version in sorted(harness.iterdir())
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_every_figure_is_what_it_was(run: str) -> None:
    """With the names of those that are not."""
    assert changed("reading", run, RUNS[run]) == []

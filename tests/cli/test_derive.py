"""``report --derive``: more metrics of labels that were logged."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from evalstats_plugin.cli import main

LOG = str(Path(__file__).parents[2] / "fixtures/logs/lm_eval/0.4.13/out/models__m1")


def test_derived_rows_follow_those_of_their_task() -> None:
    """43.3 % of the 60 items called positive are: 26, all of which are found."""
    result = CliRunner().invoke(
        main,
        [
            "report", LOG, "--task", "es_bin", "--derive", "precision", "--derive", "recall",
            "--format", "json",
        ],
    )  # fmt: skip
    rows = {r["metric"]: r for r in json.loads(result.stdout)["results"]}

    assert ["acc,none", "f1,none", "mcc,none", "precision,none", "recall,none"] == list(rows)
    assert (rows["precision,none"]["n_items"], rows["recall,none"]["n_items"]) == (60, 26)
    assert (rows["precision,none"]["estimate"], rows["recall,none"]["estimate"]) == (26 / 60, 1)
    assert rows["precision,none"]["logged"] is None


def test_a_metric_that_cannot_be_derived_is_refused_with_the_closest() -> None:
    """Exit code 2."""
    result = CliRunner().invoke(main, ["report", LOG, "--derive", "recal"])

    assert result.exit_code == 2
    assert "did you mean recall" in result.output

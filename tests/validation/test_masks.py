"""How well do item models predict answers held out by each mask? 150 classifiers; masks.json.

The masks of the AIMS book on 150 classifiers that read 797 digits: seven CPU minutes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import study
from parts.gallery import digits

from evalstats_plugin.irt import hold_out

pytestmark = pytest.mark.validation

MASKS = ("random", "rows", "columns", "L", "block", "shifted-rows", "shifted-columns")
MODELS: dict[str, dict[str, Any]] = {
    "rasch": {"item_model": "rasch"},
    "2pl": {"item_model": "2pl"},
    "factor, 2 dimensions": {"item_model": "factor", "dimensions": 2},
    "factor, 4 dimensions": {"item_model": "factor", "dimensions": 4},
}
SEEDS = (0, 1)


@pytest.mark.needs("torch")
def test_models_predict_better_than_the_share_of_right_answers() -> None:
    """Only of the hardest digits, models with one ability do not."""
    matrix = digits()
    rows: list[dict[str, Any]] = []
    for model, options in MODELS.items():
        found = hold_out(matrix, MASKS, seeds=SEEDS, **options)
        for mask in MASKS:
            of_mask = [row for row in found if row.mask == mask]
            rows.append(
                {
                    "model": model,
                    "mask": mask,
                    "auc": float(np.mean([row.auc for row in of_mask])),
                    "log_loss": float(np.mean([row.log_loss for row in of_mask])),
                    "base_log_loss": float(np.mean([row.base_log_loss for row in of_mask])),
                    "cells": sum(row.n_cells for row in of_mask),
                }
            )
    study.write_figures("masks", {"digits": lambda: rows})

    worse = {(row["model"], row["mask"]) for row in rows if row["log_loss"] >= row["base_log_loss"]}
    assert worse == {("rasch", "shifted-columns"), ("2pl", "shifted-columns")}

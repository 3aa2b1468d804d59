"""What too few models cannot tell of items, said in words."""

from __future__ import annotations

import numpy as np

from evalstats_plugin.irt.fit import IRTFit

HARDLY_TOLD = 0.1
"""Share of the variance of discriminations that answers tell, below which they are of little use.

With 2 to 5 models and 100 or 500 simulated items it was 0 to .08, with 7 to 10 models .03 to .2,
with 20 or more .1 to .3; estimates correlated with the truth by about its root.
"""
WIDE, FEW = 0.6, 10
"""A spread of log discriminations that so few models are not to be believed: with truth .3 and up
to 10 models, estimates were .17 to .46."""


def discriminations_note(fit: IRTFit) -> list[str]:
    """Say how much of the discriminations is known, for a 2PL with items integrated out."""
    if fit.item_model != "2pl":
        return []
    n, known = len(fit.models), fit.hyperparameters
    spread = float(known.get("log_discrimination_sd", known.get("discrimination_sd", 0.0)))
    if n <= FEW and spread > WIDE:
        return [
            f"discriminations spread widely (sd {spread:.2f}), on the word of {n} models, which "
            "can hardly tell steep items from easy or hard ones: compare with item model rasch"
        ]
    own = float(np.mean(np.square(fit.discrimination_std_error)))
    told = float(np.var(fit.discrimination))
    share = told / (told + own) if told + own > 0 else 0.0
    if share >= HARDLY_TOLD:
        return []
    return [
        f"{n} models tell hardly anything of discriminations ({share:.0%} of their variance): each "
        "is near what all items have in common, and item model rasch says as much"
    ]


def missing_errors_note(fit: IRTFit, n_estimated: int) -> list[str]:
    """Count items that a likelihood was maximised for, but is flat at, so that errors are NaN."""
    errors = [fit.difficulty_std_error]
    errors += [] if fit.item_model == "rasch" else [fit.discrimination_std_error]
    whole = int(np.isfinite(errors).all(axis=0).sum())
    if whole == n_estimated:
        return []
    return [
        f"{n_estimated - whole} items have no standard error of difficulty or discrimination: "
        "answers hardly tell them. Take an item prior (option prior), or estimator mml-items"
    ]

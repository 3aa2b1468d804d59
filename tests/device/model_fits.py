"""Every model that is computed by PyTorch, on small data, on a device by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.distributions import Beta, Exponential, Normal

from evalstats_plugin import fit_irt, score_models
from evalstats_plugin.data.importing import write_store
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.hierarchical import fit_capabilities
from evalstats_plugin.hierarchical.capabilities import compare_held_out
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Scene,
    draw_particles,
    first_proposals,
    weigh,
    weighted_mean,
)
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions, infer
from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate, bind
from evalstats_plugin.irt.bootstrap import bootstrap_abilities
from evalstats_plugin.irt.holdout import hold_out
from evalstats_plugin.irt.methods import ESTIMATORS, FactorOptions
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth
from evalstats_plugin.runtime.torch import generator_of, resolve_device

Numbers = Mapping[str, Any]
Fit = Callable[[str], Numbers]


def answers(n: int, m: int, *, missing: float = 0.1, seed: int = 1) -> ResponseMatrix:
    """Of a 2PL with holes."""
    rng = np.random.default_rng(seed)
    scores = draw_responses(draw_truth(rng, n, m), rng).scores
    scores[rng.random(scores.shape) < missing] = np.nan
    return ResponseMatrix.from_array(scores)


WIDE, TALL = answers(7, 30), answers(60, 12)


def numbers_of(fit: Any) -> Numbers:
    """Abilities, items and errors."""
    names = (
        "ability", "ability_covariance", "discrimination", "difficulty", "guessing",
        "discrimination_std_error", "difficulty_std_error", "loading", "intercept",
    )  # fmt: skip
    there = {name: getattr(fit, name) for name in names if getattr(fit, name, None) is not None}
    return there | {"log_likelihood": fit.diagnostics.get("log_likelihood", 0.0)}


def irt(
    device: str,
    item_model: str,
    estimator: str = "auto",
    matrix: ResponseMatrix = WIDE,
    **options: Any,
) -> Numbers:
    """Any item response model."""
    known = ESTIMATORS.get(estimator)
    record: Any = FactorOptions if item_model == "factor" else known and known.options
    how = record(**options) if options else None
    return numbers_of(fit_irt(matrix, item_model, estimator, device=device, rng=3, options=how))


def scored(device: str, item_model: str) -> Numbers:
    """New models on items fitted before."""
    options = FactorOptions(dimensions=1, ridge=0.3) if item_model == "factor" else None
    fit: Any = fit_irt(WIDE, item_model, device="cpu", rng=3, options=options)  # type: ignore[arg-type]
    return numbers_of(score_models(fit, answers(3, 30, seed=8), device=device))


def stored(device: str, item_model: str, missing: float) -> Numbers:
    """A fit from disk."""
    with TemporaryDirectory() as folder:
        store = write_store(Path(folder) / "s.parquet", answers(40, 15, missing=missing))
        return irt(device, item_model, "mml", store, max_steps=4)  # type: ignore[arg-type]


def bootstrapped(device: str, estimator: str, item_model: str, over: str) -> Numbers:
    """Refits to answers drawn anew."""
    fit: Any = fit_irt(WIDE, item_model, estimator, device="cpu")  # type: ignore[arg-type]
    found = bootstrap_abilities(
        fit, WIDE, over=over, n_resamples=3, rng=1, device=device, confidence_level=0.3,  # type: ignore[arg-type]
    )  # fmt: skip
    return {"limits": [(x.low, x.high) for x in found.rows]}


def left_out(device: str, item_model: str) -> Numbers:
    """Predictions of cells, models and items."""
    masks = ("random", "rows", "columns") if item_model == "2pl" else ("rows",)
    rows = hold_out(
        answers(12, 20), masks, item_model=item_model, dimensions=1, seeds=[0], device=device
    ).rows
    return {"log_loss": [x.log_loss for x in rows], "auc": [x.auc for x in rows]}


def capabilities(device: str) -> Numbers:
    """Sparse codes."""
    fit = fit_capabilities(answers(4, 8), 1, penalty=3.0, rng=0, device=device)
    return {"code": fit.code, "capability": fit.capability, "intercept": fit.intercept}


def chosen_codes(device: str) -> Numbers:
    """Penalties by held-out answers."""
    rows = compare_held_out(answers(4, 8), 1, rng=0, device=device)
    return {"log_loss": [x.log_loss for x in rows]}


# A number, such as a scale of 0.6, would be copied to the device in every iteration.
PLATED = Model(
    plates=[Plate("task", 4), Plate("item", 3, within="task")],
    latents=[
        Latent("share", Beta(2.0, 3.0)),
        Latent("kind", Exponential(0.5), shape=(3,)),
        Latent("sd", Exponential(0.7)),
        Latent("mu", lambda share: Normal(share, torch.ones_like(share)), "task"),
        Latent("z", lambda mu, sd: Normal(loc=mu, scale=sd), "item"),
    ],
    observed=[
        Observed("x", lambda z: Normal(z, 0.6 * torch.ones_like(z)), "item"),
        Observed("s", lambda mu, kind, s: kind[..., :1].log() - (s - mu).square(), "task"),
    ],
)
SEEN = {
    "x": np.random.default_rng(6).normal(size=(4, 3)),
    "s": np.random.default_rng(7).normal(size=4),
}


def plated(device: str, memory: int | None = None, iterations: int = 3) -> Numbers:
    """Nested plates, by particles."""
    options = FitOptions(k=4, iterations=iterations, sets=2, draws=4, memory=memory, wider=1)
    fit = infer(PLATED, SEEN, options=options, device=device, rng=0)
    moments = {f"{name} mean": x.mean for name, x in fit.moments.items()}
    return {"evidence": fit.log_evidence, **moments, **fit.draws}


def weighed(device: str) -> Numbers:
    """Posteriors of particles together."""
    place = resolve_device(device)
    bound = bind(PLATED, SEEN, place)
    generator = generator_of(0, "test", place)
    proposals = first_proposals(bound, generator)
    scene = Scene(bound, draw_particles(bound, proposals, 4, generator), {"task": 4, "item": 3})
    weights = weigh(scene).weights["z"]
    square = weighted_mean(bound, weights, scene.particles.values["z"].square(), "z")
    return {"weights": weights.cpu().numpy(), "square": square.cpu().numpy()}


def _irt_fits() -> dict[str, Fit]:
    few = {"max_steps": 5}
    draws = {"chains": 2, "draws": 4, "warm_up": 1}
    return {
        "mml rasch": partial(irt, item_model="rasch", estimator="mml", matrix=TALL, **few),
        "mml 1pl": partial(irt, item_model="1pl", estimator="mml", matrix=TALL, **few),
        "mml 2pl": partial(
            irt, item_model="2pl", estimator="mml", matrix=TALL, prior="estimated", sandwich=True,
            **few,
        ),
        "mml 3pl": partial(
            irt, item_model="3pl", estimator="mml", matrix=TALL, prior="weak", upper=0.97, **few
        ),
        "mml 2pl without holes": partial(
            irt, item_model="2pl", estimator="mml", matrix=answers(60, 12, missing=0.0),
            prior="weak", nodes=21, **few,
        ),
        "mml-items rasch": partial(irt, item_model="rasch", estimator="mml-items", max_steps=3),
        "mml-items 2pl": partial(irt, item_model="2pl", estimator="mml-items", max_steps=3),
        "mml-items signed": partial(
            irt, item_model="2pl", estimator="mml-items", signed=True, max_steps=3
        ),
        "map": partial(irt, item_model="2pl", estimator="map"),
        "jml rasch": partial(irt, item_model="rasch", estimator="jml", max_steps=12),
        "jml 2pl": partial(irt, item_model="2pl", estimator="jml", max_steps=12),
        "vi": partial(irt, item_model="2pl", estimator="vi", **few),
        "svi": partial(irt, item_model="2pl", estimator="svi", guide="lognormal", steps=6),
        "vi vague": partial(irt, item_model="rasch", estimator="vi", prior="vague", **few),
        "gibbs rasch": partial(irt, item_model="rasch", estimator="mcmc", **draws),
        "gibbs 2pl": partial(irt, item_model="2pl", estimator="mcmc", **draws),
        "factor": partial(irt, item_model="factor", dimensions=2, ridge=1.0, matrix=TALL),
        "factor chosen": partial(irt, item_model="factor", rotation="promax"),
        "scoring 2pl": partial(scored, item_model="2pl"),
        "scoring factor": partial(scored, item_model="factor"),
        "store": partial(stored, item_model="2pl", missing=0.0),
        "store with holes": partial(stored, item_model="3pl", missing=0.2),
        "bootstrap of items": partial(
            bootstrapped, estimator="mml-items", item_model="2pl", over="items"
        ),
        "bootstrap of models": partial(
            bootstrapped, estimator="mml-items", item_model="rasch", over="models"
        ),
        "parametric bootstrap": partial(
            bootstrapped, estimator="mml-items", item_model="2pl", over="parametric"
        ),
        "held out 2pl": partial(left_out, item_model="2pl"),
        "held out factor": partial(left_out, item_model="factor"),
    }  # fmt: skip


def _hierarchical_fits() -> dict[str, Fit]:
    return {
        "plates": plated,
        "plates in blocks": partial(plated, memory=80_000, iterations=1),
        "particles together": weighed,
        "capabilities": capabilities,
        "capabilities held out": chosen_codes,
    }  # fmt: skip


FITS: Mapping[str, Fit] = {**_irt_fits(), **_hierarchical_fits()}
"""By name."""

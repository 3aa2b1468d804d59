"""One fit of a 2PL by one program.

``python irt_fits.py PROGRAM FOLDER CPU_LIMIT`` reads ``data.npz`` (scores: an array (N, M) of 0, 1
and -1, held out) from the folder and writes the estimates to ``found.npz``. The clock starts when
the program has its data in the form it wants and, where it loads anything in its first step, has
made one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import clock
import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.int8]


class Fit(NamedTuple):
    """Estimates of P(right) = 1 / (1 + exp(-a (θ - b)))."""

    ability: Any
    difficulty: Any
    discrimination: Any
    about: dict[str, Any] = {}  # noqa: RUF012 - never written to


Run = Callable[[], Fit]


def ours(scores: Scores) -> Run:
    """Everything left to ``auto``."""
    from evalstats_plugin import ResponseMatrix, fit_irt

    answers = np.where(scores < 0, np.nan, scores)
    matrix = ResponseMatrix.from_array(answers)
    # Loads torch and what the estimator needs, which is not to be timed.
    fit_irt(ResponseMatrix.from_array(answers[:, :20]), "2pl", device="cpu")

    def run() -> Fit:
        fit = fit_irt(matrix, "2pl", device="cpu")
        about = {
            "estimator": fit.estimator,
            "log_likelihood": round(fit.diagnostics["log_likelihood"], 1),
        }
        return Fit(fit.ability, fit.difficulty, fit.discrimination, about)

    return run


def girth(scores: Scores, method: str) -> Run:
    """Items by girth's estimator, then abilities as posterior means where girth can."""
    import girth as program

    data = program.tag_missing_data(scores.T.astype(int), [0, 1])

    def run() -> Fit:
        items = getattr(program, method)(data)
        b, a = items["Difficulty"], items["Discrimination"]
        ability = program.ability_eap(data, b, a)
        if np.isfinite(ability).all():
            return Fit(ability, b, a)
        lost = int((~np.isfinite(ability)).sum())
        note = f"{lost} of {len(ability)} posterior means are not finite: maximum likelihood"
        return Fit(program.ability_mle(data, b, a), b, a, {"note": note})

    return run


def torch_measure(scores: Scores, method: str, rate: float = 0.01) -> Run:
    """Its own number of steps, 1,000, and learning rate, unless another is given."""
    import pyro
    import torch
    from torch_measure.models import TwoPL

    data = torch.tensor(scores, dtype=torch.float32)

    def run(epochs: int = 1000) -> Fit:
        # Seeds torch for all, the only way these programs can be seeded.
        pyro.set_rng_seed(0)
        model = TwoPL(*scores.shape)
        model.fit(data, method=method, max_epochs=epochs, lr=rate, verbose=False)
        found = (model.ability, model.difficulty, model.discrimination)
        return Fit(*(each.detach().numpy() for each in found))

    run(epochs=1)
    return run


def py_irt(scores: Scores, priors: str | None) -> Run:
    """Its own number of steps, 2,000; None are its priors by default."""
    import pyro
    from py_irt.config import IrtConfig
    from py_irt.dataset import Dataset
    from py_irt.training import IrtModelTrainer

    n, m = scores.shape
    models, items = np.nonzero(scores >= 0)
    by_model, by_item = ({str(i): i for i in range(size)} for size in (n, m))
    data = Dataset(
        item_ids=set(by_item),
        subject_ids=set(by_model),
        item_id_to_ix=by_item,
        ix_to_item_id={i: name for name, i in by_item.items()},
        subject_id_to_ix=by_model,
        ix_to_subject_id={i: name for name, i in by_model.items()},
        observation_subjects=models.tolist(),
        observation_items=items.tolist(),
        observations=scores[models, items].astype(float).tolist(),
        training_example=[True] * len(models),
    )
    config = IrtConfig(model_type="2pl", priors=priors)
    trainer = IrtModelTrainer(data_path=Path(), config=config, dataset=data, verbose=False)

    def run(epochs: int | None = None) -> Fit:
        pyro.set_rng_seed(0)
        trainer.train(epochs=epochs, device="cpu")
        found = trainer.last_params
        return Fit(found["ability"], found["diff"], found["disc"])

    run(epochs=1)
    return run


def girth_mcmc(scores: Scores) -> Run:
    """Its own number of draws."""
    from girth_mcmc import GirthMCMC
    from girth_mcmc.utils import tag_missing_data_mcmc

    data = tag_missing_data_mcmc(scores.T.astype(int), [0, 1])

    def run() -> Fit:
        found = GirthMCMC(model="2PL")(data, progressbar=False)
        return Fit(found["Ability"], found["Difficulty"], found["Discrimination"])

    return run


FITS: Mapping[str, tuple[str, Callable[[Scores], Run]]] = MappingProxyType(
    {
        "evalstats-plugin": ("evalstats-plugin", ours),
        "girth JML": ("girth", lambda scores: girth(scores, "twopl_jml")),
        "girth MML": ("girth", lambda scores: girth(scores, "twopl_mml")),
        "torch_measure SVI": ("torch_measure", lambda scores: torch_measure(scores, "svi")),
        "torch_measure JML": ("torch_measure", lambda scores: torch_measure(scores, "jml")),
        "torch_measure JML, rate 1": (
            "torch_measure",
            lambda scores: torch_measure(scores, "jml", 1.0),
        ),
        "py-irt hierarchical": ("py-irt", lambda scores: py_irt(scores, "hierarchical")),
        "py-irt default": ("py-irt", lambda scores: py_irt(scores, None)),
        "girth_mcmc": ("girth_mcmc", girth_mcmc),
    }
)
"""Distribution, and what prepares a fit."""


def main(name: str, folder: str, cpu_limit: str) -> None:
    """Fit, keep the estimates and print what it took."""
    clock.limit(float(cpu_limit))
    distribution, prepare = FITS[name]
    with np.load(Path(folder) / "data.npz") as data:
        run = prepare(data["scores"])
    fit, taken = clock.timed(run)
    arrays = {key: np.asarray(getattr(fit, key), float).ravel() for key in Fit._fields[:3]}
    np.savez(Path(folder) / "found.npz", **arrays)
    clock.tell(distribution, taken, **fit.about)


if __name__ == "__main__":
    main(*sys.argv[1:])

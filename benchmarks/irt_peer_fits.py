"""One fit of a 2PL by one program: `irt_peers` starts this, in the environment of the program.

``python irt_peer_fits.py PROGRAM FOLDER CPU_LIMIT`` reads ``scores.npy``, an array (N, M) of 0, 1
and -1 (held out), from the folder and writes ``fit.npz``. Every program gets its data in the form
it wants, and is imported, before the clock starts.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Fit(NamedTuple):
    """Estimates of P(right) = 1 / (1 + exp(-a (θ - b)))."""

    ability: Any
    difficulty: Any
    discrimination: Any
    about: dict[str, Any] = {}  # noqa: RUF012 - never written to


def ours(scores: NDArray[np.int8]) -> Callable[[], Fit]:
    """Everything left to ``auto``."""
    from evalstats_plugin import ResponseMatrix, fit_irt

    # Loads torch, which is not to be timed.
    fit_irt(ResponseMatrix.from_array(np.eye(3)), "rasch", device="cpu")
    matrix = ResponseMatrix.from_array(np.where(scores < 0, np.nan, scores))

    def run() -> Fit:
        fit = fit_irt(matrix, "2pl", device="cpu")
        about = {
            "estimator": fit.estimator,
            "log_likelihood": round(fit.diagnostics["log_likelihood"], 1),
        }
        return Fit(fit.ability, fit.difficulty, fit.discrimination, about)

    return run


def girth(scores: NDArray[np.int8]) -> Callable[[], Fit]:
    """Items by joint maximum likelihood, then abilities as posterior means where girth can."""
    from girth import ability_eap, ability_mle, tag_missing_data, twopl_jml

    data = tag_missing_data(scores.T.astype(int), [0, 1])

    def run() -> Fit:
        items = twopl_jml(data)
        b, a = items["Difficulty"], items["Discrimination"]
        ability = ability_eap(data, b, a)
        if np.isfinite(ability).all():
            return Fit(ability, b, a)
        lost = int((~np.isfinite(ability)).sum())
        note = f"{lost} of {len(ability)} posterior means are not finite: maximum likelihood"
        return Fit(ability_mle(data, b, a), b, a, {"note": note})

    return run


def torch_measure(scores: NDArray[np.int8], method: str) -> Callable[[], Fit]:
    """Its own number of steps."""
    import pyro
    import torch
    from torch_measure.models import TwoPL

    # Seeds torch for all, the only way these programs can be seeded.
    pyro.set_rng_seed(0)
    data = torch.tensor(scores, dtype=torch.float32)
    model = TwoPL(*scores.shape)

    def run() -> Fit:
        model.fit(data, method=method, verbose=False)
        found = (model.ability, model.difficulty, model.discrimination)
        return Fit(*(each.detach().numpy() for each in found))

    return run


def py_irt(scores: NDArray[np.int8], priors: str | None) -> Callable[[], Fit]:
    """Its own number of steps, 2,000; None are its priors by default."""
    import pyro
    from py_irt.config import IrtConfig
    from py_irt.dataset import Dataset
    from py_irt.training import IrtModelTrainer

    pyro.set_rng_seed(0)
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

    def run() -> Fit:
        trainer.train(device="cpu")
        found = trainer.last_params
        return Fit(found["ability"], found["diff"], found["disc"])

    return run


def girth_mcmc(scores: NDArray[np.int8]) -> Callable[[], Fit]:
    """Its own number of draws."""
    from girth_mcmc import GirthMCMC
    from girth_mcmc.utils import tag_missing_data_mcmc

    data = tag_missing_data_mcmc(scores.T.astype(int), [0, 1])

    def run() -> Fit:
        found = GirthMCMC(model="2PL")(data, progressbar=False)
        return Fit(found["Ability"], found["Difficulty"], found["Discrimination"])

    return run


FITS: Mapping[str, tuple[str, Callable[[NDArray[np.int8]], Callable[[], Fit]]]] = MappingProxyType(
    {
        "evalstats-plugin": ("evalstats-plugin", ours),
        "girth JML": ("girth", girth),
        "torch_measure SVI": ("torch_measure", lambda scores: torch_measure(scores, "svi")),
        "torch_measure JML": ("torch_measure", lambda scores: torch_measure(scores, "jml")),
        "py-irt hierarchical": ("py-irt", lambda scores: py_irt(scores, "hierarchical")),
        "py-irt default": ("py-irt", lambda scores: py_irt(scores, None)),
        "girth_mcmc": ("girth_mcmc", girth_mcmc),
    }
)
"""Distribution, and what prepares a fit."""


def main(name: str, folder: str, cpu_limit: str) -> None:
    """Fit, keep the estimates and print what it took."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_limit), int(cpu_limit) + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    distribution, prepare = FITS[name]
    run = prepare(np.load(Path(folder) / "scores.npy"))
    start = _cpu_seconds()
    fit = run()
    seconds = _cpu_seconds() - start
    arrays = {key: np.asarray(getattr(fit, key), float).ravel() for key in Fit._fields[:3]}
    np.savez(Path(folder) / "fit.npz", **arrays)
    # Not ru_maxrss: a child inherits its parent's.
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    found = {
        "version": metadata.version(distribution),
        "seconds": round(seconds, 2),
        "process_seconds": round(_cpu_seconds(), 2),
        "peak_mb": round(int(peak) / 1024),
    }
    print(json.dumps(found | fit.about))


def _cpu_seconds() -> float:
    """User and system time, with that of children that ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One of the ten models of ``docs/ten_models`` by the no-U-turn sampler of one program.

``python nuts_fits.py PROGRAM FOLDER CPU_LIMIT MODEL`` runs the page's code and writes the draws of
each latent, shape (chains, draws, values), to ``found.npz``. Programs are imported before the clock
starts; tracing and compiling count.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import clock
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

from parts.ten_models import imports, sections


def plated(model: str, data: dict[str, Any]) -> Any:
    """Prepare our sampler, which says what it cannot sample."""
    import torch

    from evalstats_plugin.hierarchical import infer

    torch.set_num_threads(1)
    text = sections("plated")[model]
    scope: dict[str, Any] = {"data": data}
    exec(imports("plated"), scope)  # noqa: S102 - the page's code is what is timed
    scope["infer"] = lambda m, d, *_: infer(m, d, "nuts", rng=0, device="cpu")

    def run() -> dict[str, Any]:
        exec(text, scope)  # noqa: S102
        fit = scope["fit"]
        # Chains one after another.
        return {k: np.reshape(x, (fit.chains, -1, *x.shape[1:])) for k, x in fit.draws.items()}

    return run


def numpyro(model: str, data: dict[str, Any], *, vectorized: bool) -> Any:
    """Prepare NumPyro's sampler, with chains one after another or in step."""
    import jax
    from numpyro.infer import MCMC

    jax.config.update("jax_enable_x64", True)  # noqa: FBT003 - the only way to say it
    text = sections("NumPyro")[model]
    scope: dict[str, Any] = {"data": data}
    exec(imports("NumPyro"), scope)  # noqa: S102
    how = "vectorized" if vectorized else "sequential"
    scope["MCMC"] = lambda *a, **k: MCMC(*a, **k, chain_method=how, progress_bar=False)

    def run() -> dict[str, Any]:
        exec(text, scope)  # noqa: S102
        return dict(scope["fit"].get_samples(group_by_chain=True))

    return run


def main(name: str, folder: str, cpu_limit: str, model: str) -> None:
    """Sample, keep the draws and print what it took."""
    clock.limit(float(cpu_limit))
    with np.load(Path(folder) / "data.npz") as arrays:
        data = dict(arrays)
    ours = name == "evalstats-plugin"
    run = plated(model, data) if ours else numpyro(model, data, vectorized="in step" in name)
    draws, taken = clock.timed(run)
    values = {k: np.reshape(x, (*np.shape(x)[:2], -1)) for k, x in draws.items()}
    np.savez(Path(folder) / "found.npz", **values)
    clock.tell("evalstats-plugin" if ours else "numpyro", taken)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One fit of a hierarchical model by one program: `hierarchical` starts this in its environment.

``python hierarchical_fits.py PROGRAM FOLDER CPU_LIMIT`` reads ``data.npz`` from the folder and
prints what was found. Programs are imported before the clock starts; compiling counts.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Data = Mapping[str, Array]
Run = Callable[[], dict[str, Any]]

DRAWS = 10_000
"""Of the clustered example of bayes_evals."""


def quadrature(data: Data) -> Run:
    """Our clustered posterior, with the prior of the example."""
    from evalstats_plugin.stats.beta_binomial import interval, posterior_means

    def run() -> dict[str, Any]:
        low, high = interval(
            data["right"], data["total"], confidence_level=0.95, prior="gamma-dispersion"
        )
        mean = posterior_means(data["right"], data["total"], prior="gamma-dispersion").mean
        return {"mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()}

    return run


def prior_draws(data: Data) -> Run:
    """Draw from the prior and weigh by the likelihood, data set after data set."""
    from scipy import special

    def one(right: Array, total: Array, rng: np.random.Generator) -> list[float]:
        theta, d = rng.uniform(size=DRAWS), rng.gamma(1.0, 1.0, DRAWS)
        a, b = np.maximum(d * theta, 1e-12)[:, None], np.maximum(d * (1 - theta), 1e-12)[:, None]
        log_weight = special.betaln(a + right, b + total - right) - special.betaln(a, b)
        weight = special.softmax(log_weight.sum(axis=1))
        picked = theta[rng.choice(DRAWS, DRAWS, p=weight)]
        limits = np.percentile(picked, [2.5, 97.5]).tolist()
        return [float(weight @ theta), *limits, float(1 / (weight**2).sum())]

    def run() -> dict[str, Any]:
        rng = np.random.default_rng(0)
        pairs = zip(data["right"], data["total"], strict=True)
        found = np.array([one(right, total, rng) for right, total in pairs])
        return dict(zip(("mean", "low", "high", "ess"), found.T.tolist(), strict=True))

    return run


def plated(data: Data) -> Run:
    """HiBayES's two-level model as nested plates, by massively parallel importance sampling."""
    import torch

    from evalstats_plugin.hierarchical.distributions import Gamma, Normal
    from evalstats_plugin.hierarchical.plated_fit import Options, infer
    from evalstats_plugin.hierarchical.plated_model import Latent, Model, Observed, Plate

    torch.set_num_threads(1)
    scale = float(data["scale"])

    def half(scale: float) -> Any:
        return torch.distributions.HalfNormal(torch.tensor(scale, dtype=torch.float64))

    def effect(mu: Any, sigma: Any, z: Any, sigma_group: Any) -> Normal:
        return Normal(mu + sigma * z, sigma_group)

    model = Model(
        plates=[Plate("group", len(data["right"]))],
        inputs={"total": "group"},
        latents=[
            Latent("mu", Normal(0.0, 1.0), group="overall"),
            Latent("sigma", half(0.5), group="overall", proposal=Gamma(2.0, 4.0)),
            Latent("z", Normal(0.0, 1.0), group="overall"),
            Latent("sigma_group", half(scale), group="overall", proposal=Gamma(2.0, 2 / scale)),
            Latent("effect", effect, plate="group", proposal=Normal(0.0, 1.0)),
        ],
        observed=[
            Observed(
                "right",
                lambda effect, total: torch.distributions.Binomial(total, logits=effect),
                plate="group",
            )
        ],
    )
    options = Options(k=100, iterations=100, sets=100, draws=4000)

    def run() -> dict[str, Any]:
        given = {"right": data["right"], "total": data["total"]}
        fit = infer(model, given, options=options, device="cpu", rng=0)
        draws = {"overall": fit.draws["mu"] + fit.draws["sigma"] * fit.draws["z"]}
        draws |= {name: fit.draws[name] for name in ("sigma_group", "effect")}
        ess = {"overall": float(fit.ess["overall"]), "sigma_group": float(fit.ess["overall"])}
        return _summary(draws) | {"ess": ess}

    return run


def numpyro(data: Data) -> Run:
    """HiBayES's two-level model and settings: NUTS of NumPyro, 4 × (1000 + 2000), target 0.95."""
    import jax
    import jax.numpy as jnp
    import numpyro as npr
    from numpyro import distributions as dist
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)  # noqa: FBT003 - the only way to say it
    scale, groups = float(data["scale"]), len(data["right"])

    def model() -> None:
        mu = npr.sample("mu", dist.Normal(0, 1))
        sigma = npr.sample("sigma", dist.HalfNormal(0.5))
        overall = npr.deterministic("overall", mu + sigma * npr.sample("z", dist.Normal(0, 1)))
        sigma_group = npr.sample("sigma_group", dist.HalfNormal(scale))
        z = npr.sample("z_group", dist.Normal(0, 1).expand([groups]))
        effect = npr.deterministic("effect", overall + sigma_group * z)
        total = jnp.array(data["total"])
        npr.sample("right", dist.Binomial(total, logits=effect), obs=jnp.array(data["right"]))

    def run() -> dict[str, Any]:
        mcmc = MCMC(
            NUTS(model, target_accept_prob=0.95), num_warmup=1000, num_samples=2000, num_chains=4,
            chain_method="sequential", progress_bar=False,
        )  # fmt: skip
        mcmc.run(jax.random.PRNGKey(0), extra_fields=("diverging",))
        chains = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
        names = ("overall", "sigma_group", "effect")
        ess = {k: float(np.min(effective_sample_size(chains[k]))) for k in names}
        draws = {k: chains[k].reshape(-1, *chains[k].shape[2:]) for k in names}
        lost = int(mcmc.get_extra_fields()["diverging"].sum())
        return _summary(draws) | {"ess": ess, "divergences": lost}

    return run


def _summary(draws: Mapping[str, Array]) -> dict[str, Any]:
    rate = 1 / (1 + np.exp(-draws["effect"]))
    return {
        name: {"mean": x.mean(axis=0).tolist(), "sd": x.std(axis=0).tolist()}
        for name, x in {**draws, "rate": rate}.items()
        if name != "effect"
    }


FITS: Mapping[str, tuple[str, Callable[[Data], Run]]] = MappingProxyType(
    {
        "evalstats-plugin, quadrature": ("evalstats-plugin", quadrature),
        "bayes_evals's way, prior draws": ("scipy", prior_draws),
        "evalstats-plugin, QEM": ("evalstats-plugin", plated),
        "HiBayES's way, NumPyro": ("numpyro", numpyro),
    }
)
"""Distribution, and what prepares a fit."""


def main(name: str, folder: str, cpu_limit: str) -> None:
    """Fit and print what was found, and what it took."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_limit), int(cpu_limit) + 5))
    distribution, prepare = FITS[name]
    with np.load(Path(folder) / "data.npz") as arrays:
        run = prepare(dict(arrays))
    start = _cpu_seconds()
    found = run()
    seconds = _cpu_seconds() - start
    about = {"version": metadata.version(distribution), "seconds": round(seconds, 3)}
    print(json.dumps(about | found))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:])

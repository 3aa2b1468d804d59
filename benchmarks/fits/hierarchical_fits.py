"""One fit of a hierarchical model by one program.

``python hierarchical_fits.py PROGRAM FOLDER CPU_LIMIT JOB [DRAWS]`` reads ``data.npz`` from the
folder and writes means, standard deviations, 95 % limits and effective draws to ``found.npz``. JOB
is ``clustered``, ``two-level``, ``crossed`` or ``shared``; DRAWS are those of each chain of NUTS.
Programs are imported before the clock starts; compiling counts.
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

Array = NDArray[np.float64]
Data = Mapping[str, Array]
PRIOR_DRAWS = 10_000
"""Of the clustered example of bayes_evals."""
CHAINS = 4
WARM_UP = 1000


class Fit(NamedTuple):
    """How to fit, which is timed, and how to tell what came out, which is not."""

    run: Callable[[], Any]
    tell: Callable[[Any], dict[str, Any]]


def quadrature(data: Data, _: int) -> Fit:
    """Our clustered posterior, with the prior of the example."""
    from scipy import special

    from evalstats_plugin.stats.grid_posteriors import beta_binomial, beta_posteriors

    def run() -> dict[str, Any]:
        low, high = beta_binomial(
            data["right"], data["total"], confidence_level=0.95, prior="gamma-dispersion"
        )
        mean = np.empty(len(low))
        for grid in beta_posteriors(data["right"], data["total"], "gamma-dispersion"):
            mean[grid.cells] = (special.expit(grid.values(0)) * grid.marginal(0)).sum(axis=1)
        return {"mean": mean, "low": low, "high": high}

    return Fit(run, dict)


def prior_draws(data: Data, _: int) -> Fit:
    """Draw from the prior and weigh by the likelihood, data set after data set."""
    from scipy import special

    def one(right: Array, total: Array, rng: np.random.Generator) -> list[float]:
        theta, d = rng.uniform(size=PRIOR_DRAWS), rng.gamma(1.0, 1.0, PRIOR_DRAWS)
        a, b = np.maximum(d * theta, 1e-12)[:, None], np.maximum(d * (1 - theta), 1e-12)[:, None]
        log_weight = special.betaln(a + right, b + total - right) - special.betaln(a, b)
        weight = special.softmax(log_weight.sum(axis=1))
        picked = theta[rng.choice(PRIOR_DRAWS, PRIOR_DRAWS, p=weight)]
        limits = np.percentile(picked, [2.5, 97.5]).tolist()
        return [float(weight @ theta), *limits, float(1 / (weight**2).sum())]

    def run() -> dict[str, Any]:
        rng = np.random.default_rng(0)
        pairs = zip(data["right"], data["total"], strict=True)
        found = np.array([one(right, total, rng) for right, total in pairs])
        return dict(zip(("mean", "low", "high", "ess"), found.T, strict=True))

    return Fit(run, dict)


def plated(data: Data, _: int) -> Fit:
    """HiBayES's two-level model as nested plates, by massively parallel importance sampling."""
    import torch
    from torch.distributions import Gamma, Normal

    from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions, infer
    from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate

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
    options = FitOptions(k=100, iterations=100, sets=100, draws=4000)
    given = {"right": data["right"], "total": data["total"]}

    def tell(fit: Any) -> dict[str, Any]:
        overall = fit.draws["mu"] + fit.draws["sigma"] * fit.draws["z"]
        ess = float(fit.ess["overall"])
        return {
            **_summary("overall", overall),
            **_summary("sigma_group", fit.draws["sigma_group"]),
            **_summary("rate", _rate(fit.draws["effect"])),
            "overall_ess": ess,
            "sigma_group_ess": ess,
            "rate_ess": float(fit.ess["effect"].min()),
        }

    return Fit(lambda: infer(model, given, options=options, device="cpu", rng=0), tell)


def two_level(data: Data, draws: int) -> Fit:
    """HiBayES's two-level model and settings: NUTS of NumPyro, target 0.95."""
    import jax.numpy as jnp
    import numpyro as npr
    from numpyro import distributions as dist

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

    told = {"overall": "overall", "sigma_group": "sigma_group"}
    return _nuts(model, draws, told, "effect", 0.95, chains="vectorized")


def cells(data: Data, draws: int) -> Fit:
    """HiBayES's two-level model with every model on every task as a group of its own."""
    right = data["answers"].sum(axis=2)
    groups = {
        "right": right.ravel(),
        "total": np.full(right.size, float(data["total"])),
        "scale": data["scale"],
    }
    return _with_means(two_level(groups, draws), "effect", right.shape)


def sums(data: Data, draws: int) -> Fit:
    """Models crossed with tasks, the questions summed."""
    right = data["answers"].sum(axis=2)
    fit = crossed({"right": right, "total": data["total"]}, draws)
    return _with_means(fit, "effect", right.shape)


def _with_means(fit: Fit, site: str, shape: tuple[int, int]) -> Fit:
    """Tell of rates in this shape, and effective draws of their means over tasks."""

    def tell(found: Any) -> dict[str, Any]:
        from numpyro.diagnostics import effective_sample_size

        told, rate = fit.tell(found), _rate(found[0][site])
        for name in ("mean", "sd", "low", "high"):
            told[f"rate_{name}"] = told[f"rate_{name}"].reshape(shape)
        means = rate.reshape(*rate.shape[:2], *shape).mean(axis=3)
        return told | {"mean_ess": effective_sample_size(means).min()}

    return Fit(fit.run, tell)


def gibbs(data: Data, _: int) -> Fit:
    """Models crossed with tasks, as `pool` has it from the answers."""
    import torch

    from evalstats_plugin import ResponseMatrix, pool

    torch.set_num_threads(1)
    n = int(data["total"])
    if "answers" in data:
        answers = data["answers"]
    else:
        # Which questions were right is drawn anew for each model: none is harder than another.
        right = np.arange(n) < data["right"][:, :, None]
        answers = np.random.default_rng(0).permuted(right, axis=2)
    tasks = np.repeat([f"task {k}" for k in range(answers.shape[1])], n).tolist()
    matrix = ResponseMatrix.from_array(answers.reshape(len(answers), -1), tasks=tasks)

    def tell(fit: Any) -> dict[str, Any]:
        kept, ess = fit.posterior.accuracy, fit.diagnostics["ess"]
        rate = _summary("rate", kept.reshape(-1, *kept.shape[2:]))
        rate |= {"rate_ess": ess["accuracy"], "mean_ess": ess["overall"]}
        return rate | {"least_ess": fit.diagnostics["least_ess"]}

    return Fit(lambda: pool(matrix, rng=0, device="cpu"), tell)


def crossed(data: Data, draws: int) -> Fit:
    """Fit the same model and priors by NUTS of NumPyro: a cell's logit around model and task.

    Cells with a hundred answers each tell their own logit, which is sampled as it is: an offset of
    unit scale for each cell takes longer.
    """
    import jax.numpy as jnp
    import numpyro as npr
    from numpyro import distributions as dist

    n, t = data["right"].shape

    def model() -> None:
        level = npr.sample("intercept", dist.Normal(0, 1))
        sd = [npr.sample(f"sd_{k}", dist.Gamma(2.0, 2.0)) for k in ("model", "task", "cell")]
        performance = npr.sample("performance", dist.Normal(0, sd[0]).expand([n]))
        difficulty = npr.sample("difficulty", dist.Normal(0, sd[1]).expand([t]))
        centre = level + performance[:, None] - difficulty
        effect = npr.sample("effect", dist.Normal(centre, sd[2]))
        total = float(data["total"])
        npr.sample("right", dist.Binomial(total, logits=effect), obs=jnp.array(data["right"]))

    return _nuts(model, draws, {}, "effect", 0.8)


def _nuts(
    model: Callable[[], None],
    draws: int,
    told: Mapping[str, str],
    rate: str,
    target: float,
    *,
    chains: str = "sequential",
) -> Fit:
    """Draw; tell of some sites, and of the rates whose logits are another.

    Chains in step with each other compile faster, and draw slower where a model is large.
    """
    import jax
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)  # noqa: FBT003 - the only way to say it

    def run() -> Any:
        mcmc = MCMC(
            NUTS(model, target_accept_prob=target), num_warmup=WARM_UP, num_samples=draws,
            num_chains=CHAINS, chain_method=chains, progress_bar=False,
        )  # fmt: skip
        # Runs of different length share no draws.
        mcmc.run(jax.random.PRNGKey(draws), extra_fields=("diverging",))
        drawn = mcmc.get_samples(group_by_chain=True)
        lost = int(mcmc.get_extra_fields()["diverging"].sum())
        return {k: np.asarray(v) for k, v in drawn.items()}, lost

    def tell(found: tuple[dict[str, Array], int]) -> dict[str, Any]:
        chains, lost = found
        ess = {k: float(np.min(effective_sample_size(v))) for k, v in chains.items()}
        rows = {name: _summary(name, _joined(chains[site])) for name, site in told.items()}
        return {
            **{key: value for row in rows.values() for key, value in row.items()},
            **_summary("rate", _rate(_joined(chains[rate]))),
            **{f"{name}_ess": ess[site] for name, site in told.items()},
            "rate_ess": ess[rate],
            "least_ess": min(ess.values()),
            "divergences": lost,
        }

    return Fit(run, tell)


def _joined(chains: Array) -> Array:
    return chains.reshape(-1, *chains.shape[2:])


def _rate(logit: Array) -> Array:
    return 1 / (1 + np.exp(-logit))


def _summary(name: str, draws: Array) -> dict[str, Any]:
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    found = {"mean": draws.mean(axis=0), "sd": draws.std(axis=0), "low": low, "high": high}
    return {f"{name}_{key}": value for key, value in found.items()}


FITS: Mapping[tuple[str, str], tuple[str, Callable[[Data, int], Fit]]] = MappingProxyType(
    {
        ("clustered", "evalstats-plugin"): ("evalstats-plugin", quadrature),
        ("clustered", "bayes_evals's way, prior draws"): ("scipy", prior_draws),
        ("two-level", "evalstats-plugin"): ("evalstats-plugin", plated),
        ("two-level", "HiBayES's way, NumPyro"): ("numpyro", two_level),
        ("crossed", "evalstats-plugin"): ("evalstats-plugin", gibbs),
        ("crossed", "NumPyro"): ("numpyro", crossed),
        ("shared", "evalstats-plugin"): ("evalstats-plugin", gibbs),
        ("shared", "HiBayES's way, NumPyro"): ("numpyro", cells),
        ("shared", "NumPyro"): ("numpyro", sums),
    }
)
"""By job and program: the distribution, and what prepares a fit."""


def main(name: str, folder: str, cpu_limit: str, job: str, draws: str = "0") -> None:
    """Fit, keep what was found and print what it took."""
    clock.limit(float(cpu_limit))
    distribution, prepare = FITS[job, name]
    with np.load(Path(folder) / "data.npz") as arrays:
        fit = prepare(dict(arrays), int(draws))
    found, taken = clock.timed(fit.run)
    np.savez(Path(folder) / "found.npz", **fit.tell(found))
    clock.tell(distribution, taken)


if __name__ == "__main__":
    main(*sys.argv[1:])

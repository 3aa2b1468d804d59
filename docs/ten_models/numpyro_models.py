"""The same ten models for NumPyro, run by `benchmarks.nuts_peers`; data are given by name."""

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.random import PRNGKey
from numpyro import plate, sample
from numpyro.infer import MCMC, NUTS


# Linear regression
def model(x, y):
    a = sample("a", dist.Normal(0, 1))
    b = sample("b", dist.Normal(0, 1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("row", len(y)):
        sample("y", dist.Normal(a + b * x, sigma), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)


# Robust noise
def model(x, y):
    a = sample("a", dist.Normal(0, 1))
    b = sample("b", dist.Normal(0, 1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("row", len(y)):
        sample("y", dist.StudentT(4, a + b * x, sigma), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)


# Hierarchical logistic regression
def model(x, y):
    b = sample("b", dist.Normal(0, 1))
    mean = sample("mean", dist.Normal(0, 1))
    sd = sample("sd", dist.HalfNormal(1))
    with plate("group", y.shape[0], dim=-2):
        level = sample("level", dist.Normal(mean, sd))
        with plate("row", y.shape[1], dim=-1):
            sample("y", dist.Bernoulli(logits=level + b * x), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)


# Item response, one parameter
def model(y):
    sd = sample("sd", dist.HalfNormal(1))
    students, questions = plate("student", y.shape[0], dim=-2), plate("question", y.shape[1])
    with students:
        ability = sample("ability", dist.Normal(0, 1))
    with questions:
        difficulty = sample("difficulty", dist.Normal(0, sd))
    with students, questions:
        sample("y", dist.Bernoulli(logits=ability - difficulty), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)


# Item response, two parameters
def model(y):
    students, questions = plate("student", y.shape[0], dim=-2), plate("question", y.shape[1])
    with students:
        ability = sample("ability", dist.Normal(0, 1))
    with questions:
        difficulty = sample("difficulty", dist.Normal(0, 1))
        slope = sample("slope", dist.LogNormal(0, 0.5))
    with students, questions:
        sample("y", dist.Bernoulli(logits=slope * (ability - difficulty)), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)


# Meta-analysis
def model(se, y):
    mean = sample("mean", dist.Normal(0, 5))
    sd = sample("sd", dist.HalfCauchy(5))
    with plate("school", len(y)):
        effect = sample("effect", dist.Normal(mean, sd))
        sample("y", dist.Normal(effect, se), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)


# Measurement error
def model(x, y):
    a = sample("a", dist.Normal(0, 1))
    b = sample("b", dist.Normal(0, 1))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("row", len(y)):
        true = sample("true", dist.Normal(0, 1))
        sample("x", dist.Normal(true, 0.3), obs=x)
        sample("y", dist.Normal(a + b * true, sigma), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)


# Finite mixture
def model(y):
    share = sample("share", dist.Beta(2, 2))
    low = sample("low", dist.Normal(0, 2))
    gap = sample("gap", dist.HalfNormal(4))
    sd = sample("sd", dist.HalfNormal(1))
    kinds = dist.Categorical(jnp.stack([1 - share, share]))
    parts = dist.Normal(jnp.stack([low, low + gap]), sd)
    with plate("row", len(y)):
        sample("y", dist.MixtureSameFamily(kinds, parts), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)


# Change point
def model(t, y):
    early = sample("early", dist.Gamma(2, 1))
    late = sample("late", dist.Gamma(2, 1))
    point = sample("point", dist.Categorical(logits=jnp.zeros(20)), infer={"enumerate": "parallel"})
    with plate("year", len(y)):
        sample("y", dist.Poisson(jnp.where(t < point, early, late)), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)


# Correlated effects of groups
def model(x, y):
    mean = sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    sd = sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
    factor = sample("factor", dist.LKJCholesky(2, 2.0))
    sigma = sample("sigma", dist.HalfNormal(1))
    with plate("group", y.shape[0], dim=-2):
        z = sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
        effect = mean + sd * jnp.squeeze(factor @ z[..., None], -1)
        with plate("row", y.shape[1], dim=-1):
            sample("y", dist.Normal(effect[..., 0] + effect[..., 1] * x, sigma), obs=y)


fit = MCMC(NUTS(model), num_warmup=1000, num_samples=1000, num_chains=4)
fit.run(PRNGKey(0), **data)

"""Ten models of the Stan user's guide on plates; data are given by name."""

import torch
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Gamma,
    HalfCauchy,
    HalfNormal,
    LKJCholesky,
    LogNormal,
    Normal,
    Poisson,
    StudentT,
)

from evalstats_plugin.hierarchical import Latent, Model, Observed, Plate, infer

# Linear regression
model = Model(
    plates=[Plate("row")],
    inputs={"x": "row"},
    latents=[
        Latent("a", Normal(0.0, 1.0)),
        Latent("b", Normal(0.0, 1.0)),
        Latent("sigma", HalfNormal(1.0)),
    ],
    observed=[Observed("y", lambda a, b, sigma, x: Normal(a + b * x, sigma), "row")],
)
fit = infer(model, data, "nuts")

# Robust noise
model = Model(
    plates=[Plate("row")],
    inputs={"x": "row"},
    latents=[
        Latent("a", Normal(0.0, 1.0)),
        Latent("b", Normal(0.0, 1.0)),
        Latent("sigma", HalfNormal(1.0)),
    ],
    observed=[Observed("y", lambda a, b, sigma, x: StudentT(4.0, a + b * x, sigma), "row")],
)
fit = infer(model, data, "nuts")

# Hierarchical logistic regression
model = Model(
    plates=[Plate("group"), Plate("row", within="group")],
    inputs={"x": "row"},
    latents=[
        Latent("b", Normal(0.0, 1.0)),
        Latent("mean", Normal(0.0, 1.0)),
        Latent("sd", HalfNormal(1.0)),
        Latent("level", lambda mean, sd: Normal(mean, sd), "group"),
    ],
    observed=[Observed("y", lambda b, level, x: Bernoulli(logits=level + b * x), "row")],
)
fit = infer(model, data, "nuts")

# Item response, one parameter
model = Model(
    plates=[Plate("student"), Plate("question")],
    latents=[
        Latent("sd", HalfNormal(1.0)),
        Latent("ability", Normal(0.0, 1.0), "student"),
        Latent("difficulty", lambda sd: Normal(0.0, sd), "question"),
    ],
    observed=[
        Observed(
            "y",
            lambda ability, difficulty: Bernoulli(logits=ability - difficulty),
            ("student", "question"),
        )
    ],
)
fit = infer(model, data, "nuts")

# Item response, two parameters
model = Model(
    plates=[Plate("student"), Plate("question")],
    latents=[
        Latent("ability", Normal(0.0, 1.0), "student"),
        Latent("difficulty", Normal(0.0, 1.0), "question"),
        Latent("slope", LogNormal(0.0, 0.5), "question"),
    ],
    observed=[
        Observed(
            "y",
            lambda ability, difficulty, slope: Bernoulli(logits=slope * (ability - difficulty)),
            ("student", "question"),
        )
    ],
)
fit = infer(model, data, "nuts")

# Meta-analysis
model = Model(
    plates=[Plate("school")],
    inputs={"se": "school"},
    latents=[
        Latent("mean", Normal(0.0, 5.0)),
        Latent("sd", HalfCauchy(5.0)),
        Latent("effect", lambda mean, sd: Normal(mean, sd), "school"),
    ],
    observed=[Observed("y", lambda effect, se: Normal(effect, se), "school")],
)
fit = infer(model, data)

# Measurement error
model = Model(
    plates=[Plate("row")],
    latents=[
        Latent("a", Normal(0.0, 1.0)),
        Latent("b", Normal(0.0, 1.0)),
        Latent("sigma", HalfNormal(1.0)),
        Latent("true", Normal(0.0, 1.0), "row"),
    ],
    observed=[
        Observed("x", lambda true: Normal(true, 0.3), "row"),
        Observed("y", lambda a, b, sigma, true: Normal(a + b * true, sigma), "row"),
    ],
)
fit = infer(model, data, "nuts")

# Finite mixture
model = Model(
    plates=[Plate("row")],
    latents=[
        Latent("share", Beta(2.0, 2.0), group="top"),
        Latent("low", Normal(0.0, 2.0), group="top"),
        Latent("gap", HalfNormal(4.0), group="top"),
        Latent("sd", HalfNormal(1.0), group="top"),
        Latent("high", lambda share: Bernoulli(share), "row"),
    ],
    observed=[Observed("y", lambda low, gap, sd, high: Normal(low + gap * high, sd), "row")],
)
fit = infer(model, data)

# Change point
model = Model(
    plates=[Plate("year")],
    inputs={"t": "year"},
    latents=[
        Latent("early", Gamma(2.0, 1.0)),
        Latent("late", Gamma(2.0, 1.0)),
        Latent("point", Categorical(logits=torch.zeros(20))),
    ],
    observed=[
        Observed(
            "y",
            lambda early, late, point, t: Poisson(torch.where(t < point, early, late)),
            "year",
        )
    ],
)
fit = infer(model, data)

# Correlated effects of groups
model = Model(
    plates=[Plate("group"), Plate("row", within="group")],
    inputs={"x": "row"},
    latents=[
        Latent("mean", Normal(0.0, 1.0), shape=(2,)),
        Latent("sd", HalfNormal(1.0), shape=(2,)),
        Latent("factor", LKJCholesky(2, 2.0), shape=(2, 2)),
        Latent("z", Normal(0.0, 1.0), "group", shape=(2,)),
        Latent("sigma", HalfNormal(1.0)),
    ],
    observed=[
        Observed(
            "y",
            lambda mean, sd, factor, z, sigma, x: Normal(
                (mean + sd * (factor @ z)) @ torch.stack([torch.ones_like(x), x]), sigma
            ),
            "row",
        )
    ],
)
fit = infer(model, data, "nuts")

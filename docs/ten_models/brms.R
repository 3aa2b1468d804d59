# The same models for brms, which is not run here; their data are a frame, one row for each answer.
library(brms)

# Linear regression
fit <- brm(
  y ~ x,
  data = data,
  prior = prior(normal(0, 1), class = Intercept) +
    prior(normal(0, 1), class = b) +
    prior(normal(0, 1), class = sigma)
)

# Robust noise
fit <- brm(
  bf(y ~ x, nu = 4),
  family = student(),
  data = data,
  prior = prior(normal(0, 1), class = Intercept) +
    prior(normal(0, 1), class = b) +
    prior(normal(0, 1), class = sigma)
)

# Hierarchical logistic regression
fit <- brm(
  y ~ x + (1 | group),
  family = bernoulli(),
  data = data,
  prior = prior(normal(0, 1), class = Intercept) +
    prior(normal(0, 1), class = b) +
    prior(normal(0, 1), class = sd)
)

# Item response, one parameter
fit <- brm(
  y ~ 0 + (1 | student) + (1 | question),
  family = bernoulli(),
  data = data,
  prior = prior(constant(1), class = sd, group = student) +
    prior(normal(0, 1), class = sd, group = question)
)

# Item response, two parameters
fit <- brm(
  bf(
    y ~ exp(logslope) * (ability - difficulty),
    ability ~ 0 + (1 | student),
    difficulty + logslope ~ 0 + (1 | question),
    nl = TRUE
  ),
  family = bernoulli(),
  data = data,
  prior = prior(constant(1), class = sd, group = student, nlpar = ability) +
    prior(constant(1), class = sd, group = question, nlpar = difficulty) +
    prior(constant(0.5), class = sd, group = question, nlpar = logslope)
)

# Meta-analysis
fit <- brm(
  y | se(se) ~ 1 + (1 | school),
  data = data,
  prior = prior(normal(0, 5), class = Intercept) +
    prior(cauchy(0, 5), class = sd)
)

# Measurement error
fit <- brm(
  y ~ me(x, 0.3),
  data = data,
  prior = prior(normal(0, 1), class = Intercept) +
    prior(normal(0, 1), class = b) +
    prior(normal(0, 1), class = sigma) +
    prior(normal(0, 1), class = meanme)
)

# Finite mixture
fit <- brm(
  bf(y ~ 1, sigma1 = "sigma2"),
  family = mixture(gaussian, gaussian, order = TRUE),
  data = data,
  prior = prior(normal(0, 2), class = Intercept, dpar = mu1) +
    prior(normal(0, 4), class = Intercept, dpar = mu2) +
    prior(dirichlet(2, 2), class = theta)
)

# Correlated effects of groups
fit <- brm(
  y ~ x + (x | group),
  data = data,
  prior = prior(normal(0, 1), class = Intercept) +
    prior(normal(0, 1), class = b) +
    prior(normal(0, 1), class = sd) +
    prior(lkj(2), class = cor) +
    prior(normal(0, 1), class = sigma)
)

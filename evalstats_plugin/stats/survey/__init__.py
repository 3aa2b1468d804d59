"""Survey sampling: strata, finite populations, covariates, and labels beside a judge."""

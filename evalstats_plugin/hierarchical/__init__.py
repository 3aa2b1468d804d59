"""Bayesian models with levels: models, tasks, questions, each of which borrows from its like.

Nested models are inferred by massively parallel importance sampling, crossed ones (every model on
every task) by Pólya–Gamma block Gibbs.
"""

"""Thurstone's model: expectation propagation, Laplace, exact draws."""

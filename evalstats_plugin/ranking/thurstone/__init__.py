"""Thurstone's model: expectation propagation, Laplace approximation, exact draws and chains."""

"""Models on nested plates: massively parallel importance sampling, QEM, variational inference."""

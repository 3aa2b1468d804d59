"""Plated models: massively parallel importance sampling, QEM and variational inference."""

"""Engines of hierarchical inference; all but `posterior` need torch."""

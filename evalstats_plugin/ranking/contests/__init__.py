"""Contests: comparisons of two players, counted, and read from files, tables and scores."""

"""Contests: comparisons of two or more, coded, counted, read from files and scores."""

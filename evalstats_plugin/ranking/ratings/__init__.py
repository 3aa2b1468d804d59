"""Ratings by Bradley–Terry and Plackett–Luce models, with their uncertainty."""

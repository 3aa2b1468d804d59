"""Ratings: Bradley–Terry and Plackett–Luce."""

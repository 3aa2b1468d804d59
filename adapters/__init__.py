"""Borders: one folder per harness, named as the harness is imported.

An adapter knows everything about one harness's files and nothing about statistics. It is found
through its entry point, like anyone else's; no code imports it by name.
"""

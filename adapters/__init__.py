"""Adapters: one folder per harness or file format, named as the harness is imported.

An adapter knows everything about the files of one harness and nothing about statistics. It is
found through its entry point, as those of other packages are; no code imports it by name.
"""

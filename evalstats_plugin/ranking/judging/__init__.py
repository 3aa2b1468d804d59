"""Judging sessions: people, programs or models compare items in pairs.

`session` keeps the answers in a file, `standing` the current ranking; a person answers in the
terminal (`screen`), a program or model by itself (`automatic`).
"""

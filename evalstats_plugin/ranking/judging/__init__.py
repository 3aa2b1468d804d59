"""Somebody compares items two by two: what is asked, who answers, and where answers are kept.

The one who answers is a person at the terminal (`app`), a model, or any program (`judges`).
"""

"""FORMULAS: arrays in, numbers out.

Code in this folder imports NumPy, SciPy's ``special`` and nothing else. Functions broadcast over
leading axes, take every argument explicitly (defaults live in ``analyses``), and answer NaN where
a quantity is undefined.
"""

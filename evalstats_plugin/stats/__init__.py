"""Statistical formulas: arrays in, numbers out.

Modules import NumPy, SciPy's ``special`` and nothing else (`draws` also ArviZ, on use). Functions
broadcast over leading axes, take every argument explicitly (defaults live in the packages that ask
the questions), and return NaN where a quantity is undefined.
"""

"""Data: responses of models to tasks, matrices and stores of them, and the base of results.

* `responses`: scores of one model on one task; `runs`: sets of them, labels, repeated runs
* `measure`: what a score is, and its scale; `metrics`: the registry of metrics; `scales`: on which
  scale scores are where nothing says so
* `matrix`: models × items × epochs; `store`: the same on disk, larger than memory
* `tables`: CSV, JSON and Parquet as columns; `importing`: large tables to stores
* `published`: values without items, and the counts behind them
* `results`: the base of all results; `methods`: what a statistical method is
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)

"""Comparisons of models: paired, unpaired, across tasks, sequential; ranks and power analysis.

* `compare`: the public function; `design`: which models can be compared on which items; `units`:
  what is sampled; `methods`: the methods, the defaults and why
* `paired`, `unpaired`, `tasks`, `metrics`: an analysis each; `stored`: the paired one for a store
  on disk; `families`: what of each is judged at once
* `ranks`: sets of possible ranks; `leaderboard`: a table of models and tasks
* `judged`: judges corrected by people's labels, and what to label next
* `gating`: may a model be released?
* `planning`: how many items, epochs or models are needed, from a pilot's logs or assumptions
* `rows`: the records that are returned
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)

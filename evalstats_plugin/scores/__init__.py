"""Scores with intervals: epochs, clusters, groups, metrics that are not means.

* `intervals`: the public function; `methods`: its methods, the defaults and why
* `groups`: scores of groups of tasks; `missing`: items without a score
* `cells`: one model on one task under one metric, with clusters, and what the rows of one metric
  know together
* `metrics`: F1, AUC, BLEU and other metrics that are not means
* `costs`: tokens, money and time, for each item and each right answer
* `epochs`: pass@k, votes of k answers, and the variance between and within items; `noise`: of
  repeated runs
* `control_variate`: scores made more precise by other models'
* `slices`: parts of a task by a field of the items
* `judged`: judges' scores corrected by people's labels, agreement of raters, bias
* `findings`: what is wrong with logs
* `items`: statistics of items; `rows`: the records that are returned
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)

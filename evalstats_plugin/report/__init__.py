"""What people see: tables, notes, file formats, figures and pages.

* `text`: numbers, notes, tables and file formats that all reports share; tables of scores
* `tables`: one table object for the terminal, Markdown, LaTeX, HTML, CSV and notebooks
* `comparisons`, `abilities`, `hierarchical`, `rankings`, `adaptive`, `judged`, `gating`, `noise`,
  `costs`, `leaderboard`: tables by kind of result; `answers`: the sentence before them
* `figures`: Matplotlib figures; `html`: the report as one HTML page; `paper`: a folder for a paper
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)

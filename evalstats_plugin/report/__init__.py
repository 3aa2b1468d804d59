"""What people see: tables, notes, file formats, figures and pages.

* `text`: numbers, notes, tables and file formats that all reports share; tables of scores
* `comparisons`, `abilities`, `hierarchical`, `rankings`, `adaptive`: tables by kind of result
* `figures`: Matplotlib figures; `html`: the report as one HTML page
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)

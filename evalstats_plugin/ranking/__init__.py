"""Rankings from pairwise comparisons: Bradley–Terry, Thurstone and Plackett–Luce models.

* `rank`: the public function; `rows`: its result; `goodness`: goodness of fit
* `next`: which pair to compare next, and when to stop
* `contests`: comparisons, read and counted; `ratings`: Bradley–Terry and Plackett–Luce
* `thurstone`: Thurstone's model
* `judging`: people and programs as judges
"""

from evalstats_plugin.runtime.lazy import public_names

__getattr__, __dir__ = public_names(__name__, __file__)

"""``python -m evalstats_plugin``."""

from __future__ import annotations

import os
import sys

# `-m` looks for modules in the folder that one stands in, and a folder of logs is no place for
# code: a numpy.py there would run.
try:
    if sys.path[0] == os.getcwd() and not sys.flags.safe_path:  # noqa: PTH109 - loads nothing
        del sys.path[0]
except OSError:  # the folder is gone
    pass

from evalstats_plugin.cli import main

main(prog_name="evalstats-plugin")

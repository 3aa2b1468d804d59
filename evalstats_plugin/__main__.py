"""``python -m evalstats_plugin``."""

from __future__ import annotations

from evalstats_plugin.cli import main

main(prog_name="evalstats-plugin")

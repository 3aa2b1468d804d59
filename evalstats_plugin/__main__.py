"""``python -m evalstats_plugin``."""

from evalstats_plugin.cli import main

main(prog_name="evalstats-plugin")

"""Reads logs as the options of a command say."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalstats_plugin.cli.progress import progress_on_logs
from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.logs import read, read_results
from evalstats_plugin.plugins import Plugins
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.response_store import LARGE, ResponseStore, is_store
from evalstats_plugin.responses import Selection


def store_at(paths: tuple[str, ...], chosen: Mapping[str, Any]) -> ResponseStore | None:
    """Open a response store of so many answers that they are left on disk.

    None for other paths. Smaller ones are read as logs are, which leaves every option.
    """
    if len(paths) != 1 or not is_store(Path(paths[0])):
        return None
    store = ResponseStore(paths[0])
    if math.prod(store.shape) <= LARGE:
        return None
    for name in ("task", "metric", "cluster", "columns", "wide", "at_k"):
        if chosen[name]:
            msg = (
                f"--{name.replace('_', '-')} found, but a store of {math.prod(store.shape):,} "
                f"answers (more than {LARGE:,}) is compared as it is: leave it out, or take a "
                "part of it in Python (ResponseStore(path).matrix(items, models))"
            )
            raise SelectionError(msg)
    return store


def read_logs(paths: tuple[str, ...], chosen: Mapping[str, Any], plugins: Plugins) -> ResponseSet:
    """Read files, folders and patterns, or one JSON object from standard input for ``-``."""
    if paths == ("-",):
        try:
            data = json.load(sys.stdin)
        except ValueError as error:
            msg = (
                f"standard input is not JSON: {error}; expected results as lm-eval's "
                "simple_evaluate returns them (a table has to be a file)"
            )
            raise LogError(msg) from error
        selection = Selection(chosen["task"], chosen["metric"], chosen["cluster"])
        return read_results(data, selection, plugins)
    with progress_on_logs(quiet=chosen["quiet"]) as on_log:
        return read(
            *paths,
            task=chosen["task"],
            metric=chosen["metric"],
            cluster=chosen["cluster"],
            runs=chosen["runs"],
            include_incomplete=chosen["include_incomplete"],
            skip_broken=chosen["skip_broken"],
            columns=chosen["columns"],
            wide=chosen["wide"] or "",
            plugins=plugins,
            on_log=on_log,
        )

"""Puts texts to a model through Inspect, for who judges with one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from threading import Thread
from typing import Any

from evalstats_plugin.adapters.inspect_ai.printable import printable
from evalstats_plugin.errors import PluginError, SelectionError

_MOST_OF_A_MESSAGE = 300


def generator(model: str) -> Callable[[str], str] | None:
    """Return what puts a text to a model of Inspect; None where it is not installed or not known.

    It may be called from several threads at once.

    Raises
    ------
    SelectionError
        Inspect lacks what it needs to ask this model, such as a package or a key.
    """
    try:
        models = import_module("inspect_ai.model")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "inspect_ai":
            raise
        return None
    try:
        known: Any = models.get_model(model)
    except ValueError:
        # No provider of that name: somebody else may know it.
        return None
    except Exception as error:
        # What is missing for one of its thirty providers has no common base.
        msg = f"Inspect cannot ask the model {model!r}: {_said(error)}"
        raise SelectionError(msg) from error
    loop = asyncio.new_event_loop()
    # A provider's connections belong to one loop, which outlives each question.
    Thread(target=loop.run_forever, daemon=True, name="inspect_ai").start()

    def generate(text: str) -> str:
        try:
            return asyncio.run_coroutine_threadsafe(known.generate(text), loop).result().completion
        except Exception as error:
            msg = f"the model {model!r} did not answer: {type(error).__name__}: {_said(error)}"
            raise PluginError(msg) from error

    return generate


def _said(error: Exception) -> str:
    return " ".join(printable(str(error)).split())[:_MOST_OF_A_MESSAGE]

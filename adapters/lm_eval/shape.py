"""What results look like inside, checked once, so that nothing further on need doubt it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from evalstats_plugin.adapters.lm_eval.block import KEY
from evalstats_plugin.errors import LogError

Is = Callable[[Any], bool]

_OBJECT = "an object"
_LONGEST = 40


def check(data: Mapping[str, Any], path: Path) -> None:
    """Refuse results whose parts are not what lm-eval writes.

    Raises
    ------
    LogError
        The first part that is not, and what it should be.
    """
    parts: dict[str, Any] = {}
    for name in ("groups", "n-samples", "group_subtasks"):
        part = data.get(name)
        parts[name] = {} if part is None else part
    parts |= {name: data[name] for name in ("results", "configs")}
    for name, part in parts.items():
        _expect(part, _is_object, _OBJECT, name, path)
        for inner, value in part.items():
            if name == "group_subtasks":
                _expect(value, _is_names, "a list of names", f"{name}.{inner}", path)
            else:
                _expect(value, _is_object, _OBJECT, f"{name}.{inner}", path)
    for task, config in parts["configs"].items():
        _check_config(config, f"configs.{task}", path)
    for name, sizes in (("n-samples", ("original", "effective")), ("results", ("sample_len",))):
        for task, inside in parts[name].items():
            for size in sizes:
                where = f"{name}.{task}.{size}"
                _expect(inside.get(size, 0), _is_size, "a number of items", where, path)
    _check_block(data.get(KEY, {}), path)


def _check_config(config: Mapping[str, Any], where: str, path: Path) -> None:
    for name in ("filter_list", "metric_list"):
        entries = config.get(name)
        if entries is not None:
            _expect(entries, _is_objects, "a list of objects", f"{where}.{name}", path)
    for entry in config.get("filter_list") or ():
        _expect(entry.get("name", ""), _is_text, "a text", f"{where}.filter_list: name", path)


def _check_block(block: Any, path: Path) -> None:
    """Of our own, what is read again: the values that were replaced."""
    _expect(block, _is_object, _OBJECT, KEY, path)
    changes = block.get("rescored", [])
    _expect(changes, _is_objects, "a list of objects", f"{KEY}.rescored", path)
    for change in changes:
        for name in ("task", "key", "logged"):
            _expect(change.get(name), _is_text, "a text", f"{KEY}.rescored: {name}", path)
        _expect(change["logged"], _is_json, "a value as JSON", f"{KEY}.rescored: logged", path)


def _expect(value: Any, fits: Is, expected: str, where: str, path: Path) -> None:
    if not fits(value):
        shown = repr(value)
        shown = shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
        raise LogError(f"{path}: {where} is {shown}, expected {expected}, as lm-eval writes it")


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_object, cast("list[Any]", value)))


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast("list[Any]", value)))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_size(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and 0 <= value < math.inf)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

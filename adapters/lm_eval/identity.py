"""Who the model is.

The folder's name does not tell: another revision, peft, precision or chat template lands in the
same folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalstats_plugin.adapters.lm_eval.layout import section

# In lm-eval's order of precedence (loggers/evaluation_tracker.py).
_NAMES = ("peft", "delta", "pretrained", "model", "path", "engine")
_SHORT = 8

Settings = tuple[tuple[str, str], ...]


def model_identity(data: Mapping[str, Any]) -> tuple[str, Settings]:
    """Return a model's name and the settings that make it another model under that name."""
    config = section(data, "config")
    arguments = model_arguments(config.get("model_args"))
    key = next((k for k in _NAMES if k in arguments), None)
    # Without a name among the arguments lm-eval makes up a random one for the folder.
    name = arguments[key] if key else str(config.get("model", "model"))
    settings = {k: v for k, v in arguments.items() if k != key}
    if config.get("model") and key:
        settings["backend"] = str(config["model"])
    for label, value in (
        ("revision", config.get("model_revision")),
        ("sha", config.get("model_sha")),
        ("chat_template", data.get("chat_template_sha")),
        ("system_instruction", data.get("system_instruction_sha")),
    ):
        if value:
            settings[label] = str(value)[:_SHORT] if label != "revision" else str(value)
    return name, tuple(sorted(settings.items()))


def model_arguments(arguments: Any) -> dict[str, str]:
    """Read ``--model_args``: an object since 0.4.10, a text ``a=1,b=2`` before."""
    if isinstance(arguments, Mapping):
        return {str(k): str(v) for k, v in arguments.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    pairs = (part.partition("=") for part in str(arguments or "").split(",") if "=" in part)
    return {k.strip(): v.strip() for k, _, v in pairs}


def task_settings(data: Mapping[str, Any], task: str) -> Settings:
    """Return what makes a task another task for the model: the number of examples shown."""
    shots = section(data, "n-shot").get(task)
    return () if shots is None else (("task.num_fewshot", str(shots)),)

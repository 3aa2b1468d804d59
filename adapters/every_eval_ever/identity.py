"""Who the model is, what the metric is called, and what of ours a file carries."""

from __future__ import annotations

import json
from typing import Any

from evalstats_plugin.adapters.every_eval_ever.layout import Json, section

EXTRA = "evalstats"
"""Key of a metric's additional details in files we write: what the schema has no field for."""

_LONGEST_NAME = 60
# What makes another model of the same name, as far as converters write it.
_OF_MODEL = ("dtype", "precision", "quantization", "revision", "sha")
_OF_RUN = ("temperature", "top_p", "top_k", "max_tokens", "reasoning", "num_fewshot")

Settings = tuple[tuple[str, str], ...]


def metric_of(result: Json) -> str:
    """Return the name of a result's metric: converters put it into one of three fields."""
    config = section(result, "metric_config")
    names = (config.get(key) for key in ("metric_name", "metric_id", "evaluation_description"))
    return next((str(n) for n in names if n and len(str(n)) <= _LONGEST_NAME), "score")


def settings_of(found: Json, result: Json) -> Settings:
    """Return what makes another model of one name: platform, engine, precision, sampling."""
    model = section(found, "model_info")
    engine = section(model, "inference_engine")
    details = section(model, "additional_details")
    config = section(result, "generation_config")
    run: dict[str, Any] = {
        **section(config, "additional_details"),
        **section(config, "generation_args"),
    }
    named = {
        "platform": model.get("inference_platform"),
        "engine": " ".join(str(v) for v in (engine.get("name"), engine.get("version")) if v),
        **{key: details.get(key) for key in _OF_MODEL},
        **{f"task.{key}": run.get(key) for key in _OF_RUN},
    }
    return tuple(sorted((k, str(v)) for k, v in named.items() if v not in (None, "")))


def extra_of(result: Json) -> dict[str, Any] | None:
    """Return what we wrote of a result's responses; None where somebody else wrote the file."""
    text = section(result, "metric_config", "additional_details").get(EXTRA)
    return json.loads(text) if text else None

"""Which items belong together: a field of the doc, named by the caller or by the task.

lm-eval has no word for it; a task may say ``metadata: {cluster_key: idx.paragraph}`` in its YAML,
which is logged with its configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evalstats_plugin.adapters.lm_eval.layout import section

if TYPE_CHECKING:
    pass


def cluster_field(asked: str | None, config: Mapping[str, Any]) -> str | None:
    """Return the field to use: the caller's, else the task's own."""
    return asked or section(config, "metadata").get("cluster_key")


def field_of(doc: object, path: str) -> str | None:
    """Return a field of a doc as text, by a dotted path; None where there is none.

    >>> field_of({"idx": {"paragraph": 3}}, "idx.paragraph")
    '3'
    """
    for key in path.split("."):
        if not isinstance(doc, Mapping) or key not in doc:
            return None
        doc = doc[key]  # pyright: ignore[reportUnknownVariableType]
    return doc if isinstance(doc, str) else json.dumps(doc, sort_keys=True)

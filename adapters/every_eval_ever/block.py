"""What an annotation leaves in a result, and how to read the file as if it were not there.

The schema allows no key of ours at the top, but texts in the details of a score. So each annotated
result carries its own block there, with the bytes of its score details as they were before.
"""

from __future__ import annotations

import json
from typing import Any

from evalstats_plugin.adapters.every_eval_ever.layout import Json, section

KEY = "evalstats"
ORIGINAL = "original"


def block_of(result: Json) -> dict[str, Any] | None:
    """Return our block in a result."""
    text = section(result, "score_details", "details").get(KEY)
    return json.loads(text) if isinstance(text, str) else None


def logged_results(found: Json) -> list[Json]:
    """Return the results of a file as they were logged."""
    return [_logged(result) for result in found["evaluation_results"]]


def _logged(result: Json) -> Json:
    block = block_of(result)
    return result if block is None else {**result, "score_details": json.loads(block[ORIGINAL])}

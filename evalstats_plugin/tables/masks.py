"""What can be held out of a response matrix by name, with a line on each."""

from collections.abc import Mapping
from types import MappingProxyType

MASKS: Mapping[str, str] = MappingProxyType(
    {
        "random": "single answers, drawn at random",
        "rows": "models, of which a part of the answers is shown",
        "columns": "items, of which a part of the answers is shown",
        "block": "new models on new items, fitted on old models and old items alone",
        "L": "new models on new items, fitted on all else",
        "shifted-rows": "the ablest models",
        "shifted-columns": "the hardest items",
    }
)
"""Those of `irt.masks.MASKS` that need nothing but the answers; ``"temporal"`` needs dates."""

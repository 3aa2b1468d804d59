"""What the pages quote: tables of the program's own, figures of studies, sessions.

Nothing of it is written by hand: `docs/render.py` puts it between the markers of a page.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@cache
def read_study(name: str) -> dict[str, Any]:
    """Return the figures of one validation study."""
    return json.loads((ROOT / "fixtures" / "validation" / f"{name}.json").read_text())


def short(figure: float) -> str:
    """Write a share with three digits."""
    return f"{figure:.3f}".removeprefix("0")

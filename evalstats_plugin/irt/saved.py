"""What all fitted models can do: be written as a dict, saved and loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.results import finite

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedFit(ABC):
    """A fit of models and items."""

    models: tuple[str, ...]
    item_ids: NDArray[Any]
    """Shape (M,), like `tasks`."""
    tasks: NDArray[Any]
    notes: tuple[str, ...] = ()

    @abstractmethod
    def to_frame(
        self, of: Literal["models", "items"] = "models", *, confidence_level: float = 0.95
    ) -> pd.DataFrame:
        """Return the models or the items, a line each."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """What was fitted and how, ready for JSON: everything but models, items and notes."""

    def to_dict(self, *, confidence_level: float = 0.95) -> dict[str, Any]:
        """Everything but covariances, ready for JSON: finite numbers, strings, lists, None."""
        frames = {
            "models": self.to_frame("models", confidence_level=confidence_level),
            "items": self.to_frame("items", confidence_level=confidence_level),
        }
        return {
            **self.summary(),
            "confidence_level": confidence_level,
            **{of: plain(frame.to_dict("records")) for of, frame in frames.items()},
            "notes": list(self.notes),
        }

    def save(self, path: str | Path) -> Path:
        """Write to one Parquet file: a line per model, then per item; the rest in its metadata."""
        from evalstats_plugin.irt.storage import save_fit

        return save_fit(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        from evalstats_plugin.irt.storage import load_as

        return load_as(cls, Path(path))


def plain(value: Any) -> Any:
    """Numbers that JSON knows, in place of NumPy's and of what is not finite."""
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())  # pyright: ignore[reportUnknownMemberType]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        return {str(key): plain(item) for key, item in pairs.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[Any]", value)]
    return finite(value) if isinstance(value, float) else value

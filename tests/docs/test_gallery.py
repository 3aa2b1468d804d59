"""The gallery shows what its script draws now, and its sums are right."""

from __future__ import annotations

from pathlib import Path

import draw_gallery
import numpy as np
import pytest
from matplotlib.image import imread
from parts import gallery


@pytest.mark.parametrize("name", draw_gallery.DRAWN)
def test_a_picture_is_what_its_script_draws(name: str, tmp_path: Path) -> None:
    """Fonts may differ a little between machines, figures not."""
    now = imread(draw_gallery.save(name, tmp_path))
    kept = imread(draw_gallery.HERE / f"{name}.png")

    assert now.shape == kept.shape
    assert np.abs(now - kept).mean() < 0.02


def test_every_picture_stands_on_a_page() -> None:
    pages = "".join(page.read_text() for page in draw_gallery.HERE.glob("*.md"))

    assert [] == [name for name in draw_gallery.DRAWN if f"({name}.png)" not in pages]
    assert {path.stem for path in draw_gallery.HERE.glob("*.png")} == set(draw_gallery.DRAWN)


def test_exact_coverage_is_that_of_simulated_evals() -> None:
    """Accuracies from Beta(20, 100), 10 questions; a standard error is .0015."""
    rng = np.random.default_rng(1)
    accuracy = rng.beta(20, 100, 20_000)
    low, high = gallery.limits(10, "wilson", 0.95)[rng.binomial(10, accuracy)].T
    held = np.mean((low <= accuracy) & (accuracy <= high))

    exact = gallery.exact_coverage(10, "wilson", 0.95, (20, 100))
    assert held == pytest.approx(exact, abs=0.006)

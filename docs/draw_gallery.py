"""Draws the gallery: figures of the sources, from data in fixtures/ and the public functions.

``python docs/draw_gallery.py`` writes them all into docs/gallery/, the same each time. The numbers
are those of `parts.gallery`, which also writes the pages' tables.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from parts import gallery

import evalstats_plugin as es

HERE = Path(__file__).parent / "gallery"
COLOURS = {
    "wald": "#d55e00", "wilson": "#0072b2", "clopper-pearson": "#56b4e9", "beta-hpd": "#009e73",
}  # fmt: skip
NAMES = {
    "wald": "central limit theorem", "wilson": "Wilson", "clopper-pearson": "Clopper–Pearson",
    "beta-hpd": "Bayes (default)",
}  # fmt: skip
MARKS = dict(zip(COLOURS, "xs^o", strict=True))


def _figure(n_columns: int, height: float, *, shared: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure of a page's width, with panels side by side."""
    figure = Figure(figsize=(9, height), layout="constrained")
    return figure, list(np.ravel(figure.subplots(1, n_columns, squeeze=False, sharey=shared)))


def _legend(figure: Figure, axes: Axes) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)


def small_evals() -> Figure:
    """Intervals of four methods on the typewriter and on one epoch of AIME II."""
    figure, panels = _figure(2, 7)
    evals = {
        "Langchain typewriter, n = 20": gallery.typewriter(),
        "AIME II, n = 15": gallery.aime(1),
    }
    for axes, (title, matrix) in zip(panels, evals.items(), strict=True):
        order = np.argsort(matrix.scores[:, :, 0].mean(1), kind="stable")
        for k, method in enumerate(gallery.SHOWN):
            rows = es.intervals(matrix, method=method, rng=0)
            for place, i in enumerate(order):
                row = rows[i]
                axes.plot(
                    [row.low, row.high], [place + 0.18 * (1.5 - k)] * 2,
                    marker="|", color=COLOURS[method],
                    label=NAMES[method] if place == 0 else None,
                )  # fmt: skip
        axes.axvspan(1, 1.12, color="0.9")
        axes.axvspan(-0.12, 0, color="0.9")
        axes.set(title=title, xlim=(-0.12, 1.12), xlabel="accuracy; grey is impossible")
        axes.set_yticks(range(len(order)), [matrix.models[i] for i in order], fontsize=7)
    _legend(figure, panels[0])
    return figure


def coverage_by_level() -> Figure:
    """Coverage against the level that is claimed, for four sizes."""
    figure, panels = _figure(len(gallery.SIZES), 3, shared=True)
    for axes, n in zip(panels, gallery.SIZES, strict=True):
        axes.plot((0.78, 1), (0.78, 1), color="0.6", lw=1, ls="--")
        for method in gallery.SHOWN:
            found = [gallery.exact_coverage(n, method, level, (1, 1)) for level in gallery.LEVELS]
            axes.plot(
                gallery.LEVELS, found, marker=MARKS[method], color=COLOURS[method],
                label=NAMES[method],
            )  # fmt: skip
        axes.set(title=f"n = {n}", xlabel="level claimed", ylim=(0.35, 1.01))
    panels[0].set_ylabel("share of intervals that hold the truth")
    _legend(figure, panels[0])
    return figure


def wrong_prior() -> Figure:
    """Coverage at 95 % where accuracies are not spread as the prior has it."""
    figure, panels = _figure(len(gallery.TRUTHS), 3, shared=True)
    for axes, (name, truth) in zip(panels, gallery.TRUTHS.items(), strict=True):
        axes.axhline(0.95, color="0.6", lw=1, ls="--")
        for method in gallery.SHOWN:
            found = [gallery.exact_coverage(n, method, 0.95, truth) for n in gallery.SIZES]
            axes.plot(
                gallery.SIZES, found, marker=MARKS[method], color=COLOURS[method],
                label=NAMES[method],
            )  # fmt: skip
        axes.set(xscale="log", title=name, xlabel="questions", ylim=(0.35, 1.01))
        axes.title.set_fontsize(8)
        axes.set_xticks(gallery.SIZES, [str(n) for n in gallery.SIZES])
        axes.minorticks_off()
    panels[0].set_ylabel("coverage of 95 % intervals")
    _legend(figure, panels[0])
    return figure


def paired() -> Figure:
    """How probable it is that the model of the row beats that of the column."""
    figure, panels = _figure(2, 4.6, shared=True)
    matrix = gallery.typewriter()
    order = np.argsort(-matrix.scores[:, :, 0].mean(1), kind="stable")
    models = [matrix.models[i] for i in order]
    for axes, design in zip(panels, ("unpaired", "paired"), strict=True):
        better = np.full((len(models), len(models)), np.nan)
        for row in es.compare(matrix, design=design, correction="none", rng=0):
            a, b = models.index(row.model_b), models.index(row.model_a)
            better[a, b], better[b, a] = row.prob_better, 1 - row.prob_better
        axes.imshow(better, cmap="PuOr_r", vmin=0, vmax=1)
        for (a, b), share in np.ndenumerate(better):
            if a != b:
                strong = abs(share - 0.5) > 0.35
                axes.text(
                    b, a, f"{100 * share:.0f}", ha="center", va="center", fontsize=7,
                    color="white" if strong else "black",
                )  # fmt: skip
        axes.set(title=f"{design}: P(row beats column), %")
        axes.set_xticks(range(len(models)), models, rotation=60, ha="right", fontsize=7)
    panels[0].set_yticks(range(len(models)), models, fontsize=7)
    return figure


def epochs() -> Figure:
    """AIME's intervals if 4 epochs of 15 questions are taken for 60 questions, and as they are."""
    figure, (axes,) = _figure(1, 5.5)
    once = gallery.aime()
    flat = es.ResponseMatrix.from_array(
        once.scores.reshape(len(once.models), -1), models=once.models, tasks=["AIME II 2025"] * 60
    )
    kinds = {
        "as 60 questions, central limit theorem": (
            es.intervals(flat, method="wald", rng=0),
            "#d55e00",
        ),
        "as 60 questions, Bayes": (es.intervals(flat, rng=0), "#0072b2"),
        "15 questions in 4 epochs (default)": (es.intervals(once, rng=0), "#009e73"),
    }
    for k, (label, (rows, colour)) in enumerate(kinds.items()):
        for place, row in enumerate(rows):
            axes.plot(
                [row.low, row.high], [-place + 0.22 * (1 - k)] * 2, marker="|", color=colour,
                label=None if place else label,
            )  # fmt: skip
    axes.set(xlabel="mean over epochs")
    axes.set_yticks(-np.arange(len(once.models)), once.models, fontsize=8)
    _legend(figure, axes)
    return figure


def machines() -> Figure:
    """Abilities against accuracy, difficulties against the share of right answers."""
    figure, (left, right) = _figure(2, 3.6)
    found = gallery.digit_patterns("2pl")
    left.scatter(found.ability, found.accuracy, s=12, color="#0072b2")
    left.set(xlabel="ability θ of a classifier", ylabel="accuracy on 797 digits")
    right.scatter(found.difficulty, found.share_right, s=8, color="#d55e00", alpha=0.6)
    right.set(xlabel="difficulty b of a digit", ylabel="classifiers that read it rightly")
    return figure


def easiest_and_hardest() -> Figure:
    """The digits that most and that fewest classifiers read rightly."""
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    share = gallery.digit_patterns("2pl").share_right
    order = np.argsort(-share, kind="stable")
    figure = Figure(figsize=(9, 2.9), layout="constrained")
    for place, axes in enumerate(np.ravel(figure.subplots(2, 10))):
        item = order[place] if place < 10 else order[place - 20]
        axes.imshow(pixels[1000 + item].reshape(8, 8), cmap="gray_r")
        axes.set_title(f"{digit[1000 + item]}: {100 * share[item]:.0f} %", fontsize=8)
        axes.set_axis_off()
    figure.suptitle("digit, and share of classifiers that read it rightly", fontsize=9)
    return figure


def adaptive() -> Figure:
    """Error of the predicted full score by questions asked, for three ways to pick them."""
    figure, panels = _figure(len(gallery.REPLAYED), 3)
    for axes, name in zip(panels, gallery.REPLAYED, strict=True):
        for rule, (label, mark, colour) in gallery.PICKED.items():
            n, error, half_width = gallery.error_by_questions(name, rule)
            axes.errorbar(
                n, error, half_width, marker=mark, color=colour, label=label, capsize=2, lw=1
            )
        axes.set(xscale="log", title=gallery.REPLAYED[name], xlabel="questions asked")
        axes.set_ylim(0)
        axes.set_xticks(n, [str(k) for k in n], fontsize=7)
        axes.minorticks_off()
    panels[0].set_ylabel("mean absolute error")
    _legend(figure, panels[0])
    return figure


DRAWN: dict[str, Callable[[], Figure]] = {
    "small-evals": small_evals,
    "coverage-by-level": coverage_by_level,
    "wrong-prior": wrong_prior,
    "paired": paired,
    "epochs": epochs,
    "machines": machines,
    "digits": easiest_and_hardest,
    "adaptive": adaptive,
}


def save(name: str, folder: Path = HERE) -> Path:
    """Draw one figure into a folder; the file holds no date, so that it is the same each time."""
    metadata: dict[str, Any] = {"Software": None}
    path = folder / f"{name}.png"
    DRAWN[name]().savefig(path, dpi=110, metadata=metadata)
    return path


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for each in DRAWN:
        save(each)

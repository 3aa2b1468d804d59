"""Options of item response fits, for `irt` and `adapt bank`; how long fits are announced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import click

from evalstats_plugin.cli.shell import options, shared
from evalstats_plugin.cli.shell.options import INTERVALS, POSITIVE, Name, Parsed, under
from evalstats_plugin.cli.shell.running import Output, progress_on_work
from evalstats_plugin.errors import SelectionError, check_known
from evalstats_plugin.irt.methods import CANDIDATES, ESTIMATORS, ITEM_MODELS, MASKS, ORDERED_MODELS

if TYPE_CHECKING:
    from evalstats_plugin.data.matrix import ResponseMatrix
    from evalstats_plugin.irt.methods import FitOptions
    from evalstats_plugin.irt.model.fit import AnyFit, IRTFit


OVER = ("items", "models", "clusters", "parametric")
"""Those of `evalstats_plugin.irt.bootstrap`, which costs NumPy; a test compares."""

LARGE = 5_000_000
"""Models × items from which on the memory that a fit needs is printed before it starts."""

LONG = 30.0
"""Seconds from which on the time is printed as well."""


def parse_guessing(texts: Sequence[str]) -> float | dict[str, float] | Literal["choices"]:
    """Read chances of guessing: one for all items, or by task; 0 where they are estimated."""
    by_task = dict[str, float]()
    if tuple(texts) == ("choices",):
        return "choices"
    for text in (text for text in texts if text != "estimated"):
        task, equals, number = text.rpartition("=")
        try:
            chance = float(number)
        except ValueError:
            raise SelectionError(
                f"--guessing {text!r} is not a chance: pass 0.25, TASK=0.25, 'choices' or "
                "'estimated'"
            ) from None
        if not equals and len(texts) > 1:
            msg = "--guessing with several values needs the task of each, such as TASK=0.25"
            raise SelectionError(msg)
        if not equals:
            return chance
        by_task[task] = chance
    return by_task


def parse_settings(text: str) -> dict[str, str]:
    """Read ``NAME=VALUE,...``."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and value for name, _, value in pairs):
        msg = f"--set {text!r} is not NAME=VALUE,...: pass such as --set strength=2,optimiser=lbfgs"
        raise SelectionError(msg)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _two_numbers(text: str) -> tuple[float, float]:
    first, second = map(float, text.split(":"))
    return first, second


_READ: Sequence[tuple[str, Callable[[str], Any], str]] = (
    ("tuple", _two_numbers, "two numbers such as -1.1:0.5"),
    ("float", float, "a number"),
    ("int", int, "a whole number"),
    ("bool", lambda text: ("false", "true").index(text) == 1, "true or false"),
)
"""What is in the type of a field, how its value is read, and what that is in words."""


def settings_of(record: type[FitOptions], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of options of an estimator, by the types of its record's fields.

    Raises
    ------
    SelectionError
        There is no such option, or a value is not of its kind.
    """
    # Groups are read from a file.
    kinds = {f.name: str(f.type) for f in fields(record)}
    settings: dict[str, Any] = {}
    for name, text in texts.items():
        check_known(f"option of {record.__name__}", name, kinds)
        kind = kinds[name]
        reads = ((read, wanted) for part, read, wanted in _READ if part in kind)
        read, wanted = next(reads, (str, ""))
        if text == "none" and "float" in kind:
            settings[name] = None
            continue
        try:
            settings[name] = text if text == "auto" and "Literal" in kind else read(text)
        except ValueError:
            raise SelectionError(f"--set {name}={text}: {text!r} is not {wanted}") from None
    return settings


_fit = under("What is fitted")


@dataclass(frozen=True, kw_only=True)
class IrtOptions:
    """What is fitted, and what is shown of it; each command has a part of these options."""

    bank: str = _fit(
        "Saved fit, as `irt fit --save` writes it: its items stay as they are.",
        default="", required=True, type=click.Path(), metavar="FILE",
    )  # fmt: skip
    to: str = _fit(
        "Saved fit, as `irt fit --save` writes it, that shares some items with the logs.",
        default="", required=True, type=click.Path(), metavar="FILE",
    )  # fmt: skip
    features: str = _fit(
        "CSV file with the column item, task where ids are not unique, and text or columns of "
        "numbers such as an embedding. Rows of items in the logs are learnt from, where there are "
        "any; texts of the others are taken from the logs.",
        default="", required=True, type=click.Path(), metavar="CSV",
    )  # fmt: skip
    focal: tuple[str, ...] = _fit(
        "Models of the focal group, which is compared with all others; names may hold * and ?; may "
        "be repeated.",
        default=(), required=True, metavar="NAME,...",
    )  # fmt: skip
    mask: tuple[str, ...] = _fit(
        f"Which answers are held out: {', '.join(MASKS)}; may be repeated.",
        default=("random",), type=Name("mask", MASKS), metavar="NAME",
    )  # fmt: skip
    about: str | None = _fit(
        "CSV file with the columns model, and size or released (a date): for the masks "
        "shifted-size and temporal.",
        type=click.Path(), metavar="CSV",
    )  # fmt: skip
    candidate: tuple[str, ...] = _fit(
        f"Item models compared: {', '.join(CANDIDATES)}; may be repeated.  [default: those that so "
        "many models can tell apart]",
        default=(), show_default=False, metavar="NAME,...",
    )  # fmt: skip
    draws: int = _fit(
        "Number of random splits of each mask.", default=5, type=POSITIVE, metavar="N"
    )
    item_model: str | None = _fit(
        f"How items differ: {', '.join(ITEM_MODELS)}.  [default: 2pl]",
        type=Name("item model", ITEM_MODELS), metavar="NAME",
    )  # fmt: skip
    estimator: str = _fit(
        f"How it is fitted: auto, {', '.join(ESTIMATORS)}.  [default: auto, by the number of "
        "models]",
        default="auto", show_default=False, type=Name("estimator", ("auto", *ESTIMATORS)),
        metavar="NAME",
    )  # fmt: skip
    dimensions: int | Literal["auto"] | None = _fit(
        "Number of abilities of each model (item model factor); auto: the number that predicts "
        "held-out answers best.",
        type=Parsed(options.parse_dimensions), metavar="K|auto",
    )  # fmt: skip
    guessing: tuple[str, ...] = _fit(
        "Chance of a right answer without knowing it: choices (1 / the number of choices that the "
        "log has), a number such as 0.25, TASK=NUMBER, or estimated; may be repeated.  "
        "[default: 0]",
        default=(), show_default=False, metavar="C",
    )  # fmt: skip
    zero: str = _fit(
        "What ability 0 is: items, a model that answers the average item right half of the time, "
        "which other models do not move; models, where these sum to 0 or are N(0, 1); bank, that "
        "of the saved fit of --bank, by the items that both have; or a model's name.",
        default="items", metavar="items|models|bank|MODEL",
    )  # fmt: skip
    set: Mapping[str, str] | None = _fit(
        "Options of the estimator, such as strength=2,optimiser=lbfgs of map, prior=weak of mml or "
        "prior=gaussian-gamma of vi; two numbers as guessing_prior=-1.1:0.5. A wrong name lists "
        "them.",
        type=Parsed(parse_settings), metavar="NAME=VALUE,...",
    )  # fmt: skip
    confidence_level: float = shared.level()
    bootstrap: int | None = under(INTERVALS)(
        "Number of bootstrap refits that the intervals come from, in place of the fit's own "
        "standard errors.",
        type=POSITIVE, metavar="B",
    )  # fmt: skip
    over: Literal["items", "models", "clusters", "parametric"] | None = under(INTERVALS)(
        f"With --bootstrap: what is drawn anew: {', '.join(OVER)}.  [default: items]",
        type=Name("bootstrap", OVER), metavar="NAME",
    )  # fmt: skip
    uncertainty: tuple[str, ...] = under(INTERVALS)(
        "Recipes for the uncertainty of abilities, shown side by side: all, or model, sandwich, "
        "mcmc, … and those of --over; may be repeated.",
        default=(), metavar="NAME,...",
    )  # fmt: skip
    device: str = under(INTERVALS)(
        "Where to compute; auto: on CUDA if there is one.",
        default="auto", type=click.Choice(["auto", "cpu", "cuda"]),
    )  # fmt: skip
    seed: int = shared.seed()
    baseline: str | None = shared.baseline()
    save: str | None = shared.file(
        "Save the fit, for `irt score` and `irt link`.", metavar="FILE.parquet"
    )

    @property
    def is_factor(self) -> bool:
        """Whether models get several abilities."""
        return self.item_model == "factor" or self.dimensions is not None

    @property
    def recipes(self) -> Sequence[str] | Literal["all"]:
        """Names of recipes for the uncertainty of abilities."""
        names = [name.strip() for text in self.uncertainty for name in text.split(",")]
        return "all" if "all" in names else list(dict.fromkeys(names))

    @property
    def fitted_model(self) -> str:
        """Return the item model with what the options imply."""
        return "factor" if self.is_factor else self.item_model or "2pl"

    def check(self) -> None:
        """Refuse before anything is read what contradicts itself, or cannot be saved."""
        if self.dimensions is not None and self.item_model not in (None, "factor"):
            raise SelectionError(
                f"item model {self.item_model} has one ability per model: leave --dimensions out, "
                "or pass --item-model factor"
            )
        if self.is_factor and self.zero != "items":
            raise SelectionError("--zero needs one ability of each model: leave it out")
        if (self.zero == "bank") != bool(self.bank):
            raise SelectionError(
                "--zero bank and --bank FILE need each other: pass both or neither"
            )
        chosen = self.is_factor or "estimated" in self.guessing or self.item_model in ORDERED_MODELS
        if self.set and self.estimator == "auto" and not chosen:
            raise SelectionError("--set needs to know the estimator: pass --estimator NAME too")
        if self.over is not None and self.bootstrap is None:
            raise SelectionError("--over is an option of the bootstrap: pass --bootstrap B too")
        without, why = (), ""
        if self.is_factor:
            without = ("baseline", "bootstrap", "uncertainty")
            why = "needs one ability of each model, and a factor model has several"
        elif self.item_model in ORDERED_MODELS:
            without = ("bootstrap", "uncertainty", "guessing", "bank")
            why = f"is not of item model {self.item_model}, which is of ordered scores"
        for name in without:
            if getattr(self, name) not in (None, (), ""):
                raise SelectionError(f"--{name} {why}: leave it out, or choose another item model")
        if self.uncertainty and self.recipes != "all":
            from evalstats_plugin.irt.bootstrap import check_recipes

            check_recipes(self.recipes)
        if self.save is not None:
            from evalstats_plugin.runtime.writing import check_output_path

            check_output_path(self.save, [".parquet"], asked="--save", makes_folder=True)
        # A file that is no fit is refused before logs are read.
        self._zero()

    def fit(self, matrix: ResponseMatrix, output: Output) -> AnyFit:
        """Fit; print beforehand what a large fit costs."""
        from evalstats_plugin.irt.fitting import duration_in_words, expected_seconds, fit_irt
        from evalstats_plugin.irt.methods import FactorOptions, MmlItemsOptions, OrderedOptions
        from evalstats_plugin.irt.model.data import memory_needed

        record: type[FitOptions] | None = None
        more: dict[str, Any] = {}
        if self.set and self.estimator != "auto":
            record = ESTIMATORS[self.estimator].options
        if self.item_model in ORDERED_MODELS:
            record = OrderedOptions
        if self.is_factor:
            record = FactorOptions
            more["dimensions"] = self.dimensions or "auto"
        elif "estimated" in self.guessing:
            record = MmlItemsOptions
            more["estimate_guessing"] = True
        settings = None if record is None else record(**more, **settings_of(record, self.set or {}))
        n, m = len(matrix.models), len(matrix.item_ids)
        seconds = expected_seconds(self.fitted_model, self.estimator, n, m)
        if n * m >= LARGE or seconds >= LONG:
            output.tell(
                f"{n:,} models × {m:,} items: the fit needs {memory_needed(n, m) / 2**30:.1f} GiB "
                f"of memory or more, and on one processor core {duration_in_words(seconds)}"
            )
        with work_on(matrix, "fitting", output):
            return fit_irt(
                matrix,
                self.fitted_model,
                self.estimator,
                device=self.device,
                rng=self.seed,
                guessing=parse_guessing(self.guessing),
                zero=self._zero(),
                options=settings,
            )

    def _zero(self) -> str | IRTFit:
        """What the scale is counted from: a saved fit where one is named."""
        file = self.to or self.bank
        if not file:
            return self.zero
        from evalstats_plugin.irt.model.fit import IRTFit

        return IRTFit.load(file)

    def how(self, fit: Mapping[str, Any], *more: str) -> dict[str, object]:
        """Return what ran and, of the options, with what."""
        return {
            "item_model": fit["item_model"],
            "estimator": fit["estimator"],
            "device": fit["diagnostics"].get("device", self.device),
            **{name: getattr(self, name) for name in more},
            "seed": self.seed,
        }


def work_on(matrix: ResponseMatrix, what: str, output: Output) -> AbstractContextManager[object]:
    """Show what is worked on, and how far it is, where someone looks on."""
    size = f"{len(matrix.models):,} models × {len(matrix.item_ids):,} items"
    return progress_on_work(f"{what} {size}", quiet=output.quiet)

"""``evalstats-plugin irt``: abilities of models and difficulties of items on one scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from evalstats_plugin.cli.shell import shared
from evalstats_plugin.cli.shell.options import (
    INTERVALS,
    POSITIVE,
    LazyGroup,
    Name,
    Parsed,
    command,
    offers,
    parse_dimensions,
    takes,
    under,
)
from evalstats_plugin.cli.shell.running import (
    Output,
    Run,
    csv_rows,
    named,
    number_of,
    on_logs,
    progress_on_work,
    read_features,
)
from evalstats_plugin.errors import LogError, SelectionError, check_known
from evalstats_plugin.hierarchical.methods import MOST_CAPABILITIES
from evalstats_plugin.irt.methods import CANDIDATES, ESTIMATORS, ITEM_MODELS, MASKS, ORDERED_MODELS

if TYPE_CHECKING:
    import pandas as pd

    from evalstats_plugin.data.matrix import ResponseMatrix
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.irt.methods import FitOptions
    from evalstats_plugin.irt.model.fit import FactorFit, IRTFit, OrderedFit
    from evalstats_plugin.irt.rows import Abilities, FactorAbilities
    from evalstats_plugin.plugins import Plugins

    AnyFit = IRTFit | FactorFit | OrderedFit


OVER = ("items", "models", "clusters", "parametric")
"""Those of `evalstats_plugin.irt.bootstrap`, which costs NumPy; a test compares."""

LARGE = 5_000_000
"""Models × items from which on the memory that a fit needs is printed before it starts."""

LONG = 30.0
"""Seconds from which on the time is printed as well."""

COMMANDS = offers(
    "irt",
    fit="Estimate the abilities of models.",
    items="Show the items, suspicious ones first.",
    new_items="Predict the difficulty of items that no model answered, from their texts.",
    score="Score models on the fixed items of a saved fit.",
    link="Fit, and put the abilities on the scale of a saved fit.",
    capabilities="Find what items need beyond one ability, and which models have it.",
    dif="Find items that are harder for some models than for others of equal ability.",
    holdout="Predict answers that the fit did not see.",
    choose="Compare item models, and say which to take.",
)


@click.group(cls=LazyGroup, sections={"Commands": COMMANDS}, no_args_is_help=True)
def irt() -> None:
    """Item response theory: abilities of models and difficulties of items on one scale.

    All tasks of the logs make one scale; a task with several metrics needs --metric. Models that
    answered different items can be compared where their items overlap.
    """


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
        type=Parsed(parse_dimensions), metavar="K|auto",
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
    over: Literal["items", "models", "clusters", "parametric"] | None = under(
        INTERVALS
    )(
        f"With --bootstrap: what is drawn anew: {', '.join(OVER)}.  [default: items]",
        type=Name("bootstrap", OVER), metavar="NAME",
    )  # fmt: skip
    uncertainty: tuple[str, ...] = under(INTERVALS)(
        "Recipes for the uncertainty of abilities, shown side by side: all, or model, sandwich, "
        "mcmc, … and those of --over; may be repeated.",
        default=(), metavar="NAME,...",
    )  # fmt: skip
    device: str = shared.device()
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
    def candidates(self) -> Sequence[str] | None:
        """Names of the item models to compare; None for the usual ones."""
        names = [name.strip() for text in self.candidate for name in text.split(",")]
        return list(dict.fromkeys(names)) or None

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
                msg = f"--{name} {why}: leave it out, or choose another item model"
                raise SelectionError(msg)
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
        from evalstats_plugin.irt.fitting import fit_irt
        from evalstats_plugin.irt.methods import FactorOptions, MmlItemsOptions, OrderedOptions

        record: type[FitOptions] | None = None
        more: dict[str, Any] = {}
        if self.set and self.estimator != "auto":
            record = ESTIMATORS[self.estimator].options
        if self.item_model in ORDERED_MODELS:
            record = OrderedOptions
        if self.is_factor:
            record, more = FactorOptions, {"dimensions": self.dimensions or "auto"}
        elif "estimated" in self.guessing:
            record, more = MmlItemsOptions, {"estimate_guessing": True}
        given = settings_of(record, self.set or {}) if record is not None else {}
        options = None if record is None else record(**more, **given)
        _tell_cost(matrix, self, output)
        with _work_on(matrix, "fitting", output):
            return fit_irt(
                matrix,
                self.fitted_model,
                self.estimator,
                device=self.device,
                rng=self.seed,
                guessing=parse_guessing(self.guessing),
                zero=self._zero(),
                options=options,
            )

    def _zero(self) -> str | IRTFit:
        """What the scale is counted from: a saved fit where one is named."""
        file = self.to or self.bank
        return saved_fit(file) if file else self.zero

    def how(self, fit: Mapping[str, Any], *more: str) -> dict[str, object]:
        """Return what ran and, of the options, with what."""
        return {
            "item_model": fit["item_model"],
            "estimator": fit["estimator"],
            "device": fit["diagnostics"].get("device", self.device),
            **{name: getattr(self, name) for name in more},
            "seed": self.seed,
        }


_FITTED = ("item_model", "estimator", "guessing", "zero", "bank", "device", "seed")

_any_model = {
    "help": f"How items differ: {', '.join((*ITEM_MODELS, *ORDERED_MODELS))}; the last two for "
    "scores of up to 20 ordered levels, such as grades.  [default: 2pl]",
    "type": Name("item model", {**ITEM_MODELS, **ORDERED_MODELS}),
}
"""Settings of --item-model where scores may be ordered."""

_ONE_ABILITY = [name for name in ITEM_MODELS if name != "factor"]
_one_ability = {
    "help": f"How items differ: {', '.join(_ONE_ABILITY)}.  [default: 2pl]",
    "type": Name("item model", _ONE_ABILITY),
}
"""Settings of --item-model where models have to have one ability."""

_bank = {
    "help": "With --zero bank: saved fit, as `irt fit --save` writes it, with some of the items.",
    "required": False,
}
"""Settings of --bank where it is the zero alone."""

_capabilities = {
    "help": "Number of capabilities, at most: those that the answers do not support stay empty.  "
    f"[default: half the number of models, at most {MOST_CAPABILITIES}]",
    "type": POSITIVE,
    "metavar": "K",
}
"""Settings of --dimensions where these are capabilities."""


@command(
    ("logs/ --metric acc", "Abilities of models"),
    ("logs/ --metric acc --save bank.parquet", "With the items kept, for models to come"),
)
@takes(
    "asked",
    IrtOptions,
    without=("to", "features", "focal", "mask", "about", "candidate", "draws"),
    bank=_bank,
    item_model=_any_model,
)
@on_logs("abilities")
def fit(run: Run, *, asked: IrtOptions) -> None:
    """Fit an item response model, and show the abilities of the models.

    PATHS are results files, folders or patterns. CSV is one table: of differences with --baseline,
    else of models.
    """
    asked.check()
    if asked.is_factor:
        run.output.check()
    matrix, notes = _matrix(run)
    fitted = asked.fit(matrix, run.output)
    if asked.save is not None:
        fitted.save(asked.save)
    if asked.uncertainty:
        _show_uncertainty(run, cast("IRTFit", fitted), matrix, asked, notes)
        return
    if asked.bootstrap is None:
        _show_models(run, fitted, matrix, asked, notes)
        return
    from evalstats_plugin.irt.bootstrap import bootstrap_abilities

    with _work_on(matrix, "refitting", run.output):
        results = bootstrap_abilities(
            cast("IRTFit", fitted),
            matrix,
            over=asked.over or "items",
            n_resamples=asked.bootstrap,
            rng=asked.seed,
            device=asked.device,
            confidence_level=asked.confidence_level,
            baseline=asked.baseline,
        )
    _show_abilities(run, results, asked, notes)


@command(
    ("logs/ --metric acc", "Suspicious items first"),
    ("logs/ --metric acc --format csv", "Every item, for a program"),
)
@takes("asked", IrtOptions, only=(*_FITTED, "dimensions"), item_model=_any_model, bank=_bank)
@on_logs("items", "fit")
def items(run: Run, *, asked: IrtOptions) -> None:
    """Fit an item response model, and show the items: difficulty, discrimination and fit.

    Items to look at come first, such as those that the better models fail: their key may be wrong.
    Of a factor model, the loadings of the items are shown; of ordered scores, the steps between
    their levels. PATHS are results files, folders or patterns.
    """
    from evalstats_plugin.data.results import Results
    from evalstats_plugin.irt.rows import abilities, factor_abilities
    from evalstats_plugin.report import abilities as report

    asked.check()
    ordered = asked.item_model in ORDERED_MODELS
    if asked.is_factor or ordered:
        run.output.check()
    matrix, notes = _matrix(run)
    fitted = asked.fit(matrix, run.output)
    if ordered:
        steps = fitted.items(matrix)
        run.output.show(_noted(steps, notes), asked.how(fitted.summary()), report.STEPS)
        return
    results: Abilities | FactorAbilities
    if asked.is_factor:
        results = factor_abilities(cast("FactorFit", fitted), matrix)
    else:
        results = abilities(cast("IRTFit", fitted), matrix, items=True)
    run.output.draw({"items": lambda: results, "fit": lambda: fitted})
    # The models are what `irt fit` shows.
    shown = replace(_noted(results, notes), rows=())
    if run.output.form == "csv":
        shown = Results(shown.items, shown.notes)
    run.output.show(
        shown, asked.how(results.fit), report.FACTOR_ITEMS if asked.is_factor else report.ITEMS
    )


@command(name="new-items")
@takes("asked", IrtOptions, only=("features", *_FITTED, "confidence_level"),
       item_model=_one_ability, bank=_bank)  # fmt: skip
@on_logs()
def new_items(run: Run, *, asked: IrtOptions) -> None:
    """Fit, and predict the difficulty of items that no model answered, from texts or features.

    Says how much features explain, each item of the logs being left out in turn. PATHS are results
    files, folders or patterns.
    """
    from evalstats_plugin.irt.answers import ability_matrix
    from evalstats_plugin.irt.new_items import predict_items
    from evalstats_plugin.report import abilities as report

    asked.check()
    features = read_features(asked.features)
    responses = run.read()
    matrix = ability_matrix(responses)
    fitted = cast("IRTFit", asked.fit(matrix, run.output))
    if "text" in features:
        features = _with_texts_of_logs(features, fitted, responses, run.plugins)
    predicted = predict_items(fitted, features, confidence_level=asked.confidence_level)
    predicted = _noted(predicted, (*responses.notes, *fitted.notes))
    run.output.show(predicted, asked.how(fitted.summary()), report.NEW_ITEMS)


@command(
    ("logs/ --metric acc --bank bank.parquet", "Later models on the scale of a saved fit"),
    ("logs/ --metric acc --bank bank.parquet --format csv", "For a program"),
)
@takes("asked", IrtOptions, only=("bank", "device", "confidence_level", "baseline"))
@on_logs("abilities")
def score(run: Run, *, asked: IrtOptions) -> None:
    """Score models on the fixed items of a saved fit: their abilities are on its scale.

    PATHS are results files, folders or patterns, of models that the fit need not know.
    """
    from evalstats_plugin.irt.model.fit import load_fit
    from evalstats_plugin.irt.scoring import score_models

    bank = load_fit(Path(asked.bank))
    several = bank.item_model == "factor"
    if several and asked.baseline is not None:
        msg = "--baseline needs one ability of each model, and this bank has several: leave it out"
        raise SelectionError(msg)
    if several:
        run.output.check()
    matrix, notes = _matrix(run)
    with _work_on(matrix, "scoring", run.output):
        scored: Any = score_models(cast("Any", bank), matrix, device=asked.device)
    scored = replace(scored, notes=(*matrix.notes, *scored.notes))
    _show_models(run, scored, matrix, asked, notes)


@command()
@takes(
    "asked",
    IrtOptions,
    only=(
        *("to", *(name for name in _FITTED if name not in ("zero", "bank"))),
        *("confidence_level", "baseline", "save"),
    ),
    item_model=_one_ability,
)
@on_logs("abilities")
def link(run: Run, *, asked: IrtOptions) -> None:
    """Fit anew, and link the abilities to the scale of a saved fit by the items they share.

    PATHS are results files, folders or patterns.
    """
    asked.check()
    matrix, notes = _matrix(run)
    linked = cast("IRTFit", asked.fit(matrix, run.output))
    if asked.save is not None:
        linked.save(asked.save)
    _show_models(run, linked, matrix, asked, notes)


@command()
@takes("asked", IrtOptions, only=("focal", *_FITTED, "confidence_level"), item_model=_one_ability,
       bank=_bank)  # fmt: skip
@on_logs()
def dif(run: Run, *, asked: IrtOptions) -> None:
    """Test for differential item functioning (DIF): is an item harder for some models?

    Each item is compared between the focal models and all other models of equal ability. PATHS are
    results files, folders or patterns.
    """
    from evalstats_plugin.irt.dif import item_dif
    from evalstats_plugin.report import abilities as report

    matrix, notes = _matrix(run)
    focal = named(asked.focal, matrix.models)
    fitted = cast("IRTFit", asked.fit(matrix, run.output))
    results = item_dif(fitted, matrix, focal, confidence_level=asked.confidence_level)
    how = {
        "item_model": asked.fitted_model,
        "estimator": fitted.estimator,
        "confidence_level": asked.confidence_level,
        "seed": asked.seed,
    }
    run.output.show(_noted(results, notes), how, report.DIFFERENCES)


@command(
    ("logs/ --metric acc", "How well answers are predicted"),
    ("logs/ --metric acc --format json", "For a program"),
)
@takes(
    "asked",
    IrtOptions,
    only=(
        "mask", "about", "draws", "item_model", "estimator", "guessing", "dimensions", "device",
        "seed",
    ),
)  # fmt: skip
@on_logs()
def holdout(run: Run, *, asked: IrtOptions) -> None:
    """Hold out answers, fit the rest, and show how well the answers are predicted.

    Masks say which: random, single answers; rows or columns, a fifth of the models or items, of
    which 30 % of the answers are shown; L, new models on new items, fitted on old models and old
    items alone; block, the same, fitted on all else; shifted-rows, the ablest models; shifted-size,
    the largest; temporal, those released last; shifted-columns, the hardest items; shifted-tasks,
    whole tasks. PATHS are results files, folders or patterns.
    """
    from evalstats_plugin.irt.holdout import hold_out
    from evalstats_plugin.report import abilities as report

    asked.check()
    matrix, notes = _matrix(run)
    about = {} if asked.about is None else read_about(asked.about)
    with _work_on(matrix, "holding out answers of", run.output):
        results = hold_out(
            matrix,
            tuple(dict.fromkeys(asked.mask)),
            item_model=asked.fitted_model,
            estimator=asked.estimator,
            guessing=parse_guessing(asked.guessing),
            dimensions=asked.dimensions or "auto",
            **about,
            seeds=range(asked.seed, asked.seed + asked.draws),
            device=asked.device,
        )
    how = {"item_model": asked.fitted_model, "draws": asked.draws, "seed": asked.seed}
    run.output.show(_noted(results, notes), how, report.HELD_OUT)


@command()
@takes("asked", IrtOptions, only=("candidate", "draws", "device"))
@on_logs()
def choose(run: Run, *, asked: IrtOptions) -> None:
    """Compare item models by answers held out, AIC, BIC and residuals, and say which to take.

    Chosen is the simplest whose log loss on the same held-out answers is within one standard error
    of the best one's. PATHS are results files, folders or patterns.
    """
    from evalstats_plugin.irt.choosing import choose_model
    from evalstats_plugin.report import abilities as report

    matrix, notes = _matrix(run)
    with _work_on(matrix, "comparing item models of", run.output):
        results = choose_model(
            matrix, asked.candidates, seeds=range(asked.draws), device=asked.device
        )
    run.output.show(_noted(results, notes), {"draws": asked.draws}, report.CANDIDATES)


@command()
@takes("asked", IrtOptions, only=("dimensions", "device", "seed"), dimensions=_capabilities)
@on_logs()
def capabilities(run: Run, *, asked: IrtOptions) -> None:
    """Find capabilities: what some items need beyond one ability, and which models have it.

    A sparse factor model: each item needs few capabilities. It is compared with a plain
    hierarchical model by answers that neither has seen, and says so if that predicts as well. PATHS
    are results files, folders or patterns.
    """
    from evalstats_plugin.hierarchical.capabilities import find_capabilities
    from evalstats_plugin.irt.answers import ability_matrix
    from evalstats_plugin.logs.texts import questions_of
    from evalstats_plugin.report import hierarchical
    from evalstats_plugin.runtime.lazy import need_torch

    need_torch("capabilities")
    responses = run.read()
    matrix = ability_matrix(responses)
    questions = questions_of(responses, run.plugins)
    with _work_on(matrix, "fitting", run.output):
        most = cast("int | None", asked.dimensions)
        capability_set = find_capabilities(matrix, most, rng=asked.seed, device=asked.device)
    how = {"device": capability_set.fit.diagnostics["device"], "seed": asked.seed}
    shown = _noted(capability_set, responses.notes)
    run.output.show(shown, how, hierarchical.capabilities_view(questions))


def saved_fit(path: str) -> IRTFit:
    """Read a saved fit of one ability.

    Raises
    ------
    LogError
        There is no such file, or no such fit in it.
    """
    from evalstats_plugin.irt.model.fit import IRTFit

    return IRTFit.load(path)


def read_about(path: str) -> dict[str, dict[str, float]]:
    """Read sizes (numbers) and releases (ISO dates) of models from a CSV file.

    Raises
    ------
    LogError
        There is no such file, or it holds a size or date that cannot be read.
    """
    from datetime import datetime

    about: dict[str, dict[str, float]] = {"sizes": {}, "released": {}}
    for row in csv_rows(path, "sizes and releases of models", needs=("model",)):
        model, when = row["model"], row.get("released")
        if size := row.get("size"):
            about["sizes"][model] = number_of(size, f"{path}: size of {model}")
        if when:
            try:
                about["released"][model] = datetime.fromisoformat(when).timestamp()
            except ValueError as error:
                raise LogError(f"{path}: released of {model} is not a date: {error}") from error
    return about


def _with_texts_of_logs(
    features: pd.DataFrame, fitted: IRTFit, responses: ResponseSet, plugins: Plugins
) -> pd.DataFrame:
    """Add the items of the fit that have no row, with the question of the first log that has it."""
    import pandas as pd

    from evalstats_plugin.irt.answers import item_keys
    from evalstats_plugin.logs.texts import item_texts

    has_task = "task" in features
    told = set(
        zip(features["task"] if has_task else [""] * len(features), features["item"], strict=True)
    )
    missing = [(t, i) for t, i in item_keys(fitted) if (t if has_task else "", i) not in told]
    wanted: dict[str, list[str]] = {}
    for task, item in missing:
        wanted.setdefault(task, []).append(item)
    texts = item_texts(responses, wanted, plugins)
    questions = {(t, i): text.question for (_, t, i), text in reversed(texts.items())}
    rows = [
        {"task": task, "item": item, "text": questions[task, item]}
        for task, item in missing
        if questions.get((task, item))
    ]
    if not rows:
        return features
    more = pd.DataFrame(rows)
    return pd.concat([features, more if has_task else more.drop(columns="task")], ignore_index=True)


def _matrix(run: Run) -> tuple[ResponseMatrix, Sequence[str]]:
    """Read the answers, and what is to be noted about them."""
    from evalstats_plugin.irt.answers import ability_matrix

    responses = run.read()
    return ability_matrix(responses), responses.notes


def _show_models(
    run: Run, fitted: AnyFit, matrix: ResponseMatrix, asked: IrtOptions, notes: Sequence[str]
) -> None:
    """Print the abilities of a fit of either kind."""
    from evalstats_plugin.irt.rows import abilities, factor_abilities
    from evalstats_plugin.report import abilities as report

    level = asked.confidence_level
    if fitted.item_model != "factor":
        estimated = abilities(
            cast("IRTFit", fitted), matrix, confidence_level=level, baseline=asked.baseline
        )
        _show_abilities(run, estimated, asked, notes)
        return
    several = factor_abilities(cast("FactorFit", fitted), matrix, confidence_level=level)
    run.output.show(
        _noted(several, notes), asked.how(several.fit, "confidence_level"), report.FACTORS
    )


def _show_uncertainty(
    run: Run, fitted: IRTFit, matrix: ResponseMatrix, asked: IrtOptions, notes: Sequence[str]
) -> None:
    """Print the recipes asked for."""
    from evalstats_plugin.irt.bootstrap import uncertainty
    from evalstats_plugin.report import abilities as report

    with _work_on(matrix, "refitting", run.output):
        results = uncertainty(
            fitted,
            matrix,
            asked.recipes,
            n_resamples=asked.bootstrap or 200,
            confidence_level=asked.confidence_level,
            rng=asked.seed,
            device=asked.device,
        )
    how = asked.how(results.fit, "confidence_level")
    run.output.show(_noted(results, notes), how, report.UNCERTAINTY)


def _show_abilities(run: Run, results: Abilities, asked: IrtOptions, notes: Sequence[str]) -> None:
    from evalstats_plugin.report import abilities as report

    run.output.draw({"abilities": lambda: results})
    results = _noted(results, notes)
    shown = report.one_table(results) if run.output.form == "csv" else results
    how = asked.how(results.fit, "baseline", "confidence_level")
    run.output.show(shown, how, report.ABILITIES)


def _noted(results: Any, notes: Sequence[str]) -> Any:
    """Return results with what was noted about the logs."""
    return replace(results, notes=tuple(dict.fromkeys((*results.notes, *notes))))


def _work_on(matrix: ResponseMatrix, what: str, output: Output) -> AbstractContextManager[object]:
    """Show what is worked on, and how far it is, where someone looks on."""
    size = f"{len(matrix.models):,} models × {len(matrix.item_ids):,} items"
    return progress_on_work(f"{what} {size}", quiet=output.quiet)


def _tell_cost(matrix: ResponseMatrix, asked: IrtOptions, output: Output) -> None:
    from evalstats_plugin.irt.fitting import duration_in_words, expected_seconds
    from evalstats_plugin.irt.model.data import memory_needed

    n, m = len(matrix.models), len(matrix.item_ids)
    seconds = expected_seconds(asked.fitted_model, asked.estimator, n, m)
    if n * m < LARGE and seconds < LONG:
        return
    needed = memory_needed(n, m) / 2**30
    output.tell(
        f"{n:,} models × {m:,} items: the fit needs {needed:.1f} GiB of memory or more, and on one "
        f"processor core {duration_in_words(seconds)}"
    )

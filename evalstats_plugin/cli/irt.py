"""``evalstats-plugin irt``: abilities of models and difficulties of items on one scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from evalstats_plugin.cli.shell import running
from evalstats_plugin.cli.shell.fitting import IrtOptions, parse_guessing, work_on
from evalstats_plugin.cli.shell.options import POSITIVE, LazyGroup, Name, command, offers, takes
from evalstats_plugin.cli.shell.running import Run
from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.hierarchical.methods import MOST_CAPABILITIES
from evalstats_plugin.irt.methods import ITEM_MODELS, ORDERED_MODELS

if TYPE_CHECKING:
    import pandas as pd

    from evalstats_plugin.data.matrix import ResponseMatrix
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.irt.model.fit import AnyFit, FactorFit, IRTFit
    from evalstats_plugin.irt.rows import Abilities, FactorAbilities
    from evalstats_plugin.plugins import Plugins


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


_ANSWERED = ("item_model", "estimator", "guessing")
_FITTED = (*_ANSWERED, "zero", "bank", "device", "seed")

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
@takes("asked", IrtOptions, item_model=_any_model, bank=_bank,
       without=("to", "features", "focal", "mask", "about", "candidate", "draws"))  # fmt: skip
@running.on_logs("abilities")
def fit(run: Run, *, asked: IrtOptions) -> None:
    """Fit an item response model, and show the abilities of the models.

    PATHS are results files, folders or patterns. CSV is one table: of differences with --baseline,
    else of models.
    """
    from evalstats_plugin.report import abilities as report

    asked.check()
    if asked.is_factor:
        run.output.check()
    matrix, responses = _matrix(run)
    fitted = asked.fit(matrix, run.output)
    if asked.save is not None:
        fitted.save(asked.save)
    if asked.uncertainty:
        from evalstats_plugin.irt.bootstrap import uncertainty

        with work_on(matrix, "refitting", run.output):
            recipes = uncertainty(
                cast("IRTFit", fitted),
                matrix,
                asked.recipes,
                n_resamples=asked.bootstrap or 200,
                confidence_level=asked.confidence_level,
                rng=asked.seed,
                device=asked.device,
            )
        how = asked.how(recipes.fit, "confidence_level")
        run.output.show(_noted(recipes, responses), how, report.UNCERTAINTY)
        return
    if asked.bootstrap is None:
        _show_models(run, fitted, matrix, asked, responses)
        return
    from evalstats_plugin.irt.bootstrap import bootstrap_abilities

    with work_on(matrix, "refitting", run.output):
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
    _show_abilities(run, results, asked, responses)


@command(
    ("logs/ --metric acc", "Suspicious items first"),
    ("logs/ --metric acc --format csv", "Every item, for a program"),
)
@takes("asked", IrtOptions, only=(*_FITTED, "dimensions"), item_model=_any_model, bank=_bank)
@running.on_logs("items", "fit")
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
    matrix, responses = _matrix(run)
    fitted = asked.fit(matrix, run.output)
    if ordered:
        steps = fitted.items(matrix)
        run.output.show(_noted(steps, responses), asked.how(fitted.summary()), report.STEPS)
        return
    results: Abilities | FactorAbilities
    if asked.is_factor:
        results = factor_abilities(cast("FactorFit", fitted), matrix)
    else:
        results = abilities(cast("IRTFit", fitted), matrix, items=True)
    run.output.draw({"items": lambda: results, "fit": lambda: fitted})
    # The models are what `irt fit` shows.
    shown = replace(_noted(results, responses), rows=())
    if run.output.form == "csv":
        shown = Results(shown.items, shown.notes)
    run.output.show(
        shown, asked.how(results.fit), report.FACTOR_ITEMS if asked.is_factor else report.ITEMS
    )


@command(name="new-items")
@takes("asked", IrtOptions, only=("features", *_FITTED, "confidence_level"),
       item_model=_one_ability, bank=_bank)  # fmt: skip
@running.on_logs()
def new_items(run: Run, *, asked: IrtOptions) -> None:
    """Fit, and predict the difficulty of items that no model answered, from texts or features.

    Says how much features explain, each item of the logs being left out in turn. PATHS are results
    files, folders or patterns.
    """
    import pandas as pd

    from evalstats_plugin.irt.new_items import predict_items
    from evalstats_plugin.report import abilities as report

    asked.check()
    rows = running.csv_rows(asked.features, "features of items", needs=("item",))
    features = pd.DataFrame(rows)
    for name in features.columns.difference(["item", "task", "text"]):
        where = f"{asked.features}: {name}"
        features[name] = [running.number_of(cell, where) for cell in features[name]]
    matrix, responses = _matrix(run)
    fitted = cast("IRTFit", asked.fit(matrix, run.output))
    if "text" in features:
        features = _with_texts_of_logs(features, fitted, responses, run.plugins)
    predicted = predict_items(fitted, features, confidence_level=asked.confidence_level)
    predicted = _noted(_noted(predicted, responses), fitted)
    run.output.show(predicted, asked.how(fitted.summary()), report.NEW_ITEMS)


@command(
    ("logs/ --metric acc --bank bank.parquet", "Later models on the scale of a saved fit"),
    ("logs/ --metric acc --bank bank.parquet --format csv", "For a program"),
)
@takes("asked", IrtOptions, only=("bank", "device", "confidence_level", "baseline"))
@running.on_logs("abilities")
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
    matrix, responses = _matrix(run)
    with work_on(matrix, "scoring", run.output):
        scored: Any = score_models(cast("Any", bank), matrix, device=asked.device)
    scored = replace(scored, notes=(*matrix.notes, *scored.notes))
    _show_models(run, scored, matrix, asked, responses)


@command()
@takes("asked", IrtOptions, item_model=_one_ability, only=("to", *_ANSWERED, "device", "seed",
       "confidence_level", "baseline", "save"))  # fmt: skip
@running.on_logs("abilities")
def link(run: Run, *, asked: IrtOptions) -> None:
    """Fit anew, and link the abilities to the scale of a saved fit by the items they share.

    PATHS are results files, folders or patterns.
    """
    asked.check()
    matrix, responses = _matrix(run)
    linked = cast("IRTFit", asked.fit(matrix, run.output))
    if asked.save is not None:
        linked.save(asked.save)
    _show_models(run, linked, matrix, asked, responses)


@command()
@takes("asked", IrtOptions, only=("focal", *_FITTED, "confidence_level"), item_model=_one_ability,
       bank=_bank)  # fmt: skip
@running.on_logs()
def dif(run: Run, *, asked: IrtOptions) -> None:
    """Test for differential item functioning (DIF): is an item harder for some models?

    Each item is compared between the focal models and all other models of equal ability. PATHS are
    results files, folders or patterns.
    """
    from evalstats_plugin.irt.dif import item_dif
    from evalstats_plugin.report import abilities as report

    matrix, responses = _matrix(run)
    focal = running.named(asked.focal, matrix.models)
    fitted = cast("IRTFit", asked.fit(matrix, run.output))
    results = item_dif(fitted, matrix, focal, confidence_level=asked.confidence_level)
    how = {
        "item_model": asked.fitted_model,
        "estimator": fitted.estimator,
        "confidence_level": asked.confidence_level,
        "seed": asked.seed,
    }
    run.output.show(_noted(results, responses), how, report.DIFFERENCES)


@command(
    ("logs/ --metric acc", "How well answers are predicted"),
    ("logs/ --metric acc --format json", "For a program"),
)
@takes("asked", IrtOptions,
       only=("mask", "about", "draws", *_ANSWERED, "dimensions", "device", "seed"))  # fmt: skip
@running.on_logs()
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
    matrix, responses = _matrix(run)
    about = {} if asked.about is None else read_about(asked.about)
    with work_on(matrix, "holding out answers of", run.output):
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
    run.output.show(_noted(results, responses), how, report.HELD_OUT)


@command()
@takes("asked", IrtOptions, only=("candidate", "draws", "device"))
@running.on_logs()
def choose(run: Run, *, asked: IrtOptions) -> None:
    """Compare item models by answers held out, AIC, BIC and residuals, and say which to take.

    Chosen is the simplest whose log loss on the same held-out answers is within one standard error
    of the best one's. PATHS are results files, folders or patterns.
    """
    from evalstats_plugin.irt.choosing import choose_model
    from evalstats_plugin.report import abilities as report

    matrix, responses = _matrix(run)
    candidates = [name.strip() for text in asked.candidate for name in text.split(",")]
    with work_on(matrix, "comparing item models of", run.output):
        results = choose_model(
            matrix,
            list(dict.fromkeys(candidates)) or None,
            seeds=range(asked.draws),
            device=asked.device,
        )
    run.output.show(_noted(results, responses), {"draws": asked.draws}, report.CANDIDATES)


@command()
@takes("asked", IrtOptions, only=("dimensions", "device", "seed"), dimensions=_capabilities)
@running.on_logs()
def capabilities(run: Run, *, asked: IrtOptions) -> None:
    """Find capabilities: what some items need beyond one ability, and which models have it.

    A sparse factor model: each item needs few capabilities. It is compared with a plain
    hierarchical model by answers that neither has seen, and says so if that predicts as well. PATHS
    are results files, folders or patterns.
    """
    from evalstats_plugin.hierarchical.capabilities import find_capabilities
    from evalstats_plugin.logs.texts import questions_of
    from evalstats_plugin.report import hierarchical
    from evalstats_plugin.runtime.lazy import need_torch

    need_torch("capabilities")
    matrix, responses = _matrix(run)
    questions = questions_of(responses, run.plugins)
    with work_on(matrix, "fitting", run.output):
        most = cast("int | None", asked.dimensions)
        capability_set = find_capabilities(matrix, most, rng=asked.seed, device=asked.device)
    how = {"device": capability_set.fit.diagnostics["device"], "seed": asked.seed}
    shown = _noted(capability_set, responses)
    run.output.show(shown, how, hierarchical.capabilities_view(questions))


def read_about(path: str) -> dict[str, dict[str, float]]:
    """Read sizes (numbers) and releases (ISO dates) of models from a CSV file.

    Raises
    ------
    LogError
        There is no such file, or it holds a size or date that cannot be read.
    """
    from datetime import datetime

    about: dict[str, dict[str, float]] = {"sizes": {}, "released": {}}
    for row in running.csv_rows(path, "sizes and releases of models", needs=("model",)):
        model, when = row["model"], row.get("released")
        if size := row.get("size"):
            about["sizes"][model] = running.number_of(size, f"{path}: size of {model}")
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


def _matrix(run: Run) -> tuple[ResponseMatrix, ResponseSet]:
    """Read the answers, and return them as one matrix, too."""
    from evalstats_plugin.irt.answers import ability_matrix

    responses = run.read()
    return ability_matrix(responses), responses


def _show_models(
    run: Run, fitted: AnyFit, matrix: ResponseMatrix, asked: IrtOptions, responses: ResponseSet
) -> None:
    """Print the abilities of a fit of either kind."""
    from evalstats_plugin.irt.rows import abilities, factor_abilities
    from evalstats_plugin.report import abilities as report

    level = asked.confidence_level
    if fitted.item_model != "factor":
        estimated = abilities(
            cast("IRTFit", fitted), matrix, confidence_level=level, baseline=asked.baseline
        )
        _show_abilities(run, estimated, asked, responses)
        return
    several = factor_abilities(cast("FactorFit", fitted), matrix, confidence_level=level)
    run.output.show(
        _noted(several, responses), asked.how(several.fit, "confidence_level"), report.FACTORS
    )


def _show_abilities(run: Run, results: Abilities, asked: IrtOptions, read: ResponseSet) -> None:
    from evalstats_plugin.data.results import Results
    from evalstats_plugin.report import abilities as report

    run.output.draw({"abilities": lambda: results})
    results = _noted(results, read)
    how = asked.how(results.fit, "baseline", "confidence_level")
    shown: Results[Any] = results
    if run.output.form == "csv":
        # Models and their differences have other columns.
        shown = Results(results.differences or results.rows, results.notes)
    run.output.show(shown, how, report.ABILITIES)


def _noted(results: Any, of: ResponseSet | IRTFit) -> Any:
    """Return results with what was noted about the logs, or a fit."""
    return replace(results, notes=tuple(dict.fromkeys((*results.notes, *of.notes))))

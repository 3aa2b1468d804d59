"""Tables of item response models, and paragraphs that explain them.

* `ABILITIES`: models, differences and items of a scale of one ability; `ITEMS`: items alone
* `FACTORS`, `FACTOR_ITEMS`: several abilities per model; `STEPS`: levels of ordered scores
* `HELD_OUT`: predictions of held-out answers; `NEW_ITEMS`: what is expected of new items
* `CANDIDATES`: item models side by side
* `DIFFERENCES`: differential item functioning
* `UNCERTAINTY`: errors of abilities by several recipes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import counted, few
from evalstats_plugin.irt.methods import CANDIDATES as CANDIDATE_MODELS
from evalstats_plugin.irt.methods import ITEM_ZERO, MASKS
from evalstats_plugin.report import text
from evalstats_plugin.report.comparisons import p_value, probability
from evalstats_plugin.report.tables import Column, Table, fixed, one_line

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.rows import Comparison
    from evalstats_plugin.irt.bootstrap import Uncertainties, Uncertainty
    from evalstats_plugin.irt.choosing import Candidate, Candidates
    from evalstats_plugin.irt.dif import ItemDifference, ItemDifferences
    from evalstats_plugin.irt.holdout import HeldOut, HeldOuts
    from evalstats_plugin.irt.new_items import NewItems
    from evalstats_plugin.irt.rows import (
        Abilities,
        Ability,
        FactorAbilities,
        FactorAbility,
        ItemEstimate,
        ItemStep,
    )

MOST_ITEMS = 25
"""Lines of a table of items; items to inspect come first."""

_VERDICTS = {"better": "more able", "worse": "less able", "unclear": "unclear"}

WITH_ERRORS = 3
"""Number of dimensions up to which 80 columns have room for standard errors."""

MOST_FACTOR_ITEMS = 5
"""Items shown for each dimension."""

_SIZES = {"A": "negligible", "B": "moderate", "C": "large"}


def _abilities(results: Abilities, most: int | None = MOST_ITEMS) -> text.Page:
    marks = text.note_numbers([*results.rows, *results.items[:most]])
    tables: list[Table] = []
    if results.rows:
        first = results.rows[0]
        columns = (
            *(_MODEL, Column("Ability", "estimate", text.signed)),
            Column(text.interval_title(results.rows), _limits),
            *(Column("Std. error", "std_error", text.plain), Column("Score", "score", text.share)),
            *(Column("Items", "n_items", fixed(0)), text.marks_column(marks)),
        )
        title = f"Ability on {few(first.task.split(', '), 3)} ({first.metric})"
        tables.append(Table(title, results.rows, columns))
    if results.differences:
        rows = results.differences
        columns = (
            Column("Model", "model_b", least=10),
            Column("More able by", "difference", text.signed),
            Column(text.interval_title(rows), _limits),
            Column("p, adj.", "p_adjusted", p_value),
            Column("P(more able)", "prob_better", probability),
            Column("Verdict", lambda row: _VERDICTS[row.verdict]),
        )
        tables.append(Table(f"Ability compared with {rows[0].model_a}", rows, columns))
    if results.items:
        columns = (
            *(_ITEM, *([_TASK] if _several_tasks(results.items) else [])),
            Column("Difficulty", "difficulty", text.signed),
            Column("± s.e.", "difficulty_std_error", text.plain),
            Column("Discr.", "discrimination", text.plain),
            Column("± s.e.", "discrimination_std_error", text.plain),
            *(Column("Score", "score", text.share), Column("Infit", "infit", text.plain)),
            *(Column("Outfit", "outfit", text.plain), text.marks_column(marks)),
        )
        n = len(results.items)
        title = f"Items: {n}, {len(results.flagged)} of them to look at{_left_out(n, most)}"
        tables.append(Table(title, results.items[:most], columns))
    return text.Page(tables, legend(results), _said(results, marks))


_MODEL = Column("Model", "model", least=10)
_ITEM, _TASK = (
    Column("Item", "item", one_line, least=10, right=False),
    Column("Task", "task", least=10),
)


def items_json(results: Abilities | FactorAbilities, about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, items, and the fit."""
    return text.to_json(Results(results.items, results.notes), about, fit=results.fit)


def legend(results: Abilities) -> list[str]:
    """Explain the numbers to readers who do not know the method."""
    said = [f"Ability: {_zero(results.fit)}"]
    if results.differences:
        said.append(
            "More able by: this ability minus the other's. P(more able): of this pair alone. "
            "Verdict: beyond chance, allowing for the number of models compared (Holm)."
        )
    if results.items:
        said.append(
            "Difficulty: the ability with an even chance. Discr.: below 0 where more able models "
            "are right less often. Infit, outfit: 1 as expected, above 1 noisier."
        )
    return [*said, fit_summary(results.fit)]


def _zero(fit: Mapping[str, Any]) -> str:
    scale = str(fit["identification"])
    if "scored_by" in fit["diagnostics"]:
        return f"The scale is that of the saved fit ({scale})."
    if scale == ITEM_ZERO:
        guessed = fit["item_model"] in ("3pl", "4pl") or fit["diagnostics"].get("guessing")
        right = "halfway between chance and all right" if guessed else "right half of the time"
        return (
            f"0 = a model that answers the average item {right}; other models do not move this "
            "zero. 1 = a logit on an average item."
        )
    if scale.startswith("0 is the ability of"):
        return f"{scale}; 1 = a logit on an average item."
    if "sum to 0" in scale:
        return f"0 is the mean of these models ({scale}), and moves with them."
    if "N(0, 1)" in scale:
        return f"0 is the mean of such models, and 1 is how far they spread ({scale})."
    return f"0 is the mean of such models ({scale})."


def fit_summary(fit: Mapping[str, Any]) -> str:
    """Return what was fitted, how and why, and whether it converged."""
    how: Mapping[str, Any] = fit["diagnostics"]
    if "scored_by" in how:
        return (
            f"Scored ({how['scored_by']}) on {how['n_items']} items of a saved {fit['item_model']} "
            "fit, which count as known."
        )
    ran = f"Item model {fit['item_model']}, estimator {fit['estimator']}: {how['reason']}."
    went: list[str] = []
    if how.get("converged") is not None:
        end = "Converged after" if how["converged"] else "NOT converged after"
        went.append(f"{end} {how['iterations']} steps")
    if how.get("log_likelihood") is not None:
        went.append(f"log-likelihood {how['log_likelihood']:.2f}")
    return f"{ran} {', '.join(went)}." if went else ran


def _left_out(n: int, most: int | None, what: str = "") -> str:
    """Return where the lines are that a table leaves out; nothing where it has all."""
    return "" if most is None or n <= most else f"; {n - most} more{what} are in --format csv"


def _limits(row: Ability | Comparison | ItemDifference) -> str:
    """Interval, or the limit on one side that a model all right, or all wrong, has."""
    if row.low is None and row.high is None:
        return "–"
    tail = text.percent((1 + row.confidence_level) / 2)
    if row.high is None:
        return f"≥ {text.signed(row.low)} ({tail})"
    if row.low is None:
        return f"≤ {text.signed(row.high)} ({tail})"
    return text.interval_text(row, text.signed)


def _several_tasks(items: Sequence[ItemEstimate]) -> bool:
    return len({item.task for item in items}) > 1


def _said(results: Abilities, marks: Mapping[str, int]) -> list[str]:
    """Return the notes as lines of text: footnotes first, then those of the whole."""
    several = _several_tasks(results.items)

    def name(row: Any) -> str:
        if hasattr(row, "model"):
            return row.model
        item = f"item {one_line(row.item)}"
        return f"{row.task} {item}" if several else item

    shown = text.shown_notes(marks)
    numbers = {shown[note]: number for note, number in marks.items()}
    about: dict[str, list[str]] = {}
    for row in (*results.rows, *results.items):
        for note in dict.fromkeys(shown[each] for each in row.notes if each in shown):
            about.setdefault(note, []).append(name(row))
    return [
        *(f"{number}. {note} ({few(about[note])})" for note, number in numbers.items()),
        *(f"* {note}" for note in results.notes),
    ]


def _factors(results: FactorAbilities) -> text.Page:
    k = int(results.fit["n_dimensions"])
    tables: list[Table] = []
    if results.rows:
        first = results.rows[0]
        title = f"Abilities on {few(first.task.split(', '), 3)} ({first.metric}), {k} dimensions"
        # A line of a table has the abilities of one model.
        models = [results.rows[start : start + k] for start in range(0, len(results.rows), k)]

        def ability(row: FactorAbility) -> str:
            error = f" ±{text.plain(row.std_error)}" if k <= WITH_ERRORS else ""
            return f"{text.signed(row.estimate)}{error}"

        abilities = [Column(f"Dim. {j + 1}", itemgetter(j), ability) for j in range(k)]
        score = Column("Score", lambda group: group[0].score, text.share)
        model = Column("Model", lambda group: group[0].model, least=10)
        tables.append(Table(title, models, (model, *abilities, score)))
    loadings = (
        *(_ITEM, _TASK, Column("Loading", "loading", text.signed)),
        *(Column("± s.e.", "std_error", text.plain), Column("Score", "score", text.share)),
    )
    for j in range(1, k + 1):
        items = [item for item in results.items if item.dimension == j][:MOST_FACTOR_ITEMS]
        tables.append(Table(f"Dimension {j}: items that ask most of it", items, loadings))
    correlation = results.fit["correlation"]
    pairs = [
        f"{i + 1} and {j + 1}: {correlation[i][j]:+z.2f}" for i in range(k) for j in range(i + 1, k)
    ]
    turned = str(results.fit["rotation"])
    oblique = f" Correlations of the dimensions: {'; '.join(pairs)}." if turned == "promax" else ""
    legend = (
        "Each dimension is an ability of its own, with mean 0 and variance 1 over these models; "
        "which one, its items tell. Loading: by how much the logit of a right answer rises with "
        "that ability; items with a negative one ask for the opposite. Without a rotation the "
        "first dimension is what most items share."
        f"{oblique}",
        _factor_fit_line(results.fit),
    )
    return text.Page(tables, legend)


def _steps(results: Results[ItemStep], most: int | None = MOST_ITEMS) -> text.Page:
    items = counted(len({(row.task, row.item) for row in results}), "item")
    title = f"Steps between the levels of {items}{_left_out(len(results), most, ' steps')}"
    columns = (
        *(_ITEM, _TASK, Column("To level", "level", fixed(2)), Column("Step", "step", text.signed)),
        Column("± s.e.", "step_std_error", text.plain),
        Column("Discr.", "discrimination", text.plain),
        Column("± s.e.", "discrimination_std_error", text.plain),
    )
    legend = (
        "Step: the ability at which a level (graded: or a higher one; gpcm: beside the one before) "
        "is as likely as not. Discr.: how sharply an item tells models apart.",
    )
    return text.Page([Table(title, results.rows[:most], columns)], legend)


def _factor_fit_line(fit: Mapping[str, Any]) -> str:
    how: Mapping[str, Any] = fit["diagnostics"]
    losses = grouped(how.get("choices", []), lambda row: row["n_dimensions"])
    tried = ", ".join(
        f"{size}: {min(row['log_loss'] for row in rows):.4f}" for size, rows in losses.items()
    )
    why = f" Log loss of answers held out, by dimensions: {tried}." if len(losses) > 1 else ""
    end = "Converged" if how.get("converged") else "NOT converged"
    return (
        f"Item model factor, rotation {fit['rotation']}, estimator {fit['estimator']}. {end} after "
        f"{how.get('iterations')} steps.{why}"
    )


_in_hundredths = partial(text.interval_text, write=fixed(2))


def _new_items(results: NewItems) -> text.Page:
    columns = (
        *([_TASK] if any(row.task for row in results.rows) else []),
        *(_ITEM, Column("Difficulty", "difficulty", fixed(2))),
        Column(text.interval_title(results.rows), _in_hundredths, right=True),
        Column("Expected score", "score", text.share),
    )
    legend = (
        f"Learnt from {counted(results.n_items, 'item')}. Each being left out, features explain "
        f"{text.share(max(results.explained, 0.0))} of the variance of the difficulties, and "
        f"{text.share(results.held)} of the intervals hold. An interval is of this item, not of "
        "the mean of items like it. Expected score: share of the models that will be right.",
    )
    return text.Page([Table("Items that no model answered", results.rows, columns)], legend)


def _held_out(results: HeldOuts) -> text.Page:
    masks = grouped(results.rows, lambda row: row.mask)
    title = f"Answers held out and predicted ({results.rows[0].item_model})"
    tables = [Table(title, list(masks.items()), _HELD_OUT)]
    for mask in masks:
        bins = [part for part in results.calibration if part.mask == mask]
        tables.append(Table(f"Calibration, {mask}", bins, _CALIBRATION))
    said = "; ".join(f"{mask}: {MASKS[mask]}" for mask in masks)
    legend = (
        f"Held out, the rest being fitted: {said}. AUC: chance that a right answer was given a "
        "higher probability than a wrong one, 0.5 by guessing. Log loss: less is better; of the "
        "mean: were the share of right answers predicted everywhere. ±: standard deviation over "
        "the draws, which is no standard error.",
        "Calibration: cells of like predicted probability, all draws together; observed is the "
        "share that was right, s.e. its chance error if predictions are true.",
    )
    return text.Page(tables, legend)


def _spread(name: str, *, alone: bool = False) -> Callable[[tuple[str, Sequence[HeldOut]]], str]:
    """Return a function that writes the mean of a column over the draws of a mask, and its SD."""

    def write(group: tuple[str, Sequence[HeldOut]]) -> str:
        values = [value for row in group[1] if (value := getattr(row, name)) is not None]
        if not values:
            return "–"
        told = f"{mean(values):.4f}"
        return told if alone or len(values) < 2 else f"{told} ± {stdev(values):.4f}"

    return write


_HELD_OUT = (
    Column("Held out", itemgetter(0), least=10),
    Column("AUC", _spread("auc"), right=True),
    Column("Log loss", _spread("log_loss"), right=True),
    Column("of the mean", _spread("base_log_loss", alone=True), right=True),
    Column("Brier", _spread("brier", alone=True), right=True),
    Column("Cells", lambda group: mean(row.n_cells for row in group[1]), fixed(0)),
    Column("Draws", lambda group: len(group[1]), fixed(0)),
)
_CALIBRATION = (
    *(Column("Predicted", "predicted", text.share), Column("Observed", "observed", text.share)),
    *(Column("± s.e.", "std_error", text.share), Column("Cells", "n_cells", fixed(0))),
)


def _candidates(results: Candidates) -> text.Page:
    columns = (
        *(Column("Item model", "item_model"), Column("Log loss", "log_loss", fixed(4))),
        Column("± s.e.", "log_loss_std_error", fixed(4)),
        Column("Worse by", "worse_by", fixed(4)),
        Column("± s.e.", "worse_by_std_error", fixed(4)),
        *(Column("AIC", "aic", fixed(1)), Column("BIC", "bic", fixed(1))),
        *(Column("RMSEA", "rmsea", text.plain), Column("Q3", "largest_q3", text.plain)),
        Column("", _chosen),
    )
    said = "; ".join(f"{row.item_model}: {CANDIDATE_MODELS[row.item_model]}" for row in results)
    legend = (
        f"{said[:1].upper()}{said[1:]}. Log loss: per answer held out, less is better; worse by: "
        "than the best, on the same answers, s.e. over items. AIC, BIC: less is better, – where a "
        "model has no marginal likelihood. RMSEA: error of the shares right on pairs of items "
        "(M2; C2 of levels), below .05 is close; – but for one ability, estimator mml and 3 to 40 "
        "items that models took once. Q3: largest correlation of two items beyond ability, – with "
        "several abilities or few models.",
    )
    table = Table("Item models, the simplest first", results.rows, columns)
    return text.Page([table], legend, answer=results.sentence)


def _chosen(row: Candidate) -> str:
    return "chosen" if row.chosen else "not converged" if row.converged is False else ""


def _uncertainty(results: Uncertainties) -> text.Page:
    from evalstats_plugin.irt.bootstrap import RECIPES

    level = text.percent(results.rows[0].confidence_level)
    used = grouped(results.rows, lambda row: row.recipe)
    columns = (
        Column("Recipe", itemgetter(0), least=10),
        Column("Std. error", lambda group: _mean([row.std_error for row in group[1]]), text.plain),
        Column("Interval", lambda group: _mean(map(_interval_width, group[1])), text.plain),
        Column("Covered", lambda group: group[1][0].coverage, text.share),
        Column("Seconds", lambda group: group[1][0].seconds, fixed(1)),
    )
    said = "; ".join(f"{name}: {RECIPES[name]}" for name in used)
    legend = (
        f"{said[:1].upper()}{said[1:]}.",
        f"Std. error, and width of the {level} interval: means over the models; each model's are "
        "in CSV and JSON. Covered: how many 95 % intervals held the truth in a study with 10 "
        "models and 60 items, – where it tried the recipe too seldom. Seeds tell how far a search "
        "depends on its seed, not how sure the abilities are.",
    )
    table = Table("Uncertainty of abilities by recipe", list(used.items()), columns)
    return text.Page([table], legend)


def _interval_width(row: Uncertainty) -> float | None:
    return None if row.low is None or row.high is None else row.high - row.low


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return mean(numbers) if numbers else None


def _differences(results: ItemDifferences, most: int | None = MOST_ITEMS) -> text.Page:
    columns = (
        *(_ITEM, _TASK, Column("Log odds", "log_odds", text.signed)),
        Column(text.interval_title(results.rows), _limits),
        Column("p, adj.", "p_adjusted", p_value),
        Column("Size", lambda row: "–" if row.log_odds is None else _SIZES[row.size], right=True),
        Column("Verdict", _harder, right=True),
    )
    title = (
        f"Items: {len(results)}, {len(results.flagged)} of them differ between "
        f"{counted(len(results.focal), 'model')} and {results.n_others} others"
        f"{_left_out(len(results), most)}"
    )
    legend = (
        f"The focal models: {few(results.focal)}. Log odds: of a right answer, focal models over "
        "others of the same ability; below 0 the item is harder for them. harder, easier: beyond "
        "chance at the confidence level, allowing for the number of items (Holm). Size: classes of "
        "ETS, by the item alone. An item that differs measures something besides ability.",
    )
    return text.Page([Table(title, results.rows[:most], columns)], legend)


def _harder(row: ItemDifference) -> str:
    if not row.flagged:
        return "unclear"
    return "harder" if (row.log_odds or 0) < 0 else "easier"


ABILITIES = text.page_view(
    _abilities,
    document=partial(_abilities, most=None),
    json=lambda results: {
        "differences": Results(results.differences).to_dict(), "fit": results.fit
    },
)  # fmt: skip
FACTORS = text.page_view(
    _factors, json=lambda results: {"items": Results(results.items).to_dict(), "fit": results.fit}
)
ITEMS, FACTOR_ITEMS = (view._replace(to_json=items_json) for view in (ABILITIES, FACTORS))
HELD_OUT = text.page_view(
    _held_out, json=lambda results: {"calibration": [asdict(part) for part in results.calibration]}
)
NEW_ITEMS = text.page_view(
    _new_items,
    json=lambda results: {
        name: getattr(results, name) for name in ("explained", "held", "n_items")
    },
)
DIFFERENCES = text.page_view(
    _differences,
    document=partial(_differences, most=None),
    json=lambda results: {"focal": list(results.focal)},
)
STEPS = text.page_view(_steps, document=partial(_steps, most=None))
UNCERTAINTY = text.page_view(_uncertainty)
CANDIDATES = text.page_view(_candidates, json=lambda results: {"sentence": results.sentence})

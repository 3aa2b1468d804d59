"""Tables of item response models, and paragraphs that explain them.

* `ABILITIES`: models, differences and items of a scale of one ability; `ITEMS`: items alone
* `FACTORS`, `FACTOR_ITEMS`: several abilities per model
* `HELD_OUT`: predictions of held-out answers; `NEW_ITEMS`: what is expected of new items
* `CANDIDATES`: item models side by side
* `DIFFERENCES`: differential item functioning
* `UNCERTAINTY`: errors of abilities by several recipes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import counted, few
from evalstats_plugin.irt.methods import CANDIDATES as CANDIDATE_MODELS
from evalstats_plugin.irt.methods import ITEM_ZERO, MASKS
from evalstats_plugin.report.comparisons import p_value, probability
from evalstats_plugin.report.text import (
    Lines,
    Page,
    PageTable,
    page_view,
    percent,
    plain,
    share,
    signed,
    to_json,
)

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.rows import Comparison
    from evalstats_plugin.irt.bootstrap import Uncertainties
    from evalstats_plugin.irt.choosing import Candidates
    from evalstats_plugin.irt.dif import ItemDifference, ItemDifferences
    from evalstats_plugin.irt.holdout import HeldOut, HeldOuts
    from evalstats_plugin.irt.new_items import NewItems
    from evalstats_plugin.irt.rows import (
        Abilities,
        Ability,
        FactorAbilities,
        FactorAbility,
        FactorLoading,
        ItemEstimate,
    )

MOST_ITEMS = 25
"""Lines of a table of items; items to inspect come first."""

_MODELS = ("Model", "Ability", "interval", "Std. error", "Score", "Items")
_DIFFERENCES = ("Model", "More able by", "interval", "p, adj.", "P(more able)")
_ITEMS = ("Difficulty", "± s.e.", "Discr.", "± s.e.", "Score", "Infit", "Outfit")
_VERDICTS = {"better": "more able", "worse": "less able", "unclear": "unclear"}

WITH_ERRORS = 3
"""Number of dimensions up to which 80 columns have room for standard errors."""

MOST_FACTOR_ITEMS = 5
"""Items shown for each dimension."""

_SIZES = {"A": "negligible", "B": "moderate", "C": "large"}


def _abilities(results: Abilities, most: int | None = MOST_ITEMS) -> Page:
    marks = _marks(results, most)
    tables: list[PageTable] = []
    if results.rows:
        tables.append((_title(results), _model_lines(results, marks), (0, 2)))
    if results.differences:
        title = f"Ability compared with {results.differences[0].model_a}"
        tables.append((title, _difference_lines(results.differences), (0, 2, 5)))
    if results.items:
        left = (0, 1) if _several_tasks(results.items) else (0,)
        tables.append((_items_title(results), _item_lines(results.items[:most], marks), left))
    return Page(tables, legend(results), _said(results, marks))


def one_table(results: Abilities) -> Results[Any]:
    """Return the rows for a CSV file: differences if there are any, else models."""
    return Results(results.differences or results.rows, results.notes)


def items_json(results: Abilities | FactorAbilities, about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, items, and the fit."""
    return to_json(Results(results.items, results.notes), about, fit=results.fit)


def legend(results: Abilities) -> list[str]:
    """Explain the numbers to readers who do not know the method."""
    fit = results.fit
    sharp = "" if fit["item_model"] == "rasch" else " of discrimination 1"
    guessed = fit["item_model"] in ("3pl", "4pl") or fit["diagnostics"].get("guessing")
    right = ("know the answer to", ", beyond guessing") if guessed else ("get", " right")
    said = [
        "Ability: how good a model is at all these items together, hard and easy ones, each "
        f"weighed by what it tells. {_zero(fit)} A model whose ability is higher by 1 has 2.7 "
        f"times the odds to {right[0]} an item{sharp}{right[1]}. Score: its mean over the items it "
        "took, to compare only between models that took the same items; abilities can always be "
        "compared."
    ]
    if results.differences:
        said.append(
            "More able by: the model's ability minus the other's. P(more able): how probable it "
            "is that it is truly more able, looking at this pair alone. more able, less able: "
            "beyond chance at the confidence level, allowing for the number of models compared "
            "(Holm)."
        )
    if results.items:
        said.append(
            "Difficulty: the ability that has an even chance with the item. Discrimination: how "
            "sharply the item separates models; below 0 more able models get it right "
            "less often, as when its key is wrong. Infit, outfit: 1 where answers vary as the "
            "model expects, well above 1 where they are noisier."
        )
    return [*said, fit_summary(fit)]


def _zero(fit: Mapping[str, Any]) -> str:
    scale = str(fit["identification"])
    if "scored_by" in fit["diagnostics"]:
        return f"The scale is that of the saved fit ({scale})."
    if scale == ITEM_ZERO:
        return (
            "0 = a model that answers the average item right half of the time (where answers are "
            "guessed, halfway between chance and all right); 1 = one logit on an item of average "
            "discrimination. Other models do not move this zero."
        )
    if scale.startswith("0 is the ability of"):
        return f"{scale}; 1 = one logit on an item of average discrimination."
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


def _title(results: Abilities) -> str:
    if not results.rows:
        return "Ability"
    first = results.rows[0]
    tasks = first.task.split(", ")
    return f"Ability on {few(tasks, 3)} ({first.metric})"


def _items_title(results: Abilities) -> str:
    title = f"Items: {len(results.items)}, of which {len(results.flagged)} to look at"
    more = len(results.items) - MOST_ITEMS
    return f"{title}; {more} more are in --format csv" if more > 0 else title


def _model_lines(results: Abilities, marks: Mapping[str, int]) -> Lines:
    level = percent(results.rows[0].confidence_level) if results.rows else ""
    lines = [[*_MODELS, ""]]
    lines[0][2] = f"{level} interval"
    for row in results:
        cells = [row.model, signed(row.estimate), _limits(row), plain(row.std_error)]
        lines.append([*cells, share(row.score), f"{row.n_items:,}", _marked(row, marks)])
    return lines


def _limits(row: Ability | Comparison | ItemDifference) -> str:
    """Interval, or the limit on one side that a model all right, or all wrong, has."""
    if row.low is None and row.high is None:
        return "–"
    tail = percent((1 + row.confidence_level) / 2)
    if row.high is None:
        return f"≥ {signed(row.low)} ({tail})"
    if row.low is None:
        return f"≤ {signed(row.high)} ({tail})"
    return f"[{signed(row.low)}, {signed(row.high)}]"


def _difference_lines(rows: Sequence[Comparison]) -> Lines:
    lines = [[*_DIFFERENCES, "Verdict"]]
    lines[0][2] = f"{percent(rows[0].confidence_level)} interval"
    for row in rows:
        cells = [row.model_b, signed(row.difference), _limits(row), p_value(row.p_adjusted)]
        lines.append([*cells, probability(row.prob_better), _VERDICTS[row.verdict]])
    return lines


def _item_lines(items: Sequence[ItemEstimate], marks: Mapping[str, int]) -> Lines:
    several = _several_tasks(items)
    lines = [["Item", *(["Task"] if several else []), *_ITEMS, ""]]
    for item in items:
        numbers = [signed(item.difficulty), plain(item.difficulty_std_error)]
        numbers += [plain(item.discrimination), plain(item.discrimination_std_error)]
        numbers += [share(item.score), plain(item.infit), plain(item.outfit)]
        name = [item.item, *([item.task] if several else [])]
        lines.append([*name, *numbers, _marked(item, marks)])
    return lines


def _several_tasks(items: Sequence[ItemEstimate]) -> bool:
    return len({item.task for item in items}) > 1


def _marks(results: Abilities, most_items: int | None = None) -> dict[str, int]:
    """Footnote number of each note on a model or item shown."""
    rows: list[Ability | ItemEstimate] = [*results.rows, *results.items[:most_items]]
    return {note: k for k, note in enumerate(dict.fromkeys(n for r in rows for n in r.notes), 1)}


def _marked(row: Ability | ItemEstimate, marks: Mapping[str, int]) -> str:
    return ",".join(str(marks[note]) for note in row.notes)


def _said(results: Abilities, marks: Mapping[str, int]) -> list[str]:
    """Return the notes as lines of text: footnotes first, then those of the whole."""
    about: dict[str, list[str]] = {}
    names = [(row.model, row.notes) for row in results.rows]
    several = _several_tasks(results.items)
    for item in results.items:
        name = f"{item.task} item {item.item}" if several else f"item {item.item}"
        names.append((name, item.notes))
    for name, noted in names:
        for note in noted:
            about.setdefault(note, []).append(name)
    return [
        *(f"{mark}. {note} ({few(about[note])})" for note, mark in marks.items()),
        *(f"* {note}" for note in results.notes),
    ]


def _factors(results: FactorAbilities) -> Page:
    k = int(results.fit["n_dimensions"])
    tables: list[PageTable] = []
    if results.rows:
        first = results.rows[0]
        title = f"Abilities on {few(first.task.split(', '), 3)} ({first.metric}), {k} dimensions"
        tables.append((title, _factor_lines(results.rows, k), (0,)))
    tables += [
        (
            f"Dimension {j + 1}: items that ask most of it",
            _loading_lines(results.items, j + 1),
            (0,),
        )
        for j in range(k)
    ]
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
    return Page(tables, legend)


def _factor_lines(rows: Sequence[FactorAbility], k: int) -> Lines:
    lines = [["Model", *(f"Dim. {j + 1}" for j in range(k)), "Score"]]
    for start in range(0, len(rows), k):
        own = rows[start : start + k]
        lines.append([own[0].model, *(_factor_cell(row, k) for row in own), share(own[0].score)])
    return lines


def _factor_cell(row: FactorAbility, k: int) -> str:
    number = signed(row.estimate)
    return f"{number} ±{plain(row.std_error)}" if k <= WITH_ERRORS else number


def _loading_lines(items: Sequence[FactorLoading], dimension: int) -> Lines:
    own = [item for item in items if item.dimension == dimension][:MOST_FACTOR_ITEMS]
    lines = [["Item", "Task", "Loading", "± s.e.", "Score"]]
    lines += [
        [row.item, row.task, signed(row.loading), plain(row.std_error), share(row.score)]
        for row in own
    ]
    return lines


def _factor_fit_line(fit: Mapping[str, Any]) -> str:
    how: Mapping[str, Any] = fit["diagnostics"]
    chosen = {row["n_dimensions"]: row["log_loss"] for row in how.get("choices", [])}
    for row in how.get("choices", []):
        chosen[row["n_dimensions"]] = min(chosen[row["n_dimensions"]], row["log_loss"])
    tried = ", ".join(f"{size}: {loss:.4f}" for size, loss in chosen.items())
    why = f" Log loss of answers held out, by dimensions: {tried}." if len(chosen) > 1 else ""
    end = "Converged" if how.get("converged") else "NOT converged"
    return (
        f"Item model factor, rotation {fit['rotation']}, estimator {fit['estimator']}. {end} after "
        f"{how.get('iterations')} steps.{why}"
    )


def _new_items(results: NewItems) -> Page:
    level = percent(results.rows[0].confidence_level)
    lines = [["Task", "Item", "Difficulty", f"{level} interval", "Expected score"]]
    lines += [
        [
            row.task, row.item, f"{row.difficulty:.2f}", f"[{row.low:.2f}, {row.high:.2f}]",
            share(row.score),
        ]
        for row in results.rows
    ]  # fmt: skip
    if not any(row.task for row in results.rows):
        lines = [line[1:] for line in lines]
    legend = (
        f"Learnt from {counted(results.n_items, 'item')}. Each being left out, features explain "
        f"{share(max(results.explained, 0.0))} of the variance of the difficulties, and "
        f"{share(results.held)} of the intervals hold. An interval is of this item, not of the "
        "mean of items like it. Expected score: share of the models that will be right.",
    )
    return Page([("Items that no model answered", lines, (0, 1))], legend)


def _held_out(results: HeldOuts) -> Page:
    lines = [["Held out", "AUC", "Log loss", "of the mean", "Brier", "Cells", "Draws"]]
    masks: list[str] = []
    for mask, rows in groupby(results.rows, key=lambda row: row.mask):
        masks.append(mask)
        lines.append(_mask_line(mask, list(rows)))
    tables: list[PageTable] = [
        (f"Answers held out and predicted ({results.rows[0].item_model})", lines, (0,))
    ]
    for mask in masks:
        bins = [["Predicted", "Observed", "± s.e.", "Cells"]]
        bins += [
            [share(b.predicted), share(b.observed), share(b.std_error), f"{b.n_cells:,}"]
            for b in results.calibration
            if b.mask == mask
        ]
        tables.append((f"Calibration, {mask}", bins, ()))
    said = "; ".join(f"{mask}: {MASKS[mask]}" for mask in masks)
    legend = (
        f"Held out, the rest being fitted: {said}. AUC: chance that a right answer was given a "
        "higher probability than a wrong one, 0.5 by guessing. Log loss: less is better; of the "
        "mean: were the share of right answers predicted everywhere. ±: standard deviation over "
        "the draws, which is no standard error.",
        "Calibration: cells of like predicted probability, all draws together; observed is the "
        "share that was right, s.e. its chance error if predictions are true.",
    )
    return Page(tables, legend)


def _mask_line(mask: str, rows: Sequence[HeldOut]) -> list[str]:
    numbers = [_spread([getattr(row, name) for row in rows]) for name in ("auc", "log_loss")]
    base, brier = (
        _spread([getattr(row, name) for row in rows], alone=True)
        for name in ("base_log_loss", "brier")
    )
    cells = f"{round(mean(row.n_cells for row in rows)):,}"
    return [mask, *numbers, base, brier, cells, str(len(rows))]


def _spread(values: Sequence[float | None], *, alone: bool = False) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    text = f"{mean(known):.4f}"
    return text if alone or len(known) < 2 else f"{text} ± {stdev(known):.4f}"


def _candidates(results: Candidates) -> Page:
    lines = [
        ["Item model", "Log loss", "± s.e.", "Worse by", "± s.e.", "AIC", "BIC", "RMSEA", "Q3", ""]
    ]
    lines += [
        [
            row.item_model,
            *(_digits(x, 4) for x in (row.log_loss, row.log_loss_std_error)),
            *(_digits(x, 4) for x in (row.worse_by, row.worse_by_std_error)),
            *(_digits(x, 1) for x in (row.aic, row.bic)),
            *(plain(x) for x in (row.rmsea, row.largest_q3)),
            "chosen" if row.chosen else "not converged" if row.converged is False else "",
        ]
        for row in results.rows
    ]
    said = "; ".join(f"{row.item_model}: {CANDIDATE_MODELS[row.item_model]}" for row in results)
    legend = (
        results.sentence,
        f"{said[:1].upper()}{said[1:]}. Log loss: per answer held out, less is better; worse by: "
        "than the best, on the same answers, s.e. over items. AIC, BIC: less is better, – where a "
        "model has no marginal likelihood. RMSEA: error of the shares right on pairs of items "
        "(M2), below .05 is close. Q3: largest correlation of two items beyond ability.",
    )
    return Page([("Item models, the simplest first", lines, (0,))], legend)


def _digits(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _uncertainty(results: Uncertainties) -> Page:
    from evalstats_plugin.irt.bootstrap import RECIPES

    lines = [["Recipe", "Std. error", "Interval", "Covered", "Seconds"]]
    level = f"{100 * results.rows[0].confidence_level:g} %" if results.rows else ""
    used: list[str] = []
    for recipe, group in groupby(results.rows, key=lambda row: row.recipe):
        rows = list(group)
        used.append(recipe)
        widths = [
            row.high - row.low for row in rows if row.low is not None and row.high is not None
        ]
        errors = [row.std_error for row in rows if row.std_error is not None]
        lines.append(
            [
                recipe,
                plain(mean(errors) if errors else None),
                plain(mean(widths) if widths else None),
                share(rows[0].coverage),
                f"{rows[0].seconds:.1f}",
            ]
        )
    said = "; ".join(f"{name}: {RECIPES[name]}" for name in used)
    legend = (
        f"{said[:1].upper()}{said[1:]}.",
        f"Std. error, and width of the {level} interval: means over the models; each model's are "
        "in CSV and JSON. Covered: how many 95 % intervals held the truth in a study with 10 "
        "models and 60 items, – where it tried the recipe too seldom. Seeds tell how far a search "
        "depends on its seed, not how sure the abilities are.",
    )
    return Page([("Uncertainty of abilities by recipe", lines, (0,))], legend)


def _differences(results: ItemDifferences, most: int = MOST_ITEMS) -> Page:
    level = percent(results.rows[0].confidence_level) if results.rows else ""
    lines = [["Item", "Task", "Log odds", f"{level} interval", "p, adj.", "Size", "Verdict"]]
    lines += [_dif_line(row) for row in results.rows[:most]]
    more = len(results) - most
    title = (
        f"Items: {len(results)}, of which {len(results.flagged)} differ between "
        f"{counted(len(results.focal), 'model')} and {results.n_others} others"
    )
    title += f"; {more} more are in --format csv" if more > 0 else ""
    legend = (
        f"The focal models: {few(results.focal)}. Log odds: of a right answer, focal models over "
        "others of the same ability; below 0 the item is harder for them. harder, easier: beyond "
        "chance at the confidence level, allowing for the number of items (Holm). Size: classes of "
        "ETS, by the item alone. An item that differs measures something besides ability.",
    )
    return Page([(title, lines, (0, 1, 3))], legend)


def _dif_line(row: ItemDifference) -> list[str]:
    verdict = "unclear"
    if row.flagged:
        verdict = "harder" if (row.log_odds or 0) < 0 else "easier"
    size = "–" if row.log_odds is None else _SIZES[row.size]
    return [
        row.item,
        row.task,
        signed(row.log_odds),
        _limits(row),
        p_value(row.p_adjusted),
        size,
        verdict,
    ]


ABILITIES = page_view(
    _abilities,
    document=lambda results: _abilities(results, None),
    json=lambda results: {
        "differences": Results(results.differences).to_dict(), "fit": results.fit
    },
)  # fmt: skip
FACTORS = page_view(
    _factors,
    json=lambda results: {"items": Results(results.items).to_dict(), "fit": results.fit},
)
ITEMS, FACTOR_ITEMS = (view._replace(to_json=items_json) for view in (ABILITIES, FACTORS))
HELD_OUT = page_view(
    _held_out,
    json=lambda results: {"calibration": [asdict(part) for part in results.calibration]},
)
NEW_ITEMS = page_view(
    _new_items,
    json=lambda results: {
        name: getattr(results, name) for name in ("explained", "held", "n_items")
    },
)
DIFFERENCES = page_view(
    _differences,
    document=lambda results: _differences(results, len(results)),
    json=lambda results: {"focal": list(results.focal)},
)
UNCERTAINTY = page_view(_uncertainty)
CANDIDATES = page_view(_candidates, json=lambda results: {"sentence": results.sentence})

"""Texts of items: what was asked, what is right, and what each model answered, as logged.

`item_texts` reads them again from the logs; `compare_items` sets two models side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, replace
from pathlib import Path
from typing import Literal

from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import DesignError, check_known
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.plugins import Plugins, load_plugins
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.scores.items import items_of_two
from evalstats_plugin.scores.rows import ItemComparison, ItemComparisons

LONGEST = 2000
"""Characters of a text; of longer ones the middle is left out."""


def compare_items(
    responses: ResponsesLike,
    a: str,
    b: str,
    *,
    most: int | None = None,
    only: Literal["different", "worse"] = "different",
    plugins: Plugins | None = None,
) -> ItemComparisons:
    """Compare two models item by item: what flipped, with question, target and both answers.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, or any `Responses`; models besides the two say how
        hard an item is.
    a, b
        The models; outcomes are those of b.
    most
        Return at most so many rows, of items on which the two differ, under the first metric of
        each task, and read only their texts; by default every item under every metric.
    only
        ``"worse"``: of these rows only those of items on which b did worse.

    Returns
    -------
    Rows sorted by how telling they are: the largest difference first, in relation to the largest
    of its task, and among equals the items on which the other models agree most.

    Raises
    ------
    SelectionError
        A model is not there.
    DesignError
        No item has a score of both.
    LogError
        A log was damaged since it was read.
    """
    listed, notes = as_list(responses)
    models = list(dict.fromkeys(r.model for r in listed))
    for name in (a, b):
        check_known("model", name, models)
    rows, counts, left_out = items_of_two(listed, a, b)
    if a == b or not rows:
        msg = f"no item has a score of both {a!r} and {b!r}: name two models of the same tasks"
        raise DesignError(msg)
    first = {c.task: c.metric for c in reversed(counts)}
    flipped = [
        row
        for row in rows
        if row.difference
        and row.metric == first[row.task]
        and (only == "different" or row.outcome in ("lost", "worse"))
    ]
    shown = rows if most is None else flipped[:most]
    items: dict[str, set[str]] = {}
    for row in shown:
        items.setdefault(row.task, set()).add(row.item)
    texts = item_texts([r for r in listed if r.model in (a, b)], items, plugins)
    with_texts = tuple(_with_texts(row, texts) for row in shown)
    return ItemComparisons(
        with_texts, (*notes, *left_out), counts=tuple(counts), n_flipped=len(flipped)
    )


def _with_texts(
    row: ItemComparison, texts: Mapping[tuple[str, str, str], ItemText]
) -> ItemComparison:
    of_a, of_b = (
        texts.get((model, row.task, row.item), ItemText()) for model in (row.model_a, row.model_b)
    )
    places = dict.fromkeys(place for place in (of_a.where, of_b.where) if place)
    return replace(
        row,
        question=of_a.question or of_b.question,
        target=of_a.target or of_b.target,
        answer_a=of_a.answer,
        answer_b=of_b.answer,
        where="; ".join(places),
    )


def item_texts(
    responses: Iterable[Responses],
    items: Mapping[str, Collection[str]],
    plugins: Plugins | None = None,
    *,
    longest: int | None = LONGEST,
) -> dict[tuple[str, str, str], ItemText]:
    """Return the texts of some items, read again from the logs that responses come from.

    Parameters
    ----------
    responses
        As `read` gives them; each log is opened once, whatever the number of metrics.
    items
        Item ids as text, by task; no others are parsed.
    longest
        Characters of a text; the middle of longer ones is left out. None for all.

    Returns
    -------
    By model, task and item id as text; without what no log has (tables, results in memory).

    Raises
    ------
    LogError
        A log was damaged since it was read.
    """
    plugins = plugins or load_plugins()
    wanted: dict[Path, dict[str, set[str]]] = {}
    models: dict[tuple[Path, str], dict[str, set[str]]] = {}
    for r in responses:
        here = set(map(str, r.item_ids.tolist())) & set(items.get(r.task, ()))
        if here:
            wanted.setdefault(r.source.path, {}).setdefault(r.task, set()).update(here)
            models.setdefault((r.source.path, r.task), {}).setdefault(r.model, set()).update(here)
    texts: dict[tuple[str, str, str], ItemText] = {}
    for path, asked in wanted.items():
        if not path.is_file():
            continue  # results or a table in memory
        with LogFile(path) as log:
            text_of: Mapping[tuple[str, str], ItemText] | None = plugins.call(
                "evalstats_read_texts", log=log, items=asked
            )
        for (task, item), text in (text_of or {}).items():
            short = ItemText(*(_bounded(part, longest) for part in astuple(text)))
            texts |= {
                (model, task, item): short
                for model, answered in models[path, task].items()
                if item in answered
            }
    return texts


def questions_of(
    responses: Iterable[Responses], plugins: Plugins | None = None
) -> dict[tuple[str, str], str]:
    """Return the questions of all items, by task and item, of the first log that has them.

    Raises
    ------
    LogError
        A log was damaged since it was read.
    """
    listed = list(responses)
    wanted: dict[str, set[str]] = {}
    for r in listed:
        wanted.setdefault(r.task, set()).update(map(str, r.item_ids.tolist()))
    texts = item_texts(listed, wanted, plugins)
    return {(t, i): text.question for (_, t, i), text in reversed(texts.items()) if text.question}


def together(answers: Mapping[str, str]) -> str:
    r"""Return what several filters or epochs made of an answer: once, or each with its name.

    >>> together({"strict": "4", "flexible": "4"}), together({"strict": "", "flexible": "4"})
    ('4', 'strict: \nflexible: 4')
    """
    if len(set(answers.values())) < 2:
        return next(iter(answers.values()), "")
    return "\n".join(f"{name}: {answer}" for name, answer in answers.items())


def with_response(answer: str, response: str) -> str:
    """Return an answer, below it the whole response that it was taken from, where they differ."""
    same = answer.strip() == response.strip() or not response.strip()
    return answer if same else f"{answer}\n\n{response}"


def _bounded(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    half = longest // 2 - 2
    return f"{text[:half]} … {text[-half:]}"

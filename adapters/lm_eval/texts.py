"""Texts of samples: `texts_of` finds the question, the target and the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np

from evalstats_plugin.adapters.lm_eval.values import as_number
from evalstats_plugin.hookspecs import ItemText
from evalstats_plugin.logs.texts import together, with_response


def texts_of(records: Iterable[Mapping[str, Any]]) -> dict[str, ItemText]:
    """Return the texts of samples by item id as text; several filters of an item are one."""
    by_item: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in records:
        filters = by_item.setdefault(str(record["doc_id"]), {})
        filters[str(record.get("filter", f"filter {len(filters) + 1}"))] = record
    return {item: _text_of(item, filters) for item, filters in by_item.items()}


def _text_of(item: str, filters: Mapping[str, Mapping[str, Any]]) -> ItemText:
    first = next(iter(filters.values()))
    choices = _choices(_requests(first))
    if choices:
        answer = _chosen(first, choices)
    else:
        answers = {name: _answer(r.get("filtered_resps")) for name, r in filters.items()}
        response = _alone(_alone(first.get("resps")))
        # Several responses are repeats: what counts is in the filters' responses.
        response = response if isinstance(response, str) else ""
        answer = with_response(together(answers), response)
    target = first.get("target")
    number = as_number(target)
    if choices and number in range(len(choices)):
        # Of multiple choice the number of the right choice is logged.
        target = choices[int(number or 0)].strip()
    return ItemText(_question(first, choices), _shown(target), answer, f"doc_id {item}")


def _requests(record: Mapping[str, Any]) -> list[list[Any]]:
    """Return what was sent for a sample: a prompt, and a continuation or settings, for each."""
    logged = record.get("arguments")
    every: Any = cast("Any", logged).values() if isinstance(logged, dict) else logged
    parts: list[Any] = list(every) if isinstance(logged, (list, dict)) else []
    requests: list[Any] = [list(p.values()) if isinstance(p, dict) else p for p in parts]
    return [cast("list[Any]", p) for p in requests if isinstance(p, list) and p]


def _choices(requests: Sequence[Sequence[Any]]) -> list[str]:
    """Return the choices of multiple choice; [] for one request, or for other kinds."""
    texts = [tuple(r[:2]) for r in requests if all(isinstance(part, str) for part in r[:2])]
    if len(texts) < max(2, len(requests)) or any(len(pair) < 2 for pair in texts):
        return []
    if len({after for _, after in texts}) == 1:
        return [before for before, _ in texts]  # the choice comes first, the text goes on alike
    # acc_mutual_info asks for each choice a second time, without the question.
    return [after for before, after in texts if before == texts[0][0]]


def _chosen(record: Mapping[str, Any], choices: Sequence[str]) -> str:
    """Return the most likely choice, and the most likely by length where that is scored too."""
    try:
        logged = np.array([float(r[0]) for r in record["filtered_resps"][: len(choices)]])
        chosen = {"acc": choices[int(logged.argmax())].strip()}
        if "acc_norm" in record:
            # A space between prompt and choice is not counted.
            lengths = np.array([max(len(choice.removeprefix(" ")), 1) for choice in choices])
            chosen["acc_norm"] = choices[int((logged / lengths).argmax())].strip()
    except (TypeError, ValueError, IndexError, KeyError):
        return _shown(record.get("filtered_resps"))
    return together(chosen)


def _answer(filtered: Any) -> str:
    """Return an answer as filtered: a text, a log-likelihood, or those of several repeats."""
    value = _alone(_alone(filtered))
    if not isinstance(value, list):
        return _shown(value)
    parts = cast("list[Any]", value)
    if len(parts) == 2 and str(parts[1]) in ("True", "False"):
        likeliest = "the likeliest text" if str(parts[1]) == "True" else "another text is likelier"
        return f"log-likelihood {_shown(parts[0]):.8}, {likeliest}"
    return together({f"repeat {i}": _shown(part) for i, part in enumerate(parts, 1)})


def _question(record: Mapping[str, Any], choices: Sequence[str]) -> str:
    """Return the prompt from where the doc's own text begins in it: without examples before it."""
    requests = _requests(record)
    prompt = requests[0][0] if requests and isinstance(requests[0][0], str) else ""
    doc = record.get("doc")
    fields: list[Any] = list(doc.values()) if isinstance(doc, dict) else [doc]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    texts = sorted((f.strip() for f in fields if isinstance(f, str)), key=len, reverse=True)
    if prompt.lstrip().startswith("[{"):
        # Messages as JSON: the last one of the user.
        with suppress(ValueError, TypeError, KeyError, IndexError, RecursionError):
            messages: Any = json.loads(prompt)
            prompt = str([m["content"] for m in messages if m["role"] == "user"][-1])
    if choices and prompt in choices:
        prompt = ""  # one of several beginnings
    for text in texts:
        start = prompt.rfind(text) if text else -1
        if start >= 0:
            return prompt[prompt.rfind("\n", 0, start) + 1 :].strip()
    return prompt.strip() or next(iter(texts), "")


def _alone(value: Any) -> Any:
    """Return the one element of a list, any other value as it is."""
    elements: Any = value
    return elements[0] if isinstance(value, list) and len(elements) == 1 else elements


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

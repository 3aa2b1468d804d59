"""Comparisons that the samples of a log hold: two models in the metadata, a verdict as score."""
# PART generator - Puts texts to a model through Inspect, for who judges with one.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from evalstats_plugin.adapters.inspect_ai.archive.guard import form_of, printable
from evalstats_plugin.adapters.inspect_ai.archive.opening import opened
from evalstats_plugin.adapters.inspect_ai.archive.takes import EVERY, SCORES, Take
from evalstats_plugin.errors import LogError, PluginError, SelectionError
from evalstats_plugin.ranking.contests.assembly import COLUMNS, PAIRS, SIDES, contests_of_samples

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

    from evalstats_plugin.ranking.contests.contests import Contests


METADATA = "metadata."


_VALUE = "value"


_BESIDE = frozenset({"answer", "explanation", "metadata"})


_KNOWN = frozenset(
    {name for pair in PAIRS for name in pair[:2]} | {n for names in COLUMNS.values() for n in names}
)


_MOST_OF_A_MESSAGE = 300


def read_contests(path: Path, columns: Mapping[str, str]) -> Contests | None:
    """Read the comparisons of one log; None for others' files.

    Fields are called ``id``, ``epoch``, ``model`` (who ran), ``task``, ``metadata.NAME``,
    ``scores.SCORER.value``, and ``scores.SCORER.answer`` and the like.

    Raises
    ------
    LogError
        The log is broken, or has no samples.
    SelectionError
        It cannot be told who was compared, or where the verdict is.
    """
    form = form_of(path)
    if form is None:
        return None
    fields = _wanted(columns)
    with opened(path, form, header_only=False) as (log, read_takes):
        try:
            return _of_takes(read_takes(fields), log, path, columns)
        except SelectionError:
            # What else there is goes into the message.
            return _of_takes(read_takes(fields | {EVERY}), log, path, columns)


def _wanted(columns: Mapping[str, str]) -> frozenset[str]:
    """Return the fields that may be needed, without those that every take has."""
    asked = {name.strip() for part, name in columns.items() if part != "features"}
    for name in columns.get("features", "").split(","):
        asked |= {name.strip(), *(name.strip() + end for ends in SIDES for end in ends)}
    beside = {a for a in asked if a.startswith(SCORES) and set(a.split(".")) & _BESIDE}
    return _KNOWN | beside | {a.removeprefix(METADATA) for a in asked if a.startswith(METADATA)}


def _of_takes(takes: list[Take], log: EvalLog, path: Path, columns: Mapping[str, str]) -> Contests:
    used = [take for take in takes if not take.failed and not take.invalidated]
    # Summaries and samples come in different orders, on which a seeded bootstrap must not depend.
    used.sort(key=lambda take: (take.epoch, isinstance(take.raw_id, str), take.raw_id))
    if not used:
        msg = f"{path} has no samples that ended well, expected one for each comparison"
        raise LogError(msg)
    samples = [dict(_fields_of(take, log)) for take in used]
    found = dict.fromkeys(n for s in samples for n in s if n.startswith(SCORES))
    verdicts = [name for name in found if not set(name.split(".")) & _BESIDE]
    defaults = {"judge": "model", "item": "id"}
    made = contests_of_samples(samples, str(path), columns, verdicts, defaults)
    return replace(made, notes=(*_notes(log, len(takes) - len(used)), *made.notes))


def _notes(log: EvalLog, n_left_out: int) -> Iterator[str]:
    if log.status != "success":
        yield f"the run did not end well (status {log.status!r})"
    if n_left_out:
        yield f"{n_left_out} samples failed or were invalidated: left out"


def _fields_of(take: Take, log: EvalLog) -> Iterator[tuple[str, Any]]:
    """Give what a sample says, each by its dotted name."""
    yield "id", take.item
    yield "epoch", take.epoch
    yield "model", printable(log.eval.model)
    yield "task", printable(log.eval.task)
    for name, value in take.fields.items():
        if value != "null":
            yield (name if name.startswith(SCORES) else METADATA + name), printable(value)
    for scorer, value in take.scores.items():
        yield from _values(f"{SCORES}{printable(scorer)}.{_VALUE}", value)


def _values(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        inside = cast("Mapping[str, Any]", value)
        yield from ((f"{name}.{printable(key)}", _shown(v)) for key, v in inside.items())
    else:
        yield name, _shown(value)


def _shown(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def generator(model: str) -> Callable[[str], str] | None:
    """Return what puts a text to a model of Inspect; None where it is not installed or not known.

    It may be called from several threads at once.

    Raises
    ------
    SelectionError
        Inspect lacks what it needs to ask this model, such as a package or a key.
    """
    try:
        models = import_module("inspect_ai.model")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "inspect_ai":
            raise
        return None
    try:
        known: Any = models.get_model(model)
    except ValueError:
        # No provider of that name: somebody else may know it.
        return None
    except Exception as error:
        # What is missing for one of its thirty providers has no common base.
        msg = f"Inspect cannot ask the model {model!r}: {_said(error)}"
        raise SelectionError(msg) from error
    loop = asyncio.new_event_loop()
    # A provider's connections belong to one loop, which outlives each question.
    Thread(target=loop.run_forever, daemon=True, name="inspect_ai").start()

    def generate(text: str) -> str:
        try:
            return asyncio.run_coroutine_threadsafe(known.generate(text), loop).result().completion
        except Exception as error:
            msg = f"the model {model!r} did not answer: {type(error).__name__}: {_said(error)}"
            raise PluginError(msg) from error

    return generate


def _said(error: Exception) -> str:
    return " ".join(printable(str(error)).split())[:_MOST_OF_A_MESSAGE]

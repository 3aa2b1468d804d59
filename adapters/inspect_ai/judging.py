"""Judgements: comparisons in the samples of a log, and models of Inspect as judges.

`read_contests` reads samples with two models in the metadata and a verdict as score; `generator`
returns a function that asks a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from evalstats_plugin.adapters.inspect_ai.archive.guard import form_of, one_line
from evalstats_plugin.adapters.inspect_ai.archive.opening import opened
from evalstats_plugin.adapters.inspect_ai.archive.samples import EVERY, SCORES, LoggedSample
from evalstats_plugin.errors import LogError, PluginError, SelectionError
from evalstats_plugin.ranking.contests.assembly import COLUMNS, PAIRS, SIDES, contests_from_samples
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.untrusted import printable_name

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

    from evalstats_plugin.ranking.contests.contests import Contests


METADATA = "metadata."

_NOT_VALUES = frozenset({"answer", "explanation", "metadata"})
"""Fields of a score other than its value."""

_KNOWN = frozenset(
    {name for pair in PAIRS for name in pair[:2]} | {n for names in COLUMNS.values() for n in names}
)


def read_contests(file: LogFile, columns: Mapping[str, str]) -> Contests | None:
    """Read the comparisons of one log; None if it is not Inspect's.

    Columns name fields of a sample: ``id``, ``epoch``, ``model`` (that ran), ``task``,
    ``metadata.NAME``, ``scores.SCORER.value``, ``scores.SCORER.answer`` and so on.

    Raises
    ------
    LogError
        The log is damaged, or has no samples.
    SelectionError
        The players or the verdict cannot be found.
    """
    path, form = file.path, form_of(file)
    if form is None:
        return None
    # The metadata and score fields that may be needed.
    asked = {name.strip() for part, name in columns.items() if part != "features"}
    for name in columns.get("features", "").split(","):
        asked |= {name.strip(), *(name.strip() + end for ends in SIDES for end in ends)}
    beside = {a for a in asked if a.startswith(SCORES) and set(a.split(".")) & _NOT_VALUES}
    metadata = {a.removeprefix(METADATA) for a in asked if a.startswith(METADATA)}
    fields = _KNOWN | beside | metadata
    with opened(file, form, header_only=False) as (log, read_samples):
        try:
            return _of_samples(read_samples(fields), log, path, columns)
        except SelectionError:
            # Read the names of all fields, for the message.
            return _of_samples(read_samples(fields | {EVERY}), log, path, columns)


def _of_samples(
    samples: list[LoggedSample], log: EvalLog, path: Path, columns: Mapping[str, str]
) -> Contests:
    used = [s for s in samples if not s.failed and not s.invalidated]
    # Summaries and samples come in different orders, on which a seeded bootstrap must not depend.
    used.sort(key=lambda s: (s.epoch, isinstance(s.raw_id, str), s.raw_id))
    if not used:
        raise LogError(f"{path} has no samples that ended well, so that it holds no comparison")
    records = [dict(_fields_of(sample, log)) for sample in used]
    score_columns = dict.fromkeys(n for r in records for n in r if n.startswith(SCORES))
    verdicts = [name for name in score_columns if not set(name.split(".")) & _NOT_VALUES]
    defaults = {"judge": "model", "item": "id"}
    made = contests_from_samples(records, str(path), columns, verdicts, defaults)
    notes: list[str] = []
    if log.status != "success":
        notes.append(f"the run did not end well (status {log.status!r})")
    if n_left_out := len(samples) - len(used):
        notes.append(f"{n_left_out} samples failed or were invalidated: left out")
    return replace(made, notes=(*notes, *made.notes))


def _fields_of(sample: LoggedSample, log: EvalLog) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a sample by their dotted names."""
    yield "id", sample.item
    yield "epoch", sample.epoch
    yield "model", printable_name(log.eval.model)
    yield "task", printable_name(log.eval.task)
    for name, value in sample.fields.items():
        if value != "null":
            yield (name if name.startswith(SCORES) else METADATA + name), printable_name(value)
    for scorer, value in sample.scores.items():
        name = f"{SCORES}{printable_name(scorer)}.value"
        if isinstance(value, Mapping):
            inside = cast("Mapping[str, Any]", value)
            yield from ((f"{name}.{printable_name(key)}", _shown(v)) for key, v in inside.items())
        else:
            yield name, _shown(value)


def _shown(value: Any) -> Any:
    return printable_name(value) if isinstance(value, str) else value


def generator(model: str) -> Callable[[str], str] | None:
    """Return a function that asks a model of Inspect; None if Inspect or the model is not known.

    The function may be called from several threads at once.

    Raises
    ------
    SelectionError
        Inspect lacks something it needs for this model, such as a package or a key.
    """
    try:
        models = import_module("inspect_ai.model")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "inspect_ai":
            raise
        return None
    try:
        judge: Any = models.get_model(model)
    except ValueError:
        # No provider of that name: another plugin may know it.
        return None
    except Exception as error:
        # The errors of its thirty providers have no common base.
        msg = f"Inspect cannot ask the model {model!r}: {one_line(error)}"
        raise SelectionError(msg) from error
    from evalstats_plugin.ranking.judging.automatic import Reply

    loop = asyncio.new_event_loop()
    # A provider's connections belong to one event loop, which must outlive each question.
    Thread(target=loop.run_forever, daemon=True, name="inspect_ai").start()

    def generate(text: str) -> str:
        try:
            output: Any = asyncio.run_coroutine_threadsafe(judge.generate(text), loop).result()
        except Exception as error:
            msg = f"the model {model!r} did not answer: {type(error).__name__}: {one_line(error)}"
            raise PluginError(msg) from error
        usage = output.usage
        tokens = 0 if usage is None else usage.total_tokens
        # Only newer versions of Inspect know prices.
        return Reply(output.completion, tokens=tokens, cost=getattr(usage, "total_cost", None) or 0)

    return generate

"""What is wrong with logs, before their numbers are believed: `find_problems`.

Each check looks at all responses that were read, of every run, and yields a `Finding` where numbers
contradict each other, are not all there, or stand for different questions. It needs what adapters
tell in `Responses.provenance` and `Responses.settings`, and passes over what they do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import Questions, hash_texts
from evalstats_plugin.data.responses import Responses, shared_items
from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.data.runs import (
    PER_TASK,
    find_copies,
    latest_run,
    n_items,
    one_of_each,
    repeated_runs,
)
from evalstats_plugin.data.scales import settled, strays
from evalstats_plugin.errors import counted, few
from evalstats_plugin.scores.cells import align, make_cell
from evalstats_plugin.stats.arrays import IntArray

PROBLEMS = {
    "unreadable": "a log cannot be read, or its run did not end",
    "incomplete": "a log holds fewer items than its run scored",
    "contradiction": "a logged value, its standard error and the items contradict each other",
    "scale": "scores lie beyond the scale of their metric",
    "shadowed": "a later run on a part of the items stands before a longer one",
    "copy": "two logs hold the same run",
    "misplaced": "a log lies in the folder of another model",
    "versions": "runs used different versions of a task",
    "settings": "models were asked with different settings of the task",
    "questions": "an item id stands for different questions",
    "prompts": "models were asked the same questions in different words",
    "unscored": "items have no score",
    "invalidated": "answers were marked as invalid, and are left out",
    "annotated": "some logs here are annotated and some are not",
}
"""Problems that are looked for, in the order of their findings."""

_MISMATCH = "mismatch: "
"""How notes of readers begin that name a contradiction."""

_INVALIDATED = re.compile(r"\d+ invalidated samples? (?:is|are) left out")
"""A note of readers."""

_UNLIKELY = 0.01
"""Probability below which unscored items are no random part of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with logs, and what it touches."""

    problem: str
    """One of `PROBLEMS`."""
    task: str | None
    models: tuple[str, ...]
    detail: str
    logs: tuple[str, ...]


class Findings(Results[Finding]):
    """What `find_problems` found, and how many logs were looked at."""


def find_problems(responses: Iterable[Responses]) -> list[Finding]:
    """Return everything that is wrong with responses of all runs, in the order of `PROBLEMS`.

    Models of one name with different settings should be labelled (`data.runs.label_models`).
    """
    everything = list(responses)
    latest = one_of_each(everything)
    return [
        *_incomplete(everything),
        *_contradictions(everything),
        *_beyond_scales(everything),
        *_shadowed(everything),
        *_copies(everything),
        *_misplaced(everything),
        *_versions(everything),
        *(finding for finding in find_differences(latest) if finding.problem != "versions"),
        *_unscored(latest),
        *_invalidated(latest),
        *_half_annotated(everything),
    ]


def find_differences(latest: Iterable[Responses]) -> Iterator[Finding]:
    """Yield what makes models incomparable on a task: versions, settings, questions, prompts."""
    latest = list(latest)
    yield from _versions(latest)
    # Of each model by task, the metric that has most items.
    best: dict[tuple[str, str], Responses] = {}
    for r in latest:
        key = (r.task, r.model)
        if key not in best or len(r.item_ids) > len(best[key].item_ids):
            best[key] = r
    for task, of_models in grouped(best.values(), lambda r: r.task).items():
        if len(of_models) > 1:
            yield from _settings(task, of_models)
            yield from _hashes(task, of_models)


def notes_on_differences(latest: Iterable[Responses]) -> list[str]:
    """Return short notes on what `find_differences` finds, one for each problem.

    And where an interrupted command has annotated only some of the logs.
    """
    latest = list(latest)
    more = "`evalstats-plugin check` says which"
    notes = [
        f"{PROBLEMS[problem]} ({more}): {few(list(dict.fromkeys(str(f.task) for f in findings)))}"
        for problem, findings in grouped(find_differences(latest), lambda f: f.problem).items()
    ]
    return notes + [f"{PROBLEMS[f.problem]} ({more})" for f in _half_annotated(latest)]


def _half_annotated(responses: Iterable[Responses]) -> Iterator[Finding]:
    """Yield that this package has written into some logs of harnesses, and into others not."""
    of_logs = {str(r.source.path): r for r in responses if r.source.is_annotated is not None}
    with_block = [r for r in of_logs.values() if r.source.is_annotated]
    if with_block and len(with_block) < len(of_logs):
        without = [r for r in of_logs.values() if not r.source.is_annotated]
        detail = f"{len(with_block)} of {len(of_logs)} are: annotate all, or strip all"
        yield _found("annotated", None, without, detail)


def _found(problem: str, task: str | None, about: Sequence[Responses], detail: str) -> Finding:
    return Finding(
        problem=problem,
        task=task,
        models=tuple(dict.fromkeys(r.model for r in about)),
        detail=detail,
        logs=tuple(dict.fromkeys(str(r.source.path) for r in about)),
    )


def _incomplete(responses: Sequence[Responses]) -> Iterator[Finding]:
    cut = [r for r in responses if not r.is_whole]
    for (_, task), some in grouped(cut, lambda r: (str(r.source.path), r.task)).items():
        # A task may be cut under one filter and whole under another.
        worst = max(some, key=lambda r: r.measure.n_cut)
        n, n_cut = len(worst.item_ids), worst.measure.n_cut
        detail = (
            f"{n} of {n + n_cut} items are there: run it again, or bring back the whole file"
            if n_cut
            else "the items are not those of the logged checksum: bring back the original file"
        )
        yield _found("incomplete", task, some, detail)


def _contradictions(responses: Sequence[Responses]) -> Iterator[Finding]:
    said: set[tuple[str, str, str]] = set()
    for r in responses:
        notes = make_cell(r).notes if r.pairs is not None else r.notes
        for task, about in ((r.task, notes), *((g.name, g.notes) for g in r.groups)):
            for note in about:
                key = (str(r.source.path), task, note)
                if note.startswith(_MISMATCH) and key not in said:
                    said.add(key)
                    detail = f"{r.metric}: {note.removeprefix(_MISMATCH)}"
                    yield _found("contradiction", task, [r], detail)


def _beyond_scales(responses: Sequence[Responses]) -> Iterator[Finding]:
    for r in settled(responses):
        scale = r.measure.scale
        if scale is not None and (beyond := strays(r.scores, (scale.low, scale.high))):
            detail = f"{r.metric}: {beyond.question(r.metric, str(scale))}"
            yield _found("scale", r.task, [r], detail)


def _shadowed(responses: Sequence[Responses]) -> Iterator[Finding]:
    for (_, task, _), runs in repeated_runs(responses).items():
        *_, last = runs
        longest = latest_run(runs)
        if longest != last:
            few_items, all_items = n_items(runs[last]), n_items(runs[longest])
            detail = (
                f"the last run has {few_items} of {all_items} items (--limit?): the longer one is "
                "used; remove the other"
            )
            yield _found("shadowed", task, [*runs[last], *runs[longest]], detail)


def _copies(responses: Sequence[Responses]) -> Iterator[Finding]:
    copies = find_copies(responses)
    for pairs in grouped(copies, lambda pair: tuple(str(r.source.path) for r in pair)).values():
        tasks = few(list(dict.fromkeys(copy.task for copy, _ in pairs)))
        about = [r for pair in pairs for r in pair]
        yield _found("copy", None, about, f"the same scores at the same time: {tasks}; remove one")


def _misplaced(responses: Sequence[Responses]) -> Iterator[Finding]:
    homes = {r.provenance.home: r.model for r in responses if r.provenance.home}
    moved: dict[str, Responses] = {}
    for r in responses:
        folder = r.source.path.parent.name
        if r.provenance.home not in ("", folder) and folder in homes:
            moved.setdefault(str(r.source.path), r)
    for r in moved.values():
        owner = homes[r.source.path.parent.name]
        detail = f"it lies in the folder of {owner}: move it to {r.provenance.home}"
        yield _found("misplaced", None, [r], detail)


def _versions(responses: Sequence[Responses]) -> Iterator[Finding]:
    versioned = [r for r in responses if r.provenance.task_version]
    # Harnesses number their tasks each in its own way.
    for (task, _), own in grouped(versioned, lambda r: (r.task, r.source.harness)).items():
        versions = grouped(own, lambda r: r.provenance.task_version)
        if len(versions) > 1:
            about = [r for some in versions.values() for r in some]
            yield _found("versions", task, about, _by_value("version", versions))


def _by_value(name: str, holders: dict[str, list[Responses]]) -> str:
    """Say which models have which value."""
    return f"{name} " + "; ".join(
        f"{value}: {few(list(dict.fromkeys(r.model for r in some)), 3)}"
        for value, some in sorted(holders.items())
    )


def _settings(task: str, of_models: Sequence[Responses]) -> Iterator[Finding]:
    """Compare settings of the task; a model has its own chat template, or none."""
    # Settings of one harness are no others' business.
    for own in grouped(of_models, lambda r: r.source.harness).values():
        settings = [dict(r.settings) | _extent(r) for r in own]
        every = sorted({name for each in settings for name in each if name.startswith(PER_TASK)})
        names = [name for name in every if name != PER_TASK + "version"]  # has its own finding
        for name in [*names, "chat_template", "system_instruction"]:
            holders: dict[str, list[Responses]] = {}
            for r, each in zip(own, settings, strict=True):
                value = each.get(name, "none")
                value = "its own" if name == "chat_template" and value != "none" else value
                holders.setdefault(value, []).append(r)
            if len(holders) > 1:
                shown = name.removeprefix(PER_TASK).replace("_", " ")
                yield _found("settings", task, own, _by_value(shown, holders))


def _extent(r: Responses) -> dict[str, str]:
    """Return the number of epochs, and whether only a part of the task was run."""
    if not r.scores.size:
        return {}
    part = f"{len(r.item_ids)} of {counted(r.population, 'item')}" if r.population else "all items"
    return {PER_TASK + "epochs": str(r.as_epochs.scores.shape[1]), PER_TASK + "limit": part}


def _hashes(task: str, of_models: Sequence[Responses]) -> Iterator[Finding]:
    """Compare the questions and prompts of each model with those of the one with most items."""
    reference = max(of_models, key=lambda r: len(r.item_ids))
    other: dict[str, list[Responses]] = {"questions": [], "prompts": []}
    for r in of_models:
        shared = shared_items(reference, r)
        if r is reference or shared is None:
            continue
        if _differ(reference.item_hashes, r.item_hashes, shared):
            other["questions"].append(r)
        elif _asked_alike(reference, r) and _differ(
            reference.provenance.prompt_hashes, r.provenance.prompt_hashes, shared
        ):
            other["prompts"].append(r)
    for problem, others in other.items():
        if others:
            names = few([r.model for r in others], 3)
            detail = f"{problem} of {names} differ from those of {reference.model}"
            yield _found(problem, task, [reference, *others], detail)


def _differ(
    a: NDArray[Any] | None, b: NDArray[Any] | None, shared: tuple[IntArray, IntArray]
) -> bool:
    """Whether any hash is another: of those that were made in one way, as a join compares them."""
    if a is None or b is None:
        return False
    everywhere, asked = np.arange(len(shared[0])), Questions(len(shared[0]))
    asked.compare(everywhere, hash_texts(a[shared[0]]), 0)
    return bool(asked.compare(everywhere, hash_texts(b[shared[1]]), 1)[0].any())


def _asked_alike(a: Responses, b: Responses) -> bool:
    """Whether two models should have had the same prompts: of one harness, without templates."""
    mine, theirs = dict(a.settings), dict(b.settings)
    names = ["chat_template", "system_instruction"]
    names += [name for name in {*mine, *theirs} if name.startswith(PER_TASK)]
    alike = all(mine.get(name) == theirs.get(name) for name in names)
    return alike and a.source.harness == b.source.harness


def _unscored(latest: Sequence[Responses]) -> Iterator[Finding]:
    """Count items without a score, and ask whether other models find them hard."""
    scored = [r for r in latest if r.scores.size]
    for (task, metric), of_models in grouped(scored, lambda r: (r.task, r.metric)).items():
        alike: dict[str, list[Responses]] = {}
        for r in of_models:
            gone = np.isnan(r.item_means)
            if gone.any():
                others = [o for o in of_models if o is not r]
                about = f"{metric}: {int(gone.sum())} of {counted(len(gone), 'item')}"
                alike.setdefault(about + _difficulty(r, gone, others), []).append(r)
        for detail, some in alike.items():
            yield _found("unscored", task, some, detail)
    without = [r for r in latest if not r.scores.size and r.logged is None and r.pairs is None]
    for (task, metric), some in grouped(without, lambda r: (r.task, r.metric)).items():
        why = f" ({some[0].notes[0]})" if some[0].notes else ""
        yield _found("unscored", task, some, f"{metric}: no item and no value{why}")


def _invalidated(latest: Sequence[Responses]) -> Iterator[Finding]:
    """Yield that a person has marked answers as invalid."""
    for r in latest:
        for note in r.notes:
            if _INVALIDATED.fullmatch(note):
                yield _found("invalidated", r.task, [r], f"{r.metric}: {note}")


def _difficulty(r: Responses, gone: NDArray[np.bool_], others: Sequence[Responses]) -> str:
    """Compare the other models' scores on the items that one model lacks with those on the rest."""
    if gone.all():
        return ", all of them"
    columns = [align(other, r) for other in others]
    scores = np.array([c for c in columns if np.isfinite(c).any()])
    if not len(scores):
        return ""
    there = np.isfinite(scores)
    count = there.sum(axis=0)
    means = np.where(there, scores, 0).sum(axis=0) / np.maximum(count, 1)
    lacking, rest = means[gone & (count > 0)], means[~gone & (count > 0)]
    if not (len(lacking) and len(rest)):
        return ""
    both = np.concatenate([lacking, rest])
    # A random part of the items: drawn without replacement.
    spread = math.sqrt(both.var(ddof=1) / len(lacking) * (1 - len(lacking) / len(both)))
    gap = abs(lacking.mean() - both.mean())
    unlikely = spread > 0 and math.erfc(gap / spread / math.sqrt(2)) < _UNLIKELY
    verdict = "not a random part" if unlikely else "perhaps a random part"
    there, elsewhere = float(lacking.mean()), float(rest.mean())
    return f"; other models score {there:.3f} on them and {elsewhere:.3f} on the rest: {verdict}"

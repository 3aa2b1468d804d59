"""Sets of responses: all that was read, with model labels and a choice among repeated runs.

`ResponseSet` holds everything that was read and joins it to a matrix. `choose_runs` chooses among
several runs of a model on a task; `label_models` labels models of one name by their settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evalstats_plugin.data.matrix import OnConflict, ResponseMatrix, stack_epochs
from evalstats_plugin.data.responses import (
    Responses,
    Selection,
    as_item_ids,
    first_rows,
    is_like,
    number_epochs,
    score_matrix,
)
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such

if TYPE_CHECKING:
    import pandas as pd


Runs = Literal["latest", "all", "epochs", "error"]
"""Which runs to use where a model ran a task several times."""

PER_TASK = "task."
"""Prefix of settings that belong to a task rather than to the model."""

_Place = tuple[str, str, str]
"""Model, task and outermost group."""


@dataclass(frozen=True, eq=False, slots=True)
class ResponseSet:
    """All responses that were read, in the order of the logs."""

    responses: tuple[Responses, ...]
    notes: tuple[str, ...] = ()
    """What was dropped or not readable, and why."""

    def __repr__(self) -> str:
        n_models = len({r.model for r in self.responses})
        n_tasks = len({r.task for r in self.responses})
        of_each = grouped(self.responses, lambda r: (r.task, r.model)).values()
        n_answers = sum(max(len(r.item_ids) for r in own) for own in of_each)
        parts = (counted(n_models, "model"), counted(n_tasks, "task"), counted(n_answers, "answer"))
        notes = f", {counted(len(self.notes), 'note')}" if self.notes else ""
        return f"<ResponseSet: {', '.join(parts)}{notes}>"

    def __iter__(self) -> Iterator[Responses]:
        return iter(self.responses)

    def __len__(self) -> int:
        return len(self.responses)

    def matrix(
        self,
        *,
        task: str | None = None,
        metric: str | None = None,
        on_conflict: OnConflict = "error",
    ) -> ResponseMatrix:
        """Join into models × items × epochs, for one metric per task.

        Parameters
        ----------
        task, metric
            Names or patterns; a metric also by the part before its comma.
        on_conflict
            What to do when an item id stands for different questions in two logs:
            ``"error"`` names both logs, ``"drop"`` leaves such items out and says how many.
        """
        wanted = Selection((task,) if task else (), (metric,) if metric else ())
        chosen = [
            r
            for r in self.responses
            if r.scores.size
            and wanted.wants_task(r.task, *(g.name for g in r.groups))
            and wanted.wants_metric(r.metric)
        ]
        return ResponseMatrix.join(one_of_each(chosen), on_conflict=on_conflict)

    def to_frame(self) -> pd.DataFrame:
        """Tidy scores, one epoch per row: model, task, metric, item, epoch, score, cluster."""
        import pandas as pd

        columns = ["model", "task", "metric", "item", "epoch", "score", "cluster"]
        frames = [_tidy(r) for r in self.responses if r.scores.size]
        if not frames:
            return pd.DataFrame(columns=columns)
        return pd.concat(frames, ignore_index=True)[columns]


def _tidy(r: Responses) -> pd.DataFrame:
    import pandas as pd

    n_items, n_epochs = len(r.item_ids), int(r.scores.shape[1])
    columns: dict[str, Any] = {
        "model": r.model,
        "task": r.task,
        "metric": r.metric,
        "item": np.repeat(r.item_ids.astype(str), n_epochs),
        "epoch": np.tile(np.arange(n_epochs), n_items),
        "score": r.scores.ravel(),
        "cluster": None if r.clusters is None else np.repeat(r.clusters.astype(str), n_epochs),
    }
    return pd.DataFrame(columns)


def choose_runs(responses: Iterable[Responses], runs: Runs) -> tuple[list[Responses], list[str]]:
    """Choose among several runs of one model on one task: keep the latest or all, or raise.

    The latest is the last run, unless it is partial (limited or cut off) and an earlier one has
    more items. Returns the responses kept, in their order, and notes on what was left out.
    """
    responses = list(responses)
    responses, about_copies = without_copies(responses) if runs == "epochs" else (responses, [])
    repeated = repeated_runs(responses)
    if not repeated:
        return responses, about_copies
    if runs == "error":
        (model, task, _), own_runs = next(iter(repeated.items()))
        logs = ", ".join(path for _, path in own_runs)
        raise DesignError(
            f"model {model!r} answered task {task!r} in {len(own_runs)} runs ({logs}): "
            "ask for the latest, for all of them, or for all as epochs"
        )
    if runs == "all":
        return [_told_apart(r, repeated.get(_place(r), ())) for r in responses], []
    if runs == "epochs":
        return stack_epochs(responses), [
            f"runs stacked as epochs: {_list(repeated)}",
            *about_copies,
        ]
    chosen = {key: latest_run(own_runs) for key, own_runs in repeated.items()}
    kept = [r for r in responses if chosen.get(_place(r)) in (None, run_of(r))]
    each = "(--runs all shows each)"
    shadowed = {
        key: own_runs for key, own_runs in repeated.items() if chosen[key] != [*own_runs][-1]
    }
    notes: list[str] = []
    if plain := [key for key in repeated if key not in shadowed]:
        notes.append(f"several runs, the latest is shown {each}: {_list(plain)}")
    if shadowed:
        sizes = [
            f"{_list([key])} ({n_items([*own_runs.values()][-1])} of "
            f"{counted(n_items(own_runs[chosen[key]]), 'item')})"
            for key, own_runs in shadowed.items()
        ]
        notes.append(f"the latest run is partial, a longer one is shown {each}: {few(sizes)}")
    return kept, notes


def repeated_runs(
    responses: Iterable[Responses],
) -> dict[_Place, dict[tuple[str, str], list[Responses]]]:
    """Return the runs of each model on each task that has several, oldest first."""
    runs_of = {key: grouped(own, run_of) for key, own in grouped(responses, _place).items()}
    return {key: dict(sorted(runs.items())) for key, runs in runs_of.items() if len(runs) > 1}


def latest_run(runs: Mapping[tuple[str, str], Sequence[Responses]]) -> tuple[str, str]:
    """Return the last of a model's runs on a task that is not a part of an earlier, longer one."""
    latest, *later = runs
    for run in later:
        if _replaces(runs[run], runs[latest]):
            latest = run
    return latest


def _replaces(later: Sequence[Responses], earlier: Sequence[Responses]) -> bool:
    """Whether a run replaces an earlier one of the same model on the same task."""
    is_partial = any(r.is_partial for r in later)
    return not is_partial or n_items(later) >= n_items(earlier)


def n_items(run: Iterable[Responses]) -> int:
    """Return the number of items of a run: of the metric that has most."""
    return max(len(r.item_ids) or r.logged_n or 0 for r in run)


def find_copies(responses: Iterable[Responses]) -> list[tuple[Responses, Responses]]:
    """Return responses that another log already holds, each with the first that has them.

    A copy has the same scores of the same items at the same time, under whatever name.
    """
    first: dict[tuple[object, ...], Responses] = {}
    copies: list[tuple[Responses, Responses]] = []
    for r in responses:
        if not (r.source.when and r.scores.size):
            continue
        scores = (r.item_ids.tobytes(), r.scores.tobytes())
        original = first.setdefault((r.task, r.metric, r.source.when, *scores), r)
        if original.source.path != r.source.path:
            copies.append((r, original))
    return copies


def without_copies(responses: Sequence[Responses]) -> tuple[list[Responses], list[str]]:
    """Leave out copies of runs; return also a note that names their logs."""
    copies = [copy for copy, _ in find_copies(responses)]
    if not copies:
        return list(responses), []
    again = set(map(id, copies))
    copied = few(list(dict.fromkeys(str(copy.source.path) for copy in copies)))
    kept = [r for r in responses if id(r) not in again]
    return kept, [f"copies of a run, not counted again: {copied}"]


def _place(r: Responses) -> _Place:
    """Return model, task and outermost group; a task run alone and in a group counts as two."""
    return r.model, r.task, r.groups[0].name if r.groups else ""


def _list(repeated: Iterable[_Place]) -> str:
    """List the first few tasks and models that have several runs."""
    return few([f"{task} by {model}" for model, task, _ in repeated])


def _told_apart(r: Responses, runs: Collection[tuple[str, str]]) -> Responses:
    """Return responses under a name of their run: its time, or its log if others have the same."""
    if not runs:
        return r
    when = r.source.when
    is_telling = when and [other for other, _ in runs].count(r.source.instant) == 1
    return r.renamed(f"{r.model} @ {when if is_telling else r.source.path}")


def undated(r: Responses) -> Responses:
    """Return responses under the model's own name, where all runs of it were asked for."""
    dated = r.model.removesuffix(f" @ {r.source.when}")
    return r.renamed(dated.removesuffix(f" @ {r.source.path}"))


def run_of(r: Responses) -> tuple[str, str]:
    """Return time and path of a run's log, which sort by time."""
    return r.source.instant, str(r.source.path)


def of_metric(responses: Iterable[Responses], name: str) -> list[Responses]:
    """Return the responses with item scores under a metric, named as of `Selection`.

    Raises
    ------
    SelectionError
        There are none.
    """
    wanted, given = Selection(metrics=(name,)), list(responses)
    own = [r for r in given if len(r.item_ids) and wanted.wants_metric(r.metric)]
    if not own:
        metrics = list(dict.fromkeys(r.metric for r in given))
        raise SelectionError(no_such("metric with item scores", name, metrics, few(metrics)))
    return own


def one_of_each(responses: Sequence[Responses]) -> list[Responses]:
    """Return the latest responses of each model, task and metric, as `choose_runs` does, in order.

    A task that was run in several groups has a row in each.
    """
    latest: dict[tuple[str, str, str], Responses] = {}
    for r in sorted(responses, key=run_of):
        key = (r.model, r.task, r.metric)
        if key not in latest or _replaces([r], [latest[key]]):
            latest[key] = r
    return [r for r in responses if latest[r.model, r.task, r.metric] is r]


def with_settings_as_tags(responses: Iterable[Responses], name: str) -> list[Responses]:
    """Return responses whose items all have a setting of the run as tag; it names no model then.

    Raises
    ------
    SelectionError
        No run has the setting.
    """
    made: list[Responses] = []
    names: dict[str, None] = {}
    for r in responses:
        settings = {key.removeprefix(PER_TASK): value for key, value in r.settings}
        names |= dict.fromkeys(settings)
        rest = tuple(pair for pair in r.settings if pair[0].removeprefix(PER_TASK) != name)
        value = settings.get(name, "unset")
        # A list is one value of a setting, not several tags.
        tag = json.dumps([value]) if value.startswith("[") else value
        made.append(replace(r, settings=rest, tags=np.full(len(r.item_ids), tag)))
    if name not in names:
        raise SelectionError(
            f"no item of these logs has the field {name!r}, and no run has such a setting: name a "
            f"field of the items, or one of the settings {few(list(names)) or '(none logged)'}"
        )
    return made


def label_models(responses: Iterable[Responses]) -> list[Responses]:
    """Label models of one name but different settings by the settings that differ.

    ``m`` run in two precisions becomes ``m (dtype=float16)`` and ``m (dtype=float32)``; a model
    whose settings never vary keeps its bare name. Settings that begin with ``task.`` (such as the
    number of examples shown) count only against other runs of the same task that are otherwise
    alike: what tells these runs apart anyway is no part of the name.
    """
    responses = list(responses)
    keys: dict[str, set[str]] = {}
    for r in responses:
        keys.setdefault(r.model, set()).update(dict(r.settings))
    values: dict[_Against, set[str]] = {}
    for r in responses:
        mine = dict(r.settings)
        for key in keys[r.model]:
            values.setdefault(_against(r, key), set()).add(mine.get(key, "unset"))
    return [_labelled(r, sorted(keys[r.model]), values) for r in responses]


_Against = tuple[str, str, str, tuple[tuple[str, str], ...]]


def _against(r: Responses, key: str) -> _Against:
    """Return what runs have in common among which a setting may differ."""
    if not key.startswith(PER_TASK):
        return r.model, key, "", ()
    return r.model, key, r.task, tuple(x for x in r.settings if not x[0].startswith(PER_TASK))


def _labelled(r: Responses, keys: Sequence[str], values: Mapping[_Against, set[str]]) -> Responses:
    mine = dict(r.settings)
    differing = [
        f"{key.removeprefix(PER_TASK)}={mine.get(key, 'unset')}"
        for key in keys
        if len(values[_against(r, key)]) > 1
    ]
    return r.renamed(f"{r.model} ({', '.join(differing)})") if differing else r


def is_model(label: str, model: str) -> bool:
    """Return whether a label belongs to a model: ``m`` may be labelled ``m (temperature=1)``."""
    return label == model or label.startswith(f"{model} (")


def place_of(name: str, names: Sequence[str], what: str = "model") -> int:
    """Return the place of a model or task among their names; of a model, its first label does.

    Raises
    ------
    SelectionError
        None has the name.
    """
    match = next((x for x in names if x == name), None)
    if match is None and what == "model":
        match = next((x for x in names if is_model(x, name)), None)
    if match is None:
        raise SelectionError(no_such(what, name, names, few(names)))
    return names.index(match)


def models_like(patterns: Sequence[str], models: Sequence[str]) -> tuple[str, ...]:
    """Return the models that match any of the patterns, in which ``*`` and ``?`` are wildcards.

    Raises
    ------
    SelectionError
        No model matches a pattern.
    """
    matching: set[str] = set()
    for pattern in patterns:
        like = {name for name in models if is_like(name, pattern)}
        if not like:
            raise SelectionError(no_such("model", pattern, models, few(list(models))))
        matching |= like
    return tuple(name for name in models if name in matching)


def join_answers(responses: Iterable[Responses]) -> list[Responses]:
    """Join logs of one answer each, of a model, task and metric; those of one item are its epochs.

    Epochs are in the order of the logs.
    """
    by_run = grouped(
        responses, lambda r: (r.model, r.measure, r.settings, r.scores.shape == (1, 1) or id(r))
    )
    return [_as_one(own) if len(own) > 1 else own[0] for own in by_run.values()]


def _as_one(answers: Sequence[Responses]) -> Responses:
    names = [str(r.item_ids[0]) for r in answers]
    items = {name: i for i, name in enumerate(dict.fromkeys(names))}
    places = np.array([items[name] for name in names])
    scores = np.array([r.scores[0, 0] for r in answers])
    first = first_rows(places)
    of_items: dict[str, Any] = {}
    for part in ("weights", "clusters", "item_hashes", "tags"):
        values = [getattr(answers[k], part) for k in first]
        every = all(value is not None for value in values)
        of_items[part] = np.concatenate(values) if every else None
    path = Path(os.path.commonpath([r.source.path for r in answers]))
    return replace(
        answers[0], item_ids=as_item_ids(list(items)),
        scores=score_matrix(places, number_epochs(places), scores),
        source=replace(answers[0].source, path=path), logged=None,
        notes=tuple(dict.fromkeys(note for r in answers for note in r.notes)), **of_items,
    )  # fmt: skip

"""Response matrices: many `Responses` joined into one array of models × items × epochs.

`ResponseMatrix.join` matches items by task and id, and checks by hashes (`Questions`) that an id
means the same question in all logs. `stack_epochs` joins several runs of one model into epochs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.data.measure import (
    Measure,
    MeasureByName,
    given,
    joint,
)
from evalstats_plugin.data.responses import (
    IN_ARRAY,
    NAMED_ALONE,
    NO_METRIC,
    NO_TASK,
    Provenance,
    Responses,
    Source,
    as_clusters,
    check_item_ids,
    named_alone,
    without_extremes,
)
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import DesignError, ItemConflictError, counted
from evalstats_plugin.runtime.files import (
    numbers_in,
    read_signed,
    reporting_damage,
    texts_in,
    write_signed,
)
from evalstats_plugin.runtime.memory import check_memory
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd


OnConflict = Literal["error", "drop"]
"""What `join` does with an id that stands for different questions."""

_META = b"evalstats"
"""Key of our metadata in Parquet files."""


@dataclass(frozen=True, eq=False, slots=True)
class ResponseMatrix:
    """Scores of N models on M items in R epochs.

    Notes
    -----
    Models are rows, items are columns: the transpose of psychometrics, where persons are
    many and items few. NaN is the one code for a missing score.
    """

    scores: FloatArray
    """Shape (N, M, R)."""
    models: tuple[str, ...]
    item_ids: NDArray[Any]
    """Shape (M,), like the next five."""
    tasks: NDArray[Any]
    metrics: NDArray[Any]
    clusters: NDArray[Any] | None = None
    item_hashes: NDArray[Any] | None = None
    chance: FloatArray | None = None
    """P(right) of an answer chosen at random, as in `Responses`."""
    measures: tuple[Measure, ...] = ()
    """What the scores are: of each task and metric that more is known of than its name."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shape = (len(self.models), len(self.item_ids))
        if self.scores.ndim != 3 or self.scores.shape[:2] != shape:
            msg = f"scores must have shape (N, M, R) with N, M = {shape}, not {self.scores.shape}"
            raise ValueError(msg)
        object.__setattr__(self, "scores", without_extremes(self.scores))

    def __repr__(self) -> str:
        n, m, r = self.scores.shape
        sizes = (counted(n, "model"), counted(m, "item"), counted(r, "epoch"))
        return f"<ResponseMatrix: {' × '.join(sizes)}>"

    @property
    def measure_of(self) -> MeasureByName:
        """What the scores of a task under a metric are."""
        return MeasureByName.of(self.measures)

    def under(self, measures: tuple[Measure, ...]) -> ResponseMatrix:
        """Return the same scores under other measures."""
        return replace(self, measures=measures)

    @property
    def items(self) -> pd.DataFrame:
        """The items, one per line: item, task, metric, cluster, hash."""
        import pandas as pd

        names = ("item", "task", "metric", "cluster", "hash")
        columns = (getattr(self, field) for field in _OF_ITEMS)
        return pd.DataFrame(dict(zip(names, columns, strict=False)))

    @classmethod
    def from_array(
        cls,
        scores: ArrayLike,
        *,
        models: Sequence[str] | None = None,
        items: Sequence[str] | None = None,
        tasks: Sequence[str] | str = NO_TASK,
        metric: str = NO_METRIC,
        measure: Measure | None = None,
        clusters: Sequence[Any] | None = None,
    ) -> ResponseMatrix:
        """Build a matrix from plain arrays of shape (N, M) or (N, M, R).

        ``measure`` is what is known of the scores: their scale, direction, and names in place of
        ``tasks`` and ``metric`` where it has them. Without a scale it is that of the metric's name,
        or what the scores show it to be, as for tables, with a note.

        Examples
        --------
        >>> ResponseMatrix.from_array([[1, 0, 1], [1, 1, float("nan")]]).models
        ('model_0', 'model_1')
        """
        array: FloatArray = np.asarray(scores, dtype=np.float64)
        array = array[:, :, None] if array.ndim == 2 else array
        if array.ndim != 3:
            msg = f"scores have {array.ndim} axes, and must have two or three: (N, M) or (N, M, R)"
            raise ValueError(msg)
        n, m = int(array.shape[0]), int(array.shape[1])
        ids = [f"item_{j}" for j in range(m)] if items is None else list(items)
        stated = Measure() if measure is None else measure
        metric = stated.metric or metric
        tasks = stated.task or tasks
        task_names = [tasks] * m if isinstance(tasks, str) else list(tasks)
        if len(ids) != m or len(task_names) != m:
            msg = f"{m} items of scores, but {len(ids)} item names and {len(task_names)} tasks"
            raise ValueError(msg)
        names = tuple(models) if models else tuple(f"model_{i}" for i in range(n))
        _check_distinct(names, "model")
        _check_distinct(list(zip(task_names, ids, strict=True)), "item of a task")
        named = [None] * m if clusters is None else list(clusters)
        if len(named) != m:
            raise ValueError(
                f"{counted(m, 'item')} of scores, but {counted(len(named), 'cluster')}"
            )
        texts = [None if c is None or c != c else str(c) for c in named]  # noqa: PLR0124 - NaN
        codes, notes = (None, ()) if clusters is None else as_clusters(texts, "cluster")
        return cls(
            scores=array,
            models=names,
            item_ids=np.asarray(ids),
            tasks=np.asarray(task_names),
            metrics=np.full(m, metric),
            clusters=codes,
            measures=tuple(
                given(Measure(task=task, metric=metric), [stated])
                for task in dict.fromkeys(map(str, task_names))
            ),
            notes=notes,
        )

    @classmethod
    def join(
        cls, responses: Sequence[Responses], *, on_conflict: OnConflict = "error"
    ) -> ResponseMatrix:
        """Join on (task, item id), checked on the hash of the item's question."""
        if not responses:
            msg = "no item scores to join: nothing was selected, or the logs hold no samples"
            raise DesignError(msg)
        models = tuple(dict.fromkeys(r.model for r in responses))
        n_epochs = max(r.scores.shape[1] for r in responses)
        _check_size(responses, len(models), n_epochs)
        blocks = [
            _join_task(group, models, n_epochs, drop=on_conflict == "drop")
            for group in grouped(responses, lambda r: r.task).values()
        ]
        notes = [note for block in blocks for note in block.notes]
        return cls(
            scores=np.concatenate([b.scores for b in blocks], axis=1),
            models=models,
            item_ids=np.concatenate([b.item_ids.astype(str) for b in blocks]),
            tasks=np.concatenate([b.tasks for b in blocks]),
            metrics=np.concatenate([b.metrics for b in blocks]),
            clusters=_concatenated([b.clusters for b in blocks]),
            item_hashes=_concatenated([b.item_hashes for b in blocks]),
            chance=_chances(blocks),
            measures=tuple(m for block in blocks for m in block.measures),
            notes=tuple(notes),
        )

    def to_responses(self) -> list[Responses]:
        """Split into one `Responses` per model × task × metric, in order."""
        names = list(zip(self.tasks.tolist(), self.metrics.tolist(), strict=True))
        places = grouped(range(len(names)), names.__getitem__)
        source = Source(path=Path(), harness=IN_ARRAY)
        measure_of = self.measure_of
        # What all models share is cut once.
        parts = [
            (measure_of[str(task), str(metric)], submatrix(self, slice(None), np.array(at)))
            for (task, metric), at in places.items()
        ]
        return [
            Responses(
                model=model,
                measure=measure,
                item_ids=part.item_ids,
                scores=part.scores[i],
                clusters=part.clusters,
                item_hashes=part.item_hashes,
                chance=part.chance,
                source=source,
            )
            for i, model in enumerate(self.models)
            for measure, part in parts
        ]

    def save(self, path: str | Path) -> None:
        """Write to Parquet: one line per item, one column per model, names in the metadata."""
        # pyarrow has no types of its own.
        pa: Any = import_module("pyarrow")
        n, m, n_epochs = self.scores.shape
        columns: dict[str, Any] = {
            "item": self.item_ids.astype(str),
            "task": self.tasks.astype(str),
            "metric": self.metrics.astype(str),
        }
        for name, values in (("cluster", self.clusters), ("hash", self.item_hashes)):
            if values is not None:
                columns[name] = values.astype(str)
        if self.chance is not None:
            columns["chance"] = self.chance
        for i in range(n):
            flat = pa.array(self.scores[i].ravel())
            columns[f"score_{i}"] = pa.FixedSizeListArray.from_arrays(flat, n_epochs)
        measures = [json.dumps(measure.to_dict()) for measure in self.measures]
        meta = {
            "models": self.models, "shape": [n, m, n_epochs], "notes": self.notes,
            "measures": measures,
        }  # fmt: skip
        write_signed(pa.table(columns), Path(path), _META, meta)

    @classmethod
    def load(cls, path: str | Path) -> ResponseMatrix:
        """Read what `save` wrote.

        Raises
        ------
        LogError
            No such file, or not a response matrix.
        """
        kinds = {"models": "texts", "shape": "counts", "notes": "texts", "measures": "texts"}
        wanted = "give a response matrix that evalstats-plugin wrote"
        other = "not a response matrix written by evalstats-plugin"
        table, meta = read_signed(Path(path), _META, kinds, wanted=wanted, other=other)

        def texts(name: str) -> NDArray[Any]:
            return np.asarray(texts_in(table, name))

        with reporting_damage(Path(path)):
            n, m, n_epochs = meta["shape"]
            scores = [numbers_in(table, f"score_{i}", (m, n_epochs)) for i in range(n)]
            return cls(
                scores=np.array(scores, dtype=np.float64).reshape(n, m, n_epochs),
                models=tuple(meta["models"]),
                item_ids=texts("item"),
                tasks=texts("task"),
                metrics=texts("metric"),
                clusters=texts("cluster") if "cluster" in table.column_names else None,
                item_hashes=texts("hash") if "hash" in table.column_names else None,
                chance=(
                    numbers_in(table, "chance", (m,)) if "chance" in table.column_names else None
                ),
                measures=tuple(Measure.from_dict(json.loads(text)) for text in meta["measures"]),
                notes=tuple(meta["notes"]),
            )


def _check_distinct(names: Sequence[Any], what: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise ValueError(f"{what} {twice!r} is there twice; give different names")


def _join_task(
    responses: Sequence[Responses], models: tuple[str, ...], n_epochs: int, *, drop: bool
) -> ResponseMatrix:
    """Join the models' responses to one task."""
    _check_one_metric(responses)
    for r in responses:
        check_item_ids(r)
    # Integer ids are kept, so that items stay in their order; mixed ones are all texts.
    kinds = {r.item_ids.dtype.kind for r in responses}
    if kinds != {"U"} and not kinds <= set("iu"):
        responses = [replace(r, item_ids=r.item_ids.astype(str)) for r in responses]
    ids, places = places_of([r.item_ids for r in responses])
    scores = np.full((len(models), len(ids), n_epochs), np.nan)
    hashes = np.full(len(ids), "", dtype=object)
    questions = Questions(len(ids))
    clusters = np.full(len(ids), "", dtype=object)
    chance = np.full(len(ids), np.nan)
    conflict = np.zeros(len(ids), dtype=bool)
    rows = {model: i for i, model in enumerate(models)}
    for j, r in enumerate(responses):
        at = places[j]
        scores[rows[r.model], at, : r.scores.shape[1]] = r.scores
        if r.clusters is not None:
            clusters[at] = _clusters_of(r.clusters.astype(str), clusters[at])
        if r.chance is not None:
            chance[at] = np.where(np.isnan(chance[at]), r.chance, chance[at])
        if r.item_hashes is None:
            continue
        mine = hash_texts(r.item_hashes)
        differ, owners = questions.compare(at, mine, j)
        if differ.any() and not drop:
            first = int(np.flatnonzero(differ)[0])
            owner = responses[int(owners[first])]
            raise ItemConflictError(
                f"task {r.task!r}: item {r.item_ids[first]} is one question in {owner.source.path} "
                f"and another in {r.source.path} ({differ.sum()} such items). They must not be "
                "paired; score both models on the same data, or pass "
                'on_conflict="drop" to leave these items out'
            )
        conflict[at[differ]] = True
        hashes[at] = np.where(hashes[at] == "", mine, hashes[at])
    clustered = any(r.clusters is not None for r in responses)
    if clustered:
        own = np.array(list(map(named_alone, range(len(ids)))))
        clusters = np.where(clusters == "", own, clusters)
    keep = ~conflict
    task = responses[0].task
    dropped = f"{task}: {counted(int(conflict.sum()), 'item')} dropped, not the same question"
    return ResponseMatrix(
        scores=scores[:, keep],
        models=models,
        item_ids=ids[keep],
        tasks=np.full(int(keep.sum()), task),
        metrics=np.full(int(keep.sum()), responses[0].metric),
        clusters=clusters[keep] if clustered else None,
        item_hashes=hashes[keep] if (hashes != "").all() else None,
        chance=None if np.isnan(chance).all() else chance[keep],
        measures=(joint([r.measure for r in responses]),),
        notes=(dropped,) if conflict.any() else (),
    )


def _clusters_of(mine: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
    """Return the clusters of some items: those of a log, or of earlier logs where it has none.

    An item that is a cluster of its own is named after its place, which is another in each log.
    """
    if not np.char.startswith(mine, "(item ").any():
        return mine
    alone = np.array([NAMED_ALONE.fullmatch(name) is not None for name in mine.tolist()])
    return np.where(alone, before, mine)


def _check_size(responses: Sequence[Responses], n_models: int, n_epochs: int) -> None:
    """Refuse a matrix that would not fit: of models with items of their own it has every pair."""
    n_items = 0
    for group in grouped(responses, lambda r: r.task).values():
        first, *others = (r.item_ids for r in group)
        own = [ids for ids in others if not np.array_equal(ids, first)]
        n_items += len(np.unique(np.concatenate([first, *own]).astype(str))) if own else len(first)
    # The scores, their means over the epochs, and what is computed of both.
    needed = 8 * n_models * n_items * (n_epochs + 2)
    what = f"the scores of {counted(n_models, 'model')} on {counted(n_items, 'item')}"
    check_memory(needed, what, "choose models or tasks, or make a response store of them")


def _check_one_metric(responses: Sequence[Responses]) -> None:
    # Harnesses that have no filters log "acc" for what lm-eval logs as "acc,none".
    metrics = sorted({r.metric.removesuffix(",none") for r in responses})
    if len(metrics) > 1:
        raise DesignError(
            f"task {responses[0].task!r} has {len(metrics)} metrics ({', '.join(metrics)}); "
            "choose one with --metric (in Python: metric=)"
        )
    models = [r.model for r in responses]
    if len(set(models)) < len(models):
        twice = next(m for m in models if models.count(m) > 1)
        msg = f"model {twice!r} is there twice for task {responses[0].task!r}; choose one run"
        raise DesignError(msg)


def places_of(
    item_ids: Sequence[NDArray[Any]],
) -> tuple[NDArray[Any], list[IntArray]]:
    """Return all distinct ids in order, and the place of each model's items among them."""
    # Usually all models have the same items: then one look-up is enough.
    first = item_ids[0]
    alike = [np.array_equal(ids, first) for ids in item_ids]
    others = [ids for ids, same in zip(item_ids, alike, strict=True) if not same]
    every = np.unique(np.concatenate([first, *others]))
    place = np.searchsorted(every, first)
    return every, [
        place if same else np.searchsorted(every, ids)
        for ids, same in zip(item_ids, alike, strict=True)
    ]


class Questions:
    """Hashes of the items of one task, and the responses in which each was first seen."""

    def __init__(self, n_items: int) -> None:
        self._n_items = n_items
        self._of_kind: dict[str, tuple[NDArray[Any], IntArray]] = {}

    def compare(self, at: IntArray, mine: NDArray[Any], owner: int) -> tuple[BoolArray, IntArray]:
        """Return where hashes differ from earlier ones of their kind, and the earlier owners or -1.

        Hashes not seen before are stored with this owner.
        """
        # The part before the colon names the way a harness makes its hashes; those of different
        # kinds cannot be compared, and empty ones not at all.
        kind = next((str(h) for h in mine if h), "").rpartition(":")[0]
        if kind not in self._of_kind:
            unseen = np.full(self._n_items, "", dtype=object)
            self._of_kind[kind] = unseen, np.full(self._n_items, -1)
        hashes, owners = self._of_kind[kind]
        earlier = owners[at]
        differ = (mine != "") & (earlier >= 0) & (hashes[at] != mine)
        new = (mine != "") & (earlier < 0)
        hashes[at[new]], owners[at[new]] = mine[new], owner
        return differ, earlier


def hash_texts(hashes: NDArray[Any]) -> NDArray[np.object_]:
    """Return hashes as texts, in bytes or not, shape (M,)."""
    if hashes.dtype.kind == "S":
        hashes = np.char.decode(hashes, errors="backslashreplace")
    return hashes.astype(str).astype(object)


def _concatenated(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    present = [part for part in parts if part is not None]
    return np.concatenate([p.astype(str) for p in present]) if len(present) == len(parts) else None


def _chances(blocks: Sequence[ResponseMatrix]) -> FloatArray | None:
    if all(b.chance is None for b in blocks):
        return None
    return np.concatenate(
        [np.full(len(b.item_ids), np.nan) if b.chance is None else b.chance for b in blocks]
    )


def stack_epochs(responses: Sequence[Responses]) -> list[Responses]:
    """Join several runs of one model on one task and metric into epochs, oldest first."""
    cells = grouped(responses, lambda r: (r.model, r.task, r.metric)).values()
    return [_stacked(sorted(runs, key=lambda r: r.source.instant)) for runs in cells]


def _stacked(runs: list[Responses]) -> Responses:
    last = runs[-1]
    with_items = [
        r for r in runs if len(r.item_ids) and r.aggregation == "mean" and r.predicted is None
    ]
    if not with_items and len(runs) > 1:
        return last.noted(f"of the latest of {len(runs)} runs: not a mean of items, so not stacked")
    if len(with_items) < 2:
        return with_items[0] if with_items else last
    # Join the runs as if each were a model, with the same check of hashes.
    names = tuple(str(i) for i in range(len(with_items)))
    width = max(r.scores.shape[1] for r in with_items)
    as_models = [replace(r, model=name) for r, name in zip(with_items, names, strict=True)]
    joined = _join_task(as_models, names, width, drop=False)
    unreduced = [r.unreduced for r in with_items if r.unreduced is not None]
    return replace(
        last,
        item_ids=joined.item_ids,
        scores=joined.scores.transpose(1, 0, 2).reshape(len(joined.item_ids), -1),
        item_hashes=joined.item_hashes,
        clusters=joined.clusters,
        chance=joined.chance,
        tags=_tags(with_items, joined.item_ids),
        answers=None,
        weights=None,
        predicted=None,
        unreduced=_stacked(unreduced) if len(unreduced) == len(with_items) else None,
        beside=tuple(stack_epochs([other for r in with_items for other in r.beside])),
        logged=None,
        logged_std_error=None,
        provenance=Provenance(),
        measure=replace(last.measure, n_cut=0),
        notes=(*last.notes, f"{len(with_items)} runs stacked as epochs"),
    )


def _tags(runs: Sequence[Responses], item_ids: NDArray[Any]) -> NDArray[Any] | None:
    """Return the tags of joined items, which the latest run that has an item says."""
    tag_of: dict[str, str] = {}
    for r in runs:
        if r.tags is not None:
            tag_of |= zip(r.item_ids.astype(str).tolist(), r.tags.tolist(), strict=True)
    if not tag_of:
        return None
    names = item_ids.astype(str).tolist()
    return np.array([tag_of.get(name, named_alone(i)) for i, name in enumerate(names)])


_OF_ITEMS = ("item_ids", "tasks", "metrics", "clusters", "item_hashes", "chance")
"""Fields of `ResponseMatrix` of shape (M,)."""


def submatrix(matrix: ResponseMatrix, models: IntArray | slice, items: IntArray) -> ResponseMatrix:
    """Return the models and items at these places, in this order; or all models."""
    arrays = {name: getattr(matrix, name) for name in _OF_ITEMS}
    cut = {name: values[items] for name, values in arrays.items() if values is not None}
    if isinstance(models, slice):
        return replace(matrix, scores=matrix.scores[models, items], **cut)
    names = tuple(matrix.models[int(i)] for i in models)
    return replace(matrix, scores=matrix.scores[np.ix_(models, items)], models=names, **cut)


def check_unit_range(matrix: ResponseMatrix) -> None:
    """Raise `DesignError` where a score is outside [0, 1]."""
    outside = (matrix.scores < 0) | (matrix.scores > 1)
    if not outside.any():
        return
    i, j, r = (int(k) for k in np.argwhere(outside)[0])
    raise DesignError(
        f"score {matrix.scores[i, j, r]:g} of model {matrix.models[i]!r} on item "
        f"{matrix.item_ids[j]} of task {str(matrix.tasks[j])!r} is outside [0, 1] "
        f"({int(outside.sum())} such scores in all); rescale them, or choose another metric"
    )

"""Responses: the scores of one model on one task under one metric (`data.measure`).

* `Responses`, with its `Source`, `Group`, `Provenance` and `Selection`: what readers of logs make
* `DrawnItems`, `difference_error`: items that two adaptive tests drew alike
* `as_clusters`, `as_item_ids`: clusters and item ids from the texts of a log
* `field_of_slices`: the field of ``by=``, and into how many quantiles its numbers are cut
* `metadata_of`, `metadata_fields`: all but the scores as JSON values, for formats that store it
* `unique_in_order` … `score_matrix`: rows of a table to arrays of M items × R epochs
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.measure import Measure, Measured
from evalstats_plugin.errors import DesignError, LogError, counted
from evalstats_plugin.stats.arrays import FloatArray, IntArray

TABULAR = "tabular"
"""Harness name of responses read from tables, which no harness wrote."""

_PRIOR_DRAWS = 4.0
"""Number of draws for which independent errors count."""
_PAIRED_PRIOR_DRAWS = 2.0
"""The same where every draw gives a difference."""

IN_ARRAY = "matrix"
"""The same of scores in an array, or in a matrix of them."""

NO_COLUMN = "no column says the"
"""How notes of tables begin that lack a name, which goes on with the part and a colon."""

NO_TASK, NO_METRIC = "task", "score"
"""What task and metric are called where arrays and tables do not name them."""

_LONGEST_CLUSTER = 80
"""Characters of a cluster's name that are kept."""

_LONGEST_TAGS = 640
"""The same of a list of tags, which is kept whole so that its tags can be told apart."""

_LONGEST_NUMBER = 18
"""Characters that always fit into 64 bits."""

_NUMBER, _COUNT = (int, float, NoneType), (int, NoneType)

_PLAIN: Mapping[str, tuple[type, ...]] = {
    "logged": _NUMBER,
    "logged_std_error": _NUMBER,
    "logged_n": _COUNT,
}
"""Fields of `Responses` that are copied as they are, and their types."""

_GROUP: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "depth": (int,),
    "weighting": (str,),
    "n_tasks": (int,),
    "logged": _NUMBER,
    "logged_std_error": _NUMBER,
}
"""Fields of `Group` besides its notes, and their types."""


_OF_ITEMS = ("weights", "clusters", "item_hashes", "chance", "tags")
"""Fields of `Responses` of shape (M,), besides the ids."""

PER_ITEM = ("item_ids", "scores", "pairs", "answers", *_OF_ITEMS)
"""Fields of `Responses` with a row for each item."""

Weighting = Literal["micro", "macro", "parts", "either"]

LARGEST = 1e60
"""Largest absolute value of a score: those beyond it overflow when variances are computed."""


def without_extremes(scores: FloatArray) -> FloatArray:
    """Return scores with those beyond `LARGEST` as infinite, which no estimate uses.

    >>> without_extremes(np.array([0.5, -1e300]))
    array([ 0.5, -inf])
    """
    low = np.fmin.reduce(scores, axis=None, initial=0)
    high = np.fmax.reduce(scores, axis=None, initial=0)
    if low >= -LARGEST and high <= LARGEST:
        return scores
    return np.where(np.abs(scores) > LARGEST, np.copysign(np.inf, scores), scores)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Provenance:
    """Where scores come from, for `logs.check`; empty where the log does not say."""

    task_version: str = ""
    prompt_hashes: NDArray[Any] | None = None
    """Shape (M,): fingerprint of the prompt of each item."""
    is_altered: bool = False
    """Whether the items are not those of the checksum that the harness logged."""
    home: str = ""
    """Name of the folder in which the harness puts the logs of this model."""


class DrawnItems(NamedTuple):
    """The n items that an adaptive test drew by chance, in order."""

    items: tuple[str, ...]
    """Task and id of each, in one text."""
    probabilities: FloatArray
    """Shape (n,)."""
    residuals: FloatArray
    """Shape (n,): score by each draw less that by all of them, in standard deviations."""

    def n_shared(self, other: DrawnItems) -> int:
        """Count the first draws that two tests have in common."""
        n = min(len(self.items), len(other.items))
        same = np.array(self.items[:n]) == np.array(other.items[:n])
        alike = np.isclose(self.probabilities[:n], other.probabilities[:n], rtol=1e-6, atol=0.0)
        return int(np.logical_and.accumulate(same & alike).sum())


def shared_correlation(a: DrawnItems, b: DrawnItems) -> float:
    """Correlation of the errors of two models' scores, by the draws that both tests share.

    A draw estimates the scores of both models, so that its residuals tell how far they err alike:
    the difference has the variance ``va + vb - 2 r √(va vb)``. Shrunk towards 0 by
    `_PRIOR_DRAWS` draws, so that few of them do not make a difference certain.

    Examples
    --------
    >>> import numpy as np
    >>> draws = DrawnItems(("x", "y"), np.array([0.2, 0.25]), np.array([1.0, -1.0]))
    >>> round(shared_correlation(draws, draws), 3)
    0.333
    >>> shared_correlation(draws, draws._replace(items=("y", "x")))
    0.0
    """
    n, x, y = a.n_shared(b), a.residuals, b.residuals
    spread = np.sqrt((_PRIOR_DRAWS + x @ x) * (_PRIOR_DRAWS + y @ y))
    return float(x[:n] @ y[:n] / spread)


def difference_error(a: DrawnItems, error_a: float, b: DrawnItems, error_b: float) -> float:
    """Standard error of the difference of two models' scores, by the draws that both tests share.

    Where all draws are shared, that of a mean of paired differences if it is smaller: by the
    residual of the difference in each draw, weighted as the scores are (inverse probabilities), and
    `_PAIRED_PRIOR_DRAWS` more draws with independent errors.

    Parameters
    ----------
    error_a, error_b
        Of each score: a normal's share of its limits by Student's t at 95 %, with `_PRIOR_DRAWS`
        more draws. So is that of the difference.

    Examples
    --------
    >>> import numpy as np
    >>> draws = DrawnItems(("t / x", "t / y"), np.array([0.2, 0.25]), np.array([1.0, -1.0]))
    >>> round(difference_error(draws, 0.1, draws, 0.1), 3)
    0.115
    >>> round(difference_error(draws, 0.1, draws._replace(items=("t / y", "t / x")), 0.1), 3)
    0.141
    """
    from scipy import special

    variance = error_a**2 + error_b**2 - 2 * shared_correlation(a, b) * error_a * error_b
    n = len(a.items)
    if n and a.n_shared(b) == n == len(b.items):
        # Each error is by the squares of its residuals, and of those that its prior counts for.
        of_prior = sum(
            error**2 / (_PRIOR_DRAWS + draws.residuals @ draws.residuals)
            for draws, error in ((a, error_a), (b, error_b))
        )
        fewer = variance - (_PRIOR_DRAWS - _PAIRED_PRIOR_DRAWS) * of_prior
        # A score has at least the draws of the rarest task; two parameters are fitted.
        inside = min(Counter(item.partition(" / ")[0] for item in a.items).values())
        priors = np.array([_PAIRED_PRIOR_DRAWS, _PRIOR_DRAWS])
        squares = priors + max(n - 2, 0)
        reach = special.stdtrit(priors + max(inside - 2, 0), 0.975)
        paired = fewer * squares[1] / squares[0] * (reach[0] / reach[1]) ** 2
        variance = min(variance, paired)
    return float(np.sqrt(max(variance, 0.0)))


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Prediction:
    """Score on all M items of a bank, predicted from the answers to some: of an adaptive test.

    Items had unequal chances to be asked, so their own mean is not the score.
    """

    estimate: float | None
    """None where the bank predicts another metric: then nothing is known of this one's score."""
    low: float | None = None
    high: float | None = None
    confidence_level: float = 0.95
    n_in_bank: int
    item_ids: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.str_))
    """Shape (M,), as text; empty where the log has no predictions of single items."""
    scores: FloatArray = field(default_factory=lambda: np.empty(0))
    """Shape (M,): the score of an item that was asked, the expected score of any other."""
    variances: FloatArray = field(default_factory=lambda: np.empty(0))
    """Shape (M,): variance of an item's score around its expected one; 0 if it was asked."""
    common: float = 0.0
    """Standard error of `estimate` from what all items not asked share: ability, misfit."""
    draws: DrawnItems | None = None
    """None where items were chosen."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Responses(Measured):
    """Scores of one model on one task under one metric.

    Shape letters: M items, R epochs (repeated answers to an item).

    Notes
    -----
    What the scores are of is in ``measure``; its task, metric, bounds, aggregation, direction and
    population are properties here too. Where ``scores`` is empty only the logged value is known:
    the log has no items, or its items have no scores of their own (F1 pairs, texts).
    """

    model: str
    measure: Measure  # pyrefly: ignore[bad-override] - frozen
    item_ids: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Shape (M,): names of the items, unique."""
    scores: FloatArray = field(default_factory=lambda: np.empty((0, 1)))
    """Shape (M, R): NaN where missing."""
    weights: FloatArray | None = None
    """Shape (M,): denominators, where the value is a ratio of sums (words of a text)."""
    pairs: NDArray[Any] | None = None
    """Shape (M, 2), objects: expected and given answer of each item, where `aggregation` needs
    them: labels (f1), texts (bleu), a label and its probability (roc_auc). None where missing.
    `scores` then have shape (M, 0)."""
    answers: NDArray[Any] | None = None
    """Shape (M, R): text of each answer as it was filtered and scored, empty where there is none;
    None unless ``Selection.repeats`` asks for them."""
    left_out: FloatArray | None = None
    """Shape (U,): the metric's value without each unit (item, cluster, block of them) in turn,
    where it is no mean of item scores and was recomputed. `scores` are then empty."""
    clusters: NDArray[Any] | None = None
    """Shape (M,): cluster of each item; items of a cluster are dependent."""
    item_hashes: NDArray[Any] | None = None
    """Shape (M,): fingerprint of each item's question."""
    chance: FloatArray | None = None
    """Shape (M,): P(right) of an answer chosen at random, 1 / number of choices; NaN where the log
    does not say, None where it says so of no item."""
    tags: NDArray[Any] | None = None
    """Shape (M,): text of each item's field `Selection.by`, which slices share; a list of
    tags is JSON. None where that was not asked for, or no item has the field."""
    source: Source
    provenance: Provenance = Provenance()
    settings: tuple[tuple[str, str], ...] = ()
    """Settings that distinguish models of one name: arguments, revision, chat template."""
    groups: tuple[Group, ...] = ()
    """Groups around the task, outermost first."""
    logged: float | None = None
    logged_std_error: float | None = None
    logged_n: int | None = None
    published: Literal["", "counts", "error"] = ""
    """What is behind a published number without items: counts of right answers, or its standard
    error alone; empty where a harness logged the value, or nothing is behind it."""
    predicted: Prediction | None = None
    """Of an adaptive test, the score on all items: `scores` are those of the items asked."""
    unreduced: Responses | None = None
    """The same answers with their epochs, where `scores` combine these otherwise than by the mean
    (pass@k), and so have one column."""
    beside: tuple[Responses, ...] = ()
    """Other values that the log gives of the same answers: epochs combined otherwise, parts of the
    items. Only `evalstats_plugin.intervals` uses them, for rows of their own."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for owner, name, kind in (
            (self, "model", str), (self, "measure", Measure), (self, "source", Source),
            (self.measure, "task", str), (self.measure, "metric", str),
        ):  # fmt: skip
            if not isinstance(value := getattr(owner, name), kind):
                what = "a text" if kind is str else f"a {kind.__name__}"
                raise TypeError(f"{name} is {value!r:.60}, and must be {what}")
        for name in ("item_ids", "scores", *_OF_ITEMS):
            value = getattr(self, name)
            is_array = isinstance(value, np.ndarray) and (name != "scores" or value.ndim != 1)
            if value is not None and not is_array:
                object.__setattr__(self, name, _as_array(name, value))
        n = len(self.item_ids)
        if self.scores.ndim != 2 or len(self.scores) != n:
            msg = f"scores have shape {self.scores.shape}, and must have ({n}, R) for {n} item ids"
            raise ValueError(msg)
        if self.pairs is not None and self.pairs.shape != (n, 2):
            raise ValueError(f"pairs have shape {self.pairs.shape}, and must have ({n}, 2)")
        for name in _OF_ITEMS:
            value = getattr(self, name)
            if value is not None and value.shape != (n,):
                raise ValueError(f"{name} have shape {value.shape}, and must have ({n},)")
        object.__setattr__(self, "scores", without_extremes(self.scores))

    def __repr__(self) -> str:
        size = " × ".join(map(str, self.scores.shape))
        return f"<Responses: {self.model} on {self.task}, {self.metric}, {size} scores>"

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Smallest and largest possible score, where known."""
        return self.measure.bounds

    @property
    def aggregation(self) -> str:
        """How item scores are combined to the task's value."""
        return self.measure.aggregation

    @property
    def population(self) -> int | None:
        """Items in the whole benchmark, where only a part of it was run."""
        return self.measure.population

    def measured(self, **changes: Any) -> Responses:
        """Return the same scores with other parts of their measure."""
        return self.under(replace(self.measure, **changes))

    def under(self, measure: Measure) -> Responses:
        """Return the same scores under another measure."""
        return self if measure is self.measure else self._with("measure", measure)

    @property
    def item_means(self) -> FloatArray:
        """Shape (M,): mean over the epochs that were scored, NaN where none was."""
        return mean_over_epochs(self.scores)

    @property
    def is_partial(self) -> bool:
        """Whether only a part of the task's items is here, of a run cut, limited or adaptive."""
        return not (self.population is None and self.predicted is None and self.is_whole)

    @property
    def is_whole(self) -> bool:
        """Whether the log holds every item that the run scored."""
        return not (self.measure.n_cut or self.provenance.is_altered)

    @property
    def as_epochs(self) -> Responses:
        """The same answers with an epoch in each column: itself, unless epochs are combined."""
        return self if self.unreduced is None else self.unreduced.renamed(self.model)

    def of_items(self, items: NDArray[Any]) -> Responses:
        """Return the responses to some items, their places or a mask (M,), with none beside."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in PER_ITEM}
        some = {name: v[items] for name, v in arrays.items() if v is not None}
        prompts = self.provenance.prompt_hashes
        provenance = replace(
            self.provenance, prompt_hashes=None if prompts is None else prompts[items]
        )
        return replace(self, **some, provenance=provenance, unreduced=None, beside=())

    def values(self) -> Iterator[Responses]:
        """Yield the responses, and those beside them."""
        yield self
        for other in self.beside:
            yield other.renamed(self.model)

    def renamed(self, model: str) -> Responses:
        """Return the same responses under another name of the model."""
        return self if model == self.model else self._with("model", model)

    def with_beside(self, others: Sequence[Responses]) -> Responses:
        """Return the same responses with other values beside them."""
        return self._with("beside", tuple(others))

    def noted(self, *notes: str) -> Responses:
        """Return the same responses with more notes."""
        return self._with("notes", (*self.notes, *notes))

    def _with(self, name: str, value: object) -> Responses:
        made = copy(self)
        # `dataclasses.replace` would check all scores again.
        object.__setattr__(made, name, value)
        return made


def _as_array(name: str, values: Any) -> NDArray[Any]:
    """Return what a list of a response's values is as an array; one score an item is one epoch."""
    try:
        numbers = name in ("scores", "weights", "chance")
        array = np.asarray(values, dtype=np.float64 if numbers else None)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} are {values!r:.60}, and must be numbers ({error})") from error
    return array[:, None] if name == "scores" and array.ndim == 1 else array


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of responses."""

    path: Path
    harness: str
    version: str | None = None
    when: str = ""
    """Time of the run, as the log has it: texts without an offset from UTC sort by time."""
    run: str = ""
    """Id that the logs of an interrupted and resumed run share; empty where unknown."""
    is_annotated: bool | None = None
    """Whether this package has written its results into the log; None where it has no place."""

    @property
    def instant(self) -> str:
        """Time of the run, in UTC where the log gives an offset, as a text that sorts by time."""
        with suppress(ValueError, OverflowError):
            time = datetime.fromisoformat(self.when)
            return time.astimezone(UTC).isoformat() if time.tzinfo else self.when
        return self.when


@dataclass(frozen=True, slots=True)
class Group:
    """A group that a task is a part of, under one metric, as the harness was configured."""

    name: str
    depth: int
    """0 for the outermost."""
    weighting: Weighting
    """micro: every item counts the same; macro: every task; parts: every group one level down, and
    every task that is in none; either: the logged values do not tell micro from macro."""
    n_tasks: int
    """Tasks of the group that have the metric; without all of them it has no score."""
    logged: float | None = None
    logged_std_error: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """What to read. Names may hold the wildcards ``*`` and ``?``; empty means everything.

    A metric matches by its full name (``"acc,none"``) or by the part before the comma.
    ``cluster`` names the field of an item that holds its cluster, ``include_incomplete`` includes
    runs that failed or were cancelled, and ``header_only`` reads names without scores, which is
    fast and enough to list the contents. ``columns`` maps parts of a response to columns of a
    table; ``wide`` means that tables are matrices of scores, and says what their rows are.
    ``repeats`` also scores each answer of items that were answered several times, where the harness
    scored only one of them or their vote; ``"answers"`` also reads the answers themselves.
    ``model_name`` names the model of logs that do not. ``mapping`` says where the
    scores of any JSON are. ``costs`` also reads what answers cost, where the harness logs it, as
    scores under metrics such as "tokens".
    """

    tasks: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    cluster: str | None = None
    include_incomplete: bool = False
    header_only: bool = False
    columns: tuple[tuple[str, str], ...] = ()
    """Pairs such as ``("item", "question_id")``; a part may be there more than once."""
    wide: Literal["", "models", "items"] = ""
    repeats: bool | Literal["answers"] = False
    model_name: str = ""
    missing_codes: tuple[float, ...] = ()
    """Numbers that stand for a missing score in tables."""
    mapping: str | PathLike[str] | Mapping[str, Any] | None = None
    """A file in TOML, or its content."""
    by: str | None = None
    """Field of an item that becomes `Responses.tags`."""
    costs: bool = False

    def wants_task(self, *names: str) -> bool:
        """Whether a task is wanted, by its own name or that of a group around it."""
        return not self.tasks or any(is_like(n, p) for p in self.tasks for n in names)

    def wants_metric(self, name: str, *tasks: str) -> bool:
        """Whether a metric is wanted, by its full name or the part before the comma.

        Parameters
        ----------
        tasks
            Name of its task, and of the groups around that. Metrics that are asked for of this task
            alone (``"arc=acc_norm"``) replace the others, and those of other tasks do not count.
            Without them a metric is wanted that is asked for of any task.
        """
        wanted = self.metrics_of(*tasks)
        return not wanted or self.place_of_metric(name, *tasks) < len(wanted)

    def wants_cost(self, name: str, *tasks: str) -> bool:
        """Whether a cost is wanted: all are asked for, or it is by its name."""
        by_name = bool(self.metrics_of(*tasks)) and self.wants_metric(name, *tasks)
        return self.costs or by_name

    def place_of_metric(self, name: str, *tasks: str) -> int:
        """Return the place of a metric in the order of preference; behind all if not wanted."""
        names = (name, name.partition(",")[0])
        wanted = self.metrics_of(*tasks)
        for k, pattern in enumerate(wanted):
            of_tasks = () if tasks else [metric for _, metric in parted(pattern)]
            if any(is_like(n, p) for n in names for p in (pattern, *of_tasks)):
                return k
        return len(wanted)

    def metrics_of(self, *tasks: str) -> tuple[str, ...]:
        """Return the patterns of metrics that count for a task; empty means all of them."""
        pairs = [pair for metric in self.metrics for pair in parted(metric)]
        if not pairs or not tasks:
            return self.metrics
        asked = [metric for task, metric in pairs if any(is_like(n, task) for n in tasks)]
        if asked or all("=" in metric for metric in self.metrics):
            return tuple(asked)
        # A name may hold "=" itself.
        return self.metrics


def is_like(name: str, pattern: str) -> bool:
    """Whether a name is of a pattern, in which ``*`` and ``?`` are wildcards.

    >>> is_like("add[2]", "add[2]"), is_like("add2", "add[2]"), is_like("add[2]", "a*")
    (True, False, True)
    """
    # Brackets are part of names.
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def parted(pattern: str) -> list[tuple[str, str]]:
    """Return the tasks and metrics that ``TASK=METRIC`` may mean: names hold "=" too.

    >>> parted("law:year=1=f1"), parted("acc")
    ([('law:year', '1=f1'), ('law:year=1', 'f1')], [])
    """
    return [(pattern[: at.start()], pattern[at.end() :]) for at in re.finditer("=", pattern)]


def without_codes(r: Responses, codes: Sequence[float]) -> Responses:
    """Return responses in which scores of these numbers are missing."""
    coded = np.isin(r.scores, codes)
    made = replace(
        r,
        scores=np.where(coded, np.nan, r.scores),
        unreduced=r.unreduced and without_codes(r.unreduced, codes),
        beside=tuple(without_codes(other, codes) for other in r.beside),
    )
    if not coded.any():
        return made
    shown = ", ".join(f"{code:g}" for code in codes)
    return made.noted(f"{counted(int(coded.sum()), 'score')} of {shown} taken for missing")


def task_shares(around: Sequence[tuple[Group, ...]], n_items: FloatArray) -> FloatArray:
    """Return the share of each task in the mean of a group, shape (..., T).

    Parameters
    ----------
    around
        Of each task the groups around it, from this one to the innermost.
    n_items
        Items of each task, shape (..., T).
    """
    weighting = around[0][0].weighting
    weights = n_items if weighting in ("micro", "either") else np.ones_like(n_items)
    if weighting == "parts":
        parts: dict[str | int, list[int]] = {}
        for t, groups in enumerate(around):
            parts.setdefault(groups[1].name if len(groups) > 1 else t, []).append(t)
        weights = np.empty_like(n_items)
        for key, own in parts.items():
            inner = [around[t][1:] for t in own]
            weights[..., own] = (
                1.0 if isinstance(key, int) else task_shares(inner, n_items[..., own])
            )
    with np.errstate(invalid="ignore"):
        return weights / weights.sum(axis=-1, keepdims=True)


def mean_of_tasks(around: Sequence[tuple[Group, ...]]) -> str:
    """Return what the mean of a group is of, in words."""
    group = around[0][0]
    tasks = counted(len(around), "task")
    if group.weighting == "either":
        return (
            f"mean of {tasks}, in which every item counts the same: the logged values do not tell "
            "whether every task does"
        )
    if group.weighting != "parts":
        return f"{group.weighting} mean of {tasks}"
    parts = {groups[1].name if len(groups) > 1 else t for t, groups in enumerate(around)}
    return f"macro mean of {counted(len(parts), 'task' if len(parts) == len(around) else 'column')}"


def mean_over_epochs(scores: FloatArray) -> FloatArray:
    """Mean over the epochs that were scored, shape (..., M) from (..., M, R); NaN where none was.

    An infinite score makes the mean infinite, or NaN with infinities of both signs.
    """
    if scores.shape[-1] == 1:
        return scores[..., 0]
    taken = ~np.isnan(scores)
    count = taken.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        total = np.where(taken, scores, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


_DISTINCT: WeakValueDictionary[int, NDArray[Any]] = WeakValueDictionary()
"""Arrays of item ids that were looked at and hold each once, by identity."""


def shared_items(a: Responses, b: Responses) -> tuple[IntArray, IntArray] | None:
    """Return the places of the items that both have, in each; None if there are none."""
    if np.array_equal(a.item_ids, b.item_ids):
        everywhere = np.arange(len(a.item_ids))
        return (everywhere, everywhere) if len(everywhere) else None
    ids = [r.item_ids.astype(str) for r in (a, b)]
    ids_of_both, in_a, in_b = np.intersect1d(*ids, assume_unique=True, return_indices=True)
    return (in_a, in_b) if len(ids_of_both) else None


def check_item_ids(r: Responses, *, in_log: bool = False) -> None:
    """Refuse an item id that is there twice: nobody can say which score is meant.

    Raises
    ------
    LogError
        It is there twice `in_log`, which may also be read with its answers as epochs.
    DesignError
        It is there twice in responses that were made in memory.
    """
    for own in (r, *r.beside):
        twice = repeated_item(own.item_ids)
        if twice is not None:
            first, second, more = twice
            where = f"{own.source.path}: " if in_log else ""
            or_else = "--runs epochs (in Python: runs='epochs') takes them as further epochs"
            msg = (
                f"{where}answers {first + 1} and {second + 1} of model {own.model!r} to task "
                f"{own.task!r} ({own.metric}) are both of item {str(own.item_ids[first])!r} "
                f"({counted(more, 'answer')} too many). Give items ids of their own, or put "
                f"repeated answers into one row of scores{f'; {or_else}' if in_log else ''}"
            )
            raise LogError(msg) if in_log else DesignError(msg)


def repeated_item(item_ids: NDArray[Any]) -> tuple[int, int, int] | None:
    """Return two places of the same id, as text, and the number of surplus ones, or None.

    >>> repeated_item(np.array(["a", "b", "a"])), repeated_item(np.arange(3))
    ((0, 2, 1), None)
    """
    if _DISTINCT.get(id(item_ids)) is item_ids:
        return None
    kind = item_ids.dtype.kind
    # Numbered items are mostly in their order; texts are compared faster as a set.
    if kind not in "iu" or (item_ids[1:] <= item_ids[:-1]).any():
        names: list[Any] = item_ids.tolist()
        names = names if kind in "iuU" else list(map(str, names))
        if len(set(names)) < len(names):
            first: dict[Any, int] = {}
            again = ((first.setdefault(name, k), k) for k, name in enumerate(names))
            earlier, later = next((a, b) for a, b in again if a != b)
            return earlier, later, len(names) - len(set(names))
    _DISTINCT[id(item_ids)] = item_ids
    return None


def with_epochs(r: Responses) -> Responses:
    """Return responses whose items that are there again count as further epochs, with a note."""
    repeated = repeated_item(r.item_ids)
    if repeated is None or r.pairs is not None:
        return r
    places = unique_in_order(np.unique(r.item_ids.astype(str), return_inverse=True)[1])[1]
    first, nth = first_rows(places), number_epochs(places)
    width = int(r.scores.shape[1])
    scores = np.full((len(first), (int(nth.max()) + 1) * width), np.nan)
    for k in range(width):
        scores[places, nth * width + k] = r.scores[:, k]

    note = f"{counted(repeated[2], 'answer')} to items that are there again: further epochs"
    return replace(
        r.of_items(first),
        scores=scores,
        unreduced=r.unreduced and with_epochs(r.unreduced),
        beside=tuple(with_epochs(other) for other in r.beside),
        notes=(*r.notes, note),
    )


NAMED_ALONE = re.compile(r"\(item \d+\)")
"""What `named_alone` returns."""


def named_alone(place: int) -> str:
    """Return what stands for the field of an item that does not have it: a cluster of its own."""
    return f"(item {place})"


def as_clusters(
    values: Sequence[str | None], name: str
) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
    """Return the cluster of each item, shape (M,), and a note where some have none.

    An item without the field is a cluster of its own; long names end with a hash.
    """
    missing = sum(v is None for v in values)
    if missing == len(values):
        return None, (f"no item has the field {name!r}: items are treated as independent",)
    names: list[str] = []
    for place, value in enumerate(values):
        if value is None:
            names.append(named_alone(place))
        elif len(value) <= (_LONGEST_TAGS if value.startswith("[") else _LONGEST_CLUSTER):
            names.append(value)
        else:
            digest = hashlib.sha256(value.encode(errors="replace")).hexdigest()
            names.append(f"{value[:_LONGEST_CLUSTER]} {digest[:16]}")
    notes = (f"{missing} items without {name!r} are clusters of their own",) if missing else ()
    return np.asarray(names), notes


def field_of_slices(by: str) -> tuple[str, int | None]:
    """Return the field that makes slices, and into how many quantiles its numbers are cut.

    >>> field_of_slices("n_words:4"), field_of_slices("language")
    (('n_words', 4), ('language', None))
    """
    field, colon, number = by.rpartition(":")
    if colon and field and number.isascii() and number.isdigit():
        return field, int(number)
    return by, None


def as_item_ids(names: Sequence[str]) -> NDArray[Any]:
    """Return item ids from texts: integers where all are written as Python writes integers.

    Numbered items then keep their order.

    >>> as_item_ids(["3", "12"]), as_item_ids(["3", "012"])
    (array([ 3, 12]), array(['3', '012'], dtype='<U3'))
    """
    texts = np.asarray(names, dtype=str)
    if texts.size and (np.char.str_len(texts) <= _LONGEST_NUMBER).all():
        with suppress(ValueError, OverflowError):
            numbers = texts.astype(np.int64)
            if (numbers.astype(str) == texts).all():
                return numbers
    return texts


def metadata_of(r: Responses) -> dict[str, Any]:
    """Return the measure, logged values, settings and groups, and when it was run."""
    return {
        "measure": r.measure.to_dict(),
        **{name: getattr(r, name) for name in _PLAIN},
        **({"published": r.published} if r.published else {}),
        "settings": dict(r.settings),
        "groups": [{**asdict(group), "notes": list(group.notes)} for group in r.groups],
        "notes": list(r.notes),
        "when": r.source.when,
        "harness": r.source.harness,
        "version": r.source.version,
    }


def metadata_fields(record: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Return the fields of `Responses` that `metadata_of` returned, with their time in the source.

    Raises
    ------
    TypeError, KeyError, ValueError
        The mapping is not one that `metadata_of` returns.
    """
    settings = record["settings"].items()
    return {
        **_checked(record, _PLAIN),
        "published": _text(record.get("published", "")),
        "measure": Measure.from_dict(record["measure"]),
        "settings": tuple((_text(key), _text(value)) for key, value in settings),
        "groups": tuple(map(_group, record["groups"])),
        "notes": tuple(map(_text, record["notes"])),
        "source": replace(source, when=_text(record["when"])),
    }


def _group(fields_of: Mapping[str, Any]) -> Group:
    notes = tuple(map(_text, fields_of["notes"]))
    values: dict[str, Any] = {**_checked(fields_of, _GROUP), "notes": notes}
    return Group(**values)


def _checked(values: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    for name, types in kinds.items():
        if not isinstance(values[name], types):
            raise TypeError(f"{name} is {values[name]!r}")
    return {name: values[name] for name in kinds}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def origin(record: Mapping[str, Any]) -> str:
    """Return the harness and version that responses came from, for a source's version."""
    return f"{record['harness']} {record['version'] or ''}".strip()


def unique_in_order(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct codes by first appearance, and the place of each row's code among them.

    >>> unique_in_order(np.array([7, 3, 7]))
    (array([7, 3]), array([0, 1, 0]))
    """
    values, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return values[order], rank[inverse]


def first_rows(items: IntArray) -> IntArray:
    """Return the first row of each item, shape (M,).

    >>> first_rows(np.array([0, 0, 1]))
    array([0, 2])
    """
    return np.unique(items, return_index=True)[1].astype(np.int64)


def number_epochs(items: IntArray) -> IntArray:
    """Number the epochs of each item from 0, in the order of the rows.

    >>> number_epochs(np.array([0, 1, 0, 0]))
    array([0, 0, 1, 2])
    """
    rows = np.argsort(items, kind="stable")
    ordered = items[rows]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(starts, len(ordered)))
    number = np.empty_like(items)
    number[rows] = np.arange(len(rows)) - np.repeat(starts, sizes)
    return number


def repeated_rows(items: IntArray, epochs: IntArray) -> tuple[int, int, int] | None:
    """Return two rows of the same item and epoch, and the number of surplus rows, or None."""
    cells = items * (int(epochs.max(initial=0)) + 1) + epochs
    order = np.argsort(cells, kind="stable")
    again = np.flatnonzero(cells[order][1:] == cells[order][:-1])
    if not len(again):
        return None
    return int(order[again[0]]), int(order[again[0] + 1]), len(again)


def score_matrix(items: IntArray, epochs: IntArray, scores: FloatArray) -> FloatArray:
    """Return scores as an array of items and epochs, shape (M, R), NaN where missing."""
    matrix = np.full((int(items.max()) + 1, int(epochs.max()) + 1), np.nan)
    matrix[items, epochs] = scores
    return matrix

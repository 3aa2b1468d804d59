"""The plugin contract: hooks that an adapter or a package of methods may implement.

Implement any of these functions, decorate them with ``evalstats_plugin.hookimpl``, and name
the module under the entry-point group ``evalstats_plugin``. An implementation may take fewer
arguments than its hook. Rules that keep plugins from hurting each other:

* know your logs by their first bytes (``log.head``) and answer ``None`` for anyone else's;
* for a broken log of your own raise ``evalstats_plugin.errors.LogError``;
* import no harness, SciPy, pandas or torch when the module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.rows import Comparisons, RankSets
    from evalstats_plugin.data.methods import Method
    from evalstats_plugin.data.metrics import StockMetric
    from evalstats_plugin.data.responses import Responses, Selection
    from evalstats_plugin.data.results import Results
    from evalstats_plugin.hierarchical.rows import CapabilityLevel, PooledScores
    from evalstats_plugin.irt.rows import Abilities
    from evalstats_plugin.ranking.contests.contests import Contests
    from evalstats_plugin.runtime.files import LogFile
    from evalstats_plugin.scores.rows import Intervals


PROJECT = "evalstats_plugin"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def evalstats_find_logs(folder: Path, files: Sequence[LogFile]) -> Mapping[Path, Sequence[Path]]:  # pyrefly: ignore[bad-return]
    """Return the logs among the files of one folder that are yours, each with files of its run.

    Plugins are asked in turn, each about the files that those before it left.
    """


@hookspec(firstresult=True)
def evalstats_read_log(log: LogFile, selection: Selection) -> Sequence[Responses] | None:
    """Return what the models of one log answered, or None if the log is not yours."""


@hookspec(firstresult=True)
def evalstats_read_results(results: Any, selection: Selection) -> Sequence[Responses] | None:
    """Return the same for what your harness gives in Python, or None if it is not yours.

    ``results`` may be anything that a person holds: a mapping, a log object, a DataFrame.
    """


@hookspec(firstresult=True)
def evalstats_read_contests(log: LogFile, columns: Mapping[str, str]) -> Contests | None:
    """Return the comparisons that a judge's log holds, or None if the log is not yours.

    ``columns`` names the field of each part of a comparison, such as ``first=metadata.model_a``.
    """


@hookspec(firstresult=True)
def evalstats_read_texts(
    log: LogFile, items: Mapping[str, Collection[str]]
) -> Mapping[tuple[str, str], ItemText] | None:
    """Return texts of some items of each task, by task and item id, or None if there are none."""


@hookspec(firstresult=True)
def evalstats_annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Write a copy of one log with the annotation in it (None: without any) to output."""


@hookspec(firstresult=True)
def evalstats_annotate_results(
    results: Mapping[str, Any], annotation: Annotation
) -> Mapping[str, Any] | None:
    """Return a harness's in-memory results with the annotation added."""


@hookspec
def evalstats_methods() -> Sequence[Method]:  # pyrefly: ignore[bad-return]
    """Return further statistical methods, to be named by ``--method``."""


@hookspec
def evalstats_metrics() -> Sequence[StockMetric]:  # pyrefly: ignore[bad-return]
    """Return what is known of your metrics: scale, direction, aggregation (`data.metrics`).

    Your lines go before those of the registry.
    """


@hookspec
def evalstats_commands() -> Sequence[Command]:  # pyrefly: ignore[bad-return]
    """Return further commands of ``evalstats-plugin``, loaded when they are run."""


@hookspec
def evalstats_harness_commands() -> Sequence[Command]:  # pyrefly: ignore[bad-return]
    """Return commands of ``evalstats-plugin adapt run``: one for each harness you can drive."""


@hookspec
def evalstats_exporters() -> Sequence[Exporter]:  # pyrefly: ignore[bad-return]
    """Return formats that ``evalstats-plugin export --to NAME`` writes, loaded when used."""


@hookspec(firstresult=True)
def evalstats_generator(model: str) -> Callable[[str], str] | None:
    """Return what puts a text to a model and returns its reply, or None if you can ask none."""


@dataclass(frozen=True, slots=True)
class ItemText:
    """Texts of one item and of one model's answer to it, as logged; "" what the log has not."""

    question: str = ""
    target: str = ""
    answer: str = ""
    """What was scored; below it the whole response, where that is longer."""
    where: str = ""
    """Its place in the log, such as ``"doc_id 17"`` or ``"sample abc, epoch 1"``."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command a plugin adds to ``evalstats-plugin``; the function is a click command."""

    name: str
    summary: str
    function: str
    """``"module:attribute"``, loaded when the command is run."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format that responses can be written in.

    The function takes responses, the file or folder to write, and the exporter's own options as
    keywords; it returns the files written and notes on what the format cannot hold.
    """

    name: str
    summary: str
    function: str
    """``"module:function"``, loaded when it is used."""


FITS = ("irt", "pool", "capabilities")
"""Models that `annotate` fits over all logs, by name."""

SCHEMA_VERSION = 1
"""Version of the layout of the annotation block."""

# What is written of each result, in this order.
_INTERVAL = (
    "kind", "task", "metric", "n_items", "n_epochs", "n_missing", "n_clusters", "estimate", "low",
    "high", "std_error", "design_effect", "icc", "method", "measure", "notes",
)  # fmt: skip

_COMPARISON = (
    "task", "metric", "model_a", "model_b", "n_items", "difference", "low", "high", "p_value",
    "p_adjusted", "low_single", "high_single", "prob_better", "method", "family", "procedure",
    "measure", "notes",
)  # fmt: skip

_RANK = (
    "task", "metric", "model", "n_models", "best_rank", "worst_rank", "letters", "prob_best",
)  # fmt: skip

_ABILITY = (
    "task", "metric", "model", "n_items", "n_models", "estimate", "low", "high", "std_error",
    "item_model", "estimator", "scale", "notes",
)  # fmt: skip

_PARTIAL = ("task", "metric", "n_items", "n_missing", "altered")

_ITEM = ("task", "metric", "item", "difficulty", "discrimination")

_POOLED = (
    "task", "metric", "model", "n_items", "score", "estimate", "low", "high", "std_error", "method",
    "notes",
)  # fmt: skip

_CAPABILITY = (
    "metric", "model", "capability", "level", "overall", "n_items", "n_models", "found_again",
    "by_chance", "tasks", "items",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartialScores:
    """Scores of a log that does not hold every item that the run scored."""

    task: str
    metric: str
    n_items: int
    n_missing: int
    altered: bool
    """Whether its items are not those of the checksum that the harness logged."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """What is written into a log: results, and how they came about."""

    intervals: Intervals
    version: str
    rescore: bool = False
    """Whether logged values that the items contradict are to be replaced."""
    comparisons: Comparisons | None = None
    """Of this log's model with others: what no single log can tell."""
    ranks: RankSets | None = None
    """Of all models on this log's tasks: which ranks the items leave open."""
    items: Mapping[str, Mapping[str, float | str]] | None = None
    """Statistics of each item, by its id as text, to be written beside the item."""
    item_columns: bool = False
    """Whether to show them in the list of items too, where the harness has one."""
    abilities: Abilities | None = None
    """Of this log's models, and the items of its tasks that a person should look at."""

    pooled: PooledScores | None = None
    """Of this log's models, on its tasks and over all tasks of all logs."""
    capabilities: Results[CapabilityLevel] | None = None
    """What some items need beyond one ability, and how much of it this log's models have."""
    partial: Sequence[PartialScores] = ()
    """What this log holds in part only: its logged values are never replaced."""
    baseline: str = ""
    """Model that the comparisons, and outcomes among the statistics of items, are against."""

    @property
    def answer(self) -> str:
        """How this log's model does against the others, in sentences; "" without comparisons."""
        return self.comparisons.answer if self.comparisons else ""

    def block(self) -> dict[str, Any]:
        """Return the annotation as JSON values; every list holds things of one type.

        There is no time in it: annotating twice gives the same bytes.
        """
        rows = self.intervals.rows
        flagged = self.abilities.flagged if self.abilities else ()
        noted = (self.intervals, self.abilities, self.pooled, self.capabilities)
        return {
            "schema_version": SCHEMA_VERSION,
            "evalstats_plugin_version": self.version,
            "confidence_level": rows[0].confidence_level if rows else None,
            "seed": self.intervals.seed,
            "answer": self.answer or None,
            "intervals": [_written(row, _INTERVAL) for row in rows],
            "comparisons": [_written(row, _COMPARISON) for row in self.comparisons or ()],
            "ranks": [_written(row, _RANK) for row in self.ranks or ()],
            "abilities": [_written(row, _ABILITY) for row in self.abilities or ()],
            "suspect_items": [
                {**_written(item, _ITEM), "reasons": list(item.notes)} for item in flagged
            ],
            "pooled": [_written(row, _POOLED) for row in self.pooled or ()],
            "capabilities": [_written(row, _CAPABILITY) for row in self.capabilities or ()],
            "partial": [_written(row, _PARTIAL) for row in self.partial],
            "notes": [note for results in noted if results is not None for note in results.notes],
        }


def _written(row: Any, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in names}
    if values.get("measure") is not None:
        values["measure"] = values["measure"].to_dict()
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

"""Read `Responses` from results of lighteval and their details: one for each metric of a task.

Results lie in `results/MODEL/results_TIME.json`, details in
`details/MODEL/TIME/details_TASK_TIME.parquet`, or all in one folder; a details file has a row for
each item, with its scores by metric in one column (`__metric__`, before that `metrics`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.measure import Measure, agree
from evalstats_plugin.data.responses import Provenance, Responses, Selection, Source
from evalstats_plugin.data.runs import PER_TASK
from evalstats_plugin.errors import LogError, counted
from evalstats_plugin.runtime.files import LogFile, parse_json, reporting_damage, section
from evalstats_plugin.runtime.memory import check_parquet
from evalstats_plugin.runtime.untrusted import printable_name

Json = Mapping[str, Any]

_OWN = (b'"config_general"', b'"results"')
_STAMP = r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d(?:\.\d+)?"
_DETAILS = re.compile(rf"details_(?P<task>.+)_(?P<stamp>{_STAMP})\.parquet")
_STAMPED = re.compile(rf"_({_STAMP})\.json$")
_SCORES = ("__metric__", "metric", "metrics")
_DOCS = ("__doc__", "doc")

# Before there was a column of the doc.
_QUESTION, _PROMPT = "example", "full_prompt"

_SUITES = (
    "lighteval|leaderboard|harness|helm|original|bigbench|extended|community|multilingual|custom"
)
_NAMED = re.compile(
    rf"(?:(?:{_SUITES})[|:]|[^|]+\|(?=[^|]+\|))?(?P<name>.+?)(?:[|:](?P<shots>\d+))?"
)

# How texts hold numbers of NumPy 2, and no number.
_NO_LITERAL = re.compile(r"\bnp\.\w+\(([^()]*)\)|\bnp\.(True|False)_|\bnan\b")

_LONGEST_VALUE = 1_000_000
"""Letters of a text that is parsed; longer ones are the question itself."""

_ALL = re.compile(r"all$|.*[:|_]_?average\b.*")
"""Names of means over tasks."""


class _Details(NamedTuple):
    """The items of one task."""

    ids: NDArray[Any]
    scores: Mapping[str, NDArray[np.float64]]
    """By metric, NaN where an item has none; without metrics whose values are no numbers."""
    questions: NDArray[Any] | None
    prompts: NDArray[Any] | None


def find_logs(files: Sequence[LogFile]) -> dict[Path, list[Path]]:
    """Return results files with details of their folder, and details without results."""
    results = [f.path for f in files if is_results(f)]
    details = [f.path for f in files if _DETAILS.fullmatch(f.path.name)]
    logs = {path: [d for d in details if _stamp(path) == _stamp(d)] for path in results}
    strays = [d for d in details if _results_of(d) is None]
    return logs | {path: [] for path in strays}


def is_results(log: LogFile) -> bool:
    """Whether a file holds results of lighteval, by its first bytes."""
    if log.path.suffix != ".json":
        return False
    return log.head.lstrip()[:1] == b"{" and all(key in log.head for key in _OWN)


def _stamp(path: Path) -> str:
    """Return the time in a name, written alike: some systems have no colons in names."""
    match = _DETAILS.fullmatch(path.name)
    stamp = match["stamp"] if match else next(iter(_STAMPED.findall(path.name)), "")
    return stamp.replace(":", "-")


def _results_of(details: Path) -> Path | None:
    """Return the results file of details: beside them, above them, or in the folder of results."""
    folders = [details.parent, details.parent.parent]
    parts = details.parent.parts
    if "details" in parts:
        at = len(parts) - 1 - parts[::-1].index("details")
        folders.append(Path(*parts[:at], "results", *parts[at + 1 : -1]))
    stamp = _stamp(details)
    for folder in folders:
        for path in sorted(folder.glob("results_*.json")):
            if _stamp(path) == stamp and is_results(LogFile(path)):
                return path
    return None


def _details_of(results: Path) -> dict[str, Path]:
    """Return the details files of results by the task in their name."""
    folders = [results.parent, results.parent / _stamp(results)]
    parts = results.parent.parts
    if "results" in parts:
        at = len(parts) - 1 - parts[::-1].index("results")
        model = Path(*parts[:at], "details", *parts[at + 1 :])
        folders += [model, *(sorted(p for p in model.glob("*") if p.is_dir()))]
    by_task: dict[str, Path] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("details_*.parquet"))):
        name = _DETAILS.fullmatch(path.name)
        if name and _stamp(path) == _stamp(results):
            other = by_task.setdefault(_plain(name["task"]), path)
            if other != path:
                raise LogError(f"{other} and {path} are details of one task and run: keep one")
    return by_task


def _named(task: str) -> tuple[str, str]:
    """Return a task's name and its number of examples, of ``SUITE|NAME|EXAMPLES`` or a part.

    Some versions write colons instead, which names of subtasks have too; others leave out the
    suite, or everything but the name.

    >>> _named("leaderboard|arc:challenge|25"), _named("lighteval:gsm8k:5"), _named("gsm8k|0")
    (('arc:challenge', '25'), ('gsm8k', '5'), ('gsm8k', '0'))
    """
    match = _NAMED.fullmatch(task)
    return (match["name"], match["shots"] or "") if match else (task, "")


def _plain(task: str) -> str:
    """Return a task's name as names of files hold it."""
    return re.sub(r"\W", "_", task)


def read_log(log: LogFile, selection: Selection) -> list[Responses] | None:
    """Read results, or the details of one task alone; None for files of others."""
    path = log.path
    name = _DETAILS.fullmatch(path.name)
    if name:
        results = _results_of(path)
        if results is None:
            return list(_without_results(path, name["task"], selection))
        task, log = _plain(name["task"]), LogFile(results)
    elif is_results(log):
        task = ""
    else:
        return None
    parsed = parse_json(log.read_bytes(), log.path)
    with reporting_damage(log.path):
        return list(_Run(parsed, log.path, selection).responses(task))


class _Run:
    """One results file and its details."""

    def __init__(self, parsed: Json, path: Path, selection: Selection) -> None:
        self.json, self.path, self.selection = parsed, path, selection
        general: Json = parsed["config_general"]
        config = section(general.get("model_config"))
        name = general.get("model_name") or config.get("model_name") or selection.model_name
        if not name:
            raise LogError(f"{path} does not name its model: pass --model-name")
        self.model = printable_name(str(name))
        settings = {"sha": str(general.get("model_sha") or "")[:8]}
        settings["dtype"] = str(general.get("model_dtype") or config.get("dtype") or "")
        self.settings = tuple((k, printable_name(v)) for k, v in settings.items() if v)
        version = str(general.get("lighteval_sha") or "").strip("?")
        self.source = Source(
            path=path, harness="lighteval", version=version or None, when=_stamp(path)
        )

    def responses(self, only: str) -> Iterator[Responses]:
        """Yield each metric of each task, or of the one whose plain name is given."""
        files = _details_of(self.path)
        for task, values in self.json["results"].items():
            name, _ = _named(task)
            if (only and _plain(task) != only) or not self.selection.wants_task(task, name):
                continue
            named = [m for m in values if not m.endswith("_stderr")]
            metrics = [m for m in named if self.selection.wants_metric(m, task, name)]
            file = None if self.selection.header_only else files.get(_plain(task))
            details = _read_details(file, metrics) if file and metrics else None
            for metric in metrics:
                yield self._of(task, metric, details)

    def _of(self, task: str, metric: str, details: _Details | None) -> Responses:
        values = self.json["results"][task]
        # A name there may lack the number of examples.
        configs = section(self.json.get("config_tasks"))
        config = section(configs.get(task) or configs.get(re.sub(r"[|:]\d+$", "", task)))
        given: Any = config.get("metrics") or config.get("metric")
        listed = cast("list[Any]", given) if isinstance(given, list) else []
        definition = next((m for m in map(section, listed) if _names(m, metric)), dict[str, Any]())
        about: dict[str, Any] = {
            # In the configuration of a group of metrics a field may have a value for each.
            key: cast("Any", value).get(metric) if isinstance(value, Mapping) else value
            for key, value in definition.items()
        }
        # Each is -1 where it is unknown.
        original, size = (
            max(number, 0) if isinstance(number := config.get(f"{which}_num_docs"), int) else 0
            for which in ("original", "effective")
        )
        n = len(details.ids) if details else 0
        _, shots = _named(task)
        shown = ((PER_TASK + "num_fewshot", shots),) if shots else ()
        logged, direction = _number(values[metric]), about.get("higher_is_better")
        base: dict[str, Any] = {
            "model": self.model,
            "measure": Measure(
                task=printable_name(task),
                metric=printable_name(metric),
                higher_is_better=direction if isinstance(direction, bool) else None,
                population=original if 0 < size < original else None,
            ),
            "source": self.source,
            "settings": (*self.settings, *shown),
            "logged": logged,
            # Of a mean over tasks lighteval logs the mean of their standard errors, not its own.
            "logged_std_error": None
            if _ALL.match(_named(task)[0])
            else _number(values.get(f"{metric}_stderr")),
            "logged_n": size or n or None,
            "provenance": Provenance(task_version=str(self.json.get("versions", {}).get(task, ""))),
        }
        if self.selection.header_only:
            return Responses(**base)
        if details is None or metric not in details.scores:
            note = self._why_not(task, metric, details)
            return Responses(**base, notes=(note,))
        scores = details.scores[metric]
        mean = float(np.nanmean(scores))
        same = logged is None or agree(mean, logged)
        n_cut = max(size - n, 0)
        aggregation = about.get("corpus_level_fn") or "mean"
        if not (same or n_cut) and ("mean" not in str(aggregation) or not about):
            note = f"not averaged: the mean of its items, {mean:.6g}, is not the value"
            return Responses(**base, notes=(note,)).measured(aggregation="other")
        notes: tuple[str, ...] = ()
        if n_cut:
            over = "" if logged is None else f"; the value over all of them is {logged:.6g}"
            notes = (f"{n} of {counted(n + n_cut, 'item')}: the details are cut off{over}",)
        elif not same:
            notes = (f"mismatch: {logged:.6g} was logged, the items give {mean:.6g}",)
        base["measure"] = replace(base["measure"], n_cut=n_cut)
        base["provenance"] = replace(base["provenance"], prompt_hashes=details.prompts)
        return Responses(
            **base,
            item_ids=details.ids,
            scores=scores[:, None],
            item_hashes=details.questions,
            notes=notes,
        )

    def _why_not(self, task: str, metric: str, details: _Details | None) -> str:
        if _ALL.match(_named(task)[0]):
            return "no interval: a mean over tasks"
        if details is None:
            return "no details of this task (run lighteval with --save-details)"
        return f"no interval: {printable_name(metric)} is no number of each item"


def _without_results(path: Path, task: str, selection: Selection) -> Iterator[Responses]:
    """Yield the metrics of details whose results file is not there, taken for means."""
    if not selection.wants_task(task):
        return
    folder = path.resolve().parent
    model = selection.model_name or folder.parent.name
    given = "" if selection.model_name else "; the model is named after its folder"
    details = _read_details(path, None)
    for metric, scores in details.scores.items():
        if selection.wants_metric(metric, task):
            yield Responses(
                model=printable_name(model),
                measure=Measure(task=printable_name(task), metric=printable_name(metric)),
                item_ids=details.ids,
                scores=scores[:, None],
                item_hashes=details.questions,
                provenance=Provenance(prompt_hashes=details.prompts),
                source=Source(path=path, harness="lighteval", when=_stamp(path)),
                notes=(f"no results file of this run: its metrics are taken for means{given}",),
            )


def _read_details(path: Path, metrics: Sequence[str] | None) -> _Details:
    """Read a details file: the metrics asked for, or all.

    Raises
    ------
    LogError
        The file is damaged, or has no scores.
    """
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    try:
        with path.open("rb") as file:
            metadata: Any = pq.read_metadata(file)
            names: list[str] = metadata.schema.to_arrow_schema().names
            scores = next((name for name in _SCORES if name in names), None)
            flat = [m for m in metrics or () if m in names]
            docs = next((name for name in _DOCS if name in names), None)
            wanted = [scores, docs, *flat, *({_QUESTION, _PROMPT, "hashes"} & {*names})]
            chosen = [name for name in wanted if name]
            check_parquet(metadata, path, chosen)
            table = pq.read_table(file, columns=chosen)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LogError(f"{path} cannot be read as Parquet: {error}") from error
    columns: dict[str, list[Any]] = {
        name: [_value(v) for v in table[name].to_pylist()] for name in table.column_names
    }
    if scores is not None:
        each = [section(v) for v in columns[scores]]
        listed = list(dict.fromkeys(name for row in each for name in row))
        asked_for = [m for m in listed if metrics is None or m in metrics]
        by_metric: dict[str, list[Any]] = {m: [row.get(m) for row in each] for m in asked_for}
    else:
        by_metric = {m: columns[m] for m in flat}
    if not by_metric and metrics is None:
        raise LogError(f"{path} has no column of scores ({', '.join(_SCORES)})")
    # As floats, None is NaN.
    numbers = {
        m: np.array([_number(v) for v in values], dtype=np.float64)
        for m, values in by_metric.items()
    }
    asked = columns.get(docs or "")
    nothing: list[Any] = [None]
    questions = [_question(doc) for doc in asked] if asked else columns.get(_QUESTION, nothing)
    return _Details(
        ids=np.arange(table.num_rows),
        scores={m: values for m, values in numbers.items() if np.isfinite(values).any()},
        questions=_hashes(questions),
        prompts=_hashes(columns.get(_PROMPT, nothing)),
    )


def _question(doc: Any) -> Any:
    """Return what was asked, without what depends on the model."""
    fields = section(doc)
    return None if fields.get("query") is None else [fields["query"], fields.get("choices")]


def _value(value: Any) -> Any:
    """Return a value that lighteval stored as text, where columns of its kind do not fit."""
    if isinstance(value, str) and value[:1] in ("{", "[") and len(value) < _LONGEST_VALUE:
        for text in (value, _NO_LITERAL.sub(lambda m: m[1] or m[2] or "None", value)):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return ast.literal_eval(text)
    return value


def _hashes(asked: Sequence[Any]) -> NDArray[Any] | None:
    if None in asked:
        return None
    texts = [json.dumps(each, default=str) for each in asked]
    return np.asarray([hashlib.sha256(t.encode()).hexdigest()[:16].encode() for t in texts])


def _number(value: Any) -> float | None:
    """Return a number, None for anything else and for NaN."""
    if isinstance(value, (bool, int, float)) and not math.isnan(value):
        return float(value)
    return None


def _names(metric: Json, name: str) -> bool:
    """Whether a metric's configuration is of this name, or of one among several."""
    named = metric.get("metric_name")
    return named == name or (isinstance(named, list) and name in named)

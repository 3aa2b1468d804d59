"""Reading logs through the installed adapters: `read`, `read_results` and `read_contests`.

* `read`: every response under files, folders or globs; `read_log`: one log
* `check`: what is wrong with logs
* `read_results`: the same from results in memory; `read_contests`: pairwise comparisons
* `find_logs`: the logs under paths
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from io import BytesIO
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from evalstats_plugin.data.inputs import Readable, under
from evalstats_plugin.data.measure import COST, Measures
from evalstats_plugin.data.metrics import with_stock
from evalstats_plugin.data.responses import (
    TABULAR,
    Responses,
    Selection,
    check_item_ids,
    field_of_slices,
    is_like,
    parted,
    with_epochs,
    without_codes,
)
from evalstats_plugin.data.results import grouped
from evalstats_plugin.data.runs import (
    ResponseSet,
    Runs,
    choose_runs,
    join_answers,
    label_models,
    with_settings_as_tags,
)
from evalstats_plugin.data.scales import settled
from evalstats_plugin.errors import (
    DesignError,
    EvalStatsError,
    IncompleteLogError,
    LogError,
    PluginError,
    SelectionError,
    few,
)
from evalstats_plugin.logs.memory import rows_of_matrix, sorted_out
from evalstats_plugin.plugins import Plugins, load_plugins, strict
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.scores.findings import Finding, Findings, find_problems, notes_on_differences

if TYPE_CHECKING:
    from evalstats_plugin.ranking.contests.contests import Contests


Columns = Mapping[str, str | Sequence[str]]
"""Column, or columns, of a table by the part of a response that they hold."""

Unread = LogError | PluginError | DesignError
"""Why a log was not read; a table with a cell that does not fit is a `DesignError`."""

OnLog = Callable[[Path, int, int], None]
"""Called with each log before it is read, its number from 0, and how many there are."""

_HIDDEN = re.compile(r"\.(?!\.?__)")
"""How names of hidden folders begin: but lm-eval puts the logs of a model ``./m`` into ``.__m``."""

_HEAD = 1 << 16
"""Bytes of a file in which votes are recognised."""
_MOST_OPEN = 128
"""Files that stay open between being recognised and being read; others are opened again."""

_TABLES = (".csv", ".tsv", ".tab", ".psv", ".parquet")
"""Endings of tables that a folder of matrices holds."""

_JSON = (".json", ".jsonl", ".ndjson", ".jsonlines")
"""Endings of files in a folder that a mapping is for."""

# The order of paths themselves, without splitting them again for each comparison.
_BY_PARTS = attrgetter("parts")


def read(
    *paths: Readable,
    task: str | Sequence[str] | None = None,
    metric: str | Sequence[str] | None = None,
    cluster: str | None = None,
    runs: Runs = "latest",
    include_incomplete: bool = False,
    skip_broken: bool = False,
    columns: Columns | None = None,
    wide: Literal["", "models", "items"] = "",
    repeats: bool | Literal["answers"] = False,
    model_name: str = "",
    missing_code: float | Sequence[float] = (),
    mapping: str | PathLike[str] | Mapping[str, Any] | None = None,
    by: str | None = None,
    costs: bool = False,
    measure: Measures = None,
    plugins: Plugins | None = None,
    on_log: OnLog | None = None,
) -> ResponseSet:
    """Read every response found under files, folders or globs.

    Parameters
    ----------
    paths
        Logs, folders searched to any depth, or patterns such as ``"out/*/results_*.json"``; with
        universal-pathlib installed also URLs such as ``s3://bucket/logs``. Tables (CSV, TSV, JSONL,
        Parquet) with a row for each response are logs too. So is what is in memory: a DataFrame of
        that form (pandas, Polars, Arrow), or a matrix of scores (`wide`) whose index holds the
        names; an array (NumPy, xarray) with the axes models, items and epochs; records; Inspect's
        ``EvalLog``, ``list_eval_logs()``, ``samples_df`` and ``evals_df``; what lm-eval's
        ``simple_evaluate`` returned; and lists of these.
    task, metric
        Names or patterns (``*``, ``?``) to read; a metric also by the part before its comma, a
        task also by the name of a group around it. Default: all.
    cluster
        Field of an item that says which items belong together, if the log does not say so.
    runs
        Several runs of one model on one task: ``"latest"`` keeps the last, ``"all"`` keeps each
        apart, ``"epochs"`` stacks them as epochs of one, ``"error"`` refuses.
    include_incomplete
        Also read the items of runs that were cancelled or failed.
    skip_broken
        Skip logs that cannot be read, with a note, instead of raising.
    columns
        Which column of a table holds which part of a response, if its name does not say, such as
        ``{"item": "question_id", "score": ["correct", "f1"]}``: several scores are metrics.
    wide
        Tables are matrices of scores: with a row for each model (``"models"``) and a column for
        each item, or the other way round (``"items"``). Of a DataFrame it need not be said where
        the name of its index or of its columns says so, as after ``pivot``.
    repeats
        Also score each answer to items that were answered several times, where the harness scored
        one of them or their vote: `scores.at_k` and `scores.variance_parts` then use all. For
        lm-eval's logs this runs lm-eval's own filters and metrics. ``"answers"`` also
        reads the answers themselves, for the vote of ``"cons@k"``.
    model_name
        Name of the model in logs that do not name one, such as a samples file of lm-eval alone.
    missing_code
        Numbers that stand for a missing score, such as -1 or 99.
    mapping
        Where the scores are in JSON or JSONL of any tool: a TOML file, or the same as a mapping,
        such as ``{"items": "results[*]", "item": ".id", "score": ".success"}``. All JSON and JSONL
        under a folder is read by it.
    by
        Field of an item, such as its language or tags, by which `slices`, `compare_slices` and
        `gate` take tasks apart; or a setting of the runs, such as a temperature, whose values are
        then not different models.
    costs
        Also read what answers cost, where the logs say so: tokens, money and time, as scores under
        these names, for `costs`; less is better.
    measure
        What you know of the scores, which counts in place of what the log says: one `Measure`, or
        several for different metrics and tasks. A measure alone also names scores that have no
        name: of arrays, and of tables without a column for the metric or task.

    Raises
    ------
    TypeError
        When something cannot be read at all; the message lists what can.
    LogError
        When a path holds no log, or a log is broken.
    SelectionError
        When nothing matches ``task`` or ``metric``; the message has the closest names.
    """
    plugins = plugins or load_plugins()
    if not wide and not columns:
        wide = rows_of_matrix(paths)
    selection = Selection(
        _names(task), _names(metric), cluster, include_incomplete,
        repeats=repeats, model_name=model_name,
        by=field_of_slices(by)[0] if by else None, costs=costs,
        **_layout(columns, wide, missing_code, mapping),
    )  # fmt: skip
    in_memory = sorted_out(paths, selection, plugins)
    places = in_memory.places
    responses = _checked(in_memory.responses, selection, plugins)
    notes: list[str] = []
    broken: dict[Path, Unread] = {}
    with ExitStack() as held:
        search = _Search(plugins, held, selection)
        beside = search.logs_under(places)
        search.logs |= {table.path: _Log(table) for table in in_memory.tables}
        logs = list(search.logs)
        outcomes = _outcomes(
            list(search.logs.values()), selection, plugins, on_log, again=runs == "epochs"
        )
        for log, outcome in zip(logs, outcomes, strict=True):
            if not isinstance(outcome, Unread):
                responses.extend(outcome)
                continue
            # Another log may have completed a run that was cancelled; a plugin's failure is the
            # plugin's.
            passed = not strict() if isinstance(outcome, PluginError) else skip_broken
            if not (passed or isinstance(outcome, IncompleteLogError)):
                raise outcome
            broken[log] = outcome
    if mapping is not None:
        responses = join_answers(responses)
    if beside:
        named = few([str(table) for table in beside])
        notes.append(f"tables beside logs are passed over (name them to read them too): {named}")
    if broken and len(broken) == len(logs):
        raise next(iter(broken.values()))
    # Cancelled runs in a folder are skipped with a note; one that was named raises.
    notes += _about_broken(broken, responses, set() if skip_broken else set(map(str, places)))
    if not responses:
        first = next(iter(broken.values()), None)
        files = [log.file for log in search.logs.values()]
        raise first or nothing_selected(files, selection, plugins)
    responses = _used(responses, selection)
    by_setting = selection.by is not None and all(r.tags is None for r in responses)
    if selection.by is not None and by_setting:
        responses = with_settings_as_tags(responses, selection.by)
    # Runs at different values of a setting do not replace each other.
    at_values = grouped(
        label_models(responses),
        lambda r: tuple(map(str, r.tags[:1])) if by_setting and r.tags is not None else (),
    )
    chosen = [choose_runs(own, runs) for own in at_values.values()]
    kept = [r for own, _ in chosen for r in own]
    about_runs = list(dict.fromkeys(note for _, notes in chosen for note in notes))
    # Harnesses with a log per task interleave the models; tables list each model together.
    order = {model: i for i, model in enumerate(dict.fromkeys(r.model for r in kept))}
    kept.sort(key=lambda r: order[r.model])
    notes = [*plugins.problems, *notes]
    differences = [*_about_limits(kept), *notes_on_differences(kept)]
    every = ResponseSet(tuple(kept), (*notes, *about_runs, *differences))
    measured = under(every, measure)
    return replace(measured, responses=tuple(settled(measured)))


def check(
    *paths: str | Path,
    task: str | Sequence[str] = (),
    metric: str | Sequence[str] = (),
    columns: Columns | None = None,
    wide: Literal["", "models", "items"] = "",
    missing_code: float | Sequence[float] = (),
    mapping: str | PathLike[str] | Mapping[str, Any] | None = None,
    plugins: Plugins | None = None,
) -> Findings:
    """Return what is wrong with logs: everything to look at before a number is believed.

    All runs are looked at, also those that `read` leaves out. `scores.findings.PROBLEMS` lists what
    is looked for.

    Parameters
    ----------
    paths, task, metric, columns, wide, missing_code, mapping
        As in `read`.

    Raises
    ------
    LogError
        A path holds no log.
    SelectionError
        No log holds the task and metric.

    Examples
    --------
    >>> for finding in check("fixtures/logs/lm_eval/0.4.13/out"):
    ...     print(finding.problem, finding.task, finding.detail)
    unscored es_odd nan_metric,none: 4 of 10 items
    unscored es_odd partial_metric,none: 7 of 10 items
    """
    plugins = plugins or load_plugins()
    layout = _layout(columns, wide, missing_code, mapping)
    selection = Selection(_names(task), _names(metric), **layout)
    logs = find_logs(paths, plugins, selection)
    asked = [_Log(LogFile(log)) for log in logs]
    responses: list[Responses] = []
    broken: list[Finding] = []
    for log, outcome in zip(
        logs, _outcomes(asked, selection, plugins, None, again=False), strict=True
    ):
        if isinstance(outcome, PluginError) and strict():
            raise outcome
        if isinstance(outcome, Unread):
            why = "its run did not end: " * isinstance(outcome, IncompleteLogError)
            broken.append(
                Finding(
                    problem="unreadable", task=None, models=(), detail=f"{why}{outcome}",
                    logs=(str(log),),
                )
            )  # fmt: skip
        else:
            responses += outcome
    if not responses and not broken and (selection.tasks or selection.metrics):
        raise nothing_selected([log.file for log in asked], selection, plugins)
    if mapping is not None:
        responses = join_answers(responses)
    rows = (*broken, *find_problems(label_models(responses)))
    return Findings(rows, (f"{len(logs)} log{'s'[: len(logs) != 1]} checked", *plugins.problems))


def _layout(
    columns: Columns | None,
    wide: Literal["", "models", "items"],
    missing_code: float | Sequence[float],
    mapping: str | PathLike[str] | Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return what a selection says of tables and JSON of any tool."""
    parts = (columns or {}).items()
    return {
        "columns": tuple((part, name) for part, names in parts for name in _names(names)),
        "wide": wide,
        "missing_codes": (
            tuple(missing_code) if isinstance(missing_code, Sequence) else (missing_code,)
        ),
        "mapping": mapping,
    }


def read_results(
    results: Mapping[str, Any], selection: Selection | None = None, plugins: Plugins | None = None
) -> ResponseSet:
    """Read what a harness returned in memory, such as lm-eval's ``simple_evaluate``."""
    plugins = plugins or load_plugins()
    asked = selection or Selection()
    responses = plugins.call("evalstats_read_results", results=results, selection=asked)
    if responses is None:
        raise LogError(f"no installed adapter knows these results ({adapters(plugins)})")
    measured = settled(_checked(responses, asked, plugins))
    return ResponseSet(tuple(label_models(measured)), plugins.problems)


def read_contests(
    *paths: str | Path,
    columns: Mapping[str, str] | None = None,
    players: Sequence[str] | None = None,
    plugins: Plugins | None = None,
) -> Contests:
    """Read all pairwise comparisons found in judges' logs and in files, merged.

    Parameters
    ----------
    paths
        Logs whose samples compare two models, folders or globs of them, and files as
        `ranking.read_contests` reads them; ``"-"`` is standard input. Players, judges and
        items of one name are the same.
    columns
        Column or field by what it holds, where its name does not tell, such as
        ``{"first": "metadata.model_a", "winner": "scores.judge.value"}``.
    players
        Names in the order wanted, including players without a comparison.

    Raises
    ------
    LogError
        Nothing under a path can be read.
    SelectionError
        An unknown column or player.
    DesignError
        A row is malformed, or there are no comparisons.
    """
    from evalstats_plugin.ranking.contests import files

    plugins = plugins or load_plugins()
    asked = dict(columns or {})
    by_file: dict[str, Contests] = {}
    with ExitStack() as held:
        search = _Search(plugins, held)
        search.logs_under([p for p in paths if str(p) != "-"])
        for path, log in search.logs.items():
            with log.file as file:
                made = plugins.call("evalstats_read_contests", log=file, columns=asked)
                if made is None:
                    with file.open() as content:
                        made = files.read_contests(content, columns=asked)
            by_file[str(path)] = made
    if any(str(p) == "-" for p in paths):
        by_file["standard input"] = files.read_contests("-", columns=asked)
    merged = files.merge(*_with_source(by_file))
    if players is not None:
        merged = files.with_players(merged, players)
    return replace(merged, notes=(*plugins.problems, *merged.notes))


def _with_source(by_file: Mapping[str, Contests]) -> list[Contests]:
    """Prefix each note with the file it is about, if there are several."""
    if len(by_file) < 2:
        return list(by_file.values())
    notes = [set(made.notes) for made in by_file.values()]
    alike = notes[0].intersection(*notes[1:])
    return [
        replace(
            made,
            notes=tuple(
                f"each of {len(by_file)} files: {note}" if note in alike else f"{name}: {note}"
                for note in made.notes
            ),
        )
        for name, made in by_file.items()
    ]


def find_logs(
    paths: Iterable[str | Path], plugins: Plugins, selection: Selection | None = None
) -> list[Path]:
    """Return the logs under the paths, in order, each once.

    Tables in a folder of logs are skipped unless they are named: most were made from the logs and
    would count them twice.
    """
    with ExitStack() as held:
        search = _Search(plugins, held, selection)
        search.logs_under(paths)
        return list(search.logs)


class _Log(NamedTuple):
    """A log to be read."""

    file: LogFile
    adapter: str = ""
    """Name of the plugin that found it in a folder; "" for a log that was named."""


class _Search:
    """A search for logs under paths; files that it opened stay open in `held`, up to a number."""

    def __init__(
        self, plugins: Plugins, held: ExitStack, selection: Selection | None = None
    ) -> None:
        self.plugins = plugins
        self.held = held
        self.selection = selection
        self.n_held = 0
        self.asked = plugins.in_order("evalstats_find_logs")
        self.logs: dict[Path, _Log] = {}

    def logs_under(self, paths: Iterable[str | Path]) -> list[Path]:
        """Add the logs under paths; return the tables beside them that are skipped."""
        passed_over: list[Path] = []
        for given in paths:
            path = as_path(given)
            matches = [path] if path.exists() else _matches(path)
            if not matches:
                msg = f"{given} does not exist: name a log, a folder of logs, or a pattern"
                raise LogError(msg)
            for match in matches:
                passed_over += self._add(match)
        return [table for table in passed_over if table not in self.logs]

    def _add(self, path: Path) -> list[Path]:
        if not path.is_dir():
            self.logs.setdefault(path, _Log(LogFile(path)))
            return []
        logs: dict[Path, _Log] = {}
        for folder in [path, *sorted(filter(Path.is_dir, path.rglob("*")), key=_BY_PARTS)]:
            # Hidden folders hold no logs, but what programs note, such as files being written.
            if not any(map(_HIDDEN.match, folder.relative_to(path).parts)):
                logs |= self._in_folder(folder)
        if self._is_mapped and not logs:
            raise LogError(f"{path} holds no JSON or JSONL, which a mapping would describe")
        logs = logs or self._tables_in(path)
        if not logs:
            known = f"no log that an installed adapter knows ({adapters(self.plugins)})"
            page = next(path.rglob("*.md"), None)
            tables = "" if page is None else f"name tables such as {page.name} by themselves, and "
            raise LogError(
                f"{path} holds {known}: {tables}describe JSON of other tools by a mapping "
                "(--mapping)"
            )
        in_order = sorted(logs.items(), key=lambda item: item[0].parts)
        tables = [log for log, entry in in_order if entry.adapter == TABULAR]
        passed_over = tables if len(tables) < len(logs) else []
        for log, entry in in_order:
            if not (passed_over and entry.adapter == TABULAR):
                self.logs.setdefault(log, entry)
        return passed_over

    @property
    def _is_mapped(self) -> bool:
        return self.selection is not None and self.selection.mapping is not None

    def _tables_in(self, folder: Path) -> dict[Path, _Log]:
        """Return the tables of a folder without logs, where the selection says what is in them.

        Raises
        ------
        SelectionError, LogError, DesignError
            It does not, and the first of them cannot be read without that.
        """
        selection = self.selection
        paths = [p for p in sorted(folder.rglob("*"), key=_BY_PARTS) if p.suffix.lower() in _TABLES]
        if selection is None or not paths or TABULAR not in self.asked:
            return {}
        tables = {path: _Log(LogFile(path), TABULAR) for path in paths if path.is_file()}
        if selection.wide or selection.columns:
            return tables
        _read(next(iter(tables.values())), selection, self.plugins)
        return {}

    def _in_folder(self, folder: Path) -> dict[Path, _Log]:
        """Return the logs directly in a folder; each file is offered until a plugin claims it.

        A mapping claims all JSON.
        """
        entries: list[Path] = []
        with suppress(FileNotFoundError):  # another program removed it
            entries = sorted(folder.iterdir(), key=lambda p: p.name)
        files = {p: LogFile(p) for p in entries if not p.name.startswith(".") and p.is_file()}
        if self._is_mapped:
            return {p: _Log(file) for p, file in files.items() if p.suffix.lower() in _JSON}
        logs: dict[Path, _Log] = {}
        with ExitStack() as looking:
            for file in list(files.values())[: _MOST_OPEN - self.n_held]:
                looking.enter_context(file)
            for name in self.asked:
                if not files:
                    break
                for mine in self._claimed(name, folder, files):
                    for log, others in mine.items():
                        file = files.get(log)
                        if file is not None and file.is_open:
                            self.n_held += 1
                            logs[log] = _Log(self.held.enter_context(file), name)
                        else:
                            logs[log] = _Log(LogFile(log), name)
                        for path in (log, *others):
                            files.pop(path, None)
        return logs

    def _claimed(
        self, adapter: str, folder: Path, files: dict[Path, LogFile]
    ) -> list[Mapping[Path, Sequence[Path]]]:
        """Ask a plugin for its logs among files; those that are gone by then are taken out."""
        offered = list(files.values())
        try:
            return self.plugins.call(
                "evalstats_find_logs", only=adapter, folder=folder, files=offered
            )
        except LogError:
            gone = [path for path in files if not path.exists()]
            if not gone:
                raise
            for path in gone:
                del files[path]
            return self._claimed(adapter, folder, files)


def _matches(pattern: Path) -> list[Path]:
    start = Path(pattern.anchor)
    return sorted(start.glob(str(pattern.relative_to(start)))) if pattern.name else []


def as_path(given: str | Path) -> Path:
    """Return a path; for a URL a `upath.UPath`.

    Raises
    ------
    LogError
        The library that reads URLs is not installed.
    """
    if "://" not in str(given) or isinstance(given, Path):
        return Path(given)
    if str(given).startswith("file://"):
        path = unquote(urlsplit(str(given)).path)
        return Path(path.removeprefix("/") if sys.platform == "win32" else path)
    try:
        upath: Any = import_module("upath")
    except ImportError as error:
        msg = f"{given} is a URL, which needs: pip install universal-pathlib and its file system"
        raise LogError(msg) from error
    return upath.UPath(given)


def read_log(path: Path, selection: Selection, plugins: Plugins) -> list[Responses]:
    """Read one log as it is, without choosing between runs or labelling models."""
    return _read(_Log(LogFile(path)), selection, plugins)


def _read(
    log: _Log, selection: Selection, plugins: Plugins, *, again: bool = False
) -> list[Responses]:
    """Read a log; items that are there `again` are further epochs, or an error."""
    path = log.file.path
    with log.file as file:
        try:
            responses = plugins.call(
                "evalstats_read_log", only=log.adapter, log=file, selection=selection
            )
        except SelectionError:
            _refuse_votes(file)
            raise
        if responses is None:
            _refuse_votes(file)
    if responses is None:
        problems = "".join(f"; {problem}" for problem in plugins.problems)
        known = f"a log that an installed adapter knows ({adapters(plugins)}){problems}"
        hint = {
            ".json": ": describe JSON of another tool by a mapping (--mapping)",
            ".jsonl": ": name the columns, where each line has a score (--columns "
            "item=COLUMN,score=COLUMN), or describe JSON of another tool by a mapping (--mapping)",
        }.get(path.suffix.lower(), "")
        raise LogError(f"{path} is not {known}{hint}")
    listed = map(with_epochs, responses) if again else responses
    return _checked(listed, selection, plugins)


def _checked(
    responses: Iterable[Responses], selection: Selection, plugins: Plugins
) -> list[Responses]:
    """Return responses with what the registry knows, and scores that stand for missing missing."""
    codes = selection.missing_codes
    coded = [without_codes(r, codes) if codes else r for r in responses]
    for r in coded:
        check_item_ids(r, in_log=True)
    return with_known(coded, plugins)


def _refuse_votes(file: LogFile) -> None:
    """Point to the command that ranks votes, if these are votes between two models.

    Raises
    ------
    LogError
        They are.
    """
    from evalstats_plugin.ranking.contests.files import read_contests

    with file.open() as content:
        head: bytes = content.read(_HEAD)
    whole = head if len(head) < _HEAD else head[: head.rfind(b"\n") + 1]
    try:
        read_contests(BytesIO(whole))
    except EvalStatsError:
        return
    raise LogError(
        f"{file.path} holds comparisons of two models, such as votes, and not scores: rank them "
        "with `evalstats-plugin rank leaderboard` or `rank stats`"
    )


def with_known(responses: Iterable[Responses], plugins: Plugins) -> list[Responses]:
    """Return responses with what the registry knows of their metrics, and the log does not say."""
    more = plugins.metrics()
    made: list[Responses] = []
    for r in responses:
        measured = r.under(with_stock(r.measure, r.source.harness, more))
        if r.beside:
            measured = measured.with_beside(with_known(r.beside, plugins))
        made.append(measured)
    return made


def _outcomes(
    logs: Sequence[_Log],
    selection: Selection,
    plugins: Plugins,
    on_log: OnLog | None,
    *,
    again: bool,
) -> Iterator[list[Responses] | Unread]:
    """Read the logs in order, in parallel inside `workers`; yield errors instead of raising."""
    run = partial(_outcome, selection=selection, plugins=plugins, again=again)
    outcomes = parallel_map(run, logs, here=not plugins.installed)
    for i, log in enumerate(logs):
        if on_log is not None:
            on_log(log.file.path, i, len(logs))
        outcome, failures = next(outcomes)
        plugins.failures.update(failures)
        yield outcome


def _outcome(
    log: _Log, selection: Selection, plugins: Plugins, *, again: bool
) -> tuple[list[Responses] | Unread, dict[tuple[str, str], str]]:
    """Read a log; return it or the error, and which plugins failed, perhaps in another process."""
    try:
        responses = _read(log, selection, plugins, again=again)
    except (LogError, PluginError, DesignError) as error:
        return error, plugins.failures
    return responses, plugins.failures


def _about_broken(
    broken: Mapping[Path, Unread], responses: Sequence[Responses], asked: Set[str]
) -> list[str]:
    """Return notes on skipped logs; raise for a named one unless another log completed its run."""
    done = {r.source.run for r in responses} - {""}
    notes: list[str] = []
    done_since: list[str] = []
    for log, error in broken.items():
        if isinstance(error, IncompleteLogError) and error.run in done:
            done_since.append(str(log))
        elif str(log) in asked:
            raise error
        else:
            notes.append(f"left out: {error}")
    if done_since:
        notes.append(f"runs broken off, which another log took to their end: {few(done_since)}")
    return notes


def _about_limits(kept: Iterable[Responses]) -> list[str]:
    """Return a note on tasks that were run in part: harnesses take the first items."""
    parts = [
        f"{r.task}: {len(r.item_ids)} of {r.population}"
        for r in kept
        if r.population and r.predicted is None and len(r.item_ids)
    ]
    why = "the first ones unless they were chosen otherwise, and those are no random part"
    return [f"only some items were run, {why} ({few(list(dict.fromkeys(parts)))})"] if parts else []


def _used(responses: list[Responses], selection: Selection) -> list[Responses]:
    """Return the responses asked for: what adapters take for TASK=METRIC may be one metric's name.

    Raises
    ------
    SelectionError
        The cluster field, a task of a metric or the table options apply to none of the logs.
    """
    if selection.cluster is not None and all(r.clusters is None for r in responses):
        raise SelectionError(
            f"no item of these logs has the field {selection.cluster!r}. Name a field that says "
            "which items belong together, such as doc.passage_id."
        )
    names = [_names_of_task(r) for r in responses]
    metrics = list(selection.metrics)
    for k, asked in enumerate(metrics):
        patterns = [task for task, _ in parted(asked)]
        if patterns and not any(
            is_like(n, task) for each in names for n in each for task in patterns
        ):
            metrics[k] = f"*={asked}"
            by_name = replace(selection, metrics=(metrics[k],))
            if not any(by_name.wants_metric(r.metric, r.task) for r in responses):
                tasks = [n for r in responses for n in (r.task, *(g.name for g in r.groups))]
                raise SelectionError(_unknown("task", patterns, list(dict.fromkeys(tasks))))
    about_tables = selection.columns or selection.wide
    if about_tables and all(r.source.harness != TABULAR for r in responses):
        raise SelectionError(
            "columns and wide (--columns, --wide) are about tables (CSV, TSV, JSONL, Parquet), but "
            f"{responses[0].source.path} is a log of {responses[0].source.harness}. Leave them out."
        )
    meant = replace(selection, metrics=tuple(metrics))
    return [
        r
        for r, of in zip(responses, names, strict=True)
        if meant == selection or r.measure.scale == COST or meant.wants_metric(r.metric, *of)
    ]


def _names_of_task(r: Responses) -> list[str]:
    """Return names of a task: adapters also know it by a part, as that before its subject."""
    names = (r.task, *(group.name for group in r.groups))
    return [part for name in names for part in (name, *re.split(r"[:/|]", name))]


def nothing_selected(
    logs: Sequence[LogFile], selection: Selection, plugins: Plugins
) -> EvalStatsError:
    """Return the error that logs hold nothing of what was asked for, with the closest names."""
    everything = replace(selection, tasks=(), metrics=(), header_only=True)
    responses = [r for log in logs for r in _read(_Log(log), everything, plugins)]
    if not logs:
        return LogError("there is nothing to read: name a log, a folder of logs, or a pattern")
    if not responses:
        return LogError(f"{logs[0].path} holds no scores at all: no task has a metric")
    tasks = list(dict.fromkeys(n for r in responses for n in (*(g.name for g in r.groups), r.task)))
    metrics = list(dict.fromkeys(r.metric.removesuffix(",none") for r in responses))
    if not any(selection.wants_task(t) for t in tasks):
        return SelectionError(_unknown("task", selection.tasks, tasks))
    return SelectionError(_unknown("metric", selection.metrics, metrics))


def _unknown(what: str, asked: Sequence[str], present: Sequence[str]) -> str:
    close = [
        match
        for name in asked
        for match in (
            # The filter of a metric says nothing of its name, and "acc" is short for "accuracy".
            *(k for k in present if k and name.lower().startswith(k.partition(",")[0].lower())),
            *get_close_matches(name, present, n=3, cutoff=0.5),
        )
    ]
    hint = f"did you mean {' or '.join(dict.fromkeys(close))}? There" if close else "there"
    names = " or ".join(map(repr, asked))
    return f"no {what} in the logs is called {names}; {hint} are: {few(present, 20)}"


def adapters(plugins: Plugins, hook: str = "evalstats_read_log") -> str:
    """Return the names of the adapters that have a hook, for messages."""
    names = [p.name for p in plugins.listing if hook in p.hooks]
    return ", ".join(names) or "none is installed"


def _names(value: str | Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)

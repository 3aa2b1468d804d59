"""Recognise tables by their first bytes, without loading them, and find the parts of a score.

`find_tables` lists the tables of a folder; `layout_of` decides which column holds which part
(model, task, item, score and so on), by name or as requested; `epochs_in` finds epochs in the names
of a matrix, `with_one_heading` those in a second heading.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.store import KEY
from evalstats_plugin.data.tables import heading_of
from evalstats_plugin.errors import LogError, SelectionError, check_known, few, missing_column
from evalstats_plugin.runtime.files import LogFile

TEXTS = (".csv", ".tsv", ".tab", ".psv")
LINES = (".jsonl", ".ndjson", ".jsonlines")
PARQUET = ".parquet"
MARKDOWN = (".md", ".markdown")
PACKED = (".gz", ".bz2", ".xz")
ENDINGS = frozenset((*TEXTS, *LINES, PARQUET, *MARKDOWN, *PACKED, ".txt", ".json"))

MAGIC = b"PAR1"
"""First bytes of a Parquet file."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "model_name", "model_id", "llm", "system"),
    "task": ("task", "task_name", "benchmark", "benchmark_name", "dataset", "evaluation_name"),
    "metric": ("metric", "metric_name", "scorer", "measure"),
    "item": (
        "item", "item_id", "question_id", "sample_id", "example_id", "instance_id", "problem_id",
        "prompt_id", "doc_id", "qid", "question", "id", "idx",
    ),
    "epoch": ("epoch", "repeat", "trial", "attempt", "replicate", "take"),
    "score": (
        "score", "correct", "is_correct", "value", "accuracy", "acc", "exact_match", "passed",
        "success", "reward", "result", "mean", "win_rate", "winrate",
    ),
    "cluster": ("cluster", "cluster_id"),
    "hash": ("hash", "item_hash", "sample_hash", "doc_hash"),
    "weight": ("weight",),
    "higher_is_better": ("higher_is_better",),
    "lower_is_better": ("lower_is_better",),
    "min_score": ("min_score",),
    "max_score": ("max_score",),
    "aggregation": ("aggregation",),
}  # fmt: skip
"""Known names of the columns of each part of a row, the most specific first."""

OF_SUMMARIES: Mapping[str, tuple[str, ...]] = {
    "n": ("n", "n_items", "n_samples", "num_samples", "count", "total", "n_total"),
    "std_error": (
        "std_error", "stderr", "standard_error", "se", "acc_stderr", "accuracy_stderr",
        "exact_match_stderr", "score_stderr",
    ),
    "k": ("k", "n_correct", "num_correct", "n_right", "successes", "n_passed"),
    "low": ("low", "lower", "ci_low", "ci_lower", "lower_ci", "rating_lower", "rating_q025"),
    "high": ("high", "upper", "ci_high", "ci_upper", "upper_ci", "rating_upper", "rating_q975"),
}  # fmt: skip
"""The same of tables without items, with a row for each value of a model on a task."""

SHOTS = ("num_fewshot", "fewshot", "few_shot", "n_shot", "n-shot", "shots")
"""Names of columns of the number of examples shown, which is a setting of the task."""

SETTINGS = frozenset((
    "checkpoint", "step", "revision", "temperature", "top_p", "dtype", "precision", "quantization",
    "template", "prompt_template", "variant", *SHOTS,
))  # fmt: skip
"""Names of columns that tell runs of one model apart."""

OF_TASKS = "mean of tasks"
"""Aggregation of a published value that is the mean of a group, so that no answers are counted."""

OF_NO_METRIC = frozenset({"score", "value", "result", "mean", *OF_SUMMARIES["k"]})
"""Names of a column of scores that do not name a metric."""

BY_ORDER = "order"
"""Value of ``epoch=`` instead of a column: rows of an item are numbered in order."""

# How py-irt's JSONL starts; its first line may be longer than the bytes of `head`.
_SUBJECTS = re.compile(rb'\s*\{\s*"subject_id"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"responses"\s*:\s*\{')

_OF_ANYTHING = frozenset({"id", "idx", "value", "result"})


def find_tables(folder: Path, files: Sequence[LogFile]) -> dict[Path, list[Path]]:
    """Return the tables whose columns have known names of scores, and response stores.

    Other tables are read only if they are named. A response store in several files is returned as
    its folder.
    """
    endings = (*TEXTS, *LINES, PARQUET)
    mine = [file for file in files if file.path.suffix.lower() in endings]
    keys = {f.path: _metadata_or_none(f) for f in mine if f.path.suffix.lower() == PARQUET}
    stored = [path for path, held in keys.items() if held and KEY in held]
    others = [path.name for path, held in keys.items() if held is not None and KEY not in held]
    # What cannot be read may be a part of it.
    if stored and len(keys) > len(others) + 1:
        if others:
            raise LogError(
                f"{folder} holds a response store in several files, and {few(others)}, which is "
                "not of it: move that to another folder"
            )
        return {folder: stored}
    tables = [file.path for file in mine if _is_surely_of_scores(file)]
    return {path: [] for path in (*stored, *tables)}


def _metadata_or_none(file: LogFile) -> Mapping[bytes, bytes] | None:
    try:
        return metadata_in(file)
    except LogError:
        return None


def metadata_in(file: LogFile) -> Mapping[bytes, bytes]:
    """Return the metadata of a Parquet file; empty for other files."""
    return _schema(file).metadata or {} if file.head.startswith(MAGIC) else {}


def _schema(file: LogFile) -> Any:
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    try:
        with file.open() as source:
            schema = pq.read_schema(source)
        # Invalid UTF-8 in names raises only when they are used.
        repr(schema.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LogError(f"{file.path} cannot be read as Parquet: {error}") from error
    return schema


def first_record(head: bytes) -> dict[str, Any]:
    """Return the first object of JSONL or of a JSON list, empty if there is none."""
    text = head.decode(errors="replace").lstrip("\ufeff \t\r\n")
    try:
        record: Any = json.JSONDecoder().raw_decode(text.removeprefix("[").lstrip())[0]
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", record) if isinstance(record, dict) else {}


def names_of_heading(head: bytes) -> list[str]:
    """Return the names in the heading of a delimited text, from its first bytes."""
    return [name.strip() for name in heading_of(head.decode(errors="replace"))[0]]


def is_of_subjects(head: bytes) -> bool:
    """Whether a file is py-irt's JSONL, with a line for each model and its answers in an object."""
    return _SUBJECTS.match(head) is not None


def is_flat(record: Mapping[str, Any]) -> bool:
    """Whether a record has only plain values, as those of a table."""
    return not any(isinstance(value, (dict, list)) for value in record.values())


def is_of_scores(names: Sequence[str]) -> bool:
    """Whether columns have known names of items and scores."""
    return all(find(names, COLUMNS[part], set()) for part in ("item", "score"))


def is_of_summaries(names: Sequence[str]) -> bool:
    """Whether columns have known names of values without items, and of how sure these are."""
    known = [part for part in ("n", "std_error", "k") if find(names, OF_SUMMARIES[part], set())]
    shares = any(name.endswith("_stderr") for name in names) or {"n", "k"} <= set(known)
    return shares or bool(known and find(names, COLUMNS["score"], set()))


def _is_surely_of_scores(file: LogFile) -> bool:
    """Whether columns are of scores, with at least one name that is not generic, as id or value."""
    if file.head.startswith(MAGIC):
        try:
            names: Sequence[str] = _schema(file).names
        except LogError:
            return False
    elif is_of_subjects(file.head):
        return True
    elif file.head.lstrip().startswith(b"{"):
        record = first_record(file.head)
        # Records with objects in them may be a harness's.
        names = list(record) if is_flat(record) else ()
    else:
        names = names_of_heading(file.head)
    telling = [name for name in names if name.casefold() not in _OF_ANYTHING]
    either = any(find(telling, COLUMNS[part], set()) for part in ("model", "item", "score"))
    return is_of_scores(names) and either


class Layout(NamedTuple):
    """Which column holds which part of a row."""

    columns: Mapping[str, str]
    """Column by part, without scores."""
    scores: tuple[str, ...]
    """Columns of scores; several are several metrics."""
    settings: tuple[str, ...] = ()
    """Columns of settings of a run."""
    by_order: bool = False
    notes: tuple[str, ...] = ()

    @property
    def used(self) -> list[str]:
        """Every column that is read."""
        return list(dict.fromkeys((*self.columns.values(), *self.scores, *self.settings)))


def layout_of(
    names: Sequence[str],
    asked: Sequence[tuple[str, str]],
    cluster: str | None,
    where: str,
    by: str | None = None,
) -> Layout:
    """Return which column holds which part: as requested, and the others by their names.

    Raises
    ------
    SelectionError
        There is no such part or column, or no column of items or scores; the message suggests one.
    """
    by_order = ("epoch", BY_ORDER) in asked and BY_ORDER not in names
    asked = [pair for pair in asked if not (by_order and pair[0] == "epoch")]
    _check_asked(names, asked, where)
    columns = {part: name for part, name in asked if part != "score"}
    known_parts = COLUMNS if find(names, COLUMNS["item"], set()) or "item" in columns else (
        {**COLUMNS, **OF_SUMMARIES}
    )  # fmt: skip
    scores = tuple(name for part, name in asked if part == "score")
    if cluster is not None and cluster in names:
        columns["cluster"] = cluster
    for part, usual in known_parts.items():
        if part in columns or (part == "score" and scores) or (part == "epoch" and by_order):
            continue
        column = find(names, usual, {*columns.values(), *scores})
        if column is not None and part == "score":
            scores = (column,)
        elif column is not None:
            columns[part] = column
    if by is not None and by in names:
        columns["tags"] = by
    if not scores and columns.keys() >= {"n", "k"}:
        scores = (columns["k"],)
    _check_enough(columns, scores, names, where)
    unread = [name for name in names if name not in {*columns.values(), *scores}]
    settings = tuple(name for name in unread if name.casefold() in SETTINGS)
    others = [name for name in unread if name.casefold() in COLUMNS["score"]]
    notes: tuple[str, ...] = ()
    if others:
        pairs = ",".join(f"score={n}" for n in (*scores, *others))
        notes = (f"{scores[0]} is read as the score and {few(others)} is not (--columns {pairs})",)
    return Layout(columns, scores, settings, by_order, notes)


def _check_asked(names: Sequence[str], asked: Sequence[tuple[str, str]], where: str) -> None:
    for part, name in asked:
        check_known("part of a row", part, {**COLUMNS, **OF_SUMMARIES})
        if name not in names:
            raise SelectionError(missing_column(name, names, where))
    once = [part for part, _ in asked if part != "score"]
    if twice := [part for part in once if once.count(part) > 1]:
        msg = f"{twice[0]} has two columns, but only scores may be in several. Name one."
        raise SelectionError(msg)


def _check_enough(
    columns: Mapping[str, str], scores: Sequence[str], names: Sequence[str], where: str
) -> None:
    # Without items each row is the value of a model on a task.
    summed = {"item", "model", "task", *OF_SUMMARIES} & columns.keys()
    present = {"item": bool("item" in columns or (scores and summed)), "score": bool(scores)}
    lacking = [part for part, is_there in present.items() if not is_there]
    if lacking:
        wanted = " and ".join(lacking)
        meant = [f"{part}={closest(part, names) or 'COLUMN'}" for part in lacking]
        raise SelectionError(
            f"{where}: no column's name says that it holds the {wanted}. There are: "
            f"{few(names, 10)}. If each row is one score, name them: --columns "
            f"{shlex.quote(','.join(meant))} "
            "(in Python: columns=). If the table is a matrix, add --wide models where each row is "
            "a model, or --wide items where each row is an item (in Python: wide=)."
        )


def name_of_file(path: Path) -> str:
    """Return what a file is called without its endings; of a README, what its folder is.

    >>> name_of_file(Path("Qwen1.5-7B.csv.gz")), name_of_file(Path("phi-4/README.md"))
    ('Qwen1.5-7B', 'phi-4')
    """
    name = path.name
    while Path(name).suffix.lower() in ENDINGS:
        name = Path(name).stem
    return path.absolute().parent.name if name.casefold() == "readme" else name


def find(names: Sequence[str], known: Sequence[str], used: set[str]) -> str | None:
    """Return the column with the first of the known names that is unique, ignoring case."""
    free = [name for name in names if name not in used]
    folded = [name.casefold().rstrip(" ?").replace(" ", "_") for name in free]
    return next((free[folded.index(name)] for name in known if folded.count(name) == 1), None)


def closest(part: str, names: Sequence[str]) -> str | None:
    """Return the column whose name is most similar to the known names of a part."""
    by_small = {name.casefold(): name for name in names}
    matches = (get_close_matches(usual, by_small, n=1, cutoff=0.75) for usual in COLUMNS[part])
    return next((by_small[each[0]] for each in matches if each), None)


class Epochs(NamedTuple):
    """Items and epochs in the names of the columns, or rows, of a matrix: ``7.2``."""

    items: list[str]
    """The M items, in the order of their first names."""
    places: NDArray[np.int64]
    """Shape (M, R): the name of each item and epoch, by its place."""


def epochs_in(names: Sequence[str]) -> tuple[Epochs | None, tuple[str, ...]]:
    """Return items and epochs where every name is ``item.epoch``, and a note on what was done.

    Epochs are numbered from 0 or 1; the first may be the bare item, as pandas names columns that
    occur again (7, 7.1, 7.2). There must be two items or more, all with the same epochs.

    >>> found, notes = epochs_in(["7", "7.1", "8", "8.1"])
    >>> found.items, found.places.tolist()
    (['7', '8'], [[0, 1], [2, 3]])
    >>> epochs_in(["7.1", "7.2", "8.1", "8.2", "8.3"])[1]
    ("names such as '7.1' are items of their own: as epochs, items would have 2 to 3 of them",)
    """
    places: dict[str, dict[int, int]] = {}
    for place, name in enumerate(names):
        item, _, number = name.rpartition(".")
        is_epoch = bool(item) and number.isascii() and number.isdigit() and len(number) < 5
        places.setdefault(item if is_epoch else name, {})[int(number) if is_epoch else 0] = place
    sizes = sorted(map(len, places.values()))
    if len(places) < 2 or sum(sizes) < len(names) or sizes[len(sizes) // 2] < 2:
        return None, ()
    shown = repr(next(name for name in names if name not in places))
    alike = {tuple(sorted(each)) for each in places.values()}
    if len(alike) > 1:
        about = f"as epochs, items would have {sizes[0]} to {sizes[-1]} of them"
        return None, (f"names such as {shown} are items of their own: {about}",)
    [epochs] = alike
    if epochs not in (tuple(range(sizes[0])), tuple(range(1, sizes[0] + 1))):
        return None, ()
    grid = np.array([[each[k] for k in epochs] for each in places.values()])
    note = f"names such as {shown} are read as {len(places)} items × {sizes[0]} epochs"
    return Epochs(list(places), grid), (note,)


def with_one_heading(content: bytes) -> bytes:
    """Return delimited text whose repeated names of columns are numbered: ``7.0``, ``7.1``.

    A second heading, of epochs, numbers them where there is one; a row without scores below it, as
    pandas writes the name of the index, is left out.
    """
    text = content.decode(errors="surrogateescape")
    heading, separator = heading_of(text)
    names = [name.strip() for name in heading]
    held = [name for name in names[1:] if name]
    if len(set(held)) == len(held):
        return content
    with io.StringIO(text, newline="") as source:
        rows = csv.reader(source, delimiter=separator)
        next(row for row in rows if row)
        start, below = rows.line_num, next(rows, [""]) or [""]
        if below[0].strip().casefold() in COLUMNS["epoch"]:
            numbers = [cell.strip() for cell in below[1:]]
            start, below = rows.line_num, next(rows, [""]) or [""]
            # The first cells of both headings say what these are, not what the rows are.
            start, names[0] = (start, "") if any(below[1:]) else (rows.line_num, below[0])
        else:
            numbers = [str(names[1:k].count(name)) for k, name in enumerate(names) if k]
    out = io.StringIO()
    numbered = [name and f"{name}.{k}" for name, k in zip(names[1:], numbers, strict=False)]
    csv.writer(out, delimiter=separator, lineterminator="\n").writerow([names[0], *numbered])
    # Lines as the reader counts them: others end at more letters.
    rest = "".join([*io.StringIO(text, newline="")][start:])
    return (out.getvalue() + rest).encode(errors="surrogateescape")

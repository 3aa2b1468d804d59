"""Annotate a results file: add our block, or remove it and restore every byte.

The block is spliced in before the file's last brace, so that everything else stays exactly as
lm-eval wrote it. It is a top-level key, which lm-eval's table and leaderboards ignore; extra keys
inside ``results`` would be shown as metrics. With rescoring, `corrected` also replaces logged means
and standard errors that the samples contradict, and those of the groups above them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin.adapters.lm_eval import layout
from evalstats_plugin.adapters.lm_eval.groups import Tree, pooled_stderr, unweighted_stderr
from evalstats_plugin.adapters.lm_eval.reader import read_results
from evalstats_plugin.adapters.lm_eval.values import as_number, disagreement, mean_and_stderr, same
from evalstats_plugin.adaptive.records import RECORD, with_record
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.errors import WriteError
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.runtime import files, writing
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.writing import Revision, revision

# In a JSON text a line break can stand only outside of strings.
_START = re.compile(rb',\n  "evalstats": \{')
_END = re.compile(rb"\s*\}\s*$")


def annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Write a results file with a new block (or none) to ``output``; None if it is not lm-eval's.

    A file in place is not written if nothing would change.

    Raises
    ------
    LogError
        The file is damaged.
    WriteError
        Items are to be annotated, or the file changed meanwhile or cannot be written.
    """
    read = revision(path)
    clean = layout.load_results(LogFile(path))
    if clean is None:
        return None
    if annotation is not None and annotation.items is not None and annotation.abilities is None:
        raise WriteError(
            f"{path}: lm-eval's samples files are never changed, so items cannot be annotated; "
            "with --fit irt (in Python: fits=['irt']) the results file lists the items to look at"
        )
    original = original_bytes(path)
    if annotation is None:
        return _written(output, original, path, read)
    block = with_record(annotation.block(), clean.get(RECORD))
    block["sources"] = _sources(path, original, clean)
    block["rescored"] = []
    content = original
    if annotation.rescore:
        changed, block["rescored"] = corrected(clean, path)
        content = _dumped(changed, original, path) if block["rescored"] else original
    end = _END.search(content)
    assert end is not None, "it was parsed as an object"  # noqa: S101
    text = json.dumps(block, indent=2, ensure_ascii=False, allow_nan=False)
    lines = text.replace("\n", "\n  ").encode()
    content = content[: end.start()] + b',\n  "evalstats": ' + lines + end.group(0)
    return _written(output, content, path, read)


def _written(output: Path, content: bytes, path: Path, read: Revision | None) -> Path:
    if output.resolve() != path.resolve():
        return writing.write_bytes(output, content, times_of=path)
    if content == path.read_bytes() and revision(path) == read:
        return output
    return writing.write_bytes(output, content, over=read, times_of=path)


def original_bytes(path: Path) -> bytes:
    """Return a results file as lm-eval wrote it, without our block and our replaced values.

    After another tool rewrote the file, as that tool would have written it without them.

    Warns
    -----
    UserWarning
        That tool's layout is unknown: the values are the same, the layout is another.
    """
    content = path.read_bytes()
    data: dict[str, Any] = json.loads(content)
    if layout.KEY not in data:
        return content
    end = _END.search(content)
    logged = layout.without_block(data)
    shown = json.dumps({key: value for key, value in data.items() if key != layout.KEY})
    for start in reversed([m.start() for m in _START.finditer(content)]):
        stripped = content[:start] + (end.group(0) if end else b"")
        try:
            held = json.dumps(json.loads(stripped))
        except ValueError:
            continue
        # Compared as text, because NaN does not equal itself.
        if held == shown:
            replaced = json.dumps(logged) != shown
            return _dumped(logged, stripped, path) if replaced else stripped
    return _dumped(logged, content, path)


def _dumped(data: Mapping[str, Any], like: bytes, path: Path) -> bytes:
    """Write data in the JSON layout of another version of the file."""
    write, exact = files.json_like(like)
    if not exact:
        msg = (
            f"{path} is laid out as no usual JSON writer does: it has the same values as before, "
            "in another layout"
        )
        warnings.warn(msg, stacklevel=2)
    return write(data)


def _sources(path: Path, original: bytes, data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return name, SHA-256 and size of the results file and its samples files."""
    hashed = [(path.name, hashlib.sha256(original).hexdigest(), len(original))]
    for task in sorted(data["configs"]):
        samples = layout.samples_path(path, task, data)
        if samples.is_file():
            with samples.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            hashed.append((samples.name, digest, samples.stat().st_size))
    return [{"file": name, "sha256": digest, "bytes": size} for name, digest, size in hashed]


def corrected(data: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], list[layout.Change]]:
    """Return results in which means that their items contradict are replaced, and the changes."""
    changed = copy.deepcopy(dict(data))
    tree = Tree(data)
    changes: list[layout.Change] = []
    touched: set[tuple[str, str]] = set()
    kept: set[tuple[str, str]] = set()
    n_items: dict[str, int] = {}
    for r in read_results(data, path, Selection()):
        n_items[r.task] = len(r.item_ids)
        if not r.is_whole:
            # What all items gave is not corrected by a part of them.
            kept |= {(group, r.metric) for group in tree.groups_around(r.task)}
            continue
        if r.aggregation != "mean" or not len(r.item_ids) or r.logged is None:
            continue
        for key, value in _of_task(r):
            touched |= {(group, r.metric) for group in tree.groups_around(r.task)}
            changes += _put(changed, r.task, key, value)
    for group, metric in sorted(touched - kept):
        for key, value in _of_group(changed, tree, group, metric, n_items):
            changes += _put(changed, group, key, value)
    return changed, changes


def _of_task(r: Responses) -> Iterator[tuple[str, float]]:
    """Yield the keys of a task that its items contradict, with the correct values."""
    scores = r.scores[:, 0]
    value, stderr = mean_and_stderr(scores)
    wrong = disagreement(scores, r.logged, None) is not None
    if wrong:
        yield r.metric, value
    # With missing scores (nanmean) the standard error is a bootstrap's, valid if the value is.
    gaps = bool(np.isnan(scores).any())
    if wrong or (not gaps and disagreement(scores, None, r.logged_std_error) is not None):
        yield layout.stderr_key(r.metric), stderr


def _of_group(
    changed: Mapping[str, Any], tree: Tree, group: str, metric: str, n_items: Mapping[str, int]
) -> Iterator[tuple[str, float]]:
    """Yield a group's keys, from the values of its tasks as they are now."""
    if metric not in layout.section(changed, "results", group):
        return
    tasks = [t for t in tree.leaves(group) if metric in layout.section(changed, "results", t)]
    values = [as_number(changed["results"][t][metric]) for t in tasks]
    errors = [as_number(changed["results"][t].get(layout.stderr_key(metric))) for t in tasks]
    means = [v for v in values if v is not None]
    std_errors = [e for e in errors if e is not None]
    # lm-eval logs how many items a task has from 0.4.3 on.
    sizes = [tree.size(t) or n_items.get(t, 0) for t in tasks]
    micro = tree.weighting(group, metric)[0] != "macro"
    if len(means) < len(tasks) or (micro and not all(sizes)):
        return
    if micro:
        yield metric, sum(v * n for v, n in zip(means, sizes, strict=True)) / sum(sizes)
    else:
        yield metric, sum(means) / len(means)
    if len(std_errors) < len(tasks):
        yield layout.stderr_key(metric), math.nan
    else:
        error = pooled_stderr(std_errors, sizes) if micro else unweighted_stderr(std_errors)
        yield layout.stderr_key(metric), error


def _put(data: Mapping[str, Any], task: str, key: str, value: float) -> list[layout.Change]:
    """Replace a value in results and groups; return the change, or nothing if the values agree."""
    logged = data["results"][task].get(key)
    before = as_number(logged)
    undefined = before is None and math.isnan(value)
    if logged is None or undefined or (before is not None and same(before, value)):
        return []
    for place in layout.places(data, task):
        if key in place:
            place[key] = "N/A" if math.isnan(value) else value  # as lm-eval writes it
    new = value if math.isfinite(value) else None
    text = json.dumps(logged, ensure_ascii=False)
    return [{"task": task, "key": key, "logged": text, "rescored": new}]

"""Puts a block into a results file, and takes it out again to the byte.

The block is spliced in before the file's last brace, so that everything else stays exactly as
lm-eval wrote it, whatever the text looks like. Extra keys inside ``results`` would show up as
metrics in lm-eval's table and in leaderboards; a top-level key is invisible to both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalstats_plugin import atomic
from evalstats_plugin.adapters.lm_eval import layout
from evalstats_plugin.adapters.lm_eval.block import KEY, without_block
from evalstats_plugin.adapters.lm_eval.correction import corrected
from evalstats_plugin.adaptive.records import RECORD, with_record
from evalstats_plugin.errors import LogError, WriteError
from evalstats_plugin.plugins import Annotation

# In a JSON text a line break can stand only outside of strings.
_START = re.compile(rb',\n  "evalstats": \{')
_END = re.compile(rb"\s*\}\s*$")
_CHUNK = 1 << 20


def annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Write a results file with a new block (or none) to output; None for others' files.

    One that would not change is not written again; one that changed meanwhile is left alone.
    """
    read = atomic.revision(path)
    clean = layout.load_results(path)
    if clean is None:
        return None
    if annotation is not None and annotation.items is not None and annotation.abilities is None:
        msg = (
            f"{path}: lm-eval's samples files are never changed, so items cannot be annotated; "
            "with --irt (in Python: irt=True) the results file lists the items to look at"
        )
        raise WriteError(msg)
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
    return _written(output, _with_block(content, block), path, read)


def _written(output: Path, content: bytes, path: Path, read: atomic.Revision | None) -> Path:
    if output.resolve() != path.resolve():
        return atomic.write_bytes(output, content)
    if content == path.read_bytes() and atomic.revision(path) == read:
        return output
    return atomic.write_bytes(output, content, over=read)


def original_bytes(path: Path) -> bytes:
    """Return a results file as lm-eval wrote it, without our block and our rescoring."""
    content = path.read_bytes()
    data: dict[str, Any] = json.loads(content)
    if KEY not in data:
        return content
    end = _END.search(content)
    logged = without_block(data)
    shown = {key: value for key, value in data.items() if key != KEY}
    for start in reversed([m.start() for m in _START.finditer(content)]):
        stripped = content[:start] + (end.group(0) if end else b"")
        if _is_json_of(stripped, shown):
            replaced = json.dumps(logged) != json.dumps(shown)
            return _dumped(logged, stripped, path) if replaced else stripped
    msg = f"{path} has an evalstats block that was moved or reformatted; remove the key by hand"
    raise LogError(msg)


def _is_json_of(content: bytes, data: Mapping[str, Any]) -> bool:
    try:
        # Compared as text: NaN, which is not equal to itself, must count as the same.
        return json.dumps(json.loads(content)) == json.dumps(data)
    except ValueError:
        return False


def _with_block(content: bytes, block: Mapping[str, Any]) -> bytes:
    end = _END.search(content)
    assert end is not None, "it was parsed as an object"  # noqa: S101
    text = json.dumps(block, indent=2, ensure_ascii=False, allow_nan=False)
    lines = text.replace("\n", "\n  ").encode()
    return content[: end.start()] + b',\n  "evalstats": ' + lines + end.group(0)


def _dumped(data: Mapping[str, Any], like: bytes, path: Path) -> bytes:
    """Write data in the text form of another version of itself."""
    for indent in (2, None):
        if json.dumps(json.loads(like), indent=indent, ensure_ascii=False).encode() == like:
            return json.dumps(data, indent=indent, ensure_ascii=False).encode()
    msg = (
        f"{path} is not laid out as lm-eval writes it (json.dumps with indent=2), so rescored "
        "values could not be undone to the byte; annotate without --rescore, or restore the file"
    )
    raise LogError(msg)


def _sources(path: Path, original: bytes, data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Name and fingerprint what the numbers come from."""
    found = [(path.name, hashlib.sha256(original).hexdigest(), len(original))]
    for task in sorted(data["configs"]):
        samples = layout.samples_path(path, task, data)
        if samples.is_file():
            found.append((samples.name, _sha256(samples), samples.stat().st_size))
    return [{"file": name, "sha256": digest, "bytes": size} for name, digest, size in found]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()

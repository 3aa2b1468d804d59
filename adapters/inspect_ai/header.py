"""Reads and writes the header of a log through Inspect, and refuses what must not be rewritten."""

from __future__ import annotations

import re
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

from evalstats_plugin.adapters.inspect_ai import guard
from evalstats_plugin.adapters.inspect_ai.archive import Archive
from evalstats_plugin.adapters.inspect_ai.layout import HEADER, Form
from evalstats_plugin.errors import WriteError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


def read_header(file: Path, form: Form, path: Path) -> EvalLog:
    """Read a log without its samples and reductions; errors call it by path.

    Raises
    ------
    LogError
        When the log is broken, or too large to be one.
    """
    read_eval_log = guard.load_inspect().read_eval_log
    with guard.parsing(path):
        if form == "json":
            guard.check_size(file.stat().st_size, guard.MAX_JSON, "the log", path)
            return read_eval_log(str(file), header_only=True, format=form)
        with file.open("rb") as stream, Archive(stream, path).header() as copy:
            return read_eval_log(copy, header_only=True)


def refuse_unwritable(log: EvalLog, path: Path) -> None:
    """Refuse a log that is still being written, or whose newer parts would get lost.

    Raises
    ------
    WriteError
        With what to do about it.
    LogError
        For a later format than the installed Inspect knows.
    """
    if log.status == "started":
        msg = f"{path} is of a run that has not ended (status 'started'); annotate it afterwards"
        raise WriteError(msg)
    guard.check_version(log.version, path)
    written_by = log.eval.packages.get("inspect_ai", "")
    installed = version("inspect_ai")
    # Inspect drops what it does not know when it writes a header.
    if _release(written_by) > _release(installed):
        msg = (
            f"{path} was written by inspect_ai {written_by}, newer than the installed {installed}, "
            "which would drop what it does not know; upgrade inspect_ai first"
        )
        raise WriteError(msg)


def _samples_in(file: Path) -> dict[str, tuple[int, int]]:
    """Return checksum and size of everything in an archive but its header."""
    with ZipFile(file) as archive:
        live = archive.NameToInfo.items()
        return {name: (m.CRC, m.file_size) for name, m in live if name != HEADER}


def _cut_off_header(file: Path) -> None:
    """Take the header off the end of an archive, where Inspect would leave it as dead bytes.

    Without, a log of 15 kB grew to 577 kB in 120 rounds of annotating and stripping.
    """
    with ZipFile(file, "a") as archive:
        last = max(archive.filelist, key=lambda member: member.header_offset, default=None)
        if last is None or last.filename != HEADER or archive.NameToInfo[HEADER] is not last:
            return
        archive.filelist.remove(last)
        del archive.NameToInfo[HEADER]
        archive.start_dir = last.header_offset
        # Said to have changed, so that the list of members is written, here.
        archive.comment = archive.comment


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers a version starts with: enough to tell which release is newer."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(number) for number in found.group().split(".")) if found else ()


def write_header(log: EvalLog, file: Path, form: Form, path: Path) -> None:
    """Replace the header of a file nobody else reads yet, and read it back; errors name path.

    Raises
    ------
    WriteError
        When what is read back is not what was written.
    """
    from inspect_ai.log import write_eval_log

    if form == "eval":
        samples = _samples_in(file)
        _cut_off_header(file)
        write_eval_log(log, str(file), format=form, header_only=True)
        # Where Python cannot open an archive to add to it, it begins an empty one.
        if _samples_in(file) != samples:
            msg = f"{path}: samples got lost as the header was written; the log was left as it was"
            raise WriteError(msg)
    else:
        # Inspect puts a temporary file of its own beside this one; a kill must not leave it there.
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(file, folder)
            write_eval_log(log, str(copy), format=form, header_only=True)
            shutil.copyfile(copy, file)
    written = read_header(file, form, file)
    if written.metadata != log.metadata or written.results != log.results:
        msg = f"{path}: the header read back is not the one written; the log was left as it was"
        raise WriteError(msg)

"""Broken and hostile logs: each fails alone, with one typed error, in bounded time and memory."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalstats_plugin import read
from evalstats_plugin.adapters.inspect_ai.archive import guard
from evalstats_plugin.adapters.inspect_ai.archive.guard import find_logs, form_of
from evalstats_plugin.adapters.inspect_ai.archive.members import elements
from evalstats_plugin.adapters.inspect_ai.reader import read_log
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.errors import LogError
from evalstats_plugin.runtime.files import LogFile

HERE = Path(__file__).parent
LATEST = HERE.parents[2] / "fixtures" / "logs" / "inspect_ai" / "0.3.285"
GOOD = min((LATEST / "tiny_perfect").glob("*.eval"))
GOOD_JSON = min((LATEST / "json").glob("*.json"))
ZIP_ZSTANDARD = 93
"""Known to zipfile once Inspect is loaded."""
Members = dict[str, Any]
Run = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[[Members], Path]


@pytest.fixture(scope="module")
def members() -> Members:
    """Give the parsed members of a good log."""
    guard.load_inspect()
    with ZipFile(GOOD) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Write a log with the members given; texts as they are, values as JSON."""

    def write(content: Members, name: str = "log.eval") -> Path:
        path = tmp_path / name
        with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as archive:
            for member, value in content.items():
                text = value if isinstance(value, (str, bytes)) else json.dumps(value)
                archive.writestr(member, text)
        return path

    return write


def _of(path: Path) -> list[Responses]:
    found = read_log(LogFile(path), Selection())
    assert found is not None
    return found


def _files(folder: Path) -> list[LogFile]:
    return [LogFile(path) for path in sorted(folder.iterdir())]


def _with(members: Members, name: str, **changes: Any) -> Members:
    return {**members, name: {**members[name], **changes}}


def test_the_log_that_is_spoilt_below_is_good(written: Write, members: Members) -> None:
    """Otherwise the errors below might be about something else."""
    (r,) = _of(written(members))

    assert [1.0] * 6 == r.scores.ravel().tolist()


def test_files_of_others_are_not_ours(written: Write, tmp_path: Path) -> None:
    """Told by content: any archive, any JSON, an eval set's manifests."""
    other = tmp_path / "results.json"
    other.write_text('{"results": {}}')
    (tmp_path / "notes.txt").write_text("version, status, eval")

    assert form_of(LogFile(written({"readme": "hello"}, "archive.zip"))) is None
    assert form_of(LogFile(written({"readme": "hello"}, "else.eval"))) is None
    assert form_of(LogFile(other)) is None
    assert {".eval"} == {p.suffix for p in find_logs(_files(LATEST / "set"))}
    assert [tmp_path / "else.eval"] == find_logs(_files(tmp_path))


@pytest.mark.parametrize("size", [0, 1, 100, 2000, -30])
def test_a_log_that_was_cut_off(size: int, tmp_path: Path) -> None:
    """A copy that was interrupted is Inspect's all the same."""
    path = tmp_path / "log.eval"
    path.write_bytes(GOOD.read_bytes()[:size])

    with pytest.raises(LogError, match=r"log\.eval cannot be read as an Inspect log"):
        _of(path)


def test_a_json_log_that_was_cut_off(tmp_path: Path) -> None:
    """The same for the other form."""
    path = tmp_path / "log.json"
    path.write_bytes(GOOD_JSON.read_bytes()[:5000])

    with pytest.raises(LogError, match=r"log\.json cannot be read as an Inspect log"):
        _of(path)


def test_a_broken_log_fails_alone(tmp_path: Path) -> None:
    """The other logs of the folder are read."""
    shutil.copy(GOOD, tmp_path / "good.eval")
    (tmp_path / "bad.eval").write_bytes(b"PK\x03\x04 and nothing more")
    found = read(tmp_path, skip_broken=True)

    assert 1 == len(found.responses)
    assert any("left out:" in note and "bad.eval" in note for note in found.notes)


@pytest.mark.parametrize(
    "change",
    [
        {"eval": None},
        {"eval": []},
        {"status": "fine"},
        {"results": {"scores": "none"}},
        {"results": {"scores": [{"name": "match", "scorer": "match", "metrics": {"a": None}}]}},
        {"version": "two"},
        {"plan": {"config": {"temperature": "hot"}}},
    ],
)
def test_wrong_types_in_a_header(change: Members, written: Write, members: Members) -> None:
    """Pydantic's errors become ours."""
    with pytest.raises(LogError, match="cannot be read as an Inspect log"):
        _of(written(_with(members, "header.json", **change)))


@pytest.mark.parametrize(
    "summaries",
    [
        {},
        [1, 2],
        [{"id": 0}],
        [{"id": 0, "epoch": "one", "input": "", "target": ""}],
        [{"id": 0, "epoch": 1, "input": "", "target": "", "scores": {"match": {"value": None}}}],
        '[{"id": 0, "epoch": 1, "input": "", "target": "", "scores": [',
        "[" * 200_000 + "]" * 200_000,
        '[{"id": 0, "epoch": ' + "9" * 5000 + "}]",
        b"\xff\xfe\x00",
    ],
)
def test_wrong_types_in_summaries(summaries: Any, written: Write, members: Members) -> None:
    """Deep, cut off, mistyped: one error that names the file."""
    with pytest.raises(LogError, match=r"log\.eval cannot be read as an Inspect log"):
        _of(written({**members, "summaries.json": summaries}))


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_deep_nesting_in_a_header(depth: int, written: Write, members: Members) -> None:
    """Python's recursion limit is reached, not the end of the stack."""
    header = json.dumps(members["header.json"])
    deep = header[:-1] + ', "metadata": ' + '{"a":' * depth + "1" + "}" * depth + "}"
    # From Python 3.12 on it depends on the release how deep what is written in C may go.
    refused = depth > 10_000 or sys.version_info < (3, 12)

    with (
        pytest.raises(LogError, match="cannot be read as an Inspect log")
        if refused
        else suppress(LogError)
    ):
        _of(written({**members, "header.json": deep}))


def test_a_later_format_that_inspect_reads_is_read(written: Write, members: Members) -> None:
    """Inspect checks the format of .json logs only."""
    (r,) = _of(written(_with(members, "header.json", version=99)))

    assert len(r.item_ids) == 6


def test_a_later_format_that_inspect_cannot_read_is_named(
    written: Write, members: Members, tmp_path: Path
) -> None:
    """The format says more than what Inspect misses in it."""
    path = tmp_path / "log.json"
    path.write_text(json.dumps({**members["header.json"], "version": 99}))
    other = written(_with(members, "header.json", version=99, eval=3))

    with pytest.raises(
        LogError, match=r"version 99 of log format.*; a later inspect_ai may read it"
    ):
        _of(path)
    with pytest.raises(LogError, match=r"has log format 99, the installed inspect_ai reads up to"):
        _of(other)


def _with_ids(members: Members, ids: list[Any]) -> Members:
    header = members["header.json"]
    spec = {**header["eval"], "dataset": {**header["eval"]["dataset"], "sample_ids": ids}}
    return _with(members, "header.json", eval=spec)


def test_ids_of_another_type_in_the_header_are_the_same_items(
    written: Write, members: Members
) -> None:
    """Real logs list "1" where the sample has 1; only samples can clash."""
    ids = [str(each["id"]) for each in members["summaries.json"]]
    (r,) = _of(written(_with_ids(members, ids)))

    assert r.item_ids.tolist() == ids
    assert not np.isnan(r.scores).any()


def test_samples_that_inspect_cannot_tell_apart_are_refused(
    written: Write, members: Members
) -> None:
    """Of 1 and "1" one sample is lost when such a log is written."""
    with pytest.raises(LogError, match="has items 1 and '1'"):
        _of(written(_with_ids(members, [0, 1, "1", 3, 4, 5])))


@pytest.mark.parametrize("edit", ["sorted", "without version", "compact"])
def test_a_json_log_is_known_whatever_the_order_of_its_keys(edit: str, tmp_path: Path) -> None:
    """As tools rewrite it; Inspect reads it too."""
    log = json.loads(GOOD_JSON.read_bytes())
    if edit == "without version":
        del log["version"]
    path = tmp_path / "log.json"
    path.write_text(
        json.dumps(log, sort_keys=edit == "sorted", indent=None if edit == "compact" else 4)
    )

    assert form_of(LogFile(path)) == "json"
    (before,), (after,) = _of(GOOD_JSON), _of(path)
    assert before.scores.tolist() == after.scores.tolist()


def test_other_json_is_not_ours(tmp_path: Path) -> None:
    """A manifest has headers one level below, and others have an ``eval`` of their own."""
    spec = json.loads(GOOD_JSON.read_bytes())["eval"]
    for i, other in enumerate(
        ({"a.eval": {"eval": spec}}, {"eval": "mmlu"}, {"eval": {}}, [spec], 3)
    ):
        path = tmp_path / f"{i}.json"
        path.write_text(json.dumps(other))

        assert form_of(LogFile(path)) is None


def test_an_id_that_is_a_novel(written: Write, members: Members) -> None:
    """In an array of ids each would take its room."""
    first, *others = members["summaries.json"]

    with pytest.raises(LogError, match="has an item id of 100000 characters"):
        _of(written({**members, "summaries.json": [{**first, "id": "x" * 100_000}, *others]}))


@pytest.mark.parametrize("seed", range(10))
def test_bytes_changed_at_random(seed: int, tmp_path: Path) -> None:
    """Whatever breaks, it is a broken log or a readable one."""
    rng = random.Random(seed)  # noqa: S311 - which bytes, is no secret
    path = tmp_path / "log.eval"
    for _ in range(20):
        content = bytearray(GOOD.read_bytes())
        for _ in range(rng.choice((1, 3, 30))):
            # The directory, at the end, is what is read most.
            start = rng.choice((0, len(content) - 3000))
            content[rng.randrange(start, len(content))] = rng.randrange(256)
        path.write_bytes(bytes(content))
        with suppress(LogError):
            read_log(LogFile(path), Selection(include_incomplete=True))


def test_pieces_of_samples_do_not_matter_to_scores(written: Write, members: Members) -> None:
    """Summaries tell everything; without them there is nothing to read."""
    pieces = {
        name.replace(".json", "/sample.json") if name.startswith("samples/") else name: value
        for name, value in members.items()
    }
    (r,) = _of(written(pieces))
    without = {n: v for n, v in pieces.items() if "summaries" not in n}

    assert 6 == len(r.item_ids)
    with pytest.raises(LogError, match="keeps its samples in pieces"):
        _of(written(without))


def test_without_summaries_the_samples_are_read(written: Write, members: Members) -> None:
    """Nothing of a log is needed twice."""
    (expected,) = _of(written(members))
    (found,) = _of(written({n: v for n, v in members.items() if "summaries" not in n}))

    assert expected.scores.tolist() == found.scores.tolist()
    assert expected.item_hashes.tolist() == found.item_hashes.tolist()  # pyright: ignore[reportOptionalMemberAccess]


def test_samples_that_lack_a_summary_are_missed(written: Write, members: Members) -> None:
    """The header says how many there were."""
    (r,) = _of(written({**members, "summaries.json": members["summaries.json"][:4]}))

    assert any("mismatch: 6 scored items were logged, 4 are there" in note for note in r.notes)
    assert "2 items of the run without a sample" in r.notes


def test_names_cannot_steer_a_terminal(written: Write, members: Members) -> None:
    """Escapes and reversed text are taken out of names, values and notes."""
    escape = "\x1b[2J\u202e"
    header = members["header.json"]
    score = {**header["results"]["scores"][0], "scorer": f"mat{escape}ch", "name": f"mat{escape}ch"}
    changed = _with(
        members,
        "header.json",
        eval={**header["eval"], "model": f"mock{escape}llm", "task": f"ti{escape}ny"},
        results={**header["results"], "scores": [score]},
    )
    for r in _of(written(changed)):
        text = " ".join((r.model, r.task, r.metric, *r.notes, *map(str, r.settings)))

        assert "mock[2Jllm" == r.model
        assert text.isprintable()


@pytest.mark.parametrize("examples", [60, pytest.param(1000, marks=pytest.mark.validation)])
def test_a_list_is_read_as_a_whole_would_be(examples: int) -> None:
    """Wherever its text is cut, also inside a letter or a number."""
    settings(deadline=None, max_examples=examples)(_read_in_blocks)()


@given(
    values=st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
            max_leaves=5,
        ),
        max_size=6,
    ),
    indent=st.sampled_from([None, 0, 3]),
    ascii_only=st.booleans(),
    data=st.data(),
)
def _read_in_blocks(
    values: list[Any], indent: int | None, *, ascii_only: bool, data: st.DataObject
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only)
    content = f" {text}\n".encode()
    places = data.draw(st.lists(st.integers(0, len(content))))
    cuts = [0, *sorted(places), len(content)]
    blocks = [content[a:b] for a, b in pairwise(cuts)]

    assert values == list(elements(blocks))


def test_a_number_is_not_over_where_a_block_ends() -> None:
    """Behind its point or its exponent's letter."""
    assert [0.5, 200.0, -1.5] == list(elements([b"[0.", b"5, 2e", b"2, -1", b".5]"]))


@pytest.mark.parametrize(
    "text",
    ["", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1]]", "[1] 2", "[]x", "{}", '["a', "a"],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    """As a whole, and letter by letter."""
    for blocks in ([text.encode()], [bytes([each]) for each in text.encode()]):
        with pytest.raises(ValueError, match=r"list in JSON|Expecting|Unterminated"):
            list(elements(blocks))


def test_elements_are_read_one_at_a_time() -> None:
    """The next blocks are asked for when the elements of the first are used up."""
    asked: list[int] = []

    def blocks() -> Iterator[bytes]:
        for i in range(100):
            asked.append(i)
            yield b"[" if i == 0 else b"{},"

    found = elements(blocks())
    for _ in range(10):
        next(found)

    assert len(asked) < 20


def test_epochs_that_make_no_table(written: Write, members: Members) -> None:
    """A hundred thousand cells for a few samples are not laid out."""
    summaries = [{**members["summaries.json"][0], "id": i, "epoch": 10**6 + i} for i in range(3000)]

    with pytest.raises(LogError, match="most items must be in each epoch"):
        _of(written({**members, "summaries.json": summaries}))


@pytest.fixture
def read_apart(run: Run) -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """Give a function that reads a log in a process of its own, with little memory and time."""
    return lambda path: run("report", path, module="in_little_memory", PYTHONPATH=str(HERE))


@pytest.mark.parametrize("member", ["header.json", "summaries.json"])
def test_an_archive_that_unpacks_to_much(
    member: str, written: Write, members: Members, read_apart: Callable[..., Any]
) -> None:
    """More than the limit in a thousandth of that: told by what the archive declares.

    Nothing is unpacked.
    """
    bomb = json.dumps(members[member]).encode()[:-1] + b" " * guard.MAX_HEADER
    done = read_apart(written({**members, member: bomb}))

    assert 2 == done.returncode
    assert "may be a trap" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("method", [ZIP_DEFLATED, ZIP_ZSTANDARD])
def test_an_archive_that_lies_about_sizes(
    method: int, members: Members, tmp_path: Path, read_apart: Callable[..., Any]
) -> None:
    """Declared: 64 bytes. Inside: 100 MB, of which the least part is unpacked."""
    path = tmp_path / "log.eval"
    with ZipFile(path, "w", method, compresslevel=1) as archive:
        archive.writestr("summaries.json", json.dumps(members["summaries.json"]))
        with archive.open("header.json", "w") as member:
            for _ in range(100):
                member.write(b" " * 1_000_000)
    content = bytearray(path.read_bytes())
    directory = content.rfind(b"PK\x01\x02")
    # Of the last entry of the directory, which is the header's.
    content[directory + 24 : directory + 28] = (64).to_bytes(4, "little")
    path.write_bytes(bytes(content))
    done = read_apart(path)

    assert 2 == done.returncode
    assert "header.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_json_that_is_all_brackets(
    members: Members, tmp_path: Path, read_apart: Callable[..., Any]
) -> None:
    """Sixty megabytes of empty lists would take gigabytes of memory."""
    path = tmp_path / "log.json"
    header = json.dumps(members["header.json"])
    path.write_text(header[:-1] + ', "samples": [' + "[]," * 20_000_000 + "[]]}")
    done = read_apart(path)

    assert 2 == done.returncode
    assert "may be a trap" in done.stderr


def test_limits_can_be_changed(
    written: Write, members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a constant of the guard."""
    path = written(members)
    for name in ("MAX_HEADER", "MAX_SUMMARIES", "MAX_MEMBERS"):
        monkeypatch.setattr(guard, name, 3)
        with pytest.raises(LogError):
            _of(path)
        monkeypatch.undo()
    monkeypatch.setattr(guard, "MAX_JSON", 1000)
    with pytest.raises(LogError, match="the file has"):
        _of(GOOD_JSON)


def test_code_that_a_log_names_does_not_run(
    written: Write, members: Members, tmp_path: Path
) -> None:
    """Recomputing metrics through Inspect would import the file that `task_file` names."""
    marker = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(
        "from pathlib import Path\n"
        f"Path({str(marker)!r}).touch()\n"
        "from inspect_ai import task\n"
        "@task\ndef tiny_perfect(): ...\n"
    )
    header = members["header.json"]
    spec = {
        **header["eval"],
        "task_file": str(tmp_path / "evil.py"),
        "scorers": [{"name": "evil", "metrics": [{"name": "evil"}]}],
        "metrics": [{"name": "evil"}],
    }
    path = written(_with(members, "header.json", eval=spec, location=str(tmp_path / "else.json")))

    assert _of(path)
    assert not marker.exists()
    assert not (tmp_path / "else.json").exists()


def test_member_names_lead_nowhere(written: Write, members: Members, tmp_path: Path) -> None:
    """Nothing is written outside a temporary folder, whatever members are called."""
    paths = {f"../../{tmp_path.name}-out.json": "{}", "samples/../../x.json": "{}", "/abs": "{}"}
    _of(written({**members, **paths}))

    assert [tmp_path / "log.eval"] == list(tmp_path.iterdir())
    assert not (tmp_path.parent / f"{tmp_path.name}-out.json").exists()

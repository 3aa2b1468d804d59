"""Annotations in Inspect logs: what Inspect reads back, what stays, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zipfile
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from evalstats_plugin import annotate
from evalstats_plugin.adapters.inspect_ai.estimands import headline_row
from evalstats_plugin.adapters.inspect_ai.writer import SCORE, annotate_log
from evalstats_plugin.comparisons.rows import Comparison, Comparisons
from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import LogError, WriteError
from evalstats_plugin.hierarchical.rows import CapabilityLevel
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.logs.reading import check
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

pytestmark = pytest.mark.needs("inspect_ai>=0.3.285")

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "inspect_ai" / "0.3.285"


def _log(run: str, task: str, number: int = 0) -> Path:
    return sorted(LOGS.glob(f"{run}/*_{task}_*"))[number]


ARITH = _log("models", "arith")
KINDS = [
    pytest.param(ARITH, "match", id="plain"),
    pytest.param(_log("models", "arith-epochs"), "match", id="epochs"),
    pytest.param(_log("models", "rubric-task"), "rubric:style", id="dict"),
    pytest.param(_log("models", "graded"), "partial_credit", id="unscored"),
    pytest.param(_log("models", "reading"), "match", id="grouped"),
    pytest.param(_log("reviewed", "arith"), "match", id="edited"),
    pytest.param(_log("cancelled", "patient"), "match", id="cancelled"),
    pytest.param(_log("broken", "broken"), "match", id="failed"),
    pytest.param(_log("json", "arith"), "match", id="json"),
]


def _annotation(metric: str = "match", level: float = 0.95) -> Annotation:
    row = ScoreInterval(
        model="mockllm/alpha", task="arith", metric=metric, n_items=50, estimate=0.34,
        low=0.1 + 0.2, high=0.47, std_error=None, method="wilson", confidence_level=level,
        notes=("3 of 53 items have no score",),
    )  # fmt: skip
    return Annotation(Intervals((row,), seed=0), "1.2.3")


def _header(log: Path) -> Any:
    from inspect_ai.log import read_eval_log

    return read_eval_log(str(log), header_only=True)


def _contents(log: Path) -> dict[str, str]:
    """Fingerprint everything in a log but its header."""
    if log.suffix == ".json":
        data = json.loads(log.read_bytes())
        return {"samples": json.dumps(data["samples"]), "reductions": str(data.get("reductions"))}
    import_module("inspect_ai._util.zipfile")
    with zipfile.ZipFile(log) as archive:
        names = set(archive.namelist()) - {"header.json"}
        return {name: sha256(archive.read(name)).hexdigest() for name in names}


def _metrics(header: Any) -> list[list[str]]:
    return [list(score.metrics) for score in header.results.scores] if header.results else []


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Give a copy of one log."""
    return Path(shutil.copy(ARITH, tmp_path))


@pytest.mark.parametrize(("source", "metric"), KINDS)
def test_annotating_twice_is_the_same_and_samples_are_not_touched(
    source: Path, metric: str, tmp_path: Path
) -> None:
    """For every kind of log; taking it out brings back what was there, to the byte."""
    log = Path(shutil.copy(source, tmp_path))
    before, contents = _header(log), _contents(log)

    assert log == annotate_log(log, _annotation(metric), log)
    once, annotated = log.read_bytes(), _header(log)
    annotate_log(log, _annotation(metric), log)
    twice = log.read_bytes()
    annotate_log(log, None, log)
    stripped = _header(log)

    assert once == twice
    assert source.read_bytes() == log.read_bytes()
    values = [tag for tag in annotated.tags if tag == "0.34 [.30–.47]"]
    assert sorted([*before.tags, "evalstats", *values]) == sorted(annotated.tags)
    assert bool(values) == (metric == headline_row(before))
    assert json.loads(json.dumps(_annotation(metric).block())) == annotated.metadata["evalstats"]
    assert contents == _contents(log)
    assert [log.name] == [p.name for p in tmp_path.iterdir()]
    for field in ("tags", "metadata", "results", "eval", "status", "reductions", "invalidated"):
        assert getattr(before, field) == getattr(stripped, field)


@pytest.mark.parametrize("gone", [("metadata",), ("tags",), ("metadata", "tags", "log_updates")])
def test_stripping_leaves_no_part_that_an_older_log_did_not_have(
    gone: tuple[str, ...], log: Path
) -> None:
    """Though Inspect reads the tags and metadata of the run in its place."""
    import_module("inspect_ai._util.zipfile")
    with zipfile.ZipFile(log) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["header.json"])
    for name in gone:
        header.pop(name, None)
    members["header.json"] = json.dumps(header, separators=(",", ":")).encode()
    with zipfile.ZipFile(log, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    before = log.read_bytes()
    annotate_log(log, _annotation(), log)
    annotate_log(log, None, log)

    assert header["eval"]["metadata"]
    assert header["eval"]["tags"]
    assert before == log.read_bytes()


def test_people_see_who_wrote_what(log: Path) -> None:
    """One line in the metadata, and an author with a reason in the history."""
    annotate_log(log, _annotation(), log)
    header = _header(log)

    line = "match 0.340 [0.300, 0.470] (95 % wilson, 50 items)"
    assert line == header.metadata["evalstats_summary"]
    assert list(header.metadata)[-2:] == ["evalstats_summary", "evalstats"]
    assert "0.34 [.30–.47]" in header.tags
    provenance = header.log_updates[-1].provenance
    assert ("evalstats_plugin 1.2.3", "statistical annotation") == (
        provenance.author,
        provenance.reason,
    )


@pytest.mark.parametrize(
    ("estimate", "low", "high", "tag"),
    [
        (85.0, 80.25, 100.0, "85.00 [80.25–100.00]"),
        (10.5, -0.5, 20.75, "10.50 [-.50–20.75]"),
        (0.25, 0.0, 1.0, "0.25 [.00–1.00]"),
    ],
)
def test_the_tag_of_the_value_has_every_digit(
    estimate: float, low: float, high: float, tag: str, log: Path
) -> None:
    """Limits above 1 too; only the nought before the point is left out, and stripping finds it."""
    [row] = _annotation().intervals
    rows = (dataclasses.replace(row, estimate=estimate, low=low, high=high),)
    annotate_log(log, dataclasses.replace(_annotation(), intervals=Intervals(rows)), log)
    written = _header(log).tags
    annotate_log(log, None, log)

    assert tag in written
    assert _header(log).tags == _header(ARITH).tags


def test_comparisons_are_written_too(log: Path) -> None:
    """What no single log can tell: after the intervals, in the same line and block."""
    row = Comparison(
        model_a="base", model_b="new", task="arith", metric="match", n_items=50,
        difference=0.25, low=0.125, high=0.375, p_value=0.001, p_adjusted=0.002,
        prob_better=0.99, method="paired", confidence_level=0.95, family="match, 2 tasks × 3 pairs",
    )  # fmt: skip
    annotate_log(log, dataclasses.replace(_annotation(), comparisons=Comparisons((row,))), log)
    metadata = _header(log).metadata

    assert 0.25 == metadata["evalstats"]["comparisons"][0]["difference"]
    line = metadata["evalstats_summary"]
    how = "95 %, 50 items, adjusted p 0.002 over 2 tasks × 3 pairs"
    assert line.endswith(f"items); better than base: +0.250 [+0.125, +0.375] ({how})")


@pytest.mark.parametrize("own", ["base", "mockllm/alpha"])
def test_a_verdict_keeps_its_caveat(own: str, log: Path) -> None:
    """Where it holds only if scores are missing at random, in the direction of the log's model."""
    row = Comparison(
        model_a="mockllm/alpha", model_b="base", task="arith", metric="match", n_items=40,
        difference=0.25, low=0.125, high=0.375, p_value=0.001, p_adjusted=0.002, n_missing=10,
        missing_low=-0.0625, missing_high=0.5, tipping_point=0.3, prob_better=0.99,
        method="paired", confidence_level=0.95,
    )  # fmt: skip
    if own == "base":
        row = dataclasses.replace(row, model_a="base", model_b="mockllm/alpha")
    annotate_log(log, dataclasses.replace(_annotation(), comparisons=Comparisons((row,))), log)
    line = _header(log).metadata["evalstats_summary"]

    end = "whatever they were, and it falls if about 30 % of them go against it"
    if own == "base":
        assert "better than base: +0.250 [+0.125, +0.375] (95 %, 40 items," in line
        assert line.endswith(f"only if scores are missing at random: -0.062 to +0.500 {end}")
    else:
        assert "worse than base: -0.250 [-0.375, -0.125] (95 %, 40 items," in line
        assert line.endswith(f"only if scores are missing at random: -0.500 to +0.062 {end}")


def test_capabilities_are_written_too(log: Path) -> None:
    """The level of the log's model, and how strongly each item needs it; none after stripping."""
    from inspect_ai.log import read_eval_log

    row = CapabilityLevel(
        model="mockllm/alpha", metric="match", capability=1, level=1.25, overall=-0.5, n_items=7,
        n_models=12, found_again=0.875, by_chance=0.5, tasks=("arith",), items=("3",),
    )  # fmt: skip
    before = read_eval_log(str(log)).samples
    items = {str(sample.id): {"evalstats_capability1": 0.5} for sample in before}
    annotation = dataclasses.replace(
        _annotation(),
        capabilities=Results((row,), ("capabilities on match: a note",)),
        items=items,
        item_columns=True,
    )
    annotate_log(log, annotation, log)
    found = read_eval_log(str(log))
    block, line = (found.metadata[name] for name in ("evalstats", "evalstats_summary"))

    assert dataclasses.asdict(row) == {
        k: tuple(v) if isinstance(v, list) else v for k, v in block["capabilities"][0].items()
    }
    assert "capabilities on match: a note" in block["notes"]
    assert line.endswith("; capability 1 of arith on match +1.25 (12 models, found again 0.88)")
    assert {0.5} == {sample.metadata["evalstats_capability1"] for sample in found.samples}
    legend = found.samples[0].scores[SCORE].explanation
    assert "capability1: how strongly the item needs it" in legend
    annotate_log(log, None, log)
    assert before == read_eval_log(str(log)).samples


@pytest.mark.parametrize(
    ("run", "task", "metric", "expected"),
    [
        ("models", "arith", "match", ["accuracy", "stderr", "lo", "hi", "lower"]),
        ("models", "graded", "partial_credit", ["mean", "stderr", "std", "lo", "hi"]),
        ("models", "rubric-task", "rubric:correct", ["accuracy", "stderr", "lo", "hi"]),
        ("models", "arith-epochs", "match", ["accuracy", "stderr", "lo", "hi"]),
        ("models", "reading", "match", ["algebra", "geometry", "logic", "all", "stderr"]),
    ],
)
def test_the_viewers_header_has_room_for_both_bounds(
    run: str, task: str, metric: str, expected: list[str], tmp_path: Path
) -> None:
    """It shows five metrics: ours follow the plain ones, and never come first."""
    log = Path(shutil.copy(_log(run, task), tmp_path))
    annotate_log(log, _annotation(metric), log)
    shown = [name.removeprefix("evalstats_ci95_") for name in _metrics(_header(log))[0][:5]]

    assert expected == shown


def test_only_the_mean_over_epochs_gets_the_means_interval(tmp_path: Path) -> None:
    """Nothing beside pass@2, the mode, or a metric of single epochs."""
    log = Path(shutil.copy(_log("models", "arith-epochs"), tmp_path))
    annotate_log(log, _annotation(), log)
    header = _header(log)

    assert ["mean", "pass_at_2", "mode", None] == [s.reducer for s in header.results.scores]
    ours = [any(m.startswith("evalstats_") for m in names) for names in _metrics(header)]
    assert [True, False, False, False] == ours
    bound = header.results.scores[0].metrics["evalstats_ci95_lo"]
    assert ("ci95 lo", "evalstats", {"level": 0.95, "method": "wilson"}) == (
        bound.name,
        bound.group,
        bound.params,
    )


def test_another_level_replaces_the_bounds(log: Path) -> None:
    """Not both side by side."""
    annotate_log(log, _annotation(), log)
    annotate_log(log, _annotation(level=0.999), log)

    names = [m for m in _metrics(_header(log))[0] if m.startswith("evalstats_")]
    assert ["evalstats_ci99_9_lo", "evalstats_ci99_9_hi"] == names


def test_a_copy_leaves_the_log_alone(log: Path, tmp_path: Path) -> None:
    """Also a copy without anything to change."""
    before = log.read_bytes()
    annotated = annotate_log(log, _annotation(), tmp_path / "new" / "annotated.eval")
    plain = annotate_log(log, None, tmp_path / "new" / "plain.eval")

    assert annotated is not None
    assert plain is not None
    assert "evalstats" in _header(annotated).tags
    assert before == log.read_bytes() == plain.read_bytes()


def test_permissions_and_links_stay(log: Path, tmp_path: Path) -> None:
    """A link still points to the log, and the log keeps its mode."""
    log.chmod(0o640)
    link = tmp_path / "link.eval"
    link.symlink_to(log)
    annotate_log(link, _annotation(), link)

    assert link.is_symlink()
    assert "evalstats" in _header(log).tags
    assert 0o640 == log.stat().st_mode & 0o777


def test_an_annotation_of_another_value_is_noticed_until_it_is_written_again(log: Path) -> None:
    """As after an edit of scores; the new annotation says nothing of the old one."""
    from inspect_ai.log import ProvenanceData, edit_score, read_eval_log, write_eval_log
    from inspect_ai.scorer import ScoreEdit

    annotate(log, in_place=True)
    edited = read_eval_log(str(log))
    wrong = next(s for s in edited.samples or [] if s.scores["match"].value == "I")
    edit = ScoreEdit(value="C", provenance=ProvenanceData(author="me", reason="wrong key"))
    edit_score(edited, wrong.id, "match", edit)
    write_eval_log(edited, str(log))
    [found] = check(log)
    annotate(log, in_place=True)

    assert "contradiction" == found.problem
    assert "the log's annotation is of 0.34, and the log now says 0.36: annotate it" in found.detail
    assert not check(log).rows
    once = log.read_bytes()
    annotate(log, in_place=True)
    assert once == log.read_bytes()


def test_recomputed_metrics_lose_the_display_but_not_the_annotation(log: Path) -> None:
    """Inspect drops metrics it did not compute; annotating again shows them again."""
    from inspect_ai.log import read_eval_log, recompute_metrics, write_eval_log

    annotate_log(log, _annotation(), log)
    annotated = _header(log)
    full = read_eval_log(str(log))
    recompute_metrics(full)
    write_eval_log(full, str(log))
    recomputed = _header(log)
    annotate_log(log, _annotation(), log)

    assert not [m for m in _metrics(recomputed)[0] if m.startswith("evalstats_")]
    assert annotated.metadata == recomputed.metadata == _header(log).metadata
    assert _metrics(annotated) == _metrics(_header(log))
    assert 1 == len(_header(log).log_updates)


def _with_header(log: Path, **changes: Any) -> Path:
    import_module("inspect_ai._util.zipfile")
    with zipfile.ZipFile(log) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["header.json"])
    members["header.json"] = json.dumps({**header, **changes}).encode()
    with zipfile.ZipFile(log, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return log


def test_logs_that_must_not_be_rewritten_are_refused(log: Path) -> None:
    """Runs that have not ended, and what a newer Inspect wrote; the file stays as it is."""
    spec = _header(log).eval.model_dump(mode="json")
    newer = {**spec, "packages": {"inspect_ai": "99.1.dev3+gabc"}}
    for changes, message in (
        ({"status": "started"}, "has not ended"),
        ({"status": "success", "eval": newer}, "newer than the installed .* upgrade"),
        ({"eval": spec, "version": 99}, "log format 99.* a later inspect_ai"),
    ):
        before = _with_header(log, **changes).read_bytes()

        with pytest.raises((WriteError, LogError), match=message):
            annotate_log(log, _annotation(), log)
        assert before == log.read_bytes()


def test_others_files_and_broken_logs(tmp_path: Path) -> None:
    """None for what is not ours, an error that names what is."""
    other = tmp_path / "results.json"
    other.write_text('{"results": {}}')
    cut = tmp_path / "cut.eval"
    cut.write_bytes(ARITH.read_bytes()[:5000])

    assert annotate_log(other, _annotation(), other) is None
    with pytest.raises(LogError, match=r"cut\.eval"):
        annotate_log(cut, _annotation(), cut)


def test_the_manifest_of_an_eval_set_stays_true(tmp_path: Path) -> None:
    """Equal to what Inspect itself would write for the whole folder."""
    from inspect_ai.log import write_log_dir_manifest

    folder = shutil.copytree(LOGS / "set", tmp_path / "set")
    for log in sorted(folder.glob("*.eval")):
        annotate_log(log, _annotation(), log)
    ours = json.loads((folder / "logs.json").read_bytes())
    write_log_dir_manifest(str(folder))

    assert all("evalstats" in header["tags"] for header in ours.values())
    assert ours == json.loads((folder / "logs.json").read_bytes())


def _older(log: dict[str, Any]) -> dict[str, Any]:
    """Return a log in the layout before a run could have several scorers."""
    [score] = log["results"]["scores"]
    results = {"scorer": {"name": "match"}, "metrics": score["metrics"], "total_samples": 50}
    return {**log, "version": 1, "results": results, "eval": {**log["eval"], "scorers": None}}


@pytest.mark.parametrize("layout", ["plain", "no scorers declared", "one scorer only"])
@pytest.mark.parametrize("rewritten", [False, True], ids=["as it was", "rewritten"])
def test_stripping_takes_out_what_is_ours_and_nothing_else(
    layout: str, *, rewritten: bool, tmp_path: Path
) -> None:
    """Of older layouts too, and after another tool has sorted and indented the whole log."""
    before = json.loads(_log("json", "arith").read_bytes())
    if layout == "no scorers declared":
        before["eval"]["scorers"] = None
    elif layout == "one scorer only":
        before = _older(before)
    log = tmp_path / "log.json"
    log.write_text(json.dumps(before))
    items = {"1": {"evalstats_p": 0.5}}
    annotate_log(log, dataclasses.replace(_annotation(), items=items, item_columns=True), log)
    annotated = json.loads(log.read_bytes())
    if rewritten:
        log.write_text(json.dumps(annotated, sort_keys=True, indent=4))
    annotate_log(log, None, log)

    assert annotated["metadata"]["evalstats"]["intervals"][0]["estimate"] == 0.34
    assert json.loads(log.read_bytes()) == before


def _without_tags(data: dict[str, Any]) -> None:
    """Make it look like a log from before tags, viewers and declared scorers."""
    del data["tags"], data["metadata"]
    data["eval"]["scorers"] = None


def _with_empty_history(data: dict[str, Any]) -> None:
    data |= {"log_updates": [], "tags": []}


def _with_bare_samples(data: dict[str, Any]) -> None:
    """Make some samples have no metadata or scores, as older Inspect left them out."""
    first, second, third, *_ = data["samples"]
    del first["metadata"], second["scores"]
    second["metadata"] = third["scores"] = None


@pytest.mark.parametrize(
    ("change", "layout"),
    [
        (_without_tags, {"indent": 2}),
        (_with_empty_history, {"indent": 4}),
        (_with_bare_samples, {"indent": 2}),
        (None, {}),
        (None, {"separators": (",", ":"), "ensure_ascii": False}),
        (None, {"indent": 2, "sort_keys": True}),
    ],
    ids=["older", "history", "bare samples", "dumped", "compact", "sorted"],
)
@pytest.mark.parametrize("columns", [False, True])
def test_stripping_gives_back_every_byte_of_another_layout(
    tmp_path: Path, change: Callable[[Any], None] | None, layout: dict[str, Any], *, columns: bool
) -> None:
    """Of older logs, and of logs that another tool wrote, annotated twice."""
    data = json.loads(_log("json", "arith").read_bytes())
    if change is not None:
        change(data)
    log = tmp_path / "log.json"
    log.write_text(json.dumps(data, **layout), encoding="utf-8")
    before = log.read_bytes()
    items = {str(sample["id"]): {"evalstats_p": 0.5} for sample in data["samples"]}
    annotation = dataclasses.replace(
        _annotation(), **({"items": items, "item_columns": True} if columns else {})
    )
    for level in (0.95, 0.9):
        annotate_log(
            log, dataclasses.replace(annotation, intervals=_annotation(level=level).intervals), log
        )

    assert json.loads(log.read_bytes())["metadata"]["evalstats"]
    annotate_log(log, None, log)
    assert log.read_bytes() == before


def test_stripping_gives_back_the_header_of_an_older_archive(log: Path, tmp_path: Path) -> None:
    """Inspect once wrote archives with line breaks."""
    import_module("inspect_ai._util.zipfile")
    old = tmp_path / "old.eval"
    with zipfile.ZipFile(log) as archive, zipfile.ZipFile(old, "w") as written:
        for name in archive.namelist():
            text = json.dumps(json.loads(archive.read(name)), indent=2)
            written.writestr(name, text.encode())
    before = old.read_bytes()
    annotate_log(old, _annotation(), old)

    assert _header(old).metadata["evalstats"]
    annotate_log(old, None, old)
    assert old.read_bytes() == before

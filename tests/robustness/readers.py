"""Every reader of the package, with a small good file for each."""

from __future__ import annotations

import json
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from damage import (
    Damage,
    cells_changed,
    json_changed,
    lines_changed,
    members_changed,
    table_changed,
    toml_changed,
)

from evalstats_plugin.errors import EvalStatsError, PluginError

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
LM_EVAL = LOGS / "lm_eval"
INSPECT = LOGS / "inspect_ai" / "0.3.285"
EVERY_EVAL_EVER = min((LOGS / "every_eval_ever" / "0.3.0" / "exported").glob("data/graded/*/*"))


@dataclass(frozen=True)
class Reader:
    """One way to read a file, and what it is tried on."""

    make: Callable[[Path], Path]
    """Writes good files into a folder and returns the one to damage."""
    read: Callable[[Path], object]
    damage: Sequence[Damage]


def _copied(*sources: Path) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        copies = [Path(shutil.copy(source, folder)) for source in sources]
        return copies[0]

    return make


def _written(name: str, text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return make


def _log(path: Path) -> object:
    import evalstats_plugin

    return evalstats_plugin.read(path.parent, cluster=None)


def _texts(path: Path) -> object:
    """Read what was asked and answered, as `compare --items` and the page do."""
    import evalstats_plugin
    from evalstats_plugin.logs.texts import item_texts

    found = evalstats_plugin.read(path.parent)
    return item_texts(found, {r.task: list(map(str, r.item_ids[:3])) for r in found})


def _clustered(path: Path) -> object:
    import evalstats_plugin

    return evalstats_plugin.read(path.parent, cluster="question")


def _annotated(path: Path) -> object:
    """Annotate, strip, and find the bytes that were there."""
    from evalstats_plugin.logs import annotating

    before = path.read_bytes()
    out = path.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    done = annotating.annotate(path, output=out, overwrite=True)
    back = annotating.strip(*done, in_place=True)
    assert [p.read_bytes() for p in back] == [before]
    return done


def _annotated_header(path: Path) -> object:
    """Annotate and strip an Inspect log, items too."""
    from evalstats_plugin.logs import annotating

    out = path.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    done = annotating.annotate(path, output=out, overwrite=True, items="columns")
    return annotating.strip(*done, in_place=True)


def _replayed(path: Path) -> object:
    from evalstats_plugin.adapters.lm_eval.replay.model import read_run

    return read_run(min(path.parent.glob("results*.json")), None)


def _contests(path: Path) -> object:
    from evalstats_plugin.logs.reading import read_contests

    return read_contests(path)


def _session(path: Path) -> object:
    from evalstats_plugin.ranking.judging.session import Session

    return Session.open(path)


def _judged_items(path: Path) -> object:
    from evalstats_plugin.ranking.judging.items import read_items

    return read_items(path)


def _fit(path: Path) -> object:
    from evalstats_plugin.irt.model.fit import load_fit

    return load_fit(path)


def _bank(path: Path) -> object:
    from evalstats_plugin.adaptive.bank import ItemBank

    return ItemBank.load(path)


def _matrix(path: Path) -> object:
    from evalstats_plugin.data.matrix import ResponseMatrix

    return ResponseMatrix.load(path)


def _store(path: Path) -> object:
    from evalstats_plugin import ResponseStore

    return ResponseStore(path).matrix()


def _labels(path: Path) -> object:
    from evalstats_plugin.cli.shell.running import read_labels

    return read_labels(str(path))


def _covariates(path: Path) -> object:
    from evalstats_plugin.cli.pool import read_covariates

    return read_covariates([str(path)])


def matrix() -> Any:
    """Give a small matrix of responses."""
    from evalstats_plugin.data.matrix import ResponseMatrix

    scores = (np.random.default_rng(0).random((8, 12)) < 0.5).astype(float)
    return ResponseMatrix.from_array(scores)


def make_fit(path: Path) -> Path:
    """Save a fit of one ability."""
    from evalstats_plugin import fit_irt

    fit_irt(matrix(), "rasch", rng=0).save(path)
    return path


def make_factor_fit(path: Path) -> Path:
    """Save a fit of several abilities."""
    from evalstats_plugin.irt import FactorOptions, fit_irt

    fit_irt(matrix(), "factor", options=FactorOptions(dimensions=2), rng=0).save(path)
    return path


def make_matrix(path: Path) -> Path:
    """Save a matrix of responses."""
    matrix().save(path)
    return path


def make_bank(path: Path) -> Path:
    """Save an item bank."""
    bank_of_twelve().save(path)
    return path


def make_store(path: Path) -> Path:
    """Save a store of responses."""
    from evalstats_plugin.data import write_store

    return write_store(path, matrix()).path


def _into(name: str, make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    return lambda folder: make(folder / name)


def _lm_eval(pattern: str, *, samples: bool) -> Callable[[Path], Path]:
    """Copy a run of lm-eval; its results, or samples, come first."""
    results = min(LM_EVAL.glob(f"{pattern}/results*.json"))
    beside = [p for p in sorted(results.parent.glob("*.jsonl")) if results.stem[8:] in p.name]
    chosen = [*[p for p in beside if samples][:1], results, *beside]
    return _copied(*dict.fromkeys(chosen))


def _exported(name: str) -> Callable[[Path], Path]:
    """Write responses as a table."""

    def make(folder: Path) -> Path:
        from evalstats_plugin import export, read

        export(read(LM_EVAL / "0.4.13" / "out_samples"), folder / name)
        return folder / name

    return make


def _one_log(path: Path) -> object:
    import evalstats_plugin

    return evalstats_plugin.read(path)


def _wide(path: Path) -> object:
    """Read a matrix with a row for each model."""
    import evalstats_plugin

    return evalstats_plugin.read(path, wide="models")


def _into_store(path: Path) -> object:
    """Turn a table into a response store."""
    from evalstats_plugin.data import store_table

    return store_table(path, path.parent / "out" / "store.parquet").matrix()


def bank_of_twelve() -> Any:
    """Give a small item bank."""
    from evalstats_plugin.adaptive.bank import ItemBank

    return ItemBank.from_arrays(np.full(12, 1.1), np.linspace(-2, 2, 12))


ABOUT = {"model": "m", "task": "t"}


def _make_answers(path: Path) -> Path:
    """Ask an adaptive test four items, and note where its log is."""
    from evalstats_plugin.adaptive.session import AdaptiveSession, AnswersFile

    bank = bank_of_twelve()
    file, session = AnswersFile(path, bank, ABOUT), AdaptiveSession(bank)
    for score in (1.0, 0.0, 1.0, 1.0):
        (place,) = session.next(1)
        session.record(int(place), score)
        file.append(session)
    file.note(log="log.eval")
    file.close()
    return path


def _resumed(path: Path) -> object:
    from evalstats_plugin.adaptive.session import AdaptiveSession, AnswersFile

    bank = bank_of_twelve()
    file = AnswersFile(path, bank, ABOUT)
    try:
        return AdaptiveSession.resume(bank, file.answers)
    finally:
        file.close()


def _recorded(path: Path) -> Any:
    from evalstats_plugin.adapters.lm_eval.adaptive.recording import Recording

    return Recording(path, ABOUT)


def _make_recording(path: Path) -> Path:
    """Keep what a model replied, in the three ways that lm-eval asks."""
    from evalstats_plugin.adapters.lm_eval.adaptive.recording import Place, Reply

    replies = {
        Place("t", 0, "loglikelihood", 0, 0): Reply("ab" * 16, ["2+2=", " 4"], [-0.5, True]),
        Place("t", 0, "loglikelihood_rolling", 0, 0): Reply("cd" * 16, None, -3.25),
        Place("t", 1, "generate_until", 0, 1): Reply("ef" * 16, ["2+2=", {"until": []}], "4"),
    }
    _recorded(path)._add(replies)
    return path


_DEFAULTS = """
[tool.evalstats-plugin]
confidence-level = 0.9
format = "json"
[tool.evalstats-plugin.report]
seed = 3
method = "wilson"
[tool.evalstats-plugin.rank.stats]
seed = 1
"""


def _defaults(path: Path) -> object:
    """Let a file set the defaults of every command."""
    import click

    from evalstats_plugin.cli import main
    from evalstats_plugin.cli.shell.options import defaults_for

    with main.make_context("x", ["report"]) as root:
        report, rank = (main.get_command(root, name) for name in ("report", "rank"))
        with click.Context(rank, parent=root, info_name="rank") as inner:
            stats = rank.get_command(inner, "stats")
            found = defaults_for(inner, "stats", stats, path.parent)
        return [*defaults_for(root, "report", report, path.parent), *found]


def _costs(path: Path) -> object:
    from evalstats_plugin.cli.adapt.bank import _costs

    return _costs(str(path), matrix())


def _filters(path: Path) -> object:
    from evalstats_plugin.adapters.lm_eval.replay.command import read_filters

    return read_filters((str(path),))


def _eval_set(path: Path) -> object:
    """Annotate a log beside the list of its set."""
    from evalstats_plugin.logs import annotating

    (log,) = path.parent.glob("*.eval")
    return annotating.annotate(log, in_place=True)


def _record(path: Path) -> object:
    """Read the record of an evaluation beside which its samples lie."""
    return _one_log(min(path.parent.glob("*.json")))


def make_table(path: Path) -> Path:
    """Write a table with a row for each answer."""
    import pandas as pd

    rows = [(m, i, (m + i) % 2) for m in range(4) for i in range(6)]
    frame = pd.DataFrame(rows, columns=["model", "item", "score"])
    frame = frame.astype({"model": str, "item": str, "score": float})
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".feather":
        frame.to_feather(path)
    else:
        frame.to_parquet(path)
    return path


def _list_of_logs(folder: Path) -> Path:
    """Copy a log, and list it as an eval set does."""
    from inspect_ai.log import read_eval_log

    log = Path(shutil.copy(min(INSPECT.glob("tiny_perfect/*.eval")), folder))
    header = read_eval_log(str(log), header_only=True)
    listed = {log.name: json.loads(header.model_dump_json(exclude_none=True))}
    (folder / "logs.json").write_text(json.dumps(listed))
    return folder / "logs.json"


_ROWS = [
    {"model_a": "x", "model_b": "y", "winner": "model_a", "judge": "j", "item": 1, "weight": 2},
    {"model_a": "y", "model_b": "z", "winner": "tie", "judge": "k", "item": 2, "weight": 1.5},
    {"model_a": "z", "model_b": "x", "winner": "model_b", "judge": "j", "item": 3, "weight": 1},
]
_CSV = ",".join(_ROWS[0]) + "\n" + "".join(",".join(map(str, r.values())) + "\n" for r in _ROWS)
_FULLRANK = {
    "items": ["a", "b", "c"],
    "prior_var": 1.0,
    "comparisons": [
        {"winner": 0, "loser": 1, "first": 1, "judge": "me", "time": "2026-11-21T00:00:00"},
        {"winner": 2, "loser": 1, "tie": True},
    ],
    "skipped": [{"first": 0, "second": 2}],
}


def _contests_parquet(path: Path) -> Path:
    import pandas as pd

    pd.DataFrame(_ROWS).to_parquet(path)
    return path


def _make_helm(folder: Path) -> Path:
    """Write a run of HELM of four instances."""
    name = {"name": "exact_match", "split": "test"}
    stats = [
        {"name": name, "count": 1, "sum": x, "sum_squared": x, "mean": x} for x in (0, 1, 1, 0)
    ]
    rows = [
        {"instance_id": f"id{i}", "train_trial_index": 0, "stats": [stat]}
        for i, stat in enumerate(stats)
    ]
    spec = {"name": "toy:model=m", "adapter_spec": {"model": "m", "max_train_instances": 5}}
    (folder / "run_spec.json").write_text(json.dumps(spec))
    (folder / "stats.json").write_text(json.dumps([{**stats[0], "mean": 0.5}]))
    path = folder / "per_instance_stats.json"
    path.write_text(json.dumps(rows))
    return path


def _make_lighteval(folder: Path) -> Path:
    """Write results of lighteval without details."""
    metric = {"metric_name": "em", "higher_is_better": True, "corpus_level_fn": "mean"}
    config = {"metric": [metric], "original_num_docs": 40, "effective_num_docs": 4}
    found = {
        "config_general": {"model_name": "m", "model_sha": "ab12", "lighteval_sha": "?"},
        "results": {"lighteval|gsm8k|5": {"em": 0.5, "em_stderr": 0.2886751345948129}},
        "versions": {"lighteval|gsm8k|5": 0},
        "config_tasks": {"lighteval|gsm8k": config},
    }
    path = folder / "results_2025-03-04T05-06-07.890123.json"
    path.write_text(json.dumps(found))
    return path


READERS: Mapping[str, Reader] = {
    "HELM": Reader(_make_helm, _log, [json_changed]),
    "lighteval": Reader(_make_lighteval, _log, [json_changed]),
    "DeepEval": Reader(_copied(min(LOGS.glob("deepeval/*/*"))), _log, [json_changed]),
    "simple-evals": Reader(_copied(min(LOGS.glob("simple_evals/*/*"))), _log, [json_changed]),
    "lm-eval results": Reader(
        _lm_eval("0.4.13/out_samples/*", samples=False), _log, [json_changed]
    ),
    "lm-eval samples": Reader(
        _lm_eval("0.4.13/out_samples/*", samples=True), _log, [lines_changed]
    ),
    "lm-eval groups": Reader(
        _lm_eval("0.4.13/out/models__m0", samples=False), _log, [json_changed]
    ),
    "lm-eval 0.4.2": Reader(_lm_eval("0.4.2", samples=False), _log, [json_changed]),
    "lm-eval 0.4.2 samples": Reader(_lm_eval("0.4.2", samples=True), _log, [json_changed]),
    "lm-eval texts": Reader(
        _lm_eval("0.4.13/out_samples/*", samples=True), _texts, [lines_changed]
    ),
    "lm-eval clusters": Reader(
        _lm_eval("0.4.13/out_samples/*", samples=True), _clustered, [lines_changed]
    ),
    "lm-eval written": Reader(
        _lm_eval("0.4.13/out_samples/*", samples=False), _annotated, [json_changed]
    ),
    "Inspect .eval": Reader(
        _copied(min(INSPECT.glob("tiny_perfect/*.eval"))), _log, [members_changed]
    ),
    "Inspect texts": Reader(
        _copied(min(INSPECT.glob("tiny_perfect/*.eval"))), _texts, [members_changed]
    ),
    "lm-eval replayed": Reader(
        _lm_eval("0.4.13/out_samples/*", samples=True), _replayed, [lines_changed]
    ),
    "lm-eval replayed results": Reader(
        _lm_eval("0.4.13/out_samples/*", samples=False), _replayed, [json_changed]
    ),
    "lm-eval votes": Reader(
        _copied(
            min(LM_EVAL.glob("0.4.13/out_pairs/*/samples_es_pairs*")),
            min(LM_EVAL.glob("0.4.13/out_pairs/*/results*")),
        ),
        _contests,
        [lines_changed],
    ),
    "Inspect votes": Reader(
        _copied(min(INSPECT.glob("pairwise/*.eval"))), _contests, [members_changed]
    ),
    "Inspect written": Reader(
        _copied(min(INSPECT.glob("tiny_perfect/*.eval"))), _annotated_header, [members_changed]
    ),
    "Inspect .json written": Reader(
        _copied(min(INSPECT.glob("json/*.json"))), _annotated_header, [json_changed]
    ),
    "Inspect .json": Reader(_copied(min(INSPECT.glob("json/*.json"))), _log, [json_changed]),
    "votes .csv": Reader(_written("votes.csv", _CSV), _contests, [cells_changed]),
    "votes .jsonl": Reader(
        _written("votes.jsonl", "".join(json.dumps(r) + "\n" for r in _ROWS)),
        _contests,
        [lines_changed],
    ),
    "votes .json": Reader(_written("votes.json", json.dumps(_ROWS)), _contests, [json_changed]),
    "votes of Fullrank": Reader(
        _written("comparisons.json", json.dumps(_FULLRANK)), _contests, [json_changed]
    ),
    "votes .parquet": Reader(_into("votes.parquet", _contests_parquet), _contests, [table_changed]),
    "answers of a judge": Reader(
        _written("comparisons.json", json.dumps(_FULLRANK)), _session, [json_changed]
    ),
    "items to judge": Reader(
        _written("items.json", json.dumps([{"name": "a", "text": "b"}, {"text": "c"}, "d"])),
        _judged_items,
        [json_changed],
    ),
    "IRT fit": Reader(_into("fit.parquet", make_fit), _fit, [table_changed]),
    "IRT factor fit": Reader(_into("fit.parquet", make_factor_fit), _fit, [table_changed]),
    "item bank": Reader(_into("bank.parquet", make_bank), _bank, [table_changed]),
    "response store": Reader(_into("store.parquet", make_store), _store, [table_changed]),
    "response matrix": Reader(_into("matrix.parquet", make_matrix), _matrix, [table_changed]),
    "Every Eval Ever": Reader(
        _copied(min(EVERY_EVAL_EVER.glob("*.json")), min(EVERY_EVAL_EVER.glob("*.jsonl"))),
        _record,
        [json_changed],
    ),
    "Every Eval Ever samples": Reader(
        _copied(min(EVERY_EVAL_EVER.glob("*.jsonl")), min(EVERY_EVAL_EVER.glob("*.json"))),
        _record,
        [lines_changed],
    ),
    "scores .csv": Reader(_exported("t.csv"), _one_log, [cells_changed]),
    "scores .jsonl": Reader(_exported("t.jsonl"), _one_log, [lines_changed]),
    "scores .parquet": Reader(_exported("t.parquet"), _one_log, [table_changed]),
    "scores .tsv": Reader(_exported("t.tsv"), _one_log, [cells_changed]),
    "scores of py-irt": Reader(
        _written(
            "t.jsonl",
            '{"subject_id": "a", "responses": {"i1": 1, "i2": 0}}\n'
            '{"subject_id": "b", "responses": {"i1": 0, "i2": 0}}\n',
        ),
        _one_log,
        [lines_changed],
    ),
    "scores in a matrix": Reader(
        _written("t.csv", "model,i1,i2,i3\na,1,0,1\nb,0.5,,1\nc,1,1,0\n"), _wide, [cells_changed]
    ),
    "answers .csv": Reader(_into("t.csv", make_table), _into_store, [cells_changed]),
    "answers .parquet": Reader(_into("t.parquet", make_table), _into_store, [table_changed]),
    "answers .feather": Reader(_into("t.feather", make_table), _into_store, []),
    "Every Eval Ever written": Reader(
        _copied(min(EVERY_EVAL_EVER.glob("*.json")), min(EVERY_EVAL_EVER.glob("*.jsonl"))),
        _annotated,
        [json_changed],
    ),
    "answers of an adaptive test": Reader(
        _into("state.jsonl", _make_answers), _resumed, [lines_changed]
    ),
    "replies of a model": Reader(
        _into("replies.jsonl", _make_recording), _recorded, [lines_changed]
    ),
    "defaults": Reader(_written("pyproject.toml", _DEFAULTS), _defaults, [toml_changed]),
    "costs of items": Reader(
        _written("costs.csv", "item,cost\n" + "".join(f"item_{i},{i}\n" for i in range(12))),
        _costs,
        [cells_changed],
    ),
    "filters": Reader(
        _written(
            "filter.yaml",
            "filter_list:\n  - name: strict\n    filter:\n      - function: regex\n"
            "        regex_pattern: '#### (-?[0-9.,]+)'\n      - function: take_first\n",
        ),
        _filters,
        [lines_changed],
    ),
    "Inspect eval set": Reader(_list_of_logs, _eval_set, [json_changed]),
    "labels .csv": Reader(
        _written("labels.csv", "item,score\n1,0.5\n2,1\n3,\n"), _labels, [cells_changed]
    ),
    "labels .jsonl": Reader(
        _written("labels.jsonl", '{"item": 1, "score": 0.5}\n{"item": 2, "score": 1}\n'),
        _labels,
        [lines_changed],
    ),
    "covariates": Reader(
        _written("c.csv", "model,size\na,7\nb,70\n"), _covariates, [cells_changed]
    ),
}


NEEDED = {
    **dict.fromkeys(("IRT fit", "IRT factor fit"), "torch"),
    **dict.fromkeys(
        # Written to, which an older Inspect does not do to logs of it.
        ("Inspect eval set", "Inspect written", "Inspect .json written"),
        "inspect_ai>=0.3.285",
    ),
}
NEVER_REFUSED = {"Inspect eval set"}
"""A damaged list of logs is left alone; the log itself is annotated."""
SECONDS = 10
"""Longest that reading a small file may take; it takes milliseconds."""


@contextmanager
def _in_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        msg = f"reading a small file took more than {SECONDS} s"
        raise TimeoutError(msg)

    # CPU seconds of busy readers, and seconds of the clock of those that wait for something.
    before = [signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(12 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


def outcome(reader: Reader, path: Path) -> str:
    """Read a file; return "read" or "refused". Anything else is raised."""
    with _in_time(), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            reader.read(path)
        except PluginError:
            # An exception that nobody expected, wrapped.
            raise
        except EvalStatsError as error:
            return "refused" if str(error) else "refused without a word"
    return "read"

"""Every writer of the package, on small files, as the command line or a caller would use it."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zipfile import ZipFile

from readers import (
    ABOUT,
    EVERY_EVAL_EVER,
    INSPECT,
    LM_EVAL,
    bank_of_twelve,
    make_bank,
    make_fit,
    make_matrix,
    make_table,
    matrix,
)

Files = dict[str, Any]


def files_in(folder: Path) -> Files:
    """Return the content of the files of a folder, but for the times that are written in them."""
    return {
        str(p.relative_to(folder)): timeless(p.read_bytes())
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not any(part.startswith(".") for part in p.relative_to(folder).parts)
    }


@dataclass(frozen=True)
class Writer:
    """Something that writes: how its folder looks before, and what is done to it."""

    make: Callable[[Path], object]
    work: Callable[[Path], object]
    seen: Callable[[Path], Files] = files_in
    """What is in the folder, as those see it who read it."""


def timeless(content: bytes) -> Any:
    """Return content without the times of edits; of an archive, what its members hold."""
    if content[:2] == b"PK":
        # Which teaches zipfile to read what it compresses.
        import_module("inspect_ai.log")
        with ZipFile(io.BytesIO(content)) as archive:
            return {name: timeless(archive.read(name)) for name in archive.namelist()}
    return re.sub(rb'("time(?:stamp)?": ?)"[^"]*"', rb'\1""', content)


def left_over(folder: Path) -> list[str]:
    """Return the hidden files of a folder."""
    return sorted(p.name for p in folder.rglob(".*"))


def _command(*arguments: str) -> Callable[[Path], object]:
    """Run a command; its last argument is the folder."""

    def work(folder: Path) -> object:
        from evalstats_plugin.cli import main

        return main([*arguments, str(folder)], prog_name="evalstats-plugin")

    return work


def _run_of_lm_eval(folder: Path) -> None:
    for path in (LM_EVAL / "0.4.13" / "out_samples" / "models__m2").iterdir():
        shutil.copy(path, folder)


def _copied(pattern: str, *more: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        for each in (pattern, *more):
            shutil.copy(min(INSPECT.glob(each)), folder)

    return make


def _with_manifest(folder: Path) -> None:
    """Make an eval set: a log, and the list of logs beside it."""
    import json

    from inspect_ai.log import read_eval_log

    log = Path(shutil.copy(min(INSPECT.glob("tiny_perfect/*.eval")), folder))
    header = read_eval_log(str(log), header_only=True)
    listed = {log.name: json.loads(header.model_dump_json(exclude_none=True))}
    (folder / "logs.json").write_text(json.dumps(listed))


def _annotated(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Make logs, and annotate them."""

    def both(folder: Path) -> None:
        from evalstats_plugin import annotate

        make(folder)
        annotate(folder, in_place=True)

    return both


def _votes(name: str) -> Callable[[Path], object]:
    def work(folder: Path) -> object:
        from evalstats_plugin.ranking.contests.files import read_contests, write_contests

        (source,) = folder.glob("source.csv")
        return write_contests(read_contests(source), folder / name)

    return work


def _source(folder: Path) -> None:
    (folder / "source.csv").write_text("winner,loser\na,b\nb,c\n")


def _answered(folder: Path) -> object:
    from evalstats_plugin.ranking.judging.session import Session

    session = Session.open(folder / "answers.json", ["a", "b", "c"])
    session.answer(0, 1, 1.0)
    return session


def _one_answer(folder: Path) -> object:
    from evalstats_plugin.ranking.judging.session import Session

    return Session.open(folder / "answers.json").undo()


def _stored(folder: Path) -> object:
    from evalstats_plugin.data import write_store

    return write_store(folder / "store.parquet", matrix())


def _table_stored(folder: Path) -> object:
    from evalstats_plugin.data import store_table

    return store_table(folder / "table.csv", folder / "new" / "store.parquet")


def _drawn(name: str) -> Callable[[Path], object]:
    """Draw a small figure once, so that only writing is done at each step."""
    made: list[Any] = []

    def work(folder: Path) -> object:
        from evalstats_plugin import intervals, read
        from evalstats_plugin.report.figures.canvas import save
        from evalstats_plugin.report.figures.scores import plot_forest

        if not made:
            responses = read(LM_EVAL / "0.4.13" / "out", task="es_mc", metric="acc")
            made.append(plot_forest(intervals(responses)).figure)
        return save(made[0], folder / name)

    return work


def _exported(name: str, **options: Any) -> Callable[[Path], object]:
    def work(folder: Path) -> object:
        from evalstats_plugin import export, read

        responses = read(LM_EVAL / "0.4.13" / "out_samples", metric="acc")
        return export(responses, folder / name, overwrite=True, **options)

    return work


def _page(folder: Path) -> object:
    log = min((LM_EVAL / "0.4.13" / "out_samples").glob("*/results*.json"))
    arguments = ("report", "--quiet", "--overwrite", "-m", "acc", "--html")
    return _command(*arguments, str(folder / "page.html"))(log)


def _verdict(folder: Path) -> object:
    only = ("-t", "es_mc", "-m", "acc", "--models", "models/m0,models/m1")
    arguments = ("gate", "-q", "--overwrite", *only, "--baseline", "models/m0", "--junit")
    return _command(*arguments, str(folder / "gate.xml"))(LM_EVAL / "0.4.13" / "out")


def _references(folder: Path) -> object:
    only = ("-t", "es_mc", "-m", "acc", "--models", "models/m0,models/m1")
    arguments = ("table", "-q", "--overwrite", *only, "--bib", str(folder / "table.bib"))
    return _command(*arguments)(LM_EVAL / "0.4.13" / "out")


def _to_label(folder: Path) -> object:
    only = ("-t", "es_mc", "--models", "models/m0,models/m1", "--judge", "acc", "--next", "10")
    arguments = ("judge", "label", "-q", "--overwrite", *only, "--to", str(folder / "next.csv"))
    return _command(*arguments)(LM_EVAL / "0.4.13" / "out")


_FIGURES_OF_A_PAPER: dict[Any, bytes] = {}


def _paper(folder: Path) -> object:
    """Draw its figures once, so that the rest is done at each step."""
    from evalstats_plugin import paper, read
    from evalstats_plugin.report.paper import folder as paper_folder

    draw = paper_folder._drawn

    def drawn(plot: Any, shown: Any, **options: Any) -> bytes:
        if plot not in _FIGURES_OF_A_PAPER:
            _FIGURES_OF_A_PAPER[plot] = draw(plot, shown, **options)
        return _FIGURES_OF_A_PAPER[plot]

    responses = read(LM_EVAL / "0.4.13" / "out", task="es_mc", metric="acc")
    with patch.object(paper_folder, "_drawn", drawn):
        return paper(responses, folder, overwrite=True)


def _draws(folder: Path) -> object:
    arguments = ("rank", "sample", "--quiet", "--overwrite", "--draws", "20")
    return _command(*arguments, str(folder / "source.csv"))(folder / "draws.jsonl")


def _evaluation(folder: Path) -> None:
    for path in EVERY_EVAL_EVER.iterdir():
        shutil.copy(path, folder)


_STATE = "state.jsonl"


def _answer(folder: Path, n: int) -> object:
    """Answer items of an adaptive test until there are so many answers."""
    from evalstats_plugin.adaptive.session import AdaptiveSession, AnswersFile

    bank = bank_of_twelve()
    file = AnswersFile(folder / _STATE, bank, ABOUT)
    try:
        session = AdaptiveSession.resume(bank, file.answers, rng=0)
        while session.n < n:
            session.record(int(session.next(1)[0]), 1.0)
            file.append(session)
    finally:
        file.close()
    return file.answers


def _answers(folder: Path) -> Files:
    return {_STATE: _answer(folder, 0)}


def _reply(folder: Path, n: int) -> Any:
    """Note what a model replied until there are so many replies."""
    from evalstats_plugin.adapters.lm_eval.adaptive.recording import Place, Recording, Reply

    file = Recording(folder / _STATE, ABOUT)
    for row in range(len(file._known), n):
        file._add({Place("t", row, "generate_until", 0, 0): Reply("ab" * 16, ["2+2="], "4")})
    return file._known


def _replies(folder: Path) -> Files:
    return {_STATE: _reply(folder, 0)}


def _saved(make: Callable[[Path], Path], name: str) -> Callable[[Path], object]:
    """Save what was made before, so that only writing is done at each step."""
    made: dict[str, Any] = {}

    def work(folder: Path) -> object:
        if name not in made:
            scratch = folder.parent / f"made-{name}"
            made[name] = _LOAD[name](make(scratch))
        return made[name].save(folder / name)

    return work


def _load_fit(path: Path) -> Any:
    from evalstats_plugin.irt.model.fit import load_fit

    return load_fit(path)


def _load_bank(path: Path) -> Any:
    from evalstats_plugin.adaptive.bank import ItemBank

    return ItemBank.load(path)


def _load_matrix(path: Path) -> Any:
    from evalstats_plugin.data.matrix import ResponseMatrix

    return ResponseMatrix.load(path)


_LOAD: Mapping[str, Callable[[Path], Any]] = {
    "fit.parquet": _load_fit,
    "bank.parquet": _load_bank,
    "matrix.parquet": _load_matrix,
}


def _without_time(folder: Path) -> Files:
    """Return files in which the time of writing stands."""
    return {
        name: re.sub(rb'(?<="retrieved_timestamp": )"[^"]*"|[0-9-]{10} [0-9:]{5} UTC', b"", content)
        for name, content in files_in(folder).items()
    }


def _something_older(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(b"older")


def _run_without_values(folder: Path) -> None:
    """Make a log in a folder of its own, to be scored again."""
    (folder / "in").mkdir()
    for path in (LM_EVAL / "0.4.13" / "out_samples" / "models__m2").iterdir():
        shutil.copy(path, folder / "in")


def _scored_again(folder: Path) -> object:
    arguments = ("rescore", "-t", "es_mc", "--overwrite", "--bootstrap-iters", "0", "-o")
    return _command(*arguments, str(folder / "out"))(folder / "in")


def _rescored(folder: Path) -> Files:
    """Return files without the times of scoring."""
    times = re.compile(rb'"(?:start_time|end_time|total_evaluation_time_seconds|date)": [^,]*')
    return {name: times.sub(b"", content) for name, content in files_in(folder).items()}


_tiny = _copied("tiny_perfect/*.eval")
_json = _copied("json/*.json")

WRITERS: Mapping[str, Writer] = {
    "lm-eval annotate": Writer(_run_of_lm_eval, _command("annotate", "--in-place")),
    "lm-eval strip": Writer(
        _annotated(_run_of_lm_eval), _command("annotate", "--in-place", "--strip")
    ),
    "rescore": Writer(_run_without_values, _scored_again, _rescored),
    "fit": Writer(_something_older("fit.parquet"), _saved(make_fit, "fit.parquet")),
    "new fit": Writer(lambda _: None, _saved(make_fit, "fit.parquet")),
    "bank": Writer(_something_older("bank.parquet"), _saved(make_bank, "bank.parquet")),
    "matrix": Writer(_something_older("matrix.parquet"), _saved(make_matrix, "matrix.parquet")),
    "response store": Writer(_something_older("store.parquet"), _stored),
    "table into a store": Writer(lambda folder: make_table(folder / "table.csv"), _table_stored),
    "figure .svg": Writer(_something_older("figure.svg"), _drawn("figure.svg")),
    "figure .pdf": Writer(_something_older("figure.pdf"), _drawn("figure.pdf")),
    "figure .png": Writer(lambda _: None, _drawn("figure.png")),
    "page": Writer(_something_older("page.html"), _page, _without_time),
    "references": Writer(_something_older("table.bib"), _references),
    "answers to label": Writer(_something_older("next.csv"), _to_label),
    "paper": Writer(_something_older("table.tex"), _paper),
    "verdict": Writer(_something_older("gate.xml"), _verdict),
    "export .csv": Writer(_something_older("t.csv"), _exported("t.csv")),
    "export .jsonl": Writer(_something_older("t.jsonl"), _exported("t.jsonl")),
    "export .parquet": Writer(_something_older("t.parquet"), _exported("t.parquet")),
    "export of a matrix": Writer(lambda _: None, _exported("m.parquet", matrix=True)),
    "export to Every Eval Ever": Writer(
        lambda _: None, _exported("eee", to="every-eval-ever"), _without_time
    ),
    "Every Eval Ever annotate": Writer(_evaluation, _command("annotate", "--in-place")),
    "Every Eval Ever strip": Writer(
        _annotated(_evaluation), _command("annotate", "--in-place", "--strip")
    ),
    "draws of ratings": Writer(_source, _draws),
    "answers of an adaptive test": Writer(
        lambda folder: _answer(folder, 2), lambda folder: _answer(folder, 3), _answers
    ),
    "replies of a model": Writer(
        lambda folder: _reply(folder, 2), lambda folder: _reply(folder, 3), _replies
    ),
    "votes .csv": Writer(_source, _votes("votes.csv")),
    "votes .parquet": Writer(_source, _votes("votes.parquet")),
    "votes of Fullrank": Writer(_source, _votes("comparisons.json")),
    "answer of a judge": Writer(_answered, _one_answer),
    "Inspect annotate .eval": Writer(_tiny, _command("annotate", "--in-place")),
    "Inspect strip .eval": Writer(_annotated(_tiny), _command("annotate", "--in-place", "--strip")),
    "Inspect items .eval": Writer(_tiny, _command("annotate", "--in-place", "--items", "columns")),
    "Inspect annotate .json": Writer(_json, _command("annotate", "--in-place")),
    "Inspect eval set": Writer(_with_manifest, _command("annotate", "--in-place")),
}

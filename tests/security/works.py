"""What reads: commands and functions, on what of the fixtures each is tried, and under watch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOGS = FIXTURES / "logs"

Work = Sequence[str] | str
"""Arguments of the command line, in which FOLDER stands for the folder; or a function's name."""

EVERYWHERE: tuple[Work, ...] = ("es.read", ["report", "FOLDER"], ["check", "FOLDER"])
"""What is tried on each folder, whatever lies in it."""

_ONE = ("FOLDER", "-m", "acc", "-m", "match")
"""One metric of each task, in the fixtures of either harness."""

COMMANDS: tuple[Work, ...] = (
    *EVERYWHERE,
    "es.intervals",
    "es.compare",
    "es.table",
    "es.fit_irt",
    "es.compare_items",
    ["report", *_ONE, "--html", "FREE/page.html", "--overwrite"],
    ["report", *_ONE, "--figure", "forest", "-o", "FREE/forest.svg", "--overwrite"],
    ["compare", "FOLDER", "--format", "csv"],
    ["table", "FOLDER", "--format", "latex"],
    ["paper", *_ONE, "-o", "FREE/paper", "--overwrite"],
    ["gate", *_ONE, "-t", "es_mc", "--baseline", "models/m0"],
    ["power", *_ONE],
    ["noise", "FOLDER", "-t", "es_mc"],
    ["judge", "score", "FOLDER", "-t", "es_mc", "--judge", "acc", "--human", "acc_norm"],
    [
        "judge",
        "label",
        "FOLDER",
        "-t",
        "es_mc",
        "--judge",
        "acc",
        "--to",
        "FREE/next.csv",
        "--overwrite",
    ],
    ["irt", "fit", *_ONE, "--save", "FREE/fit.parquet", "--overwrite"],
    ["irt", "score", *_ONE, "--bank", "FREE/fit.parquet"],
    ["irt", "link", *_ONE, "--to", "FREE/fit.parquet"],
    ["irt", "items", *_ONE],
    ["irt", "new-items", *_ONE, "-t", "es_mc", "--features", "FREE/features.csv"],
    ["adapt", "bank", *_ONE, "-t", "es_mc", "-o", "FREE/bank.parquet", "--overwrite"],
    ["adapt", "replay", *_ONE, "-t", "es_mc", "--bank", "FREE/bank.parquet"],
    ["rank", "models", *_ONE],
    ["export", *_ONE, "-o", "FREE/table.csv", "--overwrite"],
    ["annotate", "FOLDER", "-o", "FREE/copies", "--overwrite"],
)
"""All, for logs; where a folder has nothing for one of them, its error is what is tried. Those
that write, write to another place, and leave the logs as they are."""

SLOW: tuple[Work, ...] = (
    ["pool", *_ONE, "-t", "es_mc"],
    ["irt", "capabilities", *_ONE],
    ["irt", "holdout", *_ONE],
    ["irt", "choose", *_ONE, "--candidate", "rasch", "--draws", "1"],
)
"""The same, of which each takes seconds."""

OF_TABLES: tuple[Work, ...] = (
    ["report", "FOLDER", "--wide", "items"],
    ["irt", "dif", "FOLDER", "--wide", "items", "--focal", "*mini*"],
)

OF_VOTES: tuple[Work, ...] = (
    "es.read_contests",
    ["rank", "stats", "FOLDER"],
    ["rank", "leaderboard", "FOLDER"],
    ["rank", "next", "FOLDER"],
    ["rank", "sample", "FOLDER", "FREE/draws.jsonl", "--draws", "20", "--overwrite"],
)

VOTES = FIXTURES / "data" / "drinks" / "comparisons.json"
TABLE = FIXTURES / "data" / "no_clt" / "no_clt_matharena_aimeII_15x4.csv"


Watch = Callable[..., list[dict[str, Any]]]


def watcher(run: Callable[..., Any], root: Path) -> Watch:
    """Return what runs jobs in a process of its own, which may write to one folder below root."""
    free = root / "free"
    (free / "home").mkdir(parents=True)
    # Features of the items of a task, and of some more.
    lines = ["item,length", *(f"{i},{(7 * i) % 11}" for i in range(70))]
    (free / "features.csv").write_text("\n".join(lines) + "\n")

    def watch(
        jobs: Iterable[tuple[Path, Work]],
        *,
        confine: bool = True,
        inside: Path | None = None,
        **environment: str,
    ) -> list[dict[str, Any]]:
        request = root / "request.json"
        asked: dict[str, Any] = {
            "jobs": [(str(folder), work) for folder, work in jobs],
            "free": [str(free)],
            "confine": confine,
            **({} if inside is None else {"inside": str(inside)}),
        }
        request.write_text(json.dumps(asked))
        done = run(
            request,
            module="watching",
            folder=root,
            PYTHONPATH=str(Path(__file__).parent),
            HOME=str(free / "home"),
            MPLCONFIGDIR="",
            **environment,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return watch


def changes(results: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what jobs changed or started, but for the one program that figures start."""
    return [
        (r["work"], r["folder"], *event)
        for r in results
        for event in r["events"]
        # Matplotlib asks for the fonts of the system, once.
        if not ("--figure" in r["work"] and event[1].startswith("('fc-list',"))
    ]


def folders_of_logs() -> list[Path]:
    """Return the folders of the fixtures that hold logs, and those above them."""
    return sorted({path.parent for path in LOGS.rglob("*") if path.is_file()})

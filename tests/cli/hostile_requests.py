"""What a pull request may add to a repository, to have a gate pass a candidate that is worse."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

HEADING = "model,task,item,score"

PROTOCOL = """baseline = "release"
baseline-logs = ["release"]
metric = ["score"]
margin = "2%"
"""


def lines(model: str, right: int, *, n: int = 100, task: str = "t") -> list[str]:
    """Return rows of a table: so many of ten items right."""
    return [f"{model},{task},{i},{int(i % 10 < right)}" for i in range(n)]


def write(path: Path, rows: Iterable[str], heading: str = HEADING) -> None:
    """Write a log as a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([heading, *rows, ""]))


def release(repository: Path) -> None:
    """Lay out the base branch: the protocol, and the logs of the baseline."""
    write(repository / "evals" / "release" / "release.csv", lines("release", 9))
    (repository / "evals" / "gate.toml").write_text(PROTOCOL)


LOGS = Path("logs", "candidate")


def candidate(repository: Path) -> None:
    """Add the honest logs of a candidate that lost four answers of ten."""
    write(repository / LOGS / "candidate.csv", lines("candidate", 5))


def _config(text: str) -> Callable[[Path], None]:
    return lambda here: (here / "pyproject.toml").write_text(text) and None


def _more(*rows: str, name: str = "more.csv", heading: str = HEADING) -> Callable[[Path], None]:
    return lambda here: write(here / LOGS / name, rows, heading)


def _instead(*rows: str, heading: str = HEADING) -> Callable[[Path], None]:
    return _more(*rows, name="candidate.csv", heading=heading)


def _each(column: str, value: object) -> Callable[[Path], None]:
    return _instead(
        *(f"{row},{value}" for row in lines("candidate", 5)), heading=f"{HEADING},{column}"
    )


def _linked(to: str, name: str) -> Callable[[Path], None]:
    def link(here: Path) -> None:
        path = here / LOGS / name
        if path.is_file():
            path.unlink()
        path.symlink_to(os.path.relpath(here / to, path.parent))

    return link


def _pipe(here: Path) -> None:
    os.mkfifo(here / LOGS / "a.csv")


def _journal(here: Path) -> None:
    (here / LOGS / ".evalstats-0.undo").write_text('{"files": [["../../evals/gate.toml", null]]}')
    (here / LOGS / ".evalstats-0.commit").write_text("{}")


def _monitor(here: Path) -> None:
    # As code of the candidate could, that ran in this job.
    script = here / "monitor"
    script.write_text(f"#!/bin/sh\ntouch {here / 'hacked'}\n")
    script.chmod(0o755)
    with (here / ".git" / "config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = {script}\n\thooksPath = {here}\n")


def _protocol(text: str) -> Callable[[Path], None]:
    return lambda here: (here / "evals" / "gate.toml").write_text(text) and None


RIGHT = tuple(row for row in lines("candidate", 5) if row.endswith(",1"))
"""What the candidate got right."""

ATTEMPTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "nothing": (lambda _: None, "regressed"),
    "config: the level, the metric and the margin": (
        _config(
            "[tool.evalstats-plugin]\nconfidence-level = 0.9999999999\nquiet = true\n"
            '[tool.evalstats-plugin.gate]\nmargin = 0.9\nmetric = "other"\nmodels = "release"\n'
        ),
        "regressed",
    ),
    "config that is not TOML": (_config("[tool.evalstats-plugin\n"), "regressed"),
    "another protocol": (_protocol(PROTOCOL.replace("2%", "90%")), "regressed"),
    "no protocol": (lambda here: (here / "evals" / "gate.toml").unlink(), "regressed"),
    "worse logs of the baseline, in their place": (
        lambda here: write(here / "evals" / "release" / "release.csv", lines("release", 2)),
        "regressed",
    ),
    "another run of the baseline": (_more(*lines("release", 2)), "regressed"),
    "the candidate calls itself the baseline": (_instead(*lines("release", 5)), "refused"),
    "a better run besides": (_more(*lines("candidate", 9)), "refused"),
    "a better run, earlier": (_more(*lines("candidate", 9), name="a.csv"), "refused"),
    "three items": (_instead(*RIGHT[:3]), "inconclusive"),
    "only items that are right": (_instead(*RIGHT), "inconclusive"),
    "no score of what is wrong": (
        _instead(*(row.removesuffix(",0") + "," * row.endswith(",0")
                   for row in lines("candidate", 5))),
        "inconclusive",
    ),
    "answered again": (_instead(*lines("candidate", 5), *RIGHT, *RIGHT), "refused"),
    "hundreds of other models": (
        _more(*(row for k in range(60) for row in lines(f"other{k}", 9))), "refused"
    ),
    "hundreds of other tasks": (
        _more(*(row for k in range(60) for row in lines("candidate", 9, task=f"o{k}"))),
        "regressed",
    ),
    "another name of the task": (_instead(*lines("candidate", 5, task="T")), "refused"),
    "lower scores are better": (_each("higher_is_better", "false"), "refused"),
    "another scale": (
        _instead(*(f"{row}00" for row in lines("candidate", 5))), "refused"
    ),
    "one cluster": (_each("cluster", "all"), "regressed"),
    "a wider range of the scores": (
        _instead(
            *(f"{row},0,1000" for row in lines("candidate", 5)),
            heading=f"{HEADING},min_score,max_score",
        ),
        "regressed",
    ),
    "better in another metric": (
        _instead(
            *(f"{row},score" for row in lines("candidate", 5)),
            *(f"{row},other" for row in lines("candidate", 10)),
            heading=f"{HEADING},metric",
        ),
        "regressed",
    ),
    "a link to the baseline": (_linked("evals/release/release.csv", "candidate.csv"), "refused"),
    "a link to a folder": (_linked("evals", "more"), "regressed"),
    "a file named like an option": (_more(name="--margin=1.csv"), "refused"),
    "a log that is cut off": (
        lambda here: (here / LOGS / "x.json").write_text('{"version": 2, "eval": {') and None,
        "regressed",
    ),
    "a pipe": (_pipe, "regressed"),
    "a journal of an interrupted write": (_journal, "regressed"),
    "base files left out of archives": (
        lambda here: (here / ".gitattributes").write_text("evals/** export-ignore\n") and None,
        "regressed",
    ),
    "a monitor in the repository's configuration": (_monitor, "regressed"),
}  # fmt: skip
"""By what is tried: what it adds, and what comes of it; never ``"pass"``."""

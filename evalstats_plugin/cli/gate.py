"""``evalstats-plugin gate``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from evalstats_plugin.cli.shell.options import OF_ONE_SCORE, Command, Intervals, file, takes, under
from evalstats_plugin.cli.shell.running import Run, on_logs

_decided = under("What is decided")

EXIT_CODES = {"pass": 0, "regressed": 3, "inconclusive": 4}
"""2 is bad input, as everywhere."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is decided, and against what."""

    baseline: str = _decided(
        "Model that the others, the candidates, must not fall behind.",
        metavar="MODEL", required=True,
    )  # fmt: skip
    margin: float = _decided(
        "Drop that is acceptable, in units of the score.", default=0.0, metavar="DROP"
    )
    non_inferior: bool = _decided(
        "Pass only what is shown not to drop by more than the margin; without it, a candidate "
        "passes unless such a drop is shown.",
        default=False,
    )
    junit: str | None = file("Also write JUnit XML, which CI systems show.")


@click.command(cls=Command)
@takes("asked", Options)
@takes("intervals", Intervals, without=(*OF_ONE_SCORE, "missing"))
@on_logs()
def gate(run: Run, *, asked: Options, intervals: Intervals) -> None:
    """Decide whether models may be released: PASS, REGRESSED or INCONCLUSIVE.

    Exit code 0: every candidate passes on every task. 3: a drop is shown beyond chance. 4: neither
    is shown, or something was not compared; the table says how many items would decide.

    One decision is made of all tasks and groups at once: of equal models, no more than 5 in 100
    are called regressed, however many tasks there are (with the default level).
    """
    from evalstats_plugin.comparisons.gating import gate as decide
    from evalstats_plugin.comparisons.methods import PAIRED
    from evalstats_plugin.report import gating
    from evalstats_plugin.runtime.writing import check_output_path, write_bytes

    if asked.junit is not None:
        check_output_path(asked.junit, (".xml",), asked="--junit")
    method = intervals.chosen(run.plugins, PAIRED)
    results = decide(
        run.read(),
        baseline=asked.baseline,
        margin=asked.margin,
        non_inferior=asked.non_inferior,
        confidence_level=intervals.confidence_level,
        method=method,
        bounds=intervals.bounds,
        rng=intervals.seed,
    )
    if asked.junit is not None:
        write_bytes(Path(asked.junit), gating.gate_junit(results).encode())
    how = {
        "baseline": asked.baseline,
        "margin": asked.margin,
        "non_inferior": asked.non_inferior,
        **intervals.how(),
    }
    # Of a log that was left out (exit code 1 elsewhere), the decision says that it is missing.
    with suppress(click.exceptions.Exit):
        run.show(results, how, gating.GATE)
    raise click.exceptions.Exit(EXIT_CODES[results.decision])

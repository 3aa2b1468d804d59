"""``evalstats-plugin noise``: by how much a score moves when nothing changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evalstats_plugin.cli.shell.options import command, level, takes, under
from evalstats_plugin.cli.shell.running import Run, on_logs


@dataclass(frozen=True, kw_only=True)
class NoiseOptions:
    """Whose scores, and how sure the least difference is."""

    judge: tuple[str, ...] = under("Judges")(
        "Metric of a judge who scored the same answers as another; give two or more: their mean is "
        "the score, and what they differ by a part of its noise.", default=(), metavar="METRIC",
    )  # fmt: skip
    confidence_level: float = level()


@command(
    ("logs/", "Repeated runs, or runs with several epochs, of any models"),
    ("logs/ --task gsm8k --metric acc", "One task under one metric"),
)
@takes("asked", NoiseOptions)
@on_logs()
def noise(run: Run, *, asked: NoiseOptions) -> None:
    """Say by how much two runs of the same model differ, and what would help.

    PATHS hold logs with several epochs, or several runs of one model on one task, all of which are
    used. The variance of an answer is taken apart into items, repeats in one run, runs and judges.
    """
    from evalstats_plugin.report.noise import NOISE
    from evalstats_plugin.scores.noise import noise as of_runs

    reading = replace(run.reading, runs="all")
    responses = replace(run, reading=reading).read(repeats=True)
    results = of_runs(responses, judges=asked.judge, confidence_level=asked.confidence_level)
    run.output.show(results, {"confidence_level": asked.confidence_level}, NOISE)

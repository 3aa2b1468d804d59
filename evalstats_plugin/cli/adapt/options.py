"""Options of every command that runs an adaptive test, or that simulates one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.cli.shell import shared
from evalstats_plugin.cli.shell.options import Name, picked, under
from evalstats_plugin.cli.shell.running import Output, progress_on_work
from evalstats_plugin.errors import counted
from evalstats_plugin.runtime.untrusted import echo

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.bank import ItemBank
    from evalstats_plugin.adaptive.plan import Plan
    from evalstats_plugin.adaptive.session import AdaptiveSession


RULES = ("auto", "design", "random", "information")
"""Names of `evalstats_plugin.adaptive.selection`, which costs NumPy; a test compares."""


_asked, _run = under("What is asked"), under("What is run")
_stops, _goes = under("When it stops"), under("How items are chosen")


def bank() -> Any:
    """Return the field of the item bank."""
    return _asked(
        "Item bank made by `adapt bank`.", required=True, type=click.Path(), metavar="FILE"
    )


def state(default: str) -> Any:
    """Return the field of where answers are kept; `default` says where else."""
    return _run(
        "Answers so far, from which a test that was stopped goes on.  "
        f"[default: {default} removed at the end]",
        type=click.Path(path_type=Path), metavar="FILE",
    )  # fmt: skip


def name_of(asked: Any, names: Sequence[str], *more: str) -> str:
    """Return a hash of what distinguishes tests whose state files are in one folder."""
    text = json.dumps([*more, *(getattr(asked, name) for name in names)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Planning:
    """An adaptive test: what it asks, and when it stops."""

    bank: str = bank()
    stop_at: float | None = _stops(
        "Stop once the standard error of the ability is at most this.  [default for --goal "
        "ability: 0.3]",
        metavar="SE",
    )
    reliability: float | None = _stops(
        "Stop once the reliability of the ability reaches this, such as 0.9.", metavar="R"
    )
    information: float | None = _stops(
        "Stop once the log determinant of the abilities' precision has grown by this, such as 2.3 "
        "for each ability of the bank (reliability .9).",
        metavar="X",
    )
    score_width: float | None = _stops(
        "Stop once the interval of the full score is at most this wide.  [default: 0.2 if no "
        "other rule is given]",
        metavar="W",
    )
    max_items: int | None = _stops("Stop after this number of items.", metavar="N")
    budget: float | None = _stops(
        "Stop before the total cost of the items exceeds this, in the bank's unit.", metavar="COST"
    )
    max_seconds: float | None = _stops("Stop after this number of seconds.", metavar="S")
    goal: str | None = _asked(
        "score; ability; or compare:MODEL: stop once it is clear whether the full score is above "
        "that of this model of the bank, at the confidence level whenever that is.  "
        "[default: score]",
        metavar="GOAL",
    )
    rule: str = _goes(
        f"Item selection rule: {', '.join(RULES)}. With design and random, items are drawn with "
        "known probabilities, and the score is right for every model; information chooses those "
        "that tell most of the ability. auto is design, or information for --goal ability.",
        default="auto", type=Name("rule", RULES), metavar="NAME",
    )  # fmt: skip
    batch: int | None = _goes("Number of items asked together, chosen jointly.", metavar="K")
    balance: bool = _goes(
        "Content balancing: keep each task's share of the items as in the bank.", default=False
    )
    test_metric: str | None = _goes(
        "Metric that scores an item.  [default: the bank's]", metavar="NAME"
    )
    confidence_level: float = shared.level()
    seed: int = shared.seed()

    def plan(self, *, batch: int = 1, state: Path | None = None) -> Plan:
        """Make the plan that the options ask for; `batch` is the command's own default."""
        from evalstats_plugin.adaptive.plan import Plan

        same = {f.name for f in fields(Planning)} - {"batch", "test_metric"}
        size = batch if self.batch is None else self.batch
        return Plan(**picked(self, *same), batch=size, metric=self.test_metric, state=state)

    def how(self, rule: str) -> dict[str, object]:
        """Return what is printed with results; `rule` is the one that ran."""
        return {"bank": self.bank, "rule": rule, **picked(self, "confidence_level", "seed")}


def tell_forecast(plan: Plan, bank: ItemBank, answered: int, output: Output) -> None:
    """Print on standard error what a test will cost before it starts."""
    from evalstats_plugin.adaptive.plan import forecast

    output.tell(f"expected: {forecast(plan, bank)}")
    if answered:
        output.tell(f"going on: {answered} items are answered and are not asked again")


@contextmanager
def telling(*, quiet: bool) -> Generator[Callable[[AdaptiveSession], None] | None, None, None]:
    """Give a callback that shows how far a test is: on a terminal in one line, else in several."""
    with progress_on_work("asking", quiet=quiet) as on_step:

        def on_round(session: AdaptiveSession) -> None:
            score = session.full_score()[""]
            shown = f"ability {session.ability:+z.2f} ± {session.std_error:.2f}, full score "
            shown += f"{score.estimate:.3f} [{score.low:.3f}, {score.high:.3f}]"
            if on_step is None:
                echo(f"{counted(session.n, 'item')}: {shown}", err=True)
            else:
                on_step((f"{shown}, items", session.n, None))

        yield None if quiet else on_round


def show_test(
    asked: Planning, output: Output, outcome: Mapping[str, Any], named: tuple[str, str, str]
) -> None:
    """Print what a test found; `named` are the model, the task and the log."""
    from evalstats_plugin.adaptive.replaying import AdaptiveTests, test_of
    from evalstats_plugin.report import adaptive

    model, task, log = named
    output.draw({"trace": lambda: outcome})
    row = test_of(outcome, model=model, task=task, metric=str(outcome["metric"]), log=log)
    output.show(AdaptiveTests((row,)), asked.how(row.rule), adaptive.TESTS)
    output.tell(f"log: {log}")

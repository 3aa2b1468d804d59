"""``evalstats-plugin gate``, and the files that pin how it decides (``--protocol FILE``).

A protocol is TOML whose keys are options of the command, checked as those are. What it leaves out
has its default, and an option on the command line that says otherwise is refused: the decision
follows from the logs and one file, whose SHA-256 is printed with it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from evalstats_plugin.cli.shell import options, shared
from evalstats_plugin.cli.shell.options import Deciding, Parsed, command, picked, takes, under
from evalstats_plugin.cli.shell.running import Run, check_top, named, on_logs
from evalstats_plugin.cli.shell.shared import Intervals
from evalstats_plugin.errors import DesignError, SelectionError, few, no_such
from evalstats_plugin.runtime.files import plain_bytes

if TYPE_CHECKING:
    from evalstats_plugin.comparisons.gating import Gate
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.scores.rows import ItemComparisons

_decided = under("What is decided")

EXIT_CODES = {"pass": 0, "regressed": 3, "inconclusive": 4}
"""2 is bad input, as everywhere."""


def parse_drop(text: str) -> float | str:
    """Read a drop in units of the score, or a share of its range, which stays a text."""
    from evalstats_plugin.comparisons.gating import parse_margin

    value, of_range = parse_margin(text)
    return text if of_range else value


def parse_items(text: str) -> tuple[str, int]:
    """Read ``TASK=N``."""
    task, _, number = text.rpartition("=")
    n_items = options.count_in(number)
    if not task or n_items is None:
        raise SelectionError(
            f"--items {text!r} gives no task a number: write it like --items mmlu=500"
        )
    return task, n_items


def parse_link(text: str) -> str:
    """Read an address with ``{path}``, and perhaps ``{item}``, in it."""
    if not (re.fullmatch(r"https?://[\w:/?#&=%+~.{}@!$,;-]+", text, re.ASCII) and "{path}" in text):
        raise SelectionError(
            f"--link {text!r} is no address of a log: write it with {{path}} where the log's path "
            "goes, like --link https://github.com/org/repo/blob/main/{path}"
        )
    return text


_MOST_CANDIDATES, _MOST_LOST = 3, 5
"""Candidates, and items of each, that a comment shows."""

FREE = ("junit", "badge", "format", "link", "quiet")
"""Options that decide nothing."""


@dataclass(frozen=True)
class Protocol:
    """What a file pins, by name of the option."""

    path: str
    digest: str
    """SHA-256 of its bytes, in hexadecimal."""
    pinned: Mapping[str, Any]

    def check_kept(self, ctx: click.Context) -> None:
        """Refuse options of the command line that the protocol does not have, or has otherwise."""
        for name, option in options.options_of(ctx.command).items():
            source = ctx.get_parameter_source(option.name)
            if name in FREE or source is not ParameterSource.COMMANDLINE:
                continue
            value = self.pinned.get(name, option.get_default(ctx))
            if ctx.params[option.name] != option.type_cast_value(ctx, value):
                says = f"says {name} = {value!r}" if name in self.pinned else f"does not set {name}"
                raise SelectionError(
                    f"--{name} contradicts the protocol {self.path}, which {says}: leave the "
                    "option out, or change the protocol"
                )


def take_protocol(ctx: click.Context, _: click.Parameter, path: str | None) -> Protocol | None:
    """Read a protocol, and make what it says the defaults of the command.

    Raises
    ------
    SelectionError
        It cannot be read, has a key that no option has, or a value that the option cannot have.
    """
    if path is None:
        return None
    import tomllib

    content = plain_bytes(Path(path), f"the protocol {path}")
    try:
        told = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SelectionError(f"the protocol {path} is not TOML: {error}") from error
    every = options.options_of(ctx.command)
    allowed = {name: option for name, option in every.items() if name not in FREE}
    pinned: dict[str, Any] = {}
    for name, value in told.items():
        if name not in allowed:
            raise SelectionError(f"{path}: {no_such('key of a protocol', name, allowed)}")
        try:
            pinned[name] = _strictly(ctx.command, allowed[name], value)
        except SelectionError as error:
            raise SelectionError(f"{path}: {name} = {value!r}: {error}") from error
    if any(set(model) & set("*?") for model in pinned.get("models", ())):
        raise SelectionError(f"{path}: models are named in full: others could match * and ?")
    # A second run could be chosen for its result.
    pinned.setdefault("runs", "error")
    if "baseline-logs" in pinned:
        folder = Path(path).parent
        pinned["baseline-logs"] = [str(folder / logs) for logs in pinned["baseline-logs"]]
    ctx.default_map = {allowed[name].name: value for name, value in pinned.items()}
    return Protocol(path, hashlib.sha256(content).hexdigest(), pinned)


def _strictly(command: click.Command, option: click.Option, value: Any) -> Any:
    """Return a value of the very type of the option: click itself takes a text for a number."""
    taken = options.checked(command, option, value)
    kind, what = (str, int, float), "a text or a number"
    if isinstance(option.type, type(click.INT)):
        kind, what = (int,), "a whole number"
    elif isinstance(option.type, type(click.FLOAT)):
        kind, what = (int, float), "a number"
    elif not isinstance(option.type, Parsed):
        kind, what = (str,), "a text"
    each: list[Any] = taken if option.multiple else [taken]
    if not option.is_flag and not all(type(value_given) in kind for value_given in each):
        raise SelectionError(f"give {what}")
    return taken


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """What is decided, and against what."""

    baseline: str = _decided(
        "Model that the others, the candidates, must not fall behind.",
        metavar="MODEL", required=True,
    )  # fmt: skip
    margin: float | str = _decided(
        "Drop that is acceptable, in units of the score (0.02) or as a share of its range (2%).",
        default=0.0, metavar="DROP", type=Parsed(parse_drop),
    )  # fmt: skip
    non_inferior: bool = _decided(
        "Pass only what is shown not to drop by more than the margin; without it, a candidate "
        "passes unless such a drop is shown.",
        default=False,
    )
    protocol: Protocol | None = _decided(  # noqa: RUF009 - a field
        "TOML file whose keys are the options of this command that decide: other options are "
        "refused then, and its SHA-256 is printed.",
        metavar="FILE", callback=take_protocol, is_eager=True,
    )  # fmt: skip
    baseline_logs: tuple[str, ...] = _decided(
        "Log, folder or pattern from which alone the baseline is read; may be repeated.",
        default=(), multiple=True, metavar="PATH",
    )  # fmt: skip
    items: tuple[tuple[str, int], ...] = _decided(
        "Items of a task that must have been compared, or it does not pass; may be repeated.",
        default=(), multiple=True, metavar="TASK=N", type=Parsed(parse_items),
    )  # fmt: skip
    by: str | None = shared.by("What is decided")
    top: int | None = shared.top("What is decided")
    junit: str | None = shared.file("Also write JUnit XML, which CI systems show.")
    badge: str | None = shared.file(
        "Also write the decision as a badge: an image (.svg), or JSON for shields.io (.json)."
    )
    link: str | None = under(options.OUTPUT)(
        "In Markdown, address of the items that were lost: {path} is the candidate's log, {item} "
        "the id.",
        metavar="URL", type=Parsed(parse_link),
    )  # fmt: skip


@command(
    ("logs/ --baseline llama --margin 0.02", "May qwen replace llama"),
    ("logs/ --baseline llama --margin 0.02 --format markdown", "As a comment for a pull request"),
    cls=Deciding,
)
@takes("asked", GateOptions)
@takes("intervals", Intervals, without=(*shared.OF_ONE_SCORE, "missing"))
@on_logs()
@click.pass_context
def gate(ctx: click.Context, run: Run, *, asked: GateOptions, intervals: Intervals) -> None:
    """Decide whether models may be released: PASS, REGRESSED or INCONCLUSIVE.

    Exit code 0: every candidate passes on every task. 3: a drop is shown beyond chance. 4: neither
    is shown, or something was not compared; the table says how many items would decide.

    One decision is made of all tasks and groups at once: of equal models, no more than 5 in 100
    are called regressed, however many tasks there are (with the default level).

    Options come from the command line or a protocol, never from pyproject.toml.
    """
    from evalstats_plugin.comparisons.gating import gate as decide
    from evalstats_plugin.comparisons.methods import PAIRED
    from evalstats_plugin.report import gating
    from evalstats_plugin.runtime.writing import check_output_path, write_bytes

    if asked.protocol is not None:
        asked.protocol.check_kept(ctx)
    if asked.junit is not None:
        check_output_path(asked.junit, (".xml",), asked="--junit")
    if asked.badge is not None:
        check_output_path(asked.badge, (".svg", ".json"), asked="--badge")
    check_top(asked.by, asked.top)
    method = intervals.chosen(run.plugins, PAIRED)
    responses = _baseline_and_candidates(run, asked)
    results = decide(
        responses,
        method=method,
        items=dict(asked.items),
        **picked(asked, "baseline", "margin", "non_inferior", "by", "top"),
        **intervals.given(responses),
    )
    how: dict[str, object] = {
        **picked(asked, "baseline", "margin", "non_inferior"),
        **({"by": asked.by} if asked.by else {}),
        **intervals.how(),
    }
    if asked.protocol is not None:
        results = replace(results, protocol=asked.protocol.digest)
        how = {"protocol": asked.protocol.path, **how}
    if asked.junit is not None:
        write_bytes(Path(asked.junit), gating.gate_junit(results).encode())
    if asked.badge is not None:
        form = "svg" if asked.badge.lower().endswith(".svg") else "json"
        write_bytes(Path(asked.badge), gating.gate_badge(results, form).encode())
    view = gating.GATE
    if run.output.form == "markdown":
        lost = _items_lost(responses, results, run.plugins)
        view = view._replace(
            to_markdown=partial(gating.gate_markdown, lost=lost, link=asked.link or "")
        )
    # Of a log that was left out (exit code 1 elsewhere), the decision says that it is missing.
    with suppress(click.exceptions.Exit):
        run.output.show(results, how, view)
    raise click.exceptions.Exit(EXIT_CODES[results.decision])


def _baseline_and_candidates(run: Run, asked: GateOptions) -> ResponseSet:
    """Read the baseline from its own logs, where it has some, and the candidates from the others.

    Raises
    ------
    SelectionError
        The logs hold other candidates than the protocol names, or one of them twice.
    """
    models, everyone = run.reading.models, replace(run, reading=replace(run.reading, models=()))
    # The baseline's log says which items a slice holds.
    everything = everyone.read(by=None if asked.baseline_logs else asked.by)
    own, notes = [r for r in everything if r.model == asked.baseline], list(everything.notes)
    others = [r for r in everything if r.model != asked.baseline]
    if asked.baseline_logs:
        from evalstats_plugin.data.runs import is_model
        from evalstats_plugin.scores.findings import notes_on_differences

        of_baseline = replace(everyone, paths=asked.baseline_logs).read(by=asked.by)
        claimed = [r for r in everything if is_model(r.model, asked.baseline)]
        others = [r for r in others if not is_model(r.model, asked.baseline)]
        own = [r for r in of_baseline if r.model == asked.baseline]
        notes += [*of_baseline.notes, *notes_on_differences([*own, *others])]
        if claimed:
            logs = few(list(dict.fromkeys(str(r.source.path) for r in claimed)))
            where = few(list(asked.baseline_logs))
            notes.append(f"not used, since {asked.baseline} is read from {where} alone: {logs}")
    if models:
        kept = named(models, [asked.baseline, *(r.model for r in others)])
        others = [r for r in others if r.model in kept]
    if not others:
        raise SelectionError(
            f"the logs hold no model besides the baseline {asked.baseline}: name a candidate's too"
        )
    if asked.protocol is not None:
        # Neither candidates nor runs may be chosen for their result.
        candidates = list(dict.fromkeys(r.model for r in others))
        if len(candidates) > 1 and not models:
            raise SelectionError(
                f"the protocol names no models, so that one candidate is decided on, and the logs "
                f"hold {len(candidates)}: {few(candidates)}. Name them in it: models = [...]"
            )
        times = Counter((r.model, r.task, r.metric) for r in others)
        for (model, task, _), n in times.items():
            if n > 1:
                raise SelectionError(f"{model} answered {task} {n} times: give the logs of one run")
    return replace(everything, responses=(*own, *others), notes=tuple(dict.fromkeys(notes)))


def _items_lost(responses: ResponseSet, results: Gate, plugins: Plugins) -> list[ItemComparisons]:
    """Return of each candidate that does not pass the items on which it did worse."""
    from evalstats_plugin.logs.texts import compare_items

    candidates = dict.fromkeys(
        row.model for row in results if row.decision != "pass" and row.difference is not None
    )
    lost: list[ItemComparisons] = []
    for model in list(candidates)[:_MOST_CANDIDATES]:
        both = [r for r in responses if r.model in (results.baseline, model)]
        # Groups and metrics without item scores have no items to show.
        with suppress(DesignError):
            lost.append(
                compare_items(
                    both, results.baseline, model, most=_MOST_LOST, only="worse", plugins=plugins
                )
            )
    return lost

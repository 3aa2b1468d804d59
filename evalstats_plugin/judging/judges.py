"""Who can answer instead of a person: any function, any program, a model."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from evalstats_plugin.errors import PluginError, SelectionError

VERDICTS: Mapping[str, float | None] = MappingProxyType(
    {
        **dict.fromkeys(("first", "left", "a", "1"), 1.0),
        **dict.fromkeys(("second", "right", "b", "2"), 0.0),
        **dict.fromkeys(("tie", "draw", "c", "both", "neither", "equal"), 0.5),
        **dict.fromkeys(("skip", "none", "null"), None),
    }
)
"""What a judge may reply, and the outcome for the first; None leaves the pair undecided."""

MARKED = re.compile(r"\[\[\s*(\w+)\s*\]\]")
"""A verdict within a longer reply, as judges of chat arenas write it: ``[[A]]``."""

CRITERION = "Which of the two is better?"


@dataclass(frozen=True, slots=True)
class Question:
    """Two items as they are shown; a judge is told no names."""

    first: str
    second: str
    prompt: str | None = None


Judge = Callable[[Question], Any]
"""Returns one of `VERDICTS`, a text or JSON with one in it, or the outcome for the first."""


class UnclearReplyError(ValueError):
    """A judge replied, and not with a verdict."""


def verdict(reply: Any) -> float | None:
    """Read a judge's reply: the outcome for the first, None where the judge does not decide.

    Raises
    ------
    UnclearReplyError
        It is no verdict.

    >>> verdict("I think the second is clearer. [[B]]"), verdict('{"winner": "tie"}'), verdict("A.")
    (0.0, 0.5, 1.0)
    """
    if isinstance(reply, Mapping):
        reply = cast("Mapping[str, Any]", reply).get("winner", "")
    if reply is None:
        return None
    if isinstance(reply, float) and 0 <= reply <= 1:
        return reply
    text = str(reply).strip()
    if text.startswith("{"):
        try:
            return verdict(json.loads(text))
        except ValueError:
            pass
    marked = MARKED.findall(text)
    word = (marked[-1] if marked else text).strip(" \t\n.!\"'*()").casefold()
    if word not in VERDICTS:
        msg = f"reply {text[:80]!r} found, expected first, second, tie or skip"
        raise UnclearReplyError(msg)
    return VERDICTS[word]


def command_judge(command: str, *, timeout: float = 120.0) -> Judge:
    """Let a program answer: it gets the question as JSON, and writes its verdict.

    Parameters
    ----------
    command
        Program and arguments, split as a shell does; no shell runs it. On standard input it finds
        ``{"prompt": …, "first": …, "second": …}``.
    timeout
        Seconds.

    Raises
    ------
    SelectionError
        The command is empty. The judge raises `PluginError` where the program fails.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        msg = f"{command!r} cannot be read as a command: {error}"
        raise SelectionError(msg) from error
    if not words:
        msg = "an empty command found, expected a program and its arguments"
        raise SelectionError(msg)

    def ask(question: Question) -> str:
        told = {"prompt": question.prompt, "first": question.first, "second": question.second}
        try:
            done = subprocess.run(  # noqa: S603 - what the user asked to be run
                words,
                input=json.dumps(told, ensure_ascii=False).encode(),
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            msg = f"the judge {words[0]!r} cannot be asked: {error}"
            raise PluginError(msg) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            problem = f": {said[-1][:200]}" if said else ""
            msg = f"the judge {words[0]!r} failed with exit code {done.returncode}{problem}"
            raise PluginError(msg)
        return done.stdout.decode(errors="replace")

    return ask


def model_judge(generate: Callable[[str], str], criterion: str | None = None) -> Judge:
    """Let a language model answer.

    Parameters
    ----------
    generate
        Puts a text to the model and returns its reply.
    criterion
        What makes one of the two better, in the judge's words.
    """

    def ask(question: Question) -> str:
        return generate(worded(question, criterion or CRITERION))

    return ask


def worded(question: Question, criterion: str) -> str:
    """Put a question into words for a model."""
    parts = [
        f"[The start of the {which}]\n{text}\n[The end of the {which}]"
        for which, text in (("first, A", question.first), ("second, B", question.second))
    ]
    if question.prompt is not None:
        parts.insert(0, f"[The start of what both answer]\n{question.prompt}\n[The end]")
    closing = (
        "Do not let their order or their length sway you. Think briefly, then end with your "
        "verdict: [[A]] if the first is better, [[B]] if the second is, [[C]] for a tie."
    )
    return "\n\n".join([criterion, *parts, closing])

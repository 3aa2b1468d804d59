"""Record a model's replies in a file, so that no request is repeated, even after a crash.

lm-eval's own cache (``--use_cache``) leaves out sampled replies, but the final scoring of an
adaptive run needs all replies again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, cast

from evalstats_plugin.errors import LogError, WriteError
from evalstats_plugin.runtime.writing import revision, write_bytes

REQUESTS = ("loglikelihood", "loglikelihood_rolling", "generate_until")

RowOf = Callable[[str, int], int]
"""Returns a document's row in its task, from the task and the doc_id of a request."""

_KEY = "evalstats_replies"


class Place(NamedTuple):
    """Identity of a request, by position: two documents of the same text are two questions."""

    task: str
    row: int
    kind: str
    request: int
    """Index among the document's requests, such as one for each choice."""
    repeat: int


class Reply(NamedTuple):
    """A reply, and the prompt it answers."""

    asked: str
    """Hash of the prompt."""
    arguments: Any
    """The prompt itself, None if it cannot be saved as JSON."""
    reply: Any


class Recording:
    """Replies of one model, in memory and in a file of JSON lines.

    Parameters
    ----------
    about
        What must be the same for replies to be used again.

    Raises
    ------
    LogError
        The file holds no replies, or replies of another run.
    """

    def __init__(self, path: Path, about: Mapping[str, str]) -> None:
        self.path = path
        self._head = json.dumps({_KEY: 1, **about}) + "\n"
        self._begun = False
        self._known: dict[Place, Reply] = {}
        self._read()

    @contextmanager
    def between(self, model: Any, row_of: RowOf) -> Generator[None, None, None]:
        """Answer lm-eval's requests to a loaded model from the recording; record new replies."""
        own = {kind: getattr(model, kind) for kind in REQUESTS}
        for kind, ask in own.items():
            setattr(model, kind, self._recorded(kind, ask, row_of))
        try:
            yield
        finally:
            for kind, ask in own.items():
                setattr(model, kind, ask)

    def _recorded(
        self, kind: str, ask: Callable[..., list[Any]], row_of: RowOf
    ) -> Callable[..., list[Any]]:
        # lm-eval's progress bar for a few items says nothing, and disturbs ours.
        silent = {"disable_tqdm": True} if "disable_tqdm" in signature(ask).parameters else {}

        def recorded(requests: list[Any], **given: Any) -> list[Any]:
            places = _places(kind, requests, row_of)
            pairs = list(zip(places, requests, strict=True))
            new = [(place, request) for place, request in pairs if place not in self._known]
            if new:
                replies = ask([request for _, request in new], **{**given, **silent})
                made = zip(new, replies, strict=True)
                self._add({place: _reply(request.args, reply) for (place, request), reply in made})
            return [self._take(place, request) for place, request in pairs]

        return recorded

    def _take(self, place: Place, request: Any) -> Any:
        kept = self._known[place]
        if kept.asked != _digest(request.args):
            # A task that draws its prompt at random: the log must show the prompt replied to.
            if kept.arguments is None:
                msg = f"task {place.task}, document {place.row}, is put otherwise than before, and"
                raise LogError(f"{msg} the prompt is not kept: remove {self.path} to ask anew")
            request.arguments = kept.arguments
        return kept.reply

    def _add(self, replies: Mapping[Place, Reply]) -> None:
        lines = [
            json.dumps({**place._asdict(), **reply._asdict()}, default=_plain)
            for place, reply in replies.items()
        ]
        # The first replies write the head too.
        head = "" if self._begun else self._head
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(head + "".join(line + "\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise WriteError(f"{self.path} cannot be written ({error.strerror})") from error
        self._begun = True
        self._known.update(replies)

    def _read(self) -> None:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            lines = []
        except (OSError, UnicodeDecodeError) as error:
            raise LogError(f"{self.path} cannot be read as replies of a model: {error}") from error
        # A line without a line break was being written when the run was killed.
        whole = [line for line in lines if line.endswith("\n")]
        if whole and whole[0] != self._head:
            msg = f"{self.path} holds no replies of this model to these tasks"
            raise LogError(f"{msg}: name another state file, or remove both")
        for number, line in enumerate(whole[1:], 2):
            try:
                record = json.loads(line)
                place = Place(*(record[name] for name in Place._fields))
                arguments = None if record["arguments"] is None else tuple(record["arguments"])
                reply: Any = record["reply"]
                if isinstance(reply, list):  # (log-likelihood, greedy), a tuple
                    reply = tuple(cast("list[Any]", reply))
                self._known[place] = Reply(record["asked"], arguments, reply)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                msg = f"{self.path}, line {number}, holds no reply of a model"
                raise LogError(f"{msg}: remove the file to ask anew") from error
        if whole != lines:
            write_bytes(self.path, "".join(whole).encode(), over=revision(self.path))
        self._begun = bool(whole)


def _places(kind: str, requests: list[Any], row_of: RowOf) -> list[Place]:
    times: Counter[tuple[str, int, int]] = Counter()
    places: list[Place] = []
    for request in requests:
        row = row_of(request.task_name, request.doc_id)
        key = (str(request.task_name), row, int(request.idx))
        places.append(Place(key[0], row, kind, key[2], times[key]))
        times[key] += 1
    return places


def _reply(arguments: tuple[Any, ...], reply: Any) -> Reply:
    try:
        same = tuple(json.loads(json.dumps(arguments))) == arguments
    except (TypeError, ValueError):
        same = False
    return Reply(_digest(arguments), arguments if same else None, reply)


def _digest(arguments: tuple[Any, ...]) -> str:
    text = json.dumps(arguments, default=str, sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Convert a number of NumPy or torch for JSON."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a reply of type {type(value).__name__} cannot be written down")

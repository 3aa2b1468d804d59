"""Errors that a user can cause, and how messages name things.

::

    EvalStatsError                the problem, and how to fix it
    ├── LogError                  a log is broken, cut off, or of an unsupported version
    │   └── IncompleteLogError    its run was cancelled or failed; read on request only
    ├── SelectionError            nothing matches what was asked for (closest names given)
    ├── DesignError               these data cannot answer this question
    │   └── ItemConflictError     one item id, two different questions: must not be paired
    ├── PluginError               a plugin cannot be loaded or breaks the contract
    └── WriteError                a result cannot be written; what was there is still there
        └── ChangedError          another program changed the file meanwhile

The command line turns each into one message and exit code 2. Programming mistakes
(a negative count, a wrong shape) stay ``ValueError`` and ``TypeError``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

REPOSITORY = "https://github.com/evalstats/evalstats-plugin"
"""Where the package is installed from: no registry of packages has it yet."""


class EvalStatsError(Exception):
    """Base class of the errors below."""


class LogError(EvalStatsError):
    """A log is broken, cut off, or of a version that cannot be read."""


class IncompleteLogError(LogError):
    """The run of a log was cancelled or failed; it is read on request only.

    `run` is what its log shares with that of a run which went on with it; empty where unknown.
    """

    def __init__(self, message: str, run: str = "") -> None:
        super().__init__(message)
        self.run = run


class SelectionError(EvalStatsError):
    """Nothing matches what was asked for."""


class DesignError(EvalStatsError):
    """The data at hand cannot answer the question asked."""


class ItemConflictError(DesignError):
    """Two logs use one item id for different questions."""


class PluginError(EvalStatsError):
    """A plugin cannot be loaded or breaks the plugin contract."""


class WriteError(EvalStatsError):
    """A result could not be written; the previous file is intact."""


class ChangedError(WriteError):
    """Another program changed a file between its reading and its writing."""


def install_hint(extra: str = "") -> str:
    """Return the command that installs the package, with one of its extras.

    It is said nowhere else: in messages by this function, in pages as it prints it.

    >>> install_hint("text")
    'pip install "evalstats-plugin[text] @ git+https://github.com/evalstats/evalstats-plugin"'
    """
    name = REPOSITORY.rpartition("/")[2] + (f"[{extra}]" if extra else "")
    return f'pip install "{name} @ git+{REPOSITORY}"'


def few(names: Sequence[str], most: int = 6) -> str:
    """List the first names and count the others.

    >>> few(["a", "b", "c"], most=2)
    'a, b, and 1 more'
    """
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(n: int, noun: str) -> str:
    """Return a number of things, in the plural where it is not one.

    >>> counted(1, "item"), counted(1234, "item")
    ('1 item', '1,234 items')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"


def no_such(what: str, name: str, candidates: Iterable[str], shown: str = "") -> str:
    """Return a message that a name does not exist, with the closest and the known names.

    >>> no_such("method", "wison", ["wilson", "t"])
    "no method is called 'wison'; did you mean wilson? There are: wilson, t"
    >>> no_such("field", "item", [])
    "no field is called 'item': there is none"
    """
    names = list(candidates)
    if not names:
        return f"no {what} is called {name!r}: there is none"
    parts = [other for other in names if name and name in other][:3]
    close = get_close_matches(name, names, n=1, cutoff=0.7) or parts
    close = close or get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}? There" if close else "there"
    return f"no {what} is called {name!r}; {hint} are: {shown or ', '.join(names)}"


def check_known(what: str, name: str, candidates: Collection[str]) -> None:
    """Raise `SelectionError`, with the closest names, for a name that does not exist."""
    if name not in candidates:
        raise SelectionError(no_such(what, name, candidates))


def missing_column(column: str, names: Sequence[str], where: str) -> str:
    """Return a message that a column is missing, with close names."""
    close = get_close_matches(column, names, n=1, cutoff=0.5)
    ends = [n for n in names if n.rpartition(".")[2] == column.rpartition(".")[2]]
    hint = dict.fromkeys((*ends[:3], *close))
    closest = f"did you mean {' or '.join(hint)}? There" if hint else "there"
    return f"{where} has no column {column!r}; {closest} are: {few(names, 20)}"

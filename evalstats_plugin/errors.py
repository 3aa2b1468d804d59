"""Every error a user can cause, and nothing else.

::

    EvalStatsError                what was found, what was expected, what to do
    ├── LogError                  a log is broken, cut off, or of an unsupported version
    │   └── IncompleteLogError    its run was cancelled or failed, and nobody asked for such runs
    ├── SelectionError            nothing matches what was asked for (closest names given)
    ├── DesignError               these data cannot answer this question
    │   └── ItemConflictError     one item id, two different questions: must not be paired
    ├── PluginError               a plugin cannot be loaded or breaks the contract
    └── WriteError                a result cannot be written; what was there is still there

The command line turns each into one message and exit code 2. Programming mistakes
(a negative count, a wrong shape) stay ``ValueError`` and ``TypeError``.
"""


class EvalStatsError(Exception):
    """Base of everything this package raises on purpose."""


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
    """A plugin cannot be loaded, or does not keep the contract."""


class WriteError(EvalStatsError):
    """A result could not be written; the previous file is intact."""

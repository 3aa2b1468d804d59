"""A language model for lm-eval that answers from a log, and refuses to answer another question."""

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from evalstats_plugin.adapters.lm_eval.replay_log import LoggedTask
from evalstats_plugin.errors import EvalStatsError, LogError


def harness(module: str) -> Any:
    """Import a module of lm-eval ("" is the package), or say what to install.

    Untyped on purpose: lm-eval's own types are partial.
    """
    try:
        return import_module(f"lm_eval.{module}" if module else "lm_eval")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("lm_eval"):
            raise
        raise EvalStatsError(
            "this runs lm-eval's own code, and lm-eval is not installed: "
            "pip install 'evalstats-plugin[lm-eval]'"
        ) from error


def check_harness() -> None:
    """Raise if lm-eval is missing or too old to score a log again."""
    if not hasattr(harness("api.group"), "Group"):
        raise EvalStatsError(
            f"scoring again needs lm-eval 0.4.12 or later, found {harness('').__version__}: "
            "pip install --upgrade 'evalstats-plugin[lm-eval]'"
        )


@contextmanager
def sandboxed_templates() -> Generator[None, None, None]:
    """Render templates where they cannot reach Python: a log can come from anywhere."""
    from jinja2.sandbox import SandboxedEnvironment

    owner = harness("utils")
    free: Any = owner.env
    sandbox = SandboxedEnvironment(
        undefined=free.undefined, keep_trailing_newline=free.keep_trailing_newline
    )
    sandbox.filters.update(free.filters)
    owner.env = sandbox
    try:
        yield
    finally:
        owner.env = free


class Answers:
    """Answers to the requests of a run, found by task, document, request and repeat.

    Parameters
    ----------
    tasks :
        What was logged. A document is known by its place in the log, because lm-eval up to
        0.4.13 can write a wrong doc_id when ``--samples`` chooses documents.
    templated :
        Whether a chat template was laid over the questions.
    only_repeat :
        Give this repeat alone, for every request.
    """

    def __init__(
        self, tasks: Mapping[str, LoggedTask], *, templated: bool, only_repeat: int | None = None
    ) -> None:
        self._tasks = tasks
        self._templated = templated
        self._only_repeat = only_repeat
        self._given: dict[tuple[str, int, int], int] = defaultdict(int)

    def take(self, request: Any) -> Any:
        """Return the next logged response to a request, which gets back its logged arguments."""
        task = self._tasks[request.task_name]
        position: int = request.doc_id
        where = f"task {task.name!r}, doc_id {task.doc_ids[position]}"
        logged: list[tuple[Any, ...]] = task.arguments[position]
        answers: list[list[Any]] = task.responses[position]
        if request.idx >= min(len(logged), len(answers)):
            raise LogError(
                f"{where}: the task asks for answer number {request.idx + 1} and the log holds "
                f"{len(answers)}"
            )
        index: int = request.idx
        self._check(request, logged[index], where)
        # The log has the whole prompt (examples, chat template); what was asked here is its end.
        request.arguments = logged[index]
        key = (task.name, position, index)
        repeat = self._given[key] if self._only_repeat is None else self._only_repeat
        self._given[key] += 1
        if repeat >= len(answers[index]):
            raise LogError(f"{where}: response {repeat + 1} is asked for and missing in the log")
        return answers[index][repeat]

    def check_all_asked(self) -> None:
        """Raise if the log holds answers that no question asked for."""
        asked: dict[tuple[str, int], int] = defaultdict(int)
        for name, position, _ in self._given:
            asked[name, position] += 1
        for (name, position), count in asked.items():
            logged = len(self._tasks[name].responses[position])
            # acc_mutual_info asks each choice twice; without that metric the first half is asked.
            if logged not in (count, 2 * count):
                raise LogError(
                    f"task {name!r}, doc_id {self._tasks[name].doc_ids[position]}: the log holds "
                    f"{logged} answers and the task asks for {count}"
                )

    def _check(self, request: Any, logged: tuple[Any, ...], where: str) -> None:
        """Compare what is asked with what was logged, as far as it can be compared."""
        asked = request.args
        if asked == logged:
            return
        same = self._same_end if request.request_type != "loglikelihood_rolling" else _equal
        if not same(asked[0], logged[0]):
            raise _changed(where, asked[0], logged[0])
        if request.request_type == "loglikelihood" and not self._same_choice(asked[1], logged[1]):
            raise _changed(where, asked[1], logged[1])

    def _same_end(self, asked: str, logged: str) -> bool:
        # What stands before the question (description, examples) is not asked again.
        return asked.strip() in logged if self._templated else logged.endswith(asked)

    def _same_choice(self, asked: str, logged: str) -> bool:
        # lm-eval leaves the delimiter out where a chat template separates the turns.
        return asked.lstrip() == logged.lstrip() if self._templated else asked == logged


def _equal(asked: str, logged: str) -> bool:
    return asked == logged


def _changed(where: str, asked: str, logged: str) -> LogError:
    return LogError(
        f"{where}: the log answers {logged[-80:]!r} and the task asks {asked[-80:]!r}; "
        "the task has changed since the run"
    )


def replaying_model(answers: Answers) -> Any:
    """Build the model that gives these answers."""

    def loglikelihood(_model: Any, requests: list[Any], **_: Any) -> list[tuple[float, bool]]:
        pairs = [answers.take(request) for request in requests]
        return [(float(value), greedy in (True, "True")) for value, greedy in pairs]

    def loglikelihood_rolling(_model: Any, requests: list[Any], **_: Any) -> list[float]:
        return [float(answers.take(request)) for request in requests]

    def generate_until(_model: Any, requests: list[Any], **_: Any) -> list[Any]:
        return [answers.take(request) for request in requests]

    methods: dict[str, Callable[..., Any]] = {
        "loglikelihood": loglikelihood,
        "loglikelihood_rolling": loglikelihood_rolling,
        "generate_until": generate_until,
    }
    # Built here because its base class may be imported only now.
    return type("ReplayLM", (harness("api.model").LM,), methods)()

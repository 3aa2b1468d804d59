"""Adaptive tests in lm-eval: rounds of a few items on one loaded model.

`Rounds` is the test of one `Model` on some `Tasks`; `Documents` selects documents of one task. Each
round is an evaluation with lm-eval's ``samples``; up to 0.4.13 lm-eval writes wrong doc_ids if they
are not sorted, so they are. The last round scores all items asked, from recorded replies: results
and samples files are what ``lm_eval run --samples`` would have written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from evalstats_plugin.adapters.lm_eval.adaptive.recording import Recording
from evalstats_plugin.adapters.lm_eval.layout import samples_path
from evalstats_plugin.adapters.lm_eval.reader import read_results
from evalstats_plugin.adapters.lm_eval.run_harness import harness, saved_by
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.records import RECORD, record_of
from evalstats_plugin.adaptive.session import EXHAUSTED, AdaptiveSession, AnswersFile
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import DesignError, EvalStatsError, SelectionError, WriteError, few

OnRound = Callable[[AdaptiveSession], None]

_LOGGED_SETTINGS = ("batch_size", "device")
"""Settings of a model that lm-eval writes into results."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as on lm-eval's command line, and how it is prompted and scored."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """batch_size, max_batch_size, device."""
    asking: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of ``simple_evaluate`` that replies depend on, such as num_fewshot."""
    scoring: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments that replies do not depend on: bootstrap_iters, confirm_run_unsafe_code."""

    def load(self) -> Any:
        """Load the model.

        Raises
        ------
        EvalStatsError
            lm-eval cannot load it, or it runs in several processes.
        """
        registry = harness("api.registry")
        try:
            made = registry.get_model(self.name).create_from_arg_obj(
                dict(self.arguments), dict(self.settings)
            )
        # A model's code can raise anything; some libraries raise SystemExit.
        except (Exception, SystemExit) as error:
            given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
            msg = f"lm-eval cannot load model {self.name} ({given})"
            raise EvalStatsError(f"{msg}: {type(error).__name__}: {error}") from error
        if made.world_size > 1:
            msg = f"lm-eval runs in {made.world_size} processes, and each would choose its items"
            raise EvalStatsError(f"{msg}: start one, and spread the model over devices instead")
        return made


class Rounds:
    """An adaptive test of one model on some tasks.

    Parameters
    ----------
    plan
        Must name a state file.

    Raises
    ------
    SelectionError
        The bank holds no item of a task, or no metric that the task has.
    ItemConflictError
        A document is another question than in the bank.
    DesignError
        The tasks have none of the bank's items that may be asked.
    """

    def __init__(self, tasks: Tasks, plan: Plan, model: Model) -> None:
        if plan.state is None:
            raise ValueError("the plan has no state file")
        bank = plan.load()
        unsafe = bool(model.scoring.get("confirm_run_unsafe_code"))
        tasks.check(bank, plan.metrics(bank), unsafe_code=unsafe)
        # What replies depend on.
        identity = [model.name, dict(model.arguments), dict(model.asking)]
        about = {
            "model": json.dumps(identity, sort_keys=True, default=str),
            "task": ", ".join(tasks.by_name),
            "task settings": tasks.fingerprint(),
        }
        self.plan = plan
        self.model = model
        self.tasks = tasks
        self.documents = {name: Documents(task) for name, task in tasks.by_name.items()}
        self.bank = matched(bank, self.documents)
        self.saved = AnswersFile(plan.state, self.bank, about)
        self.session = plan.session(self.bank, self.saved.answers)
        self.recording = Recording(Path(f"{plan.state}.replies"), about)
        self._unscored = 0

    def run(self, lm: Any, on_round: OnRound | None = None) -> None:
        """Ask until the session stops.

        Raises
        ------
        DesignError
            It stops before the first item: a budget may buy none.
        EvalStatsError
            lm-eval or the model failed; answers and replies so far are on disk.
        """
        while True:
            places = self.session.next().tolist()
            if not places:
                break
            with _without_environment():
                results = self._evaluate(lm, places, bootstrap_iters=0)
            self._record(places, results)
            if on_round is not None:
                on_round(self.session)
        self.session.stopped = self.session.stopped or EXHAUSTED
        if not self.session.n:
            raise DesignError(f"no item was asked ({self.session.stopped}): allow for one at least")

    def finish(self, lm: Any, output: Path) -> Path:
        """Score all items asked at once, and write results and samples files."""
        place_of = {key: place for place, key in enumerate(self.bank.keys())}
        places = [place_of[step.task, step.item] for step in self.session.answers]
        tracker = harness("loggers.evaluation_tracker").EvaluationTracker(output_path=str(output))
        results = self._evaluate(lm, places, evaluation_tracker=tracker)
        general = tracker.general_config_tracker
        general.log_experiment_args(
            model_source=self.model.name,
            model_args=dict(self.model.arguments),
            system_instruction=general.system_instruction,
            chat_template=general.chat_template,
            fewshot_as_multiturn=general.fewshot_as_multiturn,
        )
        # As lm-eval writes it when it loads the model itself.
        settings = self.model.settings
        config = {name: settings[name] for name in _LOGGED_SETTINGS if name in settings}
        config |= {"model": self.model.name, "model_args": dict(self.model.arguments)}
        results["config"] = {**results["config"], **config}
        responses = self._scored(results)
        metrics = ", ".join(dict.fromkeys(r.metric for r in responses))
        notes = [f"{self._unscored} items were asked and have no score"] if self._unscored else []
        results[RECORD] = record_of(self.session, metric=metrics, notes=notes)
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        for task in results["configs"]:
            tracker.save_results_samples(task_name=task, samples=samples[task])
        # lm-eval hides errors in saving.
        path = saved_by(tracker)
        if path is None:
            raise WriteError(f"lm-eval wrote no results file to {output}; the replies are kept")
        missing = [
            task for task in results["configs"] if not samples_path(path, task, results).exists()
        ]
        if missing:
            msg = f"lm-eval wrote no samples file of {few(missing)} beside {path}"
            raise WriteError(f"{msg}; the replies are kept")
        return path

    def close(self, *, done: bool = False) -> None:
        """Release the state file for other runs; remove it and the replies if all is done."""
        self.saved.close()
        if done:
            self.saved.path.unlink(missing_ok=True)
            self.recording.path.unlink(missing_ok=True)

    def row_of(self, task: str, doc_id: int) -> int:
        """Return the row of a document, from a request of the current round."""
        return self.documents[task].row_of(doc_id)

    def _evaluate(self, lm: Any, places: Sequence[int], **more: Any) -> dict[str, Any]:
        wanted: dict[str, list[int]] = {}
        keys = self.bank.keys()
        for place in places:
            task, item = keys[place]
            wanted.setdefault(task, []).append(int(item))
        try:
            with self.recording.between(lm, self.row_of):
                return harness("evaluator").simple_evaluate(
                    model=lm,
                    tasks=[self.tasks.by_name[task] for task in wanted],
                    samples={task: sorted(items) for task, items in wanted.items()},
                    task_manager=self.tasks.manager,
                    **{**self.model.asking, **self.model.scoring, **more},
                )
        except EvalStatsError:
            raise
        # The code of models and tasks can raise anything; the answers are on disk.
        except Exception as error:
            msg = f"lm-eval failed after {self.session.n} items: {type(error).__name__}: {error}"
            raise EvalStatsError(f"{msg}; they are kept in {self.plan.state}") from error

    def _record(self, places: Sequence[int], results: Mapping[str, Any]) -> None:
        scores = {
            (r.task, str(item)): float(score)
            for r in self._scored(results)
            for item, score in zip(r.item_ids.tolist(), r.item_means.tolist(), strict=True)
        }
        keys = self.bank.keys()
        scored = [(place, scores.get(keys[place], float("nan"))) for place in places]
        scored = [(place, score) for place, score in scored if isfinite(score)]
        if not scored:
            named = few([" / ".join(keys[place]) for place in places], 3)
            raise DesignError(f"none of {named} was scored: name another metric by --test-metric")
        # An item without a score was asked, but carries no information.
        self._unscored += len(places) - len(scored)
        for place, score in scored:
            self.session.record(place, score)
            self.saved.append(self.session)

    def _scored(self, results: Mapping[str, Any]) -> list[Responses]:
        """Return the scores of each task by its one metric."""
        wanted = self.plan.metrics(self.bank)
        responses = read_results(results, Path(), Selection(metrics=wanted))
        by_task = grouped([r for r in responses if len(r.item_ids)], lambda r: r.task)
        for task in results["configs"]:
            names = [r.metric for r in by_task.get(task, ())]
            if len(names) != 1:
                msg = f"task {task!r} is scored by {few(names) or 'none'} of the metrics"
                msg += f" {few(wanted) or '(none named)'}"
                raise SelectionError(f"{msg}: name one metric with --test-metric")
        return [each for group in by_task.values() for each in group]


@contextmanager
def _without_environment() -> Generator[None, None, None]:
    """Skip lm-eval's survey of the machine in a round: it takes seconds and is not kept."""
    evaluator = harness("evaluator")
    names = ("add_env_info", "add_tokenizer_info", "get_git_commit_hash")
    own = {name: getattr(evaluator, name) for name in names if hasattr(evaluator, name)}

    def nothing(*_arguments: object) -> None:
        """Stand in for the survey."""

    for name in own:
        setattr(evaluator, name, nothing)
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(evaluator, name, function)


@dataclass(frozen=True)
class Tasks:
    """Tasks of lm-eval by name, and the task manager that loaded them."""

    by_name: Mapping[str, Any]
    manager: Any

    @classmethod
    def load(
        cls,
        names: Sequence[str],
        include_path: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Tasks:
        """Load tasks by name; groups become their tasks.

        Parameters
        ----------
        metadata
            Settings of tasks that are generated, such as the tokenizer of RULER.

        Raises
        ------
        SelectionError
            There is no such task, or lm-eval cannot save its samples.
        EvalStatsError
            lm-eval cannot load a task's data.
        """
        made = harness("tasks").TaskManager(
            include_path=include_path, metadata=dict(metadata or {})
        )
        unknown = [name for name in names if name not in made.all_tasks]
        if unknown:
            msg = f"lm-eval has no task {few(unknown)}"
            raise SelectionError(f"{msg}: --include_path names a folder of own tasks")
        try:
            tasks = dict(made.load(list(names))["tasks"])
        # Code that loads data sets can raise anything.
        except Exception as error:
            msg = f"lm-eval cannot load {few(list(names))}: {type(error).__name__}"
            raise EvalStatsError(f"{msg}: {error}") from error
        unsaved = [name for name in tasks if "/" in name]
        if unsaved:
            msg = f"lm-eval cannot save samples of a task with a slash in its name: {few(unsaved)}"
            raise SelectionError(f"{msg}; give it another name")
        return cls(tasks, made)

    def check(self, bank: ItemBank, metrics: Sequence[str], *, unsafe_code: bool) -> None:
        """Check, before a model is loaded, that its answers can be scored.

        Raises
        ------
        SelectionError
            A task is not in the bank, runs code of models, or is scored by none of the metrics.
        """
        missing = [name for name in self.by_name if name not in bank.task_names]
        if missing:
            has = few(bank.task_names)
            raise SelectionError(f"the bank holds no items of task {few(missing)}; it has: {has}")
        wanted = {name.partition(",")[0] for name in metrics}
        for name, task in self.by_name.items():
            if getattr(task, "UNSAFE_CODE", False) and not unsafe_code:
                msg = f"task {name} runs code that the model writes"
                raise SelectionError(f"{msg}: allow it with --confirm_run_unsafe_code")
            has = [str(metric) for metric in task.aggregation()]
            if wanted and not wanted & set(has):
                msg = f"task {name} is not scored by {few(list(metrics))}"
                names = ", ".join(has)
                raise SelectionError(f"{msg}: name one of {names} with --test-metric")

    def fingerprint(self) -> str:
        """Hash the tasks' configurations, such as their prompts."""
        configs = {name: task.dump_config() for name, task in self.by_name.items()}
        text = _ADDRESS.sub("", json.dumps(configs, sort_keys=True, default=str))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


class Documents:
    """Documents of one task, selected by row, each with the prompt of a run of all documents.

    lm-eval iterates over all documents to find a few, and draws few-shot examples in the order of
    the requests: the same question would have other examples in every round. The bank was made
    from runs of all documents, so the examples of such a run are used.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        docs = task.eval_docs
        self.documents: Sequence[Any] = docs if hasattr(docs, "__getitem__") else list(docs)
        self._rows: list[int] = []
        self._walk = task.doc_iterator
        # Up to 0.4.13 a document's doc_id is its place among those asked, not its row.
        last = len(self.documents) - 1
        self._by_place = last < 1 or next(iter(self._walk(samples=[last])))[0] == 0
        task.doc_iterator = self._iterate
        # Where it draws its few-shot examples in lm-eval's default way.
        api = harness("api.task").ConfigurableTask
        plain = getattr(task.__class__, "fewshot_context", None) is api.fewshot_context
        sampler: Any = getattr(task, "sampler", None)
        if plain and sampler.__class__ is harness("api.samplers").ContextSampler:
            self._draw = sampler.sample
            self._examples: list[Any] = []
            self._next = 0
            sampler.sample = self._sample

    def row_of(self, doc_id: int) -> int:
        """Return the row of a document, from a request of the current round."""
        return self._rows[doc_id] if self._by_place else doc_id

    def hashes(self) -> list[str]:
        """Hash the documents as lm-eval does when it logs them."""
        tools = harness("utils")
        texts = (
            json.dumps(
                document, indent=2, default=tools.handle_non_serializable, ensure_ascii=False
            )
            for document in self.documents
        )
        return [str(tools.hash_string(text)) for text in texts]

    def _iterate(
        self, *, samples: Sequence[int] | None = None, **others: Any
    ) -> Iterator[tuple[int, Any]]:
        if not samples:
            yield from self._walk(samples=samples, **others)
            return
        self._rows, self._next = list(samples), 0
        for place, row in enumerate(self._rows):
            yield place if self._by_place else row, self.documents[row]

    def _sample(self, n: int, eval_doc: Any = None, **others: Any) -> Any:
        """Return the few-shot examples of the next document."""
        if not self._examples:
            asked = (None if eval_doc is None else document for document in self.documents)
            self._examples = [self._draw(n=n, eval_doc=each, **others) for each in asked]
        row = self._rows[self._next]
        self._next += 1
        return self._examples[row]


def matched(bank: ItemBank, documents: Mapping[str, Documents]) -> ItemBank:
    """Return the bank's items that are documents of these tasks; raises as `ItemBank.matched`."""
    owners: list[str] = []
    ids: list[str] = []
    hashes: list[str | None] = []
    for name, own in documents.items():
        own_hashes = own.hashes()
        owners += [name] * len(own_hashes)
        ids += [str(row) for row in range(len(own_hashes))]
        hashes += own_hashes
    return bank.of_tasks(list(documents)).matched(owners, ids, hashes)


def arguments_of(text: str) -> dict[str, Any]:
    """Read ``--model_args``: ``name=value,…``, or a JSON object; else raise `SelectionError`."""
    try:
        if text.lstrip().startswith("{"):
            return dict(json.loads(text))
        return dict(harness("utils").simple_parse_args_string(text))
    except ValueError as error:
        msg = f"{text!r} is neither name=value, with commas between, nor an object in JSON"
        raise SelectionError(f"{msg} ({error})") from error

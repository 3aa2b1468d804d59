"""Adaptive testing in lm-eval: rounds of a few items on one loaded model.

lm-eval chooses documents by ``samples``. Up to 0.4.13 it writes wrong doc_ids where those are not
in order, so they always are here. The last round is lm-eval's own scoring of all items asked, from
recorded replies: results and samples files are what ``lm_eval run --samples`` would have written.
"""
# PART adaptive_tasks - Tasks of lm-eval of which a few documents are asked at a time.

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
from evalstats_plugin.adapters.lm_eval.layout import samples_path, section
from evalstats_plugin.adapters.lm_eval.reader import read_results
from evalstats_plugin.adapters.lm_eval.run_harness import harness, saved_by
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.records import RECORD, record_of
from evalstats_plugin.adaptive.session import EXHAUSTED, AdaptiveSession, AnswersFile
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.errors import DesignError, EvalStatsError, SelectionError, WriteError, few

OnRound = Callable[[AdaptiveSession], None]


_SAID = ("batch_size", "device")
"""Settings of a model that lm-eval writes into results."""


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as lm-eval's command line names it, and how it is asked."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """batch_size, max_batch_size, device."""
    asking: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of ``simple_evaluate`` that replies depend on, such as num_fewshot."""
    scoring: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those that they do not: bootstrap_iters, confirm_run_unsafe_code."""

    def load(self) -> Any:
        """Load it, once.

        Raises
        ------
        EvalStatsError
            lm-eval cannot; or it answers from several processes.
        """
        registry = harness("api.registry")
        try:
            made = registry.get_model(self.name).create_from_arg_obj(
                dict(self.arguments), dict(self.settings)
            )
        # Whatever a model's own code raises; SystemExit too, as some libraries do.
        except (Exception, SystemExit) as error:
            said = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
            msg = f"lm-eval cannot load model {self.name} ({said})"
            raise EvalStatsError(f"{msg}: {type(error).__name__}: {error}") from error
        if made.world_size > 1:
            msg = f"{made.world_size} processes found, expected one: each would choose items of its"
            raise EvalStatsError(f"{msg} own; spread the model over devices instead")
        return made

    def described(self) -> str:
        """Tell it from others."""
        known = [self.name, dict(self.arguments), dict(self.asking)]
        return json.dumps(known, sort_keys=True, default=str)


class Rounds:
    """A test of one model on some tasks.

    Parameters
    ----------
    plan
        With a state file.

    Raises
    ------
    SelectionError
        The bank holds no item of a task, or nothing that it can be scored by.
    ItemConflictError
        A document is another question than in the bank.
    DesignError
        The tasks have none of the bank's items that may be asked.
    """

    def __init__(self, tasks: Tasks, plan: Plan, model: Model) -> None:
        if plan.state is None:
            raise ValueError("a plan without a state file, expected one")
        bank = plan.load()
        unsafe = bool(model.scoring.get("confirm_run_unsafe_code"))
        tasks.check(bank, plan.metrics(bank), unsafe_code=unsafe)
        about = {
            "model": model.described(),
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
        known = {key: place for place, key in enumerate(self.bank.keys())}
        places = [known[step.task, step.item] for step in self.session.answers]
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
        # What lm-eval would have written, had it loaded the model itself.
        said = {name: self.model.settings[name] for name in _SAID if name in self.model.settings}
        said |= {"model": self.model.name, "model_args": dict(self.model.arguments)}
        results["config"] = {**results["config"], **said}
        found = self._scored(results)
        metrics = ", ".join(dict.fromkeys(r.metric for r in found))
        notes = [f"{self._unscored} items were asked and have no score"] if self._unscored else []
        results[RECORD] = record_of(self.session, metric=metrics, notes=notes)
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        for task in results["configs"]:
            tracker.save_results_samples(task_name=task, samples=samples[task])
        return _written(tracker, output, results)

    def close(self, *, done: bool = False) -> None:
        """Let other runs have the state file; remove it with the replies where all is done."""
        self.saved.close()
        if done:
            self.saved.path.unlink(missing_ok=True)
            self.recording.path.unlink(missing_ok=True)

    def row_of(self, task: str, doc_id: int) -> int:
        """Return the row of a document, of a request of the run that is going on."""
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
        # Models and tasks are code of all kinds; what was answered is on disk.
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
        there = [(place, scores.get(keys[place], float("nan"))) for place in places]
        there = [(place, score) for place, score in there if isfinite(score)]
        if not there:
            named = few([" / ".join(keys[place]) for place in places], 3)
            raise DesignError(f"none of {named} was scored: name another metric by --test-metric")
        # Without a score an item stays out: it was asked, and told nothing.
        self._unscored += len(places) - len(there)
        for place, score in there:
            self.session.record(place, score)
            self.saved.append(self.session)

    def _scored(self, results: Mapping[str, Any]) -> list[Responses]:
        """Return the scores of each task by its one metric."""
        wanted = self.plan.metrics(self.bank)
        found = read_results(results, Path(), Selection(metrics=wanted))
        by_task: dict[str, list[Responses]] = {}
        for each in found:
            if len(each.item_ids):
                by_task.setdefault(each.task, []).append(each)
        for task in results["configs"]:
            names = [r.metric for r in by_task.get(task, ())]
            if len(names) != 1:
                msg = f"task {task!r} is scored by {few(names) or 'none'} of the metrics"
                msg += f" {few(wanted) or '(none named)'}, expected one"
                raise SelectionError(f"{msg}: name it with --test-metric")
        return [each for group in by_task.values() for each in group]


def _nothing(*_: Any) -> None:
    """Do nothing."""


@contextmanager
def _without_environment() -> Generator[None, None, None]:
    """Spare a round lm-eval's survey of the machine, which takes seconds and is not kept."""
    evaluator = harness("evaluator")
    names = ("add_env_info", "add_tokenizer_info", "get_git_commit_hash")
    own = {name: getattr(evaluator, name) for name in names if hasattr(evaluator, name)}
    for name in own:
        setattr(evaluator, name, _nothing)
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(evaluator, name, function)


def found_in(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what an adaptive test found, where results are of one."""
    return dict(section(results, RECORD)) or None


def arguments_of(text: str) -> dict[str, Any]:
    """Read ``--model_args``: ``name=value,…``, or an object in JSON.

    Raises
    ------
    SelectionError
        It is neither.
    """
    try:
        if text.lstrip().startswith("{"):
            return dict(json.loads(text))
        return dict(harness("utils").simple_parse_args_string(text))
    except ValueError as error:
        msg = f"{text!r} found, expected name=value, commas between, or an object in JSON"
        raise SelectionError(f"{msg} ({error})") from error


def _written(tracker: Any, output: Path, results: Mapping[str, Any]) -> Path:
    """Return the results file; lm-eval swallows errors in saving."""
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


class Documents:
    """Documents of one task, chosen by row, each put as in a run of all of them.

    lm-eval walks through all documents to find a few, and draws the examples of a few-shot prompt
    in the order of what is asked: the same question would have other examples in every round. The
    bank was made of runs of all documents, so their examples are used.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        found = task.eval_docs
        self.documents: Sequence[Any] = found if hasattr(found, "__getitem__") else list(found)
        self._rows: list[int] = []
        self._walk = task.doc_iterator
        # Up to 0.4.13 a document is known by its place among those asked, not by its row.
        self._by_place = self._counts_places()
        task.doc_iterator = self._iterate
        if _draws_examples(task):
            self._draw = task.sampler.sample
            self._examples: list[Any] = []
            self._next = 0
            task.sampler.sample = self._sample

    def row_of(self, doc_id: int) -> int:
        """Return the row of a document, of a request of the run that is going on."""
        return self._rows[doc_id] if self._by_place else doc_id

    def hashes(self) -> list[str]:
        """Fingerprint the documents as lm-eval does when it logs them."""
        tools = harness("utils")
        texts = (
            json.dumps(
                document, indent=2, default=tools.handle_non_serializable, ensure_ascii=False
            )
            for document in self.documents
        )
        return [str(tools.hash_string(text)) for text in texts]

    def _counts_places(self) -> bool:
        last = len(self.documents) - 1
        return last < 1 or next(iter(self._walk(samples=[last])))[0] == 0

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
        """Give the examples of the next document asked."""
        if not self._examples:
            asked = (None if eval_doc is None else document for document in self.documents)
            self._examples = [self._draw(n=n, eval_doc=each, **others) for each in asked]
        row = self._rows[self._next]
        self._next += 1
        return self._examples[row]


@dataclass(frozen=True)
class Tasks:
    """Tasks by name, and what made them."""

    by_name: Mapping[str, Any]
    manager: Any

    @classmethod
    def load(
        cls,
        names: Sequence[str],
        include_path: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Tasks:
        """Load tasks, groups as their tasks, by name.

        Parameters
        ----------
        metadata
            For tasks that are made to measure, such as for a tokenizer.

        Raises
        ------
        SelectionError
            No such task, or one whose samples lm-eval cannot save.
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
            found = dict(made.load(list(names))["tasks"])
        # Data sets are loaded by code of all kinds, which raises errors of all kinds.
        except Exception as error:
            msg = f"lm-eval cannot load {few(list(names))}: {type(error).__name__}"
            raise EvalStatsError(f"{msg}: {error}") from error
        unsaved = [name for name in found if "/" in name]
        if unsaved:
            msg = f"lm-eval cannot save samples of a task with a slash in its name: {few(unsaved)}"
            raise SelectionError(f"{msg}; give it another name")
        return cls(found, made)

    def check(self, bank: ItemBank, metrics: Sequence[str], *, unsafe_code: bool) -> None:
        """Refuse, before a model is loaded, what would fail when its answers are scored.

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
                msg = f"task {name} is not scored by {few(list(metrics))}, expected one of"
                raise SelectionError(f"{msg} {', '.join(has)}: name it with --test-metric")

    def fingerprint(self) -> str:
        """Tell tasks from those of another configuration, such as another prompt."""
        configs = {name: task.dump_config() for name, task in self.by_name.items()}
        text = _ADDRESS.sub("", json.dumps(configs, sort_keys=True, default=str))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def matched(bank: ItemBank, documents: Mapping[str, Documents]) -> ItemBank:
    """Return the bank of these tasks, for the documents they have.

    Raises
    ------
    ItemConflictError, DesignError
        See `ItemBank.matched`.
    """
    owners: list[str] = []
    ids: list[str] = []
    hashes: list[str | None] = []
    for name, own in documents.items():
        found = own.hashes()
        owners += [name] * len(found)
        ids += [str(row) for row in range(len(found))]
        hashes += found
    return bank.of_tasks(list(documents)).matched(owners, ids, hashes)


def _draws_examples(task: Any) -> bool:
    """Whether a task draws its examples as lm-eval does where nothing else is said."""
    api = harness("api.task").ConfigurableTask
    plain = getattr(task.__class__, "fewshot_context", None) is api.fewshot_context
    sampler: Any = getattr(task, "sampler", None)
    return plain and sampler.__class__ is harness("api.samplers").ContextSampler

"""Tasks of lm-eval of which a few documents are asked at a time."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalstats_plugin.adapters.lm_eval.replay_model import harness
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.errors import EvalStatsError, SelectionError
from evalstats_plugin.wording import few

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


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

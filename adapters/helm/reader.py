"""Read `Responses` from a run of HELM: one for each metric, split and perturbation.

`find_logs` recognises `per_instance_stats.json` and `stats.json` by content; `read_log` reads one
run. Train trials (other examples in the prompt) are epochs. Values are compared with those in
`stats.json`, which are means over trials of means over instances. Counts and times, which say
nothing of answers, are read only if `-m` names them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.measure import Measure, agree
from evalstats_plugin.data.responses import (
    Provenance,
    Responses,
    Selection,
    Source,
    as_item_ids,
    mean_over_epochs,
    score_matrix,
)
from evalstats_plugin.data.runs import PER_TASK
from evalstats_plugin.errors import LogError, counted
from evalstats_plugin.runtime.files import LogFile, parse_json, reporting_damage
from evalstats_plugin.runtime.untrusted import printable_name

Json = Mapping[str, Any]

_Scores = dict[tuple[str, int], float]
"""By instance and trial."""

_SPEC, _STATE, _VALUES = "run_spec.json", "scenario_state.json", "stats.json"
_BESIDE = (_SPEC, _STATE, _VALUES, "scenario.json")

_LIST = re.compile(rb"\s*\[\s*\{")
_OF_INSTANCES = (b'"instance_id"', b'"stats"', b'"train_trial_index"')
_OF_VALUES = (b'"name"', b'"count"', b'"sum_squared"')

# "mmlu:subject=anatomy,model=openai_gpt2": the model is no part of the task.
_MODEL = re.compile(r"[,:]model(?:_deployment)?=([^,]*)")

# Metrics that are counts, times or logged for other reasons.
_NO_SCORES = re.compile(
    r"num_|inference_|training_|finish_reason_|batch_size|prompt_truncated|logprob|max_prob"
    r"|predicted_index|runtime"
)

# What HELM's scripts write over texts that are not to be published.
_HIDDEN = re.compile(r"\[redacted\]|\[encrypted_text_\d+\]")

_SETTINGS = ("max_train_instances", "num_outputs", "temperature", "max_tokens", "method")


class _Key(NamedTuple):
    """What tells a value of a run from others."""

    metric: str
    split: str
    sub_split: str
    perturbation: str
    settings: str = ""
    """Of the perturbation, such as how many letters are changed."""


class _Item(NamedTuple):
    """The question of an instance, and the prompt, as hashes; None where HELM has hidden them."""

    question: bytes | None
    prompt: bytes | None


def find_logs(files: Sequence[LogFile]) -> dict[Path, list[Path]]:
    """Return the scores of a run, or its values where these are all, with the files beside it."""
    lists = [f for f in files if f.path.suffix == ".json" and _LIST.match(f.head)]
    scores = [f.path for f in lists if _holds(f, _OF_INSTANCES)]
    values = [f.path for f in lists if _holds(f, _OF_VALUES) and not _holds(f, _OF_INSTANCES)]
    beside = [f.path for f in files if f.path.name in _BESIDE]
    logs = scores or values
    return {log: [path for path in (*values, *beside) if path not in logs] for log in logs}


def _holds(file: LogFile, keys: Sequence[bytes]) -> bool:
    return all(key in file.head for key in keys)


def read_log(log: LogFile, selection: Selection) -> list[Responses] | None:
    """Read a run by its scores of items or its values; None for files of others."""
    has_items = _holds(log, _OF_INSTANCES)
    if not _LIST.match(log.head) or not (has_items or _holds(log, _OF_VALUES)):
        return None
    parsed = parse_json(log.read_bytes(), log.path)
    with reporting_damage(log.path):
        values: list[Json] = parsed if not has_items else _beside(log.path, _VALUES) or []
        logged = {_key(stat): _mean(stat) for stat in values}
        return list(_Run(log.path, parsed if has_items else [], logged, selection).responses())


def _beside(path: Path, name: str) -> Any:
    file = path.with_name(name)
    return parse_json(file.read_bytes(), file) if file.is_file() else None


def _key(stat: Json) -> _Key:
    name = stat["name"]
    changed = dict(name.get("perturbation") or {})
    of = [changed.pop(part, None) for part in ("name", "computed_on")]
    # Kinds of perturbations, for HELM's own averages.
    rest = {k: v for k, v in changed.items() if k not in ("robustness", "fairness")}
    parts = (
        name["name"],
        name.get("split") or "",
        name.get("sub_split") or "",
        ", ".join(str(part) for part in of if part),
        ", ".join(f"{k}={v}" for k, v in sorted(rest.items())),
    )
    return _Key(*(printable_name(str(part)) for part in parts))


def _mean(stat: Json) -> float:
    """Return the value of a statistic, NaN for one without any."""
    mean = stat.get("mean")
    return float(mean) if stat.get("count") and mean is not None else math.nan


class _Run:
    """One run: its scores of items, its logged values and what it is of."""

    def __init__(
        self,
        path: Path,
        instances: Sequence[Json],
        logged: Mapping[_Key, float],
        selection: Selection,
    ) -> None:
        self.path, self.selection, self.logged = path, selection, logged
        spec: Json = _beside(path, _SPEC) or {}
        adapter: Json = spec.get("adapter_spec") or {}
        name = str(spec.get("name") or path.resolve().parent.name)
        named = _MODEL.search(name)
        model = adapter.get("model") or selection.model_name or (named[1] if named else "")
        if not model:
            raise LogError(
                f"{path} does not name its model: put the run's {_SPEC} beside it, or pass "
                "--model-name (in Python: model_name=)"
            )
        self.model, self.task = printable_name(str(model)), printable_name(_MODEL.sub("", name))
        deployment = adapter.get("model_deployment")
        settings = {
            PER_TASK + key: adapter[key] for key in _SETTINGS if adapter.get(key) is not None
        }
        settings |= {"deployment": deployment} if deployment not in (None, model) else {}
        self.settings = tuple(sorted((key, printable_name(str(v))) for key, v in settings.items()))
        self.scores, self.duplicates = _scores(instances)

    def responses(self) -> Iterator[Responses]:
        """Yield a response for each value: the unperturbed ones of the test split first."""
        tasks = (self.task, self.task.partition(":")[0])
        if not self.selection.wants_task(*tasks):
            return
        every = list(dict.fromkeys([*self.logged, *self.scores]))
        labels = {key: _label(key, every) for key in every}
        # Where nothing was perturbed, HELM repeats every value as the worst of its perturbations.
        plain = bool(self.scores) and not any(key.perturbation for key in self.scores)
        wanted = [
            key
            for key in every
            if not _NO_SCORES.match(key.metric)
            and not (plain and key.perturbation and self._repeats(key))
        ]
        if self.selection.metrics_of(*tasks):
            wants = self.selection.wants_metric
            wanted = [k for k in every if wants(labels[k], *tasks) or wants(k.metric, *tasks)]
        items = self._items() if not self.selection.header_only else {}
        for key in sorted(wanted, key=lambda k: (k.perturbation != "", k.split != "test")):
            yield self._of(key, labels[key], items)

    def _repeats(self, key: _Key) -> bool:
        """Whether the value is that without a perturbation."""
        values = self.logged[key], self.logged.get(key._replace(perturbation="", settings=""))
        return values[0] == values[1] or all(v is not None and math.isnan(v) for v in values)

    def _items(self) -> dict[str, _Item]:
        """Return the questions and prompts by id and perturbation, where the run's state is."""
        state: Json = _beside(self.path, _STATE) or {}
        items: dict[str, _Item] = {}
        for request in state.get("request_states") or ():
            asked = request["instance"]
            answers = [json.dumps(r["output"]) for r in asked.get("references") or ()]
            question = _hash([asked["input"], sorted(answers)])
            sent = request.get("request", {})
            prompt = _hash([sent.get("prompt"), sent.get("messages")])
            # Of several trials and choices the first one counts.
            items.setdefault(str(asked.get("id")), _Item(question, prompt))
        return items

    def _of(self, key: _Key, label: str, items: Mapping[str, _Item]) -> Responses:
        value = self.logged.get(key, math.nan)
        rows = self.scores.get(key)
        base: dict[str, Any] = {
            "model": self.model,
            "measure": Measure(task=self.task, metric=label),
            "source": Source(path=self.path, harness="helm"),
            "settings": self.settings,
            "logged": None if math.isnan(value) else value,
        }
        if rows is None or self.selection.header_only:
            note = "no scores of items: only the value is there"
            return Responses(**base, notes=() if self.selection.header_only else (note,))
        ids = list(dict.fromkeys(item for item, _ in rows))
        trials = sorted({trial for _, trial in rows})
        place = {item: i for i, item in enumerate(ids)}
        scores = score_matrix(
            np.array([place[item] for item, _ in rows]),
            np.array([trials.index(trial) for _, trial in rows]),
            np.array(list(rows.values())),
        )
        held = [items.get(item) for item in ids]
        asked = [[None if each is None else each[part] for each in held] for part in (0, 1)]
        questions, prompts = (None if None in each else np.asarray(each) for each in asked)
        n = self.duplicates[key]
        repeated = f"{counted(n, 'duplicate score')} left out: one per instance and trial is used"
        return Responses(
            **base,
            item_ids=as_item_ids(ids),
            scores=scores,
            item_hashes=questions,
            provenance=Provenance(prompt_hashes=None if key.perturbation else prompts),
            notes=(*_mismatch(scores, value), *[repeated] * (n > 0)),
        )


def _scores(instances: Sequence[Json]) -> tuple[dict[_Key, _Scores], Counter[_Key]]:
    """Return by value the score of each instance in each trial, and the number of duplicates.

    Raises
    ------
    ValueError
        An instance has two different scores by one name.
    """
    by_key: dict[_Key, _Scores] = {}
    duplicates: Counter[_Key] = Counter()
    for instance in instances:
        where = printable_name(str(instance["instance_id"])), int(instance["train_trial_index"])
        for stat in instance["stats"]:
            key, score = _key(stat), _mean(stat)
            scores = by_key.setdefault(key, {})
            duplicates[key] += where in scores
            earlier = scores.get(where, math.nan)
            # HELM warns of two metrics by one name, and goes on.
            both = not math.isnan(earlier + score)
            if both and earlier != score and not _NO_SCORES.match(key.metric):
                raise ValueError(f"instance {where[0]!r} has two scores {key.metric} in one trial")
            scores[where] = score if math.isnan(earlier) else earlier
    return by_key, duplicates


def _label(key: _Key, every: Sequence[_Key]) -> str:
    """Return a metric's name, with the split and perturbation where it has several."""
    splits = {k.split for k in every if k.metric == key.metric}
    split = key.split if len(splits) > 1 and key.split != "test" else ""
    alike = {k.settings for k in every if k._replace(settings="") == key._replace(settings="")}
    changed = ", ".join([key.perturbation, *[key.settings] * (len(alike) > 1)])
    return "/".join(part for part in (key.metric, split, key.sub_split, changed) if part)


def _mismatch(scores: NDArray[np.float64], value: float) -> Iterator[str]:
    trials = [column[~np.isnan(column)] for column in scores.T]
    means = [column.mean() for column in trials if len(column)]
    if not means or math.isnan(value):
        return
    mean = float(np.mean(means))
    if not agree(mean, value):
        yield f"mismatch: {value:.6g} was logged, the instances give {mean:.6g}"
        return
    items = mean_over_epochs(scores)
    of_items = float(items[~np.isnan(items)].mean())
    if not agree(of_items, value):
        yield f"{value:.6g} was logged, a mean of trials; of instances it is {of_items:.6g}"


def _hash(asked: object) -> bytes | None:
    text = json.dumps(asked)
    hidden = _HIDDEN.search(text)
    return None if hidden else hashlib.sha256(text.encode()).hexdigest()[:16].encode()

"""The durable part of an annotation: log metadata and a tag, with who wrote them and why.

Inspect keeps both through score edits and recomputed metrics, shows them in the Info and Activity
tabs, and lists every edit with its author. Taking an annotation out takes our entries out of that
list too, so that the log is as it was; the entries of others stay.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from evalstats_plugin.adapters.inspect_ai.early_stops import found_in
from evalstats_plugin.adaptive.records import sentence, with_record
from evalstats_plugin.plugins import Annotation
from evalstats_plugin.results import Comparison, ScoreInterval

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, LogUpdate

    from evalstats_plugin.analyses.ability_records import Ability
    from evalstats_plugin.analyses.hierarchical_records import Performance

KEY = "evalstats"
SUMMARY_KEY = "evalstats_summary"
TAG = "evalstats"
_MOST_IN_SUMMARY = 6
_AUTHOR = "evalstats_plugin "
"""What our entries in the history are signed with, before the version."""


def with_payload(log: EvalLog, annotation: Annotation | None) -> EvalLog:
    """Return the log with an annotation's block (None: without any), or the same object.

    The block goes through JSON first: what Inspect reads back must be equal to it, or every run
    would add an update to the history.
    """
    from inspect_ai.log import MetadataEdit, ProvenanceData, TagsEdit, edit_eval_log

    from evalstats_plugin import __version__

    if annotation is None:
        log = _without_our_updates(log)
        # What somebody else has put there under our name.
        tags = TagsEdit(tags_remove=[TAG])
        metadata = MetadataEdit(metadata_remove=[KEY, SUMMARY_KEY])
        reason = "statistical annotation removed"
    else:
        found = found_in(log)
        block = json.loads(json.dumps(with_record(annotation.block(), found), allow_nan=False))
        told = summary(annotation)
        if found is not None:
            told = f"{sentence(found)}; of the items asked: {told}"
        tags = TagsEdit(tags_add=[TAG])
        metadata = MetadataEdit(metadata_set={KEY: block, SUMMARY_KEY: told})
        reason = "statistical annotation"
    author = f"{_AUTHOR}{__version__ if annotation is None else annotation.version}"
    return edit_eval_log(log, [tags, metadata], ProvenanceData(author=author, reason=reason))


def _without_our_updates(log: EvalLog) -> EvalLog:
    """Return the log with a history as if it had never been annotated, or the same object."""
    updates = log.log_updates or []
    kept = [update for update in updates if not _is_ours(update)]
    if len(kept) == len(updates):
        return log
    log = log.model_copy(update={"log_updates": kept or None})
    log.recompute_tags_and_metadata()
    return log


def _is_ours(update: LogUpdate) -> bool:
    """Whether an entry of the history is by us, and about nothing but our annotation."""
    from inspect_ai.log import MetadataEdit, TagsEdit

    names: set[str] = set()
    for edit in update.edits:
        if isinstance(edit, TagsEdit):
            names |= {*edit.tags_add, *edit.tags_remove}
        elif isinstance(edit, MetadataEdit):
            names |= {*edit.metadata_set, *edit.metadata_remove}
    return update.provenance.author.startswith(_AUTHOR) and names <= {KEY, SUMMARY_KEY, TAG}


def summary(annotation: Annotation) -> str:
    """Return the intervals and comparisons as one line for people."""
    sentences = [_sentence(row) for row in annotation.intervals]
    sentences += [_comparison(row) for row in annotation.comparisons or ()]
    sentences += [_ability(row) for row in annotation.abilities or ()]
    sentences += [_pooled(row) for row in annotation.pooled or ()]
    shown = sentences[:_MOST_IN_SUMMARY]
    if len(sentences) > len(shown):
        shown.append(f"and {len(sentences) - len(shown)} more")
    return "; ".join(shown) or "no scores"


def _sentence(row: ScoreInterval) -> str:
    if row.estimate is None:
        return f"{row.metric}: no estimate"
    if row.low is None or row.high is None:
        return f"{row.metric} {row.estimate:.3f}, no interval"
    how = f"{100 * row.confidence_level:g}% {row.method}, {row.n_items} items"
    return f"{row.metric} {row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}] ({how})"


def _comparison(row: Comparison) -> str:
    what = f"{row.model_b} - {row.model_a} on {row.metric}"
    if row.difference is None or row.low is None or row.high is None:
        return f"{what}: no difference to be had"
    return f"{what} {row.difference:+.3f} [{row.low:+.3f}, {row.high:+.3f}] ({row.method})"


def _ability(row: Ability) -> str:
    what = f"ability on {row.metric}"
    if row.estimate is None:
        return f"{what}: no estimate"
    limits = "" if row.low is None or row.high is None else f" [{row.low:+.2f}, {row.high:+.2f}]"
    how = f"{row.item_model} {row.estimator}, {row.n_models} models, {row.scale}"
    return f"{what} {row.estimate:+.2f}{limits} ({how})"


def _pooled(row: Performance) -> str:
    what = f"{row.metric} pooled {'over all tasks' if row.task is None else f'on {row.task}'}"
    if row.estimate is None or row.low is None or row.high is None:
        return f"{what}: no estimate"
    limits = f"[{row.low:.3f}, {row.high:.3f}]"
    return f"{what} {row.estimate:.3f} {limits} (hierarchical {row.method})"

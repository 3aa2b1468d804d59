"""Which run of a model on a task counts: told apart from how the program walks through them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from hypothesis import given
from hypothesis import strategies as st

import evalstats_plugin as es
from evalstats_plugin.data.matrix import stack_epochs
from evalstats_plugin.data.responses import Selection
from evalstats_plugin.data.runs import choose_runs, latest_run, n_items, repeated_runs, run_of

RUNS = st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=2, max_size=6)
"""Number of items, and whether the run is a part."""


def _run(number: int, n: int, *, is_partial: bool) -> es.Responses:
    return given_responses(
        model="m",
        scores=np.zeros((n, 1)),
        item_ids=np.array([f"item_{k}" for k in range(n)]),
        source=es.Source(path=Path(f"run_{number}"), harness="test", when=f"2026-01-{number:02d}"),
        n_cut=5 if is_partial else 0,
    )


@given(RUNS, st.randoms())
def test_the_latest_run_is_whole_or_the_longest_since(runs, random):
    """Of the last whole run and the parts after it, the longest; of those of one length, the last.

    Whatever order the logs are listed in, one run is kept, and the note tells what was passed over.
    """
    each = [_run(k + 1, n, is_partial=cut) for k, (n, cut) in enumerate(runs)]
    whole = [k for k, (_, cut) in enumerate(runs) if not cut]
    rest = range(whole[-1] if whole else 0, len(runs))
    expected = max(rest, key=lambda k: (runs[k][0], k))
    random.shuffle(shuffled := list(each))
    [by_run] = repeated_runs(shuffled).values()
    kept, [note] = choose_runs(shuffled, "latest")

    assert latest_run(by_run) == run_of(each[expected])
    assert [run_of(r) for r in kept] == [run_of(each[expected])]
    assert n_items(kept) == runs[expected][0]
    assert ("the latest run is partial" in note) == (expected != len(runs) - 1)


def test_all_runs_are_kept_or_refused_on_request():
    """Each under a name of its own."""
    each = [_run(k, 3, is_partial=False) for k in (1, 2)]

    assert len({r.model for r in choose_runs(each, "all")[0]}) == 2
    with pytest.raises(es.errors.DesignError, match="in 2 runs"):
        choose_runs(each, "error")


def test_a_run_without_scores_is_no_epoch():
    """The one run that has scores stays as it is; of none that has, the last."""
    empty, full = _run(1, 0, is_partial=False), _run(2, 3, is_partial=False)

    for runs in ([empty, full], [full, empty]):
        assert stack_epochs(runs) == [full]
    assert stack_epochs([empty, _run(3, 0, is_partial=False)])[0].source.when == "2026-01-03"


@pytest.mark.parametrize(
    ("task", "metrics"), [("arc", ("acc",)), ("arc_hard", ("f1", "x*")), ("mmlu", ("em", "bleu"))]
)
def test_metrics_of_a_task_replace_those_of_all(task, metrics):
    """Those of no task count where none is asked for of this one."""
    chosen = Selection(metrics=("arc=acc", "f1", "mmlu*=em", "x*", "mm*=bleu"))

    assert chosen.metrics_of(task) == metrics
    assert Selection(metrics=("f1",)).metrics_of(task) == ("f1",)


def test_runs_that_are_no_means_of_items_are_no_epochs():
    """One that is left stands by itself; a frame of several responses has one index."""
    mean, other = (_run(k, 3, is_partial=False) for k in (1, 2))
    other = other.measured(aggregation="f1")

    assert stack_epochs([mean, other]) == [mean]
    assert stack_epochs([other]) == [other]
    [three] = stack_epochs([mean, other, _run(3, 3, is_partial=False)])
    assert three.scores.shape == (3, 2)
    frame = es.data.runs.ResponseSet((mean, _run(3, 2, is_partial=False))).to_frame()
    assert frame.index.tolist() == list(range(5))

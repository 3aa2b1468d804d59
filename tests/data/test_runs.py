"""Which run of a model on a task counts: told apart from how the program walks through them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from hypothesis import given
from hypothesis import strategies as st

import evalstats_plugin as es
from evalstats_plugin.data.matrix import stack_epochs
from evalstats_plugin.data.responses import Prediction, Selection
from evalstats_plugin.data.runs import (
    choose_runs,
    find_copies,
    label_models,
    latest_run,
    n_items,
    repeated_runs,
    run_of,
    undated,
    with_settings_as_tags,
)

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


def test_counts_are_as_long_as_the_items_that_they_are_of():
    full, part = (
        replace(_run(k, 0, is_partial=k > 1), logged=0.5, logged_n=n) for k, n in ((1, 10), (2, 4))
    )

    assert choose_runs([full, part], "latest")[0] == [full]


def test_runs_at_an_unknown_time_are_no_copies():
    """Nor those without items; at one time two logs hold one run."""
    for n, when, n_copies in ((3, "2026", 1), (3, "", 0), (0, "2026", 0)):
        runs = [_run(k, n, is_partial=False) for k in (1, 2)]
        again = [replace(r, source=replace(r.source, when=when)) for r in runs]

        assert len(find_copies(again)) == n_copies


def test_settings_that_differ_name_a_model_in_their_order():
    """Those of a task only where nothing else tells its runs apart; what all share names nothing.

    So that a model has one name on tasks that were asked with different numbers of examples.
    """
    names = [f"s{k}" for k in range(6)]
    listed = [
        replace(_run(k, 1, is_partial=False), settings=tuple(
            [(name, str(k)) for name in reversed(names)] + [("task.n", str(k)), ("same", "x")]
        ))
        for k in (1, 2)
    ]  # fmt: skip
    said = ", ".join(f"{name}=1" for name in names)
    elsewhere = listed[0].measured(task="other")

    assert {r.model for r in label_models([*listed, elsewhere])[::2]} == {f"m ({said})"}
    alike = [replace(r, settings=(("task.n", str(k)),)) for k, r in enumerate(listed)]
    assert [r.model for r in label_models(alike)] == ["m (n=0)", "m (n=1)"]
    apart = [alike[0], alike[1].measured(task="other")]
    assert [r.model for r in label_models(apart)] == ["m", "m"]


def test_a_setting_is_the_tag_of_its_run():
    """A list is one tag."""
    run = replace(_run(1, 2, is_partial=False), settings=(("task.n", "5"), ("stop", "[1, 2]")))
    for name, tag, rest in (("n", "5", "stop"), ("stop", '["[1, 2]"]', "task.n")):
        [tagged] = with_settings_as_tags([run], name)

        assert tagged.tags.tolist() == [tag, tag]
        assert [key for key, _ in tagged.settings] == [rest]


def test_all_runs_are_kept_or_refused_on_request():
    """Each under a name of its own."""
    each = [_run(k, 3, is_partial=False) for k in (1, 2)]

    assert len({r.model for r in choose_runs(each, "all")[0]}) == 2
    for when in ("", "2026-01-01"):
        alike = [replace(r, source=replace(r.source, when=when)) for r in each]
        named, _ = choose_runs(alike, "all")
        assert [r.model for r in named] == ["m @ run_1", "m @ run_2"]
        assert {undated(r).model for r in named} == {"m"}
    mixed = [replace(each[0], source=replace(each[0].source, when="")), each[1]]
    assert [r.model for r in choose_runs(mixed, "all")[0]] == [
        "m @ run_1", f"m @ {each[1].source.when}"
    ]  # fmt: skip
    with pytest.raises(es.errors.DesignError, match="in 2 runs"):
        choose_runs(each, "error")


def test_times_with_offsets_are_compared_as_instants():
    """Noon in New York is after noon in Berlin, whatever the texts; so are epochs in order."""
    times = ["2026-01-01T13:00:00+01:00", "2026-01-01T12:30:00Z", "2026-01-01T08:00:00-05:00"]
    shuffled = [times[k] for k in (2, 0, 1)]
    each = [_run(1, 2, is_partial=False) for _ in shuffled]
    each = [
        replace(r, scores=r.scores + times.index(when), source=replace(r.source, when=when))
        for r, when in zip(each, shuffled, strict=True)
    ]

    assert [r.source.when for r in choose_runs(each, "latest")[0]] == times[2:]
    assert [r.model for r in choose_runs(each, "all")[0]] == [f"m @ {when}" for when in shuffled]
    assert stack_epochs(each)[0].scores.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert es.Source(path=Path(), harness="test", when="0001-01-01T00:00:00+01:00").instant


def test_a_run_without_scores_is_no_epoch():
    """The one run that has scores stays as it is; of none that has, the last."""
    empty, full = _run(1, 0, is_partial=False), _run(2, 3, is_partial=False)

    for runs in ([empty, full], [full, empty]):
        assert stack_epochs(runs) == [full]
    assert stack_epochs([empty, _run(3, 0, is_partial=False)])[0].source.when == "2026-01-03"


@pytest.mark.parametrize(
    ("task", "metrics"),
    [
        ("arc", ("acc",)),
        ("arc_hard", ("arc=acc", "f1", "mmlu*=em", "x*", "mm*=bleu")),
        ("mmlu", ("em", "bleu")),
    ],
)
def test_metrics_of_a_task_replace_those_of_all(task, metrics):
    """Those of no task count where none is asked for of this one; a name may hold "=" itself."""
    chosen = Selection(metrics=("arc=acc", "f1", "mmlu*=em", "x*", "mm*=bleu"))

    assert chosen.metrics_of(task) == metrics
    assert Selection(metrics=("f1",)).metrics_of(task) == ("f1",)
    named = Selection(metrics=(f"{task}=b=f1",))
    assert [named.wants_metric("f1", name) for name in (task, f"{task}=b")] == [False, True]


def test_brackets_are_part_of_names():
    """Of tasks, metrics and models alike; stars and question marks are wildcards."""
    chosen = Selection(("add[2]", "sub[?]"), ("add*=em[en]", "f1[*]"))

    assert [chosen.wants_task(name) for name in ("add[2]", "sub[4]", "add2")] == [True, True, False]
    assert [chosen.wants_metric(name, "add[2]") for name in ("em[en]", "eme")] == [True, False]
    assert [chosen.wants_metric(name, "sub[4]") for name in ("f1[de]", "f1d")] == [True, False]


def test_answers_are_counted_whatever_metric_comes_last():
    """Of each model and task once, under the metric that has most."""
    full, empty = _run(1, 3, is_partial=False), _run(1, 0, is_partial=False)
    listed = (full, full.measured(metric="em"), empty.measured(metric="f1"), full.renamed("n"))

    assert repr(es.data.runs.ResponseSet(listed)) == "<ResponseSet: 2 models, 1 task, 6 answers>"


def test_runs_that_are_no_means_of_items_are_no_epochs():
    """One that is left stands by itself; a frame of several responses has one index."""
    mean, other = (_run(k, 3, is_partial=False) for k in (1, 2))
    other = other.measured(aggregation="f1")

    assert stack_epochs([mean, other]) == [mean]
    assert stack_epochs([other]) == [other]
    [latest] = stack_epochs([other, _run(3, 3, is_partial=False).measured(aggregation="f1")])
    assert latest.source.when == "2026-01-03"
    assert latest.notes == ("of the latest of 2 runs: not a mean of items, so not stacked",)
    [three] = stack_epochs([mean, other, _run(3, 3, is_partial=False)])
    assert three.scores.shape == (3, 2)
    frame = es.data.runs.ResponseSet((mean, _run(3, 2, is_partial=False))).to_frame()
    assert frame.index.tolist() == list(range(5))


def test_items_of_stacked_runs_keep_their_tags():
    """Whatever their order in each run; an item of one run alone has the tag that it has there."""
    first, second = (
        given_responses(
            model="m", scores=np.zeros((len(items), 1)), item_ids=np.array(list(items)),
            tags=None if tags is None else np.array(list(tags)),
            source=es.Source(path=Path(items), harness="test", when=items),
        )
        for items, tags in (("zac", "NMK"), ("bza", "LNM"))
    )  # fmt: skip
    without = replace(second, tags=None)

    assert dict(_tagged(first, second)) == {"a": "M", "b": "L", "c": "K", "z": "N"}
    assert dict(_tagged(first, without))["b"].startswith("(item ")
    assert stack_epochs([replace(first, tags=None), without])[0].tags is None


def _tagged(*runs):
    [stacked] = stack_epochs(runs)
    return zip(stacked.item_ids.tolist(), stacked.tags.tolist(), strict=True)


def test_other_values_of_stacked_runs_are_stacked_too():
    """Those beside them, such as of groups of items, and the epochs behind combined scores."""
    first, second = (
        replace(
            r,
            unreduced=replace(r, scores=np.full((3, 4), float(k))),
            beside=(r.of_items(np.arange(2)).measured(metric="acc/group"),),
        )
        for k, r in enumerate(_run(k, 3, is_partial=False) for k in (1, 2))
    )
    [stacked] = stack_epochs([first, second])
    [group] = stacked.beside

    assert stacked.as_epochs.scores.tolist() == [[0.0] * 4 + [1.0] * 4] * 3
    assert group.metric == "acc/group"
    assert group.scores.shape == (2, 2)


def test_scores_that_an_adaptive_test_predicts_are_no_epochs():
    """A prediction from one run is not the mean of two."""
    plain, adaptive, again = (_run(k, 3, is_partial=False) for k in (1, 2, 3))
    adaptive = replace(adaptive, predicted=Prediction(estimate=0.5, n_in_bank=9))

    assert stack_epochs([plain, adaptive]) == [plain]
    [stacked] = stack_epochs(
        [plain, again, replace(adaptive, source=_run(4, 3, is_partial=False).source)]
    )
    assert stacked.predicted is None
    assert stacked.scores.shape == (3, 2)

"""What figures draw stands where the numbers say."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from drawn_figures import Drawn, comparisons, intervals, names

from evalstats_plugin import ResponseMatrix, fit_irt, pool, rank
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.records import record_of
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.rows import abilities
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.report.figures.abilities import (
    plot_ability_score,
    plot_information,
    plot_item_curves,
    plot_item_fit,
    plot_observed_curve,
    plot_wright_map,
    spread_out,
)
from evalstats_plugin.report.figures.adaptive import plot_accuracy, plot_trace
from evalstats_plugin.report.figures.comparisons import (
    plot_comparison_matrix,
    plot_differences,
    plot_ranks,
)
from evalstats_plugin.report.figures.scores import (
    plot_forest,
    plot_variance_parts,
)
from evalstats_plugin.scores import variance_parts

pytest.importorskip("matplotlib")


def _points(axes: Any, marker: str) -> list[tuple[float, float]]:
    """Places of all marks of one kind."""
    found = [line.get_xydata() for line in axes.lines if line.get_marker() == marker]
    return [(float(x), float(y)) for data in found for x, y in data]


def _bars(axes: Any) -> list[tuple[float, float]]:
    """Ends of all horizontal lines of collections."""
    paths = [path.vertices for lines in axes.collections for path in lines.get_paths()]
    return [(float(p[0, 0]), float(p[-1, 0])) for p in paths if len(p) == 2 and p[0, 1] == p[-1, 1]]


def _fit(n: int = 5, m: int = 30) -> tuple[Any, ResponseMatrix]:
    rng = np.random.default_rng(4)
    ability, difficulty = rng.normal(0, 1, n), rng.normal(0, 1.2, m)
    right = rng.random((n, m)) < 1 / (1 + np.exp(difficulty - ability[:, None]))
    matrix = ResponseMatrix.from_array(right.astype(float), models=names(n))
    return fit_irt(matrix, "2pl", rng=0), matrix


def test_a_forest_has_every_estimate_between_its_limits() -> None:
    """In the row of its model, the best on top of its task; the missing has a dash."""
    results = intervals(4)
    axes = plot_forest(results)
    marks, bars = _points(axes, "o"), _bars(axes)
    texts = [label.get_text() for label in axes.get_yticklabels()]
    at = dict(zip(axes.get_yticks().tolist(), texts, strict=True))
    expected = [
        row
        for task in ("maths $x_1$", "reading")
        for row in sorted(
            (r for r in results if r.task == task and r.estimate is not None),
            key=lambda row: -(row.estimate or 0.0),
        )
    ]

    assert [row.estimate for row in expected] == pytest.approx([x for x, _ in marks])
    assert [(row.low, row.high) for row in expected] == [pytest.approx(bar) for bar in bars]
    for row, (_, y) in zip(expected, marks, strict=True):
        assert row.model.replace("\n", " ")[:20] in at[y].replace("\n", "")
    assert 1 == sum(text.get_text() == "–" for text in axes.texts)


def test_other_numbers_in_the_same_place_would_be_seen() -> None:
    """The look at marks is no matter of course: two results, two pictures."""
    moved = Results(tuple(replace(row, estimate=0.5) for row in intervals(4)))

    assert _points(plot_forest(moved), "o") != _points(plot_forest(intervals(4)), "o")


def test_metrics_on_other_scales_get_axes_of_their_own() -> None:
    """One under the other; into one's own axes they do not fit."""
    large = [
        replace(row, metric="perplexity", estimate=20 * (row.estimate or 1), low=1.0, high=40.0)
        for row in intervals(2, tasks=["text"])
    ]
    both = Results((*intervals(2).rows, *large))
    first = plot_forest(both)

    assert 2 == len(first.figure.axes)
    assert 1 >= max(x for x, _ in _points(first, "o"))
    with pytest.raises(DesignError, match=r"scores of 2 scales .*choose a metric"):
        plot_forest(both, ax=first)


def test_an_arrow_leads_from_each_score_to_its_estimate() -> None:
    """Of a hierarchical fit, those that were run."""
    scores = np.random.default_rng(0).integers(0, 2, (3, 20)).astype(float)
    scores[0, :10] = np.nan
    matrix = ResponseMatrix.from_array(scores, tasks=["a"] * 10 + ["b"] * 10)
    fit = pool(matrix, "per-task", rng=0)
    axes = plot_forest(fit)
    found = {
        (round(text.xyann[0], 9), round(text.xy[0], 9))
        for text in axes.texts
        if getattr(text, "arrow_patch", None) is not None
    }

    assert {(round(r.score, 9), round(r.estimate, 9)) for r in fit if r.score is not None} == found


def test_the_matrix_says_who_is_better_and_marks_what_is_beyond_chance() -> None:
    """Row against column, with a triangle for every pair that is told apart, both ways."""
    results = comparisons(4, missing=True)
    axes = plot_comparison_matrix(results)
    [mesh] = axes.collections
    shades = mesh.get_array()
    place = {name: i for i, name in enumerate(names(4))}
    apart = [row for row in results if row.verdict != "unclear"]

    for row in results:
        a, b = place[row.model_a], place[row.model_b]
        if row.prob_better is None:
            assert shades.mask[a, b]
            assert shades.mask[b, a]
        else:
            assert row.prob_better == pytest.approx(shades[b, a])
            assert 1 - row.prob_better == pytest.approx(shades[a, b])
    assert 0 < len(apart) < len(results.rows)
    assert {(place[r.model_b], place[r.model_a]) for r in apart} == _cells(axes, "^")
    assert {(place[r.model_a], place[r.model_b]) for r in apart} == _cells(axes, "v")
    assert 2 == sum(text.get_text() == "–" for text in axes.texts)


def _cells(axes: Any, marker: str) -> set[tuple[int, int]]:
    """Column and row of every mark."""
    edges = sorted({float(y) for y in axes.collections[0].get_coordinates()[:, 0, 1]})
    return {(int(x), int(np.searchsorted(edges, y)) - 1) for x, y in _points(axes, marker)}


def test_differences_say_their_verdict_by_their_mark() -> None:
    """Up is better, down is worse, open is unclear; 0 has a line."""
    results = comparisons(9, baseline=True)
    better = replace(
        results.rows[0], model_b="z", difference=0.3, low=0.2, high=0.4, p_adjusted=0.0
    )
    axes = plot_differences(Results((*results.rows, better)))

    assert [pytest.approx(0.3)] == [x for x, _ in _points(axes, "^")]
    for marker, verdict in (("v", "worse"), ("o", "unclear")):
        expected = sorted(row.difference or 0.0 for row in results if row.verdict == verdict)
        assert expected
        assert expected == pytest.approx(sorted(x for x, _ in _points(axes, marker)))
    assert any(line.get_xdata()[0] == 0 == line.get_xdata()[-1] for line in axes.lines)
    assert f"difference to {names(1)[0]}" in axes.get_xlabel()


def test_ratios_are_drawn_around_one() -> None:
    """On a logarithmic axis; what is infinite has no line."""
    rows = [
        replace(row, effect="odds ratio", difference=2.0, low=0.5, high=None)
        for row in comparisons(3)
    ]
    axes = plot_differences(Results(tuple(rows)))

    assert "log" == axes.get_xscale()
    assert axes.get_xlim()[0] < 1 < axes.get_xlim()[1]
    assert [2.0] * 3 == [x for x, _ in _points(axes, "v") + _points(axes, "o") + _points(axes, "^")]


def test_ranks_are_bars_and_letters_lines() -> None:
    """From the best to the worst rank that is open; who shares a line is not told apart."""
    first, second = [0, 0, 1, 1, 2, 0] * 9, [1, 2, 2, 3, 3, 3] * 9
    contests = Contests.of(first, second, [1, 1, 1, 0.5, 0.5, 1] * 9, players=["a", "b", "c", "d"])
    ranking = rank(contests, model="bradley-terry", rng=0)
    axes = plot_ranks(ranking)
    bars = [(low + 0.4, high - 0.4) for low, high in _bars(axes)]
    at = dict(zip([t.get_text() for t in axes.get_yticklabels()], axes.get_yticks(), strict=True))
    lines = [set(line.get_ydata()) for line in axes.lines if line.get_marker() == "o"]

    assert [(row.rank_low, row.rank_high) for row in ranking] == [pytest.approx(b) for b in bars]
    assert [row.expected_rank for row in ranking] == [
        pytest.approx(x) for x, _ in _points(axes, "D")
    ]
    for letter, line in zip(
        sorted({x for row in ranking for x in row.letters}), lines, strict=True
    ):
        assert {at[row.player] for row in ranking if letter in row.letters} == line
    shades = axes.collections[0].get_array()
    assert ranking.rank_distribution().to_numpy() == pytest.approx(
        np.ma.filled(shades, 0), abs=0.002
    )


def test_ranks_of_comparisons_need_every_pair_of_one_task() -> None:
    """A baseline leaves pairs out; several tasks have an order each."""
    for draw in (plot_ranks, plot_comparison_matrix):
        with pytest.raises(DesignError, match="compare without a baseline"):
            draw(comparisons(4, baseline=True))
        other = [replace(row, task="other") for row in comparisons(3)]
        with pytest.raises(DesignError, match="shows one task and metric, not 2"):
            draw(Results((*comparisons(3).rows, *other)))


def test_variance_parts_fill_a_bar() -> None:
    """Between items first; what one take of each cannot tell is empty."""
    rng = np.random.default_rng(0)
    taken = (rng.random((3, 40, 3)) < rng.beta(1, 1, (3, 40, 1))).astype(float)
    parts = variance_parts(ResponseMatrix.from_array(taken))
    axes = plot_variance_parts(parts)
    widths = [(patch.get_x(), patch.get_width()) for patch in axes.patches]

    for part, between, within in zip(parts, widths[::2], widths[1::2], strict=True):
        share = part.share_within or 0.0
        assert (0, 1 - share) == pytest.approx(between)
        assert (1 - share, share) == pytest.approx(within)
    once = plot_variance_parts(variance_parts(ResponseMatrix.from_array(taken[:, :, :1])))
    assert [False] * 3 == [
        patch.get_fill() and patch.get_facecolor()[3] > 0 for patch in once.patches
    ]
    assert 3 == sum(text.get_text() == "not known" for text in once.texts)


@pytest.mark.needs("torch")
def test_item_curves_are_what_the_fit_predicts() -> None:
    """At the abilities of the models; items are named as asked for."""
    fit, _ = _fit()
    axes = plot_item_curves(fit, items=[str(fit.item_ids[7])])
    [named] = [line for line in axes.lines if line.get_label() == str(fit.item_ids[7])]
    expected = fit.predict(plug_in=True)[:, 7]

    assert expected == pytest.approx(np.interp(fit.ability, *named.get_data()), abs=1e-4)
    assert len(fit.item_ids) == len(axes.lines)
    with pytest.raises(SelectionError, match="no item is called 'nope'"):
        plot_item_curves(fit, items=["nope"])


def test_observed_shares_are_those_of_models_of_similar_ability() -> None:
    """Of 12 models four groups of three; the band is that of the binomial distribution."""
    fit, matrix = _fit(12)
    axes = plot_observed_curve(fit, item=str(fit.item_ids[4]))
    groups = np.array_split(np.argsort(fit.ability, kind="stable"), 4)
    [band] = [x for x in axes.collections if x.get_label() == "95 % band"]
    edge = band.get_paths()[0].vertices
    p = fit.predict(plug_in=True)[groups[1], 4]
    width = 1.959964 * np.sqrt((p * (1 - p)).mean() / 3)

    assert [(fit.ability[at].mean(), matrix.scores[at, 4, 0].mean()) for at in groups] == [
        pytest.approx(point) for point in _points(axes, "o")
    ]
    here = np.isclose(edge[:, 0], fit.ability[groups[1]].mean())
    limits = [max(p.mean() - width, 0), min(p.mean() + width, 1)]
    assert sorted(set(edge[here, 1].round(6))) == pytest.approx(limits, abs=1e-5)
    table = fit.item_fit()
    noisiest = table["item"][table["infit"].idxmax()]
    assert plot_observed_curve(fit).get_title(loc="left") == f"item {noisiest}"
    with pytest.raises(SelectionError, match="no item is called 'nope'"):
        plot_observed_curve(fit, item="nope")
    with pytest.raises(DesignError, match="does not hold its answers"):
        plot_observed_curve(replace(fit, data=None))


def test_abilities_are_drawn_against_scores_with_their_limits() -> None:
    fit, matrix = _fit()
    rows = abilities(fit, matrix)
    axes = plot_ability_score(rows)
    lines = sorted(path.vertices[:, 1].tolist() for path in axes.collections[0].get_paths())

    assert sorted((row.score, row.estimate) for row in rows) == [
        pytest.approx(point) for point in sorted(_points(axes, "o"))
    ]
    assert lines == [pytest.approx(x) for x in sorted([row.low, row.high] for row in rows)]
    with pytest.raises(DesignError, match="no model has an ability and a score"):
        plot_ability_score([])


@pytest.mark.needs("torch")
def test_information_is_that_of_the_model() -> None:
    """As the estimators compute it; its inverse root is the standard error."""
    import torch

    from evalstats_plugin.irt.model.curves import Items, ability_information

    fit, _ = _fit()
    axes = plot_information(fit)
    at, found = axes.lines[0].get_data()
    items = Items(*(torch.as_tensor(x) for x in (fit.discrimination, fit.intercept)))
    expected = ability_information(items, torch.as_tensor(at.copy())).sum(dim=0).numpy()

    assert expected == pytest.approx(found)
    error = axes.figure.axes[1].lines[0].get_ydata()
    assert expected[100] ** -0.5 == pytest.approx(error[100])


@pytest.mark.needs("torch")
def test_the_wright_map_has_every_model_at_its_ability_and_all_items() -> None:
    """Names in the order of the abilities; those without one are named too."""
    fit, _ = _fit()
    axes = plot_wright_map(fit)
    points = _points(axes, "o")
    labels = {text.get_text(): text.xy[1] for text in axes.texts if hasattr(text, "xy")}
    order = [name for _, name in sorted(zip(fit.ability, fit.models, strict=True))]

    assert sorted(fit.ability.tolist()) == pytest.approx([y for _, y in points])
    assert order == sorted(order, key=lambda name: labels[_as_drawn(name, labels)])
    widest = max(patch.get_width() for patch in axes.patches)
    counts = [patch.get_width() / widest for patch in axes.patches]
    most = int(next(t.get_text() for t in axes.texts if t.get_text().endswith(" items")).split()[0])
    assert len(fit.item_ids) == pytest.approx(most * sum(counts))
    ablest = {"ability": np.where(fit.ability > 0.5, np.inf, fit.ability)}
    endless = replace(fit, **ablest)
    said = plot_wright_map(endless).get_title(loc="left")
    assert "no finite ability: " in said


def _as_drawn(name: str, labels: dict[str, float]) -> str:
    from evalstats_plugin.report.figures.canvas import shown

    assert shown(name) in labels
    return shown(name)


@pytest.mark.needs("torch")
def test_items_to_look_at_are_triangles_with_names() -> None:
    """Where their infit and outfit are."""
    fit, matrix = _fit(12, 60)
    found = abilities(fit, matrix, items=True)
    noted = tuple(replace(x, notes=("odd",) if i < 3 else ()) for i, x in enumerate(found.items))
    axes = plot_item_fit(replace(found, items=noted))

    assert [(x.infit, x.outfit) for x in noted[:3]] == [
        pytest.approx(p) for p in _points(axes, "^")
    ]
    assert len(noted) - 3 == len(_points(axes, "o"))
    assert {x.item for x in noted[:3]} == {text.get_text() for text in axes.texts}


def test_a_trace_is_what_the_session_says() -> None:
    """Of the session itself and of its record."""
    bank = ItemBank.from_arrays(np.ones(30), np.linspace(-2, 2, 30))
    session = AdaptiveSession(bank)
    for answer in (1.0, 0.0, 0.5, 1.0):
        session.record(int(session.next()[0]), answer)
    axes = plot_trace(session)
    [line] = axes.lines

    assert [step.ability for step in session.answers] == pytest.approx(line.get_ydata())
    again = plot_trace(record_of(session, metric="acc"))
    assert line.get_ydata() == pytest.approx(again.lines[0].get_ydata())
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    last = session.answers[-1]
    assert last.ability + 1.959964 * last.std_error in [pytest.approx(y) for y in band]
    with pytest.raises(DesignError, match="no item was asked"):
        plot_trace(AdaptiveSession(bank))


def test_accuracy_has_a_line_for_every_rule() -> None:
    """Errors by number of items, with their limits."""
    rows = [
        SimpleNamespace(rule=rule, n_items=n, n_models=50, score_mae=k / n, score_mae_low=0.0,
                        score_mae_high=1 / n)
        for k, rule in enumerate(("a", "b"), 1)
        for n in (10, 40)
    ]  # fmt: skip
    axes = plot_accuracy(Results(tuple(rows)))

    assert [[0.1, 0.025], [0.2, 0.05]] == [pytest.approx(list(x.get_ydata())) for x in axes.lines]
    ends = [[line[:, 1].tolist() for line in own.get_segments()] for own in axes.collections]
    assert [[[0.0, 0.1], [0.0, 0.025]]] * 2 == ends


def test_labels_move_no_more_than_they_must() -> None:
    """None over another; the moves sum to nothing within each heap."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        wanted = np.sort(rng.normal(0, 1, 12))
        room = rng.uniform(0.1, 0.6, 12)
        found = spread_out(wanted, room)
        free = spread_out(wanted * 100, room)

        assert (np.diff(found) - (room[1:] + room[:-1]) / 2).min() > -1e-9
        assert wanted.sum() == pytest.approx(found.sum())
        assert np.abs(free - wanted * 100).max() < 1.5
    assert [0.0, 5.0] == spread_out(np.array([0.0, 5.0]), np.ones(2)).tolist()


def test_results_of_no_estimates_are_refused() -> None:
    """By what they are, and by what would do."""
    with pytest.raises(DesignError, match="Comparison rows have no values"):
        plot_forest(comparisons(3))
    with pytest.raises(DesignError, match="there are no rows"):
        plot_forest(Results(()))
    with pytest.raises(DesignError, match="choose tasks or models"):
        plot_forest(intervals(60, tasks=[f"t{i}" for i in range(8)]))
    assert "reading" in Drawn(plot_forest(intervals(2))).texts


@pytest.mark.needs("torch")
def test_the_scale_of_a_wright_map_holds_the_intervals_it_draws() -> None:
    """Those of two models on 30 items are wide."""
    axes: Any = plot_wright_map(_fit(2)[0])
    low, high = axes.get_ylim()
    [models, *_] = [c for c in axes.collections if len(c.get_paths()) == 2]
    ends = np.concatenate([path.vertices[:, 1] for path in models.get_paths()])

    assert low < ends.min() < ends.max() < high


@pytest.mark.needs("torch")
def test_one_task_is_not_drawn_again_as_all_tasks() -> None:
    """The mean over one task is that task."""
    matrix = _fit(4)[1]
    one = plot_forest(pool(matrix, "per-task", rng=0))
    tasks = ["t"] * 15 + ["u"] * 15
    two = ResponseMatrix.from_array(matrix.scores, models=list(matrix.models), tasks=tasks)
    both = plot_forest(pool(two, "per-task", rng=0))

    assert "alltasks" not in Drawn(one).texts
    assert "alltasks" in Drawn(both).texts


def test_thick_lines_are_explained_where_there_are_any() -> None:
    """And more pairs than a figure can hold say how to have fewer."""
    rows = comparisons(3).rows
    thin = Results(tuple(replace(row, low_single=-0.1, high_single=0.1) for row in rows))
    plain = Results(tuple(replace(row, low_single=row.low, high_single=row.high) for row in rows))

    assert "thick for a pair alone" in plot_differences(thin).get_xlabel()
    assert "thick" not in plot_differences(plain).get_xlabel()
    with pytest.raises(DesignError, match=r"not 435: .*--baseline"):
        plot_differences(comparisons(30))


@pytest.mark.needs("torch")
def test_a_model_all_right_is_an_arrow_from_its_limit_on() -> None:
    """On the map it points up, in the forest to the right, and the number is its limit."""
    rng = np.random.default_rng(0)
    scores = (rng.random((4, 30)) < np.array([[0.2], [0.5], [0.7], [1.0]])).astype(float)
    matrix = ResponseMatrix.from_array(scores)
    fit = fit_irt(matrix)
    low = fit.limits()[0][3]
    rows = abilities(fit, matrix)

    assert _points(plot_wright_map(fit), "^")[0][1] == pytest.approx(fit.ability[3])
    axes = plot_forest(rows)
    assert _points(axes, ">")[0][0] == pytest.approx(fit.ability[3])
    assert any(t.get_text() == f"≥ {low:.4f}" for t in axes.texts)

"""Is model b better than model a, on items of its own?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from scipy import stats

from evalstats_plugin import Responses, Source, compare
from evalstats_plugin.comparisons import Comparison
from evalstats_plugin.comparisons import unpaired as designs
from evalstats_plugin.comparisons.design import Request
from evalstats_plugin.comparisons.families import settle
from evalstats_plugin.comparisons.methods import COMPARISONS, EFFECTS, UNPAIRED, UNPAIRED_DEFAULTS
from evalstats_plugin.comparisons.unpaired import FAMILIES
from evalstats_plugin.data.methods import table_of
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.stats import multiplicity
from evalstats_plugin.stats.pairs import unpaired as stats_unpaired


def unpaired(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Return the rows, corrected by their families, and the notes."""
    tables, notes = designs.unpaired(responses, request)
    return settle(tables, request), notes


SOURCE = Source(path=Path("x.json"), harness="test")
WEAK, STRONG = np.repeat([1.0, 0.0], [12, 8]), np.repeat([1.0, 0.0], [27, 3])
COUNTS = stats_unpaired.independent_counts(12, 20, 27, 30)


def _responses(model: str, scores: object, **more: object) -> Responses:
    array = np.asarray(scores, dtype=float)
    array = array[:, None] if array.ndim == 1 else array
    ids = np.array([f"{model}-{i}" for i in range(len(array))])
    given = {"task": "t", "metric": "acc", "item_ids": ids, **more}
    return given_responses(model=model, scores=array, source=SOURCE, **given)  # pyright: ignore[reportArgumentType]


def _ask(*responses: Responses, **more: object) -> list[Comparison]:
    given = {
        "baseline": None, "confidence_level": 0.95, "method": "auto",
        "correction": "simultaneous", "family": "auto",
        **more,
    }  # fmt: skip
    request = Request(table=table_of((), UNPAIRED), rng=np.random.default_rng(0), **given)  # pyright: ignore[reportArgumentType]
    return unpaired(responses, request)[0]


def test_binary_scores_are_compared_by_their_counts() -> None:
    """Newcombe's interval, p-value and P(better) of the same distribution; the smaller n."""
    (row,) = _ask(_responses("a", WEAK), _responses("b", STRONG))
    low, high = stats_unpaired.newcombe(COUNTS, confidence_level=0.95)

    assert ("a", "b", 20, "newcombe-unpaired") == (
        row.model_a, row.model_b, row.n_items, row.method,
    )  # fmt: skip
    assert (float(low), float(high)) == (row.low, row.high)
    assert 27 / 30 - 12 / 20 == pytest.approx(row.difference)
    touching = stats_unpaired.newcombe(COUNTS, confidence_level=1 - (row.p_value or 0))
    assert 0 == pytest.approx(float(touching.low), abs=1e-4)
    assert 1 - (row.p_value or 0) / 2 == row.prob_better
    assert (designs.SAMPLES,) == row.notes
    assert "better" == row.verdict


@pytest.mark.parametrize("method", [m.name for m in UNPAIRED])
def test_every_method_runs_and_says_so(method: str) -> None:
    """On 0/1 scores, holding the estimate; ratios are around 1 rather than 0."""
    (row,) = _ask(_responses("a", WEAK), _responses("b", STRONG), method=method)

    assert method == row.method
    assert EFFECTS.get(method, "difference") == row.effect
    assert row.low is not None
    assert row.high is not None
    assert row.difference is not None
    assert row.low < row.difference < row.high
    assert {"difference": 0.3, "ratio": 1.5, "odds ratio": 6.0}[row.effect] == pytest.approx(
        row.difference
    )
    assert "better" == row.verdict


def test_the_kinds_of_scores_have_defaults_that_serve_them() -> None:
    """And a reason; methods of this design have families of their own."""
    table = table_of((), UNPAIRED)
    for kind, (name, why) in UNPAIRED_DEFAULTS.items():
        assert table[name].serves(kind)
        assert why

    assert all(method.family in FAMILIES for method in UNPAIRED)
    assert not any(method.family in FAMILIES for method in COMPARISONS)
    assert set(EFFECTS) <= set(table)


@pytest.mark.parametrize(
    ("scores", "method"),
    [
        ([0.0, 1.0, 1.0], "newcombe-unpaired"),
        ([0.25, 1.0, 0.5], "dp-difference"),
        ([-3.0, 80.0, 4.5], "welch-t"),
    ],
)
def test_the_default_depends_on_the_scores(scores: list[float], method: str) -> None:
    """A method that does not fit is replaced by it."""
    given = _responses("a", scores), _responses("b", scores[::-1])
    asked = "mn-ratio" if method != "newcombe-unpaired" else "auto"
    (row,) = _ask(*given, method=asked)

    assert method == row.method
    assert "difference" == row.effect
    assert 0.5 == pytest.approx(row.prob_better)
    assert "unclear" == row.verdict


def test_an_infinite_ratio_is_not_a_number_but_a_verdict() -> None:
    """Where a has none right there is no upper limit, which a note says."""
    (row,) = _ask(_responses("a", np.zeros(20)), _responses("b", STRONG), method="mn-ratio")
    (back,) = _ask(_responses("a", STRONG), _responses("b", np.zeros(20)), method="mn-ratio")

    assert (None, None) == (row.difference, row.high)
    assert "no upper limit of the ratio" in row.notes
    assert ("better", "worse") == (row.verdict, back.verdict)
    assert (0.0, 0.0) == (back.difference, back.low)


def test_lower_can_be_better() -> None:
    """Then P(better) and the verdict turn round, the difference does not."""
    (row,) = _ask(
        _responses("a", WEAK, higher_is_better=False), _responses("b", STRONG), method="mn-odds"
    )

    assert row.prob_better is not None
    assert row.prob_better < 0.5
    assert row.difference == pytest.approx(6.0)
    assert "worse" == row.verdict


def test_items_in_clusters_widen_the_interval() -> None:
    """Welch's t with clustered errors, by default; another method says what it does not do."""
    given = (
        _responses("a", WEAK, clusters=np.repeat(np.arange(5), 4).astype(str)),
        _responses("b", STRONG),
    )
    (row,), (plain,), (other,) = (
        _ask(*given),
        _ask(_responses("a", WEAK), given[1], method="welch-t"),
        _ask(*given, method="miettinen-nurminen"),
    )

    assert "welch-t" == row.method
    assert "items in 5 and 30 clusters" in row.notes
    assert (row.high or 0) - (row.low or 0) > (plain.high or 0) - (plain.low or 0)
    assert any("treats items in 5 and 30 clusters as independent" in note for note in other.notes)


def test_all_pairs_are_corrected_together() -> None:
    """Bonferroni and Benjamini–Hochberg over the pairs of one task; limits for all at once."""
    given = [_responses(name, x) for name, x in (("a", WEAK), ("b", STRONG), ("c", WEAK[::2]))]
    rows, against = _ask(*given), _ask(*given, baseline="b", correction="bh")
    p_values = [row.p_value for row in rows]

    assert [("a", "b"), ("a", "c"), ("b", "c")] == [(r.model_a, r.model_b) for r in rows]
    assert [min(3 * (p or 0), 1) for p in p_values] == [row.p_adjusted for row in rows]
    assert all((r.low or 0) < (r.low_single or 0) for r in rows)
    assert ["b", "b"] == [row.model_a for row in against]
    assert (
        multiplicity.benjamini_hochberg([r.p_value for r in against]).tolist()
        == [r.p_adjusted for r in against]
    )  # fmt: skip


def test_counts_are_enough() -> None:
    """A log without samples, whose standard error proves 0/1 scores, can be compared."""
    error = np.sqrt(0.6 * 0.4 / 19)
    counted = given_responses(
        model="a", task="t", metric="acc", source=SOURCE,
        logged=0.6, logged_std_error=float(error), logged_n=20,
    )  # fmt: skip
    (row,), (full,) = (_ask(x, _responses("b", STRONG)) for x in (counted, _responses("a", WEAK)))

    assert (full.low, full.high, full.p_value) == (row.low, row.high, row.p_value)
    for pair in ((counted, _responses("b", STRONG)), (_responses("b", STRONG), counted)):
        (row,) = _ask(*pair)
        assert designs.PAIRING_LOST in row.notes


@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_published_errors_have_normal_limits(bounds: tuple[float, float] | None) -> None:
    """Within the largest difference where that is known; none where a model has no error."""
    values = {"a": (0.9, 0.3), "b": (0.1, 0.4)}
    published = [
        given_responses(
            model=model, task="t", metric="own", source=SOURCE, logged=value,
            logged_std_error=error, published="error", bounds=bounds,
        )
        for model, (value, error) in values.items()
    ]  # fmt: skip
    (row,) = _ask(*published)
    low, high = stats.norm(-0.8, 0.5).interval(0.95)

    assert (row.low, row.high) == pytest.approx((max(low, -1) if bounds else low, high))
    assert row.p_value == pytest.approx(2 * stats.norm.sf(0.8 / 0.5))
    assert row.prob_better == pytest.approx(stats.norm.sf(0.8 / 0.5))
    assert (row.score_a, row.score_b) == (0.9, 0.1)
    sure = replace(_responses("c", [1.0] * 9), measure=published[0].measure)
    (row,) = _ask(published[0], sure)
    assert (row.difference, row.verdict) == (pytest.approx(0.1), "unclear")
    with pytest.raises(DesignError, match="name a model, or compare every two"):
        compare(published, baseline="best")
    assert row.low is row.high is row.p_value is row.p_adjusted is row.prob_better is None


def test_items_without_a_cluster_count_as_clusters() -> None:
    given = (
        _responses("a", WEAK, clusters=np.array(["p"] * 10 + [""] * 10)),
        _responses("b", STRONG),
    )
    (row,) = _ask(*given)

    assert "items in 11 and 30 clusters" in row.notes


def test_what_cannot_be_compared_is_named() -> None:
    """One model, or a baseline that is not there."""
    with pytest.raises(DesignError, match=r"only one model \(a\)"):
        _ask(_responses("a", WEAK))
    with pytest.raises(SelectionError, match="no model is called 'z'"):
        compare([_responses("a", WEAK), _responses("b", STRONG)], design="unpaired", baseline="z")


def test_models_without_spread_have_no_interval_where_bounds_are_unknown() -> None:
    """None, and a note."""
    (row,) = _ask(_responses("a", [7.0, 7.0]), _responses("b", [9.0, 9.0, 9.0]))

    assert (None, None, None) == (row.low, row.high, row.p_value)
    assert any(note.startswith("no interval") for note in row.notes)
    assert "unclear" == row.verdict

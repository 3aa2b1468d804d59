"""The samples of a log as a table of items × epochs, beside sums over the samples themselves."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evalstats_plugin.adapters.inspect_ai import reader
from evalstats_plugin.adapters.inspect_ai.archive.samples import LoggedSample
from evalstats_plugin.adapters.inspect_ai.estimands import Logged
from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.responses import Provenance, Selection
from evalstats_plugin.errors import LogError

NAN = math.nan


def _sample(item: Any, epoch: int = 1, **more: Any) -> LoggedSample:
    return LoggedSample(item=str(item), raw_id=item, epoch=epoch, question="", **more)


def _log(ids: Any = None, *, status: str = "success", **more: Any) -> Any:
    """Return the header of a log: `total`, `size`, `epochs` and `stops` where they matter."""
    stops = [SimpleNamespace(id=each) for each in more.get("stops", ())]
    return SimpleNamespace(
        status=status,
        eval=SimpleNamespace(
            dataset=SimpleNamespace(sample_ids=ids, samples=more.get("size")),
            config=SimpleNamespace(epochs=more.get("epochs")),
        ),
        results=SimpleNamespace(
            total_samples=more.get("total", 0),
            early_stopping=SimpleNamespace(early_stops=stops) if stops else None,
        ),
    )


def _table(samples: list[LoggedSample], log: Any = None) -> reader.Table:
    return reader.tabulate(samples, log or _log(), Path("x.eval"))


@pytest.mark.parametrize("seed", range(4))
def test_items_and_epochs_are_where_the_samples_say(seed: int) -> None:
    """Of samples in any order, with items that lack an epoch or a field."""
    rng = np.random.default_rng(seed)
    places = [(item, epoch) for item in "dacb" for epoch in (2, 5, 9) if rng.random() < 0.8]
    rng.shuffle(places)
    fields = [{"f": f"{i}{e}"} if rng.random() < 0.5 else {} for i, e in places]
    flags = rng.random((len(places), 2)) < 0.3
    samples = [
        _sample(i, int(e), fields=f, invalidated=bool(bad), failed=bool(failed), chance=int(e) / 9,
                prompt=f"p{i}" * (e != "9"))
        for (i, e), f, (bad, failed) in zip(places, fields, flags, strict=True)
    ]  # fmt: skip
    table = _table(samples, _log([*"dacb", "absent"]))
    ids, values = [*"dacb", "absent"], [float(k) for k in range(len(places))]
    epochs = sorted({int(e) for _, e in places})
    of = {(i, int(e)): k for k, (i, e) in enumerate(places)}
    grid = [[of.get((i, e)) for e in epochs] for i in ids]

    assert table.item_ids.tolist() == ids
    np.testing.assert_array_equal(
        table.spread(values), [[NAN if k is None else k for k in row] for row in grid]
    )
    assert table.by_item(values) == [[k for k in row if k is not None] for row in grid]
    firsts = [next((s.fields["f"] for s in samples if s.item == i and s.fields), None) for i in ids]
    assert table.field("f") == firsts
    answers = [["" if k is None else samples[k].fields.get("f", "") for k in row] for row in grid]
    assert table.answers("f").tolist() == answers  # pyright: ignore[reportOptionalMemberAccess]
    assert table.answers("g") is None
    kept = [any(k is not None and not flags[k, 0] for k in row) or row == [None] * len(row)
            for row in grid]  # fmt: skip
    assert table.kept.tolist() == kept
    assert table.any_invalidated == flags[:, 0].any()
    np.testing.assert_array_equal(
        table.valid(values), [NAN if bad else v for v, (bad, _) in zip(values, flags, strict=True)]
    )
    prompts = [next((s.prompt for s in samples if s.item == i and s.prompt), "") for i in ids]
    assert table.hashes("prompt").astype(str).tolist() == prompts
    n_absent = sum(row == [None] * len(row) for row in grid)
    told = [
        (flags[:, 1].sum(), f"{flags[:, 1].sum()} of {len(places)} samples ended in an error"),
        (
            flags[:, 0].sum(),
            f"{flags[:, 0].sum()} invalidated "
            f"{'sample is' if flags[:, 0].sum() == 1 else 'samples are'} left out",
        ),
        (n_absent, f"{n_absent} item{'s' * int(n_absent != 1)} of the run without a sample"),
    ]
    assert table.notes == [text for n, text in told if n]
    groups = [str(text) for text in firsts]
    means = np.array([np.nan if row == [None] * len(row) else 1.0 for row in grid])[:, None]
    weights = reader._weights(means, firsts)[:, 0]
    scored = np.isfinite(means[:, 0])
    sums = {g: sum(w for w, x, s in zip(weights, groups, scored, strict=True) if x == g and s)
            for g in {x for x, s in zip(groups, scored, strict=True) if s}}  # fmt: skip
    assert sum(sums.values()) == pytest.approx(scored.sum())
    assert list(sums.values()) == pytest.approx([scored.sum() / len(sums)] * len(sums))


def test_items_that_were_not_to_run_are_left_out() -> None:
    """Those stopped early, and those that a broken run did not reach; others have no sample."""
    samples = [_sample("b"), _sample("z")]
    for log, ids in (
        (_log(["a", "b"]), ["a", "b", "z"]),
        (_log(["a", "b"], status="cancelled"), ["b", "z"]),
        (_log(["a", "b", "c"], stops=["c"]), ["a", "b", "z"]),
        (_log(["b", "a"], stops=["b"]), ["b", "a", "z"]),
    ):
        assert _table(samples, log).item_ids.tolist() == ids
    twice = [_sample(1), _sample(2), _sample(2)]
    with pytest.raises(LogError, match="has 2 samples of item '2' in epoch 1; two runs may"):
        _table(twice)
    with pytest.raises(LogError, match="has items 1 and '1', which are one and the same"):
        _table([_sample(1), _sample("1")])
    with pytest.raises(LogError, match="has items '7' and 7, which are one and the same"):
        _table(samples, _log(["7", 7]))
    assert len(_table([_sample("i" * 1000)]).item_ids) == 1
    with pytest.raises(LogError, match=r"id of 1001 characters \(i{40}…\), more than the 1000"):
        _table([_sample("i" * 1001)])


def test_a_table_of_almost_nothing_is_refused() -> None:
    """It would need far more cells than there are samples: more than 64 (n + 64)."""
    most = max(k for k in range(1000) if k * k <= 64 * (k + 64))
    assert _table([_sample(k, k) for k in range(most)]).n_epochs == most
    with pytest.raises(LogError, match=f"only {most + 1} samples of {most + 1} items"):
        _table([_sample(k, k) for k in range(most + 1)])


@pytest.mark.parametrize(
    ("scores", "logged", "of_items", "told"),
    [
        ([[1], [0]], Logged(0.5, n=2), True, None),
        ([[1], [0]], Logged(0.5), True, None),
        ([[1], [0]], Logged(None, n=2), True, None),
        ([[1], [NAN]], Logged(1.0, n=1), True, None),
        ([[1], [0]], Logged(0.5, n=3), True, "3 scored items were logged, 2 are there"),
        ([[1], [0]], Logged(0.5, n=3), False, None),
        ([[NAN], [NAN]], Logged(0.5), True, None),
        ([[1], [0]], Logged(0.75, n=2), True, "0.75 was logged, the items give 0.5"),
        ([[1], [0]], Logged(0.5 + 1e-8), True, "0.5 was logged, the items give 0.5"),
        ([[1], [0]], Logged(0.5 + 1e-10), True, None),
        # Three epochs of two items: their mean is none of items.
        ([[1, 1], [0, NAN]], Logged(2 / 3, n=3), True,
         "0.666667 was logged, a mean of epochs; of items it is 0.5"),
        ([[1, 1], [0, NAN]], Logged(0.5, n=3), True, None),
        ([[1, 1], [0, NAN]], Logged(2 / 3, n=2), True,
         "0.666667 was logged, a mean of epochs; of items it is 0.5"),
        ([[1, 1], [0, NAN]], Logged(0.9, n=3), True, "0.9 was logged, the items give 0.5"),
    ],
)  # fmt: skip
def test_items_and_header_are_compared(
    scores: Any, logged: Logged, told: str | None, *, of_items: bool
) -> None:
    """In the number of items, and in the mean of them or of epochs."""
    assert reader._disagreement(np.array(scores, float), logged, of_items=of_items) == told


def test_sizes_of_the_whole_are_told_where_a_part_was_run() -> None:
    """A limit that was set, and items that are gone; nothing of runs that ended otherwise."""
    table = _table([_sample(k, e) for k in range(3) for e in (1, 2)])
    base = {"measure": Measure(task="t", metric="m"), "provenance": Provenance()}

    def sizes(**log: Any) -> tuple[int | None, int]:
        fields, _ = reader._items(_log(**log), (), table, Selection(), base)
        return fields["measure"].population, fields["measure"].n_cut

    assert [sizes(size=n) for n in (2, 3, 4, None)] == [(None, 0), (None, 0), (4, 0), (None, 0)]
    assert sizes(size=4, status="error") == sizes(size=4, stops=["x"]) == (None, 0)
    totals = (4, 6, 7, 8, 10)
    assert [sizes(total=n, epochs=2)[1] for n in totals] == [0, 0, 0, 1, 2]
    assert sizes(total=5) == (None, 2)
    assert sizes(total=8, epochs=2, status="error") == (None, 0)
    assert sizes(total=8, epochs=2, stops=["x"]) == (None, 0)
    assert reader._incomplete_note(_log([1, 2], status="error"), 1).endswith(
        "'error'): 1 of 2 items"
    )
    assert reader._incomplete_note(_log(status="error"), 1).endswith("(status 'error'): 1 item")


def test_values_that_are_no_scores_are_noted() -> None:
    """Those unscored without an error; stopped samples, with the mean of the others."""
    samples = [_sample(0), _sample(1, failed=True), _sample(2, limit="token"), _sample(3)]
    table = _table([*samples, _sample(4, limit="time")])
    notes = reader._notes_on_values([NAN, NAN, 1.0, 0.25, {"a": 1}], table)

    assert notes == [
        "1 sample left unscored",
        "2 of 5 samples stopped by a limit (time, token), and counted as scored; the others give "
        "0.250",
        "not a number in 1 score ({'a': 1}): missing here, 0 to Inspect's metrics",
    ]
    assert reader._notes_on_values([1.0] * 5, _table([_sample(k) for k in range(5)])) == []
    (alone,) = reader._notes_on_values([1.0], _table([_sample(0, limit="token")]))
    assert alone == "1 of 1 sample stopped by a limit (token), and counted as scored"

"""`make seeds`: every claim of the sources has a stored row, and the fast ones come out again."""

from __future__ import annotations

import re

import pytest

from benchmarks.seeds.__main__ import CLAIMS, stored
from benchmarks.seeds.claims import Claim, holds, largest, near

pytestmark = pytest.mark.needs("torch")
_NUMBER = re.compile(r"-?\d+(?:\.(\d+))?")


def same(first: str, second: str) -> bool:
    """Whether two texts differ by at most two in the last digit of their numbers."""
    if _NUMBER.sub("#", first) != _NUMBER.sub("#", second):
        return False
    pairs = zip(_NUMBER.finditer(first), _NUMBER.finditer(second), strict=True)
    return all(
        abs(float(a[0]) - float(b[0])) <= (2.1 * 10 ** -len(a[1]) if a[1] else 0) for a, b in pairs
    )


def test_every_claim_has_a_row_and_every_row_a_claim() -> None:
    claims = [(claim.source, claim.text) for claim in CLAIMS]

    assert len(claims) == len(set(claims))
    assert list(stored()) == claims
    assert len({source for source, _ in claims}) == 5
    assert len(claims) >= 120


def test_rows_that_do_not_agree_say_why() -> None:
    rows = stored().values()

    assert [] == [row.claim for row in rows if not row.agrees and len(row.note) < 20]
    assert sum(row.agrees is True for row in rows) > 100


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c.fast], ids=lambda c: c.script)
def test_a_fast_claim_comes_out_as_it_is_stored(claim: Claim) -> None:
    row, kept = claim.row(), stored()[claim.source, claim.text]

    assert row.agrees is kept.agrees
    assert same(row.ours, kept.ours), f"{row.ours} is now what was {kept.ours}"
    assert row.script == kept.script


def test_what_differs_does_not_agree() -> None:
    assert near([1.0, 2.0], [1.0, 2.05], 0.1).agrees
    assert near([1.0, 2.0], [1.0, 2.2], 0.1).agrees is False
    assert near([1.0], [1.0, 1.0], 0.1).agrees is False
    assert near([float("nan")], [1.0], 0.1).agrees is False
    assert largest([1e-9, -1e-3], 1e-4, "0").agrees is False
    assert holds("a", "b", truth=0).agrees is False
    assert same("a 1.00, 2", "a 1.02, 2")
    assert not same("a 1.00, 2", "a 1.03, 2")
    assert not same("a 1.00, 2", "a 1.00, 3")

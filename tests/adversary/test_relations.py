"""Relations hold of generated evaluations, and fail where the product is broken on purpose."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from evaluations import Evaluation, evaluations
from fit_relations import FIT_RELATIONS
from hypothesis import HealthCheck, Phase, given, settings
from log_relations import LOG_RELATIONS
from relations import RELATIONS, Relation
from shown_relations import SHOWN_RELATIONS

TIMES = float(os.environ.get("EVALSTATS_ADVERSARY", "0.5"))
"""How many times as many evaluations are drawn as each relation asks for."""

MOST = 15 if "EVALSTATS_ADVERSARY" not in os.environ else 1_000_000
"""Evaluations that `make test` draws for a relation at most."""

SHRINK = bool(os.environ.get("EVALSTATS_SHRINK"))
"""Whether a failure is made small, which may take minutes."""

ALL: Mapping[str, Relation] = {
    **RELATIONS, **LOG_RELATIONS, **SHOWN_RELATIONS, **FIT_RELATIONS,
}  # fmt: skip


def _cases() -> Iterator[Any]:
    for name, relation in ALL.items():
        for family in relation.families:
            yield pytest.param(name, family, id=f"{name}-{family}" if family else name)


def tried(
    relation: Relation,
    family: str,
    *,
    examples: int,
    shrink: bool = SHRINK,
) -> None:
    """Check a relation on so many evaluations; one that it fails on is printed."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    draws = {**relation.draws, **relation.families[family]}

    @settings(
        max_examples=min(max(1, round(examples * TIMES)), MOST),
        database=None,
        deadline=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    @given(evaluations(**draws))
    def each(e: Evaluation) -> None:
        with tempfile.TemporaryDirectory() as folder:
            relation.check(e, Path(folder))

    each()


@pytest.mark.parametrize(("name", "family"), _cases())
def test_relation(name: str, family: str) -> None:
    """Of as many evaluations as `make test` has time for; `make validate` draws more."""
    relation = ALL[name]
    tried(relation, family, examples=relation.examples)


@pytest.mark.parametrize("name", ALL)
def test_a_broken_product_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each relation fails on a product that is wrong in the way that it is there to see."""
    relation = ALL[name]
    relation.breaks(monkeypatch)
    first = next(iter(relation.families))
    with pytest.raises(AssertionError):
        tried(relation, first, examples=max(relation.examples, 20), shrink=False)


def test_the_page_on_proof_names_every_relation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "proof.md").read_text()
    named = " ".join(page.split())
    assert [name for name in ALL if f"{name};" not in named and f"{name}." not in named] == []

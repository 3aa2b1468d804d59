"""What every result can do: a short repr, a table for notebooks, papers and pandas, a figure."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13"


@cache
def _matrix() -> es.ResponseMatrix:
    """Answers of 12 models to 60 items, the key of one of which is wrong."""
    rng = np.random.default_rng(0)
    ability, difficulty = np.linspace(1.5, -1, 12), rng.normal(0, 1.2, 60)
    right = rng.random((12, 60)) < 1 / (1 + np.exp(difficulty - ability[:, None]))
    right[:, 3] = ability < 0
    return es.ResponseMatrix.from_array(right.astype(float))


@cache
def _fit() -> es.irt.IRTFit:
    return es.fit_irt(_matrix(), "2pl", rng=0)


@cache
def _bank() -> es.adaptive.ItemBank:
    return es.item_bank(_fit(), _matrix(), rng=0)


RESULTS: dict[str, Callable[[], Any]] = {
    "scores": lambda: es.intervals(_matrix()),
    "comparisons": lambda: es.compare(_matrix(), rng=0),
    "ranks": lambda: es.comparisons.rank_sets(_matrix(), rng=0),
    "table": lambda: es.table(_matrix(), rng=0),
    "gate": lambda: es.gate(_matrix(), baseline="model_4", rng=0),
    "items of two": lambda: es.compare_items(_matrix(), "model_0", "model_1"),
    "power": lambda: es.power(_matrix(), difference=0.2),
    "abilities": lambda: es.irt.abilities(_fit(), _matrix()),
    "suspects": lambda: es.irt.suspect_items(_fit(), _matrix()),
    "differential items": lambda: es.irt.item_dif(_fit(), _matrix(), ["model_0", "model_5"]),
    "pooled": lambda: es.pool(
        _matrix(), "per-task", rng=0, options=es.hierarchical.HierarchicalOptions(draws=100)
    ),
    "ranking": lambda: es.rank(es.read_contests(LOGS / "out_pairs"), rng=0, model="bradley-terry"),
    "adaptive tests": lambda: es.adaptive.replay(
        _bank(), _matrix().to_responses()[:2], es.adaptive.Plan(bank=_bank(), max_items=5)
    ),
    "simulated tests": lambda: es.adaptive.simulate(_bank(), (5,), n_models=5, rng=0),
    "findings": lambda: es.logs.check(LOGS / "out"),
}
"""How to make each kind of result, of very little."""

NO_FIGURE = {"findings"}
"""Results without a value to draw."""


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", RESULTS)
def test_every_result_has_the_same_doors(name: str) -> None:
    """As many rows in pandas and in each table, whose cells are escaped; a figure where named."""
    pytest.importorskip("matplotlib")
    found = RESULTS[name]()
    markdown, latex, page = found.to_markdown(), found.to_latex(), found._repr_html_()

    assert len(repr(found)) < 120
    assert len(found.to_frame()) == len(found) > 0
    assert set(getattr(type(found[0]), "shown", ())) <= set(found.to_frame().columns)
    assert markdown.startswith("| ")
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 1
    assert latex.index(r"\toprule") < latex.index(r"\midrule") < latex.index(r"\bottomrule")
    assert page.count("<tr>") == min(len(found), 60) + 1
    assert found.style().data.shape == (len(found), page.count("<th>"))
    if name in NO_FIGURE:
        with pytest.raises(es.errors.DesignError, match="no values that a forest plot shows"):
            found.plot()
    else:
        assert found.plot().figure is not None


def test_tables_hold_the_figures_of_the_rows() -> None:
    """Scores with four decimals, and probabilities that are never certain."""
    rows = es.compare(_matrix(), rng=0)
    lines = rows.to_markdown().splitlines()[2:]
    first = rows[0]

    assert len(lines) == len(rows) == 66
    assert lines[0].startswith(f"| task | score | {first.model_b} | {first.model_a} | 60 | ")
    assert f"| {first.difference:.4f} | [{first.low:.4f}, {first.high:.4f}] |" in lines[0]
    assert lines[0].endswith(f"| {first.verdict} |")
    assert not any(line.split("|")[9].strip() == "1.0000" for line in lines)


def test_pandas_shows_what_is_clear_in_bold() -> None:
    """Rows with a verdict of `compare`, and models that may be the best."""
    for rows, clear in (
        (found := es.compare(_matrix(), rng=0), [row.verdict != "unclear" for row in found]),
        (table := es.table(_matrix(), rng=0), [bool(row.may_be_first) for row in table]),
    ):
        sheet = rows.style().to_html().partition("</style>")[0]
        css = "".join(re.findall(r"([^{}]*)\{[^}]*font-weight: bold", sheet))
        bold = {int(line) for line in re.findall(r"_row(\d+)_", css)}
        assert bold == {k for k, is_clear in enumerate(clear) if is_clear}
        assert 0 < len(bold) < len(rows)


def test_names_from_logs_are_escaped_in_notebooks_and_papers() -> None:
    """No markup, no command of TeX."""
    matrix = es.ResponseMatrix.from_array(
        [[1, 0, 1], [0, 0, 1]], models=["<script>x</script>", r"\input{a}|b"]
    )
    rows = es.intervals(matrix)

    assert "<script>" not in rows._repr_html_() + rows.to_markdown() + rows.style().to_html()
    assert r"\input" not in rows.to_latex()
    assert r"\textbackslash{}input\{a\}\textbar{}b" in rows.to_latex()
    assert r"\|b" in rows.to_markdown()


def test_other_objects_have_a_short_repr() -> None:
    """Fits, banks, sessions, matrices and sets of responses."""
    session = es.adaptive_session(_bank(), rng=0)
    votes = es.read_contests(LOGS / "out_pairs")

    for each in (_fit(), _bank(), session, _matrix(), es.read(LOGS / "out_variant"), votes):
        assert len(repr(each)) < 200, repr(each)[:400]

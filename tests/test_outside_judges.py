"""Numbers that other programs compute for designs drawn at random (`tests/generate/judges`).

statsmodels, and R with clubSandwich, psychotools and BradleyTerry2; versions are in the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.ranking import Contests, fit_bradley_terry
from evalstats_plugin.stats import bounded, clustered, multiplicity
from evalstats_plugin.stats.pairs import paired, power, unpaired

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "golden" / "judges.json").read_text(encoding="utf-8")
)
LEVEL = 0.9


def _of(what: str) -> pytest.MarkDecorator:
    cases = [case for case in GOLDEN["cases"] if case["what"] == what]
    return pytest.mark.parametrize(
        ("design", "expected"),
        [(case["design"], case["expected"]) for case in cases],
        ids=[f"{case['judge']}-{k}" for k, case in enumerate(cases)],
    )


def _intervals(
    functions: dict[str, Callable[..., Any]], arguments: tuple[Any, ...], asked: dict[str, Any]
) -> dict[str, Any]:
    return {
        name: [float(limit) for limit in functions[name](*arguments, confidence_level=LEVEL)]
        for name in asked
    }


def _near(expected: dict[str, Any], tolerance: float) -> dict[str, Any]:
    return {name: pytest.approx(value, rel=tolerance, abs=1e-9) for name, value in expected.items()}


@_of("two proportions")
def test_two_proportions(design: dict[str, Any], expected: dict[str, Any]) -> None:
    """Newcombe's difference; Miettinen and Nurminen's ratio and odds ratio."""
    counts = unpaired.independent_counts(**design)
    functions = {name: getattr(unpaired, name) for name in expected}

    assert _intervals(functions, (counts,), expected) == _near(expected, 1e-5)


@_of("one proportion")
def test_one_proportion(design: dict[str, Any], expected: dict[str, Any]) -> None:
    """Wilson, Agresti and Coull, Clopper and Pearson, Jeffreys, Wald."""
    functions = {name: getattr(bounded, name) for name in expected}
    arguments = (design["right"], design["n"])
    # statsmodels cuts Wald's limits off at 0 and 1.
    low, high = bounded.wald(*arguments, confidence_level=LEVEL)
    if low < 0 or high > 1:
        expected.pop("wald")

    assert _intervals(functions, arguments, expected) == _near(expected, 1e-7)


@_of("McNemar")
def test_mcnemar(design: dict[str, Any], expected: dict[str, Any]) -> None:
    """The mid p is the exact p less the probability of what was observed."""
    only_a, only_b = design["only_a"], design["only_b"]
    counts = paired.paired_counts(3, only_a, only_b, 4)
    observed = stats.binom.pmf(only_a, only_a + only_b, 0.5)

    assert paired.mcnemar_mid_p(counts) == pytest.approx(expected["p_value"] - observed, abs=1e-9)


@_of("p-values")
def test_p_values(design: dict[str, Any], expected: dict[str, Any]) -> None:
    """Holm; Benjamini and Hochberg."""
    for name, adjusted in expected.items():
        assert getattr(multiplicity, name)(design["p"]) == pytest.approx(adjusted, rel=1e-6)


@_of("power of t")
def test_power_of_t(design: dict[str, Any], expected: dict[str, Any]) -> None:
    """Of a two-sided test of one sample, at both sides."""
    found = power.t_power(design["n"], design["effect"], 1.0, tail=design["alpha"] / 2)

    assert float(found) == pytest.approx(expected["power"], rel=1e-6)


@_of("clusters")
def test_clusters(design: dict[str, Any], expected: dict[str, Any]) -> None:
    """The mean by clubSandwich: Bell and McCaffrey's error, Satterthwaite's degrees of freedom."""
    sums = np.bincount(design["cluster"], design["score"])
    sizes = np.bincount(design["cluster"])
    freedom = float(clustered.satterthwaite(sizes))

    assert float(clustered.cluster_moments(sums, sizes).cr2) == pytest.approx(expected["std_error"])
    assert freedom == pytest.approx(expected["degrees_of_freedom"])
    limits = clustered.t_cr2(sums, sizes, confidence_level=LEVEL)
    assert [float(x) for x in limits] == pytest.approx(expected["limits"])


@_of("Welch")
def test_welch(design: dict[str, Any], expected: dict[str, Any]) -> None:
    """Welch's t test of R, of scores without clusters."""
    width = max(len(design["a"]), len(design["b"]))
    totals, sizes = np.zeros((2, 2, width))
    for k, name in enumerate("ab"):
        totals[k, : len(design[name])] = design[name]
        sizes[k, : len(design[name])] = 1
    pair = np.array([0]), np.array([1])
    limits = unpaired.welch_t(totals, sizes, *pair, confidence_level=LEVEL)

    assert [x.item() for x in limits] == pytest.approx(expected["limits"])
    assert unpaired.welch(totals, sizes, *pair)[2].item() == pytest.approx(
        expected["degrees_of_freedom"]
    )
    p_value = unpaired.two_sided(unpaired.welch_prob(totals, sizes, *pair))
    assert p_value.item() == pytest.approx(expected["p_value"], rel=1e-6)


@_of("contests")
def test_contests(design: dict[str, Any], expected: dict[str, Any]) -> None:
    """Ratings by BradleyTerry2 against the first player, with the model's errors."""
    rows = [
        (first, second, outcome)
        for first, second, won, lost in design["wins"]
        for outcome, n in ((1.0, won), (0.0, lost))
        for _ in range(n)
    ]
    fit = fit_bradley_terry(Contests.of(*np.array(rows).T), covariance="model")
    order = np.argsort(fit.players)
    rating, covariance = fit.rating[order], fit.covariance[np.ix_(order, order)]
    variance = covariance.diagonal() + covariance[0, 0] - 2 * covariance[0]

    assert rating - rating[0] == pytest.approx(expected["rating"], abs=1e-5)
    assert np.sqrt(np.maximum(variance, 0)) == pytest.approx(expected["std_error"], abs=1e-4)


@pytest.mark.needs("torch")
@_of("Rasch")
def test_rasch(design: dict[str, Any], expected: dict[str, Any]) -> None:
    """Conditional estimates of psychotools, which sum to 0, within a fifth of their errors.

    Those of a normal population of 60 models are other estimates of the same difficulties.
    """
    from evalstats_plugin import ResponseMatrix
    from evalstats_plugin.irt import fit_irt

    fit = fit_irt(ResponseMatrix.from_array(np.array(design["right"], float)), "rasch", "mml")
    away = fit.difficulty - fit.difficulty.mean() - expected["difficulty"]

    assert np.abs(away / expected["std_error"]).max() < 0.2


def test_every_case_is_used_and_its_program_named() -> None:
    """Nine kinds of design or more, by two programs."""
    assert {case["judge"] for case in GOLDEN["cases"]} == {"R", "statsmodels"}
    assert len({case["what"] for case in GOLDEN["cases"]}) == 9
    assert {"R", "clubSandwich", "psychotools", "BradleyTerry2", "statsmodels"} <= set(
        GOLDEN["versions"]
    )

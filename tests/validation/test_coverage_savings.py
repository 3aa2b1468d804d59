"""What more can be had for the same items. Writes fixtures/validation/savings.json.

Confidence sequences by exact sums over paths; control variates and prediction-powered means by
simulation with fixed seeds, whose standard error is stated with each row. The level is 0.95.
"""

from functools import cache, partial

import numpy as np
import pytest
import study
from scipy import special, stats

from evalstats_plugin.stats import bounded, means, sequential
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.pairs import paired
from evalstats_plugin.stats.pairs.paired import paired_counts
from evalstats_plugin.stats.survey import finite_population, regression
from evalstats_plugin.stats.survey.prediction_powered import ppi

pytestmark = pytest.mark.validation
LEVEL = 0.95
UNIFORM = partial(bounded.beta_hpd, prior=(1, 1), confidence_level=LEVEL)
# Looks after every tenth item, 100 of them.
LOOKS = np.arange(10, 1001, 10)


def row(case, method, limits, truth):
    return study.coverage_row(case, method, limits, truth, (0, 1))


@cache
def look_rows():
    """Exact: at all of 100 looks together, and at the one after 100 items; widths there."""
    methods = {
        "beta_mixture": sequential.beta_mixture,
        "wilson": bounded.wilson,
        "beta_hpd": partial(bounded.beta_hpd, prior=(1, 1)),
        "clopper_pearson": bounded.clopper_pearson,
    }
    return [
        looks_at(name, method, truth)
        for truth in (0.5, 0.8, 0.95)
        for name, method in methods.items()
    ]


def looks_at(name, method, truth):
    paths, widths = np.array([1.0]), {}
    for n in LOOKS:
        step = stats.binom.pmf(np.arange(11), 10, truth)
        paths = np.convolve(paths, step)
        interval = method(np.arange(n + 1), n, confidence_level=LEVEL)
        chance = stats.binom.pmf(np.arange(n + 1), n, truth)
        inside = study.holds(*interval, truth)
        paths = paths * inside
        if n in (100, 1000):
            widths[f"width_{n}"] = float(chance @ (interval.high - interval.low))
            widths[f"coverage_{n}"] = float(chance @ inside)
    return {"proportion": truth, "method": name, "coverage": float(paths.sum())} | widths


@cache
def bounded_look_rows():
    """Partial credit, looks after 10, 20, 50, 100, 200 and 500 items; width after 100."""
    draws = {
        "Beta(8, 2)": (lambda rng, shape: rng.beta(8, 2, shape), 0.8),
        "means of 4 epochs": (
            lambda rng, shape: rng.binomial(4, rng.beta(1.2, 0.3, shape)) / 4,
            0.8,
        ),
    }
    rows = []
    for name, (draw, truth) in draws.items():
        scores = draw(np.random.default_rng(7), (1000, 500))
        looks = {n: scores[:, :n] for n in (10, 20, 50, 100, 200, 500)}
        methods = {
            "betting_mixture": lambda x: sequential.betting_mixture(
                x, bounds=(0, 1), confidence_level=LEVEL
            ),
            "beta_mixture(sum)": lambda x: sequential.beta_mixture(
                x.sum(axis=1), x.shape[1], confidence_level=LEVEL
            ),
            "t_interval": lambda x: means.t_interval(x, confidence_level=LEVEL),
        }
        for method, interval in methods.items():
            found = {n: interval(x) for n, x in looks.items()}
            together = np.all([study.holds(*i, truth) for i in found.values()], axis=0)
            coverage = float(together.mean())
            rows.append(
                {
                    "scores": name,
                    "method": method,
                    "coverage": coverage,
                    "std_error": float(np.sqrt(coverage * (1 - coverage) / 1000)),
                    "width_100": float(np.mean(found[100].high - found[100].low)),
                }
            )
    return rows


@cache
def paired_look_rows():
    """Two models on 0/1 scores, 30 % of the items tell them apart; stop at the first finding.

    False findings without a difference are exact; the rest is the mean of 4,000 simulations.
    """
    rows = []
    for difference in (0.0, 0.1, 0.2):
        rng = np.random.default_rng(3)
        which = rng.uniform(size=(4000, 1000))
        better = np.cumsum(which < 0.15 + difference / 2, axis=1)[:, LOOKS - 1]
        worse = np.cumsum(which > 0.85 + difference / 2, axis=1)[:, LOOKS - 1]
        counts = paired_counts(0 * better, worse, better, LOOKS - better - worse)
        tests = {
            "confidence-sequence": sequential.paired_p_value(counts) <= 1 - LEVEL,
            "mid-p": paired.mcnemar_mid_p(counts) <= 1 - LEVEL,
        }
        for method, found in tests.items():
            stopped = np.where(found.any(axis=1), LOOKS[np.argmax(found, axis=1)], LOOKS[-1])
            share = float(found.any(axis=1).mean())
            rows.append(
                {
                    "difference": difference,
                    "method": method,
                    "found": share,
                    "std_error": float(np.sqrt(share * (1 - share) / 4000)),
                    "mean_n": float(stopped.mean()),
                    # Of one look, for a finding in 80 % of cases.
                    "fixed_n": fixed_n(difference, 0.3),
                }
            )
    return rows


def fixed_n(difference, discordance):
    if difference == 0:
        return None
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    return float(z**2 * (discordance - difference**2) / difference**2)


@cache
def paired_width_rows():
    """Exact mean widths of intervals of a paired difference after n items; 30 % discordance.

    "two pieces" is made of sequences for the share of items that differ and for who wins them.
    """
    rows = []
    for n in (50, 200):
        cells = np.array([(b, c) for b in range(n + 1) for c in range(n + 1 - b)])
        chance = stats.multinomial.pmf(
            np.column_stack([cells, n - cells.sum(axis=1)]), n, [0.2, 0.1, 0.7]
        )
        likely = chance > 1e-8
        b, c, chance = *cells[likely].T, chance[likely]
        counts = paired_counts(0 * b, c, b, n - b - c)
        methods = {
            "paired_mixture": sequential.paired_mixture(counts, confidence_level=LEVEL),
            "two pieces": two_pieces(b, c, n),
            "dirichlet": paired.dirichlet(counts, confidence_level=LEVEL, prior=(0.5, 1.0)),
        }
        rows += [
            {"n": n, "method": name, "width": float(chance @ (i.high - i.low))}
            for name, i in methods.items()
        ]
    return rows


def two_pieces(b, c, n):
    """Difference = share that differs × (2 × share won - 1), each piece at half of what is left."""
    half = {"confidence_level": 1 - (1 - LEVEL) / 2}
    share = sequential.beta_mixture(b + c, n, **half)
    won = sequential.beta_mixture(b, np.maximum(b + c, 1e-9), **half)
    low, high = (np.where(b + c > 0, 2 * w - 1, end) for w, end in zip(won, (-1, 1), strict=True))
    corners = np.stack([s * w for s in share for w in (low, high)])
    return Interval(corners.min(axis=0), corners.max(axis=0))


def benchmark(rng, ability, spread, n_items=1000, n_others=20):
    """Scores of 100 models of one ability on items of a benchmark, and the others' item means."""
    difficulty, others = rng.normal(0, spread, n_items), rng.normal(1, 1, (n_others, 1))
    covariate = (rng.uniform(size=(n_others, n_items)) < special.expit(others - difficulty)).mean(0)
    scores = 1.0 * (rng.uniform(size=(100, n_items)) < special.expit(ability - difficulty))
    return scores, covariate


@cache
def control_variate_rows():
    """Items of a simulated benchmark of 1,000, 25 benchmarks of 100 models per row.

    Difficulties spread by 1.5 (others tell little of an item) or 4, as much as LiveBench's.
    """
    return [
        one
        for spread in (1.5, 4.0)
        for strength in (0, 1, 2, 4)
        for n in (10, 20, 50, 100, 300)
        for one in control_variates_of(spread, strength * spread / 1.5, n)
    ]


def control_variates_of(spread, ability, n):
    rng = np.random.default_rng(round(100 * ability) + n)
    found, truths = {}, []
    for _ in range(25):
        scores, covariate = benchmark(rng, ability, spread)
        hidden = rng.permuted(np.tile(np.arange(1000), (100, 1)), axis=1) >= n
        for name, interval in adjusted(np.where(hidden, np.nan, scores), covariate, n):
            found.setdefault(name, []).append(interval)
        truths.append(scores.mean(axis=1))
    truth = np.concatenate(truths)
    case = {"spread": spread, "mean": float(truth.mean()), "n": n}
    return [
        row(case, name, Interval(*np.concatenate(parts, axis=1)), truth)
        for name, parts in found.items()
    ]


def adjusted(scores, covariate, n):
    found = regression.adjust_to_benchmark(scores, covariate)
    hc3 = regression.adjust_to_benchmark(scores, covariate, leverage_power=2)
    k = np.nansum(scores, axis=1)
    yield (
        "cuped",
        regression.adjusted_bounded_interval(found, unseen_errors="damped", confidence_level=LEVEL),
    )
    yield "cuped-t-hc2", regression.adjusted_t_interval(found, confidence_level=LEVEL)
    yield "cuped-t-hc3", regression.adjusted_t_interval(hc3, confidence_level=LEVEL)
    half = 1.959964 * np.sqrt(found.variance)
    yield "cuped-z", Interval(found.estimate - half, found.estimate + half)
    yield "beta_hpd+fpc", Interval(*finite_population.shrink(k / n, UNIFORM(k, n), n, 1000))


@cache
def prediction_powered_rows():
    """Labels of n of n + 1,000 judged items; judges that agree with the label so often."""
    rows = []
    for right, rejected in ((0.9, 0.8), (0.95, 0.95), (0.6, 0.6)):
        for truth in (0.5, 0.7, 0.8, 0.9, 0.95, 0.98):
            for n in (20, 50, 100):
                rng = np.random.default_rng(n)
                labels = 1.0 * (rng.uniform(size=(4000, n + 1000)) < truth)
                passes = np.where(labels > 0, right, 1 - rejected)
                judged = 1.0 * (rng.uniform(size=labels.shape) < passes)
                k = labels[:, :n].sum(axis=1)
                labels[:, n:] = np.nan
                found = ppi(labels, judged, bounds=(0, 1), confidence_level=LEVEL)
                half = 1.959964 * found.std_error
                case = {"truth": truth, "judge": f"{right} / {rejected}", "n": n}
                normal = Interval(found.estimate - half, found.estimate + half)
                rows += [
                    row(case, "ppi++", found.interval, truth),
                    row(case, "ppi++ z", normal, truth),
                    row(case, "labels only", UNIFORM(k, n), truth),
                ]
    return rows


SECTIONS = {
    "looks": look_rows,
    "looks_bounded": bounded_look_rows,
    "looks_paired": paired_look_rows,
    "width_paired": paired_width_rows,
    "control_variate": control_variate_rows,
    "prediction_powered": prediction_powered_rows,
}


def of(section, method, **where):
    return [
        one
        for one in SECTIONS[section]()
        if one["method"] == method and all(one[key] == value for key, value in where.items())
    ]


def average(rows, key):
    return float(np.mean([one[key] for one in rows]))


def test_the_figures_are_written():
    study.write_figures("savings", SECTIONS)


def test_a_confidence_sequence_holds_at_all_looks_and_peeking_does_not():
    """At 100 looks together."""
    assert min(one["coverage"] for one in of("looks", "beta_mixture")) >= LEVEL
    for method in ("wilson", "beta_hpd", "clopper_pearson"):
        assert max(one["coverage"] for one in of("looks", method)) < 0.85


def test_its_price_is_a_width_below_twice_that_of_one_look():
    """At n = 100 and 1,000."""
    for n in (100, 1000):
        ours, wilson = (average(of("looks", m), f"width_{n}") for m in ("beta_mixture", "wilson"))
        assert 1.4 < ours / wilson < 2


def test_partial_credit_at_all_looks():
    """Valid, and shorter than what knows the sum only; peeking at t intervals is not valid."""
    for one in of("looks_bounded", "betting_mixture"):
        assert one["coverage"] >= LEVEL - 3 * one["std_error"]
        (by_sum,) = of("looks_bounded", "beta_mixture(sum)", scores=one["scores"])
        assert one["width_100"] < by_sum["width_100"]
    for one in of("looks_bounded", "t_interval"):
        assert one["coverage"] < 0.9


def test_stopping_at_the_first_finding():
    """Hardly ever false, nearly always found, at a third more items than one look would need."""
    (null,) = of("looks_paired", "confidence-sequence", difference=0.0)
    (found,) = of("looks_paired", "confidence-sequence", difference=0.1)
    (peeking,) = of("looks_paired", "mid-p", difference=0.0)

    assert null["found"] <= 1 - LEVEL + 3 * null["std_error"]
    assert peeking["found"] > 0.3
    assert found["found"] > 0.98
    assert found["mean_n"] < 1.4 * found["fixed_n"]


def test_one_mixture_is_shorter_than_two_pieces():
    """Of a paired difference."""
    for n in (50, 200):
        (ours,), (pieces,) = (of("width_paired", m, n=n) for m in ("paired_mixture", "two pieces"))
        assert ours["width"] < pieces["width"]


def test_control_variates_cover_and_shorten():
    """From ten items on and near the bounds too; a quarter shorter where others tell much."""
    rows = of("control_variate", "cuped")

    assert all(one["coverage"] >= 0.94 - 3 * one["std_error"] for one in rows)
    assert 0.945 <= average(rows, "coverage") <= 0.975
    for n in (50, 100, 300):
        for spread, shorter in ((1.5, 0.92), (4.0, 0.75)):
            where = {"spread": spread, "n": n}
            # Of the models that get about half of the items right.
            ours, plain = (
                min(of("control_variate", m, **where), key=lambda one: one["mean"])["width"]
                for m in ("cuped", "beta_hpd+fpc")
            )
            assert ours < shorter * plain


def test_normal_control_variates_fall_short():
    """Negative control: without allowing for what few items cannot show."""
    assert min(one["coverage"] for one in of("control_variate", "cuped-z")) < 0.6
    assert min(one["coverage"] for one in of("control_variate", "cuped-t-hc2")) < 0.7


def test_prediction_powered_means_cover_near_the_bounds_too():
    """With few labels of a strong model, and shorter than labels alone where a judge is good."""
    rows = of("prediction_powered", "ppi++")

    assert all(one["coverage"] >= 0.91 - 3 * one["std_error"] for one in rows)
    assert 0.95 <= average(rows, "coverage") <= 0.975
    for n in (20, 50, 100):
        where = {"judge": "0.95 / 0.95", "n": n}
        ours, alone = (
            average(of("prediction_powered", m, **where), "width") for m in ("ppi++", "labels only")
        )
        assert ours < 0.8 * alone


def test_normal_prediction_powered_intervals_fall_short():
    """Negative control: the papers' interval."""
    rows = of("prediction_powered", "ppi++ z")

    assert average([one for one in rows if one["n"] == 20], "coverage") < 0.8
    assert min(one["coverage"] for one in rows) < 0.5

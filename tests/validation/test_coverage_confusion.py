"""Do intervals of F1, MCC, macro-F1, AUC and BLEU hold? Writes fixtures/validation/confusion.json.

F1 under a uniform prior by exact sums; everything else by simulation with fixed seeds, whose
standard error is stated with each row. The confidence level is 0.95.
"""

from functools import cache, partial

import beaten
import numpy as np
import pytest
import study
from scipy import special, stats

from evalstats_plugin.stats import bounded, metric_intervals, metrics

pytestmark = pytest.mark.validation
LEVEL = 0.95
F1 = {
    "wilson-f1": partial(metric_intervals.wilson_f1, confidence_level=LEVEL),
    "dirichlet-f1": partial(metric_intervals.dirichlet_f1, confidence_level=LEVEL, prior=1.0),
    "jeffreys-f1": partial(metric_intervals.dirichlet_f1, confidence_level=LEVEL, prior=0.5),
    "wald-f1": lambda tp, n: [
        2 * r / (1 + r) for r in np.clip(bounded.wald(tp, n, confidence_level=LEVEL), 0, 1)
    ],
}


def covered(case, method, low, high, truth):
    limits = low, high
    return study.coverage_row(case, method, limits, truth) | study.undefined(limits)


@cache
def f1_rows():
    """Exact, over tables ~ Dirichlet(1, 1, 1, 1), of which some item is positive or called so."""
    rows = []
    for n in (3, 10, 30, 100, 300):
        m = np.repeat(np.arange(1, n + 1), np.arange(2, n + 2))
        tp = np.concatenate([np.arange(k + 1) for k in range(1, n + 1)])
        chance = stats.betabinom.pmf(m, n, 3, 1) * stats.betabinom.pmf(tp, m, 1, 2)
        chance /= chance.sum()
        for name, method in F1.items():
            low, high = (limit / (2 - limit) for limit in method(tp, m))
            posterior = tp + 1, m - tp + 2
            mass = special.betainc(*posterior, high) - special.betainc(*posterior, low)
            width = chance @ (2 * high / (1 + high) - 2 * low / (1 + low))
            case = {"tables": "Dirichlet(1)", "n": n, "method": name}
            rows.append(case | {"coverage": float(chance @ mass), "width": float(width)})
    return rows


@cache
def f1_bootstrap_rows():
    """The same tables, resampled."""
    rows = []
    for n in (3, 10, 30, 100):
        rng = np.random.default_rng(1)
        truth = rng.dirichlet([1.0] * 4, 1500)
        counts = rng.multinomial(n, truth)
        goal = metrics.f1(truth.reshape(-1, 2, 2))
        drawn = rng.multinomial(n, counts / n, size=(799, len(counts))).reshape(799, -1, 2, 2)
        low, high = np.quantile(np.nan_to_num(metrics.f1(drawn * 1.0)), [0.025, 0.975], axis=0)
        rows.append(covered({"tables": "Dirichlet(1)", "n": n}, "percentile", low, high, goal))
    return rows


def classifier(n_labels, accuracy, imbalance):
    """Probabilities of a table: labels of uneven frequency, mistakes spread evenly."""
    frequency = np.geomspace(1, imbalance, n_labels)
    answers = np.full((n_labels, n_labels), (1 - accuracy) / (n_labels - 1))
    np.fill_diagonal(answers, accuracy)
    return (frequency / frequency.sum())[:, None] * answers


CLASSIFIERS = [(2, 0.8, 1.0), (2, 0.92, 0.2), (3, 0.9, 1.0), (5, 0.8, 0.5)]


@cache
def table_rows():
    """MCC, balanced accuracy and macro-F1: random tables of two labels, and real classifiers."""
    rows = []
    settings = {"prior": 1.0, "confidence_level": LEVEL, "n_resamples": 799}
    for n in (10, 30, 100, 300):
        for labels in (2, *CLASSIFIERS):
            rng = np.random.default_rng(1)
            uniform = labels == 2
            name = "Dirichlet(1)" if uniform else "{} labels, accuracy {}, {}".format(*labels)
            truth = (
                rng.dirichlet([1.0] * 4, 1000).reshape(-1, 2, 2)
                if uniform
                else np.broadcast_to(classifier(*labels), (500, labels[0], labels[0]))
            )
            tables = rng.multinomial(n, truth.reshape(len(truth), -1)).reshape(truth.shape) * 1.0
            # With one gold label only, MCC and balanced accuracy say nothing, and have no interval.
            judged = (tables.sum(axis=2) > 0).sum(axis=1) > 1
            tables, truth = tables[judged], truth[judged]
            for metric in ("mcc", "balanced_accuracy", "macro_f1"):
                goal = metrics.CONFUSION_METRICS[metric](truth)
                low, high = metric_intervals.dirichlet_interval(
                    tables, metric=metric, rng=rng, **settings
                )
                case = {"tables": name, "n": n, "metric": metric}
                rows.append(covered(case, "dirichlet-table", low, high, goal))
            few = tables[:300]
            drawn = rng.multinomial(n, few.reshape(len(few), -1) / n, size=(399, len(few)))
            values = metrics.mcc(drawn.reshape(399, len(few), *truth.shape[1:]) * 1.0)
            low, high = np.quantile(np.nan_to_num(values), [0.025, 0.975], axis=0)
            case = {"tables": name, "n": n, "metric": "mcc"}
            goal = metrics.mcc(truth[: len(few)])
            rows.append(covered(case, "percentile", low, high, goal))
    return rows


def two_models(rng, size):
    """Tables (gold, first, second) of two models: any, and two good ones that are alike."""
    alike = np.zeros((2, 2, 2))
    for gold, frequency in ((0, 0.7), (1, 0.3)):
        wrong = 1 - gold
        alike[gold, gold, gold], alike[gold, wrong, wrong] = 0.74 * frequency, 0.09 * frequency
        alike[gold, gold, wrong], alike[gold, wrong, gold] = 0.06 * frequency, 0.11 * frequency
    return {
        "Dirichlet(1)": rng.dirichlet([1.0] * 8, size).reshape(-1, 2, 2, 2),
        "0.80 and 0.85 right, 30% positive": np.broadcast_to(alike, (size, 2, 2, 2)),
    }


def answers_of(counts):
    """Statistics of both models, shape (2, 8, 4), of the eight things that can be seen."""
    gold, first, second = np.indices((2, 2, 2)).reshape(3, 8)
    return np.stack([metrics.one_hot(gold, p, 2) for p in (first, second)]), counts.ravel()


def value_of(metric, sums):
    return np.nan_to_num(metrics.CONFUSION_METRICS[metric](sums.reshape(*sums.shape[:-1], 2, 2)))


@cache
def paired_rows():
    """Differences of F1 and MCC of two models on the same items."""
    rows, pair = [], (np.array([0]), np.array([1]))
    for n in (10, 30, 100, 300):
        for name, truth in two_models(np.random.default_rng(2), 500).items():
            rng = np.random.default_rng(3)
            counts = rng.multinomial(n, truth.reshape(-1, 8)).reshape(-1, 2, 2, 2)
            for metric in ("f1", "mcc"):
                value = partial(value_of, metric)
                goal = value(truth.sum(axis=2).reshape(-1, 4)) - value(
                    truth.sum(axis=3).reshape(-1, 4)
                )
                found = {"dirichlet-joint": [], "sums-percentile": [], "sums-jackknife-t": []}
                for table in counts:
                    statistics, seen = answers_of(table)
                    first = (table.sum(axis=2)) * 1.0
                    prior = metric_intervals.prior_of_pairs(first, prior=0.5)
                    drawn = metric_intervals.posterior_differences(
                        statistics, seen * 1.0, pair, prior, value, rng=rng, n_resamples=799
                    )
                    found["dirichlet-joint"].append(np.quantile(drawn, [0.025, 0.975]))
                    values = metric_intervals.resampled(
                        statistics, seen, value, rng=rng, n_resamples=799
                    )
                    found["sums-percentile"].append(
                        np.quantile(values[:, 1] - values[:, 0], [0.025, 0.975])
                    )
                    every = np.repeat(statistics, seen, axis=1)
                    left = metric_intervals.leave_one_out(every, value)
                    whole = value(every.sum(axis=1))
                    found["sums-jackknife-t"].append(
                        metric_intervals.jackknife_limits(
                            whole[1] - whole[0], left[1] - left[0], confidence_level=LEVEL
                        )
                    )
                case = {"tables": name, "n": n, "metric": metric}
                rows += [
                    covered(case, method, *np.array(limits).T, goal)
                    for method, limits in found.items()
                ]
    return rows


@cache
def auc_rows():
    """Scores of positive items higher by 0, 1 or 2.5 standard deviations."""
    rows = []
    for shift in (0.0, 1.0, 2.5):
        for m, n in ((5, 5), (5, 25), (20, 20), (50, 150)):
            rng = np.random.default_rng(4)
            positive = np.arange(m + n) < m
            goal = stats.norm.cdf(shift / np.sqrt(2))
            found = {"newcombe-auc": [], "delong": [], "bayesian_bootstrap": []}
            for scores in rng.normal(size=(600, m + n)) + shift * positive:
                level = {"confidence_level": LEVEL}
                found["newcombe-auc"].append(
                    metric_intervals.auc_newcombe(positive, scores, **level)
                )
                found["delong"].append(beaten.delong(positive, scores, **level))
                found["bayesian_bootstrap"].append(
                    beaten.bayesian_bootstrap(positive, scores, rng=rng, n_resamples=199, **level)
                )
            case = {"auc": round(float(goal), 3), "positive": m, "negative": n}
            rows += [
                covered(case, method, *np.array(limits, dtype=float).T, goal)
                for method, limits in found.items()
            ]
    return rows


def documents(rng, shape, quality):
    """What documents add to the sums of BLEU: lengths vary, matches become rarer by order."""
    words = np.maximum(np.exp(rng.normal(3, 0.6, shape)).astype(int), 4)
    share = rng.beta(6 * quality, 6 * (1 - quality), shape)
    total = np.stack([words - k for k in range(4)], axis=-1)
    correct = rng.binomial(total, np.stack([share ** (1 + 0.6 * k) for k in range(4)], axis=-1))
    wanted = np.maximum(words + rng.integers(-3, 4, shape), 1)
    return np.concatenate([np.stack([words, wanted], axis=-1), correct, total], axis=-1) * 1.0


def ratios(rng, shape, quality):
    """Loglikelihoods and words."""
    words = np.exp(5 + 0.8 * rng.normal(size=shape))
    return np.stack([words * np.exp(quality + rng.normal(0, 0.35, shape)), words], axis=-1)


def ratio_of(sums):
    return np.exp(sums[..., 0] / sums[..., 1])


@cache
def corpus_rows():
    """BLEU and perplexity of documents, of one model and of two."""
    rows = []
    kinds = (("bleu", documents, metrics.bleu, 0.6, 0.66), ("ppl", ratios, ratio_of, 0.7, 0.6))
    for metric, draw, value, first, second in kinds:
        goals = [
            float(value(draw(np.random.default_rng(5), 400_000, q).sum(axis=0)))
            for q in (first, second)
        ]
        for n in (10, 30, 100):
            rng = np.random.default_rng(6)
            one, two = (draw(rng, (600, n), q) for q in (first, second))
            for of, statistics, goal in (
                ("one model", one[:, None], goals[0]),
                ("two models", np.stack([one, two], axis=1), goals[1] - goals[0]),
            ):
                case = {"metric": metric, "n": n, "of": of}
                rows += corpus_methods(case, statistics, value, goal, rng)
    return rows


def corpus_methods(case, statistics, value, goal, rng):
    """Intervals of the last model's value minus the first's, or of the only one's."""

    def of_pair(values):
        return values[..., -1] - values[..., 0] if values.shape[-1] == 2 else values[..., 0]

    left = np.moveaxis(metric_intervals.leave_one_out(statistics, value), 1, -1)
    estimate = of_pair(value(statistics.sum(axis=2)))
    jackknife = metric_intervals.jackknife_limits(estimate, of_pair(left), confidence_level=LEVEL)
    once = np.ones(statistics.shape[2], dtype=np.int64)
    drawn = [
        of_pair(metric_intervals.resampled(x, once, value, rng=rng, n_resamples=399))
        for x in statistics
    ]
    low, high = np.quantile(np.array(drawn), [0.025, 0.975], axis=1)
    return [
        covered(case, "sums-jackknife-t", *jackknife, goal),
        covered(case, "sums-percentile", low, high, goal),
    ]


SECTIONS = {
    "f1": f1_rows,
    "f1_bootstrap": f1_bootstrap_rows,
    "tables": table_rows,
    "paired": paired_rows,
    "auc": auc_rows,
    "corpus": corpus_rows,
}


def test_the_figures_are_written():
    study.write_figures("confusion", SECTIONS)


def chosen(section, method, **case):
    rows = [r for r in SECTIONS[section]() if r["method"] == method]
    rows = [r for r in rows if all(r[key] in values for key, values in case.items())]
    assert rows
    coverages = np.array([r["coverage"] for r in rows])
    errors = np.array([r.get("std_error", 0.0) for r in rows])
    return coverages, errors, 3 * np.sqrt((errors**2).mean() / len(errors))


@pytest.mark.parametrize(
    ("section", "method", "case", "between", "least"),
    [
        ("f1", "dirichlet-f1", {}, (0.95 - 1e-9, 0.95 + 1e-9), 0.95 - 1e-9),
        ("f1", "wilson-f1", {}, (0.9395, 0.9605), 0.95),
        ("f1", "jeffreys-f1", {}, (0.9395, 0.9605), 0.949),
        ("tables", "dirichlet-table", {"metric": ["mcc"]}, (0.93, 0.96), 0.86),
        ("tables", "dirichlet-table", {"metric": ["balanced_accuracy"]}, (0.93, 0.96), 0.83),
        (
            "tables", "dirichlet-table", {"metric": ["macro_f1"], "n": [100, 300]}, (0.935, 0.96),
            0.91,
        ),
        ("paired", "dirichlet-joint", {}, (0.94, 0.975), 0.90),
        ("auc", "newcombe-auc", {}, (0.94, 0.97), 0.93),
        ("auc", "delong", {}, (0.94, 0.97), 0.92),
        ("corpus", "sums-jackknife-t", {"of": ["two models"]}, (0.93, 0.96), 0.91),
        ("corpus", "sums-jackknife-t", {"of": ["one model"], "n": [30, 100]}, (0.91, 0.95), 0.90),
    ],
)  # fmt: skip
def test_covers(section, method, case, between, least):
    """Of what is recommended, how far it can be trusted."""
    coverages, errors, slack = chosen(section, method, **case)

    assert between[0] - slack <= coverages.mean() <= between[1] + slack
    assert np.all(coverages >= least - 3 * errors)


@pytest.mark.parametrize(
    ("section", "method", "case"),
    [
        ("f1", "wald-f1", {"n": [3, 10, 30]}),
        ("f1_bootstrap", "percentile", {"n": [3, 10, 30]}),
        ("tables", "percentile", {"n": [10]}),
        ("paired", "sums-percentile", {"n": [10]}),
        ("auc", "bayesian_bootstrap", {"positive": [5]}),
    ],
)
def test_what_does_not_cover_is_found_out(section, method, case):
    """Negative controls: the study can tell a bad interval from a good one."""
    coverages, _, slack = chosen(section, method, **case)

    assert coverages.mean() + slack < 0.92


def test_the_default_covers_no_less_than_the_bootstrap_of_documents():
    """In every case of the study, one model or two."""
    jackknife, errors, _ = chosen("corpus", "sums-jackknife-t")
    percentile, _, _ = chosen("corpus", "sums-percentile")

    assert np.all(jackknife >= percentile - errors)

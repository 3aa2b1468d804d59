"""Judges corrected by people's labels, on designs drawn at random. Writes judges.json.

Two models answer items of one task; people's scores are 0/1, grades of 1 to 10 or partial credit, a
judge sees them with noise, a bias and another bias for one model. The level is 0.95.

* differences: of two models, by labels of 20 to 500 items, beside labels alone and the published
  formulas (PPI++ [ADZ23]_: normal limits, λ clipped to [0, 1])
* pairs: of five models, all ten differences at once
* agreement: of two raters
* bias: a judge that prefers length
* chosen: labels drawn where the judge is unsure, beside labels drawn alike
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import study
from scipy import special

from evalstats_plugin.comparisons.judged import (
    _chances_of_next,
    _on_all,
)
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.scores.judged import JudgedTask, agreements, biases
from evalstats_plugin.stats.pairs.differences import Differences, distance
from evalstats_plugin.stats.pairs.simultaneous import AllPairs, Units
from evalstats_plugin.stats.survey.prediction_powered import cross_fitted, ppi

pytestmark = pytest.mark.validation
Z = 1.959964
DESIGNS, RUNS = 240, 500
FORMS = ("alike", "alike", "these items", "clusters", "items apart")
"""How items are labelled: at random; the same for a mean of these items alone; in clusters; other
items of each model."""

BANDS = {"20 to 49": (20, 50), "50 to 199": (50, 200), "200 to 500": (200, 10_000)}
"""Numbers of labels, for sums over all forms."""


@dataclass(frozen=True)
class Design:
    """What models, people and a judge are like."""

    form: str
    kind: str
    n_items: int
    n_labels: int
    ability: float
    gap: float
    items: float
    noise: float
    bias: float
    favour: float
    accuracy: float | None
    """Of a judge that says right or wrong; None for one that grades."""
    cluster_size: int
    within: float

    @property
    def span(self):
        """Distance of the bounds of a label."""
        return 9.0 if self.kind == "grades" else 1.0

    def draw(self, rng, runs, n_items=None, n_models=2):
        """Labels and judge's scores, each of shape (runs, models, items)."""
        m = n_items or self.n_items
        item = self.items * rng.standard_normal((runs, 1, m))
        if self.form == "clusters":
            shared = rng.standard_normal((runs, n_models, -(-m // self.cluster_size)))
            item = item + self.within * np.repeat(shared, self.cluster_size, axis=2)[:, :, :m]
        gaps = np.linspace(0, self.gap, n_models)[None, :, None]
        latent = self.ability + gaps + item + 0.55 * rng.logistic(size=(runs, n_models, m))
        labels = self.shown(latent)
        if self.accuracy is not None:
            right = rng.random(labels.shape) < self.accuracy
            return labels, np.where(right, labels, 1 - labels)
        off = self.bias + np.linspace(0, self.favour, n_models)[None, :, None]
        seen = latent + off + self.noise * rng.standard_normal(latent.shape)
        return labels, special.expit(1.5 * seen) if self.kind == "binary" else self.shown(seen)

    def shown(self, latent):
        """Return what people say of an answer."""
        if self.kind == "binary":
            return (latent > 0) * 1.0
        if self.kind == "grades":
            return np.clip(np.round(5.5 + 2 * latent), 1, 10)
        return special.expit(1.5 * latent)


def design(rng):
    n_items = int(rng.choice([200, 500, 1000, 3000]))
    n_labels = min(int(np.exp(rng.uniform(np.log(20), np.log(500)))), n_items)
    kind = str(rng.choice(["binary", "grades", "partial"]))
    form = str(rng.choice(FORMS))
    cluster_size = int(rng.choice([2, 4]))
    if form == "clusters":
        n_labels = max(n_labels // cluster_size, 20) * cluster_size
        n_items = max(n_items, n_labels)
    if form == "items apart":
        n_labels = min(n_labels, n_items // 2)
    null = form != "these items" and rng.random() < 0.5
    return Design(
        form=form,
        kind=kind,
        n_items=n_items,
        n_labels=n_labels,
        ability=rng.uniform(-0.5, 2.2),
        gap=0.0 if null else 0.4 * rng.standard_normal(),
        items=rng.uniform(0.2, 1.8),
        noise=rng.uniform(0.1, 1.5),
        bias=0.5 * rng.standard_normal(),
        favour=0.3 * rng.standard_normal(),
        accuracy=rng.uniform(0.6, 0.99) if kind == "binary" and rng.random() < 0.5 else None,
        cluster_size=cluster_size,
        within=rng.uniform(0.0, 1.0),
    )


def labelled(one, labels, n):
    """Labels of n items; of the first model the first n, of the second the next where apart."""
    found = np.full_like(labels, np.nan)
    found[:, 0, :n] = labels[:, 0, :n]
    second = slice(n, 2 * n) if one.form == "items apart" else slice(n)
    found[:, 1:, second] = labels[:, 1:, second]
    return found


def units_of(one, m):
    return np.arange(m) // one.cluster_size if one.form == "clusters" else None


def through_the_engine(one, scores, plain, *, least=True):
    """Limits and p-values of differences, as `comparisons.judged` hands them to the engine."""
    x, far = [], []
    for pseudo, own in zip(scores, plain, strict=True):
        there = ~np.isnan(pseudo).all(axis=0)
        x.append(np.diff(_on_all(pseudo[:, there]), axis=0)[0])
        far.append(np.diff(_on_all(own[:, there]), axis=0)[0])
    x, far = np.array(x), np.array(far)
    sizes = None
    if one.form == "clusters":
        x, far = (v.reshape(len(v), -1, one.cluster_size).sum(axis=2) for v in (x, far))
        sizes = np.full(x.shape[1], float(one.cluster_size))
    far = distance(far)
    far = np.where(far > 0, far, one.span) if least else None
    pairs = Differences(x, span=one.span, sizes=sizes, least_far=far)
    low, high = pairs.limits(Z)
    return low, high, pairs.p_value <= 0.05


def published(y, f, rest):
    """PPI++ of paired differences, as `ppi_py.ppi_mean_ci` computes it."""
    n, m = y.shape[1], rest.shape[1]
    covariance = ((y - y.mean(1, keepdims=True)) * (f - f.mean(1, keepdims=True))).mean(axis=1)
    every = np.concatenate([f, rest], axis=1).var(axis=1, ddof=1)
    weight = np.clip(covariance / np.where(every > 0, (1 + n / m) * every, 1), 0, 1)[:, None]
    estimate = (weight * rest).mean(axis=1) + (y - weight * f).mean(axis=1)
    error = np.sqrt((weight * rest).var(axis=1) / m + (y - weight * f).var(axis=1) / n)
    return estimate - Z * error, estimate + Z * error, np.abs(estimate) > Z * error


@cache
def difference_rows():
    streams = study.Streams("judges corrected by labels")
    rows = []
    for k in range(DESIGNS):
        one = design(streams("designs", k))
        labels, judged = one.draw(streams("answers", k), RUNS)
        if one.form == "these items":
            truth = np.diff(labels.mean(axis=2), axis=1)[:, 0]
        else:
            many, _ = one.draw(streams("truth", k), 1, 400_000)
            truth = 0.0 if one.gap == 0 else float(np.diff(many.mean(axis=2), axis=1)[0, 0])
        known = labelled(one, labels, one.n_labels)
        clusters = units_of(one, one.n_items)
        pseudo = [
            cross_fitted(
                y, f, shared=True, clusters=clusters, finite=one.form == "these items"
            ).scores
            for y, f in zip(known, judged, strict=True)
        ]
        found = {"ppi++": through_the_engine(one, pseudo, known)}
        if one.form in ("alike", "these items"):
            n = one.n_labels
            y, f = (np.diff(v, axis=1)[:, 0] for v in (labels, judged))
            if one.form == "alike":
                found["labels only"] = through_the_engine(one, known, known, least=False)
                if n + 1 < one.n_items:
                    found["ppi++ z"] = published(y[:, :n], f[:, :n], f[:, n:])
        case = {"form": one.form, "kind": one.kind, "n": one.n_labels, "items": one.n_items}
        case["null"] = one.gap == 0
        for method, (low, high, clear) in found.items():
            row = study.coverage_row(case, method, (low, high), truth)
            row["found"] = float(np.mean(clear))
            rows.append(row)
        widths = {row["method"]: row["width"] for row in rows[-len(found) :]}
        for row in rows[-len(found) :]:
            alone = widths.get("labels only")
            row["relative"] = row["width"] / alone if alone else None
    return rows


@cache
def summary_rows():
    """By form, numbers of labels and method: coverage, its least and first percentile, type I."""
    rows = difference_rows()
    found = []
    for form in ("all", *dict.fromkeys(FORMS), *BANDS):
        for method in ("ppi++", "labels only", "ppi++ z"):
            low, high = BANDS.get(form, (0, 10_000))
            some = [
                row
                for row in rows
                if row["method"] == method
                and (form in ("all", row["form"]) or form in BANDS)
                and low <= row["n"] < high
            ]
            if not some:
                continue
            coverage = np.array([row["coverage"] for row in some])
            false = [row["found"] for row in some if row["null"]]
            wide = [row["relative"] for row in some if row["relative"] is not None]
            found.append({
                "form": form, "method": method, "designs": len(some), "runs": RUNS,
                "coverage": float(coverage.mean()), "worst": float(coverage.min()),
                "percentile_1": float(np.quantile(coverage, 0.01)),
                "std_error": float(np.sqrt(0.05 * 0.95 / RUNS)),
                "type_1": float(np.mean(false)) if false else None,
                "type_1_worst": float(np.max(false)) if false else None,
                "relative": float(np.mean(wide)) if wide else None,
            })  # fmt: skip
    return found


@cache
def pair_rows():
    """All ten differences of five models at once."""
    streams = study.Streams("pairs of judged models")
    a, b = np.triu_indices(5, 1)
    rows = []
    for k in range(24):
        one = design(streams("designs", k))
        one = Design(**{**vars(one), "form": "alike", "gap": one.gap if k % 2 else 0.0})
        labels, judged = one.draw(streams("answers", k), 100, n_models=5)
        many, _ = one.draw(streams("truth", k), 1, 200_000, n_models=5)
        means = many.mean(axis=2)[0] if one.gap else np.zeros(5)
        truth = means[b] - means[a]
        n = one.n_labels
        known = np.full_like(labels, np.nan)
        known[:, :, :n] = labels[:, :, :n]
        held, clear = [], []
        for y, f in zip(known, judged, strict=True):
            scores = cross_fitted(y, f, shared=True).scores[:, :n]
            far = distance(y[b, :n] - y[a, :n])
            far = np.where(far > 0, far, one.span)
            alone = Differences(scores[b] - scores[a], span=one.span, least_far=far)
            together = AllPairs(alone, Units(scores, np.ones(n)), a, b, n_draws=999)
            low, high = together.limits(0.05)
            held.append(bool(study.holds(low, high, truth).all()))
            clear.append(bool((together.p_values <= 0.05).any()))
        rows.append({
            "kind": one.kind, "n": n, "null": one.gap == 0, "runs": 100,
            "coverage": float(np.mean(held)), "found": float(np.mean(clear)),
        })  # fmt: skip
    return rows


def task_of(labels, scores, bounds, judge_bounds=None):
    n = len(labels)
    return JudgedTask(
        models=tuple(f"m{i}" for i in range(n)),
        judges=("judge",),
        human=Measure(task="t", metric="human", scale=Scale(*bounds)),
        people=(),
        item_ids=np.arange(labels.shape[1]).astype(str),
        labels=labels,
        scores=scores[None],
        bounds=(judge_bounds or bounds,),
        clusters=None,
        probabilities=None,
    )


@cache
def agreement_rows():
    """Kappa and AC1 of two raters, by drawn tables of frequencies."""
    from evalstats_plugin.stats.metrics import agreement, quadratic_weights

    streams = study.Streams("agreement of two raters")
    rows = []
    for q, share, right in ((2, 0.5, 0.8), (2, 0.9, 0.9), (2, 0.7, 0.98), (5, 0.5, 0.7)):
        for n in (20, 50, 200):
            rng = streams("answers", q, share, right, n)
            p = np.array([1 - share, share]) if q == 2 else np.array([0.1, 0.15, 0.2, 0.3, 0.25])
            near = np.abs(np.subtract.outer(np.arange(q), np.arange(q))) == 1
            off = near / near.sum(axis=1, keepdims=True)
            table = p[:, None] * (right * np.eye(q) + (1 - right) * off)
            weights = np.eye(q) if q == 2 else quadratic_weights(np.arange(q))
            truth = agreement(table, weights)
            bounds = (0.0, q - 1.0)
            limits = {"kappa": [], "ac1": []}
            draws = streams("tables", q, share, right, n)
            for _ in range(400):
                cell = rng.choice(q * q, n, p=table.ravel())
                a, b = (np.array(v, dtype=float)[None] for v in divmod(cell, q))
                found = agreements(task_of(a, b, bounds), confidence_level=0.95, rng=draws)[0]
                for name, own in limits.items():
                    low, high = (getattr(found, f"{name}_{end}") for end in ("low", "high"))
                    none = low is None or high is None
                    own.append((-1.0, 1.0) if none else (low, high))
            for name, own in limits.items():
                case = {"categories": q, "share": share, "right": right, "n": n, "what": name}
                rows.append(
                    study.coverage_row(case, name, np.array(own).T, float(getattr(truth, name)))
                )
    return rows


@cache
def bias_rows():
    """A judge that prefers length by so many standard deviations, with 200 labels."""
    streams = study.Streams("judges that prefer length")
    rows = []
    for kind in ("grades", "binary"):
        for alike in (0.0, 0.4):
            for size in (0.0, 0.3):
                rng = streams(kind, alike, size)
                verdicts, sizes = [], []
                for _ in range(RUNS):
                    quality = rng.standard_normal((2, 100))
                    length = alike * quality + np.sqrt(1 - alike**2) * rng.standard_normal((2, 100))
                    seen = quality + 0.7 * rng.standard_normal((2, 100))
                    seen = seen / np.sqrt(1.49) + size * length
                    if kind == "grades":
                        y, f = (np.clip(np.round(5.5 + 2 * v), 1, 10) for v in (quality, seen))
                        task = task_of(y, f, (1.0, 10.0))
                    else:
                        y, f = ((v > 0) * 1.0 for v in (quality, seen))
                        task = task_of(y, f, (0.0, 1.0))
                    (of_length, *_) = biases(task, {"length": length}, confidence_level=0.95)
                    wrong = size > 0 and of_length.size < 0
                    verdicts.append("wrong" if wrong else of_length.verdict)
                    sizes.append(of_length.in_sd)
                share = verdicts.count("biased") / RUNS
                rows.append({
                    "kind": kind, "alike": alike, "prefers": size, "labels": 200, "runs": RUNS,
                    "found": share, "unsure": verdicts.count("unsure") / RUNS,
                    "std_error": float(np.sqrt(share * (1 - share) / RUNS)),
                    "mean_size": float(np.mean(sizes)),
                })  # fmt: skip
    return rows


@cache
def chosen_rows():
    """Mean of a model by labels that were drawn where the judge is unsure, and by others."""
    streams = study.Streams("labels drawn where the judge is unsure")
    rows = []
    for noise in (0.3, 0.8):
        for n in (50, 200):
            rng = streams(noise, n)
            limits = {"unsure": [], "alike": []}
            for _ in range(1000):
                latent = 0.8 + 2 * rng.standard_normal(2000)
                truth = (latent + 0.3 * rng.logistic(size=2000) > 0) * 1.0
                judged = special.expit(latent + noise * rng.standard_normal(2000))
                unsure = np.sqrt(judged * (1 - judged))
                chance = _chances_of_next(unsure, np.ones(2000, dtype=bool), n)
                for how, into in limits.items():
                    own = chance if how == "unsure" else np.full(2000, n / 2000)
                    order = np.argsort(unsure, kind="stable")
                    ends = np.cumsum(own[order])
                    at = np.searchsorted(ends, rng.random() + np.arange(n))
                    drawn = order[np.minimum(at, 1999)]
                    labels = np.full(2000, np.nan)
                    labels[drawn] = truth[drawn]
                    found = ppi(
                        [labels], [judged], bounds=(0, 1), confidence_level=0.95,
                        probabilities=[own], finite=True,
                    )  # fmt: skip
                    low, high = found.interval
                    mean = truth.mean()
                    into.append((low[0] - mean, high[0] - mean))
            case = {"noise": noise, "n": n}
            rows += [
                study.coverage_row(case, how, np.array(own).T, 0.0) for how, own in limits.items()
            ]
    return rows


SECTIONS = {
    "summary": summary_rows,
    "pairs": pair_rows,
    "agreement": agreement_rows,
    "bias": bias_rows,
    "chosen": chosen_rows,
}


def test_the_figures_are_written():
    study.write_figures("judges", SECTIONS)


def summed(method, form="all"):
    (row,) = (r for r in summary_rows() if (r["form"], r["method"]) == (form, method))
    return row


def test_differences_hold_their_level_on_drawn_designs():
    """Of 240 designs, whose single errors are .01; and false findings where nothing differs.

    Models that share no labelled item, or items in clusters, are compared a little too carefully.
    """
    ours = summed("ppi++")

    assert ours["designs"] >= 200
    assert ours["coverage"] >= 0.945
    assert ours["percentile_1"] >= 0.935 - ours["std_error"]
    assert 0.04 <= ours["type_1"] <= 0.06
    assert 0.04 <= summed("ppi++", "alike")["type_1"] <= 0.06
    for form in (*dict.fromkeys(FORMS), *BANDS):
        assert summed("ppi++", form)["coverage"] >= 0.945
        assert (summed("ppi++", form)["type_1"] or 0) <= 0.06


def test_judges_make_differences_shorter_than_labels_alone():
    assert summed("ppi++", "alike")["relative"] < 0.9


def test_the_published_formulas_find_differences_that_are_not_there():
    """Negative control."""
    published = summed("ppi++ z", "alike")

    assert published["coverage"] < summed("ppi++", "alike")["coverage"]
    assert published["type_1"] > summed("ppi++", "alike")["type_1"]


def test_all_pairs_hold_at_once():
    rows = pair_rows()

    assert np.mean([row["coverage"] for row in rows]) >= 0.94
    assert np.mean([row["found"] for row in rows if row["null"]]) <= 0.06


def test_a_preference_for_length_is_found():
    """With 200 labels of answers whose length says nothing of their quality, or of graded ones.

    Where there is none it is seldom found. Right and wrong do not show whether longer answers are
    better: most findings are then unsure.
    """
    for row in bias_rows():
        if not row["prefers"]:
            assert row["found"] <= 0.03
        elif row["kind"] == "grades" or row["alike"] == 0:
            assert row["found"] >= 0.8
        else:
            assert row["found"] + row["unsure"] >= 0.8


def test_limits_of_agreement_hold():
    assert min(row["coverage"] for row in agreement_rows()) >= 0.9
    assert np.mean([row["coverage"] for row in agreement_rows()]) >= 0.945


def test_labels_where_the_judge_is_unsure_say_more():
    """And their probabilities make up for how they were chosen."""
    by = {(row["noise"], row["n"], row["method"]): row for row in chosen_rows()}
    for noise in (0.3, 0.8):
        for n in (50, 200):
            unsure, alike = by[noise, n, "unsure"], by[noise, n, "alike"]
            assert unsure["coverage"] >= 0.935
            assert unsure["width"] < alike["width"]

"""Ten models of the Stan user's guide: each is run on data drawn from it."""

import ast

import numpy as np
import pytest
from parts.ten_models import FILES, FOLDER, FORMULAS, imports, lines, sampled, sections, ten_models
from ten_models.data import CASES

pytestmark = pytest.mark.needs("torch")


LONGEST = "Correlated effects of groups"
FITTED = [pytest.param(x, marks=[pytest.mark.validation] if x == LONGEST else []) for x in CASES]


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.usefixtures("short_warm_up")
def test_a_model_on_plates_finds_the_truth(name, monkeypatch):
    from evalstats_plugin.hierarchical import infer
    from evalstats_plugin.hierarchical.engines.plates import nuts
    from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions

    options = FitOptions(sets=15, draws=50, wider=0)

    monkeypatch.setattr(nuts, "_WINDOWS", (8, 8, 8, 8, 8, 8))
    monkeypatch.setattr(nuts, "_DEPTH", 4)
    data, truth = CASES[name]

    def short(model, data, method="qem"):
        """The no-U-turn sampler takes longer: only where there is no other way."""
        latents = model.structure.latents
        if model.structure.crossed or "factor" in latents:
            return infer(model, data, "nuts", n_particles=4, steps=20, rng=0)
        many = 60 if "high" in latents else 10
        assert method in ("qem", "nuts")
        return infer(model, data, "qem", n_particles=many, steps=15, options=options, rng=0)

    scope = {"data": data}
    exec(imports("plated"), scope)  # noqa: S102 - imports of the page
    scope["infer"] = short
    exec(sections("plated")[name], scope)  # noqa: S102 - the page's code is what is tested
    for latent, value in truth.items():
        found = scope["fit"].moments[latent]
        assert (np.abs(found.mean - value) < 4 * found.std_dev).all(), latent
        assert (found.std_dev < 1.0 + 3 * (name == "Meta-analysis")).all(), latent


def test_the_density_of_the_longest_model_has_its_derivatives():
    """Of the page's code: the gradient along a direction is a difference of the density."""
    import torch

    from evalstats_plugin.hierarchical.engines.plates.model import bind, with_sizes
    from evalstats_plugin.hierarchical.engines.plates.nuts import Posterior

    data, truth = CASES[LONGEST]
    scope = {"data": data}
    exec(imports("plated"), scope)  # noqa: S102 - imports of the page
    scope["infer"] = lambda model, data, _: bind(with_sizes(model, data), data, torch.device("cpu"))
    exec(sections("plated")[LONGEST], scope)  # noqa: S102 - the page's code is what is tested
    posterior = Posterior(scope["fit"], torch.Generator().manual_seed(0))
    row, step = np.random.default_rng(0).normal(size=(2, posterior.size)) * [[1.0], [1e-5]]
    values, gradients = posterior(np.array([row, row - step, row + step]))

    assert scope["model"].check(data).problem == ""
    assert set(truth) < set(scope["model"].structure.latents)
    assert values[2] - values[1] == pytest.approx(2 * gradients[0] @ step, rel=1e-5)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_compiles(name):
    from evalstats_plugin.data.matrix import ResponseMatrix
    from evalstats_plugin.hierarchical.data import covariates_of, eval_counts
    from evalstats_plugin.hierarchical.formula import compiled

    formula, family = FORMULAS[name]
    scores = np.random.default_rng(0).integers(0, 2, (4, 12))
    counts = eval_counts(ResponseMatrix.from_array(scores, tasks=list("abcd") * 3))
    sizes = {"size": {model: float(k) for k, model in enumerate(counts.models)}}
    given = {"models": sizes} if "size" in formula else None
    made = compiled(formula, family, counts, covariates_of(given, counts.models, counts.tasks), {})

    assert made.model.check(made.data).problem == ""


def test_every_language_has_the_models():
    """Brms has no latents with finitely many values but those of mixtures."""
    plated = set(sections("plated"))

    assert plated == set(CASES)
    assert len(plated) == 10
    assert set(sections("NumPyro")) == plated
    assert set(sections("brms")) == plated - {"Change point"}
    assert set(FORMULAS) < plated
    ast.parse((FOLDER / FILES["NumPyro"]).read_text())


def test_lines_are_counted_without_blank_ones_and_comments():
    assert lines("a = 1\n\n# text\n  b = 2  # more\n") == 2
    assert ten_models().splitlines()[2].startswith("| Linear regression | `score ~ size` | 11 |")


def test_more_effective_draws_for_a_second_than_numpyro():
    """Of every model without latents of finitely many values but one, which the page names."""
    speeds = sampled()
    ratios = {name: speed["plated"] / speed["NumPyro"] for name, speed in speeds.items()}

    assert set(speeds) == set(CASES) - {"Finite mixture", "Change point"}
    assert ratios.pop("Correlated effects of groups") > 0.75
    assert min(ratios.values()) > 1.5

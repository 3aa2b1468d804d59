"""Ten models of the Stan user's guide: each is run on data drawn from it."""

import ast

import numpy as np
import pytest
from parts.ten_models import FILES, FOLDER, FORMULAS, imports, lines, sampled, sections, ten_models
from ten_models.data import CASES

pytestmark = pytest.mark.needs("torch")


@pytest.mark.parametrize("name", CASES)
def test_a_model_on_plates_finds_the_truth(name, monkeypatch):
    from evalstats_plugin.hierarchical import infer
    from evalstats_plugin.hierarchical.engines.plates import nuts

    monkeypatch.setattr(nuts, "_WINDOWS", (10, 10, 10, 10, 10, 10))
    monkeypatch.setattr(nuts, "_DEPTH", 4)
    data, truth = CASES[name]

    def short(model, data, method="qem"):
        """The no-U-turn sampler records a density for seconds: only where there is no other way."""
        latents = model.structure.latents
        if model.structure.crossed or "factor" in latents:
            return infer(model, data, "nuts", n_particles=4, steps=30, rng=0)
        many = 60 if "high" in latents else 10
        assert method in ("qem", "nuts")
        return infer(model, data, "qem", n_particles=many, steps=15, rng=0)

    scope = {"data": data}
    exec(imports("plated"), scope)  # noqa: S102 - imports of the page
    scope["infer"] = short
    exec(sections("plated")[name], scope)  # noqa: S102 - the page's code is what is tested
    for latent, value in truth.items():
        found = scope["fit"].moments[latent]
        assert (np.abs(found.mean - value) < 4 * found.std_dev).all(), latent
        assert (found.std_dev < 1.0 + 3 * (name == "Meta-analysis")).all(), latent


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

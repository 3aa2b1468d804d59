"""Contractions against brute force: every combination of particles, one by one."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Scene,
    contract,
    contraction_steps,
    draw_particles,
    first_proposals,
    log_evidence,
    posterior_draws,
    weigh,
    weighted_mean,
)
from evalstats_plugin.hierarchical.engines.plates.fit import choose_blocks, memory_needed
from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate, bind

CPU = torch.device("cpu")
TASK = Plate("task", 2)


def normal(x, loc, scale):
    return -0.5 * ((x - loc) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi)


def two_levels():
    """μ and s, in groups of their own, tied together by their children only."""
    return Model(
        plates=[Plate("task", 3)],
        latents=[
            Latent("mu", Normal(0.5, 1.0)),
            Latent("s", Normal(-0.25, 0.5)),
            Latent("z", lambda mu, s: Normal(mu, s.exp()), "task"),
        ],
        observed=[Observed("x", lambda z: Normal(z, 0.6), "task")],
    )


def three_levels():
    """A latent of the inner plate depends on both plates around it, and so does the data."""
    return Model(
        plates=[TASK, Plate("item", 2, within="task")],
        latents=[
            Latent("c", lambda b, mu: Normal(b - mu, 0.7), "item"),
            Latent("mu", Normal(0.0, 1.0)),
            Latent("b", lambda mu: Normal(mu, 1.2), "task"),
        ],
        observed=[
            Observed("x", lambda c, b: Normal(c + 0.3 * b, 0.6), "item"),
            Observed("w", lambda b: Normal(b, 2.0), "task"),
        ],
    )


def siblings():
    """Two plates side by side, and two latents of one group."""
    return Model(
        plates=[TASK, Plate("rater", 2)],
        latents=[
            Latent("mu", Normal(0.0, 1.0), group="top"),
            Latent("nu", lambda mu: Normal(0.5 * mu, 1.0), group="top"),
            Latent("a", lambda mu: Normal(mu, 1.0), "task"),
            Latent("r", lambda nu: Normal(nu, 0.8), "rater"),
        ],
        observed=[
            Observed("x", lambda a: Normal(a, 0.6), "task"),
            Observed("w", lambda r, nu: Normal(r + nu, 0.6), "rater"),
        ],
    )


DATA = {
    two_levels: {"x": [1.2, -0.4, 2.0]},
    three_levels: {"x": [[1.2, -0.4], [2.0, 0.1]], "w": [0.3, -1.0]},
    siblings: {"x": [1.2, -0.4], "w": [0.3, -1.0]},
}


def scene(make, k, blocks=None, seed=0):
    model = make()
    bound = bind(model, DATA[make], CPU)
    generator = torch.Generator().manual_seed(seed)
    proposals = first_proposals(bound, generator)
    particles = draw_particles(bound, proposals, k, generator)
    return Scene(bound, particles, blocks or dict(model.structure.sizes))


def n_particles(scene):
    return scene.particles.k(scene.bound, next(iter(scene.bound.structure.groups)))


def numbers(scene, name):
    """Particles of a latent, shape (members, K)."""
    return scene.particles.values[name].numpy().reshape(-1, n_particles(scene))


def log_q(scene, group):
    return scene.particles.log_q[group].numpy().reshape(-1, n_particles(scene))


def terms_two_levels(s):
    mu, sd, z = numbers(s, "mu")[0], numbers(s, "s")[0], numbers(s, "z")
    x = DATA[two_levels]["x"]
    for i, j, *kz in itertools.product(range(n_particles(s)), repeat=5):
        total = normal(mu[i], 0.5, 1.0) + normal(sd[j], -0.25, 0.5)
        total -= log_q(s, "mu")[0, i] + log_q(s, "s")[0, j]
        for t, k in enumerate(kz):
            total += normal(z[t, k], mu[i], np.exp(sd[j])) + normal(x[t], z[t, k], 0.6)
            total -= log_q(s, "z")[t, k]
        yield (i, j, *kz), total


def terms_three_levels(s):
    mu, b, c = numbers(s, "mu")[0], numbers(s, "b"), numbers(s, "c")
    x, w = np.ravel(DATA[three_levels]["x"]), DATA[three_levels]["w"]
    for i, *rest in itertools.product(range(n_particles(s)), repeat=7):
        kb, kc = rest[:2], rest[2:]
        total = normal(mu[i], 0.0, 1.0) - log_q(s, "mu")[0, i]
        for t, k in enumerate(kb):
            total += normal(b[t, k], mu[i], 1.2) + normal(w[t], b[t, k], 2.0)
            total -= log_q(s, "b")[t, k]
        for m, k in enumerate(kc):
            above = b[m // 2, kb[m // 2]]
            total += normal(c[m, k], above - mu[i], 0.7) - log_q(s, "c")[m, k]
            total += normal(x[m], c[m, k] + 0.3 * above, 0.6)
        yield (i, *rest), total


def terms_siblings(s):
    mu, nu = numbers(s, "mu")[0], numbers(s, "nu")[0]
    a, r = numbers(s, "a"), numbers(s, "r")
    x, w = DATA[siblings]["x"], DATA[siblings]["w"]
    for i, *rest in itertools.product(range(n_particles(s)), repeat=5):
        total = normal(mu[i], 0.0, 1.0) + normal(nu[i], 0.5 * mu[i], 1.0) - log_q(s, "top")[0, i]
        for t, k in enumerate(rest[:2]):
            total += normal(a[t, k], mu[i], 1.0) + normal(x[t], a[t, k], 0.6) - log_q(s, "a")[t, k]
        for t, k in enumerate(rest[2:]):
            total += normal(r[t, k], nu[i], 0.8) - log_q(s, "r")[t, k]
            total += normal(w[t], r[t, k] + nu[i], 0.6)
        yield (i, *rest), total


TERMS = {two_levels: terms_two_levels, three_levels: terms_three_levels, siblings: terms_siblings}


def all_combinations(make, s):
    """Indices (combinations, groups' members) and log of each term."""
    rows = list(TERMS[make](s))
    return np.array([r for r, _ in rows]), np.array([v for _, v in rows])


@pytest.mark.parametrize("make", TERMS)
@pytest.mark.parametrize("k", [1, 3])
def test_the_contraction_is_the_sum_over_all_combinations(make, k):
    s = scene(make, k)
    _, logs = all_combinations(make, s)
    expected = np.logaddexp.reduce(logs)

    assert float(log_evidence(s)) == pytest.approx(expected, abs=1e-10)


def axes(make):
    """Groups × members: how often 1/K is taken."""
    return {two_levels: 5, three_levels: 7, siblings: 5}[make]


def joint_weights(s, group):
    """Posterior of a group's particles and those of its parents together, by one derivative."""
    structure = s.bound.structure
    shape = s.bound.shape(structure.groups[group].plate, group, n_particles(s))
    for parent in structure.groups[group].parents:
        shape[structure.particle_axis[parent]] = n_particles(s)
    source = torch.zeros(shape, dtype=torch.float64).requires_grad_()
    return torch.autograd.grad(log_evidence(s, {group: source}), source)[0]


def test_weights_joints_and_moments_are_those_of_all_combinations():
    s = scene(two_levels, 3)
    indices, logs = all_combinations(two_levels, s)
    p = np.exp(logs - np.logaddexp.reduce(logs))
    weights = weigh(s).weights
    joint = joint_weights(s, "z").numpy()
    z = numbers(s, "z")
    expected = np.zeros((3, 3, 3, 3))
    for index, share in zip(indices, p, strict=True):
        for t in range(3):
            expected[t, index[0], index[1], index[2 + t]] += share

    np.testing.assert_allclose(joint, expected, atol=1e-12)
    np.testing.assert_allclose(
        weights["s"].ravel(), np.bincount(indices[:, 1], p), rtol=0, atol=1e-12
    )
    second = [(p * z[t, indices[:, 2 + t]] ** 2).sum() for t in range(3)]
    found = weighted_mean(s.bound, weights["z"], s.particles.values["z"].square(), "z")
    np.testing.assert_allclose(found.ravel(), second, atol=1e-12)


def test_draws_of_groups_that_only_children_tie_together_are_joint():
    """μ and ν are independent before the data, not after: their sum is known, not they."""
    model = Model(
        plates=[Plate("task", 1)],
        latents=[
            Latent("mu", Normal(0.0, 1.0)),
            Latent("nu", Normal(0.0, 1.0)),
            Latent("z", lambda mu, nu: Normal(mu + nu, 0.5), "task"),
        ],
        observed=[Observed("x", lambda z: Normal(z, 0.5), "task")],
    )
    generator = torch.Generator().manual_seed(0)
    bound = bind(model, {"x": [0.0]}, CPU)
    particles = draw_particles(bound, first_proposals(bound, generator), 100, generator)
    draws = posterior_draws(Scene(bound, particles, {"task": 1}), 4000, generator)
    both = torch.stack([draws["mu"], draws["nu"]]).numpy()

    # Precision 1 + 1/v on the diagonal and 1/v off it, v = ½: correlation −1 / (1 + v).
    assert np.corrcoef(both)[0, 1] == pytest.approx(-1 / 1.5, abs=0.08)


def test_draws_of_three_levels_are_those_of_all_combinations():
    s = scene(three_levels, 2, {"task": 1, "item": 1})
    _, logs = all_combinations(three_levels, s)
    p = np.exp(logs - np.logaddexp.reduce(logs))
    count = 10_000
    draws = posterior_draws(s, count, torch.Generator().manual_seed(1))
    codes = np.zeros(count, dtype=int)
    for name, t in [("mu", 0), ("b", 0), ("b", 1), *(("c", m) for m in range(4))]:
        found = draws[name].numpy().reshape(count, -1)[:, t]
        codes = 2 * codes + (found[:, None] == numbers(s, name)[t]).argmax(1)
    found = np.bincount(codes, minlength=2**7) / count

    assert np.abs(found - p).sum() / 2 < 0.06


@pytest.mark.parametrize("blocks", [{"task": 1, "item": 2}, {"task": 2, "item": 1},
                                    {"task": 1, "item": 1}])  # fmt: skip
def test_blocks_change_no_number(blocks):
    whole, parts = scene(three_levels, 4), scene(three_levels, 4, blocks)
    a, b = weigh(whole), weigh(parts)

    assert b.log_evidence == pytest.approx(a.log_evidence, abs=1e-11)
    for group, weights in a.weights.items():
        np.testing.assert_allclose(b.weights[group], weights, atol=1e-12)
    np.testing.assert_allclose(joint_weights(parts, "c"), joint_weights(whole, "c"), atol=1e-12)


def many_tasks(size):
    return Model(
        plates=[Plate("task", size), Plate("item", 10, within="task")],
        latents=[
            Latent("mu", Normal(0.0, 1.0)),
            Latent("b", lambda mu: Normal(mu, 1.0), "task"),
            Latent("c", lambda b, mu: Normal(b + mu, 1.0), "item"),
        ],
        observed=[Observed("x", lambda c: Normal(c, 1.0), "item")],
    )


def test_blocks_are_as_large_as_the_limit_allows():
    bound = bind(many_tasks(64), {"x": np.zeros((64, 10))}, CPU)
    whole = memory_needed(bound, 10, {"task": 64, "item": 10})
    one = memory_needed(bound, 10, {"task": 1, "item": 1})

    # Doubles of the largest factor, 64 × 10 × 10³, and what is made of it.
    assert 8 * 640_000 < whole < 8 * 640_000 * 20
    assert choose_blocks(bound, 10, whole) == {"task": 64, "item": 10}
    for limit in (whole // 3, whole // 50, one):
        blocks = choose_blocks(bound, 10, limit)
        assert memory_needed(bound, 10, blocks) <= limit
        assert blocks["item"] == 10 or blocks["task"] == 1


def saved_for_the_backward_pass(scene):
    """Numbers that autograd keeps, each array counted once."""
    sizes = {}

    def keep(x):
        sizes[x.data_ptr()] = x.numel()
        return x

    source = torch.zeros([64, 10, 1, 1, 10], dtype=torch.float64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        log_evidence(scene, {"c": source})
    return sum(sizes.values())


def test_tables_in_memory_are_those_of_a_block():
    """What backward passes keep, counted: less than the limit, which the whole is far above."""
    model = many_tasks(64)
    bound = bind(model, {"x": np.zeros((64, 10))}, CPU)
    generator = torch.Generator().manual_seed(0)
    particles = draw_particles(bound, first_proposals(bound, generator), 10, generator)
    kept = {}
    for limit in (2**40, 2**20):
        scene = Scene(bound, particles, choose_blocks(bound, 10, limit))
        kept[limit] = 8 * saved_for_the_backward_pass(scene)

    assert kept[2**20] < 2**20 < kept[2**40] / 4


def test_a_block_that_does_not_fit_is_refused_with_sizes():
    bound = bind(many_tasks(4), {"x": np.zeros((4, 10))}, CPU)
    with pytest.raises(DesignError, match=r"task 4, item 10.*need about .* for one member.*fewer"):
        choose_blocks(bound, 10, 1000)


def test_a_chain_is_summed_out_without_the_full_table():
    rng = np.random.default_rng(0)
    k, n = 6, 7
    tables = [torch.tensor(rng.normal(size=(k, k))) for _ in range(n)]
    shaped = [
        t.reshape([k if a in (i, i + 1) else 1 for a in range(n + 1)]) for i, t in enumerate(tables)
    ]
    product = np.linalg.multi_dot([t.exp().numpy() for t in tables])
    found = contract(shaped, frozenset(range(n + 1)))
    sizes = tuple(tuple((a, k) for a in (i, i + 1)) for i in range(n))

    assert float(found.message) == pytest.approx(np.log(product.sum()), abs=1e-10)
    assert max(step.entries for step in contraction_steps(sizes, frozenset(range(n + 1)))) <= k**3

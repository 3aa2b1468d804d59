"""Streams of random numbers: named, unlike one another, unlike those of a user's own seed."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.irt import hold_out
from evalstats_plugin.stats.streams import child, children, seed_for, stream

ROOT = Path(__file__).parents[2]
SOURCES = [
    path for folder in ("evalstats_plugin", "adapters") for path in (ROOT / folder).rglob("*.py")
]
NAMED = {"stream": 1, "children": 1, "seed_for": 1, "generator_of": 1}
"""Functions that begin a stream, and the place of its purpose among their arguments."""
DOORS = {"evalstats_plugin/stats/streams.py", "evalstats_plugin/runtime/torch.py"}
MAKERS = {
    "default_rng", "SeedSequence", "Generator", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64",
    "RandomState", "spawn", "manual_seed", "manual_seed_all",
}  # fmt: skip
"""What makes or seeds generators, of NumPy and of torch."""
CALLED = re.compile(rf"\b({'|'.join([*NAMED, *MAKERS])})\(")


@cache
def _calls():
    """Return file, name and call of what begins a stream or makes a generator."""
    found = []
    for path in SOURCES:
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        if not CALLED.search(text):
            continue  # to be parsed takes long
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = node.func
                of = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                if of in NAMED or of in MAKERS:
                    found.append((name, of, node))
    return found


def _purposes():
    found = []
    for file, name, call in _calls():
        if name in NAMED and file not in DOORS:
            purpose = call.args[NAMED[name]]
            assert isinstance(purpose, ast.Constant), f"{file}:{call.lineno} has no literal purpose"
            found.append(purpose.value)
    return found


def test_every_purpose_is_at_one_place():
    purposes = _purposes()
    assert len(purposes) > 40
    assert [name for name, n in Counter(purposes).items() if n > 1] == []
    assert len({crc32(name.encode()) for name in purposes}) == len(purposes)


def test_generators_are_made_and_seeded_at_the_doors_only():
    elsewhere = [
        f"{file}:{call.lineno} {name}"
        for file, name, call in _calls()
        if name in MAKERS and file not in DOORS
    ]
    assert elsewhere == []


def test_no_stream_of_a_seed_is_that_of_default_rng_or_of_another_purpose():
    numbers = [np.random.default_rng(0).random(500)]
    numbers += [stream(0, purpose).random(500) for purpose in _purposes()]
    assert len(np.unique(np.concatenate(numbers))) == 500 * len(numbers)


def test_seeds_are_streams_of_their_own_and_repeat():
    assert stream(3, "coins").random() == stream(np.int64(3), "coins").random()
    assert stream(3, "coins").random() != stream(4, "coins").random()
    assert stream(None, "coins").random() != stream(None, "coins").random()


def test_a_generator_given_twice_has_two_streams_of_which_none_is_its_own():
    def drawn(given):
        return np.concatenate([stream(given, "coins").random(200) for _ in range(2)])

    values = drawn(np.random.default_rng(0))
    assert len(np.unique([*values, *np.random.default_rng(0).random(600)])) == 1000
    assert (drawn(np.random.default_rng(0)) == values).all()


def test_children_do_not_depend_on_how_many_there_are():
    few, many = ([each.random() for each in children(0, "parts", n)] for n in (3, 8))
    assert many[:3] == few
    assert len(set(many)) == 8


def test_a_child_by_name_depends_on_the_seed_and_its_name_alone():
    parent = stream(0, "tasks")
    first = child(parent, "gsm8k").random()
    child(parent, "mmlu").random()
    parent.random(100)
    assert child(parent, "gsm8k").random() == first
    assert child(parent, "mmlu").random() != first
    assert child(stream(1, "tasks"), "gsm8k").random() != first
    assert child(parent, "\udcff").random() != first


def test_seeds_of_seeds_are_whole_numbers_of_a_purpose():
    assert seed_for(0, "a") == seed_for(0, "a") != seed_for(0, "b")
    assert 0 <= seed_for(0, "a") < 2**63


@pytest.mark.parametrize(("given", "error"), [(-1, ValueError), (0.5, TypeError), ("0", TypeError)])
def test_what_is_no_seed_is_refused(given, error):
    with pytest.raises(error):
        stream(given, "coins")


def test_answers_of_a_users_seed_are_not_held_out_by_the_numbers_that_made_them():
    """Held out exactly where the user's uniforms were smallest, every answer was right."""
    answers = np.random.default_rng(0).random((20, 100)) < 0.5
    matrix = ResponseMatrix.from_array(answers.astype(float))
    (row,) = hold_out(matrix, item_model="rasch", seeds=[0])
    assert row.base_log_loss == pytest.approx(np.log(2), abs=0.02)

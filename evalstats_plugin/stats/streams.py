"""The one source of random numbers: streams that are named after their purpose.

`default_rng(0)` here and `default_rng(0)` in a script would be the same numbers: data that a user
simulated with seed 0 would be held out, resampled or asked by the very numbers that made them. So
every stream is of a seed *and* of a purpose. A purpose is written out where its stream begins, and
nowhere else in the program (a test compares); generators are made nowhere else (the linter sees to
it, and the test, for torch).

* `stream`: a generator for a purpose
* `children`: n of them, by index, for work that may be split over processes
* `child`: one by name, the same whatever else was drawn
* `seed_for`: a whole number, for what begins the same stream several times, or for torch
"""

from __future__ import annotations

import operator
from zlib import crc32

import numpy as np

from evalstats_plugin.stats.arrays import Rng

# Bits that a stream takes of the generator it comes from: as many as NumPy takes of the system.
_WORDS = 4


def stream(rng: Rng, purpose: str) -> np.random.Generator:
    """Return the generator for a purpose.

    Parameters
    ----------
    rng
        A seed, from which each purpose has a stream of its own, always the same; None for fresh
        randomness; or a generator, from which 128 bits are drawn. So two calls with one generator
        have different streams, neither shares numbers with it, and all depend on its state alone.
    purpose
        What is drawn, in words that no other call in the program has.

    Raises
    ------
    TypeError, ValueError
        The seed is no whole number, or is negative.

    Examples
    --------
    >>> first, second = stream(0, "coins"), stream(0, "dice")
    >>> bool(first.random() == second.random())
    False
    >>> bool(stream(0, "coins").random() == stream(0, "coins").random())
    True
    """
    return np.random.Generator(np.random.PCG64(_sequence(rng, purpose)))


def children(rng: Rng, purpose: str, n: int) -> list[np.random.Generator]:
    """Return n generators for a purpose; the first are the same for any n.

    Draws of part i of the work come from generator i, so that results do not depend on how parts
    are divided among processes.
    """
    return [np.random.Generator(np.random.PCG64(x)) for x in _sequence(rng, purpose).spawn(n)]


def child(parent: np.random.Generator, name: str) -> np.random.Generator:
    """Return the generator of a part of the data, such as a task, named in the data.

    Nothing is drawn of the parent: what a part gets depends on the parent's seed and the name
    alone, not on what other parts there are, and is the same each time.

    Parameters
    ----------
    parent
        As `stream` returns it.
    """
    of = parent.bit_generator.seed_seq
    if not isinstance(of, np.random.SeedSequence):
        raise TypeError("the parent was not made of a seed: take one that stream() returns")
    key = (*of.spawn_key, crc32(name.encode("utf-8", "surrogatepass")))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(of.entropy, spawn_key=key)))


def seed_for(rng: Rng, purpose: str) -> int:
    """Return a seed below 2**63 for a purpose, as `stream` returns a generator."""
    return int(_sequence(rng, purpose).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(rng: Rng, purpose: str) -> np.random.SeedSequence:
    key = crc32(purpose.encode())
    if isinstance(rng, np.random.Generator):
        words = rng.integers(2**32, size=_WORDS, dtype=np.uint32)
        return np.random.SeedSequence([*words.tolist(), key])
    return np.random.SeedSequence(None if rng is None else [operator.index(rng), key])

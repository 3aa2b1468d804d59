"""A claim of a source, what this package gives for it, and whether the two agree.

* `Source`: the claims of one source, in its order, each with the function that runs it
* `near`, `within`, `holds`: outcomes of a comparison
* `Row`: a claim that was run
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Outcome(NamedTuple):
    """Number or statement of the source, ours, and whether they agree; None: not done."""

    theirs: str
    ours: str
    agrees: bool | None
    note: str = ""
    """Why the two do not agree, or what was simulated in place of data that cannot be had."""


class Row(NamedTuple):
    """A claim that was run, as it is stored."""

    source: str
    claim: str
    theirs: str
    ours: str
    agrees: bool | None
    note: str
    script: str
    fast: bool


@dataclass(frozen=True)
class Claim:
    """A claim and the function that runs it; a claim that cannot be run has none."""

    source: str
    text: str
    script: str
    fast: bool
    run: Callable[[], Outcome]

    def row(self) -> Row:
        """Run the claim."""
        outcome = self.run()
        return Row(
            self.source,
            self.text,
            outcome.theirs,
            outcome.ours,
            outcome.agrees,
            outcome.note,
            self.script,
            self.fast,
        )


@dataclass(frozen=True)
class Source:
    """The claims of one source.

    Examples
    --------
    >>> source = Source("Euclid")
    >>> @source.claim("there is no largest prime", fast=True)
    ... def primes():
    ...     return near(4 / 2, 2, 0)
    >>> source.claims[0].row().agrees
    True
    """

    title: str
    claims: list[Claim] = field(default_factory=list[Claim])

    def claim(self, text: str, *, fast: bool = False) -> Callable[[Any], Any]:
        """Register a function that runs a claim; fast ones run in the tests, too."""

        def register(run: Callable[[], Outcome]) -> Callable[[], Outcome]:
            script = f"{run.__module__.replace('.', '/')}.py:{run.__name__}"
            self.claims.append(Claim(self.title, text, script, fast, run))
            return run

        return register

    def not_done(self, text: str, theirs: str, why: str) -> None:
        """Register a claim that this package does not answer, with the reason."""
        outcome = Outcome(theirs, "–", None, why)
        self.claims.append(Claim(self.title, text, "–", fast=True, run=lambda: outcome))


def shown(numbers: ArrayLike, digits: int = 3) -> str:
    """Write numbers with so many decimal places, without the sign of a zero."""
    flat = np.ravel(np.asarray(numbers, dtype=float))
    return ", ".join(f"{number:z.{digits}f}" for number in flat)


def near(
    ours: ArrayLike,
    theirs: ArrayLike,
    tolerance: float,
    *,
    digits: int = 3,
    note: str = "",
    most: int = 5,
) -> Outcome:
    """Numbers agree where none differs by more than the tolerance; the first few are shown."""
    first, second = np.ravel(np.asarray(ours, float)), np.ravel(np.asarray(theirs, float))
    agrees = first.shape == second.shape and bool(np.all(np.abs(first - second) <= tolerance))
    more = "" if len(first) <= most else f" … ({len(first)})"
    return Outcome(
        shown(second[:most], digits) + more, shown(first[:most], digits) + more, agrees, note
    )


def largest(gaps: ArrayLike, bound: float, of: str, note: str = "") -> Outcome:
    """The largest distance from a calculation of another hand is below a bound."""
    gap = float(np.max(np.abs(np.asarray(gaps, float))))
    return Outcome(
        of, f"differs by < {bound:.0e}" if gap < bound else f"{gap:.1e} apart", gap < bound, note
    )


def holds(statement: str, ours: str, truth: Any, note: str = "") -> Outcome:
    """A statement without a number of its own: ours shows it, or does not."""
    return Outcome(statement, ours, bool(truth), note)

"""``make seeds``: run every claim of the five sources, and keep what came out.

``python -m benchmarks.seeds WORD…`` runs the claims whose source, text or script holds a word, and
keeps the others as they are.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.seeds import aims, fullrank, particles, py_irt, small_evals, uncertainty
from benchmarks.seeds.claims import Claim, Row

RESULTS = Path(__file__).parents[1] / "results" / "seeds.json"
CLAIMS: tuple[Claim, ...] = tuple(
    claim
    for module in (uncertainty, aims, particles, small_evals, py_irt, fullrank)
    for claim in module.source.claims
)


def stored() -> dict[tuple[str, str], Row]:
    """Rows of the last run, by source and claim."""
    if not RESULTS.exists():
        return {}
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    return {(row["source"], row["claim"]): Row(**row) for row in rows}


def store(rows: dict[tuple[str, str], Row]) -> None:
    """Write the rows of all claims that have one, in the order of the sources."""
    keys = [(claim.source, claim.text) for claim in CLAIMS]
    figures = {"rows": [rows[key]._asdict() for key in keys if key in rows]}
    RESULTS.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(words: list[str]) -> None:
    """Run, print, keep: each row as soon as it is there, for a run may be broken off."""
    rows = stored()
    for claim in CLAIMS:
        text = f"{claim.source} {claim.text} {claim.script}"
        if words and not any(word in text for word in words):
            continue
        start = time.process_time()
        row = rows[claim.source, claim.text] = claim.row()
        seconds = time.process_time() - start
        sys.stdout.write(f"{seconds:6.1f} s  {row.agrees!s:5}  {row.claim}: {row.ours}\n")
        sys.stdout.flush()
        store(rows)


if __name__ == "__main__":
    main(sys.argv[1:])

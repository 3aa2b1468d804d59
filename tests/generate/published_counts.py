"""Count the values of lm-eval 0.3 whose k of n are recovered, for docs/reference/formats.md.

Usage: ``python tests/generate/published_counts.py FOLDER``, with the folder ``results`` of
EleutherAI/lm-evaluation-harness at ``1b9833dd5b3b508f36275785556d8ff5b0364a09^``. Counted are
accuracies between 0 and 1 with a standard error; n is compared with 1 + p(1 - p)/se².
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from evalstats_plugin import read

METRICS = ("acc", "acc_norm", "em", "exact_match")


def main(folder: Path) -> None:
    """Print how many values there are, and of how many the counts are unique and right."""
    total = unique = right = 0
    others: set[tuple[str, str]] = set()
    for file in sorted(folder.rglob("*.json")):
        results = json.loads(file.read_text(encoding="utf-8"))["results"]
        for r in read(file):
            value, error = (results[r.task].get(r.metric + end) for end in ("", "_stderr"))
            if r.metric not in METRICS or not error or not 0 < value < 1:
                continue
            total += 1
            if any("the only counts that give it" in note for note in r.notes):
                unique += 1
                right += r.logged_n == round(1 + value * (1 - value) / error**2)
            else:
                others.add((r.task, r.metric))
    print(f"{total} values, {unique} with unique counts, {right} of the same n; others: {others}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

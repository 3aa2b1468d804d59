"""Keep what the code answers now in fixtures/golden/recorded.json, after its studies were run.

python tests/generate/recorded.py
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests" / "adversary"))
    from recorded_answers import SEEDS, questions, recorded

    kept = {
        f"{seed}, {question}": recorded(seed, question)
        for seed in SEEDS
        for question in questions(seed)
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in kept.items())
    text = f"{{\n{lines}\n}}\n"
    (ROOT / "fixtures" / "golden" / "recorded.json").write_text(text, "utf-8")

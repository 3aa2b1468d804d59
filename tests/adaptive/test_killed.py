"""A test that is killed at any place goes on as if nothing had happened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = '''
"""Run tests in children, each killed after a random time, until the last one is done."""
import json, os, signal, sys, time
from pathlib import Path
import numpy as np
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.session import AdaptiveSession, AnswersFile
from evalstats_plugin.adaptive.stopping import Items
from evalstats_plugin.stats.streams import child, stream

folder, kills = Path(sys.argv[1]), int(sys.argv[2])
root = stream(int(sys.argv[3]), "killed tests")
items, answers, times = (child(root, name) for name in ("items", "answers", "times of kills"))
SIZE, MOST = 200, 60
bank = ItemBank.from_arrays(np.exp(0.3 * items.normal(size=SIZE)), items.normal(size=SIZE))
scores = (answers.random(SIZE) < 0.6) * 1.0

def ask(place, asked):
    with open(asked, "ab", buffering=0) as file:
        file.write(bank.keys()[place][1].encode() + b"\\n")
    return scores[place]

def run(state, asked, seed):
    saved = AnswersFile(state, bank, {"model": "a"})
    session = AdaptiveSession.resume(bank, saved.answers, rng=seed, stop=[Items(MOST)])
    while len(places := session.next()):
        for place in places.tolist():
            session.record(place, ask(place, asked))
            saved.append(session)
    return [answer.item for answer in session.answers]

n_killed, rounds, out = 0, 0, []
while n_killed < kills:
    state, asked = folder / f"state{rounds}", folder / f"asked{rounds}"
    cut = 0
    while True:
        child = os.fork()
        if not child:
            run(state, asked, rounds)
            os._exit(0)
        time.sleep(times.uniform(0, 0.06))
        if n_killed < kills:
            os.kill(child, signal.SIGKILL)
        done = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not done:
            break
        assert done == -signal.SIGKILL, done
        n_killed, cut = n_killed + 1, cut + 1
    resumed = run(state, folder / "none", rounds)
    whole = run(folder / f"whole{rounds}", folder / "whole_asked", rounds)
    out.append({"killed": cut, "asked": asked.read_text().splitlines(),
                "answered": resumed, "whole": whole})
    rounds += 1
print(json.dumps(out))
'''


def _killed(folder: Path, kills: int, seed: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", PROGRAM, str(folder), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "kills", [5, pytest.param(200, marks=pytest.mark.validation, id="two hundred")]
)
def test_nothing_is_asked_twice_but_what_was_being_answered(tmp_path: Path, kills: int) -> None:
    """And the items are those of a test that nobody killed."""
    rounds = _killed(tmp_path, kills, seed=1)

    assert kills == sum(each["killed"] for each in rounds)
    for each in rounds:
        asked, answered = each["asked"], each["answered"]
        assert each["whole"] == answered
        # An item is asked again only at once: the kill came before its answer was written.
        again = [k for k in range(1, len(asked)) if asked[k] == asked[k - 1]]
        assert len(again) <= each["killed"]
        assert answered == [item for k, item in enumerate(asked) if k not in again]

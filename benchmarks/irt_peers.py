"""``make bench-peers``: item response programs beside ours, on the same answers of known truth.

Every fit runs in a process of its own on one thread, ours in this environment, the others in one
of their own (`.venv-bench`). 2PL truth: abilities and difficulties are N(0, 1), log
discriminations N(0, 0.3²); a fifth of the answers is held out.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

HERE = Path(__file__).parent
FIGURES = HERE / "irt_peers.json"
FITS = HERE / "irt_peer_fits.py"
CONSTRAINTS = HERE.parent / "constraints.txt"
VENV = HERE.parent / ".venv-bench"

SEED = 20261120
HELD_OUT = 0.2
SIZES = ((200, 1000), (1000, 1000), (40, 5000))
LARGE = ((4000, 5000),)
"""For programs that fitted 1,000 × 1,000 in seconds: 16 million answers."""

CPU_LIMIT = 300
"""Seconds; a program that needs more is recorded as not finished."""

WALL_LIMIT = 4 * CPU_LIMIT
FAR = 8.0
"""Difficulties beyond are set to it before they are compared: some programs give infinite ones."""

_SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "SETUPTOOLS_USE_DISTUTILS": "stdlib",  # Theano, of girth_mcmc, does not know a newer one
    "TABPFN_DISABLE_TELEMETRY": "1",  # tabpfn, of torch_measure, would report its use
}


class Program(NamedTuple):
    """A way to fit, of a Python package."""

    name: str
    """Of the function in `irt_peer_fits`."""
    requirement: str | None
    """None for ours."""
    sizes: tuple[tuple[int, int], ...] = SIZES


PROGRAMS = (
    Program("evalstats-plugin", None, SIZES + LARGE),
    Program("girth JML", "girth==0.8.0", SIZES + LARGE),
    Program("torch_measure SVI", "torch_measure==0.1.0"),
    Program("torch_measure JML", "torch_measure==0.1.0"),
    Program("py-irt hierarchical", "py-irt==0.7.1"),
    Program("py-irt default", "py-irt==0.7.1"),
    Program("girth_mcmc", "girth_mcmc==0.6.0", SIZES[:1]),
)
NOT_RUN = {"mirt": "an R package", "TAM": "an R package", "eRm": "an R package (Rasch only)"}


class Answers(NamedTuple):
    """Drawn answers and what they were drawn from."""

    scores: NDArray[np.int8]
    """Shape (N, M), -1 where held out."""
    answers: NDArray[np.int8]
    """Those held out."""
    ability: NDArray[np.float64]
    difficulty: NDArray[np.float64]
    discrimination: NDArray[np.float64]


def main() -> None:
    """Run all, print each and keep the figures, whatever happens to the next."""
    broken = install()
    figures: dict[str, Any] = {
        "python": platform.python_version(),
        "cpu_limit": CPU_LIMIT,
        "not_run": NOT_RUN,
        "truth": {},
        "runs": [],
    }
    for size in SIZES + LARGE:
        with tempfile.TemporaryDirectory() as folder:
            drawn = draw(*size)
            np.save(Path(folder) / "scores.npy", drawn.scores)
            truth = log_loss(drawn, drawn.ability, drawn.difficulty, drawn.discrimination)
            figures["truth"]["x".join(map(str, size))] = {"log_loss": truth}
            for program in PROGRAMS:
                if size in program.sizes:
                    found = fit(program, Path(folder), drawn, broken.get(program.requirement or ""))
                    found = {"program": program.name, "size": "x".join(map(str, size)), **found}
                    print(json.dumps(found), flush=True)
                    figures["runs"].append(found)
                    FIGURES.write_text(json.dumps(figures, indent=2) + "\n")


def install() -> dict[str, str]:
    """Install what is missing; return why a requirement could not be installed."""
    if not _python(VENV).exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    pip = [_python(VENV), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    environment = {**os.environ, "PIP_CONSTRAINT": str(CONSTRAINTS)}
    # Alone and first, so that the pinned build is there before a peer asks for any torch.
    subprocess.run([*pip, "torch"], check=True, env=environment)
    broken: dict[str, str] = {}
    for requirement in dict.fromkeys(p.requirement for p in PROGRAMS if p.requirement):
        done = subprocess.run(
            [*pip, requirement], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            broken[requirement] = f"not installed: {_last_line(done.stderr)}"
    return broken


def draw(n: int, m: int) -> Answers:
    """Draw answers of n models to m items."""
    rng = np.random.default_rng(SEED)
    ability, difficulty = rng.standard_normal(n), rng.standard_normal(m)
    discrimination = np.exp(0.3 * rng.standard_normal(m))
    chance = special.expit(discrimination * (ability[:, None] - difficulty))
    scores = (rng.random((n, m)) < chance).astype(np.int8)
    hidden = rng.random((n, m)) >= 1 - HELD_OUT
    answers = scores[hidden]
    scores[hidden] = -1
    return Answers(scores, answers, ability, difficulty, discrimination)


def fit(program: Program, folder: Path, drawn: Answers, broken: str | None) -> dict[str, Any]:
    """Return the figures of one fit, or why there are none."""
    if broken:
        return {"failed": broken}
    python = _python(VENV) if program.requirement else Path(sys.executable)
    # -P: the modules beside the script are not on its path.
    command = [python, "-P", FITS, program.name, folder, str(CPU_LIMIT)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=WALL_LIMIT,
            env={**os.environ, **_SETTINGS},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"failed": f"not finished in {WALL_LIMIT} s"}
    if done.returncode == -24:  # SIGXCPU
        return {"failed": f"not finished in {CPU_LIMIT} CPU s"}
    if done.returncode:
        return {"failed": _last_line(done.stderr) or f"exit status {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    with np.load(folder / "fit.npz") as arrays:
        return found | dict(_compared(drawn, *(arrays[name] for name in Answers._fields[2:])))


def _compared(
    drawn: Answers,
    ability: NDArray[np.float64],
    difficulty: NDArray[np.float64],
    discrimination: NDArray[np.float64],
) -> Iterator[tuple[str, Any]]:
    """Figures of the estimates; a figure that is not finite becomes a reason."""
    estimates = {"abilities": ability, "items": difficulty * discrimination}
    lost = [
        f"{count} of {a.size} {what} are not finite"
        for what, a in estimates.items()
        if (count := int((~np.isfinite(a)).sum()))
    ]
    if np.isfinite(ability).all():
        yield "rmse_ability", rmse(ability, drawn.ability)
    if np.isfinite(estimates["items"]).all():
        yield "rmse_difficulty", rmse(difficulty.clip(-FAR, FAR), drawn.difficulty)
    if lost:
        yield "failed", ", ".join(lost)
    else:
        yield "log_loss", log_loss(drawn, ability, difficulty, discrimination)


def log_loss(
    drawn: Answers,
    ability: NDArray[np.float64],
    difficulty: NDArray[np.float64],
    discrimination: NDArray[np.float64],
) -> float:
    """Mean log loss of the answers held out."""
    logit = discrimination * (ability[:, None] - difficulty)
    signed = np.where(drawn.answers == 1, 1, -1) * logit[drawn.scores == -1]
    return round(float(-np.mean(special.log_expit(signed))), 4)


def rmse(found: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Error on the truth's scale: where 0 lies and how long 1 is, no program can know."""
    slope, start = np.polyfit(found, true, 1)
    return round(float(np.sqrt(np.mean((start + slope * found - true) ** 2))), 4)


def _python(venv: Path) -> Path:
    return venv / "bin" / "python"


def _last_line(text: str) -> str:
    """The error, without the folder where it happened."""
    return re.sub(r" \(/.*\)$", "", text.strip().rpartition("\n")[2])


if __name__ == "__main__":
    main()

"""The examples of two other programs beside ours, on the same data.

``python -m benchmarks.hierarchical``. The clustered example of bayes_evals weighs 10,000 draws from
the prior; ours integrates the same posterior. HiBayES fits its two-level model of groups by NUTS;
ours takes it as nested plates. Every fit runs in a process of its own on one thread, ours and prior
draws in this environment, NumPyro in one of its own (`.venv-bench`). HiBayES is on no package
index: its model and settings are written out in `hierarchical_fits`, from its version 1.0.0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
FIGURES = HERE.parent / "fixtures" / "validation" / "hierarchical_peers.json"
FITS = HERE / "hierarchical_fits.py"
VENV = HERE.parent / ".venv-bench"
REQUIREMENT = "numpyro==0.22.0"
CPU_LIMIT = 300

SEED = 20261121
REPEATS = 20
CLUSTERED = ((5, 20, 5.0), (20, 50, 5.0), (20, 100, 5.0), (50, 200, 20.0))
"""Clusters, items in each, and d of the truth; θ is 0.7."""
SCALES = (0.1, 1.0)
"""Of the half-normal prior of σ_group: what HiBayES has by default, and a wide one."""


def main() -> None:
    """Run all, print each and keep the figures."""
    broken = install()
    figures: dict[str, list[dict[str, Any]]] = {"clustered": [], "two_level": []}
    for shape in CLUSTERED:
        row = clustered(*shape)
        print(json.dumps(row), flush=True)
        figures["clustered"].append(row)
    rng = np.random.default_rng(SEED)
    total = np.repeat([20, 30, 40, 50, 60, 80], 2)
    chance = 1 / (1 + np.exp(-(0.4 + 0.6 * rng.standard_normal(len(total)))))
    right = rng.binomial(total, chance).astype(float)
    for scale in SCALES:
        data = {"right": right, "total": total.astype(float), "scale": np.array(scale)}
        row: dict[str, Any] = {"right": right.tolist(), "total": total.tolist(), "scale": scale}
        for name in ("evalstats-plugin, QEM", "HiBayES's way, NumPyro"):
            row[name] = {"failed": broken} if broken and "NumPyro" in name else fit(name, data)
        print(json.dumps(row), flush=True)
        figures["two_level"].append(row)
    FIGURES.write_text(json.dumps(rounded(figures), indent=1) + "\n", encoding="utf-8")


def clustered(clusters: int, items: int, d: float) -> dict[str, Any]:
    """Compare limits of `REPEATS` data sets, and the seconds of all."""
    rng = np.random.default_rng(clusters * items)
    share = rng.beta(0.7 * d, 0.3 * d, (REPEATS, clusters))
    data = {
        "right": rng.binomial(items, share).astype(float),
        "total": np.full((REPEATS, clusters), float(items)),
    }
    exact = fit("evalstats-plugin, quadrature", data)
    drawn = fit("bayes_evals's way, prior draws", data)
    away = [np.array(drawn[k]) - np.array(exact[k]) for k in ("low", "high")]
    return {
        "clusters": clusters,
        "items": items,
        "d": d,
        "data_sets": REPEATS,
        "first_right": data["right"][0].tolist(),
        "first_exact": {k: exact[k][0] for k in ("mean", "low", "high")},
        "first_drawn": {k: drawn[k][0] for k in ("mean", "low", "high", "ess")},
        "median_ess": float(np.median(drawn["ess"])),
        "least_ess": float(np.min(drawn["ess"])),
        "rms_error_of_limits": [float(np.sqrt((x**2).mean())) for x in away],
        "seconds_quadrature": exact["seconds"],
        "seconds_prior_draws": drawn["seconds"],
    }


def install() -> str | None:
    """Install what is missing; return why it could not be."""
    if not _python(VENV).exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    pip = [_python(VENV), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, REQUIREMENT], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"not installed: {done.stderr.strip().rpartition(chr(10))[2]}"
    return None


def fit(name: str, data: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the figures of one fit, or why there are none."""
    python = _python(VENV) if "NumPyro" in name else Path(sys.executable)
    settings = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", **data)  # pyright: ignore[reportArgumentType]
        # -P: the modules beside the script are not on its path.
        done = subprocess.run(
            [python, "-P", FITS, name, folder, str(CPU_LIMIT)],
            capture_output=True, text=True, check=False, env={**os.environ, **settings},
        )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        return {"failed": last or f"exit status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def rounded(value: Any) -> Any:
    """Five digits of every number."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _python(venv: Path) -> Path:
    return venv / "bin" / "python"


if __name__ == "__main__":
    main()

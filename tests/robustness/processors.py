"""Two processors on one: the same commands with and without the instructions of a newer one.

NumPy, its linear algebra, PyTorch and MKL choose what they add in which order by the processor they
find; variables of the environment have them take another for it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

PROCESSORS = {
    "new": {"OMP_NUM_THREADS": "2"},
    "old": {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
    },
}
"""What the variables are: as here with two threads; without AVX, with one."""

_ABLE = "import numpy as np; print(*np._core._multiarray_umath.__cpu_dispatch__)"
_WORK = """
import numpy as np, sys
rng = np.random.default_rng(0)
a = rng.normal(size=(200, 200))
sys.stdout.write(np.linalg.inv(a).tobytes().hex() + np.exp(a).sum().hex())
"""
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
SERVER = Path(__file__).parents[1] / "command_server.py"


def variables(name: str) -> dict[str, str]:
    """Return the environment of a processor, this process's own beside it."""
    extra = dict(PROCESSORS[name])
    if "NPY_DISABLE_CPU_FEATURES" in extra:
        able = subprocess.run([sys.executable, "-c", _ABLE], capture_output=True, text=True,
                              check=True)  # fmt: skip
        extra["NPY_DISABLE_CPU_FEATURES"] = " ".join(able.stdout.split())
    return {**os.environ, **extra}


def arithmetic(name: str) -> str:
    """Return what a processor makes of a fixed piece of arithmetic, to the last bit."""
    done = subprocess.run([sys.executable, "-c", _WORK], capture_output=True, text=True, check=True,
                          env=variables(name))  # fmt: skip
    return done.stdout


class Processor:
    """Runs commands of the program as a processor of the given name; a context."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self._environment = variables(name)

    def __enter__(self) -> Processor:
        self._server = subprocess.Popen(
            [sys.executable, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=self._environment,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__(None, None, None)

    def _with(self, environment: dict[str, str]) -> dict[str, str]:
        """Return an environment that is this processor's in any case."""
        own = {name: self._environment[name] for name in PROCESSORS[self.name]}
        return {**self._environment, **environment, **own}

    def run(self, arguments: list[str], **environment: str) -> str:
        """Return what a command of the program prints in the folder, with its errors."""
        output = self._folder / f"{self.name}.txt"
        output.write_bytes(b"")
        request = {
            "module": "evalstats_plugin",
            "arguments": arguments,
            "environment": self._with({"COLUMNS": "80", "EVALSTATS_NO_CONFIG": "1", **environment}),
            "folder": str(self._folder),
            "output": str(output),
            "errors": str(output),
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        text = output.read_text(encoding="utf-8")
        assert code in (0, 3, 4), text
        return text

    def shell(self, command: str, **environment: str) -> str:
        """Return what a command prints in a shell in the folder; `run` is quicker."""
        done = subprocess.run(
            ["/bin/bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=True, cwd=self._folder, env=self._with(environment),
        )  # fmt: skip
        return done.stdout


def differences(first: str, second: str) -> tuple[int, float]:
    """Return how many numbers of two outputs differ, and the most in units of the last digit.

    Infinity where more than numbers differ.

    >>> differences("p .004, 71 % of 4", "p .006, 70 % of 4")
    (2, 2.0)
    """
    numbers = [_NUMBER.findall(text) for text in (first, second)]
    if _NUMBER.sub("#", first) != _NUMBER.sub("#", second):
        return max(map(len, numbers)), float("inf")
    units = [
        abs(float(a) - float(b)) * 10 ** len(a.partition(".")[2])
        for a, b in zip(*numbers, strict=True)
        if a != b
    ]
    return len(units), round(max(units, default=0.0), 6)

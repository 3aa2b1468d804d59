"""Copies of the project laid out as a wheel lays it out, and processes that run tests in them.

* `lay_out`: a copy, in which `evalstats_plugin` and its entry points are found without installation
* `mutated`: a copy with one file changed, for as long as needed
* `Processes`: a pool of forked copies of this process, each with a tree, a limit of time and memory

The process itself imports no module of the package: what a copy imports is what lies in its tree.
"""

from __future__ import annotations

import compileall
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from mutations import Mutant

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "EVALSTATS_NO_CONFIG": "1",
    "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1", "COVERAGE_CORE": "ctrace",
    # Fonts are listed once for all.
    "MPLCONFIGDIR": str(Path(tempfile.gettempdir()) / "mutants-matplotlib"),
}  # fmt: skip
IMPORTED = (
    "coverage", "numpy", "scipy.optimize", "scipy.special", "scipy.stats", "pandas",
    "pyarrow.parquet", "pluggy", "pytest", "_pytest.doctest", "hypothesis.strategies",
    "hypothesis.extra.numpy", "click", "rich.console", "rich.table", "jinja2", "packaging",
    "torch", "matplotlib.figure", "sklearn.linear_model", "importlib.metadata", "xml.dom.minidom",
    "unittest.mock", "multiprocessing", "concurrent.futures.process",
)  # fmt: skip
"""Modules that take a while to import; what is missing here is left out."""
COPIED = (
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "adapters", "benchmarks",
    "constraints.txt", "docs", "evalstats_plugin", "examples", "fixtures", "pyproject.toml",
    "tests", ".gitignore",
)  # fmt: skip
MEMORY = 8 << 30
"""Bytes that a process may allocate."""
BUSY = 20
"""How many times as long as its time of the processor a process may take, on a machine that does
other work, or waiting."""


def processor_seconds() -> float:
    """Return the time of the processor that this process and those it started have had."""
    return sum(os.times()[:4])


def import_what_takes_long() -> list[str]:
    """Import what every test needs, and return what is missing; no thread may start."""
    missing: list[str] = []
    for name in IMPORTED:
        try:
            import_module(name)
        except ImportError:
            missing.append(name)
    return missing


def lay_out(root: Path, folder: Path) -> None:
    """Copy the project, its adapters inside the package, its entry points where they are found."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    without = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, folder / name, symlinks=True, ignore=without)
        elif (root / name).exists():
            shutil.copy2(root / name, folder / name)
    (folder / "evalstats_plugin" / "adapters").symlink_to("../adapters")
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    information = folder / f"evalstats_plugin-{project['version']}.dist-info"
    information.mkdir()
    needed = "".join(f"Requires-Dist: {each}\n" for each in project["dependencies"])
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (information / "METADATA").write_text(head + needed)
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (information / "entry_points.txt").write_text("\n".join(points))
    for part in ("evalstats_plugin", "adapters"):
        compileall.compile_dir(folder / part, quiet=2)


def _compiled(file: Path) -> list[Path]:
    return list((file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"))


@contextmanager
def mutated(tree: Path, mutant: Mutant) -> Iterator[None]:
    """Change one file of a tree, whose compiled form is that of no other text."""
    file = tree / mutant.path
    source, status = file.read_bytes(), file.stat()
    file.write_bytes(mutant.apply(source))
    for compiled in _compiled(file):
        compiled.unlink()
    try:
        yield
    finally:
        file.write_bytes(source)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        for compiled in _compiled(file):
            compiled.unlink()


@dataclass
class Job:
    """What a copy of this process has to do."""

    work: Callable[[Path], Any]
    """Called with the tree, in the copy; what it returns is written as JSON."""
    seconds: float
    """Time of the processor that it may have."""
    mutant: Mutant | None = None
    about: Any = None
    """For whoever gets the result."""


@dataclass
class Outcome:
    """What came of a job."""

    job: Job
    result: Any
    """What the work returned; None of a copy that was ended or ended itself."""
    seconds: float
    late: bool
    output: str


@dataclass
class _Running:
    job: Job
    process: int
    started: float
    changed: Any
    late: bool = False


@dataclass
class Processes:
    """Copies of this process, one at a time in each tree."""

    root: Path
    folder: Path
    workers: int
    _running: dict[int, _Running] = field(default_factory=dict[int, _Running])

    def __post_init__(self) -> None:
        first = self.folder / "0" / "tree"
        lay_out(self.root, first)
        for number in range(1, self.workers):
            other = self.folder / str(number)
            shutil.rmtree(other, ignore_errors=True)
            other.mkdir(parents=True)
            subprocess.run(["cp", "-a", str(first), str(other / "tree")], check=True)

    @property
    def idle(self) -> list[int]:
        """Numbers of the trees in which nothing runs."""
        return [number for number in range(self.workers) if number not in self._running]

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        return bool(self._running)

    def start(self, job: Job) -> None:
        """Run a job in a tree that is idle."""
        number = self.idle[0]
        place = self.folder / str(number)
        changed = mutated(place / "tree", job.mutant) if job.mutant else None
        if changed is not None:
            changed.__enter__()
        for name in ("result.json", "output.txt"):
            (place / name).unlink(missing_ok=True)
        sys.stdout.flush()
        process = os.fork()
        if not process:
            _be_a_copy(place, job)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(process, process)
        self._running[number] = _Running(job, process, time.monotonic(), changed)

    def wait(self) -> Iterator[Outcome]:
        """Give the outcomes of what has ended since; wait a moment if nothing has."""
        ended = False
        for number, running in list(self._running.items()):
            process, status = os.waitpid(running.process, os.WNOHANG)
            seconds = time.monotonic() - running.started
            if not process and seconds < BUSY * running.job.seconds:
                continue
            running.late = not process or os.WTERMSIG(status) == signal.SIGXCPU
            with suppress(ProcessLookupError):
                os.killpg(running.process, signal.SIGKILL)
            if not process:
                os.waitpid(running.process, 0)
            if running.changed is not None:
                running.changed.__exit__(None, None, None)
            del self._running[number]
            ended = True
            place = self.folder / str(number)
            result = None
            with suppress(FileNotFoundError, ValueError):
                result = json.loads((place / "result.json").read_text())
            output = ""
            with suppress(FileNotFoundError):
                output = (place / "output.txt").read_text(errors="replace")[-3000:]
            shutil.rmtree(place / "temporary", ignore_errors=True)
            yield Outcome(running.job, result, seconds, running.late, output)
        if not ended:
            time.sleep(0.02)

    def stop(self) -> None:
        """End what runs, and put its files back."""
        for running in self._running.values():
            running.job.seconds = 0
        while self.busy:
            list(self.wait())


def _be_a_copy(place: Path, job: Job) -> None:
    """Do a job in the copy of this process, and end it."""
    code = 1
    try:
        os.setpgid(0, 0)
        tree = place / "tree"
        temporary = place / "temporary"
        temporary.mkdir(exist_ok=True)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = int(job.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
        output = os.open(place / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        here = str(Path(__file__).parent)
        others = [
            str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p
        ]
        paths = os.pathsep.join([str(tree), *others])
        os.environ.update(PYTHONPATH=paths, TMPDIR=str(temporary), HOME=str(temporary))
        os.chdir(tree)
        sys.path[:] = [str(tree), *(p for p in sys.path if p not in {"", here, str(tree)})]
        # The runner itself is no test, and lies elsewhere.
        for name in [n for n in sys.modules if n.split(".")[0] in {"tests", "evalstats_plugin"}]:
            del sys.modules[name]
        result = job.work(tree)
        (place / "result.json").write_text(json.dumps(result))
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the copy must end
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

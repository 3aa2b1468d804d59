"""Runs ``python -m MODULE`` again and again, each time in a fresh copy of this process.

The copy has imported what reading logs needs, which takes longer than most commands, and what is
slow to import once a command before it has needed that. Requests are lines of JSON on standard
input; each is answered by its exit code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import runpy
import sys
import threading
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

INSPECT = (
    "inspect_ai._cli.main", "inspect_ai._eval.eval", "inspect_ai.agent._acp.server", "fastapi",
)  # fmt: skip
"""Modules that a run of Inspect needs: imported before the first, which may be killed."""

SLOW = ("scipy.stats", "torch", "matplotlib.font_manager", *INSPECT)
"""Modules that take seconds of CPU to import, and start no threads."""

OURS = re.compile(r"evalstats_plugin\.(?!adapters\b)|scipy\.")
"""Modules of which each takes little, and a command needs many; adapters import harnesses."""

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"


def _import_what_is_needed() -> None:
    from evalstats_plugin.cli import main

    for log in ("lm_eval/0.4.13/out_samples", "inspect_ai/0.3.285/tiny_perfect"):
        # Where Inspect is not installed its log is an error, which is as good.
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit):
            main(["report", "--quiet", str(LOGS / log)], prog_name="evalstats-plugin")
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(30)  # one that read an archive may still be on its way out
    assert threading.active_count() == 1, "threads are not copied"


def _import_for_the_next(needed: int) -> None:
    """Import what the copy that has ended had to import; one that was killed names nothing."""
    # What it has started may still run, and hold the other end open.
    os.set_blocking(needed, False)
    with suppress(BlockingIOError):
        for name in os.read(needed, 65536).decode().split():
            import_module(name)
    os.close(needed)
    gc.freeze()


def _become(request: dict[str, Any]) -> None:
    """Be what the shell would have started."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for stream, name in enumerate((os.devnull, request["output"], request["errors"])):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND if stream else os.O_RDONLY), stream)
    sys.argv = [request["module"], *request["arguments"]]
    more = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [request["folder"], *filter(None, more)]


def _run(module: str) -> int:
    """Run the command and return the exit code that Python would end with."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself does
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Serve until standard input ends."""
    _import_what_is_needed()
    # What is shared with the copies stays shared: neither collected there nor taken down.
    gc.freeze()
    for line in sys.stdin:
        if "inspect" in line:
            with suppress(ImportError):
                for name in INSPECT:
                    import_module(name)
        there = set(sys.modules)
        needed, needs = os.pipe()
        child = os.fork()
        if not child:
            code = 70
            try:
                request = json.loads(line)
                _become(request)
                code = _run(request["module"])
                atexit._run_exitfuncs()
                sys.stdout.flush()
            finally:
                names = [name for name in sys.modules if name not in there and OURS.match(name)]
                names += [name for name in SLOW if name in sys.modules]
                os.write(needs, " ".join(names).encode())
                os._exit(code)
        os.close(needs)
        _, status = os.waitpid(child, 0)
        _import_for_the_next(needed)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Read by every Python that a traced test starts: writes the package's lines that were run.

A copy of a server of commands tells its own lines alone, as those of the test that asked.
"""

import atexit
import contextlib
import json
import os
import sys
from pathlib import Path

_folder, _tree = os.environ.get("MUTANTS_TRACES"), os.environ.get("MUTANTS_TREE", "")
if _folder:
    import coverage

    _coverage = coverage.Coverage(
        data_file=None, config_file=False, messages=False,
        source=[f"{_tree}/evalstats_plugin", f"{_tree}/adapters"],
    )  # fmt: skip

    def _write() -> None:
        test = os.environ.get("MUTANTS_TEST")
        if not test:
            return
        with contextlib.suppress(Exception):
            _coverage.stop()
            data = _coverage.get_data()
            lines = {
                os.path.relpath(os.path.realpath(file), os.path.realpath(_tree)): sorted(
                    data.lines(file) or ()
                )
                for file in data.measured_files()
            }
            text = json.dumps({"test": test, "lines": lines})
            Path(_folder, f"{os.getpid()}.part").write_text(text, encoding="utf-8")
            Path(_folder, f"{os.getpid()}.part").rename(Path(_folder, f"{os.getpid()}.json"))

    def _forget() -> None:
        """Forget the lines of the process that this is a copy of."""
        with contextlib.suppress(Exception):
            _coverage.stop()
            _coverage.erase()
            _coverage.start()

    _coverage.start()
    atexit.register(_write)
    os.register_at_fork(after_in_child=_forget)
    sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]

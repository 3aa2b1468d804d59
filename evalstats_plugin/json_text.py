"""JSON files of harnesses, which may be cut off or damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evalstats_plugin.errors import LogError


def parsed(content: bytes, path: Path) -> Any:
    """Parse what a file holds, with or without a mark of its encoding in front.

    Raises
    ------
    LogError
        It is not UTF-8, no JSON, or JSON that nobody meant: numbers of thousands of digits.
    """
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text ({error.reason} at byte {error.start})"
        raise LogError(msg) from error
    except json.JSONDecodeError as error:
        msg = f"{path} is not JSON: {error.msg} in line {error.lineno}; it may have been cut off"
        raise LogError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{path} cannot be read as JSON ({error}); it may be damaged"
        raise LogError(msg) from error

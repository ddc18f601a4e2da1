"""Where a handler failed, for people: class, number and line of what it raised, never its text.

The text of a foreign exception may be a payload's or a secret. Where it was raised is a fact of the program.
"""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Callable


def failure_at(error: BaseException, function: Callable[..., Any]) -> str:
    """`ProgrammingError 1146 at app.py:18`: what `function` raised, and at which of its file's lines.

    Args:
        error: as it was caught.
        function: the handler, also as a method or wrapped. Where the error did not pass through its file, only
            the class is told.
    """
    name = type(error).__name__
    if isinstance(error, DBAPIError) and error.orig is not None and error.orig.args:
        name = f"{name} {error.orig.args[0]}" if isinstance(error.orig.args[0], int) else name
    code = getattr(inspect.unwrap(function), "__code__", None)  # what a decorator wrapped may be no function
    file = "" if code is None else code.co_filename
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{name} at {Path(file).name}:{lines[-1]}" if lines else name

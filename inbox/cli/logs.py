"""The log of a command that runs on: lines for people, or one JSON object a line for programs."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from inbox.core.facts import ATTRIBUTE, fact

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("inbox")

LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s[%(process)d] %(message)s"

#: They repeat, with what the peer wrote, what one line of ours says.
_REPEATING: Final = ("aiormq", "aio_pika")

#: What asyncio says of a task or callback that failed, up to what it failed with: the rest are `repr`s, which quote.
_PLAIN_WORDS: Final = re.compile(r"[\w .,'-]*")


class LogLevel(StrEnum):
    """From which level on the lines of loggers below `inbox` are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Who reads: people, or programs."""

    TEXT = "text"
    JSON = "json"


LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        "--log-level", envvar="INBOX_LOG_LEVEL", show_envvar=True, case_sensitive=False, help="Leave out what is below."
    ),
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        envvar="INBOX_LOG_FORMAT",
        show_envvar=True,
        case_sensitive=False,
        help="text for people; json for programs: an object a line with time, level, logger, pid, message, what and "
        "the fields of that.",
    ),
]


def configure_logging(level: LogLevel, form: LogFormat, *, leave_out: str | None = None) -> None:
    """Log to standard error. An application that has configured logging itself, or does so later, has its way.

    With JSON, warnings of Python and errors that nothing catches are lines of the log too: standard error then holds
    nothing else.

    Args:
        level: the least that loggers below `inbox` write; others write warnings and errors.
        form: of the lines.
        leave_out: `what` of lines that are not wanted.
    """
    handler = logging.StreamHandler(sys.stderr)
    if leave_out is not None:
        handler.addFilter(lambda record: getattr(record, ATTRIBUTE, {}).get("what") != leave_out)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else logging.Formatter(LOG_FORMAT))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("inbox").setLevel(level.upper())
    for library in _REPEATING:
        logging.getLogger(library).setLevel(logging.CRITICAL)
    if form is LogFormat.JSON:
        logging.captureWarnings(capture=True)
        sys.excepthook = lambda kind, _, trace: log_uncaught(kind, trace)
        threading.excepthook = lambda told: log_uncaught(told.exc_type, told.exc_traceback)
        sys.unraisablehook = lambda told: log_uncaught(told.exc_type, told.exc_traceback)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII: what a record is, the fact that it states, and of an error class and place.

    An error's text is left out: it may quote a payload or a peer. Whatever a record holds, this raises nothing, for
    `logging` would then print the record's arguments.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line; docs/logging.md describes it."""
        told = getattr(record, ATTRIBUTE, None)
        is_ours = record.name.partition(".")[0] == "inbox" and isinstance(told, Mapping)
        line = {
            "time": _rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": _message_of(record),
            "what": None,
            **_error_of(record),
            **(_plain(told) if is_ours else {}),
        }
        return json.dumps(line)


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message_of(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit, or whose own text fails
        message = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
    if record.name == "asyncio":
        plain = _PLAIN_WORDS.match(message)
        return "" if plain is None else plain.group().strip()
    return message


def _error_of(record: logging.LogRecord) -> dict[str, str | None]:
    if not record.exc_info or record.exc_info[1] is None:
        return {}
    error = record.exc_info[1]
    return {"error": type(error).__name__, "place": _place_of(record.exc_info[2])}


def _place_of(trace: TracebackType | None) -> str | None:
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _plain(value: Any) -> Any:
    """`value` as JSON knows it; of what it does not know, the class."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None  # JSON has no infinity (RFC 8259, 6)
    return value if value is None or isinstance(value, (str, int)) else type(value).__name__


def log_uncaught(kind: type[BaseException], trace: TracebackType | None) -> None:
    """Say in one line that nothing caught an error: class and place, in the stead of a traceback with its text."""
    if kind is not SystemExit:  # in a thread it ends the thread, and nobody is told (`threading.excepthook`)
        name, place = kind.__name__, _place_of(trace)
        log.error(
            "not caught: %s at %s", name, place or "no known place", extra=fact("not-caught", error=name, place=place)
        )

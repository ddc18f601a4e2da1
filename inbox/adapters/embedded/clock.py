"""The clock of files: the machine's, to the microsecond.

SQLite's `now` is the same clock, to the millisecond only (sqlite.org/lang_datefunc.html). Files are shared by processes
of one machine, so there is no other whose clock could differ.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_FORM = "%Y-%m-%d %H:%M:%S.%f"


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def stamp(time: datetime | None = None) -> str:
    """A time as it is stored; None is now.

    Args:
        time: with its zone.
    """
    return (time or now()).astimezone(UTC).strftime(_FORM)


def before(seconds: float) -> str:
    """The time so many seconds ago, as it is stored; at most as far back as the calendar goes."""
    try:
        return stamp(now() - timedelta(seconds=seconds))
    except OverflowError:
        return "0001-01-01 00:00:00.000000"


def instant(stored: str) -> datetime:
    """A stored time, in UTC.

    Raises:
        ValueError: it was not written by this framework.
    """
    return datetime.fromisoformat(stored).replace(tzinfo=UTC)


def microseconds() -> int:
    """The time as a number, for the queue: microseconds since 1970."""
    return time.time_ns() // 1000

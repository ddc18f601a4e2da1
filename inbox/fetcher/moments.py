"""Times with nine digits behind the point, kept whole."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from inbox.core.timestamps import parse_timestamp

_FRACTION = re.compile(r"\.([0-9]+)")
_MOST_DIGITS: Final = 9
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def parse_moment(text: str) -> tuple[datetime, int]:
    """An RFC 3339 date-time with 0 to 9 digits behind the point, and any offset.

    Returns:
        The moment, aware, with the offset that was written, cut to microseconds; and the nanoseconds that were cut off,
        0 to 999. Together they are exact.

    Raises:
        ValueError: it is none, or has more digits. The message says nothing of the text.
    """
    moment = parse_timestamp(text)
    found = _FRACTION.search(text)
    digits = found[1] if found is not None else ""
    if len(digits) > _MOST_DIGITS:
        raise ValueError("more than nine digits behind the point")
    return moment, int(digits.ljust(_MOST_DIGITS, "0")[6:])


def unix_nanoseconds(moment: datetime, nanosecond: int) -> int:
    """Nanoseconds since 1970 in UTC: an integer, for a float holds no more than 16 of the 19 digits."""
    return (moment - _EPOCH) // _MICROSECOND * 1000 + nanosecond

"""RFC 3339 timestamps, strictly."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# RFC 3339, 5.6: date-time = full-date "T" full-time, time-secfrac = "." 1*DIGIT, and "the "T" and "Z" characters
# in this syntax may alternatively be lower case". `[0-9]`, for `\d` takes the digits of every script. The day of the
# month is left to `datetime`.
_DATE_TIME = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-[0-9]{2}"
    r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


def parse_timestamp(text: str) -> datetime:
    """The moment that `text` names.

    A leap second (`23:59:60Z`) is refused: RFC 3339 5.7 allows it, `datetime` cannot hold it, and the neighbouring
    second would be another moment than the producer wrote. So is a time without an offset (RFC 3339, 4.4:
    "interpretation [...] will fail in 23 of the globe's 24 time zones").

    Args:
        text: an RFC 3339 date-time, with any number of fraction digits.

    Returns:
        Aware, with the offset that was written, cut (not rounded) to microseconds.

    Raises:
        ValueError: `text` is none, or the moment lies outside the years 1 to 9999 of `datetime`. The message says
            nothing of the text.
    """
    if _DATE_TIME.fullmatch(text) is None:
        raise ValueError("not an RFC 3339 date-time that can be held")
    try:
        moment = datetime.fromisoformat(text.upper())
        moment.astimezone(UTC)  # the offset may carry the first or last day out of the calendar
    except (ValueError, OverflowError):
        raise ValueError("not a moment of the years 1 to 9999") from None
    return moment


def format_timestamp(moment: datetime) -> str:
    """`moment` as RFC 3339 text in UTC.

    Args:
        moment: aware.

    Returns:
        With `Z`, and six fraction digits unless they are all zero.

    Raises:
        ValueError: `moment` is naive (RFC 3339 has no local time), or outside the years 1 to 9999 in UTC.
    """
    if moment.utcoffset() is None:
        raise ValueError("a time without an offset")
    try:
        return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    except OverflowError:
        raise ValueError("not a moment of the years 1 to 9999") from None

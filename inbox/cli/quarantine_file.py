"""The file that `inbox quarantine export` writes and `import` reads: one JSON object a line, one line an entry.

An entry's digest covers what arrived, so that a line says by itself whether it is whole.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from inbox.config import check_consumer_name
from inbox.core.kept import delivery_digest, stored_delivery, stored_headers
from inbox.core.quarantine import (
    AttemptLine,
    QuarantinedDelivery,
    QuarantineEntry,
    QuarantineState,
    history_lines,
    history_text,
)
from inbox.core.records import EVENT_ID_OCTETS
from inbox.errors import ConfigurationError
from inbox.tables import HISTORY_LENGTH

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Of the format; another one is refused.
VERSION: Final = 1

_MOST: Final = 2**32 - 1  # INT UNSIGNED
#: Characters that the columns hold (`inbox.tables`).
_LENGTHS: Final = {"reason": 64, "detail": 1024, "state_note": 512}


class LineRefused(Exception):
    """A line holds no entry.

    Args:
        why: what is wrong with it; says nothing of what it holds.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What one line holds.

    Attributes:
        consumer: whose it was.
        whole: the entry with what arrived.
    """

    consumer: str
    whole: QuarantinedDelivery


def write_line(consumer: str, whole: QuarantinedDelivery) -> str:
    """One entry as a line, with its end."""
    entry, delivery = whole.entry, whole.delivery
    line = {
        "version": VERSION,
        "consumer": consumer,
        **entry_as_dict(entry),
        "headers": json.loads(stored_headers(delivery)),
        "body": base64.b64encode(delivery.body).decode("ascii"),
    }
    return json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n"


def entry_as_dict(entry: QuarantineEntry) -> dict[str, Any]:
    """What is known of an entry, in JSON's own types."""
    return {
        "digest": entry.digest.hex(),
        "state": entry.state.value,
        "reason": entry.reason,
        "detail": entry.detail,
        "event_id": _octets_out(entry.event_id),
        "event_type": entry.event_type,
        "source": entry.source,
        "record_key": _octets_out(entry.record_key),
        "origin": [entry.origin.exchange, entry.origin.routing_key],
        "queue": entry.queue,
        "attempts": entry.attempts,
        "history": [
            {"at": None if line.at is None else line.at.isoformat(), "kind": line.kind, "words": line.words}
            for line in entry.history
        ],
        "times_seen": entry.times_seen,
        "first_at": entry.first_at.isoformat(),
        "last_at": entry.last_at.isoformat(),
        "state_at": None if entry.state_at is None else entry.state_at.isoformat(),
        "state_note": entry.state_note,
        "body_bytes": entry.body_bytes,
        "total_bytes": entry.total_bytes,
    }


def read_line(text: bytes) -> FileEntry:
    """The entry in one line.

    Raises:
        LineRefused: it holds none, not a whole one, or one of another version.
    """
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        raise LineRefused("no JSON") from None
    if not isinstance(line, dict):
        raise LineRefused("no JSON object")
    if line.get("version") != VERSION:
        raise LineRefused(f"not of version {VERSION} of this format")
    try:
        return _file_entry(line)
    except LineRefused:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise LineRefused("a member is missing, or is not what it should be") from None


def _file_entry(line: Mapping[str, Any]) -> FileEntry:
    try:
        consumer = check_consumer_name(_text(line, "consumer"))
    except ConfigurationError:
        raise LineRefused("consumer is no name of one") from None
    headers = json.dumps(line["headers"], ensure_ascii=True).encode("ascii")
    delivery = stored_delivery(headers, base64.b64decode(_text(line, "body"), validate=True))
    if delivery_digest(consumer.encode(), delivery).hex() != line["digest"]:
        raise LineRefused("its digest is of something else: the line was changed, or is not whole")
    first_at = _time(line["first_at"])
    entry = QuarantineEntry(
        digest=bytes.fromhex(line["digest"]),
        state=QuarantineState(line["state"]),
        reason=_text(line, "reason"),
        detail=_text(line, "detail"),
        event_id=_octets_in(line, "event_id"),
        event_type=_optional(line, "event_type"),
        source=_optional(line, "source"),
        record_key=_octets_in(line, "record_key"),
        origin=delivery.origin,
        queue=delivery.queue,
        attempts=_count(line, "attempts"),
        history=_history(line["history"]),
        times_seen=_count(line, "times_seen"),
        first_at=first_at,
        last_at=_time(line["last_at"]),
        state_at=None if line["state_at"] is None else _time(line["state_at"]),
        state_note=_optional(line, "state_note"),
        body_bytes=len(delivery.body),
        total_bytes=_count(line, "total_bytes"),
    )
    return FileEntry(consumer, QuarantinedDelivery(entry, delivery))


# ------------------------------------------------------------------ members
def _text(line: Mapping[str, Any], name: str) -> str:
    value = line[name]
    if not isinstance(value, str) or (name in _LENGTHS and len(value) > _LENGTHS[name]):
        raise LineRefused(f"{name} is no text, or too long")
    value.encode()  # a lone surrogate has no UTF-8 form, and is a ValueError
    return value


def _optional(line: Mapping[str, Any], name: str) -> str | None:
    return None if line[name] is None else _text(line, name)


def _count(line: Mapping[str, Any], name: str) -> int:
    value = line[name]
    if type(value) is not int or not 0 <= value <= _MOST:
        raise LineRefused(f"{name} is no number of something")
    return value


def _time(value: str) -> datetime:
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise LineRefused("a time has no zone")
    return time


def _history(lines: list[dict[str, Any]]) -> tuple[AttemptLine, ...]:
    read = [
        AttemptLine(None if line["at"] is None else _time(line["at"]), _text(line, "kind"), _text(line, "words"))
        for line in lines
    ]
    text = history_text(read)
    if len(text or "") > HISTORY_LENGTH or history_lines(text) != tuple(read):
        raise LineRefused("its history is none")
    return tuple(read)


def _octets_out(value: bytes | None) -> str | dict[str, str] | None:
    """Text where it is text; keys may be digests."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def _octets_in(line: Mapping[str, Any], name: str) -> bytes | None:
    value = line[name]
    if value is None:
        return None
    octets = value.encode() if isinstance(value, str) else base64.b64decode(value["base64"], validate=True)
    if len(octets) > EVENT_ID_OCTETS:
        raise LineRefused(f"{name} is too long")
    return octets

"""Refused events, whole: stored once per delivery, within bounds, in the file beside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inbox.adapters.embedded import clock
from inbox.core.event import Event
from inbox.core.kept import (
    DETAIL_LENGTH,
    REASON_LENGTH,
    cut_text,
    delivery_digest,
    described,
    places,
    stored_headers,
)
from inbox.errors import QuarantineFull

if TYPE_CHECKING:
    import sqlite3

    from inbox.adapters.embedded.file import PlainFile
    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent
    from inbox.tables import TableNames

__all__ = ["Bounds", "QuarantineBook"]

#: The columns of a row that is stored for the first time, in the order of its values.
_COLUMNS: Final = (
    *("consumer_name", "digest", "event_id", "event_type", "source", "record_key", "reason", "detail"),
    *("origin_exchange", "origin_routing_key", "queue", "headers", "body", "body_bytes", "total_bytes"),
    *("attempts", "history", "first_at", "last_at"),
)

_SEE: Final = """\
UPDATE `{quarantine}`
   SET times_seen = times_seen + 1,
       last_at = ?1,
       reason = ?2,
       detail = ?3,
       record_key = COALESCE(?4, record_key),
       attempts = COALESCE(?5, attempts),
       history = COALESCE(?6, history),
       state_at = IIF(state = 'open', state_at, ?1),
       state_note = IIF(state = 'open', state_note, NULL),
       state = 'open'
 WHERE consumer_name = ?7 AND digest = ?8"""

# From an index alone; a hundred thousand rows take some milliseconds.
_TALLY: Final = "SELECT COUNT(*), COALESCE(SUM(total_bytes), 0) FROM `{quarantine}` WHERE consumer_name = ?"

_COST: Final = "SELECT failed + crashed, history FROM `{attempt}` WHERE consumer_name = ? AND attempt_key = ?"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one consumer may have in quarantine: `rows`, and `octets` of bodies and headers."""

    rows: int
    octets: int


class QuarantineBook:
    """The quarantine of one consumer.

    Args:
        file: the file beside.
        names: what the tables are called.
        consumer: octets of the consumer's name.
        bounds: what it may hold.
    """

    def __init__(self, file: PlainFile, names: TableNames, consumer: bytes, bounds: Bounds) -> None:
        self._file = file
        marks = ", ".join("?" * len(_COLUMNS))
        self._store = f"INSERT INTO `{names.quarantine}` ({', '.join(_COLUMNS)}) VALUES ({marks})"  # noqa: S608 - names checked when made
        self._see = _SEE.format(quarantine=names.quarantine)
        self._tally = _TALLY.format(quarantine=names.quarantine)
        self._cost = _COST.format(attempt=names.attempt)
        self._consumer = consumer
        self._bounds = bounds

    async def store(self, delivery: Delivery, event: Event | CloudEvent | None, reason: str, detail: str) -> None:
        """See `inbox.ports.Store.quarantine`."""
        digest = delivery_digest(self._consumer, delivery)
        words = (cut_text(reason, REASON_LENGTH), cut_text(detail, DETAIL_LENGTH))
        headers = stored_headers(delivery)
        record_key = event.record.key if isinstance(event, Event) else None
        size = len(delivery.body)
        row = (
            *(self._consumer, digest, *described(event), record_key, *words),
            *(*places(delivery), headers, delivery.body, size, size + len(headers)),
        )

        def store(raw: sqlite3.Connection) -> None:
            now = clock.stamp()
            # What was never verified has no attempts of its own.
            cost = raw.execute(self._cost, (self._consumer, record_key or b"")).fetchone() or (None, None)
            seen = raw.execute(self._see, (now, *words, record_key, *cost, self._consumer, digest))
            if not seen.rowcount:
                self.require_room(raw, size + len(headers))
                raw.execute(self._store, (*row, cost[0] or 0, cost[1], now, now))

        await self._file.write(store, "storing a refused delivery")

    def require_room(self, raw: sqlite3.Connection, size: int) -> None:
        """In the connection's thread: see that a new row of so many octets has room.

        Raises:
            QuarantineFull: it has none.
        """
        rows, octets = raw.execute(self._tally, (self._consumer,)).fetchone()
        if rows >= self._bounds.rows or octets + size > self._bounds.octets:
            raise QuarantineFull(
                f"the quarantine is full ({self._bounds.rows} rows or {self._bounds.octets} octets): decide what is "
                "open, prune what is decided, or raise DatabaseSettings(quarantine_rows=…, quarantine_bytes=…)"
            )

"""A queue as a table: messages, who has each in hand, and until when. All of it runs in a connection's thread.

A message is due at `due_at`: when it was published, when its wait is over, or when the lease of whoever has it ends.
Handing it out moves that into the future; so a consumer that dies gives back all it had by doing nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from inbox.adapters.embedded import clock
from inbox.core.delivery import Delivery, Origin
from inbox.core.typed_json import dump_headers, load_headers

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable

__all__ = ["Batch", "Counts", "Done", "Message", "Receipt", "count", "insert", "make_table", "serve"]

_TABLE: Final = (
    """\
CREATE TABLE IF NOT EXISTS inbox_message (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  body         BLOB    NOT NULL,
  headers      BLOB    NOT NULL,
  content_type TEXT    NULL,
  properties   BLOB    NOT NULL,
  exchange     TEXT    NOT NULL,
  routing_key  TEXT    NOT NULL,
  due_at       INTEGER NOT NULL,
  lease        BLOB    NULL,
  handed_out   INTEGER NOT NULL DEFAULT 0,
  is_copy      INTEGER NOT NULL DEFAULT 0,
  waited       REAL    NOT NULL DEFAULT 0,
  wait_left    REAL    NOT NULL DEFAULT 0
)""",
    "CREATE INDEX IF NOT EXISTS inbox_message_by_time ON inbox_message (due_at, id)",
)

_INSERT: Final = """\
INSERT INTO inbox_message
  (body, headers, content_type, properties, exchange, routing_key, due_at, is_copy, waited, wait_left)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

#: Only whoever it was handed out to, and only that time, settles a message.
_MINE: Final = "id = ? AND lease = ? AND handed_out = ?"
_DELETE: Final = f"DELETE FROM inbox_message WHERE {_MINE}"  # noqa: S608 - a condition of ours
_RELEASE: Final = f"UPDATE inbox_message SET lease = NULL, due_at = ? WHERE {_MINE}"  # noqa: S608 - as above
_RENEW: Final = f"UPDATE inbox_message SET due_at = ? WHERE {_MINE}"  # noqa: S608 - as above

_DUE: Final = """\
SELECT id, body, headers, content_type, properties, exchange, routing_key, handed_out, is_copy, waited, wait_left
  FROM inbox_message
 WHERE due_at <= ? AND id NOT IN (SELECT value FROM json_each(?))
 ORDER BY due_at, id
 LIMIT ?"""
_LEASE: Final = "UPDATE inbox_message SET due_at = ?, lease = ?, handed_out = handed_out + 1 WHERE id = ?"
_NEXT: Final = "SELECT MIN(due_at) FROM inbox_message WHERE due_at > ?"
_COUNT: Final = """\
SELECT COUNT(*), COALESCE(SUM(lease IS NOT NULL AND due_at > ?1), 0),
       COALESCE(SUM(lease IS NULL AND is_copy AND due_at > ?1), 0),
       COUNT(DISTINCT IIF(due_at > ?1, lease, NULL))
  FROM inbox_message"""


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """What is published.

    Attributes:
        body, headers, content_type, properties: as in `inbox.core.delivery.Delivery`.
        exchange, routing_key: noted as its origin; nothing is routed here.
    """

    body: bytes
    headers: bytes
    content_type: str | None
    properties: bytes
    exchange: str
    routing_key: str

    @classmethod
    def of(cls, delivery: Delivery) -> Message:
        """The message that is delivered as `delivery`."""
        return cls(
            delivery.body,
            dump_headers(delivery.headers),
            delivery.content_type,
            dump_headers(delivery.properties),
            delivery.origin.exchange,
            delivery.origin.routing_key,
        )


@dataclass(frozen=True, slots=True)
class Receipt:
    """What settles one hand-out of a message."""

    id: int
    lease: bytes
    handed_out: int

    @property
    def values(self) -> tuple[int, bytes, int]:
        """As the statements take it."""
        return self.id, self.lease, self.handed_out


@dataclass(slots=True)
class Batch:
    """What one transaction is to do.

    Attributes:
        acknowledged, released: hand-outs that are settled.
        copies: messages to keep, seconds to wait, and seconds that are left after that.
        renewed: hand-outs whose leases are to go on.
        room: most messages to hand out.
        in_hand: ids that this consumer has.
    """

    acknowledged: list[Receipt] = field(default_factory=list)
    released: list[Receipt] = field(default_factory=list)
    copies: list[tuple[Message, float, float]] = field(default_factory=list)
    renewed: list[Receipt] = field(default_factory=list)
    room: int = 0
    in_hand: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it.

    Attributes:
        settled: for each of `acknowledged`, then of `released`, whether the hand-out was the caller's still.
        lost: of `renewed`, those that are somebody else's by now.
        handed_out: new deliveries.
        next_due: seconds until the next message is due; None where none is.
    """

    settled: list[bool]
    lost: list[Receipt]
    handed_out: list[Delivery]
    next_due: float | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages: ready, in hand, and waiting for their next attempt; and how many consumers have some in hand."""

    ready: int
    in_hand: int
    waiting: int
    consumers: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.ready + self.in_hand + self.waiting


def make_table(raw: sqlite3.Connection) -> None:
    """Make what is not there."""
    for statement in _TABLE:
        raw.execute(statement)


def insert(raw: sqlite3.Connection, messages: Iterable[Message]) -> None:
    """Add messages that are due now, in this order."""
    now = clock.microseconds()
    raw.executemany(_INSERT, [(*_values(message), now, 0, 0.0, 0.0) for message in messages])


def serve(raw: sqlite3.Connection, batch: Batch, lease: bytes, seconds: float, queue: str) -> Done:
    """Settle, keep, renew and hand out.

    Args:
        raw: in a transaction that writes.
        batch: what is to be done.
        lease: who asks: random octets, of one link.
        seconds: for which a message is handed out.
        queue: the queue's name, for the deliveries.
    """
    now = clock.microseconds()
    until = now + _micro(seconds)
    for message, wait, left in batch.copies:
        raw.execute(_INSERT, (*_values(message), now + _micro(wait), 1, wait, left))
    settled = [_is_changed(raw, _DELETE, receipt.values) for receipt in batch.acknowledged]
    settled += [_is_changed(raw, _RELEASE, (now, *receipt.values)) for receipt in batch.released]
    lost = [receipt for receipt in batch.renewed if not _is_changed(raw, _RENEW, (until, *receipt.values))]
    handed_out: list[Delivery] = []
    if batch.room > 0:
        # What is in hand comes again only where its lease has ended, and then it is lost first.
        in_hand = json.dumps(sorted(set(batch.in_hand) - {receipt.id for receipt in lost}))
        for row in raw.execute(_DUE, (now, in_hand, batch.room)).fetchall():
            raw.execute(_LEASE, (until, lease, row[0]))
            handed_out.append(_delivery(row, lease, queue))
    (next_due,) = raw.execute(_NEXT, (now,)).fetchone()
    return Done(settled, lost, handed_out, None if next_due is None else (next_due - now) / 1e6)


def count(raw: sqlite3.Connection) -> Counts:
    """How many messages there are."""
    total, in_hand, waiting, consumers = raw.execute(_COUNT, (clock.microseconds(),)).fetchone()
    return Counts(total - in_hand - waiting, in_hand, waiting, consumers)


def _is_changed(raw: sqlite3.Connection, sql: str, values: tuple[object, ...]) -> bool:
    return raw.execute(sql, values).rowcount == 1


def _values(message: Message) -> tuple[object, ...]:
    return (
        *(message.body, message.headers, message.content_type, message.properties),
        *(message.exchange, message.routing_key),
    )


def _delivery(row: Any, lease: bytes, queue: str) -> Delivery:
    id_, body, headers, content_type, properties, exchange, routing_key, handed_out, is_copy, waited, left = row
    return Delivery(
        body=body,
        headers=load_headers(headers),
        content_type=content_type,
        properties=load_headers(properties),
        origin=Origin(exchange, routing_key),
        queue=queue,
        pristine=handed_out == 0 and not is_copy,
        waited=waited,
        wait_left=left,
        receipt=Receipt(id_, lease, handed_out + 1),
    )


def _micro(seconds: float) -> int:
    return int(seconds * 1_000_000)

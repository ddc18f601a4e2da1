"""Refused events, whole: stored once per delivery, within bounds.

One statement stores or counts, so that a crash at any moment leaves a whole row or none. What is stored already is
found by its key, so that a crash before the acknowledgement adds no second row. Bounds are held by a tally
in this process that is counted anew now and then: counting a hundred thousand rows for each insert would make a
flood of refused events quadratic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inbox.adapters.mysql.headers import dump_headers
from inbox.adapters.mysql.side import Answer, Statement
from inbox.core.delivery import digest, is_bookkeeping
from inbox.core.event import Event
from inbox.core.records import EVENT_ID_OCTETS
from inbox.errors import QuarantineFull, StoreError
from inbox.tables import qualified

if TYPE_CHECKING:
    from collections.abc import Callable

    from inbox.adapters.mysql.side import Side
    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent
    from inbox.tables import InboxTables

__all__ = ["Bounds", "QuarantineBook", "QuarantineSql", "delivery_digest", "stored_headers"]

#: Octets and characters that the columns hold (`inbox.tables`); what is cut there is whole in `headers`.
_TYPE_OCTETS: Final = 255
_SOURCE_OCTETS: Final = 1024
_SHORTSTR_OCTETS: Final = 255
_REASON_LENGTH: Final = 64
_DETAIL_LENGTH: Final = 1024
#: Most octets of the statement besides headers and body, which travel as two hexadecimal digits each.
_STATEMENT_OCTETS: Final = 16_384

_STORE: Final = """\
INSERT INTO {quarantine}
  (consumer_name, digest, event_id, event_type, source, reason, detail,
   origin_exchange, origin_routing_key, queue, headers, body, body_bytes, total_bytes, attempts)
VALUES
  (%s, %s, %s, %s, %s, %s, %s,
   %s, %s, %s, %s, %s, %s, %s,
   COALESCE((SELECT failed + crashed FROM {attempt} WHERE consumer_name = %s AND attempt_key = %s), 0))
ON DUPLICATE KEY UPDATE
  {seen}"""

_COUNT: Final = """\
UPDATE {quarantine}
   SET {seen}
 WHERE consumer_name = %s AND digest = %s"""

_SEEN: Final = """\
times_seen = times_seen + 1,
  last_at = UTC_TIMESTAMP(6),
  reason = %s,
  detail = %s,
  state_at = IF(state = 'open', state_at, UTC_TIMESTAMP(6)),
  state = 'open'"""

_TALLY: Final = """\
SELECT COUNT(*), COALESCE(SUM(total_bytes), 0), @@max_allowed_packet
  FROM {quarantine}{hint}
 WHERE consumer_name = %s"""

_NO_SUCH_INDEX: Final = 1176


class QuarantineSql:
    """The statements, for the tables as they are called.

    Attributes:
        store: store a delivery with the attempts its event has cost, or count one that is stored already. One that was
            replayed or discarded is open again: it is refused once more, and nobody has decided about that.
        count: only the second half of that, for when there is no room.
        tally: rows and octets of a consumer, and the longest statement that the server takes. Read from an index alone:
            left to choose, both servers read the rows themselves, twenty to forty times as long at 16,000 of them.
        tally_unhinted: the same where that index is missing or has another name.
    """

    def __init__(self, tables: InboxTables) -> None:
        quarantine = qualified(tables.names.quarantine, tables.database)
        attempt = qualified(tables.names.attempt, tables.database)
        self.store = _STORE.format(quarantine=quarantine, attempt=attempt, seen=_SEEN)
        self.count = _COUNT.format(quarantine=quarantine, seen=_SEEN)
        names = [index.name for index in tables.quarantine.indexes if "total_bytes" in index.columns]
        self.tally = _TALLY.format(quarantine=quarantine, hint=f" FORCE INDEX (`{names[0]}`)")
        self.tally_unhinted = _TALLY.format(quarantine=quarantine, hint="")


def stored_headers(delivery: Delivery) -> bytes:
    """All of a delivery but its body, as `inbox.adapters.mysql.headers` writes it."""
    return dump_headers(
        {
            "headers": dict(delivery.headers),
            "content_type": delivery.content_type,
            "properties": dict(delivery.properties),
            "origin": [delivery.origin.exchange, delivery.origin.routing_key],
            "queue": delivery.queue,
        }
    )


def delivery_digest(consumer: bytes, delivery: Delivery) -> bytes:
    """What makes a delivery the same delivery: SHA-256 of its consumer, body, origin, content type and headers.

    The broker's own counters and the headers of our copies are left out, for they differ between hand-outs; so are the
    message properties, which a broker rewrites when it dead-letters (it removes the expiration: RabbitMQ, "Dead Letter
    Exchanges"). Headers count by name, type and value, in any order.
    """
    kept = {name: value for name, value in sorted(delivery.headers.items()) if not is_bookkeeping(name)}
    return digest(
        {
            "consumer": consumer,
            "body": delivery.body,
            "exchange": _octets(delivery.origin.exchange),
            "routing_key": _octets(delivery.origin.routing_key),
            "content_type": _octets(delivery.content_type or ""),
            "headers": dump_headers(kept),
        }
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one consumer may have in quarantine: `rows`, and `octets` of bodies and headers."""

    rows: int
    octets: int


class QuarantineBook:
    """The quarantine of one consumer.

    Args:
        side: where the statements go.
        sql: the statements.
        consumer: octets of the consumer's name.
        bounds: what it may hold. Several processes may go over it together, each by what it stores between two
            counts: a hundredth of the bound, or ten seconds' worth.
        clock: seconds that never go back.
    """

    def __init__(
        self, side: Side, sql: QuarantineSql, consumer: bytes, bounds: Bounds, clock: Callable[[], float]
    ) -> None:
        self._side = side
        self._sql = sql
        self._consumer = consumer
        self._bounds = bounds
        self._tally = _Tally(bounds, clock)
        self._max_packet = 0

    async def store(self, delivery: Delivery, event: Event | CloudEvent | None, reason: str, detail: str) -> None:
        """Store `delivery`, or count it where it is stored already.

        Raises:
            QuarantineFull: it is not stored and there is no room.
            Contended, StoreUnavailable: nothing was stored.
        """
        mark = delivery_digest(self._consumer, delivery)
        words = (_text(reason, _REASON_LENGTH), _text(detail, _DETAIL_LENGTH))
        headers = stored_headers(delivery)
        size = len(delivery.body) + len(headers)
        full = await self._why_full(size)
        if full is None:
            row = self._row(delivery, event, headers, (mark, *words))
            answer = await self._side.run(Statement(self._sql.store, (*row, *words)))
            # The server counts 1 for a new row and 2 for one that it updated (MySQL manual, "INSERT ... ON DUPLICATE
            # KEY UPDATE"); times_seen always changes, so CLIENT_FOUND_ROWS makes no difference here.
            if answer.affected == 1:
                self._tally.add(size)
            return
        answer = await self._side.run(Statement(self._sql.count, (*words, self._consumer, mark)))
        if not answer.affected:
            raise QuarantineFull(full)

    def _row(
        self, delivery: Delivery, event: Event | CloudEvent | None, headers: bytes, decided: tuple[bytes, str, str]
    ) -> tuple[bytes | str | int | None, ...]:
        mark, *words = decided
        size = len(delivery.body)
        where = (delivery.origin.exchange, delivery.origin.routing_key, delivery.queue)
        return (
            *(self._consumer, mark, *_described(event), *words),
            *(_octets(text)[:_SHORTSTR_OCTETS] for text in where),
            *(headers, delivery.body, size, size + len(headers)),
            *(self._consumer, _key(event)),
        )

    async def _why_full(self, size: int) -> str | None:
        """Why a new row has no room; None where it has."""
        if self._tally.is_due(size):
            rows, octets, self._max_packet = map(int, (await self._counted()).rows[0])
            self._tally.reset(rows, octets)
        if not self._tally.has_room(size):
            return (
                f"the quarantine is full ({self._bounds.rows} rows or {self._bounds.octets} octets): clear its table "
                "of what is decided, or raise DatabaseSettings(quarantine_rows=…, quarantine_bytes=…)"
            )
        if 2 * size + _STATEMENT_OCTETS > self._max_packet:
            return "a delivery to quarantine is larger than the server's max_allowed_packet: raise that"
        return None

    async def _counted(self) -> Answer:
        try:
            return await self._side.run(Statement(self._sql.tally, (self._consumer,)))
        except StoreError as error:
            if error.code != _NO_SUCH_INDEX:
                raise
            return await self._side.run(Statement(self._sql.tally_unhinted, (self._consumer,)))


class _Tally:
    """What the quarantine holds, as far as this process knows."""

    _MAX_AGE = 10.0
    _SHARE = 100

    def __init__(self, bounds: Bounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._clock = clock
        self._rows = self._octets = 0
        self._new_rows = self._new_octets = 0
        self._counted_at: float | None = None

    def is_due(self, size: int) -> bool:
        """Whether to count anew before `size` octets more are stored."""
        return (
            self._counted_at is None
            or self._clock() - self._counted_at > self._MAX_AGE
            or self._new_rows >= self._bounds.rows / self._SHARE
            or self._new_octets >= self._bounds.octets / self._SHARE
            or not self.has_room(size)
        )

    def reset(self, rows: int, octets: int) -> None:
        self._rows, self._octets = rows, octets
        self._new_rows = self._new_octets = 0
        self._counted_at = self._clock()

    def add(self, size: int) -> None:
        self._new_rows += 1
        self._new_octets += size

    def has_room(self, size: int) -> bool:
        rows, octets = self._rows + self._new_rows, self._octets + self._new_octets
        return rows < self._bounds.rows and octets + size <= self._bounds.octets


def _described(event: Event | CloudEvent | None) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Id, type and source for listing; an id that does not fit is left out, for a cut one would be another's."""
    if event is None:
        return None, None, None
    id_ = _octets(event.id)
    return (
        id_ if len(id_) <= EVENT_ID_OCTETS else None,
        _octets(event.type)[:_TYPE_OCTETS],
        _octets(event.source)[:_SOURCE_OCTETS],
    )


def _key(event: Event | CloudEvent | None) -> bytes:
    """The key its attempts are counted under; what was never verified has none."""
    return event.record.key if isinstance(event, Event) else b""


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(text: str, length: int) -> str:
    return text.encode("utf-8", "replace").decode()[:length]

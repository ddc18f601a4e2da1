"""Refused events, whole: stored once per delivery, within bounds.

One statement stores or counts, so that a crash at any moment leaves a whole row or none. What is stored already is
found by its key, so that a crash before the acknowledgement adds no second row. Bounds are held by a tally
in this process that is counted anew now and then: counting a hundred thousand rows for each insert would make a
flood of refused events quadratic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inbox.adapters.mysql.side import Answer, Statement
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
from inbox.errors import QuarantineFull, StoreError
from inbox.tables import qualified

if TYPE_CHECKING:
    from collections.abc import Callable

    from inbox.adapters.mysql.side import Side
    from inbox.core.delivery import Delivery
    from inbox.core.event import CloudEvent
    from inbox.tables import InboxTables

__all__ = ["Bounds", "QuarantineBook", "QuarantineSql"]

#: Most octets of the statement besides headers and body, which travel as two hexadecimal digits each.
_STATEMENT_OCTETS: Final = 16_384

_STORE: Final = """\
INSERT INTO {quarantine}
  (consumer_name, digest, event_id, event_type, source, record_key, reason, detail,
   origin_exchange, origin_routing_key, queue, headers, body, body_bytes, total_bytes,
   attempts,
   history)
VALUES
  (%s, %s, %s, %s, %s, %s, %s, %s,
   %s, %s, %s, %s, %s, %s, %s,
   COALESCE((SELECT failed + crashed FROM {attempt} WHERE consumer_name = %s AND attempt_key = %s), 0),
   (SELECT history FROM {attempt} WHERE consumer_name = %s AND attempt_key = %s))
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
  record_key = COALESCE(%s, record_key),
  attempts = COALESCE((SELECT failed + crashed FROM {attempt} WHERE consumer_name = %s AND attempt_key = %s), attempts),
  history = COALESCE((SELECT history FROM {attempt} WHERE consumer_name = %s AND attempt_key = %s), history),
  state_at = IF(state = 'open', state_at, UTC_TIMESTAMP(6)),
  state_note = IF(state = 'open', state_note, NULL),
  state = 'open'"""

_TALLY: Final = """\
SELECT COUNT(*), COALESCE(SUM(total_bytes), 0), @@max_allowed_packet
  FROM {quarantine}{hint}
 WHERE consumer_name = %s"""

_NO_SUCH_INDEX: Final = 1176


class QuarantineSql:
    """The statements, for the tables as they are called.

    Attributes:
        store: store a delivery with the attempts its event has cost, or count one that is stored already: then what
            the newest run has cost counts. One that was replayed or discarded is open again: it is refused once more,
            and nobody has decided about that.
        count: only the second half of that, for when there is no room.
        tally: rows and octets of a consumer, and the longest statement that the server takes. Read from an index alone:
            left to choose, both servers read the rows themselves, twenty to forty times as long at 16,000 of them.
        tally_unhinted: the same where that index is missing or has another name.
    """

    def __init__(self, tables: InboxTables) -> None:
        quarantine = qualified(tables.names.quarantine, tables.database)
        attempt = qualified(tables.names.attempt, tables.database)
        seen = _SEEN.format(attempt=attempt)
        self.store = _STORE.format(quarantine=quarantine, attempt=attempt, seen=seen)
        self.count = _COUNT.format(quarantine=quarantine, seen=seen)
        names = [index.name for index in tables.quarantine.indexes if "total_bytes" in index.columns]
        self.tally = _TALLY.format(quarantine=quarantine, hint=f" FORCE INDEX (`{names[0]}`)")
        self.tally_unhinted = _TALLY.format(quarantine=quarantine, hint="")


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
        words = (cut_text(reason, REASON_LENGTH), cut_text(detail, DETAIL_LENGTH))
        headers = stored_headers(delivery)
        size = len(delivery.body) + len(headers)
        record_key = event.record.key if isinstance(event, Event) else None
        # What was never verified has no attempts of its own.
        attempt = (self._consumer, record_key or b"") * 2
        seen = (*words, record_key, *attempt)
        full = await self.why_full(size)
        if full is None:
            row = self._row(delivery, (*described(event), record_key, *words), (mark, headers))
            answer = await self._side.run(Statement(self._sql.store, (*row, *attempt, *seen)))
            # The server counts 1 for a new row and 2 for one that it updated (MySQL manual, "INSERT ... ON DUPLICATE
            # KEY UPDATE"); times_seen always changes, so CLIENT_FOUND_ROWS makes no difference here.
            if answer.affected == 1:
                self.added(size)
            return
        answer = await self._side.run(Statement(self._sql.count, (*seen, self._consumer, mark)))
        if not answer.affected:
            raise QuarantineFull(full)

    def _row(
        self, delivery: Delivery, known: tuple[bytes | str | None, ...], made: tuple[bytes, bytes]
    ) -> tuple[bytes | str | int | None, ...]:
        mark, headers = made
        size = len(delivery.body)
        return (
            *(self._consumer, mark, *known),
            *places(delivery),
            *(headers, delivery.body, size, size + len(headers)),
        )

    def added(self, size: int) -> None:
        """Count a row of so many octets that was stored."""
        self._tally.add(size)

    async def why_full(self, size: int) -> str | None:
        """Why a new row of so many octets has no room; None where it has.

        Raises:
            Contended, StoreUnavailable: what is stored could not be counted.
        """
        if self._tally.is_due(size):
            rows, octets, self._max_packet = map(int, (await self._counted()).rows[0])
            self._tally.reset(rows, octets)
        if not self._tally.has_room(size):
            return (
                f"the quarantine is full ({self._bounds.rows} rows or {self._bounds.octets} octets): decide what is "
                "open with `inbox quarantine`, delete what is decided with `inbox prune`, or raise "
                "DatabaseSettings(quarantine_rows=…, quarantine_bytes=…)"
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

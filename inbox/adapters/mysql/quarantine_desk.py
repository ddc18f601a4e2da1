"""The quarantine as a person works on it: counted, listed, read whole, decided, put back from a file.

Every statement is small and a transaction of its own. A list is read from the index that has its order, page by page,
and never touches headers or bodies; a decision goes by primary key, and only where an entry is still what was read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from inbox.adapters.mysql.side import Answer, Statement
from inbox.core.delivery import Origin
from inbox.core.kept import SOURCE_OCTETS, delivery_digest, places, stored_delivery, stored_headers
from inbox.core.quarantine import (
    EVENT_TYPE_OCTETS,
    QuarantineCount,
    QuarantinedDelivery,
    QuarantineEntry,
    QuarantineState,
    Selection,
    cut_octets,
    history_lines,
    history_text,
)
from inbox.errors import QuarantineFull, StoreError
from inbox.tables import qualified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from inbox.adapters.mysql.quarantine import QuarantineBook
    from inbox.adapters.mysql.side import Side
    from inbox.core.delivery import Delivery
    from inbox.core.quarantine import QuarantineCursor
    from inbox.tables import InboxTables

__all__ = ["MySQLDesk", "QuarantineDeskSql"]

T = TypeVar("T")
Parameters = tuple[bytes | str | int | None, ...]

#: Entries that one statement decides or reads at most: few enough that nobody waits for its locks.
BATCH: Final = 200

#: Characters that the column holds (`inbox.tables`).
_NOTE_LENGTH: Final = 512
_NO_SUCH_INDEX: Final = 1176

_COLUMNS: Final = """\
digest, state, reason, detail, event_id, event_type, source, record_key,
       origin_exchange, origin_routing_key, queue, attempts, history, times_seen,
       first_at, last_at, state_at, state_note, body_bytes, total_bytes"""

_LIST: Final = """\
SELECT {columns}
  FROM {quarantine}{hint}
 WHERE consumer_name = %s AND state = %s{conditions}
 ORDER BY first_at{direction}, total_bytes{direction}, digest{direction}
 LIMIT %s"""

_COUNT: Final = """\
SELECT state, reason, COUNT(*), SUM(total_bytes), MIN(first_at)
  FROM {quarantine}
 WHERE consumer_name = %s AND state IN ({states}){conditions}
 GROUP BY state, reason
 ORDER BY state, reason"""

_READ: Final = """\
SELECT {columns}, headers, body
  FROM {quarantine}
 WHERE consumer_name = %s AND digest IN ({digests})"""

_DECIDE: Final = """\
UPDATE {quarantine} FORCE INDEX (PRIMARY)
   SET state = %s,
       state_at = UTC_TIMESTAMP(6),
       state_note = %s
 WHERE consumer_name = %s AND digest IN ({digests})
   AND state = 'open' AND (digest, times_seen) IN ({seen})"""

_RESTORE: Final = """\
INSERT INTO {quarantine}
  (consumer_name, digest, event_id, event_type, source, record_key, reason, detail,
   origin_exchange, origin_routing_key, queue, headers, body, body_bytes, total_bytes,
   attempts, history, times_seen, first_at, last_at, state, state_at, state_note)
VALUES
  (%s, %s, %s, %s, %s, %s, %s, %s,
   %s, %s, %s, %s, %s, %s, %s,
   %s, %s, %s, %s, %s, %s, %s, %s)
ON DUPLICATE KEY UPDATE
  times_seen = times_seen + (LAST_INSERT_ID(1) = 0)"""

_NOW: Final = "SELECT UTC_TIMESTAMP(6)"


class QuarantineDeskSql:
    """The statements, for the tables as they are called.

    Attributes:
        restore: put a row back, or change nothing where it is. The answer's insert id tells: 1 where it was there. The
            row counts do not, for SQLAlchemy asks for found rows.
    """

    def __init__(self, tables: InboxTables) -> None:
        self._quarantine = qualified(tables.names.quarantine, tables.database)
        names = [index.name for index in tables.quarantine.indexes if "total_bytes" in index.columns]
        self._hint = f" FORCE INDEX (`{names[0]}`)"
        self.restore = _RESTORE.format(quarantine=self._quarantine)

    def page(
        self, selection: Selection, after: QuarantineCursor | None, *, newest_first: bool, hinted: bool = True
    ) -> tuple[str, Parameters]:
        """One page of one state, from the index that has its order.

        Where ids or digests are given the server chooses: they have better indexes, and few entries to sort.

        Args:
            selection: which; its states are left to the caller.
            after: where the page begins.
            newest_first: the order.
            hinted: whether to name the index; it may have another name, or be missing.

        Returns:
            The text, and the parameters between those for consumer and state, and that for the limit.
        """
        conditions, parameters = _conditions(selection)
        if after is not None:
            beyond = "<" if newest_first else ">"
            # The first part alone is what an index range can be made of; rows of one instant are few.
            conditions += (
                f"\n   AND first_at {beyond}= CAST(%s AS DATETIME(6))"
                f" AND (first_at {beyond} CAST(%s AS DATETIME(6)) OR total_bytes {beyond} %s"
                f" OR (total_bytes = %s AND digest {beyond} %s))"
            )
            time, size = _time(after.first_at), after.total_bytes
            parameters += (time, time, size, size, after.digest)
        text = _LIST.format(
            columns=_COLUMNS,
            quarantine=self._quarantine,
            hint="" if selection.ids or selection.digests or not hinted else self._hint,
            conditions=conditions,
            direction=" DESC" if newest_first else "",
        )
        return text, parameters

    def count(self, selection: Selection) -> tuple[str, Parameters]:
        """How many of each state and reason. Its parameters follow that for the consumer."""
        conditions, parameters = _conditions(selection)
        states = tuple(str(state) for state in selection.states)
        text = _COUNT.format(quarantine=self._quarantine, states=_marks(states), conditions=conditions)
        return text, (*states, *parameters)

    def read(self, number: int) -> str:
        """So many entries whole, by their digests."""
        return _READ.format(columns=_COLUMNS, quarantine=self._quarantine, digests=_marks(range(number)))

    def decide(self, number: int) -> str:
        """Give so many entries a state: those that are open and have not been refused again since they were read.

        Parameters: state, note, consumer, the digests, and each digest with the times it was seen.
        """
        seen = ", ".join(["(%s, %s)"] * number)
        return _DECIDE.format(quarantine=self._quarantine, digests=_marks(range(number)), seen=seen)


class MySQLDesk:
    """As `inbox.ports.QuarantineDesk`, for one consumer.

    Args:
        side: where the statements go; not the units', for reading bodies would keep their attempts waiting.
        sql: the statements.
        consumer: octets of the consumer's name.
        book: knows how much room there is.
    """

    def __init__(self, side: Side, sql: QuarantineDeskSql, consumer: bytes, book: QuarantineBook) -> None:
        self._side = side
        self._sql = sql
        self._consumer = consumer
        self._book = book

    async def now(self) -> datetime:
        """See `inbox.ports.QuarantineDesk.now`."""
        answer = await self._side.run(Statement(_NOW))
        return _instant(answer.rows[0][0])

    async def count(self, selection: Selection) -> Sequence[QuarantineCount]:
        """See `inbox.ports.QuarantineDesk.count`."""
        sql, parameters = self._sql.count(selection)
        answer = await self._side.run(Statement(sql, (self._consumer, *parameters)))
        return [
            QuarantineCount(QuarantineState(_text(row[0])), _text(row[1]), int(row[2]), int(row[3]), _instant(row[4]))
            for row in answer.rows
        ]

    async def list(
        self,
        selection: Selection,
        *,
        after: QuarantineCursor | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> Sequence[QuarantineEntry]:
        """See `inbox.ports.QuarantineDesk.list`."""
        found: list[QuarantineEntry] = []
        # One after the other: over several states together the index has no order, and each page would sort them all.
        for state in dict.fromkeys(map(str, selection.states)):
            rows = (await self._page(selection, state, after, limit, newest_first=newest_first)).rows
            found += map(_entry, rows)
        found.sort(key=lambda entry: (entry.first_at, entry.total_bytes, entry.digest), reverse=newest_first)
        return found[:limit]

    async def _page(
        self, selection: Selection, state: str, after: QuarantineCursor | None, limit: int, *, newest_first: bool
    ) -> Answer:
        sql, parameters = self._sql.page(selection, after, newest_first=newest_first)
        values = (self._consumer, state, *parameters, limit)
        try:
            return await self._side.run(Statement(sql, values))
        except StoreError as error:
            if error.code != _NO_SUCH_INDEX:
                raise
            unhinted, _ = self._sql.page(selection, after, newest_first=newest_first, hinted=False)
            return await self._side.run(Statement(unhinted, values))

    async def get(self, digests: Sequence[bytes]) -> Sequence[QuarantinedDelivery]:
        """See `inbox.ports.QuarantineDesk.get`."""
        found: dict[bytes, QuarantinedDelivery] = {}
        for batch in _batches(dict.fromkeys(digests)):
            answer = await self._side.run(Statement(self._sql.read(len(batch)), (self._consumer, *batch)))
            for row in answer.rows:
                entry = _entry(row)
                delivery = _delivery(*row[-2:])
                if delivery is not None:
                    found[entry.digest] = QuarantinedDelivery(entry, delivery)
        return [found[digest] for digest in digests if digest in found]

    async def mark_replayed(self, entries: Sequence[QuarantineEntry]) -> int:
        """See `inbox.ports.QuarantineDesk.mark_replayed`."""
        return await self._decide(entries, QuarantineState.REPLAYED, None)

    async def discard(self, selection: Selection, note: str, *, progress: Callable[[int], None] | None = None) -> int:
        """See `inbox.ports.QuarantineDesk.discard`."""
        discarded = 0
        after: QuarantineCursor | None = None
        while page := await self.list(selection, after=after, limit=BATCH):
            done = await self._decide(page, QuarantineState.DISCARDED, note[:_NOTE_LENGTH])
            discarded += done
            after = page[-1].cursor
            if progress is not None:
                progress(done)
        return discarded

    async def _decide(self, entries: Iterable[QuarantineEntry], state: QuarantineState, note: str | None) -> int:
        decided = 0
        # In the order of the key, so that two who decide at once wait for each other and do not dead-lock.
        for batch in _batches(sorted({entry.digest: entry for entry in entries}.values(), key=lambda e: e.digest)):
            digests = tuple(entry.digest for entry in batch)
            seen = (value for entry in batch for value in (entry.digest, entry.times_seen))
            values = (state.value, note, self._consumer, *digests, *seen)
            decided += (await self._side.run(Statement(self._sql.decide(len(batch)), values))).affected
        return decided

    async def restore(self, entries: Sequence[QuarantinedDelivery], *, dry_run: bool = False) -> int:
        """See `inbox.ports.QuarantineDesk.restore`."""
        restored = 0
        for each in entries:
            if dry_run:
                restored += not await self._is_there(each)
                continue
            headers = stored_headers(each.delivery)
            size = len(headers) + len(each.delivery.body)
            full = await self._book.why_full(size)
            if full is not None:
                if await self._is_there(each):
                    continue
                raise QuarantineFull(full)
            answer = await self._side.run(Statement(self._sql.restore, self._row(each, headers, size)))
            if answer.insert_id == 0:
                self._book.added(size)
                restored += 1
        return restored

    async def _is_there(self, each: QuarantinedDelivery) -> bool:
        digest = delivery_digest(self._consumer, each.delivery).hex()
        return bool(await self.list(Selection((*QuarantineState,), digests=(digest,)), limit=1))

    def _row(self, each: QuarantinedDelivery, headers: bytes, size: int) -> Parameters:
        entry, delivery = each.entry, each.delivery
        return (
            self._consumer,
            delivery_digest(self._consumer, delivery),
            entry.event_id,
            None if entry.event_type is None else cut_octets(entry.event_type, EVENT_TYPE_OCTETS),
            None if entry.source is None else cut_octets(entry.source, SOURCE_OCTETS),
            *(entry.record_key, entry.reason, entry.detail),
            *places(delivery),
            *(headers, delivery.body, len(delivery.body), size),
            *(entry.attempts, history_text(entry.history), entry.times_seen),
            *(_time(entry.first_at), _time(entry.last_at), entry.state.value),
            None if entry.state_at is None else _time(entry.state_at),
            entry.state_note,
        )


# ------------------------------------------------------------------ to SQL
def _conditions(selection: Selection) -> tuple[str, Parameters]:
    """What a selection asks for beside consumer and state."""
    parts: list[str] = []
    parameters: list[bytes | str] = []
    for column, wanted in (
        ("reason", selection.reasons),
        ("event_type", selection.type_octets),
        ("event_id", selection.id_octets),
    ):
        if wanted:
            parts.append(f"{column} IN ({_marks(wanted)})")
            parameters += wanted
    if selection.digests:
        parts.append(f"({' OR '.join(['digest BETWEEN %s AND %s'] * len(selection.digests))})")
        parameters += [edge for ends in selection.digest_ranges for edge in ends]
    for operator, time in ((">=", selection.since), ("<", selection.until)):
        if time is not None:
            parts.append(f"first_at {operator} CAST(%s AS DATETIME(6))")
            parameters.append(_time(time))
    return "".join(f"\n   AND {part}" for part in parts), tuple(parameters)


def _marks(values: Sequence[object]) -> str:
    return ", ".join(["%s"] * len(values))


def _time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _batches(values: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(values)
    while batch := [*islice(remaining, BATCH)]:
        yield batch


# ------------------------------------------------------------------ from SQL
def _entry(row: Sequence[Any]) -> QuarantineEntry:
    (
        digest,
        state,
        reason,
        detail,
        event_id,
        event_type,
        source,
        record_key,
        exchange,
        routing_key,
        queue,
        attempts,
        history,
        times_seen,
        *rest,
    ) = row
    first_at, last_at, state_at, state_note, body_bytes, total_bytes = rest[:6]
    return QuarantineEntry(
        digest=digest,
        state=QuarantineState(_text(state)),
        reason=_text(reason),
        detail=_text(detail or ""),
        event_id=event_id,
        event_type=None if event_type is None else _text(event_type),
        source=None if source is None else _text(source),
        record_key=record_key,
        origin=Origin(_text(exchange or ""), _text(routing_key or "")),
        queue=_text(queue or ""),
        attempts=int(attempts),
        history=history_lines(None if history is None else _text(history)),
        times_seen=int(times_seen),
        first_at=_instant(first_at),
        last_at=_instant(last_at),
        state_at=None if state_at is None else _instant(state_at),
        state_note=None if state_note is None else _text(state_note),
        body_bytes=int(body_bytes),
        total_bytes=int(total_bytes),
    )


def _delivery(headers: bytes, body: bytes) -> Delivery | None:
    """None where the headers are of another version's writing, or encrypted."""
    try:
        return stored_delivery(headers, body)
    except ValueError:
        return None


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _instant(value: datetime) -> datetime:
    """The database's times are UTC, and come without a zone."""
    return value.replace(tzinfo=UTC)

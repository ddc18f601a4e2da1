"""The quarantine as a person works on it: counted, listed, read whole, decided, put back from a file."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from inbox.adapters.embedded import clock
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

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from inbox.adapters.embedded.file import PlainFile
    from inbox.adapters.embedded.quarantine import QuarantineBook
    from inbox.core.delivery import Delivery
    from inbox.core.quarantine import QuarantineCursor
    from inbox.tables import TableNames

__all__ = ["SQLiteDesk"]

T = TypeVar("T")

#: Entries that one transaction decides or reads at most: few enough that nobody waits for it.
_BATCH: Final = 200

_COLUMNS: Final = (
    *("digest", "state", "reason", "detail", "event_id", "event_type", "source", "record_key"),
    *("origin_exchange", "origin_routing_key", "queue", "attempts", "history", "times_seen"),
    *("first_at", "last_at", "state_at", "state_note", "body_bytes", "total_bytes"),
)
_RESTORED: Final = ("consumer_name", *_COLUMNS, "headers", "body")

_LIST: Final = """\
SELECT {columns}
  FROM `{table}`
 WHERE consumer_name = ? AND state = ?{conditions}
 ORDER BY first_at{direction}, total_bytes{direction}, digest{direction}
 LIMIT ?"""

_COUNT: Final = """\
SELECT state, reason, COUNT(*), SUM(total_bytes), MIN(first_at)
  FROM `{table}`
 WHERE consumer_name = ? AND state IN ({states}){conditions}
 GROUP BY state, reason
 ORDER BY state, reason"""

_READ: Final = "SELECT {columns}, headers, body FROM `{table}` WHERE consumer_name = ? AND digest = ?"

_DECIDE: Final = """\
UPDATE `{table}`
   SET state = ?, state_at = ?, state_note = ?
 WHERE consumer_name = ? AND digest = ? AND state = 'open' AND times_seen = ?"""

_RESTORE: Final = """\
INSERT INTO `{table}` ({columns})
VALUES ({marks})
ON CONFLICT (consumer_name, digest) DO NOTHING"""

_IS_THERE: Final = "SELECT 1 FROM `{table}` WHERE consumer_name = ? AND digest = ?"


class SQLiteDesk:
    """As `inbox.ports.QuarantineDesk`, for one consumer.

    Args:
        file: the file beside.
        names: what the tables are called.
        consumer: octets of the consumer's name.
        book: knows how much room there is.
    """

    def __init__(self, file: PlainFile, names: TableNames, consumer: bytes, book: QuarantineBook) -> None:
        self._file = file
        self._table = names.quarantine
        self._consumer = consumer
        self._book = book

    async def now(self) -> datetime:
        """See `inbox.ports.QuarantineDesk.now`."""
        return clock.now()

    async def count(self, selection: Selection) -> Sequence[QuarantineCount]:
        """See `inbox.ports.QuarantineDesk.count`."""
        conditions, parameters = _conditions(selection)
        states = tuple(str(state) for state in selection.states)
        rows = await self._rows(
            self._sql(_COUNT, states=_marks(states), conditions=conditions), (self._consumer, *states, *parameters)
        )
        return [
            QuarantineCount(QuarantineState(state), reason, entries, octets, clock.instant(oldest))
            for state, reason, entries, octets, oldest in rows
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
        conditions, parameters = _conditions(selection)
        if after is not None:
            conditions += f"\n   AND (first_at, total_bytes, digest) {'<' if newest_first else '>'} (?, ?, ?)"
            parameters = (*parameters, clock.stamp(after.first_at), after.total_bytes, after.digest)
        sql = self._sql(_LIST, conditions=conditions, direction=" DESC" if newest_first else "")
        found: list[QuarantineEntry] = []
        # One after the other: over several states together the index has no order, and each page would sort them all.
        for state in dict.fromkeys(map(str, selection.states)):
            found += map(_entry, await self._rows(sql, (self._consumer, state, *parameters, limit)))
        found.sort(key=lambda entry: (entry.first_at, entry.total_bytes, entry.digest), reverse=newest_first)
        return found[:limit]

    async def get(self, digests: Sequence[bytes]) -> Sequence[QuarantinedDelivery]:
        """See `inbox.ports.QuarantineDesk.get`."""
        found: dict[bytes, QuarantinedDelivery] = {}
        sql = self._sql(_READ)
        for batch in _batches(dict.fromkeys(digests)):

            def read(raw: sqlite3.Connection, batch: Sequence[bytes] = batch) -> Sequence[Any]:
                return [row for each in batch for row in raw.execute(sql, (self._consumer, each))]

            for row in await self._file.read(read, "reading the quarantine"):
                entry, delivery = _entry(row), _delivery(*row[-2:])
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
        while page := await self.list(selection, after=after, limit=_BATCH):
            done = await self._decide(page, QuarantineState.DISCARDED, note)
            discarded += done
            after = page[-1].cursor
            if progress is not None:
                progress(done)
        return discarded

    async def _decide(self, entries: Iterable[QuarantineEntry], state: QuarantineState, note: str | None) -> int:
        decided = 0
        sql = self._sql(_DECIDE)
        for batch in _batches({entry.digest: entry for entry in entries}.values()):

            def decide(raw: sqlite3.Connection, batch: Sequence[QuarantineEntry] = batch) -> int:
                now = clock.stamp()
                rows = [(state.value, now, note, self._consumer, each.digest, each.times_seen) for each in batch]
                return raw.executemany(sql, rows).rowcount

            decided += await self._file.write(decide, "deciding about the quarantine")
        return decided

    async def restore(self, entries: Sequence[QuarantinedDelivery], *, dry_run: bool = False) -> int:
        """See `inbox.ports.QuarantineDesk.restore`."""
        restored = 0
        is_there = self._sql(_IS_THERE)
        insert = self._sql(_RESTORE, columns=", ".join(_RESTORED), marks=_marks(_RESTORED))
        for each in entries:
            headers = stored_headers(each.delivery)
            row = self._row(each, headers)
            size = len(headers) + len(each.delivery.body)

            def put_back(raw: sqlite3.Connection, row: tuple[Any, ...] = row, size: int = size) -> int:
                if raw.execute(is_there, row[:2]).fetchone() is not None:
                    return 0
                self._book.require_room(raw, size)
                return 1 if dry_run else raw.execute(insert, row).rowcount

            if dry_run:
                restored += await self._file.read(put_back, "looking into the quarantine")
            else:
                restored += await self._file.write(put_back, "putting back into the quarantine")
        return restored

    def _row(self, each: QuarantinedDelivery, headers: bytes) -> tuple[Any, ...]:
        entry, delivery = each.entry, each.delivery
        size = len(delivery.body)
        return (
            *(self._consumer, delivery_digest(self._consumer, delivery), entry.state.value, entry.reason, entry.detail),
            entry.event_id,
            None if entry.event_type is None else cut_octets(entry.event_type, EVENT_TYPE_OCTETS),
            None if entry.source is None else cut_octets(entry.source, SOURCE_OCTETS),
            entry.record_key,
            *places(delivery),
            *(entry.attempts, history_text(entry.history), entry.times_seen),
            *(clock.stamp(entry.first_at), clock.stamp(entry.last_at)),
            None if entry.state_at is None else clock.stamp(entry.state_at),
            entry.state_note,
            *(size, size + len(headers), headers, delivery.body),
        )

    def _sql(self, text: str, **parts: str) -> str:
        return text.format(**{"table": self._table, "columns": ", ".join(_COLUMNS), **parts})

    async def _rows(self, sql: str, parameters: tuple[Any, ...]) -> Sequence[Any]:
        return await self._file.read(lambda raw: raw.execute(sql, parameters).fetchall(), "reading the quarantine")


# ------------------------------------------------------------------ to SQL
def _conditions(selection: Selection) -> tuple[str, tuple[Any, ...]]:
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
        parts.append(f"({' OR '.join(['digest BETWEEN ? AND ?'] * len(selection.digests))})")
        parameters += [edge for ends in selection.digest_ranges for edge in ends]
    for operator, time in ((">=", selection.since), ("<", selection.until)):
        if time is not None:
            parts.append(f"first_at {operator} ?")
            parameters.append(clock.stamp(time))
    return "".join(f"\n   AND {part}" for part in parts), tuple(parameters)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _batches(values: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(values)
    while batch := [*islice(remaining, _BATCH)]:
        yield batch


# ------------------------------------------------------------------ from SQL
def _entry(row: Sequence[Any]) -> QuarantineEntry:
    found = dict(zip(_COLUMNS, row, strict=False))
    return QuarantineEntry(
        digest=found["digest"],
        state=QuarantineState(found["state"]),
        reason=found["reason"],
        detail=found["detail"] or "",
        event_id=found["event_id"],
        event_type=_text(found["event_type"]),
        source=_text(found["source"]),
        record_key=found["record_key"],
        origin=Origin(_text(found["origin_exchange"]) or "", _text(found["origin_routing_key"]) or ""),
        queue=_text(found["queue"]) or "",
        attempts=found["attempts"],
        history=history_lines(found["history"]),
        times_seen=found["times_seen"],
        first_at=clock.instant(found["first_at"]),
        last_at=clock.instant(found["last_at"]),
        state_at=None if found["state_at"] is None else clock.instant(found["state_at"]),
        state_note=found["state_note"],
        body_bytes=found["body_bytes"],
        total_bytes=found["total_bytes"],
    )


def _delivery(headers: bytes, body: bytes) -> Delivery | None:
    """None where the headers are of another version's writing."""
    try:
        return stored_delivery(headers, body)
    except ValueError:
        return None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")

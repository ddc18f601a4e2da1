"""How a consumer does, read from its tables: counts and times, never what an event holds.

Each question is answered by an index where one can answer it: a table of a hundred million rows must not be read
because somebody looks. Over a connection of their own, so that nothing at work waits for them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from inbox.adapters.mysql.side import Statement
from inbox.core.figures import (
    MOST_COUNTED,
    AttemptFigures,
    Figures,
    InboxFigures,
    QuarantineFigures,
    Tally,
    WorkerFigures,
    WorkerReport,
    counts_of,
)
from inbox.errors import StoreError, StoreUnavailable
from inbox.tables import qualified

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbox.adapters.mysql.quarantine import Bounds
    from inbox.adapters.mysql.side import AdHoc, Wire
    from inbox.tables import InboxTables

__all__ = ["FiguresSql", "Ledger"]

# MySQL remembers its estimates for a day (manual, "information_schema_stats_expiry"), so that a table would seem empty
# on its first one. MariaDB does not know the variable, and passes over what is for MySQL 8 (manual, "Comment Syntax").
_FRESH: Final = "SET autocommit = 1 /*!80000 , information_schema_stats_expiry = 0 */"

_NOW: Final = "SELECT UTC_TIMESTAMP(6), (SELECT MAX(version) FROM {schema})"

# Without a LIMIT it would read a day's rows of the busiest consumer to the end.
_SINCE: Final = f"""\
SELECT COUNT(*)
  FROM (SELECT 1
          FROM {{inbox}}
         WHERE consumer_name = %s AND processed_at >= UTC_TIMESTAMP(6) - INTERVAL %s HOUR
         LIMIT {MOST_COUNTED}) AS newest"""  # noqa: S608 - a number of ours

_SINCE_EXACTLY: Final = """\
SELECT COUNT(*)
  FROM {inbox}
 WHERE consumer_name = %s AND processed_at >= UTC_TIMESTAMP(6) - INTERVAL %s HOUR"""

# An index that begins with both columns answers from its two ends (manual, "MIN()/MAX() optimization").
_SPAN: Final = "SELECT MIN(processed_at), MAX(processed_at) FROM {inbox} WHERE consumer_name = %s"

_ROWS: Final = "SELECT COUNT(*) FROM {inbox} WHERE consumer_name = %s"

_ESTIMATE: Final = """\
SELECT TABLE_ROWS
  FROM information_schema.TABLES
 WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s"""

_ATTEMPTS: Final = """\
SELECT COUNT(*), COUNT(open_token), MIN(first_at),
       COALESCE(SUM(failed), 0), COALESCE(SUM(crashed), 0), COALESCE(SUM(released), 0)
  FROM {attempt}
 WHERE consumer_name = %s"""

_STATES: Final = """\
SELECT state, COUNT(*), SUM(total_bytes), MIN(first_at)
  FROM {quarantine}{hint}
 WHERE consumer_name = %s
 GROUP BY state"""

_REASONS: Final = """\
SELECT reason, COUNT(*), SUM(total_bytes)
  FROM {quarantine}
 WHERE consumer_name = %s AND state = 'open'
 GROUP BY reason"""

_WORKERS: Final = """\
SELECT worker_id, host, pid, state, counts, started_at, seen_at,
       TIMESTAMPDIFF(MICROSECOND, seen_at, UTC_TIMESTAMP(6))
  FROM {worker}
 WHERE consumer_name = %s
 ORDER BY seen_at DESC
 LIMIT 1000"""

_NEXT_CONSUMER: Final = """\
SELECT consumer_name
  FROM {table}
 WHERE consumer_name > %s
 ORDER BY consumer_name
 LIMIT 1"""

_NO_SUCH_INDEX: Final = 1176
#: Names that are listed; a table with more is no table of consumers any more.
_MOST_CONSUMERS: Final = 1000


class FiguresSql:
    """The statements, for the tables as they are called.

    Attributes:
        now: the database's time, and the schema's version.
        since: events of the last hours, up to a bound; `since_exactly` without one.
        span: times of the oldest and the newest row.
        rows: every row.
        estimate: the server's estimate of the table's rows.
        attempts: sums over the events in trouble, which are few.
        states: rows and octets by state, from the index that bounds the quarantine; `states_unhinted` where that is
            missing or has another name. Left to choose, both servers read the rows.
        reasons: the same by reason of what is open; no index has the reason, so this reads those rows.
        workers: last reports.
        next_consumers: for each table, the first name behind a given one. An index gives it at once, whereas DISTINCT
            is free to read all of them.
    """

    def __init__(self, tables: InboxTables) -> None:
        names = {kind: qualified(getattr(tables.names, kind), tables.database) for kind in _KINDS}
        hints = [index.name for index in tables.quarantine.indexes if "total_bytes" in index.columns]
        self.now = _NOW.format(**names)
        self.since = _SINCE.format(**names)
        self.since_exactly = _SINCE_EXACTLY.format(**names)
        self.span = _SPAN.format(**names)
        self.rows = _ROWS.format(**names)
        self.estimate = _ESTIMATE
        self.attempts = _ATTEMPTS.format(**names)
        self.states = _STATES.format(hint=f" FORCE INDEX (`{hints[0]}`)", **names)
        self.states_unhinted = _STATES.format(hint="", **names)
        self.reasons = _REASONS.format(**names)
        self.workers = _WORKERS.format(**names)
        self.next_consumers = [_NEXT_CONSUMER.format(table=names[kind]) for kind in _NAMED]


_NAMED: Final = ("inbox", "attempt", "quarantine", "worker")
_KINDS: Final = (*_NAMED, "schema")


class Ledger:
    """Reads the figures of consumers.

    Args:
        ad_hoc: gives a connection for each reading.
        tables: where to read.
        bounds: of the quarantine.
        patience: seconds that one reading may take, unless it is to be exact.
    """

    def __init__(self, ad_hoc: AdHoc, tables: InboxTables, bounds: Bounds, patience: float) -> None:
        self._ad_hoc = ad_hoc
        self._tables = tables
        self._sql = FiguresSql(tables)
        self._bounds = bounds
        self._patience = patience

    async def figures(self, consumer: bytes, *, exact: bool) -> Figures:
        """The figures of `consumer`, all over one connection, one question after the other.

        Raises:
            Contended, StoreUnavailable: they could not be read, or not in time.
        """
        try:
            async with asyncio.timeout(None if exact else self._patience), self._ad_hoc.connected() as wire:
                return await self._figures(wire, consumer, exact=exact)
        except TimeoutError:
            raise StoreUnavailable("the database did not answer in time") from None

    async def consumers(self) -> list[str]:
        """Names of all consumers, sorted; a name that is no UTF-8 was written by somebody else, and is escaped.

        Raises:
            Contended, StoreUnavailable: they could not be read, or not in time.
        """
        try:
            async with asyncio.timeout(self._patience), self._ad_hoc.connected() as wire:
                found = {name for sql in self._sql.next_consumers for name in await _names(wire, sql)}
        except TimeoutError:
            raise StoreUnavailable("the database did not answer in time") from None
        return sorted(name.decode("utf-8", "backslashreplace") for name in found)

    async def _figures(self, wire: Wire, consumer: bytes, *, exact: bool) -> Figures:
        await wire.run(Statement(_FRESH))
        ((at, version),) = await _rows(wire, self._sql.now)
        return Figures(
            consumer=consumer.decode("utf-8", "backslashreplace"),
            at=at,
            schema_version=None if version is None else int(version),
            inbox=await self._inbox(wire, consumer, exact=exact),
            attempts=await self._attempts(wire, consumer),
            quarantine=await self._quarantine(wire, consumer),
            workers=await self._workers(wire, consumer),
        )

    async def _inbox(self, wire: Wire, consumer: bytes, *, exact: bool) -> InboxFigures:
        since = self._sql.since_exactly if exact else self._sql.since
        ((last_hour,),) = await _rows(wire, since, consumer, 1)
        ((last_day,),) = await _rows(wire, since, consumer, 24)
        ((oldest, newest),) = await _rows(wire, self._sql.span, consumer)
        counted = await _rows(wire, self._sql.rows, consumer) if exact else []
        estimates = await _rows(wire, self._sql.estimate, self._tables.database, self._tables.names.inbox)
        return InboxFigures(
            last_hour=int(last_hour),
            last_day=int(last_day),
            oldest=oldest,
            newest=newest,
            rows=int(counted[0][0]) if counted else None,
            table_rows=int(estimates[0][0] or 0) if estimates else 0,
        )

    async def _attempts(self, wire: Wire, consumer: bytes) -> AttemptFigures:
        ((events, starts, oldest, *charges),) = await _rows(wire, self._sql.attempts, consumer)
        return AttemptFigures(int(events), int(starts), oldest, *map(int, charges))

    async def _quarantine(self, wire: Wire, consumer: bytes) -> QuarantineFigures:
        states = await self._states(wire, consumer)
        reasons = await _rows(wire, self._sql.reasons, consumer)
        oldest = [first for state, _, _, first in states if state == "open"]
        return QuarantineFigures(
            by_state={state: Tally(int(rows), int(octets)) for state, rows, octets, _ in states},
            by_reason={reason: Tally(int(rows), int(octets)) for reason, rows, octets in reasons},
            oldest_open=oldest[0] if oldest else None,
            bound_rows=self._bounds.rows,
            bound_octets=self._bounds.octets,
        )

    async def _states(self, wire: Wire, consumer: bytes) -> Sequence[tuple[Any, ...]]:
        try:
            return await _rows(wire, self._sql.states, consumer)
        except StoreError as error:
            if error.code != _NO_SUCH_INDEX:
                raise
            return await _rows(wire, self._sql.states_unhinted, consumer)

    async def _workers(self, wire: Wire, consumer: bytes) -> list[WorkerFigures]:
        return [
            WorkerFigures(
                WorkerReport(bytes(worker_id), host, int(pid), state, counts_of(counts)),
                started_at,
                seen_at,
                age=int(microseconds) / 1e6,
            )
            for worker_id, host, pid, state, counts, started_at, seen_at, microseconds in await _rows(
                wire, self._sql.workers, consumer
            )
        ]


async def _rows(wire: Wire, sql: str, *parameters: bytes | str | int | None) -> Sequence[tuple[Any, ...]]:
    answer = await wire.run(Statement(sql, parameters))
    return answer.rows


async def _names(wire: Wire, sql: str) -> list[bytes]:
    found: list[bytes] = []
    last = b""
    while len(found) < _MOST_CONSUMERS and (rows := await _rows(wire, sql, last)):
        last = bytes(rows[0][0])
        found.append(last)
    return found

"""How a consumer does, read from both files: counts and times, never what an event holds. And what its workers report.

A reader in WAL mode sees the last commit and waits for nobody (sqlite.org/wal.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from inbox.adapters.embedded import clock
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
    counts_text,
)
from inbox.core.kept import cut_text

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

    from inbox.adapters.embedded.file import PlainFile
    from inbox.adapters.embedded.quarantine import Bounds
    from inbox.tables import TableNames

__all__ = ["Ledger", "WorkerBook"]

_SINCE: Final = """\
SELECT COUNT(*)
  FROM (SELECT 1 FROM main.`{inbox}` WHERE consumer_name = ? AND processed_at >= ? LIMIT ?)"""

_SPAN: Final = """\
SELECT (SELECT MIN(processed_at) FROM main.`{inbox}` WHERE consumer_name = ?1),
       (SELECT MAX(processed_at) FROM main.`{inbox}` WHERE consumer_name = ?1)"""

_ROWS: Final = "SELECT COUNT(*) FROM main.`{inbox}` WHERE consumer_name = ?"

_TABLE_ROWS: Final = "SELECT COUNT(*) FROM (SELECT 1 FROM main.`{inbox}` LIMIT ?)"

_ATTEMPTS: Final = """\
SELECT COUNT(*), COUNT(open_token), MIN(first_at),
       COALESCE(SUM(failed), 0), COALESCE(SUM(crashed), 0), COALESCE(SUM(released), 0)
  FROM beside.`{attempt}`
 WHERE consumer_name = ?"""

_STATES: Final = """\
SELECT state, COUNT(*), SUM(total_bytes), MIN(first_at)
  FROM beside.`{quarantine}`
 WHERE consumer_name = ?
 GROUP BY state"""

_REASONS: Final = """\
SELECT reason, COUNT(*), SUM(total_bytes)
  FROM beside.`{quarantine}`
 WHERE consumer_name = ? AND state = 'open'
 GROUP BY reason"""

_WORKERS: Final = """\
SELECT worker_id, host, pid, state, counts, started_at, seen_at
  FROM beside.`{worker}`
 WHERE consumer_name = ?
 ORDER BY seen_at DESC
 LIMIT 1000"""

_VERSION: Final = "SELECT MAX(version) FROM main.`{schema}`"

# An index gives the next name at once, whereas DISTINCT would read every row.
_NEXT_CONSUMER: Final = "SELECT MIN(consumer_name) FROM {place} WHERE consumer_name > ?"
_PLACES: Final = ("main.`{inbox}`", "beside.`{attempt}`", "beside.`{quarantine}`", "beside.`{worker}`")
#: Names that are listed; a table with more is no table of consumers any more.
_MOST_CONSUMERS: Final = 1000

_REPORT: Final = """\
INSERT INTO `{worker}` (consumer_name, worker_id, host, pid, state, counts, started_at, seen_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)
ON CONFLICT (consumer_name, worker_id) DO UPDATE SET state = ?5, counts = ?6, seen_at = ?7"""

_FORGET: Final = "DELETE FROM `{worker}` WHERE consumer_name = ? AND seen_at < ?"
#: A week: long enough to see on Monday what died on Friday.
_REMEMBERED: Final = 7 * 86_400.0

_WORD_LENGTH: Final = 255
_COUNTS_LENGTH: Final = 4000


class Ledger:
    """Reads the figures of consumers.

    Args:
        file: the first file, with the other one beside it.
        names: what the tables are called.
        bounds: of the quarantine.
    """

    def __init__(self, file: PlainFile, names: TableNames, bounds: Bounds) -> None:
        self._file = file
        self._bounds = bounds
        self._names = {kind: getattr(names, kind) for kind in ("inbox", "attempt", "quarantine", "worker", "schema")}

    async def figures(self, consumer: bytes, *, exact: bool) -> Figures:
        """See `inbox.ports.Store.figures`."""
        return await self._file.read(lambda raw: self._figures(raw, consumer, exact=exact), "reading the figures")

    async def consumers(self) -> list[str]:
        """See `inbox.ports.Store.consumers`; a name that is no UTF-8 was written by somebody else, and is escaped."""
        found = await self._file.read(self._consumers, "reading the consumers")
        return sorted(name.decode("utf-8", "backslashreplace") for name in found)

    def _figures(self, raw: sqlite3.Connection, consumer: bytes, *, exact: bool) -> Figures:
        ((version,),) = self._ask(raw, _VERSION)
        attempts = self._ask(raw, _ATTEMPTS, consumer)[0]
        inbox = self._inbox(raw, consumer, exact=exact)
        quarantine = self._quarantine(raw, consumer)
        workers = self._workers(raw, consumer)
        return Figures(
            consumer=consumer.decode("utf-8", "backslashreplace"),
            at=_naive(clock.stamp()),
            schema_version=version,
            inbox=inbox,
            attempts=AttemptFigures(attempts[0], attempts[1], _time(attempts[2]), *attempts[3:]),
            quarantine=quarantine,
            workers=workers,
        )

    def _inbox(self, raw: sqlite3.Connection, consumer: bytes, *, exact: bool) -> InboxFigures:
        most = -1 if exact else MOST_COUNTED
        ((last_hour,),) = self._ask(raw, _SINCE, consumer, clock.before(3600), most)
        ((last_day,),) = self._ask(raw, _SINCE, consumer, clock.before(86_400), most)
        ((oldest, newest),) = self._ask(raw, _SPAN, consumer)
        rows = self._ask(raw, _ROWS, consumer)[0][0] if exact else None
        ((table_rows,),) = self._ask(raw, _TABLE_ROWS, most)
        return InboxFigures(last_hour, last_day, _time(oldest), _time(newest), rows, table_rows)

    def _quarantine(self, raw: sqlite3.Connection, consumer: bytes) -> QuarantineFigures:
        states = self._ask(raw, _STATES, consumer)
        oldest = [first for state, _, _, first in states if state == "open"]
        return QuarantineFigures(
            by_state={state: Tally(rows, octets) for state, rows, octets, _ in states},
            by_reason={reason: Tally(rows, octets) for reason, rows, octets in self._ask(raw, _REASONS, consumer)},
            oldest_open=_time(oldest[0]) if oldest else None,
            bound_rows=self._bounds.rows,
            bound_octets=self._bounds.octets,
        )

    def _workers(self, raw: sqlite3.Connection, consumer: bytes) -> list[WorkerFigures]:
        now = clock.now()
        return [
            WorkerFigures(
                WorkerReport(worker_id, host, pid, state, counts_of(counts)),
                _naive(started_at),
                _naive(seen_at),
                age=max((now - clock.instant(seen_at)).total_seconds(), 0.0),
            )
            for worker_id, host, pid, state, counts, started_at, seen_at in self._ask(raw, _WORKERS, consumer)
        ]

    def _consumers(self, raw: sqlite3.Connection) -> set[bytes]:
        found: set[bytes] = set()
        for place in _PLACES:
            name = b""
            for _ in range(_MOST_CONSUMERS):
                ((name,),) = self._ask(raw, _NEXT_CONSUMER.replace("{place}", place), name)
                if name is None:
                    break
                found.add(name)
        return found

    def _ask(self, raw: sqlite3.Connection, sql: str, *parameters: object) -> list[Any]:
        return raw.execute(sql.format(**self._names), parameters).fetchall()


class WorkerBook:
    """Reports of one consumer's workers.

    Args:
        file: the file beside.
        names: what the tables are called.
        consumer: octets of the consumer's name.
    """

    def __init__(self, file: PlainFile, names: TableNames, consumer: bytes) -> None:
        self._file = file
        self._report = _REPORT.format(worker=names.worker)
        self._forget = _FORGET.format(worker=names.worker)
        self._consumer = consumer
        self._has_reported = False

    async def report(self, report: WorkerReport) -> None:
        """See `inbox.ports.Store.report`; the first one of a process clears away those of a week ago."""

        def write(raw: sqlite3.Connection) -> None:
            words = (cut_text(report.host, _WORD_LENGTH), report.pid, cut_text(report.state, _WORD_LENGTH))
            counts = counts_text(report.counts, _COUNTS_LENGTH)
            raw.execute(self._report, (self._consumer, report.worker_id, *words, counts, clock.stamp()))
            if not self._has_reported:
                raw.execute(self._forget, (self._consumer, clock.before(_REMEMBERED)))

        await self._file.write(write, "keeping a worker's report")
        self._has_reported = True


def _time(stored: str | None) -> datetime | None:
    return None if stored is None else _naive(stored)


def _naive(stored: str) -> datetime:
    """Figures have times without a zone, as the other databases give them."""
    return clock.instant(stored).replace(tzinfo=None)

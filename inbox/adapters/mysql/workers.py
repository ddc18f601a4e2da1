"""Reports of workers: one row for each process, written anew every few seconds.

One statement each, so that a report that is cut is there whole or not at all. Rows of processes that are long gone give
way when another process starts: nobody else writes here, so the table stays as small as the fleet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inbox.adapters.mysql.side import Statement
from inbox.core.figures import counts_text
from inbox.tables import qualified

if TYPE_CHECKING:
    from inbox.adapters.mysql.side import Side
    from inbox.core.figures import WorkerReport
    from inbox.tables import InboxTables

__all__ = ["WorkerBook", "WorkerSql"]

#: Characters that the columns hold (`inbox.tables`).
_HOST_LENGTH: Final = 255
_STATE_LENGTH: Final = 255
_COUNTS_LENGTH: Final = 4000

_REPORT: Final = """\
INSERT INTO {worker} (consumer_name, worker_id, host, pid, state, counts)
VALUES (%s, %s, %s, %s, %s, %s)
ON DUPLICATE KEY UPDATE
  state = %s,
  counts = %s,
  seen_at = UTC_TIMESTAMP(6)"""

# A week: long enough to see on Monday what died on Friday. A thousand, so that no start waits for a long clean-up.
_FORGET: Final = """\
DELETE FROM {worker}
 WHERE consumer_name = %s AND seen_at < UTC_TIMESTAMP(6) - INTERVAL 7 DAY
 ORDER BY seen_at
 LIMIT 1000"""


class WorkerSql:
    """The statements, for the tables as they are called.

    Attributes:
        report: write a worker's row, or bring it up to date.
        forget: delete the rows of workers that have not reported for a week.
    """

    def __init__(self, tables: InboxTables) -> None:
        worker = qualified(tables.names.worker, tables.database)
        self.report = _REPORT.format(worker=worker)
        self.forget = _FORGET.format(worker=worker)


class WorkerBook:
    """Reports of one consumer's workers.

    Args:
        side: where the statements go.
        sql: the statements.
        consumer: octets of the consumer's name.
    """

    def __init__(self, side: Side, sql: WorkerSql, consumer: bytes) -> None:
        self._side = side
        self._sql = sql
        self._consumer = consumer
        self._has_reported = False

    async def report(self, report: WorkerReport) -> None:
        """Write `report` over the last one of the same worker.

        Raises:
            Contended, StoreUnavailable: it was not written.
        """
        state = _text(report.state, _STATE_LENGTH)
        counts = counts_text(report.counts, _COUNTS_LENGTH)
        row = (self._consumer, report.worker_id, _text(report.host, _HOST_LENGTH), report.pid, state, counts)
        await self._side.run(Statement(self._sql.report, (*row, state, counts)))
        if not self._has_reported:
            self._has_reported = True
            await self._side.run(Statement(self._sql.forget, (self._consumer,)))


def _text(text: str, length: int) -> str:
    return text.encode("utf-8", "replace").decode()[:length]

"""How often an event was tried: rows only for what is in trouble, written beside the units.

Each change is one statement and one transaction of its own: it has to outlive the rollback of the unit it speaks of,
and the death of the process. Nothing is read before it is written, so no lock is ever raised from shared to
exclusive, and the row of one event is all that a statement locks. A unit takes that lock last of all (`forget`,
then COMMIT), so that who waits for it never holds what the unit still needs.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from inbox.adapters.mysql.side import Statement
from inbox.core.records import Attempts
from inbox.tables import qualified

if TYPE_CHECKING:
    from inbox.adapters.mysql.side import Side
    from inbox.tables import InboxTables

__all__ = ["AttemptBook", "AttemptSql"]

#: Characters that `last_error` holds.
_ERROR_LENGTH: Final = 512
#: Starts of this process that are remembered; more than can run at once.
_REMEMBERED: Final = 10_000


class AttemptSql:
    """The statements, for the tables as they are called.

    The server assigns the columns from left to right, and a later assignment sees what an earlier one made (MySQL
    manual, "UPDATE Statement"): what is charged is decided before `open_token` changes.

    Attributes:
        start: note a start. An open start of another process is charged as crashed: the claim of the same event
            waits for the end of any other unit that holds it, so whoever left it open is gone. One of this process is
            not: this process lives. The answer's insert id says whether this start made the charge: "If expr is given
            as an argument to LAST_INSERT_ID(), the value of the argument is returned by the function and is remembered"
            (MySQL manual, "Information Functions").
        end: count, and close this process's start. Where another process found that start open and charged it, after
            the rollback and before this statement, the charge is taken back.
        close: close this process's start and count nothing; makes no row.
        counts: read.
    """

    def __init__(self, tables: InboxTables) -> None:
        name = qualified(tables.names.attempt, tables.database)
        self.start = _START.format(table=name)
        self.end = _END.format(table=name)
        self.close = _CLOSE.format(table=name)
        self.counts = _COUNTS.format(table=name)


_START: Final = """\
INSERT INTO {table} (consumer_name, attempt_key, open_since, open_token)
VALUES (%s, %s, UTC_TIMESTAMP(6), %s)
ON DUPLICATE KEY UPDATE
  crashed = crashed + LAST_INSERT_ID(open_token IS NOT NULL AND open_token <> %s),
  open_since = UTC_TIMESTAMP(6),
  open_token = %s,
  last_at = UTC_TIMESTAMP(6)"""

_END: Final = """\
INSERT INTO {table} (consumer_name, attempt_key, failed, released, last_error)
VALUES (%s, %s, %s, %s, %s)
ON DUPLICATE KEY UPDATE
  failed = failed + %s,
  released = released + %s,
  crashed = crashed - (%s AND crashed > 0 AND open_token IS NOT NULL AND open_token <> %s),
  open_since = IF(open_token = %s, NULL, open_since),
  open_token = IF(open_token = %s, NULL, open_token),
  last_error = COALESCE(%s, last_error),
  last_at = UTC_TIMESTAMP(6)"""

_CLOSE: Final = """\
UPDATE {table}
   SET crashed = crashed - (%s AND crashed > 0 AND open_token IS NOT NULL AND open_token <> %s),
       open_since = IF(open_token = %s, NULL, open_since),
       open_token = IF(open_token = %s, NULL, open_token),
       last_at = UTC_TIMESTAMP(6)
 WHERE consumer_name = %s AND attempt_key = %s"""

_COUNTS: Final = """\
SELECT failed, crashed, released
  FROM {table}
 WHERE consumer_name = %s AND attempt_key = %s"""


class AttemptBook:
    """Starts and ends of one consumer's runs.

    Args:
        side: where the statements go.
        sql: the statements.
        consumer: octets of the consumer's name.
    """

    def __init__(self, side: Side, sql: AttemptSql, consumer: bytes) -> None:
        self._side = side
        self._sql = sql
        self._consumer = consumer
        #: Says that a start is this process's; drawn anew by each, so that a restart is another.
        self._token = secrets.token_bytes(16)
        self._started: OrderedDict[bytes, None] = OrderedDict()

    async def start(self, key: bytes) -> Attempts:
        """Note that a run of `key` begins.

        Returns:
            The counts, a charge for an open start included; `reopened` where this start made it. A start that had to
            be sent twice, for its answer was lost, may have made it and not say so: the event is run once more.

        Raises:
            Contended, StoreUnavailable: nothing was noted.
        """
        token = self._token
        note = Statement(self._sql.start, (self._consumer, key, token, token, token))
        counts = await self._counted(note, key)
        self._started[key] = None
        if len(self._started) > _REMEMBERED:
            self._started.popitem(last=False)
        return counts

    async def end(self, key: bytes, *, failed: bool, released: bool, error: str) -> Attempts:
        """Note how a run of `key` ended.

        Returns:
            The counts after this.

        Raises:
            Contended, StoreUnavailable: nothing was noted.
        """
        mine = key in self._started
        counts = await self._counted(self._ending(key, mine, (int(failed), int(released)), error), key)
        self._started.pop(key, None)
        return counts

    def _ending(self, key: bytes, mine: bool, charge: tuple[int, int], error: str) -> Statement:
        token = self._token
        if not any(charge):
            return Statement(self._sql.close, (int(mine), token, token, token, self._consumer, key))
        words = _printable(error) or None
        update = (*charge, int(mine), token, token, token, words)
        return Statement(self._sql.end, (self._consumer, key, *charge, words, *update))

    async def _counted(self, change: Statement, key: bytes) -> Attempts:
        # Apart from each other: a read that has to be repeated must not count a second time.
        changed = await self._side.run(change)
        found = await self._side.run(Statement(self._sql.counts, (self._consumer, key)))
        if not found.rows:
            return Attempts()
        failed, crashed, released = map(int, found.rows[0])
        return Attempts(failed, crashed, released, reopened=changed.insert_id == 1)


def _printable(text: str) -> str:
    """What a utf8mb4 column takes, cut to the length of `last_error`."""
    return text.encode("utf-8", "replace").decode()[:_ERROR_LENGTH]

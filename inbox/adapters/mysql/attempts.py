"""How often an event was tried: rows only for what is in trouble, written beside the units.

Each change is one statement and one transaction of its own: it has to outlive the rollback of the unit it speaks of,
and the death of the process. Nothing is read before it is written, so no lock is ever raised from shared to
exclusive, and the row of one event is all that a statement locks. A unit takes that lock last of all (`forget`,
then COMMIT), so that who waits for it never holds what the unit still needs.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from inbox.adapters.mysql.side import Statement
from inbox.core.records import Attempts
from inbox.tables import HISTORY_LENGTH, qualified

if TYPE_CHECKING:
    from inbox.adapters.mysql.side import Side
    from inbox.tables import InboxTables

__all__ = ["AttemptBook", "AttemptSql"]

#: Characters of an error in the history.
_ERROR_LENGTH: Final = 512
#: A line of the history, before and after the name of the process whose start was found open.
_CRASHED: Final = (" crashed: process ", " died in it\n")
#: Octets of a token that name its process in the history.
_LABEL_OCTETS: Final = 8
#: How many charges in the history are for starts of a process that lives: its line, and how long that is.
_MISTAKEN: Final = (
    "LEAST(crashed, (CHAR_LENGTH(COALESCE(history, '')) - CHAR_LENGTH(REPLACE(COALESCE(history, ''), %s, ''))) DIV %s)"
)


class AttemptSql:
    """The statements, for the tables as they are called.

    The server assigns the columns from left to right, and a later assignment sees what an earlier one made (MySQL
    manual, "UPDATE Statement"): what is charged is decided before `open_token` and `end_token` change, and what is
    taken back is counted in the history before that changes.

    Attributes:
        start: note a start. One of this process that is open charges nothing: this process lives. One of another
            process says that it died in the handler or beside it: the claim of the same event waits for the end of any
            other unit that holds it, so whoever left it open is gone. It is charged as crashed where it ran alone. The
            answer's insert id says what was found, 0 nothing, 1 an open start, 2 one that was charged: "If expr is
            given as an argument to LAST_INSERT_ID(), the value of the argument is returned by the function and is
            remembered" (MySQL manual, "Information Functions").
        end: count, and close this process's start. Where another process found that start open and charged it, after
            the rollback and before this statement, the charge is taken back: its line in the history names whose start
            it was, so that this holds also when that process has ended its own run meanwhile. Sent twice, it counts
            once.
        close: close this process's start and count nothing; makes no row.
        counts: read.
        forget: delete the row.
    """

    def __init__(self, tables: InboxTables) -> None:
        name = qualified(tables.names.attempt, tables.database)
        self.start = _START.format(table=name)
        self.end = _END.format(table=name)
        self.close = _CLOSE.format(table=name)
        self.counts = _COUNTS.format(table=name)
        self.forget = _FORGET.format(table=name)


_START: Final = f"""\
INSERT INTO {{table}} (consumer_name, attempt_key, open_since, open_token, open_alone)
VALUES (%s, %s, UTC_TIMESTAMP(6), %s, %s)
ON DUPLICATE KEY UPDATE
  crashed = crashed + (LAST_INSERT_ID((open_token IS NOT NULL AND open_token <> %s) * (1 + open_alone)) = 2),
  history = IF(open_token <> %s AND open_alone = 1,
    RIGHT(CONCAT(COALESCE(history, ''), CAST(UTC_TIMESTAMP(6) AS CHAR),
      %s, LOWER(HEX(LEFT(open_token, {_LABEL_OCTETS}))), %s), {HISTORY_LENGTH}), history),
  open_since = UTC_TIMESTAMP(6),
  open_token = %s,
  open_alone = %s,
  last_at = UTC_TIMESTAMP(6)"""  # noqa: S608 - a number of ours

_END: Final = f"""\
INSERT INTO {{table}} (consumer_name, attempt_key, failed, released, history, end_token)
VALUES (%s, %s, %s, %s, CONCAT(CAST(UTC_TIMESTAMP(6) AS CHAR), %s), %s)
ON DUPLICATE KEY UPDATE
  failed = failed + (NOT end_token <=> %s) * %s,
  released = released + (NOT end_token <=> %s) * %s,
  crashed = crashed - {_MISTAKEN},
  history = IF(end_token <=> %s, history, RIGHT(CONCAT(
    REPLACE(COALESCE(history, ''), %s, %s), CAST(UTC_TIMESTAMP(6) AS CHAR), %s), {HISTORY_LENGTH})),
  open_since = IF(open_token = %s, NULL, open_since),
  open_token = IF(open_token = %s, NULL, open_token),
  end_token = %s,
  last_at = UTC_TIMESTAMP(6)"""  # noqa: S608 - as above

_CLOSE: Final = f"""\
UPDATE {{table}}
   SET crashed = crashed - {_MISTAKEN},
       history = REPLACE(history, %s, %s),
       open_since = IF(open_token = %s, NULL, open_since),
       open_token = IF(open_token = %s, NULL, open_token),
       last_at = UTC_TIMESTAMP(6)
 WHERE consumer_name = %s AND attempt_key = %s"""  # noqa: S608 - as above

_COUNTS: Final = """\
SELECT failed, crashed, released, TIMESTAMPDIFF(MICROSECOND, first_at, UTC_TIMESTAMP(6))
  FROM {table}
 WHERE consumer_name = %s AND attempt_key = %s"""

_FORGET: Final = "DELETE FROM {table} WHERE consumer_name = %s AND attempt_key = %s"

#: What the insert id of `AttemptSql.start` says.
_FOUND_OPEN: Final = 1
_CHARGED: Final = 2


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
        label = self._token[:_LABEL_OCTETS].hex()
        #: What another process writes that took this one for dead, and what that is corrected to.
        self._mistake = label.join(_CRASHED)
        self._correction = f" no crash: process {label} lives\n"

    async def start(self, key: bytes, *, alone: bool) -> Attempts:
        """Note that a run of `key` begins.

        Returns:
            The counts, a charge for an open start included; `suspect` where this start found one, `reopened` where it
            charged one. A start that had to be sent twice, for its answer was lost, may have found one and not say so:
            the event is run once more.

        Raises:
            Contended, StoreUnavailable: nothing was noted.
        """
        token = self._token
        values = (self._consumer, key, token, int(alone), token, token, *_CRASHED, token, int(alone))
        return await self._counted(Statement(self._sql.start, values), key)

    async def end(self, key: bytes, *, failed: bool, released: bool, error: str) -> Attempts:
        """Note how a run of `key` ended.

        Returns:
            The counts after this.

        Raises:
            Contended, StoreUnavailable: nothing was noted.
        """
        if failed or released:
            return await self._counted(self._ending(key, (int(failed), int(released)), error), key)
        mistaken = (self._mistake, len(self._mistake), self._mistake, self._correction)
        closed = (*mistaken, self._token, self._token, self._consumer, key)
        return await self._counted(Statement(self._sql.close, closed), key)

    def _ending(self, key: bytes, charge: tuple[int, int], error: str) -> Statement:
        token, end = self._token, secrets.token_bytes(16)
        failed, released = charge
        line = f" {'failed' if failed else 'released'}: {_one_line(error)}\n"
        row = (self._consumer, key, failed, released, line, end)
        counted = (end, failed, end, released, self._mistake, len(self._mistake))
        corrected = (end, self._mistake, self._correction, line)
        return Statement(self._sql.end, (*row, *counted, *corrected, token, token, end))

    async def forget(self, key: bytes) -> None:
        """See `inbox.ports.Store.forget_attempts`."""
        await self._side.run(Statement(self._sql.forget, (self._consumer, key)))

    async def _counted(self, change: Statement, key: bytes) -> Attempts:
        # Apart from each other: a read that has to be repeated must not count a second time.
        changed = await self._side.run(change)
        found = await self._side.run(Statement(self._sql.counts, (self._consumer, key)))
        if not found.rows:
            return Attempts()
        failed, crashed, released, microseconds = map(int, found.rows[0])
        return Attempts(
            failed,
            crashed,
            released,
            suspect=changed.insert_id in (_FOUND_OPEN, _CHARGED),
            reopened=changed.insert_id == _CHARGED,
            age=microseconds / 1e6,
        )


def _one_line(text: str) -> str:
    """What fits into a line of the history, and into a utf8mb4 column."""
    return " ".join(text.encode("utf-8", "replace").decode()[:_ERROR_LENGTH].split())

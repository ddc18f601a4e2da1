"""How often an event was tried: rows only for what is in trouble, in the file beside, while a unit writes in the first.

Each change is a transaction of its own: it has to outlive the rollback of the unit it speaks of, and the death of the
process.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from inbox.adapters.embedded import clock
from inbox.core.kept import cut_text
from inbox.core.records import Attempts
from inbox.tables import HISTORY_LENGTH

if TYPE_CHECKING:
    import sqlite3

    from inbox.adapters.embedded.file import PlainFile
    from inbox.tables import TableNames

__all__ = ["AttemptBook"]

#: Characters of an error in the history.
_ERROR_LENGTH: Final = 512
#: Starts of this process that are remembered; more than can run at once.
_REMEMBERED: Final = 10_000

_FIND: Final = """\
SELECT failed, crashed, released, first_at, open_token, open_alone, history
  FROM `{table}`
 WHERE consumer_name = ? AND attempt_key = ?"""

_START: Final = """\
INSERT INTO `{table}`
  (consumer_name, attempt_key, crashed, open_since, open_token, open_alone, history, first_at, last_at)
VALUES (?1, ?2, ?3, ?7, ?4, ?5, ?6, ?7, ?7)
ON CONFLICT (consumer_name, attempt_key) DO UPDATE SET
  crashed = ?3, open_since = ?7, open_token = ?4, open_alone = ?5, history = ?6, last_at = ?7"""

_END: Final = """\
INSERT INTO `{table}`
  (consumer_name, attempt_key, failed, crashed, released, history, first_at, last_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)
ON CONFLICT (consumer_name, attempt_key) DO UPDATE SET
  failed = ?3, crashed = ?4, released = ?5, history = ?6, last_at = ?7,
  open_since = IIF(open_token = ?8, NULL, open_since),
  open_token = IIF(open_token = ?8, NULL, open_token)"""

_FORGET: Final = "DELETE FROM `{table}` WHERE consumer_name = ? AND attempt_key = ?"


class AttemptBook:
    """Starts and ends of one consumer's runs.

    Args:
        file: the file beside.
        names: what the tables are called.
        consumer: octets of the consumer's name.
    """

    def __init__(self, file: PlainFile, names: TableNames, consumer: bytes) -> None:
        self._file = file
        self._find, self._start, self._end, self._forget = (
            sql.format(table=names.attempt) for sql in (_FIND, _START, _END, _FORGET)
        )
        self._consumer = consumer
        #: Says that a start is this process's; drawn anew by each, so that a restart is another.
        self._token = secrets.token_bytes(16)
        #: Keys of open starts, and whether each runs alone.
        self._started: OrderedDict[bytes, bool] = OrderedDict()

    async def start(self, key: bytes, *, alone: bool) -> Attempts:
        """See `inbox.ports.Store.start_attempt`.

        An open start of this process charges nothing: this process lives. One of another process says that it died in
        the handler or beside it, for a claim of the same event waits for the end of any unit that holds it.
        """
        counts = await self._file.write(lambda raw: self._note_start(raw, key, alone=alone), "noting a start")
        self._started[key] = alone
        if len(self._started) > _REMEMBERED:
            self._started.popitem(last=False)
        return counts

    def _note_start(self, raw: sqlite3.Connection, key: bytes, *, alone: bool) -> Attempts:
        now = clock.stamp()
        found = self._found(raw, key)
        suspect = found.open_token is not None and found.open_token != self._token
        reopened = suspect and found.open_alone
        history, crashed = found.history, found.crashed
        if reopened:
            crashed += 1
            history = _longer(history, f"{now} crashed: the process died in it\n")
        raw.execute(self._start, (self._consumer, key, crashed, self._token, int(alone), history, now))
        return Attempts(
            found.failed, crashed, found.released, suspect=suspect, reopened=reopened, age=_age(found.first_at)
        )

    async def end(self, key: bytes, *, failed: bool, released: bool, error: str) -> Attempts:
        """See `inbox.ports.Store.end_attempt`.

        Where another process found this one's start open and charged it, after the rollback and before this, the
        charge is taken back: only a start that ran alone can have been charged.
        """
        ran_alone = self._started.get(key, False)
        charge = (int(failed), int(released))
        line = f"{'failed' if failed else 'released'}: {_one_line(error)}\n" if failed or released else ""
        counts = await self._file.write(
            lambda raw: self._note_end(raw, key, charge, line, ran_alone=ran_alone), "noting the end of a run"
        )
        self._started.pop(key, None)
        return counts

    def _note_end(
        self, raw: sqlite3.Connection, key: bytes, charge: tuple[int, int], line: str, *, ran_alone: bool
    ) -> Attempts:
        now = clock.stamp()
        found = self._found(raw, key)
        if not found.is_there and not line:
            return Attempts()
        is_taken_over = found.open_token is not None and found.open_token != self._token
        mistaken = ran_alone and is_taken_over and found.crashed > 0
        counts = (found.failed + charge[0], found.crashed - mistaken, found.released + charge[1])
        history = _longer(found.history, f"{now} {line}") if line else found.history
        raw.execute(self._end, (self._consumer, key, *counts, history, now, self._token))
        return Attempts(*counts, age=_age(found.first_at))

    async def forget(self, key: bytes) -> None:
        """See `inbox.ports.Store.forget_attempts`."""

        def is_there(raw: sqlite3.Connection) -> bool:
            return self._found(raw, key).is_there

        if await self._file.read(is_there, "looking for attempt counts"):
            await self._file.write(
                lambda raw: raw.execute(self._forget, (self._consumer, key)), "deleting attempt counts"
            )
        self._started.pop(key, None)

    def _found(self, raw: sqlite3.Connection, key: bytes) -> _Found:
        row = raw.execute(self._find, (self._consumer, key)).fetchone()
        return _Found() if row is None else _Found(row)


class _Found:
    """A row as it was read, or the lack of one."""

    def __init__(self, row: tuple[object, ...] | None = None) -> None:
        self.is_there = row is not None
        failed, crashed, released, first_at, token, alone, history = row or (0, 0, 0, None, None, 0, None)
        self.failed, self.crashed, self.released = int(str(failed)), int(str(crashed)), int(str(released))
        self.first_at = None if first_at is None else str(first_at)
        self.open_token = token
        self.open_alone = bool(alone)
        self.history = None if history is None else str(history)


def _age(first_at: str | None) -> float:
    return 0.0 if first_at is None else max((clock.now() - clock.instant(first_at)).total_seconds(), 0.0)


def _longer(history: str | None, line: str) -> str:
    return f"{history or ''}{line}"[-HISTORY_LENGTH:]


def _one_line(text: str) -> str:
    return " ".join(cut_text(text, _ERROR_LENGTH).split())

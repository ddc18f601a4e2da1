"""One delivery's transaction: the claim, the handler's statements, the commit."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING

from inbox.adapters.embedded import clock
from inbox.adapters.embedded.classify import DUPLICATE_KEY, code_of, translated
from inbox.adapters.embedded.statements import BEGIN, COMMIT, ROLLBACK, key_of
from inbox.adapters.embedded.turns import patiently
from inbox.core.records import Claim, InboxRecord
from inbox.errors import CommitUnknown, InboxError, StoreError, Torn
from inbox.units.unit import LaneUnit
from inbox.units.verdict import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from inbox.adapters.embedded.lane import Lane
    from inbox.adapters.embedded.statements import UnitStatements
    from inbox.adapters.embedded.turns import Turns
    from inbox.units.limits import TimeLimit


class Unit(LaneUnit["Lane"]):
    """`inbox.ports.UnitOfWork` on one lane.

    Args:
        lane: its connection, between two units.
        statements: the framework's own SQL.
        turns: whose turn it is to write.
        lock_wait: seconds to wait for that, and for other processes.
        forget: deletes the attempt counts of a key, which lie in another file.
        answer, done: see `LaneUnit`.
    """

    def __init__(  # noqa: PLR0917 - made in one place, from what the store has
        self,
        lane: Lane,
        statements: UnitStatements,
        turns: Turns,
        lock_wait: float,
        answer: Callable[[], TimeLimit],
        forget: Callable[[bytes], Awaitable[None]],
        done: Callable[[Lane, bool], None],
    ) -> None:
        super().__init__(lane, answer, done)
        self._sql = statements
        self._turns = turns
        self._has_turn = False
        self._lock_wait = lock_wait
        self._forget = forget
        self._forgotten: list[bytes] = []
        self._key = (b"", b"")

    # -------------------------------------------------------------- the claim
    async def claim(self, record: InboxRecord) -> Claim:
        """See `inbox.ports.UnitOfWork.claim`."""
        self._expect(Stage.BEGUN)
        self._key = key_of(record)
        values = (*self._key, record.fingerprint, record.scheme, clock.stamp())
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._lock_wait
        await self._turns.take(self._lock_wait)
        self._has_turn = True
        try:
            known = await patiently(
                lambda: self.lane.driver.own(lambda raw: self._insert(raw, values)), ends - loop.time()
            )
        except (sqlite3.Error, ValueError) as error:
            raise translated(error, "claiming the event") from error
        if known is None:
            self._stage = Stage.CLAIMED
            return Claim.NEW
        self._give_back(True)
        return Claim.CONFLICT if record.contradicts(*known) else Claim.DUPLICATE

    def _insert(self, raw: sqlite3.Connection, values: tuple[object, ...]) -> tuple[bytes | None, int | None] | None:
        """In the connection's thread: None where the record is inserted, else what is stored, and nothing is open."""
        raw.execute(BEGIN)
        try:
            raw.execute(self._sql.insert, values)
        except sqlite3.Error as error:
            known: tuple[bytes | None, int | None] | None = None
            # Only the insert can meet a key, and its table has no other.
            if code_of(error) == DUPLICATE_KEY:
                known = raw.execute(self._sql.fingerprint, self._key).fetchone()
            if raw.in_transaction:
                raw.execute(ROLLBACK)
            if known is None:
                raise
            return known
        return None

    async def forget(self, key: bytes) -> None:
        """See `inbox.ports.UnitOfWork.forget`.

        The counts lie in another file, so that they can be written while this unit writes. They are deleted behind the
        commit; where the process dies in between, the duplicate that comes for it deletes them.
        """
        self._expect(Stage.CLAIMED, Stage.APPLIED)
        self._forgotten.append(key)

    # -------------------------------------------------------------- the end
    async def _commit(self) -> None:
        try:
            with self._answer():
                await self.lane.driver.own(self._commit_in_thread)
        except BaseException as error:
            # Closed before anybody asks what became of it.
            self._throw_away()
            if isinstance(error, InboxError) or not isinstance(error, Exception):
                raise
            raise CommitUnknown("COMMIT was not confirmed", code=code_of(error) or None) from error
        await self._put_back()
        for key in self._forgotten:
            with suppress(StoreError):
                await self._forget(key)

    def _commit_in_thread(self, raw: sqlite3.Connection) -> None:
        """Our row, read again, proves that this is the transaction that the claim began. It costs 2 µs of 200."""
        self.lane.driver.close_cursors()
        if not raw.in_transaction or raw.execute(self._sql.is_there, self._key).fetchone() is None:
            if raw.in_transaction:
                raw.execute(ROLLBACK)
            raise Torn("the transaction that holds the claim had ended before the commit")
        try:
            raw.execute(COMMIT)
        except sqlite3.Error:
            if raw.in_transaction:
                raw.execute(ROLLBACK)
            raise

    async def _rollback(self) -> None:
        driver = self.lane.driver
        try:
            with self._answer():
                await driver.wait_idle()
                await driver.own(self._rollback_in_thread)
        except Exception:  # noqa: BLE001 - whatever it was, the connection is thrown away
            self._throw_away()
            return
        await self._put_back()

    def _rollback_in_thread(self, raw: sqlite3.Connection) -> None:
        self.lane.driver.close_cursors()
        if raw.in_transaction:
            raw.execute(ROLLBACK)

    def _give_back(self, reusable: bool) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.give_back()
        super()._give_back(reusable)

"""One delivery's transaction: the claim, the handler's statements, the commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from inbox.adapters.embedded import clock
from inbox.adapters.embedded.classify import DUPLICATE_KEY, code_of, translated
from inbox.adapters.embedded.guard import UNIT, Guard
from inbox.adapters.embedded.statements import BEGIN, COMMIT, ROLLBACK, key_of
from inbox.adapters.embedded.turns import patiently
from inbox.core.records import Claim, InboxRecord
from inbox.errors import CommitUnknown, InboxError, StoreError, Torn
from inbox.units.verdict import Stage, judge_exception, judge_return, to_its_end
from inbox.units.view import View

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from inbox.adapters.embedded.lane import Lane
    from inbox.adapters.embedded.statements import UnitStatements
    from inbox.adapters.embedded.turns import Turns
    from inbox.core.event import Event
    from inbox.core.handler import Handler

#: Who uses the unit where no handler does.
_BLOCK: Final = "inbox.transaction"


class Unit:
    """`inbox.ports.UnitOfWork` on one lane.

    Args:
        lane: its connection, between two units.
        statements: the framework's own SQL.
        turns: whose turn it is to write.
        lock_wait: seconds to wait for that, and for other processes.
        deadline: seconds that COMMIT and ROLLBACK may take before they count as unanswered.
        forget: deletes the attempt counts of a key, which lie in another file.
        done: called exactly once, with the lane and whether it may run another unit. Where not, it has been discarded.
            Called on the event loop, must not block or raise.
    """

    def __init__(  # noqa: PLR0917 - made in one place, from what the store has
        self,
        lane: Lane,
        statements: UnitStatements,
        turns: Turns,
        lock_wait: float,
        deadline: float,
        forget: Callable[[bytes], Awaitable[None]],
        done: Callable[[Lane, bool], None],
    ) -> None:
        self.lane = lane
        self._sql = statements
        self._turns = turns
        self._has_turn = False
        self._lock_wait = lock_wait
        self._deadline = deadline
        self._forget = forget
        self._forgotten: list[bytes] = []
        self._done = done
        self._stage = Stage.BEGUN
        self._key = (b"", b"")
        self._view = View(lane, lane.driver.guard)

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

    # -------------------------------------------------------------- the handler
    async def apply(self, handler: Handler, event: Event, prepared: object) -> None:
        """See `inbox.ports.UnitOfWork.apply`."""
        async with self._guarded(handler.name):
            await self._view.call(handler, event, prepared)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """See `inbox.ports.UnitOfWork.session`."""
        async with self._guarded(_BLOCK), self._view.session() as session:
            yield session

    @asynccontextmanager
    async def _guarded(self, name: str) -> AsyncIterator[None]:
        """Let the block use the unit, then judge what it did. `name` stands in messages."""
        self._expect(Stage.CLAIMED)
        self._stage = Stage.FAILED
        guard = self.lane.driver.guard
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        carried = UNIT.set(guard.start(name))
        try:
            yield
            self._look_after(guard)
            cancelled = task is not None and task.cancelling() > cancelled_before
            judge_return(guard, name, cancelled=cancelled)
        except BaseException as error:  # noqa: BLE001 - judged, and always raised
            cancelled = task is not None and task.cancelling() > cancelled_before
            judge_exception(guard, name, error, cancelled=cancelled)
        finally:
            UNIT.reset(carried)
            guard.stop()
        self._stage = Stage.APPLIED

    def _look_after(self, guard: Guard) -> None:
        """See what the handler left on its connection, and doom the unit where it cannot go on from there."""
        if self.lane.driver.is_busy:
            guard.tripped = True
            guard.undo("returned while a task of its own was waiting for a statement: await its tasks first")
        if not self.lane.is_whole:
            guard.tripped = True
            guard.undo("closed the unit's connection")

    async def forget(self, key: bytes) -> None:
        """See `inbox.ports.UnitOfWork.forget`.

        The counts lie in another file, so that they can be written while this unit writes. They are deleted behind the
        commit; where the process dies in between, the duplicate that comes for it deletes them.
        """
        self._expect(Stage.CLAIMED, Stage.APPLIED)
        self._forgotten.append(key)

    # -------------------------------------------------------------- the end
    async def commit(self) -> None:
        """See `inbox.ports.UnitOfWork.commit`."""
        self._expect(Stage.CLAIMED, Stage.APPLIED)
        self._stage = Stage.OVER
        await to_its_end(self._commit())

    async def _commit(self) -> None:
        try:
            async with asyncio.timeout(self._deadline):
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

    async def rollback(self) -> None:
        """See `inbox.ports.UnitOfWork.rollback`."""
        self._expect(Stage.BEGUN, Stage.CLAIMED, Stage.FAILED, Stage.APPLIED)
        self._stage = Stage.OVER
        guard = self.lane.driver.guard
        if guard.token is not None:
            # A handler that was given up still runs. It may send nothing more; and when it comes back, it ends whatever
            # unit runs on its connection then: there must be none.
            guard.stop()
            guard.tripped = True
        await to_its_end(self._rollback())

    async def _rollback(self) -> None:
        driver = self.lane.driver
        try:
            async with asyncio.timeout(self._deadline):
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

    async def _put_back(self) -> None:
        """Give the lane back after an answered COMMIT or ROLLBACK; close it where a next unit could see this one."""
        reusable = self._view.end() and self.lane.driver.guard.leaves_nothing and self.lane.driver.is_open
        if not reusable:
            await self.lane.close()
        self._give_back(reusable)

    def _throw_away(self) -> None:
        self._view.end()
        self.lane.discard()
        self._give_back(False)

    def _give_back(self, reusable: bool) -> None:
        self._stage = Stage.OVER
        if self._has_turn:
            self._has_turn = False
            self._turns.give_back()
        self._done(self.lane, reusable)

    def _expect(self, *stages: Stage) -> None:
        if self._stage not in stages:
            raise RuntimeError(f"a unit that is {self._stage.value} cannot do this")

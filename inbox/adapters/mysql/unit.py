"""One delivery's transaction: the claim, the handler's statements, the commit."""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING, Final

from inbox.adapters.mysql.classify import facts, translated
from inbox.adapters.mysql.lane import kill_session
from inbox.core.records import Claim, InboxRecord
from inbox.errors import CommitUnknown, Contended, InboxError, Torn
from inbox.units.unit import LaneUnit
from inbox.units.verdict import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from inbox.adapters.mysql.drivers import Rows
    from inbox.adapters.mysql.lane import Lane
    from inbox.adapters.mysql.statements import UnitStatements
    from inbox.config import DatabaseSettings
    from inbox.units.limits import TimeLimit

_DUPLICATE_KEY: Final = 1062
_NO_SUCH_SAVEPOINT: Final = 1305
#: Names no procedure can know beforehand; begins as `screen.OWN_SAVEPOINT`.
_SAVEPOINTS: Final = (f"inbox_{secrets.token_hex(4)}_{number}" for number in itertools.count())


class Unit(LaneUnit["Lane"]):
    """`inbox.ports.UnitOfWork` on one lane.

    Args:
        lane: its connection, between two units.
        engine: where a fresh connection for a KILL comes from.
        statements: the framework's own SQL.
        settings: CALL, pipelining.
        answer, done: see `LaneUnit`.
    """

    def __init__(  # noqa: PLR0917 - made in one place, from what the store has
        self,
        lane: Lane,
        engine: AsyncEngine,
        statements: UnitStatements,
        settings: DatabaseSettings,
        answer: Callable[[], TimeLimit],
        done: Callable[[Lane, bool], None],
    ) -> None:
        super().__init__(lane, answer, done)
        self._engine = engine
        self._sql = statements
        self._settings = settings
        self._consumer = ""
        self._savepoint: str | None = None

    # -------------------------------------------------------------- the claim
    async def claim(self, record: InboxRecord) -> Claim:
        """See `inbox.ports.UnitOfWork.claim`."""
        self._expect(Stage.BEGUN)
        self._consumer = record.consumer
        try:
            await self.lane.driver.own_done(self._sql.insert(record))
            if self._settings.allow_call:
                self._savepoint = next(_SAVEPOINTS)
                await self.lane.driver.own_done(f"SAVEPOINT {self._savepoint}".encode())
        except Exception as error:
            # Only the insert can meet a duplicate key; its table has no other unique key.
            if facts(error)[0] == _DUPLICATE_KEY:
                return await self._recognise(record)
            raise translated(error, "claiming the event") from error
        self._stage = Stage.CLAIMED
        return Claim.NEW

    async def _recognise(self, record: InboxRecord) -> Claim:
        """Read what is stored under the id, and end the transaction: its failed insert left a shared lock."""
        rows: Rows | Exception = [(None, None)]
        failure: Exception | None = None
        try:
            if record.fingerprint is None:
                await self.lane.driver.own_done(b"ROLLBACK")
            else:
                rows, failure = await self.lane.driver.own_pair(
                    self._sql.fingerprint(record), b"ROLLBACK", pipelined=self._settings.pipelined_duplicates
                )
        except Exception as error:
            raise translated(error, "ending a duplicate's transaction") from error
        if isinstance(rows, Exception):
            raise translated(rows, "reading a duplicate's fingerprint") from rows
        if failure is not None:
            raise translated(failure, "ending a duplicate's transaction") from failure
        if not rows:
            raise Contended("the row of a duplicate vanished before it could be read")
        self._give_back(True)
        return Claim.CONFLICT if record.contradicts(*rows[0]) else Claim.DUPLICATE

    # -------------------------------------------------------------- the handler
    async def _drain(self) -> None:
        if self.lane.driver.is_unread:
            await self.lane.driver.drain()

    async def forget(self, key: bytes) -> None:
        """See `inbox.ports.UnitOfWork.forget`."""
        self._expect(Stage.CLAIMED, Stage.APPLIED)
        try:
            await self.lane.driver.own(self._sql.forget(self._consumer, key))
        except Exception as error:
            self._stage = Stage.FAILED
            raise translated(error, "deleting the attempt counts") from error

    # -------------------------------------------------------------- the end
    async def _commit(self) -> None:
        try:
            with self._answer():
                if self._savepoint is not None:
                    await self._release(self._savepoint)
                # Nobody waits for what is done while the server is at work.
                await self.lane.driver.own_done(b"COMMIT", meanwhile=self._end_view)
        except BaseException as error:
            # Closed before anybody asks what became of it: an open session could still be committing.
            self._throw_away()
            if isinstance(error, InboxError) or not isinstance(error, Exception):
                raise
            raise CommitUnknown("COMMIT was not confirmed", code=facts(error)[0] or None) from error
        await self._put_back()

    async def _release(self, savepoint: str) -> None:
        """Release the savepoint that was set behind the claim: where it is gone, so is the transaction it was in.

        It is answered before COMMIT is sent: together they would commit what comes after a procedure's own COMMIT.
        """
        try:
            await self.lane.driver.own_done(f"RELEASE SAVEPOINT {savepoint}".encode())
        except Exception as error:
            if facts(error)[0] == _NO_SUCH_SAVEPOINT:
                raise Torn("a stored procedure ended the unit's transaction from inside", code=1305) from error
            raise

    async def _rollback(self) -> None:
        driver = self.lane.driver
        try:
            if driver.is_open and not driver.is_busy and not driver.is_doubtful:
                with self._answer():
                    await driver.own_done(b"ROLLBACK")
                await self._put_back()
                return
        except Exception:  # noqa: BLE001, S110 - whatever it was, the connection is thrown away
            pass
        # What the server still does for the old session holds the claim's lock against the next run.
        at_work = driver.is_busy or driver.is_doubtful
        self.lane.discard()
        try:
            if at_work:
                await kill_session(self._engine, self.lane.session)
        finally:
            self._throw_away()

"""Several deliveries' transaction in the file: row after row, for a statement costs no round trip."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from typing import TYPE_CHECKING, Final

from inbox.adapters.embedded import clock
from inbox.adapters.embedded.classify import DUPLICATE_KEY, code_of, translated
from inbox.adapters.embedded.statements import BEGIN, ROLLBACK, key_of
from inbox.adapters.embedded.turns import patiently
from inbox.adapters.embedded.unit import Unit
from inbox.core.records import Claim, InboxRecord
from inbox.errors import Contended
from inbox.units.verdict import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Where the running handler's part of the transaction begins.
_MARK: Final = f"SAVEPOINT inbox_{secrets.token_hex(8)}"

__all__ = ["BatchUnit"]


class BatchUnit(Unit):
    """A unit that may claim several records at once. See `Unit`."""

    async def claim_all(self, records: Sequence[InboxRecord]) -> list[Claim]:
        """See `inbox.ports.UnitOfWork.claim_all`."""
        self._expect(Stage.BEGUN)
        self._is_batch = True
        self._key = key_of(records[0])
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._lock_wait
        await self._turns.take(self._lock_wait)
        self._has_turn = True
        try:
            claims = await patiently(
                lambda: self.lane.driver.own(lambda raw: self._insert_all(raw, records)), ends - loop.time()
            )
        except (sqlite3.Error, ValueError) as error:
            raise translated(error, "claiming a batch") from error
        if claims is None:
            self._stage = Stage.CLAIMED
            return [Claim.NEW] * len(records)
        if all(claim is Claim.NEW for claim in claims):
            raise Contended("the row of a duplicate vanished before it could be read")
        self._give_back(True)
        return claims

    def _insert_all(self, raw: sqlite3.Connection, records: Sequence[InboxRecord]) -> list[Claim] | None:
        """In the connection's thread: None where all are inserted, else what is known, and nothing is open."""
        raw.execute(BEGIN)
        try:
            for record in records:
                values = (*key_of(record), record.fingerprint, record.scheme, clock.stamp())
                raw.execute(self._sql.insert, values)
        except sqlite3.Error as error:
            if raw.in_transaction:
                raw.execute(ROLLBACK)
            if code_of(error) != DUPLICATE_KEY:
                raise
            # Outside of the transaction, which holds rows of its own: what is found now was committed.
            return [self._found(raw, record) for record in records]
        raw.execute(_MARK)
        return None

    async def _drain(self) -> None:
        """Release what the handler left open: a neighbour's ROLLBACK TO must not find its savepoints, nor undo it."""
        if not self._is_batch:
            return
        try:
            await self.lane.driver.own(_mark_anew)
        except sqlite3.Error as error:
            raise translated(error, "ending a handler's part of a batch") from error

    def _found(self, raw: sqlite3.Connection, record: InboxRecord) -> Claim:
        row = raw.execute(self._sql.fingerprint, key_of(record)).fetchone()
        if row is None:
            return Claim.NEW
        return Claim.CONFLICT if record.contradicts(*row) else Claim.DUPLICATE


def _mark_anew(raw: sqlite3.Connection) -> None:
    """RELEASE takes with it every savepoint that was set later (sqlite.org/lang_savepoint.html)."""
    raw.execute(f"RELEASE {_MARK}")
    raw.execute(_MARK)

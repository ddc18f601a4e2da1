"""Several deliveries' transaction: one insert claims them all, or one locking read says which are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from inbox.adapters.mysql.classify import facts, translated
from inbox.adapters.mysql.statements import UnitStatements, literal
from inbox.adapters.mysql.unit import Unit
from inbox.core.records import Claim, InboxRecord
from inbox.errors import Contended
from inbox.units.verdict import Stage
from inbox.units.view import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbox.adapters.mysql.lane import Lane
    from inbox.units import guard

__all__ = ["BatchUnit"]

_DUPLICATE_KEY: Final = 1062
#: A procedure that commits would publish every claim of a batch, those of handlers that never ran among them.
WHY_NO_CALL: Final = "DatabaseSettings.allow_call is set: a procedure that commits would commit for its neighbours too"


class _JointView(View):
    """What the handlers of a batch see, one after the other. See `View`."""

    def __init__(self, lane: Lane, guard: guard.Guard) -> None:
        super().__init__(lane, guard)
        self._its_lane = lane

    def is_fit_for_next(self) -> bool:
        """Whether nothing needs to be ended before the next handler: the one before had the connection itself, and has
        left SQLAlchemy's transaction as it was.
        """
        return self._session is None and self._its_lane.keeps_transaction()


class BatchUnit(Unit):
    """A unit that may claim several records at once. See `Unit`."""

    def __init__(self, lane: Lane, *settings: Any) -> None:
        super().__init__(lane, *settings)
        self._view = self._joint = _JointView(lane, lane.driver.guard)

    async def claim_all(self, records: Sequence[InboxRecord]) -> list[Claim]:
        """See `inbox.ports.UnitOfWork.claim_all`.

        Sorted by key: two workers whose batches overlap take the locks in one order, so that one waits for the other
        and neither is a dead-lock's victim.
        """
        self._expect(Stage.BEGUN)
        if self._settings.allow_call:
            raise Contended(WHY_NO_CALL)
        self._is_batch = True
        self._consumer = records[0].consumer
        ordered = sorted(records, key=lambda record: record.key)
        try:
            await self.lane.driver.own_done(self._sql.insert(*ordered))
        except Exception as error:
            # Only the insert can meet a duplicate key; its table has no other unique key.
            if facts(error)[0] == _DUPLICATE_KEY:
                return await self._recognise_all(records, ordered)
            raise translated(error, "claiming a batch") from error
        self._stage = Stage.CLAIMED
        self.lane.driver.guard.savepoints = set()
        return [Claim.NEW] * len(records)

    def _clear_for_next(self, guard: guard.Guard) -> None:
        if guard.leaves_nothing and self.lane.driver.is_open and self._joint.is_fit_for_next():
            self._stage = Stage.CLAIMED
        else:
            super()._clear_for_next(guard)
        self.lane.driver.guard.savepoints = set()

    def _give_back(self, reusable: bool) -> None:
        self.lane.driver.guard.savepoints = None
        super()._give_back(reusable)

    async def _recognise_all(self, records: Sequence[InboxRecord], ordered: Sequence[InboxRecord]) -> list[Claim]:
        """Undo first, so that nobody waits for rows that are given up while this waits for theirs; then read.

        A shared lock waits for a racing worker's commit and sees it, which a plain read would not. ROLLBACK behind it
        lets go of the locks.
        """
        driver = self.lane.driver
        try:
            await driver.own_done(b"ROLLBACK")
            rows, failure = await driver.own_pair(
                find_all(self._sql, ordered), b"ROLLBACK", pipelined=self._settings.pipelined_duplicates
            )
        except Exception as error:
            raise translated(error, "ending a batch with known events") from error
        if isinstance(rows, Exception):
            raise translated(rows, "reading which events are known") from rows
        if failure is not None:
            raise translated(failure, "ending a batch with known events") from failure
        stored = {bytes(key): (fingerprint, scheme) for key, fingerprint, scheme in rows}
        claims = [_claim(record, stored) for record in records]
        if all(claim is Claim.NEW for claim in claims):
            raise Contended("the row of a duplicate vanished before it could be read")
        self._give_back(True)
        return claims


def _claim(record: InboxRecord, stored: dict[bytes, tuple[bytes | None, int | None]]) -> Claim:
    if record.key not in stored:
        return Claim.NEW
    return Claim.CONFLICT if record.contradicts(*stored[record.key]) else Claim.DUPLICATE


def find_all(sql: UnitStatements, records: Sequence[InboxRecord]) -> bytes:
    """What is stored under these keys, as soon as nobody else holds them.

    Through the primary key alone: over a small table the server would read it all, and wait for every row in it.
    LOCK IN SHARE MODE is the spelling that both servers take.
    """
    keys = ", ".join(literal(record.key) for record in records)
    return (
        f"SELECT event_id, fingerprint, fingerprint_scheme FROM {sql.inbox} FORCE INDEX (PRIMARY) "  # noqa: S608 - names checked when made, and literals
        f"WHERE consumer_name = {literal(records[0].consumer.encode())} AND event_id IN ({keys}) LOCK IN SHARE MODE"
    ).encode()

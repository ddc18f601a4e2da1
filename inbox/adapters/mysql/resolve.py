"""Whether a commit took place that was sent and not answered.

The question is a *locking* read on another connection: as long as the old session lives, its transaction may still
commit, and then it holds the row, so that the question waits. A plain read would say "absent" while the old session
is still committing.

A shared lock waits for the old session's just as an exclusive one would, and asks for less: a read-only server refuses
FOR UPDATE (error 1290, both servers), just when many commits go unanswered, and MySQL asks for the right to write as
well (MySQL manual, "SELECT Statement"). LOCK IN SHARE MODE is the spelling that both servers take.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from inbox.adapters.mysql.side import AdHoc, Statement, Wire
from inbox.core.facts import fact
from inbox.core.records import InboxRecord, Resolution
from inbox.errors import StoreError
from inbox.tables import InboxTables, qualified

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from inbox.adapters.mysql.engine import ServerSession

__all__ = ["Resolver", "probe"]

_log = logging.getLogger(__name__)

_PROBE: Final = """\
SELECT fingerprint, fingerprint_scheme
  FROM {inbox}
 WHERE consumer_name = %s AND event_id = %s
  LOCK IN SHARE MODE"""

_LOCK_WAIT: Final = 1205


def probe(tables: InboxTables, record: InboxRecord) -> Statement:
    """The question: the record's row, as soon as nobody holds it."""
    sql = _PROBE.format(inbox=qualified(tables.names.inbox, tables.database))
    return Statement(sql, (record.consumer.encode(), record.key))


def _repeated() -> AsyncRetrying:
    """A few tries: whatever cut the old connection may cut the first ones of the new."""
    return AsyncRetrying(
        retry=retry_if_exception_type(StoreError),
        stop=stop_after_attempt(3),
        wait=wait_random_exponential(multiplier=0.1, max=1),
        reraise=True,
    )


@dataclass(frozen=True, slots=True)
class Resolver:
    """Answers what became of a commit.

    Args:
        adhoc: where connections for the question come from.
        kill: ends a session that is proved to be ours; says whether it is gone.
        tables: whose inbox to ask.
        patience: seconds that an answer may take in all, waiting for a connection included.
    """

    adhoc: AdHoc
    kill: Callable[[ServerSession], Awaitable[bool]]
    tables: InboxTables
    patience: float

    async def resolve(self, record: InboxRecord, old: ServerSession | None) -> Resolution:
        """What became of the commit of `record`. Never raises, but for cancellation.

        Args:
            record: what was claimed.
            old: the session that sent the COMMIT; None where it is not known, which rules out killing it.

        Returns:
            COMMITTED where the row is there; ABSENT where it is not, and nobody holds it; UNRESOLVED where the
            database cannot be asked in time, or another session holds the row that cannot be shown to be ours.
            A row with another fingerprint belongs to another event, so that this one's commit did not happen: ABSENT.
        """
        try:
            async with asyncio.timeout(self.patience):
                async for attempt in _repeated():
                    with attempt:
                        async with self.adhoc.connected() as wire:
                            return await self._ask(wire, record, old)
        except Exception as error:  # noqa: BLE001 - whatever stands in the way of an answer, there is none
            name = type(error).__name__
            _log.warning("could not ask what became of a commit: %s", name, extra=fact("commit-not-asked", error=name))
        return Resolution.UNRESOLVED

    async def _ask(self, wire: Wire, record: InboxRecord, old: ServerSession | None) -> Resolution:
        found = await self._probe(wire, record)
        if found is Resolution.UNRESOLVED and old is not None and await self.kill(old):
            found = await self._probe(wire, record)
        return found

    async def _probe(self, wire: Wire, record: InboxRecord) -> Resolution:
        try:
            answer = await wire.run(probe(self.tables, record))
        except StoreError as error:
            if error.code == _LOCK_WAIT:
                return Resolution.UNRESOLVED
            raise
        if not answer.rows or record.contradicts(*answer.rows[0]):
            return Resolution.ABSENT
        return Resolution.COMMITTED

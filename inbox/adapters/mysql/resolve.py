"""Whether a commit took place that was sent and not answered.

The question is a *locking* read on another connection: as long as the old session lives, its transaction may still
commit, and then it holds the row, so that the question waits. A plain read would say "absent" while the old session
is still committing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from inbox.adapters.mysql.side import AdHoc, Statement, Wire
from inbox.core.records import InboxRecord, Resolution
from inbox.errors import InboxError, StoreError
from inbox.tables import InboxTables, qualified

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["OldSession", "Resolver", "may_kill"]

_PROBE: Final = """\
SELECT fingerprint, fingerprint_scheme
  FROM {inbox}
 WHERE consumer_name = %s AND event_id = %s
   FOR UPDATE"""

# MySQL's tables about sessions moved between versions and may be off; this form is on every server, and without the
# PROCESS privilege it shows the user's own sessions, which are the ones it is about.
_PROCESSES: Final = "SHOW PROCESSLIST"

_LOCK_WAIT: Final = 1205
_NO_SUCH_SESSION: Final = 1094


def _repeated() -> AsyncRetrying:
    """A few tries: whatever cut the old connection may cut the first ones of the new."""
    return AsyncRetrying(
        retry=retry_if_exception_type(StoreError),
        stop=stop_after_attempt(3),
        wait=wait_random_exponential(multiplier=0.1, max=1),
        reraise=True,
    )


@dataclass(frozen=True, slots=True)
class OldSession:
    """The session whose COMMIT was not answered.

    Attributes:
        session_id: the server's number for it.
        local_port: the port at our end of its connection; 0 over a UNIX socket.
    """

    session_id: int
    local_port: int


@dataclass(frozen=True, slots=True)
class Resolver:
    """Answers what became of a commit.

    Args:
        adhoc: where connections for the question come from.
        tables: whose inbox to ask.
        patience: seconds that an answer may take in all, waiting for a connection included.
    """

    adhoc: AdHoc
    tables: InboxTables
    patience: float

    async def resolve(self, record: InboxRecord, old: OldSession | None) -> Resolution:
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
        except (InboxError, TimeoutError):
            pass
        return Resolution.UNRESOLVED

    async def _ask(self, wire: Wire, record: InboxRecord, old: OldSession | None) -> Resolution:
        found = await self._probe(wire, record)
        if found is Resolution.UNRESOLVED and old is not None and await _kill(wire, old):
            found = await self._probe(wire, record)
        return found

    async def _probe(self, wire: Wire, record: InboxRecord) -> Resolution:
        sql = _PROBE.format(inbox=qualified(self.tables.names.inbox, self.tables.database))
        try:
            answer = await wire.run(Statement(sql, (record.consumer.encode(), record.key)))
        except StoreError as error:
            if error.code == _LOCK_WAIT:
                return Resolution.UNRESOLVED
            raise
        if not answer.rows or record.contradicts(*answer.rows[0]):
            return Resolution.ABSENT
        return Resolution.COMMITTED


def may_kill(processes: Iterable[Mapping[str, object]], old: OldSession, asking: OldSession) -> bool:
    """Whether the process list proves that a session is the one that we have lost.

    The number alone proves nothing: behind a proxy, or after a fail-over, it may be a stranger's. So the list must
    show the old session with our host and the port that our old connection had. What the server calls our host (a
    number, or a name that it looked up) is read from the session that asks, which must itself be shown with the port
    at our end: it is not where addresses are translated on the way.

    Args:
        processes: `Id` and `Host` of each session, as `SHOW PROCESSLIST` names them.
        old: the lost session.
        asking: the session that asked.
    """
    shown = {int(str(row["Id"])): str(row["Host"]) for row in processes}
    our_host, asking_port = _address(shown.get(asking.session_id, ""))
    old_host, old_port = _address(shown.get(old.session_id, ""))
    is_direct = asking_port != 0 and asking_port == asking.local_port
    return is_direct and old_host == our_host and old_port != 0 and old_port == old.local_port


def _address(shown: str) -> tuple[str, int]:
    """Host and port of `host:port`; the port is 0 where there is none."""
    host, _, port = shown.rpartition(":")
    return host, int(port) if port.isdigit() else 0


async def _kill(wire: Wire, old: OldSession) -> bool:
    """End `old` where it is proved to be ours; whether it is gone, or on its way."""
    answer = await wire.run(Statement(_PROCESSES))
    processes = [dict(zip(("Id", "User", "Host"), row, strict=False)) for row in answer.rows]
    if not may_kill(processes, old, OldSession(wire.session_id, wire.local_port)):
        return False
    try:
        await wire.run(Statement(f"KILL {old.session_id:d}"))
    except StoreError as error:
        return error.code == _NO_SUCH_SESSION
    return True

"""One delivery's transaction: the claim, the handler's statements, the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncEngine

    from inbox.adapters.mysql.engine import Lane
    from inbox.adapters.mysql.statements import UnitStatements
    from inbox.config import DatabaseSettings
    from inbox.core.event import Event
    from inbox.core.handler import Handler
    from inbox.core.records import Claim, InboxRecord


class Unit:
    """`inbox.ports.UnitOfWork` on one lane.

    Args:
        lane: its connection, between two units.
        engine: where a fresh connection for a KILL comes from.
        statements: the framework's own SQL.
        settings: CALL, pipelining, lock wait.
        deadline: seconds that COMMIT and ROLLBACK may take before they count as unanswered.
        done: called exactly once, with the lane and whether it may run another unit. Where not, it
            has been closed. Called on the event loop, must not block or raise.
    """

    def __init__(
        self,
        lane: Lane,
        engine: AsyncEngine,
        statements: UnitStatements,
        settings: DatabaseSettings,
        deadline: float,
        done: Callable[[Lane, bool], None],
    ) -> None:
        self.lane = lane

    async def claim(self, record: InboxRecord) -> Claim:
        """See `inbox.ports.UnitOfWork.claim`."""
        raise NotImplementedError

    async def apply(self, handler: Handler, event: Event, prepared: object) -> None:
        """See `inbox.ports.UnitOfWork.apply`."""
        raise NotImplementedError

    async def forget(self, key: bytes) -> None:
        """See `inbox.ports.UnitOfWork.forget`."""
        raise NotImplementedError

    async def commit(self) -> None:
        """See `inbox.ports.UnitOfWork.commit`."""
        raise NotImplementedError

    async def rollback(self) -> None:
        """See `inbox.ports.UnitOfWork.rollback`."""
        raise NotImplementedError

"""What a handler sees of its unit: one of three faces of the same transaction."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from sqlalchemy.ext.asyncio import AsyncSession

from inbox.core.handler import Face
from inbox.units.session import UnitSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.engine import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from inbox.core.event import Event
    from inbox.core.handler import Handler
    from inbox.units.guard import Guard


class ViewedLane(Protocol):
    """What is needed of a unit's connection."""

    @property
    def connection(self) -> AsyncConnection:
        """SQLAlchemy's view of it."""
        ...

    @property
    def sync(self) -> Connection:
        """SQLAlchemy's synchronous connection; good for what does no I/O."""
        ...

    def leave_transaction(self) -> bool:
        """Make SQLAlchemy's own transaction objects fit for the next unit, and send nothing.

        Returns:
            Whether the next unit finds everything as the last one did.
        """
        ...


class View:
    """The face that one handler gets, for the time it runs.

    Args:
        lane: the unit's connection.
        guard: its doorkeeper.
    """

    def __init__(self, lane: ViewedLane, guard: Guard) -> None:
        self._lane = lane
        self._guard = guard
        self._session: UnitSession | None = None

    async def call(self, handler: Handler, event: Event, prepared: object) -> None:
        """Run the handler and finish what it left unfinished: pending changes, open savepoints.

        Each way into SQLAlchemy's asyncio layer costs a greenlet, so nothing is finished that needs none.

        Raises:
            Exception: the handler's, or the flush's.
        """
        if handler.face is Face.SESSION:
            async with self.session() as session:
                await handler.function(*handler.arguments(event, session, prepared))
        elif handler.face is Face.CONNECTION:
            await self._with_connection(handler, event, prepared)
        else:
            self._begin()
            await self._lane.connection.run_sync(self._with_sync_session, handler, event, prepared)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """The unit as an `AsyncSession`, for a block; finishes what it left unfinished when it ends normally."""
        self._begin()
        session = AsyncSession(self._lane.connection, sync_session_class=UnitSession, **self._settings())
        inner = cast("UnitSession", session.sync_session)
        self._session = inner
        yield session
        if inner.has_leftovers:
            await session.run_sync(lambda _: inner.finish())

    async def _with_connection(self, handler: Handler, event: Event, prepared: object) -> None:
        self._begin()
        connection = self._lane.connection
        await handler.function(*handler.arguments(event, connection, prepared))
        while (nested := connection.get_nested_transaction()) is not None:
            await nested.commit()

    def _with_sync_session(self, connection: Connection, handler: Handler, event: Event, prepared: object) -> None:
        self._session = UnitSession(connection, **self._settings())
        handler.function(*handler.arguments(event, self._session, prepared))
        if self._session.has_leftovers:
            self._session.finish()

    def _begin(self) -> None:
        # Sends nothing: the transaction began with the claim. SQLAlchemy's may be there from the last unit.
        if not self._lane.sync.in_transaction():
            self._lane.sync.begin()

    def _settings(self) -> dict[str, Any]:
        # Attributes stay readable after `commit()`, which ends nothing; expired ones would be read again from the
        # database, which an AsyncSession cannot do on attribute access (SQLAlchemy manual, "Preventing Implicit IO").
        return {"guard": self._guard, "expire_on_commit": False}

    def end(self) -> bool:
        """The transaction is over on the server: end what the handler saw of it too, and send nothing.

        Returns:
            Whether the next unit finds the connection as this one did.
        """
        clean = self._lane.leave_transaction()
        if self._session is not None:
            self._session.end()
        return clean

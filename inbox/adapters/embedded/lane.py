"""Lanes: connections that are kept across units, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from inbox.adapters.embedded.classify import translated
from inbox.adapters.embedded.connection import FileConnection
from inbox.adapters.embedded.guard import UNIT, Door, Guard, outside_units
from inbox.adapters.embedded.turns import patiently
from inbox.errors import InboxError, UnitMisused

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Lane", "make_engine", "open_lane", "wait_closed"]

#: Closings under way, of all lanes: a task that nobody holds may be collected.
_CLOSING: Final[set[asyncio.Task[None]]] = set()


class Lane:
    """One connection that runs one unit after the other. Made by `open_lane`.

    Args:
        connection: SQLAlchemy's view of it.
        driver: the guarded connection below it; `own()` runs the framework's work.
    """

    def __init__(self, connection: AsyncConnection, driver: FileConnection) -> None:
        self.connection = connection
        self.driver = driver
        self._options = self.sync.get_execution_options()

    @property
    def sync(self) -> Connection:
        """SQLAlchemy's synchronous connection; good for what does no I/O."""
        return cast("Connection", self.connection.sync_connection)

    @property
    def is_stale(self) -> bool:
        """Whether it is closed: nothing else makes a file's connection old."""
        return not self.driver.is_open

    @property
    def is_whole(self) -> bool:
        """Whether SQLAlchemy's view is still of this connection, as it was at first."""
        return not self.sync.closed and not self.sync.invalidated and self.driver.is_open

    def leave_transaction(self) -> bool:
        """End SQLAlchemy's own transaction objects, and send nothing.

        Returns:
            Whether the next unit finds everything as the last one did.
        """
        if not self.is_whole:
            return False
        transaction = self.sync.get_transaction()
        if transaction is not None:
            # The unit may have run inside of another unit's handler, whose token is none of ours.
            with outside_units():
                transaction.close()
        self.sync.info.clear()
        # A handler's `execution_options()` change the connection in place (SQLAlchemy manual).
        return self.sync.get_execution_options() is self._options

    def discard(self) -> None:
        """Close in the background: what it left open is undone as soon as its thread comes back. Never raises."""
        self.driver.guard.door = Door.SHUT
        self.driver.interrupt_now()
        task = asyncio.ensure_future(self.close())
        _CLOSING.add(task)
        task.add_done_callback(_CLOSING.discard)

    async def close(self) -> None:
        """Close. May be called twice; never raises a driver's error."""
        await self.driver.finish()
        with outside_units():
            with contextlib.suppress(Exception):
                if not self.sync.closed and not self.sync.invalidated:
                    await self.connection.invalidate()
            with contextlib.suppress(Exception):
                await self.connection.close()


async def wait_closed(patience: float) -> None:
    """Return when the lanes that were discarded are closed, or after so many seconds."""
    if _CLOSING:
        await asyncio.wait(_CLOSING, timeout=patience)


def make_engine(path: Path, inbox: str, lock_wait: float) -> AsyncEngine:
    """The engine that lanes come from. Connects to nothing yet; its connections are never pooled.

    Args:
        path: the file, which must be there by then.
        inbox: name of the inbox table, which a handler must not write.
        lock_wait: seconds to wait where the file is locked: its last user writes the log back, or the next one
            recovers what a dead one left (sqlite.org/wal.html).
    """

    async def connect(*_: Any, **__: Any) -> FileConnection:
        token = UNIT.get()
        if token is not None:
            token.guard.undo("opened another connection of the unit's engine: its work would not be part of the unit")
            raise UnitMisused("a second connection of the unit's engine", handler=token.handler)
        return await patiently(lambda: FileConnection(path, Guard(inbox)).connected(), lock_wait)

    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        poolclass=NullPool,
        pool_reset_on_return=None,
        hide_parameters=True,
        connect_args={"async_creator_fn": connect},
    )
    _let_rollbacks_be_noted(engine)
    return engine


def _let_rollbacks_be_noted(engine: AsyncEngine) -> None:
    """Answer SQLAlchemy's rollbacks on a guarded connection at once: no way to its thread, and no greenlet.

    `do_rollback` is the dialect's documented hook. With it SQLAlchemy's own transaction objects can be closed at the
    end of a unit from ordinary code.
    """
    dialect: Any = engine.sync_engine.dialect
    send = dialect.do_rollback

    def do_rollback(connection: Any) -> None:
        driver: FileConnection = connection.driver_connection
        if driver.guard.door is Door.OPEN:
            send(connection)
        else:
            driver.guard.note_rollback()

    dialect.do_rollback = do_rollback


async def open_lane(engine: AsyncEngine) -> Lane:
    """Connect one lane; from here on its connection lets nothing through but units and `own()`.

    Raises:
        Contended, StoreUnavailable: the file cannot be opened now.
    """
    with outside_units():
        try:
            connection = await engine.connect()
        except InboxError:
            raise
        except (DBAPIError, sqlite3.Error, OSError, ValueError) as error:
            raise translated(error, "opening the database file") from error
        raw = await connection.get_raw_connection()
    driver = cast("FileConnection", raw.driver_connection)
    driver.guard.door = Door.KEPT
    return Lane(connection, driver)

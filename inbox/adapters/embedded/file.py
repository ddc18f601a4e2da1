"""A file that is read and written in short transactions, by one task at a time: what is not a unit's."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, TypeVar

from inbox.adapters.embedded.classify import translated
from inbox.adapters.embedded.statements import BEGIN, COMMIT, ROLLBACK
from inbox.adapters.embedded.turns import patiently
from inbox.errors import InboxError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from inbox.adapters.embedded.connection import FileConnection

__all__ = ["PlainFile", "in_transaction"]

T = TypeVar("T")


class PlainFile:
    """One connection, opened when it is first needed, and anew when it was lost.

    Args:
        connect: makes a connection, not yet open.
        patience: seconds to wait until nobody else writes, and as many again until the answer is there.
    """

    def __init__(self, connect: Callable[[], FileConnection], patience: float) -> None:
        self._connect = connect
        self._patience = patience
        self._lock = asyncio.Lock()
        self._connection: FileConnection | None = None

    async def write(self, work: Callable[[sqlite3.Connection], T], what: str) -> T:
        """Run `work` in a transaction of its own, durably.

        Args:
            work: runs in the connection's thread; what it raises undoes it.
            what: for the error's text.

        Raises:
            Contended, StoreUnavailable: it did not take place.
            InboxError: of `work`.
        """
        return await self._run(lambda raw: in_transaction(raw, work), what)

    async def read(self, work: Callable[[sqlite3.Connection], T], what: str) -> T:
        """Run `work`, which only reads: beside writers, and never waiting for one.

        Raises:
            Contended, StoreUnavailable: it could not.
        """
        return await self._run(work, what)

    async def close(self) -> None:
        """Close; a later use opens it again."""
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.finish()

    async def _run(self, work: Callable[[sqlite3.Connection], T], what: str) -> T:
        try:
            async with asyncio.timeout(2 * self._patience), self._lock:
                return await patiently(lambda: self._once(work), self._patience)
        except TimeoutError:
            raise StoreUnavailable(f"{what}: the file did not answer in time") from None
        except InboxError:
            raise
        except (sqlite3.Error, ValueError, OSError) as error:
            raise translated(error, what) from error

    async def _once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = await self._ready()
        try:
            return await connection.own(work)
        except asyncio.CancelledError:
            # It may be under way still: the next one must not find its transaction.
            self._connection = None
            await _to_its_end(connection.finish())
            raise

    async def _ready(self) -> FileConnection:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._connect().connected()
        return self._connection


def in_transaction(raw: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work` between BEGIN IMMEDIATE and COMMIT, in the connection's thread."""
    raw.execute(BEGIN)
    try:
        result = work(raw)
        raw.execute(COMMIT)
    except BaseException:
        if raw.in_transaction:
            raw.execute(ROLLBACK)
        raise
    return result


async def _to_its_end(work: Awaitable[None]) -> None:
    await asyncio.shield(asyncio.ensure_future(work))

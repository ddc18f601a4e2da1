"""Connections beside the lanes: one for attempts and quarantine, and short-lived ones for questions.

A unit that waited for a second connection from a pool whose connections all belong to units, while the others did the
same, would wait for ever. So what is written beside a unit goes over a connection that is nobody's unit's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from inbox.errors import Contended, StoreError, StoreUnavailable

__all__ = ["AdHoc", "Answer", "Side", "Statement", "Wire"]


@dataclass(frozen=True, slots=True, repr=False)
class Statement:
    """One statement and its parameters, each in place of a `%s`.

    Bytes and text travel as hexadecimal literals: exact octets whatever the session's character set and SQL mode, and
    nothing in them can end the literal. Both servers take them (MySQL manual, "Hexadecimal Literals").
    """

    sql: str
    parameters: Sequence[bytes | str | int | None] = ()

    def text(self) -> bytes:
        """What is sent."""
        return (self.sql % tuple(map(_literal, self.parameters))).encode() if self.parameters else self.sql.encode()

    @property
    def is_query(self) -> bool:
        """Whether it answers with rows."""
        return self.sql.startswith(("SELECT", "SHOW"))


def _literal(value: bytes | str | int | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return f"_utf8mb4 X'{value.encode('utf-8', 'replace').hex()}'"
    return f"{value:d}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement came to.

    Attributes:
        rows: those of a query; empty otherwise.
        affected: the server's count of rows; an UPDATE counts those it found (CLIENT_FOUND_ROWS).
        insert_id: what the statement gave to `LAST_INSERT_ID(expr)`; 0 where it has none.
    """

    rows: Sequence[tuple[Any, ...]] = ()
    affected: int = 0
    insert_id: int = 0


class Wire(Protocol):
    """One plain connection in autocommit and READ COMMITTED, with the short lock wait."""

    @property
    def is_stale(self) -> bool:
        """Whether it was idle for so long that the server may have closed it."""
        ...

    async def run(self, statement: Statement) -> Answer:
        """Send one statement and read its whole answer.

        Raises:
            StoreError: the server refused it, or the connection was lost.
        """
        ...

    def discard(self) -> None:
        """Close the socket and send nothing. Never raises."""
        ...

    async def close(self) -> None:
        """Say good-bye and close. Never raises."""
        ...


Connect = Callable[[], Awaitable[Wire]]

#: How often a write beside the units is repeated after contention or a lost connection.
_REPEATS: Final = 2
#: Lock wait and dead-lock: the server answered in full, and the connection is as good as before.
_IN_STEP: Final = frozenset({1205, 1213})


class Side:
    """One connection, used by one task at a time, opened when needed and reopened when lost.

    Args:
        connect: opens a plain connection; raises `StoreError`.
        patience: seconds that one `run` may take, waiting for its turn included.
    """

    def __init__(self, connect: Connect, patience: float) -> None:
        self._connect = connect
        self._patience = patience
        self._lock = asyncio.Lock()
        self._wire: Wire | None = None

    async def run(self, statement: Statement) -> Answer:
        """Run `statement` as a transaction of its own.

        It runs again where a dead-lock makes it its victim, or where the connection is lost: nearly always that is
        one which the server had closed before, and the statement never arrived. Repeating it must be harmless.

        Raises:
            Contended, StoreUnavailable: it did not run.
        """
        try:
            async with asyncio.timeout(self._patience), self._lock:
                return await self._again(statement)
        except TimeoutError:
            raise StoreUnavailable("the database did not answer in time") from None

    async def close(self) -> None:
        """Close the connection; a later `run` opens another."""
        async with self._lock:
            wire, self._wire = self._wire, None
            if wire is not None:
                await wire.close()

    async def _again(self, statement: Statement) -> Answer:
        for _ in range(_REPEATS):
            try:
                return await self._once(statement)
            except Contended:
                continue
        return await self._once(statement)

    async def _once(self, statement: Statement) -> Answer:
        wire = await self._ready()
        try:
            return await wire.run(statement)
        except BaseException as error:
            # Cut in the middle of an answer, a connection is out of step: the next reader would get this one's rows.
            if not isinstance(error, StoreError) or error.code not in _IN_STEP:
                self._wire = None
                wire.discard()
            raise

    async def _ready(self) -> Wire:
        if self._wire is not None and self._wire.is_stale:
            self._wire.discard()
            self._wire = None
        if self._wire is None:
            self._wire = await self._connect()
        return self._wire


class AdHoc:
    """Connections for one question each, at most `size` at a time.

    Args:
        connect: opens a plain connection; raises `StoreError`.
        size: how many may be open at once; who comes later waits.
    """

    def __init__(self, connect: Connect, size: int = 1) -> None:
        self._connect = connect
        self._room = asyncio.Semaphore(size)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Wire]:
        """A connection for the block; left by an error or cancelled, it is thrown away."""
        async with self._room:
            wire = await self._connect()
            try:
                yield wire
            except BaseException:
                wire.discard()
                raise
            await wire.close()

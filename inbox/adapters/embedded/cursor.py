"""A cursor that is made, executed and read on one way to its connection's thread.

The driver's own goes there four times for a statement, to be made, executed, read and closed, and each way there and
back costs more than most statements: two switches of threads, in turn with all other threads of the process.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiosqlite

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["UnitCursor"]

#: Rows that are read with the statement; a longer answer stays open, and is read on as it is asked for.
_AHEAD: Final = 1000


@dataclass(slots=True)
class _Answer:
    """What a cursor of the `sqlite3` module tells; at first, that nothing was executed."""

    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None
    arraysize: int = 1
    row_factory: Any = None


class UnitCursor(aiosqlite.Cursor):
    """As aiosqlite's.

    Args:
        connection: whose.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._answer = _Answer()
        self._rows: deque[Any] = deque()
        self._open: sqlite3.Cursor | None = None
        super().__init__(connection, self._answer)  # type: ignore[arg-type]  # what its properties read

    def _ask(self, method: str, sql: str, parameters: Any) -> sqlite3.Cursor | None:
        """In the connection's thread: all of it. Answers with the cursor where rows are left."""
        raw = self._conn._conn.cursor()  # noqa: SLF001 - aiosqlite's classes know each other by such names
        try:
            getattr(raw, method)(sql, parameters)
            if raw.description is not None:
                self._rows.extend(raw.fetchmany(_AHEAD))
            answer = self._answer
            answer.description, answer.rowcount, answer.lastrowid = raw.description, raw.rowcount, raw.lastrowid
        except BaseException:
            raw.close()
            raise
        if len(self._rows) < _AHEAD:
            raw.close()
            return None
        return raw

    async def execute(self, sql: str, parameters: Iterable[Any] | None = None) -> UnitCursor:
        """As aiosqlite's."""
        return await self._run("execute", sql, () if parameters is None else parameters)

    async def executemany(self, sql: str, parameters: Iterable[Iterable[Any]]) -> UnitCursor:
        """As aiosqlite's."""
        return await self._run("executemany", sql, parameters)

    async def _run(self, method: str, sql: str, parameters: Any) -> UnitCursor:
        await self.close()
        self._open = await self._send(self._ask, method, sql, parameters)
        return self

    async def _send(self, function: Any, *arguments: Any) -> Any:
        return await self._execute(function, *arguments)  # type: ignore[no-untyped-call]  # it has no types

    async def executescript(self, sql_script: str) -> aiosqlite.Cursor:
        """As aiosqlite's; refused to a unit, for it begins with a COMMIT."""
        return await self._conn.executescript(sql_script)

    async def fetchone(self) -> Any:
        """As aiosqlite's."""
        rows = await self.fetchmany(1)
        return rows[0] if rows else None

    async def fetchmany(self, size: int | None = None) -> list[Any]:
        """As aiosqlite's."""
        wanted = self.arraysize if size is None else size
        if self._open is not None and len(self._rows) < wanted:
            more = await self._send(self._open.fetchmany, max(wanted - len(self._rows), _AHEAD))
            self._rows.extend(more)
        return [self._rows.popleft() for _ in range(min(wanted, len(self._rows)))]

    async def fetchall(self) -> list[Any]:
        """As aiosqlite's."""
        if self._open is not None:
            self._rows.extend(await self._send(self._open.fetchall))
        rows, self._rows = [*self._rows], deque()
        return rows

    async def close(self) -> None:
        """As aiosqlite's."""
        self._rows.clear()
        opened, self._open = self._open, None
        if opened is not None:
            await self._send(opened.close)

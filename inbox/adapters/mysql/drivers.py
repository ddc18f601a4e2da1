"""The drivers' connections with the guard inside: every command and every error passes here."""

from __future__ import annotations

from typing import Any, Protocol


class GuardedConnection(Protocol):
    """What the framework uses of a driver connection, whichever driver it is."""

    async def own(self, sql: bytes) -> int:
        """Send a statement of the framework's own past the guard; not while a handler runs.

        Returns:
            The number of rows it affected.

        Raises:
            Exception: the driver's errors, untranslated (`classify.translated` turns them).
        """
        ...

    async def own_rows(self, sql: bytes) -> list[tuple[Any, ...]]:
        """As `own`, for a query; returns its rows, binary columns as `bytes`."""
        ...

    async def own_pair(
        self, query: bytes, command: bytes, *, pipelined: bool
    ) -> tuple[list[tuple[Any, ...]] | Exception, Exception | None]:
        """Send a query and a command, in one round trip where `pipelined`.

        Returns:
            The query's rows or its error, and the command's error or None.
        """
        ...

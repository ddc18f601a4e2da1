"""Waiting until the database takes writes again."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from inbox.adapters.mysql.side import AdHoc, Statement
from inbox.errors import StoreError, StoreUnavailable
from inbox.tables import InboxTables, qualified

if TYPE_CHECKING:
    from inbox.adapters.mysql.side import Wire

__all__ = ["WriteGate"]

_TRY: Final = "INSERT INTO {attempt} (consumer_name, attempt_key) VALUES (%s, %s)"


class WriteGate:
    """Tells when a write is possible, by one that is rolled back.

    The variables `read_only`, `super_read_only` and `innodb_read_only` are not asked: whether they bind depends on
    the user's rights and on the server (a user with READ ONLY ADMIN writes under MariaDB's `read_only`), and a full
    disk, a lock over all tables or a replica being promoted are in none of them.

    All who wait share one series of questions.

    Args:
        adhoc: where connections for the question come from.
        tables: into whose attempts the write is tried.
        answer: seconds that one question may take.
        patience: seconds without a write after which nobody waits any longer; None waits for ever.
    """

    def __init__(self, adhoc: AdHoc, tables: InboxTables, answer: float, patience: float | None = None) -> None:
        self._adhoc = adhoc
        self._sql = _TRY.format(attempt=qualified(tables.names.attempt, tables.database))
        self._answer = answer
        self._patience = patience
        self._asking: asyncio.Task[None] | None = None
        self._waiting = 0

    async def wait(self) -> None:
        """Return as soon as a write is possible; the pauses between questions grow to five seconds, with jitter.

        Raises:
            StoreUnavailable: the patience has ended.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        asking = self._asking
        self._waiting += 1
        try:
            await asyncio.shield(asking)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._asking = None
                asking.cancel()

    async def _ask(self) -> None:
        # Around all of it, and not as a stop of the series: a question that hangs may take long.
        try:
            async with asyncio.timeout(self._patience):
                await self._ask_until_written()
        except TimeoutError:
            raise StoreUnavailable(
                f"the database has not taken writes for {self._patience:g} s (DatabaseSettings.patience): mend it, and "
                "start the worker again"
            ) from None

    async def _ask_until_written(self) -> None:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((StoreError, TimeoutError)),
            wait=wait_random_exponential(multiplier=0.2, max=5),
        ):
            with attempt:
                async with asyncio.timeout(self._answer), self._adhoc.connected() as wire:
                    await self._try(wire)

    async def _try(self, wire: Wire) -> None:
        # A key of its own each time: two workers that ask would wait for each other.
        key = b"\0write-probe-" + secrets.token_bytes(8)
        await wire.run(Statement("START TRANSACTION"))
        await wire.run(Statement(self._sql, (b"\0", key)))
        await wire.run(Statement("ROLLBACK"))

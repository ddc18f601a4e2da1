"""Waiting for one's turn to write: SQLite lets one transaction write at a time, and knows no queue.

SQLite's own waiting (`busy_timeout`) sleeps in the connection's thread, where nothing can cancel it, longer and longer,
up to a tenth of a second, in which others take turn after turn. So within a process turns are taken in order, and only
whose turn it is asks SQLite, every few milliseconds, until the other processes let him in.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from typing import TYPE_CHECKING, Final, TypeVar

from inbox.adapters.embedded.classify import is_busy
from inbox.errors import Contended

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_SHORTEST: Final = 0.001
_LONGEST: Final = 0.004


class Turns:
    """The order in which the lanes of a process write."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take(self, patience: float) -> None:
        """Return when it is the caller's turn, which lasts until `give_back`.

        Raises:
            Contended: the patience, in seconds, has ended.
        """
        try:
            async with asyncio.timeout(patience):
                await self._lock.acquire()
        except TimeoutError:
            raise Contended("other units were writing for longer than lock_wait", code=sqlite3.SQLITE_BUSY) from None

    def give_back(self) -> None:
        """Let the next one write."""
        self._lock.release()


async def patiently(attempt: Callable[[], Awaitable[T]], patience: float) -> T:
    """What `attempt` returns, as soon as nobody else writes.

    Args:
        attempt: begins a transaction that writes, first of all; called again while that is refused.
        patience: seconds.

    Raises:
        sqlite3.Error: another one, or the patience has ended.
    """
    ends = asyncio.get_running_loop().time() + patience
    pause = _SHORTEST
    while True:
        try:
            return await attempt()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or asyncio.get_running_loop().time() >= ends:
                raise
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter needs no secrecy
        pause = min(pause * 1.5, _LONGEST)

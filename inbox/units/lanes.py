"""The lanes: as many connections as units run at once, each used by one unit at a time.

No pool of SQLAlchemy's or a driver's is in between. Those cost a ROLLBACK or a ping for each unit (SQLAlchemy manual,
"Reset On Return", "Disconnect Handling - Pessimistic"), and leak when they are cancelled (aiomysql issue 605).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from inbox.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Idle", "LanePool"]


class Idle(Protocol):
    """What the pool needs to know of a connection."""

    @property
    def is_stale(self) -> bool:
        """Whether it was idle for so long that the server may have closed it. Known without a packet."""
        ...

    def discard(self) -> None:
        """Close the socket at once. Never raises."""
        ...

    async def close(self) -> None:
        """Say good-bye and close. Never raises."""
        ...


LaneT = TypeVar("LaneT", bound=Idle)


class LanePool(Generic[LaneT]):
    """At most `size` connections; the one used last is handed out first, waiters are served in order.

    Last in, first out: with little to do few connections are used, and the others grow stale and are replaced instead
    of each being touched now and then.

    Args:
        open_lane: makes a connection; what it raises is passed on by `take`.
        size: how many may be out at once.
    """

    def __init__(self, open_lane: Callable[[], Awaitable[LaneT]], size: int) -> None:
        self.size = size
        self._open = open_lane
        self._free = size
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._idle: list[LaneT] = []
        self._out: set[LaneT] = set()
        self._closed = False

    @property
    def free(self) -> int:
        """How many could be taken now without waiting."""
        return self._free

    @property
    def idle(self) -> int:
        """How many connections lie open and unused."""
        return len(self._idle)

    async def take(self) -> LaneT:
        """A connection of one's own, until `give_back`.

        Sends nothing, unless a new connection is needed. Cancelling it leaves the pool as it was.

        Raises:
            StoreUnavailable: the pool is closed.
        """
        await self._permit()
        try:
            lane = self._fresh() or await self._open()
        except BaseException:
            self._release()
            raise
        self._out.add(lane)
        return lane

    def give_back(self, lane: LaneT, usable: bool) -> None:
        """Take `lane` back, or note that it is gone and another may take its place.

        Args:
            lane: from `take`.
            usable: whether it is open, in no transaction and in no doubt.
        """
        self._out.discard(lane)
        if usable and not self._closed:
            self._idle.append(lane)
        else:
            lane.discard()
        self._release()

    def open(self) -> None:
        """Let it be used, again or for the first time."""
        self._closed = False

    async def close(self) -> None:
        """Close every connection, those in use at once: the server undoes what they left open.

        Those who wait get `StoreUnavailable`.
        """
        self._closed = True
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(_closed())
        for lane in self._out:
            lane.discard()
        while self._idle:
            await self._idle.pop().close()

    async def _permit(self) -> None:
        if self._closed:
            raise _closed()
        if self._free and not self._waiters:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release()  # it was our turn when we were cancelled
            raise

    def _release(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    def _fresh(self) -> LaneT | None:
        while self._idle:
            lane = self._idle.pop()
            if not lane.is_stale:
                return lane
            lane.discard()
        return None


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store is closed")

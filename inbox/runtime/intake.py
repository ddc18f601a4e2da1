"""Deliveries in hand: queued for a lane, or held until they are handed back.

Bounded by the transport's prefetch: what is queued beyond it came over links that are gone.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from inbox.core.facts import fact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from inbox.core.delivery import Delivery
    from inbox.ports import Store, Transport

log = logging.getLogger("inbox")


class LocalIntake:
    """What stands between a transport and the lanes of one worker.

    Args:
        store: asked when it takes writes again.
        transport: gets back what is released.
        most: more deliveries than the transport can have out at once; the oldest of more are forgotten.
        spread: seconds to hold what has come again after so many seconds, so that not all begin at once.
    """

    def __init__(
        self, store: Store, transport: Transport, most: int, spread: Callable[[float], float] = lambda _: 0.0
    ) -> None:
        self._store = store
        self._transport = transport
        self._most = most
        self._spread = spread
        self._queue: asyncio.Queue[Delivery | None] = asyncio.Queue()
        self._holds: set[asyncio.Task[None]] = set()
        self._pauses: set[str] = set()
        self._open = asyncio.Event()
        self._open.set()
        #: Set whenever it pauses or resumes; cleared by who waits for that.
        self.changed = asyncio.Event()
        self._store_wait: asyncio.Task[None] | None = None
        self.stopping = asyncio.Event()

    @property
    def is_paused(self) -> bool:
        """Whether no delivery is started at present."""
        return bool(self._pauses)

    @property
    def why_paused(self) -> str | None:
        """Why no delivery is started at present; None where they are."""
        return "; ".join(sorted(self._pauses)) or None

    def take(self, delivery: Delivery) -> None:
        """Take one from the transport."""
        if self.stopping.is_set():
            self.release_later(delivery, 0)
        elif (pause := self._spread(delivery.waited)) > 0:
            self._keep(self._take_later(delivery, pause))
        else:
            self._put(delivery)

    def _put(self, delivery: Delivery) -> None:
        self._queue.put_nowait(delivery)
        if self._queue.qsize() > self._most:
            # A link that comes and goes while intake is paused brings the same deliveries again and again. The
            # oldest came over one that is gone: nobody can settle it, and it was delivered anew.
            self._queue.get_nowait()

    async def next(self) -> Delivery | None:
        """The next delivery to process; None once the worker is stopping."""
        delivery = await self._queue.get()
        if delivery is None:
            self._queue.put_nowait(None)  # for the next lane
            return None
        if not self._open.is_set() and not await self.unless_stopping(self._open.wait()):
            self.release_later(delivery, 0)
            return None
        return delivery

    def stop(self) -> None:
        """Hand back what no lane has begun, and end every wait. May be called twice."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        for delivery in filter(None, [self._queue.get_nowait() for _ in range(self._queue.qsize())]):
            self.release_later(delivery, 0)
        self._queue.put_nowait(None)

    async def wait(self, seconds: float) -> bool:
        """Wait; False as soon as the worker is stopping."""
        # Not `wait_for`, which in Python 3.11 swallows a cancellation that comes together with the event.
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({stopping}, timeout=seconds)
        finally:
            stopping.cancel()
        return not self.stopping.is_set()

    async def wait_for_store(self) -> bool:
        """Pause intake until the database takes writes; False as soon as the worker is stopping.

        Raises:
            StoreUnavailable: the patience with it has ended.
        """
        if self._store_wait is None or self._store_wait.done():
            self._store_wait = asyncio.create_task(self._await_store(), name="wait for store")
        return await self.unless_stopping(asyncio.shield(self._store_wait))

    async def unless_stopping(self, waited: Awaitable[object]) -> bool:
        """Await `waited`; False as soon as the worker is stopping, and `waited` is cancelled."""
        wanted = asyncio.ensure_future(waited)
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({wanted, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            wanted.cancel()
        if wanted.done() and not wanted.cancelled():
            wanted.result()
        return not self.stopping.is_set()

    def pause(self, seconds: float, why: str) -> None:
        """Start no further delivery for so long, and say why in one line."""
        if why not in self._pauses:
            self._close(why)
            asyncio.get_running_loop().call_later(seconds, self._reopen, why)

    def release_later(self, delivery: Delivery, seconds: float) -> None:
        """Hold the delivery unacknowledged for so long, then hand it back."""
        self._keep(self._hold(delivery, seconds))

    async def wait_released(self) -> None:
        """Return when everything that is held has been handed back. Only after `stop`."""
        if self._store_wait is not None:
            self._store_wait.cancel()
        while self._holds:
            await asyncio.wait(self._holds)

    def _keep(self, held: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(held, name="hold")
        self._holds.add(task)
        task.add_done_callback(self._holds.discard)

    async def _take_later(self, delivery: Delivery, seconds: float) -> None:
        if await self.wait(seconds):
            self._put(delivery)
        else:
            await self._transport.release(delivery)

    async def _hold(self, delivery: Delivery, seconds: float) -> None:
        if seconds > 0:
            await self.wait(seconds)
        await self._transport.release(delivery)

    async def _await_store(self) -> None:
        why = "the database does not take writes"
        self._close(why)
        await self._store.wait_writable()
        self._reopen(why)  # not where its patience ended: the worker ends, and begins nothing more

    def _close(self, why: str) -> None:
        log.warning("intake paused: %s", why, extra=fact("intake-paused", reason=why))
        self._pauses.add(why)
        self._open.clear()
        self.changed.set()

    def _reopen(self, why: str) -> None:
        self._pauses.discard(why)
        if not self._pauses and not self.stopping.is_set():
            self._open.set()
            self.changed.set()
            log.warning("intake resumed", extra=fact("intake-resumed"))

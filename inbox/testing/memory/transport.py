"""A broker's queue in memory, and transports that consume from it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from inbox.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inbox.core.delivery import Delivery
    from inbox.core.lease import LeaseTerms
    from inbox.ports import Sink


class MemoryBroker:
    """One queue, which outlives the links to it: give it to several transports.

    Args:
        is_there: whether a transport can open it.
        keeps_copies: whether it keeps what is to come again later.
        lease_terms: what it declares where its deliveries are on lease.

    Attributes:
        copy_error: raised instead of keeping a copy.
        ready: deliveries that no transport has in hand, the next one first.
        links: the transports that are open.
    """

    def __init__(
        self, *, is_there: bool = True, keeps_copies: bool = False, lease_terms: LeaseTerms | None = None
    ) -> None:
        self.is_there = is_there
        self.keeps_copies = keeps_copies
        self.lease_terms = lease_terms
        self.copy_error: TransportError | None = None
        self.ready: deque[Delivery] = deque()
        self.links: list[MemoryTransport] = []

    def publish(self, *deliveries: Delivery) -> None:
        """Make deliveries available."""
        self.ready.extend(deliveries)
        self.feed()

    def take_back(self, *deliveries: Delivery) -> None:
        """Put what was handed out in front of the queue, as it was there, marked as redelivered."""
        self.ready.extendleft(replace(delivery, pristine=False) for delivery in reversed(deliveries))

    def keep(self, copy: Delivery, seconds: float) -> None:
        """Publish `copy` after `seconds`."""
        asyncio.get_running_loop().call_later(seconds, self.publish, copy)

    def cut(self) -> None:
        """Lose every link without a good-bye. The transports connect again at once."""
        for link in self.links:
            link.lose()
        self.feed()

    def feed(self) -> None:
        """Hand out what is ready, as far as the transports have room."""
        for link in self.links:
            link.feed()


class MemoryTransport:
    """As `ports.Transport`, in memory: `publish` puts a delivery in, acknowledging takes it out.

    Args:
        broker: where it consumes; None makes one of its own.

    Attributes:
        acknowledged, released: what was settled, in this order.
        delayed: what it was asked to keep a copy of, and for how many seconds.
    """

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        self.broker = broker or MemoryBroker()
        self.acknowledged: list[Delivery] = []
        self.released: list[Delivery] = []
        self.delayed: list[tuple[Delivery, float]] = []
        self._delays: Sequence[float] = ()
        self.settled = asyncio.Event()
        self.error: BaseException | None = None
        self._prefetch = 0
        self._in_hand: dict[Delivery, None] = {}
        self._sink: Sink | None = None
        self._done = asyncio.Event()

    # ------------------------------------------------------------ for tests
    def publish(self, *deliveries: Delivery) -> None:
        """Make deliveries available."""
        self.broker.publish(*deliveries)

    def fail(self, error: BaseException) -> None:
        """Let `run` end with `error`."""
        self.error = error
        self._done.set()

    async def wait_settled(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds, asked after each settlement."""
        while not condition():
            self.settled.clear()
            await self.settled.wait()

    # ------------------------------------------------------------ for the broker
    def feed(self) -> None:
        """Take what is ready into the sink, as far as the prefetch goes."""
        while self._sink is not None and self.broker.ready and len(self._in_hand) < self._prefetch:
            delivery = replace(self.broker.ready.popleft())  # each hand-out is another one, and settled by itself
            self._in_hand[delivery] = None
            self._sink(delivery)

    def lose(self) -> None:
        """Lose what is in hand to the broker: nobody can settle it any more."""
        lost, self._in_hand = self._in_hand, {}
        self.broker.take_back(*lost)

    # ------------------------------------------------------------ the port
    def describe(self) -> dict[str, str]:
        """As `ports.Transport.describe`."""
        return {"transport": "memory"}

    @property
    def can_delay(self) -> bool:
        """As `ports.Transport.can_delay`."""
        return self.broker.keeps_copies

    @property
    def lease_terms(self) -> LeaseTerms | None:
        """As `ports.Transport.lease_terms`: what the broker was given."""
        return self.broker.lease_terms

    async def open(self, *, prefetch: int, delays: Sequence[float] = ()) -> None:
        """As `ports.Transport.open`."""
        if not self.broker.is_there:
            raise TransportError("the broker is not there")
        self._prefetch = prefetch
        self._delays = delays
        self.broker.links.append(self)

    async def run(self, sink: Sink) -> None:
        """As `ports.Transport.run`."""
        try:
            if not self._done.is_set():
                self._sink = sink
                self.feed()
            await self._done.wait()
        finally:
            self._sink = None
        if self.error is not None:
            raise self.error

    async def stop(self) -> None:
        """As `ports.Transport.stop`."""
        self._sink = None
        self._done.set()

    async def close(self) -> None:
        """As `ports.Transport.close`."""
        await self.stop()
        if self in self.broker.links:
            self.broker.links.remove(self)
        self.lose()
        self.broker.feed()

    async def acknowledge(self, delivery: Delivery) -> bool:
        """As `ports.Transport.acknowledge`."""
        return self._settle(delivery, self.acknowledged)

    async def release(self, delivery: Delivery) -> bool:
        """As `ports.Transport.release`; it comes again, marked as redelivered."""
        return self._settle(delivery, self.released)

    async def delay(self, delivery: Delivery, seconds: float, key: bytes) -> None:
        """As `ports.Transport.delay`."""
        if self.broker.copy_error is not None:
            raise self.broker.copy_error
        if not self.broker.keeps_copies or self not in self.broker.links:
            raise TransportError("the broker keeps no copies, or the transport is not open")
        step = min((step for step in self._delays if step >= seconds), default=max(self._delays, default=seconds))
        copy = replace(delivery, pristine=False, waited=step, wait_left=max(seconds - step, 0.0))
        self.delayed.append((delivery, seconds))
        self.broker.keep(copy, step)

    def _settle(self, delivery: Delivery, settled: list[Delivery]) -> bool:
        if delivery not in self._in_hand:
            return False
        del self._in_hand[delivery]
        settled.append(delivery)
        self.settled.set()
        if settled is self.released:
            self.broker.take_back(delivery)
        self.broker.feed()
        return True

"""What the suite of the transports needs: the rig that an adapter's test gives it, and the sink that it looks at."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from inbox.core.delivery import Delivery
    from inbox.ports import Transport

#: Seconds after which a fact that did not come is a failure.
PATIENCE = 30.0

#: Seconds for which transports are asked to keep copies.
DELAYS = (0.2, 0.7)

#: Seconds by which a peer's clock may be ahead of itself: it counts milliseconds.
CLOCK = 0.005


class TransportRig(Protocol):
    """What the suite needs from an adapter's test: a fresh, empty place to consume from."""

    def make(self) -> Transport:
        """A new transport on the place, not opened."""
        ...

    def make_unreachable(self) -> Transport:
        """A transport whose peer is not there."""
        ...

    async def publish(self, *bodies: bytes) -> None:
        """Publish, in this order, and return when the peer has them for good."""
        ...

    async def count_left(self) -> int:
        """Deliveries that the peer still holds, asked when no transport is open."""
        ...

    async def cut(self) -> None:
        """Lose the link of every transport that is open, without a good-bye."""
        ...


@runtime_checkable
class LeasedRig(Protocol):
    """What it needs besides where deliveries come on lease."""

    async def end_leases(self, held: int) -> None:
        """Let every lease that runs have run out, and what follows it be due at once.

        Args:
            held: deliveries that the peer holds as soon as it has heard every acknowledgement that is under way; not
                before that do they end.
        """
        ...

    def body(self, label: bytes) -> bytes:
        """What `publish` makes of `label`, octet for octet, where the peer takes only what has a form of its own."""
        ...


def body(rig: TransportRig, label: bytes) -> bytes:
    """The body that arrives after `label` was published."""
    return rig.body(label) if isinstance(rig, LeasedRig) else label


async def end_leases(rig: TransportRig, held: int) -> None:
    """Let what nobody settled come again: by itself, or when its lease ends."""
    if isinstance(rig, LeasedRig):
        await rig.end_leases(held)


class Hand:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self._changed = asyncio.Event()

    def __call__(self, delivery: Delivery) -> None:
        """Take one delivery."""
        self.deliveries.append(delivery)
        self._changed.set()

    @property
    def bodies(self) -> list[bytes]:
        """Bodies in the order of their arrival."""
        return [delivery.body for delivery in self.deliveries]

    async def wait(self, count: int) -> list[Delivery]:
        """The first `count` deliveries, as soon as there are so many."""
        async with asyncio.timeout(PATIENCE):
            while len(self.deliveries) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.deliveries[:count]

    async def wait_for_body(self, body: bytes, *, start: int = 0) -> Delivery:
        """The first delivery from index `start` on with this body."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for delivery in self.deliveries[start:]:
                    if delivery.body == body:
                        return delivery
                self._changed.clear()
                await self._changed.wait()


async def wait_left(rig: TransportRig, count: int) -> None:
    """Return as soon as the peer holds `count` deliveries: it may take back what was open a moment after the link."""
    async with asyncio.timeout(PATIENCE):
        while await rig.count_left() != count:  # noqa: ASYNC110 - no peer tells of it
            await asyncio.sleep(0.05)


@asynccontextmanager
async def consuming(
    transport: Transport, hand: Hand, *, prefetch: int = 10, delays: Sequence[float] = ()
) -> AsyncIterator[asyncio.Task[None]]:
    """Open `transport` and run it into `hand`; stop, close and wait for `run` at the end."""
    running: asyncio.Task[None] | None = None
    try:
        await transport.open(prefetch=prefetch, delays=delays)
        running = asyncio.create_task(transport.run(hand))
        yield running
    finally:
        await transport.stop()
        await transport.close()
        if running is not None:
            async with asyncio.timeout(PATIENCE):
                await running

# ruff: noqa: S101, PLR2004 - the body of a test suite: pytest asserts, and expected values stand where they are expected
"""What every transport does, whatever it speaks. An adapter's tests subclass this and run it whole.

```python
class TestMyTransport(TransportConformance):
    @pytest.fixture
    async def rig(self) -> AsyncIterator[TransportRig]:
        ...
```

Nothing here waits for time: each wait ends with a fact, or fails after `PATIENCE`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from inbox.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from inbox.core.delivery import Delivery
    from inbox.ports import Transport

#: Seconds after which a fact that did not come is a failure.
PATIENCE = 30.0


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
async def consuming(transport: Transport, hand: Hand, *, prefetch: int = 10) -> AsyncIterator[asyncio.Task[None]]:
    """Open `transport` and run it into `hand`; stop, close and wait for `run` at the end."""
    running: asyncio.Task[None] | None = None
    try:
        await transport.open(prefetch=prefetch)
        running = asyncio.create_task(transport.run(hand))
        yield running
    finally:
        await transport.stop()
        await transport.close()
        if running is not None:
            async with asyncio.timeout(PATIENCE):
                await running


class TransportConformance:
    """The suite. `rig` is a fixture of the subclass."""

    async def test_what_was_published_is_delivered_whole_and_pristine(self, rig: TransportRig) -> None:
        hand = Hand()
        await rig.publish(b"\x00\xffone", b"")
        async with consuming(rig.make(), hand):
            first, second = await hand.wait(2)
        assert (first.body, second.body) == (b"\x00\xffone", b"")
        assert first.pristine
        assert first.refusal is None

    async def test_open_delivers_nothing_yet(self, rig: TransportRig) -> None:
        transport = rig.make()
        await rig.publish(b"one")
        await transport.open(prefetch=1)
        await transport.close()
        await wait_left(rig, 1)

    async def test_what_was_acknowledged_is_gone(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one", b"two")
        async with consuming(transport, hand):
            for delivery in await hand.wait(2):
                assert await transport.acknowledge(delivery)
        await wait_left(rig, 0)

    async def test_what_was_not_settled_comes_again(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one", b"two")
        async with consuming(transport, hand):
            _, second = await hand.wait(2)
            assert await transport.acknowledge(second)
        again = Hand()
        await wait_left(rig, 1)
        async with consuming(rig.make(), again):
            await again.wait(1)
        assert again.bodies == [b"one"]
        assert not again.deliveries[0].pristine

    async def test_what_was_released_comes_again_and_is_not_pristine(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one")
        async with consuming(transport, hand):
            (first,) = await hand.wait(1)
            assert await transport.release(first)
            _, second = await hand.wait(2)
            assert second.body == b"one"
            assert not second.pristine
            assert await transport.acknowledge(second)
        await wait_left(rig, 0)

    async def test_settling_in_any_order_leaves_nothing(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        bodies = [b"%d" % number for number in range(20)]
        await rig.publish(*bodies)
        async with consuming(transport, hand, prefetch=20):
            deliveries = await hand.wait(20)
            for index in (3, 2, 1, 19, 0, 7, 5, 6, 4, 18, 8, 10, 9, 17, 12, 11, 13, 16, 15, 14):
                settle = transport.release if index % 5 == 0 else transport.acknowledge
                assert await settle(deliveries[index])
                await asyncio.sleep(0)
            for delivery in (await hand.wait(24))[20:]:
                assert await transport.acknowledge(delivery)
        assert sorted(hand.bodies[20:]) == sorted([b"0", b"5", b"10", b"15"])
        await wait_left(rig, 0)

    async def test_no_more_than_the_prefetch_is_in_hand(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(*(b"%d" % number for number in range(9)))
        async with consuming(transport, hand, prefetch=3):
            for settled in range(6):
                # The next one cannot come before this one is settled, and then must.
                deliveries = await hand.wait(3 + settled)
                assert len(hand.deliveries) == 3 + settled
                assert await transport.acknowledge(deliveries[settled])
            await hand.wait(9)
        assert hand.bodies == [b"%d" % number for number in range(9)]

    async def test_settling_twice_is_refused_and_harms_nobody(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one", b"two")
        async with consuming(transport, hand):
            first, second = await hand.wait(2)
            assert await transport.acknowledge(first)
            assert not await transport.acknowledge(first)
            assert not await transport.release(first)
            assert await transport.acknowledge(second)
            await rig.publish(b"three")
            _, _, third = await hand.wait(3)
            assert await transport.acknowledge(third)
        await wait_left(rig, 0)

    async def test_after_stop_nothing_comes_and_what_is_in_hand_can_be_settled(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one", b"two", b"three")
        async with consuming(transport, hand, prefetch=1) as running:
            (first,) = await hand.wait(1)
            await transport.stop()
            async with asyncio.timeout(PATIENCE):
                await running
            assert await transport.acknowledge(first)
        assert hand.bodies == [b"one"]
        await wait_left(rig, 2)

    async def test_stop_ends_a_run_that_has_nothing_to_do(self, rig: TransportRig) -> None:
        async with consuming(rig.make(), Hand()) as running:
            await asyncio.sleep(0)
        assert running.done()

    async def test_closing_twice_and_without_opening_is_allowed(self, rig: TransportRig) -> None:
        transport = rig.make()
        await transport.close()
        await transport.close()
        transport = rig.make()
        await transport.open(prefetch=1)
        await transport.close()
        await transport.close()

    async def test_a_peer_that_is_not_there_is_a_transport_error_and_can_be_closed(self, rig: TransportRig) -> None:
        transport = rig.make_unreachable()
        refused = False
        try:
            await transport.open(prefetch=1)
        except TransportError:
            refused = True
        await transport.close()
        assert refused

    async def test_after_close_settling_is_false_and_ends_at_once(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one")
        async with consuming(transport, hand):
            (first,) = await hand.wait(1)
        assert not await transport.acknowledge(first)
        assert not await transport.release(first)
        await wait_left(rig, 1)

    async def test_a_lost_link_is_made_again_and_delivers_again(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one")
        async with consuming(transport, hand):
            (first,) = await hand.wait(1)
            await rig.cut()
            _, second = await hand.wait(2)
            assert second.body == b"one"
            assert not second.pristine
            # The old link's proof settles nothing, and does not harm the new link.
            assert not await transport.acknowledge(first)
            assert await transport.acknowledge(second)
        await wait_left(rig, 0)

    async def test_the_prefetch_is_the_same_after_a_lost_link(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(*(b"%d" % number for number in range(6)))
        async with consuming(transport, hand, prefetch=2):
            await hand.wait(2)
            await rig.cut()
            again = (await hand.wait(4))[2:]
            assert len(hand.deliveries) == 4
            for delivery in again:
                assert await transport.acknowledge(delivery)
            await hand.wait(6)
            assert len(hand.deliveries) == 6

    async def test_a_link_lost_again_and_again_loses_nothing(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(*(b"%d" % number for number in range(3)))
        async with consuming(transport, hand, prefetch=1):
            for number in range(3):
                body = b"%d" % number
                await hand.wait_for_body(body)
                seen = len(hand.deliveries)
                await rig.cut()
                assert await transport.acknowledge(await hand.wait_for_body(body, start=seen))
        await wait_left(rig, 0)

    async def test_a_run_that_is_cancelled_can_still_be_closed(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one")
        await transport.open(prefetch=1)
        running = asyncio.create_task(transport.run(hand))
        await hand.wait(1)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert running.cancelled()
        await transport.close()
        await wait_left(rig, 1)

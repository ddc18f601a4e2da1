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

import pytest

from inbox.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from inbox.core.delivery import Delivery
    from inbox.ports import Transport

#: Seconds after which a fact that did not come is a failure.
PATIENCE = 30.0

#: Seconds for which transports are asked to keep copies.
DELAYS = (0.2, 0.7)

#: Seconds by which a peer's clock may be ahead of itself: it counts milliseconds.
_CLOCK = 0.005


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


@asynccontextmanager
async def delaying(rig: TransportRig, hand: Hand) -> AsyncIterator[Transport]:
    """A transport that consumes into `hand` and was told of `DELAYS`; it may say that it keeps no copies."""
    transport = rig.make()
    async with consuming(transport, hand, delays=DELAYS):
        yield transport


class DelayConformance:
    """What every transport does that can keep copies; one that cannot says so, and keeps none."""

    async def test_one_that_keeps_no_copies_says_so_instead_of_losing_one(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one")
        if transport.can_delay:
            return
        async with consuming(transport, hand, delays=DELAYS):
            (first,) = await hand.wait(1)
            with pytest.raises(TransportError):
                await transport.delay(first, DELAYS[0], b"key")
        await wait_left(rig, 1)

    @pytest.mark.parametrize("seconds", [0.0, 0.15, DELAYS[0], 0.3])
    async def test_a_copy_comes_after_the_wait_and_is_what_it_was_made_of(
        self, rig: TransportRig, seconds: float
    ) -> None:
        hand, clock = Hand(), asyncio.get_running_loop()
        await rig.publish(b"\x00\xffone")
        async with delaying(rig, hand) as transport:
            if not transport.can_delay:
                return
            (first,) = await hand.wait(1)
            start = clock.time()
            await transport.delay(first, seconds, b"\x00key")
            assert await transport.acknowledge(first)
            _, copy = await hand.wait(2)
            assert clock.time() - start >= seconds - _CLOCK
            assert (copy.body, copy.origin, copy.content_type) == (first.body, first.origin, first.content_type)
            assert (dict(copy.headers), copy.refusal) == (dict(first.headers), None)
            assert not copy.pristine
            assert (copy.waited >= seconds, copy.wait_left) == (True, 0.0)
            assert await transport.acknowledge(copy)
        await wait_left(rig, 0)

    async def test_a_copy_settles_nothing(self, rig: TransportRig) -> None:
        hand = Hand()
        await rig.publish(b"one")
        async with delaying(rig, hand) as transport:
            if not transport.can_delay:
                return
            (first,) = await hand.wait(1)
            await transport.delay(first, DELAYS[0], b"key")
            _, copy = await hand.wait(2)
            assert await transport.acknowledge(copy)
        await wait_left(rig, 1)  # the first one, which nobody has acknowledged

    async def test_a_wait_longer_than_the_longest_comes_back_with_what_is_left(self, rig: TransportRig) -> None:
        hand = Hand()
        await rig.publish(b"one")
        async with delaying(rig, hand) as transport:
            if not transport.can_delay:
                return
            (first,) = await hand.wait(1)
            await transport.delay(first, DELAYS[1] + 0.5, b"key")
            assert await transport.acknowledge(first)
            _, early = await hand.wait(2)
            assert early.waited == DELAYS[1]
            assert early.wait_left == pytest.approx(0.5, abs=0.001)
            await transport.delay(early, early.wait_left, b"key")
            assert await transport.acknowledge(early)
            last = (await hand.wait(3))[2]
            assert last.wait_left == 0
            assert await transport.acknowledge(last)
        await wait_left(rig, 0)

    async def test_a_copy_of_a_copy_is_still_what_the_first_was(self, rig: TransportRig) -> None:
        hand = Hand()
        await rig.publish(b"one")
        async with delaying(rig, hand) as transport:
            if not transport.can_delay:
                return
            (first,) = await hand.wait(1)
            for turn in range(3):
                await transport.delay(hand.deliveries[turn], DELAYS[0], b"key")
                assert await transport.acknowledge(hand.deliveries[turn])
                copy = (await hand.wait(turn + 2))[turn + 1]
                assert (copy.body, copy.origin, dict(copy.headers)) == (b"one", first.origin, dict(first.headers))
                assert copy.properties.get("message_id") == first.properties.get("message_id")
            assert await transport.acknowledge(hand.deliveries[-1])
        await wait_left(rig, 0)

    async def test_a_shorter_wait_is_not_kept_by_a_longer_one_before_it(self, rig: TransportRig) -> None:
        hand = Hand()
        await rig.publish(b"long", b"short")
        async with delaying(rig, hand) as transport:
            if not transport.can_delay:
                return
            long, short = await hand.wait(2)
            await transport.delay(long, DELAYS[1], b"long")
            await transport.delay(short, DELAYS[0], b"short")
            for delivery in (long, short):
                assert await transport.acknowledge(delivery)
            copies = (await hand.wait(4))[2:]
            assert [copy.body for copy in copies] == [b"short", b"long"]
            for copy in copies:
                assert await transport.acknowledge(copy)
        await wait_left(rig, 0)

    async def test_many_are_delayed_at_once_and_each_comes_again_once(self, rig: TransportRig) -> None:
        hand, bodies = Hand(), [b"%d" % number for number in range(50)]
        await rig.publish(*bodies)
        transport = rig.make()
        async with consuming(transport, hand, prefetch=50, delays=DELAYS):
            if not transport.can_delay:
                return
            firsts = await hand.wait(50)
            await asyncio.gather(*(transport.delay(first, DELAYS[0], first.body) for first in firsts))
            for first in firsts:
                assert await transport.acknowledge(first)
            copies = (await hand.wait(100))[50:]
            assert sorted(copy.body for copy in copies) == sorted(bodies)
            for copy in copies:
                assert await transport.acknowledge(copy)
        await wait_left(rig, 0)

    async def test_what_waits_outlives_the_transport(self, rig: TransportRig) -> None:
        hand, again = Hand(), Hand()
        await rig.publish(b"one")
        async with delaying(rig, hand) as transport:
            if not transport.can_delay:
                return
            (first,) = await hand.wait(1)
            await transport.delay(first, DELAYS[0], b"key")
            assert await transport.acknowledge(first)
        async with delaying(rig, again) as transport:
            (copy,) = await again.wait(1)
            assert (copy.body, copy.pristine) == (b"one", False)
            assert await transport.acknowledge(copy)
        await wait_left(rig, 0)

    async def test_after_a_lost_link_copies_are_kept_and_made_as_before(self, rig: TransportRig) -> None:
        hand = Hand()
        await rig.publish(b"one")
        async with delaying(rig, hand) as transport:
            if not transport.can_delay:
                return
            (first,) = await hand.wait(1)
            await transport.delay(first, DELAYS[0], b"key")
            assert await transport.acknowledge(first)
            _, copy = await hand.wait(2)
            await rig.cut()
            again = (await hand.wait(3))[2]
            assert again.body == b"one"
            # What is not known to be kept is not acknowledged, and may be asked for again.
            await self._delay_at_last(transport, again)
            assert not await transport.acknowledge(copy)
            assert await transport.acknowledge(again)
            last = (await hand.wait(4))[3]
            assert (last.body, last.origin) == (b"one", first.origin)
            assert await transport.acknowledge(last)
        await wait_left(rig, 0)

    async def _delay_at_last(self, transport: Transport, delivery: Delivery) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(TransportError):
                    await transport.delay(delivery, DELAYS[0], b"key")
                    return
                await asyncio.sleep(0.05)

    async def test_after_the_close_no_copy_is_made(self, rig: TransportRig) -> None:
        hand = Hand()
        await rig.publish(b"one")
        async with delaying(rig, hand) as transport:
            if not transport.can_delay:
                return
            (first,) = await hand.wait(1)
            await transport.delay(first, DELAYS[0], b"key")
            assert await transport.acknowledge(first)
            _, copy = await hand.wait(2)
        with pytest.raises(TransportError):
            await transport.delay(copy, DELAYS[0], b"key")
        await wait_left(rig, 1)


class TransportConformance(DelayConformance):
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

# ruff: noqa: S101 - the body of a test suite: pytest asserts, and expected values stand where they are expected
"""What every transport does that can keep copies of deliveries, to have them come again later."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from inbox.errors import TransportError
from inbox.testing.conformance.transport_rig import CLOCK, DELAYS, PATIENCE, Hand, consuming, wait_left

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from inbox.core.delivery import Delivery
    from inbox.ports import Transport
    from inbox.testing.conformance.transport_rig import TransportRig


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
            assert clock.time() - start >= seconds - CLOCK
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

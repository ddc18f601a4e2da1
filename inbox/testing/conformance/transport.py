# ruff: noqa: S101 - the body of a test suite: pytest asserts, and expected values stand where they are expected
"""What every transport does, whatever it speaks. An adapter's tests subclass this and run it whole.

```python
class TestMyTransport(TransportConformance):
    @pytest.fixture
    async def rig(self) -> AsyncIterator[TransportRig]:
        ...
```

It is one suite for all: what a transport declares (`can_delay`, `lease_terms`) says which sentences hold for it. One
that declares `lease_terms` has a `LeasedRig`, for what is not settled comes again only when a lease has ended.

Nothing here waits for time: each wait ends with a fact, or fails after `PATIENCE`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from inbox.errors import TransportError
from inbox.testing.conformance.transport_delay import DelayConformance
from inbox.testing.conformance.transport_links import LeaseConformance, LinkConformance
from inbox.testing.conformance.transport_rig import (
    DELAYS,
    PATIENCE,
    Hand,
    LeasedRig,
    TransportRig,
    body,
    consuming,
    end_leases,
    wait_left,
)

__all__ = ["DELAYS", "PATIENCE", "Hand", "LeasedRig", "TransportConformance", "TransportRig", "consuming"]


class TransportConformance(LinkConformance, LeaseConformance, DelayConformance):
    """The suite. `rig` is a fixture of the subclass."""

    async def test_what_was_published_is_delivered_whole_and_pristine(self, rig: TransportRig) -> None:
        hand = Hand()
        await rig.publish(b"\x00\xffone", b"")
        async with consuming(rig.make(), hand):
            first, second = await hand.wait(2)
        assert (first.body, second.body) == (body(rig, b"\x00\xffone"), body(rig, b""))
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
        await end_leases(rig, 1)
        async with consuming(rig.make(), again):
            await again.wait(1)
        assert again.bodies == [body(rig, b"one")]
        assert not again.deliveries[0].pristine

    async def test_what_was_released_comes_again_and_is_not_pristine(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one")
        async with consuming(transport, hand):
            (first,) = await hand.wait(1)
            assert await transport.release(first)
            await end_leases(rig, 1)
            _, second = await hand.wait(2)
            assert second.body == body(rig, b"one")
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
            await end_leases(rig, 4)
            for delivery in (await hand.wait(24))[20:]:
                assert await transport.acknowledge(delivery)
        assert sorted(hand.bodies[20:]) == sorted(body(rig, b"%d" % number) for number in (0, 5, 10, 15))
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
        assert hand.bodies == [body(rig, b"%d" % number) for number in range(9)]

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
        assert hand.bodies == [body(rig, b"one")]
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

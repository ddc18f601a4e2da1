# ruff: noqa: S101, PLR2004 - the body of a test suite: pytest asserts, and expected values stand where they are expected
"""What a lost link does to deliveries, and a lease that ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inbox.testing.conformance.transport_rig import Hand, body, consuming, end_leases, wait_left

if TYPE_CHECKING:
    from inbox.testing.conformance.transport_rig import TransportRig


class LinkConformance:
    """What a lost link does to what is in hand: it is lost with it, or held on by a proof that outlives links."""

    async def test_a_lost_link_is_made_again_and_delivers_again(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(b"one")
        async with consuming(transport, hand):
            (first,) = await hand.wait(1)
            await rig.cut()
            if transport.lease_terms is not None:
                return
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
            again = hand.deliveries[:] if transport.lease_terms is not None else (await hand.wait(4))[2:]
            seen = len(hand.deliveries)
            assert seen == (2 if transport.lease_terms is not None else 4)
            for delivery in again:
                assert await transport.acknowledge(delivery)
            await hand.wait(seen + 2)
            assert len(hand.deliveries) == seen + 2

    async def test_a_link_lost_again_and_again_loses_nothing(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        await rig.publish(*(b"%d" % number for number in range(3)))
        async with consuming(transport, hand, prefetch=1):
            for number in range(3):
                label = body(rig, b"%d" % number)
                await hand.wait_for_body(label)
                seen = 0 if transport.lease_terms is not None else len(hand.deliveries)
                await rig.cut()
                assert await transport.acknowledge(await hand.wait_for_body(label, start=seen))
        await wait_left(rig, 0)


class LeaseConformance:
    """What every transport does whose deliveries come on lease; of the others nothing is asked here."""

    async def test_a_proof_outlives_the_link_that_brought_it(self, rig: TransportRig) -> None:
        hand, transport = Hand(), rig.make()
        if transport.lease_terms is None:
            return
        await rig.publish(b"one")
        async with consuming(transport, hand):
            (first,) = await hand.wait(1)
            await rig.cut()
            assert await transport.acknowledge(first)
        assert len(hand.deliveries) == 1
        await wait_left(rig, 0)

    async def test_what_was_acknowledged_before_the_link_was_lost_is_confirmed_by_the_close(
        self, rig: TransportRig
    ) -> None:
        hand, transport = Hand(), rig.make()
        if transport.lease_terms is None:
            return
        await rig.publish(*(b"%d" % number for number in range(5)))
        async with consuming(transport, hand):
            for delivery in await hand.wait(5):
                assert await transport.acknowledge(delivery)
            await rig.cut()
        await wait_left(rig, 0)

    async def test_a_later_hand_out_of_what_is_in_hand_is_not_handed_on_and_its_proof_settles(
        self, rig: TransportRig
    ) -> None:
        hand, transport = Hand(), rig.make()
        if transport.lease_terms is None:
            return
        await rig.publish(b"one")
        async with consuming(transport, hand):
            (first,) = await hand.wait(1)
            await end_leases(rig, 1)
            await rig.publish(b"two")
            _, second = await hand.wait(2)
            assert second.body == body(rig, b"two")
            for delivery in (first, second):
                assert await transport.acknowledge(delivery)
        assert len(hand.deliveries) == 2
        await wait_left(rig, 0)

    async def test_its_terms_leave_time_for_a_unit_and_for_a_stop(self, rig: TransportRig) -> None:
        terms = rig.make().lease_terms
        assert terms is None or min(terms.unit_deadline, terms.shutdown_timeout) > 0

"""Both links are cut at every packet of a delivery in turn: before it, inside of it and behind it, either way.

A quiet run through the proxies says how many packets there are. In `make crash` every position has its turn; in
`make test` some, drawn by the seed.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.testing.faults import Catch, Direction, Fault, FaultProxy, is_commit
from tests.crash.consumer import BROKER, SETTINGS, Links, at_work, linked
from tests.crash.cuts import CUTS, Position, Repeated, drawn, positions_of
from tests.crash.world import World

pytestmark = pytest.mark.timeout(600)

#: What a delivery can be; each takes other packets.
FLOWS = ("apply", "duplicate", "flaky", "reject")
SILENT = replace(SETTINGS, deadline=1)


@pytest.fixture
async def links(world: World) -> AsyncIterator[Links]:
    async with linked(world) as made:
        yield made


@dataclass
class Deliveries(Repeated[str | None]):
    """Deliveries of one flow, one after the other, through one consumer."""

    links: Links
    publisher: Publisher
    flow: str

    async def warm(self) -> str | None:
        """After one delivery more; the id of an event that was applied, where the flow is a duplicate's."""
        if self.flow == "flaky":
            await self.links.wait_ended(await self.links.publish_behind_copies(self.publisher))
        await self.run(await self._known())
        return await self._known()

    async def _known(self) -> str | None:
        if self.flow != "duplicate":
            return None
        identifier = await self.links.publish(self.publisher, "apply")
        await self.links.wait_ended(identifier)
        await self.links.wait_quiet()
        return identifier

    async def run(self, known: str | None) -> None:
        """One delivery, to its end."""
        begun = self.links.hands.begun
        kind = "apply" if self.flow == "duplicate" else self.flow
        identifier = await self.links.publish(self.publisher, kind, known)
        async with asyncio.timeout(30):
            while self.links.hands.begun == begun:
                await asyncio.sleep(0.003)
        await self.links.wait_ended(identifier)
        await self.links.wait_quiet()


@pytest.mark.drawn(4)
@pytest.mark.parametrize("link", ["database", "broker"])
@pytest.mark.parametrize("flow", FLOWS)
async def test_every_packet_of_a_delivery_is_cut(
    links: Links, flow: str, link: str, request: pytest.FixtureRequest
) -> None:
    proxy: FaultProxy = getattr(links, link)
    async with Publisher(links.world.pair.amqp_url) as publisher, at_work(links):
        deliveries = Deliveries(links, publisher, flow)
        done = await deliveries.cut_everywhere(proxy, await deliveries.count(proxy), request)
    print(f"{flow} over the {link}: {done}")
    await links.judge()


@pytest.mark.parametrize("catch", [Catch.CUT, Catch.SWALLOW], ids=["cut", "swallowed"])
async def test_a_commit_that_never_arrives_is_not_acknowledged(links: Links, catch: Catch) -> None:
    """Where the old session is gone the row is absent; where it lives behind a proxy nobody can say, until it ends."""
    links.settings = SILENT
    async with Publisher(links.world.pair.amqp_url) as publisher, at_work(links):
        await links.wait_ended(await links.publish(publisher, "apply"))
        trap = links.database.trap(is_commit, catch)
        identifier = await links.publish(publisher, "apply")
        link = await trap.wait()
        begun, settled = links.hands.begun, links.hands.ended
        async with asyncio.timeout(10):
            while links.hands.repeated == 0 and links.hands.begun == begun:
                assert links.hands.ended == settled or links.hands.released, "acknowledged on an unknown commit"
                await asyncio.sleep(0.005)
        link.cut()
        await links.wait_ended(identifier, 10)
        await links.wait_quiet()
    await links.judge()


# ------------------------------------------------------------------ a whole life
async def live(links: Links, publisher: Publisher) -> None:
    """A consumer starts, applies an event that waits for it, and stops; a link that is cut meanwhile costs time."""
    identifier = await links.publish(publisher, "apply")
    async with at_work(links):
        await links.wait_ended(identifier)
        await links.wait_quiet()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("link", ["database", "broker"])
async def test_every_packet_from_start_to_stop_is_cut(links: Links, link: str, request: pytest.FixtureRequest) -> None:
    """Log-in, the checks of both sides, the delivery and the good-bye; each position is cut in one of the three ways.

    One that is not reached, for a life is not always told in as many packets, must be among the last.
    """
    proxy: FaultProxy = getattr(links, link)
    async with Publisher(links.world.pair.amqp_url) as publisher:
        async with at_work(links):
            pass  # now there is something to publish to
        await live(links, publisher)
        before = proxy.traffic.copy()
        await live(links, publisher)
        spent = proxy.traffic - before
        positions = [
            Position(direction, number, CUTS[number % len(CUTS)])
            for direction in Direction
            for number in range(1, spent.sent(direction) + 1)
        ]
        chosen = drawn(positions, request)
        for position in chosen:
            broken = proxy.break_at(position.direction, position.number, position.fault)
            await live(links, publisher)
            is_last = position.number > spent.sent(position.direction) - 3
            assert broken.reached.is_set() or is_last, f"{position} was really reached"
            proxy.disarm()
        await live(links, publisher)
    print(f"a life over the {link}: {len(chosen)} of {len(positions)} positions")
    await links.judge()


# ------------------------------------------------------------------ silence
#: Seconds after which a silent broker is given up: three heartbeats.
HEARTBEAT = 1


@pytest.mark.drawn(1)
@pytest.mark.parametrize("link", ["database", "broker"])
async def test_the_link_falls_silent_at_every_packet_and_never_says_a_word_again(
    links: Links, link: str, request: pytest.FixtureRequest
) -> None:
    """No end is seen by anybody: the unit's deadline ends the wait for a database, the heartbeat that for a broker.

    The server keeps the orphan's session, and with it the claim, until its `wait_timeout`.
    """
    links.settings, links.broker_settings = SILENT, replace(BROKER, heartbeat=HEARTBEAT)
    proxy: FaultProxy = getattr(links, link)
    async with Publisher(links.world.pair.amqp_url) as publisher, at_work(links):
        deliveries = Deliveries(links, publisher, "apply")
        # Heartbeats may be among what is counted: what is beyond the delivery is one of them, and as good a position.
        positions = positions_of(await deliveries.count(proxy), (Fault.SILENCE,))
        for position in drawn(positions, request, 1):
            await deliveries.warm()
            broken = proxy.break_at(position.direction, position.number, position.fault)
            await deliveries.run(None)
            async with asyncio.timeout(10):  # a heartbeat comes when it comes
                await broken.reached.wait()
        await deliveries.warm()  # over another link
        # A silent link's delivery is the broker's again when it has missed the heartbeats, and comes before the next.
        await links.wait_alone()
        await deliveries.warm()
    await links.judge()


async def test_links_that_are_as_slow_as_can_be(links: Links) -> None:
    """Every packet comes in pieces of a few octets."""
    async with Publisher(links.world.pair.amqp_url) as publisher, at_work(links):
        for flow in FLOWS:
            deliveries = Deliveries(links, publisher, flow)
            known = await deliveries.warm()
            for proxy in (links.database, links.broker):
                proxy.throttle(8000)
                proxy.delay(0.002)
            await deliveries.run(known)
            for proxy in (links.database, links.broker):
                proxy.throttle(None)
                proxy.delay(0)
    await links.judge()

"""Leased events, a real database, and a platform that does everything wrong: each effect exists once."""

import asyncio
import random
from collections import Counter

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql import MySQL
from inbox.adapters.websocket import Credential, OrbitSettings, OrbitTransport
from inbox.adapters.websocket.conversation import Limits
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.testing.orbit_server import Act, Cut, Moment, OrbitServer, OrbitServerSettings, Switch, Terms
from tests.integration.orbit_rig import World
from tests.integration.store_rig import MySQLRig
from tests.pairs import Driver, Pair

EVENTS = 80
SERVER = OrbitServerSettings(terms=Terms(lease=0.5, first_delay=0.01, longest_delay=0.1), budget=10_000)
ORBIT = OrbitSettings(
    capacity=8, shutdown_timeout=10, reconnect_min_delay=0.01, reconnect_max_delay=0.05, unit_deadline=5
)
ENGINE = ConsumerSettings(
    concurrency=8, deadline=5, retry=RetryPolicy(first_delay=0.01, max_delay=0.05), report_interval=None
)
QUICK = Limits(handshake=5.0, request=0.5, heartbeat=0.1)

#: What goes wrong, each once where it is drawn.
TROUBLE = [
    *(
        Switch(Act.CUT, frame, nth=nth, how=how, when=when)
        for frame, nth in (("ack", 3), ("ack_receipt", 2), ("delivery", 5), ("pong", 1))
        for how in (Cut.RESET, Cut.FIN, Cut.CLOSE)
        for when in (Moment.BEFORE, Moment.AFTER)
    ),
    *(Switch(Act.CUT, frame, nth=2, when=Moment.MIDDLE) for frame in ("ack_receipt", "delivery", "pong")),
    Switch(Act.LOSE_REPLY, "ack", nth=4),
    Switch(Act.IGNORE, "ack", nth=4),
    Switch(Act.REPLACE, "ack", nth=2, times=3),
    Switch(Act.REFUSE, "ack", nth=3),
    Switch(Act.REFUSE, "ack", nth=3, when=Moment.AFTER),
    Switch(Act.HOLD, "ack_receipt", seconds=0.4),
    Switch(Act.ANSWER_HTTP, "upgrade", times=2, status=503),
]


@pytest.fixture
async def rig(pair: Pair, driver: Driver) -> MySQLRig:
    made = MySQLRig(pair, driver)
    await made.create()
    return made


def make(rig: MySQLRig, server: OrbitServer, subscription: str) -> Inbox:
    transport = OrbitTransport(server.url, subscription, Credential(server.credential), ORBIT, limits=QUICK)
    return Inbox("reports", store=MySQL(rig.url, DatabaseSettings(lock_wait=2)), transport=transport, settings=ENGINE)


async def test_two_consumers_under_every_trouble_apply_each_event_once(rig: MySQLRig) -> None:
    drawn = random.Random(4)  # noqa: S311 - the same failures each time
    runs: Counter[str] = Counter()

    async def credit(event: Event, session: AsyncSession) -> None:
        runs[event.id] += 1
        await rig.effect(session, event.id)
        if drawn.random() < 0.1:
            raise ValueError("by chance")
        if drawn.random() < 0.05:
            await asyncio.sleep(0.7)  # longer than the lease: somebody else gets it meanwhile

    async with OrbitServer(SERVER) as server:
        world = World(server)
        inboxes = [make(rig, server, world.subscription) for _ in range(2)]
        for inbox in inboxes:
            inbox.handler("task.succeeded")(credit)
        running = [asyncio.create_task(inbox.run()) for inbox in inboxes]
        published = []
        for _ in range(EVENTS // 10):
            published += world.publish(10)
            for switch in drawn.sample(TROUBLE, 3):
                server.switches.set(switch)
            await wait_acknowledged(world, len(published) - 10)  # not far behind, or all trouble comes at once
        server.switches.clear()
        await wait_acknowledged(world, EVENTS)
        assert not any(task.done() for task in running)
        for inbox in inboxes:
            inbox.stop()
        await asyncio.gather(*running)
    assert sorted(await rig.effects()) == sorted(published)
    assert await rig.keys("reports") == {event_id.encode() for event_id in published}
    assert await rig.quarantined("reports") == []
    stats = [inbox.transport.stats for inbox in inboxes if isinstance(inbox.transport, OrbitTransport)]
    assert sum(each.reconnects for each in stats) > 5
    assert sum(runs.values()) > EVENTS, "some failed, and were run again"


async def wait_acknowledged(world: World, count: int) -> None:
    async with asyncio.timeout(60):
        while world.states().get("acknowledged", 0) < count:
            await asyncio.sleep(0.02)

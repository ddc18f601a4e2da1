"""The engine with copies over the real broker and database: each event once, or in quarantine as it was sent."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql import MySQL
from inbox.adapters.rabbitmq import Binding, Publisher, RabbitMQ, RabbitMQSettings
from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.delivery import Delivery, Origin
from inbox.core.event import CloudEvent, Event
from inbox.core.policy import RetryPolicy, RetryRule
from inbox.errors import Unauthentic
from inbox.testing.faults import AmqpFraming, FaultProxy
from tests.facts import wait_until
from tests.integration.store_rig import MySQLRig
from tests.pairs import Pair

DELAYS = (0.1, 0.4)
POLICY = RetryPolicy(
    max_attempts=3, delays=DELAYS, rules=(RetryRule(event_types=("flaky",), max_attempts=50, delays=(0.1,)),)
)


class Route:
    """A verifier to whom the route of the first publish is part of the signature, as are its headers."""

    def __init__(self, exchange: str) -> None:
        self.exchange = exchange

    async def verify(self, delivery: Delivery, event: CloudEvent) -> None:
        signed = delivery.headers.get("signature")
        if delivery.origin != Origin(self.exchange, event.type) or signed != bytearray(event.id.encode()):
            raise Unauthentic("the route or the signature is another one")
        if any(name.startswith("x-inbox-") for name in delivery.headers):
            raise Unauthentic("there is a header that nobody signed")


class World:
    def __init__(self, pair: Pair, url: str) -> None:
        self.pair = pair
        self.rig = MySQLRig(pair, pair.driver)
        self.exchange, self.queue = pair.unique("jobs"), pair.unique("orders")
        for name in [f"{self.queue}.dead", *(retry.name for retry in retry_queues(self.queue, DELAYS))]:
            pair.discard(name)
        self.runs: Counter[str] = Counter()
        self.transport = RabbitMQ(
            url,
            self.queue,
            [Binding(self.exchange, "#", declare="topic")],
            RabbitMQSettings(heartbeat=1, reconnect_max_delay=0.3, confirm_timeout=2),
        )
        self.inbox = Inbox(
            "billing",
            store=MySQL(self.rig.url, DatabaseSettings(lock_wait=1)),
            transport=self.transport,
            verifier=Route(self.exchange),
            settings=ConsumerSettings(concurrency=4, deadline=10, retry=POLICY),
        )
        self.inbox.handler("flaky")(self.flaky)
        self.inbox.handler("hopeless")(self.hopeless)

    async def flaky(self, event: Event, session: AsyncSession) -> None:
        """Fails three times, half of an effect behind it each time."""
        self.runs[event.id] += 1
        await self.rig.effect(session, event.id)
        if self.runs[event.id] <= 3:
            raise LookupError(event.id)

    async def hopeless(self, event: Event, session: AsyncSession) -> None:
        self.runs[event.id] += 1
        await self.rig.effect(session, event.id)
        raise LookupError(event.id)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.rig.create()
        started = asyncio.Event()
        run = asyncio.create_task(self.inbox.run(started=started.set))
        starting = asyncio.create_task(started.wait())
        await asyncio.wait({run, starting}, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield
        finally:
            starting.cancel()
            self.inbox.stop()
            async with asyncio.timeout(30):
                await run

    async def publish(self, kind: str, count: int) -> None:
        async with Publisher(self.pair.amqp_url) as publisher:
            for number in range(count):
                id_ = f"{kind}-{number}"
                headers = {"ce-id": id_, "ce-source": "/s", "ce-type": kind, "ce-specversion": "1.0"}
                await publisher.publish(
                    b"{}",
                    exchange=self.exchange,
                    routing_key=kind,
                    headers=headers | {"signature": id_.encode(), "rate": 0.1},
                    content_type="application/json",
                )

    async def wait_settled(self) -> None:
        async with asyncio.timeout(60):
            while any(depth.ready for depth in await self.transport.depths()) or not await self._is_quiet():
                await asyncio.sleep(0.1)

    async def _is_quiet(self) -> bool:
        """Whether every event has ended: its row or its quarantine is there."""
        rows, refused = await self.rig.keys(), await self.rig.quarantined()
        return len(rows) + len(refused) >= len(self.runs)


async def test_what_fails_comes_again_until_it_succeeds_or_is_quarantined_as_it_was_sent(pair: Pair) -> None:
    world = World(pair, pair.amqp_url)
    async with world.running():
        await world.publish("flaky", 20)
        await world.publish("hopeless", 5)
        await wait_until(lambda: len(world.runs) == 25)
        await world.wait_settled()
    assert sorted(await world.rig.effects()) == sorted(f"flaky-{number}" for number in range(20))
    assert {world.runs[f"flaky-{number}"] for number in range(20)} == {4}
    assert {world.runs[f"hopeless-{number}"] for number in range(5)} == {3}
    refused = await world.rig.quarantined()
    assert [(row.reason, row.attempts, row.times_seen) for row in refused] == [("handler-error", 3, 1)] * 5
    for row in refused:
        assert {*row.headers} == {"ce-id", "ce-source", "ce-type", "ce-specversion", "signature", "rate"}
        assert row.headers["rate"] == 0.1


@pytest.mark.parametrize("seed", [1, 2])
async def test_cut_links_cost_attempts_at_most_and_never_an_effect(pair: Pair, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - where it is cut
    async with FaultProxy(pair.broker.host, pair.broker.port, framing=AmqpFraming) as proxy:
        parts = urlsplit(pair.amqp_url)
        url = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl()
        world = World(pair, url)
        async with world.running():
            await world.publish("flaky", 40)
            for _ in range(8):
                await asyncio.sleep(chance.random() * 0.4)
                proxy.cut()
            await wait_until(lambda: len(world.runs) == 40)
            await world.wait_settled()
        assert sorted(await world.rig.effects()) == sorted(f"flaky-{number}" for number in range(40))
        assert await world.rig.quarantined() == []

"""Job events over real brokers and databases: what is genuine is applied once, whatever way it came."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql import MySQL
from inbox.adapters.rabbitmq import Binding, RabbitMQ
from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.demo.jobs import Job, Sender, json_body, make_job
from inbox.fetcher import FetcherVerifier, JobCompleted, JobFailed, job_event_settings
from tests.integration.store_rig import MySQLRig
from tests.pairs import Pair

KEY, OLD_KEY, OTHER_KEY = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
TENANT = "9b2f4c1e3d5a4f8b9c7d1e2f3a4b5c6d"
DELAYS = (0.1,)


class World:
    """A consumer of job events, and the Workers that send them."""

    def __init__(self, pair: Pair, rig: MySQLRig | None = None, *, tenant: str = TENANT, amqp_url: str = "") -> None:
        self.pair = pair
        self.rig = rig or MySQLRig(pair, pair.driver)
        self.amqp_url = amqp_url or pair.amqp_url
        self.exchange, self.queue = pair.unique("job.events"), pair.unique("billing")
        for name in [f"{self.queue}.dead", *(retry.name for retry in retry_queues(self.queue, DELAYS))]:
            pair.discard(name)
        self.tenant = tenant
        self.worker = Sender(self.exchange, tenant, KEY)
        self.failing: set[str] = set()
        self.inbox = self.make_inbox(keys=[KEY, OLD_KEY])

    def make_inbox(self, *, keys: list[bytes], **settings: Any) -> Inbox:
        inbox = Inbox(
            f"billing-{self.tenant}",
            store=MySQL(self.rig.url, DatabaseSettings(lock_wait=1)),
            transport=RabbitMQ(self.amqp_url, self.queue, [Binding(self.exchange, "job.#", declare="topic")]),
            verifier=FetcherVerifier(keys, exchange=self.exchange, tenant=self.tenant, **settings),
            settings=job_event_settings(
                ConsumerSettings(concurrency=4, deadline=10, retry=RetryPolicy(max_attempts=3, delays=DELAYS))
            ),
        )
        inbox.handler(*JobCompleted.TYPES)(self.credit)
        inbox.handler(*JobFailed.TYPES)(self.note)
        return inbox

    async def credit(self, job: JobCompleted, event: Event, session: AsyncSession) -> None:
        await self.rig.effect(session, f"{job.job_id} {job.execution_time_ms}")
        if job.event_id in self.failing:
            self.failing.discard(job.event_id)
            raise LookupError("once")

    async def note(self, job: JobFailed, session: AsyncSession) -> None:
        await self.rig.effect(session, f"{job.job_id} failed")

    @asynccontextmanager
    async def running(self, inbox: Inbox | None = None) -> AsyncIterator[None]:
        inbox = inbox or self.inbox
        started = asyncio.Event()
        run = asyncio.create_task(inbox.run(started=started.set))
        starting = asyncio.create_task(started.wait())
        await asyncio.wait({run, starting}, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield
        finally:
            starting.cancel()
            inbox.stop()
            async with asyncio.timeout(30):
                await run

    async def wait_ended(self, applied: int, refused: int = 0) -> None:
        """Until so many are applied and so many refused, and the queues are empty."""
        consumer = self.inbox.name
        transport = self.inbox.transport
        assert isinstance(transport, RabbitMQ)
        async with asyncio.timeout(30):
            while (
                len(await self.rig.keys(consumer)) < applied
                or len(await self.rig.quarantined(consumer)) < refused
                or any(depth.ready for depth in await transport.depths())
            ):
                await asyncio.sleep(0.05)

    async def reasons(self) -> list[str]:
        refused = await self.rig.quarantined(self.inbox.name)
        return sorted(f"{row.reason}: {row.detail.partition(':')[0]}" for row in refused)


@asynccontextmanager
async def channel_to(url: str) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(url) as connection:
        yield await connection.channel(publisher_confirms=True, on_return_raises=True)


async def publish(
    channel: AbstractChannel, worker: Sender, job: Job, *, exchange: str | None = None, now: float | None = None
) -> None:
    """As a Worker does: `ce-*` as byte arrays, confirmed; to another exchange than is signed, where one is named."""
    encoded = worker.encoded(job, time.time() if now is None else now)
    message = aio_pika.Message(
        encoded.body,
        headers=dict(encoded.headers),
        content_type=encoded.content_type,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )
    target = await channel.get_exchange(worker.exchange if exchange is None else exchange)
    await target.publish(message, job.routing_key)


def jobs(count: int) -> list[Job]:
    draw = random.Random(7)  # noqa: S311 - test data
    return [make_job(number, "completed", KEY, draw) for number in range(count)]


def changed(job: Job, **members: Any) -> Job:
    return replace(job, body=json_body({**json.loads(job.body), **members}))


async def test_what_is_genuine_is_applied_once_and_nothing_that_is_not_uses_up_its_id(pair: Pair) -> None:
    world = World(pair)
    await world.rig.create()
    forged, stale, again, rotated, later = jobs(5)
    failed = make_job(9, "failed", KEY, random.Random(9))  # noqa: S311 - test data
    world.inbox = world.make_inbox(keys=[KEY, OLD_KEY], max_age=300)
    async with world.running(), channel_to(pair.amqp_url) as channel:
        await publish(channel, replace(world.worker, key=OTHER_KEY), forged)
        await publish(channel, replace(world.worker, tenant="another"), forged)
        await publish(channel, replace(world.worker, exchange="elsewhere"), forged, exchange=world.exchange)
        await publish(channel, world.worker, stale, now=time.time() - 3600)
        await world.wait_ended(0, refused=4)
        for job in (forged, again, failed):
            await publish(channel, world.worker, job)
        await publish(channel, replace(world.worker, key=OLD_KEY), rotated)
        await publish(channel, replace(world.worker, family="studio.lerian.fetcher"), later)
        await world.wait_ended(5, refused=4)
        await publish(channel, world.worker, changed(again, executionTimeMs=77_777))
        await publish(channel, replace(world.worker, family="studio.lerian.fetcher"), again)
        await publish(channel, world.worker, failed)
        await world.wait_ended(5, refused=4)
    assert await world.reasons() == [
        "inconsistent: tenant",
        "invalid: signature",
        "invalid: signature",
        "stale: too-old",
    ]
    assert world.inbox.telemetry.counts["duplicate"] == 3

    report = await world.make_inbox(keys=[KEY], max_age=300).replay()
    assert (report.applied, report.quarantined_again) == (1, 3)
    effects = [label.split()[0] for label in await world.rig.effects()]
    assert sorted(effects) == sorted(job.id for job in (forged, stale, again, rotated, later, failed))


async def test_a_message_that_died_twice_and_then_failed_is_verified_by_its_first_route(pair: Pair) -> None:
    """Two TTL queues behind each other, another exchange between them, and then a delayed copy of our own."""
    world = World(pair)
    await world.rig.create()
    (job,) = jobs(1)
    world.failing.add(job.event_id)
    first, second, between = pair.unique("first"), pair.unique("second"), pair.unique("between")
    async with world.running(), channel_to(pair.amqp_url) as channel:
        exchange = await channel.get_exchange(world.exchange)
        queue = await channel.get_queue(world.queue)
        await queue.unbind(exchange, "job.#")
        await channel.declare_exchange(between, aio_pika.ExchangeType.TOPIC)
        dies_to: Any = {"x-message-ttl": 50, "x-dead-letter-exchange": between, "x-dead-letter-routing-key": "parked"}
        await (await channel.declare_queue(first, arguments=dies_to)).bind(exchange, "job.completed")
        dies_home: Any = {"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": world.queue}
        await (await channel.declare_queue(second, arguments=dies_home)).bind(between, "parked")
        await publish(channel, world.worker, job)
        await world.wait_ended(1)
    assert [label.split()[0] for label in await world.rig.effects()] == [job.id]
    assert world.failing == set()
    assert await world.reasons() == []


async def test_what_a_wrong_key_refused_is_applied_by_a_replay_with_the_right_one(pair: Pair) -> None:
    world = World(pair)
    await world.rig.create()
    (job,) = jobs(1)
    world.inbox = world.make_inbox(keys=[OTHER_KEY])
    async with world.running(), channel_to(pair.amqp_url) as channel:
        await publish(channel, world.worker, job)
        await world.wait_ended(0, refused=1)
    assert await world.reasons() == ["invalid: signature"]

    world.inbox = world.make_inbox(keys=[KEY])
    report = await world.make_inbox(keys=[KEY]).replay()
    assert report.applied == 1
    async with world.running(), channel_to(pair.amqp_url) as channel:
        await publish(channel, world.worker, job)
        await world.wait_ended(1)
    assert [label.split()[0] for label in await world.rig.effects()] == [job.id]


@pytest.mark.controls_services
async def test_two_tenants_on_two_virtual_hosts_take_their_own_events_only(pair: Pair) -> None:
    worlds = []
    user = urlsplit(pair.amqp_url).username or ""
    rig = MySQLRig(pair, pair.driver)
    await rig.create()
    for tenant in ("tenant-a", "tenant-b"):
        await asyncio.to_thread(pair.broker.control, "add_vhost", tenant)
        await asyncio.to_thread(pair.broker.control, "set_permissions", "--vhost", tenant, user, ".*", ".*", ".*")
        url = urlsplit(pair.amqp_url)._replace(path=f"/{quote(tenant, safe='')}").geturl()
        worlds.append(World(pair, rig, tenant=tenant, amqp_url=url))
    one, other = worlds
    mine, theirs = jobs(2)
    async with one.running(), other.running():
        async with channel_to(one.amqp_url) as channel:
            await publish(channel, one.worker, mine)
            await publish(channel, replace(other.worker, exchange=one.exchange), theirs)
        async with channel_to(other.amqp_url) as channel:
            await publish(channel, other.worker, theirs)
        await one.wait_ended(1, refused=1)
        await other.wait_ended(1)
    assert sorted(label.split()[0] for label in await rig.effects()) == sorted([mine.id, theirs.id])
    assert (await one.reasons(), await other.reasons()) == (["inconsistent: tenant"], [])
    for tenant in ("tenant-a", "tenant-b"):
        await asyncio.to_thread(pair.broker.control, "delete_vhost", tenant)

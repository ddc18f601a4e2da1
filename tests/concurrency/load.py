"""A worker under load: its commands, what is published to it, and what must have come of that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pymysql

from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.errors import InboxError
from tests.acceptance.command import Command, Ended, running
from tests.crash.world import World
from tests.facts import wait_until

#: Most events that are published ahead of the workers: an outage need not be paid for by hours of catching up.
BACKLOG = 100
TARGET = "tests.concurrency.app:inbox"


@dataclass
class Load:
    """Events that are published, each twice, until the test has seen enough."""

    world: World
    worker: Command
    enough: asyncio.Event

    async def publish(self) -> None:
        """Publish until `enough`; a publish that was not confirmed is done again, under the same id."""
        number = 0
        while not self.enough.is_set():
            with suppress(InboxError):
                async with Publisher(self.world.pair.amqp_url) as publisher:
                    while not self.enough.is_set():
                        for _ in range(2):
                            await self._publish(publisher, f"load-{number}")
                        self.world.published.append((f"load-{number}", "apply"))
                        number += 1
                        if number % 25 == 0:
                            await self._wait_for_workers(number)

    async def _publish(self, publisher: Publisher, identifier: str) -> None:
        await publisher.publish(
            b"{}",
            exchange=self.world.exchange,
            routing_key="apply",
            headers={"ce-id": identifier, "ce-source": "/load", "ce-type": "apply", "ce-specversion": "1.0"},
            content_type="application/json",
        )

    async def _wait_for_workers(self, published: int) -> None:
        while published > self.effects() + BACKLOG and not self.enough.is_set():
            await asyncio.sleep(0.1)

    def effects(self) -> int:
        """How many there are; -1 while the database does not answer."""
        try:
            return self.world.count("effect")
        except pymysql.MySQLError:
            return -1

    async def wait_for_progress(self, effects: int = 30) -> None:
        """Return when so many more effects are there than now."""
        before = max(0, self.effects())
        await wait_until(lambda: self.effects() >= before + effects)


@asynccontextmanager
async def at_work(world: World, *, database_url: str | None = None, amqp_url: str | None = None) -> AsyncIterator[Load]:
    """Two worker processes that consume."""
    env = {
        "APP_DATABASE_URL": database_url or world.pair.database_url,
        "APP_AMQP_URL": amqp_url or world.pair.amqp_url,
        "APP_QUEUE": world.queue,
        "APP_EXCHANGE": world.exchange,
    }
    async with running("run", TARGET, "--workers", "2", env=env) as worker:
        await worker.wait_for("connection 1", times=2)
        yield Load(world, worker, asyncio.Event())


@asynccontextmanager
async def under_load(world: World, **urls: str) -> AsyncIterator[Load]:
    """Workers with work; after the block they finish what there is, and the oracle judges."""
    async with at_work(world, **urls) as load:
        publishing = asyncio.ensure_future(load.publish())
        try:
            await load.wait_for_progress()
            yield load
            await load.wait_for_progress()
        finally:
            load.enough.set()
            await publishing
        await wait_until(lambda: load.effects() >= len(world.published))
        await world.wait_drained()
        ended = await load.worker.stop()
    await judge(world, ended)


async def judge(world: World, ended: Ended) -> None:
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err, ended.err
    assert "died" not in ended.err, ended.err
    await world.judge()
    charged = world.query("SELECT attempt_key, failed, crashed FROM inbox_attempt WHERE failed + crashed > 0")
    assert not charged, "an outage is nobody's attempt"

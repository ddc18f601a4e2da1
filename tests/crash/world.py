"""What the kill tests publish, and the one oracle by which they judge."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import aio_pika
from yarl import URL

from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.app import Inbox
from inbox.testing.crash import CrashWorker
from tests.acceptance.tables import create_tables
from tests.crash import app
from tests.pairs import Pair

#: What is published for each crash point: each kind leads through other commands.
KINDS = ["apply"] * 6 + ["flaky", "reject", "lose_connection", "lose_often", "lose_commit"]


@dataclass
class World:
    """One database, one queue, and events whose effects are counted."""

    pair: Pair
    queue: str
    exchange: str
    published: list[tuple[str, str]]
    factory: Callable[..., Inbox] = app.make
    delays: tuple[float, ...] = app.SETTINGS.retry.steps
    extra: tuple[str, ...] = ()

    def worker(
        self, *, database_port: int | None = None, broker_port: int | None = None, **options: Any
    ) -> CrashWorker:
        """Start one; over the ports of proxies where they are given."""
        arguments = (
            at_port(self.pair.database_url, database_port),
            at_port(self.pair.amqp_url, broker_port),
            self.queue,
            self.exchange,
            *self.extra,
        )
        worker = CrashWorker(self.factory, arguments, **options)
        worker.start()
        return worker

    async def publish(self, label: str, kinds: list[str] = KINDS, copies: int = 2) -> None:
        """Publish `kinds`, each `copies` times under one id."""
        async with Publisher(self.pair.amqp_url) as publisher:
            for copy in range(copies):
                for number, kind in enumerate(kinds):
                    identifier = f"{label}-{number}"
                    if copy == 0:
                        self.published.append((identifier, kind))
                    await _publish(publisher, identifier, kind, self.exchange, kind)

    async def wait_drained(self, patience: float = 60) -> None:
        """Return when every event has ended: applied, or in quarantine, and the queues are empty."""
        async with asyncio.timeout(patience):
            while not self._all_ended() or await self.left_in_queue() > 0:
                await asyncio.sleep(0.02)

    async def wait_copies_back(self, patience: float = 60) -> None:
        """Return when every copy that waited has come back, and what came with it has ended.

        Who died between a copy and its acknowledgement left both. A copy that the broker moves from its retry queue is
        counted in no queue, but it goes in order: so do events that are put behind it.
        """
        await self.wait_drained(patience)
        async with Publisher(self.pair.amqp_url) as publisher:
            for name in self.retry_queues:
                identifier = f"behind-{name}-{len(self.published)}"
                self.published.append((identifier, "apply"))
                await _publish(publisher, identifier, "apply", "", name)
        await self.wait_drained(patience)

    @property
    def retry_queues(self) -> list[str]:
        return [retry.name for retry in retry_queues(self.queue, self.delays)]

    async def left_in_queue(self) -> int:
        """Ready messages by the broker's count, of dead letters and of copies that wait too; with no consumer left,
        unacknowledged ones are among them.
        """
        connection = await aio_pika.connect(self.pair.amqp_url)
        async with connection:
            return sum(
                [await _left(connection, name) for name in (*self.retry_queues, f"{self.queue}.dead", self.queue)]
            )

    def _all_ended(self) -> bool:
        return self.count("inbox") + self.count("inbox_quarantine") >= len(set(self.published))

    def count(self, table: str) -> int:
        (number,) = self.query(f"SELECT COUNT(*) FROM {table}")[0]  # noqa: S608 - a name of ours
        return int(number)

    def query(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        with closing(app.connect(self.pair.database_url)) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    async def judge(self) -> None:
        """One effect, one row, one balance for each distinct event; rejects in quarantine; nothing left over."""
        applied = {identifier.encode() for identifier, kind in self.published if kind != "reject"}
        rejected = {identifier.encode() for identifier, kind in self.published if kind == "reject"}
        effects = [row[0] for row in self.query("SELECT event_id FROM effect")]
        rows = [row[0] for row in self.query("SELECT event_id FROM inbox")]
        quarantined = [row[0] for row in self.query("SELECT event_id FROM inbox_quarantine")]
        assert sorted(effects) == sorted(applied), "effects = distinct events"
        assert sorted(rows) == sorted(applied), "one inbox row each"
        assert self.query("SELECT SUM(balance) FROM account")[0][0] == len(applied)
        assert sorted(quarantined) == sorted(rejected), "one quarantine row each"
        assert await self.left_in_queue() == 0, "ready + unacknowledged = 0"
        left = self.query("SELECT attempt_key, open_alone, history FROM inbox_attempt WHERE open_since IS NOT NULL")
        assert not left, f"no start is left open: {left}"


async def _publish(publisher: Publisher, identifier: str, kind: str, exchange: str, routing_key: str) -> None:
    await publisher.publish(
        b'{"n":1}',
        exchange=exchange,
        routing_key=routing_key,
        headers={"ce-id": identifier, "ce-source": "/tests", "ce-type": kind, "ce-specversion": "1.0"},
        content_type="application/json",
    )


async def _left(connection: aio_pika.abc.AbstractConnection, name: str) -> int:
    """Ready messages of one queue; none where there is no such queue."""
    channel = await connection.channel()
    try:
        queue = await channel.declare_queue(name, passive=True)
    except aio_pika.exceptions.ChannelNotFoundEntity:
        return 0
    await channel.close()
    return queue.declaration_result.message_count or 0


def at_port(url: str, port: int | None) -> str:
    """The same address by way of a proxy on loopback."""
    return url if port is None else str(URL(url).with_port(port))


async def make_world(pair: Pair) -> World:
    """Tables in this test's database, and names on its broker; nothing is declared there yet."""
    await create_tables(pair)
    with closing(app.connect(pair.database_url)) as connection, connection.cursor() as cursor:
        for statement in app.TABLES:
            cursor.execute(statement)
    queue, exchange = pair.unique("ledger"), pair.unique("events")
    world = World(pair, queue, exchange, [])
    for name in (f"{queue}.dead", *world.retry_queues):
        pair.discard(name)
    return world

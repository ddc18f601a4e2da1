"""A consumer in the test's own process, over proxies, so that one fault costs milliseconds and not a process."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aio_pika
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.adapters.rabbitmq.settings import Binding, RabbitMQSettings
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.event import Event
from inbox.core.lifecycle import Command, Outcome
from inbox.core.policy import RetryPolicy
from inbox.errors import Reject
from inbox.ports import Passage
from inbox.testing.faults import AmqpFraming, FaultProxy, MySqlFraming
from tests.crash.app import CONSUMER
from tests.crash.world import World, at_port

#: One delivery at a time: whatever is delivered next says that the one before was settled.
SETTINGS = ConsumerSettings(
    concurrency=1,
    prefetch=1,
    deadline=5,
    cancel_patience=2,
    shutdown_patience=10,
    report_interval=None,
    retry=RetryPolicy(max_attempts=6, delays=(0.05,), first_delay=0.01, max_delay=0.05, jitter=0),
)
DATABASE = DatabaseSettings(lock_wait=1, connect_timeout=3, start_patience=30)
BROKER = RabbitMQSettings(
    heartbeat=60,  # none comes between the packets that are counted
    start_patience=30,
    connect_timeout=10,
    reconnect_min_delay=0.01,
    reconnect_max_delay=0.1,
    confirm_timeout=3,
    ack_linger=0,
)


class Hands:
    """A probe that knows whether anything is in hand. The first command of a life is decoding, its last one settles."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.repeated = 0
        self.released = 0

    def before(self, command: Command, passage: Passage) -> None:
        self.begun += command is Command.DECODE
        self.repeated += command is Command.WAIT

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        self.ended += command in (Command.ACKNOWLEDGE, Command.RELEASE)
        self.released += command is Command.RELEASE

    @property
    def are_empty(self) -> bool:
        return self.begun == self.ended


class Links:
    """A world, and the two proxies by which its consumers reach their servers."""

    def __init__(self, world: World, database: FaultProxy, broker: FaultProxy) -> None:
        self.world = world
        self.database = database
        self.broker = broker
        self.hands = Hands()
        self.runs: Counter[str] = Counter()
        self.settings = SETTINGS
        self.store_settings = DATABASE
        self.broker_settings = BROKER
        #: How long a slow handler takes.
        self.seconds = 0.3
        self._published = 0
        self.wanted: dict[str, str] = {}

    def make(self) -> Inbox:
        """A consumer that has not begun."""
        world = self.world
        inbox = Inbox(
            CONSUMER,
            store=MySQL(at_port(world.pair.database_url, self.database.port), self.store_settings),
            transport=RabbitMQ(
                at_port(world.pair.amqp_url, self.broker.port),
                world.queue,
                [Binding(world.exchange, "#", declare="topic")],
                self.broker_settings,
            ),
            settings=self.settings,
        )
        for kind in ("apply", "flaky", "reject", "slow"):
            inbox.handler(kind)(getattr(self, kind))
        inbox.add_probe(self.hands)
        return inbox

    # ------------------------------------------------------------ handlers
    async def apply(self, event: Event, session: AsyncSession) -> None:
        self.runs[event.id] += 1
        await session.execute(text("INSERT INTO effect VALUES (:id)"), {"id": event.id.encode()})
        await session.execute(text("UPDATE account SET balance = balance + 1 WHERE id = 0"))

    async def flaky(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        if self.runs[event.id] == 1:
            raise LookupError("the first time always fails")

    async def reject(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        raise Reject("never wanted")

    async def slow(self, event: Event, session: AsyncSession) -> None:
        await self.apply(event, session)
        await session.execute(text("SELECT SLEEP(:seconds)"), {"seconds": self.seconds})

    # ------------------------------------------------------------ steps
    async def publish(self, publisher: Publisher, kind: str, identifier: str | None = None) -> str:
        """Publish one event, past the proxies; under a new id unless one is given."""
        self._published += identifier is None
        identifier = identifier or f"{kind}-{self._published}"
        self.wanted[identifier] = kind
        await self._send(publisher, identifier, kind, self.world.exchange, kind)
        return identifier

    async def publish_behind_copies(self, publisher: Publisher) -> str:
        """Publish an event that comes when every copy that waits now has come."""
        self._published += 1
        identifier = f"behind-{self._published}"
        self.wanted[identifier] = "apply"
        (retry,) = retry_queues(self.world.queue, self.settings.retry.steps)
        await self._send(publisher, identifier, "apply", "", retry.name)
        return identifier

    async def _send(self, publisher: Publisher, identifier: str, kind: str, exchange: str, key: str) -> None:
        await publisher.publish(
            b'{"n":1}',
            exchange=exchange,
            routing_key=key,
            headers={"ce-id": identifier, "ce-source": "/tests", "ce-type": kind, "ce-specversion": "1.0"},
            content_type="application/json",
        )

    async def wait_ended(self, identifier: str, patience: float = 30) -> None:
        """Return when the event was applied or put away, and nothing is in hand."""
        async with asyncio.timeout(patience):
            while not (self.hands.are_empty and await asyncio.to_thread(self.has_ended, identifier)):
                await asyncio.sleep(0.003)

    def has_ended(self, identifier: str) -> bool:
        key = identifier.encode().hex()
        return bool(
            self.world.query(
                f"SELECT 1 FROM inbox WHERE event_id = X'{key}' "  # noqa: S608 - digits
                f"UNION ALL SELECT 1 FROM inbox_quarantine WHERE event_id = X'{key}'"
            )
        )

    async def wait_quiet(self) -> None:
        """Return when nothing is in hand, and nothing has passed either proxy from one look to the next."""
        before = None
        async with asyncio.timeout(30):
            while not self.hands.are_empty or before != self._passed():
                before = self._passed()
                await asyncio.sleep(0.015)

    async def wait_alone(self) -> None:
        """Return when the broker knows of one consumer only: what it held for others is in the queue again.

        Both are one command of the queue, so by the number of consumers we know of what they had in hand.
        """
        connection = await aio_pika.connect(self.world.pair.amqp_url)
        async with connection, asyncio.timeout(30):
            channel = await connection.channel()
            while True:
                found = (await channel.declare_queue(self.world.queue, passive=True)).declaration_result
                if found.consumer_count == 1:
                    return
                await asyncio.sleep(0.05)

    def _passed(self) -> list[int]:
        traffics = (self.database.traffic, self.broker.traffic)
        return [number for traffic in traffics for number in (traffic.packets, traffic.answers)]

    # ------------------------------------------------------------ the oracle
    async def judge(self) -> None:
        """After the consumer has stopped: one effect, row and balance for each event, and nothing left over."""
        self.world.published = list(self.wanted.items())
        await self.world.judge()


@asynccontextmanager
async def linked(world: World) -> AsyncIterator[Links]:
    """Proxies for a world whose retry queue is that of the settings above."""
    world.delays = SETTINGS.retry.steps
    for name in world.retry_queues:
        world.pair.discard(name)
    pair = world.pair
    async with (
        FaultProxy(pair.database.host, pair.database.port, MySqlFraming) as database,
        FaultProxy(pair.broker.host, pair.broker.port, AmqpFraming) as broker,
    ):
        yield Links(world, database, broker)


@asynccontextmanager
async def at_work(links: Links, patience: float = 30) -> AsyncIterator[Inbox]:
    """A consumer that consumes, and stops in an orderly way at the end."""
    inbox = links.make()
    started = asyncio.Event()
    running = asyncio.create_task(inbox.run(started=started.set))
    starting = asyncio.create_task(started.wait())
    await asyncio.wait({running, starting}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    assert starting.done(), f"it did not start within {patience} s"
    try:
        yield inbox
    finally:
        inbox.stop()
        async with asyncio.timeout(patience):
            await running

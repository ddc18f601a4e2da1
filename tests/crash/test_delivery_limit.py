"""A queue of somebody else's that gives up what came back too often, and an event that kills whoever handles it.

Each death returns everything that the worker had in hand, so the broker's limit throws innocents away with the guilty.
They are dead letters then, which are consumed into quarantine: nothing is lost, and a replay applies each of them.
"""

import asyncio
from dataclasses import replace
from typing import cast

import aio_pika
import pytest
from aiormq.abc import FieldTable

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import RabbitMQSettings
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.core.typed_json import load_headers
from inbox.testing.crash import CrashWorker
from tests.crash.test_poison import MAX_ATTEMPTS, SETTINGS, Poison, effects
from tests.crash.world import World

pytestmark = [pytest.mark.timeout(180), pytest.mark.drawn(0)]

PREFETCH = 50
INNOCENTS = 49
LIMIT = 2
#: Deaths, after which the crash loop has no end: the event's own, and those of its way through the dead letters.
TOO_OFTEN = 3 * MAX_ATTEMPTS


def make(database_url: str, amqp_url: str, queue: str, exchange: str, mended: str = "") -> Inbox:
    """A worker on a queue that was there before; `mended` has handlers that do what they should."""
    settings = RabbitMQSettings(declare=False, dead_letter_queue=f"{queue}.dead", ack_linger=0)
    inbox = Inbox(
        "ledger",
        store=MySQL(database_url),
        transport=RabbitMQ(amqp_url, queue, settings=settings),
        settings=replace(SETTINGS, prefetch=PREFETCH),
    )
    poison = Poison(database_url)
    inbox.handler("apply")(poison.apply)
    inbox.handler("kill")(poison.apply if mended else poison.kill)
    return inbox


async def declare(world: World) -> None:
    dead = f"{world.queue}.dead"
    async with await aio_pika.connect(world.pair.amqp_url) as connection, connection.channel() as channel:
        exchange = await channel.declare_exchange(world.exchange, aio_pika.ExchangeType.TOPIC, durable=True)
        await channel.declare_queue(dead, durable=True)
        arguments: FieldTable = {
            "x-queue-type": "quorum",
            "x-delivery-limit": LIMIT,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead,
        }
        queue = await channel.declare_queue(world.queue, durable=True, arguments=arguments)
        await queue.bind(exchange, "#")


async def test_innocents_that_the_broker_gives_up_beside_a_crasher_are_kept_and_replayed(world: World) -> None:
    world.factory = make
    await declare(world)
    await world.publish("event", ["kill"] + ["apply"] * INNOCENTS, copies=1)
    deaths = 0
    worker = await started(world)
    while not await has_ended(world, worker):
        deaths += 1
        assert deaths <= TOO_OFTEN, "the crash loop ends"
        worker = await started(world)
    assert await asyncio.to_thread(worker.stop) == 0
    assert deaths > LIMIT, "everything came back too often"
    entries, applied = put_away(world), set(effects(world))
    assert applied | set(entries) == {f"event-{number}" for number in range(INNOCENTS + 1)}
    assert len(applied) + len(entries) == INNOCENTS + 1, "one or the other"
    assert set(entries.values()) <= {"dead-lettered", "crashed"}
    assert "dead-lettered" in entries.values(), "the broker gave some up"
    assert not world.query("SELECT 1 FROM inbox_attempt WHERE attempt_key <> 'event-0' AND failed + crashed > 0")

    # The last death of the guilty one is charged when it is next begun, and may be one too many: once more, then.
    left = len(entries)
    for _ in range(2):
        mended = make(world.pair.database_url, world.pair.amqp_url, world.queue, world.exchange, "mended")
        report = await mended.replay()
        left -= report.applied
        assert left <= 1
    assert left == 0
    assert effects(world) == {f"event-{number}": 1 for number in range(INNOCENTS + 1)}
    assert world.query("SELECT balance FROM account WHERE id = 0") == ((INNOCENTS + 1,),)
    assert await world.left_in_queue() == 0


def put_away(world: World) -> dict[str, str]:
    """Reasons by the id that the event says it has: what the broker gave up is refused before that is believed."""
    rows = world.query("SELECT headers, reason FROM inbox_quarantine")
    headers = [(cast("dict[str, str]", load_headers(row[0])["headers"]), row[1]) for row in rows]
    return {each["ce-id"]: reason if isinstance(reason, str) else reason.decode() for each, reason in headers}


async def started(world: World) -> CrashWorker:
    worker = world.worker()
    await asyncio.to_thread(worker.wait_ready)
    return worker


async def has_ended(world: World, worker: CrashWorker) -> bool:
    """Return when the worker has died (False), or every event is applied or put away (True)."""
    async with asyncio.timeout(60):
        while worker.is_alive():
            if world._all_ended() and await world.left_in_queue() == 0:
                return True
            await asyncio.sleep(0.02)
    assert worker.exit_code == -9
    return False

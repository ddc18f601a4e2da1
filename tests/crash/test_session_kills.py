"""KILL and KILL QUERY of a worker's sessions, by an operator or a watchdog, at each step of the lifecycle."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import aio_pika
import pymysql
import pytest

from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.core.crashpoints import CrashPoint, When, crash_points
from inbox.core.lifecycle import Command, Outcome
from inbox.errors import TransportError
from inbox.ports import Passage
from tests.crash import app
from tests.crash.consumer import Links, at_work, linked
from tests.crash.world import World

pytestmark = pytest.mark.timeout(600)

POINTS = [*crash_points()]
#: Under a seed.
DRAWN = 1
KINDS = ["apply", "flaky", "reject", "lose_often", "lose_commit"]


class Killer:
    """A probe that ends what the server does for this consumer, once it is armed, at one point."""

    def __init__(self, world: World, how: str) -> None:
        self._world = world
        self._how = how
        self.point: CrashPoint | None = None
        self.killed = 0

    def before(self, command: Command, passage: Passage) -> None:
        self._at(CrashPoint(When.BEFORE, command))

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        self._at(CrashPoint(When.AFTER, command))

    def _at(self, point: CrashPoint) -> None:
        if point == self.point:
            self.point = None
            self.kill()

    def kill(self, condition: str = "TRUE") -> None:
        """All sessions of this test's database, or those of which `condition` holds."""
        mine = (
            "SELECT id FROM information_schema.processlist "  # noqa: S608 - conditions of ours
            f"WHERE db = DATABASE() AND id <> CONNECTION_ID() AND {condition}"
        )
        with closing(app.connect(self._world.pair.database_url)) as connection, connection.cursor() as cursor:
            cursor.execute(mine)
            for (session,) in cursor.fetchall():
                try:
                    cursor.execute(f"{self._how} {int(session)}")
                except pymysql.MySQLError:  # it has gone by itself
                    continue
                self.killed += 1


@asynccontextmanager
async def consuming(world: World, killer: Killer) -> AsyncIterator[None]:
    inbox = world.factory(world.pair.database_url, world.pair.amqp_url, world.queue, world.exchange)
    inbox.add_probe(killer)
    started = asyncio.Event()
    running = asyncio.create_task(inbox.run(started=started.set))
    starting = asyncio.create_task(started.wait())
    await asyncio.wait({running, starting}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield
    finally:
        inbox.stop()
        async with asyncio.timeout(60):
            await running


@pytest.mark.drawn(1)
@pytest.mark.parametrize("how", ["KILL CONNECTION", "KILL QUERY"])
async def test_sessions_are_killed_at_every_step(world: World, how: str, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--rotate")
    points = POINTS if seed is None else random.Random(f"{seed} {how}").sample(POINTS, DRAWN)  # noqa: S311
    await kill_sessions_at(world, how, points)


async def kill_sessions_at(world: World, how: str, points: Sequence[CrashPoint]) -> None:
    """One after the other, under one consumer that goes on."""
    killer = Killer(world, how)
    async with consuming(world, killer):
        for point in points:
            killer.point = point
            await world.publish(str(point), KINDS)
            await world.wait_copies_back()
            assert killer.point is None, f"{point} was really reached"
    assert killer.killed >= len(points)
    await world.judge()


@pytest.mark.parametrize("how", ["KILL CONNECTION", "KILL QUERY"])
async def test_the_claim_is_killed_while_it_waits_for_another(world: World, how: str) -> None:
    """What ends is neither a duplicate nor an attempt, whoever held the row."""
    async with linked(world) as links, Publisher(world.pair.amqp_url) as publisher, at_work(links):
        await links.wait_ended(await links.publish(publisher, "apply"))
        with closing(app.connect(world.pair.database_url)) as holder, holder.cursor() as cursor:
            holder.begin()
            cursor.execute("INSERT INTO inbox (consumer_name, event_id) VALUES (%s, 'held')", (app.CONSUMER.encode(),))
            await links.publish(publisher, "apply", "held")
            killer = Killer(world, how)
            async with asyncio.timeout(30):
                while not killer.killed:
                    await asyncio.to_thread(killer.kill, "info LIKE 'INSERT INTO %inbox%'")
            holder.rollback()
        await links.wait_ended("held")
        await links.wait_quiet()
    assert not world.query("SELECT attempt_key FROM inbox_attempt WHERE failed + crashed > 0")
    await links.judge()


async def test_a_claim_that_waits_for_too_long_is_no_duplicate(world: World) -> None:
    """Error 1205, where no fingerprint is compared that could show the mistake."""
    async with linked(world) as links, Publisher(world.pair.amqp_url) as publisher:
        links.settings = replace(links.settings, fingerprint=None)
        async with at_work(links):
            await links.wait_ended(await links.publish(publisher, "apply"))
            with closing(app.connect(world.pair.database_url)) as holder, holder.cursor() as cursor:
                holder.begin()
                cursor.execute(
                    "INSERT INTO inbox (consumer_name, event_id) VALUES (%s, 'held')", (app.CONSUMER.encode(),)
                )
                settled, begun = links.hands.ended, links.hands.repeated
                await links.publish(publisher, "apply", "held")
                async with asyncio.timeout(30):
                    while links.hands.repeated == begun:  # until it has waited in vain once
                        assert links.hands.ended == settled, "settled on a lock wait"
                        await asyncio.sleep(0.02)
                holder.rollback()
            await links.wait_ended("held", 10)
            await links.wait_quiet()
    await links.judge()


@pytest.mark.parametrize("how", ["KILL CONNECTION", "KILL QUERY"])
async def test_a_statement_of_the_handler_is_killed_under_way(world: World, how: str) -> None:
    async with linked(world) as links, Publisher(world.pair.amqp_url) as publisher, at_work(links):
        with closing(app.connect(world.pair.database_url)) as holder, holder.cursor() as cursor:
            holder.begin()
            cursor.execute("SELECT balance FROM account WHERE id = 0 FOR UPDATE")
            identifier = await links.publish(publisher, "apply")
            killer = Killer(world, how)
            async with asyncio.timeout(30):
                while not killer.killed:
                    await asyncio.to_thread(killer.kill, "info LIKE 'UPDATE account%'")
            holder.rollback()
        await links.wait_ended(identifier)
        await links.wait_quiet()
        assert links.runs[identifier] >= 2, "undone, and run again"
    assert not world.query("SELECT attempt_key FROM inbox_attempt WHERE failed + crashed > 0")
    await links.judge()


# ------------------------------------------------------------------ the queue
async def test_the_queue_is_deleted_under_the_consumer_and_declared_again(world: World) -> None:
    """What was in it went with it, by the operator's hand; what is handed over again is applied, or a duplicate."""
    async with linked(world) as links, Publisher(world.pair.amqp_url) as publisher, at_work(links):
        for number in range(3):
            running = await links.publish(publisher, "slow", f"running-{number}")
            async with asyncio.timeout(30):
                while not links.runs[running]:
                    await asyncio.sleep(0.003)
            async with await aio_pika.connect(world.pair.amqp_url) as connection, connection.channel() as channel:
                await channel.queue_delete(world.queue)
            await publish_until_routed(links, publisher, running)
            await links.wait_ended(await links.publish(publisher, "apply"))
        await links.wait_quiet()
    await links.judge()


async def publish_until_routed(links: Links, publisher: Publisher, identifier: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await links.publish(publisher, "slow", identifier)
            except TransportError:
                await asyncio.sleep(0.02)
            else:
                return

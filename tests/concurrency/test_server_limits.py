"""Servers at their limits: no connection to be had, a broker in alarm, one that takes slow deliveries back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing

import pymysql
import pytest
from pymysql.cursors import Cursor

from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.testing.faults import FaultProxy
from tests.concurrency.load import under_load
from tests.crash.app import connect
from tests.crash.consumer import at_work, linked
from tests.crash.world import World, at_port
from tests.facts import wait_until
from tests.services.probe import connect_database

# They change settings of a whole server, and take long: they run in `make crash`.
pytestmark = [pytest.mark.controls_services, pytest.mark.drawn(0), pytest.mark.timeout(300)]

#: Connections that the server still allows; fewer than MySQL's least would be raised to that.
FEW = 10


class Operator:
    """Who is on the server already when it is full."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def allow(self, connections: int) -> None:
        self._cursor.execute(f"SET GLOBAL max_connections = {connections}")

    def allowed(self) -> int:
        return self._ask("SELECT 0, @@GLOBAL.max_connections")

    def turned_away(self) -> int:
        """How many connections were refused, for there were too many."""
        return self._ask("SHOW GLOBAL STATUS LIKE 'Connection_errors_max_connections'")

    def _ask(self, sql: str) -> int:
        self._cursor.execute(sql)
        row = self._cursor.fetchone()
        assert row is not None
        return int(row[1])


@pytest.fixture
def operator(world: World) -> Iterator[Operator]:
    with connect_database(world.pair.database.dsn) as connection, connection.cursor() as cursor:
        made = Operator(cursor)
        before = made.allowed()
        yield made
        made.allow(before)


async def test_no_connection_is_to_be_had(world: World, operator: Operator) -> None:
    """Error 1040: the workers have lost theirs, and others have taken all there are."""
    pair = world.pair
    async with FaultProxy(pair.database.host, pair.database.port) as proxy:
        url = at_port(pair.database_url, proxy.port)
        async with under_load(world, database_url=url) as load:
            with ExitStack() as others:
                proxy.refuse()
                proxy.cut()
                await load.worker.wait_for("intake paused", times=2)
                await asyncio.to_thread(_take_all, world, operator, others)
                turned_away = operator.turned_away()
                proxy.refuse(False)
                await wait_until(lambda: operator.turned_away() >= turned_away + 2)
                assert "intake resumed" not in load.worker.err
            await load.worker.wait_for("intake resumed", times=2)


def _take_all(world: World, operator: Operator, others: ExitStack) -> None:
    """Every connection that the server allows."""
    operator.allow(FEW)
    while True:
        try:
            others.enter_context(closing(connect(world.pair.database_url)))
        except pymysql.err.OperationalError as error:
            assert error.args[0] == 1040, error  # noqa: PT017 - anything else is no limit
            return


async def test_the_broker_is_in_alarm(world: World) -> None:
    """Who publishes waits; who consumes goes on, and what cannot be copied is held in hand."""
    async with under_load(world) as load:
        await asyncio.to_thread(world.pair.broker.control, "set_vm_memory_high_watermark", "0.0000001")
        try:
            await wait_until(lambda: load.effects() >= len(world.published))
        finally:
            await asyncio.to_thread(world.pair.broker.control, "set_vm_memory_high_watermark", "0.4")


@asynccontextmanager
async def impatient_broker(world: World) -> AsyncIterator[None]:
    """It takes a delivery back that was not settled within a second."""

    async def set_to(wait: int, interval: int) -> None:
        for name, milliseconds in (("consumer_timeout", wait), ("channel_tick_interval", interval)):
            expression = f"application:set_env(rabbit, {name}, {milliseconds})."
            await asyncio.to_thread(world.pair.broker.control, "eval", expression)

    await set_to(1000, 500)
    try:
        yield
    finally:
        await set_to(1_800_000, 60_000)


async def test_a_handler_takes_longer_than_the_broker_waits(world: World) -> None:
    """The broker closes the channel and delivers anew, while the first run is still at it: that one counts."""
    async with impatient_broker(world), linked(world) as links:
        links.seconds = 4
        async with Publisher(world.pair.amqp_url) as publisher, at_work(links):
            connections = links.broker.traffic.connections
            identifier = await links.publish(publisher, "slow")
            await links.wait_ended(identifier)
            assert links.broker.traffic.connections > connections or links.hands.begun > 1, "it was taken back"
            links.seconds = 0.3
            await links.wait_ended(await links.publish(publisher, "slow"))
            await links.wait_quiet()
        assert links.runs[identifier] == 1, "its duplicate waited for it"
    await links.judge()

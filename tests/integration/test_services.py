"""The fixtures themselves: what each test is promised of its servers."""

import asyncio
import ssl

import aio_pika
import pymysql
import pytest
from aio_pika.exceptions import AMQPConnectionError
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.pairs import Driver, Pair
from tests.services.probe import connect_database

# A node writes the name of a new quorum queue to its disk up to half a second later. Killed before, it comes back with
# an empty queue, confirmed messages and all: seen on RabbitMQ 3.10 and 4.3, where a classic queue kept them.
QUORUM_QUEUE_IS_ON_DISK = 2.0


async def test_each_test_gets_an_empty_database_and_a_broker(pair: Pair, driver: Driver) -> None:
    engine = create_async_engine(pair.url_for(driver))
    async with engine.connect() as connection:
        assert (await connection.execute(text("SHOW TABLES"))).all() == []
        durable = await connection.execute(text("SELECT @@innodb_flush_log_at_trx_commit"))
        assert durable.scalar_one() == 1
    await engine.dispose()

    async with await aio_pika.connect(pair.amqp_url) as broker:
        channel = await broker.channel()
        queue = await channel.declare_queue(pair.unique("orders"), durable=True)
        await channel.default_exchange.publish(aio_pika.Message(b"one"), routing_key=queue.name)
        assert (await queue.get(timeout=5)).body == b"one"


@pytest.mark.needs_tls
async def test_the_broker_offers_tls_with_a_certificate_that_its_authority_vouches_for(pair: Pair) -> None:
    trusting = ssl.create_default_context(cafile=pair.tls.authority)
    async with await aio_pika.connect(pair.tls.dsn, ssl_context=trusting) as broker:
        assert isinstance(await broker.channel(), aio_pika.abc.AbstractChannel)

    with pytest.raises(AMQPConnectionError):
        await aio_pika.connect(pair.tls.dsn, ssl_context=ssl.create_default_context())


@pytest.mark.controls_services
def test_a_killed_database_comes_back_at_its_address_with_what_was_committed(pair: Pair) -> None:
    with connect_database(pair.database.dsn, database=pair.schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE kept (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO kept VALUES (1)")
    pair.database.kill9()
    assert not pair.database.is_running()
    with pytest.raises(pymysql.OperationalError):
        connect_database(pair.database.dsn)

    pair.database.start()

    with connect_database(pair.database.dsn, database=pair.schema) as connection, connection.cursor() as cursor:
        assert cursor.execute("SELECT id FROM kept") == 1


@pytest.mark.controls_services
def test_a_paused_database_keeps_its_connections_and_goes_on(pair: Pair) -> None:
    with connect_database(pair.database.dsn) as connection, connection.cursor() as cursor:
        pair.database.pause()
        with pytest.raises(pymysql.OperationalError):
            connect_database(pair.database.dsn, read_timeout=0.3)
        pair.database.resume()
        assert cursor.execute("SELECT 1") == 1


@pytest.mark.controls_services
async def test_a_killed_broker_comes_back_at_its_address_with_its_durable_queues(pair: Pair) -> None:
    name = pair.unique("kept")
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
        await asyncio.sleep(QUORUM_QUEUE_IS_ON_DISK)
        await channel.default_exchange.publish(
            aio_pika.Message(b"one", delivery_mode=aio_pika.DeliveryMode.PERSISTENT), routing_key=name
        )
        pair.broker.kill9()
    with pytest.raises(AMQPConnectionError):
        await aio_pika.connect(pair.amqp_url)

    await asyncio.to_thread(pair.broker.start)

    async with await aio_pika.connect(pair.amqp_url) as connection:
        queue = await (await connection.channel()).declare_queue(name, passive=True)
        assert (await queue.get(timeout=10)).body == b"one"


@pytest.mark.controls_services
def test_the_broker_takes_orders_by_its_own_command_line(pair: Pair) -> None:
    assert "inbox" in pair.broker.control("--quiet", "list_users")

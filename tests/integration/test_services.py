"""The fixtures themselves: what each test is promised of its servers."""

import aio_pika
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.pairs import Driver, Pair


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
        assert await queue.get(timeout=5)
